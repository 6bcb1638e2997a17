//! The response to a call that is denied: status 429, the headers, and a problem that programs and
//! people can read.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use tidegate::Span;
use tidegate::rules::Reason;

use crate::decide::Undecided;
use crate::headers::HeaderSet;
use crate::standing::{Denial, Standing};
use crate::text::{put_name, put_number};

/// The media type of the body.
pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Room for a body with two policies of ordinary names.
const BODY_BYTES: usize = 512;

/// A whole response: 429 with the headers of the set, and the [body].
pub fn refusal(standing: &Standing<'_>, set: HeaderSet) -> Response<Bytes> {
    let mut response = Response::new(body(standing));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    set.write(standing, response.headers_mut());
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    response
}

/// A whole response to a call that was not decided: 503, or 400 where the request itself is the trouble.
pub fn undecided(why: Undecided) -> Response<Bytes> {
    match why {
        Undecided::Request => problem(StatusCode::BAD_REQUEST, &why.to_string(), ""),
        Undecided::Unavailable => {
            let more = r#","source":"fallback","degraded":true"#;
            let mut response =
                problem(StatusCode::SERVICE_UNAVAILABLE, &format!("not decided: {why}"), more);
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    }
}

/// A request that may be read in two ways.
pub(crate) fn doubtful(detail: &str) -> Response<Bytes> {
    problem(StatusCode::BAD_REQUEST, detail, "")
}

/// The texts are ours and have nothing in them that JSON writes in another way.
fn problem(status: StatusCode, detail: &str, more: &str) -> Response<Bytes> {
    let title = status.canonical_reason().unwrap_or("Error");
    let status_code = status.as_u16();
    let body = format!(
        r#"{{"type":"about:blank","title":"{title}","status":{status_code},"detail":"{detail}"{more}}}"#
    );
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The body of a refusal, of type [`PROBLEM_JSON`]: the members of RFC 9457 and of the problem type
/// `quota-exceeded`, and beside them `error`, `message`, `reason` and `retry_after_ms`. It is ASCII in
/// one line, so a proxy can hand it on in a header.
pub fn body(standing: &Standing<'_>) -> Bytes {
    let mut out = Vec::with_capacity(BODY_BYTES);
    put_body(standing, &mut out);
    Bytes::from(out)
}

/// Appends the same body, for servers that make their answers in memory of their own.
pub fn put_body(standing: &Standing<'_>, out: &mut Vec<u8>) {
    let none = Denial { reason: Reason::OverLimit, retry_after: None };
    let denial = standing.denial().unwrap_or(&none);
    let words = Words::of(denial.reason);
    out.extend_from_slice(
        br#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":""#,
    );
    out.extend_from_slice(words.detail.as_bytes());
    out.extend_from_slice(br#"","violated-policies":["#);
    let violated = standing.policies().filter(|(policy, _)| policy.is_violated());
    for (index, named) in violated.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        put_name(out, named);
    }
    out.extend_from_slice(br#"],"error":"rate_limit_exceeded","message":""#);
    out.extend_from_slice(words.message.as_bytes());
    match standing.retry_after_secs() {
        Some(secs) => {
            out.extend_from_slice(b" Try again after ");
            put_number(out, secs);
            out.extend_from_slice(if secs == 1 { b" second." } else { b" seconds." });
        }
        None => out.extend_from_slice(words.without_wait.as_bytes()),
    }
    out.extend_from_slice(br#"","reason":""#);
    out.extend_from_slice(denial.reason.as_str().as_bytes());
    out.extend_from_slice(br#"","retry_after_ms":"#);
    match denial.retry_after {
        Some(wait) => put_number(out, Span::from(wait).as_millis_ceil()),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// What a person is told, by the reason.
struct Words {
    /// About this occurrence, for who runs the client.
    detail: &'static str,
    /// For whoever sits before it.
    message: &'static str,
    /// What follows on the message where there is no time to wait for.
    without_wait: &'static str,
}

impl Words {
    const fn of(reason: Reason) -> Self {
        match reason {
            Reason::NeverFits => Self {
                detail: "The request costs more than a policy can ever give.",
                message: "This request is too large.",
                without_wait: " Trying again does not help.",
            },
            Reason::MissingAttribute => Self {
                detail: "The request lacks what a policy counts by.",
                message: "This request does not say who it is from.",
                without_wait: "",
            },
            Reason::Banned => Self {
                detail: "Requests like this one are blocked.",
                message: "Your requests are blocked.",
                without_wait: "",
            },
            // Whatever else there may come to be is about having too little.
            _ => Self {
                detail: "The quota of a policy is used up.",
                message: "Too many requests.",
                without_wait: " Try again later.",
            },
        }
    }
}
