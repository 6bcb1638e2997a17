//! How long requests take, in a histogram whose bounds are fixed.

use std::time::Duration;

use super::cells::Cells;

/// The upper bounds of the buckets but the last, which has none: a decision takes a microsecond, a
/// request over a busy connection some milliseconds, and one that waits out a delay seconds.
pub(super) const BOUNDS_NS: [u64; 18] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
];

const BUCKETS: usize = BOUNDS_NS.len() + 1;
/// Where the sum of all times stands, in nanoseconds.
const SUM: usize = BUCKETS;

/// How long requests took.
#[derive(Debug)]
pub(super) struct Latency(Cells<{ BUCKETS + 1 }>);

/// A histogram as it is at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// How many took at most as long as each bound; the last is how many there are.
    pub(super) cumulative: [u64; BUCKETS],
    pub(super) sum_ns: u64,
}

impl Latency {
    pub(super) fn new() -> Self {
        Self(Cells::new())
    }

    #[inline]
    pub(super) fn add(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.partition_point(|&bound| bound < ns);
        self.0.add_each([(bucket, 1), (SUM, ns)]);
    }

    pub(super) fn times(&self) -> Times {
        let sums = self.0.sums();
        let mut below = 0;
        let cumulative = std::array::from_fn(|bucket| {
            below += sums[bucket];
            below
        });
        Times { cumulative, sum_ns: sums[SUM] }
    }
}

impl Times {
    /// Adds what another histogram counted.
    pub(super) fn add(&mut self, other: &Self) {
        self.cumulative.iter_mut().zip(other.cumulative).for_each(|(count, more)| *count += more);
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_at_a_bound_is_below_it_and_one_beyond_all_is_counted() {
        let latency = Latency::new();
        for ns in [1, 1_000, 1_001, 10_000_000_000, 10_000_000_001] {
            latency.add(Duration::from_nanos(ns));
        }
        let Times { cumulative, sum_ns } = latency.times();
        assert_eq!((cumulative[0], cumulative[1]), (2, 3));
        assert_eq!((cumulative[BUCKETS - 2], cumulative[BUCKETS - 1]), (4, 5));
        assert_eq!(sum_ns, 1 + 1_000 + 1_001 + 10_000_000_000 + 10_000_000_001);
    }

    #[test]
    fn bounds_go_up() {
        assert!(BOUNDS_NS.is_sorted_by(|one, next| one < next));
    }
}
