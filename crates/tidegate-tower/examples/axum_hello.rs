//! An axum app with a limit of ten requests a minute for each client address.
//!
//! `cargo run -p tidegate-tower --example axum_hello`, then
//! `curl -i http://127.0.0.1:3000/` eleven times.

use std::error::Error;
use std::net::SocketAddr;

use axum::{Router, routing::get};
use tidegate::RuleLimiter;
use tidegate_tower::RateLimitLayer;

const RULES: &str = "{ domain: web, rules: [ { name: all, per: [ip], limit: 10/minute } ] }";

/// The app, with its limit.
pub(crate) fn app() -> Result<Router, Box<dyn Error>> {
    let limit = RateLimitLayer::new(RuleLimiter::new(RULES)?).domain("web");
    Ok(Router::new().route("/", get(async || "hello\n")).layer(limit))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    // Without the address of the peer there would be nobody to count.
    let service = app()?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}
