//! How many requests may be sent a second time: a share of those that are sent, so that retries never
//! become the load that keeps an upstream down.

use std::sync::atomic::{AtomicU32, Ordering};

/// What one request adds, and what a retry takes: one in five.
const DEPOSIT: u32 = 1;
const RETRY: u32 = 5;
/// How much there is at first and at most: ten retries.
const BALANCE_MAX: u32 = 10 * RETRY;

/// The budget of one group of upstreams.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU32);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU32::new(BALANCE_MAX))
    }
}

impl Budget {
    // ORDERING: the number stands for itself.

    /// A request was sent for the first time.
    pub(crate) fn deposit(&self) {
        if self.0.load(Ordering::Relaxed) < BALANCE_MAX {
            let add = |balance: u32| Some((balance + DEPOSIT).min(BALANCE_MAX));
            let _ = self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// Whether one may be sent again, which takes it.
    pub(crate) fn withdraw(&self) -> bool {
        let take = |balance: u32| balance.checked_sub(RETRY);
        self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_requests() {
        let budget = Budget::default();
        let first = (0..100).filter(|_| budget.withdraw()).count();
        assert_eq!(first, 10);
        for _ in 0..50 {
            budget.deposit();
        }
        assert_eq!((0..100).filter(|_| budget.withdraw()).count(), 10);
    }
}
