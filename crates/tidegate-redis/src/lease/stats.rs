//! What leases have come to so far, in numbers for people and their metrics.

/// What the leases of one node in one deployment have come to so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Leases there are now, also those that are being opened or given back.
    pub held: u64,
    /// What these have at hand now.
    pub at_hand: u64,
    /// All that the store has granted.
    pub granted: u64,
    /// What of it was spent, as far as the store was told or the lease has ended.
    pub spent: u64,
    /// Leases that were begun.
    pub opened: u64,
    /// Requests that were sent, whatever for.
    pub requests: u64,
    /// Those of them that extended a lease.
    pub renewals: u64,
    /// Requests by which the store did not grant what was needed.
    pub refused: u64,
    /// Requests without an answer in time.
    pub unanswered: u64,
    /// Leases that the store no longer knew, or that could not be given back in time.
    pub expired: u64,
}

impl LeaseStats {
    /// What two of them have come to together.
    #[must_use]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self {
            held: self.held + other.held,
            at_hand: self.at_hand + other.at_hand,
            granted: self.granted + other.granted,
            spent: self.spent + other.spent,
            opened: self.opened + other.opened,
            requests: self.requests + other.requests,
            renewals: self.renewals + other.renewals,
            refused: self.refused + other.refused,
            unanswered: self.unanswered + other.unanswered,
            expired: self.expired + other.expired,
        }
    }
}
