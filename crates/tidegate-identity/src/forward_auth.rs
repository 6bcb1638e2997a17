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
    /// `X-Original-Method`, `X-Original-URI`, `X-Original-Host`: nginx, as people configure it. Or `X-Original-Method` and
    /// `X-Original-URL`, which has the host in it: ingress-nginx.
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
    /// `X-Original-URI` and `X-Original-URL` are there, and one may be the client's own.
    BothTargets,
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
            Self::BothTargets => f.write_str(
                "there are `x-original-uri` and `x-original-url`: let the proxy remove the one which \
                 it does not set",
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

/// Where ingress-nginx puts scheme, host, path and query in one.
const ORIGINAL_URL: &str = "x-original-url";

/// The request that these headers describe.
///
/// `peer` is the proxy. The client's address is found as for any request, past trusted proxies: so the
/// proxy belongs among them, and has to send `X-Forwarded-For`.
///
/// The proxy must set every header of its dialect, the one for the host too: one that it leaves alone is the
/// client's to write. The host of an `X-Original-URL` goes before that header.
pub fn forward_auth(
    peer: Option<IpAddr>,
    headers: &HeaderMap,
    dialect: Dialect,
) -> Result<RequestParts<'_>, ForwardAuthError> {
    // Hosts are no sign of a dialect: plain proxies send `X-Forwarded-Host` too.
    let speaks =
        |names: &Names| headers.contains_key(names.method) || headers.contains_key(names.target);
    let has_url = headers.contains_key(ORIGINAL_URL);
    let names = match dialect {
        Dialect::Forwarded => FORWARDED,
        Dialect::Original => ORIGINAL,
        Dialect::Either => match (speaks(&FORWARDED), speaks(&ORIGINAL) || has_url) {
            (true, true) => return Err(ForwardAuthError::BothDialects),
            (false, true) => ORIGINAL,
            (true | false, false) => FORWARDED,
        },
    };
    let method = one(headers, names.method)?.ok_or(ForwardAuthError::Missing(names.method))?;
    let target = one(headers, names.target)?;
    let host = one(headers, names.host)?;
    let url = if names.target == ORIGINAL.target { one(headers, ORIGINAL_URL)? } else { None };
    let (host, path, query) = match (target, url) {
        (Some(_), Some(_)) => return Err(ForwardAuthError::BothTargets),
        (None, None) => return Err(ForwardAuthError::Missing(names.target)),
        (Some(target), None) => {
            let (in_target, path, query) = split_target(method, target);
            (host.or(in_target), path, query)
        }
        (None, Some(url)) => {
            let (in_url, rest) = split_url(url);
            let (in_target, path, query) = split_target(method, rest);
            (in_url.or(host).or(in_target), path, query)
        }
    };
    let host = host.map_or(Host::Absent, Host::Named);
    Ok(RequestParts { peer, method, host, path, query, headers })
}

/// The host of a URL, and its target. The host ends at the first slash and nowhere else: it is what the client wrote
/// as `Host`, where a proxy may let `?` and `#` pass but no slash, and it must not hide the path.
fn split_url(url: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let colon = url.windows(3).position(|window| window == b"://");
    let Some(colon) = colon.filter(|_| !url.starts_with(b"/")) else { return (None, url) };
    let after = &url[colon + 3..];
    let slash = after.iter().position(|byte| *byte == b'/').unwrap_or(after.len());
    let (host, target) = after.split_at(slash);
    (Some(host), if target.is_empty() { b"/" } else { target })
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
