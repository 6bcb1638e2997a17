//! Time zones by name, from a copy of the time zone database that is built in, so that the same rule
//! means the same on every machine.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tidegate_core::calendar::Zone;

/// The zone of that name, in any case; `None` if there is none.
pub(crate) fn find(name: &str) -> Option<Zone> {
    let time_zone = TimeZone::get(name).ok()?;
    let (first, last) = (Timestamp::UNIX_EPOCH, Timestamp::from_second(LAST_SECOND).ok()?);
    let changes = time_zone.following(first).take_while(|change| change.timestamp() < last);
    let transitions =
        changes.map(|change| (change.timestamp().as_second(), change.offset().seconds()));
    let name = time_zone.iana_name().unwrap_or(name);
    Zone::from_transitions(name, time_zone.to_offset(first).seconds(), transitions).ok()
}

/// The year 2200. A zone keeps the last offset from there on.
const LAST_SECOND: i64 = 7_258_118_400;

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::Timestamp;
    use tidegate_core::calendar::{Calendar, CalendarUnit};

    #[test]
    fn a_day_in_berlin_is_an_hour_short_when_summer_time_begins() {
        let berlin = find("europe/berlin").expect("a zone");
        assert_eq!(berlin.name(), "Europe/Berlin");
        let days = Calendar::new(CalendarUnit::Day, berlin);
        // Noon of 29 March 2026, in UTC.
        let (start, end) = days.window_containing(Timestamp::from_secs(1_774_785_600));
        assert_eq!(start, Timestamp::from_secs(1_774_738_800));
        assert_eq!(end.since(start).as_secs_ceil(), 23 * 3_600);
    }

    #[test]
    fn a_place_that_is_not_there_has_no_zone() {
        assert_eq!(find("Europe/Atlantis"), None);
        assert_eq!(find(""), None);
    }
}
