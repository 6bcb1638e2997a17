//! What `POST /json` answers, byte by byte.

use std::time::Duration;

use tidegate::{ManualClock, RuleLimiter, RuleSet};
use tidegate_identity::{Identity, IdentityConfig};
use tidegate_rules::{ParseOptions, Source};

use super::*;
use crate::controls::Controls;
use crate::engine::EngineClock;
use crate::grpc::{EnvoySettings, reference_headers};

const RULES: &str = "
domain: web
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: minute, requests_per_unit: 2 } }
  - { key: free, rate_limit: { unlimited: true } }
  - { key: never, metadata: { a: 1 }, rate_limit: { unit: day, requests_per_unit: 0 } }
  - { key: told, metadata: { a: 1, b: [ x, null, 0.5 ] }, rate_limit: { unit: day, requests_per_unit: 9 } }
";

fn engine() -> Engine {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_700_000_000));
    let parsed = RuleSet::parse(&[Source::new("rules.yaml", RULES)], &ParseOptions::default());
    let rules = parsed.unwrap_or_else(|report| panic!("{report}")).rules;
    let limiter = RuleLimiter::builder(rules).clock(EngineClock::Manual(clock)).build().unwrap();
    let identity = Identity::new(IdentityConfig::new(*b"sixteen  secrets")).unwrap();
    Engine::new(limiter, identity, Controls::default())
}

/// The status, and the body as JSON, in which the order of fields has no meaning; or as text.
async fn ask(engine: &Engine, body: &str) -> (u16, Value) {
    let response = json(engine, body.as_bytes()).await;
    let text = String::from_utf8(response.body().to_vec()).unwrap();
    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (response.status().as_u16(), value)
}

fn one(key: &str) -> String {
    format!(r#"{{"domain":"web","descriptors":[{{"entries":[{{"key":"{key}","value":"a"}}]}}]}}"#)
}

#[tokio::test]
async fn the_status_is_200_or_429_by_the_decision() {
    let engine = engine();
    let limit = json!({ "name": "per-user", "requestsPerUnit": 2, "unit": "MINUTE" });
    let answer = |code: &str, left: Option<u32>| {
        let mut status =
            json!({ "code": code, "currentLimit": limit.clone(), "durationUntilReset": "40s" });
        if let Some(left) = left {
            status["limitRemaining"] = left.into();
        }
        json!({ "overallCode": code, "statuses": [status] })
    };
    let user = one("user");
    assert_eq!(ask(&engine, &user).await, (200, answer("OK", Some(1))));
    assert_eq!(ask(&engine, &user).await, (200, answer("OK", None)));
    assert_eq!(ask(&engine, &user).await, (429, answer("OVER_LIMIT", None)));
    let response = json(&engine, user.as_bytes()).await;
    assert_eq!(response.headers()["content-type"], "application/json");
}

#[tokio::test]
async fn what_is_unset_is_left_out() {
    let engine = engine();
    let unknown = json!({ "overallCode": "OK", "statuses": [{ "code": "OK" }] });
    assert_eq!(ask(&engine, &one("unknown")).await, (200, unknown));
    let free = json!({ "code": "OK", "limitRemaining": u32::MAX });
    let free = json!({ "overallCode": "OK", "statuses": [free] });
    assert_eq!(ask(&engine, &one("free")).await, (200, free));
    let never = json!({ "code": "OVER_LIMIT", "currentLimit": {} });
    let never = json!({ "overallCode": "OVER_LIMIT", "statuses": [never] });
    assert_eq!(ask(&engine, &one("never")).await, (429, never));
}

#[tokio::test]
async fn what_is_no_request_gets_400_in_plain_text() {
    let engine = engine();
    let nameless = r#"{"descriptors":[{"entries":[{"key":"user","value":"a"}]}]}"#;
    for body in ["", "{", "[]", r#"{"domain":"web"}"#, nameless, r#"{"domain":"web","x":1}"#] {
        assert_eq!(ask(&engine, body).await, (400, json!("Bad Request\n")), "{body}");
    }
    let huge = " ".repeat(MESSAGE_BYTES_MAX + 1);
    assert_eq!(ask(&engine, &huge).await.0, 413);
}

#[tokio::test]
async fn headers_body_and_metadata_are_written_when_they_are_turned_on() {
    let settings = EnvoySettings {
        headers: Some(reference_headers),
        body: Some(|_| Bytes::from_static(b"no")),
        dynamic_metadata: true,
        ..EnvoySettings::default()
    };
    let engine = engine().with_envoy(settings);
    let (status, told) = ask(&engine, &one("told")).await;
    assert_eq!(status, 200);
    let metadata = json!({
        "domain": "web",
        "descriptors": [{ "entries": ["told=a"] }],
        "metadata": { "a": 1, "b": ["x", null, 0.5] },
    });
    assert_eq!(told["dynamicMetadata"], metadata);
    let first = json!({ "key": "RateLimit-Limit", "value": "9" });
    assert_eq!(told["responseHeadersToAdd"][0], first);
    let (status, denied) = ask(&engine, &one("never")).await;
    assert_eq!((status, &denied["rawBody"]), (429, &json!("bm8=")));
}
