//! `/v1/auth` as proxies ask it: what describes the client's request, and what each of them understands.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Daemon;
use crate::wire::{Ask, Wire};
use serde_json::json;
use tidegate::{Clock as _, SystemClock};
use tidegate_identity::{IdentityConfig, Source, Trust};
use tidegate_server::http::{self, HttpSettings};

const RULES: &str = "
domain: default
rules:
  - { name: login, match: { method: POST, path: /login }, per: [ip], limit: 1/minute }
  - { name: keyed, match: { path: /api }, per: [api_key], limit: 1/minute }
---
domain: queue
rules:
  - { name: drip, per: [ip], limit: { rate: 20/s, algorithm: leaky-bucket, burst: 10 } }
---
domain: slow
rules:
  - { name: drip, per: [ip], limit: { rate: 1/minute, algorithm: leaky-bucket, burst: 10 } }
---
domain: work
rules:
  - { name: places, per: [ip], limit: 1 at once }
";

async fn daemon() -> (Daemon, SocketAddr) {
    let mut identity = IdentityConfig::new(*b"sixteen  secrets");
    identity.proxies.trust = Trust::Networks(vec!["127.0.0.0/8".parse().unwrap()]);
    identity.api_key = vec![Source::header("x-api-key").unwrap()];
    let daemon = Daemon::with_identity(RULES, identity);
    let address = daemon.listen(http::serve).await;
    (daemon, address)
}

/// A login, as Caddy and Traefik describe it.
fn forwarded<'a>(target: &'a str, client: &'a str) -> Ask<'a> {
    Ask::new("GET", target)
        .header("x-forwarded-method", "POST")
        .header("x-forwarded-uri", "/login?next=%2F")
        .header("x-forwarded-host", "example.com")
        .header("x-forwarded-for", client)
}

/// The same, as nginx does.
fn original<'a>(target: &'a str, client: &'a str) -> Ask<'a> {
    Ask::new("GET", target)
        .header("x-original-method", "POST")
        .header("x-original-uri", "/login?next=%2F")
        .header("x-original-host", "example.com")
        .header("x-forwarded-for", client)
}

#[tokio::test]
async fn a_forwarded_request_passes_and_is_then_denied_with_everything_that_a_client_needs() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let reply = wire.ask(&forwarded("/v1/auth", "192.0.2.7")).await;
    assert_eq!((reply.status, reply.text()), (200, ""));
    assert_eq!(reply.header("ratelimit"), Some(r#""login";r=0;t=60"#));
    let reply = wire.ask(&forwarded("/v1/auth", "192.0.2.7")).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("60")));
    assert_eq!(reply.json()["violated-policies"], json!(["login"]));
    let reply = wire.ask(&forwarded("/v1/auth", "192.0.2.8")).await;
    assert_eq!(reply.status, 200, "another client has its own");
}

#[tokio::test]
async fn a_place_is_taken_until_what_the_header_names_is_released() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    for _ in 0..2 {
        let taken = wire.ask(&forwarded("/v1/auth?domain=work", "192.0.2.7")).await;
        let lease_id = taken.header("x-ratelimit-lease-id").unwrap().to_owned();
        let denied = wire.ask(&forwarded("/v1/auth?domain=work", "192.0.2.7")).await;
        assert_eq!((denied.status, denied.header("x-ratelimit-lease-id")), (429, None));
        let attributes = json!({ "ip": "192.0.2.7" });
        let release = json!({ "domain": "work", "attributes": attributes, "lease_id": lease_id });
        assert_eq!(wire.post("/v1/release", &release.to_string()).await.status, 200);
    }
}

#[tokio::test]
async fn every_method_of_the_proxy_means_the_same() {
    let (daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"] {
        for status in [200, 429] {
            let ask = Ask::new(method, "/v1/auth")
                .header("x-forwarded-method", "POST")
                .header("x-forwarded-uri", "/login")
                .header("x-forwarded-for", "192.0.2.7");
            let reply = wire.ask(&ask).await;
            assert_eq!(reply.status, status, "{method}");
            assert!(reply.header("ratelimit").is_some(), "{method}");
        }
        daemon.clock.advance(Duration::from_mins(1));
    }
}

#[tokio::test]
async fn nginx_gets_403_and_what_to_make_of_it() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let target = "/v1/auth?dialect=nginx";
    assert_eq!(wire.ask(&original(target, "192.0.2.7")).await.status, 200);
    let reply = wire.ask(&original(target, "192.0.2.7")).await;
    assert_eq!((reply.status, reply.text()), (403, ""));
    assert_eq!(reply.header("x-ratelimit-status"), Some("429"));
    assert_eq!(reply.header("retry-after"), Some("60"));
    assert_eq!(reply.header("ratelimit"), Some(r#""login";r=0;t=60"#));
    assert_eq!(reply.header("x-ratelimit-limit"), Some("1"));
    let body: serde_json::Value =
        serde_json::from_str(reply.header("x-ratelimit-body").unwrap()).unwrap();
    assert_eq!((&body["status"], &body["error"]), (&json!(429), &json!("rate_limit_exceeded")));
    // A client's own headers of the other dialect change nothing.
    let meddled = original(target, "192.0.2.7")
        .header("x-forwarded-method", "GET")
        .header("x-forwarded-uri", "/free");
    assert_eq!(wire.ask(&meddled).await.status, 403);
}

#[tokio::test]
async fn one_client_is_one_whichever_proxy_asks() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    assert_eq!(wire.ask(&original("/v1/auth?dialect=original", "192.0.2.7")).await.status, 200);
    assert_eq!(wire.ask(&forwarded("/v1/auth?dialect=forwarded", "192.0.2.7")).await.status, 429);
    assert_eq!(wire.ask(&original("/v1/auth", "192.0.2.7")).await.status, 429);
}

#[tokio::test]
async fn domain_and_cost_are_the_operators_to_say() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let reply = wire.ask(&forwarded("/v1/auth?cost=2", "192.0.2.7")).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, None), "it never fits");
    let reply = wire.ask(&forwarded("/v1/auth?domain=elsewhere", "192.0.2.7")).await;
    assert_eq!((reply.status, reply.header("ratelimit")), (200, None));
}

#[tokio::test]
async fn a_request_that_is_not_described_is_an_error_and_no_refusal() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let reply = wire.get("/v1/auth").await;
    assert_eq!((reply.status, &reply.json()["field"]), (400, &json!("x-forwarded-method")));
    let reply = wire.get("/v1/auth?dialect=nginx").await;
    assert_eq!((reply.status, &reply.json()["field"]), (400, &json!("x-original-method")));
    let reply = wire.get("/v1/auth?dialect=envoy").await;
    assert_eq!((reply.status, &reply.json()["field"]), (400, &json!("?dialect")));
    let both = forwarded("/v1/auth", "192.0.2.7").header("x-original-method", "GET");
    assert_eq!(wire.ask(&both).await.status, 400);
}

#[tokio::test]
async fn two_keys_are_refused_and_not_let_past_the_limit() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let api = |target| {
        Ask::new("GET", target)
            .header("x-original-method", "GET")
            .header("x-original-uri", "/api")
            .header("x-api-key", "one")
    };
    assert_eq!(wire.ask(&api("/v1/auth")).await.status, 200);
    assert_eq!(wire.ask(&api("/v1/auth")).await.status, 429);
    let reply = wire.ask(&api("/v1/auth").header("x-api-key", "two")).await;
    assert_eq!((reply.status, &reply.json()["status"]), (400, &json!(400)));
    let reply = wire.ask(&api("/v1/auth?dialect=nginx").header("x-api-key", "two")).await;
    assert_eq!((reply.status, reply.header("x-ratelimit-status")), (403, Some("400")));
}

#[tokio::test]
async fn the_delay_of_a_leaky_bucket_is_waited_out_within_a_bound() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    assert_eq!(wire.ask(&forwarded("/v1/auth?domain=queue", "192.0.2.7")).await.status, 200);
    let began = SystemClock.now();
    assert_eq!(wire.ask(&forwarded("/v1/auth?domain=queue", "192.0.2.7")).await.status, 200);
    let waited = Duration::from(SystemClock.now().since(began));
    assert!(
        waited >= Duration::from_millis(49),
        "the second in a queue of 20 a second: {waited:?}"
    );
    assert_eq!(wire.ask(&forwarded("/v1/auth?domain=slow", "192.0.2.7")).await.status, 200);
    let reply = wire.ask(&forwarded("/v1/auth?domain=slow", "192.0.2.7")).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, Some("55")));
}

#[tokio::test]
async fn the_default_domain_is_a_setting() {
    let daemon = Daemon::new(RULES);
    let settings =
        Arc::new(HttpSettings { default_domain: "queue".into(), ..HttpSettings::default() });
    let serve = move |engine, stream, peer, drain| {
        http::serve_with(engine, Arc::clone(&settings), stream, peer, drain)
    };
    let address = daemon.listen(serve).await;
    let reply = Wire::open(address).await.ask(&forwarded("/v1/auth", "192.0.2.7")).await;
    assert!(reply.header("ratelimit-policy").unwrap().starts_with("\"drip\""));
}
