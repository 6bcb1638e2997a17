//! The seam that every store stands behind: the resolved request. Rules and identity have been
//! worked out; what is left is a short list of limits, each with the key it counts for and what is
//! to be done, decided all or nothing at one instant.

use std::fmt;
use std::future::Future;

use tidegate_core::{Decision, Key, Limit, Operation, Timestamp};

/// Where the state of keys lives.
///
/// The same calls at the same instants give the same answers from every store; the suite in
/// [`conformance`](crate::conformance) holds each of them to it.
pub trait Store: Send + Sync {
    /// Decides each request of the batch as if they had come one after the other, and replaces what
    /// `answers` held by one answer per request, in order.
    ///
    /// A request that could not be decided has an error for an answer, never a denial.
    fn decide(
        &self,
        batch: &[Request<'_>],
        answers: &mut Answers,
    ) -> impl Future<Output = ()> + Send;

    /// Forgets the keys: each has all of its quota again.
    fn forget(&self, keys: &[Key]) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// One limit of a request: what is to happen to whose counter.
#[derive(Clone, Copy, Debug)]
pub struct Charge<'a> {
    /// The algorithm and its numbers.
    pub limit: &'a Limit,
    /// Whose counter it is.
    pub key: Key,
    /// What is to be done.
    pub operation: Operation,
}

/// All the limits that one request is under. Its takes go through together or not at all; each
/// answer then says what that limit alone would have said. Other operations always go through.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The instant of the decision. A store with a clock of its own may use that instead.
    pub now: Timestamp,
    /// The limits, at most [`Request::CHARGES_MAX`], each key at most once.
    pub charges: &'a [Charge<'a>],
}

impl Request<'_> {
    /// The most limits that one request can be under.
    pub const CHARGES_MAX: usize = 16;

    /// Whether it is within what a request may be: not too many limits, and no key twice.
    pub fn check(&self) -> Result<(), StoreError> {
        if self.charges.len() > Self::CHARGES_MAX {
            return Err(StoreError::TooManyCharges);
        }
        let repeated = self.charges.iter().enumerate().any(|(index, charge)| {
            self.charges[..index].iter().any(|earlier| earlier.key == charge.key)
        });
        if repeated { Err(StoreError::RepeatedKey) } else { Ok(()) }
    }
}

/// The answers to a batch, in order. It is meant to be used again, so that a steady stream of
/// batches allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    decisions: Vec<Decision>,
    ends: Vec<Result<usize, StoreError>>,
    /// By the number of the request; shorter where stores have no clock of their own.
    instants: Vec<Option<Timestamp>>,
}

impl Answers {
    /// No answers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all answers and keeps the room.
    pub fn clear(&mut self) {
        self.decisions.clear();
        self.ends.clear();
        self.instants.clear();
    }

    /// Adds the answer to the next request: what `decide` appends, or its error.
    pub fn push_with(&mut self, decide: impl FnOnce(&mut Vec<Decision>) -> Result<(), StoreError>) {
        let start = self.decisions.len();
        let answer = decide(&mut self.decisions);
        if answer.is_err() {
            self.decisions.truncate(start);
        }
        self.ends.push(answer.map(|()| self.decisions.len()));
    }

    /// Adds the answer to the next request, which was decided at an instant of the store's own clock.
    pub fn push_at(
        &mut self,
        at: Timestamp,
        decide: impl FnOnce(&mut Vec<Decision>) -> Result<(), StoreError>,
    ) {
        self.instants.resize(self.ends.len(), None);
        self.instants.push(Some(at));
        self.push_with(decide);
    }

    /// The instant at which a store with a clock of its own decided the request of this number;
    /// `None` where it was the request's `now`. A refund names it as the time of the charge.
    pub fn decided_at(&self, request: usize) -> Option<Timestamp> {
        self.instants.get(request).copied().flatten()
    }

    /// How many requests have been answered.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no request has been answered.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The answers in order: one decision per charge, or why there is none.
    pub fn iter(&self) -> impl Iterator<Item = Result<&[Decision], StoreError>> {
        let mut start = 0;
        self.ends.iter().map(move |end| match *end {
            Ok(end) => {
                let decisions = &self.decisions[start..end];
                start = end;
                Ok(decisions)
            }
            Err(error) => Err(error),
        })
    }
}

/// Who decided a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// This process's memory.
    Memory,
    /// The shared store.
    Store,
    /// Quota that this node holds a lease on.
    Lease,
    /// The policy for a store that cannot answer. Decisions by it are *degraded*.
    Fallback,
    /// A denial by the store that still holds.
    CachedDeny,
}

impl Source {
    /// The word for it on the wire and in labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Store => "store",
            Self::Lease => "lease",
            Self::Fallback => "fallback",
            Self::CachedDeny => "cached-deny",
        }
    }
}

/// What one limit of a request says, where limits of one request may be decided by different places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// What the limit alone says.
    pub decision: Decision,
    /// When it was decided, by the clock of whoever decided. What was taken is given back by naming it.
    pub at: Timestamp,
    /// Who decided.
    pub source: Source,
}

/// Why a request could not be decided. [`StoreError::may_have_changed_state`] says whether anything
/// was charged all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The request is under more limits than [`Request::CHARGES_MAX`]. No state was changed.
    TooManyCharges,
    /// The request names one key twice. No state was changed.
    RepeatedKey,
    /// The store could not be asked: there is no connection to it. No state was changed.
    Unreachable,
    /// The store was not asked, because too many requests wait for it already. No state was changed.
    Busy,
    /// The store was asked, and no answer came in time. The request may have been charged.
    NoAnswer,
    /// The store refused to decide, as one does that may not write. No state was changed.
    Refused,
    /// What the store holds for one of the keys was written by somebody else, and the store is told
    /// to leave it. No state was changed.
    ForeignState,
}

impl StoreError {
    /// Whether the request may have been charged although there is no answer to it.
    pub const fn may_have_changed_state(self) -> bool {
        match self {
            Self::NoAnswer => true,
            Self::TooManyCharges
            | Self::RepeatedKey
            | Self::Unreachable
            | Self::Busy
            | Self::Refused
            | Self::ForeignState => false,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyCharges => {
                write!(f, "the request is under more than {} limits", Request::CHARGES_MAX)
            }
            Self::RepeatedKey => f.write_str("the request names one key twice"),
            Self::Unreachable => f.write_str("the store cannot be reached"),
            Self::Busy => f.write_str("too many requests wait for the store"),
            Self::NoAnswer => f.write_str("the store did not answer in time"),
            Self::Refused => f.write_str("the store refused to decide"),
            Self::ForeignState => f.write_str("the store holds a state that is not Tidegate's"),
        }
    }
}

impl std::error::Error for StoreError {}
