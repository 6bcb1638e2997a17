//! How many retries there may be, over all calls: a share of what is asked anyway, so that a server in
//! trouble is not asked several times as much.

use std::sync::atomic::{AtomicU64, Ordering};

/// A share of calls that may be made again. One budget may be shared by many callers.
#[derive(Debug)]
pub struct RetryBudget {
    /// What is there, in hundredths of a retry.
    hundredths: AtomicU64,
    percent: u64,
    most: u64,
}

/// A whole retry.
const RETRY: u64 = 100;

impl RetryBudget {
    /// The share of a budget that nobody chose, in percent.
    pub const PERCENT_DEFAULT: u8 = 20;
    /// How many retries there may be at once in a budget that nobody chose.
    pub const BURST_DEFAULT: u32 = 20;

    /// So many retries for every hundred calls, and at most so many at once, which is also what there is
    /// at the beginning.
    pub fn new(percent: u8, burst: u32) -> Self {
        let most = u64::from(burst) * RETRY;
        Self { hundredths: AtomicU64::new(most), percent: percent.into(), most }
    }

    /// No retries at all.
    pub fn none() -> Self {
        Self::new(0, 0)
    }

    /// A call is made, which earns its share.
    pub(crate) fn earn(&self) {
        let more = |is: u64| (is < self.most).then(|| (is + self.percent).min(self.most));
        // ORDERING: the number guards nothing but itself.
        _ = self.hundredths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Takes a retry, if there is one.
    pub(crate) fn take(&self) -> bool {
        let less = |is: u64| is.checked_sub(RETRY);
        // ORDERING: the number guards nothing but itself.
        self.hundredths.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(Self::PERCENT_DEFAULT, Self::BURST_DEFAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_calls() {
        let budget = RetryBudget::new(10, 3);
        assert_eq!((0..10).filter(|_| budget.take()).count(), 3);
        (0..100).for_each(|_| budget.earn());
        // A hundred calls would earn ten, and only three are kept.
        assert_eq!((0..10).filter(|_| budget.take()).count(), 3);
        let retries = (0..1000).filter(|_| {
            budget.earn();
            budget.take()
        });
        assert_eq!(retries.count(), 100);
        assert!(!RetryBudget::none().take());
    }
}
