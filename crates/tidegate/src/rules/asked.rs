//! How a call is decided where a store is asked and waited for: the same as in memory, with terms, a deadline, and
//! somebody who may go meanwhile.

use tidegate_core::{Operation, Terms, Timestamp};
use tidegate_rules::compile::CompiledRules;
use tidegate_rules::resolve::Planned;
use tidegate_store::{Charge, Request, Source, StoreError};

use super::backing::{Answered, Backing, DecidedBy, Few};
use super::decide::{Together, never_deny};
use super::decision::{Lists, Outcome, RuleDecision};
use super::in_order::in_order;
use super::limiter::{CheckError, Does, PENDING, RuleLimiter, charge};
use crate::Clock;

impl<C: Clock, S: Backing> RuleLimiter<C, S> {
    /// Decides a call that [`start`](Self::start) did not.
    pub(super) async fn finish(
        &self,
        decision: &mut RuleDecision,
        does: Does,
    ) -> Result<(), CheckError> {
        if let Some(table) = self.store.memory() {
            return self.finish_in(table, decision, does);
        }
        let deadline = S::Deadline::default();
        let mut unfinished = Unfinished { limiter: self, decision, is_finished: false };
        let decided = self.decide_all(&deadline, unfinished.decision, does).await;
        let told_at = self.store.told_time(unfinished.decision.at);
        unfinished.decision.lists.get_or_insert_default().told_at = Some(told_at);
        unfinished.is_finished = true;
        drop(unfinished);
        if let Err(error) = decided {
            // Nobody is charged for a call that was not decided.
            self.give_back(&deadline, decision, |_| true).await;
            return Err(error);
        }
        decision.outcome = Outcome::of(decision);
        if !decision.is_allowed() && does == Does::Take {
            let answers = decision.answers_by_group();
            self.charge_refused(&deadline, &decision.rules, decision.at, answers).await;
        }
        Ok(())
    }

    /// The limits in force together, and then each rule in shadow for itself, which has what the others left of the time.
    async fn decide_all(
        &self,
        deadline: &S::Deadline,
        decision: &mut RuleDecision,
        does: Does,
    ) -> Result<(), CheckError> {
        let Lists { plan, decisions, .. } = decision.lists.get_or_insert_default();
        decisions.resize(plan.charges.len(), PENDING);
        let refused = plan.denied_by.is_some();
        let now_does = does.unless(refused);
        let in_force = self.decide_together(deadline, decision, now_does, Together::InForce);
        let all_allow = in_force.await?;
        // Where the call does not pass, it would not be charged to the rules in shadow either.
        let does = does.unless(refused || !all_allow);
        match &decision.tried()[..] {
            [] => Ok(()),
            [only] => self.decide_together(deadline, decision, does, *only).await.map(drop),
            several => self.decide_tried(deadline, decision, does, several).await,
        }
    }

    /// Decides several rules in shadow, each for itself, with one wait for all of them.
    async fn decide_tried(
        &self,
        deadline: &S::Deadline,
        decision: &mut RuleDecision,
        does: Does,
        tried: &[Together],
    ) -> Result<(), CheckError> {
        let asked: Few<Asked<'_>> =
            tried.iter().map(|one| self.asked(decision, does, *one)).collect();
        let now = decision.at;
        let deciding = asked.iter().map(|asked| self.decide_asked(deadline, now, asked));
        let decided = in_order(deciding).await;
        drop(asked);
        let mut result = Ok(());
        for (together, answered) in tried.iter().zip(decided) {
            match answered {
                Ok(answered) => drop(decision.answer(*together, does, &answered)),
                Err(error) => result = Err(CheckError::Store(error)),
            }
        }
        result
    }

    /// Decides some of the charges all or nothing, and says whether all of them allow.
    async fn decide_together(
        &self,
        deadline: &S::Deadline,
        decision: &mut RuleDecision,
        does: Does,
        together: Together,
    ) -> Result<bool, CheckError> {
        let asked = self.asked(decision, does, together);
        let decided = self.decide_asked(deadline, decision.at, &asked).await;
        drop(asked);
        let answered = decided.map_err(CheckError::Store)?;
        Ok(decision.answer(together, does, &answered))
    }

    /// The charges that are decided together.
    fn asked<'d>(&self, decision: &'d RuleDecision, does: Does, together: Together) -> Asked<'d> {
        let rules: &CompiledRules = &decision.rules;
        let members = || decision.members(together).map(|(_, planned)| planned);
        let mut terms = self.terms(rules, members().map(|planned| (planned, decision.group())));
        if together != Together::InForce {
            terms.iter_mut().for_each(never_deny);
        }
        let mut charges: Few<Charge<'_>> =
            members().map(|planned| charge(rules, planned, does)).collect();
        self.place_times(&mut charges, &terms);
        Asked { charges, terms }
    }

    #[inline]
    async fn decide_asked(
        &self,
        deadline: &S::Deadline,
        now: Timestamp,
        asked: &Asked<'_>,
    ) -> Result<Answered, StoreError> {
        let mut answered = Answered::default();
        let request = Request { now, charges: &asked.charges };
        self.store.decide(deadline, &request, &asked.terms, &mut answered).await?;
        Ok(answered)
    }
}

/// Charges that are decided together, and on what terms.
struct Asked<'r> {
    charges: Few<Charge<'r>>,
    terms: Few<Terms>,
}

impl RuleDecision {
    /// The charges that are decided together, with their numbers.
    fn members(&self, together: Together) -> impl Iterator<Item = (usize, &Planned)> {
        let is_in =
            move |(_, planned): &(usize, &Planned)| together.has(self.rules.limit(planned.limit));
        self.charges().iter().enumerate().filter(is_in)
    }

    /// The rules in shadow that apply, and what else is only tried out.
    fn tried(&self) -> Few<Together> {
        let mut tried: Few<Together> = Few::new();
        for planned in self.charges() {
            // The charges of a rule stand together, so each group comes up once.
            let this = Together::of(self.rules.limit(planned.limit));
            if this != Together::InForce && tried.last() != Some(&this) {
                tried.push(this);
            }
        }
        tried
    }

    /// Takes note of what they were answered, and says whether all of them allow.
    fn answer(&mut self, together: Together, does: Does, answered: &Answered) -> bool {
        let Self { rules, at, lists, taken, .. } = self;
        let Lists { plan, decisions, by, .. } = lists.get_or_insert_default();
        let is_in =
            |(_, planned): &(usize, &Planned)| Together::of(rules.limit(planned.limit)) == together;
        let (mut all_allow, mut bits) = (true, 0);
        let members = plan.charges.iter().enumerate().filter(is_in);
        for (place, (index, _)) in members.enumerate() {
            let decision = answered.decision(place);
            all_allow &= decision.is_allowed();
            bits |= 1 << index;
            decisions[index] = *decision;
            if let Some(decided_by) = answered.by(place) {
                by.resize(plan.charges.len(), DecidedBy::memory(*at));
                by[index] = decided_by;
            }
        }
        if does.takes(all_allow) {
            *taken |= bits;
        }
        all_allow
    }
}

/// A call that is being decided. Whoever asked may go before it is: a place that it holds by then is given back,
/// because nobody knows of it who could. What was charged stays charged.
struct Unfinished<'l, C: Clock, S: Backing> {
    limiter: &'l RuleLimiter<C, S>,
    decision: &'l mut RuleDecision,
    is_finished: bool,
}

impl<C: Clock, S: Backing> Drop for Unfinished<'_, C, S> {
    fn drop(&mut self) {
        if self.is_finished || !self.decision.holds_places() {
            return;
        }
        let Self { limiter, decision, .. } = self;
        let (mut charges, mut terms): (Few<Charge<'_>>, Few<Terms>) = (Few::new(), Few::new());
        for (index, (planned, answer)) in decision.answers().enumerate() {
            let taken = decision.taken & (1 << index) != 0;
            let Some(lease) = answer.lease.filter(|_| taken) else { continue };
            let limit = decision.rules.limit(planned.limit).limit(planned.relaxed);
            let operation = Operation::Release { lease };
            let charge = Charge { limit, key: planned.key, operation };
            let its = limiter.sharing.terms_of(&decision.rules, planned, decision.group());
            if decision.by(index).source == Source::Fallback {
                limiter.store.give_back_share(decision.at, &charge, its);
                continue;
            }
            charges.push(charge);
            terms.push(its);
        }
        limiter.store.carry_out_later(decision.at, &charges, &terms);
    }
}
