//! Days, weeks, months and years in a time zone, as windows of time.
//!
//! ```text
//! local(t) = t + offset(t)
//! start(d) = the first t with local(t) >= midnight of d
//! window   = [start(first day of the unit), start(first day of the next unit))
//! ```
//!
//! The definition covers daylight saving: a day whose midnight is skipped starts at the first
//! instant after the gap, and one whose midnight comes twice starts at the first. A day is thus 23, 24 or
//! 25 hours long, or whatever else a government decided, and windows follow each other without gap
//! or overlap.
//!
//! A [`Zone`] is plain data. Where it comes from (the system's time zone database, a name in a rule)
//! is not the business of this crate.

mod civil;
mod zone;

pub use zone::{Transition, Zone, ZoneError};

use crate::{Span, Timestamp};

/// A unit of the calendar, in a time zone. Times are counted from the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: Zone,
}

/// What the calendar is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday, as in ISO 8601.
    Week,
    /// From the first of a month.
    Month,
    /// From the first of January.
    Year,
}

impl CalendarUnit {
    /// How long one is when nothing out of the ordinary happens.
    pub const fn usual_length(self) -> Span {
        let days = match self {
            Self::Day => 1,
            Self::Week => 7,
            Self::Month => 30,
            Self::Year => 365,
        };
        Span::from_micros(days * Span::DAY.as_micros())
    }
}

impl Calendar {
    /// The windows of `unit` in `zone`.
    pub const fn new(unit: CalendarUnit, zone: Zone) -> Self {
        Self { unit, zone }
    }

    /// What the calendar is cut into.
    pub const fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The time zone whose midnights count.
    pub const fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The first tick of the window that contains `now`, and the first tick after it.
    ///
    /// What lies outside of time is cut: the first window begins at [`Timestamp::ZERO`], and the
    /// last one ends at [`Timestamp::MAX`].
    pub fn window_containing(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        let seconds = seconds_of(now);
        let today = self.zone.local(seconds).div_euclid(civil::DAY_SECONDS);
        let mut index = self.unit.index_of(today);
        let mut start = self.start(index);
        let mut end = self.start(index + 1);
        // A clock that is put back over midnight shows yesterday's date again, after today has
        // begun. A skipped day has no length. Neither comes to more than the few days that two
        // offsets can differ by.
        while end <= seconds {
            index += 1;
            (start, end) = (end, self.start(index + 1));
        }
        (timestamp_of(start), timestamp_of(end))
    }

    /// When the unit of this number starts, in Unix seconds.
    fn start(&self, index: i64) -> i64 {
        self.zone.first_at(self.unit.first_day(index) * civil::DAY_SECONDS)
    }
}

impl CalendarUnit {
    /// The number of the unit that contains `day`, both counted from 1970-01-01.
    const fn index_of(self, day: i64) -> i64 {
        match self {
            Self::Day => day,
            Self::Week => (day - FIRST_MONDAY).div_euclid(7),
            Self::Month => {
                let (year, month) = civil::year_and_month(day);
                12 * year + month - 1
            }
            Self::Year => civil::year_and_month(day).0,
        }
    }

    /// The first day of the unit of this number.
    const fn first_day(self, index: i64) -> i64 {
        match self {
            Self::Day => index,
            Self::Week => 7 * index + FIRST_MONDAY,
            Self::Month => civil::first_day(index.div_euclid(12), index.rem_euclid(12) + 1),
            Self::Year => civil::first_day(index, 1),
        }
    }
}

/// 1970-01-01 was a Thursday, so the first Monday was the 5th.
const FIRST_MONDAY: i64 = 4;

const fn seconds_of(time: Timestamp) -> i64 {
    // At most 2^62 microseconds, so that the seconds have 43 bits.
    (time.as_micros() / Span::SECOND.as_micros()).cast_signed()
}

fn timestamp_of(seconds: i64) -> Timestamp {
    Timestamp::from_secs(u64::try_from(seconds).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn utc_window(unit: CalendarUnit, seconds: u64) -> (u64, u64) {
        let calendar = Calendar::new(unit, Zone::utc());
        let (start, end) = calendar.window_containing(Timestamp::from_secs(seconds));
        (start.as_micros() / 1_000_000, end.as_micros() / 1_000_000)
    }

    #[test]
    fn the_units_of_utc_around_the_leap_day_of_2024() {
        let leap_day = 1_709_164_800; // Thursday 2024-02-29
        let day = 86_400;
        let noon = leap_day + day / 2;
        assert_eq!(utc_window(CalendarUnit::Day, noon), (leap_day, leap_day + day));
        assert_eq!(utc_window(CalendarUnit::Week, noon), (leap_day - 3 * day, leap_day + 4 * day));
        assert_eq!(utc_window(CalendarUnit::Month, noon), (leap_day - 28 * day, leap_day + day));
        assert_eq!(
            utc_window(CalendarUnit::Year, noon),
            (leap_day - 59 * day, leap_day + 307 * day)
        );
    }

    #[test]
    fn a_week_starts_on_monday_and_the_first_one_is_cut() {
        assert_eq!(utc_window(CalendarUnit::Week, 0), (0, 4 * 86_400));
        assert_eq!(utc_window(CalendarUnit::Week, 4 * 86_400), (4 * 86_400, 11 * 86_400));
    }

    #[test]
    fn a_day_whose_midnight_is_skipped_starts_after_the_gap() {
        // At the second midnight the clock goes from 00:00 to 01:00.
        let zone = Zone::from_transitions("Test/Gap", 0, [(86_400, 3_600)]).unwrap();
        let calendar = Calendar::new(CalendarUnit::Day, zone);
        let window = |seconds| calendar.window_containing(Timestamp::from_secs(seconds));
        assert_eq!(window(86_400), (Timestamp::from_secs(86_400), Timestamp::from_secs(169_200)));
    }

    #[test]
    fn a_day_whose_midnight_comes_twice_starts_at_the_first() {
        // Half an hour after the second midnight the clock goes back to 23:30.
        let zone = Zone::from_transitions("Test/Fold", 0, [(88_200, -3_600)]).unwrap();
        let calendar = Calendar::new(CalendarUnit::Day, zone);
        let day = (Timestamp::from_secs(86_400), Timestamp::from_secs(176_400));
        for seconds in [86_400, 88_199, 88_200, 89_999, 90_000, 176_399] {
            assert_eq!(calendar.window_containing(Timestamp::from_secs(seconds)), day);
        }
    }
}
