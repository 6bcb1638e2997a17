//! Limits of single routes: one limiter, rules by path, and a layer of its own where a route needs other
//! settings, inside of an app that has a layer around it.
//!
//! `cargo run -p tidegate-tower --example per_route`

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::{Router, routing::get, routing::post};
use tidegate::RuleLimiter;
use tidegate_tower::{InAxum, RateLimit, RateLimitLayer};

const RULES: &str = "
domain: web
rules:
  - name: everything
    per: [ip]
    limit: 100/minute
  - name: failed-logins
    match: { method: POST, path: /login }
    per: [ip]
    limit: 3/hour
    count: on-response
    statuses: [401]
---
domain: reports
rules:
  - name: one-at-a-time
    match: { method: GET }
    per: [ip]
    limit: 1 at once
  - name: upload-bytes
    match: { method: POST }
    per: [ip]
    limit: 1000/minute
";

/// The app, with its limits.
pub(crate) fn app() -> Result<RateLimit<Router, RuleLimiter, InAxum>, Box<dyn Error>> {
    // Both layers ask one limiter, each for its own domain.
    let limiter = Arc::new(RuleLimiter::new(RULES)?);
    let reports = RateLimitLayer::sharing(Arc::clone(&limiter))
        .domain("reports")
        .delay_max(Duration::from_secs(2))
        .cost(|head| {
            let length = head.headers.get("content-length").and_then(|text| text.to_str().ok());
            length.and_then(|length| length.parse().ok()).map_or(1, |bytes: u64| bytes.max(1))
        });
    let app = Router::new()
        .route("/reports", get(async || "a long report\n").post(async || "thank you\n"))
        .route_layer(reports)
        .route("/", get(async || "hello\n"))
        .route("/login", post(login));
    Ok(RateLimitLayer::sharing(limiter).domain("web").around(app))
}

/// There is one password, and it is `tide`.
async fn login(password: String) -> StatusCode {
    if password == "tide" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    let service = app()?.into_make_service_with_connect_info::<SocketAddr>();
    Ok(axum::serve(listener, service).await?)
}
