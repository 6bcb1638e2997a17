//! Slow, exact models of the algorithms, and random histories to try both with.
//!
//! Each model is written from the definition in its algorithm's documentation, with big integers and
//! fractions and without any of the library's arithmetic. The claims that hold for every algorithm
//! are in `claims`.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

pub mod buckets;
pub mod claims;
pub mod windows;

use num_bigint::BigInt;
use num_rational::Ratio;
use proptest::prelude::*;
use proptest::test_runner::Config;
use tidegate_core::{Decision, Limit, Operation, SKEW_MAX, Span, State, Timestamp, Verdict};

/// A number without rounding.
pub type Exact = Ratio<BigInt>;

/// Something that answers as a limit does, and remembers by itself.
pub trait Model {
    fn decide(&mut self, now: Timestamp, operation: Operation) -> Decision;
}

/// Histories start so late that a clock can be set back by an hour many times over.
pub const START: Timestamp = Timestamp::from_secs(1_000_000_000);

pub const ALLOW: Verdict = Verdict::Allow { delay: Span::ZERO };

/// When a call comes, seen from the latest call so far.
#[derive(Clone, Copy, Debug)]
pub enum Gap {
    /// So many ticks later.
    Ticks(u64),
    /// So many thousandths of the limit's own time later.
    Thousandths(u64),
    /// So many ticks earlier, as from a thread that read the clock before the others.
    Late(u64),
}

/// What a call asks for.
#[derive(Clone, Copy, Debug)]
pub enum Ask {
    Take(u64),
    Peek(u64),
    Debit(u64),
    /// Gives back one of the charges so far, each at most once.
    Refund(usize),
}

pub type Call = (Gap, Ask);

/// A limit with its state, driven through a history.
pub struct Driver {
    pub limit: Limit,
    pub state: Option<State>,
    /// The latest time of any call.
    pub latest: Timestamp,
    /// Whether there was any call. Without one, none can be late.
    called: bool,
    scale: Span,
    charges: Vec<(Timestamp, u64)>,
}

impl Driver {
    /// A driver of a full limit. The scale is the limit's own time, by which gaps are measured.
    pub fn new(limit: impl Into<Limit>, scale: Span) -> Self {
        let (limit, charges) = (limit.into(), Vec::new());
        Self { limit, state: None, latest: START, called: false, scale, charges }
    }

    /// Turns a random call into one at a time.
    pub fn resolve(&mut self, (gap, ask): Call) -> (Timestamp, Operation) {
        let now = match gap {
            Gap::Ticks(ticks) => self.latest.plus(Span::from_micros(ticks)),
            Gap::Thousandths(parts) => {
                let micros = u128::from(self.scale.as_micros()) * u128::from(parts) / 1_000;
                self.latest.plus(Span::from_micros(u64::try_from(micros).unwrap()))
            }
            Gap::Late(ticks) if self.called => self.latest.minus(Span::from_micros(ticks)),
            Gap::Late(_) => self.latest,
        };
        self.called = true;
        self.latest = self.latest.max(now);
        let operation = match ask {
            Ask::Take(cost) => Operation::Take { cost },
            Ask::Peek(cost) => Operation::Peek { cost },
            Ask::Debit(cost) => Operation::Debit { cost },
            Ask::Refund(_) if self.charges.is_empty() => {
                Operation::Refund { cost: 1, taken_at: now }
            }
            Ask::Refund(which) => {
                let (taken_at, cost) = self.charges.swap_remove(which % self.charges.len());
                Operation::Refund { cost, taken_at }
            }
        };
        (now, operation)
    }

    /// Decides, keeps the state that follows, and remembers what was charged.
    pub fn decide(&mut self, now: Timestamp, operation: Operation) -> Decision {
        let (decision, next) = self.limit.decide(self.state.take(), now, operation);
        self.state = next;
        if let Operation::Take { cost } | Operation::Debit { cost } = operation
            && decision.is_allowed()
        {
            self.charges.push((now, cost));
        }
        decision
    }

    pub fn call(&mut self, call: Call) -> (Timestamp, Operation, Decision) {
        let (now, operation) = self.resolve(call);
        (now, operation, self.decide(now, operation))
    }

    /// What a take of `cost` at `now` would be answered with, leaving everything as it is.
    pub fn look(&self, now: Timestamp, cost: u64) -> Decision {
        self.limit.decide(self.state.clone(), now, Operation::Take { cost }).0
    }
}

/// Checks that a limit and its model give the same answers to the same calls.
pub fn agrees(
    mut driver: Driver,
    mut model: impl Model,
    calls: &[Call],
) -> Result<(), TestCaseError> {
    for &call in calls {
        let (now, operation, decision) = driver.call(call);
        let expected = model.decide(now, operation);
        prop_assert_eq!(decision, expected, "{:?} at {:?}", operation, now);
        prop_assert_eq!(driver.state.is_none(), decision.reset_after.is_zero());
    }
    Ok(())
}

/// So many random cases. Failing ones are printed and not written beside the sources.
pub fn cases(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Random calls with every operation, forward in time and late by no more than is allowed.
pub fn calls(capacity: u64) -> impl Strategy<Value = Vec<Call>> {
    let ask = prop_oneof![
        6 => cost(capacity).prop_map(Ask::Take),
        1 => cost(capacity).prop_map(Ask::Peek),
        1 => cost(capacity).prop_map(Ask::Debit),
        2 => any::<usize>().prop_map(Ask::Refund),
    ];
    let late = (0..=SKEW_MAX.as_micros()).prop_map(Gap::Late);
    let gap = prop_oneof![6 => forward(), 1 => late];
    prop::collection::vec((gap, ask), 1..40)
}

/// Random takes that spend, forward in time and late by no more than is allowed.
///
/// Calls that spend nothing are left out: they may find that a key is full and forget it, and with it
/// what time it was.
pub fn takes(capacity: u64) -> impl Strategy<Value = Vec<Call>> {
    let late = (0..=SKEW_MAX.as_micros()).prop_map(Gap::Late);
    let gap = prop_oneof![4 => forward(), 1 => late];
    let cost = prop_oneof![3 => 1..=capacity.div_ceil(4), 1 => 1..=capacity];
    prop::collection::vec((gap, cost.prop_map(Ask::Take)), 1..60)
}

/// A time between two calls: none, a few ticks, a part of the limit's own time, or an age.
pub fn forward() -> impl Strategy<Value = Gap> {
    prop_oneof![
        3 => Just(Gap::Ticks(0)),
        1 => (0..5_u64).prop_map(Gap::Ticks),
        4 => (0..1_000_u64).prop_map(Gap::Thousandths),
        1 => (0..4_000_u64).prop_map(Gap::Thousandths),
        1 => Just(Gap::Ticks(1_000_000_000_000_000)),
    ]
}

/// A cost: mostly small, sometimes all there is or a little more.
pub fn cost(capacity: u64) -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..=capacity.div_ceil(4),
        2 => 0..=capacity,
        1 => capacity..=capacity + 2,
    ]
}

/// A period: one that people use, or any.
pub fn period() -> impl Strategy<Value = Span> {
    prop_oneof![
        Just(Span::from_millis(1)),
        Just(Span::SECOND),
        Just(Span::MINUTE),
        Just(Span::HOUR),
        Just(Span::DAY),
        (1..10_000_u64).prop_map(Span::from_micros),
        (1..100_000_000_000_u64).prop_map(Span::from_micros),
    ]
}

/// Whole microseconds of an exact time, rounded up.
pub fn ticks_up(time: &Exact) -> Span {
    Span::from_micros(u64::try_from(time.ceil().to_integer()).expect("a time not before now"))
}

pub fn exact(number: u64) -> Exact {
    Exact::from(BigInt::from(number))
}
