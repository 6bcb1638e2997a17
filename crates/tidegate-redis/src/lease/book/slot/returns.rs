//! What is given back of one key: undone here while the store has not been told of it, else the store's.

use tidegate_core::{Decision, Span, Timestamp};

use super::{STRICT_LATELY, Slot};
use crate::lease::book::Mark;

impl Slot {
    /// Undoes a take of this time. Whatever was taken before the latest request was collected has been
    /// told, and so has all of an earlier lease: what is untold then is somebody else's.
    pub(in crate::lease::book) fn give_back(
        &mut self,
        cost: u64,
        taken_at: Timestamp,
        strict_within: Option<Span>,
        now: Timestamp,
    ) -> Option<Decision> {
        let is_untold = self.lease.as_ref().is_some_and(|lease| taken_at > lease.sent_at);
        if strict_within.is_some_and(|within| self.returns_strict(cost, taken_at, within)) {
            return None;
        }
        if is_untold { self.unspend(cost, now) } else { None }
    }

    pub(in crate::lease::book) fn is_return_for_store(
        &mut self,
        cost: u64,
        taken_at: Timestamp,
        strict_within: Span,
    ) -> bool {
        if self.lease.as_ref().is_some_and(|lease| lease.spent > lease.told && !lease.closing) {
            return false;
        }
        self.returns_strict(cost, taken_at, strict_within);
        true
    }

    /// Whether a take of this time may have been left to the store, where it was decided within such a time. Then
    /// it counts as given back there.
    fn returns_strict(&mut self, cost: u64, taken_at: Timestamp, within: Span) -> bool {
        if self.strict_left == 0 || taken_at > self.strict_at.plus(within) {
            return false;
        }
        self.strict_left = self.strict_left.saturating_sub(cost);
        true
    }

    /// Undoes a take that was spent when the lease was at this mark.
    pub(in crate::lease::book) fn undo(
        &mut self,
        cost: u64,
        mark: Mark,
        now: Timestamp,
    ) -> Option<Decision> {
        if self.mark() == mark { self.unspend(cost, now) } else { None }
    }

    fn unspend(&mut self, cost: u64, now: Timestamp) -> Option<Decision> {
        let lease = self.lease.as_mut()?;
        let untold = lease.spent - lease.told;
        if cost > untold || lease.closing {
            return None;
        }
        lease.spent -= cost;
        self.counted = self.counted.saturating_sub(cost);
        Some(lease.allowed(&self.limit, now))
    }

    pub(in crate::lease::book) fn leave_to_store(&mut self, cost: u64, now: Timestamp) {
        if now.since(self.strict_at) > STRICT_LATELY {
            self.strict_left = 0;
        }
        self.strict_at = self.strict_at.max(now);
        self.strict_left = self.strict_left.saturating_add(cost);
    }
}
