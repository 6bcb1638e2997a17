//! The answer to one call, over all rules that match.

use std::slice;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{self as core, Key, Span, Timestamp, Verdict};
use tidegate_rules::compile::{CompiledLimit, CompiledRules, DomainId, Role, RuleId};
use tidegate_rules::resolve::{Only, Plan, Planned, Refusal};
use tidegate_rules::rule::{Count, Rule};
use tidegate_store::Source;

use super::backing::DecidedBy;
use super::in_force::Kept;
use super::of_limit::{LimitDecision, OnlyLeft};
use crate::decision::severity;

/// Whether a call may pass, and what its *binding* limit says: the one that denies it for longest,
/// or, when all allow it, the one with least left.
///
/// It knows what was taken, so it is also what a call is [completed](crate::RuleLimiter::complete)
/// or [refunded](crate::RuleLimiter::refund) by.
#[derive(Debug)]
#[must_use = "a decision that nobody reads limits nothing"]
pub struct RuleDecision {
    pub(super) rules: Kept,
    pub(super) at: Timestamp,
    pub(super) outcome: Outcome,
    /// Which of the charges took something, a bit for each.
    pub(super) taken: u64,
    /// The only charge and its answer, where memory decided an ordinary call, as it mostly does. There is nothing in the
    /// lists then.
    pub(super) one: Option<One>,
    /// All others. They are not made before they are needed, because empty lists take time too.
    pub(super) lists: Option<Lists>,
}

/// The only limit that applies, and what memory has decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct One {
    domain: DomainId,
    rule: RuleId,
    planned: Planned,
    decision: core::Decision,
}

/// Any number of limits, and who has decided them.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    pub(super) plan: Plan,
    /// One for each charge of the plan, in the same order.
    pub(super) decisions: SmallVec<[core::Decision; 2]>,
    /// Who decided each of them; empty where all was decided by memory, at the time of the call.
    pub(super) by: SmallVec<[DecidedBy; 1]>,
    /// The time of the call as all nodes understand it, where that is another.
    pub(super) told_at: Option<Timestamp>,
    /// The group of servers that the call's attributes say.
    pub(super) group: Option<u8>,
}

impl One {
    #[inline]
    pub(super) fn new(only: &Only, planned: Planned, decision: core::Decision) -> Self {
        Self { domain: only.domain, rule: only.rule, planned, decision }
    }
}

impl Lists {
    /// Forgets everything and keeps the room.
    fn clear(&mut self) {
        self.plan.clear();
        self.decisions.clear();
        self.by.clear();
        self.told_at = None;
        self.group = None;
    }
}

/// What follows from all answers together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcome {
    allowed: bool,
    soft: bool,
    shadow_denied: bool,
    binding: Option<u32>,
    delay: Span,
}

/// Why a call was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// Too much has been taken already. It passes later.
    OverLimit,
    /// The cost is more than the limit can ever hold.
    NeverFits,
    /// A rule denies calls without an attribute that it counts by.
    MissingAttribute,
    /// A rule gives nothing to anyone.
    Banned,
}

impl Reason {
    /// The word for it on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OverLimit => "over-limit",
            Self::NeverFits => "never-fits",
            Self::MissingAttribute => "missing-attribute",
            Self::Banned => "banned",
        }
    }
}

/// How far from exact knowledge in this process an answer is.
pub(super) const fn distance(source: Source) -> u8 {
    match source {
        Source::Memory => 0,
        Source::Lease => 1,
        Source::CachedDeny => 2,
        Source::Store => 3,
        Source::Fallback => 4,
    }
}

impl RuleDecision {
    /// A decision that is still to be made.
    pub(super) fn pending(rules: Kept, at: Timestamp) -> Self {
        Self { rules, at, outcome: Outcome::PENDING, taken: 0, one: None, lists: None }
    }

    /// Makes it one that is still to be made, with the room that it has.
    #[inline]
    pub(super) fn clear(&mut self, at: Timestamp) {
        self.at = at;
        self.outcome = Outcome::PENDING;
        self.taken = 0;
        self.one = None;
        if let Some(lists) = &mut self.lists {
            lists.clear();
        }
    }

    /// The charges, in the order of the rules.
    #[inline]
    pub(super) fn charges(&self) -> &[Planned] {
        match (&self.one, &self.lists) {
            (Some(one), _) => slice::from_ref(&one.planned),
            (None, Some(lists)) => &lists.plan.charges,
            (None, None) => &[],
        }
    }

    /// What was decided of each charge, in the same order.
    #[inline]
    pub(super) fn decisions(&self) -> &[core::Decision] {
        match (&self.one, &self.lists) {
            (Some(one), _) => slice::from_ref(&one.decision),
            (None, Some(lists)) => &lists.decisions,
            (None, None) => &[],
        }
    }

    /// The rules that match, in the order of the files.
    #[inline]
    fn matches(&self) -> &[RuleId] {
        match (&self.one, &self.lists) {
            (Some(one), _) => slice::from_ref(&one.rule),
            (None, Some(lists)) => &lists.plan.matched,
            (None, None) => &[],
        }
    }

    /// What follows from the call, where that is more than one ordinary charge.
    #[inline]
    pub(super) fn plan(&self) -> Option<&Plan> {
        self.lists.as_ref().map(|lists| &lists.plan)
    }

    /// A rule that denies whatever has been taken, and why.
    #[inline]
    pub(super) fn denied_by(&self) -> Option<(RuleId, Refusal)> {
        self.plan()?.denied_by
    }

    /// The group of servers that the call's attributes say.
    #[inline]
    pub(super) fn group(&self) -> Option<u8> {
        self.lists.as_ref()?.group
    }

    /// Whether the call may pass, perhaps after [`delay`](Self::delay).
    #[inline]
    pub fn is_allowed(&self) -> bool {
        self.outcome.allowed
    }

    /// Whether the call may pass without being held back.
    #[inline]
    pub fn passes_at_once(&self) -> bool {
        self.outcome.allowed && self.outcome.delay.is_zero()
    }

    /// Why it was denied; `None` where it was allowed.
    pub fn reason(&self) -> Option<Reason> {
        match self.denied_by() {
            Some((_, Refusal::MissingAttribute)) => return Some(Reason::MissingAttribute),
            Some((_, Refusal::Banned)) => return Some(Reason::Banned),
            None => {}
        }
        match self.binding()?.1.verdict {
            Verdict::Allow { .. } => None,
            Verdict::Deny { .. } => Some(Reason::OverLimit),
            Verdict::NeverFits => Some(Reason::NeverFits),
        }
    }

    /// The rule of the binding limit, or the one that denies; where nothing is counted, the first
    /// that matches.
    pub fn rule(&self) -> Option<&Rule> {
        self.rule_id().map(|rule| self.rules.rule(rule))
    }

    /// The same rule, by its number among [those that decided](Self::rules).
    #[inline]
    pub fn rule_id(&self) -> Option<RuleId> {
        let binding = self.binding().map(|(planned, _)| self.rules.limit(planned.limit).rule());
        let denied_by = self.denied_by().map(|(rule, _)| rule);
        denied_by.or(binding).or(self.matches().first().copied())
    }

    /// Which domain it is, by its number among those of [the rules that decided](Self::rules); `None`
    /// for a domain that nobody wrote rules for.
    #[inline]
    pub fn domain_id(&self) -> Option<DomainId> {
        match &self.one {
            Some(one) => Some(one.domain),
            None => self.plan()?.domain,
        }
    }

    /// The rules that decided. Others may have taken their place since.
    #[inline]
    pub fn rules(&self) -> &CompiledRules {
        &self.rules
    }

    /// Who is counted, hashed: the key under the first limit of the [rule](Self::rule), so that it is
    /// the same whichever of the rule's limits is the binding one. `None` where nothing is counted.
    pub fn key(&self) -> Option<Key> {
        let rule = self.rule_id()?;
        let mut charges = self.charges().iter();
        charges.find(|one| self.rules.limit(one.limit).rule() == rule).map(|one| one.key)
    }

    /// The rules in shadow, and those with candidates, that would have denied the call.
    pub fn shadow_denials(&self) -> impl Iterator<Item = RuleId> {
        let mut last = self.plan().and_then(|plan| plan.shadow_denied_by);
        let refused = last.into_iter();
        let over = self.answers().filter_map(move |(planned, decision)| {
            let limit = self.rules.limit(planned.limit);
            let is_tried = !limit.is_enforced() && limit.role() != Role::Plain;
            let denies = is_tried && !decision.is_allowed();
            // The charges of a rule stand together, so each rule comes up once.
            (denies && last.replace(limit.rule()) != Some(limit.rule())).then(|| limit.rule())
        });
        refused.chain(over)
    }

    /// The rules that match, in the order of the files.
    pub fn matched(&self) -> impl Iterator<Item = &Rule> {
        self.matches().iter().map(|&rule| self.rules.rule(rule))
    }

    /// How many rules match but do not apply, because an attribute that they count by is missing.
    pub fn skipped(&self) -> u32 {
        self.plan().map_or(0, |plan| plan.skipped)
    }

    /// Whether the rules have such a domain. A call in a domain that nobody wrote rules for passes.
    pub fn is_domain_known(&self) -> bool {
        self.domain_id().is_some()
    }

    /// The most that the binding limit can have left; `None` where nothing is counted.
    pub fn limit(&self) -> Option<u64> {
        self.binding().map(|(_, decision)| decision.limit)
    }

    /// How much the binding limit has left.
    pub fn remaining(&self) -> Option<u64> {
        self.binding().map(|(_, decision)| decision.remaining)
    }

    /// How long until the binding limit has everything back.
    pub fn reset_after(&self) -> Option<Duration> {
        self.binding().map(|(_, decision)| decision.reset_after.into())
    }

    /// What clients are told of the binding limit, in one look: the [limit](Self::limit), what is
    /// [left](Self::remaining), and the seconds [until it has everything back](Self::reset_after), rounded up.
    #[inline]
    pub fn binding_numbers(&self) -> Option<[u64; 3]> {
        let (_, decision) = self.binding()?;
        Some([decision.limit, decision.remaining, decision.reset_after.as_secs_ceil()])
    }

    /// How long to wait before the same call passes, if nobody else asks; `None` where it was allowed
    /// or where waiting does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.denied_by().is_some() {
            return None;
        }
        self.binding()?.1.retry_after().map(Duration::from)
    }

    /// How long to hold an allowed call back.
    pub fn delay(&self) -> Duration {
        self.outcome.delay.into()
    }

    /// Whether it was let through beyond what a limit gives, by a rule that is soft.
    pub fn is_soft(&self) -> bool {
        self.outcome.soft
    }

    /// Whether a rule in shadow, or a candidate, would have denied it.
    pub fn is_shadow_denied(&self) -> bool {
        self.outcome.shadow_denied
    }

    /// What each limit says, those in shadow too, in the order of the rules.
    pub fn limits(&self) -> impl Iterator<Item = LimitDecision<'_>> {
        let rules: &CompiledRules = &self.rules;
        self.answers().enumerate().map(move |(index, (planned, decision))| {
            let by = self.by(index);
            LimitDecision { rules, planned, decision, by }
        })
    }

    /// What the limit says of a call that passes under it and no other, and not because it is in shadow or there to
    /// keep a share for others.
    #[inline]
    pub fn only_limit(&self) -> Option<LimitDecision<'_>> {
        let ([planned], [decision]) = (self.charges(), self.decisions()) else {
            return None;
        };
        let only = LimitDecision { rules: &self.rules, planned, decision, by: self.by(0) };
        let is_bound = self.outcome.allowed && self.outcome.binding.is_some();
        (is_bound && only.is_allowed() && only.is_enforced() && !only.is_reserve()).then_some(only)
    }

    /// What the [only limit](Self::only_limit) has left, where memory decided an ordinary call, as it mostly does: less than
    /// all that is known of that limit, for those who know the rest by its mark.
    #[inline]
    pub fn only_left(&self) -> Option<OnlyLeft> {
        let One { planned, decision, .. } = self.one.as_ref()?;
        // Only a limit in force binds.
        if !self.outcome.allowed || self.outcome.binding.is_none() {
            return None;
        }
        Some(OnlyLeft {
            mark: self.rules.limit_mark(planned.limit),
            limit: decision.limit,
            remaining: decision.remaining,
            reset_secs: decision.reset_after.as_secs_ceil(),
        })
    }

    /// Whether it took something, which can be given back.
    pub fn took(&self) -> bool {
        self.taken != 0
    }

    /// When it was decided, by this node's clock.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// When it was decided, as who gives something back tells it, to this node or to another: where nodes share a
    /// store, by the store's clock, whatever their own clocks show.
    pub fn told_at(&self) -> Timestamp {
        self.lists.as_ref().and_then(|lists| lists.told_at).unwrap_or(self.at)
    }

    /// Who decided. For a call that was denied, who decided the binding limit. For one that was allowed,
    /// all limits in force had to let it pass, and the one that is told is the furthest from exact
    /// knowledge in this process: the [fallback](Source::Fallback) where one of them needed it, else the
    /// store, else a lease, else memory.
    pub fn source(&self) -> Source {
        if self.lists.as_ref().is_none_or(|lists| lists.by.is_empty()) {
            return Source::Memory;
        }
        if !self.is_allowed() {
            let index = self.outcome.binding.filter(|_| self.denied_by().is_none());
            return index.map_or(Source::Memory, |index| self.by(index as usize).source);
        }
        let in_force = self.limits().filter(LimitDecision::is_enforced);
        in_force
            .map(|limit| limit.source())
            .max_by_key(|source| distance(*source))
            .unwrap_or(Source::Memory)
    }

    /// Whether it was decided without a store that should have been asked, by what its rules say for
    /// that case. A denial that the store made is none, even where another limit could not be asked.
    pub fn is_degraded(&self) -> bool {
        self.source() == Source::Fallback
    }

    /// Whether somebody has to be told how the call goes on: it [holds places](Self::holds_places), or
    /// [its response counts](Self::counts_responses). One look for both.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        let ([planned], [answer]) = (self.charges(), self.decisions()) else {
            return self.holds_places() || self.counts_responses();
        };
        let is_by_status = || {
            let rule = self.rules.rule(self.rules.limit(planned.limit).rule());
            matches!(rule.count, Count::OnResponse(_))
        };
        self.taken != 0 && (answer.lease.is_some() || is_by_status())
    }

    /// Who decided the charge of this number, and when by his clock.
    #[inline]
    pub(super) fn by(&self, index: usize) -> DecidedBy {
        let by = self.lists.as_ref().and_then(|lists| lists.by.get(index));
        by.copied().unwrap_or(DecidedBy::memory(self.at))
    }

    /// Each charge with what was decided, and the group of servers that the call's attributes say.
    pub(super) fn answers_by_group(
        &self,
    ) -> impl Iterator<Item = (&Planned, &core::Decision, Option<u8>)> {
        self.answers().map(|(planned, decision)| (planned, decision, self.group()))
    }

    /// Each charge, and what was decided.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&Planned, &core::Decision)> {
        self.charges().iter().zip(self.decisions())
    }

    #[inline]
    fn binding(&self) -> Option<(&Planned, &core::Decision)> {
        let index = self.outcome.binding? as usize;
        Some((&self.charges()[index], &self.decisions()[index]))
    }
}

impl Outcome {
    #[inline]
    pub(super) fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// Of a call that nobody has decided: nothing passes by mistake.
    const PENDING: Self = Self { allowed: false, ..Self::ALLOWED };

    /// Of no limits at all.
    pub(super) const ALLOWED: Self =
        Self { allowed: true, soft: false, shadow_denied: false, binding: None, delay: Span::ZERO };

    /// Of the only limit that applies, which is the common case.
    #[inline]
    pub(super) fn of_one(limit: &CompiledLimit, verdict: Verdict) -> Self {
        let (allowed, delay) = match verdict {
            Verdict::Allow { delay } => (true, delay),
            Verdict::Deny { .. } | Verdict::NeverFits => (false, Span::ZERO),
        };
        if !limit.is_enforced() {
            return Self { shadow_denied: !allowed, ..Self::ALLOWED };
        }
        Self { allowed, binding: Some(0), delay, ..Self::ALLOWED }
    }

    pub(super) fn of(decision: &RuleDecision) -> Self {
        let (rules, plan) = (&decision.rules, decision.plan());
        let mut outcome = Self {
            allowed: decision.denied_by().is_none(),
            shadow_denied: plan.is_some_and(|plan| plan.shadow_denied_by.is_some()),
            ..Self::ALLOWED
        };
        let mut worst = (0, 0);
        for (index, (planned, decision)) in (0..).zip(decision.answers()) {
            let limit = rules.limit(planned.limit);
            if limit.role() == Role::Plain {
                outcome.soft |= !decision.is_allowed();
                continue;
            }
            if !limit.is_enforced() {
                outcome.shadow_denied |= !decision.is_allowed();
                continue;
            }
            outcome.allowed &= decision.is_allowed();
            outcome.delay = outcome.delay.max(decision.delay());
            let severity = severity(decision);
            if outcome.binding.is_none() || severity > worst {
                (worst, outcome.binding) = (severity, Some(index));
            }
        }
        outcome.soft &= outcome.allowed;
        if !outcome.allowed {
            // Nobody holds a place in the queue of one limit where another one denied.
            outcome.delay = Span::ZERO;
        }
        outcome
    }
}
