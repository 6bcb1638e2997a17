//! What every protocol says where a shared store cannot be reached: decisions by policy, marked as such, or
//! that there is none, which is never told as a denial.

use std::sync::Arc;
use std::time::Duration;

use crate::support::Daemon;
use crate::wire::Wire;
use bytes::Bytes;
use tidegate::redis::{RedisConfig, Shared, SharedConfig};
use tidegate::{ManualClock, OnStoreFailure, RuleLimiter, RuleSet};
use tidegate_identity::{Identity, IdentityConfig};
use tidegate_rules::{ParseOptions, Source};
use tidegate_server::controls::Controls;
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tidegate_server::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_response::Code as Envoy;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tidegate_server::proto::tidegate::v1::limiter_client::LimiterClient;
use tidegate_server::proto::tidegate::v1::{
    Attribute, CheckManyRequest, CheckRequest, check_result,
};
use tidegate_server::resp::RespSettings;
use tidegate_server::resp::conversation::{Conversation, Desk, Next};
use tidegate_server::{Engine, EngineClock, admin, grpc, http};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic_types::StatusExt as _;

const RULES: &str = "{ domain: default, rules: [{ name: all, per: [key], limit: 2/day }] }";

/// A daemon whose store nobody listens for.
async fn daemon(policy: OnStoreFailure) -> Daemon {
    let free = tidegate_testing::free_address();
    let config = RedisConfig::new(&format!("redis://{free}")).unwrap();
    let shared = Shared::connect(SharedConfig::new([config]).store_required(false)).await.unwrap();
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_700_000_000));
    let rules = RuleSet::parse(&[Source::new("rules.yaml", RULES)], &ParseOptions::default());
    let limiter = RuleLimiter::builder(rules.unwrap().rules)
        .clock(EngineClock::Manual(clock.clone()))
        .secret(*b"sixteen  secrets")
        .on_store_failure(policy)
        .build_shared(Arc::new(shared))
        .unwrap();
    let identity = Identity::new(IdentityConfig::new(*b"sixteen  secrets")).unwrap();
    let engine = Arc::new(Engine::new(limiter, identity, Controls::default()));
    Daemon { engine, clock, drain: CancellationToken::new() }
}

fn call() -> CheckRequest {
    let name = "key".to_owned();
    let attribute = Attribute { name, value: "ann".to_owned(), raw_value: Bytes::new() };
    let domain = "default".to_owned();
    CheckRequest { domain, attributes: vec![attribute], ..CheckRequest::default() }
}

fn descriptors() -> RateLimitRequest {
    let entry = Entry { key: "key".to_owned(), value: "ann".to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let descriptors = vec![descriptor];
    RateLimitRequest { domain: "default".to_owned(), descriptors, hits_addend: 1 }
}

#[tokio::test]
async fn grpc_says_unavailable_and_that_it_is_the_store() {
    let daemon = daemon(OnStoreFailure::Deny).await;
    let address = daemon.listen(grpc::serve).await;
    let mut native = LimiterClient::connect(format!("http://{address}")).await.unwrap();
    let error = native.check(call()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    let info = error.get_error_details().error_info().cloned().unwrap();
    assert_eq!(info.metadata.get("source").map(String::as_str), Some("fallback"));
    let many = CheckManyRequest { checks: vec![call(), call()] };
    let many = native.check_many(many).await.unwrap().into_inner().results;
    for result in &many {
        let Some(check_result::Of::Failure(failure)) = &result.of else { panic!("{result:?}") };
        assert_eq!(failure.code, i32::from(Code::Unavailable));
    }
    assert_eq!(many.len(), 2);
    let mut envoy = RateLimitServiceClient::connect(format!("http://{address}")).await.unwrap();
    let error = envoy.should_rate_limit(descriptors()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
}

#[tokio::test]
async fn http_says_503_with_the_source_and_envoys_json_form_503_too() {
    let daemon = daemon(OnStoreFailure::Deny).await;
    let mut wire = Wire::open(daemon.listen(http::serve).await).await;
    let reply = wire.post("/v1/check", r#"{"attributes":{"key":"ann"}}"#).await;
    let problem = reply.json();
    assert_eq!((reply.status, &problem["status"]), (503, &503.into()));
    assert_eq!((&problem["source"], &problem["degraded"]), (&"fallback".into(), &true.into()));
    assert_eq!(reply.header("retry-after"), Some("1"));
    let body = r#"[{"attributes":{"key":"ann"}},{"attributes":{"key":"bob"}}]"#;
    let batch = wire.post("/v1/check/batch", body).await;
    let statuses: Vec<_> =
        batch.json().as_array().unwrap().iter().map(|one| one["status"].as_u64()).collect();
    assert_eq!((batch.status, statuses), (200, vec![Some(503), Some(503)]));
    let json = r#"{"domain":"default","descriptors":[{"entries":[{"key":"key","value":"ann"}]}]}"#;
    assert_eq!(wire.post("/json", json).await.status, 503);
    let given = r#"{"attributes":{"key":"ann"},"taken_at_us":1700000000000000}"#;
    assert_eq!(wire.post("/v1/refund", given).await.status, 503);
    let mut admin = Wire::open(daemon.listen(admin::serve).await).await;
    let about = r#"{"domain":"default","attributes":{"key":"ann"}}"#;
    for path in ["/v1/peek", "/v1/reset"] {
        // The admin address answers to its own name alone.
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        );
        admin.write(format!("{head}content-length: {}\r\n\r\n{about}", about.len())).await;
        assert_eq!(admin.reply(false).await.unwrap().status, 503, "{path}");
    }
    let text = daemon.engine.metrics().render(&daemon.engine);
    assert!(text.contains("tidegate_undecided_total{protocol=\"http\"} 4\n"), "{text}");
}

#[tokio::test]
async fn a_share_is_given_and_every_protocol_says_that_it_is_degraded() {
    let daemon = daemon(OnStoreFailure::Local).await;
    let grpc = daemon.listen(grpc::serve).await;
    let mut native = LimiterClient::connect(format!("http://{grpc}")).await.unwrap();
    let answer = native.check(call()).await.unwrap().into_inner();
    assert_eq!((answer.allowed, answer.degraded), (true, true));
    assert_eq!((answer.source.as_str(), answer.remaining), ("fallback", Some(1)));
    let mut wire = Wire::open(daemon.listen(http::serve).await).await;
    let answer = wire.post("/v1/check", r#"{"attributes":{"key":"ann"}}"#).await.json();
    assert_eq!((&answer["source"], &answer["degraded"]), (&"fallback".into(), &true.into()));
    assert_eq!((&answer["allowed"], &answer["remaining"]), (&true.into(), &0.into()));
    let mut envoy = RateLimitServiceClient::connect(format!("http://{grpc}")).await.unwrap();
    let answer = envoy.should_rate_limit(descriptors()).await.unwrap().into_inner();
    assert_eq!(answer.overall_code(), Envoy::OverLimit, "the two of the share are gone");
    let given = r#"{"attributes":{"key":"ann"},"taken_at_us":1700000000000000}"#;
    let left = wire.post("/v1/refund", given).await.json();
    assert_eq!((&left["source"], &left["degraded"]), (&"fallback".into(), &true.into()));
    assert_eq!(left["remaining"], 1, "it goes to the share, of which something was taken");
    let given = r#"{"attributes":{"key":"eve"},"taken_at_us":1700000000000000}"#;
    let kept = wire.post("/v1/refund", given).await;
    assert_eq!((kept.status, &kept.json()["degraded"]), (200, &true.into()));
    let text = daemon.engine.metrics().render(&daemon.engine);
    let series = r#"tidegate_decisions_total{domain="default",rule="all",verdict="allowed",source="fallback"} 2"#;
    assert!(text.contains(series), "{text}");
    assert!(text.contains("tidegate_store_up{group=\"1\"} 0\n"), "{text}");
    assert!(text.contains("tidegate_store_give_backs_kept{group=\"1\"} 1\n"), "{text}");
    let reasons = ["timeout", "busy", "breaker", "unreachable", "broken", "refused"];
    for reason in reasons {
        let series =
            format!("tidegate_store_failed_calls_total{{group=\"1\",reason=\"{reason}\"}}");
        assert!(text.contains(&series), "{text}");
    }
}

#[tokio::test]
async fn in_shadow_everything_passes_whatever_rules_say_for_a_store_that_is_away() {
    let daemon = daemon(OnStoreFailure::Deny).await;
    let now = daemon.engine.limiter().now();
    let _ = daemon.engine.controls().set_shadow(true, now);
    let mut wire = Wire::open(daemon.listen(http::serve).await).await;
    for body in [r#"{"attributes":{"key":"ann"}}"#, r#"{"attributes":{"key":"ann"},"debit":true}"#]
    {
        let reply = wire.post("/v1/check", body).await;
        let answer = reply.json();
        assert_eq!((reply.status, &answer["allowed"]), (200, &true.into()), "{answer}");
        assert_eq!((&answer["source"], &answer["degraded"]), (&"fallback".into(), &true.into()));
    }
    assert_eq!(wire.get("/limit/ann").await.status, 200);
    let json = r#"{"domain":"default","descriptors":[{"entries":[{"key":"key","value":"ann"}]}]}"#;
    assert_eq!(wire.post("/json", json).await.status, 200);
    let address = daemon.listen(grpc::serve).await;
    let mut native = LimiterClient::connect(format!("http://{address}")).await.unwrap();
    let answer = native.check(call()).await.unwrap().into_inner();
    assert_eq!((answer.allowed, answer.degraded), (true, true));
    let mut envoy = RateLimitServiceClient::connect(format!("http://{address}")).await.unwrap();
    let answer = envoy.should_rate_limit(descriptors()).await.unwrap().into_inner();
    assert_eq!((answer.overall_code(), answer.statuses.len()), (Envoy::Ok, 1));
    let settings = Arc::new(RespSettings::new());
    let mut conversation = Conversation::new(Arc::clone(&daemon.engine), settings, None);
    let mut desk = Desk::default();
    let mut said = b"CL.THROTTLE bob 4 1 60\r\n".to_vec();
    assert_eq!(conversation.hear(&mut said, &mut desk), Next::Listen);
    let asking = conversation.asking(&mut desk.output).expect("a store is to be asked");
    assert_eq!(asking.await, b"*5\r\n:0\r\n:5\r\n:5\r\n:-1\r\n:0\r\n");
    let text = daemon.engine.metrics().render(&daemon.engine);
    for undecided in ["http", "envoy", "grpc", "resp"] {
        let series = format!("tidegate_undecided_total{{protocol=\"{undecided}\"}} 0\n");
        assert!(text.contains(&series), "{text}");
    }
}

#[tokio::test]
async fn resp_answers_a_pipeline_in_order_once_all_is_known() {
    let daemon = daemon(OnStoreFailure::Local).await;
    let settings = Arc::new(RespSettings::new());
    let mut conversation = Conversation::new(Arc::clone(&daemon.engine), settings, None);
    let mut desk = Desk::default();
    let said = "PING\r\nCL.THROTTLE bob 0 1 60\r\nECHO a\r\nCL.THROTTLE bob 0 1 60\r\nECHO b\r\n";
    assert_eq!(conversation.hear(&mut said.as_bytes().to_vec(), &mut desk), Next::Listen);
    let asking = conversation.asking(&mut desk.output).expect("a store is to be asked");
    assert!(desk.output.is_empty());
    let answers = String::from_utf8(asking.await).unwrap();
    let expected = "+PONG\r\n*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n$1\r\na\r\n*5\r\n:1\r\n:1\r\n:0\r\n:60\r\n:60\r\n$1\r\nb\r\n";
    assert_eq!(answers, expected);
    // More than may wait at a time is asked in parts.
    let mut many = "CL.THROTTLE ann 9 1 60\r\n".repeat(300).into_bytes();
    let mut next = conversation.hear(&mut many, &mut desk);
    let mut parts = 0;
    while let Some(asking) = conversation.asking(&mut desk.output) {
        assert!(asking.await.starts_with(b"*5\r\n"));
        parts += 1;
        if next == Next::Resume {
            next = conversation.hear(&mut [], &mut desk);
        }
    }
    assert_eq!((parts, next, conversation.answered()), (3, Next::Listen, 305));
}
