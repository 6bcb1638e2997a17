//! The leases of a call under several concurrency limits, each given back to the limit that gave it, or
//! renewed there. For callers that cannot keep a decision until the work is done, because they are on
//! the other side of a wire.

use tidegate_core::{LeaseId, Operation};
use tidegate_store::{Charge, Settled, Table};

use super::backing::{Backing, DecidedBy, Few, at_once};
use super::decision::{Lists, Outcome, RuleDecision};
use super::limiter::{Call, CheckError, PENDING, RuleLimiter};
use crate::Clock;

/// A lease, and which limit of its call gave it. The number of a lease means something under its own
/// key only, so under another limit of the same call it may be somebody else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// Tells the limits of one call apart: a part of the hashed key. It stays the same while the rule
    /// and what it counts by do.
    pub tag: u32,
    /// The lease.
    pub lease: LeaseId,
}

impl RuleDecision {
    /// The leases that the call was given, in the order of the rules.
    pub fn held(&self) -> impl Iterator<Item = Held> {
        self.answers().filter_map(|(planned, decision)| {
            Some(Held { tag: tag(planned.key), lease: decision.lease? })
        })
    }
}

impl<C: Clock> RuleLimiter<C, Table> {
    /// Gives back the leases that an equal call was given, each to its own limit, and answers what the
    /// limits have left then. A lease that has expired, or whose rule is gone, changes nothing.
    pub fn release_held(&self, call: &Call<'_>, held: &[Held]) -> Result<RuleDecision, CheckError> {
        at_once(self.decide_held(call, held, |lease| Operation::Release { lease }))
    }

    /// Counts the leases that an equal call was given as taken now, each under its own limit. Those that
    /// were still held are the ones that the answer [holds](RuleDecision::held); a lease that has
    /// expired, was given back, or whose rule is gone, is not among them, and nothing changes for it.
    pub fn renew_held(&self, call: &Call<'_>, held: &[Held]) -> Result<RuleDecision, CheckError> {
        at_once(self.decide_held(call, held, |lease| Operation::Renew { lease }))
    }
}

impl<C: Clock, S: Backing> RuleLimiter<C, S> {
    /// Does the same with each lease, under the limit that gave it, and answers what the limits say then.
    pub(super) async fn decide_held(
        &self,
        call: &Call<'_>,
        held: &[Held],
        does: fn(LeaseId) -> Operation,
    ) -> Result<RuleDecision, CheckError> {
        let now = self.clock.now();
        let mut decision = RuleDecision::pending(self.current.keep(), now);
        let RuleDecision { rules, lists, .. } = &mut decision;
        let Lists { plan, decisions, by, group, .. } = lists.get_or_insert_default();
        *group = self.sharing.group_of(call.attributes);
        rules.resolve(&self.ask(rules, call, now), plan).map_err(CheckError::Resolve)?;
        self.carry(rules, &plan.charges, now);
        let mut charges: Few<Charge<'_>> = Few::new();
        // Which charge of the plan each operation is under.
        let mut under: Few<usize> = Few::new();
        for (index, planned) in plan.charges.iter().enumerate() {
            let limit = rules.limit(planned.limit).limit(planned.relaxed);
            let of = |operation| Charge { limit, key: planned.key, operation };
            let own = held.iter().filter(|one| one.tag == tag(planned.key));
            charges.extend(own.map(|one| of(does(one.lease))));
            if charges.len() == under.len() {
                charges.push(of(Operation::Peek { cost: 0 }));
            }
            under.resize(charges.len(), index);
        }
        let planned = under.iter().map(|index| (&plan.charges[*index], *group));
        let terms = self.terms(rules, planned);
        decisions.resize(plan.charges.len(), PENDING);
        by.resize(plan.charges.len(), DecidedBy::memory(now));
        let mut each = |index: usize, settled: Settled| {
            // The last one of a limit says what it has left then.
            decisions[under[index]] = settled.decision;
            by[under[index]] = DecidedBy::of(&settled);
        };
        let decided =
            self.store.decide_each(&S::Deadline::default(), now, &charges, &terms, &mut each).await;
        decided.map_err(CheckError::Store)?;
        drop(charges);
        decision.outcome = Outcome::of(&decision);
        Ok(decision)
    }
}

fn tag(key: tidegate_core::Key) -> u32 {
    (key.as_hash() >> 96) as u32
}
