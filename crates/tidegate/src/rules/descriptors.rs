//! Several descriptors of Envoy's rate limit service in one call: each is a list of attributes of its
//! own, all are decided at one instant, and all are charged or none.
//!
//! What it shares with envoyproxy/ratelimit: one status for each descriptor, in order; limits that
//! other limits replace; limits that calls bring along; shadow and quota modes; hits that look and
//! hits that give back. It differs in one thing on purpose: a call that one descriptor refuses takes
//! nothing from the others, nor from the one that refuses.

mod decision;
mod enforced;

pub use decision::{DescriptorStatus, DescriptorsDecision};

use tidegate_core::{self as core, Key, Limit, Operation, Terms};
use tidegate_rules::Attribute;
use tidegate_rules::compile::CompiledRules;
use tidegate_rules::resolve::Plan;
use tidegate_rules::rule::{Quota, Rule, RuleSet};
use tidegate_store::{Charge, Request, Settled, Source, Table};

use self::decision::{Charged, Given, Part, Under, Way};
use self::enforced::answers;
use super::backing::{Answered, Backing, Few, at_once};
use super::decide::{Back, never_deny};
use super::limiter::{CheckError, Does, RuleLimiter};
use super::per_unit::PerUnit;
use crate::{Call, Clock};

/// One descriptor of a call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DescriptorCall<'a> {
    /// What describes it, in order.
    pub entries: &'a [Attribute<'a>],
    /// What it does to the limits that apply to it.
    pub hits: Hits,
    /// A limit that the call brings along, in the place of whatever the rules have for it.
    pub limit: Option<PerUnit>,
}

/// What a descriptor does to the limits that apply to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hits {
    /// Takes so much, all or nothing. Taking 0 is looking.
    Take(u64),
    /// Gives so much back, never above full.
    GiveBack(u64),
}

impl Hits {
    /// Whether it takes anything at all.
    pub fn takes(self) -> bool {
        matches!(self, Self::Take(1..))
    }

    fn cost(self) -> u64 {
        match self {
            Self::Take(cost) | Self::GiveBack(cost) => cost,
        }
    }
}

impl<'a> DescriptorCall<'a> {
    /// A descriptor that takes 1.
    pub fn new(entries: &'a [Attribute<'a>]) -> Self {
        Self { entries, hits: Hits::Take(1), limit: None }
    }

    /// The same with other hits.
    #[must_use]
    pub fn with_hits(mut self, hits: Hits) -> Self {
        self.hits = hits;
        self
    }

    /// The same under a limit that it brings along.
    #[must_use]
    pub fn with_limit(mut self, limit: PerUnit) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// The rules with a concurrency limit, each with its domain. A caller of Envoy's service has no way
/// to give a place back, so [`RuleLimiter::check_descriptors`] leaves such limits out.
pub fn with_concurrency(rules: &RuleSet) -> impl Iterator<Item = (&str, &Rule)> {
    let has_concurrency = |rule: &&Rule| {
        let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.quotas).map(|(_, quota)| quota);
        let overrides = rule.overrides.iter().map(|one| &one.quota);
        let mut quotas = std::iter::once(&rule.quota).chain(tiers).chain(overrides);
        let of_quota = |quota: &Quota| match quota {
            Quota::Limits(limits) => {
                limits.iter().any(|one| matches!(one.limit, Limit::Concurrency(_)))
            }
            Quota::Unlimited | Quota::Nothing => false,
        };
        quotas.any(of_quota)
    };
    rules.domains().iter().flat_map(move |domain| {
        let rules = domain.rules.iter().filter(has_concurrency);
        rules.map(|rule| (domain.name.as_str(), rule))
    })
}

impl<C: Clock> RuleLimiter<C, Table> {
    /// Decides several descriptors as one call. What they take is taken under all limits of all of
    /// them, or not at all; each status then says what that descriptor alone would have said. Two
    /// descriptors that are counted by the same key are one charge of what both take.
    ///
    /// What is given back is given back first, whatever becomes of the rest. Concurrency limits are
    /// [left out](with_concurrency). Where more than 16 limits in force apply, nothing is decided.
    ///
    /// ```
    /// use tidegate::RuleLimiter;
    /// use tidegate::rules::DescriptorCall;
    ///
    /// let limiter = RuleLimiter::new("
    /// domain: web
    /// descriptors:
    ///   - { key: ip, rate_limit: { unit: hour, requests_per_unit: 9 } }
    ///   - { key: path, value: /login, rate_limit: { unit: hour, requests_per_unit: 1 } }
    /// ")?;
    /// let (ip, path) = ([("ip", "192.0.2.7").into()], [("path", "/login").into()]);
    /// let calls = [DescriptorCall::new(&ip), DescriptorCall::new(&path)];
    /// assert!(limiter.check_descriptors("web", &calls)?.is_allowed());
    /// let denied = limiter.check_descriptors("web", &calls)?;
    /// assert!(!denied.is_allowed());
    /// let over: Vec<bool> = denied.statuses().map(|status| status.is_over()).collect();
    /// assert_eq!(over, [false, true]);
    /// let left = denied.statuses().next().and_then(|status| status.remaining());
    /// assert_eq!(left, Some(8), "the call that was denied took nothing");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_descriptors(
        &self,
        domain: &str,
        calls: &[DescriptorCall<'_>],
    ) -> Result<DescriptorsDecision, CheckError> {
        at_once(self.decide_descriptors(domain, calls))
    }

    /// Gives back what a call took, and nothing a second time, as if the call had not been: what is left
    /// is then told so. What the call itself gave back stays given back.
    pub fn refund_descriptors(&self, decision: &mut DescriptorsDecision) {
        at_once(self.give_back_descriptors(&(), decision));
    }
}

impl<C: Clock, S: Backing> RuleLimiter<C, S> {
    pub(super) async fn decide_descriptors(
        &self,
        domain: &str,
        calls: &[DescriptorCall<'_>],
    ) -> Result<DescriptorsDecision, CheckError> {
        let mut decision =
            DescriptorsDecision::pending(self.current.keep(), self.clock.now_unordered());
        self.find_limits(domain, calls, &mut decision)?;
        decision.leave_out_replaced();
        let mut groups = decision.groups()?;
        self.carry_descriptors(&decision);
        let deadline = S::Deadline::default();
        self.give_back_hits(&deadline, &mut decision).await?;
        self.decide_enforced(&deadline, &mut decision, &mut groups).await?;
        if let Err(error) = self.decide_in_shadow(&deadline, &mut decision).await {
            // Nobody is charged for a call that was not decided.
            self.give_back_descriptors(&deadline, &mut decision).await;
            return Err(error);
        }
        if !decision.is_allowed() {
            let answers = answers(&groups);
            self.charge_refused(&deadline, &decision.rules, decision.at, answers).await;
        }
        decision.settle();
        Ok(decision)
    }

    pub(super) async fn give_back_descriptors(
        &self,
        deadline: &S::Deadline,
        decision: &mut DescriptorsDecision,
    ) {
        let now = self.clock.now();
        for index in 0..decision.charges.len() {
            let charged = &mut decision.charges[index];
            if !std::mem::take(&mut charged.is_taken) {
                continue;
            }
            let Charged { under, group, by, .. } = *charged;
            let operation = Operation::Refund { cost: under.cost(), taken_at: by.at };
            let mut answer = None;
            let mut each = |_: usize, settled: Settled| answer = Some(settled.decision);
            match (under, self.store.memory()) {
                (Under::Rule(planned), Some(table)) => {
                    let back = self.give_back_in(table, &decision.rules, &planned, operation);
                    answer = Some(back);
                }
                (Under::Rule(planned), None) => {
                    let back = [Back { planned, operation, group, source: by.source }];
                    self.give_back_to(deadline, &decision.rules, &back, &mut each).await;
                }
                (Under::Given { index, key, .. }, _) => {
                    let limit = &decision.given[index].window;
                    let charge = [Charge { limit, key, operation }];
                    let terms = [self.sharing.terms_of_given(limit, group)];
                    if by.source == Source::Fallback {
                        self.store.give_back_share(now, &charge[0], terms[0]);
                    } else {
                        self.store.carry_out(deadline, now, &charge, &terms, &mut each).await;
                    }
                }
            }
            let Some(core::Decision { remaining, reset_after, .. }) = answer else { continue };
            for same in decision.charges.iter_mut().filter(|one| one.under.key() == under.key()) {
                (same.decision.remaining, same.decision.reset_after) = (remaining, reset_after);
            }
        }
    }

    /// What applies to each descriptor: the limit that it brings along, or those of the rules.
    fn find_limits(
        &self,
        domain: &str,
        calls: &[DescriptorCall<'_>],
        decision: &mut DescriptorsDecision,
    ) -> Result<(), CheckError> {
        let mut plan = Plan::default();
        for call in calls {
            let first = decision.charges.len();
            let part = match call.limit {
                Some(limit) => self.find_given(domain, call, limit, decision),
                None => self.find_by_rules(domain, call, &mut plan, decision)?,
            };
            decision.parts.push(part.with_charges(first, decision.charges.len()));
        }
        Ok(())
    }

    fn find_by_rules(
        &self,
        domain: &str,
        call: &DescriptorCall<'_>,
        plan: &mut Plan,
        decision: &mut DescriptorsDecision,
    ) -> Result<Part, CheckError> {
        plan.clear();
        let DescriptorsDecision { rules, at, charges, domain: known, skipped, .. } = decision;
        let (rules, at): (&CompiledRules, _) = (rules, *at);
        let asked = Call::new(domain, call.entries).with_cost(call.hits.cost());
        rules.resolve(&self.ask(rules, &asked, at), plan).map_err(CheckError::Resolve)?;
        let group = self.sharing.group_of(call.entries);
        *known = known.or(plan.domain);
        *skipped = skipped.saturating_add(plan.skipped);
        for planned in &plan.charges {
            if matches!(rules.limit(planned.limit).limit(false), Limit::Concurrency(_)) {
                continue;
            }
            let is_enforced = rules.limit(planned.limit).is_enforced();
            charges.push(Charged::new(Under::Rule(*planned), is_enforced, call.hits, group, at));
        }
        Ok(Part::of_rules(rules, plan, call.hits))
    }

    /// A limit that a call brings along. A domain without rules has none to put another in the place
    /// of, so there it counts as little as anything else.
    fn find_given(
        &self,
        domain: &str,
        call: &DescriptorCall<'_>,
        limit: PerUnit,
        decision: &mut DescriptorsDecision,
    ) -> Part {
        let Some(known) = decision.rules.domain_id(domain) else { return Part::default() };
        decision.domain = Some(known);
        // Every number and unit that can be said makes a window.
        if let Ok(Some(window)) = limit.window() {
            let (key, cost) = (self.given_key(domain, call, limit), call.hits.cost());
            let index = decision.given.len();
            decision.given.push(Given { per_unit: limit, window });
            let under = Under::Given { index, key, cost };
            let group = self.sharing.group_of(call.entries);
            decision.charges.push(Charged::new(under, true, call.hits, group, decision.at));
        }
        Part::of_given(limit, call.hits)
    }

    /// The number is not part of the key, so that a proxy that changes it finds what was spent.
    fn given_key(&self, domain: &str, call: &DescriptorCall<'_>, limit: PerUnit) -> Key {
        let period = limit.unit.period().as_micros().to_le_bytes();
        let salt = self.hasher.salt([
            ("given", &b"descriptor"[..]),
            ("domain", domain.as_bytes()),
            ("period", &period[..]),
        ]);
        let entries = call.entries.iter().map(|entry| (entry.name, entry.value));
        self.hasher.attributes(entries).key(salt)
    }

    /// Carries over what was spent under limits that those of the call have taken the place of.
    fn carry_descriptors(&self, decision: &DescriptorsDecision) {
        for charged in &decision.charges {
            if let Under::Rule(planned) = &charged.under {
                let charges = std::slice::from_ref(planned);
                self.carry(&decision.rules, charges, decision.at);
            }
        }
    }

    /// The terms of charges; none where memory decides and does not ask.
    fn terms_under(
        &self,
        decision: &DescriptorsDecision,
        charges: impl Iterator<Item = (Under, Option<u8>)>,
    ) -> Few<Terms> {
        if self.store.memory().is_some() {
            return Few::new();
        }
        let terms = |(under, group)| match under {
            Under::Rule(planned) => self.sharing.terms_of(&decision.rules, &planned, group),
            Under::Given { index, .. } => {
                self.sharing.terms_of_given(&decision.given[index].window, group)
            }
        };
        charges.map(terms).collect()
    }

    /// Gives back to the limits in force and to those in shadow alike. When it was taken is not told,
    /// so it counts as taken now: no more comes back than is missing.
    async fn give_back_hits(
        &self,
        deadline: &S::Deadline,
        decision: &mut DescriptorsDecision,
    ) -> Result<(), CheckError> {
        let is_given_back = |charged: &&Charged| charged.way == Way::GivenBack;
        let backs = || decision.charges.iter().filter(is_given_back);
        if backs().next().is_none() {
            return Ok(());
        }
        let now = decision.at;
        let does = Does::Refund { taken_at: self.store.told_time(now) };
        let mut charges: Few<Charge<'_>> =
            backs().map(|charged| decision.charge(charged.under, does)).collect();
        let terms =
            self.terms_under(decision, backs().map(|charged| (charged.under, charged.group)));
        self.place_times(&mut charges, &terms);
        let mut answers: Few<Settled> = Few::new();
        let mut each = |_: usize, settled: Settled| answers.push(settled);
        let decided = self.store.decide_each(deadline, now, &charges, &terms, &mut each).await;
        drop(charges);
        let backs = decision.charges.iter_mut().filter(|charged| charged.way == Way::GivenBack);
        for (charged, settled) in backs.zip(answers) {
            charged.settle(&settled);
        }
        decided.map_err(CheckError::Store)
    }

    /// Each rule in shadow for itself, as [`check`](Self::check) does it, and each descriptor after
    /// the one before it.
    async fn decide_in_shadow(
        &self,
        deadline: &S::Deadline,
        decision: &mut DescriptorsDecision,
    ) -> Result<(), CheckError> {
        let does = if decision.is_allowed { Does::Take } else { Does::Peek };
        let mut first = 0;
        while first < decision.charges.len() {
            let Some(group) = decision.shadow_group(first) else {
                first += 1;
                continue;
            };
            let members = || decision.charges[group.clone()].iter();
            let charges: Few<Charge<'_>> =
                members().map(|charged| decision.charge(charged.under, does)).collect();
            let under = members().map(|charged| (charged.under, charged.group));
            let mut terms = self.terms_under(decision, under);
            terms.iter_mut().for_each(never_deny);
            let (mut answered, count) = (Answered::default(), charges.len());
            let request = Request { now: decision.at, charges: &charges };
            let decided = self.store.decide(deadline, &request, &terms, &mut answered).await;
            decided.map_err(CheckError::Store)?;
            drop(charges);
            let all_allow = answered.all_allow(count);
            for (index, charged) in decision.charges[group.clone()].iter_mut().enumerate() {
                charged.decision = *answered.decision(index);
                charged.by = answered.by(index).unwrap_or(charged.by);
                charged.is_taken = does.takes(all_allow);
            }
            first = group.end;
        }
        Ok(())
    }
}
