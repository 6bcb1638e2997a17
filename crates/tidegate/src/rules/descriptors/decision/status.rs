//! What is said about one descriptor of a call.

use std::time::Duration;

use tidegate_core::{Key, Limit, Span, Verdict};
use tidegate_rules::compile::{CompiledRules, Role, RuleId};
use tidegate_rules::resolve::Refusal;
use tidegate_rules::rule::Rule;
use tidegate_store::Source;

use super::{Charged, DescriptorsDecision, Part, Under, Way};
use crate::rules::Reason;
use crate::rules::per_unit::PerUnit;

/// What is said about one descriptor.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorStatus<'d> {
    pub(super) decision: &'d DescriptorsDecision,
    pub(super) part: &'d Part,
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

    /// Who decided the binding limit; memory where nothing is counted.
    pub fn source(&self) -> Source {
        self.binding().map_or(Source::Memory, |charged| charged.by.source)
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
