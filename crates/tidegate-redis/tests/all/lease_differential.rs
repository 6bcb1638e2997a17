//! Leases in the script against their model: the same random requests for leases and strict operations at
//! the same instants through both, and every answer must agree.
//!
//! `TIDEGATE_DIFFERENTIAL_OPERATIONS` sets how many operations each test runs at least.

use crate::histories;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::histories::{Ask as Strict, Cost, Subject, TIME_MAX};
use crate::leasing::model::Leased;
use crate::support::{Kind, Server, block_on};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tidegate_core::{Decision, Key, Limit, Operation, Timestamp, Verdict};
use tidegate_redis::RedisStore;
use tidegate_redis::lease::book::Call;
use tidegate_redis::lease::{Ask, Holder, Intent, TTL, Told};
use tidegate_store::{Answers, Charge, Request, Store};

const OPERATIONS: u64 = 4_000;

macro_rules! agree {
    ($($name:ident: $kind:expr, $subject:expr;)+) => {
        $(
            #[test]
            fn $name() {
                agrees($kind, $subject);
            }
        )+
    };
}

agree! {
    leases_on_a_token_bucket_are_the_models: Kind::Redis, histories::token_bucket();
    leases_on_a_stepped_bucket_are_the_models: Kind::Redis, histories::stepped_bucket();
    leases_on_a_fixed_window_are_the_models: Kind::Redis, histories::fixed_window();
    leases_on_a_sliding_window_are_the_models: Kind::Redis, histories::sliding_window();
    leases_on_sliding_slots_are_the_models: Kind::Redis, histories::sliding_slots();
    leases_on_a_sliding_log_are_the_models: Kind::Redis, histories::sliding_log();
    leases_on_any_limit_in_valkey_are_the_models: Kind::Valkey, histories::any_limit();
}

/// One call: when it comes after the one before, and what it asks.
#[derive(Clone, Debug)]
struct Step {
    after: After,
    changed: bool,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum After {
    Ticks(u64),
    /// So many thousandths of the limit's period.
    Thousandths(u64),
    /// So many thousandths of what a lease lasts.
    OfTtl(u64),
    Back(u64),
}

#[derive(Clone, Debug)]
enum What {
    Strict(Strict),
    Lease {
        holder: u8,
        intent: Intent,
        stale: bool,
        spends: Cost,
        need: Cost,
        more: Cost,
        want: Cost,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let after = prop_oneof![
        6 => Just(After::Ticks(0)),
        2 => (0..1_000_u64).prop_map(After::Ticks),
        3 => (0..1_500_u64).prop_map(After::Thousandths),
        6 => (0..1_200_u64).prop_map(After::OfTtl),
        1 => Just(After::Ticks(TTL.as_micros())),
        1 => (0..900_000_u64).prop_map(After::Back),
        1 => (0..7_200_000_000_u64).prop_map(After::Back),
    ];
    let strict = prop_oneof![
        8 => cost().prop_map(Strict::Take),
        2 => cost().prop_map(Strict::Peek),
        1 => cost().prop_map(Strict::Debit),
        1 => (cost(), 0..6_usize).prop_map(|(cost, ago)| Strict::Refund(cost, ago, 0)),
    ];
    let intent = prop_oneof![
        5 => Just(Intent::Open),
        5 => Just(Intent::Renew),
        1 => Just(Intent::Close),
    ];
    let lease = (0..4_u8, intent, prop::bool::weighted(0.1), cost(), cost(), cost(), cost())
        .prop_map(|(holder, intent, stale, spends, need, more, want)| What::Lease {
            holder,
            intent,
            stale,
            spends,
            need,
            more,
            want,
        });
    let what = prop_oneof![2 => strict.prop_map(What::Strict), 3 => lease];
    (after, prop::bool::weighted(0.05), what).prop_map(|(after, changed, what)| Step {
        after,
        changed,
        what,
    })
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        2 => Just(Cost::Exactly(0)),
        5 => (0..5_u64).prop_map(Cost::Exactly),
        4 => (0..1_002_u64).prop_map(Cost::Thousandths),
    ]
}

fn agrees(kind: Kind, subject: impl Strategy<Value = Subject>) {
    let wanted = std::env::var("TIDEGATE_DIFFERENTIAL_OPERATIONS")
        .map_or(OPERATIONS, |number| number.parse().expect("a number of operations"));
    let server = Server::start(kind);
    let store = server.store();
    let operations = Cell::new(0);
    let subject = subject.prop_filter("one that is leased", |subject| subject.limit.is_leasable());
    let start = prop_oneof![
        4 => 1_000_000_000_000_000..2_000_000_000_000_000_u64,
        1 => 0..3_000_000_u64,
        1 => Just(1_790_553_599_000_000),
    ];
    let histories = (start, subject, prop::collection::vec(step(), 1..60));
    while operations.get() < wanted {
        let config = Config {
            cases: 50,
            failure_persistence: None,
            max_shrink_iters: 5_000,
            ..Config::default()
        };
        let run = TestRunner::new(config).run(&histories, |(start, subject, steps)| {
            compare(&store, start, &subject, &steps)?;
            operations.set(operations.get() + steps.len() as u64);
            Ok(())
        });
        if let Err(error) = run {
            panic!("{error}");
        }
    }
    println!("{} operations agree", operations.get());
}

/// What is asked at one instant.
#[derive(Clone, Debug)]
enum Asked {
    Strict(Operation),
    Lease(Ask),
}

#[derive(Clone, Debug, PartialEq)]
enum Answered {
    Strict(Decision),
    Lease(Told),
}

/// Runs one history through both and compares the answers.
fn compare(
    store: &RedisStore,
    start: u64,
    subject: &Subject,
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let key = fresh_key();
    let mut model = Leased::default();
    let mut history = History { now: start, times: Vec::new(), holders: [(1, 0); 4] };
    for (number, step) in steps.iter().enumerate() {
        let limit = if step.changed { &subject.changed } else { &subject.limit };
        let (now, asked) = history.resolve(step, limit);
        let expected = match &asked {
            Asked::Strict(operation) => Answered::Strict(model.decide(limit, now, *operation)),
            Asked::Lease(ask) => Answered::Lease(model.ask(limit, now, ask)),
        };
        let ours = block_on(ask(store, key, limit, now, &asked));
        prop_assert_eq!(
            ours,
            expected,
            "call {} at {:?}: {:?} under {:?}",
            number,
            now,
            asked,
            limit
        );
    }
    Ok(())
}

async fn ask(
    store: &RedisStore,
    key: Key,
    limit: &Limit,
    now: Timestamp,
    asked: &Asked,
) -> Answered {
    match asked {
        Asked::Strict(operation) => {
            let charges = [Charge { limit, key, operation: *operation }];
            let mut answers = Answers::new();
            store.decide(&[Request { now, charges: &charges }], &mut answers).await;
            Answered::Strict(answers.iter().next().unwrap().expect("a decision")[0])
        }
        Asked::Lease(ask) => {
            let call = Call { key, limit: limit.clone(), ask: *ask };
            let mut told = store.lease(&[call], now, Duration::from_secs(30)).await;
            Answered::Lease(told.pop().unwrap().expect("an answer"))
        }
    }
}

struct History {
    now: u64,
    times: Vec<Timestamp>,
    /// The latest sequence of each holder, and what it has spent.
    holders: [(u32, u64); 4],
}

impl History {
    fn resolve(&mut self, step: &Step, limit: &Limit) -> (Timestamp, Asked) {
        let later = match step.after {
            After::Ticks(ticks) => self.now.saturating_add(ticks),
            After::Thousandths(parts) => {
                self.now.saturating_add(part(limit.period().as_micros(), parts))
            }
            After::OfTtl(parts) => self.now.saturating_add(part(TTL.as_micros(), parts)),
            After::Back(ticks) => self.now.saturating_sub(ticks),
        };
        self.now = later.min(TIME_MAX);
        let now = Timestamp::from_micros(self.now);
        let capacity = capacity(limit);
        let cost = |cost: Cost| match cost {
            Cost::Exactly(cost) => cost,
            Cost::Thousandths(parts) => part(capacity, parts),
        };
        let asked = match &step.what {
            What::Strict(Strict::Take(ask)) => Asked::Strict(Operation::Take { cost: cost(*ask) }),
            What::Strict(Strict::Peek(ask)) => Asked::Strict(Operation::Peek { cost: cost(*ask) }),
            What::Strict(Strict::Debit(ask)) => {
                Asked::Strict(Operation::Debit { cost: cost(*ask) })
            }
            What::Strict(Strict::Refund(ask, ago, _)) => {
                let taken_at = self.times.iter().rev().nth(*ago).copied().unwrap_or(now);
                Asked::Strict(Operation::Refund { cost: cost(*ask), taken_at })
            }
            What::Strict(Strict::Release(..) | Strict::Renew(..)) => {
                unreachable!("nobody draws it")
            }
            What::Lease { holder, intent, stale, spends, need, more, want } => {
                let (sequence, spent) = &mut self.holders[usize::from(*holder)];
                *spent = (*spent + cost(*spends)).min(1 << 46);
                let asked = if *stale { *sequence / 2 + 1 } else { *sequence };
                *sequence += 1;
                let need = cost(*need).min(capacity);
                let waiting = need + cost(*more);
                Asked::Lease(Ask {
                    holder: Holder { node: u64::from(*holder) << 60 | 7, epoch: 9 },
                    sequence: asked,
                    intent: *intent,
                    spent: *spent,
                    need,
                    waiting,
                    want: waiting + cost(*want),
                })
            }
        };
        self.times.push(now);
        (now, asked)
    }
}

/// So many thousandths of a number.
fn part(number: u64, parts: u64) -> u64 {
    u64::try_from(u128::from(number) * u128::from(parts) / 1_000).unwrap_or(u64::MAX)
}

/// The most that a limit can have left.
fn capacity(limit: &Limit) -> u64 {
    limit.decide(None, Timestamp::ZERO, Operation::Peek { cost: 0 }).0.limit
}

/// A key that no history has had.
fn fresh_key() -> Key {
    static KEYS: AtomicU64 = AtomicU64::new(1);
    let number = KEYS.fetch_add(1, Ordering::Relaxed);
    Key::from_hash(u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

/// Whoever died while the clock was ahead is in the way for no longer than anybody else.
#[test]
fn a_lease_lasts_no_longer_when_the_clock_is_set_back() {
    let server = Server::start(Kind::Redis);
    let store = server.store();
    let rate = tidegate_core::Rate::new(10, tidegate_core::Span::MINUTE).unwrap();
    let limit = Limit::from(tidegate_core::SlidingLog::new(rate).unwrap());
    let (key, now) = (fresh_key(), Timestamp::from_secs(1_790_553_600));
    let holder = Holder { node: 1, epoch: 1 };
    let (intent, need) = (Intent::Open, 10);
    let open = Ask { holder, sequence: 1, intent, spent: 0, need, waiting: 10, want: 10 };
    block_on(ask(&store, key, &limit, now, &Asked::Lease(open)));
    let set_back = now.minus(tidegate_core::Span::from_secs(1_800));
    let take = Asked::Strict(Operation::Take { cost: 1 });
    let refused_for = |at: Timestamp| {
        let answered = block_on(ask(&store, key, &limit, at, &take));
        let Answered::Strict(denied) = answered else { panic!("{answered:?}") };
        denied.retry_after().expect("a denial")
    };
    assert_eq!(refused_for(set_back), tidegate_redis::lease::OCCUPIED_WAIT_MAX);
    assert_eq!(refused_for(set_back.plus(TTL)), tidegate_core::Span::MINUTE, "it is charged");
}

/// A denial that is due to leases only is short, whatever the limit.
#[test]
fn a_refusal_by_leases_alone_is_for_a_moment() {
    let server = Server::start(Kind::Redis);
    let store = server.store();
    let rate = tidegate_core::Rate::new(10, tidegate_core::Span::DAY).unwrap();
    let limit = Limit::from(tidegate_core::SteppedBucket::new(rate, 10).unwrap());
    let (key, now) = (fresh_key(), Timestamp::from_secs(1_790_553_600));
    let holder = Holder { node: 1, epoch: 1 };
    let open = Ask {
        holder,
        sequence: 1,
        intent: Intent::Open,
        spent: 0,
        need: 10,
        waiting: 10,
        want: 10,
    };
    let told = block_on(ask(&store, key, &limit, now, &Asked::Lease(open)));
    assert!(matches!(told, Answered::Lease(Told { known: true, granted: 10, .. })), "{told:?}");
    let take = Asked::Strict(Operation::Take { cost: 1 });
    let Answered::Strict(denied) = block_on(ask(&store, key, &limit, now, &take)) else { panic!() };
    let Verdict::Deny { retry_after } = denied.verdict else { panic!("{denied:?}") };
    assert_eq!(retry_after, tidegate_redis::lease::OCCUPIED_WAIT_MAX);
    assert_eq!(denied.remaining, 0);
    // It is charged in full when it expires.
    let later = now.plus(TTL);
    let Answered::Strict(denied) = block_on(ask(&store, key, &limit, later, &take)) else {
        panic!()
    };
    assert!(denied.retry_after().unwrap() > TTL, "{denied:?}");
}
