//! What the log knows of an operator's changes. It is a program of its own, because a log belongs to the
//! whole process.

mod support;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use support::Daemon;
use tidegate_server::admin;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const RULES: &str = "{ domain: api, rules: [ { name: login, per: [user], limit: 2/minute } ] }";

/// What is logged, as one text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn the_log_of_changes_holds_no_identifier() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false);
    tracing::subscriber::set_global_default(lines.finish()).expect("no other log");
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(admin::serve).await;
    let about = json!({ "domain": "api", "attributes": { "user": "sensitive", "path": "/login" } });
    send(address, "POST", "/v1/bans", json!({ "target": "user=sensitive", "for": "1h" })).await;
    send(address, "POST", "/v1/allow", json!({ "target": "203.0.113.9", "note": "sensitive" }))
        .await;
    send(address, "DELETE", "/v1/bans", json!({ "target": "user=sensitive" })).await;
    send(address, "POST", "/v1/peek", about.clone()).await;
    send(address, "POST", "/v1/reset", about).await;
    send(address, "PUT", "/v1/bypass", json!({ "on": true })).await;
    send(address, "POST", "/v1/reload", json!({})).await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).expect("text");
    for action in ["ban", "allow", "lift", "reset", "bypass", "reload"] {
        assert!(text.contains(&format!("action=\"{action}\"")), "{action} in {text}");
    }
    assert_eq!(text.matches("tidegate::audit").count(), 6, "{text}");
    assert!(!text.contains("sensitive") && !text.contains("203.0.113.9"), "{text}");
}

async fn send(address: SocketAddr, method: &str, path: &str, body: Value) {
    let body = body.to_string();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    let status = answer.split(' ').nth(1).unwrap_or_default();
    assert!(!status.starts_with('5') && status != "400", "{answer}");
}
