//! Refusals as gRPC clients understand them: a response that is nothing but trailers, with the details of
//! `google.rpc` that say when to come back and what is used up. The few messages are written here by
//! hand, so that who serves HTTP alone builds no gRPC.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use tidegate::Span;
use tidegate::rules::Reason;

use crate::decide::Undecided;
use crate::headers::HeaderSet;
use crate::standing::{Denial, Standing};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
/// The trailer by which a server sets the pace of a client's retries. A negative number means that
/// there should be none.
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const INVALID_ARGUMENT: u8 = 3;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNAVAILABLE: u8 = 14;

/// The content type of a request where it is a call of gRPC, in which the answer has to be given.
pub fn content_type(headers: &HeaderMap) -> Option<&HeaderValue> {
    const GRPC: &[u8] = b"application/grpc";
    headers.get(CONTENT_TYPE).filter(|value| {
        let Some((first, rest)) = value.as_bytes().split_at_checked(GRPC.len()) else {
            return false;
        };
        // `application/grpc-web` is spoken by browsers, `application/grpcurl` by nobody.
        first.eq_ignore_ascii_case(GRPC)
            && matches!(rest.first(), None | Some(b'+' | b'-' | b';' | b' '))
    })
}

/// A whole response: `RESOURCE_EXHAUSTED` with `RetryInfo`, `QuotaFailure`, the trailer that gRPC's own
/// retries obey, and the headers of the set.
pub fn refusal(
    standing: &Standing<'_>,
    set: HeaderSet,
    content_type: HeaderValue,
) -> Response<Bytes> {
    let none = Denial { reason: Reason::OverLimit, retry_after: None };
    let Denial { reason, retry_after } = *standing.denial().unwrap_or(&none);
    let wait_ms = retry_after.map(|wait| Span::from(wait).as_millis_ceil());
    let message = match wait_ms {
        Some(ms) => format!("{}: try again after {ms} ms", reason.as_str()),
        None => format!("{}: trying again does not help", reason.as_str()),
    };
    let mut response = trailers_only(RESOURCE_EXHAUSTED, &message, content_type);
    let headers = response.headers_mut();
    set.write(standing, headers);
    let details = STANDARD_NO_PAD.encode(details(standing, &message, reason, retry_after));
    put(headers, DETAILS, &details);
    put(headers, PUSHBACK, &wait_ms.map_or_else(|| "-1".to_owned(), |ms| ms.to_string()));
    response
}

/// A whole response to a call that was not decided, which is no denial.
pub fn undecided(why: Undecided, content_type: HeaderValue) -> Response<Bytes> {
    let code = match why {
        Undecided::Request => INVALID_ARGUMENT,
        Undecided::Unavailable => UNAVAILABLE,
    };
    trailers_only(code, &why.to_string(), content_type)
}

/// A request that may be read in two ways.
pub(crate) fn doubtful(message: &str, content_type: HeaderValue) -> Response<Bytes> {
    trailers_only(INVALID_ARGUMENT, message, content_type)
}

fn trailers_only(code: u8, message: &str, content_type: HeaderValue) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(STATUS, HeaderValue::from(u16::from(code)));
    put(headers, MESSAGE, message);
    response
}

/// What is written here is printable ASCII without percent signs, so there is always a value.
fn put(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

/// The status that rules count a response by. gRPC answers 200 whatever happened and says the rest in
/// its own status, which is here where nothing but an error was sent. The numbers are those that
/// `google.rpc.Code` gives.
pub fn http_status<B>(response: &Response<B>) -> u16 {
    let status = response.status();
    let Some(code) = response.headers().get(STATUS).filter(|_| status == StatusCode::OK) else {
        return status.as_u16();
    };
    match code.as_bytes() {
        b"0" => 200,
        b"1" => 499,
        b"3" | b"9" | b"11" => 400,
        b"4" => 504,
        b"5" => 404,
        b"6" | b"10" => 409,
        b"7" => 403,
        b"8" => 429,
        b"12" => 501,
        b"14" => 503,
        b"16" => 401,
        // Unknown, internal, lost data, and what else there may come to be.
        _ => 500,
    }
}

/// `google.rpc.Status` with its details.
fn details(
    standing: &Standing<'_>,
    message: &str,
    reason: Reason,
    retry_after: Option<Duration>,
) -> Vec<u8> {
    let mut status = Vec::with_capacity(256);
    put_number(&mut status, 1, RESOURCE_EXHAUSTED.into());
    put_bytes(&mut status, 2, message.as_bytes());
    if let Some(wait) = retry_after {
        put_any(&mut status, "RetryInfo", &retry_info(wait));
    }
    put_any(&mut status, "QuotaFailure", &quota_failure(standing, reason));
    status
}

fn retry_info(wait: Duration) -> Vec<u8> {
    let mut duration = Vec::new();
    put_number(&mut duration, 1, wait.as_secs());
    put_number(&mut duration, 2, wait.subsec_nanos().into());
    let mut info = Vec::new();
    put_bytes(&mut info, 1, &duration);
    info
}

/// It names policies, and not whom they count.
fn quota_failure(standing: &Standing<'_>, reason: Reason) -> Vec<u8> {
    let mut failure = Vec::new();
    let mut add = |subject: &str, policy: Option<(&str, u64)>| {
        let mut violation = Vec::new();
        put_bytes(&mut violation, 1, subject.as_bytes());
        put_bytes(&mut violation, 2, reason.as_str().as_bytes());
        put_bytes(&mut violation, 3, b"tidegate");
        if let Some((name, quota)) = policy {
            put_bytes(&mut violation, 4, name.as_bytes());
            put_number(&mut violation, 7, quota.min(i64::MAX.unsigned_abs()));
        }
        put_bytes(&mut failure, 1, &violation);
    };
    let mut any = false;
    for (policy, _) in standing.policies().filter(|(policy, _)| policy.is_violated()) {
        any = true;
        add(&format!("policy:{}", policy.name()), Some((policy.name(), policy.quota())));
    }
    if !any {
        // A rule that denies whatever has been taken, or a ban.
        add("client", None);
    }
    failure
}

fn put_any(out: &mut Vec<u8>, name: &str, message: &[u8]) {
    let mut any = Vec::with_capacity(message.len() + 48);
    put_bytes(&mut any, 1, format!("type.googleapis.com/google.rpc.{name}").as_bytes());
    put_bytes(&mut any, 2, message);
    put_bytes(out, 3, &any);
}

/// A field of bytes, text or another message.
fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A field of a number; 0 is said by leaving it out.
fn put_number(out: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        out.push(field << 3);
        put_varint(out, number);
    }
}

fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
