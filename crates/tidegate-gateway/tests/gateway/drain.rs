//! The end of a gateway while clients take nothing, upstreams hang, and tunnels are open: what is not over within the
//! time of the drain is cut off, and nothing of it goes on.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use tidegate_gateway::Running;
use tidegate_server::serve::process::Life as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::http2::{DATA, END_HEADERS, HEADERS, asking, fields};
use crate::peer::Caller;
use crate::support::{PATIENCE, Upstream, full, gateway, port, read_head, until, with_rules};

/// How long the drain may take.
const DRAIN: Duration = Duration::from_millis(400);

async fn before(upstream: &Upstream) -> Running {
    let limit = |layer: &mut tidegate_server::config::Layer| {
        layer.limit = Some("100 at once for 1h per ip".parse().unwrap());
    };
    let mut settings = with_rules(&[&upstream.url()], limit);
    settings.daemon.drain_timeout = DRAIN;
    gateway(settings).await
}

/// Ends a gateway, says how many connections were cut off, and sees that nothing goes on at the upstream.
async fn drained(what: &str, running: Running) -> usize {
    let engine = Arc::clone(running.daemon().engine());
    let began = Instant::now();
    let drained = timeout(PATIENCE, running.shutdown()).await;
    let drained = drained.unwrap_or_else(|_| panic!("{what}: the drain does not end"));
    let took = began.elapsed();
    assert!(took < DRAIN * 10, "{what}: {took:?}");
    let gauges = ["tidegate_upstream_in_flight{", "tidegate_upstream_connections_open{"];
    until(&format!("{what}: nothing goes on"), || {
        let text = engine.metrics().render(&engine);
        let mut lines = text.lines().filter(|line| gauges.iter().any(|it| line.starts_with(it)));
        lines.all(|line| line.ends_with(" 0"))
    })
    .await;
    drained.cut
}

/// A server that answers at length, and hangs where it is asked to.
async fn slow() -> Upstream {
    Upstream::serving(|request| async move {
        if request.uri().path() == "/hanging" {
            std::future::pending::<()>().await;
        }
        Response::new(full(vec![b'x'; 32 << 20]))
    })
    .await
}

async fn sent(to: std::net::SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut client = TcpStream::connect(to).await.unwrap();
    client.write_all(bytes).await.unwrap();
    client
}

#[tokio::test]
async fn a_drain_cuts_off_clients_that_take_nothing() {
    let upstream = slow().await;
    let running = before(&upstream).await;
    let to = port(&running);
    let mut clients = Vec::new();
    for window in [0, 1 << 30] {
        let mut client = Caller::connect(to, window).await;
        client.get(1, "/").await;
        client.hear(&[HEADERS]).await.unwrap();
        clients.push(client);
    }
    let mut others = Vec::new();
    for more in ["", "TE: trailers\r\n"] {
        let mut client =
            sent(to, format!("GET / HTTP/1.1\r\nHost: a\r\n{more}\r\n").as_bytes()).await;
        read_head(&mut client).await.unwrap();
        others.push(client);
    }
    assert_eq!(running.counts().under_way, 4);
    assert_eq!(drained("nothing is taken", running).await, 4);
}

#[tokio::test]
async fn a_drain_cuts_off_what_an_upstream_does_not_answer() {
    let upstream = slow().await;
    let running = before(&upstream).await;
    let to = port(&running);
    let get = "GET /hanging HTTP/1.1\r\nHost: a\r\n";
    let mut clients = Vec::new();
    for request in [
        format!("{get}\r\n"),
        format!("{get}TE: trailers\r\n\r\n"),
        "POST /hanging HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf".to_owned(),
    ] {
        clients.push(sent(to, request.as_bytes()).await);
    }
    let mut two = Caller::connect(to, 65_535).await;
    two.get(1, "/hanging").await;
    two.say(HEADERS, END_HEADERS, 3, &fields(&asking("POST", "/hanging"))).await;
    two.say(DATA, 0, 3, b"half").await;
    until("under way", || running.counts().under_way == 5).await;
    assert_eq!(drained("hanging", running).await, 4);
    // Everybody learns of it.
    for mut client in clients {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, client.read_to_end(&mut rest)).await.unwrap();
    }
    assert_eq!(two.hear(&[DATA]).await, None);
}

#[tokio::test]
async fn a_drain_cuts_off_tunnels() {
    let upstream = crate::forward::shouting().await;
    let running = before(&upstream).await;
    let to = port(&running);
    let mut one = sent(to, crate::forward::UPGRADE.as_bytes()).await;
    read_head(&mut one).await.unwrap();
    let mut two = Caller::connect(to, 65_535).await;
    let websocket = [&asking("CONNECT", "/")[..], &[(":protocol", "websocket")]].concat();
    two.say(HEADERS, END_HEADERS, 1, &fields(&websocket)).await;
    two.say(DATA, 0, 1, b"hello").await;
    let (_, _, _, back) = two.hear(&[DATA]).await.unwrap();
    assert_eq!(back, b"HELLO");
    // Two tunnels, and the connection that one of them is a stream of.
    assert_eq!(drained("tunnels", running).await, 3);
    assert_eq!(timeout(PATIENCE, one.read(&mut [0])).await.unwrap().unwrap_or(0), 0);
    assert_eq!(two.hear(&[DATA]).await.map(|(_, _, _, payload)| payload).unwrap_or_default(), b"");
}
