//! Who decides for the layer: the seam between requests and limiters. Nothing here knows HTTP.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidegate::rules::{Foreseen, OnlyLeft};
use tidegate::{Attribute, Call, CheckError, Reads};
use tidegate_identity::Attributes;
use tidegate_rules::resolve::ResolveError;

use crate::keeper::Keeper;
use crate::standing::{Binding, Policy, Standing};

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

    /// Whether rules in force are of this domain, as far as that is known: requests that no rule is for pass, and nobody would
    /// notice.
    fn has_domain(&self, _domain: &str) -> bool {
        true
    }

    /// Begins a decision that [`decide_begun`](Self::decide_begun) makes. `None` from who has nothing to begin with.
    #[inline]
    fn begin(&self) -> Option<Self::Decided> {
        None
    }

    /// The attributes that a decision depends on which was [begun](Self::begin). No others are made of the request.
    #[inline]
    fn reads(&self, _begun: Option<&Self::Decided>) -> Reads {
        Reads::ALL
    }

    /// As [`decide_now`](Self::decide_now), where the decision stands that was [begun](Self::begin): it is large, and
    /// need not be moved.
    #[inline]
    fn decide_begun(
        &self,
        begun: &mut Option<Self::Decided>,
        call: &Call<'_>,
    ) -> Option<Result<(), Undecided>> {
        Some(self.decide_now(call)?.map(|decided| *begun = Some(decided)))
    }

    /// What follows from calls that are all described like this one, by the rules of a decision that was
    /// [begun](Self::begin), where that can be found before they are made.
    fn foresee(&self, _begun: &Self::Decided, _call: &Call<'_>) -> Option<Foreseen> {
        None
    }

    /// As [`decide_begun`](Self::decide_begun), for a call that was [foreseen](Self::foresee) and takes 1. Says whether it is
    /// decided; if not, nothing has happened.
    #[inline]
    fn decide_foreseen(&self, _begun: &mut Option<Self::Decided>, _foreseen: &Foreseen) -> bool {
        false
    }

    /// Decides, and may wait for somebody else. All attributes are there, whatever was begun before.
    fn decide(self: Arc<Self>, asked: Asked) -> Deciding<Self::Decided>;

    /// The response to a call is there, with this status. Rules that count by the response are told.
    fn responded(self: &Arc<Self>, decided: &mut Self::Decided, status: u16);

    /// Who renews the places that a call holds until it is over, where they would come back before.
    fn keeper(self: &Arc<Self>, _decided: &Self::Decided) -> Option<Keeper> {
        None
    }

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

    /// Whether the call may pass, and at once.
    #[inline]
    fn passes_at_once(&self) -> bool {
        self.is_allowed() && self.delay().is_zero()
    }

    /// What the client is told.
    fn standing(&self) -> Standing<'_>;

    /// The same of a call that passes, where policies are not told, so that they may be left out.
    #[inline]
    fn standing_without_policies(&self) -> Standing<'_> {
        self.standing()
    }

    /// The numbers of the binding limit of a call that passes, where its [standing](Self::standing) has them: the
    /// limit, what it has left, and the seconds until it has everything back, rounded up.
    #[inline]
    fn binding_numbers(&self) -> Option<[u64; 3]> {
        self.standing_without_policies().binding().map(Binding::numbers)
    }

    /// The policy of a call that passes under one limit and no other, as most do: all that its
    /// [standing](Self::standing) says is in it, the numbers of the binding limit too. `None` has the standing asked
    /// for; so it has to be for a call that is denied, and where the standing has no such numbers.
    #[inline]
    fn only_policy(&self) -> Option<Policy<'_>> {
        None
    }

    /// What the limit of that policy has left, with its mark. Who was told a policy before finds it by that, and does not ask
    /// for it again: the same mark has the same [`only_policy`](Self::only_policy), but for what is left. `None` where
    /// that is, and for whoever tells another policy than the limiter whose decision it has.
    #[inline]
    fn only_left(&self) -> Option<OnlyLeft> {
        None
    }

    /// What the client is told where its turn is further off than anybody waits.
    fn turned_away(&self, retry_after: Duration) -> Standing<'_>;

    /// Whether places are held until the call is over.
    fn holds_places(&self) -> bool;

    /// Whether somebody has to be told of the response.
    fn counts_responses(&self) -> bool;

    /// Whether somebody has to be told how the call goes on, for one of the two reasons above.
    #[inline]
    fn is_awaited(&self) -> bool {
        self.holds_places() || self.counts_responses()
    }
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
