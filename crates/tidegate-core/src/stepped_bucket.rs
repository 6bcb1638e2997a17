//! **Token bucket with stepped refill**: a bucket of `burst` tokens to which `count` tokens are added
//! at each whole multiple of `period`; a request takes its cost in tokens, and is refused where fewer
//! are left.
//!
//! ```text
//! steps(t0, t) = floor(t / period) - floor(t0 / period)
//! tokens(t)    = min(burst, tokens(t0) + count * steps(t0, t))
//! allowed      iff  tokens(t) >= cost
//! ```
//!
//! It does what a worker would do that comes round once per period and tops up every bucket, but
//! there is no worker: the steps that have passed are counted on use. In any time that contains `k`
//! multiples of the period it admits at most `burst + k * count`.
//!
//! The state says at which step the bucket is full again and how many tokens that last step adds.
//! Debt needs no special case: it is a step further away than an empty bucket's.

use crate::{Decision, LimitError, Operation, Rate, SKEW_MAX, Span, Timestamp, Verdict};

/// The numbers of a bucket with stepped refill, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SteppedBucket {
    rate: Rate,
    burst: u64,
}

/// The step at which a bucket is full again.
///
/// So many tokens are missing: `count * (steps until full_at - 1) + part`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Steps {
    /// The step at which the bucket is full, a multiple of the period.
    pub full_at: Timestamp,
    /// The tokens that the last step adds, from 1 to the count.
    pub part: u64,
    /// Whether a debit took it below empty. Without this mark more missing tokens than the bucket
    /// holds come from a clock that was set back or from a limit that was lowered, and are cut.
    pub in_debt: bool,
}

impl SteppedBucket {
    /// The most tokens that a step can add, which is what a state has room for.
    pub const COUNT_MAX: u64 = 1 << 24;
    /// The longest that a bucket may take to fill: half of all time, so that the step at which it
    /// is full can be named for any `now` in the other half.
    pub const DEPTH_MAX: Span = Span::from_micros(Span::MAX.as_micros() / 2);

    /// A bucket of `burst` tokens, to which `rate.count()` are added each `rate.period()`.
    pub const fn new(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        if rate.count() > Self::COUNT_MAX {
            return Err(LimitError::CountTooLarge { max: Self::COUNT_MAX });
        }
        if burst == 0 {
            return Err(LimitError::BurstZero);
        }
        if burst > Rate::COUNT_MAX {
            return Err(LimitError::BurstTooLarge { max: Rate::COUNT_MAX });
        }
        let steps = burst.div_ceil(rate.count()) as u128;
        if steps * rate.period().as_micros() as u128 > Self::DEPTH_MAX.as_micros() as u128 {
            return Err(LimitError::BurstTooDeep { max: Self::DEPTH_MAX });
        }
        Ok(Self { rate, burst })
    }

    /// What each step adds, and how far apart the steps are.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The most tokens the bucket holds.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// Decides one operation. `None` is a full bucket, before and after.
    pub fn decide(
        &self,
        steps: Option<Steps>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<Steps>) {
        let missing = self.missing(steps, now);
        let owed = steps.is_some_and(|steps| steps.in_debt);
        let (verdict, missing, may_owe) = match operation {
            Operation::Take { cost } => match self.room(missing, now, cost) {
                Ok(spent) => (ALLOW, spent, false),
                Err(verdict) => (verdict, missing, owed),
            },
            Operation::Peek { cost } => {
                let verdict = self.room(missing, now, cost).map_or_else(|deny| deny, |_| ALLOW);
                (verdict, missing, owed)
            }
            Operation::Debit { cost } => (ALLOW, missing + u128::from(cost), true),
            Operation::Refund { cost, taken_at } => {
                (ALLOW, missing.saturating_sub(self.still_missing(cost, taken_at, now)), owed)
            }
            Operation::Release { .. } | Operation::Renew { .. } => (ALLOW, missing, owed),
        };
        let state = self.state(missing, now, may_owe);
        (self.answer(verdict, missing, state, now), state)
    }

    /// How many tokens are missing at `now`.
    ///
    /// A state that was written with another count is read with this one. Its part may then be more
    /// than a step adds, which is as good a number of missing tokens as any other. Sums stay below
    /// 2^62 steps of 2^24 tokens, plus a part of 64 bits.
    fn missing(&self, steps: Option<Steps>, now: Timestamp) -> u128 {
        let Some(steps) = steps else { return 0 };
        let full_step = steps.full_at.as_micros().div_ceil(self.period());
        let Some(whole) = full_step.checked_sub(self.step(now) + 1) else { return 0 };
        let missing = u128::from(whole) * self.count() + u128::from(steps.part);
        // A thread that is late by SKEW_MAX sees so many steps undone, and they must stay in the
        // state, for the others have already spent what they added.
        let skew_steps = SKEW_MAX.as_micros().div_ceil(self.period());
        let most = u128::from(self.burst) + u128::from(skew_steps) * self.count();
        if missing > most && !steps.in_debt { u128::from(self.burst) } else { missing }
    }

    /// What is missing after spending `cost`, or why that cannot be.
    fn room(&self, missing: u128, now: Timestamp, cost: u64) -> Result<u128, Verdict> {
        if cost > self.burst {
            return Err(Verdict::NeverFits);
        }
        let spent = missing + u128::from(cost);
        match spent.saturating_sub(u128::from(self.burst)) {
            0 => Ok(spent),
            excess => {
                let at = self.step_after(now, excess.div_ceil(self.count()));
                Err(Verdict::Deny { retry_after: span_between(now, at) })
            }
        }
    }

    /// How much of `cost`, taken at `taken_at`, no step has brought back since.
    fn still_missing(&self, cost: u64, taken_at: Timestamp, now: Timestamp) -> u128 {
        let steps = self.step(now).saturating_sub(self.step(taken_at));
        u128::from(cost).saturating_sub(u128::from(steps) * self.count())
    }

    /// The state in which so many tokens are missing. A debt ends no later than at the last step
    /// before [`Timestamp::MAX`]; what is beyond is forgiven, in some 146,000 years.
    fn state(&self, missing: u128, now: Timestamp, may_owe: bool) -> Option<Steps> {
        let whole = missing.checked_sub(1)? / self.count();
        let last = u128::from(self.step(Timestamp::MAX)) * u128::from(self.period());
        let full_at = self.step_after(now, whole + 1).min(last);
        Some(Steps {
            full_at: Timestamp::from_micros(u64::try_from(full_at).unwrap_or(u64::MAX)),
            part: u64::try_from(missing - whole * self.count()).unwrap_or(Self::COUNT_MAX),
            in_debt: may_owe && missing > u128::from(self.burst),
        })
    }

    fn answer(
        &self,
        verdict: Verdict,
        missing: u128,
        state: Option<Steps>,
        now: Timestamp,
    ) -> Decision {
        let left = u128::from(self.burst).saturating_sub(missing);
        Decision {
            verdict,
            limit: self.burst,
            remaining: u64::try_from(left).unwrap_or(self.burst),
            reset_after: state.map_or(Span::ZERO, |state| state.full_at.since(now)),
            lease: None,
        }
    }

    /// The number of the last step that is not after `time`.
    const fn step(&self, time: Timestamp) -> u64 {
        time.as_micros() / self.period()
    }

    /// The time of the step that comes `steps` after the last one, in microseconds.
    fn step_after(&self, now: Timestamp, steps: u128) -> u128 {
        (u128::from(self.step(now)) + steps).saturating_mul(u128::from(self.period()))
    }

    const fn period(&self) -> u64 {
        self.rate.period().as_micros()
    }

    const fn count(&self) -> u128 {
        self.rate.count() as u128
    }
}

const ALLOW: Verdict = Verdict::Allow { delay: Span::ZERO };

fn span_between(now: Timestamp, later_micros: u128) -> Span {
    let micros = later_micros.saturating_sub(u128::from(now.as_micros()));
    Span::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(count: u64, period: Span, burst: u64) -> SteppedBucket {
        SteppedBucket::new(Rate::new(count, period).unwrap(), burst).unwrap()
    }

    fn take(cost: u64) -> Operation {
        Operation::Take { cost }
    }

    #[test]
    fn nothing_comes_back_within_an_interval_and_all_of_it_at_its_end() {
        let limit = bucket(3, Span::MINUTE, 5);
        let (first, state) = limit.decide(None, Timestamp::from_secs(61), take(5));
        assert_eq!((first.remaining, first.reset_after), (0, Span::from_secs(119)));
        let (early, _) = limit.decide(state, Timestamp::from_micros(119_999_999), take(1));
        assert_eq!(early.verdict, Verdict::Deny { retry_after: Span::TICK });
        let (second, state) = limit.decide(state, Timestamp::from_secs(120), take(1));
        assert_eq!((second.is_allowed(), second.remaining), (true, 2));
        let (third, state) = limit.decide(state, Timestamp::from_secs(180), take(0));
        assert_eq!((third.remaining, state), (5, None), "never more than the burst");
    }

    #[test]
    fn a_debt_is_paid_step_by_step_before_anything_else_passes() {
        let limit = bucket(3, Span::MINUTE, 5);
        let (charged, state) = limit.decide(None, Timestamp::ZERO, Operation::Debit { cost: 12 });
        assert_eq!((charged.is_allowed(), charged.remaining), (true, 0));
        assert!(state.unwrap().in_debt);
        let (denied, state) = limit.decide(state, Timestamp::ZERO, take(1));
        assert_eq!(denied.retry_after(), Some(Span::from_secs(180)));
        let (passed, state) = limit.decide(state, Timestamp::from_secs(180), take(1));
        assert_eq!((passed.is_allowed(), passed.remaining), (true, 1));
        assert!(!state.unwrap().in_debt);
    }

    #[test]
    fn a_cost_above_the_burst_never_fits() {
        let limit = bucket(3, Span::MINUTE, 5);
        for cost in [6, 1 << 40, 1 << 63, u64::MAX] {
            let (decision, state) = limit.decide(None, Timestamp::ZERO, take(cost));
            assert_eq!((decision.verdict, state), (Verdict::NeverFits, None));
        }
    }

    #[test]
    fn a_state_of_a_larger_count_keeps_what_is_missing() {
        let (_, state) = bucket(100, Span::MINUTE, 100).decide(None, Timestamp::ZERO, take(100));
        let lowered = bucket(10, Span::MINUTE, 100);
        let (decision, state) = lowered.decide(state, Timestamp::ZERO, take(1));
        assert_eq!(decision.verdict, Verdict::Deny { retry_after: Span::MINUTE });
        assert_eq!(state.map(|state| state.part), Some(10), "and is rewritten with the new count");
        assert_eq!(decision.reset_after, Span::from_secs(600));
    }

    #[test]
    fn refuses_what_a_state_has_no_room_for_and_says_what_it_has() {
        let many = Rate::new(SteppedBucket::COUNT_MAX + 1, Span::SECOND).unwrap();
        let max = SteppedBucket::COUNT_MAX;
        assert_eq!(SteppedBucket::new(many, 1), Err(LimitError::CountTooLarge { max }));
        let slow = Rate::new(1, Rate::PERIOD_MAX).unwrap();
        assert_eq!(SteppedBucket::new(slow, 0), Err(LimitError::BurstZero));
        let deep = LimitError::BurstTooDeep { max: SteppedBucket::DEPTH_MAX };
        assert_eq!(SteppedBucket::new(slow, 1 << 40), Err(deep));
    }
}
