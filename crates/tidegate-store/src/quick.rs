//! Several limits at once in the ordinary case: each key has its state in an entry, and nobody else is at it.
//!
//! All of them are read at a glance and decided. Then all but the last are locked and the last is swapped: that is
//! the moment of the decision, and the others are let go with what they have become. Nobody is waited for. Where
//! an entry is not what it was at the glance, those that are locked are put back, and `several` decides.

use smallvec::SmallVec;
use tidegate_core::{Decision, Limit, Operation, Span, Timestamp, Verdict};

use crate::entry::{Entry, Inline};
use crate::places::unlock;
use crate::seam::{Charge, Request};
use crate::table::{Table, fits_entry};
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

type Steps<'t> = SmallVec<[Step<'t>; FEW]>;

/// What stands in for a decision that is still to be made.
const UNDECIDED: Decision = Decision {
    verdict: Verdict::NeverFits,
    limit: 0,
    remaining: 0,
    reset_after: Span::ZERO,
    lease: None,
};

/// Decides a request and hands on one decision per charge. Says whether it did; if not, nothing was taken or given.
#[inline]
pub(crate) fn decide(table: &Table, request: &Request<'_>, each: impl FnMut(Decision)) -> bool {
    let charges = request.charges;
    if charges.len() > FEW || !charges.iter().all(|charge| fits_entry(charge.limit)) {
        return false;
    }
    let mut steps = Steps::new();
    let is_decided = find_all(table, charges, &mut steps)
        && decide_all(table, request, &mut steps).is_some()
        && take_all(&steps);
    if is_decided {
        steps.iter().map(|step| step.decision).for_each(each);
    }
    is_decided
}

/// Finds the entries of all charges. Says whether each has one of its own: that two of them share one is a mistake, which
/// `several` tells. It is known before anything is decided, because deciding notes which entries become free. Of those that
/// do not after all, because another thread was first, a note stays: it costs a late key a moment, and one that came after
/// the swap could give quota twice.
fn find_all<'t>(table: &'t Table, charges: &[Charge<'_>], steps: &mut Steps<'t>) -> bool {
    for charge in charges {
        table.prefetch(charge.key);
    }
    for charge in charges {
        let found = table.places.find(table.places.probe(charge.key));
        let Some((word, old)) = found else { return false };
        if steps.iter().any(|step| std::ptr::eq(step.word, word)) {
            return false;
        }
        steps.push(Step { word, old, new: old, decision: UNDECIDED });
    }
    true
}

/// What each charge comes to; `None` where one of them is out of the ordinary.
fn decide_all(table: &Table, request: &Request<'_>, steps: &mut Steps<'_>) -> Option<()> {
    let Request { now, charges } = *request;
    let mut is_refused = false;
    for (step, charge) in steps.iter_mut().zip(charges) {
        (step.decision, step.new) =
            table.outcome_of(charge.limit, step.old, now, charge.operation)?;
        is_refused |= is_take(charge) && !step.decision.is_allowed();
    }
    if is_refused {
        // Those that refuse have taken nothing; the others only look now.
        for (step, charge) in steps.iter_mut().zip(charges) {
            if let Operation::Take { cost } = charge.operation
                && step.decision.is_allowed()
            {
                let looks = Operation::Peek { cost };
                (step.decision, step.new) = table.outcome_of(charge.limit, step.old, now, looks)?;
            }
        }
    }
    Some(())
}

impl Table {
    /// What any limit makes of an entry that was read at a glance: the decision, and the entry to swap it for. `None` where
    /// the state is not in the entry, or does not stay there. One limit alone has `Table::try_entry`, which gives up
    /// where this one goes on.
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

/// Makes all entries what they are to become, or none of them. Those that stay as they are are locked too: what they say
/// would else be of another moment.
fn take_all(steps: &[Step<'_>]) -> bool {
    let Some((last, others)) = steps.split_last() else { return true };
    let mut locked = 0;
    for step in others {
        if step.word.compare_exchange(step.old.0, step.old.locked().0).is_err() {
            break;
        }
        locked += 1;
    }
    // ORDERING: an exchange also where nothing changes. A load could be done before the locks are seen by others, where
    // the processor allows that, and two requests could each miss what the other does. Exchanges acquire and release: were
    // two requests each before the other, one's last exchange would happen before its own first lock.
    let is_taken =
        locked == others.len() && last.word.compare_exchange(last.old.0, last.new.0).is_ok();
    for step in &others[..locked] {
        unlock(step.word, step.old.locked(), if is_taken { step.new } else { step.old });
    }
    is_taken
}
