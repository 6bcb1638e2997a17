//! Texts that people write, and the limits that they mean.

use tidegate_core::calendar::CalendarUnit;
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, FixedWindow, LeakyBucket, Limit, Rate, SlidingLog, SlidingSlots, SlidingWindow,
    Span, SteppedBucket, TokenBucket,
};
use tidegate_rules::{Algorithm, Field, LimitSpec, describe, parse_limit, parse_period};

fn rate(count: u64, period: Span) -> Rate {
    Rate::new(count, period).expect("a rate")
}

fn bucket(count: u64, period: Span, burst: u64) -> Limit {
    TokenBucket::new(rate(count, period), burst).expect("a bucket").into()
}

#[test]
fn a_rate_is_a_token_bucket_that_holds_its_count() {
    let secs = Span::from_secs;
    for (text, count, period) in [
        ("10/s", 10, Span::SECOND),
        ("10/second", 10, Span::SECOND),
        ("10 / sec", 10, Span::SECOND),
        ("  10/S  ", 10, Span::SECOND),
        ("10\u{a0}PER\tSeconds", 10, Span::SECOND),
        ("100 per minute", 100, Span::MINUTE),
        ("300 per 3h", 300, secs(10_800)),
        ("300/3 hours", 300, secs(10_800)),
        ("500 per hour", 500, Span::HOUR),
        ("5/day", 5, Span::DAY),
        ("1/week", 1, secs(7 * 86_400)),
        ("1/month", 1, secs(30 * 86_400)),
        ("1 per year", 1, secs(365 * 86_400)),
        ("1_000/min", 1_000, Span::MINUTE),
        ("10k/s", 10_000, Span::SECOND),
        ("10K/s", 10_000, Span::SECOND),
        ("10M/s", 10_000_000, Span::SECOND),
        ("1 per 90s", 1, secs(90)),
        ("10/100ms", 10, Span::from_millis(100)),
        ("1/1us", 1, Span::TICK),
        ("1/5µs", 1, Span::from_micros(5)),
        ("5 per 1m30s", 5, secs(90)),
        ("5 per 1 h 30 min", 5, secs(5_400)),
        ("007/s", 7, Span::SECOND),
        ("10 requests per minute", 10, Span::MINUTE),
        ("1 request/s", 1, Span::SECOND),
        ("10k Calls / 3h", 10_000, secs(10_800)),
        ("5 hits per day", 5, Span::DAY),
    ] {
        assert_eq!(parse_limit(text), Ok(bucket(count, period, count)), "{text:?}");
    }
}

#[test]
fn every_algorithm_can_be_said_in_text() {
    let minute = rate(10, Span::MINUTE);
    let second = rate(20, Span::SECOND);
    let slots =
        |slots, per_slot| SlidingSlots::new(rate(500, Span::HOUR), slots, per_slot).unwrap();
    let stepped = SteppedBucket::new(second, 50).unwrap();
    let fixed = |windows| Limit::from(FixedWindow::new(10, windows).unwrap());
    let limits: [(&str, Limit); 16] = [
        ("20/s burst 50", bucket(20, Span::SECOND, 50)),
        ("20/s token-bucket burst 1k", bucket(20, Span::SECOND, 1_000)),
        ("20/s burst 50 stepped", stepped.into()),
        ("20/s Token_Bucket Stepped Burst 50", stepped.into()),
        ("10/minute leaky-bucket", LeakyBucket::new(minute, 10).unwrap().into()),
        ("20/s leaky-bucket burst 5", LeakyBucket::new(second, 5).unwrap().into()),
        ("10/minute fixed-window", fixed(Windows::Clock(Span::MINUTE))),
        ("10/minute fixed-window from-first-request", fixed(Windows::FirstRequest(Span::MINUTE))),
        ("10/minute sliding-window", SlidingWindow::new(minute).unwrap().into()),
        ("10/minute sliding-log", SlidingLog::new(minute).unwrap().into()),
        ("500/hour sliding-slots", slots(60, None).into()),
        ("500/hour sliding-slots slots 30", slots(30, None).into()),
        ("500/hour sliding-slots per-slot 10 slots 60", slots(60, Some(10)).into()),
        ("5 at once", Concurrency::new(5, Span::MINUTE).unwrap().into()),
        ("5 concurrent", Concurrency::new(5, Span::MINUTE).unwrap().into()),
        ("5 at-once for 30s", Concurrency::new(5, Span::from_secs(30)).unwrap().into()),
    ];
    for (text, limit) in limits {
        assert_eq!(parse_limit(text), Ok(limit), "{text:?}");
    }
}

#[test]
fn windows_of_the_calendar_follow_a_named_zone() {
    for (text, name) in [
        ("9/month fixed-window in Asia/Tokyo", "Asia/Tokyo"),
        ("9 per month in europe/berlin fixed-window", "Europe/Berlin"),
        ("9 per month in utc fixed-window", "UTC"),
    ] {
        let limit = parse_limit(text).unwrap();
        let Limit::FixedWindow(window) = &limit else { panic!("{limit:?}") };
        let Windows::Calendar(calendar) = window.windows() else { panic!("{window:?}") };
        assert_eq!((calendar.unit(), calendar.zone().name()), (CalendarUnit::Month, name));
        assert_eq!(parse_limit(&describe(&limit)), Ok(limit), "{text}");
    }
}

#[test]
fn every_example_of_the_documentation_is_a_limit() {
    let documentation = include_str!("../src/text.rs");
    let rows = documentation.lines().filter_map(|line| line.strip_prefix("//! | `"));
    let examples: Vec<&str> = rows
        .filter_map(|row| row.split(" | ").next())
        .flat_map(|cell| cell.trim_end_matches('`').split("`, `"))
        .collect();
    assert!(examples.len() > 15, "{examples:?}");
    for text in examples {
        assert!(parse_limit(text).is_ok(), "{text:?}: {:?}", parse_limit(text));
    }
}

#[test]
fn periods_can_be_said_alone() {
    for (text, secs) in [("30s", 30), ("hour", 3_600), (" 1m 30s ", 90), ("0s", 0)] {
        assert_eq!(parse_period(text), Ok(Span::from_secs(secs)), "{text:?}");
    }
}

#[test]
fn parts_that_do_not_fit_together_are_named_without_a_text() {
    let mut spec: LimitSpec = "10/minute burst 5".parse().unwrap();
    spec.algorithm = Some(Algorithm::SlidingLog);
    let error = spec.build().unwrap_err();
    assert_eq!(error.field, Field::Burst);
    assert_eq!(
        error.to_string(),
        "`burst` does not apply to sliding-log: use it with token-bucket or leaky-bucket"
    );
}
