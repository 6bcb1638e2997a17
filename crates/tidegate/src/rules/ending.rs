//! How a call ends in steps, for who sees its response begin before it is over: what the response counts
//! for when its status is known, and places under concurrency limits when the last of it is sent.

use tidegate_core::{self as core, Limit, Operation, Timestamp};
use tidegate_rules::resolve::{Plan, Planned};
use tidegate_rules::rule::Count;
use tidegate_store::Source;

use super::backing::{Backing, DecidedBy, Few, at_once};
use super::decide::Back;
use super::decision::RuleDecision;
use super::limiter::{Call, CheckError, RuleLimiter};
#[cfg(feature = "redis")]
use super::place::Place;
use crate::Clock;

impl RuleDecision {
    /// Whether the call holds places under concurrency limits, which have to be given back.
    pub fn holds_places(&self) -> bool {
        self.taken != 0 && self.taken_answers().any(|(_, answer)| answer.lease.is_some())
    }

    /// Whether a rule that took something counts by the status of the response.
    pub fn counts_responses(&self) -> bool {
        let is_by_status = |rule| matches!(self.rules.rule(rule).count, Count::OnResponse(_));
        let mut taken = self.taken_answers();
        taken.any(|(planned, _)| is_by_status(self.rules.limit(planned.limit).rule()))
    }

    /// What it took and holds no place for, apart from the rest, so that both can be ended one after the
    /// other and by different hands.
    #[must_use = "nobody else gives it back any more"]
    pub fn split_off_counted(&mut self) -> Self {
        let with_place =
            self.answers().enumerate().filter(|(_, (_, answer))| answer.lease.is_some());
        let places = with_place.fold(0, |places, (index, _)| places | 1 << index);
        let counted = Self {
            rules: self.rules.clone(),
            at: self.at,
            outcome: self.outcome,
            taken: self.taken & !places,
            one: self.one,
            lists: self.lists.clone(),
        };
        self.taken &= places;
        counted
    }

    fn taken_answers(&self) -> impl Iterator<Item = (&Planned, &core::Decision)> {
        let is_taken = |(index, _): &(usize, _)| self.taken & (1 << index) != 0;
        self.answers().enumerate().filter(is_taken).map(|(_, answer)| answer)
    }
}

impl<C: Clock> RuleLimiter<C> {
    /// Counts the response of a call that is not over yet: what a response of this status does not
    /// count for is given back, and places stay held until the call is [completed](Self::complete) or
    /// [abandoned](Self::abandon).
    pub fn count_response(&self, decision: &mut RuleDecision, status: u16) {
        at_once(self.count_response_in(decision, status));
    }

    /// Ends a call that has no response, or none any more: gives its leases back. What it took stays
    /// taken, also under rules that count by the response, or whoever hangs up early would try for
    /// nothing.
    pub fn abandon(&self, mut decision: RuleDecision) {
        at_once(self.give_back(&(), &mut decision, |_| false));
    }
}

#[cfg(feature = "redis")]
impl<C: Clock> RuleLimiter<C, Place> {
    /// Counts the response of a call that is not over yet: what a response of this status does not
    /// count for is given back, and places stay held until the call is [completed](Self::complete) or
    /// [abandoned](Self::abandon).
    pub async fn count_response(&self, decision: &mut RuleDecision, status: u16) {
        self.count_response_in(decision, status).await;
    }

    /// Ends a call that has no response, or none any more: gives its leases back. What it took stays
    /// taken, also under rules that count by the response, or whoever hangs up early would try for
    /// nothing.
    pub async fn abandon(&self, mut decision: RuleDecision) {
        self.give_back(&tidegate_redis::Deadline::default(), &mut decision, |_| false).await;
    }

    /// Counts the response of an equal call that took at `taken_at`, on this node or another, as
    /// [`RuleDecision::told_at`] says it. For callers that cannot keep the decision, because they
    /// are on the other side of a wire. Nobody knows here whether it was done before: to say it twice
    /// gives back twice.
    pub async fn count_response_at(
        &self,
        call: &Call<'_>,
        taken_at: Timestamp,
        status: u16,
    ) -> Result<(), CheckError> {
        self.count_response_of(call, taken_at, status).await
    }
}

impl<C: Clock, S: Backing> RuleLimiter<C, S> {
    async fn count_response_in(&self, decision: &mut RuleDecision, status: u16) {
        let mut places = 0;
        let mut backs: Few<Back> = Few::new();
        for (index, (planned, answer)) in decision.answers().enumerate() {
            if decision.taken & (1 << index) == 0 {
                continue;
            }
            if answer.lease.is_some() {
                places |= 1 << index;
                continue;
            }
            let rule = decision.rules.rule(decision.rules.limit(planned.limit).rule());
            if !rule.count.counts(status) {
                let DecidedBy { at: taken_at, source } = decision.by(index);
                let operation = Operation::Refund { cost: planned.cost, taken_at };
                if let Some(table) = self.store.memory() {
                    let _ = self.give_back_in(table, &decision.rules, planned, operation);
                    continue;
                }
                backs.push(Back { planned: *planned, operation, group: decision.group(), source });
            }
        }
        // What has been counted is settled: nothing gives it back a second time.
        decision.taken = places;
        if !backs.is_empty() {
            let deadline = S::Deadline::default();
            self.give_back_to(&deadline, &decision.rules, &backs, &mut |_, _| {}).await;
        }
    }

    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only daemons are told later"))]
    async fn count_response_of(
        &self,
        call: &Call<'_>,
        taken_at: Timestamp,
        status: u16,
    ) -> Result<(), CheckError> {
        let rules = self.current.load();
        let mut plan = Plan::default();
        // The tiers and overrides of the moment at which it was taken.
        let then = self.store.own_time(taken_at);
        rules.resolve(&self.ask(&rules, call, then), &mut plan).map_err(CheckError::Resolve)?;
        let group = self.sharing.group_of(call.attributes);
        let mut backs: Few<Back> = Few::new();
        for planned in &plan.charges {
            let limit = rules.limit(planned.limit);
            let is_place = matches!(limit.limit(planned.relaxed), Limit::Concurrency(_));
            if is_place || rules.rule(limit.rule()).count.counts(status) {
                continue;
            }
            let terms = self.sharing.terms_of(&rules, planned, group);
            let taken_at = self.store.place_time(planned.key, terms, taken_at);
            let operation = Operation::Refund { cost: planned.cost, taken_at };
            if let Some(table) = self.store.memory() {
                let _ = self.give_back_in(table, &rules, planned, operation);
                continue;
            }
            // Whoever was answered by what stood in for the store has nothing to tell, because nothing was
            // taken there.
            backs.push(Back { planned: *planned, operation, group, source: Source::Store });
        }
        if !backs.is_empty() {
            self.give_back_to(&S::Deadline::default(), &rules, &backs, &mut |_, _| {}).await;
        }
        Ok(())
    }
}
