//! Envoy's rate limit service over real connections, claim by claim as envoyproxy/ratelimit answers.

use std::sync::Arc;
use std::time::Duration;

use crate::support::Daemon;
use bytes::Bytes;
use prost::Message as _;
use tidegate::{Clock as _, Span, SystemClock};
use tidegate_server::grpc::{self, EnvoySettings, reference_headers, x_ratelimit_headers};
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_response::Code::{
    self, Ok as Fine, OverLimit,
};
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_response::{
    DescriptorStatus, RateLimit,
};
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tidegate_server::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tidegate_server::proto::envoy::r#type::v3::RateLimitUnit;
use tonic::Code as Grpc;
use tonic::transport::Channel;

const RULES: &str = "
domain: web
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: minute, requests_per_unit: 3 } }
  - { key: user, value: vip, rate_limit: { unlimited: true, replaces: [ { name: per-path } ] } }
  - { key: path, rate_limit: { name: per-path, unit: day, requests_per_unit: 2 } }
  - { key: tried, shadow_mode: true, rate_limit: { name: trial, unit: hour, requests_per_unit: 1 } }
  - key: quota
    quota_mode: true
    metadata: { tier: gold, more: { from: quota } }
    rate_limit: { unit: month, requests_per_unit: 1 }
  - { key: never, rate_limit: { unit: second, requests_per_unit: 0 } }
  - key: nested
    value: a
    descriptors: [ { key: deep, rate_limit: { unit: week, requests_per_unit: 7 } } ]
---
domain: own
rules:
  - { name: bucket, match: { kind: bucket }, limit: 10/minute burst 4 }
  - { name: shaped, match: { kind: shaped }, limit: { rate: 4/s, algorithm: leaky-bucket, burst: 3 } }
  - { name: open, match: { kind: open }, limit: { at_once: 1, expires_after: 1m } }
";

type Client = RateLimitServiceClient<Channel>;

async fn client(daemon: &Daemon) -> Client {
    let address = daemon.listen(grpc::serve).await;
    RateLimitServiceClient::connect(format!("http://{address}")).await.unwrap()
}

fn with_settings(change: impl FnOnce(&mut EnvoySettings)) -> Daemon {
    let Daemon { engine, clock, drain } = Daemon::new(RULES);
    let mut settings = EnvoySettings::default();
    change(&mut settings);
    let engine = Arc::into_inner(engine).unwrap().with_envoy(settings);
    Daemon { engine: Arc::new(engine), clock, drain }
}

/// A descriptor from `key=value,key=value`.
fn descriptor(text: &str) -> RateLimitDescriptor {
    let entries = text.split(',').map(|entry| {
        let (key, value) = entry.split_once('=').unwrap();
        Entry { key: key.to_owned(), value: value.to_owned() }
    });
    RateLimitDescriptor { entries: entries.collect(), ..Default::default() }
}

fn request(texts: &[&str]) -> RateLimitRequest {
    RateLimitRequest {
        domain: "web".to_owned(),
        descriptors: texts.iter().map(|text| descriptor(text)).collect(),
        hits_addend: 0,
    }
}

async fn ask(client: &mut Client, request: RateLimitRequest) -> RateLimitResponse {
    client.should_rate_limit(request).await.unwrap().into_inner()
}

async fn fails(client: &mut Client, request: RateLimitRequest) -> Grpc {
    client.should_rate_limit(request).await.unwrap_err().code()
}

fn codes(response: &RateLimitResponse) -> Vec<Code> {
    response.statuses.iter().map(DescriptorStatus::code).collect()
}

fn left(response: &RateLimitResponse) -> Vec<u32> {
    response.statuses.iter().map(|status| status.limit_remaining).collect()
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with a field that may be absent")]
fn limit(requests_per_unit: u32, unit: Unit, name: &str) -> Option<RateLimit> {
    Some(RateLimit { requests_per_unit, unit: unit.into(), name: name.to_owned() })
}

#[tokio::test]
async fn each_descriptor_has_its_status_in_order() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let texts = ["user=ann", "unknown=x", "nested=a,deep=b", "nested=a", "user=vip"];
    let response = ask(&mut client, request(&texts)).await;
    assert_eq!(response.overall_code(), Fine);
    assert_eq!(codes(&response), [Fine; 5]);
    assert_eq!(left(&response), [2, 0, 6, 0, u32::MAX]);
    let limits: Vec<_> = response.statuses.iter().map(|one| one.current_limit.clone()).collect();
    let (user, deep) = (limit(3, Unit::Minute, "per-user"), limit(7, Unit::Week, ""));
    assert_eq!(limits, [user, None, deep, None, None]);
    // 1,700,000,000 s is 20 s into a minute.
    let resets: Vec<_> = response
        .statuses
        .iter()
        .map(|one| one.duration_until_reset.map(|time| time.seconds))
        .collect();
    assert_eq!(resets[..2], [Some(40), None]);
    assert!(response.response_headers_to_add.is_empty() && response.raw_body.is_empty());
    assert_eq!((response.dynamic_metadata, response.quota), (None, None));
}

#[tokio::test]
async fn over_the_limit_is_an_answer_and_takes_nothing_from_the_others() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    for _ in 0..2 {
        assert_eq!(ask(&mut client, request(&["path=/a"])).await.overall_code(), Fine);
    }
    let denied = ask(&mut client, request(&["user=ann", "path=/a", "user=bob"])).await;
    assert_eq!(denied.overall_code(), OverLimit);
    assert_eq!(codes(&denied), [Fine, OverLimit, Fine]);
    assert_eq!(left(&denied), [3, 0, 3]);
    daemon.clock.advance(Duration::from_hours(24));
    assert_eq!(left(&ask(&mut client, request(&["user=ann", "path=/a"])).await), [2, 1]);
}

#[tokio::test]
async fn unknown_domains_pass_and_empty_ones_are_errors() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let plain = request(&["user=ann"]);
    let unknown = RateLimitRequest { domain: "elsewhere".to_owned(), ..plain.clone() };
    let response = ask(&mut client, unknown).await;
    assert_eq!((response.overall_code(), codes(&response)), (Fine, vec![Fine]));
    let nameless = RateLimitRequest { domain: String::new(), ..plain.clone() };
    assert_eq!(fails(&mut client, nameless).await, Grpc::InvalidArgument);
    assert_eq!(fails(&mut client, request(&[])).await, Grpc::InvalidArgument);
    let empty = RateLimitRequest { descriptors: vec![RateLimitDescriptor::default()], ..plain };
    assert_eq!(codes(&ask(&mut client, empty).await), [Fine]);
}

#[tokio::test]
async fn more_than_the_bounds_is_an_error_and_no_denial() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    assert_eq!(fails(&mut client, request(&["unknown=x"; 65])).await, Grpc::InvalidArgument);
    assert_eq!(codes(&ask(&mut client, request(&["unknown=x"; 64])).await).len(), 64);
    let long = vec!["k=v"; 33].join(",");
    assert_eq!(fails(&mut client, request(&[&long])).await, Grpc::InvalidArgument);
    let values: Vec<String> = (0..17).map(|number| format!("user={number}")).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    assert_eq!(fails(&mut client, request(&values)).await, Grpc::InvalidArgument);
    assert_eq!(left(&ask(&mut client, request(&values[..16])).await), [2; 16]);
    let huge = "x".repeat(grpc::MESSAGE_BYTES_MAX);
    let oversized = request(&[&format!("user={huge}")]);
    assert_eq!(fails(&mut client, oversized).await, Grpc::OutOfRange);
    assert_eq!(left(&ask(&mut client, request(&["user=after"])).await), [2]);
}

#[tokio::test]
async fn the_hits_of_a_descriptor_win_over_those_of_the_request() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let mut two = request(&["user=ann", "user=bob", "user=cid"]);
    two.hits_addend = 2;
    two.descriptors[1].hits_addend = Some(3);
    two.descriptors[2].hits_addend = Some(0);
    assert_eq!(left(&ask(&mut client, two).await), [1, 0, 3]);
    let mut look = request(&["user=bob"]);
    look.descriptors[0].hits_addend = Some(0);
    let looked = ask(&mut client, look).await;
    assert_eq!((looked.overall_code(), left(&looked)), (Fine, vec![0]));
    let mut much = request(&["user=cid"]);
    much.descriptors[0].hits_addend = Some(u64::MAX);
    let denied = ask(&mut client, much).await;
    assert_eq!((denied.overall_code(), left(&denied)), (OverLimit, vec![3]));
}

#[tokio::test]
async fn negative_hits_refund_and_never_fill_above_full() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let mut take = request(&["user=ann"]);
    take.hits_addend = 3;
    ask(&mut client, take).await;
    let mut back = request(&["user=ann"]);
    back.descriptors[0].is_negative_hits = true;
    assert_eq!(left(&ask(&mut client, back.clone()).await), [1]);
    back.descriptors[0].hits_addend = Some(1_000_000_000);
    let full = ask(&mut client, back).await;
    assert_eq!((full.overall_code(), left(&full)), (Fine, vec![3]));
}

#[tokio::test]
async fn a_limit_in_a_descriptor_is_in_the_place_of_the_rules() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let with = |requests_per_unit, unit: RateLimitUnit| {
        let mut one = request(&["tried=x"]);
        one.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit, unit: unit.into() });
        one
    };
    let first = ask(&mut client, with(1, RateLimitUnit::Month)).await;
    assert_eq!(first.statuses[0].current_limit, limit(1, Unit::Month, ""));
    let second = ask(&mut client, with(1, RateLimitUnit::Month)).await;
    assert_eq!(
        second.overall_code(),
        OverLimit,
        "a limit that is brought along is never in shadow"
    );
    let nothing = ask(&mut client, with(0, RateLimitUnit::Year)).await;
    assert_eq!(nothing.overall_code(), OverLimit);
    assert_eq!(nothing.statuses[0].current_limit, limit(0, Unit::Year, ""));
    assert_eq!(fails(&mut client, with(1, RateLimitUnit::Unknown)).await, Grpc::InvalidArgument);
    let mut beyond = with(1, RateLimitUnit::Year);
    beyond.descriptors[0].limit.as_mut().unwrap().unit = 99;
    assert_eq!(fails(&mut client, beyond).await, Grpc::InvalidArgument);
    assert_eq!(ask(&mut client, request(&["tried=x"])).await.statuses[0].limit_remaining, 0);
}

#[tokio::test]
async fn modes_and_replacements_are_kept() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    for _ in 0..3 {
        let tried = ask(&mut client, request(&["tried=a"])).await;
        assert_eq!((tried.overall_code(), codes(&tried)), (Fine, vec![Fine]));
        assert_eq!(tried.statuses[0].current_limit, limit(1, Unit::Hour, "trial"));
    }
    for _ in 0..4 {
        let replaced = ask(&mut client, request(&["path=/a", "user=vip"])).await;
        assert_eq!((replaced.overall_code(), left(&replaced)), (Fine, vec![0, u32::MAX]));
        assert_eq!(replaced.statuses[0].current_limit, None);
    }
    ask(&mut client, request(&["quota=a"])).await;
    let some = ask(&mut client, request(&["quota=a", "quota=b"])).await;
    assert_eq!((some.overall_code(), codes(&some)), (Fine, vec![OverLimit, Fine]));
    let all = ask(&mut client, request(&["quota=a", "quota=b"])).await;
    assert_eq!((all.overall_code(), codes(&all)), (OverLimit, vec![OverLimit; 2]));
    let never = ask(&mut client, request(&["never=x"])).await;
    assert_eq!(never.overall_code(), OverLimit);
    assert_eq!(never.statuses[0].current_limit, limit(0, Unit::Unknown, ""));
}

#[tokio::test]
async fn own_rules_are_told_in_the_units_of_the_wire() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let own = |text| RateLimitRequest { domain: "own".to_owned(), ..request(&[text]) };
    let response = ask(&mut client, own("kind=bucket")).await;
    assert_eq!(response.statuses[0].current_limit, limit(10, Unit::Minute, "bucket"));
    assert_eq!(left(&response), [3]);
    assert_eq!(response.statuses[0].duration_until_reset.unwrap().seconds, 6);
    daemon.clock.advance(Duration::from_micros(1));
    let mut look = own("kind=bucket");
    look.descriptors[0].hits_addend = Some(0);
    let rounded = ask(&mut client, look).await.statuses[0].duration_until_reset.unwrap();
    assert_eq!((rounded.seconds, rounded.nanos), (6, 0), "a part of a second is rounded up");
    for _ in 0..3 {
        assert_eq!(ask(&mut client, own("kind=open")).await.overall_code(), Fine);
    }
}

#[tokio::test]
async fn the_delay_of_a_leaky_bucket_is_waited_out() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let shaped = || RateLimitRequest { domain: "own".to_owned(), ..request(&["kind=shaped"]) };
    assert_eq!(ask(&mut client, shaped()).await.overall_code(), Fine);
    // The bucket's clock stands still: the second is held back for 250 ms, the third for 500.
    let began = SystemClock.now();
    assert_eq!(ask(&mut client, shaped()).await.overall_code(), Fine);
    // Timers and this clock may differ by a little.
    assert!(SystemClock.now().since(began) >= Span::from_micros(240_000), "it is held back");
    // Who asks for the third goes away once it has its place, which stays taken.
    let limiter = daemon.engine.limiter();
    let look = [("kind", "shaped").into()];
    let look = tidegate::Call::new("own", &look).with_cost(0);
    let before = limiter.peek(&look).await.unwrap().remaining();
    let mut asking = client.clone();
    let third = tokio::spawn(async move { ask(&mut asking, shaped()).await });
    let taken = async {
        while limiter.peek(&look).await.unwrap().remaining() == before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), taken).await.expect("it has its place");
    third.abort();
    assert_eq!(ask(&mut client, shaped()).await.overall_code(), OverLimit);
}

#[tokio::test]
async fn a_call_that_would_be_held_back_for_too_long_is_denied_and_takes_no_place() {
    let daemon = with_settings(|settings| settings.delay_max = Duration::from_millis(100));
    let mut client = client(&daemon).await;
    let shaped = || RateLimitRequest { domain: "own".to_owned(), ..request(&["kind=shaped"]) };
    assert_eq!(ask(&mut client, shaped()).await.overall_code(), Fine);
    // The next two would wait for 250 ms, if neither of them took a place before the other.
    for _ in 0..2 {
        let refused = ask(&mut client, shaped()).await;
        assert_eq!(refused.overall_code(), OverLimit);
        assert_eq!(refused.statuses[0].code(), OverLimit);
    }
    let metrics = daemon.engine.metrics().render(&daemon.engine);
    let denied = "tidegate_decisions_total{domain=\"own\",rule=\"shaped\",verdict=\"denied\",source=\"memory\"} 2\n";
    assert!(metrics.contains(denied), "{metrics}");
    daemon.clock.advance(Duration::from_millis(150));
    assert_eq!(ask(&mut client, shaped()).await.overall_code(), Fine);
}

#[tokio::test]
async fn headers_are_added_when_they_are_turned_on() {
    let daemon = with_settings(|settings| settings.headers = Some(reference_headers));
    let mut client = client(&daemon).await;
    let response = ask(&mut client, request(&["user=ann", "path=/a", "unknown=x"])).await;
    let headers = |response: &RateLimitResponse| {
        let headers = response.response_headers_to_add.iter();
        headers.map(|header| format!("{}: {}", header.key, header.value)).collect::<Vec<_>>()
    };
    // The path has less left: 1 of 2, until the day ends.
    let expected = ["RateLimit-Limit: 2", "RateLimit-Remaining: 1", "RateLimit-Reset: 6400"];
    assert_eq!(headers(&response), expected);
    assert_eq!(headers(&ask(&mut client, request(&["unknown=x"])).await), [""; 0]);

    let daemon = with_settings(|settings| {
        settings.headers = Some(x_ratelimit_headers);
        settings.body = Some(|_| Bytes::from_static(b"slow down"));
    });
    let mut client = self::client(&daemon).await;
    let mut all = request(&["user=ann"]);
    all.hits_addend = 3;
    let allowed = ask(&mut client, all).await;
    assert_eq!(headers(&allowed).len(), 3);
    assert!(allowed.raw_body.is_empty());
    let denied = ask(&mut client, request(&["user=ann", "path=/a"])).await;
    let expected = [
        "X-RateLimit-Limit: 3",
        "X-RateLimit-Remaining: 0",
        "X-RateLimit-Reset: 40",
        "Retry-After: 40",
    ];
    assert_eq!(headers(&denied), expected);
    assert_eq!(denied.raw_body, "slow down");
}

#[tokio::test]
async fn metadata_is_sent_when_it_is_turned_on() {
    let daemon = with_settings(|settings| settings.dynamic_metadata = true);
    let mut client = client(&daemon).await;
    let first = ask(&mut client, request(&["quota=a"])).await.dynamic_metadata.unwrap();
    let names: Vec<_> = first.fields.keys().map(String::as_str).collect();
    assert_eq!(names, ["descriptors", "domain", "metadata"]);
    let shown = format!("{:?}", first.fields["metadata"]);
    assert!(shown.contains("gold") && shown.contains("from"), "{shown}");
    assert!(format!("{:?}", first.fields["descriptors"]).contains("quota=a"));
    ask(&mut client, request(&["tried=t"])).await;
    let over = ask(&mut client, request(&["tried=t", "quota=a"])).await.dynamic_metadata.unwrap();
    assert!(!over.fields.contains_key("metadata"), "it is told while there is room");
    assert!(format!("{:?}", over.fields["quotaModeViolations"]).contains("NumberValue(1.0)"));
    assert!(format!("{:?}", over.fields["shadowModeViolations"]).contains("trial"));
}

#[tokio::test]
async fn two_connections_and_many_calls_never_take_more_than_the_limit() {
    let daemon = Daemon::new(RULES);
    let (one, two) = (client(&daemon).await, client(&daemon).await);
    let calls: Vec<_> = (0..20)
        .map(|number| {
            let mut client = if number % 2 == 0 { one.clone() } else { two.clone() };
            tokio::spawn(async move { ask(&mut client, request(&["user=ann"])).await })
        })
        .collect();
    let mut passed = 0;
    for call in calls {
        passed += usize::from(call.await.unwrap().overall_code() == Fine);
    }
    assert_eq!(passed, 3);
}

#[test]
fn concurrency_limits_are_warned_of_when_rules_are_loaded() {
    let daemon = Daemon::new(RULES);
    let warnings = grpc::warnings(daemon.engine.limiter().rules().set());
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].starts_with("rule `open` of domain `own` has a concurrency limit"));
}

/// Every field with Envoy's number, written out by hand.
#[test]
fn messages_have_the_bytes_of_envoy() {
    let mut sent = request(&["k=v"]);
    sent.domain = "d".to_owned();
    sent.hits_addend = 5;
    sent.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit: 9, unit: 7 });
    sent.descriptors[0].hits_addend = Some(0);
    sent.descriptors[0].is_negative_hits = true;
    let bytes: &[u8] = &[
        0x0a, 1, b'd', // domain = 1
        0x12, 18, // descriptors = 2
        0x0a, 6, 0x0a, 1, b'k', 0x12, 1, b'v', // entries = 1 { key = 1, value = 2 }
        0x12, 4, 0x08, 9, 0x10, 7, // limit = 2 { requests_per_unit = 1, unit = 2 }
        0x1a, 0, // hits_addend = 3, there and 0
        0x20, 1, // is_negative_hits = 4
        0x18, 5, // hits_addend = 3
    ];
    assert_eq!(sent.encode_to_vec(), bytes);
    assert_eq!(RateLimitRequest::decode(bytes).unwrap(), sent);

    let status = DescriptorStatus {
        code: OverLimit.into(),
        current_limit: limit(3, Unit::Year, "n"),
        limit_remaining: 4,
        duration_until_reset: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        quota: None,
    };
    let answer = RateLimitResponse {
        overall_code: OverLimit.into(),
        statuses: vec![status],
        raw_body: Bytes::from_static(b"b"),
        ..Default::default()
    };
    let bytes: &[u8] = &[
        0x08, 2, // overall_code = 1
        0x12, 17, // statuses = 2
        0x08, 2, // code = 1
        0x12, 7, 0x08, 3, 0x10, 6, 0x1a, 1, b'n', // current_limit = 2
        0x18, 4, // limit_remaining = 3
        0x22, 2, 0x08, 60, // duration_until_reset = 4
        0x2a, 1, b'b', // raw_body = 5
    ];
    assert_eq!(answer.encode_to_vec(), bytes);
}
