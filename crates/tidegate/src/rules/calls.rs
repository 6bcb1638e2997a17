//! The calls of a limiter that decides in memory. They answer at once.

use std::path::Path;

use tidegate_core::{LeaseId, Timestamp};
use tidegate_store::snapshot::SnapshotError;
use tidegate_store::{Stats, Table};

use super::backing::at_once;
use super::decision::{Lists, RuleDecision};
use super::in_force::Kept;
use super::limiter::{Call, CheckError, Checker, Does, RuleLimiter};
use crate::Clock;

impl<C: Clock> RuleLimiter<C, Table> {
    /// Takes what the call costs, if it is there under every limit of every rule that matches.
    #[inline]
    pub fn check(&self, call: &Call<'_>) -> Result<RuleDecision, CheckError> {
        self.decide_now(call, Does::Take)
    }

    /// As [`check`](Self::check), where the decision stands that was [begun](Self::begin). It is made at the time of this
    /// call.
    #[inline]
    pub fn check_begun(
        &self,
        decision: &mut RuleDecision,
        call: &Call<'_>,
    ) -> Result<(), CheckError> {
        decision.clear(self.clock.now_unordered());
        if !self.start(decision, call, Does::Take)? {
            self.finish_in(&self.store, decision, Does::Take)?;
        }
        Ok(())
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
        Checker::new(self)
    }

    /// Answers as [`check`](Self::check) would, and takes nothing.
    pub fn peek(&self, call: &Call<'_>) -> Result<RuleDecision, CheckError> {
        self.decide_now(call, Does::Peek)
    }

    /// Takes what the call costs whether it is there or not.
    pub fn debit(&self, call: &Call<'_>) -> Result<RuleDecision, CheckError> {
        self.decide_now(call, Does::Debit)
    }

    /// Gives back what an equal call took at `taken_at`, which its decision tells. What has come
    /// back by itself since is not given a second time.
    pub fn refund_at(
        &self,
        call: &Call<'_>,
        taken_at: Timestamp,
    ) -> Result<RuleDecision, CheckError> {
        self.decide_now(call, Does::Refund { taken_at })
    }

    /// Ends a call that was allowed: gives its leases back, and, where rules count by the response,
    /// what a response of this status does not count for.
    pub fn complete(&self, mut decision: RuleDecision, status: u16) {
        at_once(self.complete_in(&mut decision, status));
    }

    /// Gives back everything that a decision took, leases too, as if the call had not been.
    pub fn refund(&self, mut decision: RuleDecision) {
        self.refund_in(&mut decision);
    }

    /// The same for who still has to tell what the decision says. It took nothing from then on, so
    /// nothing is given back a second time.
    pub fn refund_in(&self, decision: &mut RuleDecision) {
        at_once(self.give_back(&(), decision, |_| true));
    }

    /// Gives back one lease of a concurrency limit that an equal call was given. Where a call is under
    /// several such limits, use [`release_held`](Self::release_held).
    pub fn release(&self, call: &Call<'_>, lease: LeaseId) -> Result<RuleDecision, CheckError> {
        self.decide_now(call, Does::Release { lease })
    }

    /// Forgets what was taken by calls like this one, under every limit that applies to it.
    pub fn reset(&self, call: &Call<'_>) -> Result<(), CheckError> {
        at_once(self.forget(call))
    }

    /// How many keys are held, how many had to go, and how many bytes that takes. It reads the whole
    /// table, so it is for metrics, not for every request.
    pub fn stats(&self) -> Stats {
        self.store.stats(self.clock.now())
    }

    /// Writes the state of all keys to a file, which is replaced in one step.
    /// [`RuleLimiterBuilder::build_from`](super::RuleLimiterBuilder::build_from) reads it back.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        self.store.save(path.as_ref(), &self.label, self.clock.now())
    }

    #[inline]
    fn decide_now(&self, call: &Call<'_>, does: Does) -> Result<RuleDecision, CheckError> {
        let (rules, at) = (self.current.keep(), self.clock.now_unordered());
        let mut lists: Option<Lists> = None;
        let room = &mut lists;
        let ask = self.ask(&rules, call, at);
        let only = rules.resolve_only(&ask, move || &mut room.get_or_insert_default().plan);
        let only = only.map_err(CheckError::Resolve)?;
        let Some(only) = only else { return self.decide_planned(rules, at, lists, does) };
        let single = (&*rules, &only, only.planned(call.cost));
        let (one, outcome, taken) = self.decide_only(&self.store, single, at, does);
        if !outcome.is_allowed() && does == Does::Take {
            let one = Some(one);
            let decision = RuleDecision { rules, at, outcome, taken, one, lists: None };
            return Ok(self.refused(decision));
        }
        // All parts of it are known, so it is made where it is handed back, and not moved there.
        Ok(RuleDecision { rules, at, outcome, taken, one: Some(one), lists: None })
    }

    /// Charges a call that was refused.
    #[cold]
    #[inline(never)]
    fn refused(&self, decision: RuleDecision) -> RuleDecision {
        self.charge_refused_in(&decision);
        decision
    }

    /// Decides a call whose plan is made.
    #[inline(never)]
    fn decide_planned(
        &self,
        rules: Kept,
        at: Timestamp,
        lists: Option<Lists>,
        does: Does,
    ) -> Result<RuleDecision, CheckError> {
        let mut decision = RuleDecision { lists, ..RuleDecision::pending(rules, at) };
        if !self.start_planned(&self.store, &mut decision, does) {
            self.finish_in(&self.store, &mut decision, does)?;
        }
        Ok(decision)
    }
}

impl<C: Clock> Checker<'_, C, Table> {
    /// As [`RuleLimiter::check`].
    #[inline]
    pub fn check(&mut self, call: &Call<'_>) -> Result<&RuleDecision, CheckError> {
        self.start();
        if !self.limiter.start(&mut self.decision, call, Does::Take)? {
            self.limiter.finish_in(&self.limiter.store, &mut self.decision, Does::Take)?;
        }
        Ok(&self.decision)
    }

    /// Ends the call that was checked last, as [`RuleLimiter::complete`].
    pub fn complete(&mut self, status: u16) {
        at_once(self.limiter.complete_in(&mut self.decision, status));
    }

    /// Gives back what the call that was checked last took, as [`RuleLimiter::refund`].
    pub fn refund(&mut self) {
        self.limiter.refund_in(&mut self.decision);
    }
}
