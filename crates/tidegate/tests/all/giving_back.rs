//! What a call took and gives back: responses that do not count, leases, refunds, debits.

use std::time::Duration;

use crate::ruled::{attributes, check, left, limiter, passes};
use tidegate::Call;
use tidegate_rules::rule::Pressure;

#[test]
fn what_took_nothing_gives_nothing_back() {
    let (limiter, _) =
        limiter("{ domain: api, rules: [ { name: r, per: [user], limit: 5/hour } ] }");
    let pairs = [("user", "ann")];
    let list = attributes(&pairs);
    let call = Call::new("api", &list);
    assert_eq!(passes(&limiter, &pairs, 4), 4);
    for _ in 0..4 {
        limiter.refund(limiter.peek(&call).unwrap());
    }
    let taken = check(&limiter, &pairs);
    limiter.refund(limiter.refund_at(&call, taken.at()).unwrap());
    assert_eq!(left(&limiter, &pairs), 1);
    let mut checker = limiter.checker();
    assert!(checker.check(&call).unwrap().is_allowed());
    checker.refund();
    checker.refund();
    checker.complete(200);
    assert_eq!(left(&limiter, &pairs), 1);
}

#[test]
fn what_was_taken_while_stretched_is_not_given_back_in_larger_parts() {
    let (limiter, _) = limiter(
        "
domain: api
rules:
  - { name: r, per: [user], limit: 10/hour, elastic: { up_to: 150%, while_pressure_below: 0.5 } }
",
    );
    let pairs = [("user", "ann")];
    limiter.pressure().post(Pressure::NONE, limiter.now());
    assert_eq!(passes(&limiter, &pairs, 20), 15);
    limiter.pressure().post(Pressure::FULL, limiter.now());
    let list = attributes(&pairs);
    let _ = limiter.refund_at(&Call::new("api", &list).with_cost(10), limiter.now()).unwrap();
    limiter.pressure().post(Pressure::NONE, limiter.now());
    assert_eq!(passes(&limiter, &pairs, 20), 10);
}

const FAILURES: &str = "
domain: api
rules:
  - name: failed-logins
    per: [user]
    limit: { rate: 3/hour, algorithm: fixed-window }
    count: on-response
    statuses: [401, 5xx]
";

#[test]
fn only_responses_of_the_listed_statuses_count() {
    let (limiter, _) = limiter(FAILURES);
    let call = [("user", "ann")];
    for status in [200, 302, 404, 200, 200] {
        limiter.complete(check(&limiter, &call), status);
    }
    assert_eq!(left(&limiter, &call), 3);
    for status in [401, 503, 401] {
        limiter.complete(check(&limiter, &call), status);
    }
    assert!(!check(&limiter, &call).is_allowed());
}

#[test]
fn parallel_guesses_cannot_slip_through_before_the_first_response() {
    let (limiter, _) = limiter(FAILURES);
    let call = [("user", "ann")];
    let flying: Vec<_> = (0..10).map(|_| check(&limiter, &call)).collect();
    assert_eq!(flying.iter().filter(|decision| decision.is_allowed()).count(), 3);
    for decision in flying {
        limiter.complete(decision, 200);
    }
    assert_eq!(left(&limiter, &call), 3, "a refused guess gives nothing back");
}

#[test]
fn leases_are_given_back_with_the_response() {
    let (limiter, _) =
        limiter("{ domain: api, rules: [ { name: r, per: [user], limit: 2 at once } ] }");
    let call = [("user", "ann")];
    let (one, two) = (check(&limiter, &call), check(&limiter, &call));
    assert!(one.is_allowed() && two.is_allowed());
    assert!(!check(&limiter, &call).is_allowed());
    limiter.complete(one, 200);
    assert!(check(&limiter, &call).is_allowed());
    let lease = two.limits().next().unwrap().lease().unwrap();
    let _ = limiter.release(&Call::new("api", &attributes(&call)), lease).unwrap();
    assert!(check(&limiter, &call).is_allowed());
}

#[test]
fn refused_calls_are_charged_only_where_a_rule_says_so() {
    let text = |charge: bool| {
        format!(
            "{{ domain: api, rules: [ {{ name: r, per: [user], limit: 2/minute, charge_refused: {charge} }} ] }}"
        )
    };
    let wait = |charged: bool| {
        let (limiter, _) = limiter(&text(charged));
        passes(&limiter, &[("user", "ann")], 1000);
        check(&limiter, &[("user", "ann")]).retry_after().unwrap()
    };
    assert_eq!(wait(false), Duration::from_secs(30));
    assert!(wait(true) > Duration::from_mins(1));
    assert!(wait(true) <= Duration::from_mins(2), "and it does not grow without bound");
}

#[test]
fn a_refund_gives_everything_back_and_a_debit_takes_it_anyway() {
    let (limiter, _) =
        limiter("{ domain: api, rules: [ { name: r, per: [user], limits: [5/minute, 9/hour] } ] }");
    let pairs = [("user", "ann")];
    let list = attributes(&pairs);
    let call = Call::new("api", &list).with_cost(4);
    let decision = limiter.check(&call).unwrap();
    assert_eq!(decision.remaining(), Some(1));
    limiter.refund(decision);
    assert_eq!(left(&limiter, &pairs), 5);
    let taken = limiter.check(&call).unwrap();
    let _ = limiter.refund_at(&call, taken.at()).unwrap();
    assert_eq!(left(&limiter, &pairs), 5);
    assert!(limiter.debit(&call.with_cost(30)).unwrap().is_allowed());
    assert!(!check(&limiter, &pairs).is_allowed());
    limiter.reset(&call).unwrap();
    assert_eq!(left(&limiter, &pairs), 5);
}

#[test]
fn leases_of_several_limits_go_back_each_to_its_own() {
    let (limiter, _) = limiter(
        "
domain: api
rules:
  - { name: own, per: [user], limit: 5 at once }
  - { name: all, limit: 9 at once }
",
    );
    // Both at one instant: under `own` the two leases have the same number, under `all` they have not.
    let (ann, bob) = ([("user", "ann")], [("user", "bob")]);
    let (first, second) = (check(&limiter, &ann), check(&limiter, &bob));
    let of = |decision: &tidegate::RuleDecision| decision.held().collect::<Vec<_>>();
    let (first, second) = (of(&first), of(&second));
    assert_eq!((first.len(), second.len()), (2, 2));
    assert_eq!(first[0].lease, second[0].lease);

    let list = attributes(&bob);
    let after = limiter.release_held(&Call::new("api", &list), &second).unwrap();
    let remaining: Vec<u64> = after.limits().map(|limit| limit.remaining()).collect();
    assert_eq!(remaining, [5, 8], "bob holds nothing, and ann still holds a place of all");
    let again = limiter.release_held(&Call::new("api", &list), &second).unwrap();
    let remaining: Vec<u64> = again.limits().map(|limit| limit.remaining()).collect();
    assert_eq!(remaining, [5, 8], "nothing is given back a second time");
}
