//! Calls of many tasks at once: those that are the same need few script calls, and are answered as if
//! they had come one after the other.

use std::sync::Arc;

use crate::support::{Kind, Server, block_on, connect};
use tidegate_core::{
    Concurrency, Decision, FixedWindow, Key, LeakyBucket, Limit, Operation, Rate, SlidingLog,
    SlidingSlots, SlidingWindow, Span, SteppedBucket, Timestamp, TokenBucket, Verdict,
    fixed_window::Windows,
};
use tidegate_redis::RedisStore;
use tidegate_store::{Answers, Charge, Request, Store};

const CALLERS: usize = 1_000;

/// A limit of each algorithm that lets 50 through and gives nothing back while the test runs.
fn limits_of_50() -> Vec<Limit> {
    let rate = Rate::new(50, Span::DAY).unwrap();
    vec![
        TokenBucket::new(rate, 50).unwrap().into(),
        LeakyBucket::new(rate, 50).unwrap().into(),
        SteppedBucket::new(rate, 50).unwrap().into(),
        FixedWindow::new(50, Windows::FirstRequest(Span::DAY)).unwrap().into(),
        SlidingWindow::new(rate).unwrap().into(),
        SlidingSlots::new(rate, 24, None).unwrap().into(),
        SlidingLog::new(rate).unwrap().into(),
        Concurrency::new(50, Span::DAY).unwrap().into(),
    ]
}

async fn take(store: &RedisStore, charges: &[(Limit, Key)]) -> Vec<Decision> {
    let operation = Operation::Take { cost: 1 };
    let charges: Vec<_> =
        charges.iter().map(|(limit, key)| Charge { limit, key: *key, operation }).collect();
    let mut answers = Answers::new();
    store.decide(&[Request { now: Timestamp::ZERO, charges: &charges }], &mut answers).await;
    answers.iter().next().expect("an answer").expect("a decision").to_vec()
}

/// So many tasks ask for the same at once.
fn take_at_once(store: &Arc<RedisStore>, charges: &[(Limit, Key)]) -> Vec<Vec<Decision>> {
    let tasks = (0..CALLERS).map(|_| {
        let (store, charges) = (Arc::clone(store), charges.to_vec());
        async move { take(&store, &charges).await }
    });
    block_on(async {
        let tasks: Vec<_> = tasks.map(tokio::spawn).collect();
        let mut decisions = Vec::new();
        for task in tasks {
            decisions.push(task.await.expect("no panic"));
        }
        decisions
    })
}

#[test]
fn a_thousand_calls_of_one_key_need_few_script_calls_and_exactly_the_limit_is_admitted() {
    let server = Server::start(Kind::Redis);
    for (number, limit) in limits_of_50().into_iter().enumerate() {
        let store = Arc::new(connect(server.config()));
        let key = Key::from_hash(number as u128 + 1);
        let decided = take_at_once(&store, &[(limit.clone(), key)]);
        let mut left: Vec<_> = Vec::new();
        for decisions in &decided {
            match decisions[0].verdict {
                Verdict::Allow { .. } => left.push(decisions[0].remaining),
                Verdict::Deny { retry_after } => assert!(retry_after > Span::ZERO),
                Verdict::NeverFits => panic!("1 of 50"),
            }
        }
        left.sort_unstable();
        let expected: Vec<u64> = (0..50).collect();
        assert_eq!(left, expected, "{}: each as if it had come alone", limit.name());
        let stats = store.stats();
        println!("{}: {} script calls", limit.name(), stats.script_calls);
        assert!(stats.script_calls < 200, "{}: {}", limit.name(), stats.script_calls);
        assert_eq!(stats.script_calls + stats.coalesced, CALLERS as u64);
        assert_eq!((stats.calls, stats.in_flight), (CALLERS as u64, 0));
    }
}

#[test]
fn requests_under_several_limits_are_decided_together_all_or_nothing() {
    let server = Server::start(Kind::Valkey);
    let store = Arc::new(connect(server.config()));
    let bucket = |burst| -> Limit {
        TokenBucket::new(Rate::new(1, Span::DAY).unwrap(), burst).unwrap().into()
    };
    let charges = [(bucket(900), Key::from_hash(1)), (bucket(30), Key::from_hash(2))];
    let decided = take_at_once(&store, &charges);
    let admitted = decided.iter().filter(|decisions| decisions.iter().all(Decision::is_allowed));
    assert_eq!(admitted.count(), 30);
    let left = block_on(take(&store, &charges[..1]))[0].remaining;
    assert_eq!(left, 900 - 30 - 1, "what the other limit refused was not charged");
    assert!(store.stats().script_calls < 200);
}

#[test]
fn lease_numbers_of_calls_that_are_decided_together_are_all_different() {
    let server = Server::start(Kind::Redis);
    let store = Arc::new(connect(server.config()));
    let limit = Concurrency::new(5_000, Span::DAY).unwrap().into();
    let decided = take_at_once(&store, &[(limit, Key::from_hash(1))]);
    let mut leases: Vec<_> = decided.iter().map(|decisions| decisions[0].lease.unwrap()).collect();
    leases.sort_unstable();
    leases.dedup();
    assert_eq!(leases.len(), CALLERS);
}
