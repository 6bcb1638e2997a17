//! `/limit/{key}`: one attribute, and the answer is the status. Everything that is asked most comes
//! through here, so nothing is allocated but what the answer is made of.

use std::borrow::Cow;

use ::http::Response;
use ::http::header::{CONTENT_TYPE, HeaderValue};
use bytes::Bytes;
use http_body_util::Full;
use tidegate::{Attribute, Call, Timestamp};

use super::problem::Problem;
use super::query::{Plus, Query, unescaped};
use super::route::LIMIT_PREFIX;
use super::status::{Passed, answered, decided, plain};
use super::{Answered, Connection, HeldBack, HttpSettings};
use crate::engine::Protocol;

/// The attribute that the path names.
const KEY: &str = "key";

/// What a call is told that passes.
pub(super) const ALLOWED: &[u8] = b"{\"allowed\":true}\n";

/// Decides a call. What passes is answered by `allowed`.
#[inline]
pub(super) async fn answer<T: From<Answered>>(
    connection: &Connection,
    target: (&str, &str),
    allowed: impl FnOnce(&Passed<'_>) -> T,
) -> HeldBack<T> {
    let asked = match Asked::of(target) {
        Ok(asked) => asked,
        Err(problem) => return problem.answer().into(),
    };
    let attributes = asked.attributes();
    let call = asked.call(&attributes, &connection.settings);
    decided(connection, (&call, Protocol::Http), allowed, plain).await
}

/// The same where memory decides, or what this node has leased, at an instant that was just read. `None` where a
/// store may have to be asked; nothing has happened then.
#[inline]
pub(super) fn answer_at_once<T: From<Answered>>(
    connection: &Connection,
    target: (&str, &str),
    now: Timestamp,
    allowed: impl FnOnce(&Passed<'_>) -> T,
) -> Option<HeldBack<T>> {
    let asked = match Asked::of(target) {
        Ok(asked) => asked,
        Err(problem) => return Some(problem.answer().into()),
    };
    let attributes = asked.attributes();
    let settings = &connection.settings;
    let call = asked.call(&attributes, settings);
    let over = (settings.delay_max, Protocol::Http);
    connection.engine.check_within_at_once(&call, over, now, |answer| {
        answered(settings, answer.as_ref().copied(), allowed, plain)
    })
}

/// What a target says.
struct Asked<'t> {
    key: Cow<'t, [u8]>,
    query: Query<'t>,
}

impl<'t> Asked<'t> {
    #[inline]
    fn of((path, query): (&'t str, &'t str)) -> Result<Self, Problem> {
        let rest = path.strip_prefix(LIMIT_PREFIX).unwrap_or_default();
        let key = match unescaped(rest, Plus::Itself) {
            Some(key) if !key.is_empty() => key,
            Some(_) => return Err(bad("there is no key behind /limit/")),
            None => return Err(bad("it is not percent-encoded")),
        };
        Ok(Self { key, query: Query::of(query, &["domain", "cost"])? })
    }

    #[inline]
    fn attributes(&self) -> [Attribute<'_>; 1] {
        [Attribute { name: KEY, value: &self.key }]
    }

    #[inline]
    fn call<'a>(&'a self, attributes: &'a [Attribute<'a>], settings: &'a HttpSettings) -> Call<'a> {
        let domain = self.query.domain.as_deref().unwrap_or(&settings.default_domain);
        Call::new(domain, attributes).with_cost(self.query.cost.unwrap_or(1))
    }
}

/// The answer to a call that passes.
pub(super) fn allowed(passed: &Passed<'_>) -> Answered {
    let mut answer = Response::new(Full::new(Bytes::from_static(ALLOWED)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    passed.write(answer.headers_mut());
    answer
}

#[cold]
fn bad(detail: &'static str) -> Problem {
    Problem::bad(KEY.to_owned(), detail)
}
