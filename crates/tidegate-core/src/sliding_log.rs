//! **Sliding log**: at most `count` in any window of one period, wherever it begins. Every charge is
//! remembered for exactly one period.
//!
//! ```text
//! used(t) = sum of the costs charged at a, for all a with  a <= t < a + period
//! allowed iff  used(t) + cost <= count
//! ```
//!
//! It is exact, and pays for it with memory for each charge in the window: some four bytes at 500
//! per hour, fewer for charges that lie closer together. A charge at `a` counts at `a` and no
//! longer at `a + period`, so a window is `[t, t + period)`.
//!
//! A call that arrives late, with a time a little before that of a call before it, is answered and
//! charged at the time of that one. So a refund takes from the first entry that is no earlier than the
//! time it names and no more than [`SKEW_MAX`] later: the one it means, or one that leaves sooner.

mod log;
pub(crate) mod varint;

pub use log::Log;

use crate::{Decision, LimitError, Operation, Rate, SKEW_MAX, Span, Timestamp, Verdict};

/// A sliding log's numbers, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingLog {
    rate: Rate,
}

impl SlidingLog {
    /// The largest count: a log keeps every request of a period.
    pub const COUNT_MAX: u64 = 1 << 20;

    /// At most the rate's count in any window of the rate's period.
    pub const fn new(rate: Rate) -> Result<Self, LimitError> {
        if rate.count() > Self::COUNT_MAX {
            return Err(LimitError::CountTooLarge { max: Self::COUNT_MAX });
        }
        Ok(Self { rate })
    }

    /// How many per window, and how long the window is.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Decides one operation. `None` is a log without entries, before and after.
    pub fn decide(
        &self,
        log: Option<Log>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<Log>) {
        let (mut log, at) = self.current(log, now);
        let verdict = match operation {
            Operation::Take { cost } => {
                let verdict = self.room(log.as_ref(), now, cost);
                if verdict == ALLOW && cost > 0 {
                    log::extend(&mut log, at, cost);
                }
                verdict
            }
            Operation::Peek { cost } => self.room(log.as_ref(), now, cost),
            Operation::Debit { cost } => {
                if cost > 0 {
                    log::extend(&mut log, at, cost);
                    self.bound(log.as_mut());
                }
                ALLOW
            }
            Operation::Refund { cost, taken_at } => {
                if at.since(taken_at) < self.rate.period() {
                    log = log.and_then(|log| log.refunded(taken_at.min(at), cost));
                }
                ALLOW
            }
            Operation::Release { .. } | Operation::Renew { .. } => ALLOW,
        };
        (self.answer(verdict, log.as_ref(), now), log)
    }

    /// What still counts, and the time at which to charge: `now`, or the log's own where the call
    /// comes a little late. A log further ahead than that comes from a clock that has been set back
    /// since. What it has after `now` counts from `now` on, so that nothing is given away and nobody waits longer
    /// than for a full window.
    fn current(&self, log: Option<Log>, now: Timestamp) -> (Option<Log>, Timestamp) {
        let Some(log) = log else { return (None, now) };
        let (log, at) = if log.latest().since(now) > SKEW_MAX {
            (log.pulled_back_to(now), now)
        } else {
            let at = now.max(log.latest());
            (Some(log), at)
        };
        let Some(end) = at.as_micros().checked_sub(self.rate.period().as_micros()) else {
            return (log, at);
        };
        (log.and_then(|log| log.without_until(Timestamp::from_micros(end), at)), at)
    }

    /// Whether `cost` fits, and if not, when it will: as soon as the oldest entries whose costs
    /// make up for what is too much have left.
    fn room(&self, log: Option<&Log>, now: Timestamp, cost: u64) -> Verdict {
        let count = self.rate.count();
        if cost > count {
            return Verdict::NeverFits;
        }
        let Some(log) = log else { return ALLOW };
        let mut excess = (log.total() + cost).saturating_sub(count);
        if excess == 0 {
            return ALLOW;
        }
        for (at, cost) in log.entries() {
            if cost >= excess {
                return Verdict::Deny { retry_after: self.left_after(at, now) };
            }
            excess -= cost;
        }
        // Not reached, since all the entries together are at least the excess.
        Verdict::Deny { retry_after: self.left_after(log.newest_at(), now) }
    }

    /// How long until a charge at `at` counts no longer. The sum is not cut to the last point in
    /// time, so that even there a denial has a wait.
    fn left_after(&self, at: Timestamp, now: Timestamp) -> Span {
        let left_at = at.as_micros() + self.rate.period().as_micros();
        Span::from_micros(left_at.saturating_sub(now.as_micros()))
    }

    /// Takes keep a log at `count` entries by themselves, but debits come without end. Beyond that
    /// number the oldest entries are merged into the next one, and so count a little longer. A
    /// take of 1 or more cannot tell, unless there are refunds: the newest `count` entries are by
    /// themselves enough to refuse it, and when the oldest of them leaves, all that was older leaves
    /// with it.
    fn bound(&self, log: Option<&mut Log>) {
        if let Some(log) = log {
            log.fold_to(self.rate.count());
        }
    }

    fn answer(&self, verdict: Verdict, log: Option<&Log>, now: Timestamp) -> Decision {
        let limit = self.rate.count();
        Decision {
            verdict,
            limit,
            remaining: limit.saturating_sub(log.map_or(0, Log::total)),
            reset_after: log.map_or(Span::ZERO, |log| self.left_after(log.newest_at(), now)),
            lease: None,
        }
    }
}

const ALLOW: Verdict = Verdict::Allow { delay: Span::ZERO };

#[cfg(test)]
mod tests {
    use super::*;

    const TAKE: Operation = Operation::Take { cost: 1 };

    fn limit(count: u64, period: Span) -> SlidingLog {
        SlidingLog::new(Rate::new(count, period).unwrap()).unwrap()
    }

    /// What a row of takes is answered, each at its own time in milliseconds.
    fn takes_at<const LEN: usize>(limit: SlidingLog, times_ms: [u64; LEN]) -> [bool; LEN] {
        let mut log = None;
        times_ms.map(|ms| {
            let now = Timestamp::ZERO.plus(Span::from_millis(ms));
            let (decision, next) = limit.decide(log.take(), now, TAKE);
            log = next;
            decision.is_allowed()
        })
    }

    #[test]
    fn of_three_per_ten_seconds_1_3_and_7_pass_8_is_refused_and_12_passes() {
        let limit = limit(3, Span::from_secs(10));
        let answers = takes_at(limit, [1_000, 3_000, 7_000, 8_000, 12_000]);
        assert_eq!(answers, [true, true, true, false, true]);
    }

    #[test]
    fn two_messages_count_from_the_300th_millisecond_to_the_300th_of_the_next_second() {
        let limit = limit(2, Span::SECOND);
        let answers = takes_at(limit, [300, 400, 700, 1_299, 1_300, 1_399, 1_400]);
        assert_eq!(answers, [true, true, false, false, true, false, true]);
    }

    #[test]
    fn a_hundred_a_minute_holds_in_any_rolling_minute_and_not_only_from_full_minute_to_full_minute()
    {
        let limit = limit(100, Span::MINUTE);
        let mut log = None;
        for _ in 0..100 {
            let (decision, next) = limit.decide(log, Timestamp::from_secs(59), TAKE);
            assert!(decision.is_allowed());
            log = next;
        }
        let (denied, log) = limit.decide(log, Timestamp::from_secs(61), TAKE);
        assert_eq!(denied.verdict, Verdict::Deny { retry_after: Span::from_secs(58) });
        assert_eq!(limit.decide(log, Timestamp::from_secs(119), TAKE).0.remaining, 99);
    }

    #[test]
    fn a_cost_above_the_count_never_fits_and_a_cost_of_zero_leaves_nothing() {
        let limit = limit(5, Span::SECOND);
        for cost in [6, 1 << 40, 1 << 63, u64::MAX] {
            let (decision, log) = limit.decide(None, Timestamp::ZERO, Operation::Take { cost });
            assert_eq!((decision.verdict, log), (Verdict::NeverFits, None));
        }
        for nothing in [Operation::Take { cost: 0 }, Operation::Debit { cost: 0 }] {
            let (decision, log) = limit.decide(None, Timestamp::ZERO, nothing);
            assert_eq!((decision.remaining, log), (5, None));
        }
    }

    #[test]
    fn a_debit_goes_beyond_the_limit_and_counts_until_it_leaves_the_window() {
        let limit = limit(5, Span::SECOND);
        let (charged, log) = limit.decide(None, Timestamp::ZERO, Operation::Debit { cost: 8 });
        assert!(charged.is_allowed());
        let (denied, log) =
            limit.decide(log, Timestamp::from_micros(1), Operation::Take { cost: 0 });
        assert_eq!(denied.retry_after(), Some(Span::from_micros(999_999)), "over, so not even 0");
        assert!(
            limit.decide(log, Timestamp::from_secs(1), Operation::Take { cost: 5 }).0.is_allowed()
        );
    }

    #[test]
    fn a_refund_takes_from_the_first_charge_that_it_can_mean_and_no_more() {
        let limit = limit(5, Span::SECOND);
        let at = Timestamp::from_micros;
        let refund = |cost, taken_at| Operation::Refund { cost, taken_at };
        let (_, log) = limit.decide(None, at(1), Operation::Take { cost: 2 });
        let (_, log) = limit.decide(log, at(2), Operation::Take { cost: 2 });
        let (nothing, log) = limit.decide(log, at(3), refund(4, at(3)));
        assert_eq!(nothing.remaining, 1, "nothing has been charged since");
        // The call read the clock at 0 and came late, so it was charged at 1.
        let (first, log) = limit.decide(log, at(3), refund(4, at(0)));
        assert_eq!(first.remaining, 3);
        let (second, log) = limit.decide(log, at(3), refund(1, at(2)));
        assert_eq!(second.remaining, 4);
        let (all, log) = limit.decide(log, at(3), refund(u64::MAX, at(2)));
        assert_eq!((all.remaining, log), (5, None));
    }

    #[test]
    fn a_count_above_the_largest_is_refused_with_the_largest() {
        let rate = Rate::new(SlidingLog::COUNT_MAX + 1, Span::DAY).unwrap();
        assert_eq!(SlidingLog::new(rate), Err(LimitError::CountTooLarge { max: 1 << 20 }));
    }
}
