//! Several limits at once in the ordinary case: each key has its state in an entry, and nobody else is at it.
//!
//! All of them are read at a glance and decided. Then all but the last are locked and the last is swapped: that is
//! the moment of the decision, and the others are let go with what they have become. Nobody is waited for. Where
//! an entry is not what it was at the glance, those that are locked are put back, and `several` decides.
//!
//! Where no entry changes, because the request is refused or only looks, each is looked at once more: between the last
//! glance and the first of those looks, all that was seen was there together.

use smallvec::SmallVec;
use tidegate_core::{Decision, Limit, Operation, Timestamp};

use crate::entry::{Entry, Inline};
use crate::places::unlock;
use crate::seam::{Charge, Request};
use crate::several::settled;
use crate::table::{Table, swap};
use crate::word::Word;

/// As many limits as most requests have at most.
const FEW: usize = 4;

/// One charge and what it comes to.
struct Step<'t> {
    word: &'t Word,
    /// What the entry was at the glance.
    old: Entry,
    new: Entry,
    decision: Decision,
}

/// Decides a request and hands on one decision per charge. Says whether it did; if not, nothing has happened.
#[inline]
pub(crate) fn decide(table: &Table, request: &Request<'_>, each: impl FnMut(Decision)) -> bool {
    if request.charges.len() > FEW {
        return false;
    }
    for charge in request.charges {
        table.prefetch(charge.key);
    }
    let mut steps = SmallVec::new();
    let is_decided = decide_steps(table, request, &mut steps) == Some(()) && take_all(&steps);
    if is_decided {
        steps.iter().map(|step| step.decision).for_each(each);
    }
    is_decided
}

/// What each charge comes to; `None` where one of them is out of the ordinary.
fn decide_steps<'t>(
    table: &'t Table,
    request: &Request<'_>,
    steps: &mut SmallVec<[Step<'t>; FEW]>,
) -> Option<()> {
    let Request { now, charges } = *request;
    let mut is_refused = false;
    for charge in charges {
        let (word, old) = table.places.find(table.places.probe(charge.key))?;
        // Two keys that share an entry are a mistake, which is told elsewhere.
        if steps.iter().any(|step| std::ptr::eq(step.word, word)) {
            return None;
        }
        let (decision, new) = table.outcome_of(charge.limit, old, now, charge.operation)?;
        is_refused |= is_take(charge) && !decision.is_allowed();
        steps.push(Step { word, old, new, decision });
    }
    if is_refused {
        // Those that refuse have taken nothing; the others only look now.
        for (step, charge) in steps.iter_mut().zip(charges) {
            if is_take(charge) && step.decision.is_allowed() {
                let looks = settled(charge.operation, is_refused);
                (step.decision, step.new) = table.outcome_of(charge.limit, step.old, now, looks)?;
            }
        }
    }
    Some(())
}

impl Table {
    /// What any limit makes of an entry that was read at a glance: the decision, and the entry to swap it for. `None` where
    /// the state is not in the entry, or does not stay there.
    fn outcome_of(
        &self,
        limit: &Limit,
        entry: Entry,
        now: Timestamp,
        operation: Operation,
    ) -> Option<(Decision, Entry)> {
        if let Limit::TokenBucket(bucket) = limit
            && operation == (Operation::Take { cost: 1 })
            && let Some(outcome) = self.plain_outcome(bucket, entry, now)
        {
            return Some(outcome);
        }
        match limit {
            Limit::TokenBucket(limit) => self.outcome_in(limit, entry, now, operation),
            Limit::LeakyBucket(limit) => self.outcome_in(limit, entry, now, operation),
            Limit::SteppedBucket(limit) => self.outcome_in(limit, entry, now, operation),
            Limit::FixedWindow(limit) => self.outcome_in(limit, entry, now, operation),
            Limit::SlidingWindow(limit) => self.outcome_in(limit, entry, now, operation),
            Limit::SlidingSlots(_) | Limit::SlidingLog(_) | Limit::Concurrency(_) => None,
        }
    }

    #[inline]
    fn outcome_in<L: Inline>(
        &self,
        limit: &L,
        entry: Entry,
        now: Timestamp,
        operation: Operation,
    ) -> Option<(Decision, Entry)> {
        if !entry.is_plain() {
            return None;
        }
        let state = limit.unpack(entry.payload(), self.origin);
        let (decision, next) = limit.decide(Some(state), now, operation);
        Some((decision, self.next_entry(limit, entry, next, now)?))
    }
}

fn is_take(charge: &Charge<'_>) -> bool {
    matches!(charge.operation, Operation::Take { .. })
}

/// Makes all entries what they are to become, or none of them.
fn take_all(steps: &[Step<'_>]) -> bool {
    if steps.iter().all(|step| step.new == step.old) {
        return steps.iter().all(|step| swap(step.word, step.old, step.new));
    }
    let Some((last, others)) = steps.split_last() else { return true };
    let lock =
        |step: &&Step<'_>| step.word.compare_exchange(step.old.0, step.old.locked().0).is_ok();
    let locked = others.iter().take_while(lock).count();
    let is_taken = locked == others.len() && swap(last.word, last.old, last.new);
    for step in &others[..locked] {
        unlock(step.word, step.old.locked(), if is_taken { step.new } else { step.old });
    }
    is_taken
}
