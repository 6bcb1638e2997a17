//! The clocks that users meet, the real one included. Bounds are wide and readings are bracketed, so
//! that a machine that stops a thread for a while fails nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tidegate::clock::{Clock, ManualClock, SystemClock};
use tidegate_core::{Span, Timestamp};

/// What the system clock may differ from the wall clock beyond the bracket: the promise is a few
/// microseconds, and the rest is for a machine whose own clocks are being corrected meanwhile.
const SLACK: Span = Span::from_millis(1);

#[expect(clippy::disallowed_methods, reason = "the wall clock is what ours is compared with")]
fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[expect(clippy::disallowed_methods, reason = "it shows whether the wall clock was set meanwhile")]
fn mono() -> Instant {
    Instant::now()
}

/// How far ours was from the wall clock at worst in a fifth of a second, which goes through warming
/// up and onto the counter. None if the wall clock was set meanwhile, since ours follows it later.
fn worst_error() -> Option<Span> {
    let (start, mono_start) = (wall(), mono());
    let mut worst = Span::ZERO;
    while mono() - mono_start < Duration::from_millis(200) {
        // Both ends are read, so that a pause in between only makes the bracket wider.
        let before = wall();
        let ours = SystemClock.now();
        let after = wall();
        worst = worst.max(before.since(ours)).max(ours.since(after));
    }
    let (wall_passed, mono_passed) = (wall().since(start), Span::from(mono() - mono_start));
    let apart = wall_passed.as_micros().abs_diff(mono_passed.as_micros());
    (apart < SLACK.as_micros() / 2).then_some(worst)
}

#[test]
fn the_system_clock_agrees_with_the_wall_clock() {
    const ROUNDS_MAX: usize = 20;
    let worst = (0..ROUNDS_MAX).find_map(|_| worst_error());
    // A machine that sets its clock all the time says nothing about ours.
    assert!(worst.is_none_or(|worst| worst <= SLACK), "off by {worst:?}");
}

#[test]
fn the_system_clock_never_runs_back_between_threads() {
    const THREADS: usize = 4;
    const READINGS: usize = 500_000;
    let latest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..READINGS {
                    let earlier = latest.load(Ordering::Acquire);
                    let now = SystemClock.now().as_micros();
                    assert!(earlier <= now, "time ran back from {earlier} to {now}");
                    latest.store(now, Ordering::Release);
                }
            });
        }
    });
}

/// A time that was told in order is behind no later one of either kind, and times without an order are behind
/// each other by no more than a step.
#[test]
fn times_without_an_order_are_behind_none_that_has_one_and_close_to_each_other() {
    const THREADS: usize = 4;
    const READINGS: usize = 200_000;
    const STEP_US: u64 = 64;
    let (ordered, any) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for reading in 0..READINGS {
                    let (earlier, any_earlier) =
                        (ordered.load(Ordering::Acquire), any.load(Ordering::Acquire));
                    let now = SystemClock.now_unordered().as_micros();
                    assert!(earlier <= now, "time ran back from {earlier} to {now}");
                    assert!(any_earlier < now + STEP_US, "from {any_earlier} to {now}");
                    any.fetch_max(now, Ordering::AcqRel);
                    if reading % 100 == 0 {
                        ordered.fetch_max(SystemClock.now().as_micros(), Ordering::AcqRel);
                    }
                }
            });
        }
    });
}

#[test]
fn the_system_clock_moves() {
    let start = SystemClock.now();
    // Far more readings than fit in a microsecond on any machine.
    assert!((0..10_000_000).any(|_| SystemClock.now() > start));
}

#[test]
fn a_manual_clock_moves_only_by_hand() {
    let clock = ManualClock::starting_at(Timestamp::from_secs(100));
    assert_eq!(clock.now(), clock.now());
    clock.advance(Span::SECOND);
    clock.advance(Duration::from_millis(500));
    assert_eq!(clock.now(), Timestamp::from_micros(101_500_000));
    clock.set(Timestamp::from_secs(7));
    assert_eq!(clock.now(), Timestamp::from_secs(7));
    assert_eq!(ManualClock::new().now(), Timestamp::ZERO);
}

#[test]
fn a_manual_clock_stops_at_the_end_of_time() {
    let clock = ManualClock::starting_at(Timestamp::MAX);
    clock.advance(Span::MAX);
    clock.advance(Duration::MAX);
    assert_eq!(clock.now(), Timestamp::MAX);
}

#[test]
fn clones_of_a_manual_clock_show_the_same_time_in_every_thread() {
    const STEPS: u32 = 1_000;
    let clock = ManualClock::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let clock = clock.clone();
            scope.spawn(move || (0..STEPS).for_each(|_| clock.advance(Span::TICK)));
        }
    });
    assert_eq!(clock.now().as_micros(), u64::from(4 * STEPS));
}

#[test]
fn clocks_can_be_shared_and_named_by_their_trait() {
    fn seconds(clock: impl Clock) -> u64 {
        clock.now().as_micros() / 1_000_000
    }
    let clock = ManualClock::starting_at(Timestamp::from_secs(3));
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    assert_eq!([seconds(&clock), seconds(&shared), seconds(shared), seconds(clock)], [3; 4]);
}
