//! The rules one by one, on readings made by hand. Runs of the whole clock are with the engine.

use super::*;

const HOUR_NS: u64 = 3_600_000_000_000;
const START_NS: u64 = 1_800_000_000_000_000_000;
/// Ticks per nanosecond.
const TSC_GHZ: u64 = 3;

/// What a perfect machine shows so long after its start.
fn reading(elapsed_ns: u64) -> Reading {
    Reading {
        tsc: 77 + elapsed_ns * TSC_GHZ,
        mono_ns: 1_000 + elapsed_ns,
        wall_ns: START_NS + elapsed_ns,
        doubt_ns: 0,
    }
}

/// An anchor on a counter that is trusted, and the moment it was made.
fn trusted() -> (Anchor, u64) {
    let warm = Anchor::start(reading(0), true).next(reading(WARMING_NS));
    (warm.next(reading(2 * WARMING_NS)), 2 * WARMING_NS)
}

fn micros(anchor: &Anchor, at: &Reading) -> u64 {
    anchor.line.at(at.ticks(anchor.line.source) - anchor.line.ticks)
}

#[test]
fn the_counter_is_used_after_two_measurements_that_agree() {
    let first = Anchor::start(reading(0), true);
    let second = first.next(reading(WARMING_NS));
    assert_eq!((first.line.source, second.line.source), (Source::Mono, Source::Mono));
    let third = second.next(reading(2 * WARMING_NS));
    assert_eq!(third.line.source, Source::Tsc);
    assert_eq!(third.line.fresh_ticks.div_ceil(TSC_GHZ), FRESH_NS);
}

#[test]
fn without_a_counter_the_monotonic_clock_is_used_for_good() {
    let mut anchor = Anchor::start(reading(0), false);
    for n in 1..10 {
        anchor = anchor.next(reading(n * FRESH_NS));
        assert_eq!((anchor.line.source, anchor.trust), (Source::Mono, Trust::Refused));
        assert!(anchor.line.micros.abs_diff((START_NS + n * FRESH_NS) / 1_000) <= 1);
    }
}

#[test]
fn a_line_on_a_perfect_counter_is_the_wall_clock() {
    let (anchor, start) = trusted();
    for age_ns in [0, 1_000, 999_999, FRESH_NS, 2 * FRESH_NS - 1_000] {
        let at = reading(start + age_ns);
        let wall = at.wall_ns / 1_000;
        assert!((wall - 1..=wall).contains(&micros(&anchor, &at)), "at {age_ns} ns");
    }
}

#[test]
fn a_small_gap_is_closed_by_changing_the_pace() {
    for gap_ns in [-50_000_i64, -1_000, 1_000, 50_000] {
        let (anchor, start) = trusted();
        let set = |ns| {
            let at = reading(start + ns);
            Reading { wall_ns: at.wall_ns.saturating_add_signed(gap_ns), ..at }
        };
        let next = anchor.next(set(FRESH_NS));
        let start_ns = ns_from_fixed(next.line.fixed_at(0));
        assert!((start_ns - i128::from(reading(start + FRESH_NS).wall_ns)).abs() < 10, "a jump");
        let last = (2..30).fold(next, |anchor, n| anchor.next(set(n * FRESH_NS)));
        assert!(last.reading.ahead_ns(last.line.fixed_at(0)).abs() < 100, "gap {gap_ns} stayed");
    }
}

#[test]
fn a_wall_clock_set_forward_is_followed_at_once() {
    let (anchor, start) = trusted();
    let at = reading(start + FRESH_NS);
    let next = anchor.next(Reading { wall_ns: at.wall_ns + HOUR_NS, ..at });
    assert_eq!(next.line.micros, (at.wall_ns + HOUR_NS) / 1_000);
    assert_eq!(next.line.source, Source::Tsc, "nothing is wrong with the counter");
}

#[test]
fn a_wall_clock_set_back_slows_time_by_a_thousandth() {
    let (anchor, start) = trusted();
    let at = reading(start + FRESH_NS);
    let next = anchor.next(Reading { wall_ns: at.wall_ns - HOUR_NS, ..at });
    let told = next.line.at(FRESH_NS * TSC_GHZ) - next.line.micros;
    assert!((99_899..=99_900).contains(&told), "{told} us in 100 ms");
    assert!(next.line.micros.abs_diff(at.wall_ns / 1_000) <= 1);
}

#[test]
fn time_that_nobody_saw_goes_on_during_a_pause_although_the_wall_was_set_back() {
    let (anchor, start) = trusted();
    let at = reading(start + HOUR_NS);
    let next = anchor.next(Reading { wall_ns: at.wall_ns - 2 * HOUR_NS, ..at });
    let told = next.line.micros - anchor.line.micros;
    assert!((3_596_399_999..=3_596_400_000).contains(&told), "{told} us in an hour");
}

#[test]
fn after_a_pause_time_is_the_wall_clock() {
    let (anchor, start) = trusted();
    // A pace that is wrong by 100 ppm, to see that the pause is not extrapolated.
    let pace = anchor.line.pace + anchor.line.pace / 10_000;
    let anchor = Anchor { line: Line { pace, ..anchor.line }, ..anchor };
    let at = reading(start + HOUR_NS);
    assert_eq!(anchor.next(at).line.micros, at.wall_ns / 1_000);
    assert_eq!(anchor.next(at).line.source, Source::Tsc);
}

#[test]
fn a_counter_that_jumps_is_measured_anew_and_then_refused() {
    let jump = HOUR_NS * TSC_GHZ;
    let (mut anchor, mut now_ns) = trusted();
    for strike in 1..=STRIKES_MAX {
        let jumped = |ns| Reading { tsc: reading(ns).tsc + strike * jump, ..reading(ns) };
        now_ns += FRESH_NS;
        anchor = anchor.next(jumped(now_ns));
        assert_eq!(anchor.line.source, Source::Mono);
        assert_eq!(anchor.line.micros, jumped(now_ns).wall_ns / 1_000);
        for _ in 0..2 {
            now_ns += WARMING_NS;
            anchor = anchor.next(jumped(now_ns));
        }
        let trusted_again = anchor.line.source == Source::Tsc;
        assert_eq!(trusted_again, strike < STRIKES_MAX, "after strike {strike}");
    }
    assert_eq!(anchor.trust, Trust::Refused);
}

#[test]
fn a_counter_that_goes_back_or_stops_or_changes_its_pace_is_caught() {
    let (anchor, start) = trusted();
    let at = reading(start + FRESH_NS);
    for tsc in [0, anchor.reading.tsc, at.tsc + at.tsc / 100] {
        let next = anchor.next(Reading { tsc, ..at });
        assert_eq!(next.trust, Trust::Warming { pace: None, strikes: 1 }, "counter at {tsc}");
        assert_eq!(next.line.micros, at.wall_ns / 1_000);
    }
}

#[test]
fn a_reading_that_was_interrupted_changes_neither_the_pace_nor_the_time() {
    let (anchor, start) = trusted();
    let at = reading(start + FRESH_NS);
    // The thread was stopped for 8 ms after it had read the counter.
    let late = Reading { wall_ns: at.wall_ns + 8_000_000, doubt_ns: 8_000_000, ..at };
    let next = anchor.next(Reading { mono_ns: at.mono_ns + 4_000_000, ..late });
    assert_eq!(next.trust, anchor.trust);
    assert_eq!(next.line.micros, anchor.line.at(at.tsc - anchor.line.ticks));
    assert_eq!(next.line.pace, anchor.line.pace);
}

#[test]
fn extreme_readings_neither_overflow_nor_panic() {
    let ends = [0, 1, 1 << 32, 1 << 63, u64::MAX];
    let all = || {
        ends.into_iter().flat_map(move |tsc| {
            ends.into_iter().flat_map(move |mono_ns| {
                ends.into_iter().map(move |wall_ns| Reading { tsc, mono_ns, wall_ns, doubt_ns: 0 })
            })
        })
    };
    for first in all() {
        for second in all() {
            let third = Reading { doubt_ns: u64::MAX, ..first };
            let anchor = Anchor::start(first, true).next(second).next(third).next(second);
            assert!(anchor.line.pace > 0 && anchor.line.fresh_ticks > 0);
            let _ = anchor.line.at(u64::MAX);
        }
    }
}
