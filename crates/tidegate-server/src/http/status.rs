//! Answers that are a status: the standing of a caller in headers, a refusal, and the delay of a leaky
//! bucket, which is waited out here because the caller is not told of it.

use ::http::Response;
use bytes::Bytes;
use http_body_util::Full;
use tidegate::Call;
use tidegate_tower::{Standing, refusal};

use super::problem::Problem;
use super::{Answered, Connection, HeldBack};
use crate::answer::Answer;
use crate::engine::Protocol;

/// Decides a call. What passes is answered by `allowed`, to which the headers are added; what does not
/// by 429, which `refused` may change.
#[inline]
pub(super) fn decided(
    connection: &Connection,
    (call, over): (&Call<'_>, Protocol),
    allowed: impl FnOnce() -> Answered,
    refused: impl FnOnce(Response<Bytes>) -> Answered,
) -> HeldBack {
    let settings = &connection.settings;
    let answer = match connection.engine.check_within(call, settings.delay_max, over) {
        Ok(answer) => answer,
        Err(error) => return Problem::undecided(&error).answer().into(),
    };
    let standing = standing(&answer);
    if !answer.is_allowed() {
        return refused(refusal(&standing, settings.headers)).into();
    }
    let mut shown = allowed();
    settings.headers.write(&standing, shown.headers_mut());
    HeldBack { answer: shown, delay: answer.delay() }
}

/// A refusal as it is.
pub(super) fn plain(refusal: Response<Bytes>) -> Answered {
    refusal.map(Full::new)
}

/// What clients are told of an answer.
fn standing(answer: &Answer) -> Standing<'_> {
    match (answer.decision(), answer.denied_for()) {
        (Some(decision), None) => Standing::let_through(decision),
        (Some(decision), Some(reason)) => {
            Standing::turned_away(decision, reason, answer.retry_after())
        }
        (None, None) => Standing::allowed(),
        (None, Some(reason)) => Standing::denied(reason, answer.retry_after()),
    }
}
