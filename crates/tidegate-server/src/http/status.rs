//! Answers that are a status: the standing of a caller in headers, a refusal, and the delay of a leaky
//! bucket, which is waited out here because the caller is not told of it.

use ::http::Response;
use bytes::Bytes;
use http_body_util::Full;
use tidegate::Call;
use tidegate_tower::{HeaderSet, Standing, refusal};

use super::problem::Problem;
use super::{Answered, Connection, HeldBack};
use crate::engine::Protocol;

/// Decides a call. What passes is answered by `allowed`, which writes the headers; what does not by 429,
/// which `refused` may change.
#[inline]
pub(super) async fn decided<T: From<Answered>>(
    connection: &Connection,
    (call, over): (&Call<'_>, Protocol),
    allowed: impl FnOnce(&Standing<'_>, HeaderSet) -> T,
    refused: impl FnOnce(Response<Bytes>) -> Answered,
) -> HeldBack<T> {
    let settings = &connection.settings;
    let answer = match connection.engine.check_within(call, settings.delay_max, over).await {
        Ok(answer) => answer,
        Err(error) => return Problem::undecided(&error).answer().into(),
    };
    let standing = answer.standing();
    if !answer.is_allowed() {
        return refused(refusal(&standing, settings.headers)).into();
    }
    HeldBack { answer: allowed(&standing, settings.headers), delay: answer.delay() }
}

/// An answer without a body to a call that passes.
pub(super) fn empty(standing: &Standing<'_>, set: HeaderSet) -> Answered {
    let mut answer = Answered::default();
    set.write(standing, answer.headers_mut());
    answer
}

/// A refusal as it is.
pub(super) fn plain(refusal: Response<Bytes>) -> Answered {
    refusal.map(Full::new)
}
