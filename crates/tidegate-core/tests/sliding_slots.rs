//! Claims about sliding slots, against a model that keeps the full history in 128-bit numbers.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use tidegate_core::sliding_slots::Slots;
use tidegate_core::{LeaseId, Operation, Rate, SKEW_MAX, SlidingSlots, Span, Timestamp, Verdict};

/// Every charge there ever was, and the definition applied to all of them each time.
#[derive(Clone)]
struct Model {
    count: u128,
    per_slot: u128,
    slots: u128,
    length: u128,
    charges: Vec<(u128, u128)>,
}

impl Model {
    fn new(limit: SlidingSlots) -> Self {
        let rate = limit.rate();
        let slots = u128::from(limit.slots());
        Self {
            count: rate.count().into(),
            per_slot: limit.per_slot().map_or(u128::MAX, u128::from),
            slots,
            length: u128::from(rate.period().as_micros()) / slots,
            charges: Vec::new(),
        }
    }

    /// The sum of what was charged in slots for which `wanted` holds.
    fn sum(&self, wanted: impl Fn(u128) -> bool) -> u128 {
        let charges = self.charges.iter().filter(|(at, _)| wanted(at / self.length));
        charges.map(|(_, cost)| cost).sum()
    }

    fn used(&self, now: u128) -> u128 {
        let current = now / self.length;
        self.sum(|slot| slot <= current && slot + self.slots > current)
    }

    fn remaining(&self, now: u128) -> u128 {
        let in_slot = self.sum(|slot| slot == now / self.length);
        let left = self.count.saturating_sub(self.used(now));
        left.min(self.per_slot.saturating_sub(in_slot))
    }

    fn fits(&self, now: u128, cost: u128) -> bool {
        let in_slot = self.sum(|slot| slot == now / self.length);
        self.used(now) + cost <= self.count && in_slot + cost <= self.per_slot
    }

    /// Slots change nothing but at their beginnings, so those of one period are all there is to try.
    fn verdict(&self, now: u128, cost: u64) -> Verdict {
        if u128::from(cost) > self.count.min(self.per_slot) {
            return Verdict::NeverFits;
        }
        if self.fits(now, cost.into()) {
            return Verdict::Allow { delay: Span::ZERO };
        }
        let mut beginnings = (1..=self.slots).map(|slot| (now / self.length + slot) * self.length);
        let retry_at = beginnings.find(|time| self.fits(*time, cost.into())).unwrap();
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
        let counted = self.charges.iter().filter(|(_, cost)| *cost > 0);
        let left_at = counted.map(|(at, _)| (at / self.length + self.slots) * self.length);
        let reset_after = left_at.max().unwrap_or(0).saturating_sub(now);
        (verdict, self.remaining(now).try_into().unwrap(), span(reset_after))
    }

    fn refund(&mut self, now: u128, cost: u64, taken_at: Timestamp) {
        let slot = u128::from(taken_at.as_micros()).min(now) / self.length;
        let mut back = u128::from(cost);
        if slot + self.slots <= now / self.length {
            return;
        }
        for (_, cost) in self.charges.iter_mut().filter(|(at, _)| at / self.length == slot) {
            let part = back.min(*cost);
            (*cost, back) = (*cost - part, back - part);
        }
    }
}

fn span(micros: u128) -> Span {
    Span::from_micros(micros.try_into().unwrap())
}

/// How the clock moves between two calls.
#[derive(Clone, Copy, Debug)]
enum Step {
    Ticks(u64),
    /// So many thirds of a slot, and so many ticks more.
    Thirds(u64, u64),
    /// So many thirds of a period.
    Periods(u64),
    Years(u64),
    /// A thread that comes late.
    Late(u64),
    /// A clock that is set back.
    Back(Span),
}

impl Step {
    fn from(self, now: Timestamp, limit: SlidingSlots) -> Timestamp {
        let period = limit.rate().period().as_micros();
        let on = |micros| now.plus(Span::from_micros(micros));
        match self {
            Self::Ticks(ticks) => on(ticks),
            Self::Thirds(thirds, ticks) => {
                on(period / u64::from(limit.slots()) * thirds / 3 + ticks)
            }
            Self::Periods(thirds) => on(period * thirds / 3),
            Self::Years(years) => on(years * 366 * Span::DAY.as_micros()),
            Self::Late(micros) => now.minus(Span::from_micros(micros)),
            Self::Back(span) => now.minus(span),
        }
    }
}

fn forward() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u64).prop_map(Step::Ticks),
        5 => (0..7_u64, 0..2_u64).prop_map(|(thirds, ticks)| Step::Thirds(thirds, ticks)),
        2 => (0..5_u64).prop_map(Step::Periods),
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

fn any_call() -> impl Strategy<Value = Call> {
    let plain = prop_oneof![
        6 => Just(Operation::Take { cost: 1 }),
        3 => (0..12_u64).prop_map(|cost| Operation::Take { cost }),
        1 => (0..12_u64).prop_map(|cost| Operation::Peek { cost }),
        2 => (0..20_u64).prop_map(|cost| Operation::Debit { cost }),
        1 => (1..1_u64 << 44).prop_map(|cost| Operation::Debit { cost }),
        1 => Just(Operation::Release { lease: LeaseId::from_u64(1).unwrap() }),
    ];
    let refund = (0..12_u64, any::<Index>()).prop_map(|(cost, index)| Call::Refund(cost, index));
    prop_oneof![5 => plain.prop_map(Call::Plain), 1 => refund]
}

fn limits() -> impl Strategy<Value = SlidingSlots> {
    let lengths = select(vec![1, 3, 10_000, 1_000_000, 60_000_000]);
    let per_slot = prop_oneof![Just(None), (1..12_u64).prop_map(Some)];
    (1..12_u64, lengths, slot_numbers(), per_slot)
        .prop_map(|(count, length, slots, per_slot)| limit(count, length * 12, slots, per_slot))
}

/// Numbers of slots that divide any of the periods here.
fn slot_numbers() -> impl Strategy<Value = u32> {
    select(vec![2, 3, 4, 6, 12])
}

fn limit(count: u64, period: u64, slots: u32, per_slot: Option<u64>) -> SlidingSlots {
    let rate = Rate::new(count, Span::from_micros(period)).unwrap();
    SlidingSlots::new(rate, slots, per_slot).unwrap()
}

/// The most that can be taken at once.
fn capacity(limit: SlidingSlots) -> u64 {
    limit.rate().count().min(limit.per_slot().unwrap_or(u64::MAX))
}

/// The state and time after a row of calls from noon on the first day.
fn run(limit: SlidingSlots, row: &[(Step, Call)]) -> (Option<Slots>, Timestamp) {
    let (mut slots, mut now, mut times) = (None, Timestamp::from_secs(43_200), Vec::new());
    for &(step, call) in row {
        now = step.from(now, limit);
        times.push(now);
        (_, slots) = limit.decide(slots, now, call.operation(&times));
    }
    (slots, now)
}

fn remaining(limit: SlidingSlots, slots: Option<&Slots>, now: Timestamp) -> u64 {
    limit.decide(slots.cloned(), now, Operation::Peek { cost: 0 }).0.remaining
}

/// How much a state counts, read through a limit with the same slots and plenty of room.
fn used(limit: SlidingSlots, slots: Option<&Slots>, now: Timestamp) -> u64 {
    let period = limit.rate().period().as_micros();
    let roomy = self::limit(Rate::COUNT_MAX, period, limit.slots(), None);
    Rate::COUNT_MAX - remaining(roomy, slots, now)
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_answer_is_the_models(limit in limits(), row in vec((forward(), any_call()), 1..60)) {
        let mut model = Model::new(limit);
        let (mut slots, mut now, mut times) = (None, Timestamp::ZERO, Vec::new());
        for (step, call) in row {
            now = step.from(now, limit);
            times.push(now);
            let operation = call.operation(&times);
            let (decision, next) = limit.decide(slots, now, operation);
            let (verdict, remaining, reset_after) = model.apply(now.as_micros().into(), operation);
            prop_assert_eq!(decision.verdict, verdict);
            prop_assert_eq!(decision.remaining, remaining);
            prop_assert_eq!(decision.reset_after, reset_after);
            prop_assert_eq!(next.is_none(), reset_after.is_zero());
            slots = next;
        }
    }

    #[test]
    fn a_denial_says_the_first_tick_at_which_the_same_call_succeeds(
        limit in limits(),
        row in vec((any_step(), any_call()), 1..40),
        cost in 0..12_u64,
    ) {
        let (slots, now) = run(limit, &row);
        let take = Operation::Take { cost };
        let (decision, slots) = limit.decide(slots, now, take);
        if let Verdict::Deny { retry_after } = decision.verdict {
            let at = |span| limit.decide(slots.clone(), now.plus(span), take).0.is_allowed();
            prop_assert!(at(retry_after));
            prop_assert!(!at(Span::from_micros(retry_after.as_micros() - 1)));
        }
    }

    /// The bounds of the module's documentation, by windows of real time. A call that comes late
    /// counts at the time of the latest call; only an absent state knows no time, so the call after
    /// that is never a late one here.
    #[test]
    fn a_real_window_admits_no_more_than_the_stated_bound(
        limit in limits(),
        row in vec((prop_oneof![4 => forward(), 1 => late()], 1..4_u64), 1..80),
    ) {
        let (mut slots, mut latest) = (None, Timestamp::from_secs(9));
        let mut admitted: Vec<(Timestamp, u64)> = Vec::new();
        for (step, cost) in row {
            let now = step.from(latest, limit);
            let now = if slots.is_none() { now.max(latest) } else { now };
            let (decision, next) = limit.decide(slots, now, Operation::Take { cost });
            latest = latest.max(now);
            if decision.is_allowed() {
                admitted.push((latest, cost));
            }
            slots = next;
        }
        let period = limit.rate().period();
        let length = period.as_micros() / u64::from(limit.slots());
        let shorter = Span::from_micros(period.as_micros() - length);
        let count = limit.rate().count();
        for (start, _) in &admitted {
            let within = |span: Span| -> u64 {
                let inside = admitted.iter().filter(|(at, _)| at >= start && *at < start.plus(span));
                inside.map(|(_, cost)| cost).sum()
            };
            prop_assert!(within(shorter) <= count);
            prop_assert!(within(period) <= count + capacity(limit));
            if let Some(per_slot) = limit.per_slot() {
                prop_assert!(within(Span::from_micros(length)) <= 2 * per_slot);
            }
        }
    }

    #[test]
    fn a_take_that_is_refunded_at_once_leaves_no_trace(
        limit in limits(),
        row in vec((forward(), any_call()), 0..40),
        cost in 1..12_u64,
    ) {
        let (slots, now) = run(limit, &row);
        let before = remaining(limit, slots.as_ref(), now);
        let (taken, slots) = limit.decide(slots, now, Operation::Take { cost });
        if !taken.is_allowed() {
            return Ok(());
        }
        let (refunded, slots) = limit.decide(slots, now, Operation::Refund { cost, taken_at: now });
        prop_assert_eq!(refunded.remaining, before);
        let all = Operation::Refund { cost: u64::MAX, taken_at: now };
        prop_assert!(limit.decide(slots, now, all).0.remaining <= capacity(limit), "never above full");
    }

    #[test]
    fn a_clock_set_back_gives_nothing_away_and_locks_nobody_out(
        limit in limits(),
        row in vec((any_step(), any_call()), 1..40),
        back in prop_oneof![late(), Just(Step::Back(Span::HOUR)), Just(Step::Back(Span::MAX))],
        looks in subsequence((1..9).collect::<Vec<u64>>(), 0..=8),
    ) {
        let (mut slots, now) = run(limit, &row);
        let before = used(limit, slots.as_ref(), now);
        let set_back = back.from(now, limit);
        prop_assert!(used(limit, slots.as_ref(), set_back) >= before);
        let bound = limit.rate().period().plus(SKEW_MAX);
        let ninth = bound.as_micros() / 9;
        (_, slots) = limit.decide(slots, set_back, Operation::Peek { cost: 1 });
        for ninths in looks {
            let look = set_back.plus(Span::from_micros(ninth * ninths));
            (_, slots) = limit.decide(slots, look, Operation::Peek { cost: 1 });
        }
        let all = Operation::Take { cost: capacity(limit) };
        prop_assert!(limit.decide(slots, set_back.plus(bound), all).0.is_allowed());
    }

    #[test]
    fn changed_numbers_hand_out_no_fresh_budget(
        old in limits(),
        (count, slot_number) in (1..12_u64, slot_numbers()),
        row in vec((forward(), 0..9_u64), 1..40),
        later in vec(0..20_u64, 1..6),
    ) {
        let new = limit(count, old.rate().period().as_micros(), slot_number, None);
        let (mut slots, mut now, mut history) = (None, Timestamp::ZERO, Model::new(new));
        for (step, cost) in row {
            now = step.from(now, old);
            (_, slots) = old.decide(slots, now, Operation::Debit { cost });
            history.charges.push((now.as_micros().into(), cost.into()));
        }
        prop_assert!(used(new, slots.as_ref(), now) >= used(old, slots.as_ref(), now));
        // What had left under the old numbers is gone; the rest counts at least as long as if it
        // had been charged under the new ones.
        let definition = Model::new(old);
        let current = u128::from(now.as_micros()) / definition.length;
        history.charges.retain(|(at, _)| at / definition.length + definition.slots > current);
        for sevenths in later {
            let time = now.plus(Span::from_micros(new.rate().period().as_micros() * sevenths / 7));
            let by_definition = history.used(time.as_micros().into());
            prop_assert!(u128::from(used(new, slots.as_ref(), time)) >= by_definition);
        }
        let all = new.rate().period().plus(new.rate().period());
        prop_assert_eq!(used(new, slots.as_ref(), now.plus(all)), 0, "nobody is locked out");
    }

    #[test]
    fn slots_that_are_written_and_read_back_are_the_same(
        limit in limits(),
        row in vec((any_step(), any_call()), 1..60),
    ) {
        if let (Some(slots), now) = run(limit, &row) {
            let mut bytes = Vec::new();
            slots.encode(&mut bytes);
            let read = Slots::decode(&bytes).unwrap();
            prop_assert_eq!(&read, &slots);
            prop_assert_eq!(used(limit, Some(&read), now), used(limit, Some(&slots), now));
        }
    }

    #[test]
    fn nothing_panics_whatever_the_numbers_and_bytes(
        count in prop_oneof![1..9_u64, 1..=Rate::COUNT_MAX],
        length in prop_oneof![1..9_u64, 1..=Rate::PERIOD_MAX.as_micros() / 1024],
        slot_number in SlidingSlots::SLOTS_MIN..=SlidingSlots::SLOTS_MAX,
        per_slot in prop_oneof![Just(None), (1..=Rate::COUNT_MAX).prop_map(Some)],
        bytes in bytes(),
        row in vec((any::<u64>(), extreme(), extreme(), 0..5), 0..30),
    ) {
        let limit = limit(count, length * u64::from(slot_number), slot_number, per_slot);
        let mut slots = Slots::decode(&bytes);
        for (now, cost, taken_at, kind) in row {
            let now = Timestamp::from_micros(now >> (cost % 64));
            let operation = match kind {
                0 => Operation::Take { cost },
                1 => Operation::Peek { cost },
                2 | 3 => Operation::Debit { cost },
                _ => Operation::Refund { cost, taken_at: Timestamp::from_micros(taken_at) },
            };
            let (decision, next) = limit.decide(slots, now, operation);
            prop_assert!(decision.remaining <= decision.limit);
            prop_assert_eq!(next.is_none(), decision.reset_after.is_zero());
            slots = next;
        }
    }
}

/// Anything, and what are slots more often than not: their number first, at most 127, then a large
/// or small number for the newest of them.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let newest = select(vec![vec![0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40], vec![40]]);
    let slots = (2..128_u8, newest, vec(any::<u8>(), 2..40))
        .prop_map(|(len, newest, counts)| [&[len], &newest[..], &counts].concat());
    prop_oneof![vec(any::<u8>(), 0..60), slots]
}

fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![0..9_u64, any::<u64>(), select(vec![1 << 20, 1 << 40, 1 << 63, u64::MAX])]
}

#[test]
fn sixty_slots_take_at_most_128_bytes_and_their_struct_at_most_48() {
    let hourly = limit(500, Span::HOUR.as_micros(), 60, Some(10));
    let mut slots = None;
    for second in 0..10_000 {
        let now = Timestamp::from_secs(second);
        (_, slots) = hourly.decide(slots, now, Operation::Take { cost: 1 });
        assert!(slots.as_ref().unwrap().heap_bytes() <= 128);
    }
    assert!(size_of::<Slots>() <= 48);
}

#[test]
fn counts_widen_only_where_they_must() {
    let hourly = limit(Rate::COUNT_MAX, Span::HOUR.as_micros(), 60, None);
    let after = |cost| hourly.decide(None, Timestamp::ZERO, Operation::Debit { cost }).1.unwrap();
    assert_eq!(after(65_535).heap_bytes(), 120);
    assert_eq!(after(65_536).heap_bytes(), 240);
    assert_eq!(after(1 << 32).heap_bytes(), 480);
    assert_eq!(used(hourly, Some(&after(1 << 32)), Timestamp::ZERO), 1 << 32);
}

#[test]
fn without_a_limit_per_slot_a_real_window_can_admit_twice_the_count() {
    let hourly = limit(500, Span::HOUR.as_micros(), 60, None);
    let all = Operation::Take { cost: 500 };
    let (first, slots) = hourly.decide(None, Timestamp::from_secs(59), all);
    let (second, _) = hourly.decide(slots, Timestamp::from_secs(3_600), all);
    assert!(first.is_allowed() && second.is_allowed(), "3,541 seconds apart");
}
