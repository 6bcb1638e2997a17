//! Limits in the words of Envoy's rate limit service, which knows so many per second, minute, hour,
//! day, week, month or year, and no other period.

use tidegate_core::calendar::CalendarUnit;
use tidegate_core::fixed_window::Windows;
use tidegate_core::{FixedWindow, Limit, LimitError, Span};

/// So many per unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PerUnit {
    /// How many; 0 gives nothing to anyone.
    pub count: u32,
    /// Per what.
    pub unit: Unit,
}

/// A unit of time that Envoy's service knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// Seven days.
    Week,
    /// Thirty days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// All of them, from short to long.
    const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// How long it is, as Envoy's rule files are read.
    pub const fn period(self) -> Span {
        match self {
            Self::Second => Span::SECOND,
            Self::Minute => Span::MINUTE,
            Self::Hour => Span::HOUR,
            Self::Day => Span::DAY,
            Self::Week => Span::from_secs(7 * 86_400),
            Self::Month => Span::from_secs(30 * 86_400),
            Self::Year => Span::from_secs(365 * 86_400),
        }
    }

    const fn of_calendar(unit: CalendarUnit) -> Self {
        match unit {
            CalendarUnit::Day => Self::Day,
            CalendarUnit::Week => Self::Week,
            CalendarUnit::Month => Self::Month,
            CalendarUnit::Year => Self::Year,
        }
    }
}

impl PerUnit {
    /// A fixed window of that unit, which is how Envoy's service counts; `None` where nothing at all
    /// may be taken.
    pub(super) fn window(self) -> Result<Option<Limit>, LimitError> {
        if self.count == 0 {
            return Ok(None);
        }
        let window = FixedWindow::new(self.count.into(), Windows::Clock(self.unit.period()))?;
        Ok(Some(window.into()))
    }

    /// What comes nearest to a limit: its own number where its period is one of the units. Otherwise
    /// the longest shorter unit in which the number is whole, or else the next longer unit, rounded
    /// down. `None` for a concurrency limit, which has no period.
    ///
    /// The burst of a bucket is not in it: what is told is how fast it fills.
    pub fn nearest(limit: &Limit) -> Option<Self> {
        let (count, period) = match limit {
            Limit::TokenBucket(limit) => (limit.rate().count(), limit.rate().period()),
            Limit::SteppedBucket(limit) => (limit.rate().count(), limit.rate().period()),
            Limit::LeakyBucket(limit) => (limit.rate().count(), limit.rate().period()),
            Limit::SlidingWindow(limit) => (limit.rate().count(), limit.rate().period()),
            Limit::SlidingSlots(limit) => (limit.rate().count(), limit.rate().period()),
            Limit::SlidingLog(limit) => (limit.rate().count(), limit.rate().period()),
            Limit::FixedWindow(limit) => match limit.windows() {
                Windows::Calendar(calendar) => {
                    let unit = Unit::of_calendar(calendar.unit());
                    return Some(Self { count: saturated(limit.count().into()), unit });
                }
                windows => (limit.count(), windows.period()),
            },
            Limit::Concurrency(_) => return None,
        };
        Some(Self::of_rate(count, period))
    }

    fn of_rate(count: u64, period: Span) -> Self {
        let (period, scaled) = (u128::from(period.as_micros()), |unit: Unit| {
            u128::from(count) * u128::from(unit.period().as_micros())
        });
        let is_longer = |unit: &Unit| u128::from(unit.period().as_micros()) > period;
        let first_longer = Unit::ALL.iter().position(is_longer).unwrap_or(Unit::ALL.len());
        let whole = |unit: &&Unit| scaled(**unit) % period == 0;
        let shorter = Unit::ALL[..first_longer].iter().rev().find(whole);
        let unit = shorter.or(Unit::ALL.get(first_longer)).copied().unwrap_or(Unit::Year);
        // A limit that lets something through is not told as one that lets nothing.
        Self { count: saturated(scaled(unit) / period).max(1), unit }
    }
}

fn saturated(count: u128) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_rules::parse_limit;

    fn nearest(text: &str) -> (u32, Unit) {
        let limit = parse_limit(text).unwrap();
        let PerUnit { count, unit } = PerUnit::nearest(&limit).unwrap();
        (count, unit)
    }

    #[test]
    fn a_period_that_is_a_unit_keeps_its_number() {
        assert_eq!(nearest("10/s"), (10, Unit::Second));
        assert_eq!(nearest("10/minute burst 50"), (10, Unit::Minute));
        assert_eq!(nearest("7/week"), (7, Unit::Week));
        assert_eq!(nearest("7/month"), (7, Unit::Month));
        assert_eq!(nearest("7/year"), (7, Unit::Year));
    }

    #[test]
    fn another_period_is_told_in_a_unit_in_which_the_number_is_whole() {
        assert_eq!(nearest("300 per 3h"), (100, Unit::Hour));
        assert_eq!(nearest("120 per 90m"), (80, Unit::Hour));
        assert_eq!(nearest("5 per 10m"), (30, Unit::Hour));
        assert_eq!(nearest("10 per 100ms"), (100, Unit::Second));
    }

    #[test]
    fn a_number_that_is_whole_in_no_shorter_unit_is_rounded_down_in_the_next_longer() {
        assert_eq!(nearest("100 per 169h"), (426, Unit::Month));
        assert_eq!(nearest("7 per 90s"), (280, Unit::Hour));
    }

    #[test]
    fn a_limit_that_lets_something_through_is_never_told_as_zero() {
        assert_eq!(nearest("1 per 700 days").0, 1);
    }

    #[test]
    fn a_concurrency_limit_has_no_unit() {
        let limit = tidegate_core::Concurrency::new(3, Span::MINUTE).unwrap();
        assert_eq!(PerUnit::nearest(&limit.into()), None);
    }

    #[test]
    fn no_unit_of_the_wire_makes_too_long_or_too_large_a_window() {
        for unit in Unit::ALL {
            assert!(PerUnit { count: u32::MAX, unit }.window().unwrap().is_some());
            assert!(PerUnit { count: 0, unit }.window().unwrap().is_none());
        }
    }
}
