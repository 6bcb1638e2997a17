//! A clock that is moved by hand. Not for production: it knows nothing of real time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_core::{Span, Timestamp};

use super::Clock;

/// A clock for tests: it stands still until it is told to move.
///
/// Clones show the same time, so a test keeps one and gives the other away.
///
/// ```
/// use std::time::Duration;
/// use tidegate::clock::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// let theirs = clock.clone();
/// let start = theirs.now();
///
/// clock.advance(Duration::from_secs(60));
///
/// assert_eq!(theirs.now().since(start), Duration::from_secs(60).into());
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    micros: Arc<AtomicU64>,
}

impl ManualClock {
    /// A clock that shows [`Timestamp::ZERO`].
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock that shows `now`.
    pub fn starting_at(now: Timestamp) -> Self {
        Self { micros: Arc::new(AtomicU64::new(now.as_micros())) }
    }

    /// Moves the clock forward by a [`Span`] or a [`Duration`](std::time::Duration), the latter
    /// rounded up to a whole microsecond; at most to [`Timestamp::MAX`].
    pub fn advance(&self, by: impl Into<Span>) {
        let by = by.into();
        // ORDERING: AcqRel and Acquire, so that a thread that sees the new time also sees what the
        // test did before it moved the clock.
        self.micros.update(Ordering::AcqRel, Ordering::Acquire, |micros| {
            Timestamp::from_micros(micros).plus(by).as_micros()
        });
    }

    /// Sets the clock, forward or back: a test may do what real clocks do to each other.
    pub fn set(&self, now: Timestamp) {
        // ORDERING: Release, as in `advance`.
        self.micros.store(now.as_micros(), Ordering::Release);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        // ORDERING: Acquire, as in `advance`.
        Timestamp::from_micros(self.micros.load(Ordering::Acquire))
    }
}
