//! The host of a request in one spelling: lower case, without port and trailing dot.

use core::net::Ipv6Addr;
use std::io::Write as _;

/// The longest name that the domain name system knows, in bytes.
pub const HOST_BYTES_MAX: usize = 255;

/// A text that is no host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAHost;

/// Writes the host of `host`, `host:port` or `[address]:port`, and says whether there is one: a
/// `Host` header may be empty.
pub(crate) fn write(text: &[u8], out: &mut Vec<u8>) -> Result<bool, NotAHost> {
    let text = text.trim_ascii();
    if let Some(bracketed) = text.strip_prefix(b"[") {
        let end = bracketed.iter().position(|byte| *byte == b']').ok_or(NotAHost)?;
        let address = core::str::from_utf8(&bracketed[..end]).map_err(|_| NotAHost)?;
        let address: Ipv6Addr = address.parse().map_err(|_| NotAHost)?;
        let after = &bracketed[end + 1..];
        if !after.is_empty() && !after.strip_prefix(b":").is_some_and(is_port) {
            return Err(NotAHost);
        }
        // Writing to a `Vec` cannot fail.
        let _ = write!(out, "[{address}]");
        return Ok(true);
    }
    let colon = text.iter().position(|byte| *byte == b':').unwrap_or(text.len());
    let (mut name, port) = (&text[..colon], text.get(colon + 1..).unwrap_or_default());
    while let Some(shorter) = name.strip_suffix(b".") {
        name = shorter;
    }
    if name.len() > HOST_BYTES_MAX || !is_port(port) {
        return Err(NotAHost);
    }
    let start = out.len();
    out.extend(name.iter().map(|byte| WRITTEN[usize::from(*byte)]));
    if out[start..].contains(&0) {
        out.truncate(start);
        return Err(NotAHost);
    }
    Ok(!name.is_empty())
}

/// `host:` with no digits is allowed (RFC 3986, section 3.2.3).
fn is_port(text: &[u8]) -> bool {
    text.len() <= 5 && text.iter().all(u8::is_ascii_digit)
}

/// How a byte of a name is written; 0 where none has it. It is what RFC 3986 allows, without the comma, which
/// stands between two names.
const WRITTEN: [u8; 256] = {
    const MARKS: &[u8] = b"-._~%!$&'()*+;=";
    let mut written = [0; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        if byte.is_ascii_alphanumeric() {
            written[byte as usize] = byte.to_ascii_lowercase();
        }
        byte += 1;
    }
    let mut index = 0;
    while index < MARKS.len() {
        written[MARKS[index] as usize] = MARKS[index];
        index += 1;
    }
    written
};

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Option<String> {
        let mut out = Vec::new();
        let there = write(text.as_bytes(), &mut out).ok()?;
        there.then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn all_spellings_of_a_host_are_one() {
        let spellings = [
            "example.com",
            "EXAMPLE.com",
            "example.com:443",
            "example.com.",
            " Example.Com.:80",
            "example.com:",
        ];
        for text in spellings {
            assert_eq!(host(text).as_deref(), Some("example.com"), "{text}");
        }
        for text in ["[2001:DB8::1]", "[2001:db8:0:0::1]:80", "[2001:db8::1]:"] {
            assert_eq!(host(text).as_deref(), Some("[2001:db8::1]"), "{text}");
        }
    }

    #[test]
    fn what_is_no_host_is_said_to_be_none() {
        for text in [
            "a,b", "a b", "a/b", "user@a", "a:b", "a:1:2", "a:123456", "[::1", "[::1]x", "[a]",
            "a\\b", "a?b", "ü",
        ] {
            assert_eq!(write(text.as_bytes(), &mut Vec::new()), Err(NotAHost), "{text}");
        }
        assert_eq!(write(&[b'a'; HOST_BYTES_MAX + 1], &mut Vec::new()), Err(NotAHost));
        assert_eq!(host(""), None);
        assert_eq!(write(b"", &mut Vec::new()), Ok(false));
    }
}
