//! An axum app with a limit of ten requests a minute for each client address.
//!
//! `cargo run -p tidegate-tower --example axum_hello`, then
//! `curl -i http://127.0.0.1:3000/` eleven times.

use std::error::Error;

use axum::{Router, routing::get};
use tidegate::RuleLimiter;
use tidegate_tower::{InAxum, RateLimit, RateLimitLayer};

const RULES: &str = "{ domain: web, rules: [ { name: all, per: [ip], limit: 10/minute } ] }";

/// The app, with its limit around it.
pub(crate) fn app() -> Result<RateLimit<Router, RuleLimiter, InAxum>, Box<dyn Error>> {
    let app = Router::new().route("/", get(async || "hello\n"));
    Ok(RateLimitLayer::new(RuleLimiter::new(RULES)?).domain("web").around(app))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    // Without the address of the peer there would be nobody to count.
    let service = app()?.into_make_service_with_peers();
    Ok(axum::serve(listener, service).await?)
}
