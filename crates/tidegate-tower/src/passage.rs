//! A request that was let through, until it is over: what its client is told, and who has to be told
//! when it ends, however it ends.

use std::sync::Arc;

use http::Response;

use crate::body::Enclose;
use crate::decide::{Decide, Decided};
use crate::grpc::http_status;
use crate::headers::{HeaderSet, Told};
use crate::keeper::{Keeper, Keeping};

/// What is left of a decision while its call is under way. For most calls that is what the client is told, and
/// little enough to be moved about with the future.
pub(crate) struct Passage<D: Decide> {
    told: Told,
    /// `None` where nobody cares how the call ends.
    kept: Option<Box<Kept<D>>>,
}

/// A decision about a call whose end somebody has to be told. It ends the call when it is dropped.
struct Kept<D: Decide> {
    decided: Option<D::Decided>,
    by: Arc<D>,
    /// Renews its places while it lasts.
    keeping: Option<Keeping>,
    /// Whether nobody has begun to work on it.
    is_waiting: bool,
}

impl<D: Decide> Passage<D> {
    /// Of a call that passes at once.
    #[inline(never)]
    pub(crate) fn at_once(decided: D::Decided, by: &Arc<D>, set: HeaderSet) -> Self {
        let mut passage = Self::undecided();
        passage.pass_at_once(&mut Some(decided), by, set);
        passage
    }

    /// Makes it that of a call that passes at once. The decision stays where it is for most calls.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "on the way of every request, where it is known to be empty"
    )]
    pub(crate) fn pass_at_once(
        &mut self,
        place: &mut Option<D::Decided>,
        by: &Arc<D>,
        set: HeaderSet,
    ) {
        let Some(decided) = place else { return };
        self.told = Told::of_decided(set, decided);
        if decided.is_awaited() {
            self.keep(place, by);
        }
    }

    #[cold]
    fn keep(&mut self, place: &mut Option<D::Decided>, by: &Arc<D>) {
        self.kept = place.take().map(|decided| Box::new(Kept::new(decided, by, false)));
    }

    /// Of a call that waits for its turn.
    pub(crate) fn waiting(decided: D::Decided, by: &Arc<D>, set: HeaderSet) -> Self {
        let told = Told::of_decided(set, &decided);
        Self { told, kept: Some(Box::new(Kept::new(decided, by, true))) }
    }

    /// Of a call that passes without a decision.
    #[inline]
    pub(crate) fn undecided() -> Self {
        Self { told: Told::default(), kept: None }
    }

    /// Its turn has come.
    pub(crate) fn begin(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.is_waiting = false;
        }
    }

    /// The response, with headers that tell the client where it stands. It is asked for once.
    pub(crate) fn respond<B, W: Enclose<B>>(
        &mut self,
        mut response: Response<B>,
    ) -> Response<W::Body> {
        self.tell(&mut response);
        self.enclose::<B, W>(response)
    }

    /// Tells the client where it stands.
    #[inline]
    pub(crate) fn tell<B>(&mut self, response: &mut Response<B>) {
        self.told.add_to(response.headers_mut());
    }

    /// Whether nobody cares how the call ends.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.kept.is_none()
    }

    /// The response with what is held until its end.
    pub(crate) fn enclose<B, W: Enclose<B>>(&mut self, response: Response<B>) -> Response<W::Body> {
        match self.kept.take() {
            None => response.map(W::plain),
            Some(kept) => kept.enclose::<B, W>(response),
        }
    }
}

impl<D: Decide> Kept<D> {
    fn new(decided: D::Decided, by: &Arc<D>, is_waiting: bool) -> Self {
        let keeping = by.keeper(&decided).and_then(Keeper::start);
        Self { decided: Some(decided), by: Arc::clone(by), keeping, is_waiting }
    }

    #[cold]
    fn enclose<B, W: Enclose<B>>(mut self: Box<Self>, response: Response<B>) -> Response<W::Body> {
        if self.responded(&response) {
            response.map(|body| W::held(body, self))
        } else {
            response.map(W::plain)
        }
    }

    /// The response is there. Says whether something is held until its end.
    fn responded<B>(&mut self, response: &Response<B>) -> bool {
        let Some(decided) = &mut self.decided else { return false };
        if decided.counts_responses() {
            self.by.responded(decided, http_status(response));
        }
        decided.holds_places()
    }
}

impl<D: Decide> Drop for Kept<D> {
    fn drop(&mut self) {
        let Some(decided) = self.decided.take() else { return };
        // First, so that nothing is renewed on the way that is given back.
        self.keeping = None;
        if self.is_waiting {
            self.by.withdrawn(decided);
        } else {
            self.by.ended(decided);
        }
    }
}
