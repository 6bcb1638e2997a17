//! Which counters belong to which rule. A decision knows its rule by number; counters are known by
//! the names of domain and rule, so that they go on counting when a reload gives rules other
//! numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tidegate::RuleDecision;
use tidegate::rules::{DescriptorCall, DescriptorsDecision};
use tidegate_rules::compile::{CompiledRules, DomainId, RuleId};

use super::cells::Cells;
use crate::answer::Source;
use crate::engine::DescriptorsAnswer;

/// The most pairs of domain and rule that are told apart. Those beyond share [`OTHER`]. Rules that are
/// no longer in force keep their counters until the room is needed.
pub const RULE_SERIES_MAX: usize = 2_000;

/// The name of domain and rule for all that is beyond the bound.
pub const OTHER: &str = "(other)";
/// The name of the rule for decisions in a domain none of whose rules matched.
pub const NONE: &str = "(none)";
/// The name of the domain for decisions in domains that nobody wrote rules for: what a caller calls
/// them never becomes a label.
pub const UNKNOWN: &str = "(unknown)";
/// The name of domain and rule for limits that calls bring along.
pub const GIVEN: &str = "(given)";

/// A domain, and a rule of it.
pub type SeriesName = (Box<str>, Box<str>);

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Allowed,
    /// Let through beyond the limit, by a soft rule.
    Soft,
    /// Let through, though something in shadow would have denied it.
    ShadowDenied,
    Denied,
}

impl Verdict {
    pub(super) const ALL: [Self; 4] = [Self::Allowed, Self::Soft, Self::ShadowDenied, Self::Denied];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Soft => "soft",
            Self::ShadowDenied => "shadow_denied",
            Self::Denied => "denied",
        }
    }
}

/// Every place where decisions are made, in the order of their numbers.
pub(super) const SOURCES: [Source; 5] =
    [Source::Memory, Source::Store, Source::Lease, Source::Fallback, Source::CachedDeny];

const VERDICTS: usize = Verdict::ALL.len();
const BY_SOURCE: usize = VERDICTS * SOURCES.len();
/// Where the calls are counted that a rule in shadow, or a candidate, would have denied.
const SHADOW_DENIALS: usize = BY_SOURCE;
/// Where the rules are counted that matched and did not apply.
const SKIPPED: usize = BY_SOURCE + 1;

/// The counters of one rule.
#[derive(Debug)]
pub(super) struct RuleCells(Cells<{ BY_SOURCE + 2 }>);

impl RuleCells {
    fn new() -> Self {
        Self(Cells::new())
    }

    #[inline]
    pub(super) fn decided(&self, verdict: Verdict, source: Source, count: u64) {
        self.0.add(source as usize * VERDICTS + verdict as usize, count);
    }

    /// Counts what passed only because everything is in shadow.
    #[cold]
    pub(super) fn lifted(&self, source: Source, count: u64) {
        self.decided(Verdict::ShadowDenied, source, count);
        self.0.add(SHADOW_DENIALS, count);
    }

    pub(super) fn decisions(&self, verdict: Verdict, source: Source) -> u64 {
        self.0.sum(source as usize * VERDICTS + verdict as usize)
    }

    pub(super) fn shadow_denials(&self) -> u64 {
        self.0.sum(SHADOW_DENIALS)
    }

    pub(super) fn skipped(&self) -> u64 {
        self.0.sum(SKIPPED)
    }
}

/// The counters of all rules.
#[derive(Debug)]
pub(super) struct Series {
    current: ArcSwap<Numbered>,
    named: Mutex<Named>,
    pub(super) unknown: Arc<RuleCells>,
    pub(super) given: Arc<RuleCells>,
}

/// The counters of the rules of one version, by number.
#[derive(Debug)]
struct Numbered {
    version: u64,
    rules: Box<[Arc<RuleCells>]>,
    domains: Box<[Arc<RuleCells>]>,
}

/// All counters that there are, by domain and rule.
#[derive(Debug, Default)]
struct Named {
    cells: BTreeMap<SeriesName, Arc<RuleCells>>,
}

impl Series {
    pub(super) fn new() -> Self {
        let mut named = Named::default();
        let unknown = named.add(UNKNOWN, NONE);
        let given = named.add(GIVEN, GIVEN);
        named.add(OTHER, OTHER);
        // Versions begin at 1, so the first decision finds this one out of date.
        let none = Numbered { version: 0, rules: Box::default(), domains: Box::default() };
        let current = ArcSwap::from_pointee(none);
        Self { current, named: Mutex::new(named), unknown, given }
    }

    /// Counts one decision of the rules.
    #[inline]
    pub(super) fn decided(
        &self,
        decision: &RuleDecision,
        verdict: Verdict,
        source: Source,
        is_lifted: bool,
    ) {
        let current = self.current.load();
        if current.version == decision.rules().version() {
            return self.count(&current, decision, verdict, source, is_lifted);
        }
        drop(current);
        self.count(&self.follow(decision.rules()), decision, verdict, source, is_lifted);
    }

    #[inline]
    fn count(
        &self,
        numbered: &Numbered,
        decision: &RuleDecision,
        verdict: Verdict,
        source: Source,
        is_lifted: bool,
    ) {
        let rule = decision.rule_id().map(|rule| numbered.rule(rule));
        let domain = || decision.domain_id().map_or(&self.unknown, |one| numbered.domain(one));
        rule.unwrap_or_else(domain).decided(verdict, source, 1);
        if decision.skipped() > 0 {
            domain().0.add(SKIPPED, u64::from(decision.skipped()));
        }
        if verdict == Verdict::ShadowDenied || decision.is_shadow_denied() {
            count_shadow_denials(numbered, decision, is_lifted);
        }
    }

    /// Counts what the rules said of several descriptors. Where they deny the call, nothing happened
    /// under the rules of those that had room, so only those that were over are counted.
    #[inline]
    pub(super) fn decided_descriptors(
        &self,
        decision: &DescriptorsDecision,
        calls: &[DescriptorCall<'_>],
        answer: &DescriptorsAnswer,
    ) {
        let current = self.current.load();
        if current.version == decision.rules().version() {
            return self.count_descriptors(&current, decision, calls, answer);
        }
        drop(current);
        let numbered = self.follow(decision.rules());
        self.count_descriptors(&numbered, decision, calls, answer);
    }

    fn count_descriptors(
        &self,
        numbered: &Numbered,
        decision: &DescriptorsDecision,
        calls: &[DescriptorCall<'_>],
        answer: &DescriptorsAnswer,
    ) {
        let domain = || decision.domain_id().map_or(&self.unknown, |one| numbered.domain(one));
        if decision.skipped() > 0 {
            domain().0.add(SKIPPED, u64::from(decision.skipped()));
        }
        let is_denied = !decision.is_allowed() || answer.is_turned_away();
        let taking = decision.statuses().zip(calls).filter(|(_, call)| call.hits.takes());
        for (status, _) in taking {
            for rule in status.shadow_denials() {
                numbered.rule(rule).0.add(SHADOW_DENIALS, 1);
            }
            let is_over = answer.is_over(&status);
            if is_denied && !is_over {
                continue;
            }
            let source = status.source();
            let cells = match status.rule_id() {
                Some(rule) => numbered.rule(rule),
                None if status.is_given() => &self.given,
                None => domain(),
            };
            match () {
                () if is_denied && answer.is_allowed() => cells.lifted(source, 1),
                () if is_denied => cells.decided(Verdict::Denied, source, 1),
                // A quota that is over and does not deny.
                () if is_over => cells.decided(Verdict::Soft, source, 1),
                () if status.is_shadow_denied() => cells.decided(Verdict::ShadowDenied, source, 1),
                () if status.is_soft() => cells.decided(Verdict::Soft, source, 1),
                () => cells.decided(Verdict::Allowed, source, 1),
            }
        }
    }

    /// The counters of these rules. They are put in force if they are the newest; a decision of rules
    /// that have been replaced meanwhile is counted under the names that they had.
    #[cold]
    fn follow(&self, rules: &CompiledRules) -> Arc<Numbered> {
        let mut named = self.named.lock();
        let current = self.current.load_full();
        if current.version == rules.version() {
            return current;
        }
        let numbered = Arc::new(named.number(rules));
        if numbered.version > current.version {
            self.current.store(Arc::clone(&numbered));
        }
        numbered
    }

    /// Every pair of domain and rule that has counters, in the order of their names. The rules in
    /// force are among them, also those that no call has met yet.
    pub(super) fn all(&self, rules: &CompiledRules) -> Vec<(SeriesName, Arc<RuleCells>)> {
        if self.current.load().version < rules.version() {
            self.follow(rules);
        }
        let named = self.named.lock();
        named.cells.iter().map(|(name, cells)| (name.clone(), Arc::clone(cells))).collect()
    }
}

#[cold]
fn count_shadow_denials(numbered: &Numbered, decision: &RuleDecision, is_lifted: bool) {
    let lifted = decision.rule_id().filter(|_| is_lifted);
    for rule in decision.shadow_denials().chain(lifted) {
        numbered.rule(rule).0.add(SHADOW_DENIALS, 1);
    }
}

impl Numbered {
    #[inline]
    fn rule(&self, rule: RuleId) -> &Arc<RuleCells> {
        &self.rules[rule.number()]
    }

    #[inline]
    fn domain(&self, domain: DomainId) -> &Arc<RuleCells> {
        &self.domains[domain.number()]
    }
}

impl Named {
    /// The counters of these rules by their numbers.
    fn number(&mut self, rules: &CompiledRules) -> Numbered {
        let count = rules.rule_count() + rules.set().domains().len();
        if self.cells.len() + count > RULE_SERIES_MAX {
            self.forget_all_but(rules);
        }
        let domains = rules.set().domains().iter().map(|one| self.add(&one.name, NONE)).collect();
        let rules_cells = rules.rule_domains().map(|(domain, rule)| self.add(domain, &rule.name));
        Numbered { version: rules.version(), rules: rules_cells.collect(), domains }
    }

    fn add(&mut self, domain: &str, rule: &str) -> Arc<RuleCells> {
        let name = (domain.into(), rule.into());
        if let Some(cells) = self.cells.get(&name) {
            return Arc::clone(cells);
        }
        if self.cells.len() >= RULE_SERIES_MAX
            && let Some(other) = self.cells.get(&(OTHER.into(), OTHER.into()))
        {
            return Arc::clone(other);
        }
        let cells = Arc::new(RuleCells::new());
        self.cells.insert(name, Arc::clone(&cells));
        cells
    }

    /// Makes room: rules that are not in force will hardly count again, and one that does begins at 0
    /// like one that is new.
    fn forget_all_but(&mut self, rules: &CompiledRules) {
        let mut kept = std::mem::take(&mut self.cells);
        let domains = rules.set().domains().iter().map(|one| (&*one.name, NONE));
        let named = rules.rule_domains().map(|(domain, rule)| (domain, &*rule.name));
        let fixed = [(UNKNOWN, NONE), (GIVEN, GIVEN), (OTHER, OTHER)];
        for (domain, rule) in fixed.into_iter().chain(domains).chain(named) {
            if let Some(one) = kept.remove_entry(&(domain.into(), rule.into())) {
                self.cells.insert(one.0, one.1);
            }
        }
    }
}
