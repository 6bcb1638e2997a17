//! Counters that many threads add to without a lock and without fighting over one cache line. What
//! they are called is no business of this file.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::shard::{self, Shard};

/// Several counters of one thing, a copy for each of a few threads. They only go up.
pub(super) struct Cells<const N: usize> {
    copies: Box<[Copy<N>]>,
}

/// Aligned to a cache line, so that no two copies share one.
#[repr(align(64))]
struct Copy<const N: usize>([AtomicU64; N]);

impl<const N: usize> Cells<N> {
    pub(super) fn new() -> Self {
        let copy = |_| Copy(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { copies: (0..shard::count()).map(copy).collect() }
    }

    /// Adds to one of the counters.
    #[inline]
    pub(super) fn add(&self, counter: usize, amount: u64) {
        self.add_each([(counter, amount)]);
    }

    /// Adds to several of them.
    #[inline]
    pub(super) fn add_each<const M: usize>(&self, amounts: [(usize, u64); M]) {
        let shard = Shard::of_this_thread();
        let copy = &self.copies[shard.index];
        for (counter, amount) in amounts {
            shard.add(&copy.0[counter], amount);
        }
    }

    /// One of the counters, over all copies.
    pub(super) fn sum(&self, counter: usize) -> u64 {
        // ORDERING: a sum that misses what is being added right now is as good as one a moment ago.
        let counts = self.copies.iter().map(|copy| copy.0[counter].load(Ordering::Relaxed));
        counts.fold(0, u64::wrapping_add)
    }

    /// All counters, over all copies.
    pub(super) fn sums(&self) -> [u64; N] {
        std::array::from_fn(|counter| self.sum(counter))
    }
}

impl<const N: usize> fmt::Debug for Cells<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cells").field(&self.sums()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_add_at_the_same_time_is_all_there() {
        let cells = Cells::<3>::new();
        std::thread::scope(|scope| {
            // More than there are copies that belong to one thread.
            for _ in 0..80 {
                scope.spawn(|| (0..1_000).for_each(|_| cells.add_each([(0, 1), (2, 5)])));
            }
        });
        assert_eq!(cells.sums(), [80_000, 0, 400_000]);
    }

    #[test]
    fn no_two_copies_share_a_cache_line() {
        assert!(align_of::<Copy<3>>() >= 64 && size_of::<Copy<3>>().is_multiple_of(64));
    }
}
