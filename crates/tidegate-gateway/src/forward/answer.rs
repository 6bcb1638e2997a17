//! One request over one connection of HTTP/1, and the head of its response, without a general client in
//! between. Where a head can be read in two ways it is not read at all.

use std::io;
use std::mem::MaybeUninit;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, DATE, TRAILER};
use http::{HeaderMap, Method, StatusCode, Version};
use tidegate::Timestamp;

use super::framing::Framing;
use super::head::{self, NoHead};
use super::hop;
use crate::front::strict::body_length;
use crate::upstream::Server;
use crate::upstream::cause::Cause;
use crate::upstream::line::{Line, SendError};

/// The longest head of a response, and the most headers in it.
const HEAD_BYTES_MAX: usize = 256 << 10;
const HEADERS_MAX: usize = 256;

/// What an upstream has begun to answer. The head is in a [`Reply`] of the caller's.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) line: Line,
    pub(crate) status: StatusCode,
    pub(crate) reason: Bytes,
    pub(crate) framing: Framing,
    /// Whether the connection may carry another request once the body has ended.
    pub(crate) can_stay: bool,
}

/// The head of a response as the client is to be told it, in memory that the next one uses again.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    /// Lines of HTTP/1 that can be sent as they are: nothing in the head is about a connection, about limits, or
    /// out of the ordinary. Empty where that is not so.
    pub(crate) lines: Vec<u8>,
    /// The headers, where there are no lines.
    pub(crate) headers: HeaderMap,
    /// Whether lines or headers tell the time.
    pub(crate) has_date: bool,
}

/// Sends the bytes of a request that has no body, and reads the head of the response into `reply`. The caller
/// bounds the time that it takes. Where there is [no connection](Cause::Connect) nothing was sent; otherwise the upstream
/// may have seen the request.
pub(crate) async fn exchange(
    server: &Server,
    connect_timeout: Duration,
    (asked, request): (&Method, &[u8]),
    reply: &mut Reply,
) -> Result<Answer, Cause> {
    let unfit = || Cause::Connect(io::ErrorKind::Unsupported.into());
    let lines = server.lines.as_ref().ok_or_else(unfit)?;
    let line = loop {
        let idle = lines.idle();
        let is_new = idle.is_none();
        let mut line = match idle {
            Some(line) => line,
            // It is rare, and large.
            None => Box::pin(lines.connect(connect_timeout)).await.map_err(Cause::Connect)?,
        };
        match line.send(request).await {
            Ok(()) => break line,
            // It was closed before anything was written: another one does. A new connection that does the
            // same again and again is no connection.
            Err(SendError::Unsent(_)) if !is_new => {}
            Err(SendError::Unsent(error)) => return Err(Cause::Connect(error)),
            Err(SendError::Broken(error)) => return Err(Cause::Cut(error)),
        }
    };
    read(line, asked, reply).await
}

async fn read(mut line: Line, asked: &Method, reply: &mut Reply) -> Result<Answer, Cause> {
    loop {
        let begun = take(&mut line.input, asked, reply).map_err(|NoHead| Cause::NoHttp)?;
        if let Some(Begun { status, reason, framing, can_stay }) = begun {
            return Ok(Answer { line, status, reason, framing, can_stay });
        }
        if line.read().await.map_err(Cause::Cut)? == 0 {
            return Err(Cause::Closed);
        }
    }
}

/// Takes the head of a response from what has come; `None` where more has to come.
pub(crate) fn take(
    input: &mut BytesMut,
    asked: &Method,
    reply: &mut Reply,
) -> Result<Option<Begun>, NoHead> {
    loop {
        // As many readers do, ours of other ways among them.
        let skipped = empty_lines(input);
        let Some(length) = head::end(&input[skipped..]) else {
            let may_come = input.len() <= HEAD_BYTES_MAX && may_begin(&input[skipped..]);
            return if may_come { Ok(None) } else { Err(NoHead) };
        };
        // However it came, it is as long as it is.
        if skipped + length > HEAD_BYTES_MAX {
            return Err(NoHead);
        }
        let head = input.split_to(skipped + length).freeze();
        // What comes before the response itself is for us alone.
        if let Some(begun) = begin(&head, asked, reply)? {
            return Ok(Some(begun));
        }
    }
}

/// How many bytes of empty lines come first.
fn empty_lines(bytes: &[u8]) -> usize {
    let is_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    bytes.iter().position(|byte| !is_end(byte)).unwrap_or(bytes.len())
}

/// Whether the head of a response may begin so. What speaks something else, and waits for an answer in it, would be waited
/// for until the time is over.
fn may_begin(bytes: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"HTTP/1.";
    let length = bytes.len().min(BEGINNING.len());
    bytes[..length] == BEGINNING[..length]
}

/// What a head says.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) status: StatusCode,
    pub(crate) reason: Bytes,
    pub(crate) framing: Framing,
    can_stay: bool,
}

/// Reads a head; `None` where it only announces another one.
fn begin(head: &Bytes, asked: &Method, reply: &mut Reply) -> Result<Option<Begun>, NoHead> {
    let mut found = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        head,
        &mut found,
    );
    let (Ok(httparse::Status::Complete(_)), Some(code)) = (parsed, response.code) else {
        return Err(NoHead);
    };
    let status = StatusCode::from_u16(code).map_err(|_| NoHead)?;
    if status == StatusCode::SWITCHING_PROTOCOLS {
        // Nobody asked for it.
        return Err(NoHead);
    }
    if status.is_informational() {
        return Ok(None);
    }
    let reason = head.slice_ref(response.reason.unwrap_or_default().as_bytes());
    let version = if response.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let has_body = *asked != Method::HEAD
        && ![StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    if has_body
        && version == Version::HTTP_11
        && let Some((length, can_stay)) = reply.put_plain(response.headers)
    {
        let framing = Framing::Length(length);
        return Ok(Some(Begun { status, reason, framing, can_stay }));
    }
    let headers = &mut reply.headers;
    reply.lines.clear();
    head::take_headers(head, response.headers, headers)?;
    reply.has_date = headers.contains_key(DATE);
    let can_stay = version == Version::HTTP_11 && !headers.get_all(CONNECTION).iter().any(closes);
    let framing = Framing::of(asked, version, status, headers).map_err(|_| NoHead)?;
    if let Framing::Chunked(_) = framing {
        // Nobody has said that they understand trailers, so none are handed on.
        headers.remove(TRAILER);
    }
    let can_stay = can_stay && framing != Framing::UntilClose;
    Ok(Some(Begun { status, reason, framing, can_stay }))
}

/// Headers that are not handed on as they are, or say something about the body that is not its length. Nor are those with
/// `_` in their names, which some read as `-`.
static SPECIAL: [&str; 11] = [
    "te",
    "upgrade",
    "trailer",
    "ratelimit",
    "keep-alive",
    "proxy-connection",
    "ratelimit-policy",
    "transfer-encoding",
    "proxy-authenticate",
    "proxy-authorization",
    "content-length",
];
/// What headers about limits begin with that are older.
const X_LIMITS: &str = "x-ratelimit";

impl Reply {
    /// Makes lines of headers, and says how long the body is and whether the connection stays; `None` where
    /// a header is in the way.
    fn put_plain(&mut self, found: &[httparse::Header<'_>]) -> Option<(u64, bool)> {
        let (mut length, mut can_stay) = (None, true);
        self.lines.clear();
        self.has_date = false;
        for httparse::Header { name, value } in found {
            let is = |word: &str| name.len() == word.len() && name.eq_ignore_ascii_case(word);
            if is("connection") {
                can_stay &= value.eq_ignore_ascii_case(b"keep-alive");
                if can_stay || value.eq_ignore_ascii_case(b"close") {
                    continue;
                }
                return None;
            }
            if is("content-length") && length.is_none() {
                length = Some(body_length(value)?);
            } else if SPECIAL.into_iter().any(is) || begins(name, X_LIMITS) || name.contains('_') {
                return None;
            }
            self.has_date |= is("date");
            self.lines.extend(name.bytes().map(|byte| byte.to_ascii_lowercase()));
            for part in [b": ", *value, b"\r\n"] {
                self.lines.extend_from_slice(part);
            }
        }
        Some((length?, can_stay))
    }
}

/// Where a client is told of its standing.
pub(crate) enum Tell<'r> {
    Headers(&'r mut HeaderMap),
    /// As lines of HTTP/1.
    Lines(&'r mut Vec<u8>),
}

impl Reply {
    /// Appends the head as the client is told it. What is told of its standing is for `tell` to add; the time is asked for
    /// where the upstream does not tell it.
    pub(crate) fn put_head(
        &mut self,
        out: &mut Vec<u8>,
        (status, reason, framing): (StatusCode, &[u8], Framing),
        tell: impl FnOnce(Tell<'_>),
        now: impl FnOnce() -> Timestamp,
    ) {
        head::put_status(out, status, reason);
        if self.lines.is_empty() {
            hop::strip(&mut self.headers);
            tell(Tell::Headers(&mut self.headers));
            head::put_headers(out, &self.headers);
            // The bytes that they are parts of are read into again.
            self.headers.clear();
        } else {
            out.extend_from_slice(&self.lines);
            tell(Tell::Lines(out));
        }
        framing.put_header(out);
        if !self.has_date {
            head::put_date_line(out, now());
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn begins(name: &str, word: &str) -> bool {
    name.get(..word.len()).is_some_and(|name| name.eq_ignore_ascii_case(word))
}

fn closes(value: &http::HeaderValue) -> bool {
    let mut words = value.as_bytes().split(|byte| *byte == b',');
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status of an answer that comes in parts of so many bytes.
    fn taken(answer: &str, cut: usize) -> Result<Option<StatusCode>, NoHead> {
        let (mut input, mut reply) = (BytesMut::new(), Reply::default());
        for part in answer.as_bytes().chunks(cut) {
            input.extend_from_slice(part);
            if let Some(begun) = take(&mut input, &Method::GET, &mut reply)? {
                return Ok(Some(begun.status));
            }
        }
        Ok(None)
    }

    #[test]
    fn an_answer_is_the_same_however_it_arrives() {
        const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        const EARLY: &str = "HTTP/1.1 100 Continue\r\n\r\n";
        for (answer, expected) in [
            (HEAD.to_owned(), Ok(Some(StatusCode::OK))),
            (format!("\r\n{HEAD}"), Ok(Some(StatusCode::OK))),
            (format!("\n\r\n\r\n{HEAD}"), Ok(Some(StatusCode::OK))),
            (format!("{EARLY}\r\n{HEAD}"), Ok(Some(StatusCode::OK))),
            (format!("\r\n{EARLY}"), Ok(None)),
            ("\r\n\r\n".to_owned(), Ok(None)),
            (format!("\r\n220 mail\r\n{HEAD}"), Err(NoHead)),
            (format!(" {HEAD}"), Err(NoHead)),
        ] {
            for cut in 1..=answer.len() {
                assert_eq!(taken(&answer, cut), expected, "{answer:?} cut by {cut}");
            }
        }
    }

    #[test]
    fn a_head_that_is_too_long_is_none_however_it_arrives() {
        for (length, is_taken) in [(HEAD_BYTES_MAX, true), (HEAD_BYTES_MAX + 1, false)] {
            let head = "HTTP/1.1 200 OK\r\nA: \r\n\r\n";
            let filled = "x".repeat(length - head.len());
            let answer = format!("HTTP/1.1 200 OK\r\nA: {filled}\r\n\r\n");
            for cut in [1 << 10, answer.len()] {
                assert_eq!(taken(&answer, cut).is_ok(), is_taken, "{length} cut by {cut}");
            }
        }
    }

    #[test]
    fn empty_lines_are_not_read_for_ever() {
        let lines = "\r\n".repeat(HEAD_BYTES_MAX);
        assert_eq!(taken(&lines, 1 << 10), Err(NoHead));
    }
}
