//! What the daemon or the gateway answers to one request, for servers that decide nothing to answer the same.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use prost::Message as _;
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tidegate_server::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use super::server::local;

/// A whole answer to `GET /limit/…`, head and body, as it came.
pub(crate) fn http(port: u16) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut stream = TcpStream::connect(local(port))?;
    stream.write_all(
        b"GET /limit/key:000000000000 HTTP/1.1\r\nhost: 127.0.0.1:8080\r\nconnection: close\r\n\r\n",
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.starts_with(b"HTTP/1.1 200") {
        Ok(answer)
    } else {
        Err(format!("no answer to take: {}", String::from_utf8_lossy(&answer)).into())
    }
}

/// A whole denial, head and body, as it comes over a connection that is kept.
pub(crate) fn denial(port: u16) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut stream = TcpStream::connect(local(port))?;
    // The first request may be within the limit.
    for _ in 0..2 {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: here\r\n\r\n")?;
        let answer = whole(&mut stream)?;
        if answer.starts_with(b"HTTP/1.1 429") {
            return Ok(answer);
        }
    }
    Err("no denial to take".into())
}

/// Reads one answer, by its length.
fn whole(stream: &mut TcpStream) -> Result<Vec<u8>, Box<dyn Error>> {
    let (mut answer, mut part) = (Vec::new(), [0; 4 << 10]);
    loop {
        let read = stream.read(&mut part)?;
        if read == 0 {
            return Err("the answer breaks off".into());
        }
        answer.extend_from_slice(&part[..read]);
        if length(&answer).is_some_and(|length| length <= answer.len()) {
            return Ok(answer);
        }
    }
}

/// How long an answer is that begins so; `None` where its head does not say it yet.
fn length(begun: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(begun);
    let (head, _) = text.split_once("\r\n\r\n")?;
    let body_bytes = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    Some(head.len() + 4 + body_bytes.parse::<usize>().ok()?)
}

/// The message that answers `ShouldRateLimit`.
pub(crate) fn grpc(port: u16) -> Result<Vec<u8>, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let request = RateLimitRequest {
        domain: "default".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry { key: "key".to_owned(), value: "key:000000000000".to_owned() }],
            ..Default::default()
        }],
        ..Default::default()
    };
    runtime.block_on(async {
        let mut client = RateLimitServiceClient::connect(format!("http://{}", local(port))).await?;
        Ok(client.should_rate_limit(request).await?.into_inner().encode_to_vec())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_its_head_says() {
        let answer = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 2\r\n\r\nno";
        assert_eq!(length(answer), Some(answer.len()));
        assert_eq!(length(&answer[..answer.len() - 1]), Some(answer.len()));
        assert_eq!(length(&answer[..answer.len() - 4]), None);
    }
}
