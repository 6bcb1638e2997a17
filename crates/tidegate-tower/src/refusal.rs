//! The response to a call that is denied: status 429, the headers, and a problem that programs and
//! people can read.

use std::cell::RefCell;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use tidegate::Span;
use tidegate::rules::Reason;

use crate::decide::Undecided;
use crate::headers::HeaderSet;
use crate::standing::{Standing, Unit, secs_ceil};
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

/// Appends a whole refusal as HTTP/1 has it, for servers that make their answers themselves: the lines of its headers, all
/// but the length of the body and the date, then what `end_head` appends, which is told that length, and the same
/// [body] where it says that one follows. Who is denied is often denied again and again, so the last refusal is kept
/// and copied where nothing is new but the part of the wait that is below a second.
pub fn put(
    standing: &Standing<'_>,
    set: HeaderSet,
    out: &mut Vec<u8>,
    end_head: impl FnOnce(&mut Vec<u8>, usize) -> bool,
) {
    thread_local! {
        static LAST: RefCell<Last> = RefCell::default();
    }
    LAST.with(|last| match last.try_borrow_mut() {
        Ok(mut last) => last.put(standing, set, out, end_head),
        // It is in use where an `end_head` appends a refusal itself.
        Err(_) => Last::default().put(standing, set, out, end_head),
    });
}

/// A refusal that was made before, without what follows on the last name in its body.
#[derive(Default)]
struct Last {
    /// What it says; `None` where that may be more.
    facts: Option<Facts>,
    /// Of its policy.
    name: String,
    lines: Vec<u8>,
    body: Vec<u8>,
}

impl Last {
    /// Appends the refusal for a standing.
    #[inline]
    fn put(
        &mut self,
        standing: &Standing<'_>,
        set: HeaderSet,
        out: &mut Vec<u8>,
        end_head: impl FnOnce(&mut Vec<u8>, usize) -> bool,
    ) {
        self.follow(standing, set);
        let mut digits = itoa::Buffer::new();
        let wait = wait(standing).map_or("null", |millis| digits.format(millis));
        out.extend_from_slice(&self.lines);
        if end_head(out, self.body.len() + wait.len() + 1) {
            out.extend_from_slice(&self.body);
            out.extend_from_slice(wait.as_bytes());
            out.push(b'}');
        }
    }

    /// Makes it the refusal for a standing, where it is another one.
    #[inline]
    fn follow(&mut self, standing: &Standing<'_>, set: HeaderSet) {
        let known = Facts::of(standing, set);
        match &known {
            Some((facts, name)) if self.facts.as_ref() == Some(facts) && self.name == *name => {}
            _ => self.make(standing, set, known),
        }
    }

    #[cold]
    fn make(&mut self, standing: &Standing<'_>, set: HeaderSet, known: Option<(Facts, &str)>) {
        self.name.clear();
        self.name.push_str(known.map_or("", |(_, name)| name));
        self.facts = known.map(|(facts, _)| facts);
        self.lines.clear();
        put_lines(standing, set, &mut self.lines);
        self.body.clear();
        put_body_but_wait(standing, &mut self.body);
    }
}

/// All that a refusal by one policy says, but for the name of the policy and the wait in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Facts {
    set: HeaderSet,
    reason: Reason,
    unit: Unit,
    is_violated: bool,
    /// Quota, window and what is left.
    policy: [u64; 3],
    until_secs: Option<u64>,
    /// The binding limit, what it has left, and when it has everything back.
    binding: Option<[u64; 3]>,
    retry_after_secs: Option<u64>,
}

impl Facts {
    /// With the name; `None` where there is more than one policy, or none.
    #[inline]
    fn of<'s>(standing: &Standing<'s>, set: HeaderSet) -> Option<(Self, &'s str)> {
        let (policy, denial) = (standing.only_policy()?, standing.denial()?);
        let binding = standing
            .binding()
            .map(|binding| [binding.limit, binding.remaining, secs_ceil(binding.reset_after)]);
        let facts = Self {
            set,
            reason: denial.reason,
            unit: policy.unit(),
            is_violated: policy.is_violated(),
            policy: [policy.quota(), policy.window_secs(), policy.remaining()],
            until_secs: standing.until_secs(policy),
            binding,
            retry_after_secs: standing.retry_after_secs(),
        };
        Some((facts, policy.name()))
    }
}

fn put_lines(standing: &Standing<'_>, set: HeaderSet, out: &mut Vec<u8>) {
    set.write_lines(standing, out);
    out.extend_from_slice(b"cache-control: no-store\r\ncontent-type: application/problem+json\r\n");
}

fn put_body(standing: &Standing<'_>, out: &mut Vec<u8>) {
    put_body_but_wait(standing, out);
    put_wait(standing, out);
}

fn put_body_but_wait(standing: &Standing<'_>, out: &mut Vec<u8>) {
    let reason = standing.denial().map_or(Reason::OverLimit, |denial| denial.reason);
    let words = Words::of(reason);
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
    out.extend_from_slice(reason.as_str().as_bytes());
    out.extend_from_slice(br#"","retry_after_ms":"#);
}

/// What the body ends with.
fn put_wait(standing: &Standing<'_>, out: &mut Vec<u8>) {
    match wait(standing) {
        Some(millis) => put_number(out, millis),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// The wait in milliseconds; `None` where waiting does not help.
#[inline]
fn wait(standing: &Standing<'_>) -> Option<u64> {
    let wait = standing.denial()?.retry_after?;
    Some(Span::from(wait).as_millis_ceil())
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::standing::Policy;

    #[test]
    fn a_refusal_that_is_copied_is_the_one_that_would_be_made() {
        let millis = Duration::from_millis;
        let policy = |name, remaining, retry_after| {
            Policy::new(name, 9, remaining).per(millis(60_000)).violated(retry_after)
        };
        let denied = |reason, retry_after| Standing::denied(reason, retry_after);
        let over = |name, left, wait| {
            let wait = Some(millis(wait));
            denied(Reason::OverLimit, wait).with(policy(name, left, wait)).bound_by(
                9,
                left,
                millis(50_000),
            )
        };
        let never = denied(Reason::NeverFits, None).with(policy("a", 0, None));
        let standings = [
            over("a", 0, 1_500),
            over("a", 0, 1_499),
            over("a", 0, 1_500),
            over("a", 0, 999),
            over("a", 1, 999),
            over("b", 1, 999),
            over("b", 1, 999).bound_by(9, 2, millis(50_000)),
            over("b", 1, 999).bound_by(9, 2, millis(51_000)),
            over("b", 1, 999).with(policy("b", 0, None)),
            over("b\u{e9}", 1, 999).with(policy("b?", 0, None)),
            never.clone(),
            denied(Reason::Banned, None).with(policy("a", 0, None)),
            denied(Reason::Banned, None)
                .with(policy("a", 0, None).counting(Unit::ConcurrentRequests)),
            denied(Reason::Banned, None).with(Policy::new("a", 9, 0)),
            denied(Reason::Banned, None),
            never,
        ];
        for standing in &standings {
            for set in [HeaderSet::All, HeaderSet::XRateLimit, HeaderSet::All, HeaderSet::None] {
                // Once made, then copied.
                for has_body in [true, true, false] {
                    let mut out = Vec::new();
                    put(standing, set, &mut out, |out, length| {
                        out.extend_from_slice(format!("{length}\r\n\r\n").as_bytes());
                        has_body
                    });
                    let (mut whole, body) = (Vec::new(), body(standing));
                    put_lines(standing, set, &mut whole);
                    whole.extend_from_slice(format!("{}\r\n\r\n", body.len()).as_bytes());
                    whole.extend_from_slice(if has_body { &body } else { &[] });
                    assert_eq!(out, whole, "{standing:?}");
                }
            }
        }
    }

    #[test]
    fn a_refusal_can_be_appended_while_another_one_is() {
        let outer = Standing::denied(Reason::Banned, None).with(Policy::new("a", 9, 0));
        let inner = Standing::denied(Reason::NeverFits, None).with(Policy::new("b", 9, 0));
        let alone = |standing: &Standing<'_>| {
            let mut out = Vec::new();
            put(standing, HeaderSet::All, &mut out, |_, _| true);
            out
        };
        let (mut out, mut within) = (Vec::new(), Vec::new());
        put(&outer, HeaderSet::All, &mut out, |_, _| {
            within = alone(&inner);
            true
        });
        assert_eq!((out, within), (alone(&outer), alone(&inner)));
    }
}
