//! Rates without rounding. The time that one token takes is `period / count`, hardly ever a whole
//! number of ticks; so buckets count in units of `1 / tokens` of a tick, of which one token is a
//! whole number.

use core::ops::{Add, Div, Mul, Rem, Sub};

use crate::{LimitError, Rate, Span};

/// How long one token takes to come back: `ticks / tokens` microseconds, in lowest terms. In other
/// words, a tick is `tokens` units and a token is `ticks` units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pace {
    pub(crate) ticks: u64,
    pub(crate) tokens: u32,
}

impl Pace {
    /// The denominators that a state has room for.
    pub(crate) const TOKENS_MAX: u32 = 1 << 24;

    /// The pace of `rate`, exact where its lowest terms have at most [`Pace::TOKENS_MAX`] tokens,
    /// and otherwise slower by less than one part in a million, so that never more is admitted.
    /// Rates for which neither is possible, all of them above ten million per second, are refused.
    pub(crate) const fn new(rate: Rate) -> Result<Self, LimitError> {
        let divisor = gcd(rate.count(), rate.period().as_micros());
        let tokens = rate.count() / divisor;
        let ticks = rate.period().as_micros() / divisor;
        if tokens <= Self::TOKENS_MAX as u64 {
            return Ok(Self { ticks, tokens: tokens as u32 });
        }
        // Rounding up adds less than one to `scaled`, so a million of them keep the error below
        // one part in a million.
        let scaled = (ticks as u128 * Self::TOKENS_MAX as u128).div_ceil(tokens as u128);
        if scaled < 1_000_000 {
            return Err(LimitError::RateTooFine);
        }
        Ok(Self { ticks: scaled as u64, tokens: Self::TOKENS_MAX })
    }

    /// Units as whole ticks and what is left of them.
    #[inline]
    pub(crate) fn ticks<U: Units>(self, units: U) -> (U, U) {
        // A division by one costs as much as any other, and most rates need none.
        if self.tokens == 1 {
            return (units, U::ZERO);
        }
        let tokens = U::from(u64::from(self.tokens));
        (units / tokens, units % tokens)
    }

    /// Units as time, rounded up to a tick.
    #[inline]
    pub(crate) fn ticks_ceil<U: Units>(self, units: U) -> Span {
        let (ticks, rest) = self.ticks(units);
        Span::of_bucket(ticks.to_u64() + u64::from(rest != U::ZERO))
    }
}

/// Whole numbers to count units in: 64 bits where a limit's numbers allow, which is nearly always
/// and much faster, and 128 bits, in which nothing overflows.
pub(crate) trait Units:
    Copy
    + Ord
    + From<u64>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Rem<Output = Self>
{
    const ZERO: Self;

    /// The number, or the largest there is.
    fn to_u64(self) -> u64;
}

impl Units for u64 {
    const ZERO: Self = 0;

    #[inline]
    fn to_u64(self) -> u64 {
        self
    }
}

impl Units for u128 {
    const ZERO: Self = 0;

    #[inline]
    fn to_u64(self) -> u64 {
        u64::try_from(self).unwrap_or(u64::MAX)
    }
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(count: u64, period: Span) -> Pace {
        Pace::new(Rate::new(count, period).expect("a rate in range")).expect("a pace")
    }

    #[test]
    fn a_rate_is_kept_in_lowest_terms() {
        assert_eq!(pace(10, Span::MINUTE), Pace { ticks: 6_000_000, tokens: 1 });
        assert_eq!(pace(10_000_000, Span::SECOND), Pace { ticks: 1, tokens: 10 });
        assert_eq!(pace(7, Span::from_secs(3)), Pace { ticks: 3_000_000, tokens: 7 });
    }

    #[test]
    fn a_rate_of_many_digits_is_slower_by_less_than_one_part_in_a_million() {
        for count in [600_000_007_u64, 16_777_259, 599_999_999] {
            let pace = pace(count, Span::MINUTE);
            let period = u128::from(Span::MINUTE.as_micros());
            let kept = u128::from(pace.ticks) * u128::from(count);
            let asked = period * u128::from(pace.tokens);
            assert!(kept >= asked, "never faster");
            assert!((kept - asked) * 1_000_000 < asked, "{count} is off by too much");
        }
    }

    #[test]
    fn a_rate_too_fine_to_keep_is_refused() {
        let rate = Rate::new((1 << 44) - 1, Span::SECOND).expect("a rate in range");
        assert_eq!(Pace::new(rate), Err(LimitError::RateTooFine));
    }
}
