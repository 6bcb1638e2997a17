//! HTTP/1.1, framed by hand: a status line, a `content-length`, a body. Anything else that HTTP can
//! do is refused rather than guessed at.

pub(crate) mod streams;

use memchr::{memchr, memmem};

use super::template::{Template, filled};
use super::{ANSWER_BYTES_MAX, Broken, Wire};
use crate::bench::keys::Key;
use crate::bench::tally::Verdict;

/// Requests for `PATH`, with a body or without.
#[derive(Clone, Debug)]
pub(crate) struct Http {
    request: Template,
    /// Whether a denial stands in the body, and not in the status.
    reads_body: bool,
    answered: u64,
    /// The server has said that it closes the connection after the answer that was read last.
    closing: bool,
}

impl Http {
    pub(crate) fn new(host: &str, path: &str, body: Option<&str>) -> Self {
        let request = match body {
            None => format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n"),
            Some(body) => format!(
                "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{body}",
                filled(body).len()
            ),
        };
        let reads_body = body.is_some();
        Self { request: Template::new(request), reads_body, answered: 0, closing: false }
    }
}

/// What an answer says, whichever version of HTTP it came over. Where something was posted, a denial
/// may stand in the body, and not in the status.
fn verdict(status: u16, reads_body: bool, body: &[u8]) -> Verdict {
    match status {
        200 if reads_body && memmem::find(body, b"\"allowed\":false").is_some() => Verdict::Denied,
        200..=299 => Verdict::Allowed,
        429 => Verdict::Denied,
        _ => Verdict::Failed(format!("the server answered with status {status}")),
    }
}

impl Wire for Http {
    fn connected(&mut self, _out: &mut Vec<u8>) {
        self.answered = 0;
        self.closing = false;
    }

    fn room(&self) -> usize {
        if self.closing { 0 } else { usize::MAX }
    }

    #[inline]
    fn ask(&mut self, key: &Key, out: &mut Vec<u8>) {
        self.request.write(key, out);
    }

    fn read(
        &mut self,
        input: &[u8],
        _out: &mut Vec<u8>,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<usize, Broken> {
        let mut read = 0;
        while let Some(head) = Head::parse(&input[read..])? {
            let rest = &input[read + head.bytes..];
            let Some(body) = rest.get(..head.body_bytes) else { break };
            answers.push((self.answered, verdict(head.status, self.reads_body, body)));
            self.answered += 1;
            self.closing |= head.closes;
            read += head.bytes + head.body_bytes;
        }
        if self.closing && read == input.len() {
            return Err(Broken::GoingAway);
        }
        Ok(read)
    }
}

/// What matters of the head of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    bytes: usize,
    body_bytes: usize,
    closes: bool,
}

/// The most bytes of a head: there is none so long that it could be an honest one.
const HEAD_BYTES_MAX: usize = 16 << 10;

impl Head {
    /// `None` where it is not all there yet.
    fn parse(input: &[u8]) -> Result<Option<Self>, Broken> {
        let mut lines = Lines { input, at: 0 };
        let Some(line) = lines.next()? else { return Ok(None) };
        let status = status(line)?;
        let (mut body_bytes, mut closes) = (None, line.starts_with(b"HTTP/1.0"));
        loop {
            let Some(line) = lines.next()? else { return Ok(None) };
            // Names that begin otherwise are none of those that matter.
            match line.first() {
                None => break,
                Some(b'c' | b'C') => {
                    if let Some(value) = value(line, b"content-length") {
                        let number = std::str::from_utf8(value).ok().and_then(|v| v.parse().ok());
                        body_bytes = Some(number.ok_or(Broken::Malformed("content-length"))?);
                    } else if let Some(value) = value(line, b"connection") {
                        closes |= value.eq_ignore_ascii_case(b"close");
                    }
                }
                Some(b't' | b'T') if value(line, b"transfer-encoding").is_some() => {
                    return Err(Broken::Malformed("a body in chunks is not understood here"));
                }
                Some(_) => {}
            }
        }
        let body_bytes = match (status, body_bytes) {
            (204 | 304, _) => 0,
            (100..=199, _) => return Err(Broken::Malformed("an answer before the answer")),
            (_, Some(bytes)) if bytes > ANSWER_BYTES_MAX => return Err(Broken::TooLong),
            (_, Some(bytes)) => bytes,
            (_, None) => return Err(Broken::Malformed("an answer without content-length")),
        };
        Ok(Some(Self { status, bytes: lines.at, body_bytes, closes }))
    }
}

/// `HTTP/1.1 200 OK`
fn status(line: &[u8]) -> Result<u16, Broken> {
    let rest = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "));
    match rest {
        Some([a @ b'1'..=b'5', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..])
            if rest.first().is_none_or(|space| *space == b' ') =>
        {
            let digit = |digit: u8| u16::from(digit - b'0');
            Ok(digit(*a) * 100 + digit(*b) * 10 + digit(*c))
        }
        _ => Err(Broken::Malformed("no status line of HTTP/1.1")),
    }
}

/// What stands after `name:`.
fn value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (found, rest) = line.split_at_checked(name.len())?;
    let rest = rest.strip_prefix(b":")?;
    found.eq_ignore_ascii_case(name).then(|| rest.trim_ascii())
}

/// Lines that end with CR LF.
struct Lines<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    /// `None` where the next one is not all there yet.
    fn next(&mut self) -> Result<Option<&'a [u8]>, Broken> {
        let rest = &self.input[self.at..];
        let Some(end) = memchr(b'\n', rest) else {
            let too_long = self.input.len() > HEAD_BYTES_MAX;
            return if too_long { Err(Broken::TooLong) } else { Ok(None) };
        };
        self.at += end + 1;
        let line = rest[..end].strip_suffix(b"\r");
        line.map(Some).ok_or(Broken::Malformed("a line that does not end with CR LF"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(http: &mut Http, input: &[u8]) -> (Result<usize, Broken>, Vec<(u64, Verdict)>) {
        let mut answers = Vec::new();
        let read = http.read(input, &mut Vec::new(), &mut answers);
        (read, answers)
    }

    fn http() -> Http {
        Http::new("here", "/limit/{key}", None)
    }

    const ALLOWED: &[u8] =
        b"HTTP/1.1 200 OK\r\nX-RateLimit-Limit: 10\r\nContent-Length: 2\r\n\r\nok";
    const DENIED: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length:0\r\n\r\n";

    #[test]
    fn a_request_is_the_least_that_http_asks_for() {
        let mut out = Vec::new();
        http().ask(b"key:000000000007", &mut out);
        assert_eq!(out, b"GET /limit/key:000000000007 HTTP/1.1\r\nhost: here\r\n\r\n");
        out.clear();
        let mut with_body = Http::new("here", "/v1/check", Some(r#"{"key":"{key}"}"#));
        with_body.ask(b"key:000000000007", &mut out);
        let expected = "POST /v1/check HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\n\
                        content-length: 26\r\n\r\n{\"key\":\"key:000000000007\"}";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn answers_are_read_in_order_wherever_the_bytes_are_cut() {
        let both = [ALLOWED, DENIED].concat();
        for cut in 0..both.len() {
            let mut http = http();
            let (first, mut answers) = read(&mut http, &both[..cut]);
            let first = first.unwrap();
            let (second, more) = read(&mut http, &both[first..]);
            assert_eq!(first + second.unwrap(), both.len(), "cut at {cut}");
            answers.extend(more);
            assert_eq!(answers, [(0, Verdict::Allowed), (1, Verdict::Denied)], "cut at {cut}");
        }
    }

    #[test]
    fn other_statuses_are_failures_with_their_number() {
        let (_, answers) =
            read(&mut http(), b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(answers, [(0, Verdict::Failed("the server answered with status 404".into()))]);
    }

    #[test]
    fn a_denial_in_the_body_is_seen_where_a_body_was_sent() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"allowed\":false}";
        let mut asking = Http::new("here", "/v1/check", Some("{}"));
        assert_eq!(read(&mut asking, answer).1, [(0, Verdict::Denied)]);
        assert_eq!(read(&mut http(), answer).1, [(0, Verdict::Allowed)]);
    }

    #[test]
    fn what_is_not_understood_breaks_the_connection() {
        for (input, what) in [
            (&b"+OK\r\n"[..], "no status line of HTTP/1.1"),
            (b"HTTP/1.1 2000\r\n", "no status line of HTTP/1.1"),
            (b"HTTP/1.1 200 OK\n", "a line that does not end with CR LF"),
            (b"HTTP/1.1 200 OK\r\n\r\n", "an answer without content-length"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "content-length"),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                "a body in chunks is not understood here",
            ),
        ] {
            assert_eq!(read(&mut http(), input).0, Err(Broken::Malformed(what)));
        }
        let long = [b"HTTP/1.1 200 OK\r\n", &[b'a'; HEAD_BYTES_MAX][..]].concat();
        assert_eq!(read(&mut http(), &long).0, Err(Broken::TooLong));
    }

    #[test]
    fn a_server_that_closes_is_asked_no_more() {
        let mut http = http();
        let (end, answers) =
            read(&mut http, b"HTTP/1.1 200 OK\r\nConnection: Close\r\ncontent-length: 0\r\n\r\n");
        assert_eq!((end, answers.len()), (Err(Broken::GoingAway), 1));
        assert_eq!(http.room(), 0);
        http.connected(&mut Vec::new());
        assert!(http.room() > 0);
    }
}
