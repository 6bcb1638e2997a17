//! The bodies of `POST /json`: any bytes are refused as no request, or answered with one status for each
//! descriptor that they name. The oracle is the tree that `serde_json` makes of the same bytes.

use std::pin::pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tidegate::{ManualClock, RuleLimiter, RuleSet};
use tidegate_identity::{Identity, IdentityConfig};
use tidegate_rules::{ParseOptions, Source};
use tidegate_server::controls::Controls;
use tidegate_server::grpc::{self, DESCRIPTORS_MAX, MESSAGE_BYTES_MAX};
use tidegate_server::{Engine, EngineClock};

/// Nothing in them holds a call back, so each is answered at once.
const RULES: &str = "
domain: web
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: minute, requests_per_unit: 2 } }
  - { key: free, rate_limit: { unlimited: true, replaces: [ { name: per-user } ] } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: month, requests_per_unit: 1 } }
  - { key: never, rate_limit: { unit: second, requests_per_unit: 0 } }
";

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    let checked = RuleSet::parse(&[Source::new("rules.yaml", RULES)], &ParseOptions::default());
    let rules = checked.unwrap_or_else(|report| panic!("{report}")).rules;
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_700_000_000));
    let limiter = RuleLimiter::builder(rules).clock(EngineClock::Manual(clock)).build();
    let limiter = limiter.unwrap_or_else(|error| panic!("{error}"));
    let identity = Identity::new(IdentityConfig::new(*b"any secret at al"));
    let identity = identity.unwrap_or_else(|error| panic!("{error}"));
    Engine::new(limiter, identity, Controls::default())
});

/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    let answer = pin!(grpc::json(&ENGINE, data));
    let Poll::Ready(answer) = answer.poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it is held back");
    };
    let overall = match answer.status() {
        StatusCode::OK => "OK",
        StatusCode::TOO_MANY_REQUESTS => "OVER_LIMIT",
        StatusCode::BAD_REQUEST => return,
        StatusCode::PAYLOAD_TOO_LARGE => return assert!(data.len() > MESSAGE_BYTES_MAX),
        other => panic!("{other}"),
    };
    let said: Value = serde_json::from_slice(answer.body()).expect("JSON");
    assert_eq!(said["overallCode"], overall);
    let asked: Value = serde_json::from_slice(data).expect("what was read is JSON");
    let asked = asked["descriptors"].as_array().map_or(0, Vec::len);
    assert!((1..=DESCRIPTORS_MAX).contains(&asked));
    let statuses = said["statuses"].as_array().expect("statuses");
    assert_eq!(statuses.len(), asked);
    let is_over = statuses.iter().any(|status| status["code"] == "OVER_LIMIT");
    assert!(is_over || overall == "OK", "nobody is over, and it is denied");
}
