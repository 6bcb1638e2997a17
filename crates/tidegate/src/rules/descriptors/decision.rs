//! The answer to one call over several descriptors.

mod status;

use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{self as core, Key, Limit, Timestamp};
use tidegate_rules::compile::{CompiledRules, DomainId, Role, RuleId};
use tidegate_rules::resolve::{Plan, Planned, Refusal};
use tidegate_rules::rule::Quota;
use tidegate_store::{Charge, Settled, Source};

pub use self::status::DescriptorStatus;
use super::Hits;
use crate::decision::severity;
use crate::rules::backing::DecidedBy;
use crate::rules::decision::distance;
use crate::rules::in_force::Kept;
use crate::rules::limiter::{Does, PENDING, charge};
use crate::rules::per_unit::PerUnit;

/// Whether a call over several descriptors may pass, and what is said about each of them.
#[derive(Debug)]
#[must_use = "a decision that nobody reads limits nothing"]
pub struct DescriptorsDecision {
    pub(super) rules: Kept,
    pub(super) at: Timestamp,
    pub(super) domain: Option<DomainId>,
    /// One for each descriptor, in order.
    pub(super) parts: SmallVec<[Part; 2]>,
    /// Those of each part stand together.
    pub(super) charges: SmallVec<[Charged; 2]>,
    /// The limits that the call brought along.
    pub(super) given: Vec<Given>,
    pub(super) is_allowed: bool,
    pub(super) skipped: u32,
}

/// One descriptor.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a thing that is said of it")]
pub(super) struct Part {
    first: u32,
    end: u32,
    /// The first rule that matches.
    rule: Option<RuleId>,
    /// The rule of Envoy's descriptors, where one matches.
    pub(super) descriptor: Option<RuleId>,
    pub(super) given: Option<PerUnit>,
    pub(super) refused: Option<Refused>,
    pub(super) is_quota: bool,
    pub(super) is_replaced: bool,
    is_unlimited: bool,
    is_over: bool,
    /// The rule in shadow that would refuse it whatever has been taken.
    shadow_refused: Option<RuleId>,
    is_shadow_denied: bool,
    is_soft: bool,
    binding: Option<u32>,
}

/// Why a descriptor is over whatever has been taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    by: Option<RuleId>,
    why: Refusal,
}

/// One charge.
#[derive(Clone, Debug)]
pub(super) struct Charged {
    pub(super) under: Under,
    pub(super) way: Way,
    pub(super) decision: core::Decision,
    /// Whether it was taken, and not given back since.
    pub(super) is_taken: bool,
    /// Who decided it.
    pub(super) by: DecidedBy,
    /// The group of servers that its descriptor says.
    pub(super) group: Option<u8>,
}

/// Under which limit something is charged, to whose counter, and how much.
#[derive(Clone, Copy, Debug)]
pub(super) enum Under {
    Rule(Planned),
    Given { index: usize, key: Key, cost: u64 },
}

/// A limit that the call brought along, as it was said and as it is counted.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) per_unit: PerUnit,
    pub(super) window: Limit,
}

/// What becomes of a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// It is decided together with all others in force, and with those of its own key as one.
    Enforced { group: usize },
    /// It is decided apart and changes no answer.
    Shadow,
    /// It is given back.
    GivenBack,
    /// Another limit is in its place.
    LeftOut,
}

impl Under {
    pub(super) fn key(self) -> Key {
        match self {
            Self::Rule(planned) => planned.key,
            Self::Given { key, .. } => key,
        }
    }

    pub(super) fn cost(self) -> u64 {
        match self {
            Self::Rule(planned) => planned.cost,
            Self::Given { cost, .. } => cost,
        }
    }

    /// The same limit and key, for so much.
    pub(super) fn with_cost(self, cost: u64) -> Self {
        match self {
            Self::Rule(planned) => Self::Rule(Planned { cost, ..planned }),
            Self::Given { index, key, .. } => Self::Given { index, key, cost },
        }
    }

    /// Whether another of the same key is under another limit: rules have several for one key where
    /// there are tiers.
    pub(super) fn differs(self, other: Self) -> bool {
        match (self, other) {
            (Self::Rule(one), Self::Rule(two)) => {
                (one.limit, one.relaxed) != (two.limit, two.relaxed)
            }
            _ => false,
        }
    }

    /// This and another of the same key, as one. Where a call brings two numbers for one key along,
    /// the smaller one holds for both.
    pub(super) fn and(self, other: Self, given: &[Given]) -> Self {
        let cost = self.cost().saturating_add(other.cost());
        match (self, other) {
            (Self::Given { index, key, .. }, Self::Given { index: another, .. }) => {
                let count = |index: usize| given[index].per_unit.count;
                let index = if count(another) < count(index) { another } else { index };
                Self::Given { index, key, cost }
            }
            _ => self.with_cost(cost),
        }
    }
}

impl Charged {
    pub(super) fn new(
        under: Under,
        is_enforced: bool,
        hits: Hits,
        group: Option<u8>,
        at: Timestamp,
    ) -> Self {
        let way = match hits {
            Hits::GiveBack(_) => Way::GivenBack,
            Hits::Take(_) if is_enforced => Way::Enforced { group: usize::MAX },
            Hits::Take(_) => Way::Shadow,
        };
        let by = DecidedBy::memory(at);
        Self { under, way, decision: PENDING, is_taken: false, by, group }
    }

    pub(super) fn settle(&mut self, settled: &Settled) {
        self.decision = settled.decision;
        self.by = DecidedBy::of(settled);
    }
}

impl Part {
    /// What a plan says of a descriptor.
    pub(super) fn of_rules(rules: &CompiledRules, plan: &Plan, hits: Hits) -> Self {
        let is_of_descriptor = |&&id: &&RuleId| rules.traits(id).is_some();
        let descriptor = plan.matched.iter().find(is_of_descriptor).copied();
        let traits = descriptor.and_then(|id| rules.traits(id));
        let gives_nothing = |&id: &RuleId| rules.rule(id).quota == Quota::Nothing;
        let is_counted = !plan.charges.is_empty()
            || plan.denied_by.is_some()
            || plan.shadow_denied_by.is_some()
            || plan.matched.iter().any(gives_nothing);
        let takes = matches!(hits, Hits::Take(_));
        Self {
            rule: plan.matched.first().copied(),
            descriptor,
            refused: plan
                .denied_by
                .filter(|_| takes)
                .map(|(by, why)| Refused { by: Some(by), why }),
            is_quota: is_counted && traits.is_some_and(|traits| traits.quota_mode),
            is_unlimited: !is_counted && !plan.matched.is_empty(),
            shadow_refused: plan.shadow_denied_by.filter(|_| takes),
            is_shadow_denied: plan.shadow_denied_by.is_some() && takes,
            ..Self::default()
        }
    }

    /// A descriptor that brings its limit along.
    pub(super) fn of_given(limit: PerUnit, hits: Hits) -> Self {
        let is_refused = limit.count == 0 && matches!(hits, Hits::Take(1..));
        let refused = is_refused.then_some(Refused { by: None, why: Refusal::Banned });
        Self { given: Some(limit), refused, ..Self::default() }
    }

    pub(super) fn with_charges(mut self, first: usize, end: usize) -> Self {
        // A message has room for far fewer.
        self.first = u32::try_from(first).unwrap_or(u32::MAX);
        self.end = u32::try_from(end).unwrap_or(u32::MAX);
        self
    }

    pub(super) fn charges(&self) -> Range<usize> {
        self.first as usize..self.end as usize
    }

    /// Whether it is refused by a rule whose being over is told and does not deny.
    pub(super) fn is_refused_by_quota(&self) -> bool {
        self.is_quota && self.refused.is_some_and(|refused| refused.by == self.descriptor)
    }

    /// Whether it is refused by any other.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.is_some() && !self.is_refused_by_quota()
    }
}

impl DescriptorsDecision {
    /// A decision that is still to be made.
    pub(super) fn pending(rules: Kept, at: Timestamp) -> Self {
        Self {
            rules,
            at,
            domain: None,
            parts: SmallVec::new(),
            charges: SmallVec::new(),
            given: Vec::new(),
            is_allowed: true,
            skipped: 0,
        }
    }

    /// Whether the call may pass, perhaps after [`delay`](Self::delay). It may not where a descriptor
    /// is over, save one in quota mode; and not where all of those in quota mode are over.
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// What is said about each descriptor, in order.
    pub fn statuses(&self) -> impl ExactSizeIterator<Item = DescriptorStatus<'_>> {
        self.parts.iter().map(|part| DescriptorStatus { decision: self, part })
    }

    /// How long to hold an allowed call back.
    pub fn delay(&self) -> Duration {
        if !self.is_allowed {
            return Duration::ZERO;
        }
        self.statuses().map(|status| status.delay()).max().unwrap_or_default()
    }

    /// How long to wait before the same call passes, if nobody else asks; `None` where it was allowed
    /// or where waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_allowed {
            return None;
        }
        let over = || self.statuses().filter(DescriptorStatus::is_over);
        let quotas = self.parts.iter().filter(|part| part.is_quota);
        let are_quotas_over = quotas.clone().count() > 0 && quotas.clone().all(|part| part.is_over);
        // The first of the quotas that has room again is enough, and the last of the others.
        let quota = over().filter(DescriptorStatus::is_quota).filter_map(|one| one.retry_after());
        let quota = if are_quotas_over { Some(quota.min()?) } else { None };
        let mut longest = quota.unwrap_or(Duration::ZERO);
        for status in over().filter(|status| !status.is_quota()) {
            longest = longest.max(status.retry_after()?);
        }
        Some(longest)
    }

    /// Whether a rule in shadow, or a candidate, would have denied it.
    pub fn is_shadow_denied(&self) -> bool {
        self.parts.iter().any(|part| part.is_shadow_denied)
    }

    /// How often a rule matched and did not apply, because an attribute that it counts by is missing.
    pub fn skipped(&self) -> u32 {
        self.skipped
    }

    /// Whether the rules have such a domain. A call in a domain that nobody wrote rules for passes.
    pub fn is_domain_known(&self) -> bool {
        self.domain.is_some()
    }

    /// Which domain it is, by its number among those of [the rules that decided](Self::rules); `None`
    /// for a domain that nobody wrote rules for.
    pub fn domain_id(&self) -> Option<DomainId> {
        self.domain
    }

    /// The rules that decided. Others may have taken their place since.
    pub fn rules(&self) -> &CompiledRules {
        &self.rules
    }

    /// When it was decided, by this node's clock.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// Who decided. For a call that was denied, who decided the limit that denies for longest. For one
    /// that was allowed, all limits in force had to let it pass, and the one that is told is the furthest
    /// from exact knowledge in this process, as [`RuleDecision::source`](crate::RuleDecision::source) has it.
    pub fn source(&self) -> Source {
        let in_force = self.charges.iter().filter(|one| matches!(one.way, Way::Enforced { .. }));
        if self.is_allowed {
            let sources = in_force.map(|one| one.by.source);
            return sources.max_by_key(|source| distance(*source)).unwrap_or(Source::Memory);
        }
        if self.parts.iter().any(Part::is_refused) {
            return Source::Memory;
        }
        let denying = in_force.filter(|one| !one.decision.is_allowed());
        let longest = denying.max_by_key(|one| severity(&one.decision));
        longest.map_or(Source::Memory, |one| one.by.source)
    }

    /// Whether it was decided without a store that should have been asked, by what its rules say for
    /// that case.
    pub fn is_degraded(&self) -> bool {
        self.source() == Source::Fallback
    }

    /// What is to be done under a limit.
    pub(super) fn charge(&self, under: Under, does: Does) -> Charge<'_> {
        match under {
            Under::Rule(planned) => charge(&self.rules, &planned, does),
            Under::Given { index, key, cost } => {
                Charge { limit: &self.given[index].window, key, operation: does.operation(cost) }
            }
        }
    }

    /// Leaves out the limits that limits of other descriptors replace.
    pub(super) fn leave_out_replaced(&mut self) {
        let rules: &CompiledRules = &self.rules;
        let traits = |part: &Part| part.descriptor.and_then(|id| rules.traits(id));
        let replacing: SmallVec<[&str; 4]> = self
            .parts
            .iter()
            .filter_map(traits)
            .flat_map(|traits| traits.replaces.iter().map(String::as_str))
            .collect();
        if replacing.is_empty() {
            return;
        }
        for part in &mut self.parts {
            let name = traits(part).and_then(|traits| traits.limit_name.as_deref());
            if !name.is_some_and(|name| replacing.contains(&name)) {
                continue;
            }
            part.is_replaced = !part.is_unlimited;
            part.is_quota = false;
            part.refused = part.refused.filter(|refused| refused.by != part.descriptor);
            for charged in &mut self.charges[part.charges()] {
                if let Under::Rule(planned) = charged.under
                    && Some(rules.limit(planned.limit).rule()) == part.descriptor
                {
                    charged.way = Way::LeftOut;
                }
            }
        }
    }

    /// The charges from this one on that are decided together: those of one rule in shadow, in one
    /// descriptor.
    pub(super) fn shadow_group(&self, first: usize) -> Option<Range<usize>> {
        let group = |index: usize| match self.charges.get(index)? {
            Charged { under: Under::Rule(planned), way: Way::Shadow, .. } => {
                let limit = self.rules.limit(planned.limit);
                Some((limit.rule(), limit.role()))
            }
            _ => None,
        };
        let this = group(first)?;
        let part = self.parts.iter().find(|part| part.charges().contains(&first))?;
        let end = (first + 1..part.charges().end).find(|&index| group(index) != Some(this));
        Some(first..end.unwrap_or(part.charges().end))
    }

    /// Makes of all answers what is said about each descriptor.
    pub(super) fn settle(&mut self) {
        for part in &mut self.parts {
            part.is_over = part.refused.is_some();
            let mut worst = ((false, (0, 0)), None);
            for index in part.charges() {
                let Charged { under, way, decision, .. } = &self.charges[index];
                let role = match under {
                    Under::Rule(planned) => self.rules.limit(planned.limit).role(),
                    Under::Given { .. } => Role::Limit,
                };
                let is_allowed = decision.is_allowed();
                match way {
                    Way::LeftOut => continue,
                    Way::Enforced { .. } | Way::GivenBack => part.is_over |= !is_allowed,
                    Way::Shadow if role == Role::Plain => {
                        part.is_soft |= !is_allowed;
                        continue;
                    }
                    Way::Shadow => part.is_shadow_denied |= !is_allowed,
                }
                // A limit in shadow is shown where no other is, as it is while it is in force.
                let rank = (*way != Way::Shadow, severity(decision));
                let is_shown = role != Role::Candidate;
                if is_shown && (worst.1.is_none() || rank > worst.0) {
                    worst = (rank, u32::try_from(index).ok());
                }
            }
            part.is_soft &= self.is_allowed;
            part.binding = worst.1;
        }
    }
}
