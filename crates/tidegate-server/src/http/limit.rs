//! `/limit/{key}`: one attribute, and the answer is the status. Everything that is asked most comes
//! through here, so nothing is allocated but what the answer is made of.

use ::http::header::{CONTENT_TYPE, HeaderValue};
use ::http::{Response, Uri};
use bytes::Bytes;
use http_body_util::Full;
use tidegate::{Attribute, Call};

use super::problem::Problem;
use super::query::{Plus, Query, unescaped};
use super::route::LIMIT_PREFIX;
use super::status::{decided, plain};
use super::{Answered, Connection, HeldBack};
use crate::engine::Protocol;

/// The attribute that the path names.
const KEY: &str = "key";

#[inline]
pub(super) fn answer(connection: &Connection, uri: &Uri) -> HeldBack {
    let rest = uri.path().strip_prefix(LIMIT_PREFIX).unwrap_or_default();
    let key = match unescaped(rest, Plus::Itself) {
        Some(key) if !key.is_empty() => key,
        Some(_) => return bad("there is no key behind /limit/"),
        None => return bad("it is not percent-encoded"),
    };
    let query = match Query::of(uri, &["domain", "cost"]) {
        Ok(query) => query,
        Err(problem) => return problem.answer().into(),
    };
    let attributes = [Attribute { name: KEY, value: &key }];
    let domain = query.domain.as_deref().unwrap_or(&connection.settings.default_domain);
    let call = Call::new(domain, &attributes).with_cost(query.cost.unwrap_or(1));
    decided(connection, (&call, Protocol::Http), allowed, plain)
}

#[inline]
fn allowed() -> Answered {
    let mut answer = Response::new(Full::new(Bytes::from_static(b"{\"allowed\":true}\n")));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

#[cold]
fn bad(detail: &'static str) -> HeldBack {
    Problem::bad(KEY.to_owned(), detail).answer().into()
}
