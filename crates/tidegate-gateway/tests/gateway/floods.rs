//! Servers that say without end what nobody asked for: whoever waits gets an answer in time, requests to others are
//! unharmed, and so are later ones to the same server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_gateway::upstream::ServerSettings;
use tidegate_gateway::{RouteSettings, Running};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PUSH_PROMISE, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, fields, frame,
};
use crate::support::{Upstream, exchange, gateway, get, port, read_head, settings, until_idle};

/// How long an answer may take.
const TIME: Duration = Duration::from_millis(200);
/// How long a server goes on: until it is not waited for any more, or else until it is cut off.
const FLOOD: Duration = Duration::from_millis(300);
const FLOOD_MAX: Duration = Duration::from_secs(5);
/// How many bytes of a flood are written at a time, about.
const BLOCK_BYTES: usize = 16 << 10;

/// What a server says first, and what it says then without end, by the number of the stream.
type Flood = fn(u32) -> (Vec<u8>, Vec<u8>);

/// A gateway in front of a server that floods, and of one at `/well` that does not.
async fn before(url: &str) -> (Running, Upstream) {
    let well = Upstream::echo().await;
    let mut settings = settings(&[url]);
    settings.routes[0].bounds.response_timeout = TIME;
    settings.routes[0].bounds.idle_timeout = TIME;
    let server = ServerSettings { url: well.url().parse().unwrap(), weight: 1 };
    let mut route = RouteSettings::new(vec![server]);
    "/well".clone_into(&mut route.path);
    settings.routes.push(route);
    (gateway(settings).await, well)
}

/// A server of HTTP/2 that floods in answer to the first request of all, and answers all others, in the midst of the flood
/// if need be. Counts how many bytes of it were taken.
async fn flooding(flood: Flood, time: Duration) -> (Upstream, Arc<AtomicUsize>) {
    let taken = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&taken);
    let connections = AtomicUsize::new(0);
    let upstream = Upstream::accepting(move |stream, asked| {
        let is_first = connections.fetch_add(1, Ordering::SeqCst) == 0;
        let taken = Arc::clone(&counted);
        async move {
            let (reading, mut writing) = stream.into_split();
            let mut reading = BufReader::with_capacity(64 << 10, reading);
            let (coming, mut came) = tokio::sync::mpsc::channel(100);
            // It ends with the connection.
            tokio::spawn(async move {
                reading.read_exact(&mut [0; 24]).await.ok()?;
                while let Some((kind, flags, stream, _)) =
                    crate::peer::read_frame(&mut reading).await
                {
                    if kind == HEADERS && flags & END_STREAM != 0 {
                        asked.fetch_add(1, Ordering::SeqCst);
                        coming.send(stream).await.ok()?;
                    }
                }
                Some(())
            });
            let _ = writing.write_all(&frame(SETTINGS, 0, 0, &[])).await;
            let answer = |stream| frame(HEADERS, END_HEADERS | END_STREAM, stream, &[0x88]);
            if is_first {
                let Some(stream) = came.recv().await else { return };
                let (first, again) = flood(stream);
                let block = again.repeat(BLOCK_BYTES.div_ceil(again.len()));
                let _ = writing.write_all(&first).await;
                let until = Instant::now() + time;
                while Instant::now() < until && writing.write_all(&block).await.is_ok() {
                    taken.fetch_add(block.len(), Ordering::SeqCst);
                    if let Ok(stream) = came.try_recv() {
                        let _ = writing.write_all(&answer(stream)).await;
                    }
                }
            }
            while let Some(stream) = came.recv().await {
                let _ = writing.write_all(&answer(stream)).await;
            }
        }
    });
    (upstream.await, taken)
}

/// The head of an answer, without its end.
fn head(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &[0x88])
}

/// A field of 1,000 bytes.
fn field() -> Vec<u8> {
    fields(&[("x", &"y".repeat(1_000))])
}

/// What may be said at any time, and is borne until the time is over.
const BORNE: [(&str, Flood); 7] = [
    ("pings", |_| (vec![], frame(PING, 0, 0, &[0; 8]))),
    ("settings", |_| (vec![], frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]))),
    ("windows", |_| (vec![], frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]))),
    ("what nobody knows", |stream| (vec![], frame(0x77, 0, stream, &[0; 100]))),
    ("priorities", |stream| (vec![], frame(2, 0, stream, &[0, 0, 0, 0, 1]))),
    ("answers before the answer", |stream| {
        (vec![], frame(HEADERS, END_HEADERS, stream, &fields(&[(":status", "103")])))
    }),
    ("long answers before the answer", |stream| {
        let lines = [fields(&[(":status", "103")]), field().repeat(15)].concat();
        (vec![], frame(HEADERS, END_HEADERS, stream, &lines))
    }),
];

/// What is no answer, and ends the connection or the stream.
const REFUSED: [(&str, Flood); 10] = [
    ("a head without end", |stream| {
        (frame(HEADERS, 0, stream, &[0x88]), frame(CONTINUATION, 0, stream, &field()))
    }),
    ("an answer before the answer without end", |stream| {
        let head = fields(&[(":status", "103")]);
        (frame(HEADERS, 0, stream, &head), frame(CONTINUATION, 0, stream, &field()))
    }),
    ("empty continuations", |stream| {
        (frame(HEADERS, 0, stream, &[0x88]), frame(CONTINUATION, 0, stream, &[]))
    }),
    ("promises", |stream| {
        let promised = [&2_u32.to_be_bytes()[..], &fields(&crate::http2::GET)].concat();
        (vec![], frame(PUSH_PROMISE, END_HEADERS, stream, &promised))
    }),
    ("a window beyond all bounds", |_| {
        (vec![], frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes()))
    }),
    ("data without a head", |stream| (vec![], frame(DATA, 0, stream, b"x"))),
    ("data of nobody", |_| (vec![], frame(DATA, 0, 99, b"x"))),
    ("heads of nobody", |_| (vec![], head(99))),
    ("resets of nobody", |_| (vec![], frame(RST_STREAM, 0, 99, &[0; 4]))),
    ("a frame that is too long", |_| (vec![], frame(0x77, 0, 0, &[0; 20_000]))),
];

/// What breaks an answer off that has begun, and ends the connection.
const BROKEN: [(&str, Flood); 4] = [
    ("resets", |stream| (head(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]))),
    ("empty data", |stream| (head(stream), frame(DATA, 0, stream, b""))),
    ("data of padding", |stream| (head(stream), frame(DATA, 8, stream, &[3, 0, 0, 0]))),
    ("trailers without end", |stream| {
        let first = [head(stream), frame(HEADERS, END_STREAM, stream, &field())].concat();
        (first, frame(CONTINUATION, 0, stream, &field()))
    }),
];

/// What breaks an answer off, and is borne then until the time is over.
const BROKEN_AND_BORNE: [(&str, Flood); 1] =
    [("heads after the head", |stream| (head(stream), head(stream)))];

/// Asks a server that floods for so long, and says what the client got and how many bytes of the flood were taken.
async fn flooded(what: &str, flood: Flood, time: Duration) -> (String, usize) {
    const TRIES: usize = 20;
    let (upstream, taken) = flooding(flood, time).await;
    let (running, _well) = before(&format!("h2c://{}", upstream.address)).await;
    let to = port(&running);
    let began = Instant::now();
    // Nothing that would be sent again.
    let asking = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let asked = tokio::spawn(exchange(to, asking));
    // Others are not held up meanwhile.
    while !asked.is_finished() {
        assert_eq!(get(to, "/well").await.status(), 200, "{what}");
    }
    let answer = asked.await.unwrap();
    assert!(began.elapsed() < FLOOD_MAX * 4 / 5, "{what}: {:?}", began.elapsed());
    // What was said before has to pass first.
    let mut tries = 0;
    while get(to, "/").await.status() != 200 {
        tries += 1;
        assert!(tries < TRIES, "{what}: later requests are harmed");
    }
    until_idle(&running).await;
    (answer, taken.load(Ordering::SeqCst))
}

#[tokio::test]
async fn a_server_of_http2_that_says_without_end_what_it_may_say_is_not_waited_for() {
    for (what, flood) in BORNE {
        let (answer, _) = flooded(what, flood, FLOOD).await;
        assert!(answer.starts_with("HTTP/1.1 504 "), "{what}: {answer}");
    }
}

/// What is taken of a flood that is no answer: a head of the longest kind, and what is under way.
const TAKEN_BYTES_MAX: usize = 16 << 20;

#[tokio::test]
async fn a_server_of_http2_that_says_without_end_what_it_may_not_say_is_502() {
    for (what, flood) in REFUSED {
        let (answer, taken) = flooded(what, flood, FLOOD_MAX).await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{what}: {answer}");
        assert!(taken < TAKEN_BYTES_MAX, "{what}: {taken}");
    }
}

fn assert_broken_off(what: &str, answer: &str) {
    // Where it breaks off at once, its head may not have left.
    let is_begun = answer.starts_with("HTTP/1.1 200 ");
    let is_refused = answer.is_empty() || answer.starts_with("HTTP/1.1 502 ");
    assert!(is_begun || is_refused, "{what}: {answer}");
    assert!(!is_begun || !answer.ends_with("0\r\n\r\n"), "{what}: {answer}");
}

#[tokio::test]
async fn an_answer_over_http2_that_becomes_a_flood_breaks_off() {
    for (what, flood) in BROKEN {
        let (answer, taken) = flooded(what, flood, FLOOD_MAX).await;
        assert_broken_off(what, &answer);
        assert!(taken < TAKEN_BYTES_MAX, "{what}: {taken}");
    }
    for (what, flood) in BROKEN_AND_BORNE {
        let (answer, _) = flooded(what, flood, FLOOD).await;
        assert_broken_off(what, &answer);
    }
}

/// A server of HTTP/1.1 that says this without end to whoever asks for `/`.
async fn flooding_one(first: &'static str, again: &'static str) -> (Upstream, Arc<AtomicUsize>) {
    let taken = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&taken);
    let upstream = Upstream::accepting(move |mut stream: TcpStream, _| {
        let taken = Arc::clone(&counted);
        async move {
            while let Some(head) = read_head(&mut stream).await {
                if !head.starts_with("GET / ") {
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    let _ = stream.write_all(answer).await;
                    continue;
                }
                let block = again.repeat(BLOCK_BYTES.div_ceil(again.len()));
                let _ = stream.write_all(first.as_bytes()).await;
                let until = Instant::now() + FLOOD_MAX;
                while Instant::now() < until && stream.write_all(block.as_bytes()).await.is_ok() {
                    taken.fetch_add(block.len(), Ordering::SeqCst);
                }
            }
        }
    });
    (upstream.await, taken)
}

#[tokio::test]
async fn a_server_of_http1_that_speaks_without_end_is_not_waited_for() {
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n";
    let early = "HTTP/1.1 103 Early Hints\r\n";
    for (what, first, again, expected) in [
        ("100", "", "HTTP/1.1 100 Continue\r\n\r\n", "504"),
        ("103", "", "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n", "504"),
        ("empty lines", "", "\r\n", "502"),
        ("103 without end", early, "Link: </a.css>\r\n", "502"),
        ("a head without end", "HTTP/1.1 200 OK\r\n", "X: y\r\n", "502"),
        ("a line without end", "HTTP/1.1 200 OK\r\nX: ", "y", "502"),
        ("trailers without end", CHUNKED, "X: y\r\n", "200"),
        ("a trailer without end", CHUNKED, "y", "200"),
    ] {
        for more in ["", "TE: trailers\r\n"] {
            let (upstream, taken) = flooding_one(first, again).await;
            let (running, _well) = before(&upstream.url()).await;
            let to = port(&running);
            // What follows is no request, and ends the connection.
            let asking = format!("GET / HTTP/1.1\r\nHost: a\r\n{more}\r\nno request\r\n\r\n");
            let began = Instant::now();
            let asked = tokio::spawn(async move { exchange(to, asking.as_bytes()).await });
            while !asked.is_finished() {
                assert_eq!(get(to, "/well").await.status(), 200, "{what}");
            }
            let answer = asked.await.unwrap();
            assert!(began.elapsed() < FLOOD_MAX * 4 / 5, "{what} {more}: {:?}", began.elapsed());
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {expected} ")),
                "{what} {more}: {answer}"
            );
            assert!(expected != "200" || !answer.ends_with("0\r\n\r\n"), "{what} {more}: {answer}");
            let taken = taken.load(Ordering::SeqCst);
            assert!(expected == "504" || taken < TAKEN_BYTES_MAX, "{what} {more}: {taken}");
            assert_eq!(get(to, "/later").await.body(), "ok", "{what} {more}");
            until_idle(&running).await;
        }
    }
}
