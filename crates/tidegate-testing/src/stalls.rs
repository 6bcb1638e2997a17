//! Machines that stand still for a moment: shared ones do, and whatever was to happen in time did not.

use std::fmt::Display;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often something is tried until the machine does not stand still.
const TRIES: usize = 5;
/// How late a processor is looked at where it stood still.
const LATE: Duration = Duration::from_millis(40);
/// How often each processor is looked at.
#[cfg(target_os = "linux")]
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// How many processors are looked at. Where there are more, one that stands still holds up less.
#[cfg(target_os = "linux")]
const WATCHED_MAX: usize = 8;

/// What was seen in less than this time, of something new. A machine that stood still meanwhile has shown nothing, and
/// is asked again.
///
/// # Panics
///
/// Where it takes longer time and again.
#[expect(clippy::disallowed_methods, reason = "what real servers do takes real time")]
pub fn seen_within<N, T>(time: Duration, mut begin: impl FnMut() -> N, see: impl Fn(&N) -> T) -> T {
    for _ in 0..TRIES {
        let new = begin();
        let began = Instant::now();
        let seen = see(&new);
        if began.elapsed() < time {
            return seen;
        }
    }
    panic!("it took longer than {time:?} each of {TRIES} times");
}

/// Runs a test whose claims are about time. Where it fails and the machine stood still meanwhile it has shown nothing, and
/// is run again; where the machine did not, it has failed. So it has where [`always`] says so.
///
/// # Panics
///
/// As the test does.
pub fn undisturbed(test: impl Fn()) {
    for left in (0..TRIES).rev() {
        let before = stood_still();
        let Err(failure) = catch_unwind(AssertUnwindSafe(&test)) else { return };
        if let Some(Broken(promise)) = failure.downcast_ref() {
            panic!("whatever the machine does: {promise}");
        }
        // Whoever looks at the processors has had time for it since.
        std::thread::park_timeout(LATE);
        let meanwhile = stood_still().saturating_sub(before);
        if left == 0 || meanwhile.is_zero() {
            resume_unwind(failure);
        }
        // Not by a macro, whose words nobody sees of a test that passes in the end.
        let told = format!("the machine stood still for {meanwhile:?}; a test is tried again\n");
        let _ = std::io::stderr().write_all(told.as_bytes());
    }
}

/// A promise that holds whatever the machine does: a test that finds it broken is not tried again.
pub fn always(is_kept: bool, otherwise: impl Display) {
    if !is_kept {
        let promise = otherwise.to_string();
        println!("{promise}");
        panic_any(Broken(promise));
    }
}

/// What was said of a promise that does not hold.
struct Broken(String);

/// For how long processors have stood still so far, all of them together.
fn stood_still() -> Duration {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(watch);
    Duration::from_micros(STOOD_STILL_US.load(Ordering::Relaxed))
}

static STOOD_STILL_US: AtomicU64 = AtomicU64::new(0);

/// Elsewhere nothing is seen, and whatever fails has failed.
#[cfg(not(target_os = "linux"))]
fn watch() {}

/// Begins to look at every processor that this process may use.
#[cfg(target_os = "linux")]
fn watch() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    let all = sched_getaffinity(None).unwrap_or_default();
    let processors = (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number));
    for processor in processors.take(WATCHED_MAX) {
        std::thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(processor);
            // Without it the system chooses where it runs, and less is seen.
            let _ = sched_setaffinity(None, &one);
            look_on();
        });
    }
}

#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "it looks for real time that is missing")]
fn look_on() {
    let mut before = Instant::now();
    loop {
        std::thread::park_timeout(LOOK_EVERY);
        let now = Instant::now();
        let late = (now - before).saturating_sub(LOOK_EVERY);
        if late >= LATE {
            STOOD_STILL_US.fetch_add(late.as_micros() as u64, Ordering::Relaxed);
        }
        before = now;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_took_too_long_is_not_what_was_seen() {
        let begun = Cell::new(0);
        let begin = || begun.replace(begun.get() + 1);
        assert_eq!(seen_within(Duration::MAX, begin, |number| *number), 0);
        let slow = AssertUnwindSafe(|| seen_within(Duration::ZERO, begin, |_| ()));
        assert!(catch_unwind(slow).is_err());
        assert_eq!(begun.get(), 1 + TRIES);
    }

    #[test]
    fn what_fails_is_tried_again_only_where_the_machine_stood_still() {
        let tries = Cell::new(0);
        let failing = |stands_still: bool| {
            tries.set(0);
            let test = || {
                tries.set(tries.get() + 1);
                if stands_still {
                    STOOD_STILL_US.fetch_add(1, Ordering::Relaxed);
                }
                assert!(tries.get() > 2, "it fails twice");
            };
            catch_unwind(AssertUnwindSafe(|| undisturbed(test))).is_err()
        };
        assert!(!failing(true));
        assert_eq!(tries.get(), 3);
        undisturbed(|| {
            assert!(failing(false));
            assert_eq!(tries.get(), 1);
        });
    }

    #[test]
    fn a_broken_promise_is_not_tried_again() {
        let tries = Cell::new(0);
        let broken = AssertUnwindSafe(|| {
            undisturbed(|| {
                tries.set(tries.get() + 1);
                STOOD_STILL_US.fetch_add(1, Ordering::Relaxed);
                always(tries.get() > 1, "it is kept at first");
            });
        });
        assert!(catch_unwind(broken).is_err());
        assert_eq!(tries.get(), 1);
    }
}
