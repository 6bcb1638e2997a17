//! Who may ask: whoever has the token, or, where there is none, whoever is on this machine and is no
//! page in somebody's browser.

use std::net::IpAddr;

use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, ORIGIN};
use hyper::{Request, StatusCode};

use super::reply::Problem;
use super::settings::Token;
use crate::listen::Peer;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Refuses requests that a page of another site makes a browser send.
///
/// A page can reach the loopback address in two ways: by its number, and then the browser says from
/// which site; or by a name of its own that it lets point there, and then the name is in the host. A
/// browser sends no token that it was not given, so with one there is nothing to fear.
pub(super) fn check_origin<B>(
    request: &Request<B>,
    peer: Peer,
    has_token: bool,
) -> Result<(), Problem> {
    // No browser reaches a socket in the file system.
    if has_token || peer.is_none() {
        return Ok(());
    }
    let forbidden = |why: &str| Err(Problem::new(StatusCode::FORBIDDEN, why));
    let host = match (request.uri().authority(), request.headers().get(HOST)) {
        (Some(authority), _) => authority.as_str(),
        (None, Some(host)) => host.to_str().unwrap_or_default(),
        (None, None) => "",
    };
    if !is_own_host(host) {
        return forbidden("the host must be an address or `localhost` where there is no token");
    }
    if let Some(origin) = request.headers().get(ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        if origin.strip_prefix("http://") != Some(host) {
            return forbidden("a page of another site cannot use this address");
        }
    }
    match request.headers().get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => forbidden("a page of another site cannot use this address"),
    }
}

/// Whether a host, perhaps with a port, is an address or `localhost`.
fn is_own_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Refuses requests without the token, where there is one.
pub(super) fn check_token<B>(request: &Request<B>, token: Option<&Token>) -> Result<(), Problem> {
    let Some(token) = token else { return Ok(()) };
    let offered = request.headers().get(AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    match offered {
        Some(offered) if token.is(offered) => Ok(()),
        Some(_) => Err(Problem::unauthorized("this is not the token")),
        None => Err(Problem::unauthorized("send the token: `Authorization: Bearer …`")),
    }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = value.split_at_checked(SCHEME.len())?;
    scheme.eq_ignore_ascii_case(SCHEME).then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_own_hosts() {
        for host in ["127.0.0.1", "127.0.0.1:8082", "[::1]:8082", "localhost", "LOCALHOST:1"] {
            assert!(is_own_host(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "127.0.0.1.nip.io:80", "[::1"] {
            assert!(!is_own_host(host), "{host}");
        }
    }

    #[test]
    fn the_scheme_is_read_in_any_case_and_others_are_none() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer abc "), Some(&b"abc"[..]));
        assert_eq!(bearer(b"Basic abc"), None);
        assert_eq!(bearer(b"Bear"), None);
    }
}
