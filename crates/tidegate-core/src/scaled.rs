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
    /// What cannot be split is rounded down, to 1 at least: 110 % of 5 per window are 5. The rate of
    /// a bucket goes with its rounded burst, so that it fills in the same time: a state means the same
    /// share of either. Where a number would be too large for the limit, the limit stays as it was.
    #[must_use]
    pub fn scaled(&self, percent: u32) -> Self {
        self.try_scaled(u64::from(percent)).unwrap_or_else(|_| self.clone())
    }

    fn try_scaled(&self, percent: u64) -> Result<Self, LimitError> {
        Ok(match self {
            Self::TokenBucket(limit) => {
                let burst = part(limit.burst(), percent);
                TokenBucket::new(filled_alike(limit.rate(), limit.burst(), burst)?, burst)?.into()
            }
            Self::LeakyBucket(limit) => {
                let burst = part(limit.burst(), percent);
                LeakyBucket::new(filled_alike(limit.rate(), limit.burst(), burst)?, burst)?.into()
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

    /// One of `shares` equal shares of this limit, for nodes that each keep their own: so much of every
    /// number, rounded down, and 1 at least. Algorithm and windows stay; a bucket is refilled so much
    /// more slowly. All shares together are never more than the limit, except where it is smaller than
    /// their number: then each has a burst, a count or a place of 1. No shares are as one.
    #[must_use]
    pub fn divided(&self, shares: u32) -> Self {
        if shares <= 1 {
            return self.clone();
        }
        self.try_divided(u64::from(shares)).unwrap_or_else(|_| self.clone())
    }

    fn try_divided(&self, shares: u64) -> Result<Self, LimitError> {
        let share = |number: u64| (number / shares).max(1);
        let counted = |rate: Rate| Rate::new(share(rate.count()), rate.period());
        Ok(match self {
            Self::TokenBucket(limit) => {
                TokenBucket::new(slower(limit.rate(), shares)?, share(limit.burst()))?.into()
            }
            Self::LeakyBucket(limit) => {
                LeakyBucket::new(slower(limit.rate(), shares)?, share(limit.burst()))?.into()
            }
            Self::SteppedBucket(limit) => {
                let rate = if limit.rate().count() < shares {
                    slower(limit.rate(), shares)?
                } else {
                    counted(limit.rate())?
                };
                SteppedBucket::new(rate, share(limit.burst()))?.into()
            }
            Self::FixedWindow(limit) => {
                FixedWindow::new(share(limit.count()), limit.windows().clone())?.into()
            }
            Self::SlidingWindow(limit) => SlidingWindow::new(counted(limit.rate())?)?.into(),
            Self::SlidingSlots(limit) => {
                let per_slot = limit.per_slot().map(share);
                SlidingSlots::new(counted(limit.rate())?, limit.slots(), per_slot)?.into()
            }
            Self::SlidingLog(limit) => SlidingLog::new(counted(limit.rate())?)?.into(),
            Self::Concurrency(limit) => {
                Concurrency::new(share(limit.limit()), limit.expires_after())?.into()
            }
        })
    }

    /// The rate at which a bucket is refilled, and its burst; `None` for what is no bucket. A state of
    /// a bucket is a time, and says how much was taken only together with these.
    pub const fn bucket(&self) -> Option<(Rate, u64)> {
        match self {
            Self::TokenBucket(limit) => Some((limit.rate(), limit.burst())),
            Self::LeakyBucket(limit) => Some((limit.rate(), limit.burst())),
            Self::SteppedBucket(limit) => Some((limit.rate(), limit.burst())),
            Self::FixedWindow(_)
            | Self::SlidingWindow(_)
            | Self::SlidingSlots(_)
            | Self::SlidingLog(_)
            | Self::Concurrency(_) => None,
        }
    }

    /// How long an empty bucket takes until everything has come back; `None` for what is no bucket.
    pub fn fill_time(&self) -> Option<Span> {
        let (rate, burst) = self.bucket()?;
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
        let Some((rate, _)) = self.bucket() else { return looked.limit };
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

/// The rate that fills `burst` in the time in which `rate` fills `whole`.
fn filled_alike(rate: Rate, whole: u64, burst: u64) -> Result<Rate, LimitError> {
    if burst == whole {
        return Ok(rate);
    }
    // burst / (whole * period / count), in lowest terms.
    let (count, period) = (u128::from(rate.count()), u128::from(rate.period().as_micros()));
    let (count, period) = (count * u128::from(burst), period * u128::from(whole));
    let divisor = divisor_of(count, period);
    let number = |number: u128| u64::try_from(number / divisor).unwrap_or(u64::MAX);
    Rate::new(number(count), Span::from_micros(number(period)))
}

/// A rate that is so many times slower, to the last digit where that can be said.
fn slower(rate: Rate, times: u64) -> Result<Rate, LimitError> {
    let divisor = divisor_of(u128::from(rate.count()), u128::from(times)) as u64;
    let period = rate.period().as_micros().saturating_mul(times / divisor);
    Rate::new(rate.count() / divisor, Span::from_micros(period))
        .or_else(|_| Rate::new((rate.count() / times).max(1), rate.period()))
}

/// The greatest common divisor of two numbers that are not 0.
fn divisor_of(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
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
        for (percent, count, burst) in [(150, 15, 30), (100, 10, 20), (80, 8, 16)] {
            let scaled = bucket(10, Span::MINUTE, 20).scaled(percent);
            let Limit::TokenBucket(scaled) = scaled else { panic!("a bucket") };
            let per_minute = scaled.rate().count() * Span::MINUTE.as_micros();
            assert_eq!(per_minute / scaled.rate().period().as_micros(), count);
            assert_eq!(scaled.burst(), burst);
        }
    }

    #[test]
    fn a_burst_is_rounded_down_and_the_fill_time_stays() {
        for (count, period, burst) in
            [(5, Span::DAY, 5), (19, Span::from_secs(3600), 19), (7, Span::MINUTE, 3)]
        {
            let limit = bucket(count, period, burst);
            for percent in [101, 109, 110, 125, 133, 150, 80, 1] {
                assert_eq!(limit.scaled(percent).fill_time(), limit.fill_time(), "{percent} %");
            }
        }
        assert_eq!(bucket(5, Span::DAY, 5).scaled(110), bucket(5, Span::DAY, 5));
    }

    /// Going back and forth between a limit and its stretched form gives no more than the stretched
    /// form alone.
    #[test]
    fn going_back_and_forth_stays_within_the_larger() {
        for (count, percent) in [(10, 125), (15, 110), (25, 110), (10, 109), (19, 110), (3, 133)] {
            let normal = bucket(count, Span::from_secs(3600), count);
            let relaxed = normal.scaled(percent);
            let Limit::TokenBucket(larger) = &relaxed else { panic!("a bucket") };
            let (mut state, mut admitted) = (None, 0);
            for second in 0..36_000_u64 {
                let limit = if second % 20 < 10 { &relaxed } else { &normal };
                let now = Timestamp::from_secs(1_000_000 + second);
                let (decision, next) = limit.decide(state, now, Operation::Take { cost: 1 });
                admitted += u64::from(decision.is_allowed());
                state = next;
            }
            let period = larger.rate().period().as_micros();
            let most = larger.burst() + larger.rate().count() * 36_000_000_000 / period;
            assert!(admitted <= most, "{count} at {percent} %: {admitted} of {most}");
        }
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

    fn each_algorithm(count: u64) -> [Limit; 8] {
        let rate = Rate::new(count, Span::HOUR).unwrap();
        [
            TokenBucket::new(rate, count).unwrap().into(),
            LeakyBucket::new(rate, count).unwrap().into(),
            SteppedBucket::new(rate, count).unwrap().into(),
            FixedWindow::new(count, Windows::Clock(Span::HOUR)).unwrap().into(),
            SlidingWindow::new(rate).unwrap().into(),
            SlidingSlots::new(rate, 60, Some(count)).unwrap().into(),
            SlidingLog::new(rate).unwrap().into(),
            Concurrency::new(count, Span::HOUR).unwrap().into(),
        ]
    }

    /// What a limit admits of one request each minute for some hours.
    fn admitted(limit: &Limit) -> u64 {
        let mut state = None;
        let admit = |minute: u64| {
            let now = Timestamp::from_secs(3_600_000 + 60 * minute);
            let (decision, next) = limit.decide(state.take(), now, Operation::Take { cost: 1 });
            state = next;
            u64::from(decision.is_allowed())
        };
        (0..600).map(admit).sum()
    }

    #[test]
    fn all_shares_together_are_never_more_than_the_limit() {
        for count in [9, 10, 29] {
            for shares in [1, 2, 3, 4, 7, 9] {
                for limit in each_algorithm(count) {
                    let (whole, share) = (admitted(&limit), admitted(&limit.divided(shares)));
                    let together = share * u64::from(shares);
                    let name = limit.name();
                    assert!(together <= whole, "{name}: {shares} of {count}: {together}, {whole}");
                    let look = Operation::Peek { cost: 0 };
                    let (looked, _) = limit.divided(shares).decide(None, Timestamp::ZERO, look);
                    assert_eq!(looked.limit, count / u64::from(shares), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_share_is_at_least_one() {
        for limit in each_algorithm(3) {
            let share = limit.divided(100);
            let (first, state) = share.decide(None, Timestamp::ZERO, Operation::Take { cost: 1 });
            let (second, _) = share.decide(state, Timestamp::ZERO, Operation::Take { cost: 1 });
            assert!(first.is_allowed() && !second.is_allowed(), "{}", limit.name());
        }
        // A bucket of one token is still refilled more slowly.
        let share = bucket(60, Span::MINUTE, 1).divided(4);
        assert_eq!(share.fill_time(), Some(Span::from_secs(4)));
    }

    #[test]
    fn one_share_is_the_limit_and_so_is_none() {
        for limit in each_algorithm(7) {
            assert_eq!((limit.divided(0), limit.divided(1)), (limit.clone(), limit));
        }
    }

    #[test]
    fn a_share_of_the_slowest_rate_is_one() {
        let slowest = bucket(1, Rate::PERIOD_MAX, 1);
        assert_eq!(slowest.divided(u32::MAX), slowest);
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
