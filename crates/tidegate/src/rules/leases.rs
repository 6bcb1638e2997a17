//! The leases of a call under several concurrency limits, each given back to the limit that gave it.
//! For callers that cannot keep a decision until the work is done, because they are on the other side
//! of a wire.

use tidegate_core::{LeaseId, Operation};
use tidegate_store::Charge;

use super::decision::{Outcome, RuleDecision};
use super::limiter::{Call, CheckError, RuleLimiter};
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

impl<C: Clock> RuleLimiter<C> {
    /// Gives back the leases that an equal call was given, each to its own limit, and answers what the
    /// limits have left then. A lease that has expired, or whose rule is gone, changes nothing.
    pub fn release_held(&self, call: &Call<'_>, held: &[Held]) -> Result<RuleDecision, CheckError> {
        let now = self.clock.now();
        let mut decision = RuleDecision::pending(self.current.load(), now);
        let RuleDecision { rules, plan, decisions, .. } = &mut decision;
        rules.resolve(&self.ask(rules, call, now), plan).map_err(CheckError::Resolve)?;
        for planned in &plan.charges {
            self.carrier.carry(&self.table, rules, planned, now);
            let limit = rules.limit(planned.limit).limit(planned.relaxed);
            let mut answer = None;
            for one in held.iter().filter(|one| one.tag == tag(planned.key)) {
                let operation = Operation::Release { lease: one.lease };
                let charge = Charge { limit, key: planned.key, operation };
                answer = Some(self.table.decide_one(now, &charge));
            }
            decisions.push(answer.unwrap_or_else(|| {
                let look = Operation::Peek { cost: 0 };
                self.table.decide_one(now, &Charge { limit, key: planned.key, operation: look })
            }));
        }
        decision.outcome = Outcome::of(&decision);
        Ok(decision)
    }
}

fn tag(key: tidegate_core::Key) -> u32 {
    (key.as_hash() >> 96) as u32
}
