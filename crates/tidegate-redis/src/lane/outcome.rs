//! What a lane has to say to each request of a batch: decisions, or why there are none.

use std::ops::Range;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tidegate_core::{Decision, Timestamp};
use tidegate_store::{Request, StoreError};

/// One outcome per request of a batch, and how far the batch has come.
pub(crate) struct Outcomes {
    list: Vec<Option<Result<Decided, Failure>>>,
    /// The decisions of all requests, in the order of their replies.
    pub(super) decisions: Vec<Decision>,
}

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nobody can help here.
    Store(StoreError),
    /// The server says who can. No state was changed.
    Redirected(Redirect),
    /// Some of the keys are here and some on their way elsewhere. No state was changed.
    Parted,
}

/// Where a cluster has its keys in truth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// Host and port, as the server knows the other.
    pub(crate) address: String,
    pub(crate) slot: u16,
    /// Whether only this call goes there, because the slot is on its way.
    pub(crate) once: bool,
}

struct Decided {
    at: Timestamp,
    decisions: Range<usize>,
}

impl Outcomes {
    pub(super) fn new(batch: &[Request<'_>]) -> Self {
        let list = batch.iter().map(|request| check(request).err().map(|error| Err(error.into())));
        Self { list: list.collect(), decisions: Vec::new() }
    }

    /// The decisions on the request of this number and when they were made, or why there are none.
    pub(crate) fn outcome(&self, index: usize) -> Result<(Timestamp, &[Decision]), &Failure> {
        match &self.list[index] {
            Some(Ok(decided)) => Ok((decided.at, &self.decisions[decided.decisions.clone()])),
            Some(Err(failure)) => Err(failure),
            // The server could not tell, as often as it was asked, and has done nothing.
            None => Err(&Failure::Store(StoreError::Refused)),
        }
    }

    /// The requests that nobody has said anything to.
    pub(super) fn undecided(&self) -> Vec<usize> {
        (0..self.list.len()).filter(|index| self.list[*index].is_none()).collect()
    }

    /// Says that all decisions from `start` on are those on the request of this number.
    pub(super) fn decide(&mut self, index: usize, at: Timestamp, start: usize) {
        self.list[index] = Some(Ok(Decided { at, decisions: start..self.decisions.len() }));
    }

    pub(super) fn fail(&mut self, index: usize, failure: Failure) {
        self.list[index] = Some(Err(failure));
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<&Failure> for StoreError {
    /// Where nobody follows a redirection, the server has refused.
    fn from(failure: &Failure) -> Self {
        match failure {
            Failure::Store(error) => *error,
            Failure::Redirected(_) | Failure::Parted => Self::Refused,
        }
    }
}

/// Where the server sends the caller, if it does.
pub(super) fn redirect(error: &RedisError) -> Option<Redirect> {
    let once = match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved) => false,
        ErrorKind::Server(ServerErrorKind::Ask) => true,
        _ => return None,
    };
    let (address, slot) = error.redirect_node()?;
    Some(Redirect { address: address.to_owned(), slot, once })
}

/// Whether a request is one. One without limits needs no server, and is sent all the same: its
/// answer is empty.
pub(crate) fn check(request: &Request<'_>) -> Result<(), StoreError> {
    if request.charges.len() > Request::CHARGES_MAX {
        return Err(StoreError::TooManyCharges);
    }
    let repeated = request.charges.iter().enumerate().any(|(index, charge)| {
        request.charges[..index].iter().any(|earlier| earlier.key == charge.key)
    });
    if repeated { Err(StoreError::RepeatedKey) } else { Ok(()) }
}
