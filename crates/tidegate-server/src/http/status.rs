//! Answers that are a status: the standing of a caller in headers, a refusal, and the delay of a leaky
//! bucket, which is waited out here because the caller is not told of it.

use std::borrow::Borrow;

use ::http::header::{HeaderName, HeaderValue};
use ::http::{HeaderMap, Response};
use bytes::Bytes;
use http_body_util::Full;
use tidegate::{Call, CheckError, RuleDecision};
use tidegate_tower::{HeaderSet, Standing, refusal};

use super::problem::Problem;
use super::{Answered, Connection, HeldBack, HttpSettings};
use crate::answer::Answer;
use crate::engine::Protocol;

/// What names the places that a call was given under concurrency limits: there is no body to say it in.
static LEASE_ID: HeaderName = HeaderName::from_static("x-ratelimit-lease-id");

/// What a call is told that passes.
pub(super) struct Passed<'a> {
    standing: Standing<'a>,
    set: HeaderSet,
    lease_id: Option<String>,
}

impl Passed<'_> {
    /// As headers.
    #[inline]
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        self.set.write(&self.standing, headers);
        if let Some(Ok(lease_id)) = self.lease_id.as_deref().map(HeaderValue::from_str) {
            headers.insert(&LEASE_ID, lease_id);
        }
    }

    /// The same as lines of HTTP/1.
    #[inline]
    pub(super) fn write_lines(&self, out: &mut Vec<u8>) {
        self.set.write_lines(&self.standing, out);
        if let Some(lease_id) = &self.lease_id {
            for part in [LEASE_ID.as_str(), ": ", lease_id, "\r\n"] {
                out.extend_from_slice(part.as_bytes());
            }
        }
    }
}

/// Decides a call. What passes is answered by `allowed`, which writes the headers; what does not by 429,
/// which `refused` may change.
#[inline]
pub(super) async fn decided<T: From<Answered>>(
    connection: &Connection,
    (call, over): (&Call<'_>, Protocol),
    allowed: impl FnOnce(&Passed<'_>) -> T,
    refused: impl FnOnce(Response<Bytes>) -> Answered,
) -> HeldBack<T> {
    let settings = &connection.settings;
    let answer = connection.engine.check_within(call, settings.delay_max, over).await;
    answered(settings, answer.as_ref(), allowed, refused)
}

/// The answer to a call that was decided, or could not be.
#[inline]
pub(super) fn answered<D: Borrow<RuleDecision>, T: From<Answered>>(
    settings: &HttpSettings,
    answer: Result<&Answer<D>, &CheckError>,
    allowed: impl FnOnce(&Passed<'_>) -> T,
    refused: impl FnOnce(Response<Bytes>) -> Answered,
) -> HeldBack<T> {
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Problem::undecided(error).answer().into(),
    };
    let standing = answer.standing();
    if !answer.is_allowed() {
        return refused(refusal(&standing, settings.headers)).into();
    }
    let passed = Passed { standing, set: settings.headers, lease_id: answer.lease_id() };
    HeldBack { answer: allowed(&passed), delay: answer.delay() }
}

/// An answer without a body to a call that passes.
pub(super) fn empty(passed: &Passed<'_>) -> Answered {
    let mut answer = Answered::default();
    passed.write(answer.headers_mut());
    answer
}

/// A refusal as it is.
pub(super) fn plain(refusal: Response<Bytes>) -> Answered {
    refusal.map(Full::new)
}
