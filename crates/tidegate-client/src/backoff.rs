//! How long to wait before a call is made again: exponentially longer, and anywhere between nothing and
//! that, so that callers who failed together do not come back together.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::time::Instant;

/// As far off as anybody waits. A moment further off may be more than the clock can say.
const FAR: Duration = Duration::from_hours(10 * 366 * 24);

/// How waits grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    /// The longest first wait.
    pub(crate) first: Duration,
    /// The longest of all.
    pub(crate) longest: Duration,
}

/// The waits before a message is sent again that failed.
pub(crate) const RETRY: Backoff =
    Backoff { first: Duration::from_millis(5), longest: Duration::from_millis(200) };

impl Backoff {
    /// Full jitter: anything up to twice as much as last time. `failures` is 1 after the first.
    pub(crate) fn wait(self, failures: u32) -> Duration {
        random_up_to(self.ceiling(failures))
    }

    fn ceiling(self, failures: u32) -> Duration {
        // 2^31 times the shortest wait is beyond any longest one.
        let doublings = failures.saturating_sub(1).min(31);
        self.first.saturating_mul(1 << doublings).min(self.longest)
    }
}

/// Anything from nothing to `most`, each as likely. The randomness is that of hash maps, which is
/// enough to keep callers apart.
pub(crate) fn random_up_to(most: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8);
    let most_us = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
    let part = (u128::from(random) * (u128::from(most_us) + 1)) >> 64;
    Duration::from_micros(u64::try_from(part).unwrap_or(most_us))
}

/// The moment after such a time, or one that nobody lives to see: who says `Duration::MAX` means for ever.
pub(crate) fn moment_after(now: Instant, time: Duration) -> Instant {
    now + time.min(FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(500) };

    #[test]
    fn the_ceiling_doubles_up_to_the_longest() {
        let ceilings = [0, 1, 2, 3, 6, 7, 40, u32::MAX].map(|n| BACKOFF.ceiling(n).as_millis());
        assert_eq!(ceilings, [10, 10, 20, 40, 320, 500, 500, 500]);
    }

    #[test]
    fn waits_are_spread_over_all_of_it() {
        let waits: Vec<_> = (0..1000).map(|_| BACKOFF.wait(3)).collect();
        assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(40)));
        // Each quarter has its share; that one of them has fewer than 100 of 1,000 happens never.
        for quarter in 0..4 {
            let (from, to) = (quarter * 10, quarter * 10 + 10);
            let within = |wait: &&Duration| (from..to).contains(&wait.as_millis());
            assert!(waits.iter().filter(within).count() > 100);
        }
    }
}
