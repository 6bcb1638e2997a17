//! Malformed, oversized and slow input: a clear error or a closed connection, and good traffic is
//! answered while it happens.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Daemon;
use crate::wire::Wire;
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tidegate::{Clock as _, Span, SystemClock};
use tidegate_server::http::{self, HttpSettings};

/// After this something hangs that should not.
const PATIENCE: Duration = Duration::from_secs(20);

const RULES: &str = "{ domain: default, rules: [ { name: demo, per: [key], limit: 1000000/s } ] }";

/// A server whose patience is short.
async fn daemon() -> (Daemon, SocketAddr) {
    let settings = Arc::new(HttpSettings {
        head_timeout: Duration::from_millis(300),
        body_timeout: Duration::from_millis(300),
        ..HttpSettings::default()
    });
    serving(settings).await
}

async fn serving(settings: Arc<HttpSettings>) -> (Daemon, SocketAddr) {
    let daemon = Daemon::new(RULES);
    let serve = move |engine, stream, peer, drain| {
        http::serve_with(engine, Arc::clone(&settings), stream, peer, drain)
    };
    let address = daemon.listen(serve).await;
    (daemon, address)
}

/// Whether somebody who behaves is answered.
async fn is_well(address: SocketAddr) -> bool {
    Wire::open(address).await.get("/limit/ann").await.status == 200
}

/// Sends `bytes`, and gives the status that comes before the connection is closed; 0 where none comes.
async fn status_of(address: SocketAddr, bytes: impl AsRef<[u8]>) -> u16 {
    let mut wire = Wire::open(address).await;
    wire.write(bytes).await;
    let reply = wire.reply(false).await;
    let rest = wire.rest().await;
    assert!(rest.is_empty(), "something follows: {}", rest.escape_ascii());
    reply.map_or(0, |reply| reply.status)
}

#[tokio::test]
async fn malformed_requests_are_answered_with_400() {
    let (_daemon, address) = daemon().await;
    for bytes in [
        "\r\n\r\n\r\nGET\r\n\r\n",
        "GET /limit/ann\r\n\r\n",
        "GET /limit/ann HTTP/9.9\r\n\r\n",
        "GE(T) /limit/ann HTTP/1.1\r\n\r\n",
        "GET /limit/ann HTTP/1.1\r\nno colon\r\n\r\n",
        "GET /limit/ann HTTP/1.1\r\nna me: value\r\n\r\n",
        "GET /limit/ann HTTP/1.1\r\nname: va\0lue\r\n\r\n",
        "GET /li\0mit/ann HTTP/1.1\r\nhost: h\r\n\r\n",
        "POST /v1/check HTTP/1.1\r\nhost: h\r\ncontent-length: -1\r\n\r\n{}",
        "POST /v1/check HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        "POST /v1/check HTTP/1.1\r\nhost: h\r\ncontent-length: 99999999999999999999\r\n\r\n{}",
        "POST /v1/check HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip\r\n\r\n{}",
        "POST /v1/check HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03",
        "*1\r\n$4\r\nPING\r\n",
    ] {
        let status = status_of(address, bytes).await;
        assert_eq!(status, 400, "to {}", bytes.escape_debug());
        assert!(is_well(address).await);
    }
}

#[tokio::test]
async fn random_bytes_end_a_connection_and_nothing_else() {
    let (_daemon, address) = daemon().await;
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..100 {
        let mut bytes = Vec::new();
        if round % 2 == 0 {
            bytes.extend(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        }
        for _ in 0..64 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.extend(state.to_le_bytes());
        }
        let mut wire = Wire::open(address).await;
        wire.write(&bytes).await;
        drop(wire);
        assert!(is_well(address).await);
    }
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let (_daemon, address) = daemon().await;
    let long = format!("GET /limit/ann HTTP/1.1\r\nx-long: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(status_of(address, long).await, 431);
    let target = format!("GET /limit/{} HTTP/1.1\r\nhost: h\r\n\r\n", "x".repeat(20_000));
    assert_eq!(status_of(address, target).await, 431);
    let many = format!("GET /limit/ann HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(200));
    assert_eq!(status_of(address, many).await, 431);
    assert!(is_well(address).await);
}

#[tokio::test]
async fn whoever_sends_all_before_they_read_still_sees_why_they_were_refused() {
    let (_daemon, address) = daemon().await;
    let long = format!("GET /limit/ann HTTP/1.1\r\nx-long: {}\r\n\r\n", "x".repeat(16 << 20));
    // They have a second for it, which may not be enough on a machine that stood still meanwhile.
    for _ in 0..5 {
        let mut wire = Wire::open(address).await;
        let began = SystemClock.now();
        if wire.try_write(&long).await {
            assert_eq!(wire.reply(false).await.unwrap().status, 431);
            return;
        }
        let took = SystemClock.now().since(began);
        assert!(took > Span::from_micros(900_000), "the connection was reset after {took:?}");
    }
    panic!("it takes more than a second each time");
}

#[tokio::test]
async fn bodies_that_are_too_large_are_refused_before_they_are_kept() {
    let settings =
        HttpSettings { body_bytes_max: 1_000, batch_bytes_max: 2_000, ..HttpSettings::default() };
    let (_daemon, address) = serving(Arc::new(settings)).await;
    let mut good = Wire::open(address).await;
    let padded = |length: usize| format!("{{{}}}", " ".repeat(length - 2));
    assert_eq!(good.post("/v1/check", &padded(1_000)).await.status, 200);
    assert_eq!(good.post("/v1/check", &padded(1_001)).await.status, 413);
    assert_eq!(good.post("/v1/check", &padded(1 << 20)).await.status, 413);
    let list = format!("[{}]", " ".repeat(1_998));
    assert_eq!(good.post("/v1/check/batch", &list).await.status, 200);
    assert_eq!(good.post("/v1/check/batch", &format!("{list} ")).await.status, 413);
    assert_eq!(good.post("/json", &padded(1_001)).await.status, 413);
    let mut wire = Wire::open(address).await;
    wire.write("POST /v1/check HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    for _ in 0..2_000 {
        wire.write(&chunk).await;
    }
    let reply = wire.reply(false).await;
    assert!(reply.is_none_or(|reply| reply.status == 413), "a body without end is not read on");
    let announced = "POST /v1/check HTTP/1.1\r\nhost: h\r\ncontent-length: 9999999999\r\n\r\n";
    assert_eq!(status_of(address, announced).await, 413);
    assert!(is_well(address).await);
}

#[tokio::test]
async fn slow_senders_are_not_waited_for_beyond_their_time() {
    let (_daemon, address) = daemon().await;
    let opened =
        ["", "P", "PRI * HTTP/2.0\r\n\r\nSM\r", "GET /limit/ann HTTP/1.1\r\nhost: h\r\nx-sl"];
    let mut slow = Vec::new();
    for bytes in opened {
        let mut wire = Wire::open(address).await;
        wire.write(bytes).await;
        slow.push(wire);
    }
    let mut body = Wire::open(address).await;
    body.write("POST /v1/check HTTP/1.1\r\nhost: h\r\ncontent-length: 100\r\n\r\n{").await;
    assert!(is_well(address).await);
    for (wire, bytes) in slow.into_iter().zip(opened) {
        let rest = wire.rest().await;
        let closed = rest.is_empty() || rest.starts_with(b"HTTP/1.1 408 ");
        assert!(closed, "after {bytes:?}: {}", rest.escape_ascii());
    }
    let reply = body.reply(false).await.expect("an answer");
    assert_eq!((reply.status, &reply.json()["status"]), (408, &json!(408)));
    assert!(body.rest().await.is_empty(), "and the connection is closed");
}

#[tokio::test]
async fn a_kept_connection_that_goes_quiet_is_closed() {
    let (_daemon, address) = daemon().await;
    let mut good = Wire::open(address).await;
    assert_eq!(good.get("/limit/ann").await.status, 200);
    let rest = good.rest().await;
    assert!(rest.is_empty(), "{}", rest.escape_ascii());
}

#[tokio::test]
async fn whoever_does_not_read_is_cut_off_after_a_time() {
    let (_daemon, address) = daemon().await;
    let mut deaf = Wire::open(address).await;
    let request = b"GET /openapi.json HTTP/1.1\r\nhost: h\r\n\r\n".repeat(100);
    // The answers fill every buffer on the way, and then nothing moves any more.
    let cut_off = async { while deaf.try_write(&request).await {} };
    tokio::time::timeout(PATIENCE, cut_off).await.expect("it is kept for good");
    assert!(is_well(address).await);
}

/// A client that takes the heads of answers and, as long as it likes, nothing of their bodies.
#[tokio::test]
async fn large_answers_that_nobody_takes_are_not_piled_up() {
    let (_daemon, address) = serving(Arc::new(HttpSettings::default())).await;
    for (method, path, body) in [("POST", "/v1/check/batch", "[{}]"), ("GET", "/metrics", "")] {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0);
        let (client, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let uri = format!("http://limiter{path}");
            let request = hyper::Request::builder().method(method).uri(uri);
            let request = request.body(Full::new(Bytes::from(body))).unwrap();
            let mut client = client.clone();
            asking.spawn(async move { client.send_request(request).await.unwrap() });
        }
        let mut untaken = Vec::new();
        // The first may take its time, and then others come at once.
        let quiet = |is_first| if is_first { PATIENCE } else { Duration::from_millis(300) };
        while let Ok(Some(answer)) =
            tokio::time::timeout(quiet(untaken.is_empty()), asking.join_next()).await
        {
            untaken.push(answer.unwrap());
        }
        let count = untaken.len();
        assert!((1..=4).contains(&count), "{count} answers of {path} wait for their client");
        // One that nobody wants any more makes room for the next.
        drop(untaken.pop());
        let next = tokio::time::timeout(PATIENCE, asking.join_next()).await.expect("the next one");
        assert_eq!(next.unwrap().unwrap().status(), 200);
        assert!(is_well(address).await);
        connection.abort();
    }
}

#[tokio::test]
async fn bodies_that_are_no_calls_are_refused_at_their_field() {
    let (_daemon, address) = serving(Arc::default()).await;
    let mut good = Wire::open(address).await;
    for (body, field) in [
        ("", Some("")),
        ("{", Some("")),
        ("[]", Some("")),
        ("nul", Some("")),
        ("{\"attributes\":{\"a\":\"\u{7}\"}}", Some("")),
        (r#"{"attributes":{"a":null}}"#, Some("/attributes/a")),
        (r#"{"attributes":{"a":[[[[[[[[[[]]]]]]]]]]}}"#, Some("/attributes/a")),
        (r#"{"cost":1e3}"#, Some("/cost")),
        (r#"{"peek":true,"debit":true}"#, Some("/debit")),
        (r#"{"domain":null}"#, Some("/domain")),
        (r#"{"unheard of":1}"#, Some("/unheard of")),
    ] {
        let reply = good.post("/v1/check", body).await;
        assert_eq!(reply.status, 400, "{body}");
        let problem = reply.json();
        assert_eq!(problem["field"].as_str(), field, "{body}");
        assert_eq!((&problem["title"], &problem["status"]), (&json!("Bad Request"), &json!(400)));
    }
    let nested = format!("{{\"attributes\":{{\"a\":{}", "[".repeat(60_000));
    assert_eq!(good.post("/v1/check", &nested).await.status, 400);
    assert!(is_well(address).await);
}

#[tokio::test]
async fn no_error_repeats_a_value() {
    let (_daemon, address) = serving(Arc::default()).await;
    let mut good = Wire::open(address).await;
    for body in [
        r#"{"attributes":{"user":{"hidden-7":"hidden-7"}}}"#,
        r#""hidden-7""#,
        r#"{"domain":["hidden-7"]}"#,
        r#"{"cost":"hidden-7"}"#,
        r#"{"attributes":"hidden-7"}"#,
        r#"{"attributes":{"user":"hidden-7"},"cost":}"#,
    ] {
        let reply = good.post("/v1/check", body).await;
        assert_eq!(reply.status, 400);
        assert!(!reply.text().contains("hidden"), "{}", reply.text());
    }
    let reply = good.get("/limit/hidden-7%zz").await;
    assert!(reply.status == 400 && !reply.text().contains("hidden"));
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// What HTTP/2 begins with: the preface, and settings that change nothing.
fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat()
}

/// `GET /` with the static table of HPACK: method, scheme, path, and an authority of one letter.
const HEADERS: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 0x01, b'h'];

#[tokio::test]
async fn a_flood_of_resets_ends_its_own_connection_only() {
    let (_daemon, address) = daemon().await;
    let mut flood = Wire::open(address).await;
    let mut bytes = preface();
    for number in 0..20_000_u32 {
        let stream = 2 * number + 1;
        bytes.extend(frame(1, 0x5, stream, &HEADERS));
        bytes.extend(frame(3, 0, stream, &8_u32.to_be_bytes()));
    }
    for part in bytes.chunks(16 << 10) {
        flood.write(part).await;
        assert!(is_well(address).await);
    }
    let rest = flood.rest().await;
    // The head of a GOAWAY.
    let calm = [7, 0, 0, 0, 0, 0];
    let goaway = rest.windows(calm.len()).any(|window| window == calm);
    assert!(goaway, "{}", rest.escape_ascii());
    assert!(is_well(address).await);
}

#[tokio::test]
async fn headers_without_end_are_not_collected_over_http_2() {
    let (_daemon, address) = daemon().await;
    let mut flood = Wire::open(address).await;
    let mut bytes = preface();
    bytes.extend(frame(1, 0x1, 1, &HEADERS));
    // A literal header with a name and a value of 100 bytes each, over and over.
    let literal = [&[0x00, 100][..], &[b'a'; 100], &[100], &[b'b'; 100]].concat();
    for _ in 0..5_000 {
        bytes.extend(frame(9, 0, 1, &literal.repeat(16)));
    }
    for part in bytes.chunks(256 << 10) {
        flood.write(part).await;
        assert!(is_well(address).await);
    }
    drop(flood.rest().await);
    assert!(is_well(address).await);
}

#[tokio::test]
async fn many_idle_connections_leave_room_for_others() {
    let (_daemon, address) = daemon().await;
    let mut idle = Vec::new();
    for _ in 0..200 {
        let mut wire = Wire::open(address).await;
        wire.write("GET /limit/ann HTTP/1.1\r\nhost:").await;
        idle.push(wire);
    }
    assert!(is_well(address).await);
    for wire in idle {
        drop(wire.rest().await);
    }
    assert!(is_well(address).await);
}
