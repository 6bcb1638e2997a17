//! Claims about the concurrency limit, against a model that keeps every lease there ever was.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::HashSet;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use tidegate_core::concurrency::Leases;
use tidegate_core::{Concurrency, LeaseId, Operation, Rate, SKEW_MAX, Span, Timestamp, Verdict};

/// Every lease there ever was, and the definition applied to all of them each time.
struct Model {
    limit: u128,
    expires_after: u128,
    leases: Vec<Lease>,
}

struct Lease {
    /// `None` for what a debit holds beyond the most leases that are kept.
    id: Option<LeaseId>,
    taken_at: u128,
    /// What is still held; a release leaves nothing.
    cost: u128,
}

impl Model {
    fn new(limit: Concurrency) -> Self {
        let expires_after = limit.expires_after().as_micros().into();
        Self { limit: limit.limit().into(), expires_after, leases: Vec::new() }
    }

    fn live(&self, now: u128) -> impl Iterator<Item = &Lease> {
        let lives = move |lease: &&Lease| {
            lease.cost > 0 && lease.taken_at <= now && now < lease.taken_at + self.expires_after
        };
        self.leases.iter().filter(lives)
    }

    fn held(&self, now: u128) -> u128 {
        self.live(now).map(|lease| lease.cost).sum()
    }

    fn verdict(&self, now: u128, cost: u64) -> Verdict {
        let fits = |time: &u128| self.held(*time) + u128::from(cost) <= self.limit;
        if u128::from(cost) > self.limit {
            return Verdict::NeverFits;
        }
        if fits(&now) {
            return Verdict::Allow { delay: Span::ZERO };
        }
        let expiries = self.live(now).map(|lease| lease.taken_at + self.expires_after);
        Verdict::Deny { retry_after: span(expiries.filter(fits).min().unwrap() - now) }
    }

    /// What is answered; `id` is the lease that the limit gave, if it gave one.
    fn apply(&mut self, now: u128, operation: Operation, id: Option<LeaseId>) -> Answer {
        let mut verdict = Verdict::Allow { delay: Span::ZERO };
        let (mut gives_lease, mut renewed) = (false, false);
        match operation {
            Operation::Take { cost } => {
                verdict = self.verdict(now, cost);
                gives_lease = cost > 0 && matches!(verdict, Verdict::Allow { .. });
            }
            Operation::Peek { cost } => verdict = self.verdict(now, cost),
            Operation::Debit { cost } => {
                let named = self.live(now).filter(|lease| lease.id.is_some()).count() as u128;
                gives_lease = cost > 0 && named < self.limit;
                if cost > 0 && !gives_lease {
                    self.hold_unnamed(now, cost.into());
                }
            }
            Operation::Refund { cost, taken_at } => self.refund(now, cost, taken_at),
            Operation::Release { lease: id } => {
                for lease in self.leases.iter_mut().filter(|lease| lease.id == Some(id)) {
                    lease.cost = 0;
                }
            }
            Operation::Renew { lease: id } => renewed = self.renew(now, id),
        }
        if gives_lease {
            self.leases.push(Lease { id, taken_at: now, cost: operation.cost().into() });
        }
        let remaining = self.limit.saturating_sub(self.held(now));
        let expiries = self.live(now).map(|lease| lease.taken_at + self.expires_after);
        let reset_after = span(expiries.max().unwrap_or(now) - now);
        let gives_lease = gives_lease || renewed;
        Answer { verdict, remaining: remaining.try_into().unwrap(), reset_after, gives_lease }
    }

    /// The bound on memory, as the documentation states it: what is beyond it has no name and
    /// counts from the latest of it on.
    fn hold_unnamed(&mut self, now: u128, cost: u128) {
        let expires_after = self.expires_after;
        let lives = |lease: &&mut Lease| lease.id.is_none() && now < lease.taken_at + expires_after;
        self.leases.iter_mut().filter(lives).for_each(|lease| lease.taken_at = now);
        self.leases.push(Lease { id: None, taken_at: now, cost });
    }

    /// It counts as the newest from now on.
    fn renew(&mut self, now: u128, id: LeaseId) -> bool {
        let Some(index) = self.leases.iter().position(|lease| {
            let lives = lease.cost > 0 && now < lease.taken_at + self.expires_after;
            lives && lease.id == Some(id)
        }) else {
            return false;
        };
        let lease = self.leases.remove(index);
        self.leases.push(Lease { taken_at: now, ..lease });
        true
    }

    fn refund(&mut self, now: u128, cost: u64, taken_at: Timestamp) {
        let taken_at = u128::from(taken_at.as_micros()).min(now);
        let mut back = u128::from(cost);
        for lease in self.leases.iter_mut().rev() {
            let lives = lease.taken_at == taken_at && now < taken_at + self.expires_after;
            if lives && lease.id.is_some() {
                let part = back.min(lease.cost);
                (lease.cost, back) = (lease.cost - part, back - part);
            }
        }
    }
}

struct Answer {
    verdict: Verdict,
    remaining: u64,
    reset_after: Span,
    gives_lease: bool,
}

fn span(micros: u128) -> Span {
    Span::from_micros(micros.try_into().unwrap())
}

/// How the clock moves between two calls.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ticks(u64),
    /// So many sevenths of the time to expiry, and so many ticks more.
    Sevenths(u64, u64),
    Years(u64),
    /// A thread that comes late.
    Late(u64),
    /// A clock that is set back.
    Back(Span),
}

impl Step {
    fn from(self, now: Timestamp, limit: Concurrency) -> Timestamp {
        let on = |micros| now.plus(Span::from_micros(micros));
        match self {
            Self::Ticks(ticks) => on(ticks),
            Self::Sevenths(sevenths, ticks) => {
                on(limit.expires_after().as_micros() * sevenths / 7 + ticks)
            }
            Self::Years(years) => on(years * 366 * Span::DAY.as_micros()),
            Self::Late(micros) => now.minus(Span::from_micros(micros)),
            Self::Back(span) => now.minus(span),
        }
    }
}

fn forward() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..3_u64).prop_map(Step::Ticks),
        5 => (0..9_u64, 0..2_u64).prop_map(|(sevenths, ticks)| Step::Sevenths(sevenths, ticks)),
        1 => (1..30_u64).prop_map(Step::Years),
    ]
}

fn late() -> impl Strategy<Value = Step> {
    (0..=SKEW_MAX.as_micros()).prop_map(Step::Late)
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![6 => forward(), 2 => late(), 1 => Just(Step::Back(Span::HOUR))]
}

/// An operation; a refund names the time of an earlier call by its place in the row, and a release
/// names a lease by its place among all that were given.
#[derive(Clone, Copy, Debug)]
enum Call {
    Plain(Operation),
    Refund(u64, Index),
    Release(Index),
    Renew(Index),
}

/// What calls are made against: the state, the times of all calls and all leases given so far.
struct Run {
    limit: Concurrency,
    leases: Option<Leases>,
    times: Vec<Timestamp>,
    given: Vec<LeaseId>,
}

impl Run {
    fn new(limit: Concurrency) -> Self {
        Self { limit, leases: None, times: Vec::new(), given: vec![LeaseId::from_u64(1).unwrap()] }
    }

    /// The state and time after a row of calls from noon on the first day.
    fn row(limit: Concurrency, row: &[(Step, Call)]) -> (Option<Leases>, Timestamp) {
        let mut run = Self::new(limit);
        let mut now = Timestamp::from_secs(43_200);
        for &(step, call) in row {
            now = step.from(now, limit);
            let _ = run.call(now, call);
        }
        (run.leases, now)
    }

    fn call(&mut self, now: Timestamp, call: Call) -> (Operation, tidegate_core::Decision) {
        self.times.push(now);
        let operation = match call {
            Call::Plain(operation) => operation,
            Call::Refund(cost, index) => {
                Operation::Refund { cost, taken_at: *index.get(&self.times) }
            }
            Call::Release(index) => Operation::Release { lease: *index.get(&self.given) },
            Call::Renew(index) => Operation::Renew { lease: *index.get(&self.given) },
        };
        let (decision, next) = self.limit.decide(self.leases.take(), now, operation);
        self.leases = next;
        self.given.extend(decision.lease.filter(|_| !matches!(call, Call::Renew(_))));
        (operation, decision)
    }
}

fn any_call() -> impl Strategy<Value = Call> {
    let plain = prop_oneof![
        6 => Just(Operation::Take { cost: 1 }),
        3 => (0..9_u64).prop_map(|cost| Operation::Take { cost }),
        1 => (0..9_u64).prop_map(|cost| Operation::Peek { cost }),
        3 => (0..9_u64).prop_map(|cost| Operation::Debit { cost }),
    ];
    prop_oneof![
        5 => plain.prop_map(Call::Plain),
        1 => (0..9_u64, any::<Index>()).prop_map(|(cost, index)| Call::Refund(cost, index)),
        2 => any::<Index>().prop_map(Call::Release),
        2 => any::<Index>().prop_map(Call::Renew),
    ]
}

fn limits() -> impl Strategy<Value = Concurrency> {
    let expiries = select(vec![1, 7, 50, 5_000, 1_000_000, 60_000_000]);
    (1..9_u64, expiries).prop_map(|(limit, expiry)| self::limit(limit, Span::from_micros(expiry)))
}

fn limit(limit: u64, expires_after: Span) -> Concurrency {
    Concurrency::new(limit, expires_after).unwrap()
}

fn remaining(limit: Concurrency, leases: Option<&Leases>, now: Timestamp) -> u64 {
    limit.decide(leases.cloned(), now, Operation::Peek { cost: 0 }).0.remaining
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_answer_is_the_models(limit in limits(), row in vec((forward(), any_call()), 1..60)) {
        let (mut model, mut run, mut now) = (Model::new(limit), Run::new(limit), Timestamp::ZERO);
        for (step, call) in row {
            now = step.from(now, limit);
            let (operation, decision) = run.call(now, call);
            let answer = model.apply(now.as_micros().into(), operation, decision.lease);
            prop_assert_eq!(decision.verdict, answer.verdict);
            prop_assert_eq!(decision.remaining, answer.remaining);
            prop_assert_eq!(decision.reset_after, answer.reset_after);
            prop_assert_eq!(decision.lease.is_some(), answer.gives_lease);
            prop_assert_eq!(run.leases.is_none(), answer.reset_after.is_zero());
            let kept = run.leases.as_ref().map_or(0, Leases::lease_count);
            prop_assert!(kept <= limit.limit(), "bounded");
        }
    }

    /// While the state lives. One that is dropped begins again with the clock, which here always
    /// moves on by a tick or more.
    #[test]
    fn no_lease_is_given_twice(
        limit in limits(),
        row in vec((forward(), any_call()), 1..60),
    ) {
        let (mut run, mut now) = (Run::new(limit), Timestamp::from_secs(1));
        for (step, call) in row {
            now = step.from(now, limit).plus(Span::TICK);
            let _ = run.call(now, call);
        }
        let distinct: HashSet<_> = run.given.iter().collect();
        prop_assert_eq!(distinct.len(), run.given.len());
        prop_assert!(run.given.is_sorted());
    }

    #[test]
    fn waiting_as_long_as_a_denial_says_is_enough(
        limit in limits(),
        row in vec((any_step(), any_call()), 1..40),
        cost in 0..9_u64,
    ) {
        let (leases, now) = Run::row(limit, &row);
        let take = Operation::Take { cost };
        let (decision, leases) = limit.decide(leases, now, take);
        if let Verdict::Deny { retry_after } = decision.verdict {
            prop_assert!(limit.decide(leases, now.plus(retry_after), take).0.is_allowed());
        }
    }

    #[test]
    fn a_take_that_is_refunded_or_released_at_once_leaves_no_trace(
        limit in limits(),
        row in vec((forward(), any_call()), 0..40),
        cost in 1..9_u64,
        released in any::<bool>(),
    ) {
        let (leases, now) = Run::row(limit, &row);
        let before = remaining(limit, leases.as_ref(), now);
        let (taken, leases) = limit.decide(leases, now, Operation::Take { cost });
        let Some(lease) = taken.lease else { return Ok(()) };
        let release = Operation::Release { lease };
        let back = if released { release } else { Operation::Refund { cost, taken_at: now } };
        let (given_back, leases) = limit.decide(leases, now, back);
        prop_assert_eq!(given_back.remaining, before);
        let (again, leases) = limit.decide(leases, now, release);
        prop_assert_eq!(again.remaining, before, "a lease is given back once");
        let all = Operation::Refund { cost: u64::MAX, taken_at: now };
        prop_assert!(limit.decide(leases, now, all).0.remaining <= limit.limit(), "never above full");
    }

    #[test]
    fn a_clock_set_back_frees_no_place_and_locks_nobody_out(
        limit in limits(),
        row in vec((any_step(), any_call()), 1..40),
        back in prop_oneof![late(), Just(Step::Back(Span::HOUR)), Just(Step::Back(Span::MAX))],
        looks in subsequence((1..9).collect::<Vec<u64>>(), 0..=8),
    ) {
        let (mut leases, now) = Run::row(limit, &row);
        let before = remaining(limit, leases.as_ref(), now);
        let set_back = back.from(now, limit);
        prop_assert!(remaining(limit, leases.as_ref(), set_back) <= before);
        let bound = limit.expires_after().plus(SKEW_MAX);
        let ninth = bound.as_micros() / 9;
        (_, leases) = limit.decide(leases, set_back, Operation::Peek { cost: 1 });
        for ninths in looks {
            let look = set_back.plus(Span::from_micros(ninth * ninths));
            (_, leases) = limit.decide(leases, look, Operation::Peek { cost: 1 });
        }
        let all = Operation::Take { cost: limit.limit() };
        prop_assert!(limit.decide(leases, set_back.plus(bound), all).0.is_allowed());
    }

    #[test]
    fn a_changed_limit_meets_the_leases_that_are_there(
        (old, places) in (limits(), 1..9_u64),
        row in vec((forward(), any_call()), 1..40),
    ) {
        let (leases, now) = Run::row(old, &row);
        let roomy = limit(Concurrency::LIMIT_MAX, old.expires_after());
        let held = Concurrency::LIMIT_MAX - remaining(roomy, leases.as_ref(), now);
        let new = limit(places, old.expires_after());
        prop_assert_eq!(remaining(new, leases.as_ref(), now), places.saturating_sub(held));
    }

    #[test]
    fn leases_that_are_written_and_read_back_are_the_same(
        limit in limits(),
        row in vec((any_step(), any_call()), 1..60),
    ) {
        if let (Some(leases), _) = Run::row(limit, &row) {
            let mut bytes = Vec::new();
            leases.encode(&mut bytes);
            prop_assert_eq!(Leases::decode(&bytes), Some(leases));
        }
    }

    #[test]
    fn nothing_panics_whatever_the_numbers_and_bytes(
        places in prop_oneof![1..9_u64, 1..=Concurrency::LIMIT_MAX],
        expiry in prop_oneof![1..9_u64, 1..=Rate::PERIOD_MAX.as_micros()],
        bytes in bytes(),
        row in vec((any::<u64>(), extreme(), extreme(), 0..7), 0..30),
    ) {
        let limit = limit(places, Span::from_micros(expiry));
        let mut leases = Leases::decode(&bytes);
        let mut last = LeaseId::from_u64(1).unwrap();
        for (now, cost, number, kind) in row {
            let now = Timestamp::from_micros(now >> (cost % 64));
            let operation = match kind {
                0 => Operation::Take { cost },
                1 => Operation::Peek { cost },
                2 | 3 => Operation::Debit { cost },
                4 => Operation::Refund { cost, taken_at: Timestamp::from_micros(number) },
                5 => Operation::Release { lease: LeaseId::from_u64(number).unwrap_or(last) },
                _ => Operation::Renew { lease: LeaseId::from_u64(number).unwrap_or(last) },
            };
            let (decision, next) = limit.decide(leases, now, operation);
            prop_assert!(decision.remaining <= decision.limit);
            prop_assert_eq!(next.is_none(), decision.reset_after.is_zero());
            (leases, last) = (next, decision.lease.unwrap_or(last));
        }
    }
}

/// Anything, and what are leases more often than not: the first number bounds all of theirs.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let last_id = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40];
    let leases = vec(1..0x80_u8, 2..60).prop_map(move |rest| [&last_id[..], &rest].concat());
    prop_oneof![vec(any::<u8>(), 0..60), leases]
}

fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![0..9_u64, any::<u64>(), select(vec![1 << 20, 1 << 40, 1 << 63, u64::MAX])]
}

#[test]
fn a_flood_of_debits_keeps_no_more_leases_than_the_limit() {
    let limit = limit(100, Span::HOUR);
    let mut leases = None;
    for call in 0..10_000 {
        let now = Timestamp::from_micros(call);
        (_, leases) = limit.decide(leases, now, Operation::Debit { cost: u64::MAX });
    }
    assert_eq!(leases.as_ref().map(Leases::lease_count), Some(100));
    let later = Timestamp::from_secs(3_601);
    assert!(limit.decide(leases, later, Operation::Take { cost: 100 }).0.is_allowed());
}

#[test]
fn memory_is_given_back_once_most_leases_are_gone() {
    let limit = limit(10_000, Span::HOUR);
    let (mut leases, mut given) = (None, Vec::new());
    for _ in 0..10_000 {
        let (decision, next) = limit.decide(leases, Timestamp::ZERO, Operation::Take { cost: 1 });
        leases = next;
        given.extend(decision.lease);
    }
    for lease in given.into_iter().skip(10) {
        (_, leases) = limit.decide(leases, Timestamp::ZERO, Operation::Release { lease });
    }
    assert!(leases.unwrap().heap_bytes() < 2_000);
}
