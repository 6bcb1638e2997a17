//! Servers that decide nothing: hyper and tonic as anyone would start them, answering every request
//! with what they were given on standard input. What they take is what their libraries cost.

use std::convert::Infallible;
use std::error::Error;
use std::io::Read as _;
use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONNECTION, CONTENT_LENGTH, DATE, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use prost::Message as _;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use tidegate_server::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;

use super::server::local;

/// How the benchmark starts them: with one of these words and a port.
pub(crate) const HTTP: &str = "bare-http";
pub(crate) const GRPC: &str = "bare-grpc";

/// Serves HTTP/1.1 until the process is ended.
pub(crate) fn http(port: &str) -> Result<(), Box<dyn Error>> {
    let (headers, body) = parse(&given()?)?;
    serve(port, async move |address| {
        let listener = TcpListener::bind(address).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (headers, body) = (headers.clone(), body.clone());
            let service = service_fn(move |_request| {
                let mut response = Response::new(Full::new(body.clone()));
                *response.headers_mut() = headers.clone();
                async { Ok::<_, Infallible>(response) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).pipeline_flush(true);
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    })
}

/// Serves Envoy's rate limit service until the process is ended.
pub(crate) fn grpc(port: &str) -> Result<(), Box<dyn Error>> {
    let echo = Echo(RateLimitResponse::decode(given()?.as_slice())?);
    serve(port, async move |address| {
        let incoming = TcpIncoming::bind(address)?.with_nodelay(Some(true));
        let mut server = tonic::transport::Server::builder();
        let router = server.add_service(RateLimitServiceServer::new(echo));
        Ok(router.serve_with_incoming(incoming).await?)
    })
}

struct Echo(RateLimitResponse);

#[tonic::async_trait]
impl RateLimitService for Echo {
    async fn should_rate_limit(
        &self,
        _request: tonic::Request<RateLimitRequest>,
    ) -> Result<tonic::Response<RateLimitResponse>, tonic::Status> {
        Ok(tonic::Response::new(self.0.clone()))
    }
}

/// On a runtime such as the daemon has.
fn serve(
    port: &str,
    server: impl AsyncFnOnce(SocketAddr) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let address = local(port.parse()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(server(address))
}

fn given() -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The headers and the body of an answer, without the headers that hyper writes itself and the one
/// that was asked for to end the connection.
fn parse(answer: &[u8]) -> Result<(HeaderMap, Bytes), Box<dyn Error>> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("no head")?;
    let mut headers = HeaderMap::new();
    for line in std::str::from_utf8(&answer[..end])?.lines().skip(1) {
        let (name, value) = line.split_once(':').ok_or("a header without a colon")?;
        let name: HeaderName = name.parse()?;
        if ![CONNECTION, CONTENT_LENGTH, DATE].contains(&name) {
            headers.append(name, HeaderValue::from_str(value.trim())?);
        }
    }
    Ok((headers, Bytes::copy_from_slice(&answer[end + 4..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_taken_apart_without_what_hyper_writes() {
        let answer = b"HTTP/1.1 200 OK\r\nx-ratelimit-limit: 10\r\ncontent-length: 2\r\n\
                       connection: close\r\ndate: now\r\n\r\nok";
        let (headers, body) = parse(answer).unwrap();
        assert_eq!((headers.len(), &body[..]), (1, &b"ok"[..]));
        assert_eq!(headers["x-ratelimit-limit"], "10");
        assert!(parse(b"HTTP/1.1 200 OK").is_err());
    }
}
