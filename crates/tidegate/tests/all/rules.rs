//! What rules can say, each as a claim about the limiter by rules.

use std::time::Duration;

use crate::ruled::{Limiter, attributes, check, left, limiter, passes, rules};
use proptest::prelude::*;
use tidegate::rules::Reason;
use tidegate::{Attribute, Call, RuleLimiter};
use tidegate_rules::rule::Pressure;

const LOGIN: &str = "
domain: api
rules:
  - name: login
    match: { method: POST, path: /login }
    per: [ip]
    limit: 3/minute
";

#[test]
fn each_value_of_per_has_its_own_counter() {
    let (limiter, clock) = limiter(LOGIN);
    let call = |ip| [("method", "POST"), ("path", "/login"), ("ip", ip)];
    assert_eq!(passes(&limiter, &call("192.0.2.7"), 5), 3);
    assert_eq!(passes(&limiter, &call("192.0.2.8"), 5), 3);
    let denied = check(&limiter, &call("192.0.2.7"));
    assert_eq!(denied.reason(), Some(Reason::OverLimit));
    assert_eq!(denied.rule().unwrap().name, "login");
    assert_eq!(denied.retry_after(), Some(Duration::from_secs(20)));
    clock.advance(Duration::from_secs(20));
    assert_eq!(passes(&limiter, &call("192.0.2.7"), 5), 1);
}

#[test]
fn a_request_that_no_rule_matches_passes_and_says_so() {
    let (limiter, _) = limiter(LOGIN);
    let other = check(&limiter, &[("method", "GET"), ("path", "/login"), ("ip", "192.0.2.7")]);
    assert!(other.is_allowed() && other.is_domain_known());
    assert_eq!((other.rule(), other.limit(), other.matched().count()), (None, None, 0));
    let unknown = limiter.check(&Call::new("elsewhere", &[])).unwrap();
    assert!(unknown.is_allowed() && !unknown.is_domain_known());
}

#[test]
fn nothing_is_left_of_a_denial_in_the_next_decision_of_a_checker() {
    let (limiter, _) = limiter(LOGIN);
    let [login, other] = ["POST", "GET"]
        .map(|method| attributes(&[("method", method), ("path", "/login"), ("ip", "192.0.2.7")]));
    assert_eq!(
        passes(&limiter, &[("method", "POST"), ("path", "/login"), ("ip", "192.0.2.7")], 5),
        3
    );
    let mut checker = limiter.checker();
    for _ in 0..2 {
        assert_eq!(
            checker.check(&Call::new("api", &login)).unwrap().reason(),
            Some(Reason::OverLimit)
        );
        let passed = checker.check(&Call::new("api", &other)).unwrap();
        assert!(passed.is_allowed() && passed.is_domain_known() && !passed.took());
        assert_eq!((passed.reason(), passed.rule(), passed.limit()), (None, None, None));
        assert_eq!((passed.limits().count(), passed.matched().count()), (0, 0));
        assert!(!checker.check(&Call::new("elsewhere", &[])).unwrap().is_domain_known());
    }
}

#[test]
fn all_rules_that_match_form_one_decision_all_or_nothing() {
    let (limiter, _) = limiter(
        "
domain: api
rules:
  - { name: each, per: [user], limit: 2/minute }
  - { name: all, match: { path: /a }, limit: 3/minute }
",
    );
    let call = |user| [("user", user), ("path", "/a")];
    assert_eq!(passes(&limiter, &call("ann"), 4), 2);
    assert_eq!(passes(&limiter, &call("bob"), 4), 1, "ann's refused calls took nothing of `all`");
    let denied = check(&limiter, &call("bob"));
    assert_eq!(denied.rule().unwrap().name, "all");
    assert_eq!(denied.limits().count(), 2);
    assert_eq!(left(&limiter, &[("user", "bob")]), 1, "and bob's took nothing of `each`");
}

#[test]
fn a_tier_has_its_own_limits_or_none() {
    let (limiter, _) = limiter(
        "
domain: api
rules:
  - name: orders
    per: [user]
    limit: 2/minute
    tiers: { by: plan, limits: { pro: 5/minute, enterprise: unlimited } }
",
    );
    assert_eq!(passes(&limiter, &[("user", "a")], 9), 2);
    assert_eq!(passes(&limiter, &[("user", "b"), ("plan", "pro")], 9), 5);
    assert_eq!(passes(&limiter, &[("user", "c"), ("plan", "enterprise")], 9), 9);
    assert_eq!(passes(&limiter, &[("user", "d"), ("plan", "other")], 9), 2);
    let unlimited = check(&limiter, &[("user", "c"), ("plan", "enterprise")]);
    assert_eq!((unlimited.rule().unwrap().name.as_str(), unlimited.limit()), ("orders", None));
    assert_eq!(
        passes(&limiter, &[("user", "a"), ("plan", "pro")], 9),
        3,
        "what was spent stays spent"
    );
}

#[test]
fn going_from_one_tier_or_override_to_another_hands_out_no_fresh_budget() {
    let (limiter, clock) = limiter(
        "
domain: api
rules:
  - name: r
    per: [user]
    limit: 10/hour
    tiers: { by: plan, limits: { small: 5/hour burst 3, large: 30/hour burst 12 } }
    overrides: { user=42: { limit: 5/hour burst 4, expires: 1970-01-12T13:47:00Z } }
",
    );
    assert_eq!(passes(&limiter, &[("user", "a")], 20), 10);
    assert_eq!(passes(&limiter, &[("user", "a"), ("plan", "small")], 20), 0);
    assert_eq!(passes(&limiter, &[("user", "a"), ("plan", "large")], 20), 2);
    assert_eq!(passes(&limiter, &[("user", "a")], 20), 0);
    assert_eq!(passes(&limiter, &[("user", "42")], 20), 4);
    clock.advance(Duration::from_secs(30));
    assert_eq!(passes(&limiter, &[("user", "42")], 20), 6, "the override has expired");
}

#[test]
fn a_soft_rule_marks_what_is_over_the_rate_though_never_over_the_burst() {
    let (limiter, clock) = limiter(
        "
domain: api
rules:
  - { name: soft, match: { path: /s }, limit: 10/minute, soft: 10% }
  - { name: hard, match: { path: /h }, limit: 10/minute }
",
    );
    let (mut marked, mut denied) = (0, 0);
    for _ in 0..640 {
        let soft = check(&limiter, &[("path", "/s")]);
        assert!(soft.is_allowed());
        marked += u32::from(soft.is_soft());
        denied += u32::from(!check(&limiter, &[("path", "/h")]).is_allowed());
        clock.advance(Duration::from_millis(5_600));
    }
    assert!(denied > 0);
    assert_eq!(marked, denied, "what the limit alone denies is marked");
}

#[test]
fn a_rule_in_shadow_with_many_limits_alters_no_answer() {
    let limits: Vec<String> = (1..=16).map(|hours| format!("9 per {hours}h")).collect();
    let (limiter, _) = limiter(&format!(
        "{{ domain: api, rules: [ {{ name: live, limit: 3/hour }}, \
         {{ name: trial, mode: shadow, limits: [ {} ] }} ] }}",
        limits.join(", ")
    ));
    assert_eq!(passes(&limiter, &[], 9), 3);
}

#[test]
fn a_cost_beyond_all_numbers_never_fits() {
    let (limiter, _) = limiter(
        "{ domain: api, rules: [ { name: r, limit: 9/hour, cost: { attribute: n, default: 1 } } ] }",
    );
    let huge = check(&limiter, &[("n", "18446744073709551616")]);
    assert_eq!(huge.reason(), Some(Reason::NeverFits));
}

#[test]
fn a_missing_attribute_skips_shares_or_denies() {
    let text = |missing: &str| {
        format!(
            "{{ domain: api, rules: [ {{ name: r, per: [user], limit: 2/minute, missing: {missing} }} ] }}"
        )
    };
    let (skip, _) = limiter(&text("skip"));
    let skipped = check(&skip, &[]);
    assert!(skipped.is_allowed());
    assert_eq!((skipped.skipped(), skipped.limits().count()), (1, 0));

    let (shared, _) = limiter(&text("shared"));
    assert_eq!(passes(&shared, &[("other", "x")], 3), 2);
    assert_eq!(passes(&shared, &[("user", "")], 3), 2, "an empty value is not a missing one");

    let (deny, _) = limiter(&text("deny"));
    let denied = check(&deny, &[]);
    assert!(!denied.is_allowed());
    assert_eq!((denied.reason(), denied.retry_after()), (Some(Reason::MissingAttribute), None));
    assert_eq!(denied.rule().unwrap().name, "r");
}

#[test]
fn a_rule_that_denies_takes_nothing_from_the_others() {
    let (limiter, _) = limiter(
        "
domain: api
rules:
  - { name: all, match: { path: /a }, limit: 3/minute }
  - { name: strict, match: { path: /a }, per: [user], limit: 5/minute, missing: deny }
",
    );
    assert_eq!(passes(&limiter, &[("path", "/a")], 5), 0);
    assert_eq!(passes(&limiter, &[("path", "/a"), ("user", "ann")], 5), 3);
}

#[test]
fn an_override_holds_for_its_key_until_it_expires() {
    let (limiter, clock) = limiter(
        "
domain: api
rules:
  - name: r
    per: [user]
    limit: 1/minute
    overrides:
      user=42: 5/minute
      user=43: { limit: 4/minute, expires: 1970-01-12T13:47:00Z }
      user=44: unlimited
",
    );
    // The clock shows 1970-01-12T13:46:40Z.
    assert_eq!(passes(&limiter, &[("user", "41")], 9), 1);
    assert_eq!(passes(&limiter, &[("user", "42")], 9), 5);
    assert_eq!(passes(&limiter, &[("user", "43")], 9), 4);
    assert_eq!(passes(&limiter, &[("user", "44")], 9), 9);
    clock.advance(Duration::from_mins(10));
    assert_eq!(passes(&limiter, &[("user", "43")], 9), 1);
    assert_eq!(passes(&limiter, &[("user", "42")], 9), 5);
}

#[test]
fn a_cost_comes_from_the_call_the_rule_or_an_attribute() {
    let (limiter, _) = limiter(
        "
domain: api
rules:
  - { name: a, match: { path: /a }, limit: 100/minute, cost: 7 }
  - { name: b, match: { path: /b }, limit: 100/minute, cost: { attribute: tokens, default: 3 } }
",
    );
    assert_eq!(check(&limiter, &[("path", "/a")]).remaining(), Some(93));
    let twice = limiter.check(&Call::new("api", &attributes(&[("path", "/a")])).with_cost(2));
    assert_eq!(twice.unwrap().remaining(), Some(79));
    assert_eq!(check(&limiter, &[("path", "/b"), ("tokens", "50")]).remaining(), Some(50));
    assert_eq!(check(&limiter, &[("path", "/b")]).remaining(), Some(47));
    assert_eq!(check(&limiter, &[("path", "/b"), ("tokens", "many")]).remaining(), Some(44));
    let large = check(&limiter, &[("path", "/b"), ("tokens", "101")]);
    assert_eq!((large.reason(), large.retry_after()), (Some(Reason::NeverFits), None));
}

#[test]
fn a_soft_rule_lets_a_little_more_through_and_marks_it() {
    let (limiter, _) = limiter(
        "{ domain: api, rules: [ { name: r, per: [user], limit: 10/minute, soft: 20% } ] }",
    );
    let marks: Vec<_> = (0..13)
        .map(|_| check(&limiter, &[("user", "ann")]))
        .map(|decision| (decision.is_allowed(), decision.is_soft()))
        .collect();
    assert_eq!(marks[..10], [(true, false); 10]);
    assert_eq!(marks[10..], [(true, true), (true, true), (false, false)]);
}

#[test]
fn an_elastic_rule_gives_more_while_there_is_little_pressure() {
    let (limiter, clock) = limiter(
        "
domain: api
rules:
  - name: r
    per: [user]
    limit: 10/minute
    elastic: { up_to: 150%, while_pressure_below: 0.7 }
",
    );
    assert_eq!(passes(&limiter, &[("user", "a")], 20), 10, "nothing is known of the pressure");
    limiter.pressure().post(Pressure::from_millionths(699_999).unwrap(), limiter.now());
    assert_eq!(passes(&limiter, &[("user", "b")], 20), 15);
    limiter.pressure().post(Pressure::from_millionths(700_000).unwrap(), limiter.now());
    assert_eq!(passes(&limiter, &[("user", "c")], 20), 10);
    assert_eq!(passes(&limiter, &[("user", "b")], 20), 0);
    limiter.pressure().post(Pressure::NONE, limiter.now());
    clock.advance(Duration::from_secs(11));
    assert_eq!(
        passes(&limiter, &[("user", "d")], 20),
        10,
        "the service has been silent for too long"
    );
}

#[test]
fn a_class_keeps_a_share_that_others_cannot_take() {
    let (limiter, _) = limiter(
        "
domain: api
rules:
  - { name: r, limit: 10/minute, priority: { by: class, reserve: { critical: 20%, paid: 30% } } }
",
    );
    assert_eq!(passes(&limiter, &[("class", "free")], 20), 5);
    assert_eq!(passes(&limiter, &[], 20), 0);
    assert_eq!(passes(&limiter, &[("class", "paid")], 20), 3, "all but what critical keeps");
    assert_eq!(passes(&limiter, &[("class", "critical")], 20), 2);
}

#[test]
fn a_class_may_also_take_what_is_kept_for_nobody_else() {
    let (limiter, _) = limiter(
        "{ domain: api, rules: [ { name: r, limit: 10/minute, priority: { by: class, reserve: { critical: 20% } } } ] }",
    );
    assert_eq!(passes(&limiter, &[("class", "critical")], 20), 10);
    assert_eq!(passes(&limiter, &[("class", "free")], 20), 0);
}

#[test]
fn a_rule_in_shadow_decides_and_never_denies() {
    let (limiter, _) = limiter(
        "
domain: api
rules:
  - { name: live, per: [user], limit: 4/minute }
  - { name: trial, per: [user], limit: 2/minute, mode: shadow }
",
    );
    let decisions: Vec<_> = (0..6).map(|_| check(&limiter, &[("user", "ann")])).collect();
    let seen: Vec<_> =
        decisions.iter().map(|one| (one.is_allowed(), one.is_shadow_denied())).collect();
    assert_eq!(seen[..4], [(true, false), (true, false), (true, true), (true, true)]);
    assert_eq!(seen[4..], [(false, true), (false, true)]);
    assert_eq!(decisions[2].rule().unwrap().name, "live", "what is in shadow does not bind");
    assert_eq!(decisions[2].remaining(), Some(1));
}

#[test]
fn a_candidate_is_tried_out_beside_the_live_limit() {
    let (limiter, _) = limiter(
        "{ domain: api, rules: [ { name: r, per: [user], limit: 4/minute, candidate: 1/minute } ] }",
    );
    let seen: Vec<_> = (0..3)
        .map(|_| check(&limiter, &[("user", "ann")]))
        .map(|one| (one.is_allowed(), one.is_shadow_denied(), one.remaining()))
        .collect();
    assert_eq!(seen, [(true, false, Some(3)), (true, true, Some(2)), (true, true, Some(1))]);
}

#[test]
fn a_call_that_does_not_pass_is_not_charged_to_rules_in_shadow() {
    let (limiter, _) = limiter(
        "
domain: api
rules:
  - { name: live, per: [user], limit: 1/minute }
  - { name: trial, limit: 10/minute, mode: shadow }
",
    );
    passes(&limiter, &[("user", "ann")], 50);
    let seen = check(&limiter, &[("user", "bob")]);
    let trial = seen.limits().find(|limit| !limit.is_enforced()).unwrap();
    assert_eq!((trial.rule().name.as_str(), trial.remaining()), ("trial", 8));
}

#[test]
fn two_limits_of_one_algorithm_and_period_are_counted_apart() {
    let (limiter, _) = limiter(
        "{ domain: api, rules: [ { name: r, limits: [3/minute burst 6, 6/minute burst 2] } ] }",
    );
    assert_eq!(passes(&limiter, &[], 9), 2);
}

#[test]
fn the_short_form_and_envoys_are_counted_in_windows() {
    let (limiter, clock) = limiter(
        "
domain: api
key: email
rate_limit: { unit: day, requests: 2 }
---
domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit: { unit: second, requests_per_unit: 3 }
  - key: database
    rate_limit: { unit: second, requests_per_unit: 1 }
",
    );
    assert_eq!(passes(&limiter, &[("email", "a@example.com"), ("x", "y")], 5), 2);
    let mongo = |value| {
        let list = attributes(&[("database", value)]);
        let call = Call::new("mongo_cps", &list);
        (0..5).filter(|_| limiter.check(&call).unwrap().is_allowed()).count()
    };
    assert_eq!((mongo("users"), mongo("orders"), mongo("items")), (3, 1, 1));
    clock.advance(Duration::from_secs(1));
    assert_eq!((mongo("users"), mongo("orders")), (3, 1));
    let longer = attributes(&[("database", "users"), ("more", "x")]);
    let deeper = limiter.check(&Call::new("mongo_cps", &longer)).unwrap();
    assert_eq!(deeper.limits().count(), 0, "depth must match");
}

#[test]
fn a_descriptor_of_nothing_per_second_denies_everyone() {
    let (limiter, _) = limiter(
        "
domain: api
descriptors:
  - { key: user, value: bad, rate_limit: { unit: second, requests_per_unit: 0 } }
  - { key: user, value: shady, rate_limit: { unit: second, requests_per_unit: 0 }, shadow_mode: true }
  - { key: user, rate_limit: { unlimited: true } }
",
    );
    let banned = check(&limiter, &[("user", "bad")]);
    assert_eq!((banned.reason(), banned.retry_after()), (Some(Reason::Banned), None));
    let shady = check(&limiter, &[("user", "shady")]);
    assert!(shady.is_allowed() && shady.is_shadow_denied());
    assert!(check(&limiter, &[("user", "good")]).is_allowed());
    let look = attributes(&[("user", "bad")]);
    assert!(limiter.check(&Call::new("api", &look).with_cost(0)).unwrap().is_allowed());
}

#[test]
fn a_rule_in_shadow_denies_nobody_for_a_missing_attribute() {
    let (limiter, _) = limiter(
        "{ domain: api, rules: [ { name: r, per: [user], limit: 2/minute, missing: deny, mode: shadow } ] }",
    );
    let decision = check(&limiter, &[]);
    assert!(decision.is_allowed() && decision.is_shadow_denied());
}

#[test]
fn what_cannot_be_decided_is_an_error_and_takes_nothing() {
    let rules: Vec<String> = (0..17)
        .map(|index| format!("{{ name: r{index}, match: {{ a: x }}, limit: 1{index}/minute }}"))
        .collect();
    let (limiter, _) = limiter(&format!("{{ domain: api, rules: [ {} ] }}", rules.join(", ")));
    let list = attributes(&[("a", "x")]);
    let error = limiter.check(&Call::new("api", &list)).unwrap_err();
    assert!(error.to_string().contains("16"), "{error}");
    assert_eq!(
        limiter.explain(&Call::new("api", &list)).error.unwrap().to_string(),
        error.to_string()
    );

    let (limiter, _) = self::limiter(LOGIN);
    let names: Vec<String> = (0..40).map(|index| format!("n{index}")).collect();
    let list: Vec<Attribute<'_>> =
        names.iter().map(|name| Attribute { name, value: b"x" }).collect();
    let error = limiter.check(&Call::new("api", &list)).unwrap_err();
    assert!(error.to_string().contains("32"), "{error}");
}

#[test]
fn state_survives_in_a_file_with_rules() {
    let folder = std::env::temp_dir().join(format!("tidegate-rules-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("state");
    let (limiter, clock) = limiter(LOGIN);
    let call = [("method", "POST"), ("path", "/login"), ("ip", "192.0.2.7")];
    assert_eq!(passes(&limiter, &call, 2), 2);
    limiter.save(&path).unwrap();
    let (again, restored) =
        RuleLimiter::builder(rules(LOGIN)).clock(clock).build_from(&path).unwrap();
    assert!(matches!(restored, tidegate::Restored::Keys(1)), "{restored:?}");
    assert_eq!(passes(&again, &call, 5), 1);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn explaining_spends_nothing_and_says_why() {
    let (limiter, _) = limiter(LOGIN);
    let call = attributes(&[("method", "GET"), ("path", "/login"), ("ip", "192.0.2.7")]);
    let text = limiter.explain(&Call::new("api", &call)).to_string();
    assert_eq!(
        text,
        "domain api\n  rule login: does not match: method must be \"POST\", and the request has \
         \"GET\"\nnothing is counted\n"
    );
    let call = attributes(&[("method", "POST"), ("path", "/x/..//login"), ("ip", "192.0.2.7")]);
    for _ in 0..9 {
        let text = limiter.explain(&Call::new("api", &call)).to_string();
        assert_eq!(
            text,
            "domain api\n  rule login: applies\ncounted under\n  login: 3/minute for \
             ip=\"192.0.2.7\"\n"
        );
    }
    assert_eq!(
        passes(&limiter, &[("method", "POST"), ("path", "/login"), ("ip", "192.0.2.7")], 5),
        3
    );
}

#[test]
fn a_derived_secret_comes_back_with_the_state() {
    let folder = std::env::temp_dir().join(format!("tidegate-derived-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("state");
    let built = || RuleLimiter::builder(rules(LOGIN)).build_from(&file).unwrap().0;
    let first = built();
    first.save(&file).unwrap();
    let again = built();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(first.derived_secret("a"), again.derived_secret("a"));
    assert_ne!(first.derived_secret("a"), first.derived_secret("b"));
    let other = RuleLimiter::builder(rules(LOGIN)).build().unwrap();
    assert_ne!(first.derived_secret("a"), other.derived_secret("a"));
}

fn keys(limiter: &Limiter, list: &[(String, Vec<u8>)]) -> Vec<u128> {
    let list: Vec<Attribute<'_>> =
        list.iter().map(|(name, value)| Attribute { name, value }).collect();
    limiter.explain(&Call::new("api", &list)).charges.iter().map(|charge| charge.key).collect()
}

proptest! {
    /// Values over a small alphabet, separators and lengths included, so that near misses are common.
    #[test]
    fn two_lists_share_a_key_only_if_they_are_the_same_list(
        one in prop::collection::vec(prop::collection::vec(0_u8..3, 0..9), 2),
        two in prop::collection::vec(prop::collection::vec(0_u8..3, 0..9), 2),
        absent in 0_usize..3,
    ) {
        let (limiter, _) = limiter(
            "{ domain: api, rules: [ { name: r, per: [a, b], limit: 1/s, missing: shared } ] }",
        );
        let list = |values: &[Vec<u8>]| -> Vec<(String, Vec<u8>)> {
            let mut list: Vec<_> =
                ["a", "b"].iter().zip(values).map(|(&name, value)| (name.to_owned(), value.clone())).collect();
            if absent < list.len() {
                list.remove(absent);
            }
            list
        };
        let (one, two) = (list(&one), list(&two));
        prop_assert_eq!(keys(&limiter, &one) == keys(&limiter, &two), one == two);
        let full = [("a".to_owned(), vec![]), ("b".to_owned(), vec![])];
        prop_assert!(one.len() == 2 || keys(&limiter, &one) != keys(&limiter, &full));
    }
}
