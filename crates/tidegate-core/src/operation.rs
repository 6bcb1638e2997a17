//! What can be asked of a limit.

use crate::{LeaseId, Timestamp};

/// What is to happen to a limit's state.
///
/// A cost of 0 looks without spending: it is answered as any other cost and leaves nothing behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Spend `cost` if all of it fits; spend nothing otherwise.
    Take {
        /// How much.
        cost: u64,
    },
    /// Answer as [`Operation::Take`] would, and spend nothing.
    Peek {
        /// How much is asked about.
        cost: u64,
    },
    /// Spend `cost` whether it fits or not: usage that has already happened. Buckets go into debt,
    /// which later refill pays first; windows count it until it leaves the window.
    Debit {
        /// How much.
        cost: u64,
    },
    /// Give back what a take or debit at `taken_at` spent, as far as it is still missing. What has
    /// been refilled since, or has left the window, is not given a second time, so a late refund
    /// never admits more than the limit allows.
    Refund {
        /// How much.
        cost: u64,
        /// When it was spent. A time after `now` counts as `now`.
        taken_at: Timestamp,
    },
    /// Give back a lease of a concurrency limit. Other algorithms hand out no leases: for them this
    /// looks and changes nothing.
    Release {
        /// The lease that the take was answered with.
        lease: LeaseId,
    },
    /// Have a lease of a concurrency limit last from now on, because its work goes on. It keeps its number
    /// and its places. The answer has the lease where it is still held, and none where it is not, because
    /// it was released or has expired: then nothing changes. Other algorithms only look.
    Renew {
        /// The lease that the take was answered with.
        lease: LeaseId,
    },
}

impl Operation {
    /// The cost that is asked for; 0 for what is about a lease.
    pub const fn cost(self) -> u64 {
        match self {
            Self::Take { cost }
            | Self::Peek { cost }
            | Self::Debit { cost }
            | Self::Refund { cost, .. } => cost,
            Self::Release { .. } | Self::Renew { .. } => 0,
        }
    }
}
