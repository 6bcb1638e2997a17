//! Envoy, with its global rate limit filter.

use std::process::Command;

use serde_json::Value;

use crate::client::{Answer, Client};
use crate::process::{program, wait_for};
use crate::stage::Stage;

/// What the rules of the pages allow in an hour, by address and by key.
const BY_ADDRESS: u64 = 5;
const BY_KEY: u64 = 3;
const HOUR_SECS: u64 = 3600;

fn put_on(stage: Stage) -> Stage {
    with(stage, &crate::page::block("envoy.md", "envoy.yaml"))
}

pub(crate) fn with(mut stage: Stage, block: &str) -> Stage {
    let file = stage.write_text("envoy.yaml", block);
    let mut command = Command::new(program("envoy"));
    command.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warn"]);
    stage.start_proxy(command.arg("--config-path").arg(file));
    stage
}

fn use_up(client: Client) {
    for _ in 0..BY_ADDRESS {
        let answer = client.get("/");
        assert_eq!(answer.status, 200, "{answer:#?}");
    }
}

fn is_open(answer: &Answer) -> bool {
    answer.status == 200 && answer.header("x-ratelimit-limit").is_none()
}

#[test]
fn envoy_puts_the_headers_on_allowed_answers() {
    let stage = put_on(Stage::set("envoy-allowed"));
    for left in (0..BY_ADDRESS).rev() {
        let answer = stage.alice().post("/", "hello");
        assert_eq!((answer.status, answer.body.as_str()), (200, "the app got POST / hello"));
        let limit = answer.header("x-ratelimit-limit").expect("a limit");
        assert!(limit.starts_with("5, 5;w=3600"), "{limit}");
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left.to_string().as_str()));
        assert!(answer.header("x-ratelimit-reset").is_some(), "{answer:#?}");
        assert_eq!(answer.header("retry-after"), None);
    }
}

#[test]
fn envoy_refuses_with_429_retry_after_headers_and_body() {
    let stage = put_on(Stage::set("envoy-denied"));
    use_up(stage.alice());
    let answer = stage.alice().get("/");
    assert_eq!(answer.status, 429, "{answer:#?}");
    assert_eq!(answer.header("x-envoy-ratelimited"), Some("true"));
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let wait = answer.header("retry-after").expect("a time to wait");
    assert!((1..=HOUR_SECS).contains(&wait.parse().expect("whole seconds")), "{wait}");
    let body: Value = serde_json::from_str(&answer.body).expect("a body in JSON");
    assert_eq!((&body["error"], &body["status"]), (&"rate_limit_exceeded".into(), &429.into()));
    let message = format!("Too many requests. Try again after {wait} seconds.");
    assert_eq!(body["message"], message.as_str());
    assert_eq!(stage.bob().get("/").status, 200, "another client has a limit of its own");
}

#[test]
fn envoy_knows_clients_by_their_connection_whatever_they_write() {
    let stage = put_on(Stage::set("envoy-spoofed"));
    use_up(stage.alice());
    for number in 1..=4 {
        let pretended = format!("203.0.113.{number}");
        for name in ["X-Forwarded-For", "X-Envoy-External-Address", "X-Real-IP"] {
            let answer = stage.alice().send("GET", "/", &[(name, &pretended)], "");
            assert_eq!(answer.status, 429, "{name}: {answer:#?}");
        }
    }
}

#[test]
fn envoy_counts_a_key_beside_the_address() {
    let stage = put_on(Stage::set("envoy-key"));
    let with_key = |client: Client, key: &str| client.send("GET", "/", &[("x-api-key", key)], "");
    for _ in 0..BY_KEY {
        assert_eq!(with_key(stage.alice(), "one").status, 200);
    }
    assert_eq!(with_key(stage.alice(), "one").status, 429);
    assert_eq!(with_key(stage.bob(), "one").status, 429, "the key counts wherever it comes from");
    assert_eq!(with_key(stage.bob(), "two").status, 200);
    // What was refused for the key has not been charged to the address.
    assert_eq!(stage.alice().get("/").header("x-ratelimit-remaining"), Some("1"));
}

#[test]
fn envoy_lets_a_rule_in_shadow_pass() {
    let stage = put_on(Stage::set("envoy-shadow"));
    for _ in 0..3 {
        let answer = stage.alice().get("/search");
        assert_eq!((answer.status, answer.body.as_str()), (200, "the app got GET /search"));
    }
    let next = r#"{"domain":"envoy","attributes":{"route":"search"},"peek":true}"#;
    let json = ("Content-Type", "application/json");
    let decision = stage.direct().send("POST", "/v1/check", &[json], next).body;
    assert!(decision.contains("\"shadow_denied\":true"), "{decision}");
}

#[test]
fn envoy_lets_requests_through_while_the_daemon_is_dead() {
    let mut stage = put_on(Stage::set("envoy-dead"));
    use_up(stage.alice());
    stage.kill_daemon();
    for _ in 0..3 {
        let answer = stage.alice().get("/");
        assert!(is_open(&answer), "{answer:#?}");
    }
    stage.start_daemon();
    wait_for("headers again", || Some(stage.alice().get("/")).filter(|answer| !is_open(answer)));
}

#[test]
fn envoy_refuses_while_the_daemon_is_dead_if_it_is_told_to() {
    let block = crate::page::block("envoy.md", "envoy.yaml");
    let closed = block.replace("failure_mode_deny: false", "failure_mode_deny: true");
    assert_ne!(closed, block);
    let mut stage = with(Stage::set("envoy-closed"), &closed);
    assert_eq!(stage.alice().get("/").status, 200);
    stage.kill_daemon();
    assert_eq!(stage.alice().get("/").status, 500);
}

#[test]
fn envoy_lets_requests_through_while_the_daemon_hangs() {
    let stage = put_on(Stage::set_in_a_hurry("envoy-hanging"));
    wait_for("a denial", || Some(stage.alice().get("/")).filter(|answer| answer.status == 429));
    stage.freeze_daemon();
    for _ in 0..3 {
        let answer = stage.alice().get("/");
        assert!(is_open(&answer), "{answer:#?}");
    }
    stage.thaw_daemon();
    wait_for("a denial", || Some(stage.alice().get("/")).filter(|answer| answer.status == 429));
}
