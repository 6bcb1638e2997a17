//! A request as it came, and what the next one on its connection has of it. The requests of a client mostly have the
//! same headers, byte for byte, and whatever was found out about those bytes holds for them again: they are compared,
//! and not read. The first line is read each time.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, HOST, HeaderValue};
use http::{HeaderMap, Method, Uri};
use memchr::memchr;
use tidegate::{Reads, Timestamp};
use tidegate_identity::{Attributes, Host, Identity, RequestParts};
use tidegate_tower::grpc;

use super::strict;
use crate::access_log::Entry;
use crate::forward::head;
use crate::gateway::{authenticate, is_forwarded, is_host};
use crate::route::Route;

/// The most headers of a request that is taken here.
const HEADERS_MAX: usize = 64;
/// The longest head whose bytes are kept for the next request.
const KEPT_BYTES: usize = 2 << 10;

/// What the bytes that have come begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begins {
    /// A request, which is here now.
    Request,
    /// A part of one.
    Part,
    /// Something that is not for this place.
    Foreign,
}

/// A request, in room that the next one uses again. It is large, so it stays where it is.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) head: Head,
    pub(super) attributes: Attributes,
    /// Which attributes these are, where they are those of every request with the same headers.
    described: Option<Reads>,
}

/// The head of a request. Its first line is where it came.
#[derive(Debug, Default)]
pub(crate) struct Head {
    pub(crate) method: Method,
    headers: HeaderMap,
    /// The bytes that the headers were read from, up to the end of the head; none where they are not known, or where
    /// the headers are no longer what they say.
    lines: Bytes,
    is_grpc: bool,
    /// Room for these bytes.
    room: BytesMut,
    /// Where in the bytes that have come the target is, and where its line and the head end.
    target: Range<usize>,
    line_length: usize,
    length: usize,
}

impl Asked {
    /// Takes the request that the bytes begin with, in the place of the one before.
    pub(crate) fn take(&mut self, input: &[u8], length_max: usize) -> Begins {
        let Some(line_end) = memchr(b'\n', input) else { return Begins::Part };
        let (line, rest) = input.split_at(line_end + 1);
        if !self.head.read_line(line) {
            return Begins::Foreign;
        }
        // They end with the only empty line in them, so this is where the head ends.
        let is_same = !self.head.lines.is_empty() && rest.starts_with(&self.head.lines);
        if !is_same {
            self.described = None;
            self.head.forget();
            let Some(length) = head::end(input) else { return Begins::Part };
            if length > length_max || self.head.read(&input[..length]).is_none() {
                return Begins::Foreign;
            }
        }
        self.head.length = self.head.line_length + self.head.lines.len();
        if self.head.length > length_max { Begins::Foreign } else { Begins::Request }
    }

    /// Makes those attributes that somebody reads. The bytes are still those that it was taken from.
    #[inline]
    pub(super) fn describe(
        &mut self,
        (identity, peer): (&Identity, Option<IpAddr>),
        reads: Reads,
        now: Timestamp,
        input: &[u8],
    ) {
        if self.described == Some(reads) {
            return;
        }
        let parts = self.head.parts(peer, input);
        identity.attributes_read(&parts, reads, now, &mut self.attributes);
        self.described = identity.is_of_headers(reads).then_some(reads);
    }

    /// Whether it is refused once it was counted.
    #[inline]
    pub(super) fn authenticate(&mut self, route: &Route, entry: &mut Option<Box<Entry>>) -> bool {
        if route.auth.is_none() {
            return false;
        }
        // Something is added to them.
        self.described = None;
        authenticate(route, &self.head.headers, &mut self.attributes, entry)
    }

    /// It is answered. Bytes that are many are not kept while the next one is waited for.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.head.length > KEPT_BYTES {
            self.head.forget();
            self.head.room = BytesMut::new();
        }
    }
}

impl Head {
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// The headers, to be made fit for somebody else. The next request is read anew.
    pub(super) fn headers_mut(&mut self) -> &mut HeaderMap {
        self.lines = Bytes::new();
        &mut self.headers
    }

    /// Its content type where it is a call of gRPC.
    #[inline]
    pub(super) fn grpc_type(&self) -> Option<&HeaderValue> {
        if self.is_grpc { grpc::content_type(&self.headers) } else { None }
    }

    /// How long it is.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Its first line, with its end, in the bytes that it was taken from.
    pub(super) fn line<'i>(&self, input: &'i [u8]) -> &'i [u8] {
        &input[..self.line_length]
    }

    /// Its target, in the same bytes.
    pub(crate) fn uri(&self, input: &[u8]) -> Uri {
        let target = Bytes::copy_from_slice(&input[self.target.clone()]);
        let uri = Uri::from_maybe_shared(target);
        debug_assert!(uri.is_ok(), "every target that is taken is one");
        uri.unwrap_or_default()
    }

    fn parts<'p>(&'p self, peer: Option<IpAddr>, input: &'p [u8]) -> RequestParts<'p> {
        let target = &input[self.target.clone()];
        let path_length = memchr(b'?', target).unwrap_or(target.len());
        RequestParts {
            peer,
            method: self.method.as_str().as_bytes(),
            host: Host::InHeader,
            path: Some(&target[..path_length]),
            query: target.get(path_length + 1..).unwrap_or_default(),
            headers: &self.headers,
        }
    }

    /// Reads a first line, with its end; `false` where it is another one than
    /// `GET /path?query HTTP/1.1` with one space each.
    fn read_line(&mut self, line: &[u8]) -> bool {
        let Some(asked) = line.strip_suffix(b" HTTP/1.1\r\n") else { return false };
        let space = asked.iter().position(|byte| *byte == b' ').unwrap_or(asked.len());
        let (method, target) = (&asked[..space], asked.get(space + 1..).unwrap_or_default());
        // All of them are looked at, which takes less time than to stop at one that is none.
        let is_target = target.iter().fold(true, |is, byte| is & OF_TARGET[usize::from(*byte)]);
        if !is_target || !target.starts_with(b"/") {
            return false;
        }
        if method != self.method.as_str().as_bytes() {
            let Ok(method) = Method::from_bytes(method) else { return false };
            self.method = method;
        }
        self.target = space + 1..asked.len();
        self.line_length = line.len();
        is_forwarded(&self.method)
    }

    /// Reads the headers of a whole head whose first line was read, where they are of the kind that is taken here.
    /// They are parts of bytes of their own, because others are read over those that have come.
    fn read(&mut self, head: &[u8]) -> Option<()> {
        if !strict::is_whole(head) {
            return None;
        }
        self.room.extend_from_slice(head);
        let head = self.room.split().freeze();
        let mut found = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut []);
        match parsed.parse_with_uninit_headers(&head, &mut found) {
            Ok(httparse::Status::Complete(length)) if length == head.len() => {}
            _ => return None,
        }
        if parsed.version != Some(1) || !parsed.headers.iter().all(is_plain_header) {
            return None;
        }
        head::take_headers(&head, parsed.headers, &mut self.headers).ok()?;
        if !self.headers.get(HOST).is_some_and(is_host) {
            return None;
        }
        self.is_grpc = grpc::content_type(&self.headers).is_some();
        self.lines = head.slice(self.line_length..);
        Some(())
    }

    /// Lets go of the headers, and of the bytes that they are parts of.
    fn forget(&mut self) {
        self.lines = Bytes::new();
        self.headers.clear();
    }
}

/// Whether a header says nothing about the connection but what holds anyway, and asks for nothing that the
/// general server does.
fn is_plain_header(header: &httparse::Header<'_>) -> bool {
    let is = |name: &str| header.name.eq_ignore_ascii_case(name);
    match header.name.len() {
        2 => !is("te"),
        6 => !is("expect"),
        7 => !is("upgrade") && !is("trailer"),
        10 => !is(CONNECTION.as_str()) || header.value.eq_ignore_ascii_case(b"keep-alive"),
        14 => !is("http2-settings"),
        _ => true,
    }
}

/// The bytes of a target that everybody takes for a path with a query, and for nothing else. There are more that some
/// do, and these are for the general server.
const OF_TARGET: [bool; 256] = {
    const MARKS: &[u8] = b"/?-._~!$&'()*+,;=:@%[]|{}^\\";
    let mut is_of_target = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        is_of_target[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut index = 0;
    while index < MARKS.len() {
        is_of_target[MARKS[index] as usize] = true;
        index += 1;
    }
    is_of_target
};

#[cfg(test)]
mod tests {
    use aws_lc_rs::hmac;
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD;
    use proptest::prelude::*;
    use tidegate_identity::{IdentityConfig, Source, Token, TokenConfig, TokenFault, TokenKey};

    use super::*;

    const LENGTH_MAX: usize = 4 << 10;

    /// Lines and headers, most of which are taken here, and all of which are put together.
    const LINES: [&str; 14] = [
        "GET / HTTP/1.1\r\n",
        "GET /a?key=two HTTP/1.1\r\n",
        "HEAD /a/./b?c HTTP/1.1\r\n",
        "PROPFIND /{a}|b HTTP/1.1\r\n",
        "CONNECT /a HTTP/1.1\r\n",
        "GET /a#b HTTP/1.1\r\n",
        "GET  /a HTTP/1.1\r\n",
        "GET /a HTTP/1.0\r\n",
        "GET /a\rb HTTP/1.1\r\n",
        "GET /a HTTP/1.1\n",
        "GET http://a/ HTTP/1.1\r\n",
        "Host: a HTTP/1.1\r\n",
        "\r\nGET / HTTP/1.1\r\n",
        "\r\n",
    ];
    const HEADERS: [&str; 18] = [
        "Host: a\r\n\r\n",
        "host: a\r\n\r\n",
        "Host: a\r\nKey: one\r\n\r\n",
        "Host: a\r\nKey: two\r\n\r\n",
        "Host: a\r\nKey: one\r\nKey: two\r\n\r\n",
        "Host: a\r\nHost: b\r\n\r\n",
        "Host: a\r\nContent-Type: application/grpc\r\n\r\n",
        "Host: a\r\nContent-Length: 0\r\n\r\n",
        "Host: a\r\nConnection: keep-alive\r\n\r\n",
        "Host: a\r\nConnection: close\r\n\r\n",
        "Host: a\r\nContent-Length: 3\r\n\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n",
        "Host: a\nKey: one\r\n\r\n",
        "Host: a\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "Key: one\r\n\r\n",
        "\r\n",
        "Host: a\r\n",
    ];

    /// What somebody else reads where everybody reads the same.
    fn read_by_others(head: &[u8]) -> Option<(Method, Uri, HeaderMap)> {
        let mut found = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Request::new(&mut found);
        let length = parsed.parse(head).ok()?;
        if !strict::is_whole(head) || length != httparse::Status::Complete(head.len()) {
            return None;
        }
        let mut headers = HeaderMap::new();
        for header in &*parsed.headers {
            let name = http::HeaderName::from_bytes(header.name.as_bytes()).ok()?;
            headers.append(name, HeaderValue::from_bytes(header.value).ok()?);
        }
        let method = Method::from_bytes(parsed.method?.as_bytes()).ok()?;
        (parsed.version == Some(1)).then_some((method, parsed.path?.parse().ok()?, headers))
    }

    fn identity() -> Identity {
        let mut config = IdentityConfig::new([1; 16]);
        let query = Source::Query("key".to_owned());
        config.api_key = vec![Source::header("key").unwrap(), query];
        Identity::new(config).unwrap()
    }

    /// All that is known of a request that was taken, in words.
    fn known(asked: &mut Asked, identity: &Identity, reads: Reads, input: &[u8]) -> String {
        let peer = Some("192.0.2.7".parse().unwrap());
        asked.describe((identity, peer), reads, Timestamp::ZERO, input);
        let Asked { head, attributes, .. } = asked;
        let doubts = attributes.doubts();
        let (line, uri) = (head.line(input), head.uri(input));
        let attributes: Vec<_> = attributes.iter().map(|one| (one.name, one.value)).collect();
        let Head { method, headers, length, .. } = &*head;
        let grpc_type = head.grpc_type();
        format!(
            "{line:?} {method} {uri} {headers:?} {length} {grpc_type:?} {attributes:?} {doubts:?}"
        )
    }

    proptest! {
        #[test]
        fn a_request_is_the_same_whatever_was_asked_before(
            requests in prop::collection::vec(
                (0..LINES.len(), 0..HEADERS.len(), 0..4_usize, any::<bool>()), 1..40,
            ),
        ) {
            let identity = identity();
            let mut asked = Asked::default();
            for (line, headers, reads, is_changed) in requests {
                let head = format!("{}{}", LINES[line], HEADERS[headers]);
                let input = format!("{head}GET /next HTTP/1.1\r\nHost: next\r\n\r\n");
                let input = input.as_bytes();
                let mut fresh = Asked::default();
                let begins = asked.take(input, LENGTH_MAX);
                prop_assert_eq!(begins, fresh.take(input, LENGTH_MAX), "{:?}", head);
                if begins != Begins::Request {
                    continue;
                }
                let read = read_by_others(&input[..asked.head.length()]);
                let (method, uri, headers) = read.expect("others read it too");
                prop_assert_eq!(asked.head.uri(input), uri);
                prop_assert_eq!((&asked.head.method, asked.head.headers()), (&method, &headers));
                let reads = [Reads::ALL, Reads::IP.and(Reads::HOST), Reads::API_KEY, Reads::PATH][reads];
                let known = [&mut asked, &mut fresh].map(|one| known(one, &identity, reads, input));
                prop_assert_eq!(&known[0], &known[1]);
                if is_changed {
                    asked.head.headers_mut().clear();
                }
                asked.end();
            }
        }
    }

    #[test]
    fn every_byte_of_a_target_is_a_part_of_it_to_everybody() {
        for byte in (0..=u8::MAX).filter(|byte| OF_TARGET[usize::from(*byte)]) {
            let byte = char::from(byte);
            for target in [format!("/a{byte}b"), format!("/a?b{byte}c")] {
                let uri: Uri = target.parse().unwrap();
                assert_eq!(uri.path_and_query().unwrap().as_str(), target);
                assert_eq!((uri.authority(), uri.scheme()), (None, None), "{target}");
                let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
                let mut asked = Asked::default();
                assert_eq!(asked.take(head.as_bytes(), LENGTH_MAX), Begins::Request, "{target}");
                assert_eq!(asked.head.uri(head.as_bytes()), uri);
            }
        }
        for byte in b" \"#<>`\x00\x7f\x80\xff\r\n\t" {
            assert!(!OF_TARGET[usize::from(*byte)], "{byte}");
        }
    }

    #[test]
    fn what_is_kept_for_the_next_request_is_bounded() {
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nKey: {}\r\n\r\n", "x".repeat(KEPT_BYTES));
        let mut asked = Asked::default();
        for _ in 0..2 {
            assert_eq!(asked.take(long.as_bytes(), LENGTH_MAX), Begins::Request);
            asked.end();
            let Head { lines, room, headers, .. } = &asked.head;
            assert_eq!((lines.len(), room.capacity(), headers.len()), (0, 0, 0));
        }
        let longer = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(asked.take(longer.as_bytes(), longer.len()), Begins::Request);
        let longer = "GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(asked.take(longer.as_bytes(), longer.len() - 1), Begins::Foreign);
    }

    #[test]
    fn attributes_are_made_anew_where_rules_read_others() {
        let (identity, input) = (identity(), b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut asked = Asked::default();
        for reads in [Reads::IP, Reads::HOST, Reads::IP, Reads::PATH, Reads::HOST, Reads::ALL] {
            assert_eq!(asked.take(input, LENGTH_MAX), Begins::Request);
            let mut fresh = Asked::default();
            assert_eq!(fresh.take(input, LENGTH_MAX), Begins::Request);
            let known = [&mut asked, &mut fresh].map(|one| known(one, &identity, reads, input));
            assert_eq!(known[0], known[1]);
        }
    }

    #[test]
    fn equal_requests_with_a_token_are_described_anew_once_it_has_expired() {
        let secret = b"an example secret of 32 bytes...";
        let mut config = IdentityConfig::new([1; 16]);
        config.token = Some(TokenConfig::new(vec![TokenKey::secret(secret).unwrap()]));
        let identity = Identity::new(config).unwrap();
        let parts = [r#"{"alg":"HS256","typ":"JWT"}"#, r#"{"sub":"ann","exp":1000}"#];
        let text = parts.map(|part| BASE64_URL_SAFE_NO_PAD.encode(part)).join(".");
        let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text.as_bytes());
        let token = format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature));
        let input = format!("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n\r\n");
        let mut asked = Asked::default();
        let expired = Token::Invalid(TokenFault::Expired);
        for (now_secs, outcome) in [(999, Token::Valid), (999, Token::Valid), (2000, expired)] {
            assert_eq!(asked.take(input.as_bytes(), LENGTH_MAX), Begins::Request);
            let now = Timestamp::from_secs(now_secs);
            asked.describe((&identity, None), Reads::OTHERS, now, input.as_bytes());
            let is_user = asked.attributes.value("user").is_some();
            assert_eq!((asked.attributes.token(), is_user), (outcome, outcome == Token::Valid));
        }
    }
}
