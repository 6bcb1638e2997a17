//! Which copy of a counter a thread uses, where there are several so that two cores need not fight
//! over one cache line. Nothing here counts.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The most copies. Half of them belong to one thread each, the other half to all threads that come
/// later; so up to 32 worker threads never wait for each other.
pub(crate) const SHARDS_MAX: usize = 64;

/// How many copies there are: two for each thread that the machine runs at once, rounded up to a power
/// of two, so that a mask chooses one.
pub(crate) fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (2 * threads.next_power_of_two()).min(SHARDS_MAX)
    })
}

/// The copy that a thread uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shard {
    /// Its number.
    pub(crate) index: usize,
    /// Whether no other thread writes to it.
    is_own: bool,
}

impl Shard {
    /// The copy of this thread among [`count`].
    #[inline]
    pub(crate) fn of_this_thread() -> Self {
        thread_local! {
            static OF_THREAD: Cell<Option<Shard>> = const { Cell::new(None) };
        }
        OF_THREAD.get().unwrap_or_else(|| {
            let shard = Self::next();
            OF_THREAD.set(Some(shard));
            shard
        })
    }

    /// Threads get their copies in the order in which they first count something. A copy whose thread
    /// has ended stays unused, and its counts stay in it.
    #[cold]
    fn next() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // ORDERING: the numbers need only differ.
        Self::of_number(NEXT.fetch_add(1, Ordering::Relaxed), count())
    }

    fn of_number(number: usize, count: usize) -> Self {
        let own = count / 2;
        if number < own {
            return Self { index: number, is_own: true };
        }
        Self { index: own + (number & (own - 1)), is_own: false }
    }

    /// Adds to a counter of this copy, and says what it was. Where no other thread writes, it need not
    /// be one step, which takes a processor several times as long.
    #[inline]
    pub(crate) fn add(self, counter: &AtomicU64, amount: u64) -> u64 {
        // ORDERING: counters stand for themselves; nothing is read by way of them.
        if self.is_own {
            let before = counter.load(Ordering::Relaxed);
            counter.store(before.wrapping_add(amount), Ordering::Relaxed);
            before
        } else {
            counter.fetch_add(amount, Ordering::Relaxed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_copies_belong_to_one_thread_each_and_the_others_to_all_later_ones() {
        for count in [2, 8, SHARDS_MAX] {
            let shards: Vec<Shard> = (0..4 * count).map(|n| Shard::of_number(n, count)).collect();
            for (number, shard) in shards.iter().enumerate() {
                assert!(shard.index < count);
                let others = shards.iter().filter(|other| other.index == shard.index).count();
                assert_eq!(shard.is_own, number < count / 2);
                assert!(!shard.is_own || others == 1, "{number} of {count}");
            }
        }
    }

    #[test]
    fn the_number_of_copies_is_a_power_of_two_within_its_bound() {
        assert!(count().is_power_of_two() && (2..=SHARDS_MAX).contains(&count()));
    }

    #[test]
    fn a_thread_keeps_its_copy() {
        assert_eq!(Shard::of_this_thread(), Shard::of_this_thread());
    }
}
