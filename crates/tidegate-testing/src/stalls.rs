//! Machines that stand still for a moment: shared ones do, and whatever was to happen in time did not.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How often something is tried until the machine does not stand still.
const TRIES: usize = 5;
/// How often each processor is looked at, and how late that is where it stood still.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LATE: Duration = Duration::from_millis(40);

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
/// is run again; where the machine did not, it has failed.
pub fn undisturbed(test: impl Fn()) {
    for left in (0..TRIES).rev() {
        let before = stood_still();
        let Err(failure) = catch_unwind(AssertUnwindSafe(&test)) else { return };
        let meanwhile = stood_still().saturating_sub(before);
        if left == 0 || meanwhile.is_zero() {
            resume_unwind(failure);
        }
        println!("the machine stood still for {meanwhile:?} meanwhile; it is tried again");
    }
}

/// For how long processors have stood still so far, all of them together.
fn stood_still() -> Duration {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(watch);
    Duration::from_micros(STOOD_STILL_US.load(Ordering::Relaxed))
}

static STOOD_STILL_US: AtomicU64 = AtomicU64::new(0);

/// Begins to look at every processor that this process may use.
fn watch() {
    let all = sched_getaffinity(None).unwrap_or_default();
    for processor in (0..CpuSet::MAX_CPU).filter(|number| all.is_set(*number)) {
        std::thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(processor);
            // Without it the system chooses where it runs, and less is seen.
            let _ = sched_setaffinity(None, &one);
            look_on();
        });
    }
}

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
}
