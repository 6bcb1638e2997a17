//! **Token bucket**: a bucket of `burst` tokens that is refilled continuously at the rate; a request
//! takes its cost in tokens, and is refused where fewer are left.
//!
//! ```text
//! tokens(t) = min(burst, tokens(t0) + (t - t0) * count / period)
//! allowed   iff  tokens(t) >= cost
//! ```
//!
//! In any time `d` it admits at most `burst + d * count / period`, so the first period after a pause
//! can see up to `burst + count`.
//!
//! Refill is computed on use. The state is the moment at which the bucket will be full again, which
//! says the same as a level and a time (this form is known as GCRA), and debt needs no special
//! case: it is a moment further away than an empty bucket's.

use crate::pace::{Pace, Units};
use crate::{Decision, LimitError, Operation, Rate, SKEW_MAX, Span, Timestamp, Verdict};

/// A token bucket's numbers, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenBucket {
    rate: Rate,
    burst: u64,
    pace: Pace,
    /// The burst in units of the pace, where 64 bits can say it, or else 0.
    depth_narrow: u64,
    /// Below how many ticks missing there is a token left, for a pace of whole ticks whose depth is
    /// narrow; 0 for others.
    room_plain: u64,
}

/// The moment at which a bucket is full again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// When it is full, in microseconds, rounded down.
    pub full_at_micros: u64,
    /// The rest, in fractions of a microsecond; below 2^24.
    pub full_at_fraction: u32,
    /// Whether a debit took it below empty. Without this mark a moment further away than an empty
    /// bucket's comes from a clock that was set back or from a limit that was lowered, and is cut.
    pub in_debt: bool,
}

impl TokenBucket {
    /// A bucket of `burst` tokens, refilled at `rate`.
    pub const fn new(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        if burst == 0 {
            return Err(LimitError::BurstZero);
        }
        if burst > Rate::COUNT_MAX {
            return Err(LimitError::BurstTooLarge { max: Rate::COUNT_MAX });
        }
        let pace = match Pace::new(rate) {
            Ok(pace) => pace,
            Err(error) => return Err(error),
        };
        let depth = burst as u128 * pace.ticks as u128;
        if depth > Span::MAX.as_micros() as u128 * pace.tokens as u128 {
            return Err(LimitError::BurstTooDeep { max: Span::MAX });
        }
        let depth_narrow = if depth <= u64::MAX as u128 { depth as u64 } else { 0 };
        let is_plain = pace.tokens == 1 && depth_narrow > 0;
        // The depth is at least one token deep.
        let room_plain = if is_plain { depth_narrow - pace.ticks + 1 } else { 0 };
        Ok(Self { rate, burst, pace, depth_narrow, room_plain })
    }

    /// The rate of the refill.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// The most tokens the bucket holds.
    pub const fn burst(&self) -> u64 {
        self.burst
    }

    /// How long one token takes to come back, in microseconds: a numerator of at most
    /// [`Rate::PERIOD_MAX`] and a denominator of at most 2^24, in lowest terms where that is exact.
    /// For whoever has to do the same arithmetic elsewhere.
    pub const fn pace(&self) -> (u64, u32) {
        (self.pace.ticks, self.pace.tokens)
    }

    /// Decides one operation. `None` is a full bucket, before and after.
    pub fn decide(
        &self,
        bucket: Option<Bucket>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<Bucket>) {
        self.decide_ordinary(bucket, now, operation)
            .unwrap_or_else(|| self.decide_any(bucket, now, operation))
    }

    /// Decides a take whose numbers fit 64 bits, which is nearly every one; `None` for all else. The
    /// same answer as [`TokenBucket::decide`] gives, without a call, for whoever has no nanosecond to
    /// lose.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call would pass state and decision through memory")]
    pub fn decide_ordinary(
        &self,
        bucket: Option<Bucket>,
        now: Timestamp,
        operation: Operation,
    ) -> Option<(Decision, Option<Bucket>)> {
        let Operation::Take { cost } = operation else { return None };
        let used = self.used_narrow(bucket, now)?;
        let asked = if cost == 1 { self.pace.ticks } else { self.asked_narrow(cost)? };
        let spent = used.checked_add(asked)?;
        if spent <= self.depth_narrow {
            return Some(self.outcome(ALLOW, spent, self.depth_narrow, now, false));
        }
        if self.depth_narrow == 0 || used > self.depth_narrow || cost > self.burst {
            return None;
        }
        let retry_after = self.pace.ticks_ceil(spent - self.depth_narrow);
        let verdict = Verdict::Deny { retry_after };
        Some(self.outcome(verdict, used, self.depth_narrow, now, false))
    }

    /// Decides a take of 1 from a bucket that is neither full nor in debt, at a pace of whole ticks: the
    /// most ordinary case of all, in which the state moves by what a token takes and `now` is only compared
    /// with. `None` for all else. The same answer as [`TokenBucket::decide`] gives.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub fn take_plain(&self, bucket: Bucket, now: Timestamp) -> Option<(Decision, Bucket)> {
        let used = bucket.full_at_micros.checked_sub(now.as_micros())?;
        if bucket.full_at_fraction != 0 || bucket.in_debt {
            return None;
        }
        let (verdict, spent, moved) = if used < self.room_plain {
            (ALLOW, used + self.pace.ticks, self.pace.ticks)
        } else if self.room_plain > 0 && used <= self.depth_narrow {
            let retry_after = Span::of_bucket(used - self.room_plain + 1);
            (Verdict::Deny { retry_after }, used, 0)
        } else {
            return None;
        };
        let decision = Decision {
            verdict,
            limit: self.burst,
            // A token takes time, so there is something to divide by, and no panic to keep it for.
            remaining: (self.depth_narrow - spent).checked_div(self.pace.ticks).unwrap_or(0),
            reset_after: Span::of_bucket(spent),
            lease: None,
        };
        let full_at_micros = bucket.full_at_micros + moved;
        Some((decision, Bucket { full_at_micros, ..bucket }))
    }

    /// How much another cost than 1 is, in units, if 64 bits can say it. A cost of 0 is left to the wide
    /// arithmetic: it would fit into a depth of 0 too, which stands for one that 64 bits cannot say.
    #[cold]
    fn asked_narrow(&self, cost: u64) -> Option<u64> {
        if cost == 0 { None } else { cost.checked_mul(self.pace.ticks) }
    }

    /// How much is missing from a full bucket, in units, if 64 bits can say it.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the ordinary case")]
    fn used_narrow(&self, bucket: Option<Bucket>, now: Timestamp) -> Option<u64> {
        let Some(bucket) = bucket else { return Some(0) };
        if bucket.full_at_micros < now.as_micros() {
            return Some(0);
        }
        let ticks = bucket.full_at_micros - now.as_micros();
        if self.pace.tokens == 1 && bucket.full_at_fraction == 0 {
            return Some(ticks);
        }
        if bucket.full_at_fraction >= self.pace.tokens {
            return None;
        }
        let whole = ticks.checked_mul(u64::from(self.pace.tokens))?;
        whole.checked_add(u64::from(bucket.full_at_fraction))
    }

    /// The general case: any numbers, any operation.
    fn decide_any(
        &self,
        bucket: Option<Bucket>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<Bucket>) {
        let (before, depth) = (self.used(bucket, now), self.depth());
        let owed = bucket.is_some_and(|bucket| bucket.in_debt);
        let (verdict, used) = match operation {
            Operation::Take { cost } => self.take(before, depth, cost),
            Operation::Peek { cost } => (self.take(before, depth, cost).0, before),
            Operation::Debit { cost } => (ALLOW, self.debited(before, cost)),
            Operation::Refund { cost, taken_at } => {
                (ALLOW, before.saturating_sub(self.refundable(cost, now.since(taken_at))))
            }
            Operation::Release { .. } | Operation::Renew { .. } => (ALLOW, before),
        };
        let may_owe = owed || matches!(operation, Operation::Debit { .. });
        self.outcome(verdict, used, depth, now, may_owe && used > depth)
    }

    /// How much is missing from a full bucket, in units.
    fn used(&self, bucket: Option<Bucket>, now: Timestamp) -> u128 {
        let Some(bucket) = bucket else { return 0 };
        let Some(ticks) = bucket.full_at_micros.checked_sub(now.as_micros()) else { return 0 };
        let tokens = u128::from(self.pace.tokens);
        // A fraction that this pace does not have was written at another: up to the next tick. And
        // no bucket lies further ahead than the longest debt, which only a damaged state does.
        let fraction = u128::from(bucket.full_at_fraction).min(tokens);
        let used = (u128::from(ticks) * tokens + fraction).min(self.debt_max());
        let skewed = self.depth() + u128::from(SKEW_MAX.as_micros()) * tokens;
        if used > skewed && !bucket.in_debt { self.depth() } else { used }
    }

    /// The verdict on a take, and what is missing afterwards.
    #[inline]
    fn take<U: Units>(&self, used: U, depth: U, cost: u64) -> (Verdict, U) {
        if cost > self.burst {
            return (Verdict::NeverFits, used);
        }
        let spent = used + U::from(cost) * U::from(self.pace.ticks);
        if spent <= depth {
            return (ALLOW, spent);
        }
        (Verdict::Deny { retry_after: self.pace.ticks_ceil(spent - depth) }, used)
    }

    /// What is missing after spending `cost` regardless. A debt is paid in at most [`Span::MAX`]:
    /// what is beyond is forgiven, in some 146,000 years.
    fn debited(&self, used: u128, cost: u64) -> u128 {
        let cost = u128::from(cost) * u128::from(self.pace.ticks);
        (used + cost).min(self.debt_max()).max(used)
    }

    /// What can be given back of a cost so long after it was taken, in units. The refill since then
    /// is not given twice: without the charge, at least this much less would be missing now.
    fn refundable(&self, cost: u64, since: Span) -> u128 {
        let cost = u128::from(cost) * u128::from(self.pace.ticks);
        cost.saturating_sub(u128::from(since.as_micros()) * u128::from(self.pace.tokens))
    }

    /// The decision and the state where `used` is missing after all.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the ordinary case")]
    fn outcome<U: Units>(
        &self,
        verdict: Verdict,
        used: U,
        depth: U,
        now: Timestamp,
        in_debt: bool,
    ) -> (Decision, Option<Bucket>) {
        let left = if used < depth { depth - used } else { U::ZERO };
        let (ticks, fraction) = self.pace.ticks(used);
        let (ticks, fraction) = (ticks.to_u64(), fraction.to_u64() as u32);
        let decision = Decision {
            verdict,
            limit: self.burst,
            remaining: (left / U::from(self.pace.ticks)).to_u64(),
            reset_after: Span::of_bucket(ticks + u64::from(fraction > 0)),
            lease: None,
        };
        let full_at_micros = now.as_micros() + ticks;
        let bucket = Bucket { full_at_micros, full_at_fraction: fraction, in_debt };
        (decision, (used > U::ZERO).then_some(bucket))
    }

    fn depth(&self) -> u128 {
        u128::from(self.burst) * u128::from(self.pace.ticks)
    }

    fn debt_max(&self) -> u128 {
        u128::from(Span::MAX.as_micros()) * u128::from(self.pace.tokens)
    }

    /// How long the queue is in front of a request that comes now; for the leaky bucket.
    pub(crate) fn wait_in_queue(&self, bucket: Option<Bucket>, now: Timestamp) -> Span {
        self.pace.ticks_ceil(self.used(bucket, now))
    }
}

impl Bucket {
    /// The first tick at which the bucket is full.
    pub const fn full_at(&self) -> Timestamp {
        let begun = (self.full_at_fraction > 0) as u64;
        Timestamp::from_micros(self.full_at_micros.saturating_add(begun))
    }
}

const ALLOW: Verdict = Verdict::Allow { delay: Span::ZERO };

#[cfg(test)]
mod tests {
    use super::*;

    fn take(cost: u64) -> Operation {
        Operation::Take { cost }
    }

    #[test]
    fn five_pass_at_once_the_sixth_is_refused_and_one_more_passes_each_second() {
        let limit = TokenBucket::new(Rate::new(1, Span::SECOND).unwrap(), 5).unwrap();
        let mut state = None;
        for left in (0..5).rev() {
            let (decision, next) = limit.decide(state, Timestamp::ZERO, take(1));
            assert!(decision.is_allowed());
            assert_eq!(decision.remaining, left);
            state = next;
        }
        let (sixth, _) = limit.decide(state, Timestamp::ZERO, take(1));
        assert_eq!(sixth.verdict, Verdict::Deny { retry_after: Span::SECOND });
        for second in 1..=3 {
            let now = Timestamp::from_secs(second);
            let (decision, next) = limit.decide(state, now, take(1));
            assert!(decision.is_allowed());
            assert!(!limit.decide(next, now, take(1)).0.is_allowed());
            state = next;
        }
    }

    #[test]
    fn time_in_which_the_bucket_was_full_refills_nothing() {
        let limit = TokenBucket::new(Rate::new(10, Span::SECOND).unwrap(), 10).unwrap();
        let (first, state) = limit.decide(None, Timestamp::from_micros(300_000), take(4));
        assert_eq!(first.remaining, 6);
        let (second, _) = limit.decide(state, Timestamp::from_micros(500_000), take(5));
        assert_eq!(second.remaining, 3);
    }

    #[test]
    fn a_cost_above_the_burst_never_fits() {
        let limit = TokenBucket::new(Rate::new(1, Span::SECOND).unwrap(), 5).unwrap();
        for cost in [6, 1 << 40, 1 << 63, u64::MAX] {
            let (decision, state) = limit.decide(None, Timestamp::ZERO, take(cost));
            assert_eq!((decision.verdict, state), (Verdict::NeverFits, None));
        }
    }

    #[test]
    fn nothing_taken_from_a_bucket_deeper_than_64_bits_leaves_all_of_it() {
        let rate = Rate::new(1_259, Span::from_micros(30_744_573_098)).unwrap();
        let limit = TokenBucket::new(rate, 600_000_007).unwrap();
        let (decision, state) = limit.decide(None, Timestamp::ZERO, take(0));
        assert_eq!((decision.remaining, state), (600_000_007, None));
    }

    #[test]
    fn a_debt_is_paid_before_anything_else_passes() {
        let limit = TokenBucket::new(Rate::new(1, Span::SECOND).unwrap(), 5).unwrap();
        let (charged, state) = limit.decide(None, Timestamp::ZERO, Operation::Debit { cost: 8 });
        assert!(charged.is_allowed());
        assert_eq!(charged.remaining, 0);
        let (denied, _) = limit.decide(state, Timestamp::ZERO, take(1));
        assert_eq!(denied.retry_after(), Some(Span::from_secs(4)));
        assert!(!limit.decide(state, Timestamp::from_micros(3_999_999), take(1)).0.is_allowed());
        assert!(limit.decide(state, Timestamp::from_secs(4), take(1)).0.is_allowed());
    }
}
