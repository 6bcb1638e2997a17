//! The answer to one call, over all limits of the limiter.

use std::time::Duration;

use tidegate_core::{self as core, LeaseId, Span, Timestamp, Verdict};

/// Whether a call may pass, and what its *binding* limit says: the one that denies it for longest,
/// or, when all allow it, the one with least left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision that nobody reads limits nothing"]
pub struct Decision {
    /// With the longest delay of all limits and the first lease, where it is allowed.
    binding: core::Decision,
    index: usize,
    at: Timestamp,
}

impl Decision {
    #[inline]
    pub(crate) fn of_one(decision: core::Decision, at: Timestamp) -> Self {
        Self { binding: decision, index: 0, at }
    }

    /// The decision that follows from those of all limits; there is at least one.
    pub(crate) fn of_all(decisions: &[core::Decision], at: Timestamp) -> Self {
        let (mut index, mut delay) = (0, Span::ZERO);
        for (other, decision) in decisions.iter().enumerate() {
            delay = delay.max(decision.delay());
            if severity(decision) > severity(&decisions[index]) {
                index = other;
            }
        }
        let mut binding = decisions[index];
        if binding.is_allowed() {
            binding.verdict = Verdict::Allow { delay };
            // Whoever is allowed has to give the place back, whichever limit binds.
            binding.lease = decisions.iter().find_map(|decision| decision.lease);
        }
        Self { binding, index, at }
    }

    /// Whether the call may pass, perhaps after [`Decision::delay`].
    #[inline]
    pub const fn is_allowed(&self) -> bool {
        self.binding.is_allowed()
    }

    /// How long to wait before the same call passes, if nobody else asks; `None` if it was allowed,
    /// or if it never will, since its cost is more than the limit can hold.
    pub fn retry_after(&self) -> Option<Duration> {
        self.binding.retry_after().map(Duration::from)
    }

    /// Whether the cost is more than the limit can ever hold.
    pub const fn never_fits(&self) -> bool {
        matches!(self.binding.verdict, Verdict::NeverFits)
    }

    /// How long to hold an allowed call back. Only leaky buckets ask for that.
    pub fn delay(&self) -> Duration {
        self.binding.delay().into()
    }

    /// The most that the binding limit can have left: its burst, or its number per window.
    pub const fn limit(&self) -> u64 {
        self.binding.limit
    }

    /// How much the binding limit has left, rounded down.
    pub const fn remaining(&self) -> u64 {
        self.binding.remaining
    }

    /// How long until the binding limit has everything back.
    pub fn reset_after(&self) -> Duration {
        self.binding.reset_after.into()
    }

    /// Which of the limiter's limits is binding, counted from 0 in the order they were given.
    pub const fn limit_index(&self) -> usize {
        self.index
    }

    /// When it was decided, to [refund](crate::Limiter::refund) it by.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// The lease of the limiter's concurrency limit, where it has one. With more than one of them, use
    /// [`acquire`](crate::Limiter::acquire), which keeps all leases.
    pub const fn lease(&self) -> Option<LeaseId> {
        self.binding.lease
    }
}

/// Orders decisions by how much they bind.
pub(crate) fn severity(decision: &core::Decision) -> (u8, u64) {
    match decision.verdict {
        Verdict::Allow { .. } => (0, u64::MAX - decision.remaining),
        Verdict::Deny { retry_after } => (1, retry_after.as_micros()),
        Verdict::NeverFits => (2, 0),
    }
}
