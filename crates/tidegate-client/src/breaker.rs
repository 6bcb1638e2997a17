//! Whether the daemon is worth asking, or one connection to it. While it is away, callers do not wait for it one
//! after the other: one of them tries now and then, and the others are answered at once, or go elsewhere.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;

/// The waits between tries while it is away.
const BETWEEN_TRIES: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(1) };

/// The waits grow no further after so many.
const TRIES_MAX: u32 = 5;

#[derive(Debug)]
pub(crate) struct Breaker {
    started_at: Instant,
    /// After so many failures in a row it is away.
    failures_max: u32,
    failures: AtomicU32,
    /// When the next try may be made, in microseconds since the start.
    next_try_us: AtomicU64,
}

impl Breaker {
    pub(crate) fn new(started_at: Instant, failures_max: u32) -> Self {
        let (failures, next_try_us) = (AtomicU32::new(0), AtomicU64::new(0));
        Self { started_at, failures_max, failures, next_try_us }
    }

    pub(crate) fn is_away(&self) -> bool {
        // ORDERING: a call that sees an older number asks in vain, or does not ask once more.
        self.failures.load(Ordering::Relaxed) >= self.failures_max
    }

    /// Whether this call may ask.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        if !self.is_away() {
            return true;
        }
        let now_us = self.micros(now);
        // ORDERING: as in `is_away`.
        let next = self.next_try_us.load(Ordering::Relaxed);
        // Only the one who moves the time of the next try makes this one.
        let after = now_us.saturating_add(micros(BETWEEN_TRIES.longest));
        now_us >= next
            // ORDERING: as in `is_away`.
            && self.next_try_us.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// An answer came. Says whether the daemon was away until now.
    pub(crate) fn answered(&self) -> bool {
        // ORDERING: as in `is_away`. It is read first, so that answers in a row write nothing.
        if self.failures.load(Ordering::Relaxed) == 0 {
            return false;
        }
        // ORDERING: as in `is_away`.
        self.failures.swap(0, Ordering::Relaxed) >= self.failures_max
    }

    /// No answer came. Says whether the daemon counts as away from now on.
    pub(crate) fn failed(&self, now: Instant) -> bool {
        // ORDERING: as in `is_away`.
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        if before + 1 < self.failures_max {
            return false;
        }
        let tries = before + 2 - self.failures_max;
        let wait = BETWEEN_TRIES.wait(tries.min(TRIES_MAX));
        // ORDERING: as in `is_away`.
        self.next_try_us.store(self.micros(now + wait), Ordering::Relaxed);
        before + 1 == self.failures_max
    }

    fn micros(&self, at: Instant) -> u64 {
        micros(at.saturating_duration_since(self.started_at))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURES_MAX: u32 = 5;

    #[tokio::test(start_paused = true)]
    async fn one_call_at_a_time_tries_whether_the_daemon_is_back() {
        let start = Instant::now();
        let breaker = Breaker::new(start, FAILURES_MAX);
        for failure in 1..=FAILURES_MAX {
            assert!(breaker.may_ask(start));
            assert_eq!(breaker.failed(start), failure == FAILURES_MAX);
        }
        let later = start + BETWEEN_TRIES.longest;
        assert!(breaker.may_ask(later));
        assert!(!breaker.may_ask(later), "the one before is still trying");
        assert!(!breaker.failed(later), "it was away already");
        let later = later + BETWEEN_TRIES.longest;
        assert!(breaker.may_ask(later));
        assert!(breaker.answered());
        assert!(!breaker.answered());
        assert!(breaker.may_ask(later) && breaker.may_ask(later));
    }
}
