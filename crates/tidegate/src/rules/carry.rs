//! What was spent under a bucket is carried over to one with other numbers, key by key, as keys come
//! up: after a reload, and from one tier to another. Until it comes up, a key goes on at the old rate.
//!
//! That is in memory alone. In a store that nodes share nothing is carried over, since a node that has been
//! told of changed rules would give back what another that has not still counts.

use std::sync::{Mutex, PoisonError};

use tidegate_core::{Key, Limit, Operation, Span, Timestamp};
use tidegate_rules::compile::{Before, CompiledLimit};
use tidegate_rules::identity::Salt;
use tidegate_rules::resolve::Planned;
use tidegate_store::{Charge, Table};

/// Carries what was spent from one key to another, once.
#[derive(Debug, Default)]
pub(super) struct Carrier {
    /// Held while something is moved, so that nobody moves it twice. Only keys that still have
    /// something to be moved wait for it.
    moving: Mutex<()>,
}

impl Carrier {
    /// Moves what is left under the limits before to the key of this charge under its limit, in memory.
    #[inline]
    pub(super) fn carry(
        &self,
        table: &Table,
        limit: &CompiledLimit,
        planned: &Planned,
        now: Timestamp,
    ) {
        if !limit.befores().is_empty() {
            self.carry_all(table, limit, planned, now);
        }
    }

    #[cold]
    fn carry_all(&self, table: &Table, limit: &CompiledLimit, planned: &Planned, now: Timestamp) {
        let lasts = |before: &&Before| before.until.is_none_or(|until| now < until);
        for before in limit.befores().iter().filter(lasts) {
            let from = key_under(planned.key, limit.salt(), before.salt);
            let to = Charge {
                limit: limit.limit(planned.relaxed),
                key: planned.key,
                operation: Operation::Peek { cost: 0 },
            };
            self.carry_one(table, before, from, to, now);
        }
    }

    fn carry_one(&self, table: &Table, before: &Before, from: Key, to: Charge<'_>, now: Timestamp) {
        let look =
            Charge { limit: &before.limit, key: from, operation: Operation::Peek { cost: 0 } };
        if table.decide_one(now, &look).reset_after.is_zero() {
            return;
        }
        let _moving = self.moving.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been faster.
        let looked = table.decide_one(now, &look);
        let taken = before.limit.taken(&looked);
        if taken > 0 {
            // From one tier to another all of it is charged, since requests may go back and forth.
            let is_replaced = before.until.is_some();
            let cost =
                if is_replaced { bearable(taken, looked.reset_after, to.limit) } else { taken };
            // Charged first and given back then: in between it counts twice, and never not at all.
            // Given back, and not forgotten, so that a call under the old rules that comes in between
            // stays charged and is carried over next time.
            let _ = table.decide_one(now, &Charge { operation: Operation::Debit { cost }, ..to });
            let back = Operation::Refund { cost: taken, taken_at: now };
            let _ = table.decide_one(now, &Charge { operation: back, ..look });
        }
    }
}

/// How much of what was taken is charged to the limit that replaces another: all of it, but no more
/// than comes back in the time in which it would have come back from the old limit, or in which an
/// empty one fills. So lowered numbers lock nobody out.
fn bearable(taken: u64, old_wait: Span, limit: &Limit) -> u64 {
    let (Some((rate, _)), Some(fill)) = (limit.bucket(), limit.fill_time()) else { return taken };
    let wait = u128::from(old_wait.max(fill).as_micros());
    let most = wait * u128::from(rate.count()) / u128::from(rate.period().as_micros());
    taken.min(u64::try_from(most).unwrap_or(u64::MAX))
}

/// The key that the same subject has under another limit.
pub(super) fn key_under(key: Key, salt: Salt, other: Salt) -> Key {
    Key::from_hash(key.as_hash() ^ salt.as_u128() ^ other.as_u128())
}
