//! Where the body of a response over HTTP/1 ends, and how it is handed on: a body whose length is known as it
//! is, and any other in chunks of our own, so that nothing an upstream writes between its bytes gets to
//! the client.

use std::io::Write as _;

use bytes::{Buf as _, BytesMut};
use http::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Method, StatusCode, Version};
use memchr::memchr;

use crate::front::strict::{body_length, chunk_size};

/// The longest line about a chunk, and the most bytes of trailers.
const LINE_BYTES_MAX: usize = 4 << 10;
const TRAILER_BYTES_MAX: usize = 64 << 10;

/// What ends a body in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// How much of a body is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes.
    Length(u64),
    /// Chunks, the last of which says so.
    Chunked(At),
    /// Whatever comes before the connection ends.
    UntilClose,
}

/// Where in its chunks a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Before the size of a chunk.
    Size,
    /// In a chunk, with so many bytes to come.
    Chunk(u64),
    /// Behind a chunk, where an empty line has to be.
    ChunkEnd,
    /// In the trailers, of which so many bytes have come.
    Trailers(usize),
}

/// A body that cannot be told from what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unframed;

/// What was taken of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Bytes of the body itself.
    pub(crate) bytes: usize,
    pub(crate) is_whole: bool,
}

impl Framing {
    const NOTHING: Self = Self::Length(0);

    /// Reads it from the head of a response, in which it leaves what holds for the client as well.
    pub(crate) fn of(
        asked: &Method,
        version: Version,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) -> Result<Self, Unframed> {
        if status == StatusCode::NO_CONTENT {
            headers.remove(CONTENT_LENGTH);
        }
        let has_two = headers.get_all(TRANSFER_ENCODING).iter().count() > 1;
        let encoding = headers.remove(TRANSFER_ENCODING);
        let length = length(headers)?;
        if asked == Method::HEAD
            || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
        {
            return Ok(Self::NOTHING);
        }
        match (encoding, length) {
            (Some(encoding), None)
                if version == Version::HTTP_11
                    && !has_two
                    && encoding.as_bytes().eq_ignore_ascii_case(b"chunked") =>
            {
                Ok(Self::Chunked(At::Size))
            }
            (Some(_), _) => Err(Unframed),
            (None, Some(length)) => Ok(Self::Length(length)),
            (None, None) => Ok(Self::UntilClose),
        }
    }

    /// Appends the header that the client is told of a body whose length is not known.
    pub(crate) fn put_header(self, out: &mut Vec<u8>) {
        match self {
            Self::Length(_) => {}
            Self::Chunked(_) | Self::UntilClose => {
                out.extend_from_slice(b"transfer-encoding: chunked\r\n");
            }
        }
    }

    /// Moves what has come of the body from `input` to `out`.
    pub(crate) fn take(
        &mut self,
        input: &mut BytesMut,
        out: &mut Vec<u8>,
    ) -> Result<Taken, Unframed> {
        match self {
            Self::Length(left) => {
                let bytes = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                out.extend_from_slice(&input[..bytes]);
                input.advance(bytes);
                *left -= bytes as u64;
                Ok(Taken { bytes, is_whole: *left == 0 })
            }
            Self::UntilClose => {
                let bytes = input.len();
                put_chunk(out, input);
                input.clear();
                Ok(Taken { bytes, is_whole: false })
            }
            Self::Chunked(at) => {
                let mut bytes = 0;
                while let Some(is_whole) = at.step(input, out, &mut bytes)? {
                    if is_whole {
                        out.extend_from_slice(LAST_CHUNK);
                        return Ok(Taken { bytes, is_whole });
                    }
                }
                Ok(Taken { bytes, is_whole: false })
            }
        }
    }

    /// The connection has ended. Appends what ends the body, where that is how it ends.
    pub(crate) fn close(self, out: &mut Vec<u8>) -> Result<(), Unframed> {
        match self {
            Self::UntilClose => {
                out.extend_from_slice(LAST_CHUNK);
                Ok(())
            }
            Self::Length(_) | Self::Chunked(_) => Err(Unframed),
        }
    }
}

impl At {
    /// Goes on by one line or one piece, and says whether the body is whole; `None` where more has to come.
    fn step(
        &mut self,
        input: &mut BytesMut,
        out: &mut Vec<u8>,
        bytes: &mut usize,
    ) -> Result<Option<bool>, Unframed> {
        if let Self::Chunk(left) = self {
            let part = input.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
            if part == 0 {
                return Ok(None);
            }
            put_chunk(out, &input[..part]);
            input.advance(part);
            *bytes += part;
            *left -= part as u64;
            if *left == 0 {
                *self = Self::ChunkEnd;
            }
            return Ok(Some(false));
        }
        let bytes_max =
            if let Self::Trailers(_) = self { TRAILER_BYTES_MAX } else { LINE_BYTES_MAX };
        let end = memchr(b'\n', input);
        // However it came, it is as long as it is.
        if end.unwrap_or(input.len()) > bytes_max {
            return Err(Unframed);
        }
        let Some(end) = end else { return Ok(None) };
        let line = input.split_to(end + 1);
        let line = line.strip_suffix(b"\r\n").ok_or(Unframed)?;
        *self = match *self {
            Self::ChunkEnd if line.is_empty() => Self::Size,
            Self::Trailers(_) if line.is_empty() => return Ok(Some(true)),
            Self::Trailers(before) if before + end < TRAILER_BYTES_MAX => {
                Self::Trailers(before + end + 1)
            }
            Self::ChunkEnd | Self::Trailers(_) => return Err(Unframed),
            Self::Size | Self::Chunk(_) => match chunk_size(line).map_err(|_| Unframed)? {
                0 => Self::Trailers(0),
                size => Self::Chunk(size),
            },
        };
        Ok(Some(false))
    }
}

fn put_chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    // An empty chunk would end the body.
    if !bytes.is_empty() {
        // Writing to a `Vec` cannot fail.
        let _ = write!(out, "{:x}\r\n", bytes.len());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

/// The length that a head tells. One that is told twice alike is told once from here on.
fn length(headers: &mut HeaderMap) -> Result<Option<u64>, Unframed> {
    let mut lines = headers.get_all(CONTENT_LENGTH).iter().map(HeaderValue::as_bytes);
    let Some(first) = lines.next() else { return Ok(None) };
    let length = body_length(first).ok_or(Unframed)?;
    let mut is_repeated = false;
    for line in lines {
        is_repeated = true;
        if body_length(line) != Some(length) {
            return Err(Unframed);
        }
    }
    if is_repeated {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    Ok(Some(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framing(status: u16, lines: &[(&'static str, &'static str)]) -> Result<Framing, Unframed> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let status = StatusCode::from_u16(status).unwrap();
        Framing::of(&Method::GET, Version::HTTP_11, status, &mut headers)
    }

    #[test]
    fn a_head_says_where_its_body_ends_in_one_way_only() {
        assert_eq!(framing(200, &[("content-length", "7")]), Ok(Framing::Length(7)));
        let twice = [("content-length", "7"), ("content-length", "7")];
        assert_eq!(framing(200, &twice), Ok(Framing::Length(7)));
        let chunked = ("transfer-encoding", "Chunked");
        assert_eq!(framing(200, &[chunked]), Ok(Framing::Chunked(At::Size)));
        assert_eq!(framing(200, &[]), Ok(Framing::UntilClose));
        assert_eq!(framing(304, &[("content-length", "7")]), Ok(Framing::NOTHING));
        for lines in [
            &[("content-length", "7"), ("content-length", "8")][..],
            &[("content-length", "+7")],
            &[("content-length", "7, 7")],
            &[("content-length", "9223372036854775808")],
            &[("content-length", "7"), chunked],
            &[("transfer-encoding", "gzip, chunked")],
            &[("transfer-encoding", "identity")],
            &[chunked, ("transfer-encoding", "identity")],
        ] {
            assert_eq!(framing(200, lines), Err(Unframed), "{lines:?}");
        }
    }

    /// What a client gets of a body that comes in parts of so many bytes, and whether it is whole.
    fn taken(mut framing: Framing, body: &str, cut: usize) -> Result<(String, bool), Unframed> {
        let (mut input, mut out, mut is_whole) = (BytesMut::new(), Vec::new(), false);
        for part in body.as_bytes().chunks(cut) {
            assert!(!is_whole, "it ended before {part:?}");
            input.extend_from_slice(part);
            is_whole = framing.take(&mut input, &mut out)?.is_whole;
        }
        Ok((String::from_utf8(out).unwrap(), is_whole))
    }

    #[test]
    fn chunks_are_made_anew_however_they_come() {
        let body = "5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n";
        for cut in 1..=body.len() {
            let (out, is_whole) = taken(Framing::Chunked(At::Size), body, cut).unwrap();
            assert!(is_whole);
            let mut again = Framing::Chunked(At::Size);
            let (mut input, mut once) = (BytesMut::from(out.as_bytes()), Vec::new());
            let whole = again.take(&mut input, &mut once).unwrap();
            assert_eq!(whole, Taken { bytes: 15, is_whole: true });
            assert!(!out.contains("Trailer") && !out.contains("x=y"), "{out}");
        }
    }

    #[test]
    fn chunks_that_are_none_are_not_handed_on() {
        for body in [
            "x\r\n",
            "\r\n",
            "5\nhello",
            "-1\r\n",
            "3\r\nabcd\r\n",
            "11111111111111111\r\n",
            "5;a\rb\r\n",
            "5\x0c\r\n",
        ] {
            assert_eq!(taken(Framing::Chunked(At::Size), body, 100), Err(Unframed), "{body:?}");
        }
        let long = "1".repeat(LINE_BYTES_MAX + 2);
        assert_eq!(taken(Framing::Chunked(At::Size), &long, long.len()), Err(Unframed));
        let trailers = format!("0\r\n{}", "a: b\r\n".repeat(TRAILER_BYTES_MAX / 5));
        assert_eq!(taken(Framing::Chunked(At::Size), &trailers, 1_000), Err(Unframed));
    }

    #[test]
    fn a_trailer_may_be_as_long_as_all_of_them() {
        for (length, expected) in [
            (TRAILER_BYTES_MAX - 10, Ok(("0\r\n\r\n".to_owned(), true))),
            (TRAILER_BYTES_MAX, Err(Unframed)),
        ] {
            let body = format!("0\r\na: {}\r\n\r\n", "b".repeat(length));
            for cut in [1_000, body.len()] {
                assert_eq!(taken(Framing::Chunked(At::Size), &body, cut), expected, "cut at {cut}");
            }
        }
    }

    #[test]
    fn a_length_is_kept_to() {
        let mut framing = Framing::Length(5);
        let (mut input, mut out) = (BytesMut::from("hello, and more"), Vec::new());
        let taken = framing.take(&mut input, &mut out).unwrap();
        assert_eq!((taken, &out[..]), (Taken { bytes: 5, is_whole: true }, &b"hello"[..]));
        assert_eq!(&input[..], b", and more");
        assert_eq!(Framing::Length(1).close(&mut out), Err(Unframed));
    }

    #[test]
    fn what_ends_with_its_connection_is_told_to_be_whole() {
        let mut framing = Framing::UntilClose;
        let mut out = Vec::new();
        framing.take(&mut BytesMut::from("ab"), &mut out).unwrap();
        framing.take(&mut BytesMut::new(), &mut out).unwrap();
        framing.close(&mut out).unwrap();
        assert_eq!(out, b"2\r\nab\r\n0\r\n\r\n");
    }
}
