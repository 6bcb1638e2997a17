//! Calendar windows against the arithmetic of jiff, in every time zone that its database has.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

mod model;

use jiff::civil::{Date, date};
use jiff::tz::{TimeZone, db};
use jiff::{Timestamp as JiffTimestamp, ToSpan};
use proptest::prelude::*;
use tidegate_core::calendar::{Calendar, CalendarUnit, Transition, Zone};
use tidegate_core::{Span, Timestamp};

const UNITS: [CalendarUnit; 4] =
    [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];

/// Zones in which something out of the ordinary happens at midnight or for long, and some others.
const NAMES: [&str; 16] = [
    "UTC",
    "Europe/Berlin",
    "Europe/London",
    "America/New_York",
    "America/St_Johns",
    "America/Havana",
    "America/Sao_Paulo",
    "America/Santiago",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Asia/Beirut",
    "Asia/Kathmandu",
    "Asia/Tehran",
    "Asia/Gaza",
    "Australia/Lord_Howe",
    "Pacific/Apia",
];

/// 2100-01-01; instants are drawn from before it.
const END_SECONDS: i64 = 4_102_444_800;

fn time_zone(name: &str) -> TimeZone {
    TimeZone::get(name).expect("a zone of the database")
}

/// The zone's changes from before the epoch until well after the last instant.
fn zone(name: &str) -> Zone {
    let time_zone = time_zone(name);
    let second = |second| JiffTimestamp::from_second(second).unwrap();
    let (first, last) = (second(-800 * 86_400), second(END_SECONDS + 800 * 86_400));
    let transitions: Vec<Transition> = time_zone
        .following(first)
        .take_while(|change| change.timestamp() < last)
        .map(|change| (change.timestamp().as_second(), change.offset().seconds()))
        .collect();
    Zone::from_transitions(name, time_zone.to_offset(first).seconds(), transitions).unwrap()
}

/// The window around a Unix second, as jiff computes it.
fn expected(unit: CalendarUnit, time_zone: &TimeZone, second: i64) -> (i64, i64) {
    let now = JiffTimestamp::from_second(second).unwrap().to_zoned(time_zone.clone());
    let midnight = |day: Date| day.to_zoned(time_zone.clone()).unwrap().timestamp().as_second();
    let (mut day, length) = match unit {
        CalendarUnit::Day => (now.date(), 1.day()),
        CalendarUnit::Week => {
            let since_monday = now.date().weekday().to_monday_zero_offset();
            (now.date() - i64::from(since_monday).days(), 1.week())
        }
        CalendarUnit::Month => (now.date().first_of_month(), 1.month()),
        CalendarUnit::Year => (now.date().first_of_year(), 1.year()),
    };
    // Where a date is shown again after its end, the next one has begun all the same.
    while midnight(day + length) <= second {
        day += length;
    }
    (midnight(day).max(0), midnight(day + length))
}

fn window(calendar: &Calendar, second: i64) -> (i64, i64) {
    let now = Timestamp::from_secs(u64::try_from(second).unwrap());
    let (start, end) = calendar.window_containing(now);
    let second = |time: Timestamp| i64::try_from(time.as_micros() / 1_000_000).unwrap();
    (second(start), second(end))
}

#[test]
fn every_zone_agrees_with_jiff_around_each_of_its_changes() {
    let mut compared = 0;
    for name in db().available() {
        let (zone, time_zone) = (zone(name.as_str()), time_zone(name.as_str()));
        let changes = time_zone
            .following(JiffTimestamp::from_second(0).unwrap())
            .map(|change| change.timestamp().as_second())
            .take_while(|&second| second < 2_200_000_000);
        for change in changes {
            for unit in UNITS {
                let calendar = Calendar::new(unit, zone.clone());
                for off in [-7_200, -1, 0, 1, 1_800, 3_600, 7_200, 86_400] {
                    let second = (change + off).max(0);
                    let expected = expected(unit, &time_zone, second);
                    assert_eq!(window(&calendar, second), expected, "{unit:?} {name} {second}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 100_000, "the database has hundreds of zones, not {compared} instants");
}

proptest! {
    #![proptest_config(model::cases(5_000))]

    #[test]
    fn any_instant_has_the_window_that_jiff_gives_it(
        name in prop::sample::select(NAMES.to_vec()),
        unit in prop::sample::select(UNITS.to_vec()),
        second in 0..END_SECONDS,
    ) {
        let calendar = Calendar::new(unit, zone(name));
        prop_assert_eq!(window(&calendar, second), expected(unit, &time_zone(name), second));
    }
}

#[test]
fn windows_follow_each_other_without_gap_or_overlap() {
    for name in NAMES {
        let zone = zone(name);
        for unit in UNITS {
            let calendar = Calendar::new(unit, zone.clone());
            let mut begin = Timestamp::ZERO;
            while begin < Timestamp::from_secs(END_SECONDS.cast_unsigned()) {
                let (start, end) = calendar.window_containing(begin);
                assert_eq!(start, begin, "{unit:?} {name}");
                assert!(end > start);
                let last = end.minus(Span::TICK);
                assert_eq!(calendar.window_containing(last), (start, end), "{unit:?} {name}");
                begin = end;
            }
        }
    }
}

/// The start of the day of this date at noon, in local time, and its length in hours.
fn day(name: &str, date: Date) -> (String, i64) {
    let noon = date.at(12, 0, 0, 0).to_zoned(time_zone(name)).unwrap();
    let calendar = Calendar::new(CalendarUnit::Day, zone(name));
    let (start, end) = window(&calendar, noon.timestamp().as_second());
    let start_local = JiffTimestamp::from_second(start).unwrap().to_zoned(time_zone(name));
    (start_local.datetime().to_string(), (end - start) / 3_600)
}

#[test]
fn days_are_as_long_as_daylight_saving_makes_them() {
    let berlin = |date| day("Europe/Berlin", date).1;
    assert_eq!(berlin(date(2024, 3, 31)), 23);
    assert_eq!(berlin(date(2024, 7, 1)), 24);
    assert_eq!(berlin(date(2024, 10, 27)), 25);
}

#[test]
fn a_day_without_midnight_starts_after_the_gap() {
    assert_eq!(day("Asia/Beirut", date(2024, 3, 31)), ("2024-03-31T01:00:00".into(), 23));
    assert_eq!(day("America/Sao_Paulo", date(2018, 11, 4)), ("2018-11-04T01:00:00".into(), 23));
}

#[test]
fn a_day_with_two_midnights_starts_at_the_first() {
    assert_eq!(day("America/Havana", date(2024, 11, 3)), ("2024-11-03T00:00:00".into(), 25));
}

#[test]
fn the_day_that_apia_skipped_has_no_window() {
    assert_eq!(day("Pacific/Apia", date(2011, 12, 29)), ("2011-12-29T00:00:00".into(), 24));
    assert_eq!(day("Pacific/Apia", date(2011, 12, 31)), ("2011-12-31T00:00:00".into(), 24));
    let calendar = Calendar::new(CalendarUnit::Day, zone("Pacific/Apia"));
    let noon = date(2011, 12, 29).at(12, 0, 0, 0).to_zoned(time_zone("Pacific/Apia")).unwrap();
    let (_, end) = window(&calendar, noon.timestamp().as_second());
    let next = JiffTimestamp::from_second(end).unwrap().to_zoned(time_zone("Pacific/Apia"));
    assert_eq!(next.date(), date(2011, 12, 31));
}
