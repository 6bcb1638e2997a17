//! A tonic service with a limit: a call over it gets `RESOURCE_EXHAUSTED` with the time to come back, which
//! gRPC clients understand without our help.
//!
//! `cargo run -p tidegate-tower --example tonic_service`

use std::error::Error;

use tidegate::RuleLimiter;
use tidegate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

const RULES: &str = "
domain: grpc
rules:
  - name: checks
    match: { path: /grpc.health.v1.Health/Check }
    per: [ip]
    limit: 2/minute
  - name: watchers
    match: { path: /grpc.health.v1.Health/Watch }
    per: [ip]
    limit: 1 at once
";

/// Serves gRPC's own health service in the place of yours.
pub(crate) async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (_health, service) = tonic_health::server::health_reporter();
    let limit = RateLimitLayer::new(RuleLimiter::new(RULES)?).domain("grpc");
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    Server::builder().layer(limit).add_service(service).serve_with_incoming(incoming).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    serve(TcpListener::bind("127.0.0.1:50051").await?).await
}
