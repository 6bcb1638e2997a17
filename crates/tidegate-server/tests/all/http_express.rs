//! The plainest requests of `/limit/{key}` are answered without a general server in between: as that one would
//! answer them, to the byte, and everything else is left to it.

use crate::wire;

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::Daemon;
use crate::wire::Wire;
use tidegate::{Clock as _, SystemClock};
use tidegate_server::http;

const RULES: &str = "
domain: default
rules:
  - { name: demo, per: [key], limit: 2/minute }
---
domain: queue
rules:
  - { name: drip, per: [key], limit: { rate: 1/s, algorithm: leaky-bucket, burst: 10 } }
---
domain: pair
rules:
  - { name: one, per: [key], limits: [ 5/minute, 3/hour ] }
---
domain: work
rules:
  - { name: busy, per: [key], limit: 1 at once }
";

/// A header that the general server takes no notice of, and that is left to it.
const NOT_PLAIN: &str = "te: trailers\r\n";

async fn daemon() -> (Daemon, SocketAddr) {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(http::serve).await;
    (daemon, address)
}

/// Everything that is answered to these bytes, the dates taken out: the two servers read different clocks here.
async fn answers(to: &[u8]) -> String {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    wire.write(to).await;
    // The last request says that the connection ends, so all answers are there when it does.
    wire.write("GET /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").await;
    let text = String::from_utf8(wire.rest().await).unwrap();
    let lines = text.split_inclusive("\r\n");
    lines.filter(|line| !line.starts_with("date: ")).collect()
}

/// The same requests, each with one more header.
async fn compared(targets: &[&str], headers: &str) {
    let all = |more: &str| -> Vec<u8> {
        let one =
            |target: &&str| format!("GET {target} HTTP/1.1\r\nhost: t\r\n{headers}{more}\r\n");
        targets.iter().map(one).collect::<String>().into_bytes()
    };
    let (express, general) = (answers(&all("")).await, answers(&all(NOT_PLAIN)).await);
    assert!(general.matches("HTTP/1.1 ").count() == targets.len() + 1, "{general}");
    assert_eq!(express, general);
}

#[tokio::test]
async fn answers_are_those_of_the_general_server_to_the_byte() {
    compared(&["/limit/ann", "/limit/ann", "/limit/ann", "/limit/bob"], "").await;
    compared(&["/limit/ann?cost=2", "/limit/ann?cost=0", "/limit/ann?cost=9"], "").await;
    compared(&["/limit/a%2Fb", "/limit/a/b", "/limit/a+b", "/limit/%41nn", "/limit/Ann"], "").await;
    compared(&["/limit/ann?domain=nobody", "/limit/ann?domain=pair&cost=3"], "").await;
    compared(&["/limit/", "/limit/%", "/limit/%zz", "/limit/ann?cost=x", "/limit/ann?costs=1"], "")
        .await;
    compared(&["/limit/ann?domain=queue", "/limit/ann?domain=queue"], "").await;
    compared(&["/limit/ann?", "/limit/ann?&", "/limit/ann?cost=1&cost=1"], "").await;
    compared(&["/limit/ann"], "connection: Keep-Alive\r\nuser-agent: t\r\naccept: */*\r\n").await;
}

#[tokio::test]
async fn what_is_not_plain_is_answered_by_the_general_server() {
    let statuses = async |bytes: &str| -> Vec<String> {
        let text = answers(bytes.as_bytes()).await;
        let starts = text.match_indices("HTTP/1.").map(|(start, _)| &text[start..]);
        starts.filter_map(|rest| Some(rest.split_once("\r\n")?.0.to_owned())).collect()
    };
    let plain = "GET /limit/ann HTTP/1.1\r\nhost: t\r\n\r\n";
    let post = "POST /limit/ann HTTP/1.1\r\nhost: t\r\ncontent-length: 3\r\n\r\nabc";
    let (ok, over) = ("HTTP/1.1 200 OK", "HTTP/1.1 429 Too Many Requests");
    assert_eq!(statuses(&[plain, post, plain].concat()).await, [ok, ok, over, ok]);
    let with_body = "GET /limit/ann HTTP/1.1\r\nhost: t\r\ncontent-length: 3\r\n\r\nabc";
    assert_eq!(statuses(&[with_body, plain, plain].concat()).await, [ok, ok, over, ok]);
    let chunked =
        "GET /limit/ann HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nGET\r\n0\r\n\r\n";
    // It reads no such body, and ends the connection instead.
    assert_eq!(statuses(&[chunked, plain, plain].concat()).await, [ok]);
    let head = "HEAD /limit/ann HTTP/1.1\r\nhost: t\r\n\r\n";
    assert_eq!(statuses(&[head, plain, plain].concat()).await, [ok, ok, over, ok]);
    let headers = "x-again: y\r\n".repeat(40);
    let long = format!("GET /limit/ann HTTP/1.1\r\n{headers}\r\n");
    assert_eq!(statuses(&[&long, plain, plain].concat()).await, [ok, ok, over, ok]);
    // Nothing may come after these, so the connection ends before the last request is read.
    let closing = "GET /limit/ann HTTP/1.1\r\nhost: t\r\nConnection: close\r\n\r\n";
    assert_eq!(statuses(closing).await, [ok]);
    assert_eq!(statuses("GET /limit/ann HTTP/1.0\r\nhost: t\r\n\r\n").await, ["HTTP/1.0 200 OK"]);
    let bad = "HTTP/1.1 400 Bad Request";
    assert_eq!(statuses("GET /limit/a\"n HTTP/1.1\r\n bad: folded\r\n\r\n").await, [bad]);
}

#[tokio::test]
async fn a_request_in_pieces_is_answered_once_it_is_there() {
    let (_daemon, address) = daemon().await;
    let request = "GET /limit/ann HTTP/1.1\r\nhost: t\r\n\r\n";
    for cut in 1..request.len() {
        let mut wire = Wire::open(address).await;
        // One that is complete comes before, so that the pieces are found in the same connection.
        wire.write([request, &request[..cut]].concat()).await;
        let first = wire.reply(false).await.unwrap().status;
        wire.write(&request[cut..]).await;
        let second = wire.reply(false).await.unwrap().status;
        assert!([200, 429].contains(&first) && [200, 429].contains(&second), "{cut}");
        assert_eq!(wire.get("/healthz").await.status, 200, "{cut}");
    }
}

#[tokio::test]
async fn requests_that_arrive_together_are_answered_in_order_with_those_for_others_between() {
    let plain = |key: &str| format!("GET /limit/{key} HTTP/1.1\r\nhost: t\r\n\r\n");
    let mut all = String::new();
    for round in 0..500 {
        all += &plain(&format!("key{round}"));
    }
    all += "GET /nowhere HTTP/1.1\r\nhost: t\r\n\r\n";
    all += &plain("last");
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    wire.write(&all).await;
    for round in 0..500 {
        let reply = wire.reply(false).await.unwrap();
        assert_eq!(
            (reply.status, reply.header("x-ratelimit-remaining")),
            (200, Some("1")),
            "{round}"
        );
    }
    assert_eq!(wire.reply(false).await.unwrap().status, 404);
    assert_eq!(wire.reply(false).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_place_that_a_status_took_is_released_by_its_header() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let mut general = Wire::open(address).await;
    // Whether or not the request is plain, there is one place, and a name for it.
    for is_plain in [true, false] {
        let ask = wire::Ask::new("GET", "/limit/ann?domain=work");
        let first = if is_plain {
            wire.ask(&ask).await
        } else {
            general.ask(&ask.header("te", "trailers")).await
        };
        let lease_id = first.header("x-ratelimit-lease-id").unwrap().to_owned();
        let denied = Wire::open(address).await.get("/limit/ann?domain=work").await;
        assert_eq!((denied.status, denied.header("x-ratelimit-lease-id")), (429, None));
        let release = serde_json::json!({
            "domain": "work", "attributes": { "key": "ann" }, "lease_id": lease_id,
        });
        let released = general.post("/v1/release", &release.to_string()).await;
        assert_eq!((released.status, &released.json()["remaining"]), (200, &1.into()));
    }
    // Other limits have none.
    let counted = Wire::open(address).await.get("/limit/ann").await;
    assert_eq!((counted.status, counted.header("x-ratelimit-lease-id")), (200, None));
}

#[tokio::test]
async fn a_delay_holds_back_what_comes_behind_it_and_not_what_came_before() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let queued = "GET /limit/ann?domain=queue HTTP/1.1\r\nhost: t\r\n\r\n";
    let plain = "GET /limit/ann HTTP/1.1\r\nhost: t\r\n\r\n";
    let began = SystemClock.now();
    wire.write([plain, queued, queued, plain].concat()).await;
    let mut answered_after = Vec::new();
    for _ in 0..4 {
        assert_eq!(wire.reply(false).await.unwrap().status, 200);
        answered_after.push(Duration::from(SystemClock.now().since(began)));
    }
    // The second in the queue waits for its turn, a whole second later, and so does what is behind it.
    assert!(answered_after[1] < Duration::from_millis(900), "{answered_after:?}");
    assert!(answered_after[2] >= Duration::from_secs(1), "{answered_after:?}");
    assert!(answered_after[3] >= Duration::from_secs(1), "{answered_after:?}");
}

#[tokio::test]
async fn a_connection_that_is_never_quiet_ends_when_the_daemon_drains() {
    let (daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let plain = "GET /limit/ann HTTP/1.1\r\nhost: t\r\n\r\n";
    wire.write(plain.repeat(20)).await;
    assert_eq!(wire.reply(false).await.unwrap().status, 200);
    daemon.drain.cancel();
    // It ends although more is always on its way: two requests go out for every answer that is read.
    for _ in 0..1_000 {
        wire.write(plain.repeat(2)).await;
        if wire.reply(false).await.is_none() {
            return;
        }
    }
    panic!("it goes on");
}

#[tokio::test]
async fn connections_end_when_the_daemon_drains_and_when_nothing_comes() {
    let (daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    assert_eq!(wire.get("/limit/ann").await.status, 200);
    daemon.drain.cancel();
    assert_eq!(wire.rest().await, b"");

    let daemon = Daemon::new(RULES);
    let settings = http::HttpSettings {
        head_timeout: Duration::from_millis(50),
        ..http::HttpSettings::default()
    };
    let settings = std::sync::Arc::new(settings);
    let address = daemon
        .listen(move |engine, stream, peer, drain| {
            http::serve_with(engine, std::sync::Arc::clone(&settings), stream, peer, drain)
        })
        .await;
    let mut wire = Wire::open(address).await;
    assert_eq!(wire.get("/limit/ann").await.status, 200);
    assert_eq!(wire.rest().await, b"");
    assert_eq!(Wire::open(address).await.rest().await, b"");
}
