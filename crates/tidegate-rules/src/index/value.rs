//! Values that have more than one spelling: hosts and addresses. Paths are in [`crate::path`].

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::borrow::Cow;
use std::str;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The normal form of a host: lower case, without port and without dots at the end.
pub(super) fn normal_host(host: &[u8]) -> Cow<'_, [u8]> {
    let mut host = host;
    // Each may hide the other, as in `example.com.:80`.
    loop {
        let shorter = without_port(without_dots(host));
        if shorter.len() == host.len() {
            break;
        }
        host = shorter;
    }
    to_lowercase(host)
}

/// The value in lower case, where its ASCII letters are not.
pub(super) fn to_lowercase(value: &[u8]) -> Cow<'_, [u8]> {
    if value.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(value.to_ascii_lowercase())
    } else {
        Cow::Borrowed(value)
    }
}

fn without_dots(host: &[u8]) -> &[u8] {
    let dots = host.iter().rev().take_while(|&&byte| byte == b'.').count();
    &host[..host.len() - dots]
}

fn without_port(host: &[u8]) -> &[u8] {
    let Some(colon) = host.iter().rposition(|&byte| byte == b':') else { return host };
    let (name, port) = (&host[..colon], &host[colon + 1..]);
    // More than one colon is an IPv6 address, of which the last is a part unless there are brackets.
    let is_port = port.iter().all(u8::is_ascii_digit)
        && (name.last() == Some(&b']') || !name.contains(&b':'));
    if is_port { name } else { host }
}

/// The network that a text stands for: that of a single address, or one with its length as in
/// `2001:db8::/64`. Brackets, port and zone of an address do not count.
pub(super) fn network_of(text: &[u8]) -> Option<IpNet> {
    if let Some(address) = dotted(text) {
        return Some(network_of_address(address));
    }
    let text = str::from_utf8(text).ok()?.trim();
    match text.parse::<IpNet>() {
        Ok(range) => Some(network(range)),
        Err(_) => address(text).map(|address| IpNet::from(address.to_canonical())),
    }
}

/// The network of an address of IPv4, given by its bits, alone.
pub(super) fn network_of_address(bits: u32) -> IpNet {
    IpNet::from(IpAddr::V4(Ipv4Addr::from_bits(bits)))
}

/// The bits of an address that is four numbers with dots between, as most are. What is none here is looked at
/// again, more closely.
#[inline(always)]
#[expect(clippy::inline_always, reason = "every address comes by")]
pub(super) fn dotted(text: &[u8]) -> Option<u32> {
    let (mut bits, mut rest) = byte_of(text)?;
    for _ in 0..3 {
        let [b'.', after @ ..] = rest else { return None };
        let (next, after) = byte_of(after)?;
        (bits, rest) = (bits << 8 | next, after);
    }
    rest.is_empty().then_some(bits)
}

/// The number that a text begins with, if it is a byte, and what follows. There is no zero before other digits: it means
/// another base to some.
#[inline(always)]
#[expect(clippy::inline_always, reason = "what it hands back would pass through memory")]
fn byte_of(text: &[u8]) -> Option<(u32, &[u8])> {
    let (mut number, mut rest) = digit_of(text)?;
    for _ in 0..2 {
        let Some((digit, after)) = digit_of(rest) else { break };
        if number == 0 {
            return None;
        }
        (number, rest) = (number * 10 + digit, after);
    }
    (number <= 255).then_some((number, rest))
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "what it hands back would pass through memory")]
fn digit_of(text: &[u8]) -> Option<(u32, &[u8])> {
    let (byte, after) = text.split_first()?;
    let digit = byte.wrapping_sub(b'0');
    (digit <= 9).then_some((digit.into(), after))
}

fn address(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    let inner = match text.strip_prefix('[') {
        Some(rest) => rest.split(']').next()?,
        None => text,
    };
    let (bare, _zone) = inner.split_once('%').unwrap_or((inner, ""));
    bare.parse().ok()
}

/// The network as addresses are compared with it: without bits of a host, and IPv4 in its own form.
///
/// A range of IPv6 that is wider than all of IPv4 holds no address of IPv4.
pub(super) fn network(network: IpNet) -> IpNet {
    match network.trunc() {
        IpNet::V6(wide) => unmapped(wide).map_or(IpNet::V6(wide), IpNet::V4),
        network @ IpNet::V4(_) => network,
    }
}

fn unmapped(network: Ipv6Net) -> Option<Ipv4Net> {
    let bits = network.prefix_len().checked_sub(96)?;
    Ipv4Net::new(network.addr().to_ipv4_mapped()?, bits).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_spellings_of_a_host_are_one() {
        for spelling in [
            "example.com",
            "Example.COM",
            "example.com.",
            "example.com:80",
            "EXAMPLE.com.:8443",
            "example.com:",
            "example.com:80.",
        ] {
            assert_eq!(*normal_host(spelling.as_bytes()), *b"example.com", "{spelling}");
        }
        for (spelling, expected) in
            [("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("::1", "::1"), ("a:b", "a:b"), ("", "")]
        {
            assert_eq!(*normal_host(spelling.as_bytes()), *expected.as_bytes());
        }
        assert!(matches!(normal_host(b"example.com:80"), Cow::Borrowed(_)));
    }

    #[test]
    fn all_spellings_of_an_address_are_one() {
        let v4: IpNet = "192.0.2.7/32".parse().unwrap();
        for spelling in [
            "192.0.2.7",
            " 192.0.2.7 ",
            "192.0.2.7:443",
            "::ffff:192.0.2.7",
            "::FFFF:c000:207",
            "[::ffff:192.0.2.7]",
            "[::ffff:192.0.2.7]:443",
        ] {
            assert_eq!(network_of(spelling.as_bytes()), Some(v4), "{spelling}");
        }
        let v6: IpNet = "fe80::1/128".parse().unwrap();
        for spelling in
            ["fe80::1", "FE80:0::1", "fe80::1%eth0", "[fe80::1]:80", "[fe80::1%eth0]:80"]
        {
            assert_eq!(network_of(spelling.as_bytes()), Some(v6), "{spelling}");
        }
        for text in ["", "unknown", "1.2.3", "1.2.3.4.5", "192.0.2.07", "[", "\u{0}"] {
            assert_eq!(network_of(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn networks_of_mapped_addresses_are_networks_of_ipv4() {
        for (written, meant) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("::/64", "::/64"),
        ] {
            let written: IpNet = written.parse().unwrap();
            assert_eq!(network(written), meant.parse::<IpNet>().unwrap());
        }
    }

    #[test]
    fn networks_are_values_too() {
        for (spelling, meant) in [
            ("2001:db8:1:2::/64", "2001:db8:1:2::/64"),
            (" 2001:DB8:1:2::7/64", "2001:db8:1:2::/64"),
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("::ffff:192.0.2.7/120", "192.0.2.0/24"),
        ] {
            let meant: IpNet = meant.parse().unwrap();
            assert_eq!(network_of(spelling.as_bytes()), Some(meant), "{spelling}");
        }
        for text in ["2001:db8::/129", "192.0.2.7/33", "192.0.2.7/", "/24"] {
            assert_eq!(network_of(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn dotted_addresses_are_read_as_the_standard_library_reads_them(
            text in "([0-9]{1,4}\\.){2,4}[0-9]{0,4}|[0-9.:/a]{0,15}|(2[0-9]{1,3}\\.){3}2[0-9]{1,3}",
        ) {
            let address = dotted(text.as_bytes()).map(Ipv4Addr::from_bits);
            prop_assert_eq!(address, text.parse().ok());
        }
    }
}
