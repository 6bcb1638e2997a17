//! What this crate looks at of a request, as bytes: whoever calls it has a request of some server's.

use core::net::IpAddr;

use http::{HeaderMap, Method, Uri};

/// The parts of a request that attributes are made from.
///
/// Method, path and query are bytes, not text: a proxy that hands on a request in headers hands on what
/// the client sent, and no client is bound to send text.
#[derive(Clone, Copy, Debug)]
pub struct RequestParts<'r> {
    /// The other end of the connection. None on a Unix socket.
    pub peer: Option<IpAddr>,
    /// The method.
    pub method: &'r [u8],
    /// Where the host is found.
    pub host: Host<'r>,
    /// The path, not decoded. None where the request has none, as with `CONNECT host:port`.
    pub path: Option<&'r [u8]>,
    /// The query, not decoded, without its question mark.
    pub query: &'r [u8],
    /// The headers.
    pub headers: &'r HeaderMap,
}

/// Where the host of a request is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host<'r> {
    /// In the `Host` header.
    InHeader,
    /// Here: in the target of the request, or what a proxy says it was.
    Named(&'r [u8]),
    /// Nowhere.
    Absent,
}

impl<'r> RequestParts<'r> {
    /// A request whose target is as it came on the wire: `/path?query`, `http://host/path?query`, or
    /// `host:port` with `CONNECT`.
    pub fn new(
        peer: Option<IpAddr>,
        method: &'r [u8],
        target: &'r [u8],
        headers: &'r HeaderMap,
    ) -> Self {
        let (host, path, query) = split_target(method, target);
        let host = host.map_or(Host::InHeader, Host::Named);
        Self { peer, method, host, path, query, headers }
    }

    /// A request of which nothing is looked at but [who sent it](tidegate_rules::Reads::OF_CLIENT).
    #[inline]
    pub fn of_client(peer: Option<IpAddr>, headers: &'r HeaderMap) -> Self {
        Self { peer, method: b"", host: Host::Absent, path: None, query: b"", headers }
    }

    /// A request in the types of the `http` crate.
    pub fn of_http(
        peer: Option<IpAddr>,
        method: &'r Method,
        uri: &'r Uri,
        headers: &'r HeaderMap,
    ) -> Self {
        let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
        let path = uri.path().as_bytes();
        let (host, path) = match authority {
            // `GET login` has neither scheme nor slash, and the type takes it for a host.
            Some(text) if uri.scheme().is_none() && method != Method::CONNECT => (None, Some(text)),
            _ => (authority.map(without_user), (!path.is_empty()).then_some(path)),
        };
        Self {
            peer,
            method: method.as_str().as_bytes(),
            host: host.map_or(Host::InHeader, Host::Named),
            path,
            query: uri.query().unwrap_or_default().as_bytes(),
            headers,
        }
    }
}

/// Host, path and query of a target.
pub(crate) fn split_target<'t>(
    method: &[u8],
    target: &'t [u8],
) -> (Option<&'t [u8]>, Option<&'t [u8]>, &'t [u8]) {
    // A fragment does not belong in a request. Servers that meet one drop it.
    let whole = target;
    let target = before(target, b'#');
    let local = before(target, b'?');
    // With HTTP/2, `CONNECT` opens WebSockets too, and then it has a path (RFC 8441, section 4).
    let has_path = local.starts_with(b"/") || local.windows(3).any(|window| window == b"://");
    if method == b"CONNECT" && !has_path {
        return (Some(without_user(whole)), None, b"");
    }
    let query = target.get(local.len() + 1..).unwrap_or_default();
    if !local.starts_with(b"/")
        && let Some(colon) = local.windows(3).position(|window| window == b"://")
    {
        let after = &local[colon + 3..];
        let authority = before(after, b'/');
        let path = &after[authority.len()..];
        let path = if path.is_empty() { b"/" } else { path };
        return (Some(without_user(authority)), Some(path), query);
    }
    // What does not begin with a slash is a path all the same: no spelling may escape the rules.
    (None, Some(local), query)
}

/// The text up to the first such byte.
fn before(text: &[u8], end: u8) -> &[u8] {
    let end = text.iter().position(|byte| *byte == end);
    &text[..end.unwrap_or(text.len())]
}

fn without_user(authority: &[u8]) -> &[u8] {
    let at = authority.iter().rposition(|byte| *byte == b'@');
    at.map_or(authority, |at| &authority[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts<'a> = (Option<&'a str>, Option<&'a str>, &'a str);

    fn split(target: &str) -> Parts<'_> {
        let text = |bytes| core::str::from_utf8(bytes).unwrap();
        let (host, path, query) = split_target(b"GET", target.as_bytes());
        (host.map(text), path.map(text), text(query))
    }

    #[test]
    fn a_target_is_taken_apart_in_each_of_its_forms() {
        assert_eq!(split("/a/b?c=d"), (None, Some("/a/b"), "c=d"));
        assert_eq!(split("/a?b?c#d"), (None, Some("/a"), "b?c"));
        assert_eq!(split("/a#b?c"), (None, Some("/a"), ""));
        assert_eq!(split("//a/b"), (None, Some("//a/b"), ""));
        assert_eq!(split("*"), (None, Some("*"), ""));
        assert_eq!(split("http://u:p@h:80/a?b"), (Some("h:80"), Some("/a"), "b"));
        assert_eq!(split("http://h?b=/c"), (Some("h"), Some("/"), "b=/c"));
        assert_eq!(split("login?a"), (None, Some("login"), "a"));
        assert_eq!(split(""), (None, Some(""), ""));
        let connect = split_target(b"CONNECT", b"h:443");
        assert_eq!(connect, (Some(&b"h:443"[..]), None, &b""[..]));
    }

    #[test]
    fn connect_with_a_path_keeps_it() {
        let chat = split_target(b"CONNECT", b"/chat?room=1");
        assert_eq!(chat, (None, Some(&b"/chat"[..]), &b"room=1"[..]));
        let chat = split_target(b"CONNECT", b"https://h/chat");
        assert_eq!(chat, (Some(&b"h"[..]), Some(&b"/chat"[..]), &b""[..]));
        let (host, path, _) = split_target(b"CONNECT", b"h:443?x=://");
        assert_eq!((host, path), (Some(&b"h:443?x=://"[..]), None));
    }

    #[test]
    fn a_scheme_inside_a_path_or_query_is_no_scheme() {
        assert_eq!(split("/a://b"), (None, Some("/a://b"), ""));
        assert_eq!(split("/?u=http://h/"), (None, Some("/"), "u=http://h/"));
    }

    #[test]
    fn both_ways_to_make_parts_agree() {
        let headers = HeaderMap::new();
        for (method, target) in [
            (Method::GET, "/a?b=c"),
            (Method::GET, "http://u@Example.com:80/a"),
            (Method::GET, "http://h"),
            (Method::OPTIONS, "*"),
            (Method::POST, "login"),
            (Method::GET, "h:443"),
            (Method::CONNECT, "h:443"),
            (Method::CONNECT, "/chat?room=1"),
            (Method::CONNECT, "https://h/chat"),
            (Method::GET, "/"),
        ] {
            let uri: Uri = target.parse().unwrap();
            let bytes = method.as_str().as_bytes();
            let one = RequestParts::new(None, bytes, target.as_bytes(), &headers);
            let two = RequestParts::of_http(None, &method, &uri, &headers);
            let parts = |parts: RequestParts<'_>| {
                (format!("{:?}", parts.host), parts.path.map(<[u8]>::to_vec), parts.query.to_vec())
            };
            assert_eq!(parts(one), parts(two), "{target}");
        }
    }
}
