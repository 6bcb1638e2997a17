//! Dates of the proleptic Gregorian calendar, as days since 1970-01-01. Years are counted from the
//! first of March inside, so that the leap day is the last day of a year and needs no special case.

/// The length of a day without daylight saving.
pub(super) const DAY_SECONDS: i64 = 86_400;

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;
/// Days in the 400 years after which the calendar repeats.
const ERA: i64 = 146_097;

/// The day on which a month, 1 to 12, starts.
pub(super) const fn first_day(year: i64, month: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    // From March on, the months have 31, 30, 31, 30, 31 days, and again, which is 153 in five.
    let day_of_year = (153 * month + 2) / 5;
    era * ERA + 365 * year + year / 4 - year / 100 + day_of_year - EPOCH
}

/// The year and the month, 1 to 12, that contain a day.
pub(super) const fn year_and_month(day: i64) -> (i64, i64) {
    let day = day + EPOCH;
    let (era, day) = (day.div_euclid(ERA), day.rem_euclid(ERA));
    // The leap days before it are taken out: one in 4 years, none in 100, and one in 400.
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let year = era * 400 + year;
    if month < 10 { (year, month + 3) } else { (year + 1, month - 9) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn month_length(year: i64, month: i64) -> i64 {
        match month {
            4 | 6 | 9 | 11 => 30,
            2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
            2 => 28,
            _ => 31,
        }
    }

    #[test]
    fn months_follow_each_other_as_the_calendar_on_the_wall_says() {
        let mut day = 0;
        for year in 1970..2_800 {
            for month in 1..=12 {
                assert_eq!(first_day(year, month), day, "{year}-{month}");
                assert_eq!(year_and_month(day), (year, month));
                day += month_length(year, month);
                assert_eq!(year_and_month(day - 1), (year, month));
            }
        }
    }

    #[test]
    fn the_calendar_works_far_beyond_the_end_of_time() {
        for year in [-1_000_000, -1, 0, 146_000, 1_000_000] {
            for month in 1..=12 {
                assert_eq!(year_and_month(first_day(year, month)), (year, month));
            }
        }
    }
}
