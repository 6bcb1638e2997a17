//! Who decides for the layer: the seam between requests and limiters. Nothing here knows HTTP.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate::{Attribute, Call, CheckError};
use tidegate_identity::Attributes;
use tidegate_rules::resolve::ResolveError;

use crate::standing::Standing;

/// Who decides whether a request may pass: a limiter in this process, one whose limits nodes share, or
/// a daemon elsewhere.
///
/// It is asked in two ways, because memory answers in less time than a future takes to be boxed. And what
/// may wait is not polled just to see: a future that is dropped half-way may have taken something.
///
/// A request that passes is ended in one of two ways. Either its response is
/// [there](Self::responded), and it is [over](Self::ended) when the last of its body is sent, or, where
/// nothing is sent any more, when that is known. Or it is [withdrawn](Self::withdrawn) before anybody
/// began to work on it.
pub trait Decide: Send + Sync + 'static {
    /// The answer to one call.
    type Decided: Decided;

    /// Decides at once, or says with `None` that it has to be [waited](Self::decide) for; then nothing
    /// has been taken.
    fn decide_now(&self, call: &Call<'_>) -> Option<Result<Self::Decided, Undecided>>;

    /// Decides, and may wait for somebody else.
    fn decide(self: Arc<Self>, asked: Asked) -> Deciding<Self::Decided>;

    /// The response to a call is there, with this status. Rules that count by the response are told.
    fn responded(self: &Arc<Self>, decided: &mut Self::Decided, status: u16);

    /// A call is over. Places that it holds are given back, and what it took stays taken.
    fn ended(self: &Arc<Self>, decided: Self::Decided);

    /// A call that was allowed has not been made. All that it took is given back.
    fn withdrawn(self: &Arc<Self>, decided: Self::Decided);
}

/// What was decided about one call.
pub trait Decided: Send + 'static {
    /// Whether the call may pass, perhaps after [`delay`](Self::delay).
    fn is_allowed(&self) -> bool;

    /// How long to hold an allowed call back.
    fn delay(&self) -> Duration;

    /// What the client is told.
    fn standing(&self) -> Standing<'_>;

    /// What the client is told where its turn is further off than anybody waits.
    fn turned_away(&self, retry_after: Duration) -> Standing<'_>;

    /// Whether places are held until the call is over.
    fn holds_places(&self) -> bool;

    /// Whether somebody has to be told of the response.
    fn counts_responses(&self) -> bool;
}

/// An answer that is waited for.
pub type Deciding<T> = Pin<Box<dyn Future<Output = Result<T, Undecided>> + Send>>;

/// A call that has to be kept while its answer is waited for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Whose rules.
    pub domain: Arc<str>,
    /// What describes it.
    pub attributes: Attributes,
    /// How much it takes.
    pub cost: u64,
}

impl Asked {
    /// The call, with attributes that [`Attributes::list`] made.
    pub fn call<'a>(&'a self, attributes: &'a [Attribute<'a>]) -> Call<'a> {
        Call::new(&self.domain, attributes).with_cost(self.cost)
    }
}

/// Why a call was not decided. That is no denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Undecided {
    /// The request says more than rules look at. Nothing was taken.
    Request,
    /// Nobody could decide. Where a store did not answer in time, something may have been taken.
    Unavailable,
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "the request has more attributes than rules look at",
            Self::Unavailable => "whoever keeps the limits does not answer",
        })
    }
}

impl std::error::Error for Undecided {}

impl From<CheckError> for Undecided {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Resolve(ResolveError::TooManyAttributes { .. }) => Self::Request,
            _ => Self::Unavailable,
        }
    }
}
