//! Calls that are decided on the spot though nodes share their limits, because this node has leased enough
//! for them. Nobody is asked and nothing is waited for, so no future is made. Whatever takes more than that
//! is for `decide`, which would have answered the same here.

use tidegate_core::Timestamp;
use tidegate_redis::Shared;
use tidegate_store::{Charge, Request};

use super::backing::sealed::Backing as _;
use super::backing::{DecidedBy, Few};
use super::decision::{Lists, Outcome, RuleDecision};
use super::limiter::{Call, CheckError, Does, RuleLimiter, charge};
use super::place::Place;
use crate::Clock;

impl<C: Clock> RuleLimiter<C, Place> {
    /// As [`check`](Self::check) where there is nothing to wait for, at an instant that [`now`](Self::now) has
    /// just said: memory decides, or this node has leased enough. There is no future, and `then` is handed
    /// the decision where it stands, which spares moving it. `None` where a store may have to be asked; nothing
    /// has happened then.
    #[inline]
    pub fn check_at_once<T>(
        &self,
        call: &Call<'_>,
        now: Timestamp,
        then: impl FnOnce(Result<&mut RuleDecision, CheckError>) -> T,
    ) -> Option<T> {
        let mut decision = RuleDecision::pending(self.current.keep(), now);
        let decided = self.decide_at_once(&mut decision, call)?;
        Some(then(decided.map(|()| &mut decision)))
    }

    /// The same where the decision stands that was [begun](Self::begin), for who keeps some of them.
    #[inline]
    pub fn check_begun_at_once(
        &self,
        decision: &mut RuleDecision,
        call: &Call<'_>,
        now: Timestamp,
    ) -> Option<Result<(), CheckError>> {
        decision.clear(now);
        self.decide_at_once(decision, call)
    }

    /// As [`check_at_once`](Self::check_at_once), for who keeps the decision.
    #[inline]
    pub fn check_now(&self, call: &Call<'_>) -> Option<Result<RuleDecision, CheckError>> {
        let mut decision = RuleDecision::pending(self.current.keep(), self.clock.now_unordered());
        let decided = self.decide_at_once(&mut decision, call)?;
        Some(decided.map(|()| decision))
    }

    /// The same where the decision stands that was [begun](Self::begin).
    #[inline]
    pub fn check_begun_now(
        &self,
        decision: &mut RuleDecision,
        call: &Call<'_>,
    ) -> Option<Result<(), CheckError>> {
        self.check_begun_at_once(decision, call, self.clock.now_unordered())
    }

    #[inline]
    fn decide_at_once(
        &self,
        decision: &mut RuleDecision,
        call: &Call<'_>,
    ) -> Option<Result<(), CheckError>> {
        let does = Does::Take;
        match &self.store {
            Place::Memory(table) => Some(match self.start(decision, call, does) {
                Ok(true) => Ok(()),
                Ok(false) => self.finish_in(table, decision, does),
                Err(error) => Err(error),
            }),
            Place::Shared(_) => {
                let is_decided = self.sharing.may_lease(&decision.rules)
                    && self.start(decision, call, does).is_ok()
                    && self.spend_at_hand(decision, does);
                is_decided.then_some(Ok(()))
            }
        }
    }

    /// Decides a call that [`start`](Self::start) did not, if it takes and this node has leased enough under
    /// every limit. Says whether it is decided; if not, nothing has happened.
    #[inline]
    pub(super) fn spend_at_hand(&self, decision: &mut RuleDecision, does: Does) -> bool {
        let Place::Shared(shared) = &self.store else { return false };
        let Some(plan) = decision.plan() else { return false };
        if does != Does::Take || plan.denied_by.is_some() || plan.shadow_denied_by.is_some() {
            return false;
        }
        let is_spent = match plan.charges.len() {
            1 => self.spend_one(shared, decision),
            _ => self.spend_several(shared, decision),
        };
        if is_spent {
            let told_at = self.store.told_time(decision.at);
            decision.lists.get_or_insert_default().told_at = Some(told_at);
        }
        is_spent
    }

    #[inline]
    fn spend_one(&self, shared: &Shared, decision: &mut RuleDecision) -> bool {
        let RuleDecision { rules, at, outcome, taken, lists, .. } = decision;
        let Lists { plan, decisions, by, group, .. } = lists.get_or_insert_default();
        let planned = &plan.charges[0];
        let terms = self.sharing.terms_of(rules, planned, *group);
        let charge = charge(rules, planned, Does::Take);
        let Some(settled) = shared.spend_one(*at, &charge, terms) else { return false };
        *outcome = Outcome::of_one(rules.limit(planned.limit), settled.decision.verdict);
        decisions.push(settled.decision);
        by.push(DecidedBy::of(&settled));
        *taken = 1;
        true
    }

    /// What is only tried out is decided by itself, and not here.
    fn spend_several(&self, shared: &Shared, decision: &mut RuleDecision) -> bool {
        let RuleDecision { rules, at, taken, lists, .. } = decision;
        let Lists { plan, decisions, by, group, .. } = lists.get_or_insert_default();
        if !plan.charges.iter().all(|planned| rules.limit(planned.limit).is_enforced()) {
            return false;
        }
        let charges: Few<Charge<'_>> =
            plan.charges.iter().map(|planned| charge(rules, planned, Does::Take)).collect();
        let terms: Few<_> = plan
            .charges
            .iter()
            .map(|planned| self.sharing.terms_of(rules, planned, *group))
            .collect();
        let is_spent =
            shared.spend_several(&Request { now: *at, charges: &charges }, &terms, |settled| {
                decisions.push(settled.decision);
                by.push(DecidedBy::of(&settled));
            });
        drop(charges);
        if !is_spent {
            decisions.clear();
            by.clear();
            return false;
        }
        *taken = (1 << decisions.len()) - 1;
        decision.outcome = Outcome::of(decision);
        true
    }
}
