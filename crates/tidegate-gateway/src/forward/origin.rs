//! What the server behind is told about where a request came from. What the client itself says about that
//! is thrown away, unless the client is a proxy that is trusted.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::{FORWARDED, HeaderName, HeaderValue, VIA};
use http::{HeaderMap, Version};

use super::head::put_line;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// Headers in which servers look for where a request came from, or for what it was before a proxy changed it.
/// Nobody but a trusted proxy may set them.
const ORIGIN: [&str; 23] = [
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "client-ip",
    "fastly-client-ip",
    "forwarded",
    "front-end-https",
    "true-client-ip",
    "wl-proxy-client-ip",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-azure-socketip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-forwarded",
    "x-originating-ip",
    "x-proxyuser-ip",
    "x-real-ip",
    "x-remote-addr",
    "x-remote-ip",
    "x-rewrite-url",
    "x-scheme",
    "x-url-scheme",
];
/// Beginnings of more of them: `x-forwarded-for`, `x-original-url`.
const ORIGIN_BEGINNINGS: [&str; 2] = ["x-forwarded-", "x-original-"];

/// Where a request came from, as this gateway sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'r> {
    /// The other end of the connection; `None` on a socket in the file system.
    pub(crate) peer: Option<IpAddr>,
    /// Whether that is a proxy whose word counts.
    pub(crate) is_trusted: bool,
    /// Whether the connection is encrypted.
    pub(crate) is_tls: bool,
    /// The host that was asked for, with its port.
    pub(crate) host: Option<&'r HeaderValue>,
    /// The version of HTTP it came over.
    pub(crate) version: Version,
}

impl Origin<'_> {
    /// Puts it into the head that is forwarded.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        if !self.is_trusted {
            strip(headers);
        }
        let proto = if self.is_tls { "https" } else { "http" };
        if !headers.contains_key(X_FORWARDED_PROTO) {
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(proto));
        }
        if let Some(host) = self.host
            && !headers.contains_key(X_FORWARDED_HOST)
        {
            headers.insert(X_FORWARDED_HOST, host.clone());
        }
        if let Some(peer) = self.peer {
            append(headers, X_FORWARDED_FOR, &peer.to_canonical().to_string());
        }
        append(headers, FORWARDED, &self.forwarded(proto));
        append(headers, VIA, self.via());
    }

    /// Appends it as lines of HTTP/1 to a head that has no header [of the origin](is_of_origin), and no `Via`.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let proto = if self.is_tls { "https" } else { "http" };
        put_line(out, b"x-forwarded-proto", proto.as_bytes());
        if let Some(host) = self.host {
            put_line(out, b"x-forwarded-host", host.as_bytes());
        }
        if let Some(peer) = self.peer {
            put_line(out, b"x-forwarded-for", peer.to_canonical().to_string().as_bytes());
        }
        put_line(out, b"forwarded", self.forwarded(proto).as_bytes());
        put_line(out, b"via", self.via().as_bytes());
    }

    fn via(&self) -> &'static str {
        if self.version == Version::HTTP_2 { "2 tidegate" } else { "1.1 tidegate" }
    }

    /// An element of `Forwarded` (RFC 7239).
    fn forwarded(&self, proto: &str) -> String {
        let mut text = match self.peer.map(|peer| peer.to_canonical()) {
            Some(IpAddr::V4(peer)) => format!("for={peer}"),
            Some(IpAddr::V6(peer)) => format!("for=\"[{peer}]\""),
            None => "for=unknown".to_owned(),
        };
        // A host has no quotes and no backslashes in it, or the request was refused. Writing to a
        // `String` cannot fail.
        if let Some(host) = self.host.and_then(|host| host.to_str().ok()) {
            let _ = write!(text, ";host=\"{host}\"");
        }
        let _ = write!(text, ";proto={proto}");
        text
    }
}

/// Takes out whatever is said about that.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let spoofed: Vec<HeaderName> =
        headers.keys().filter(|name| is_of_origin(name.as_str())).cloned().collect();
    for name in spoofed {
        headers.remove(name);
    }
}

/// Whether a header is one of those, in the eyes of any server: many read `x_real_ip` as `x-real-ip`.
pub(super) fn is_of_origin(name: &str) -> bool {
    let begins = |text: &str| {
        name.len() >= text.len()
            && name
                .bytes()
                .zip(text.bytes())
                .all(|(one, two)| one == two || (one == b'_' && two == b'-'))
    };
    ORIGIN_BEGINNINGS.iter().any(|text| begins(text))
        || ORIGIN.iter().any(|text| name.len() == text.len() && begins(text))
}

/// Adds an element to a list, in one line, which is what most readers expect.
fn append(headers: &mut HeaderMap, name: HeaderName, element: &str) {
    let mut line = Vec::new();
    for value in headers.get_all(&name) {
        line.extend_from_slice(value.as_bytes());
        line.extend_from_slice(b", ");
    }
    line.extend_from_slice(element.as_bytes());
    // Values that were there have only bytes that a value may have, and so has the element.
    if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(line)) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(is_trusted: bool) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("198.51.100.1"));
        headers.insert("x-forwarded-proto", HeaderValue::from_static("gopher"));
        headers.insert("x-forwarded-host", HeaderValue::from_static("bank.example"));
        headers.insert("forwarded", HeaderValue::from_static("for=198.51.100.1"));
        headers.insert("x-real-ip", HeaderValue::from_static("198.51.100.1"));
        headers.insert("via", HeaderValue::from_static("1.0 fred"));
        let host = HeaderValue::from_static("a.example:8443");
        let origin = Origin {
            peer: Some("2001:db8::7".parse().unwrap()),
            is_trusted,
            is_tls: true,
            host: Some(&host),
            version: Version::HTTP_11,
        };
        origin.write(&mut headers);
        headers
    }

    #[test]
    fn what_a_client_says_about_itself_is_thrown_away() {
        let headers = written(false);
        assert_eq!(headers["x-forwarded-for"], "2001:db8::7");
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-host"], "a.example:8443");
        assert_eq!(
            headers["forwarded"],
            "for=\"[2001:db8::7]\";host=\"a.example:8443\";proto=https"
        );
        assert!(!headers.contains_key("x-real-ip"));
        assert_eq!(headers["via"], "1.0 fred, 1.1 tidegate");
    }

    #[test]
    fn no_spelling_of_a_header_about_the_origin_gets_through() {
        for name in [
            "x_forwarded_for",
            "x-forwarded_for",
            "X_Real_IP",
            "x-original-host",
            "x-original-forwarded-for",
            "x-rewrite-url",
            "x-forwarded-ssl",
            "x-forwarded",
            "true_client_ip",
        ] {
            let mut headers = HeaderMap::new();
            let name: HeaderName = name.parse().unwrap();
            headers.insert(&name, HeaderValue::from_static("198.51.100.1"));
            let origin = Origin {
                peer: None,
                is_trusted: false,
                is_tls: false,
                host: None,
                version: Version::HTTP_11,
            };
            origin.write(&mut headers);
            assert!(!headers.contains_key(&name), "{name}");
        }
        for name in ["x-forward", "forwarded-by", "x-real-ips", "accept", "x-original"] {
            assert!(!is_of_origin(name), "{name}");
        }
    }

    #[test]
    fn what_a_trusted_proxy_says_is_added_to() {
        let headers = written(true);
        assert_eq!(headers["x-forwarded-for"], "198.51.100.1, 2001:db8::7");
        assert_eq!(headers["x-forwarded-proto"], "gopher");
        assert_eq!(headers["x-forwarded-host"], "bank.example");
        assert!(headers["forwarded"].as_bytes().starts_with(b"for=198.51.100.1, for="));
        assert_eq!(headers["x-real-ip"], "198.51.100.1");
    }
}
