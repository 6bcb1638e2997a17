//! Heads of HTTP/1 from bytes to the types of the `http` crate, and back. What is in them is looked at
//! elsewhere.

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use memchr::memchr;
use tidegate::Timestamp;
use tidegate_server::web::date::put_date;

/// A head that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoHead;

/// How long the head is that the bytes begin with, its empty line included; `None` where that is not there
/// yet.
pub(crate) fn end(bytes: &[u8]) -> Option<usize> {
    let mut start = 0;
    while let Some(length) = memchr(b'\n', &bytes[start..]) {
        start += length + 1;
        match &bytes[start..] {
            [b'\n', ..] => return Some(start + 1),
            [b'\r', b'\n', ..] => return Some(start + 2),
            _ => {}
        }
    }
    None
}

/// Puts the headers that were found in a head into a map, in the place of those that are there. Values are
/// parts of the head.
pub(crate) fn take_headers(
    head: &Bytes,
    found: &[httparse::Header<'_>],
    headers: &mut HeaderMap,
) -> Result<(), NoHead> {
    headers.clear();
    for httparse::Header { name, value } in found {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| NoHead)?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(value)).map_err(|_| NoHead)?;
        headers.append(name, value);
    }
    Ok(())
}

/// Appends the first line of a response.
pub(crate) fn put_status(out: &mut Vec<u8>, status: StatusCode, reason: &[u8]) {
    for part in [b"HTTP/1.1 ", status.as_str().as_bytes(), b" ", reason, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends headers, a line for each.
pub(crate) fn put_headers(out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        put_line(out, name.as_str().as_bytes(), value.as_bytes());
    }
}

/// Appends one header.
#[inline]
pub(crate) fn put_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends the time, which clients are told where nobody has told them.
pub(crate) fn put_date_line(out: &mut Vec<u8>, now: Timestamp) {
    out.extend_from_slice(b"date: ");
    put_date(out, now);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_ends_with_its_empty_line() {
        assert_eq!(end(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nrest"), Some(27));
        assert_eq!(end(b"HTTP/1.1 200 OK\nA: b\n\nrest"), Some(22));
        for part in ["", "GET", "GET / HTTP/1.1\r\n", "A: b\r\nC: d\r\n\r", "\n"] {
            assert_eq!(end(part.as_bytes()), None, "{part:?}");
        }
    }

    #[test]
    fn headers_that_go_in_come_out() {
        let head = Bytes::from_static(b"A: 1\r\nB: 2\r\nA: 3\r\n\r\n");
        let mut found = [httparse::EMPTY_HEADER; 4];
        let Ok(httparse::Status::Complete((_, found))) = httparse::parse_headers(&head, &mut found)
        else {
            panic!("a head")
        };
        let mut headers = HeaderMap::new();
        headers.insert("left", HeaderValue::from_static("over"));
        take_headers(&head, found, &mut headers).unwrap();
        let mut out = Vec::new();
        put_headers(&mut out, &headers);
        assert_eq!(out, b"a: 1\r\na: 3\r\nb: 2\r\n");
    }
}
