//! The calls of a limiter that may have to wait for its answers, because a store that nodes share
//! decides. In memory each is done at the first poll.

use std::path::Path;

use tidegate_core::{self as core, Key, LeaseId, Operation, Timestamp};
use tidegate_redis::{Deadline, Shared};
use tidegate_store::snapshot::SnapshotError;
use tidegate_store::{Charge, Request, Settled, Source, Stats, StoreError};

use super::backing::sealed::Backing as _;
use super::decision::RuleDecision;
use super::descriptors::{DescriptorCall, DescriptorsDecision};
use super::given::decide_many;
use super::in_order::in_order;
use super::leases::Held;
use super::limiter::{Call, CheckError, Checker, Does, RuleLimiter};
use super::place::Place;
use crate::Clock;

/// How many limits that a call brings along are asked for before the answer to the first is there.
const GIVEN_AT_ONCE: usize = 64;

impl<C: Clock> RuleLimiter<C, Place> {
    /// Takes what the call costs, if it is there under every limit of every rule that matches.
    #[inline]
    pub async fn check(&self, call: &Call<'_>) -> Result<RuleDecision, CheckError> {
        self.decide(call, Does::Take).await
    }

    /// Something to check many calls with, one after the other. Each task or connection has its own.
    pub fn checker(&self) -> Checker<'_, C, Place> {
        Checker::new(self)
    }

    /// Answers as [`check`](Self::check) would, and takes nothing.
    pub async fn peek(&self, call: &Call<'_>) -> Result<RuleDecision, CheckError> {
        self.decide(call, Does::Peek).await
    }

    /// Takes what the call costs whether it is there or not.
    pub async fn debit(&self, call: &Call<'_>) -> Result<RuleDecision, CheckError> {
        self.decide(call, Does::Debit).await
    }

    /// Gives back what an equal call took at `taken_at`, on this node or another, as
    /// [`RuleDecision::told_at`] says it. What has come back by itself since is not given a second time.
    pub async fn refund_at(
        &self,
        call: &Call<'_>,
        taken_at: Timestamp,
    ) -> Result<RuleDecision, CheckError> {
        self.decide(call, Does::Refund { taken_at }).await
    }

    /// Ends a call that was allowed: gives its leases back, and, where rules count by the response,
    /// what a response of this status does not count for.
    pub async fn complete(&self, mut decision: RuleDecision, status: u16) {
        self.complete_in(&mut decision, status).await;
    }

    /// Gives back everything that a decision took, leases too, as if the call had not been.
    pub async fn refund(&self, mut decision: RuleDecision) {
        self.refund_in(&mut decision).await;
    }

    /// The same for who still has to tell what the decision says. It took nothing from then on, so
    /// nothing is given back a second time.
    pub async fn refund_in(&self, decision: &mut RuleDecision) {
        self.refund_in_by(&Deadline::default(), decision).await;
    }

    /// The same for who waits no longer than this. What is not given back by then is given back all the same.
    pub async fn refund_in_by(&self, deadline: &Deadline, decision: &mut RuleDecision) {
        self.give_back(deadline, decision, |_| true).await;
    }

    /// Gives back one lease of a concurrency limit that an equal call was given. Where a call is under
    /// several such limits, use [`release_held`](Self::release_held).
    pub async fn release(
        &self,
        call: &Call<'_>,
        lease: LeaseId,
    ) -> Result<RuleDecision, CheckError> {
        self.decide(call, Does::Release { lease }).await
    }

    /// Gives back the leases that an equal call was given, each to its own limit, and answers what the
    /// limits have left then. A lease that has expired, or whose rule is gone, changes nothing.
    pub async fn release_held(
        &self,
        call: &Call<'_>,
        held: &[Held],
    ) -> Result<RuleDecision, CheckError> {
        self.decide_held(call, held, |lease| Operation::Release { lease }).await
    }

    /// Counts the leases that an equal call was given as taken now, each under its own limit. Those that
    /// were still held are the ones that the answer [holds](RuleDecision::held); a lease that has
    /// expired, was given back, or whose rule is gone, is not among them, and nothing changes for it.
    pub async fn renew_held(
        &self,
        call: &Call<'_>,
        held: &[Held],
    ) -> Result<RuleDecision, CheckError> {
        self.decide_held(call, held, |lease| Operation::Renew { lease }).await
    }

    /// Forgets what was taken by calls like this one, under every limit that applies to it: on every
    /// node within a second.
    pub async fn reset(&self, call: &Call<'_>) -> Result<(), CheckError> {
        self.forget(call).await
    }

    /// Decides several descriptors as one call. What they take is taken under all limits of all of
    /// them, or not at all; each status then says what that descriptor alone would have said.
    pub async fn check_descriptors(
        &self,
        domain: &str,
        calls: &[DescriptorCall<'_>],
    ) -> Result<DescriptorsDecision, CheckError> {
        self.decide_descriptors(domain, calls).await
    }

    /// Gives back what a call took, and nothing a second time, as if the call had not been: what is left
    /// is then told so. What the call itself gave back stays given back.
    pub async fn refund_descriptors(&self, decision: &mut DescriptorsDecision) {
        self.refund_descriptors_by(&Deadline::default(), decision).await;
    }

    /// The same for who waits no longer than this. What is not given back by then is given back all the same.
    pub async fn refund_descriptors_by(
        &self,
        deadline: &Deadline,
        decision: &mut DescriptorsDecision,
    ) {
        self.give_back_descriptors(deadline, decision).await;
    }

    /// Decides one operation under a limit that the call brings along, on the terms of the limiter.
    pub async fn decide_given(&self, charge: &Charge<'_>) -> Result<Settled, StoreError> {
        let now = self.clock.now();
        match &self.store {
            Place::Memory(table) => {
                let decision = table.decide_one(now, charge);
                Ok(Settled { decision, at: now, source: Source::Memory })
            }
            Place::Shared(shared) => self.ask_given(shared, now, charge).await,
        }
    }

    /// Decides many at one instant, each as if they had come one after the other, and hands each
    /// answer to `each`, in order. `now` is what [`now`](Self::now) has just said.
    pub async fn decide_given_many_at<'c>(
        &self,
        now: Timestamp,
        charges: impl IntoIterator<Item = Charge<'c>, IntoIter: Send> + Send,
        mut each: impl FnMut(Result<Settled, StoreError>) + Send,
    ) {
        let shared = match &self.store {
            Place::Memory(table) => {
                let source = Source::Memory;
                let each = |decision| each(Ok(Settled { decision, at: now, source }));
                return decide_many(table, now, charges.into_iter(), each);
            }
            Place::Shared(shared) => shared,
        };
        let charges: Vec<Charge<'c>> = charges.into_iter().collect();
        for some in charges.chunks(GIVEN_AT_ONCE) {
            let asked = some.iter().map(|charge| self.ask_given(shared, now, charge));
            in_order(asked).await.into_iter().for_each(&mut each);
        }
    }

    async fn ask_given(
        &self,
        shared: &Shared,
        now: Timestamp,
        charge: &Charge<'_>,
    ) -> Result<Settled, StoreError> {
        let terms = self.sharing.terms_of_given(charge.limit, None);
        let request = Request { now, charges: std::slice::from_ref(charge) };
        let mut settled = Vec::with_capacity(1);
        shared.decide(&request, &[terms], &mut settled).await?;
        settled.first().copied().ok_or(StoreError::NoAnswer)
    }

    /// Forgets what was taken under a given limit. It is named, because it says where that is kept.
    pub async fn forget_given(&self, key: Key, limit: &core::Limit) -> Result<(), StoreError> {
        let terms = self.sharing.terms_of_given(limit, None);
        self.store.forget(&[(key, terms)]).await
    }

    /// How many keys are held in this process's memory, how many had to go, and how many bytes that
    /// takes. It reads the whole table, so it is for metrics, not for every request. `None` where nothing
    /// has been kept here so far.
    pub fn stats(&self) -> Option<Stats> {
        match &self.store {
            Place::Memory(table) => Some(table.stats(self.clock.now())),
            Place::Shared(shared) => shared.memory_stats(self.clock.now()),
        }
    }

    /// Writes the state of all keys in memory to a file, which is replaced in one step. Where a store
    /// keeps them there is nothing to write, and no file is touched.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        match &self.store {
            Place::Memory(table) => table.save(path.as_ref(), &self.label, self.clock.now()),
            Place::Shared(_) => Ok(()),
        }
    }

    /// The time as who gives something back tells it: see [`RuleDecision::told_at`].
    pub fn told_now(&self) -> Timestamp {
        self.store.told_time(self.clock.now())
    }

    /// Where it decides.
    pub fn place(&self) -> &Place {
        &self.store
    }

    async fn decide(&self, call: &Call<'_>, does: Does) -> Result<RuleDecision, CheckError> {
        let mut decision = RuleDecision::pending(self.current.keep(), self.clock.now());
        if !self.start(&mut decision, call, does)? && !self.spend_at_hand(&mut decision, does) {
            self.finish(&mut decision, does).await?;
        }
        Ok(decision)
    }
}

impl<C: Clock> Checker<'_, C, Place> {
    /// As [`RuleLimiter::check`].
    #[inline]
    pub async fn check(&mut self, call: &Call<'_>) -> Result<&RuleDecision, CheckError> {
        self.start();
        let Self { limiter, decision, .. } = self;
        if !limiter.start(decision, call, Does::Take)?
            && !limiter.spend_at_hand(decision, Does::Take)
        {
            limiter.finish(decision, Does::Take).await?;
        }
        Ok(decision)
    }

    /// Ends the call that was checked last, as [`RuleLimiter::complete`].
    pub async fn complete(&mut self, status: u16) {
        self.limiter.complete_in(&mut self.decision, status).await;
    }

    /// Gives back what the call that was checked last took, as [`RuleLimiter::refund`].
    pub async fn refund(&mut self) {
        self.limiter.give_back(&Deadline::default(), &mut self.decision, |_| true).await;
    }
}
