//! What shared limits have met so far, for metrics and for people.

use crate::Stats;
use crate::lease::LeaseStats;

/// What the [`Shared`](crate::Shared) limits of one node have met so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedStats {
    /// The groups of servers, in their order.
    pub groups: Vec<GroupStats>,
    /// Requests that were refused because a denial by a store still held.
    pub cached_denials: u64,
    /// Charges that were to be given back, because another place refused or somebody asked for it, and were not
    /// for certain.
    pub give_backs_failed: u64,
}

/// What one group of servers has met so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStats {
    /// Whether it answered the last time that this node told it that it is there.
    pub is_well: bool,
    /// How many nodes there were when it was last well, this one included.
    pub nodes: u32,
    /// Requests that it could not decide, and that were decided by policy.
    pub fallbacks: u64,
    /// What it is to be given back when it answers again.
    pub give_backs_kept: u64,
    /// Its connections and calls.
    pub store: Stats,
    /// What this node has leased of it.
    pub leases: LeaseStats,
}
