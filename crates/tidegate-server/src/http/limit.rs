//! `/limit/{key}`: one attribute, and the answer is the status. Everything that is asked most comes
//! through here, so nothing is allocated but what the answer is made of.

use ::http::Response;
use ::http::header::{CONTENT_TYPE, HeaderValue};
use bytes::Bytes;
use http_body_util::Full;
use tidegate::{Attribute, Call};
use tidegate_tower::{HeaderSet, Standing};

use super::problem::Problem;
use super::query::{Plus, Query, unescaped};
use super::route::LIMIT_PREFIX;
use super::status::{decided, plain};
use super::{Answered, Connection, HeldBack};
use crate::engine::Protocol;

/// The attribute that the path names.
const KEY: &str = "key";

/// What a call is told that passes.
pub(super) const ALLOWED: &[u8] = b"{\"allowed\":true}\n";

/// Decides a call. What passes is answered by `allowed`.
#[inline]
pub(super) async fn answer<T: From<Answered>>(
    connection: &Connection,
    (path, query): (&str, &str),
    allowed: impl FnOnce(&Standing<'_>, HeaderSet) -> T,
) -> HeldBack<T> {
    let rest = path.strip_prefix(LIMIT_PREFIX).unwrap_or_default();
    let key = match unescaped(rest, Plus::Itself) {
        Some(key) if !key.is_empty() => key,
        Some(_) => return bad("there is no key behind /limit/").into(),
        None => return bad("it is not percent-encoded").into(),
    };
    let query = match Query::of(query, &["domain", "cost"]) {
        Ok(query) => query,
        Err(problem) => return problem.answer().into(),
    };
    let attributes = [Attribute { name: KEY, value: &key }];
    let domain = query.domain.as_deref().unwrap_or(&connection.settings.default_domain);
    let call = Call::new(domain, &attributes).with_cost(query.cost.unwrap_or(1));
    decided(connection, (&call, Protocol::Http), allowed, plain).await
}

/// The answer to a call that passes.
pub(super) fn allowed(standing: &Standing<'_>, set: HeaderSet) -> Answered {
    let mut answer = Response::new(Full::new(Bytes::from_static(ALLOWED)));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    set.write(standing, answer.headers_mut());
    answer
}

#[cold]
fn bad(detail: &'static str) -> Answered {
    Problem::bad(KEY.to_owned(), detail).answer()
}
