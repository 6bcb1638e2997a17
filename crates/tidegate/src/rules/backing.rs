//! Where a limiter by rules decides: the seam that its procedure is written over. Memory answers at
//! once; a store that nodes share is waited for.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate_core::{Decision, Key, Limit, Terms, Timestamp};
use tidegate_store::{Charge, Request, Settled, Source, StoreError, Table, TableError};

pub(super) use crate::limiter::Few;

/// Where a [`RuleLimiter`](super::RuleLimiter) decides: a [`Table`], whose answers are there at once,
/// or a place that has to be waited for. Others cannot be added from outside.
pub trait Backing: sealed::Backing {}

impl<S: sealed::Backing> Backing for S {}

/// What all limits of one request say, in order.
#[derive(Debug, Default)]
pub struct Answered {
    /// Where memory decided all of them, at the request's own time.
    pub(super) decisions: Vec<Decision>,
    /// Where each may have been decided by somebody else.
    pub(super) settled: Vec<Settled>,
}

/// Who decided a limit, and when by his own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DecidedBy {
    pub(super) at: Timestamp,
    pub(super) source: Source,
}

impl Answered {
    /// What the limit of this number says.
    #[inline]
    pub(super) fn decision(&self, index: usize) -> &Decision {
        match self.settled.get(index) {
            Some(settled) => &settled.decision,
            None => &self.decisions[index],
        }
    }

    /// Whether the first so many of them allow.
    pub(super) fn all_allow(&self, count: usize) -> bool {
        (0..count).all(|index| self.decision(index).is_allowed())
    }

    /// Who decided the limit of this number; `None` for memory.
    #[inline]
    pub(super) fn by(&self, index: usize) -> Option<DecidedBy> {
        self.settled.get(index).map(DecidedBy::of)
    }
}

impl DecidedBy {
    pub(super) const fn memory(at: Timestamp) -> Self {
        Self { at, source: Source::Memory }
    }

    pub(super) const fn of(settled: &Settled) -> Self {
        Self { at: settled.at, source: settled.source }
    }
}

/// Runs what never waits, because memory decides it.
#[inline]
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => unreachable!("memory answers at once"),
    }
}

pub(super) mod sealed {
    use super::{
        Answered, Charge, Future, Key, Limit, Request, Settled, StoreError, Table, TableError,
        Terms, Timestamp, fmt,
    };

    /// What the procedure asks of the place where it decides.
    pub trait Backing: fmt::Debug + Send + Sync {
        /// The time that one call has, for all that is asked to decide it.
        type Deadline: Default + Send + Sync;

        /// The table, where everything is decided by one at once.
        fn memory(&self) -> Option<&Table>;

        /// Decides a request, all or nothing, in what is left of the call's time. There are as many terms as
        /// limits, or none where memory decides.
        fn decide(
            &self,
            deadline: &Self::Deadline,
            request: &Request<'_>,
            terms: &[Terms],
            answered: &mut Answered,
        ) -> impl Future<Output = Result<(), StoreError>> + Send;

        /// Decides operations that go through whatever becomes of the others, and hands each answer
        /// to `each` with its number. What comes after an error is left out.
        fn decide_each(
            &self,
            deadline: &Self::Deadline,
            now: Timestamp,
            charges: &[Charge<'_>],
            terms: &[Terms],
            each: &mut (dyn FnMut(usize, Settled) + Send),
        ) -> impl Future<Output = Result<(), StoreError>> + Send;

        /// The same for what is done whether somebody waits for it or not: what is not there in what is left
        /// of the call's time, or when the future is dropped, goes on by itself.
        fn carry_out(
            &self,
            deadline: &Self::Deadline,
            now: Timestamp,
            charges: &[Charge<'_>],
            terms: &[Terms],
            each: &mut (dyn FnMut(usize, Settled) + Send),
        ) -> impl Future<Output = ()> + Send;

        /// The same where nobody waits at all.
        fn carry_out_later(&self, now: Timestamp, charges: &[Charge<'_>], terms: &[Terms]);

        /// Forgets keys: each has all of its quota again.
        fn forget(
            &self,
            keys: &[(Key, Terms)],
        ) -> impl Future<Output = Result<(), StoreError>> + Send;

        /// Gives back what a limit took of this node's own share while the store could not answer.
        fn give_back_share(&self, now: Timestamp, charge: &Charge<'_>, terms: Terms);

        /// An instant of this node's clock as one that all nodes understand.
        fn told_time(&self, at: Timestamp) -> Timestamp;

        /// Such a one as an instant of this node's clock.
        fn own_time(&self, told: Timestamp) -> Timestamp;

        /// Such a one as an instant of the clock that decides `key`.
        fn place_time(&self, key: Key, terms: Terms, told: Timestamp) -> Timestamp;

        /// Whether states of this limit can be kept.
        fn check(&self, limit: &Limit) -> Result<(), TableError>;
    }
}

impl sealed::Backing for Table {
    /// It answers at once.
    type Deadline = ();

    #[inline]
    fn memory(&self) -> Option<&Table> {
        Some(self)
    }

    #[inline]
    async fn decide(
        &self,
        (): &(),
        request: &Request<'_>,
        _: &[Terms],
        answered: &mut Answered,
    ) -> Result<(), StoreError> {
        answered.decisions.reserve_exact(request.charges.len());
        self.decide(request, &mut answered.decisions)
    }

    #[inline]
    async fn decide_each(
        &self,
        (): &(),
        now: Timestamp,
        charges: &[Charge<'_>],
        _: &[Terms],
        each: &mut (dyn FnMut(usize, Settled) + Send),
    ) -> Result<(), StoreError> {
        for (index, charge) in charges.iter().enumerate() {
            let decision = self.decide_one(now, charge);
            each(index, Settled { decision, at: now, source: Source::Memory });
        }
        Ok(())
    }

    #[inline]
    async fn carry_out(
        &self,
        deadline: &(),
        now: Timestamp,
        charges: &[Charge<'_>],
        terms: &[Terms],
        each: &mut (dyn FnMut(usize, Settled) + Send),
    ) {
        let _ = sealed::Backing::decide_each(self, deadline, now, charges, terms, each).await;
    }

    fn carry_out_later(&self, now: Timestamp, charges: &[Charge<'_>], _: &[Terms]) {
        for charge in charges {
            let _ = self.decide_one(now, charge);
        }
    }

    #[inline]
    async fn forget(&self, keys: &[(Key, Terms)]) -> Result<(), StoreError> {
        for (key, _) in keys {
            self.forget(*key);
        }
        Ok(())
    }

    /// Memory always answers.
    fn give_back_share(&self, _: Timestamp, _: &Charge<'_>, _: Terms) {}

    #[inline]
    fn told_time(&self, at: Timestamp) -> Timestamp {
        at
    }

    #[inline]
    fn own_time(&self, told: Timestamp) -> Timestamp {
        told
    }

    #[inline]
    fn place_time(&self, _: Key, _: Terms, told: Timestamp) -> Timestamp {
        told
    }

    fn check(&self, limit: &Limit) -> Result<(), TableError> {
        self.config().check(limit)
    }
}
