//! The limiter by rules: rules that can be exchanged, a table, a clock.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Cache, Guard};
use smallvec::SmallVec;
use tidegate_core::{self as core, LeaseId, Operation, Span, Timestamp, Verdict};
use tidegate_rules::compile::{CompiledRules, RuleId};
use tidegate_rules::explain::Explanation;
use tidegate_rules::identity::{KeyHasher, SECRET_BYTES};
use tidegate_rules::resolve::{Ask, Plan, Planned, ResolveError};
use tidegate_rules::rule::{Pressure, RuleSet};
use tidegate_rules::{Attribute, ParseOptions, Source};
use tidegate_store::snapshot::{Label, SnapshotError};
use tidegate_store::{Charge, Request, Stats, StoreError, Table};

use super::builder::{RuleLimiterBuilder, RulesError, check_limits};
use super::carry::{Carrier, key_under};
use super::decision::{Outcome, RuleDecision};
use crate::{Clock, PressureSignal, SystemClock};

/// Decides for each call whether it may pass, by [rules](RuleSet).
///
/// All methods take `&self` and may be called from any number of threads. A call reads the clock
/// once, and takes no memory from the heap where one limit applies. Rules are
/// [exchanged](Self::reload) in one step, which no call waits for.
///
/// ```
/// use tidegate::{Call, RuleLimiter};
///
/// let limiter = RuleLimiter::new("
/// domain: api
/// rules:
///   - name: login
///     match: { method: POST, path: /login }
///     per: [ip]
///     limit: 2/minute
/// ")?;
/// let attributes = [("method", "POST"), ("path", "/login"), ("ip", "192.0.2.7")].map(Into::into);
/// let call = Call::new("api", &attributes);
/// assert!(limiter.check(&call)?.is_allowed());
/// assert!(limiter.check(&call)?.is_allowed());
/// let denied = limiter.check(&call)?;
/// assert!(!denied.is_allowed());
/// assert_eq!(denied.rule().map(|rule| rule.name.as_str()), Some("login"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RuleLimiter<C = SystemClock> {
    pub(super) current: ArcSwap<CompiledRules>,
    pub(super) table: Table,
    pub(super) hasher: KeyHasher,
    pub(super) label: Label,
    pub(super) clock: C,
    pub(super) pressure: PressureSignal,
    pub(super) carrier: Carrier,
    pub(super) reloading: Mutex<()>,
}

/// A request to be decided.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// Whose rules.
    pub domain: &'a str,
    /// What describes it.
    pub attributes: &'a [Attribute<'a>],
    /// How much it takes, times what a rule says.
    pub cost: u64,
}

impl<'a> Call<'a> {
    /// A call that takes 1.
    pub fn new(domain: &'a str, attributes: &'a [Attribute<'a>]) -> Self {
        Self { domain, attributes, cost: 1 }
    }

    /// The same call with another cost.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }
}

impl RuleLimiter {
    /// A limiter with the rules of one text and all defaults. Warnings are left out; see
    /// [`RuleSet::parse`] for them.
    pub fn new(rules: &str) -> Result<Self, RulesError> {
        let checked = RuleSet::parse(&[Source::new("rules", rules)], &ParseOptions::default())?;
        Self::builder(checked.rules).build()
    }

    /// A limiter to be put together.
    pub fn builder(rules: RuleSet) -> RuleLimiterBuilder {
        RuleLimiterBuilder::new(rules)
    }
}

impl<C: Clock> RuleLimiter<C> {
    /// Takes what the call costs, if it is there under every limit of every rule that matches.
    #[inline]
    pub fn check(&self, call: &Call<'_>) -> Result<RuleDecision, CheckError> {
        self.decide(call, Does::Take)
    }

    /// Something to check many calls with, one after the other: faster than [`check`](Self::check),
    /// because what a decision needs room for is kept from one to the next, and the rules are only
    /// looked at again when they have changed. Each thread or connection has its own.
    ///
    /// ```
    /// # use tidegate::{Call, RuleLimiter};
    /// # let limiter = RuleLimiter::new("{ domain: api, rules: [ { name: all, limit: 2/minute } ] }")?;
    /// let mut checker = limiter.checker();
    /// for _ in 0..2 {
    ///     assert!(checker.check(&Call::new("api", &[]))?.is_allowed());
    /// }
    /// assert!(!checker.check(&Call::new("api", &[]))?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn checker(&self) -> Checker<'_, C> {
        Checker {
            limiter: self,
            current: Cache::new(&self.current),
            decision: RuleDecision::pending(self.current.load(), self.clock.now()),
        }
    }

    /// Answers as [`check`](Self::check) would, and takes nothing.
    pub fn peek(&self, call: &Call<'_>) -> Result<RuleDecision, CheckError> {
        self.decide(call, Does::Peek)
    }

    /// Takes what the call costs whether it is there or not.
    pub fn debit(&self, call: &Call<'_>) -> Result<RuleDecision, CheckError> {
        self.decide(call, Does::Debit)
    }

    /// Gives back what an equal call took at `taken_at`, which its decision tells. What has come
    /// back by itself since is not given a second time.
    pub fn refund_at(
        &self,
        call: &Call<'_>,
        taken_at: Timestamp,
    ) -> Result<RuleDecision, CheckError> {
        self.decide(call, Does::Refund { taken_at })
    }

    /// Ends a call that was allowed: gives its leases back, and, where rules count by the response,
    /// what a response of this status does not count for.
    pub fn complete(&self, mut decision: RuleDecision, status: u16) {
        self.complete_in(&mut decision, status);
    }

    /// Gives back everything that a decision took, leases too, as if the call had not been.
    pub fn refund(&self, mut decision: RuleDecision) {
        self.refund_in(&mut decision);
    }

    /// The same for who still has to tell what the decision says. It took nothing from then on, so
    /// nothing is given back a second time.
    pub fn refund_in(&self, decision: &mut RuleDecision) {
        self.give_back(decision, |_| true);
    }

    /// Gives back one lease of a concurrency limit that an equal call was given. Where a call is under
    /// several such limits, use [`release_held`](Self::release_held).
    pub fn release(&self, call: &Call<'_>, lease: LeaseId) -> Result<RuleDecision, CheckError> {
        self.decide(call, Does::Release { lease })
    }

    /// Forgets what was taken by calls like this one, under every limit that applies to it.
    pub fn reset(&self, call: &Call<'_>) -> Result<(), CheckError> {
        let now = self.clock.now();
        let rules = self.current.load();
        let mut plan = Plan::default();
        rules.resolve(&self.ask(&rules, call, now), &mut plan).map_err(CheckError::Resolve)?;
        for planned in &plan.charges {
            self.carrier.carry(&self.table, &rules, planned, now);
            self.table.forget(planned.key);
        }
        Ok(())
    }

    /// Puts other rules in force, in one step. What has been spent under limits that stay is still
    /// spent, also where their numbers change. On an error the old rules stay.
    pub fn reload(&self, rules: RuleSet) -> Result<(), RulesError> {
        // One after the other, or one of them would not know what the other replaced.
        let _reloading = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.current.load_full();
        let new = CompiledRules::following(rules, &self.hasher, &old, self.clock.now());
        check_limits(&new, self.table.config())?;
        self.current.store(Arc::new(new));
        Ok(())
    }

    /// The rules in force.
    pub fn rules(&self) -> Guard<Arc<CompiledRules>> {
        self.current.load()
    }

    /// How busy the protected service is, for elastic rules.
    pub fn pressure(&self) -> &PressureSignal {
        &self.pressure
    }

    /// Which rules match a call and why the others do not, and what follows, without spending
    /// anything.
    pub fn explain(&self, call: &Call<'_>) -> Explanation {
        let rules = self.current.load();
        rules.explain(&self.ask(&rules, call, self.clock.now()))
    }

    /// How many keys are held, how many had to go, and how many bytes that takes. It reads the whole
    /// table, so it is for metrics, not for every request.
    pub fn stats(&self) -> Stats {
        self.table.stats(self.clock.now())
    }

    /// A secret that follows from the one that keys are hashed with, another for each purpose. Who hashes
    /// values with it before they become attributes finds the same keys again wherever this limiter's state
    /// is read back.
    pub fn derived_secret(&self, purpose: &str) -> [u8; SECRET_BYTES] {
        self.hasher.salt([("derived secret", purpose.as_bytes())]).as_u128().to_le_bytes()
    }

    /// The time as this limiter sees it.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Writes the state of all keys to a file, which is replaced in one step.
    /// [`RuleLimiterBuilder::build_from`] reads it back.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        self.table.save(path.as_ref(), &self.label, self.clock.now())
    }

    #[inline]
    pub(super) fn ask<'a>(
        &self,
        rules: &CompiledRules,
        call: &Call<'a>,
        now: Timestamp,
    ) -> Ask<'a> {
        let Call { domain, attributes, cost } = *call;
        let pressure = if rules.is_elastic() { self.pressure.at(now) } else { Pressure::FULL };
        Ask { domain, attributes, cost, now, pressure }
    }

    #[inline]
    fn decide(&self, call: &Call<'_>, does: Does) -> Result<RuleDecision, CheckError> {
        let mut decision = RuleDecision::pending(self.current.load(), self.clock.now());
        self.decide_into(&mut decision, call, does)?;
        Ok(decision)
    }

    #[inline]
    fn decide_into(
        &self,
        decision: &mut RuleDecision,
        call: &Call<'_>,
        does: Does,
    ) -> Result<(), CheckError> {
        let RuleDecision { rules, at, plan, decisions, .. } = decision;
        let (rules, now): (&CompiledRules, _) = (rules, *at);
        rules.resolve(&self.ask(rules, call, now), plan).map_err(CheckError::Resolve)?;
        if let ([planned], None, None) = (&plan.charges[..], plan.denied_by, plan.shadow_denied_by)
        {
            self.carrier.carry(&self.table, rules, planned, now);
            let decided = self.table.decide_one(now, &charge(rules, planned, does));
            decision.outcome = Outcome::of_one(rules.limit(planned.limit), &decided);
            decision.taken = u64::from(does.takes(decided.is_allowed()));
            decisions.push(decided);
        } else {
            decision.taken = self.decide_all(rules, now, plan, does, decisions)?;
            decision.outcome = Outcome::of(decision);
        }
        if !decision.is_allowed() && does == Does::Take {
            self.charge_refused(&decision.rules, decision.at, decision.answers());
        }
        Ok(())
    }

    /// The limits in force together, and each rule in shadow for itself: what is only tried out
    /// changes no answer, and counts what it would count if it were in force alone. Says which
    /// charges took something.
    fn decide_all(
        &self,
        rules: &CompiledRules,
        now: Timestamp,
        plan: &Plan,
        does: Does,
        decisions: &mut Decisions,
    ) -> Result<u64, CheckError> {
        for planned in &plan.charges {
            self.carrier.carry(&self.table, rules, planned, now);
        }
        decisions.resize(plan.charges.len(), PENDING);
        let mut decide = |is_in: &dyn Fn(&Planned) -> bool, does| {
            self.decide_group(rules, now, plan, (does, is_in), decisions)
        };
        let refused = plan.denied_by.is_some();
        let is_enforced = |planned: &Planned| rules.limit(planned.limit).is_enforced();
        let does_enforced = does.unless(refused);
        let (all_allow, members) = decide(&is_enforced, does_enforced)?;
        let mut taken = if does_enforced.takes(all_allow) { members } else { 0 };
        // Where the call does not pass, it would not be charged to the rules in shadow either.
        let does = does.unless(refused || !all_allow);
        let group = |planned: &Planned| {
            let limit = rules.limit(planned.limit);
            (!limit.is_enforced()).then(|| (limit.rule(), limit.role()))
        };
        let mut last = None;
        for planned in &plan.charges {
            // The charges of a rule stand together, so each group comes up once.
            let this = group(planned);
            if this.is_some() && this != last {
                let (all_allow, members) = decide(&|other| group(other) == this, does)?;
                taken |= if does.takes(all_allow) { members } else { 0 };
            }
            last = this;
        }
        Ok(taken)
    }

    /// Decides some of the charges all or nothing, and says whether all of them allow, and which ones
    /// they are.
    fn decide_group(
        &self,
        rules: &CompiledRules,
        now: Timestamp,
        plan: &Plan,
        (does, is_in): (Does, &dyn Fn(&Planned) -> bool),
        decisions: &mut Decisions,
    ) -> Result<(bool, u64), CheckError> {
        let members = || plan.charges.iter().enumerate().filter(|(_, planned)| is_in(planned));
        let charges: SmallVec<[Charge<'_>; 4]> =
            members().map(|(_, planned)| charge(rules, planned, does)).collect();
        let mut decided = Vec::with_capacity(charges.len());
        self.table
            .decide(&Request { now, charges: &charges }, &mut decided)
            .map_err(CheckError::Store)?;
        let all_allow = decided.iter().all(core::Decision::is_allowed);
        let mut bits = 0;
        for ((index, _), decision) in members().zip(decided) {
            decisions[index] = decision;
            bits |= 1 << index;
        }
        Ok((all_allow, bits))
    }

    /// Charges a refused call to the limits that refuse it, where their rule says so. It stops once
    /// the wait is longer than a period, so that whoever stays away for two of them is let in again
    /// however often they asked before.
    pub(super) fn charge_refused<'d>(
        &self,
        rules: &CompiledRules,
        at: Timestamp,
        answers: impl Iterator<Item = (&'d Planned, &'d core::Decision)>,
    ) {
        for (planned, answer) in answers {
            let limit = rules.limit(planned.limit);
            let is_charged = limit.is_enforced() && rules.rule(limit.rule()).charge_refused;
            let period = limit.written().limit.period();
            if is_charged && answer.retry_after().is_some_and(|wait| wait <= period) {
                let _ = self.table.decide_one(at, &charge(rules, planned, Does::Debit));
            }
        }
    }

    fn complete_in(&self, decision: &mut RuleDecision, status: u16) {
        let rules = Arc::clone(&decision.rules);
        self.give_back(decision, |rule| !rules.rule(rule).count.counts(status));
    }

    /// Gives back what a decision took, and nothing a second time.
    fn give_back(&self, decision: &mut RuleDecision, refunded: impl Fn(RuleId) -> bool) {
        let taken = std::mem::take(&mut decision.taken);
        let now = self.clock.now();
        for (index, (planned, answer)) in decision.answers().enumerate() {
            let limit = decision.rules.limit(planned.limit);
            let operation = match answer.lease {
                _ if taken & (1 << index) == 0 => continue,
                Some(lease) => Operation::Release { lease },
                None if refunded(limit.rule()) => {
                    Operation::Refund { cost: planned.cost, taken_at: decision.at }
                }
                None => continue,
            };
            let _ = self.give_back_to(&decision.rules, planned, operation, now);
        }
    }

    /// Gives back to the limit that it was taken from, or to the one that has taken its place since.
    pub(super) fn give_back_to(
        &self,
        rules: &CompiledRules,
        planned: &Planned,
        operation: Operation,
        now: Timestamp,
    ) -> core::Decision {
        let old = rules.limit(planned.limit);
        let current = self.current.load();
        let mut planned = *planned;
        let mut limit = old;
        if !std::ptr::eq(rules, &raw const **current)
            && let Some(heir) = current.heir(old)
        {
            limit = current.limit(heir);
            planned.limit = heir;
            planned.key = key_under(planned.key, old.salt(), limit.salt());
            self.carrier.carry(&self.table, &current, &planned, now);
        }
        // Stretched or not, as it was taken.
        let limit = limit.limit(planned.relaxed);
        self.table.decide_one(now, &Charge { limit, key: planned.key, operation })
    }
}

/// Checks one call after the other. See [`RuleLimiter::checker`].
#[derive(Debug)]
pub struct Checker<'l, C = SystemClock> {
    limiter: &'l RuleLimiter<C>,
    current: Cache<&'l ArcSwap<CompiledRules>, Arc<CompiledRules>>,
    decision: RuleDecision,
}

impl<C: Clock> Checker<'_, C> {
    /// As [`RuleLimiter::check`].
    #[inline]
    pub fn check(&mut self, call: &Call<'_>) -> Result<&RuleDecision, CheckError> {
        let current = self.current.load();
        if !Arc::ptr_eq(current, &self.decision.rules) {
            self.decision.rules = Guard::from_inner(Arc::clone(current));
        }
        self.decision.plan.clear();
        self.decision.decisions.clear();
        self.decision.at = self.limiter.clock.now();
        self.decision.taken = 0;
        self.limiter.decide_into(&mut self.decision, call, Does::Take)?;
        Ok(&self.decision)
    }

    /// Ends the call that was checked last, as [`RuleLimiter::complete`].
    pub fn complete(&mut self, status: u16) {
        self.limiter.complete_in(&mut self.decision, status);
    }

    /// Gives back what the call that was checked last took, as [`RuleLimiter::refund`].
    pub fn refund(&mut self) {
        self.limiter.give_back(&mut self.decision, |_| true);
    }
}

/// What stands in for a decision that is still to be made.
pub(super) const PENDING: core::Decision = core::Decision {
    verdict: Verdict::Allow { delay: Span::ZERO },
    limit: 0,
    remaining: 0,
    reset_after: Span::ZERO,
    lease: None,
};

/// One for each charge of a plan.
type Decisions = SmallVec<[core::Decision; 2]>;

/// What a call does to the limits that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Take,
    Peek,
    Debit,
    Refund { taken_at: Timestamp },
    Release { lease: LeaseId },
}

impl Does {
    pub(super) fn operation(self, cost: u64) -> Operation {
        match self {
            Self::Take => Operation::Take { cost },
            Self::Peek => Operation::Peek { cost },
            Self::Debit => Operation::Debit { cost },
            Self::Refund { taken_at } => Operation::Refund { cost, taken_at },
            Self::Release { lease } => Operation::Release { lease },
        }
    }

    /// Whether something was taken, where all limits that were decided together allow or not.
    fn takes(self, all_allow: bool) -> bool {
        match self {
            Self::Take => all_allow,
            Self::Debit => true,
            Self::Peek | Self::Refund { .. } | Self::Release { .. } => false,
        }
    }

    /// The same, but a take only looks where the call is denied already.
    fn unless(self, is_denied: bool) -> Self {
        if is_denied && self == Self::Take { Self::Peek } else { self }
    }
}

#[inline]
pub(super) fn charge<'r>(rules: &'r CompiledRules, planned: &Planned, does: Does) -> Charge<'r> {
    // What is given back may have been taken while the limit was stretched: it is then the smaller part
    // of it, and the other way round it is better too little than too much.
    let relaxed = planned.relaxed || matches!(does, Does::Refund { .. });
    let limit = rules.limit(planned.limit).limit(relaxed);
    Charge { limit, key: planned.key, operation: does.operation(planned.cost) }
}

/// Why a call could not be decided. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckError {
    /// The request itself is the trouble.
    Resolve(ResolveError),
    /// The store could not decide.
    Store(StoreError),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CheckError {}
