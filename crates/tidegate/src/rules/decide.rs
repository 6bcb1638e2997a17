//! How a call is decided: which limits apply, what is carried over first, what is decided together, and what is
//! given back. Here it is decided in memory; what a store is asked for is next door. Giving back is written once, as
//! something that may wait; in memory it never does.

use std::future::Future;

use tidegate_core::{self as core, Operation, Terms, Timestamp};
use tidegate_rules::compile::{CompiledLimit, CompiledRules, Role, RuleId};
use tidegate_rules::resolve::{Only, Plan, Planned};
use tidegate_store::{Charge, Request, Settled, Source, Table};

use super::backing::{Backing, DecidedBy, Few, at_once};
use super::carry::key_under;
use super::decision::{Lists, One, Outcome, RuleDecision};
use super::limiter::{Call, CheckError, Does, PENDING, RuleLimiter, charge, charge_under};
use crate::Clock;

/// Limits that are decided together: those in force, and each rule in shadow for itself, because what
/// is only tried out changes no answer, and counts what it would count if it were in force alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Together {
    InForce,
    Tried(RuleId, Role),
}

impl Together {
    pub(super) fn of(limit: &CompiledLimit) -> Self {
        if limit.is_enforced() { Self::InForce } else { Self::Tried(limit.rule(), limit.role()) }
    }

    #[inline]
    pub(super) fn has(self, limit: &CompiledLimit) -> bool {
        match self {
            Self::InForce => limit.is_enforced(),
            Self::Tried(rule, role) => {
                !limit.is_enforced() && limit.rule() == rule && limit.role() == role
            }
        }
    }
}

/// Decides all charges in memory, all or nothing, where all of them are in force: each decision is put where it stays.
fn decide_in_force(
    table: &Table,
    decision: &mut RuleDecision,
    does: Does,
) -> Result<(), CheckError> {
    let RuleDecision { rules, at, lists, taken, .. } = decision;
    let Lists { plan, decisions, .. } = lists.get_or_insert_default();
    let charges: Few<Charge<'_>> =
        plan.charges.iter().map(|planned| charge(rules, planned, does)).collect();
    let mut all_allow = true;
    let decided = table.decide_each(&Request { now: *at, charges: &charges }, |decided| {
        all_allow &= decided.is_allowed();
        decisions.push(decided);
    });
    decided.map_err(CheckError::Store)?;
    if does.takes(all_allow) {
        *taken = (1 << plan.charges.len()) - 1;
    }
    Ok(())
}

/// Decides some of the charges in memory, all or nothing, and says whether all of them allow.
fn decide_in(
    table: &Table,
    decision: &mut RuleDecision,
    does: Does,
    together: Together,
) -> Result<bool, CheckError> {
    let RuleDecision { rules, at, lists, taken, .. } = decision;
    let Lists { plan, decisions, .. } = lists.get_or_insert_default();
    let rules: &CompiledRules = rules;
    let is_in = |(_, planned): &(usize, &Planned)| together.has(rules.limit(planned.limit));
    let members = || plan.charges.iter().enumerate().filter(is_in);
    let charges: Few<Charge<'_>> =
        members().map(|(_, planned)| charge(rules, planned, does)).collect();
    let request = Request { now: *at, charges: &charges };
    let (mut places, mut all_allow) = (members(), true);
    let decided = table.decide_each(&request, |decided| {
        all_allow &= decided.is_allowed();
        if let Some((index, _)) = places.next() {
            decisions[index] = decided;
        }
    });
    decided.map_err(CheckError::Store)?;
    let took = u64::from(does.takes(all_allow));
    members().for_each(|(index, _)| *taken |= took << index);
    Ok(all_allow)
}

/// Something to be given back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Back {
    pub(super) planned: Planned,
    pub(super) operation: Operation,
    /// The group of servers that the call's attributes say.
    pub(super) group: Option<u8>,
    /// Who took it.
    pub(super) source: Source,
}

impl<C: Clock, S: Backing> RuleLimiter<C, S> {
    /// Works out which limits apply to a call, and decides it where nothing has to be put together or
    /// waited for: under one limit in memory, or under none. Says whether it is decided.
    #[inline]
    pub(super) fn start(
        &self,
        decision: &mut RuleDecision,
        call: &Call<'_>,
        does: Does,
    ) -> Result<bool, CheckError> {
        let RuleDecision { rules, at, one, lists, outcome, taken } = decision;
        let (rules, now): (&CompiledRules, _) = (rules, *at);
        let ask = self.ask(rules, call, now);
        let Some(table) = self.store.memory() else {
            let lists = lists.get_or_insert_default();
            rules.resolve(&ask, &mut lists.plan).map_err(CheckError::Resolve)?;
            lists.group = self.sharing.group_of(call.attributes);
            return Ok(false);
        };
        let only = rules.resolve_only(&ask, move || &mut lists.get_or_insert_default().plan);
        let Some(only) = only.map_err(CheckError::Resolve)? else {
            return Ok(self.start_planned(table, decision, does));
        };
        let single = (rules, &only, only.planned(call.cost));
        let (decided, follows, took) = self.decide_only(table, single, now, does);
        (*one, *outcome, *taken) = (Some(decided), follows, took);
        if !outcome.is_allowed() && does == Does::Take {
            self.charge_refused_in(decision);
        }
        Ok(true)
    }

    /// Decides a call under the only limit that applies, in memory. Says what was decided and what follows, and which
    /// charges took something.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what is decided would pass through memory")]
    pub(super) fn decide_only(
        &self,
        table: &Table,
        (rules, only, planned): (&CompiledRules, &Only, Planned),
        now: Timestamp,
        does: Does,
    ) -> (One, Outcome, u64) {
        // The line is on its way meanwhile.
        let fetched = table.prefetch(planned.key);
        let limit = rules.limit(planned.limit);
        self.carrier.carry(table, limit, &planned, now);
        let Charge { limit: in_force, operation, .. } = charge_under(limit, &planned, does);
        let decided = table.decide_fetched_shortly(now, in_force, fetched, operation);
        let outcome = Outcome::of_one(limit, decided.verdict);
        (One::new(only, planned, decided), outcome, does.takes(decided.is_allowed()).into())
    }

    /// Decides a call whose plan is made, where there is one charge in it or none.
    #[inline(never)]
    pub(super) fn start_planned(
        &self,
        table: &Table,
        decision: &mut RuleDecision,
        does: Does,
    ) -> bool {
        let RuleDecision { rules, at, lists, outcome, taken, .. } = decision;
        let Lists { plan, decisions, .. } = lists.get_or_insert_default();
        let planned = match (&plan.charges[..], plan.denied_by, plan.shadow_denied_by) {
            ([planned], None, None) => planned,
            ([], None, None) => {
                *outcome = Outcome::ALLOWED;
                return true;
            }
            _ => return false,
        };
        let limit = rules.limit(planned.limit);
        self.carrier.carry(table, limit, planned, *at);
        let decided = table.decide_one(*at, &charge_under(limit, planned, does));
        decisions.push(decided);
        *outcome = Outcome::of_one(limit, decided.verdict);
        *taken = u64::from(does.takes(decided.is_allowed()));
        if !outcome.is_allowed() && does == Does::Take {
            self.charge_refused_in(decision);
        }
        true
    }

    /// Charges a call that was refused under its only limit, in memory.
    #[inline(never)]
    pub(super) fn charge_refused_in(&self, decision: &RuleDecision) {
        let rule_of = |planned: &Planned| decision.rules.limit(planned.limit).rule();
        // To find that no rule says so takes no future.
        let says_so = |planned| decision.rules.rule(rule_of(planned)).charge_refused;
        if !decision.charges().iter().any(says_so) {
            return;
        }
        let answers = decision.answers_by_group();
        let deadline = S::Deadline::default();
        at_once(self.charge_refused(&deadline, &decision.rules, decision.at, answers));
    }

    /// Decides a call in memory that [`start`](Self::start) did not.
    pub(super) fn finish_in(
        &self,
        table: &Table,
        decision: &mut RuleDecision,
        does: Does,
    ) -> Result<(), CheckError> {
        if let Err(error) = self.decide_all_in(table, decision, does) {
            at_once(self.give_back(&S::Deadline::default(), decision, |_| true));
            return Err(error);
        }
        decision.outcome = Outcome::of(decision);
        if !decision.is_allowed() && does == Does::Take {
            let (deadline, answers) = (S::Deadline::default(), decision.answers_by_group());
            at_once(self.charge_refused(&deadline, &decision.rules, decision.at, answers));
        }
        Ok(())
    }

    /// In memory: the limits in force together, and then each rule in shadow for itself.
    fn decide_all_in(
        &self,
        table: &Table,
        decision: &mut RuleDecision,
        does: Does,
    ) -> Result<(), CheckError> {
        let mut is_all_in_force = true;
        for planned in decision.charges() {
            let limit = decision.rules.limit(planned.limit);
            is_all_in_force &= limit.is_enforced();
            self.carrier.carry(table, limit, planned, decision.at);
        }
        let refused = decision.denied_by().is_some();
        if is_all_in_force {
            return decide_in_force(table, decision, does.unless(refused));
        }
        let Lists { plan, decisions, .. } = decision.lists.get_or_insert_default();
        decisions.resize(plan.charges.len(), PENDING);
        let all_allow = decide_in(table, decision, does.unless(refused), Together::InForce)?;
        // Where the call does not pass, it would not be charged to the rules in shadow either.
        let does = does.unless(refused || !all_allow);
        let mut last = Together::InForce;
        for index in 0..decision.charges().len() {
            // The charges of a rule stand together, so each group comes up once.
            let limit = decision.rules.limit(decision.charges()[index].limit);
            if !limit.is_enforced() && !last.has(limit) {
                last = Together::of(limit);
                decide_in(table, decision, does, last)?;
            }
        }
        Ok(())
    }

    /// The terms of charges; none where memory decides and does not ask.
    #[inline]
    pub(super) fn terms<'p>(
        &self,
        rules: &CompiledRules,
        charges: impl Iterator<Item = (&'p Planned, Option<u8>)>,
    ) -> Few<Terms> {
        if self.store.memory().is_some() {
            return Few::new();
        }
        charges.map(|(planned, group)| self.sharing.terms_of(rules, planned, group)).collect()
    }

    /// Puts the instants that callers name on the clock that decides.
    pub(super) fn place_times(&self, charges: &mut [Charge<'_>], terms: &[Terms]) {
        for (charge, terms) in charges.iter_mut().zip(terms) {
            if let Operation::Refund { taken_at, .. } = &mut charge.operation {
                *taken_at = self.store.place_time(charge.key, *terms, *taken_at);
            }
        }
    }

    /// Carries over what was spent under limits that these have taken the place of, where memory keeps
    /// them.
    pub(super) fn carry(&self, rules: &CompiledRules, charges: &[Planned], now: Timestamp) {
        let Some(table) = self.store.memory() else { return };
        for planned in charges {
            self.carrier.carry(table, rules.limit(planned.limit), planned, now);
        }
    }

    /// Charges a refused call to the limits that refuse it, where their rule says so. It stops once
    /// the wait is longer than a period, so that whoever stays away for two of them is let in again
    /// however often they asked before.
    pub(super) fn charge_refused<'d>(
        &self,
        deadline: &S::Deadline,
        rules: &'d CompiledRules,
        at: Timestamp,
        answers: impl Iterator<Item = (&'d Planned, &'d core::Decision, Option<u8>)>,
    ) -> impl Future<Output = ()> + Send {
        let is_charged = |(planned, answer, _): &(&Planned, &core::Decision, _)| {
            let limit = rules.limit(planned.limit);
            limit.is_enforced()
                && rules.rule(limit.rule()).charge_refused
                && answer.retry_after().is_some_and(|wait| wait <= limit.written().limit.period())
        };
        let charged: Few<_> =
            answers.filter(is_charged).map(|(planned, _, group)| (planned, group)).collect();
        async move {
            if charged.is_empty() {
                return;
            }
            let mut terms = self.terms(rules, charged.iter().copied());
            terms.iter_mut().for_each(never_deny);
            let charges: Few<Charge<'_>> =
                charged.iter().map(|(planned, _)| charge(rules, planned, Does::Debit)).collect();
            self.store.carry_out(deadline, at, &charges, &terms, &mut |_, _| {}).await;
        }
    }

    pub(super) async fn complete_in(&self, decision: &mut RuleDecision, status: u16) {
        let rules = decision.rules.clone();
        let refunded = |rule| !rules.rule(rule).count.counts(status);
        self.give_back(&S::Deadline::default(), decision, refunded).await;
    }

    /// Gives back what a decision took, and nothing a second time.
    pub(super) async fn give_back(
        &self,
        deadline: &S::Deadline,
        decision: &mut RuleDecision,
        refunded: impl Fn(RuleId) -> bool + Send,
    ) {
        let taken = std::mem::take(&mut decision.taken);
        let mut backs: Few<Back> = Few::new();
        for (index, (planned, answer)) in decision.answers().enumerate() {
            let rule = decision.rules.limit(planned.limit).rule();
            let DecidedBy { at: taken_at, source } = decision.by(index);
            let operation = match answer.lease {
                _ if taken & (1 << index) == 0 => continue,
                Some(lease) => Operation::Release { lease },
                None if refunded(rule) => Operation::Refund { cost: planned.cost, taken_at },
                None => continue,
            };
            if let Some(table) = self.store.memory() {
                let _ = self.give_back_in(table, &decision.rules, planned, operation);
                continue;
            }
            backs.push(Back { planned: *planned, operation, group: decision.group(), source });
        }
        if !backs.is_empty() {
            self.give_back_to(deadline, &decision.rules, &backs, &mut |_, _| {}).await;
        }
    }

    /// Gives back to the limit that it was taken from, or to the one that has taken its place since, in
    /// memory.
    pub(super) fn give_back_in(
        &self,
        table: &Table,
        rules: &CompiledRules,
        planned: &Planned,
        operation: Operation,
    ) -> core::Decision {
        let now = self.clock.now();
        let current = self.current.load();
        let is_current = std::ptr::eq(rules, &raw const **current);
        let heir = if is_current { None } else { self.heir(rules, &current, planned, None) };
        let (rules, planned) = heir.as_ref().map_or((rules, planned), |heir| (&**current, heir));
        if heir.is_some() {
            self.carrier.carry(table, rules.limit(planned.limit), planned, now);
        }
        // Stretched or not, as it was taken.
        let limit = rules.limit(planned.limit).limit(planned.relaxed);
        table.decide_one(now, &Charge { limit, key: planned.key, operation })
    }

    /// Gives back to the limits that it was taken from, or to those that have taken their place since,
    /// and hands each answer to `each` with its number. What a store that cannot answer is to be given is kept
    /// for when it can, as far as there is room.
    pub(super) async fn give_back_to(
        &self,
        deadline: &S::Deadline,
        rules: &CompiledRules,
        backs: &[Back],
        each: &mut (dyn FnMut(usize, Settled) + Send),
    ) {
        let now = self.clock.now();
        let current = self.current.load();
        let is_current = std::ptr::eq(rules, &raw const **current);
        let mut charges: Few<Charge<'_>> = Few::new();
        let mut terms: Few<Terms> = Few::new();
        for Back { planned, operation, group, source } in backs {
            if *source == Source::Fallback {
                // It was never taken from the store.
                let limit = rules.limit(planned.limit).limit(planned.relaxed);
                let charge = Charge { limit, key: planned.key, operation: *operation };
                let terms = self.sharing.terms_of(rules, planned, *group);
                self.store.give_back_share(now, &charge, terms);
                continue;
            }
            let heir = if is_current { None } else { self.heir(rules, &current, planned, *group) };
            let (rules, planned) = match &heir {
                Some(heir) => (&**current, heir),
                None => (rules, planned),
            };
            if heir.is_some() {
                self.carry(rules, std::slice::from_ref(planned), now);
            }
            // Stretched or not, as it was taken.
            let limit = rules.limit(planned.limit).limit(planned.relaxed);
            charges.push(Charge { limit, key: planned.key, operation: *operation });
            terms.extend(self.terms(rules, std::iter::once((planned, *group))));
        }
        terms.iter_mut().for_each(never_deny);
        self.store.carry_out(deadline, now, &charges, &terms, each).await;
    }

    /// The charge under the limit that has taken the place of the one it was made under, where it is
    /// kept in the same place. A bucket that nodes share is given back what it was charged, by its own
    /// numbers: under others that would be another share.
    fn heir(
        &self,
        rules: &CompiledRules,
        current: &CompiledRules,
        planned: &Planned,
        group: Option<u8>,
    ) -> Option<Planned> {
        let old = rules.limit(planned.limit);
        let is_memory = self.store.memory().is_some();
        if !is_memory && old.limit(planned.relaxed).bucket().is_some() {
            return None;
        }
        let heir = current.heir(old)?;
        let key = key_under(planned.key, old.salt(), current.limit(heir).salt());
        let heir = Planned { limit: heir, key, ..*planned };
        let place = |rules, planned| {
            let Terms { consistency, group, .. } = self.sharing.terms_of(rules, planned, group);
            (consistency == core::Consistency::Local, group)
        };
        let is_kept = is_memory || place(rules, planned) == place(current, &heir);
        is_kept.then_some(heir)
    }

    pub(super) async fn forget(&self, call: &Call<'_>) -> Result<(), CheckError> {
        let now = self.clock.now();
        let rules = self.current.load();
        let mut plan = Plan::default();
        rules.resolve(&self.ask(&rules, call, now), &mut plan).map_err(CheckError::Resolve)?;
        let group = self.sharing.group_of(call.attributes);
        self.carry(&rules, &plan.charges, now);
        let of = |planned: &Planned| (planned.key, self.sharing.terms_of(&rules, planned, group));
        let keys: Few<_> = plan.charges.iter().map(of).collect();
        self.store.forget(&keys).await.map_err(CheckError::Store)
    }
}

/// What must not change the answer to a call must not be the reason for an error either.
pub(super) fn never_deny(terms: &mut Terms) {
    if terms.on_failure == core::OnStoreFailure::Deny {
        terms.on_failure = core::OnStoreFailure::Allow;
    }
}
