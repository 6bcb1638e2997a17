//! The HTTP endpoints as programs use them: answers, headers, giving back, both versions of HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::support::Daemon;
use crate::wire::{Ask, Wire};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tidegate::{Clock as _, SystemClock};
use tidegate_server::http::{self, HttpSettings};
use tidegate_tower::HeaderSet;

const RULES: &str = "
domain: default
rules:
  - { name: demo, per: [key], limit: 2/minute }
---
domain: api
rules:
  - { name: orders, match: { path: /orders }, per: [user], limits: [ 10/minute, 500/day ] }
  - { name: tried, per: [user], limit: 1/hour, mode: shadow }
---
domain: envoy
descriptors:
  - { key: user, value: mallory, rate_limit: { unit: day, requests_per_unit: 0 } }
---
domain: work
rules:
  - { name: own, per: [user], limit: 2 at once }
  - { name: all, limit: 3 at once }
---
domain: queue
rules:
  - { name: drip, per: [key], limit: { rate: 20/s, algorithm: leaky-bucket, burst: 10 } }
---
domain: slow
rules:
  - { name: drip, per: [key], limit: { rate: 1/minute, algorithm: leaky-bucket, burst: 10 } }
";

async fn daemon() -> (Daemon, SocketAddr) {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(http::serve).await;
    (daemon, address)
}

async fn daemon_with(settings: HttpSettings) -> (Daemon, SocketAddr) {
    let daemon = Daemon::new(RULES);
    let settings = Arc::new(settings);
    let serve = move |engine, stream, peer, drain| {
        http::serve_with(engine, Arc::clone(&settings), stream, peer, drain)
    };
    let address = daemon.listen(serve).await;
    (daemon, address)
}

#[tokio::test]
async fn a_key_passes_until_its_limit_and_is_then_told_when_to_come_back() {
    let (daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let first = wire.get("/limit/ann").await;
    assert_eq!((first.status, first.text()), (200, "{\"allowed\":true}\n"));
    assert_eq!(first.header("ratelimit-policy"), Some(r#""demo";q=2;w=60"#));
    assert_eq!(first.header("ratelimit"), Some(r#""demo";r=1;t=30"#));
    assert_eq!(wire.ask(&Ask::new("POST", "/limit/ann")).await.status, 200);
    let denied = wire.get("/limit/ann").await;
    assert_eq!(denied.status, 429);
    for (name, value) in [
        ("retry-after", "30"),
        ("ratelimit-policy", r#""demo";q=2;w=60"#),
        ("ratelimit", r#""demo";r=0;t=30"#),
        ("x-ratelimit-limit", "2"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "60"),
        ("x-ratelimit-retry-after", "30"),
        ("cache-control", "no-store"),
        ("content-type", "application/problem+json"),
    ] {
        assert_eq!(denied.header(name), Some(value), "{name}");
    }
    let body = denied.json();
    assert_eq!(body["error"], "rate_limit_exceeded");
    assert_eq!(body["message"], "Too many requests. Try again after 30 seconds.");
    assert_eq!(wire.get("/limit/bob").await.status, 200, "another key has its own");
    daemon.clock.advance(Duration::from_secs(30));
    assert_eq!(wire.get("/limit/ann").await.status, 200, "it came back when it was told to");
}

#[tokio::test]
async fn a_key_is_what_its_escapes_stand_for() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    for target in ["/limit/a%2Fb%20%C3%A4", "/limit/a/b%20%c3%a4"] {
        assert_eq!(wire.get(target).await.status, 200);
    }
    assert_eq!(wire.get("/limit/a/b%20%C3%A4").await.status, 429, "three spellings of one key");
    assert_eq!(wire.get("/limit/a/b+%C3%A4").await.status, 200, "a plus in a path is a plus");
    for (target, field) in [
        ("/limit/", "key"),
        ("/limit/%zz", "key"),
        ("/limit/ann?cost=x", "?cost"),
        ("/limit/ann?costs=1", "?costs"),
        ("/limit/ann?cost=1&cost=2", "?cost"),
        ("/limit/ann?domain=%ff", "?domain"),
    ] {
        let reply = wire.get(target).await;
        assert_eq!((reply.status, &reply.json()["field"]), (400, &json!(field)), "{target}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    }
}

#[tokio::test]
async fn domain_and_cost_are_in_the_query() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let reply = wire.get("/limit/ann?cost=2").await;
    assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, Some("0")));
    let reply = wire.get("/limit/bob?cost=3").await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, None), "it never fits");
    let reply = wire.get("/limit/ann?domain=elsewhere").await;
    assert_eq!((reply.status, reply.header("ratelimit")), (200, None), "nobody limits it there");
}

#[tokio::test]
async fn head_is_answered_like_get_without_the_body() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let reply = wire.ask(&Ask::new("HEAD", "/limit/ann")).await;
    assert_eq!((reply.status, reply.header("content-length")), (200, Some("17")));
    assert_eq!(reply.header("ratelimit"), Some(r#""demo";r=1;t=30"#));
    let (mut client, _) = http2(address).await;
    let request = Request::head("http://limiter/limit/ann").body(Full::default()).unwrap();
    let reply = client.send_request(request).await.unwrap();
    assert_eq!(
        (reply.status().as_u16(), &reply.headers()["content-length"]),
        (200, &"17".parse().unwrap())
    );
    assert!(reply.into_body().collect().await.unwrap().to_bytes().is_empty());
    assert_eq!(wire.get("/limit/ann").await.status, 429, "both were counted");
}

#[tokio::test]
async fn the_set_of_headers_is_a_setting() {
    for (set, expected) in [
        (HeaderSet::All, (true, true)),
        (HeaderSet::Ietf, (true, false)),
        (HeaderSet::XRateLimit, (false, true)),
        (HeaderSet::None, (false, false)),
    ] {
        let (_daemon, address) =
            daemon_with(HttpSettings { headers: set, ..HttpSettings::default() }).await;
        let reply = Wire::open(address).await.get("/limit/ann").await;
        let has = |name| reply.header(name).is_some();
        assert_eq!((has("ratelimit"), has("x-ratelimit-limit")), expected, "{set}");
    }
}

#[tokio::test]
async fn a_check_says_everything_in_this_order() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let call = r#"{"domain":"api","attributes":{"user":42,"path":"/orders"},"cost":2}"#;
    let reply = wire.post("/v1/check", call).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!(
        reply.text(),
        r#"{"allowed":true,"rule":"orders","limit":10,"remaining":8,"reset_after_ms":12000,"retry_after_ms":null,"delay_ms":0,"reason":null,"soft":false,"shadow_denied":true,"source":"memory","degraded":false,"limits":[{"rule":"orders","name":"orders","text":"10/minute","enforced":true,"reserve":false,"allowed":true,"cost":2,"limit":10,"remaining":8,"reset_after_ms":12000,"retry_after_ms":null},{"rule":"orders","name":"orders","text":"500/day","enforced":true,"reserve":false,"allowed":true,"cost":2,"limit":500,"remaining":498,"reset_after_ms":345600,"retry_after_ms":null},{"rule":"tried","name":"tried","text":"1/hour","enforced":false,"reserve":false,"allowed":false,"cost":2,"limit":1,"remaining":1,"reset_after_ms":0,"retry_after_ms":null}],"lease_id":null,"lease_expires_after_ms":null,"taken_at_us":1700000000000000}"#
    );
    let denied = r#"{"domain":"api","attributes":{"user":"42","path":"/orders"},"cost":9}"#;
    let denied = wire.post("/v1/check", denied).await.json();
    assert_eq!(denied["allowed"], false, "42 and \"42\" are one user");
    assert_eq!(
        (&denied["reason"], &denied["retry_after_ms"]),
        (&json!("over-limit"), &json!(6000))
    );
    assert_eq!(denied["taken_at_us"], Value::Null);
}

#[tokio::test]
async fn what_never_passes_has_no_time_to_come_back() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let call = r#"{"attributes":{"key":"ann"},"cost":3}"#;
    let reply = wire.post("/v1/check", call).await.json();
    assert_eq!((&reply["reason"], &reply["retry_after_ms"]), (&json!("never-fits"), &Value::Null));
    let call = r#"{"domain":"envoy","attributes":{"user":"mallory"}}"#;
    let reply = wire.post("/v1/check", call).await.json();
    assert_eq!((&reply["allowed"], &reply["reason"]), (&json!(false), &json!("banned")));
    assert_eq!((&reply["rule"], &reply["retry_after_ms"]), (&json!("user=mallory"), &Value::Null));
}

#[tokio::test]
async fn an_unknown_domain_passes_and_has_no_rule() {
    let (_daemon, address) = daemon().await;
    let reply = Wire::open(address).await.post("/v1/check", r#"{"domain":"nobody"}"#).await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.text(),
        r#"{"allowed":true,"rule":null,"limit":null,"remaining":null,"reset_after_ms":null,"retry_after_ms":null,"delay_ms":0,"reason":null,"soft":false,"shadow_denied":false,"source":"memory","degraded":false,"limits":[],"lease_id":null,"lease_expires_after_ms":null,"taken_at_us":null}"#
    );
}

#[tokio::test]
async fn a_peek_takes_nothing_and_a_debit_goes_into_debt() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    for _ in 0..3 {
        let peek = r#"{"attributes":{"key":"ann"},"peek":true}"#;
        let reply = wire.post("/v1/check", peek).await.json();
        assert_eq!((&reply["allowed"], &reply["remaining"]), (&json!(true), &json!(2)));
        assert_eq!(reply["taken_at_us"], Value::Null);
    }
    let debit = r#"{"attributes":{"key":"ann"},"cost":5,"debit":true}"#;
    let reply = wire.post("/v1/check", debit).await.json();
    assert_eq!((&reply["allowed"], &reply["remaining"]), (&json!(true), &json!(0)));
    assert_eq!(wire.get("/limit/ann").await.header("retry-after"), Some("120"));
}

#[tokio::test]
async fn a_batch_is_answered_in_order_each_call_on_its_own() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let ann = r#"{"attributes":{"key":"ann"}}"#;
    let body =
        format!(r#"[{ann},{{"domain":"nobody"}},{ann},{ann},{{"attributes":{{"key":"bob"}}}}]"#);
    let reply = wire.post("/v1/check/batch", &body).await.json();
    let allowed: Vec<bool> =
        reply.as_array().unwrap().iter().map(|one| one["allowed"].as_bool().unwrap()).collect();
    assert_eq!(allowed, [true, true, true, false, true]);
    assert_eq!(wire.post("/v1/check/batch", "[]").await.text(), "[]");
    let bad = r#"[{"attributes":{"key":"carl"}},{"cost":-1}]"#;
    let reply = wire.post("/v1/check/batch", bad).await;
    assert_eq!((reply.status, &reply.json()["field"]), (400, &json!("/1/cost")));
    let left = wire.get("/limit/carl").await;
    assert_eq!(left.header("x-ratelimit-remaining"), Some("1"), "nothing was decided before");
    let many = format!("[{}]", vec!["{}"; 1_001].join(","));
    assert_eq!(wire.post("/v1/check/batch", &many).await.status, 413);
}

#[tokio::test]
async fn what_was_taken_is_given_back_once_it_is_named() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let call = r#"{"attributes":{"key":"ann"},"cost":2}"#;
    let taken = wire.post("/v1/check", call).await.json();
    let body =
        json!({"attributes": {"key": "ann"}, "cost": 2, "taken_at_us": taken["taken_at_us"]});
    let reply = wire.post("/v1/refund", &body.to_string()).await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.text(),
        r#"{"rule":"demo","limit":2,"remaining":2,"reset_after_ms":0,"source":"memory","degraded":false,"limits":[{"rule":"demo","name":"demo","text":"2/minute","enforced":true,"reserve":false,"allowed":true,"cost":2,"limit":2,"remaining":2,"reset_after_ms":0,"retry_after_ms":null}]}"#
    );
    assert_eq!(wire.post("/v1/refund", call).await.json()["field"], "/taken_at_us");
}

#[tokio::test]
async fn places_are_given_back_by_the_leases_of_their_call() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let call = |user: &str| format!(r#"{{"domain":"work","attributes":{{"user":"{user}"}}}}"#);
    let first = wire.post("/v1/check", &call("ann")).await.json();
    let second = wire.post("/v1/check", &call("bob")).await.json();
    assert_eq!(wire.post("/v1/check", &call("ann")).await.json()["remaining"], 0);
    let denied = wire.post("/v1/check", &call("bob")).await.json();
    assert_eq!((&denied["allowed"], &denied["rule"]), (&json!(false), &json!("all")));
    assert_eq!(denied["lease_id"], Value::Null);

    let release = |user: &str, from: &Value| {
        json!({"domain": "work", "attributes": {"user": user}, "lease_id": from["lease_id"]})
            .to_string()
    };
    let left = wire.post("/v1/release", &release("bob", &second)).await.json();
    let remaining = |reply: &Value| {
        let limits = reply["limits"].as_array().unwrap().iter();
        limits.map(|limit| limit["remaining"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(remaining(&left), [2, 1]);
    let again = wire.post("/v1/release", &release("bob", &second)).await.json();
    assert_eq!(remaining(&again), [2, 1], "nothing is given back a second time");
    let left = wire.post("/v1/release", &release("ann", &first)).await.json();
    assert_eq!(remaining(&left), [1, 2]);
    let bad = r#"{"domain":"work","lease_id":"7"}"#;
    let reply = wire.post("/v1/release", bad).await;
    assert_eq!((reply.status, &reply.json()["field"]), (400, &json!("/lease_id")));
}

#[tokio::test]
async fn places_are_renewed_by_the_leases_of_their_call() {
    let (daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let who = json!({"domain": "work", "attributes": {"user": "ann"}});
    let taken = wire.post("/v1/check", &who.to_string()).await.json();
    let lasts_ms = taken["lease_expires_after_ms"].as_u64().unwrap();
    let mut renewal = who.clone();
    renewal["lease_id"] = taken["lease_id"].clone();
    for _ in 0..3 {
        daemon.clock.advance(Duration::from_millis(lasts_ms - 1));
        let renewed = wire.post("/v1/renew", &renewal.to_string()).await.json();
        assert_eq!(renewed["lease_id"], taken["lease_id"]);
        assert_eq!(renewed["lease_expires_after_ms"], lasts_ms);
        assert_eq!(renewed["limits"][0]["remaining"], 1, "of two");
    }
    daemon.clock.advance(Duration::from_millis(lasts_ms));
    let late = wire.post("/v1/renew", &renewal.to_string()).await.json();
    assert_eq!((&late["lease_id"], &late["limits"][0]["remaining"]), (&Value::Null, &json!(2)));
    let reply = wire.post("/v1/renew", r#"{"domain":"work","lease_id":"7"}"#).await;
    assert_eq!((reply.status, &reply.json()["field"]), (400, &json!("/lease_id")));
}

#[tokio::test]
async fn a_leaky_bucket_is_waited_out_where_the_answer_is_a_status() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    assert_eq!(wire.get("/limit/ann?domain=queue").await.status, 200);
    let call = r#"{"domain":"queue","attributes":{"key":"ann"}}"#;
    let told = wire.post("/v1/check", call).await.json();
    assert_eq!((&told["allowed"], &told["delay_ms"]), (&json!(true), &json!(50)));
    let began = SystemClock.now();
    assert_eq!(wire.get("/limit/ann?domain=queue").await.status, 200);
    let waited = Duration::from(SystemClock.now().since(began));
    assert!(
        waited >= Duration::from_millis(99),
        "the third in the queue of 20 a second: {waited:?}"
    );
}

#[tokio::test]
async fn a_turn_that_is_too_far_off_is_refused_and_given_back() {
    let (daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    assert_eq!(wire.get("/limit/ann?domain=slow").await.status, 200);
    for _ in 0..3 {
        let reply = wire.get("/limit/ann?domain=slow").await;
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("55")));
    }
    // Its turn is five seconds off then, which is waited for; so that the test need not, it looks.
    daemon.clock.advance(Duration::from_secs(55));
    let call = r#"{"domain":"slow","attributes":{"key":"ann"},"peek":true}"#;
    let reply = wire.post("/v1/check", call).await.json();
    assert_eq!((&reply["allowed"], &reply["delay_ms"]), (&json!(true), &json!(5000)));
}

#[tokio::test]
async fn a_call_that_is_turned_away_is_counted_as_denied_and_keeps_no_place() {
    let daemon = Daemon::new(
        "
domain: slow
rules:
  - { name: drip, per: [key], limit: { rate: 1/minute, algorithm: leaky-bucket, burst: 10 } }
  - { name: parallel, per: [key], limit: 2 at once }
",
    );
    let address = daemon.listen(http::serve).await;
    let mut wire = Wire::open(address).await;
    assert_eq!(wire.get("/limit/ann?domain=slow").await.status, 200);
    for _ in 0..3 {
        let reply = wire.get("/limit/ann?domain=slow").await;
        assert_eq!((reply.status, &reply.json()["reason"]), (429, &json!("over-limit")));
        assert_eq!(reply.header("retry-after"), Some("55"));
    }
    let call = r#"{"domain":"slow","attributes":{"key":"ann"},"cost":0,"peek":true}"#;
    let limits = wire.post("/v1/check", call).await.json()["limits"].take();
    let parallel = limits.as_array().unwrap().iter().find(|one| one["rule"] == "parallel");
    assert_eq!(parallel.unwrap()["remaining"], 1, "only the first call holds a place");
    let metrics = wire.get("/metrics").await;
    let decisions = |verdict: &str| -> u64 {
        let lines = metrics.text().lines().filter(|line| {
            line.starts_with("tidegate_decisions_total{domain=\"slow\"") && line.contains(verdict)
        });
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    assert_eq!((decisions("\"allowed\""), decisions("\"denied\"")), (1, 3));
}

#[tokio::test]
async fn a_denial_gives_nothing_back_however_long_the_queue_of_another_limit_is() {
    let daemon = Daemon::new(
        "
domain: slow
rules:
  - { name: drip, per: [key], limit: { rate: 1/minute, algorithm: leaky-bucket, burst: 10 } }
  - { name: few, per: [key], limit: 2/hour }
",
    );
    let address = daemon.listen(http::serve).await;
    let mut wire = Wire::open(address).await;
    let call = r#"{"domain":"slow","attributes":{"key":"ann"}}"#;
    for _ in 0..2 {
        assert_eq!(wire.post("/v1/check", call).await.json()["allowed"], true);
    }
    for _ in 0..2 {
        let reply = wire.get("/limit/ann?domain=slow").await;
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1800")));
        let told = wire.post("/v1/check", call).await.json();
        assert_eq!((&told["allowed"], &told["delay_ms"]), (&json!(false), &json!(0)));
    }
}

#[tokio::test]
async fn while_all_rules_are_in_shadow_nobody_is_held_back_or_turned_away() {
    let (daemon, address) = daemon().await;
    let _ = daemon.engine.controls().set_shadow(true, daemon.engine.limiter().now());
    let mut wire = Wire::open(address).await;
    for _ in 0..3 {
        assert_eq!(wire.get("/limit/ann?domain=slow").await.status, 200);
    }
    let call = r#"{"domain":"slow","attributes":{"key":"ann"}}"#;
    let told = wire.post("/v1/check", call).await.json();
    assert_eq!((&told["allowed"], &told["delay_ms"]), (&json!(true), &json!(0)));
}

#[tokio::test]
async fn other_paths_methods_and_types_are_refused_by_name() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    for path in ["/", "/limit", "/v1", "/v1/check/", "/V1/check"] {
        let reply = wire.get(path).await;
        assert_eq!((reply.status, &reply.json()["status"]), (404, &json!(404)), "{path}");
    }
    let reply = wire.get("/v1/check").await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST")));
    let reply = wire.ask(&Ask::new("DELETE", "/limit/ann")).await;
    assert_eq!((reply.status, reply.header("allow")), (405, Some("GET, HEAD, POST")));
    let typed = |kind| Ask::new("POST", "/v1/check").header("content-type", kind).body("{}");
    assert_eq!(wire.ask(&typed("text/plain")).await.status, 415);
    assert_eq!(wire.ask(&typed("application/json; charset=utf-8")).await.status, 200);
    assert_eq!(wire.ask(&Ask::new("POST", "/v1/check").body("{}")).await.status, 200);
}

#[tokio::test]
async fn health_readiness_and_metrics_have_their_pages() {
    let settings = HttpSettings::default();
    let leaving = settings.leaving.clone();
    let (_daemon, address) = daemon_with(settings).await;
    let mut wire = Wire::open(address).await;
    assert!(wire.get("/metrics").await.text().contains("tidegate_build_info"));
    assert_eq!(wire.get("/healthz").await.status, 200);
    assert_eq!(wire.get("/readyz").await.status, 200);
    assert_eq!(wire.get("/healthcheck").await.text(), "OK");
    leaving.cancel();
    assert_eq!(wire.get("/healthz").await.status, 200, "it is alive until the end");
    assert_eq!(wire.get("/readyz").await.status, 503);
    assert_eq!(wire.get("/healthcheck").await.status, 500);
    assert_eq!(wire.get("/limit/ann").await.status, 200, "and answers as before");
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let check = Ask::new("POST", "/v1/check").json(r#"{"attributes":{"key":"ann"}}"#).bytes();
    let mut all = Vec::new();
    for _ in 0..50 {
        all.extend(Ask::new("GET", "/limit/ann").bytes());
        all.extend(&check);
        all.extend(Ask::new("GET", "/healthz").bytes());
    }
    wire.write(&all).await;
    for round in 0..50 {
        let limit = wire.reply(false).await.unwrap();
        assert_eq!(limit.status, if round == 0 { 200 } else { 429 }, "round {round}");
        let check = wire.reply(false).await.unwrap();
        assert_eq!(check.json()["allowed"], round == 0, "round {round}");
        assert_eq!(wire.reply(false).await.unwrap().text(), "ok\n");
    }
}

#[tokio::test]
async fn an_answer_does_not_wait_for_the_rest_of_the_next_request() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    wire.write("GET /healthz HTTP/1.1\r\nhost: h\r\n\r\nGET /limit/ann HT").await;
    assert_eq!(wire.reply(false).await.unwrap().text(), "ok\n");
    wire.write("TP/1.1\r\nhost: h\r\n\r\n").await;
    assert_eq!(wire.reply(false).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_connection_without_keep_alive_is_closed() {
    let (_daemon, address) = daemon().await;
    let mut wire = Wire::open(address).await;
    let reply = wire.ask(&Ask::new("GET", "/healthz").header("connection", "close")).await;
    assert_eq!(reply.status, 200);
    assert!(wire.rest().await.is_empty());
    let mut wire = Wire::open(address).await;
    wire.write("GET /healthz HTTP/1.0\r\n\r\n").await;
    assert_eq!(wire.reply(false).await.unwrap().status, 200);
    assert!(wire.rest().await.is_empty());
}

#[tokio::test]
async fn draining_answers_what_is_under_way_and_ends_the_rest() {
    let (daemon, address) = daemon().await;
    let mut idle = Wire::open(address).await;
    assert_eq!(idle.get("/healthz").await.status, 200);
    let silent = Wire::open(address).await;
    let mut busy = Wire::open(address).await;
    let body = r#"{"attributes":{"key":"ann"}}"#;
    let head =
        format!("POST /v1/check HTTP/1.1\r\nhost: h\r\ncontent-length: {}\r\n\r\n", body.len());
    busy.write(head).await;
    // What is answered on another connection afterwards shows that the head has arrived.
    assert_eq!(idle.get("/healthz").await.status, 200);
    daemon.drain.cancel();
    assert!(idle.rest().await.is_empty());
    assert!(silent.rest().await.is_empty());
    busy.write(body).await;
    let reply = busy.reply(false).await.expect("what was under way is answered");
    assert_eq!(reply.json()["allowed"], true);
    assert!(busy.rest().await.is_empty());
}

type Client = hyper::client::conn::http2::SendRequest<Full<Bytes>>;

async fn http2(address: SocketAddr) -> (Client, tokio::task::JoinHandle<()>) {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let io = TokioIo::new(stream);
    let (client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    (client, tokio::spawn(async { drop(connection.await) }))
}

#[tokio::test]
async fn http_2_has_the_same_answers_on_many_streams_at_once() {
    let (_daemon, address) = daemon().await;
    let (client, _) = http2(address).await;
    let answers = (0..100).map(|number| {
        let mut client = client.clone();
        tokio::spawn(async move {
            let uri = format!("http://limiter/limit/user-{number}");
            let mut allowed = 0;
            for _ in 0..3 {
                let request = Request::get(&uri).body(Full::default()).unwrap();
                let reply = client.send_request(request).await.unwrap();
                let (parts, body) = reply.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                match parts.status.as_u16() {
                    200 => allowed += 1,
                    429 => {
                        assert_eq!(parts.headers["retry-after"], "30");
                        assert!(body.starts_with(b"{\"type\":"));
                    }
                    other => panic!("{other}"),
                }
            }
            allowed
        })
    });
    for answer in answers.collect::<Vec<_>>() {
        assert_eq!(answer.await.unwrap(), 2);
    }
    let mut client = client;
    let body = Full::new(Bytes::from(r#"{"attributes":{"key":"user-1"}}"#));
    let request = Request::post("http://limiter/v1/check").body(body).unwrap();
    let reply = client.send_request(request).await.unwrap();
    let reply = reply.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(serde_json::from_slice::<Value>(&reply).unwrap()["allowed"], false);
}
