//! The bytes of headers and bodies, for decisions by rules and for standings made by hand.

use std::time::Duration;

use http::HeaderMap;
use tidegate::rules::Reason;
use tidegate::{Attribute, Call, ManualClock, RuleDecision, RuleLimiter, RuleSet};
use tidegate_rules::{ParseOptions, Source};
use tidegate_tower::{HeaderSet, Policy, Standing, Unit, refusal};

/// Decides the last of `calls` equal calls.
fn decision(rules: &str, calls: usize, cost: u64) -> RuleDecision {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_700_000_000));
    let parsed = RuleSet::parse(&[Source::new("rules.yaml", rules)], &ParseOptions::default());
    let rules = parsed.unwrap_or_else(|report| panic!("{report}")).rules;
    let limiter = RuleLimiter::builder(rules).clock(clock).build().unwrap();
    let attributes: [Attribute<'_>; 1] = [("user", "ann").into()];
    let call = Call::new("api", &attributes).with_cost(cost);
    for _ in 1..calls {
        let _ = limiter.check(&call).unwrap();
    }
    limiter.check(&call).unwrap()
}

/// The headers in the order of their names, a line each.
fn lines(set: HeaderSet, standing: &Standing<'_>) -> Vec<String> {
    let mut headers = HeaderMap::new();
    set.write(standing, &mut headers);
    let mut lines: Vec<String> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

fn body(standing: &Standing<'_>) -> String {
    String::from_utf8(refusal(standing, HeaderSet::None).into_body().to_vec()).unwrap()
}

const LOGIN: &str = "{ domain: api, rules: [ { name: login, per: [user], limit: 2/minute } ] }";

#[test]
fn an_allowed_call_is_told_where_it_stands() {
    let decision = decision(LOGIN, 1, 1);
    let expected = [
        r#"ratelimit-policy: "login";q=2;w=60"#,
        r#"ratelimit: "login";r=1;t=30"#,
        "x-ratelimit-limit: 2",
        "x-ratelimit-remaining: 1",
        "x-ratelimit-reset: 30",
    ];
    assert_eq!(lines(HeaderSet::All, &Standing::of(&decision)), expected);
    assert_eq!(lines(HeaderSet::Ietf, &Standing::of(&decision)), expected[..2]);
    assert_eq!(lines(HeaderSet::XRateLimit, &Standing::of(&decision)), expected[2..]);
    assert!(lines(HeaderSet::None, &Standing::of(&decision)).is_empty());
}

#[test]
fn a_denied_call_is_told_when_to_come_back() {
    let decision = decision(LOGIN, 3, 1);
    let standing = Standing::of(&decision);
    let expected = [
        "cache-control: no-store",
        r#"ratelimit-policy: "login";q=2;w=60"#,
        r#"ratelimit: "login";r=0;t=30"#,
        "retry-after: 30",
        "x-ratelimit-limit: 2",
        "x-ratelimit-remaining: 0",
        "x-ratelimit-reset: 60",
        "x-ratelimit-retry-after: 30",
    ];
    assert_eq!(lines(HeaderSet::All, &standing), expected);
    assert_eq!(lines(HeaderSet::None, &standing), ["cache-control: no-store", "retry-after: 30"]);
    assert_eq!(
        body(&standing),
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"The quota of a policy is used up.","violated-policies":["login"],"error":"rate_limit_exceeded","message":"Too many requests. Try again after 30 seconds.","reason":"over-limit","retry_after_ms":30000}"#
    );
    let response = refusal(&standing, HeaderSet::All);
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
}

#[test]
fn a_wait_below_a_second_is_told_as_one_second_and_exactly_in_the_body() {
    let rules = "{ domain: api, rules: [ { name: fast, limit: 5/s } ] }";
    let decision = decision(rules, 6, 1);
    let standing = Standing::of(&decision);
    assert!(lines(HeaderSet::All, &standing).contains(&"retry-after: 1".to_owned()));
    assert!(body(&standing).contains("Try again after 1 second.\""));
    assert!(body(&standing).ends_with(r#""retry_after_ms":200}"#));
}

#[test]
fn a_window_below_a_second_is_left_out() {
    let rules = "{ domain: api, rules: [ { name: fast, limit: 5 per 500ms } ] }";
    let decision = decision(rules, 1, 1);
    assert_eq!(
        lines(HeaderSet::Ietf, &Standing::of(&decision))[0],
        r#"ratelimit-policy: "fast";q=5"#
    );
}

#[test]
fn quota_and_window_of_a_bucket_give_its_rate() {
    let rules = "{ domain: api, rules: [ { name: burst, limit: 10/minute burst 40 } ] }";
    let decision = decision(rules, 1, 1);
    let shown = lines(HeaderSet::Ietf, &Standing::of(&decision));
    assert_eq!(
        shown,
        [r#"ratelimit-policy: "burst";q=40;w=240"#, r#"ratelimit: "burst";r=39;t=6"#]
    );
}

#[test]
fn every_limit_is_shown_and_only_those_that_deny_say_when() {
    let rules = "{ domain: api, rules: [ { name: orders, limits: [ 1/minute, 500/day ] } ] }";
    let allowed = decision(rules, 1, 1);
    let shown = lines(HeaderSet::Ietf, &Standing::of(&allowed));
    assert_eq!(shown[0], r#"ratelimit-policy: "orders";q=1;w=60, "orders#2";q=500;w=86400"#);
    assert_eq!(shown[1], r#"ratelimit: "orders";r=0;t=60, "orders#2";r=499;t=173"#);
    let denied = decision(rules, 2, 1);
    let standing = Standing::of(&denied);
    let shown = lines(HeaderSet::Ietf, &standing);
    assert_eq!(shown[2], r#"ratelimit: "orders";r=0;t=60, "orders#2";r=499"#);
    assert_eq!(shown[3], "retry-after: 60");
    assert!(body(&standing).contains(r#""violated-policies":["orders"]"#));
}

#[test]
fn a_concurrency_limit_has_a_unit_and_no_window() {
    let rules = "{ domain: api, rules: [ { name: downloads, limit: 3 at once for 1 minute } ] }";
    let decision = decision(rules, 1, 1);
    let shown = lines(HeaderSet::Ietf, &Standing::of(&decision));
    assert_eq!(shown[0], r#"ratelimit-policy: "downloads";q=3;qu="concurrent-requests""#);
    assert_eq!(shown[1], r#"ratelimit: "downloads";r=2;t=60"#);
}

#[test]
fn rules_in_shadow_and_reserves_are_not_shown() {
    let rules = "
domain: api
rules:
  - { name: tried, limit: 1/hour, mode: shadow }
  - { name: kept, limit: 10/minute, priority: { by: user, reserve: { vip: 20% } } }
";
    let decision = decision(rules, 1, 1);
    assert!(decision.limits().any(|limit| limit.is_reserve()));
    let shown = lines(HeaderSet::Ietf, &Standing::of(&decision));
    assert_eq!(shown[0], r#"ratelimit-policy: "kept";q=10;w=60"#);
}

#[test]
fn what_never_fits_has_no_time_to_come_back() {
    let decision = decision(LOGIN, 1, 3);
    let standing = Standing::of(&decision);
    let shown = lines(HeaderSet::All, &standing);
    assert!(!shown.iter().any(|line| line.contains("retry-after")), "{shown:?}");
    assert!(shown.contains(&r#"ratelimit: "login";r=2"#.to_owned()), "{shown:?}");
    let body = body(&standing);
    assert!(body.contains(r#""message":"This request is too large. Trying again does not help.""#));
    assert!(body.ends_with(r#""reason":"never-fits","retry_after_ms":null}"#), "{body}");
}

#[test]
fn a_ban_is_told_with_its_end_or_without() {
    let forever = Standing::denied(Reason::Banned, None);
    assert_eq!(lines(HeaderSet::All, &forever), ["cache-control: no-store"]);
    assert!(body(&forever).contains(r#""message":"Your requests are blocked.""#));
    let hour = Standing::denied(Reason::Banned, Some(Duration::from_hours(1)));
    let expected =
        ["cache-control: no-store", "retry-after: 3600", "x-ratelimit-retry-after: 3600"];
    assert_eq!(lines(HeaderSet::All, &hour), expected);
    assert!(body(&hour).contains("Your requests are blocked. Try again after 3600 seconds.\""));
}

#[test]
fn a_missing_attribute_is_no_matter_of_waiting() {
    let rules = "{ domain: api, rules: [ { name: r, per: [key], missing: deny, limit: 1/s } ] }";
    let decision = decision(rules, 1, 1);
    let standing = Standing::of(&decision);
    assert_eq!(lines(HeaderSet::All, &standing), ["cache-control: no-store"]);
    assert!(body(&standing).contains(r#""reason":"missing-attribute","retry_after_ms":null"#));
}

#[test]
fn a_standing_can_be_made_by_hand() {
    let standing = Standing::denied(Reason::OverLimit, Some(Duration::from_millis(1500)))
        .with(
            Policy::new("a", 10, 3)
                .per(Duration::from_mins(1))
                .resets_after(Duration::from_secs(9)),
        )
        .with(
            Policy::new("b", 2, 0)
                .counting(Unit::ConcurrentRequests)
                .violated(Some(Duration::from_secs(4))),
        )
        .bound_by(2, 0, Duration::from_millis(2500));
    let expected = [
        "cache-control: no-store",
        r#"ratelimit-policy: "a";q=10;w=60, "b";q=2;qu="concurrent-requests""#,
        r#"ratelimit: "a";r=3, "b";r=0;t=4"#,
        // Never earlier than any `t`.
        "retry-after: 4",
        "x-ratelimit-limit: 2",
        "x-ratelimit-remaining: 0",
        "x-ratelimit-reset: 3",
        "x-ratelimit-retry-after: 4",
    ];
    assert_eq!(lines(HeaderSet::All, &standing), expected);
}

#[test]
fn what_is_let_through_says_nothing_of_a_refusal() {
    let decision = decision(LOGIN, 3, 1);
    let standing = Standing::let_through(&decision);
    assert!(standing.is_allowed());
    let shown = lines(HeaderSet::All, &standing);
    assert!(!shown.iter().any(|line| line.starts_with("retry-after")), "{shown:?}");
}

#[test]
fn names_with_quotes_are_escaped_and_other_characters_replaced() {
    let standing = Standing::denied(Reason::OverLimit, None)
        .with(Policy::new("a\"b\\c", 1, 0).violated(None))
        .with(Policy::new("größe\n", 1, 0).violated(None));
    let shown = lines(HeaderSet::Ietf, &standing);
    assert_eq!(shown[2], r#"ratelimit: "a\"b\\c";r=0, "gr??e?";r=0"#);
    let body: serde_json::Value = serde_json::from_str(&body(&standing)).unwrap();
    assert_eq!(body["violated-policies"][0], "a\"b\\c");
    assert_eq!(body["violated-policies"][1], "gr??e?");
}

#[test]
fn sets_are_read_by_the_words_of_the_settings() {
    for set in [HeaderSet::All, HeaderSet::Ietf, HeaderSet::XRateLimit, HeaderSet::None] {
        assert_eq!(set.to_string().parse(), Ok(set));
    }
    assert!("IETF".parse::<HeaderSet>().is_err());
}
