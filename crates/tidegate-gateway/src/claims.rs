//! What must hold for any bytes of HTTP/1 that come from clients and from upstreams: the functions that fuzzers call.
//! They stand here because what they look at is nobody else's. A claim panics where it does not hold.
//!
//! Both compare what this crate makes of the bytes with a second reader, which is `httparse` and, for bodies, the few lines
//! of `Body`: slow, and without state between two reads. Requests are read by hyper as well, as they are behind the
//! scanner.

use std::cell::RefCell;
use std::convert::Infallible;
use std::pin::pin;
use std::slice;
use std::task::{Context, Waker};

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use httparse::{EMPTY_HEADER, Header, Status};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tidegate::Timestamp;

use crate::forward::answer::{self, Begun, Reply};
use crate::front::asked::{Asked, Begins};
use crate::front::strict::{At, Scanner, Strict};

/// As many headers as hyper reads of a request, and the longest head that the lane takes.
const HEADERS_MAX: usize = 100;
const LANE_BYTES_MAX: usize = 16 << 10;
/// More headers than an answer may have, with those that are added.
const ANSWER_HEADERS_MAX: usize = 512;

/// Requests of a connection: what the scanner lets through ends where a second reader has it end, and the rest is read by
/// nobody, hyper among them; a head with one reading is let through; it is the same however they arrive; and what the lane
/// takes is what others read.
///
/// The first byte of the input says how the rest is cut into reads.
///
/// # Panics
///
/// Where the claim does not hold.
pub fn check_requests(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let (at, left) = scanned(bytes, bytes.len());
    assert_eq!(scanned(bytes, size.into()), (at, left.clone()), "cut at every {size}");
    let read = read_requests(bytes, &left);
    let by_hyper = read_by_hyper(bytes);
    // It stops sooner: at a target that is none, or where the connection is to end.
    assert!(read.starts_with(&by_hyper), "{by_hyper:?} of {read:?}");
}

/// An answer of an upstream: what is sent to the client for it has one reading, in which it has the bytes that a second
/// reader finds in what came, and is whole where that is. However they came, it is the same answer.
///
/// The first byte of the input says how the rest is cut into reads, and whether the body was asked for.
///
/// # Panics
///
/// Where the claim does not hold.
pub fn check_answers(data: &[u8]) {
    let Some((&size, bytes)) = data.split_first() else { return };
    let asked = if size & 1 == 0 { Method::GET } else { Method::HEAD };
    let [whole, cut] = [bytes.len(), size.into()].map(|size| read_told(bytes, &asked, size));
    let (Some(whole), Some(cut)) = (&whole, &cut) else {
        assert_eq!(whole, cut, "cut at every {size}");
        return;
    };
    let ends = |told: &Told| (told.head.clone(), told.is_whole);
    assert_eq!(ends(cut), ends(whole), "cut at every {size}");
    let Some((body, is_whole)) = read_answer(bytes, &asked) else {
        panic!("an answer that can be read in two ways is handed on")
    };
    for told in [whole, cut] {
        // Of a body that breaks off, what came with the fault is not sent.
        assert!(body.starts_with(&told.body), "other bytes than came");
        assert!(!told.is_whole || (is_whole && told.body == body), "whole, and not what came");
    }
}

/// The methods and bodies of the requests in these bytes, of which the scanner has left those, by a second reader.
fn read_requests(bytes: &[u8], left: &[u8]) -> Vec<(Method, Bytes)> {
    let (mut read, mut asked, mut start) = (Vec::new(), Asked::default(), 0);
    loop {
        let came = read_request(&bytes[start..]).filter(Found::has_one_reading);
        assert_eq!(read_request(&left[start..]), came, "what is read after the scanner");
        let Some(Found { method, length, body, is_upgrade, .. }) = came else { return read };
        let end = start + length;
        let expected = match body {
            Body::Length(0) if is_upgrade => At::Through,
            Body::Length(0) => At::HEAD,
            Body::Length(length) => At::Body(length),
            Body::Chunked => At::Size,
            Body::Unknown => unreachable!("it has one reading"),
        };
        assert_eq!(scanned(&bytes[..end], end).0, expected, "behind a head");
        lane(&mut asked, &bytes[start..], length, body);
        let Some(body_length) = body.end_of_request(&left[end..]) else { return read };
        start = end + body_length;
        read.push((method, body.read(&left[end..start]).0.into()));
        let expected = if is_upgrade { At::Through } else { At::HEAD };
        assert_eq!(scanned(&bytes[..start], start).0, expected, "behind a body");
        if is_upgrade {
            return read;
        }
    }
}

/// The same by hyper, behind the scanner.
fn read_by_hyper(bytes: &[u8]) -> Vec<(Method, Bytes)> {
    let read = RefCell::new(Vec::new());
    let service = service_fn(async |request: Request<Incoming>| {
        let (parts, body) = request.into_parts();
        if let Ok(body) = body.collect().await {
            read.borrow_mut().push((parts.method, body.to_bytes()));
        }
        let mut response = Response::new(Empty::<Bytes>::new());
        *response.status_mut() = StatusCode::FORBIDDEN;
        // So does the gateway: what follows was not looked at.
        if parts.headers.contains_key(UPGRADE) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok::<_, Infallible>(response)
    });
    let stream = Strict::of_requests(tokio::io::join(bytes, tokio::io::sink()), false);
    let mut builder = http1::Builder::new();
    builder.max_headers(HEADERS_MAX);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    // All that it waits for is there, so it is asked again at once.
    let mut context = Context::from_waker(Waker::noop());
    while connection.as_mut().poll(&mut context).is_pending() {}
    read.take()
}

/// Where the scanner is after these bytes, and what it has left of them.
fn scanned(bytes: &[u8], size: usize) -> (At, Vec<u8>) {
    let mut left = bytes.to_vec();
    let mut scanner = Scanner::new(At::HEAD);
    left.chunks_mut(size.max(1)).for_each(|part| scanner.scan(part));
    (scanner.at, left)
}

/// What the lane takes of them is what others read. It has read the requests before.
fn lane(asked: &mut Asked, bytes: &[u8], length: usize, body: Body) {
    if asked.take(bytes, LANE_BYTES_MAX) != Begins::Request {
        return;
    }
    let mut found = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut found);
    assert_eq!(request.parse(bytes), Ok(Status::Complete(length)));
    assert_eq!((asked.head.length(), body), (length, Body::Length(0)));
    assert_eq!(Some(asked.head.method.as_str()), request.method);
    let target: Option<Uri> = request.path.and_then(|path| path.parse().ok());
    assert_eq!(Some(asked.head.uri(bytes)), target);
    let mut headers: Vec<_> = asked.head.headers().iter().collect();
    // Lines of one name stay in their order; the names are in any.
    headers.sort_by_key(|(name, _)| name.as_str());
    let mut expected: Vec<_> =
        request.headers.iter().map(|it| (it.name.to_ascii_lowercase(), it.value)).collect();
    expected.sort_by(|(one, _), (two, _)| one.cmp(two));
    let headers = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    assert!(headers.eq(expected.iter().map(|(name, value)| (name.as_str(), *value))));
}

/// The head of a request, by a second reader.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    method: Method,
    length: usize,
    body: Body,
    is_upgrade: bool,
    /// Whether its lines end as they should.
    has_lines: bool,
}

impl Found {
    fn has_one_reading(&self) -> bool {
        self.has_lines && self.body != Body::Unknown
    }
}

/// The request that the bytes begin with.
fn read_request(bytes: &[u8]) -> Option<Found> {
    let mut found = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut found);
    let Ok(Status::Complete(length)) = request.parse(bytes) else { return None };
    let is_upgrade = request.headers.iter().any(|it| it.name.eq_ignore_ascii_case("upgrade"));
    // Without a word about it a request has none.
    let is_told = request.headers.iter().any(|it| Body::is_about(it.name));
    let body = if is_told { Body::of(request.headers) } else { Body::Length(0) };
    let method = request.method?.parse().ok()?;
    Some(Found { method, length, body, is_upgrade, has_lines: has_lines(&bytes[..length]) })
}

/// Whether each line ends with both bytes that end a line.
fn has_lines(head: &[u8]) -> bool {
    head.split_inclusive(|byte| *byte == b'\n').all(|line| line.ends_with(b"\r\n"))
}

/// What a client reads of what it is sent for an answer.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    head: Vec<u8>,
    body: Vec<u8>,
    is_whole: bool,
}

/// Hands an answer on that comes in parts of so many bytes, and reads it as the client would; `None` where it is told of
/// none.
fn read_told(bytes: &[u8], asked: &Method, size: usize) -> Option<Told> {
    let (sent, is_whole) = tell(bytes, asked, size)?;
    let mut found = [EMPTY_HEADER; ANSWER_HEADERS_MAX];
    let mut response = httparse::Response::new(&mut found);
    let Ok(Status::Complete(length)) = response.parse(&sent) else {
        panic!("the client gets no head: {}", sent.escape_ascii())
    };
    let (head, rest) = sent.split_at(length);
    assert!(has_lines(head), "lines that others end elsewhere: {}", head.escape_ascii());
    for Header { name, .. } in response.headers.iter().filter(|it| it.name.contains('_')) {
        assert!(!Body::is_about(&name.replace('_', "-")), "{name}, which some read with a dash");
    }
    let (body, end) = if has_no_body(asked, response.code) {
        (Vec::new(), Some(0))
    } else {
        let body = Body::of(response.headers);
        assert_ne!(body, Body::Unknown, "where the body ends: {}", head.escape_ascii());
        body.read(rest)
    };
    assert_eq!(end, is_whole.then_some(rest.len()), "where the client finds the end");
    Some(Told { head: head.to_vec(), body, is_whole })
}

/// What is sent to the client for an answer, as the lane does it, and whether it is whole; `None` where it is none.
fn tell(bytes: &[u8], asked: &Method, size: usize) -> Option<(Vec<u8>, bool)> {
    let (mut parts, mut input) = (bytes.chunks(size.max(1)), BytesMut::new());
    let mut reply = Reply::default();
    let Begun { status, reason, mut framing, .. } = loop {
        match answer::take(&mut input, asked, &mut reply).ok()? {
            Some(begun) => break begun,
            None => input.extend_from_slice(parts.next()?),
        }
    };
    let mut sent = Vec::new();
    reply.put_head(&mut sent, (status, &reason, framing), |_| {}, || Timestamp::ZERO);
    loop {
        let before = sent.len();
        match framing.take(&mut input, &mut sent) {
            Ok(taken) if taken.is_whole => return Some((sent, true)),
            Ok(_) => {}
            Err(_) => {
                sent.truncate(before);
                return Some((sent, false));
            }
        }
        let Some(part) = parts.next() else { break };
        input.extend_from_slice(part);
    }
    let is_whole = framing.close(&mut sent).is_ok();
    Some((sent, is_whole))
}

/// The body of the answer that an upstream sent, and whether it is whole, by a second reader; `None` where it is none, or
/// could be read in two ways.
fn read_answer(mut bytes: &[u8], asked: &Method) -> Option<(Vec<u8>, bool)> {
    loop {
        let mut found = [EMPTY_HEADER; ANSWER_HEADERS_MAX];
        let mut response = httparse::Response::new(&mut found);
        let Ok(Status::Complete(length)) = response.parse(bytes) else { return None };
        bytes = &bytes[length..];
        match response.code {
            Some(101) => return None,
            Some(100..200) => continue,
            code if has_no_body(asked, code) => return Some((Vec::new(), true)),
            _ => {}
        }
        let mut about: Vec<_> =
            response.headers.iter().filter(|it| Body::is_about(it.name)).copied().collect();
        // A length that is told twice alike is handed on once, as RFC 9110 lets it (section 8.6).
        about.dedup_by_key(|it| match Body::of(slice::from_ref(it)) {
            Body::Length(length) => Ok(length),
            Body::Unknown | Body::Chunked => Err(it.value.as_ptr()),
        });
        if about.is_empty() {
            return Some((bytes.to_vec(), true));
        }
        let body = Body::of(&about);
        if body == Body::Unknown || (body == Body::Chunked && response.version != Some(1)) {
            return None;
        }
        let (body, end) = body.read(bytes);
        return Some((body, end.is_some()));
    }
}

fn has_no_body(asked: &Method, code: Option<u16>) -> bool {
    asked == Method::HEAD || matches!(code, Some(204 | 304))
}

/// Where a body ends, by the head before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// It is not said, or in more ways than one.
    Unknown,
    Length(u64),
    Chunked,
}

impl Body {
    fn is_about(name: &str) -> bool {
        ["content-length", "transfer-encoding"].iter().any(|it| name.eq_ignore_ascii_case(it))
    }

    fn of(headers: &[Header<'_>]) -> Self {
        let mut about = headers.iter().filter(|it| Self::is_about(it.name));
        let (Some(Header { name, value }), None) = (about.next(), about.next()) else {
            return Self::Unknown;
        };
        if name.eq_ignore_ascii_case("transfer-encoding") {
            let is_chunked = value.eq_ignore_ascii_case(b"chunked");
            return if is_chunked { Self::Chunked } else { Self::Unknown };
        }
        let length = value.iter().try_fold(0_i64, |length, byte| {
            let digit = char::from(*byte).to_digit(10)?;
            length.checked_mul(10)?.checked_add(digit.into())
        });
        match length.and_then(|length| u64::try_from(length).ok()) {
            Some(length) if !value.is_empty() => Self::Length(length),
            _ => Self::Unknown,
        }
    }

    /// What is there of the body that the bytes begin with, and where it ends; `None` where it does not.
    fn read(self, bytes: &[u8]) -> (Vec<u8>, Option<usize>) {
        match self {
            Self::Unknown => (Vec::new(), None),
            Self::Length(length) => {
                let end = usize::try_from(length).ok().filter(|end| *end <= bytes.len());
                (bytes[..end.unwrap_or(bytes.len())].to_vec(), end)
            }
            Self::Chunked => {
                let (body, last) = chunks(bytes);
                (body, last.and_then(|last| Some(last + trailers(&bytes[last..])?)))
            }
        }
    }

    /// Where it ends for hyper, which looks into trailers: they are handed on.
    fn end_of_request(self, bytes: &[u8]) -> Option<usize> {
        let end = self.read(bytes).1?;
        let Self::Chunked = self else { return Some(end) };
        let trailers = &bytes[chunks(bytes).1?..end];
        let mut found = [EMPTY_HEADER; HEADERS_MAX];
        httparse::parse_headers(trailers, &mut found).ok().map(|_| end)
    }
}

/// The bytes in the chunks that the bytes begin with, and where the trailers begin; `None` where they do not.
fn chunks(bytes: &[u8]) -> (Vec<u8>, Option<usize>) {
    let (mut body, mut start) = (Vec::new(), 0);
    while let Some((length, size)) = chunk_line(&bytes[start..]) {
        start += length;
        if size == 0 {
            return (body, Some(start));
        }
        let rest = &bytes[start..];
        let end = usize::try_from(size).map_or(rest.len(), |size| size.min(rest.len()));
        body.extend_from_slice(&rest[..end]);
        if !rest[end..].starts_with(b"\r\n") {
            break;
        }
        start += end + 2;
    }
    (body, None)
}

/// The length of a line about a chunk, and the size in it, as hyper reads them: it takes any bytes of an extension but
/// those that could end the line.
fn chunk_line(bytes: &[u8]) -> Option<(usize, u64)> {
    let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'))?;
    let line = &bytes[..end];
    if !bytes[end..].starts_with(b"\r\n") {
        return None;
    }
    let digits = line.split(|byte| matches!(byte, b' ' | b'\t' | b';')).next()?;
    let gap = line[digits.len()..].iter().find(|byte| !matches!(byte, b' ' | b'\t'));
    let size = digits.iter().try_fold(0_u64, |size, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        size.checked_mul(16)?.checked_add(digit.into())
    })?;
    (!digits.is_empty() && gap.is_none_or(|byte| *byte == b';')).then_some((end + 2, size))
}

/// How long the trailers are that the bytes begin with, whatever they say.
fn trailers(bytes: &[u8]) -> Option<usize> {
    let mut end = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        end += line.len();
        match line {
            b"\r\n" => return Some(end),
            line if !line.ends_with(b"\r\n") => return None,
            _ => {}
        }
    }
    None
}
