//! Headers that are about one connection only and are not forwarded (RFC 9110, section 7.6.1), and what
//! is said anew for the next one.

use http::HeaderMap;
use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

/// Those that are never forwarded, whether `Connection` names them or not. `Trailer` stays: trailers are
/// handed on.
static HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Those that `Connection` cannot take away, and trailers cannot add: the server behind would see another request
/// than the one that was decided about.
static KEPT: [HeaderName; 9] = [
    http::header::HOST,
    CONTENT_LENGTH,
    http::header::AUTHORIZATION,
    http::header::COOKIE,
    http::header::FORWARDED,
    TRAILER,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
];

/// What a request may say to us that is settled here.
static NEVER_ASKED: [HeaderName; 2] = [EXPECT, HeaderName::from_static("http2-settings")];

/// Takes out of a head what is about its own connection.
pub(crate) fn strip(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let named: Vec<HeaderName> = tokens(headers, &CONNECTION)
            .filter_map(|token| HeaderName::from_bytes(token).ok())
            .collect();
        for name in named {
            if !KEPT.contains(&name) {
                headers.remove(name);
            }
        }
    }
    remove_all(headers, &HOP_BY_HOP);
    let respelt: Vec<HeaderName> =
        headers.keys().filter(|name| is_respelt(name)).cloned().collect();
    for name in respelt {
        headers.remove(name);
    }
}

/// Takes headers of these names out. Nearly always there are none, which looking through the few that are there
/// tells sooner than asking for each name.
fn remove_all(headers: &mut HeaderMap, names: &[HeaderName]) {
    if headers.keys().any(|name| names.contains(name)) {
        for name in names {
            headers.remove(name);
        }
    }
}

/// Whether a header is about its own connection, whatever `Connection` says.
pub(super) fn is_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name) || is_respelt(name)
}

/// Whether many servers, which read `_` as `-`, take it for a header about a connection, or about where a body ends.
/// With such a name it says nothing to us, and would say something to them.
fn is_respelt(name: &HeaderName) -> bool {
    let is = |other: &HeaderName| is_spelling(name, other);
    name.as_str().contains('_') && (is(&CONTENT_LENGTH) || HOP_BY_HOP.iter().any(is))
}

/// Whether many servers read the one as the other.
fn is_spelling(name: &HeaderName, other: &HeaderName) -> bool {
    let read = |byte| if byte == b'_' { b'-' } else { byte };
    name.as_str().bytes().map(read).eq(other.as_str().bytes().map(read))
}

/// Takes a header out, however it is spelt.
pub(crate) fn strip_spellings(headers: &mut HeaderMap, name: &HeaderName) {
    let spelt: Vec<HeaderName> =
        headers.keys().filter(|other| is_spelling(other, name)).cloned().collect();
    for name in spelt {
        headers.remove(name);
    }
}

/// The same for a request, whose sender may say that it understands trailers, and that it waits to be told
/// to go on, which we tell it ourselves.
pub(crate) fn strip_request(headers: &mut HeaderMap) {
    let takes_trailers = tokens(headers, &TE).any(|token| token.eq_ignore_ascii_case(b"trailers"));
    strip(headers);
    remove_all(headers, &NEVER_ASKED);
    if takes_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Takes out of the trailers of a body what belongs in a head alone: what is about one connection, where the body ends,
/// and all that was decided about by the head, which a server that puts both together would read another request from.
pub(crate) fn strip_trailers(trailers: &mut HeaderMap) {
    strip(trailers);
    remove_all(trailers, &KEPT);
    remove_all(trailers, &NEVER_ASKED);
}

/// The protocols that a request over HTTP/1 asks to change to, those that may pass through here; `None` where there are
/// none. A server may take any of them, or none (RFC 9110, section 7.8), so those that may not are left out.
pub(crate) fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_asked = headers.contains_key(UPGRADE)
        && tokens(headers, &CONNECTION).any(|token| token.eq_ignore_ascii_case(b"upgrade"));
    if is_asked { protocols(headers) } else { None }
}

/// The protocols of an upgrade in one line, without those that are never let through.
pub(crate) fn protocols(headers: &HeaderMap) -> Option<HeaderValue> {
    let list: Vec<&[u8]> = tokens(headers, &UPGRADE).filter(|token| may_pass(token)).collect();
    HeaderValue::from_bytes(&list.join(&b", "[..])).ok().filter(|list| !list.is_empty())
}

/// Whether a protocol may be spoken through a tunnel. Another version of HTTP is not let through: requests in it would
/// meet no rule. Nor is what is no name with perhaps a version, in which somebody else might find one.
fn may_pass(protocol: &[u8]) -> bool {
    const MARKS: &[u8] = b"!#$%&'*+-.^_`|~/";
    let begins = |word: &str| {
        let beginning = protocol.get(..word.len());
        beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(word.as_bytes()))
    };
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || MARKS.contains(byte);
    protocol.iter().all(is_of_name) && !["h2", "h3", "http", "tls"].into_iter().any(begins)
}

/// Whether a response changes to nothing but what the request asked for.
pub(crate) fn is_asked(asked: &HeaderValue, response: &HeaderMap) -> bool {
    let is_asked = |to: &[u8]| words(asked.as_bytes()).any(|word| word.eq_ignore_ascii_case(to));
    tokens(response, &UPGRADE).next().is_some() && tokens(response, &UPGRADE).all(is_asked)
}

/// The words of a header that is a list. They are looked for in bytes: what is no text in one of them hides no other.
fn tokens<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'h [u8]> {
    let lines = headers.get_all(name).into_iter().map(HeaderValue::as_bytes);
    lines.flat_map(words)
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = line.split(|byte| *byte == b',');
    words.map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_is_about_the_connection_is_not_forwarded() {
        let mut request = headers(&[
            ("connection", "close, Secret-Hop"),
            ("connection", "other"),
            ("secret-hop", "1"),
            ("other", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers, gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("proxy-connection", "keep-alive"),
            ("expect", "100-continue"),
            ("accept", "*/*"),
        ]);
        strip_request(&mut request);
        assert_eq!(names(&request), ["accept", "te"]);
        assert_eq!(request["te"], "trailers");
    }

    #[test]
    fn a_word_that_is_no_text_hides_no_other() {
        let mut request = headers(&[("x-foo", "1"), ("x-bar", "1"), ("accept", "*/*")]);
        request.insert(CONNECTION, HeaderValue::from_bytes(b"x-foo\xff, x-foo,\tX-Bar").unwrap());
        strip_request(&mut request);
        assert_eq!(names(&request), ["accept"]);
    }

    #[test]
    fn no_spelling_of_where_a_body_ends_gets_through() {
        for name in ["transfer_encoding", "content_length", "keep_alive", "proxy_connection"] {
            let mut request = HeaderMap::new();
            let name: HeaderName = name.parse().unwrap();
            request.insert(&name, HeaderValue::from_static("1"));
            assert!(is_hop(&name), "{name}");
            strip_request(&mut request);
            assert!(request.is_empty(), "{name}");
        }
        for name in ["content-length", "content_lengths", "content_type", "x_te"] {
            assert!(!is_hop(&name.parse().unwrap()), "{name}");
        }
    }

    #[test]
    fn connection_takes_away_nothing_that_was_decided_about() {
        let mut request = headers(&[
            ("connection", "host, x-forwarded-for, authorization, content-length"),
            ("host", "a"),
            ("x-forwarded-for", "192.0.2.1"),
            ("authorization", "Bearer x"),
            ("content-length", "1"),
        ]);
        strip_request(&mut request);
        let kept = ["authorization", "content-length", "host", "x-forwarded-for"];
        assert_eq!(names(&request), kept);
    }

    #[test]
    fn trailers_say_nothing_that_a_head_has_to_say() {
        let mut trailers = headers(&[
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("transfer-encoding", "chunked"),
            ("te", "gzip"),
            ("trailer", "x-sum"),
            ("content-length", "9"),
            ("host", "b"),
            ("authorization", "Bearer x"),
            ("expect", "100-continue"),
            ("x-sum", "7"),
            ("grpc-status", "0"),
        ]);
        strip_trailers(&mut trailers);
        assert_eq!(names(&trailers), ["grpc-status", "x-sum"]);
    }

    #[test]
    fn no_other_http_is_tunnelled() {
        let asked = |lines: &[(&'static str, &'static str)]| {
            upgrade(&headers(lines)).map(|value| value.to_str().unwrap().to_owned())
        };
        let ask = |value| asked(&[("connection", "Upgrade"), ("upgrade", value)]);
        for value in ["websocket", "foo, bar/2", "WebSocket"] {
            assert_eq!(ask(value).as_deref(), Some(value));
        }
        for value in ["h2c", "H2C", "HTTP/2.0", "TLS/1.0", "h3", "h2c, HTTP/3", "", ", ,", "a h2c"]
        {
            assert_eq!(ask(value), None, "{value}");
        }
        for value in
            ["websocket, h2c", "h2c,websocket", ",H2c,, websocket ,\tTLS/1.3", "x;h2c, websocket"]
        {
            assert_eq!(ask(value).as_deref(), Some("websocket"), "{value}");
        }
        assert_eq!(asked(&[("upgrade", "websocket")]), None);
        let lines = [("connection", "upgrade"), ("upgrade", "foo"), ("upgrade", "h2c, bar")];
        assert_eq!(asked(&lines).as_deref(), Some("foo, bar"));
    }

    #[test]
    fn a_server_changes_to_what_was_asked_for_alone() {
        let asked = HeaderValue::from_static("foo, bar");
        let changes = |to| is_asked(&asked, &headers(&[("upgrade", to)]));
        assert!(changes("foo") && changes("Bar") && changes("bar, foo"));
        assert!(!changes("foo, h2c") && !changes("f") && !changes("") && !changes("foo bar"));
        assert!(!is_asked(&asked, &HeaderMap::new()));
    }
}
