//! A reader that lets no request over HTTP/1 pass that two servers could read in two ways: with both
//! `Content-Length` and `Transfer-Encoding`, with one of them twice, with an encoding that is not `chunked`
//! alone, with folded lines, or with line ends that are none. Hyper settles some of these silently, which
//! hides them from whoever should refuse them.
//!
//! It follows the bytes without keeping them. Where it finds a fault it sees to it that the line ends with what hyper
//! refuses there, with 400 and a closed connection.

use memchr::memchr;

use crate::watched::{Watch, Watched};

/// The longest line that is followed.
const LINE_BYTES_MAX: usize = 1 << 20;
/// The most hexadecimal digits of a chunk's size: those of 64 bits.
const SIZE_DIGITS_MAX: usize = 16;
/// The longest body that somebody may say is to come: many servers count with a sign.
const BODY_BYTES_MAX: u64 = i64::MAX as u64;
/// A byte that belongs in no head, no size of a chunk and no trailer.
const SPOILT: u8 = 0;

/// A stream whose requests are looked at as they are read.
pub(crate) type Strict<S> = Watched<S, Scanner>;

impl<S> Strict<S> {
    /// Looks at requests, unless the stream speaks HTTP/2, which frames them in one way only.
    pub(crate) fn of_requests(stream: S, is_http2: bool) -> Self {
        let at = if is_http2 { At::Through } else { At::HEAD };
        Self::new(stream, Scanner::new(at))
    }
}

impl Watch for Scanner {
    fn came(&mut self, bytes: &mut [u8]) {
        self.scan(bytes);
    }
}

/// Where in its requests a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Head(Head),
    /// In a body, with so many bytes to come.
    Body(u64),
    /// Before the size of a chunk.
    Size,
    /// In a chunk, with so many bytes to come.
    Chunk(u64),
    /// Behind a chunk, where an empty line has to be.
    ChunkEnd,
    Trailers,
    /// Where nothing is looked at any more: behind a fault, or in a tunnel.
    Through,
}

/// What is known of a head so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    has_begun: bool,
    length: Option<u64>,
    is_chunked: bool,
    is_upgrade: bool,
}

impl At {
    pub(crate) const HEAD: Self =
        Self::Head(Head { has_begun: false, length: None, is_chunked: false, is_upgrade: false });
}

/// A line that can be read in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

#[derive(Debug)]
pub(crate) struct Scanner {
    pub(crate) at: At,
    /// Whether no other request follows on this one, but perhaps another protocol.
    is_last: bool,
    /// The beginning of a line whose end was not read yet.
    line: Vec<u8>,
}

impl Scanner {
    pub(crate) fn new(at: At) -> Self {
        Self { at, is_last: false, line: Vec::new() }
    }

    /// Follows what was read, and spoils it where there is a fault.
    pub(crate) fn scan(&mut self, bytes: &mut [u8]) {
        let mut start = 0;
        while start < bytes.len() && self.at != At::Through {
            let rest = bytes.len() - start;
            match &mut self.at {
                At::Body(left) => {
                    let part = (rest as u64).min(*left);
                    *left -= part;
                    start += part as usize;
                    if *left == 0 {
                        self.go_to(At::HEAD);
                    }
                }
                At::Chunk(left) => {
                    let part = (rest as u64).min(*left);
                    *left -= part;
                    start += part as usize;
                    if *left == 0 {
                        self.at = At::ChunkEnd;
                    }
                }
                _ => start = self.line(bytes, start),
            }
        }
    }

    /// Follows one line, or the part of it that was read, and answers where the next one begins.
    fn line(&mut self, bytes: &mut [u8], start: usize) -> usize {
        let Some(length) = memchr(b'\n', &bytes[start..]) else {
            self.line.extend_from_slice(&bytes[start..]);
            if self.line.len() > LINE_BYTES_MAX {
                self.at = At::Through;
                spoil(bytes);
            }
            return bytes.len();
        };
        let end = start + length;
        let line = &bytes[start..end];
        let has_return = line.last().or(self.line.last()) == Some(&b'\r');
        let next = if self.line.len() + length > LINE_BYTES_MAX {
            // However it came, it is as long as it is.
            Err(Fault)
        } else if self.line.is_empty() {
            after(self.at, line)
        } else {
            self.line.extend_from_slice(line);
            let next = after(self.at, &self.line);
            self.line.clear();
            next
        };
        let next = next.unwrap_or_else(|Fault| {
            // An extension of a chunk goes on over any other byte, and what follows would be read as a part of it. A
            // line feed by itself is refused there.
            if has_return || self.at != At::Size {
                spoil(&mut bytes[..=end]);
            }
            At::Through
        });
        self.go_to(next);
        end + 1
    }

    fn go_to(&mut self, next: At) {
        self.is_last |= matches!(self.at, At::Head(Head { is_upgrade: true, .. }));
        self.at = if self.is_last && next == At::HEAD { At::Through } else { next };
    }
}

/// Makes the last byte one that hyper takes nowhere but in a body, and in an extension of a chunk.
fn spoil(bytes: &mut [u8]) {
    if let Some(last) = bytes.last_mut() {
        *last = SPOILT;
    }
}

/// Whether the bytes are one head, have one reading, and are a whole request: no body follows on them, and no
/// other protocol.
pub(crate) fn is_whole(head: &[u8]) -> bool {
    let (mut at, mut start) = (At::HEAD, 0);
    while let Some(length) = memchr(b'\n', &head[start..]) {
        let Ok(next) = after(at, &head[start..start + length]) else { return false };
        (at, start) = (next, start + length + 1);
    }
    at == At::HEAD && start == head.len()
}

/// What follows on a line, which is without its line feed.
fn after(at: At, line: &[u8]) -> Result<At, Fault> {
    let line = line.strip_suffix(b"\r").ok_or(Fault)?;
    if memchr(b'\r', line).is_some() {
        return Err(Fault);
    }
    match at {
        At::Head(head) => in_head(head, line),
        At::Size => match chunk_size(line)? {
            0 => Ok(At::Trailers),
            size => Ok(At::Chunk(size)),
        },
        At::ChunkEnd if line.is_empty() => Ok(At::Size),
        At::ChunkEnd => Err(Fault),
        At::Trailers if line.is_empty() => Ok(At::HEAD),
        At::Trailers => Ok(At::Trailers),
        At::Body(_) | At::Chunk(_) | At::Through => Ok(at),
    }
}

fn in_head(mut head: Head, line: &[u8]) -> Result<At, Fault> {
    if !head.has_begun {
        // Empty lines before a request are skipped, as RFC 9112 has it (section 2.2).
        head.has_begun = !line.is_empty();
        return Ok(At::Head(head));
    }
    if line.is_empty() {
        return Ok(match head {
            Head { is_chunked: true, .. } => At::Size,
            Head { length: Some(length @ 1..), .. } => At::Body(length),
            Head { is_upgrade: true, .. } => At::Through,
            Head { .. } => At::HEAD,
        });
    }
    let colon = memchr(b':', line).ok_or(Fault)?;
    let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
    if name.is_empty() || name.iter().any(u8::is_ascii_whitespace) {
        return Err(Fault);
    }
    if name.eq_ignore_ascii_case(b"content-length") {
        if head.length.is_some() || head.is_chunked {
            return Err(Fault);
        }
        head.length = Some(body_length(value).ok_or(Fault)?);
    } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
        if head.length.is_some() || head.is_chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(Fault);
        }
        head.is_chunked = true;
    } else if name.eq_ignore_ascii_case(b"upgrade") {
        head.is_upgrade = true;
    }
    Ok(At::Head(head))
}

/// Digits alone: no sign, no list, nothing that is more than may be.
pub(crate) fn body_length(text: &[u8]) -> Option<u64> {
    let is_plain = text.iter().all(u8::is_ascii_digit);
    let length = std::str::from_utf8(text).ok().filter(|_| is_plain)?.parse().ok();
    length.filter(|length| *length <= BODY_BYTES_MAX)
}

/// The size in a line `1f;extension`.
pub(crate) fn chunk_size(line: &[u8]) -> Result<u64, Fault> {
    let end = line.iter().position(|byte| *byte == b';').unwrap_or(line.len());
    let (size, extension) = line.split_at(end);
    if memchr(b'\r', extension).is_some() {
        return Err(Fault);
    }
    let last = size.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).ok_or(Fault)?;
    let digits = &size[..=last];
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    if !is_hex || digits.len() > SIZE_DIGITS_MAX {
        return Err(Fault);
    }
    let digits = std::str::from_utf8(digits).map_err(|_| Fault)?;
    u64::from_str_radix(digits, 16).map_err(|_| Fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether some byte is spoilt, however the text is cut into reads.
    fn is_refused(text: &str) -> bool {
        let refused = |cut: usize| {
            let mut scanner = Scanner::new(At::HEAD);
            let mut bytes = text.as_bytes().to_vec();
            bytes.chunks_mut(cut).for_each(|part| scanner.scan(part));
            bytes != text.as_bytes()
        };
        let whole = refused(text.len());
        for cut in [1, 2, 3, 7] {
            assert_eq!(refused(cut), whole, "{text:?} cut by {cut}");
        }
        whole
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for rest in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
            "Content-Length: 5\r\nContent-Length: 5\r\n\r\n",
            "Content-Length: 5, 5\r\n\r\n",
            "Content-Length: +5\r\n\r\n",
            "Content-Length: 0x5\r\n\r\n",
            "Content-Length: 99999999999999999999\r\n\r\n",
            "Content-Length: 18446744073709551615\r\n\r\n",
            "Content-Length: 9223372036854775808\r\n\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Transfer-Encoding: chunked, identity\r\n\r\n",
            "Transfer-Encoding: gzip, chunked\r\n\r\n",
            "Transfer-Encoding: xchunked\r\n\r\n",
            "Transfer-Encoding: \x0bchunked\r\n\r\n",
            "Transfer-Encoding : chunked\r\n\r\n",
            " Transfer-Encoding: chunked\r\n\r\n",
            "A: b\r\n c\r\n\r\n",
            "A: b\nTransfer-Encoding: chunked\r\n\r\n",
            "A: b\rTransfer-Encoding: chunked\r\n\r\n",
            "no colon\r\n\r\n",
            ": no name\r\n\r\n",
            "\n",
        ] {
            assert!(is_refused(&format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}")), "{rest:?}");
        }
    }

    #[test]
    fn chunks_have_one_reading_only() {
        let head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        for body in [
            "x\r\n",
            "\r\n",
            "+5\r\n",
            "5 5\r\n",
            "5\x0c\r\n",
            "5;a\rb\r\n",
            "10000000000000000\r\n",
        ] {
            assert!(is_refused(&format!("{head}{body}")), "{body:?}");
        }
        assert!(is_refused(&format!("{head}2\r\nabc\r\n0\r\n\r\n")), "longer than its size");
        assert!(!is_refused(&format!(
            "{head}3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nt: 1\r\n\r\n"
        )));
    }

    /// Hyper refuses it as it is, and would take another byte for a part of the extension.
    #[test]
    fn a_line_feed_alone_behind_the_size_of_a_chunk_stays_and_ends_the_request() {
        for line in ["5\n", "5;a\n", "5;\n", "\n"] {
            for cut in [1, 2, line.len()] {
                let mut scanner = Scanner::new(At::Size);
                let mut bytes = line.as_bytes().to_vec();
                bytes.chunks_mut(cut).for_each(|part| scanner.scan(part));
                assert_eq!((scanner.at, &bytes[..]), (At::Through, line.as_bytes()), "{line:?}");
            }
        }
    }

    #[test]
    fn a_line_that_is_too_long_to_be_followed_is_refused() {
        for at in [At::HEAD, At::Size, At::Trailers] {
            let mut scanner = Scanner::new(at);
            let mut bytes = vec![b'0'; LINE_BYTES_MAX + 1];
            bytes.chunks_mut(1 << 10).for_each(|part| scanner.scan(part));
            assert_eq!((scanner.at, bytes.last()), (At::Through, Some(&SPOILT)));
        }
        // However it comes.
        for at in [At::HEAD, At::Trailers] {
            let mut scanner = Scanner::new(at);
            let mut bytes = vec![b'0'; LINE_BYTES_MAX + 2];
            bytes[LINE_BYTES_MAX..].copy_from_slice(b"\r\n");
            scanner.scan(&mut bytes);
            assert_eq!((scanner.at, bytes.last()), (At::Through, Some(&SPOILT)), "{at:?}");
        }
    }

    #[test]
    fn ordinary_requests_pass_one_after_the_other() {
        let requests = "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n\
            POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\na\nb\
            POST / HTTP/1.1\r\ntransfer-encoding: Chunked\r\n\r\n3\r\na\nb\r\n0\r\n\r\n\
            POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n\
            GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert!(!is_refused(requests));
        assert!(is_refused(&format!("{requests}GET / HTTP/1.1\r\nA: b\nc: d\r\n\r\n")));
    }

    /// Whoever offers another protocol may have a body, and no way around what is asked of one.
    #[test]
    fn a_body_before_another_protocol_has_one_reading_too() {
        let of = |framing: &str, body: &str| {
            is_refused(&format!("POST / HTTP/1.1\r\nUpgrade: h2c\r\n{framing}\r\n\r\n{body}"))
        };
        let chunked = "Transfer-Encoding: chunked";
        assert!(of(chunked, "0\r\n\nGET /hidden HTTP/1.1\r\n\r\n"));
        assert!(of(chunked, "00000000000000000\r\n\r\n"));
        for next in ["", "\n\n\r\r"] {
            assert!(!of(chunked, &format!("1\r\na\r\n0\r\n\r\n{next}")), "{next:?}");
            assert!(!of("Content-Length: 3", &format!("a\nb{next}")), "{next:?}");
        }
    }

    #[test]
    fn a_tunnel_and_http2_are_left_alone() {
        let upgrade = "GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n\n\n\r\r";
        assert!(!is_refused(upgrade));
        let strict = Strict::of_requests((), true);
        assert_eq!(strict.watch.at, At::Through);
    }
}
