//! Connections on which something is said that is not the protocol are counted, once each, and those that end
//! or that are slow are not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Daemon;
use crate::wire::Wire;
use tidegate_server::admin::{Admin, AdminSettings};
use tidegate_server::{grpc, http};

/// After this something hangs that should not.
const PATIENCE: Duration = Duration::from_secs(20);

const RULES: &str = "{ domain: default, rules: [ { name: demo, per: [key], limit: 1000000/s } ] }";

const PREFACE: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A frame of settings that sets nothing.
const SETTINGS: &str = "\0\0\0\x04\0\0\0\0\0";
/// Headers on the stream that may have none.
const HEADERS_ON_0: &str = "\0\0\x01\x01\x05\0\0\0\0\x41";

fn counted(daemon: &Daemon, listener: &str) -> u64 {
    let text = daemon.engine.metrics().render(&daemon.engine);
    let series = format!("tidegate_protocol_errors_total{{listener=\"{listener}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(series.as_str()));
    line.map_or(0, |value| value.parse().unwrap())
}

/// Sends each of these on a connection of its own, which the server ends, and waits until so many have been
/// counted.
async fn broken(daemon: &Daemon, listener: &str, address: SocketAddr, inputs: &[&str]) {
    for input in inputs {
        let before = counted(daemon, listener);
        let mut wire = Wire::open(address).await;
        wire.write(input).await;
        wire.rest().await;
        // It is counted when the connection has ended, which the client may see first.
        let found = tokio::time::timeout(PATIENCE, async {
            while counted(daemon, listener) == before {
                tokio::task::yield_now().await;
            }
        });
        assert!(found.await.is_ok(), "not counted: {}", input.escape_debug());
        assert_eq!(counted(daemon, listener), before + 1, "{}", input.escape_debug());
    }
}

#[tokio::test]
async fn what_is_not_http_is_counted() {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(http::serve).await;
    let framed = [PREFACE, SETTINGS, HEADERS_ON_0].concat();
    let inputs = [
        "\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03\r\n\r\n",
        "GET /limit/ann HTTP/1.1\r\nno colon\r\n\r\n",
        "POST /v1/check HTTP/1.1\r\nhost: h\r\ncontent-length: -1\r\n\r\n{}",
        "*1\r\n$4\r\nPING\r\n",
        &framed,
    ];
    broken(&daemon, "http", address, &inputs).await;
    assert_eq!(counted(&daemon, "grpc"), 0);
}

#[tokio::test]
async fn what_is_not_grpc_is_counted() {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(grpc::serve).await;
    let framed = [PREFACE, SETTINGS, HEADERS_ON_0].concat();
    broken(&daemon, "grpc", address, &["GET / HTTP/1.1\r\nhost: a\r\n\r\n\r\n\r\n", &framed]).await;
    assert_eq!(counted(&daemon, "http"), 0);
}

#[tokio::test]
async fn what_is_not_http_is_counted_on_the_admin_address_too() {
    let daemon = Daemon::new(RULES);
    let address = daemon
        .listen(|engine, stream, peer, drain| async move {
            Admin::new(Arc::clone(&engine), AdminSettings::default())
                .serve(stream, peer, drain)
                .await;
        })
        .await;
    broken(&daemon, "admin", address, &["nonsense\r\n\r\n"]).await;
}

#[tokio::test]
async fn clients_that_go_away_have_said_nothing_wrong() {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(http::serve).await;
    for input in ["", "GET /limit/a", "GET /limit/ann HTTP/1.1\r\nhost: t\r\n\r\n", PREFACE] {
        let mut wire = Wire::open(address).await;
        wire.write(input).await;
        drop(wire);
    }
    let mut wire = Wire::open(address).await;
    assert_eq!(wire.get("/limit/ann").await.status, 200);
    assert_eq!(wire.get("/nowhere").await.status, 404);
    assert_eq!(wire.post("/v1/check", "no json").await.status, 400);
    // One that is broken comes last, so those before it have been seen to.
    broken(&daemon, "http", address, &["nonsense\r\n\r\n"]).await;
    assert_eq!(counted(&daemon, "http"), 1);
}
