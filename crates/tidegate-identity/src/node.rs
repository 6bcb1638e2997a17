//! The address in one entry of `X-Forwarded-For` or in a `for` of `Forwarded`.
//!
//! Proxies write addresses with and without ports, brackets, quotes and zone ids. What is none, as
//! `unknown` or the `_hidden` names of RFC 7239, gives no address.

use core::net::{IpAddr, Ipv6Addr};

/// The address of this entry, not unmapped yet.
pub(crate) fn parse(entry: &[u8]) -> Option<IpAddr> {
    let text = core::str::from_utf8(unquoted(entry)?).ok()?;
    if let Some(bracketed) = text.strip_prefix('[') {
        let (inside, after) = bracketed.split_once(']')?;
        let port_is_fine = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return if port_is_fine { v6(inside).map(IpAddr::V6) } else { None };
    }
    match text.split_once(':') {
        None => text.parse().ok().map(IpAddr::V4),
        // A second colon makes it IPv6, which has no port outside of brackets.
        Some((_, after)) if after.contains(':') => v6(text).map(IpAddr::V6),
        Some((address, port)) => {
            if is_port(port) {
                address.parse().ok().map(IpAddr::V4)
            } else {
                None
            }
        }
    }
}

/// Without the quotes around it. Nothing inside an address needs an escape, so one makes it none.
fn unquoted(entry: &[u8]) -> Option<&[u8]> {
    let entry = entry.trim_ascii();
    let Some(inside) = entry.strip_prefix(b"\"") else { return Some(entry) };
    inside.strip_suffix(b"\"")
}

fn v6(text: &str) -> Option<Ipv6Addr> {
    let (address, zone) = text.split_once('%').map_or((text, None), |(a, zone)| (a, Some(zone)));
    let zone_is_fine = zone.is_none_or(|zone| !zone.is_empty() && zone.bytes().all(is_plain));
    if zone_is_fine { address.parse().ok() } else { None }
}

/// A number, or a hidden port of RFC 7239.
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(hidden) => !hidden.is_empty() && hidden.bytes().all(is_plain),
        None => (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_every_dress() {
        for text in [
            "192.0.2.7",
            " 192.0.2.7\t",
            "192.0.2.7:8080",
            "192.0.2.7:_hidden",
            "\"192.0.2.7\"",
            "\"192.0.2.7:80\"",
        ] {
            assert_eq!(parse(text.as_bytes()), "192.0.2.7".parse().ok(), "{text}");
        }
        for text in [
            "2001:db8::1",
            "2001:DB8:0:0:0:0:0:1",
            "[2001:db8::1]",
            "[2001:db8::1]:4711",
            "\"[2001:db8::1]:4711\"",
            "2001:db8::1%eth0",
            "[2001:db8::1%eth0.5]:80",
        ] {
            assert_eq!(parse(text.as_bytes()), "2001:db8::1".parse().ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_gives_none() {
        for text in [
            "",
            "unknown",
            "_hidden",
            "-",
            "\"",
            "\"192.0.2.7",
            "192.0.2.7\"",
            "192.0.2",
            "192.0.2.256",
            "0192.0.2.7",
            "192.0.2.7:",
            "192.0.2.7:port",
            "192.0.2.7:123456",
            "[192.0.2.7]",
            "[::1",
            "[::1]80",
            "[::1]:",
            "::1%",
            "::1% ",
            "192.0.2.7 192.0.2.8",
            "\"192.0.2.\\7\"",
            "example.com",
            "192.0.2.7/32",
        ] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(parse(b"\xff\xfe"), None);
    }
}
