//! The request that a proxy asks about, from the headers in which it describes it.
//!
//! Proxies that ask an endpoint before they let a request pass (nginx's `auth_request`, Traefik's
//! `forwardAuth`, Caddy's `forward_auth`) send a request of their own. Its method, target and host are
//! about the endpoint; those of the client's request are in headers, and only there.

use core::fmt;
use core::net::IpAddr;

use http::HeaderMap;
use http::header::HeaderName;

use crate::request::{Host, RequestParts, split_target};

/// In which headers a proxy describes a request.
///
/// Most proxies hand on the headers of their client, so one that writes the first kind lets a client
/// write the second. Whoever believes both lets clients choose their path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Whichever of the two there is. A request that has both is refused.
    #[default]
    Either,
    /// `X-Forwarded-Method`, `X-Forwarded-Uri`, `X-Forwarded-Host`: Traefik and Caddy.
    Forwarded,
    /// `X-Original-Method`, `X-Original-URI`, `X-Original-Host`: nginx, as people configure it.
    Original,
}

/// Why headers describe no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForwardAuthError {
    /// This header is missing.
    Missing(&'static str),
    /// This header is there more than once.
    Repeated(&'static str),
    /// Both kinds of headers are there, and one may be the client's own.
    BothDialects,
}

impl fmt::Display for ForwardAuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(name) => {
                write!(f, "the proxy does not say which request it is about: `{name}` is missing")
            }
            Self::Repeated(name) => {
                write!(f, "`{name}` is there more than once: let the proxy set it, not add to it")
            }
            Self::BothDialects => f.write_str(
                "there are `x-forwarded-` and `x-original-` headers: let the proxy remove those \
                 which it does not set, or name its dialect",
            ),
        }
    }
}

impl std::error::Error for ForwardAuthError {}

/// The names of the headers of a dialect.
struct Names {
    method: &'static str,
    target: &'static str,
    host: &'static str,
}

const FORWARDED: Names =
    Names { method: "x-forwarded-method", target: "x-forwarded-uri", host: "x-forwarded-host" };
const ORIGINAL: Names =
    Names { method: "x-original-method", target: "x-original-uri", host: "x-original-host" };

/// The request that these headers describe.
///
/// `peer` is the proxy. The client's address is found as for any request, past trusted proxies: so the
/// proxy belongs among them, and has to send `X-Forwarded-For`.
pub fn forward_auth(
    peer: Option<IpAddr>,
    headers: &HeaderMap,
    dialect: Dialect,
) -> Result<RequestParts<'_>, ForwardAuthError> {
    // Hosts are no sign of a dialect: plain proxies send `X-Forwarded-Host` too.
    let speaks =
        |names: &Names| headers.contains_key(names.method) || headers.contains_key(names.target);
    let names = match dialect {
        Dialect::Forwarded => FORWARDED,
        Dialect::Original => ORIGINAL,
        Dialect::Either => match (speaks(&FORWARDED), speaks(&ORIGINAL)) {
            (true, true) => return Err(ForwardAuthError::BothDialects),
            (false, true) => ORIGINAL,
            (true | false, false) => FORWARDED,
        },
    };
    let method = one(headers, names.method)?.ok_or(ForwardAuthError::Missing(names.method))?;
    let target = one(headers, names.target)?.ok_or(ForwardAuthError::Missing(names.target))?;
    let (in_target, path, query) = split_target(method, target);
    let host = one(headers, names.host)?.or(in_target).map_or(Host::Absent, Host::Named);
    Ok(RequestParts { peer, method, host, path, query, headers })
}

fn one<'h>(
    headers: &'h HeaderMap,
    name: &'static str,
) -> Result<Option<&'h [u8]>, ForwardAuthError> {
    let mut values = headers.get_all(HeaderName::from_static(name)).into_iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value.map(http::HeaderValue::as_bytes)),
        (_, Some(_)) => Err(ForwardAuthError::Repeated(name)),
    }
}
