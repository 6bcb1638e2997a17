//! `/v1/auth`: a proxy asks whether its client's request may pass. What describes that request is in
//! headers; the method, the path and the body of the proxy's own mean nothing.

use ::http::header::{HeaderName, HeaderValue};
use ::http::{HeaderMap, Response, StatusCode, Uri};
use bytes::Bytes;
use http_body_util::Full;
use tidegate::Call;
use tidegate_identity::{Attributes, Dialect, ForwardAuthError, forward_auth};
use tidegate_tower::refusal::PROBLEM_JSON;

use super::problem::Problem;
use super::query::Query;
use super::status::{decided, empty, plain};
use super::{Answered, Connection, HeldBack};
use crate::engine::Protocol;

/// The status that a proxy is to answer with, where it understands 401 and 403 only.
const X_STATUS: HeaderName = HeaderName::from_static("x-ratelimit-status");
/// The body that goes with it: such a proxy throws the real one away.
const X_BODY: HeaderName = HeaderName::from_static("x-ratelimit-body");

/// How a proxy describes requests, and which answers it understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Proxy {
    describes: Dialect,
    knows_every_status: bool,
}

pub(super) async fn answer(connection: &Connection, uri: &Uri, headers: &HeaderMap) -> HeldBack {
    made(connection, uri, headers).await.unwrap_or_else(|problem| problem.answer().into())
}

async fn made(
    connection: &Connection,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<HeldBack, Problem> {
    let query = Query::of(uri.query().unwrap_or_default(), &["domain", "cost", "dialect"])?;
    let proxy = Proxy::named(query.dialect.as_deref())?;
    let described = forward_auth(connection.peer, headers, proxy.describes)
        .map_err(|error| undescribed(&error))?;
    let engine = &connection.engine;
    let mut attributes = Attributes::new();
    engine.identity().attributes(&described, engine.limiter().now(), &mut attributes);
    let doubts = attributes.doubts();
    if doubts.host || doubts.api_key {
        // Whoever sends two keys may hope that the server behind counts the other one.
        return Ok(proxy.refused(doubtful(doubts.host)).into());
    }
    let list = attributes.list();
    let domain = query.domain.as_deref().unwrap_or(&connection.settings.default_domain);
    let call = Call::new(domain, &list).with_cost(query.cost.unwrap_or(1));
    let asked = (&call, Protocol::ForwardAuth);
    Ok(decided(connection, asked, empty, |refusal| proxy.refused(refusal)).await)
}

impl Proxy {
    fn named(dialect: Option<&str>) -> Result<Self, Problem> {
        let (describes, knows_every_status) = match dialect {
            None => (Dialect::Either, true),
            Some("forwarded") => (Dialect::Forwarded, true),
            Some("original") => (Dialect::Original, true),
            Some("nginx") => (Dialect::Original, false),
            Some(_) => {
                let detail = "it has to be `forwarded`, `original` or `nginx`";
                return Err(Problem::bad("?dialect".to_owned(), detail));
            }
        };
        Ok(Self { describes, knows_every_status })
    }

    /// What the client is to see, as this proxy understands it.
    fn refused(self, refusal: Response<Bytes>) -> Answered {
        if self.knows_every_status {
            return plain(refusal);
        }
        let (mut parts, body) = refusal.into_parts();
        parts.headers.insert(X_STATUS, HeaderValue::from(parts.status.as_u16()));
        if let Ok(body) = HeaderValue::from_maybe_shared(body) {
            parts.headers.insert(X_BODY, body);
        }
        parts.status = StatusCode::FORBIDDEN;
        Response::from_parts(parts, Full::default())
    }
}

/// The proxy is not set up as it should be, or its client meddles with its headers.
fn undescribed(error: &ForwardAuthError) -> Problem {
    let field = match error {
        ForwardAuthError::Missing(name) | ForwardAuthError::Repeated(name) => {
            Some((*name).to_owned())
        }
        _ => None,
    };
    Problem::bad(field, error.to_string())
}

/// The client's request can be read in two ways.
fn doubtful(host: bool) -> Response<Bytes> {
    let body: &'static [u8] = if host {
        br#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"the request names no host, or more than one","field":"host"}"#
    } else {
        br#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"the request has more than one API key, or half of one"}"#
    };
    let mut response = Response::new(Bytes::from_static(body));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(::http::header::CONTENT_TYPE, PROBLEM_JSON);
    response
}
