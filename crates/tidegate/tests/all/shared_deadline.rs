//! Calls by rules while the store that nodes share is paused: one deadline for all that a call is made of, and
//! nothing held for a caller who has gone.

use crate::served;

use std::sync::Arc;
use std::time::Duration;

use crate::ruled::{attributes, rules};
use crate::served::{Server, block_on, connect};
use tidegate::redis::{Shared, SharedConfig};
use tidegate::rules::{DescriptorCall, GroupRanges};
use tidegate::{Call, Clock, ManualClock, Place, RuleLimiter, SystemClock, Timestamp};

const SECRET: [u8; 16] = *b"shared by a flee";
const DEADLINE: Duration = Duration::from_millis(500);

/// Before this a call is answered. It leaves most of a deadline to a machine that is busy with something else, and is
/// less than what two deadlines, one after the other, take.
const BOUND: Duration = Duration::from_millis(900);

/// How often a machine may stand still.
const TRIES: usize = 5;

type Limiter<C = SystemClock> = RuleLimiter<C, Place>;

fn over<C: Clock>(shared: &Arc<Shared>, text: &str, clock: C) -> Limiter<C> {
    let builder = RuleLimiter::builder(rules(text)).clock(clock).secret(SECRET);
    builder.build_shared(Arc::clone(shared)).unwrap()
}

/// Asks so often by these rules while the store is paused, and is answered before the bound each time. A machine that
/// stood still meanwhile is asked anew, over a store that nobody has missed yet; two deadlines are too long whenever.
fn assert_in_time(text: &str, times: usize, ask: impl Fn(&Limiter)) {
    let mut longest = Vec::new();
    for _ in 0..TRIES {
        let server = Server::start();
        let shared = connect(SharedConfig::new([server.config()]).deadline(DEADLINE));
        let limiter = over(&shared, text, SystemClock);
        server.signal("-STOP");
        let took = (0..times).map(|_| {
            let began = SystemClock.now();
            ask(&limiter);
            Duration::from(SystemClock.now().since(began))
        });
        longest.extend(took.max());
        server.signal("-CONT");
        if longest.last().is_some_and(|took| *took < BOUND) {
            return;
        }
    }
    panic!("it took {longest:?}");
}

#[test]
fn rules_in_shadow_delay_no_answer_while_the_store_is_paused() {
    let text = "
domain: api
rules:
  - { name: in force, per: [user], limit: 5/hour }
  - { name: tried, per: [user], mode: shadow, limit: 4/hour }
  - { name: tried too, per: [ip], mode: shadow, limit: 3/hour }
";
    let attributes = attributes(&[("user", "ann"), ("ip", "192.0.2.1")]);
    assert_in_time(text, 1, |limiter| {
        let decision = block_on(limiter.check(&Call::new("api", &attributes))).unwrap();
        assert!(decision.is_allowed() && decision.is_degraded());
    });
}

#[test]
fn descriptors_in_shadow_delay_no_answer_while_the_store_is_paused() {
    let text = "
domain: web
descriptors:
  - { key: user, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: path, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 5 } }
  - { key: ip, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 5 } }
";
    let entries = [("user", "ann"), ("path", "/"), ("ip", "192.0.2.1")].map(|one| [one.into()]);
    let calls = entries.each_ref().map(|entries| DescriptorCall::new(entries));
    assert_in_time(text, 1, |limiter| {
        let decision = block_on(limiter.check_descriptors("web", &calls)).unwrap();
        assert!(decision.is_allowed());
    });
}

#[test]
fn what_a_refused_call_is_charged_delays_no_answer() {
    let text = "
domain: api
rules:
  - { name: punished, per: [user], limit: 1/hour, charge_refused: true }
  - { name: tried, per: [user], mode: shadow, limit: 4/hour }
";
    let attributes = attributes(&[("user", "ann")]);
    assert_in_time(text, 3, |limiter| {
        let decision = block_on(limiter.check(&Call::new("api", &attributes))).unwrap();
        assert!(decision.is_degraded());
    });
}

#[test]
fn the_calls_of_a_batch_have_one_deadline_each_and_wait_together() {
    let text = "{ domain: api, rules: [{ name: all, per: [user], limit: 5/hour }] }";
    let users: Vec<String> = (0..100).map(|user| format!("user {user}")).collect();
    assert_in_time(text, 1, |limiter| {
        let calls = users.iter().map(|user| async move {
            let attributes = [("user", user.as_str()).into()];
            limiter.check(&Call::new("api", &attributes)).await.unwrap().is_degraded()
        });
        let answers = block_on(futures_in_order(calls.collect()));
        assert!(answers.iter().all(|degraded| *degraded));
    });
}

/// All of them, begun in their order, as the calls of a batch are.
async fn futures_in_order<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, done) in waiting.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(output) = future.as_mut().poll(context)
            {
                *done = Some(output);
            }
        }
        if done.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// The place is in a group that answers, and a rule in shadow in one that does not: the caller goes in between.
#[test]
fn a_caller_who_goes_while_rules_in_shadow_are_asked_holds_no_place() {
    let (well, ill) = (Server::start(), Server::start());
    let groups = SharedConfig::new([well.config(), ill.config()]).weights(&[0, 1]);
    let shared = connect(groups.deadline(Duration::from_secs(20)));
    let text = "
domain: api
rules:
  - { name: places, per: [user], limit: 3 at once }
  - { name: tried, per: [ip], mode: shadow, limit: 4/hour }
";
    let builder = RuleLimiter::builder(rules(text)).secret(SECRET);
    let builder = builder.groups(GroupRanges::new("user", [(1..=1_000, 0)]).unwrap());
    let limiter = builder.build_shared(Arc::clone(&shared)).unwrap();
    let (both, one) =
        (attributes(&[("user", "7"), ("ip", "192.0.2.1")]), attributes(&[("user", "7")]));
    let free =
        || async { limiter.peek(&Call::new("api", &one)).await.unwrap().remaining().unwrap() };
    block_on(async {
        assert_eq!(free().await, 3);
        ill.signal("-STOP");
        let call = Call::new("api", &both);
        let mut leaving = Box::pin(limiter.check(&call));
        let held = async {
            while free().await != 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            answer = &mut leaving => panic!("the rule in shadow cannot be asked: {answer:?}"),
            () = held => {}
        }
        drop(leaving);
        let back = async {
            while free().await != 3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(served::PATIENCE, back).await.expect("the place comes back");
    });
    ill.signal("-CONT");
}

/// Two nodes whose clocks are two days apart, and none that of the store.
#[test]
fn what_one_node_took_is_given_back_by_another_whose_clock_shows_something_else() {
    let server = Server::start();
    let text = "
domain: api
rules:
  - { name: bucket, match: { kind: bucket }, per: [user], limit: 5/hour }
  - { name: log, match: { kind: log }, per: [user], limit: 5/hour sliding-log }
  - { name: window, match: { kind: window }, per: [user], limit: 5 per 400 days fixed-window }
";
    let hour = 3_600 * 1_000_000;
    let clock = |hours_behind: u64| {
        let clock = ManualClock::new();
        let now: Timestamp = SystemClock.now();
        clock.advance(Duration::from_micros(now.as_micros() - hours_behind * hour));
        clock
    };
    let nodes = [5, 53]
        .map(|behind| over(&connect(SharedConfig::new([server.config()])), text, clock(behind)));
    for kind in ["bucket", "log", "window"] {
        let attributes = attributes(&[("kind", kind), ("user", "ann")]);
        let call = Call::new("api", &attributes);
        for (taking, giving) in [(0, 1), (1, 0)] {
            let taken = block_on(nodes[taking].check(&call)).unwrap();
            assert_eq!(taken.remaining(), Some(4), "{kind}");
            let back = block_on(nodes[giving].refund_at(&call, taken.told_at())).unwrap();
            // It is rather taken for an earlier one, of which a little has come back by itself.
            let is_back = back.remaining() == Some(5)
                || back.reset_after().is_some_and(|wait| wait < Duration::from_mins(1));
            assert!(is_back, "{kind} taken by {taking}: {back:?}");
            block_on(nodes[giving].reset(&call)).unwrap();
        }
    }
}
