//! **Sliding slots**: at most `count` in a window of one period that moves on in slots, and where it
//! is asked for, at most `per_slot` in each slot beside it (500 per hour in 60 slots, and 10 per
//! minute).
//!
//! ```text
//! slot(t) = floor(t / length),  length = period / slots
//! used(t) = charges in the newest `slots` slots, slot(t) - slots + 1 to slot(t)
//! allowed iff  used(t) + cost <= count  and  charges in slot(t) + cost <= per_slot
//! ```
//!
//! The newest `slots` slots, of which the current one has only begun, cover between
//! `period - length` and `period` of real time. So any real window of `period - length` admits at
//! most `count`, and any real window of a whole period, which can touch one slot more, admits at
//! most `count` plus what one slot may hold: `per_slot`, or `count` again where there is none. The
//! memory is a few bytes for each slot, whatever is charged.

mod slots;

pub use slots::Slots;

use crate::{Decision, LimitError, Operation, Rate, SKEW_MAX, Span, Timestamp, Verdict};

/// The numbers of sliding slots, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingSlots {
    rate: Rate,
    slots: u32,
    per_slot: Option<u64>,
}

impl SlidingSlots {
    /// The fewest slots: with only one it would be a fixed window.
    pub const SLOTS_MIN: u32 = 2;
    /// The most slots: each takes memory.
    pub const SLOTS_MAX: u32 = 1024;

    /// At most the rate's count in the newest `slots` slots of one period together, and at most
    /// `per_slot` in each.
    pub const fn new(rate: Rate, slots: u32, per_slot: Option<u64>) -> Result<Self, LimitError> {
        if slots < Self::SLOTS_MIN || slots > Self::SLOTS_MAX {
            return Err(LimitError::SlotsOutOfRange { min: Self::SLOTS_MIN, max: Self::SLOTS_MAX });
        }
        if !rate.period().as_micros().is_multiple_of(slots as u64) {
            return Err(LimitError::SlotsUneven);
        }
        match per_slot {
            Some(0) => Err(LimitError::PerSlotZero),
            Some(per_slot) if per_slot > Rate::COUNT_MAX => {
                Err(LimitError::PerSlotTooLarge { max: Rate::COUNT_MAX })
            }
            _ => Ok(Self { rate, slots, per_slot }),
        }
    }

    /// How many in all slots together, and how long they are together.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// How many slots there are in a period.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// How many in each slot, where that is limited.
    pub const fn per_slot(&self) -> Option<u64> {
        self.per_slot
    }

    /// Decides one operation. `None` is slots that are all empty, before and after.
    pub fn decide(
        &self,
        slots: Option<Slots>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<Slots>) {
        let mut slots = self.current(slots, now);
        let verdict = match operation {
            Operation::Take { cost } => {
                let verdict = self.room(slots.as_ref(), now, cost);
                if verdict == ALLOW && cost > 0 {
                    self.charge(&mut slots, now, cost);
                }
                verdict
            }
            Operation::Peek { cost } => self.room(slots.as_ref(), now, cost),
            Operation::Debit { cost } => {
                self.charge(&mut slots, now, cost);
                ALLOW
            }
            Operation::Refund { cost, taken_at } => {
                if let Some(slots) = &mut slots {
                    slots.refund(self.slot_at(taken_at).min(slots.newest()), cost);
                }
                ALLOW
            }
            Operation::Release { .. } | Operation::Renew { .. } => ALLOW,
        };
        let slots = slots.filter(|slots| slots.sum() > 0);
        (self.answer(verdict, slots.as_ref(), now), slots)
    }

    /// The slots of which the newest is the current one: the one of `now`, or the state's own
    /// newest where the call comes a little late. Slots further ahead than that come from a clock
    /// that has been set back since. Their counts move to the slot of `now`, so that nothing is
    /// given away and nobody waits longer than for a whole period.
    fn current(&self, slots: Option<Slots>, now: Timestamp) -> Option<Slots> {
        let mut slots = slots?;
        if slots.len() != self.slots {
            slots = self.resliced(&slots, now);
        }
        let begins_at = slots.newest().saturating_mul(self.length());
        if begins_at.saturating_sub(now.as_micros()) > SKEW_MAX.as_micros() {
            slots = slots.moved(self.slots, self.slot_at(now), |slot| slot);
        }
        slots.advance_to(self.slot_at(now));
        (slots.sum() > 0).then_some(slots)
    }

    /// What slots of another number counted, in slots of this one. Where in its old slot a charge
    /// came is not known, so it goes to the last of the new slots that it may have come in, and no
    /// earlier than one that leaves when the old one would have: a changed number hands out nothing.
    fn resliced(&self, old: &Slots, now: Timestamp) -> Slots {
        let old_length = (self.rate.period().as_micros() / u64::from(old.len())).max(1);
        let newest_begins_at = old.newest().saturating_mul(old_length);
        let newest = now.as_micros().max(newest_begins_at) / self.length();
        old.moved(self.slots, newest, |slot| {
            let begins_at = slot.saturating_mul(old_length);
            let last_tick = begins_at.saturating_add(old_length - 1);
            (last_tick / self.length()).max(begins_at.div_ceil(self.length()))
        })
    }

    /// Whether `cost` fits, and if not, when it will. Alone, both conditions only become easier,
    /// so the later of both waits is the wait.
    fn room(&self, slots: Option<&Slots>, now: Timestamp, cost: u64) -> Verdict {
        if cost > self.capacity() {
            return Verdict::NeverFits;
        }
        let Some(slots) = slots else { return ALLOW };
        let window = self.window_wait(slots, now, cost);
        let slot = self.slot_wait(slots, now, cost);
        window.max(slot).map_or(ALLOW, |retry_after| Verdict::Deny { retry_after })
    }

    /// How long until all slots together have room: as soon as the oldest ones whose counts make up
    /// for what is too much have left. `None` where there is room now.
    fn window_wait(&self, slots: &Slots, now: Timestamp, cost: u64) -> Option<Span> {
        let mut excess = (slots.sum() + cost).saturating_sub(self.rate.count());
        if excess == 0 {
            return None;
        }
        let leaving = slots.entries().find(|(_, count)| {
            excess = excess.saturating_sub(*count);
            excess == 0
        });
        leaving.map(|(slot, _)| self.begin_of(slot + u64::from(self.slots), now))
    }

    /// How long until a new slot has room; `None` where the current one has.
    fn slot_wait(&self, slots: &Slots, now: Timestamp, cost: u64) -> Option<Span> {
        let full = self.per_slot.is_some_and(|per_slot| slots.newest_count() + cost > per_slot);
        full.then(|| self.begin_of(slots.newest() + 1, now))
    }

    fn charge(&self, slots: &mut Option<Slots>, now: Timestamp, cost: u64) {
        let slots = slots.get_or_insert_with(|| Slots::new(self.slots, self.slot_at(now)));
        slots.add(slots.newest(), cost);
    }

    fn answer(&self, verdict: Verdict, slots: Option<&Slots>, now: Timestamp) -> Decision {
        let used = slots.map_or(0, Slots::sum);
        let used_in_slot = slots.map_or(0, Slots::newest_count);
        let left = self.rate.count().saturating_sub(used);
        let left_in_slot = self.per_slot.unwrap_or(u64::MAX).saturating_sub(used_in_slot);
        let last = slots.and_then(|slots| slots.entries().next_back());
        Decision {
            verdict,
            limit: self.capacity(),
            remaining: left.min(left_in_slot),
            reset_after: last
                .map_or(Span::ZERO, |(slot, _)| self.begin_of(slot + u64::from(self.slots), now)),
            lease: None,
        }
    }

    /// The most that can be taken at once.
    fn capacity(&self) -> u64 {
        self.per_slot.map_or(self.rate.count(), |per_slot| per_slot.min(self.rate.count()))
    }

    /// The length of a slot in microseconds, at least 1 since the slots divide the period.
    const fn length(&self) -> u64 {
        self.rate.period().as_micros() / self.slots as u64
    }

    const fn slot_at(&self, time: Timestamp) -> u64 {
        time.as_micros() / self.length()
    }

    /// How long until a slot begins. It does not overflow: no current slot lies further ahead than
    /// [`SKEW_MAX`], and none that is asked about more than a period beyond that.
    fn begin_of(&self, slot: u64, now: Timestamp) -> Span {
        Span::from_micros((slot * self.length()).saturating_sub(now.as_micros()))
    }
}

const ALLOW: Verdict = Verdict::Allow { delay: Span::ZERO };

#[cfg(test)]
mod tests {
    use super::*;

    const TAKE: Operation = Operation::Take { cost: 1 };

    fn hourly(count: u64, slots: u32, per_slot: Option<u64>) -> SlidingSlots {
        SlidingSlots::new(Rate::new(count, Span::HOUR).unwrap(), slots, per_slot).unwrap()
    }

    /// Takes one by one until the first denial: how many passed, and the denial.
    fn exhaust(limit: &SlidingSlots, slots: &mut Option<Slots>, now: Timestamp) -> (u64, Decision) {
        for passed in 0.. {
            let (decision, next) = limit.decide(slots.take(), now, TAKE);
            *slots = next;
            if !decision.is_allowed() {
                return (passed, decision);
            }
        }
        unreachable!("a limit ends");
    }

    #[test]
    fn of_500_an_hour_and_10_a_minute_ten_pass_each_minute_until_the_hour_has_had_500() {
        let limit = hourly(500, 60, Some(10));
        let mut slots = None;
        for minute in 0..50 {
            let now = Timestamp::from_secs(60 * minute + 7);
            let (passed, denied) = exhaust(&limit, &mut slots, now);
            assert_eq!(passed, 10);
            let next_minute = if minute < 49 { 53 } else { 53 + 10 * 60 };
            assert_eq!(denied.retry_after(), Some(Span::from_secs(next_minute)));
        }
        let (passed, denied) = exhaust(&limit, &mut slots, Timestamp::from_secs(50 * 60));
        assert_eq!((passed, denied.retry_after()), (0, Some(Span::from_secs(600))));
        let (passed, _) = exhaust(&limit, &mut slots, Timestamp::from_secs(60 * 60));
        assert_eq!(passed, 10, "the first minute's have left");
    }

    #[test]
    fn without_a_limit_per_slot_the_sum_of_the_slots_is_the_limit() {
        let limit = hourly(500, 60, None);
        let mut slots = None;
        let (passed, denied) = exhaust(&limit, &mut slots, Timestamp::from_secs(59));
        assert_eq!((passed, denied.retry_after()), (500, Some(Span::from_secs(3_541))));
        assert_eq!(exhaust(&limit, &mut slots, Timestamp::from_secs(3_599)).0, 0);
        assert_eq!(exhaust(&limit, &mut slots, Timestamp::from_secs(3_600)).0, 500);
    }

    #[test]
    fn what_is_left_is_the_less_of_both_limits() {
        let limit = hourly(12, 60, Some(10));
        let (first, slots) = limit.decide(None, Timestamp::ZERO, Operation::Take { cost: 4 });
        assert_eq!((first.limit, first.remaining), (10, 6));
        let (second, _) = limit.decide(slots, Timestamp::from_secs(60), TAKE);
        assert_eq!(second.remaining, 7);
    }

    #[test]
    fn a_cost_above_either_limit_never_fits_and_a_cost_of_zero_leaves_nothing() {
        let limit = hourly(500, 60, Some(10));
        for cost in [11, 501, 1 << 63, u64::MAX] {
            let (decision, slots) = limit.decide(None, Timestamp::ZERO, Operation::Take { cost });
            assert_eq!((decision.verdict, slots), (Verdict::NeverFits, None));
        }
        for nothing in [Operation::Take { cost: 0 }, Operation::Debit { cost: 0 }] {
            let (decision, slots) = limit.decide(None, Timestamp::ZERO, nothing);
            assert_eq!((decision.remaining, slots), (10, None));
        }
    }

    #[test]
    fn a_refund_goes_to_the_slot_it_was_taken_in_and_no_further() {
        let limit = hourly(10, 60, None);
        let (_, slots) = limit.decide(None, Timestamp::ZERO, Operation::Take { cost: 4 });
        let (_, slots) = limit.decide(slots, Timestamp::from_secs(60), Operation::Take { cost: 4 });
        let now = Timestamp::from_secs(61);
        let refund = Operation::Refund { cost: 9, taken_at: Timestamp::from_secs(59) };
        let (refunded, slots) = limit.decide(slots, now, refund);
        assert_eq!(refunded.remaining, 6);
        let (again, _) = limit.decide(slots, now, refund);
        assert_eq!(again.remaining, 6);
    }

    #[test]
    fn numbers_that_make_no_slots_are_refused_with_what_is_accepted() {
        let rate = Rate::new(1, Span::HOUR).unwrap();
        let range = LimitError::SlotsOutOfRange { min: 2, max: 1024 };
        assert_eq!(SlidingSlots::new(rate, 1, None), Err(range));
        assert_eq!(SlidingSlots::new(rate, 1025, None), Err(range));
        assert_eq!(SlidingSlots::new(rate, 7, None), Err(LimitError::SlotsUneven));
        assert_eq!(SlidingSlots::new(rate, 60, Some(0)), Err(LimitError::PerSlotZero));
        assert!(SlidingSlots::new(rate, 60, Some(u64::MAX)).is_err());
    }
}
