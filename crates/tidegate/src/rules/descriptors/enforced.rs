//! The limits in force of a call over several descriptors, decided together: what the call takes is
//! taken from all of them at one instant, or from none.

use smallvec::SmallVec;
use tidegate_core as core;
use tidegate_rules::resolve::{Planned, ResolveError};
use tidegate_store::{Charge, Request, Settled};

use super::decision::{Charged, DescriptorsDecision, Part, Under, Way};
use crate::Clock;
use crate::decision::severity;
use crate::rules::backing::{Answered, Backing, DecidedBy, Few};
use crate::rules::limiter::{CheckError, Does, PENDING, RuleLimiter};

/// All charges of one key, as one.
#[derive(Clone, Debug)]
pub(super) struct Group {
    under: Under,
    /// What else the rules have for this key in other descriptors of the call.
    others: SmallVec<[Under; 1]>,
    is_quota: bool,
    /// Whether it is a quota that has been found to be over, so that it is no longer asked.
    is_out: bool,
    decision: core::Decision,
    by: DecidedBy,
    /// The group of servers that its descriptors say, which have the same values.
    servers: Option<u8>,
}

/// The keys of a call, each once.
pub(super) type Groups = SmallVec<[Group; 2]>;

impl DescriptorsDecision {
    /// The keys of the limits in force; no more than are decided in one step.
    pub(super) fn groups(&mut self) -> Result<Groups, CheckError> {
        let mut groups = Groups::new();
        for part in &self.parts {
            for charged in &mut self.charges[part.charges()] {
                let (Way::Enforced { group }, under) = (&mut charged.way, charged.under) else {
                    continue;
                };
                let known = groups.iter().position(|other| other.under.key() == under.key());
                *group = known.unwrap_or(groups.len());
                if let Some(known) = known {
                    let group = &mut groups[known];
                    if group.under.differs(under) {
                        group.others.push(under);
                    }
                    group.under = group.under.and(under, &self.given);
                    continue;
                }
                let is_quota = part.is_quota
                    && match under {
                        Under::Rule(planned) => {
                            Some(self.rules.limit(planned.limit).rule()) == part.descriptor
                        }
                        Under::Given { .. } => false,
                    };
                groups.push(Group {
                    under,
                    others: SmallVec::new(),
                    is_quota,
                    is_out: false,
                    decision: PENDING,
                    by: charged.by,
                    servers: charged.group,
                });
            }
        }
        if groups.len() > Request::CHARGES_MAX {
            let error = ResolveError::TooManyLimits { max: Request::CHARGES_MAX };
            return Err(CheckError::Resolve(error));
        }
        Ok(groups)
    }

    /// Whether there are quotas, and all of them are over.
    fn are_quotas_over(&self, groups: &Groups) -> bool {
        let mut quotas = self.parts.iter().filter(|part| part.is_quota).peekable();
        let is_out = |charged: &Charged| match charged.way {
            Way::Enforced { group } => groups[group].is_out,
            Way::Shadow | Way::GivenBack | Way::LeftOut => false,
        };
        quotas.peek().is_some()
            && quotas.all(|part| {
                part.is_refused_by_quota() || self.charges[part.charges()].iter().any(is_out)
            })
    }

    /// Hands each charge the answer of its key.
    fn take_answers(&mut self, groups: &Groups) {
        for charged in &mut self.charges {
            if let Way::Enforced { group } = charged.way {
                charged.decision = groups[group].decision;
                charged.by = groups[group].by;
                charged.is_taken = self.is_allowed && charged.decision.is_allowed();
            }
        }
    }
}

/// The answers of limits of rules, for those that charge what they refuse.
pub(super) fn answers(
    groups: &Groups,
) -> impl Iterator<Item = (&Planned, &core::Decision, Option<u8>)> {
    groups.iter().filter_map(|group| match &group.under {
        Under::Rule(planned) => Some((planned, &group.decision, group.servers)),
        Under::Given { .. } => None,
    })
}

impl<C: Clock, S: Backing> RuleLimiter<C, S> {
    /// Decides the limits in force, and so the call.
    ///
    /// A quota that is over does not stop the call, and is charged nothing, so that the rest is asked
    /// again without it. Nothing has been taken by then, since one take did not fit; and each round
    /// has one quota fewer, so there are few of them.
    pub(super) async fn decide_enforced(
        &self,
        deadline: &S::Deadline,
        decision: &mut DescriptorsDecision,
        groups: &mut Groups,
    ) -> Result<(), CheckError> {
        self.hold_to_least(deadline, decision, groups).await?;
        let is_refused = decision.parts.iter().any(Part::is_refused);
        let mut is_denied = is_refused || decision.are_quotas_over(groups);
        loop {
            let does = if is_denied { Does::Peek } else { Does::Take };
            self.decide_round(deadline, decision, groups, does).await?;
            if is_denied {
                break;
            }
            is_denied = groups.iter().any(|group| !group.is_quota && !group.decision.is_allowed());
            let mut is_again = false;
            for group in groups.iter_mut().filter(|group| group.is_quota && !group.is_out) {
                group.is_out = !group.decision.is_allowed();
                is_again |= group.is_out;
            }
            is_denied |= decision.are_quotas_over(groups);
            if is_denied || !is_again {
                break;
            }
        }
        decision.is_allowed = !is_denied;
        decision.take_answers(groups);
        Ok(())
    }

    /// A key is charged under one limit. Where the descriptors of a call have several for it, as calls
    /// of two tiers do, the one that leaves least holds for all of them.
    async fn hold_to_least(
        &self,
        deadline: &S::Deadline,
        decision: &DescriptorsDecision,
        groups: &mut Groups,
    ) -> Result<(), CheckError> {
        for group in groups.iter_mut().filter(|group| !group.others.is_empty()) {
            let cost = group.under.cost();
            let others = group.others.iter().map(|other| other.with_cost(cost));
            let all: Few<Under> = std::iter::once(group.under).chain(others).collect();
            let of_all = all.iter().map(|under| (*under, group.servers));
            let terms = self.terms_under(decision, of_all);
            let charges: Few<Charge<'_>> =
                all.iter().map(|under| decision.charge(*under, Does::Peek)).collect();
            let mut worst: Option<((u8, u64), usize)> = None;
            let mut each = |index: usize, settled: Settled| {
                let bound = severity(&settled.decision);
                if worst.is_none_or(|(most, _)| bound >= most) {
                    worst = Some((bound, index));
                }
            };
            let now = decision.at;
            let looked = self.store.decide_each(deadline, now, &charges, &terms, &mut each).await;
            looked.map_err(CheckError::Store)?;
            group.under = worst.map_or(group.under, |(_, index)| all[index]);
        }
        Ok(())
    }

    /// Asks all keys but the quotas that are over, in one step.
    async fn decide_round(
        &self,
        deadline: &S::Deadline,
        decision: &DescriptorsDecision,
        groups: &mut Groups,
        does: Does,
    ) -> Result<(), CheckError> {
        let now = decision.at;
        if let (Some(table), [group]) = (self.store.memory(), &mut groups[..]) {
            if !group.is_out {
                let charge = decision.charge(group.under, does);
                group.decision = table.decide_one(now, &charge);
            }
            return Ok(());
        }
        let asked = || groups.iter().filter(|group| !group.is_out);
        let charges: Few<Charge<'_>> =
            asked().map(|group| decision.charge(group.under, does)).collect();
        let terms = self.terms_under(decision, asked().map(|group| (group.under, group.servers)));
        let mut answered = Answered::default();
        let request = Request { now, charges: &charges };
        let decided = self.store.decide(deadline, &request, &terms, &mut answered).await;
        decided.map_err(CheckError::Store)?;
        let asked = groups.iter_mut().filter(|group| !group.is_out);
        for (index, group) in asked.enumerate() {
            group.decision = *answered.decision(index);
            group.by = answered.by(index).unwrap_or(group.by);
        }
        Ok(())
    }
}
