//! Requests that no general server takes part in: they are answered as the others are, and hand over to the
//! general server wherever something is out of the ordinary.

use std::sync::atomic::Ordering;

use tidegate_gateway::Running;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{
    Upstream, exchange, gateway, port, read_head, settings, until, until_idle, with_rules,
};

const PLAIN: &str = "GET /a?b=c HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n";
/// The same for the general server.
const CLOSING: &str =
    "GET /a?b=c HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nConnection: close\r\n\r\n";

/// Sends requests on one connection, the last of which ends it, and reads all that comes.
async fn all(running: &Running, requests: &[&str]) -> String {
    exchange(port(running), requests.concat().as_bytes()).await
}

/// Head and body of the first answer in a text that is all of one connection, of which the rest is left.
fn next<'t>(text: &mut &'t str) -> (Vec<&'t str>, &'t str) {
    let (head, rest) = text.split_once("\r\n\r\n").expect("a head");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let (body, rest) = rest.split_at(length.map_or(0, |length| length.parse().unwrap()));
    *text = rest;
    (head.lines().collect(), body)
}

/// What does not depend on the moment or on the connection.
fn lasting<'t>(head: &[&'t str]) -> Vec<&'t str> {
    let passing = ["date:", "connection:", "ratelimit:", "x-ratelimit-remaining:"];
    let mut lasting: Vec<&str> = head.to_vec();
    lasting.retain(|line| !passing.iter().any(|name| line.starts_with(name)));
    lasting.sort_unstable();
    lasting
}

#[tokio::test]
async fn plain_requests_and_others_are_forwarded_and_answered_alike() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let text = all(&running, &[PLAIN, CLOSING]).await;
    let mut rest = text.as_str();
    let (plain_head, plain_body) = next(&mut rest);
    let (head, body) = next(&mut rest);
    assert_eq!(lasting(&plain_head), lasting(&head));
    assert!(plain_head.iter().any(|line| line.starts_with("date: ")), "{plain_head:?}");
    let mut lines: [Vec<&str>; 2] = [plain_body.lines().collect(), body.lines().collect()];
    for lines in &mut lines {
        lines.sort_unstable();
    }
    assert_eq!(lines[0], lines[1]);
    assert_eq!(rest, "");
    until_idle(&running).await;
}

#[tokio::test]
async fn spellings_of_where_a_body_ends_reach_no_upstream() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let spelt = "\r\nX_Kept: 1\r\nTransfer_Encoding: chunked\r\nContent_Length: 5\r\nAccept:";
    let requests = [PLAIN, CLOSING].map(|request| request.replace("\r\nAccept:", spelt));
    let text = all(&running, &[&requests[0], &requests[1]]).await;
    assert_eq!(text.matches("x_kept: 1").count(), 2, "{text}");
    assert!(!text.contains("transfer_encoding") && !text.contains("content_length"), "{text}");
}

#[tokio::test]
async fn plain_requests_and_others_are_refused_alike() {
    let upstream = Upstream::echo().await;
    let settings = with_rules(&[&upstream.url()], |layer| {
        layer.limit = Some("1/day per ip".parse().unwrap());
    });
    let running = gateway(settings).await;
    let text = all(&running, &[PLAIN, PLAIN, CLOSING]).await;
    let mut rest = text.as_str();
    let (first, _) = next(&mut rest);
    assert_eq!(first[0], "HTTP/1.1 200 OK");
    let (plain_head, plain_body) = next(&mut rest);
    let (head, body) = next(&mut rest);
    assert_eq!(plain_head[0], "HTTP/1.1 429 Too Many Requests");
    let names = |head: &[&str]| -> Vec<String> {
        let lines = lasting(head);
        lines.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&plain_head), names(&head));
    let members = |body: &str| -> Vec<String> {
        let value: serde_json::Value = serde_json::from_str(body).unwrap();
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(members(plain_body), members(body));
    assert_eq!(upstream.asked(), 1);
}

#[tokio::test]
async fn requests_that_come_together_are_answered_in_their_order() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let posted = "POST /posted HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello";
    // The first ones are plain, and from the one with a body on nothing is.
    let text = all(&running, &[PLAIN, PLAIN, posted, PLAIN, CLOSING]).await;
    let mut rest = text.as_str();
    for first in ["GET /a", "GET /a", "POST /posted", "GET /a", "GET /a"] {
        let (head, body) = next(&mut rest);
        assert_eq!(head[0], "HTTP/1.1 200 OK");
        assert!(body.starts_with(first), "{body}");
    }
    assert_eq!((rest, upstream.asked()), ("", 5));
    until_idle(&running).await;
}

#[tokio::test]
async fn every_way_to_end_a_body_is_understood() {
    for (answer, body) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "\r\nhello"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\r\n\r\n"),
        ("HTTP/1.1 204 No Content\r\n\r\n", "\r\n\r\n"),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "\r\n\r\n"),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nhe\r\n3\r\nllo\r\n0\r\nX: y\r\n\r\n",
            "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", "5\r\nhello\r\n0\r\n\r\n"),
        ("HTTP/1.0 200 OK\r\n\r\nhello", "5\r\nhello\r\n0\r\n\r\n"),
        (
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n",
            "\r\n\r\n",
        ),
    ] {
        let upstream = Upstream::raw(answer.as_bytes()).await;
        let running = gateway(settings(&[&upstream.url()])).await;
        let text = all(&running, &[PLAIN, CLOSING]).await;
        let first = text.split("HTTP/1.1 ").nth(1).unwrap();
        assert!(first.ends_with(body), "{answer:?} became {first:?}");
        assert!(!first.contains("Early"), "{first}");
        assert_eq!((text.matches("HTTP/1.1 ").count(), upstream.asked()), (2, 2), "{text}");
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn who_understands_trailers_gets_them_and_nobody_else() {
    let chunked = b"HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
                    2\r\nhe\r\n3\r\nllo\r\n0\r\nX-Sum: sum of it\r\n\r\n";
    for te in
        ["TE: trailers", "te: Trailers", "TE: gzip, trailers", "Connection: TE\r\nTE: trailers"]
    {
        let upstream = Upstream::raw(chunked).await;
        let running = gateway(settings(&[&upstream.url()])).await;
        let asking = format!("GET /a HTTP/1.1\r\nHost: a.example\r\n{te}\r\n\r\n");
        // The connection has begun with a plain request.
        let text = all(&running, &[PLAIN, &asking, CLOSING]).await;
        let answers: Vec<&str> = text.split("HTTP/1.1 200 OK\r\n").skip(1).collect();
        assert_eq!((answers.len(), upstream.asked()), (3, 3), "{text}");
        for (answer, is_told) in answers.iter().zip([false, true, false]) {
            let lower = answer.to_ascii_lowercase();
            assert!(answer.contains("\r\nhe\r\n"), "{te}: {answer}");
            assert_eq!(
                lower.ends_with("\r\n0\r\nx-sum: sum of it\r\n\r\n"),
                is_told,
                "{te}: {answer}"
            );
            assert_eq!(lower.contains("sum of it"), is_told, "{te}: {answer}");
        }
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn a_hundred_requests_at_once_are_answered_in_their_order() {
    let upstream = Upstream::echo().await;
    let settings = with_rules(&[&upstream.url()], |layer| {
        layer.limit = Some("3/day per ip".parse().unwrap());
    });
    let running = gateway(settings).await;
    // More answers than wait for one another, and of those that pass each after those before it.
    let text = all(&running, &[&PLAIN.repeat(100), CLOSING]).await;
    let mut rest = text.as_str();
    for number in 0..101 {
        let (head, body) = next(&mut rest);
        if number < 3 {
            assert_eq!(head[0], "HTTP/1.1 200 OK");
        } else {
            assert_eq!(head[0], "HTTP/1.1 429 Too Many Requests");
            assert!(body.starts_with('{') && body.ends_with('}'), "{body}");
        }
    }
    assert_eq!((rest, upstream.asked()), ("", 3));
    until_idle(&running).await;
}

#[tokio::test]
async fn the_answer_to_head_has_no_body() {
    let upstream = Upstream::raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n").await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let head = PLAIN.replace("GET", "HEAD");
    let text = all(&running, &[&head, &CLOSING.replace("GET", "HEAD")]).await;
    assert_eq!(text.matches("HTTP/1.1 200 OK\r\n").count(), 2, "{text}");
    assert!(text.contains("content-length: 100\r\n"), "{text}");
}

#[tokio::test]
async fn what_a_server_says_unasked_is_for_nobody() {
    // Two answers to one request: the second would be somebody else's.
    let upstream = Upstream::accepting(|mut stream, asked| async move {
        while read_head(&mut stream).await.is_some() {
            asked.fetch_add(1, Ordering::SeqCst);
            let number = asked.load(Ordering::SeqCst);
            let one = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
            let other = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nX";
            let _ = stream.write_all(format!("{one}{other}").as_bytes()).await;
        }
    })
    .await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let mut client = TcpStream::connect(port(&running)).await.unwrap();
    for number in 1..=5 {
        client.write_all(PLAIN.as_bytes()).await.unwrap();
        let head = read_head(&mut client).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(char::from(client.read_u8().await.unwrap()).to_string(), number.to_string());
    }
    drop(client);
    until("closed", || running.counts().upstream_connections == 0).await;
}

#[tokio::test]
async fn a_body_that_is_longer_than_any_buffer_passes_whole() {
    const BYTES: usize = 5 << 20;
    let upstream = Upstream::accepting(|mut stream, _| async move {
        while read_head(&mut stream).await.is_some() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n");
            let body: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
            stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
        }
    })
    .await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let mut client = TcpStream::connect(port(&running)).await.unwrap();
    for _ in 0..2 {
        client.write_all(PLAIN.as_bytes()).await.unwrap();
        read_head(&mut client).await.unwrap();
        let mut body = vec![0; BYTES];
        client.read_exact(&mut body).await.unwrap();
        assert!(body.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    }
    assert_eq!(running.counts().upstream_connections, 1, "the connection was used again");
}
