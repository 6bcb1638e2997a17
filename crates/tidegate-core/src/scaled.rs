//! The same limit with larger or smaller numbers, and what has been taken of one.

use crate::{
    Concurrency, Decision, FixedWindow, LeakyBucket, Limit, LimitError, Rate, SlidingLog,
    SlidingSlots, SlidingWindow, Span, SteppedBucket, TokenBucket,
};

/// One hundred percent.
const WHOLE: u64 = 100;

impl Limit {
    /// This limit with `percent` of its numbers: rate and burst of a bucket, the count of a window,
    /// the places of a concurrency limit. Algorithm and period stay, so both can be kept on one
    /// state.
    ///
    /// What cannot be split is rounded down, to 1 at least: 110 % of 5 per window are 5. A bucket's
    /// rate is exact where its fraction can be written as a rate. A number that would be too large
    /// for the limit stays what it was.
    #[must_use]
    pub fn scaled(&self, percent: u32) -> Self {
        self.try_scaled(u64::from(percent)).unwrap_or_else(|_| self.clone())
    }

    fn try_scaled(&self, percent: u64) -> Result<Self, LimitError> {
        Ok(match self {
            Self::TokenBucket(limit) => {
                let rate = paced(limit.rate(), percent)?;
                TokenBucket::new(rate, part(limit.burst(), percent))?.into()
            }
            Self::LeakyBucket(limit) => {
                let rate = paced(limit.rate(), percent)?;
                LeakyBucket::new(rate, part(limit.burst(), percent))?.into()
            }
            Self::SteppedBucket(limit) => {
                let rate = counted(limit.rate(), percent)?;
                SteppedBucket::new(rate, part(limit.burst(), percent))?.into()
            }
            Self::FixedWindow(limit) => {
                FixedWindow::new(part(limit.count(), percent), limit.windows().clone())?.into()
            }
            Self::SlidingWindow(limit) => {
                SlidingWindow::new(counted(limit.rate(), percent)?)?.into()
            }
            Self::SlidingSlots(limit) => {
                let per_slot = limit.per_slot().map(|most| part(most, percent));
                SlidingSlots::new(counted(limit.rate(), percent)?, limit.slots(), per_slot)?.into()
            }
            Self::SlidingLog(limit) => SlidingLog::new(counted(limit.rate(), percent)?)?.into(),
            Self::Concurrency(limit) => {
                Concurrency::new(part(limit.limit(), percent), limit.expires_after())?.into()
            }
        })
    }

    /// How long an empty limit takes until everything has come back; `None` where that depends on
    /// when it was spent and not on the numbers alone. States of buckets that differ in it cannot be
    /// exchanged.
    pub fn fill_time(&self) -> Option<Span> {
        let (rate, burst) = match self {
            Self::TokenBucket(limit) => (limit.rate(), limit.burst()),
            Self::LeakyBucket(limit) => (limit.rate(), limit.burst()),
            Self::SteppedBucket(limit) => (limit.rate(), limit.burst()),
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingSlots(_)
            | Self::SlidingLog(_)
            | Self::Concurrency(_) => return None,
        };
        let micros = u128::from(burst) * u128::from(rate.period().as_micros());
        let micros = micros.div_ceil(u128::from(rate.count()));
        Some(Span::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)))
    }

    /// How much of a bucket has been taken and has not come back, by its answer to a look at it. It
    /// is rounded up, except that the last fraction of a debt is left out.
    pub fn taken(&self, looked: &Decision) -> u64 {
        if looked.remaining > 0 || looked.reset_after.is_zero() {
            return looked.limit - looked.remaining;
        }
        let rate = match self {
            Self::TokenBucket(limit) => limit.rate(),
            Self::LeakyBucket(limit) => limit.rate(),
            Self::SteppedBucket(limit) => limit.rate(),
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingSlots(_)
            | Self::SlidingLog(_)
            | Self::Concurrency(_) => return looked.limit,
        };
        let micros = u128::from(looked.reset_after.as_micros());
        let taken = micros * u128::from(rate.count()) / u128::from(rate.period().as_micros());
        u64::try_from(taken).unwrap_or(u64::MAX).max(looked.limit)
    }
}

/// `percent` of a whole number, rounded down to 1 at least.
fn part(number: u64, percent: u64) -> u64 {
    let part = u128::from(number) * u128::from(percent) / u128::from(WHOLE);
    u64::try_from(part).unwrap_or(u64::MAX).max(1)
}

/// A rate whose count is rounded, for what is counted in whole periods.
fn counted(rate: Rate, percent: u64) -> Result<Rate, LimitError> {
    Rate::new(part(rate.count(), percent), rate.period())
}

/// A rate that may be so many per hundred periods, for what flows.
fn paced(rate: Rate, percent: u64) -> Result<Rate, LimitError> {
    let exact = || {
        let count = rate.count().checked_mul(percent)?;
        if count.is_multiple_of(WHOLE) {
            return Rate::new(count / WHOLE, rate.period()).ok();
        }
        let period = rate.period().as_micros().checked_mul(WHOLE)?;
        Rate::new(count, Span::from_micros(period)).ok()
    };
    exact().map_or_else(|| counted(rate, percent), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed_window::Windows;
    use crate::{Operation, Timestamp};

    fn bucket(count: u64, period: Span, burst: u64) -> Limit {
        TokenBucket::new(Rate::new(count, period).unwrap(), burst).unwrap().into()
    }

    #[test]
    fn a_bucket_scales_rate_and_burst() {
        assert_eq!(bucket(10, Span::MINUTE, 20).scaled(150), bucket(15, Span::MINUTE, 30));
        assert_eq!(bucket(10, Span::MINUTE, 20).scaled(100), bucket(10, Span::MINUTE, 20));
        assert_eq!(bucket(10, Span::MINUTE, 10).scaled(80), bucket(8, Span::MINUTE, 8));
    }

    #[test]
    fn a_rate_that_is_not_whole_stays_exact_and_its_burst_is_rounded_down() {
        let scaled = bucket(5, Span::DAY, 5).scaled(110);
        assert_eq!(scaled, bucket(550, Span::from_secs(100 * 86_400), 5));
    }

    #[test]
    fn a_window_is_rounded_down_and_never_to_nothing() {
        let window =
            |count| Limit::from(FixedWindow::new(count, Windows::Clock(Span::DAY)).unwrap());
        assert_eq!(window(5).scaled(110), window(5));
        assert_eq!(window(10).scaled(110), window(11));
        assert_eq!(window(1).scaled(80), window(1));
    }

    #[test]
    fn a_number_that_would_be_too_large_stays() {
        let most = Limit::from(
            SlidingWindow::new(Rate::new(Rate::COUNT_MAX, Span::DAY).unwrap()).unwrap(),
        );
        assert_eq!(most.scaled(1000), most);
    }

    #[test]
    fn what_has_been_taken_is_told_by_a_look() {
        let limit = bucket(3, Span::SECOND, 10);
        for taken in [0, 1, 7, 10, 11, 40] {
            let (_, state) = limit.decide(None, Timestamp::ZERO, Operation::Debit { cost: taken });
            let (looked, _) = limit.decide(state, Timestamp::ZERO, Operation::Peek { cost: 0 });
            assert_eq!(limit.taken(&looked), taken);
        }
    }

    #[test]
    fn the_fill_time_is_the_burst_at_the_rate() {
        assert_eq!(bucket(10, Span::MINUTE, 10).fill_time(), Some(Span::MINUTE));
        assert_eq!(bucket(10, Span::MINUTE, 5).fill_time(), Some(Span::from_secs(30)));
        let log = Limit::from(SlidingLog::new(Rate::new(1, Span::SECOND).unwrap()).unwrap());
        assert_eq!(log.fill_time(), None);
    }
}
