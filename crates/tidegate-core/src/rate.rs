//! So many per period: the numbers that most limits are made of.

use crate::{LimitError, Span};

/// A checked rate: at least 1 and at most [`Rate::COUNT_MAX`] per period, the period at least one
/// microsecond and at most [`Rate::PERIOD_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    count: u64,
    period: Span,
}

impl Rate {
    /// The most that can be asked for per period. It is also the largest burst.
    pub const COUNT_MAX: u64 = 1 << 44;
    /// The longest period: ten years of 366 days.
    pub const PERIOD_MAX: Span = Span::from_secs(10 * 366 * 86_400);

    /// `count` per `period`.
    pub const fn new(count: u64, period: Span) -> Result<Self, LimitError> {
        if count == 0 {
            return Err(LimitError::CountZero);
        }
        if count > Self::COUNT_MAX {
            return Err(LimitError::CountTooLarge { max: Self::COUNT_MAX });
        }
        if period.is_zero() {
            return Err(LimitError::PeriodZero);
        }
        if period.as_micros() > Self::PERIOD_MAX.as_micros() {
            return Err(LimitError::PeriodTooLong { max: Self::PERIOD_MAX });
        }
        Ok(Self { count, period })
    }

    /// How many per period.
    pub const fn count(self) -> u64 {
        self.count
    }

    /// The period.
    pub const fn period(self) -> Span {
        self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_what_is_out_of_range_and_names_it() {
        assert_eq!(Rate::new(0, Span::SECOND), Err(LimitError::CountZero));
        assert_eq!(Rate::new(1, Span::ZERO), Err(LimitError::PeriodZero));
        assert!(matches!(Rate::new(u64::MAX, Span::DAY), Err(LimitError::CountTooLarge { .. })));
        assert!(matches!(Rate::new(1, Span::MAX), Err(LimitError::PeriodTooLong { .. })));
    }

    #[test]
    fn accepts_one_per_year_and_ten_million_per_second() {
        assert!(Rate::new(1, Span::from_secs(365 * 86_400)).is_ok());
        assert!(Rate::new(10_000_000, Span::SECOND).is_ok());
    }
}
