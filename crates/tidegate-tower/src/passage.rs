//! A request that was let through, until it is over: what its client is told, and who has to be told
//! when it ends, however it ends.

use std::sync::Arc;

use http::Response;

use crate::body::RateLimitBody;
use crate::decide::{Decide, Decided};
use crate::grpc::http_status;
use crate::headers::HeaderSet;

/// Ends its call when it is dropped.
pub(crate) struct Passage<D: Decide> {
    decided: Option<D::Decided>,
    /// Who has to be told; `None` where nobody cares how it ends, as with most calls.
    by: Option<Arc<D>>,
    /// Whether nobody has begun to work on it.
    is_waiting: bool,
}

impl<D: Decide> Passage<D> {
    /// Of a call that passes at once.
    #[inline]
    pub(crate) fn at_once(decided: D::Decided, by: &Arc<D>) -> Self {
        let by = (decided.holds_places() || decided.counts_responses()).then(|| Arc::clone(by));
        Self { decided: Some(decided), by, is_waiting: false }
    }

    /// Of a call that waits for its turn.
    pub(crate) fn waiting(decided: D::Decided, by: &Arc<D>) -> Self {
        Self { decided: Some(decided), by: Some(Arc::clone(by)), is_waiting: true }
    }

    /// Of a call that passes without a decision.
    pub(crate) fn undecided() -> Self {
        Self { decided: None, by: None, is_waiting: false }
    }

    /// Its turn has come.
    pub(crate) fn begin(&mut self) {
        self.is_waiting = false;
    }

    /// The response, with headers that tell the client where it stands.
    pub(crate) fn respond<B>(
        mut self,
        mut response: Response<B>,
        set: HeaderSet,
    ) -> Response<RateLimitBody<B>> {
        let Some(decided) = &mut self.decided else { return response.map(RateLimitBody::plain) };
        set.add(&decided.standing(), response.headers_mut());
        let Some(by) = &self.by else { return response.map(RateLimitBody::plain) };
        if decided.counts_responses() {
            by.responded(decided, http_status(&response));
        }
        if decided.holds_places() {
            response.map(|body| RateLimitBody::held(body, Box::new(self)))
        } else {
            response.map(RateLimitBody::plain)
        }
    }
}

impl<D: Decide> Drop for Passage<D> {
    fn drop(&mut self) {
        let (Some(by), Some(decided)) = (self.by.take(), self.decided.take()) else { return };
        if self.is_waiting {
            by.withdrawn(decided);
        } else {
            by.ended(decided);
        }
    }
}
