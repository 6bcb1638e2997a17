//! Claims about the sliding log, against a model that keeps the full history in 128-bit numbers.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use tidegate_core::sliding_log::Log;
use tidegate_core::{LeaseId, Operation, Rate, SKEW_MAX, SlidingLog, Span, Timestamp, Verdict};

/// Every charge there ever was, and the definition applied to all of them each time.
struct Model {
    count: u128,
    period: u128,
    charges: Vec<(u128, u128)>,
}

impl Model {
    fn new(limit: SlidingLog) -> Self {
        let rate = limit.rate();
        let (count, period) = (rate.count().into(), rate.period().as_micros().into());
        Self { count, period, charges: Vec::new() }
    }

    fn used(&self, now: u128) -> u128 {
        let counts = |&&(at, _): &&(u128, u128)| at <= now && now < at + self.period;
        self.charges.iter().filter(counts).map(|(_, cost)| cost).sum()
    }

    fn verdict(&self, now: u128, cost: u64) -> Verdict {
        let fits = |time: &u128| self.used(*time) + u128::from(cost) <= self.count;
        if u128::from(cost) > self.count {
            return Verdict::NeverFits;
        }
        if fits(&now) {
            return Verdict::Allow { delay: Span::ZERO };
        }
        let departures = self.charges.iter().map(|(at, _)| at + self.period);
        let retry_at = departures.filter(|time| *time > now).filter(fits).min().unwrap();
        Verdict::Deny { retry_after: span(retry_at - now) }
    }

    fn apply(&mut self, now: u128, operation: Operation) -> (Verdict, u64, Span) {
        let mut verdict = Verdict::Allow { delay: Span::ZERO };
        match operation {
            Operation::Take { cost } => {
                verdict = self.verdict(now, cost);
                if matches!(verdict, Verdict::Allow { .. }) {
                    self.charges.push((now, cost.into()));
                }
            }
            Operation::Peek { cost } => verdict = self.verdict(now, cost),
            Operation::Debit { cost } => self.charges.push((now, cost.into())),
            Operation::Refund { cost, taken_at } => self.refund(now, cost, taken_at),
            Operation::Release { .. } | Operation::Renew { .. } => {}
        }
        let remaining = self.count.saturating_sub(self.used(now));
        let counted = self.charges.iter().filter(|(_, cost)| *cost > 0);
        let reset_at = counted.map(|(at, _)| at + self.period).max().unwrap_or(0);
        (verdict, remaining.try_into().unwrap(), span(reset_at.saturating_sub(now)))
    }

    fn refund(&mut self, now: u128, cost: u64, taken_at: Timestamp) {
        let taken_at = u128::from(taken_at.as_micros()).min(now);
        let late = u128::from(SKEW_MAX.as_micros());
        // The first tick at which it can have been charged: then, or later by a call that came late.
        let counted = self.charges.iter().filter(|(at, cost)| *cost > 0 && now < at + self.period);
        let meant =
            counted.map(|(at, _)| *at).filter(|at| (taken_at..=taken_at + late).contains(at));
        let Some(tick) = meant.min().filter(|_| now < taken_at + self.period) else { return };
        let mut back = u128::from(cost);
        for (_, cost) in self.charges.iter_mut().filter(|(at, _)| *at == tick) {
            let part = back.min(*cost);
            (*cost, back) = (*cost - part, back - part);
        }
    }

    /// The bound on memory, as the documentation states it: of more than `count` entries, the
    /// oldest are merged into the ones that follow.
    fn bound(&mut self, now: u128) {
        loop {
            let counts = |&&(at, cost): &&(u128, u128)| cost > 0 && now < at + self.period;
            let mut ticks: Vec<u128> =
                self.charges.iter().filter(counts).map(|(at, _)| *at).collect();
            ticks.sort_unstable();
            ticks.dedup();
            if ticks.len() as u128 <= self.count {
                return;
            }
            for (at, _) in self.charges.iter_mut().filter(|(at, _)| *at == ticks[0]) {
                *at = ticks[1];
            }
        }
    }
}

fn span(micros: u128) -> Span {
    Span::from_micros(micros.try_into().unwrap())
}

/// How the clock moves between two calls.
#[derive(Clone, Copy, Debug)]
enum Step {
    Stay,
    Ticks(u64),
    /// So many sevenths of a period, and so many ticks more.
    Sevenths(u64, u64),
    Years(u64),
    /// A thread that comes late.
    Late(u64),
    /// A clock that is set back.
    Back(Span),
}

impl Step {
    fn from(self, now: Timestamp, limit: SlidingLog) -> Timestamp {
        let period = limit.rate().period().as_micros();
        let on = |micros| now.plus(Span::from_micros(micros));
        match self {
            Self::Stay => now,
            Self::Ticks(ticks) => on(ticks),
            Self::Sevenths(sevenths, ticks) => on(period * sevenths / 7 + ticks),
            Self::Years(years) => on(years * 366 * Span::DAY.as_micros()),
            Self::Late(micros) => now.minus(Span::from_micros(micros)),
            Self::Back(span) => now.minus(span),
        }
    }
}

fn forward() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Stay),
        3 => (1..4_u64).prop_map(Step::Ticks),
        4 => (0..9_u64, 0..2_u64).prop_map(|(sevenths, ticks)| Step::Sevenths(sevenths, ticks)),
        1 => (1..30_u64).prop_map(Step::Years),
    ]
}

fn late() -> impl Strategy<Value = Step> {
    (0..=SKEW_MAX.as_micros()).prop_map(Step::Late)
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![6 => forward(), 2 => late(), 1 => Just(Step::Back(Span::HOUR))]
}

/// An operation; a refund names the time of an earlier call by its place in the row.
#[derive(Clone, Copy, Debug)]
enum Call {
    Plain(Operation),
    Refund(u64, Index),
}

impl Call {
    fn operation(self, times: &[Timestamp]) -> Operation {
        match self {
            Self::Plain(operation) => operation,
            Self::Refund(cost, index) => Operation::Refund { cost, taken_at: *index.get(times) },
        }
    }
}

fn charge() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => Just(Operation::Take { cost: 1 }),
        3 => (0..9_u64).prop_map(|cost| Operation::Take { cost }),
        1 => (0..9_u64).prop_map(|cost| Operation::Peek { cost }),
        2 => (0..20_u64).prop_map(|cost| Operation::Debit { cost }),
        1 => Just(Operation::Release { lease: LeaseId::from_u64(1).unwrap() }),
    ]
    .prop_map(Call::Plain)
}

fn any_call() -> impl Strategy<Value = Call> {
    let refund = (0..9_u64, any::<Index>()).prop_map(|(cost, index)| Call::Refund(cost, index));
    prop_oneof![5 => charge(), 1 => refund]
}

fn limits() -> impl Strategy<Value = SlidingLog> {
    let periods = select(vec![1, 7, 50, 5_000, 1_000_000, 3_600_000_000]);
    (1..9_u64, periods).prop_map(|(count, period)| limit(count, Span::from_micros(period)))
}

fn limit(count: u64, period: Span) -> SlidingLog {
    SlidingLog::new(Rate::new(count, period).unwrap()).unwrap()
}

/// The state, time and past call times after a row of calls from noon on the first day.
fn run(limit: SlidingLog, row: &[(Step, Call)]) -> (Option<Log>, Timestamp) {
    let (mut log, mut now, mut times) = (None, Timestamp::from_secs(43_200), Vec::new());
    for &(step, call) in row {
        now = step.from(now, limit);
        times.push(now);
        (_, log) = limit.decide(log, now, call.operation(&times));
    }
    (log, now)
}

fn remaining(limit: SlidingLog, log: Option<&Log>, now: Timestamp) -> u64 {
    limit.decide(log.cloned(), now, Operation::Peek { cost: 0 }).0.remaining
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_answer_is_the_models(limit in limits(), row in vec((forward(), any_call()), 1..60)) {
        let mut model = Model::new(limit);
        let (mut log, mut now, mut times) = (None, Timestamp::ZERO, Vec::new());
        for (step, call) in row {
            now = step.from(now, limit);
            times.push(now);
            let operation = call.operation(&times);
            let (decision, next) = limit.decide(log, now, operation);
            let (verdict, remaining, reset_after) = model.apply(now.as_micros().into(), operation);
            model.bound(now.as_micros().into());
            prop_assert_eq!(decision.verdict, verdict);
            prop_assert_eq!(decision.remaining, remaining);
            prop_assert_eq!(decision.reset_after, reset_after);
            prop_assert_eq!(next.is_none(), reset_after.is_zero());
            prop_assert!(next.as_ref().is_none_or(|log| log.entry_count() <= limit.rate().count()));
            log = next;
        }
    }

    #[test]
    fn merging_old_entries_changes_no_answer_to_a_take(
        limit in limits(),
        row in vec((forward(), 1..9_u64, any::<bool>()), 1..60),
    ) {
        let (mut model, mut log, mut now) = (Model::new(limit), None, Timestamp::ZERO);
        for (step, cost, take) in row {
            now = step.from(now, limit);
            let operation = if take { Operation::Take { cost } } else { Operation::Debit { cost } };
            let (decision, next) = limit.decide(log, now, operation);
            let (verdict, remaining, reset_after) = model.apply(now.as_micros().into(), operation);
            prop_assert_eq!(decision.verdict, verdict);
            prop_assert_eq!((decision.remaining, decision.reset_after), (remaining, reset_after));
            log = next;
        }
    }

    #[test]
    fn a_denial_says_the_first_tick_at_which_the_same_call_succeeds(
        limit in limits(),
        row in vec((any_step(), any_call()), 1..40),
        cost in 0..9_u64,
    ) {
        let (log, now) = run(limit, &row);
        let take = Operation::Take { cost };
        let (decision, log) = limit.decide(log, now, take);
        if let Verdict::Deny { retry_after } = decision.verdict {
            let at = |span| limit.decide(log.clone(), now.plus(span), take).0.is_allowed();
            prop_assert!(at(retry_after));
            prop_assert!(!at(Span::from_micros(retry_after.as_micros() - 1)));
        }
    }

    /// A call that comes late counts at the time of the last call that changed the log. Only an
    /// absent log knows no time, so the call after that is never a late one here.
    #[test]
    fn no_window_admits_more_than_the_count(
        limit in limits(),
        row in vec((prop_oneof![4 => forward(), 1 => late()], 1..4_u64), 1..80),
    ) {
        let (mut log, mut latest) = (None, Timestamp::from_secs(9));
        let mut admitted: Vec<(Timestamp, u64)> = Vec::new();
        for (step, cost) in row {
            let now = step.from(latest, limit).max(if log.is_none() { latest } else { Timestamp::ZERO });
            let before = log.clone();
            let (decision, next) = limit.decide(log, now, Operation::Take { cost });
            if before != next {
                latest = latest.max(now);
            }
            if decision.is_allowed() {
                admitted.push((latest, cost));
            }
            log = next;
        }
        for (start, _) in &admitted {
            let end = start.plus(limit.rate().period());
            let inside = admitted.iter().filter(|(at, _)| at >= start && *at < end);
            prop_assert!(inside.map(|(_, cost)| cost).sum::<u64>() <= limit.rate().count());
        }
    }

    #[test]
    fn a_take_that_is_refunded_at_once_leaves_no_trace(
        limit in limits(),
        row in vec((forward(), any_call()), 0..40),
        cost in 1..9_u64,
    ) {
        let (log, now) = run(limit, &row);
        let before = remaining(limit, log.as_ref(), now);
        let (taken, log) = limit.decide(log, now, Operation::Take { cost });
        if !taken.is_allowed() {
            return Ok(());
        }
        let refund = Operation::Refund { cost, taken_at: now };
        let (refunded, log) = limit.decide(log, now, refund);
        prop_assert_eq!(refunded.remaining, before);
        let (again, _) = limit.decide(log, now, Operation::Refund { cost: u64::MAX, taken_at: now });
        prop_assert!(again.remaining <= limit.rate().count(), "never above full");
    }

    #[test]
    fn a_clock_set_back_gives_nothing_away_and_locks_nobody_out(
        limit in limits(),
        row in vec((any_step(), any_call()), 1..40),
        back in prop_oneof![late(), Just(Step::Back(Span::HOUR)), Just(Step::Back(Span::MAX))],
        looks in subsequence((1..9).collect::<Vec<u64>>(), 0..=8),
    ) {
        let (mut log, now) = run(limit, &row);
        let before = remaining(limit, log.as_ref(), now);
        let set_back = back.from(now, limit);
        prop_assert!(remaining(limit, log.as_ref(), set_back) <= before);
        let bound = limit.rate().period().plus(SKEW_MAX);
        let ninth = bound.as_micros() / 9;
        (_, log) = limit.decide(log, set_back, Operation::Peek { cost: 1 });
        for ninths in looks {
            let look = set_back.plus(Span::from_micros(ninth * ninths));
            (_, log) = limit.decide(log, look, Operation::Peek { cost: 1 });
        }
        let all = Operation::Take { cost: limit.rate().count() };
        prop_assert!(limit.decide(log, set_back.plus(bound), all).0.is_allowed());
    }

    #[test]
    fn a_changed_count_meets_the_charges_that_are_there(
        limits in (limits(), 1..9_u64),
        row in vec((forward(), any_call()), 1..40),
    ) {
        let (old, count) = limits;
        let new = limit(count, old.rate().period());
        let (log, now) = run(old, &row);
        let used = log.as_ref().map_or(0, |_| {
            let roomy = limit(1 << 20, old.rate().period());
            (1 << 20) - remaining(roomy, log.as_ref(), now)
        });
        prop_assert_eq!(remaining(new, log.as_ref(), now), count.saturating_sub(used));
    }

    #[test]
    fn a_log_that_is_written_and_read_back_is_the_same(
        limit in limits(),
        row in vec((any_step(), any_call()), 1..60),
    ) {
        if let (Some(log), _) = run(limit, &row) {
            let mut bytes = Vec::new();
            log.encode(&mut bytes);
            prop_assert_eq!(Log::decode(&bytes), Some(log));
        }
    }

    #[test]
    fn nothing_panics_whatever_the_numbers_and_bytes(
        count in prop_oneof![1..9_u64, 1..=SlidingLog::COUNT_MAX],
        period in prop_oneof![1..9_u64, 1..=Rate::PERIOD_MAX.as_micros()],
        bytes in bytes(),
        row in vec((any::<u64>(), extreme(), extreme(), 0..5), 0..30),
    ) {
        let limit = limit(count, Span::from_micros(period));
        let mut log = Log::decode(&bytes);
        for (now, cost, taken_at, kind) in row {
            let now = Timestamp::from_micros(now >> (cost % 64));
            let operation = match kind {
                0 => Operation::Take { cost },
                1 => Operation::Peek { cost },
                2 | 3 => Operation::Debit { cost },
                _ => Operation::Refund { cost, taken_at: Timestamp::from_micros(taken_at) },
            };
            let (decision, next) = limit.decide(log, now, operation);
            prop_assert!(decision.remaining <= decision.limit);
            prop_assert_eq!(next.is_none(), decision.reset_after.is_zero());
            log = next;
        }
    }
}

/// Anything, and what is a log more often than not: the first number bounds all its times.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let last_time = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40];
    let log = vec(any::<u8>(), 2..60).prop_map(move |rest| [&last_time[..], &rest].concat());
    prop_oneof![vec(any::<u8>(), 0..60), log]
}

fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![0..9_u64, any::<u64>(), select(vec![1 << 20, 1 << 40, 1 << 63, u64::MAX])]
}

#[test]
fn five_hundred_entries_at_500_an_hour_take_at_most_2200_bytes() {
    let limit = limit(500, Span::HOUR);
    let (mut log, mut full) = (None, 0);
    for call in 0..5_000_u64 {
        // Uneven gaps with a mean of 7.2 seconds and a little more.
        let jitter = call * 7_919 % 6_000_000;
        let now = Timestamp::from_micros(call * 7_200_001 + jitter);
        let (decision, next) = limit.decide(log, now, Operation::Take { cost: 1 });
        full = full.max(next.as_ref().map_or(0, Log::entry_count));
        assert!(decision.is_allowed() || decision.remaining == 0);
        assert!(next.as_ref().is_none_or(|log| log.heap_bytes() <= 2_200));
        log = next;
    }
    assert!(full >= 499);
}

#[test]
fn memory_is_given_back_once_the_log_is_mostly_empty() {
    let limit = limit(10_000, Span::MINUTE);
    let take = Operation::Take { cost: 1 };
    let mut log = None;
    for call in 0..10_000 {
        (_, log) = limit.decide(log, Timestamp::from_micros(call * 3_000), take);
    }
    (_, log) = limit.decide(log, Timestamp::from_secs(89), take);
    assert!(log.unwrap().heap_bytes() < 2_000);
}

#[test]
fn a_flood_of_debits_keeps_no_more_entries_than_the_count() {
    let limit = limit(100, Span::HOUR);
    let mut log = None;
    for call in 0..10_000 {
        let now = Timestamp::from_micros(call);
        (_, log) = limit.decide(log, now, Operation::Debit { cost: u64::MAX });
    }
    let log = log.unwrap();
    assert_eq!(log.entry_count(), 100);
    assert!(log.heap_bytes() < 1_200);
}
