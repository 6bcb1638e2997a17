//! What upstreams say that can be read in two ways, or that nobody asked for: it is no answer, whichever way the request
//! took, and its connection is not used again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_gateway::Running;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::support::{
    Upstream, exchange, failures, gateway, port, read_head, settings, until, until_idle,
};

/// What a request has more where it is for the general server and client.
const WAYS: [&str; 2] = ["", "TE: trailers\r\n"];

/// What a client is told, but for what depends on the moment and the order, and how often servers were asked and failed.
type Outcome = (Vec<String>, String, usize, u64);

/// Asks a server that answers with these bytes and keeps its connections.
async fn outcome(method: &str, more: &str, answer: &'static str) -> (Outcome, Running) {
    let upstream = Upstream::accepting(move |mut stream, asked| async move {
        while read_head(&mut stream).await.is_some() {
            asked.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    })
    .await;
    let running = gateway(settings(&[&upstream.url()])).await;
    // What follows is no request, and ends the connection.
    let asking = format!("{method} / HTTP/1.1\r\nHost: a\r\n{more}\r\nno request\r\n\r\n");
    let told = exchange(port(&running), asking.as_bytes()).await;
    let (told, _) = told.rsplit_once("HTTP/1.1 400 ").unwrap_or_else(|| panic!("{answer}: {told}"));
    let (head, body) = told.split_once("\r\n\r\n").unwrap();
    let passing = ["date:", "ratelimit:", "x-ratelimit-remaining:"];
    let is_lasting = |line: &&str| !passing.iter().any(|name| line.starts_with(name));
    let mut lines: Vec<String> = head.lines().filter(is_lasting).map(ToOwned::to_owned).collect();
    lines.sort_unstable();
    until_idle(&running).await;
    ((lines, body.to_owned(), upstream.asked(), failures(&running)), running)
}

#[tokio::test]
async fn an_answer_that_can_be_read_in_two_ways_is_a_failure_whichever_way_it_comes() {
    const OK: &str = "HTTP/1.1 200 OK\r\n";
    let two_lengths = "Content-Length: 2\r\nContent-Length: 3\r\n\r\n";
    for (method, status, rest) in [
        ("GET", OK, "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!"),
        ("HEAD", OK, two_lengths),
        ("GET", "HTTP/1.1 304 Not Modified\r\n", two_lengths),
        ("GET", OK, "Content-Length: 2, 2\r\n\r\nok"),
        ("HEAD", OK, "Content-Length: 2, 2\r\n\r\n"),
        ("GET", OK, "Content-Length: +2\r\n\r\nok"),
        ("HEAD", OK, "Content-Length: two\r\n\r\n"),
        ("GET", OK, "Content-Length: 9223372036854775808\r\n\r\nok"),
        ("GET", OK, "Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        ("GET", OK, "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("GET", OK, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        ("GET", OK, "Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok"),
        ("GET", OK, "Transfer-Encoding: xchunked\r\n\r\nok"),
        ("GET", OK, "Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        ("GET", OK, "Transfer-Encoding: chunked\r\nContent-Length: 12\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        (
            "POST",
            OK,
            "Content-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        ("GET", "HTTP/1.0 200 OK\r\n", "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        ("GET", "HTTP/1.1 101 Switching Protocols\r\n", "Upgrade: x\r\n\r\n"),
    ] {
        let answer: &'static str = format!("{status}{rest}").leak();
        let mut outcomes = Vec::new();
        for more in WAYS {
            let (outcome, running) = outcome(method, more, answer).await;
            until("closed", || running.counts().upstream_connections == 0).await;
            assert_eq!(outcome.0[0], "HTTP/1.1 502 Bad Gateway", "{answer:?} {more}");
            assert!(outcome.3 > 0, "{answer:?} {more}: {outcome:?}");
            outcomes.push(outcome);
        }
        assert_eq!(outcomes[0], outcomes[1], "{method} {answer:?}");
    }
}

#[tokio::test]
async fn an_upload_that_is_answered_in_two_ways_and_not_read_leaves_no_connection() {
    const BODY_BYTES: usize = 32 << 20;
    let (release, released) = tokio::sync::watch::channel(false);
    let upstream = Upstream::accepting(move |mut stream, _| {
        let mut released = released.clone();
        async move {
            if read_head(&mut stream).await.is_some() {
                // By then there is no room any more for what it does not read.
                tokio::time::sleep(Duration::from_millis(500)).await;
                let answer =
                    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n";
                let _ = stream.write_all(answer.as_bytes()).await;
                // It keeps the connection, and reads no more of it.
                let _ = released.wait_for(|is_over| *is_over).await;
            }
        }
    })
    .await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let mut client = TcpStream::connect(port(&running)).await.unwrap();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let (mut reading, mut writing) = client.into_split();
    let sending = tokio::spawn(async move {
        let chunk = vec![b'x'; 64 << 10];
        while writing.write_all(&chunk).await.is_ok() {}
    });
    let mut told = [0; 12];
    reading.read_exact(&mut told).await.unwrap();
    assert_eq!(&told, b"HTTP/1.1 502");
    until("closed", || running.counts().upstream_connections == 0).await;
    drop(reading);
    sending.abort();
    until_idle(&running).await;
    release.send_replace(true);
}

#[tokio::test]
async fn an_answer_that_says_more_than_it_has_to_is_handed_on_alike_whichever_way_it_comes() {
    for (method, answer, lengths, body) in [
        ("GET", "200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok", 1, "ok"),
        ("HEAD", "200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n", 1, ""),
        ("GET", "200 OK\r\nContent_Length: 3\r\nX_Y: z\r\nContent-Length: 2\r\n\r\nok", 1, "ok"),
        ("GET", "200 OK\r\nTransfer_Encoding: chunked\r\nContent-Length: 2\r\n\r\nok", 1, "ok"),
        ("HEAD", "200 OK\r\nContent-Length: 2\r\n\r\n", 1, ""),
        ("HEAD", "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0, ""),
        ("GET", "204 No Content\r\nContent-Length: 2\r\n\r\n", 0, ""),
        ("GET", "204 No Content\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", 0, ""),
        ("GET", "304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", 0, ""),
        ("POST", "200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n", 1, ""),
    ] {
        let answer: &'static str = format!("HTTP/1.1 {answer}").leak();
        let mut outcomes = Vec::new();
        for more in WAYS {
            let (outcome, running) = outcome(method, more, answer).await;
            let told = outcome.0.iter().filter(|line| line.starts_with("content-length:")).count();
            let (asked, failures) = (outcome.2, outcome.3);
            let expected = (lengths, body, 1, 0);
            assert_eq!((told, &*outcome.1, asked, failures), expected, "{answer:?} {more}");
            assert_eq!(running.counts().upstream_connections, 1, "{answer:?} {more}");
            outcomes.push(outcome);
        }
        assert_eq!(outcomes[0], outcomes[1], "{method} {answer:?}");
    }
}

/// It may be as long as all of them together: a client that takes trailers gets it, and any other the answer alone.
#[tokio::test]
async fn a_trailer_that_is_long_breaks_no_answer() {
    let answer: &'static str = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x\r\n\r\n2\r\nok\r\n0\r\nx: {}\r\n\r\n",
        "y".repeat(5_000)
    )
    .leak();
    for more in WAYS {
        let (outcome, _running) = outcome("GET", more, answer).await;
        let is_whole = outcome.1.starts_with("2\r\nok\r\n0\r\n") && outcome.1.ends_with("\r\n\r\n");
        assert_eq!((is_whole, outcome.2, outcome.3), (true, 1, 0), "{more} {}", outcome.1);
    }
}

/// Asks for the head alone, has the upstream say something more once that is answered, and asks again over the same
/// connection as soon as it was said.
async fn ask_after(said: &'static [u8], (first, second): (&str, &str)) {
    let (answered, is_said) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (hears, says) = (Arc::clone(&answered), Arc::clone(&is_said));
    let upstream = Upstream::accepting(move |mut stream, asked| {
        let (hears, says) = (Arc::clone(&hears), Arc::clone(&says));
        async move {
            while let Some(head) = read_head(&mut stream).await {
                asked.fetch_add(1, Ordering::SeqCst);
                let own = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntruth";
                if !head.starts_with("HEAD") {
                    let _ = stream.write_all(own).await;
                    continue;
                }
                let _ = stream.write_all(&own[..own.len() - 5]).await;
                hears.notified().await;
                if said.is_empty() {
                    let _ = stream.shutdown().await;
                } else {
                    let _ = stream.write_all(said).await;
                }
                says.notify_one();
            }
        }
    })
    .await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let mut client = TcpStream::connect(port(&running)).await.unwrap();
    for number in 1..=20 {
        let asking = format!("HEAD / HTTP/1.1\r\nHost: a\r\n{first}\r\n");
        client.write_all(asking.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        answered.notify_one();
        is_said.notified().await;
        let asking = format!("GET / HTTP/1.1\r\nHost: a\r\n{second}\r\n");
        client.write_all(asking.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await.unwrap();
        let mut body = [0; 5];
        client.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"truth", "{number}: {head}");
        assert_eq!(upstream.asked(), 2 * number);
    }
    assert_eq!(failures(&running), 0);
}

const UNASKED: [&[u8]; 4] = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nevil!",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"evil!",
    // The end.
    b"",
];

#[tokio::test]
async fn what_comes_over_a_connection_that_is_kept_is_no_answer_to_the_next_request() {
    for said in UNASKED {
        for ways in [(WAYS[0], WAYS[0]), (WAYS[1], WAYS[1]), (WAYS[0], WAYS[1])] {
            ask_after(said, ways).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_comes_over_a_kept_connection_is_no_answer_whichever_thread_hears_of_it() {
    for said in UNASKED {
        let asking = (0..8).map(|number| {
            let way = WAYS[number % 2];
            tokio::spawn(ask_after(said, (way, way)))
        });
        for asked in asking.collect::<Vec<_>>() {
            asked.await.unwrap();
        }
    }
}
