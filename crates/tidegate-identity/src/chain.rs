//! The addresses that proxies noted, from the right: the nearest proxy's first.
//!
//! Each proxy adds at the right what it saw, and what stands to the left of that came with the
//! request. So the headers are taken apart from the right as well: nothing that a client wrote at the left, such
//! as a quote that never ends, changes how the entries of the proxies are read.

use core::net::IpAddr;

use http::HeaderMap;
use http::header::{FORWARDED, HeaderName, ValueIter};

use crate::node;

/// The header that the proxies use. It is one or the other: whoever reads both believes a client
/// that sends the one which its proxies do not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For: 192.0.2.7, 10.0.0.1`.
    #[default]
    XForwardedFor,
    /// `Forwarded: for=192.0.2.7, for="[2001:db8::1]:4711"` of RFC 7239.
    Forwarded,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The entries from the right, `None` where one has no address. Empty ones do not count (RFC 9110,
/// section 5.6.1).
pub(crate) struct Chain<'h> {
    header: ForwardedHeader,
    lines: ValueIter<'h, http::HeaderValue>,
    rest: Option<&'h [u8]>,
}

impl<'h> Chain<'h> {
    pub(crate) fn new(headers: &'h HeaderMap, header: ForwardedHeader) -> Self {
        let name = match header {
            ForwardedHeader::XForwardedFor => X_FORWARDED_FOR,
            ForwardedHeader::Forwarded => FORWARDED,
        };
        Self { header, lines: headers.get_all(name).into_iter(), rest: None }
    }
}

impl Iterator for Chain<'_> {
    type Item = Option<IpAddr>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = match self.rest.take() {
                Some(rest) => rest,
                None => self.lines.next_back()?.as_bytes(),
            };
            let comma = match self.header {
                ForwardedHeader::XForwardedFor => rest.iter().rposition(|byte| *byte == b','),
                ForwardedHeader::Forwarded => last_comma_outside_quotes(rest),
            };
            let entry = comma.map_or(rest, |comma| &rest[comma + 1..]);
            self.rest = comma.map(|comma| &rest[..comma]);
            if entry.trim_ascii().is_empty() {
                continue;
            }
            return Some(match self.header {
                ForwardedHeader::XForwardedFor => node::parse(entry),
                ForwardedHeader::Forwarded => node_of_element(entry),
            });
        }
    }
}

/// Quotes are counted from the right, where what a proxy wrote begins.
fn last_comma_outside_quotes(line: &[u8]) -> Option<usize> {
    let mut quoted = false;
    let mut at = line.len();
    while at > 0 {
        at -= 1;
        match line[at] {
            b'"' => {
                let escapes = line[..at].iter().rev().take_while(|byte| **byte == b'\\').count();
                if escapes % 2 == 0 {
                    quoted = !quoted;
                }
                at -= escapes;
            }
            b',' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// The address of the one `for` among the pairs of an element, if all pairs are well formed.
fn node_of_element(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    let mut rest = element.trim_ascii();
    loop {
        let equals = rest.iter().position(|byte| *byte == b'=')?;
        let name = rest[..equals].trim_ascii();
        let after = &rest[equals + 1..];
        let length = value_length(after)?;
        if name.eq_ignore_ascii_case(b"for") {
            if found.is_some() {
                return None;
            }
            found = Some(node::parse(&after[..length])?);
        } else if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return None;
        }
        match after.get(length..)?.trim_ascii_start() {
            [] => return found,
            [b';', more @ ..] => rest = more.trim_ascii_start(),
            _ => return None,
        }
        // `for=192.0.2.7;` with nothing after it is common and harmless.
        if rest.is_empty() {
            return found;
        }
    }
}

/// How long the value at the beginning is, quotes included; none if its quotes do not close.
fn value_length(text: &[u8]) -> Option<usize> {
    if text.first() != Some(&b'"') {
        let length = text.iter().position(|byte| *byte == b';').unwrap_or(text.len());
        return (!text[..length].contains(&b'"')).then_some(length);
    }
    let mut escaped = false;
    for (at, byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn chain(header: ForwardedHeader, lines: &[&str]) -> Vec<String> {
        let name = match header {
            ForwardedHeader::XForwardedFor => "x-forwarded-for",
            ForwardedHeader::Forwarded => "forwarded",
        };
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        let entries = Chain::new(&headers, header);
        entries.map(|entry| entry.map_or("-".to_owned(), |address| address.to_string())).collect()
    }

    fn forwarded(line: &str) -> Vec<String> {
        chain(ForwardedHeader::Forwarded, &[line])
    }

    #[test]
    fn entries_come_from_the_right_and_repeated_headers_in_order() {
        let lines = ["192.0.2.1, 192.0.2.2", "", "192.0.2.3,,192.0.2.4 , "];
        let expected = ["192.0.2.4", "192.0.2.3", "192.0.2.2", "192.0.2.1"];
        assert_eq!(chain(ForwardedHeader::XForwardedFor, &lines), expected);
    }

    #[test]
    fn forwarded_elements_are_read_with_all_their_pairs() {
        let line =
            "For=192.0.2.1;proto=http;by=203.0.113.9, for=\"[2001:db8::1]:4711\";host=\"a,b;c\"";
        assert_eq!(forwarded(line), ["2001:db8::1", "192.0.2.1"]);
        assert_eq!(forwarded("proto=https; for=192.0.2.1 ;"), ["192.0.2.1"]);
    }

    #[test]
    fn elements_that_break_the_grammar_have_no_address() {
        for line in [
            "by=192.0.2.1",
            "for",
            "for=",
            "for=192.0.2.1;for=192.0.2.2",
            "for=192.0.2.1;=x",
            "for=192.0.2.1 x",
            "for=unknown",
            "for=_gazonk",
            "for=\"192.0.2.1",
            "for=192.0.2.1\"",
            "a b=c;for=192.0.2.1",
        ] {
            assert_eq!(forwarded(line), ["-"], "{line}");
        }
    }

    #[test]
    fn a_quote_that_the_client_left_open_does_not_swallow_the_proxy() {
        for client in ["for=\"", "for=\"x\\", "\"", "for=\"6.6.6.6;", "host=\"a,b"] {
            let line = format!("{client}, for=192.0.2.7;host=\"x, for=6.6.6.6;y=\\\"z\"");
            assert_eq!(forwarded(&line)[0], "192.0.2.7", "{line}");
        }
    }

    #[test]
    fn the_other_header_is_not_looked_at() {
        let mut headers = HeaderMap::new();
        headers.insert("forwarded", HeaderValue::from_static("for=192.0.2.1"));
        assert_eq!(Chain::new(&headers, ForwardedHeader::XForwardedFor).count(), 0);
    }
}
