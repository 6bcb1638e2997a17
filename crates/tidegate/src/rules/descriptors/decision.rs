//! The answer to one call over several descriptors.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use smallvec::SmallVec;
use tidegate_core::{self as core, Key, Limit, Span, Timestamp, Verdict};
use tidegate_rules::compile::{CompiledRules, DomainId, Role, RuleId};
use tidegate_rules::resolve::{Plan, Planned, Refusal};
use tidegate_rules::rule::{Quota, Rule};
use tidegate_store::Charge;

use super::Hits;
use crate::decision::severity;
use crate::rules::Reason;
use crate::rules::limiter::{Does, PENDING, charge};
use crate::rules::per_unit::PerUnit;

/// Whether a call over several descriptors may pass, and what is said about each of them.
#[derive(Debug)]
#[must_use = "a decision that nobody reads limits nothing"]
pub struct DescriptorsDecision {
    pub(super) rules: Guard<Arc<CompiledRules>>,
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
    pub(super) fn new(under: Under, is_enforced: bool, hits: Hits) -> Self {
        let way = match hits {
            Hits::GiveBack(_) => Way::GivenBack,
            Hits::Take(_) if is_enforced => Way::Enforced { group: usize::MAX },
            Hits::Take(_) => Way::Shadow,
        };
        Self { under, way, decision: PENDING, is_taken: false }
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
    pub(super) fn pending(rules: Guard<Arc<CompiledRules>>, at: Timestamp) -> Self {
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

    /// When it was decided.
    pub fn at(&self) -> Timestamp {
        self.at
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

/// What is said about one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorStatus<'d> {
    decision: &'d DescriptorsDecision,
    part: &'d Part,
}

impl<'d> DescriptorStatus<'d> {
    /// Whether this descriptor alone would have been refused.
    pub fn is_over(&self) -> bool {
        self.part.is_over
    }

    /// Why it would have been; `None` where it is not over.
    pub fn reason(&self) -> Option<Reason> {
        if let Some(refused) = self.part.refused {
            return Some(match refused.why {
                Refusal::MissingAttribute => Reason::MissingAttribute,
                Refusal::Banned => Reason::Banned,
            });
        }
        let binding = self.binding().filter(|_| self.is_over())?;
        match binding.decision.verdict {
            Verdict::Allow { .. } => None,
            Verdict::Deny { .. } => Some(Reason::OverLimit),
            Verdict::NeverFits => Some(Reason::NeverFits),
        }
    }

    /// Whether rules apply, and let everything through.
    pub fn is_unlimited(&self) -> bool {
        self.part.is_unlimited
    }

    /// Whether its limit was left out, because that of another descriptor replaces it.
    pub fn is_replaced(&self) -> bool {
        self.part.is_replaced
    }

    /// Whether its being over is told and does not deny by itself.
    pub fn is_quota(&self) -> bool {
        self.part.is_quota
    }

    /// Whether a rule in shadow, or a candidate, would have refused it.
    pub fn is_shadow_denied(&self) -> bool {
        self.part.is_shadow_denied
    }

    /// The rules in shadow, and those with a candidate, that would have refused it.
    pub fn shadow_denials(&self) -> impl Iterator<Item = RuleId> {
        let mut last = self.part.shadow_refused;
        let refused = last.into_iter();
        let rules: &'d CompiledRules = &self.decision.rules;
        let over = self.decision.charges[self.part.charges()].iter().filter_map(move |charged| {
            let (Under::Rule(planned), Way::Shadow) = (charged.under, charged.way) else {
                return None;
            };
            let limit = rules.limit(planned.limit);
            let denies = limit.role() != Role::Plain && !charged.decision.is_allowed();
            // The charges of a rule stand together, so each rule comes up once.
            (denies && last.replace(limit.rule()) != Some(limit.rule())).then(|| limit.rule())
        });
        refused.chain(over)
    }

    /// Whether it was let through beyond what a limit gives, by a rule that is soft.
    pub fn is_soft(&self) -> bool {
        self.part.is_soft
    }

    /// The rule of the binding limit, or the one that refuses; where nothing is counted, the first
    /// that matches. `None` where none does, and for a limit that the call brought along.
    pub fn rule(&self) -> Option<&'d Rule> {
        self.rule_id().map(|rule| self.decision.rules.rule(rule))
    }

    /// The number of this rule among [the rules that decided](DescriptorsDecision::rules).
    pub fn rule_id(&self) -> Option<RuleId> {
        let refused_by = self.part.refused.and_then(|refused| refused.by);
        let binding = self.binding().and_then(|charged| match charged.under {
            Under::Rule(planned) => Some(self.decision.rules.limit(planned.limit).rule()),
            Under::Given { .. } => None,
        });
        refused_by.or(binding).or(self.part.rule)
    }

    /// Whether it is under a limit that the call brought along.
    pub fn is_given(&self) -> bool {
        self.part.given.is_some()
    }

    /// Who is counted, hashed; `None` where nothing is counted.
    pub fn key(&self) -> Option<Key> {
        self.binding().map(|charged| match charged.under {
            Under::Rule(planned) => planned.key,
            Under::Given { key, .. } => key,
        })
    }

    /// The name of the limit as its rule's author gave it, for clients.
    pub fn limit_name(&self) -> Option<&'d str> {
        let rules: &'d CompiledRules = &self.decision.rules;
        let Under::Rule(planned) = self.binding()?.under else { return None };
        let limit = rules.limit(planned.limit);
        if let Some(traits) = rules.traits(limit.rule()) {
            return traits.limit_name.as_deref();
        }
        let own = limit.written().shown_as.as_deref();
        own.or_else(|| Some(rules.rule(limit.rule()).shown_name()))
    }

    /// The binding limit as so many per unit; `None` where nothing is counted.
    pub fn per_unit(&self) -> Option<PerUnit> {
        if self.part.given.is_some() {
            return self.part.given;
        }
        let limit = self.limit_of(self.binding()?);
        PerUnit::nearest(limit)
    }

    /// Whether the limit is one that gives nothing to anyone.
    pub fn gives_nothing(&self) -> bool {
        matches!(self.reason(), Some(Reason::Banned))
            || self.part.given.is_some_and(|limit| limit.count == 0)
    }

    /// How much the binding limit has left.
    pub fn remaining(&self) -> Option<u64> {
        self.binding().map(|charged| charged.decision.remaining)
    }

    /// How long until the binding limit has everything back.
    pub fn reset_after(&self) -> Option<Duration> {
        self.binding().map(|charged| charged.decision.reset_after.into())
    }

    /// How long its limits hold the call back, where it passes.
    pub fn delay(&self) -> Duration {
        let charges = &self.decision.charges[self.part.charges()];
        let enforced = charges.iter().filter(|one| matches!(one.way, Way::Enforced { .. }));
        enforced.map(|one| one.decision.delay()).max().unwrap_or(Span::ZERO).into()
    }

    /// How long to wait before this descriptor alone passes; `None` where it is not over, or where
    /// waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.part.refused.is_some() || !self.is_over() {
            return None;
        }
        self.binding()?.decision.retry_after().map(Duration::from)
    }

    /// What the author of Envoy's rule file wants to be told while there is room: names and values in
    /// JSON.
    pub fn metadata(&self) -> &'d [(String, String)] {
        let rules: &'d CompiledRules = &self.decision.rules;
        let is_counted = !self.part.is_unlimited && !self.part.is_replaced;
        let rule = self.part.descriptor.filter(|_| is_counted && !self.is_over());
        rule.and_then(|id| rules.traits(id)).map_or(&[], |traits| &traits.metadata)
    }

    fn binding(&self) -> Option<&'d Charged> {
        self.decision.charges.get(self.part.binding? as usize)
    }

    fn limit_of(&self, charged: &Charged) -> &'d Limit {
        match charged.under {
            Under::Rule(planned) => self.decision.rules.limit(planned.limit).limit(planned.relaxed),
            Under::Given { index, .. } => &self.decision.given[index].window,
        }
    }
}
