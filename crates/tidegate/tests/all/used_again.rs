//! Decisions that are used again, by a checker, by who began one or by who foresaw it: nothing is left in them of the
//! call before.

use std::time::Duration;

use crate::ruled::{attributes, limiter, rules};
use proptest::prelude::*;
use tidegate::{Attribute, Call, RuleDecision};

/// All that a decision says.
fn said(decision: &RuleDecision) -> String {
    let limits: Vec<_> = decision
        .limits()
        .map(|limit| {
            let (name, wait) = (limit.rule().name.as_str(), limit.retry_after());
            (name, limit.text(), limit.is_allowed(), limit.cost(), limit.remaining(), wait)
        })
        .collect();
    let matched: Vec<_> = decision.matched().map(|rule| rule.name.as_str()).collect();
    format!(
        "{:?}",
        (
            (decision.is_allowed(), decision.is_domain_known(), decision.took(), decision.delay()),
            (decision.is_soft(), decision.is_shadow_denied(), decision.reason(), decision.source()),
            (decision.limit(), decision.remaining(), decision.retry_after(), decision.at()),
            (decision.told_at(), decision.rule().map(|rule| &rule.name), matched, limits),
        )
    )
}

const OF_EVERY_KIND: &str = "
domain: api
rules:
  - { name: one, match: { kind: one }, per: [user], limit: 3/minute }
  - { name: two, match: { kind: two }, per: [user], limits: [ 3/minute, 5/hour ] }
  - { name: at-once, match: { kind: at-once }, per: [user], limit: 2 at once }
  - { name: shadow, match: { kind: shadow }, per: [user], limit: 1/minute, mode: shadow }
  - { name: soft, match: { kind: soft }, per: [user], limit: 2/minute, soft: 50% }
  - { name: needs, match: { kind: needs }, per: [token], missing: deny, limit: 3/minute }
";

proptest! {
    /// By a checker, by one that was begun, by one that was foreseen, and by single calls: whatever came before, and
    /// whatever it needed room for.
    #[test]
    fn a_decision_that_is_used_again_says_what_a_fresh_one_says(
        calls in proptest::collection::vec((0..8_usize, 0..5_u64, 0..40_u64), 1..60),
    ) {
        const KINDS: [&str; 8] =
            ["one", "two", "at-once", "shadow", "soft", "needs", "none", "elsewhere"];
        let [(fresh, a), (checked, b), (begun, c), (foreseen, d)] =
            [(); 4].map(|()| limiter(OF_EVERY_KIND));
        let mut checker = checked.checker();
        let mut decision = begun.begin();
        let mut known = foreseen.begin();
        for (kind, cost, secs) in calls {
            for clock in [&a, &b, &c, &d] {
                clock.advance(Duration::from_secs(secs));
            }
            let list = attributes(&[("kind", KINDS[kind]), ("user", "ann")]);
            let domain = if KINDS[kind] == "elsewhere" { "elsewhere" } else { "api" };
            let call = Call::new(domain, &list).with_cost(cost + 1);
            let expected = said(&fresh.check(&call).unwrap());
            prop_assert_eq!(said(checker.check(&call).unwrap()), expected.as_str());
            begun.check_begun(&mut decision, &call).unwrap();
            prop_assert_eq!(said(&decision), expected.as_str());
            let follows = foreseen.foresee(&known, &Call::new(domain, &list));
            let is_one_limit = matches!(KINDS[kind], "one" | "at-once" | "shadow");
            prop_assert_eq!(follows.is_some(), is_one_limit, "{}", KINDS[kind]);
            match follows {
                Some(follows) => {
                    prop_assert!(foreseen.check_foreseen(&mut known, &follows, cost + 1));
                }
                None => foreseen.check_begun(&mut known, &call).unwrap(),
            }
            prop_assert_eq!(said(&known), expected);
        }
    }
}

#[test]
fn a_call_that_could_not_be_decided_allows_nothing() {
    let (limiter, _) = limiter(OF_EVERY_KIND);
    let list = attributes(&[("kind", "one"), ("user", "ann")]);
    let mut decision = limiter.begin();
    limiter.check_begun(&mut decision, &Call::new("api", &list)).unwrap();
    assert!(decision.is_allowed() && decision.limit().is_some());
    let many = vec![Attribute::from(("a", "b")); 1_000];
    assert!(limiter.check_begun(&mut decision, &Call::new("api", &many)).is_err());
    assert!(!decision.is_allowed() && !decision.took());
    assert_eq!((decision.rule(), decision.limit()), (None, None));
}

#[test]
fn what_was_foreseen_is_true_of_the_rules_and_the_limiter_that_it_was_foreseen_by() {
    const RULES: &str = "{ domain: api, rules: [ { name: all, per: [user], limit: 3/minute } ] }";
    let (own, _) = limiter(RULES);
    let list = attributes(&[("user", "ann")]);
    let call = Call::new("api", &list);
    let mut decision = own.begin();
    let foreseen = own.foresee(&decision, &call).unwrap();
    assert!(own.check_foreseen(&mut decision, &foreseen, 1));
    assert_eq!(decision.remaining(), Some(2));

    let (other, _) = limiter(RULES);
    let mut of_other = other.begin();
    assert!(!other.check_foreseen(&mut of_other, &foreseen, 1));
    assert!(!of_other.is_allowed() && !of_other.took());

    own.reload(rules(&RULES.replace("per: [user]", "per: [user, plan]"))).unwrap();
    // Who began before goes by the rules of then, and whoever begins now does not.
    let mut later = own.begin();
    assert!(!own.check_foreseen(&mut later, &foreseen, 1));
    assert!(!later.is_allowed() && !later.took());
    assert_eq!(own.foresee(&later, &call), None, "no `plan`");
    own.reload(rules(RULES)).unwrap();
    assert_eq!(own.check(&call).unwrap().remaining(), Some(1), "what was not decided took nothing");
}
