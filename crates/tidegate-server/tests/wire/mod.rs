//! HTTP/1.1 over a bare socket: what a test writes is what the server gets, byte for byte.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// After this something hangs that should not.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection, and what came in beyond the answers that were read.
pub(crate) struct Wire {
    stream: TcpStream,
    read: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// Names in lower case, in the order in which they came.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

impl Wire {
    pub(crate) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        Self { stream, read: Vec::new() }
    }

    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        // The other end may have closed already; what it said before is what the test looks at.
        let _ = self.try_write(bytes).await;
    }

    /// Whether the other end took all of it.
    pub(crate) async fn try_write(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).await.is_ok()
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn ask(&mut self, request: &Ask<'_>) -> Reply {
        self.write(request.bytes()).await;
        self.reply(request.method == "HEAD").await.expect("an answer")
    }

    pub(crate) async fn get(&mut self, target: &str) -> Reply {
        self.ask(&Ask::new("GET", target)).await
    }

    pub(crate) async fn post(&mut self, target: &str, body: &str) -> Reply {
        self.ask(&Ask::new("POST", target).json(body)).await
    }

    /// The next answer; `None` where the connection ends before it.
    pub(crate) async fn reply(&mut self, to_head: bool) -> Option<Reply> {
        let end = loop {
            match self.read.windows(4).position(|window| window == b"\r\n\r\n") {
                Some(end) => break end,
                None => self.more().await.then_some(())?,
            }
        };
        let head: Vec<u8> = self.read.drain(..end + 4).collect();
        let head = String::from_utf8(head).expect("text");
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").expect("a header"))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let length = length.map_or(0, |(_, value)| value.parse().expect("a length"));
        let length = if to_head { 0 } else { length };
        while self.read.len() < length {
            self.more().await.then_some(())?;
        }
        let body = self.read.drain(..length).collect();
        Some(Reply { status: status.parse().expect("a number"), headers, body })
    }

    /// Waits until the other end closes; what came in before is returned.
    pub(crate) async fn rest(mut self) -> Vec<u8> {
        while self.more().await {}
        self.read
    }

    async fn more(&mut self) -> bool {
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.read)).await;
        matches!(read.expect("the server neither answers nor closes"), Ok(1..))
    }
}

/// A request.
pub(crate) struct Ask<'a> {
    method: &'a str,
    target: &'a str,
    headers: Vec<(&'a str, &'a str)>,
    body: Option<&'a str>,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(method: &'a str, target: &'a str) -> Self {
        Self { method, target, headers: Vec::new(), body: None }
    }

    pub(crate) fn method(&self) -> &'a str {
        self.method
    }

    pub(crate) fn header(mut self, name: &'a str, value: &'a str) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(crate) fn body(mut self, body: &'a str) -> Self {
        self.body = Some(body);
        self
    }

    pub(crate) fn json(self, body: &'a str) -> Self {
        self.header("content-type", "application/json").body(body)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nhost: limiter\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            text.extend([name, ": ", value, "\r\n"]);
        }
        let body = self.body.map(|body| format!("content-length: {}\r\n\r\n{body}", body.len()));
        text.push_str(body.as_deref().unwrap_or("\r\n"));
        text.into_bytes()
    }
}
