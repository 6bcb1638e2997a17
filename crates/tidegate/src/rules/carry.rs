//! After a reload: what was spent under a bucket whose burst no longer takes the same time to come
//! back is carried over to the new one, key by key, as keys come up. Until it does, a key goes on at
//! the old rate.

use std::sync::{Mutex, PoisonError};

use tidegate_core::{Key, Operation, Timestamp};
use tidegate_rules::compile::{Before, CompiledLimit, CompiledRules};
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
    /// Moves what is left under the limits before to the key of this charge.
    #[inline]
    pub(super) fn carry(
        &self,
        table: &Table,
        rules: &CompiledRules,
        planned: &Planned,
        now: Timestamp,
    ) {
        let limit = rules.limit(planned.limit);
        if !limit.befores().is_empty() {
            self.carry_all(table, limit, planned, now);
        }
    }

    #[cold]
    fn carry_all(&self, table: &Table, limit: &CompiledLimit, planned: &Planned, now: Timestamp) {
        for before in limit.befores().iter().filter(|before| now < before.until) {
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
        let taken = before.limit.taken(&table.decide_one(now, &look));
        if taken > 0 {
            // Charged first and forgotten then: in between it counts twice, and never not at all.
            let _ = table
                .decide_one(now, &Charge { operation: Operation::Debit { cost: taken }, ..to });
            table.forget(from);
        }
    }
}

/// The key that the same subject has under another limit.
fn key_under(key: Key, salt: Salt, other: Salt) -> Key {
    Key::from_hash(key.as_hash() ^ salt.as_u128() ^ other.as_u128())
}
