//! Bans, the allow-list and the switches over the protocols that are no HTTP: Envoy's service, the native
//! service and the protocol of Redis.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Daemon, at_once};
use tidegate::{Attribute, Call, Span, Timestamp};
use tidegate_server::controls::{Entry, Which};
use tidegate_server::grpc::{self, EnvoySettings};
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tidegate_server::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry as WireEntry;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_response::Code::{
    Ok as Fine, OverLimit,
};
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_response::DescriptorStatus;
use tidegate_server::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tidegate_server::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tidegate_server::proto::tidegate::v1::limiter_client::LimiterClient;
use tidegate_server::proto::tidegate::v1::{Attribute as WireAttribute, CheckRequest};
use tidegate_server::resp::RespSettings;
use tidegate_server::resp::conversation::{Conversation, Desk};
use tidegate_server::{Does, Protocol};
use tonic::Code;
use tonic::transport::Channel;
use tonic_types::StatusExt as _;

const RULES: &str = "
domain: web
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: minute, requests_per_unit: 1 } }
  - { key: remote_address, rate_limit: { unit: minute, requests_per_unit: 9 } }
---
domain: api
rules:
  - { name: all, per: [user], limit: 1/minute }
---
domain: own
rules:
  - { name: shaped, match: { kind: shaped }, limit: { rate: 4/s, algorithm: leaky-bucket, burst: 9 } }
";

fn now(daemon: &Daemon) -> Timestamp {
    daemon.engine.limiter().now()
}

fn entry(daemon: &Daemon, target: &str) -> Entry {
    Entry::new(target.parse().unwrap(), now(daemon))
}

/// Bans for a minute.
fn ban(daemon: &Daemon, target: &str) {
    let until = now(daemon).plus(Span::MINUTE);
    let entry = entry(daemon, target).until(Some(until));
    let _ = daemon.engine.controls().add(Which::Bans, entry, now(daemon)).unwrap();
}

fn allow(daemon: &Daemon, target: &str) {
    let entry = entry(daemon, target);
    let _ = daemon.engine.controls().add(Which::Allowed, entry, now(daemon)).unwrap();
}

fn bypass(daemon: &Daemon, on: bool) {
    let _ = daemon.engine.controls().set_bypass(on, now(daemon));
}

fn shadow(daemon: &Daemon, on: bool) {
    let _ = daemon.engine.controls().set_shadow(on, now(daemon));
}

struct Envoy(RateLimitServiceClient<Channel>);

impl Envoy {
    async fn new(daemon: &Daemon) -> Self {
        let address = daemon.listen(grpc::serve).await;
        Self(RateLimitServiceClient::connect(format!("http://{address}")).await.unwrap())
    }

    /// Asks about descriptors of one entry each: `key=value`.
    async fn ask(&mut self, domain: &str, texts: &[&str]) -> RateLimitResponse {
        let descriptors = texts.iter().map(|text| {
            let (key, value) = text.split_once('=').unwrap();
            let entry = WireEntry { key: key.to_owned(), value: value.to_owned() };
            RateLimitDescriptor { entries: vec![entry], ..Default::default() }
        });
        let request = RateLimitRequest {
            domain: domain.to_owned(),
            descriptors: descriptors.collect(),
            hits_addend: 0,
        };
        self.0.should_rate_limit(request).await.unwrap().into_inner()
    }
}

#[tokio::test]
async fn a_ban_denies_every_descriptor_of_envoys_call_and_takes_nothing() {
    let daemon = Daemon::new(RULES);
    let mut envoy = Envoy::new(&daemon).await;
    ban(&daemon, "user=ann");
    let banned = envoy.ask("web", &["remote_address=192.0.2.7", "user=ann"]).await;
    assert_eq!(banned.overall_code(), OverLimit);
    let status = DescriptorStatus {
        code: OverLimit.into(),
        duration_until_reset: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
        ..Default::default()
    };
    assert_eq!(banned.statuses, [status.clone(), status]);
    assert_eq!(envoy.ask("web", &["user=bob"]).await.overall_code(), Fine);
    // It ends by itself, and those who were banned have all that they had.
    daemon.clock.advance(Duration::from_mins(1));
    let after = envoy.ask("web", &["remote_address=192.0.2.7", "user=ann"]).await;
    assert_eq!(after.overall_code(), Fine);
    assert_eq!(after.statuses[0].limit_remaining, 8);
}

#[tokio::test]
async fn a_banned_range_is_found_in_any_descriptor_of_envoys_call() {
    let daemon = Daemon::new(RULES);
    let mut envoy = Envoy::new(&daemon).await;
    ban(&daemon, "192.0.2.0/24");
    for texts in [["user=ann", "remote_address=192.0.2.7"], ["remote_address=192.0.2.7", "a=b"]] {
        assert_eq!(envoy.ask("web", &texts).await.overall_code(), OverLimit);
    }
    let outside = envoy.ask("web", &["user=ann", "remote_address=192.0.3.7"]).await;
    assert_eq!(outside.overall_code(), Fine);
    // An exception from the range wins over it.
    allow(&daemon, "192.0.2.7");
    for _ in 0..3 {
        let excepted = envoy.ask("web", &["user=bob", "remote_address=192.0.2.7"]).await;
        assert_eq!(excepted.overall_code(), Fine);
        assert_eq!(
            excepted.statuses,
            vec![DescriptorStatus { code: Fine.into(), ..Default::default() }; 2]
        );
    }
}

#[tokio::test]
async fn the_switches_let_envoys_calls_pass() {
    let daemon = Daemon::new(RULES);
    let mut envoy = Envoy::new(&daemon).await;
    bypass(&daemon, true);
    for _ in 0..3 {
        assert_eq!(envoy.ask("web", &["user=ann"]).await.overall_code(), Fine);
    }
    bypass(&daemon, false);
    assert_eq!(envoy.ask("web", &["user=ann"]).await.overall_code(), Fine, "nothing was taken");
    assert_eq!(envoy.ask("web", &["user=ann"]).await.overall_code(), OverLimit);
    shadow(&daemon, true);
    let lifted = envoy.ask("web", &["user=ann"]).await;
    // As in envoyproxy/ratelimit, the call passes, and the status says what would have been.
    assert_eq!((lifted.overall_code(), lifted.statuses[0].code()), (Fine, OverLimit));
    shadow(&daemon, false);
    assert_eq!(envoy.ask("web", &["user=ann"]).await.overall_code(), OverLimit);
}

#[tokio::test]
async fn in_shadow_nobody_is_held_back_or_turned_away_by_a_leaky_bucket() {
    let Daemon { engine, clock, drain } = Daemon::new(RULES);
    let mut settings = EnvoySettings::default();
    settings.delay_max = Duration::from_millis(300);
    let engine = Arc::new(Arc::into_inner(engine).unwrap().with_envoy(settings));
    let daemon = Daemon { engine, clock, drain };
    let mut envoy = Envoy::new(&daemon).await;
    shadow(&daemon, true);
    // They would be held back for 0, 250, 500, 750 ms, of which the last two are too long.
    for _ in 0..4 {
        let passed = envoy.ask("own", &["kind=shaped"]).await;
        assert_eq!((passed.overall_code(), passed.statuses[0].code()), (Fine, Fine));
    }
    let attributes = [Attribute::from(("kind", "shaped"))];
    let call = Call::new("own", &attributes);
    let answer = at_once(daemon.engine.check(&call, Does::Take, Protocol::Http)).unwrap();
    assert_eq!((answer.is_allowed(), answer.delay()), (true, Duration::ZERO));
    shadow(&daemon, false);
    assert_eq!(envoy.ask("own", &["kind=shaped"]).await.overall_code(), OverLimit);
}

fn native(user: &str) -> CheckRequest {
    let user = WireAttribute {
        name: "user".to_owned(),
        value: user.to_owned(),
        ..WireAttribute::default()
    };
    CheckRequest { domain: "api".to_owned(), attributes: vec![user], ..CheckRequest::default() }
}

#[tokio::test]
async fn the_native_service_meets_the_controls() {
    let daemon = Daemon::new(RULES);
    let address = daemon.listen(grpc::serve).await;
    let mut client = LimiterClient::connect(format!("http://{address}")).await.unwrap();
    ban(&daemon, "user=zoe");
    let banned = client.check(native("zoe")).await.unwrap().into_inner();
    assert!(!banned.allowed);
    assert_eq!((banned.reason.as_deref(), banned.retry_after_ms), (Some("banned"), Some(60_000)));
    assert_eq!((banned.rule, banned.limits.len()), (None, 0));
    let as_error = CheckRequest { fail_as_error: true, ..native("zoe") };
    let error = client.check(as_error).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    let details = error.get_error_details();
    let wait = details.retry_info().and_then(|info| info.retry_delay);
    assert_eq!(wait, Some(Duration::from_mins(1)));
    assert_eq!(details.quota_failure().unwrap().violations[0].subject, "ban");
    assert!(!format!("{error:?}").contains("zoe"), "no error has a value in it");
    allow(&daemon, "user=zoe");
    for _ in 0..3 {
        assert!(client.check(native("zoe")).await.unwrap().into_inner().allowed);
    }
    bypass(&daemon, true);
    for _ in 0..3 {
        assert!(client.check(native("bob")).await.unwrap().into_inner().allowed);
    }
    bypass(&daemon, false);
    shadow(&daemon, true);
    let [first, second] = [(); 2].map(|()| client.clone());
    for (mut client, is_lifted) in [(first, false), (second, true)] {
        let answer = client.check(native("bob")).await.unwrap().into_inner();
        assert_eq!((answer.allowed, answer.shadow_denied), (true, is_lifted));
        assert_eq!((answer.reason, answer.retry_after_ms), (None, None));
    }
}

/// What a connection of the protocol of Redis answers to lines.
fn says(daemon: &Daemon, lines: &str) -> String {
    let settings = Arc::new(RespSettings::new());
    let mut conversation = Conversation::new(Arc::clone(&daemon.engine), settings, None);
    let mut desk = Desk::default();
    conversation.hear(&mut lines.replace('\n', "\r\n").into_bytes(), &mut desk);
    String::from_utf8(desk.output).unwrap()
}

fn five(numbers: [i64; 5]) -> String {
    let numbers = numbers.map(|number| format!(":{number}\r\n")).concat();
    format!("*5\r\n{numbers}")
}

#[test]
fn throttled_keys_meet_the_controls_in_the_order_of_their_commands() {
    let daemon = Daemon::new(RULES);
    ban(&daemon, "key=ann");
    let both = "CL.THROTTLE bob 1 1 60\nCL.THROTTLE ann 1 1 60\nCL.THROTTLE bob 1 1 60\n";
    let [first, second] = [five([0, 2, 1, -1, 60]), five([0, 2, 0, -1, 120])];
    assert_eq!(says(&daemon, both), [first, five([1, 2, 0, 60, 60]), second].concat());
    // What is no good is an error for those who are banned too, and a ban without an end has no time.
    assert!(says(&daemon, "CL.THROTTLE ann 1 0 60\n").starts_with("-Cell error: Zero rates"));
    let forever = entry(&daemon, "key=eve");
    let _ = daemon.engine.controls().add(Which::Bans, forever, now(&daemon)).unwrap();
    assert_eq!(says(&daemon, "CL.THROTTLE eve 1 1 60\n"), five([1, 2, 0, -1, -1]));
    allow(&daemon, "key=ann");
    let thrice = "CL.THROTTLE ann 1 1 60\n".repeat(3);
    assert_eq!(says(&daemon, &thrice), five([0, 2, 2, -1, 0]).repeat(3));
    bypass(&daemon, true);
    assert_eq!(says(&daemon, "CL.THROTTLE eve 1 1 60\n"), five([0, 2, 2, -1, 0]));
    bypass(&daemon, false);
    shadow(&daemon, true);
    assert_eq!(says(&daemon, "CL.THROTTLE bob 1 1 60\n"), five([0, 2, 0, -1, 120]));
    shadow(&daemon, false);
    assert_eq!(says(&daemon, "CL.THROTTLE bob 1 1 60\n"), five([1, 2, 0, 60, 120]));
}

#[test]
fn rules_over_the_protocol_of_redis_meet_the_controls() {
    let daemon = Daemon::new(RULES);
    let check = |user: &str| says(&daemon, &format!("HELLO 3\nTG.CHECK api 1 user {user}\n"));
    let allowed = "$7\r\nallowed\r\n#t\r\n";
    ban(&daemon, "user=ann");
    let banned = check("ann");
    assert!(banned.contains("$7\r\nallowed\r\n#f\r\n"), "{banned}");
    assert!(banned.contains("$14\r\nretry_after_ms\r\n:60000\r\n"), "{banned}");
    assert!(banned.contains("$6\r\nreason\r\n$6\r\nbanned\r\n"), "{banned}");
    allow(&daemon, "user=ann");
    assert!(check("ann").contains(allowed) && check("ann").contains(allowed));
    bypass(&daemon, true);
    assert!(check("bob").contains(allowed) && check("bob").contains(allowed));
    bypass(&daemon, false);
    shadow(&daemon, true);
    assert!(check("bob").contains("$13\r\nshadow_denied\r\n#f\r\n"));
    let lifted = check("bob");
    assert!(lifted.contains(allowed) && lifted.contains("$13\r\nshadow_denied\r\n#t\r\n"));
}
