//! The script against the core: the same random operations at the same instants through both, and every
//! decision, all that is left and every wait must agree.
//!
//! Ten tests of 100,000 operations are a million. `TIDEGATE_DIFFERENTIAL_OPERATIONS` sets how many each of them runs
//! at least.

use crate::histories;

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::histories::{Ask, Call, Cost, History, Step, Subject, TIME_MAX};
use crate::support::{Kind, Server, block_on};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tidegate_core::{
    Concurrency, Key, LeaseId, Limit, Operation, Rate, SlidingLog, SlidingSlots, Span, Timestamp,
    TokenBucket,
};
use tidegate_redis::RedisStore;
use tidegate_store::conformance::Model;
use tidegate_store::{Answers, Charge, Request, Store};

const OPERATIONS: u64 = 100_000;

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
    a_token_bucket_in_redis_is_the_cores: Kind::Redis, histories::token_bucket();
    a_leaky_bucket_in_redis_is_the_cores: Kind::Redis, histories::leaky_bucket();
    a_stepped_bucket_in_redis_is_the_cores: Kind::Redis, histories::stepped_bucket();
    a_fixed_window_in_redis_is_the_cores: Kind::Redis, histories::fixed_window();
    a_sliding_window_in_redis_is_the_cores: Kind::Redis, histories::sliding_window();
    sliding_slots_in_redis_are_the_cores: Kind::Redis, histories::sliding_slots();
    a_sliding_log_in_redis_is_the_cores: Kind::Redis, histories::sliding_log();
    a_concurrency_limit_in_redis_is_the_cores: Kind::Redis, histories::concurrency();
    several_limits_at_once_in_redis_are_the_cores: Kind::Redis, histories::any_limit();
    several_limits_at_once_in_valkey_are_the_cores: Kind::Valkey, histories::any_limit();
}

/// Runs histories until there have been enough operations. A failure is shrunk and printed.
fn agrees(kind: Kind, subject: impl Strategy<Value = Subject>) {
    let wanted = std::env::var("TIDEGATE_DIFFERENTIAL_OPERATIONS")
        .map_or(OPERATIONS, |number| number.parse().expect("a number of operations"));
    let server = Server::start(kind);
    let store = server.store();
    let operations = Cell::new(0);
    let histories = histories::history(subject);
    while operations.get() < wanted {
        let config = Config {
            cases: 50,
            failure_persistence: None,
            max_shrink_iters: 5_000,
            ..Config::default()
        };
        let run = TestRunner::new(config).run(&histories, |history| {
            let compared = compare(&store, &history)?;
            operations.set(operations.get() + compared);
            Ok(())
        });
        if let Err(error) = run {
            panic!("{error}");
        }
    }
    let stats = store.stats();
    assert!(stats.coalesced > 0, "requests that are the same are decided together");
    assert!(stats.script_calls + stats.coalesced >= stats.calls);
    println!("{} operations agree, in {} calls", operations.get(), stats.script_calls);
}

/// Runs one history through both and compares the answers. Gives how many operations there were.
fn compare(store: &RedisStore, history: &History) -> Result<u64, TestCaseError> {
    let model = Model::default();
    let mut driver = Driver::new(history);
    let mut requests = Vec::new();
    let mut expected = Vec::new();
    for call in &history.calls {
        let (now, charges) = driver.resolve(call);
        for _ in 0..call.repeats {
            let answer = block_on(decide(&model, &[Request { now, charges: &charges }]));
            driver.learn(now, &charges, &answer);
            expected.push(answer);
            requests.push((now, charges.clone()));
        }
    }
    let batch: Vec<_> =
        requests.iter().map(|(now, charges)| Request { now: *now, charges }).collect();
    let answers = block_on(decide(store, &batch));
    for (index, (answer, (expected, request))) in
        answers.iter().zip(expected.iter().zip(&requests)).enumerate()
    {
        prop_assert_eq!(Some(answer), expected.iter().next(), "call {}: {:?}", index, request);
    }
    Ok(requests.iter().map(|(_, charges)| charges.len() as u64).sum())
}

async fn decide(store: &impl Store, batch: &[Request<'_>]) -> Answers {
    let mut answers = Answers::new();
    store.decide(batch, &mut answers).await;
    answers
}

/// Turns the calls of a history into requests.
struct Driver<'a> {
    subjects: Vec<(&'a Subject, Key)>,
    now: Timestamp,
    scale: Span,
    times: Vec<Timestamp>,
    leases: Vec<LeaseId>,
}

impl<'a> Driver<'a> {
    fn new(history: &'a History) -> Self {
        // Those of one history out of two have one name in the store.
        let together = history.calls.len().is_multiple_of(2);
        let first = fresh_key();
        let key = |number: usize| match number {
            0 => first,
            _ if together => Key::from_hash(first.as_hash() ^ (number as u128) << 40),
            _ => fresh_key(),
        };
        let subjects = history.subjects.iter().enumerate();
        let subjects = subjects.map(|(number, subject)| (subject, key(number))).collect();
        let scale = scale(&history.subjects[0].limit);
        Self { subjects, now: history.start, scale, times: Vec::new(), leases: Vec::new() }
    }

    fn resolve(&mut self, call: &Call) -> (Timestamp, Vec<Charge<'a>>) {
        let part = |parts| part(self.scale.as_micros(), parts);
        let now = match call.step {
            Step::Ticks(ticks) => self.now.as_micros().saturating_add(ticks),
            Step::Thousandths(parts) => self.now.as_micros().saturating_add(part(parts)),
            Step::BackTicks(ticks) => self.now.as_micros().saturating_sub(ticks),
            Step::BackThousandths(parts) => self.now.as_micros().saturating_sub(part(parts)),
        };
        self.now = Timestamp::from_micros(now.min(TIME_MAX));
        let mut charges: Vec<Charge<'a>> = Vec::new();
        for (index, ask) in &call.asks {
            let (subject, key) = self.subjects[index.index(self.subjects.len())];
            if charges.iter().any(|charge| charge.key == key) {
                continue;
            }
            let limit = if call.changed { &subject.changed } else { &subject.limit };
            charges.push(Charge { limit, key, operation: self.operation(ask, limit) });
        }
        (self.now, charges)
    }

    fn operation(&self, ask: &Ask, limit: &Limit) -> Operation {
        let cost = |cost| match cost {
            Cost::Exactly(cost) => cost,
            Cost::Thousandths(parts) => part(capacity(limit), parts),
        };
        match *ask {
            Ask::Take(ask) => Operation::Take { cost: cost(ask) },
            Ask::Peek(ask) => Operation::Peek { cost: cost(ask) },
            Ask::Debit(ask) => Operation::Debit { cost: cost(ask) },
            Ask::Refund(ask, ago, at) => {
                let before = self.times.iter().rev().nth(ago).copied();
                let taken_at = before.unwrap_or(Timestamp::from_micros(at));
                Operation::Refund { cost: cost(ask), taken_at }
            }
            Ask::Release(index, number) => match self.lease(index, number) {
                Some(lease) => Operation::Release { lease },
                None => Operation::Peek { cost: number },
            },
            Ask::Renew(index, number) => match self.lease(index, number) {
                Some(lease) => Operation::Renew { lease },
                None => Operation::Peek { cost: number },
            },
        }
    }

    /// One that was given, or else the one of a number.
    fn lease(&self, index: prop::sample::Index, number: u64) -> Option<LeaseId> {
        let given = (!self.leases.is_empty()).then(|| *index.get(&self.leases));
        given.or(LeaseId::from_u64(number))
    }

    fn learn(&mut self, now: Timestamp, charges: &[Charge<'_>], answer: &Answers) {
        let decisions = answer.iter().next().expect("one answer").expect("a model decides");
        assert_eq!(decisions.len(), charges.len());
        self.times.push(now);
        self.leases.extend(decisions.iter().filter_map(|decision| decision.lease));
    }
}

/// The limit's own time, by which steps are measured.
fn scale(limit: &Limit) -> Span {
    match limit {
        Limit::Concurrency(limit) => limit.expires_after(),
        other => other.fill_time().unwrap_or(other.period()),
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

/// Sums that doubles cannot hold come from debits only, and need many entries to show.
#[test]
fn sums_beyond_what_doubles_hold_are_the_cores() {
    let rate = Rate::new(1 << 20, Span::HOUR).expect("a rate");
    let log = SlidingLog::new(rate).expect("a log").into();
    let slots = SlidingSlots::new(rate, 1_000, None).expect("slots").into();
    for (limit, entries, gap_micros) in [(&log, 8_500, 100_001), (&slots, 700, 3_600_000)] {
        let mut calls = Vec::new();
        for number in 0..entries {
            let now = START.plus(Span::from_micros(number * gap_micros));
            let cost = if number % 50 == 0 { 1 + number } else { u64::MAX };
            calls.push((limit, now, Operation::Debit { cost }));
        }
        let end = START.plus(Span::from_micros(entries * gap_micros));
        for tenth in 0..12 {
            // Until the last one has left, in steps that drop many at once.
            let now = end.plus(Span::from_micros(tenth * Span::HOUR.as_micros() / 10));
            calls.push((limit, now, Operation::Take { cost: 1 }));
            calls.push((limit, now, Operation::Take { cost: 1 << 19 }));
            let taken_at = now.minus(Span::from_secs(3_000));
            calls.push((limit, now, Operation::Refund { cost: 5, taken_at }));
        }
        agree_on_one_key(&calls);
    }
}

/// A microsecond has 1,024 numbers for leases, and those after them come from the next.
#[test]
fn the_numbers_of_many_leases_of_one_instant_are_the_cores() {
    let limit = Limit::from(Concurrency::new(3_000, Span::MINUTE).expect("a limit"));
    let mut calls = vec![(&limit, START, Operation::Take { cost: 1 }); 2_100];
    calls.push((&limit, START.plus(Span::TICK), Operation::Take { cost: 1 }));
    calls.push((&limit, START.plus(Span::from_micros(5)), Operation::Take { cost: 1 }));
    agree_on_one_key(&calls);
}

/// A fraction that the new pace does not have is rounded up to the next tick, and with it all that
/// the tick carries into.
#[test]
fn a_fraction_of_another_pace_carries_into_the_high_half_as_in_the_core() {
    let bucket = |count, burst| -> Limit {
        let rate = Rate::new(count, Span::SECOND).expect("a rate");
        TokenBucket::new(rate, burst).expect("a bucket").into()
    };
    let (fine, coarse) = (bucket(999_983, 1 << 22), bucket(7, 1 << 22));
    // Full 2^20 ticks ahead, less a fraction of one, seen from a multiple of 2^20 ticks.
    let now = Timestamp::from_micros(START.as_micros() >> 20 << 20);
    for cost in (1 << 20) - 20..(1 << 20) + 2 {
        let charged = (&fine, now, Operation::Debit { cost });
        let seen = [1, 0, 2].map(|cost| (&coarse, now, Operation::Take { cost }));
        agree_on_one_key(&[&[charged][..], &seen].concat());
    }
}

/// One key, through both.
fn agree_on_one_key(calls: &[(&Limit, Timestamp, Operation)]) {
    let server = Server::start(Kind::Redis);
    let key = fresh_key();
    let charges: Vec<_> = calls
        .iter()
        .map(|(limit, _, operation)| [Charge { limit, key, operation: *operation }])
        .collect();
    let batch: Vec<_> = calls
        .iter()
        .zip(&charges)
        .map(|((_, now, _), charges)| Request { now: *now, charges })
        .collect();
    let ours = block_on(decide(&server.store(), &batch));
    let expected = block_on(decide(&Model::default(), &batch));
    for ((ours, expected), call) in ours.iter().zip(expected.iter()).zip(calls) {
        assert_eq!(ours, expected, "{call:?}");
    }
}

const START: Timestamp = Timestamp::from_micros(1_790_553_600_000_003);
