//! Limits that a call brings along: protocols in which the caller names the numbers, and not a rule.
//! They live in the same place, under keys that no rule has.

use smallvec::SmallVec;
use tidegate_core::{self as core, Key, Timestamp};
use tidegate_rules::identity::{KeyHasher, Salt};
use tidegate_store::{Charge, Table};

use super::backing::Backing;
use super::limiter::RuleLimiter;
use crate::Clock;

impl<C: Clock, S: Backing> RuleLimiter<C, S> {
    /// What sets the keys of one kind of given limits apart from those of every other kind, and from
    /// those of all rules.
    pub fn given_salt(&self, kind: &str) -> Salt {
        self.hasher.salt([("given", kind.as_bytes())])
    }

    /// What keys are hashed with.
    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }
}

impl<C: Clock> RuleLimiter<C, Table> {
    /// Decides one operation under a limit that the call brings along. The limit is a bucket or a
    /// window of small state: logs, slots and concurrency limits come from rules, which bound them.
    pub fn decide_given(&self, charge: &Charge<'_>) -> core::Decision {
        self.store.decide_one(self.clock.now(), charge)
    }

    /// Decides many at one instant, each as if they had come one after the other, and hands each
    /// decision to `each`, in order. It is faster for each than one call after the other.
    pub fn decide_given_many<'c>(
        &self,
        charges: impl IntoIterator<Item = Charge<'c>>,
        each: impl FnMut(core::Decision),
    ) {
        self.decide_given_many_at(self.clock.now(), charges, each);
    }

    /// The same for whoever has read the clock already: `now` is what [`now`](Self::now) has just said.
    pub fn decide_given_many_at<'c>(
        &self,
        now: Timestamp,
        charges: impl IntoIterator<Item = Charge<'c>>,
        each: impl FnMut(core::Decision),
    ) {
        decide_many(&self.store, now, charges.into_iter(), each);
    }

    /// Forgets what was taken under a given limit.
    pub fn forget_given(&self, key: Key) {
        self.store.forget(key);
    }
}

/// Decides many, each after the one before it, with their keys fetched ahead.
pub(super) fn decide_many<'c>(
    table: &Table,
    now: Timestamp,
    mut charges: impl Iterator<Item = Charge<'c>>,
    mut each: impl FnMut(core::Decision),
) {
    let mut group = SmallVec::<[Charge<'c>; Table::PREFETCH]>::new();
    loop {
        group.clear();
        for charge in charges.by_ref().take(Table::PREFETCH) {
            table.prefetch(charge.key);
            group.push(charge);
        }
        for charge in &group {
            each(table.decide_one(now, charge));
        }
        if group.len() < Table::PREFETCH {
            return;
        }
    }
}
