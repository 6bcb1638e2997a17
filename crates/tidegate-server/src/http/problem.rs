//! What goes wrong, as a problem of RFC 9457. A refusal is none of these: it is a decision, and is
//! written in `tidegate-tower`.

use std::borrow::Cow;

use ::http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use ::http::{Method, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use serde::Serialize;
use tidegate::{CheckError, Source};
use tidegate_rules::resolve::ResolveError;
use tidegate_tower::refusal::PROBLEM_JSON;

use super::Answered;

/// A request that is not answered with a decision.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Problem {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: Cow<'static, str>,
    /// What it is about: a JSON pointer into the body, `?name` in the query, or the name of a header.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// As in the answer to a check, where a store is the trouble.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<bool>,
}

impl Problem {
    fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let detail = detail.into();
        Self {
            r#type: "about:blank",
            title,
            status: status.as_u16(),
            detail,
            field: None,
            source: None,
            degraded: None,
        }
    }

    /// The request says something wrong, at this place.
    pub(super) fn bad(
        field: impl Into<Option<String>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { field: field.into(), ..Self::new(StatusCode::BAD_REQUEST, detail) }
    }

    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is nothing here; /openapi.json says what there is")
    }

    pub(super) fn method(method: &Method) -> Self {
        // A method can be any word of the client's; only the usual ones are repeated.
        let detail = match method.as_str() {
            word @ ("GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS") => {
                Cow::Owned(format!("{word} is not for this path"))
            }
            _ => Cow::Borrowed("this method is not for this path"),
        };
        Self::new(StatusCode::METHOD_NOT_ALLOWED, detail)
    }

    pub(super) fn too_slow() -> Self {
        Self::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")
    }

    pub(super) fn too_large(what: &str, max: usize) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, format!("{what}; at most {max} are taken"))
    }

    pub(super) fn media_type() -> Self {
        let field = Some("content-type".to_owned());
        let detail = "the body has to be application/json";
        Self { field, ..Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail) }
    }

    /// The call could not be decided. That is never a refusal: whoever asks applies a policy of their
    /// own for the time that we are in trouble.
    pub(super) fn undecided(error: &CheckError) -> Self {
        match error {
            CheckError::Resolve(ResolveError::TooManyAttributes { max }) => {
                let detail = format!("there are too many attributes; at most {max} are looked at");
                Self::bad("/attributes".to_owned(), detail)
            }
            CheckError::Resolve(error) => Self::bad(None, error.to_string()),
            CheckError::Store(_) => Self {
                source: Some(Source::Fallback.as_str()),
                degraded: Some(true),
                ..Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("not decided: {error}"))
            },
            _ => Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("not decided: {error}")),
        }
    }

    /// Memory always answers at once, so nobody sees this.
    pub(super) fn late() -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "not decided: the answer was not there at once")
    }

    /// A mistake of ours. What it is stands in the log, and is not for clients.
    pub(super) fn panicked() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "something went wrong here")
    }

    pub(super) fn answer(&self) -> Answered {
        // Strings and numbers always have a form in JSON.
        let body = serde_json::to_vec(self).unwrap_or_default();
        let mut answer = Response::new(Full::new(Bytes::from(body)));
        *answer.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        answer.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
        if self.degraded.is_some() {
            answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate::StoreError;

    #[test]
    fn only_a_store_in_trouble_is_told_as_one() {
        let told = |error| {
            let problem = Problem::undecided(&error);
            (problem.status, problem.source, problem.degraded)
        };
        let store = CheckError::Store(StoreError::Unreachable);
        assert_eq!(told(store), (503, Some("fallback"), Some(true)));
        for error in
            [ResolveError::TooManyAttributes { max: 8 }, ResolveError::TooManyLimits { max: 8 }]
        {
            assert_eq!(told(CheckError::Resolve(error)), (400, None, None), "{error}");
        }
    }
}
