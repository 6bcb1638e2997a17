//! Each limit on its own terms: where it is kept, what happens when its store cannot answer, and that a
//! call under limits of different terms is charged all or nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::ruled::{attributes, rules};
use crate::served::{PATIENCE, Server, block_on, connect};
use tidegate::redis::{Shared, SharedConfig, TimeSource};
use tidegate::rules::{DescriptorCall, GroupRanges, LimitDecision};
use tidegate::{
    Call, CheckError, Consistency, ManualClock, OnStoreFailure, Place, RuleDecision, RuleLimiter,
    RulesError, Source,
};

type Limiter = RuleLimiter<ManualClock, Place>;

const SECRET: [u8; 16] = *b"shared by a flee";

fn clock() -> ManualClock {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_790_000_000));
    clock
}

fn shared(servers: &[&Server]) -> Arc<Shared> {
    let group = |server: &&Server| server.config().time(TimeSource::Request);
    connect(SharedConfig::new(servers.iter().map(group)).deadline(PATIENCE))
}

fn over(shared: &Arc<Shared>, text: &str) -> Limiter {
    let builder = RuleLimiter::builder(rules(text)).clock(clock()).secret(SECRET);
    builder.build_shared(Arc::clone(shared)).unwrap()
}

fn ask(limiter: &Limiter, pairs: &[(&str, &str)]) -> Result<RuleDecision, CheckError> {
    block_on(limiter.check(&Call::new("api", &attributes(pairs))))
}

fn check(limiter: &Limiter, pairs: &[(&str, &str)]) -> RuleDecision {
    ask(limiter, pairs).unwrap()
}

fn left(limiter: &Limiter, pairs: &[(&str, &str)]) -> Vec<u64> {
    let decision = block_on(limiter.peek(&Call::new("api", &attributes(pairs)))).unwrap();
    decision.limits().map(|limit| limit.remaining()).collect()
}

fn sources(decision: &RuleDecision) -> Vec<Source> {
    decision.limits().map(|limit: LimitDecision<'_>| limit.source()).collect()
}

const MIXED: &str = "
domain: api
rules:
  - { name: here, per: [user], consistency: local, limit: 5/hour }
  - { name: shared, per: [user], consistency: strict, limit: 4/hour }
  - { name: hot, per: [user], consistency: leased, limit: 3/hour }
  - { name: by address, per: [ip], limit: 2/hour }
";

#[test]
fn a_call_under_limits_of_all_terms_is_charged_all_or_nothing() {
    let server = Server::start();
    let shared = shared(&[&server]);
    let limiter = over(&shared, MIXED);
    let ann = [("user", "ann"), ("ip", "192.0.2.1")];
    assert_eq!(left(&limiter, &ann), [5, 4, 3, 2]);
    for _ in 0..2 {
        let decision = check(&limiter, &ann);
        assert!(decision.is_allowed() && !decision.is_degraded());
        assert_eq!(decision.source(), Source::Store);
        assert_eq!(sources(&decision)[0], Source::Memory);
    }
    let denied = check(&limiter, &ann);
    assert_eq!(denied.rule().unwrap().name, "by address");
    assert!(!denied.is_allowed() && !denied.is_degraded());
    assert_eq!(left(&limiter, &ann), [3, 2, 1, 0], "the denied call took nothing");
    let elsewhere = [("user", "ann"), ("ip", "192.0.2.2")];
    assert!(check(&limiter, &elsewhere).is_allowed());
    assert_eq!(check(&limiter, &elsewhere).rule().unwrap().name, "hot");
    assert_eq!(left(&limiter, &elsewhere), [2, 1, 0, 1]);
    let taken = check(&limiter, &[("user", "bob"), ("ip", "192.0.2.2")]);
    block_on(limiter.refund(taken));
    assert_eq!(left(&limiter, &[("user", "bob"), ("ip", "192.0.2.2")]), [5, 4, 3, 1]);
}

#[test]
fn two_nodes_share_what_is_strict_and_not_what_is_local() {
    let server = Server::start();
    let nodes = [shared(&[&server]), shared(&[&server])].map(|one| over(&one, MIXED));
    let ann = [("user", "ann"), ("ip", "192.0.2.1")];
    assert!(check(&nodes[0], &ann).is_allowed());
    let [here, strict, hot, address] = left(&nodes[1], &ann)[..] else { panic!("four limits") };
    assert_eq!((here, strict, address), (5, 3, 1));
    assert!(hot <= 2);
}

const POLICIES: &str = "
domain: api
rules:
  - { name: fails open, match: { kind: open }, per: [user], on_store_failure: allow, limit: 2/hour }
  - { name: fails closed, match: { kind: closed }, per: [user], on_store_failure: deny, limit: 2/hour }
  - { name: goes on, match: { kind: [share, both] }, per: [user], limit: 2/hour }
  - { name: here, match: { kind: [local, both, closed] }, per: [user], consistency: local, limit: 3/hour }
  - { name: tried, match: { kind: [tried, both] }, mode: shadow, on_store_failure: deny, limit: 1/hour }
";

#[test]
fn each_rule_has_its_own_policy_while_the_store_is_away() {
    let server = Server::start();
    let limiter = over(&shared(&[&server]), POLICIES);
    let who = |kind: &'static str| [("kind", kind), ("user", "ann")];
    assert!(check(&limiter, &who("share")).is_allowed());
    assert_eq!(left(&limiter, &who("closed")), [2, 3]);
    drop(server);
    for _ in 0..5 {
        let open = check(&limiter, &who("open"));
        assert!(open.is_allowed() && open.is_degraded());
    }
    for _ in 0..3 {
        let error = ask(&limiter, &who("closed")).unwrap_err();
        assert!(matches!(error, CheckError::Store(_)), "{error}");
    }
    let passed = (0..6).filter(|_| {
        let decision = check(&limiter, &who("share"));
        assert!(decision.is_degraded());
        decision.is_allowed()
    });
    assert_eq!(passed.count(), 2, "the share of the only node is all of it");
    let here = check(&limiter, &who("local"));
    assert!(here.is_allowed() && !here.is_degraded());
    assert_eq!(here.remaining(), Some(2), "calls that had no answer took nothing");
}

#[test]
fn a_rule_in_shadow_is_no_reason_for_an_error() {
    let server = Server::start();
    let limiter = over(&shared(&[&server]), POLICIES);
    drop(server);
    let decision = check(&limiter, &[("kind", "tried"), ("user", "ann")]);
    assert!(decision.is_allowed() && !decision.is_degraded() && !decision.is_shadow_denied());
    let both = check(&limiter, &[("kind", "both"), ("user", "bob")]);
    assert!(both.is_allowed() && both.is_degraded());
}

#[test]
fn what_the_fallback_took_is_given_back_to_the_fallback() {
    let server = Server::start();
    let socket = server.socket().to_owned();
    let limiter = over(&shared(&[&server]), POLICIES);
    let who = [("kind", "share"), ("user", "ann")];
    assert_eq!(left(&limiter, &who), [2]);
    drop(server);
    let taken = check(&limiter, &who);
    assert!(taken.is_allowed() && taken.is_degraded());
    block_on(limiter.refund(taken));
    assert_eq!(left(&limiter, &who), [2]);
    let (one, two) = (check(&limiter, &who), check(&limiter, &who));
    assert!(one.is_allowed() && two.is_allowed() && !check(&limiter, &who).is_allowed());
    let _server = Server::start_at(&socket);
    until(|| !check(&limiter, &who).is_degraded());
    let before = left(&limiter, &who);
    block_on(limiter.refund(one));
    assert_eq!(left(&limiter, &who), before, "the store never gave it");
}

#[test]
fn descriptors_have_the_terms_of_the_limiter() {
    let server = Server::start();
    let text = "
domain: api
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 2 } }
";
    let build = |policy| {
        let builder = RuleLimiter::builder(rules(text)).clock(clock()).secret(SECRET);
        builder.on_store_failure(policy).build_shared(shared(&[&server])).unwrap()
    };
    let (local, deny) = (build(OnStoreFailure::Local), build(OnStoreFailure::Deny));
    let ann = [("user", "ann").into()];
    let calls = [DescriptorCall::new(&ann)];
    let decision = block_on(local.check_descriptors("api", &calls)).unwrap();
    assert!(decision.is_allowed() && decision.source() == Source::Store);
    assert_eq!(decision.statuses().next().unwrap().source(), Source::Store);
    drop(server);
    let decision = block_on(local.check_descriptors("api", &calls)).unwrap();
    assert!(decision.is_allowed() && decision.is_degraded());
    let error = block_on(deny.check_descriptors("api", &calls)).unwrap_err();
    assert!(matches!(error, CheckError::Store(_)), "{error}");
}

#[test]
fn ranges_of_users_are_kept_by_their_group() {
    let servers = [Server::start(), Server::start()];
    let text = "
domain: api
rules:
  - { name: by user, per: [user], on_store_failure: deny, limit: 9/hour }
  - { name: all, match: { all: 'yes' }, on_store_failure: deny, limit: 9/hour }
";
    let groups = || GroupRanges::new("user", [(1..=5000, 0), (5001..=10_000, 1)]).unwrap();
    let shared = shared(&[&servers[0], &servers[1]]);
    let builder = || RuleLimiter::builder(rules(text)).clock(clock()).secret(SECRET);
    let limiter = builder().groups(groups()).build_shared(Arc::clone(&shared)).unwrap();
    let users = |from: u32| (from..from + 20).map(|user| user.to_string());
    let [first, second] = servers;
    for user in users(1).chain(users(5001)) {
        assert!(check(&limiter, &[("user", &user)]).is_allowed());
    }
    // What counts all users together is in one place, whoever asks.
    let all = |user: &str| {
        check(&limiter, &[("user", user), ("all", "yes")])
            .limits()
            .nth(1)
            .map(|one| one.remaining())
    };
    assert_eq!([all("1"), all("5001"), all("2")], [Some(8), Some(7), Some(6)]);
    drop(second);
    for user in users(1) {
        assert!(check(&limiter, &[("user", &user)]).is_allowed());
    }
    for user in users(5001) {
        assert!(ask(&limiter, &[("user", &user)]).is_err());
    }
    drop(first);
    let one_too_many = GroupRanges::new("user", [(1..=2, 2)]).unwrap();
    let error = builder().groups(one_too_many).build_shared(shared).unwrap_err();
    assert!(matches!(error, RulesError::GroupMissing { group: 2, groups: 2 }), "{error}");
}

#[test]
fn limits_that_cannot_be_leased_are_listed_and_strict() {
    let server = Server::start();
    let text = "
domain: api
rules:
  - { name: queue, match: { kind: queue }, per: [user], limit: 60/minute leaky-bucket burst 3 }
  - { name: places, match: { kind: places }, per: [user], limit: 2 at once }
  - { name: bucket, match: { kind: bucket }, per: [user], limit: 5/minute }
  - { name: strict, match: { kind: strict }, per: [user], consistency: strict, limit: 3 at once }
";
    let builder = RuleLimiter::builder(rules(text)).clock(clock()).secret(SECRET);
    let limiter =
        builder.consistency(Consistency::Leased).build_shared(shared(&[&server])).unwrap();
    let listed = limiter.strict_instead_of_leased();
    let listed: Vec<_> = listed.iter().map(|one| (&*one.rule, &*one.limit)).collect();
    assert_eq!(
        listed,
        [("queue", "60/minute leaky-bucket burst 3"), ("places", "2 at once for 1min")]
    );
    for kind in ["queue", "places", "strict"] {
        assert_eq!(check(&limiter, &[("kind", kind), ("user", "ann")]).source(), Source::Store);
    }
    let memory = RuleLimiter::builder(rules(text)).consistency(Consistency::Leased).build();
    assert_eq!(memory.unwrap().strict_instead_of_leased(), []);
}

#[test]
fn nodes_that_share_limits_need_their_secret() {
    let server = Server::start();
    let builder = RuleLimiter::builder(rules(MIXED)).clock(clock());
    let error = builder.build_shared(shared(&[&server])).unwrap_err();
    assert!(matches!(error, RulesError::SecretMissing), "{error}");
    assert!(error.to_string().contains("secret"));
}

#[test]
fn rules_with_terms_are_decided_by_memory_where_there_is_no_store() {
    let limiter = RuleLimiter::builder(rules(MIXED)).clock(clock()).build().unwrap();
    let attributes = attributes(&[("user", "ann"), ("ip", "192.0.2.1")]);
    let decision = limiter.check(&Call::new("api", &attributes)).unwrap();
    assert_eq!((decision.source(), decision.is_degraded()), (Source::Memory, false));
    assert!(sources(&decision).iter().all(|source| *source == Source::Memory));
}

/// The clock of the limiter is three hours off that of the server, which decides.
#[test]
fn a_node_whose_clock_is_wrong_gives_back_what_it_took() {
    let server = Server::start();
    let text = "
domain: api
rules:
  - { name: bucket, match: { kind: bucket }, per: [user], limit: 5/hour }
  - { name: log, match: { kind: log }, per: [user], limit: 5/hour sliding-log }
  - { name: window, match: { kind: window }, per: [user], limit: 5 per 400 days fixed-window }
";
    let clock = ManualClock::new();
    let wrong = tidegate::Clock::now(&tidegate::SystemClock).as_micros() - 3 * 3600 * 1_000_000;
    clock.advance(Duration::from_micros(wrong));
    let shared = connect(SharedConfig::new([server.config()]));
    let builder = RuleLimiter::builder(rules(text)).clock(clock).secret(SECRET);
    let limiter = builder.build_shared(shared).unwrap();
    for kind in ["bucket", "log", "window"] {
        let who = [("kind", kind), ("user", "ann")];
        let attributes = attributes(&who);
        let call = Call::new("api", &attributes);
        let (first, second) = (check(&limiter, &who), check(&limiter, &who));
        assert_eq!(left(&limiter, &who), [3], "{kind}");
        block_on(limiter.refund(first));
        assert_eq!(left(&limiter, &who), [4], "{kind}");
        // As one who was told of it over a wire.
        let given_back = block_on(limiter.refund_at(&call, second.told_at())).unwrap();
        // It is rather taken for an earlier one, of which a little has come back by itself.
        let is_back = given_back.remaining() == Some(5)
            || given_back.reset_after().is_some_and(|wait| wait < Duration::from_mins(1));
        assert!(is_back, "{kind}: {given_back:?}");
    }
}

#[test]
fn the_calls_of_a_limiter_can_be_awaited_on_any_thread() {
    fn is_send(_: impl Send) {}
    let server = Server::start();
    let limiter = over(&shared(&[&server]), MIXED);
    let attributes = attributes(&[("user", "ann")]);
    let call = Call::new("api", &attributes);
    is_send(limiter.check(&call));
    is_send(limiter.reset(&call));
    is_send(limiter.release_held(&call, &[]));
    is_send(limiter.check_descriptors("api", &[]));
    is_send(limiter.decide_given_many_at(limiter.now(), [], |_| {}));
    let mut decision = block_on(limiter.check(&call)).unwrap();
    is_send(limiter.refund_in(&mut decision));
    is_send(limiter.complete(decision, 200));
}

/// Waits for something that a real server brings about.
fn until(mut is_so: impl FnMut() -> bool) {
    let mut waits = 0;
    while !is_so() {
        waits += 1;
        assert!(waits < 1_500, "it does not come about");
        block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    }
}
