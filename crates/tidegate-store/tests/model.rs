//! The table against a plain model of it: a map from keys to states, and the one function of the
//! core. Whatever packing, spilling, locking and batching there is, every decision is the same.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

mod support;

use std::collections::HashMap;

use proptest::prelude::*;
use support::{
    START, bucket, key, later, left, log, one, one_of_each, peek, places, rate, sliding, take,
    takes, window,
};
use tidegate_core::{
    Decision, Key, LeakyBucket, LeaseId, Limit, Operation, SKEW_MAX, SlidingSlots, Span, State,
    SteppedBucket, Timestamp,
};
use tidegate_store::{Answers, Charge, Request, StoreError, Table, TableConfig};

const CONFIG: TableConfig =
    TableConfig { entry_bytes: TableConfig::ENTRY_BYTES_MIN, wide_bytes: 64 << 20 };

/// For how many seconds the latest moment is kept.
const RECENT: u64 = 4;

/// What the table is to behave like.
#[derive(Default)]
struct Model {
    states: HashMap<Key, State>,
    /// When a key was full and gone: the furthest such moment, and the latest of a second. A late call
    /// starts no earlier than that.
    furthest: HashMap<Key, Timestamp>,
    recent: HashMap<(Key, u64), Timestamp>,
}

impl Model {
    fn decide(&mut self, request: &Request<'_>) -> Vec<Decision> {
        let fits = request.charges.len() == 1
            || request.charges.iter().all(|charge| self.fits(charge, request.now));
        let mut decisions = Vec::new();
        for charge in request.charges {
            let operation = match charge.operation {
                Operation::Take { cost } if !fits => peek(cost),
                other => other,
            };
            let (decision, next) = self.run(charge, request.now, operation);
            decisions.push(decision);
            self.keep(charge, next, request.now);
        }
        decisions
    }

    /// Whether a take would go through. Looking at a wide state leaves out what has expired, so that
    /// the key may be full from then on, and the numbers of its leases begin anew.
    fn fits(&mut self, charge: &Charge<'_>, now: Timestamp) -> bool {
        let Operation::Take { cost } = charge.operation else { return true };
        let (decision, next) = self.run(charge, now, peek(cost));
        if let Limit::SlidingSlots(_) | Limit::SlidingLog(_) | Limit::Concurrency(_) = charge.limit
        {
            self.keep(charge, next, now);
        }
        decision.is_allowed()
    }

    fn run(
        &self,
        charge: &Charge<'_>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<State>) {
        let state = self.states.get(&charge.key).cloned();
        charge.limit.decide(state, self.starts_at(charge.key, now), operation)
    }

    /// A state that time has emptied stays in its entry, where a late call finds it; one that a
    /// refund has emptied is gone, and its key was full at that moment.
    fn keep(&mut self, charge: &Charge<'_>, next: Option<State>, now: Timestamp) {
        if let Some(state) = next {
            self.states.insert(charge.key, state);
            return;
        }
        let Some(old) = self.states.get(&charge.key) else { return };
        if entry_full_at(charge.limit, old).is_some_and(|full_at| full_at <= now) {
            return;
        }
        self.states.remove(&charge.key);
        let furthest = self.furthest.entry(charge.key).or_default();
        *furthest = now.max(*furthest);
        let recent = self.recent.entry((charge.key, second_of(now) % RECENT)).or_default();
        *recent = if second_of(*recent) == second_of(now) { now.max(*recent) } else { now };
    }

    fn starts_at(&self, key: Key, now: Timestamp) -> Timestamp {
        if self.states.contains_key(&key) {
            return now;
        }
        let latest = now.plus(SKEW_MAX);
        let furthest = self.furthest.get(&key).filter(|&&moment| moment <= latest);
        let recent = (0..RECENT).filter_map(|place| self.recent.get(&(key, place)));
        let recent = recent.filter(|&&moment| second_of(moment) <= second_of(latest));
        let moments = recent.map(|&moment| moment.min(latest)).chain(furthest.copied());
        moments.fold(now, Timestamp::max)
    }

    fn forget(&mut self, key: Key) {
        self.states.remove(&key);
    }
}

fn second_of(at: Timestamp) -> u64 {
    at.as_micros() / SKEW_MAX.as_micros()
}

/// When the entry of a state is full; `None` for a state that is in no entry.
fn entry_full_at(limit: &Limit, state: &State) -> Option<Timestamp> {
    let whole = |time: Timestamp| time.as_micros().is_multiple_of(1_000_000);
    match state {
        State::Bucket(bucket) => Some(Timestamp::from_micros(bucket.full_at_micros)),
        State::Steps(steps) => Some(steps.full_at),
        State::Window(window) => {
            let bits = if whole(window.ends_at) { 44 } else { 24 };
            (window.count >> bits == 0).then_some(window.ends_at)
        }
        State::Counters(counters) => {
            let tail = if counters.current > 0 { limit.period() } else { Span::ZERO };
            let full_at = counters.ends_at.plus(tail);
            let bits = if whole(full_at) { 22 } else { 12 };
            ((counters.previous | counters.current) >> bits == 0).then_some(full_at)
        }
        State::Slots(_) | State::Log(_) | State::Leases(_) => None,
    }
}

/// Limits of every algorithm, small and large: the last of them have states that spill.
fn limits() -> Vec<Limit> {
    let mut limits = one_of_each(3).to_vec();
    limits.extend([
        bucket(7, Span::SECOND, 20),
        bucket(1, Span::SECOND, 1 << 40),
        LeakyBucket::new(rate(3, Span::MINUTE), 1 << 35).unwrap().into(),
        SteppedBucket::new(rate(5, Span::SECOND), 1 << 40).unwrap().into(),
        SteppedBucket::new(rate(1 << 24, Span::from_millis(1)), 1 << 25).unwrap().into(),
        window(1 << 44, Span::SECOND),
        window(1 << 24, Span::from_micros(300_001)),
        sliding(10_000, Span::from_micros(700_001)),
        sliding(1 << 40, Span::SECOND),
        sliding(1 << 22, Span::from_secs(3)),
        SlidingSlots::new(rate(1 << 40, Span::SECOND), 4, Some(1 << 39)).unwrap().into(),
        log(40, Span::SECOND),
        places(5, Span::from_millis(1_500)),
    ]);
    limits
}

/// The key that a limit is counted under. Each has a shard and a stripe of its own, so that what one
/// is given by a late call is not put off by when another was full.
fn key_of(limit: usize) -> Key {
    let limit = limit as u128;
    let noise = key(99).as_hash() & !(0x3F << 58 | 0xFF << 77);
    Key::from_hash(noise | limit << 58 | limit << 77)
}

#[derive(Clone, Debug)]
enum Step {
    Requests(Vec<(u64, Vec<(usize, Asked)>)>),
    ClockBack(u64),
    Forget(usize),
}

#[derive(Clone, Debug)]
enum Asked {
    Take(u64),
    Peek(u64),
    Debit(u64),
    Refund(u64, u64),
    Release,
    Renew,
}

fn any_cost() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0_u64..4,
        3 => 0_u64..6_000,
        3 => (0_u32..45, 0_u64..3).prop_map(|(bits, more)| (1 << bits) + more),
        1 => Just(u64::MAX),
    ]
}

fn any_wait() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0),
        2 => 1_u64..1_000,
        3 => 1_u64..3_000_000,
        1 => 1_u64..20_000_000_000,
        // Where quotas are full at the very moment at which they are asked for.
        2 => prop::sample::select(vec![500, 1_000, 500_000, 1_000_000, 60_000_000]),
    ]
}

fn any_asked() -> impl Strategy<Value = Asked> {
    prop_oneof![
        8 => any_cost().prop_map(Asked::Take),
        2 => any_cost().prop_map(Asked::Peek),
        1 => any_cost().prop_map(Asked::Debit),
        2 => (any_cost(), any_wait()).prop_map(|(cost, ago)| Asked::Refund(cost, ago)),
        1 => Just(Asked::Release),
        1 => Just(Asked::Renew),
    ]
}

fn any_request(limits: usize) -> impl Strategy<Value = (u64, Vec<(usize, Asked)>)> {
    let charges = prop_oneof![
        3 => prop::collection::vec((0..limits, any_asked()), 1..2),
        2 => prop::collection::vec((0..limits, any_asked()), 2..5),
    ];
    (any_wait(), charges)
}

fn any_step(limits: usize) -> impl Strategy<Value = Step> {
    let requests = prop::collection::vec(any_request(limits), 1..4).prop_map(Step::Requests);
    prop_oneof![
        30 => requests,
        2 => (1_u64..1_000_000).prop_map(Step::ClockBack),
        1 => (1_u64..4_000_000_000).prop_map(Step::ClockBack),
        1 => (0..limits).prop_map(Step::Forget),
    ]
}

/// Runs the steps through both, and holds the answers beside each other.
struct Comparison {
    table: Table,
    model: Model,
    limits: Vec<Limit>,
    leases: HashMap<Key, LeaseId>,
    now: Timestamp,
}

impl Comparison {
    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match step {
            Step::ClockBack(micros) => self.now = self.now.minus(Span::from_micros(*micros)),
            Step::Forget(limit) => {
                self.table.forget(key_of(*limit));
                self.model.forget(key_of(*limit));
            }
            Step::Requests(requests) => self.compare(requests)?,
        }
        Ok(())
    }

    fn compare(&mut self, requests: &[(u64, Vec<(usize, Asked)>)]) -> Result<(), TestCaseError> {
        let limits = std::mem::take(&mut self.limits);
        let mut times = Vec::new();
        let mut charges = Vec::new();
        for (wait, asked) in requests {
            self.now = later(self.now, *wait);
            times.push(self.now);
            charges.push(
                asked
                    .iter()
                    .map(|(limit, asked)| Charge {
                        limit: &limits[*limit],
                        key: key_of(*limit),
                        operation: self.operation(key_of(*limit), asked),
                    })
                    .collect::<Vec<_>>(),
            );
        }
        let batch: Vec<_> =
            times.iter().zip(&charges).map(|(&now, charges)| Request { now, charges }).collect();
        let mut answers = Answers::new();
        self.table.decide_many(&batch, &mut answers);
        prop_assert_eq!(answers.len(), batch.len());
        for (request, answer) in batch.iter().zip(answers.iter()) {
            if names_a_key_twice(request) {
                prop_assert_eq!(answer.unwrap_err(), StoreError::RepeatedKey);
                continue;
            }
            let expected = self.model.decide(request);
            prop_assert_eq!(answer.unwrap(), &expected[..], "{:?}", request);
            for (charge, decision) in request.charges.iter().zip(&expected) {
                self.leases.extend(decision.lease.map(|lease| (charge.key, lease)));
            }
        }
        self.limits = limits;
        Ok(())
    }

    fn operation(&self, key: Key, asked: &Asked) -> Operation {
        match *asked {
            Asked::Take(cost) => take(cost),
            Asked::Peek(cost) => peek(cost),
            Asked::Debit(cost) => Operation::Debit { cost },
            Asked::Refund(cost, ago) => {
                Operation::Refund { cost, taken_at: self.now.minus(Span::from_micros(ago)) }
            }
            Asked::Release => Operation::Release { lease: self.lease(key) },
            Asked::Renew => Operation::Renew { lease: self.lease(key) },
        }
    }

    /// The newest that was given of a key, or else one that is nobody's.
    fn lease(&self, key: Key) -> LeaseId {
        self.leases.get(&key).copied().or(LeaseId::from_u64(1)).unwrap()
    }
}

fn names_a_key_twice(request: &Request<'_>) -> bool {
    let mut keys: Vec<_> = request.charges.iter().map(|charge| charge.key).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn every_decision_is_that_of_a_map_of_states(
        steps in prop::collection::vec(any_step(limits().len()), 1..120),
    ) {
        let (table, model) = (support::table(CONFIG), Model::default());
        let (limits, leases) = (limits(), HashMap::new());
        let mut comparison = Comparison { table, model, limits, leases, now: START };
        for step in &steps {
            comparison.run(step)?;
        }
    }
}

/// One per second: of what is admitted up to 1.95 s, the second is only due at 1 s and a third at 2 s.
/// The call at 0.95 s comes late, after the key was seen full again by one whose clock said 1.9 s.
fn admits_two_by_1_95_seconds(limit: &Limit, look: impl Fn(&Table)) {
    let table = support::table(CONFIG);
    assert!(takes(&table, limit, key(1), START, 1));
    look(&table);
    let late = takes(&table, limit, key(1), later(START, 950_000), 1);
    let then = takes(&table, limit, key(1), later(START, 1_950_000), 1);
    assert!(!(late && then), "{}", limit.name());
}

#[test]
fn a_late_clock_gains_nothing_after_a_look_at_the_full_key() {
    for limit in [bucket(1, Span::SECOND, 1), log(1, Span::SECOND)] {
        admits_two_by_1_95_seconds(&limit, |table| {
            let _ = one(table, &limit, key(1), later(START, 1_900_000), peek(1));
        });
    }
}

#[test]
fn a_late_clock_gains_nothing_after_the_wide_structure_was_tidied_up() {
    let limit = log(1, Span::SECOND);
    admits_two_by_1_95_seconds(&limit, |table| {
        for number in 1_000..2_000 {
            assert!(takes(table, &limit, key(number), later(START, 1_900_000), 1));
        }
    });
}

#[test]
fn a_late_clock_gains_nothing_after_a_refund_that_made_the_key_full() {
    const NUMBER: u64 = 5;
    let table = support::table(CONFIG);
    let limit = window(NUMBER, Span::from_secs(10));
    let at = |millis: u64| later(START, millis * 1_000);
    assert!(takes(&table, &limit, key(1), at(9_900), NUMBER));
    assert!(takes(&table, &limit, key(1), at(10_100), 1));
    let refund = Operation::Refund { cost: 1, taken_at: at(10_100) };
    assert_eq!(one(&table, &limit, key(1), at(10_200), refund).remaining, NUMBER);
    // The first window is used up, so what a late call gets is of the second.
    assert!(takes(&table, &limit, key(1), at(9_950), NUMBER));
    assert!(!takes(&table, &limit, key(1), at(10_300), 1));
}

#[test]
fn keys_that_share_all_that_an_entry_knows_of_them_do_not_wait_for_each_other() {
    let table = support::table(CONFIG);
    let limit = bucket(1, Span::HOUR, 5);
    let charge = |hash| Charge { limit: &limit, key: Key::from_hash(hash), operation: take(1) };
    let charges = [charge(1), charge(2)];
    let mut decisions = Vec::new();
    let answer = table.decide(&Request { now: START, charges: &charges }, &mut decisions);
    assert_eq!(answer, Err(StoreError::RepeatedKey));
    assert!(decisions.is_empty());
    assert_eq!(left(&table, &limit, Key::from_hash(1), START), 5);
}

#[test]
fn a_request_under_too_many_limits_is_refused_and_charges_nothing() {
    let table = support::table(CONFIG);
    let limit = bucket(1, Span::HOUR, 5);
    let charge = |number| Charge { limit: &limit, key: key(number), operation: take(1) };
    let most = Request::CHARGES_MAX as u64;
    let charges: Vec<_> = (0..=most).map(charge).collect();
    let mut decisions = Vec::new();
    let request = Request { now: START, charges: &charges };
    assert_eq!(table.decide(&request, &mut decisions), Err(StoreError::TooManyCharges));
    assert_eq!(table.stats(START).keys, 0);
    let request = Request { now: START, charges: &charges[1..] };
    assert_eq!(table.decide(&request, &mut decisions), Ok(()));
    assert_eq!(table.stats(START).keys, most);
}

#[test]
fn a_request_under_no_limit_is_answered_with_nothing() {
    let table = support::table(CONFIG);
    let mut answers = Answers::new();
    table.decide_many(&[Request { now: START, charges: &[] }], &mut answers);
    assert_eq!(answers.iter().next(), Some(Ok(&[][..])));
}
