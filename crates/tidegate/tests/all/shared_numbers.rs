//! Buckets whose numbers are changed while nodes share them, or that differ from tier to tier: what was spent
//! is the same share of all buckets that fill in the same time, and nobody refills anybody else's.

use std::time::Duration;

use crate::ruled::{attributes, rules};
use crate::served::{PATIENCE, Server, block_on, connect};
use tidegate::redis::{SharedConfig, TimeSource};
use tidegate::{Call, Consistency, ManualClock, Place, RuleDecision, RuleLimiter};

type Limiter = RuleLimiter<ManualClock, Place>;

const SECRET: [u8; 16] = *b"shared by a flee";
const ANN: [(&str, &str); 1] = [("user", "ann")];

/// A node of its own, at an instant that never passes, so that nothing comes back by itself.
fn node(server: &Server, text: &str, consistency: Consistency) -> Limiter {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_790_000_000));
    let config = SharedConfig::new([server.config().time(TimeSource::Request)]);
    let shared = connect(config.deadline(PATIENCE));
    let builder = RuleLimiter::builder(rules(text)).clock(clock).secret(SECRET);
    builder.consistency(consistency).build_shared(shared).unwrap()
}

fn strict(server: &Server, text: &str) -> Limiter {
    node(server, text, Consistency::Strict)
}

fn rule(limit: &str) -> String {
    format!("{{ domain: api, rules: [ {{ name: all, per: [user], limit: {limit} }} ] }}")
}

fn take(limiter: &Limiter, pairs: &[(&str, &str)], cost: u64) -> RuleDecision {
    let attributes = attributes(pairs);
    let decision = block_on(limiter.check(&Call::new("api", &attributes).with_cost(cost))).unwrap();
    assert!(!decision.is_degraded());
    decision
}

fn left(limiter: &Limiter, pairs: &[(&str, &str)]) -> Vec<u64> {
    let decision = block_on(limiter.peek(&Call::new("api", &attributes(pairs)))).unwrap();
    decision.limits().map(|limit| limit.remaining()).collect()
}

/// How many of so many calls pass, one of each after the other, with looks in between.
fn passed(calls: usize, asked: &[(&Limiter, &[(&str, &str)])]) -> usize {
    let passes = |index: usize| {
        let (limiter, pairs) = asked[index % asked.len()];
        left(limiter, pairs);
        take(limiter, pairs, 1).is_allowed()
    };
    (0..calls).filter(|index| passes(*index)).count()
}

#[test]
fn two_nodes_with_different_numbers_never_admit_more_than_the_larger_limit() {
    let pairs = [
        ("10/hour", "20/hour"),
        ("20/hour", "10/hour"),
        ("7/hour burst 14", "10/hour burst 20"),
        ("20/hour leaky-bucket", "6/hour leaky-bucket"),
    ];
    for (one, other) in pairs {
        let server = Server::start();
        let (first, second) = (strict(&server, &rule(one)), strict(&server, &rule(other)));
        let admitted = passed(100, &[(&first, &ANN), (&second, &ANN)]);
        assert!((6..=20).contains(&admitted), "{one} and {other}: {admitted}");
        assert_eq!((left(&first, &ANN), left(&second, &ANN)), (vec![0], vec![0]));
    }
}

#[test]
fn two_nodes_that_lease_with_different_numbers_never_admit_more_than_the_larger_limit() {
    let server = Server::start();
    let [first, second] =
        ["100/hour", "200/hour"].map(|limit| node(&server, &rule(limit), Consistency::Leased));
    let both = [&first, &second];
    let passes = |index: &usize| take(both[index % 2], &ANN, 1).is_allowed();
    let admitted = (0..600).filter(passes).count();
    assert!((50..=200).contains(&admitted), "{admitted}");
}

/// Their states do not mean the same, so each is kept by itself, and neither refills the other.
#[test]
fn buckets_that_fill_in_different_times_never_admit_more_than_both_limits() {
    let pairs = [
        ("10/hour", "10/hour burst 2", 12),
        ("10/hour burst 2", "30/hour", 32),
        ("20/hour stepped", "5/hour stepped", 25),
    ];
    for (one, other, both) in pairs {
        let server = Server::start();
        let (first, second) = (strict(&server, &rule(one)), strict(&server, &rule(other)));
        let admitted = passed(200, &[(&first, &ANN), (&second, &ANN)]);
        assert_eq!(admitted, both, "{one} and {other}");
    }
}

#[test]
fn a_node_that_restarts_with_a_changed_number_finds_what_was_spent() {
    let server = Server::start();
    let first = strict(&server, &rule("10/hour"));
    assert!(take(&first, &ANN, 5).is_allowed());
    drop(first);
    for (limit, expected) in [("20/hour", 10), ("4/hour", 2), ("10/hour", 5)] {
        let again = strict(&server, &rule(limit));
        assert_eq!(left(&again, &ANN), [expected], "{limit}");
    }
}

#[test]
fn nodes_that_are_told_of_new_numbers_one_after_the_other_find_the_same_share() {
    let server = Server::start();
    let nodes = [(); 2].map(|()| strict(&server, &rule("10/hour")));
    assert!(take(&nodes[0], &ANN, 2).is_allowed() && take(&nodes[1], &ANN, 4).is_allowed());
    nodes[0].reload(rules(&rule("20/hour"))).unwrap();
    assert_eq!((left(&nodes[0], &ANN), left(&nodes[1], &ANN)), (vec![8], vec![4]));
    assert!(take(&nodes[0], &ANN, 4).is_allowed());
    assert_eq!((left(&nodes[0], &ANN), left(&nodes[1], &ANN)), (vec![4], vec![2]));
    nodes[1].reload(rules(&rule("20/hour"))).unwrap();
    assert_eq!((left(&nodes[0], &ANN), left(&nodes[1], &ANN)), (vec![4], vec![4]));
}

#[test]
fn what_was_taken_by_other_numbers_is_given_back_by_them() {
    let server = Server::start();
    let node = strict(&server, &rule("20/hour"));
    let back = take(&node, &ANN, 5);
    assert!(take(&node, &ANN, 10).is_allowed());
    node.reload(rules(&rule("10/hour"))).unwrap();
    assert_eq!(left(&node, &ANN), [2], "three quarters are spent");
    block_on(node.refund(back));
    assert_eq!(left(&node, &ANN), [5], "a half is");
    let back = take(&node, &ANN, 4);
    node.reload(rules(&rule("10/hour burst 5"))).unwrap();
    block_on(node.refund(back));
    assert_eq!(left(&node, &ANN), [5], "nothing was taken from this one");
    node.reload(rules(&rule("10/hour"))).unwrap();
    assert_eq!(left(&node, &ANN), [5], "it went back to where it came from");
}

#[test]
fn from_one_tier_to_another_goes_the_same_share() {
    let server = Server::start();
    let text = "
domain: api
rules:
  - name: by plan
    per: [user]
    limit: 10/hour
    tiers: { by: plan, limits: { free: 5/hour, pro: 30/hour, burst: 30/hour burst 8 } }
";
    let node = strict(&server, text);
    let on = |user: &'static str, plan: &'static str| [("user", user), ("plan", plan)];
    assert!(take(&node, &on("ann", "free"), 2).is_allowed());
    assert_eq!(left(&node, &on("ann", "pro")), [18]);
    assert_eq!(left(&node, &on("ann", "none")), [6]);
    let (free, pro, burst) = (on("bob", "free"), on("bob", "pro"), on("bob", "burst"));
    let admitted = passed(100, &[(&node, &free), (&node, &pro)]);
    assert!((5..=30).contains(&admitted), "{admitted}");
    assert_eq!(passed(100, &[(&node, &burst), (&node, &free), (&node, &pro)]), 8);
}

#[test]
fn limits_of_one_rule_are_kept_apart_though_they_fill_alike() {
    let server = Server::start();
    let text = "
domain: api
rules:
  - { name: all, per: [user], soft: 50%, limits: [ 10/hour, 20/hour burst 4 ], candidate: 2/hour }
";
    let node = strict(&server, text);
    let before = left(&node, &ANN);
    assert!(before.len() >= 2);
    assert!(take(&node, &ANN, 1).is_allowed());
    let once: Vec<_> = before.iter().map(|left| left - 1).collect();
    assert_eq!(left(&node, &ANN), once, "each is charged once");
}
