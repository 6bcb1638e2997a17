//! The one file that reads the system's clocks.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use super::engine::Counters;

/// The counters of this machine.
#[derive(Debug)]
pub(super) struct OsCounters {
    /// Where `mono_ns` counts from: an `Instant` has no number of its own.
    origin: OnceLock<Instant>,
}

impl OsCounters {
    pub(super) const fn new() -> Self {
        Self { origin: OnceLock::new() }
    }
}

impl Counters for OsCounters {
    #[cfg(target_arch = "x86_64")]
    fn has_tsc(&self) -> bool {
        super::tsc::is_invariant()
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn tsc(&self) -> u64 {
        super::tsc::ticks()
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn has_tsc(&self) -> bool {
        false
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn tsc(&self) -> u64 {
        0
    }

    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clocks")]
    fn mono_ns(&self) -> u64 {
        let now = Instant::now();
        nanos(now.saturating_duration_since(*self.origin.get_or_init(|| now)))
    }

    /// A wall clock before 1970 reads as the epoch itself.
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the clocks")]
    fn wall_ns(&self) -> u64 {
        nanos(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }
}

/// Whole nanoseconds, which 64 bits hold until the year 2554; saturates there.
fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}
