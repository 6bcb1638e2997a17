//! What the daemon answers to one request, for servers that decide nothing to answer the same.

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
