//! An address as an attribute: in its own family, and as wide as one client is.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::io::Write as _;

use ipnet::{IpNet, Ipv6Net};

use crate::error::{Fault, IdentityError};

/// How many translators may be named.
pub const TRANSLATORS_MAX: usize = 16;

/// How addresses become attributes.
#[derive(Clone, Debug)]
pub struct AddressConfig {
    /// How many bits of an IPv4 address tell clients apart: 8 to 32, and 32 unless said.
    pub ipv4_prefix: u8,
    /// How many bits of an IPv6 address tell clients apart: 32 to 128, and 64 unless said. One client
    /// commonly has a whole /64, and can send each request from another of its addresses.
    pub ipv6_prefix: u8,
    /// Networks of 96 bits behind which a translator puts IPv4 clients (`64:ff9b::/96` for one). Their
    /// addresses are taken for the IPv4 address in their last 32 bits; otherwise all of IPv4 would
    /// share one /64.
    pub translators: Vec<Ipv6Net>,
    /// Whether the attribute `address` carries the whole address, beside `ip`. It is for rules that
    /// match networks narrower than the prefix; counting by it lets an IPv6 client start afresh with
    /// every request.
    pub whole: bool,
}

impl Default for AddressConfig {
    fn default() -> Self {
        Self { ipv4_prefix: 32, ipv6_prefix: 64, translators: Vec::new(), whole: false }
    }
}

/// Compiled settings.
#[derive(Debug)]
pub(crate) struct Addresses {
    ipv4_prefix: u8,
    ipv6_prefix: u8,
    translators: Vec<Ipv6Net>,
    pub(crate) whole: bool,
}

impl Addresses {
    pub(crate) fn new(config: &AddressConfig) -> Result<Self, IdentityError> {
        let AddressConfig { ipv4_prefix, ipv6_prefix, whole, .. } = *config;
        in_range("address.ipv4_prefix", ipv4_prefix, 8, 32)?;
        in_range("address.ipv6_prefix", ipv6_prefix, 32, 128)?;
        let (count, max) = (config.translators.len(), TRANSLATORS_MAX);
        if count > max {
            let fault = Fault::TooMany { count, max };
            return Err(IdentityError::new("address.translators", fault));
        }
        for (index, network) in config.translators.iter().enumerate() {
            if network.prefix_len() != 96 {
                let fault = Fault::TranslatorPrefix(IpNet::V6(*network));
                return Err(IdentityError::new(format!("address.translators[{index}]"), fault));
            }
        }
        Ok(Self { ipv4_prefix, ipv6_prefix, translators: config.translators.clone(), whole })
    }

    /// The networks behind which IPv4 clients are.
    pub(crate) fn translators(&self) -> &[Ipv6Net] {
        &self.translators
    }

    /// The address in its own family: an IPv4 address in an IPv6 dress becomes IPv4.
    pub(crate) fn unmapped(&self, address: IpAddr) -> IpAddr {
        let IpAddr::V6(v6) = address.to_canonical() else { return address.to_canonical() };
        if self.translators.iter().any(|network| network.contains(&v6)) {
            // The last 32 bits are the IPv4 address.
            return IpAddr::V4(Ipv4Addr::from_bits(v6.to_bits() as u32));
        }
        IpAddr::V6(v6)
    }

    /// Writes the network of an address that is in its own family, or the address alone where all
    /// bits count.
    pub(crate) fn write_network(&self, address: IpAddr, out: &mut Vec<u8>) {
        let (prefix, whole) = match address {
            IpAddr::V4(_) => (self.ipv4_prefix, 32),
            IpAddr::V6(_) => (self.ipv6_prefix, 128),
        };
        if prefix == whole {
            return write_address(address, out);
        }
        match address {
            IpAddr::V4(v4) => {
                let network = Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - prefix)));
                write_address(network.into(), out);
            }
            IpAddr::V6(v6) => {
                let network = Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - prefix)));
                write_address(network.into(), out);
            }
        }
        // Writing to a `Vec` cannot fail.
        let _ = write!(out, "/{prefix}");
    }
}

/// Writes an address in its one canonical spelling (RFC 5952).
pub(crate) fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => write_v4(v4, out),
        // Writing to a `Vec` cannot fail.
        IpAddr::V6(v6) => _ = write!(out, "{v6}"),
    }
}

/// By hand: it is on the way of every request, and formatting takes ten times as long.
fn write_v4(address: Ipv4Addr, out: &mut Vec<u8>) {
    // As long as the longest, with a dot behind each number.
    let (mut text, mut length) = ([0; 16], 0);
    let mut put = |byte: u8| {
        text[length & 15] = byte;
        length += 1;
    };
    for octet in address.octets() {
        if octet >= 100 {
            put(b'0' + octet / 100);
        }
        if octet >= 10 {
            put(b'0' + octet / 10 % 10);
        }
        put(b'0' + octet % 10);
        put(b'.');
    }
    out.extend_from_slice(&text[..length - 1]);
}

fn in_range(part: &str, value: u8, min: u8, max: u8) -> Result<(), IdentityError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let fault = Fault::OutOfRange { value: value.into(), min: min.into(), max: max.into() };
    Err(IdentityError::new(part, fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_the_standard_library_writes_it() {
        let octets = [0, 1, 9, 10, 99, 100, 101, 199, 200, 255];
        for (a, b) in octets.into_iter().flat_map(|a| octets.map(|b| (a, b))) {
            let address = Ipv4Addr::new(a, b, b, a);
            let mut out = Vec::new();
            write_address(address.into(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), address.to_string());
        }
    }

    fn text(config: &AddressConfig, address: &str) -> String {
        let addresses = Addresses::new(config).unwrap();
        let mut out = Vec::new();
        addresses.write_network(addresses.unmapped(address.parse().unwrap()), &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn ipv6_is_written_as_its_network_and_ipv4_whole() {
        let config = AddressConfig::default();
        assert_eq!(text(&config, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(text(&config, "192.0.2.7"), "192.0.2.7");
        assert_eq!(text(&config, "::ffff:192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn prefixes_can_be_set() {
        let config =
            AddressConfig { ipv4_prefix: 24, ipv6_prefix: 128, ..AddressConfig::default() };
        assert_eq!(text(&config, "192.0.2.7"), "192.0.2.0/24");
        assert_eq!(text(&config, "2001:db8::7"), "2001:db8::7");
        let config = AddressConfig { ipv4_prefix: 8, ipv6_prefix: 32, ..AddressConfig::default() };
        assert_eq!(text(&config, "192.0.2.7"), "192.0.0.0/8");
        assert_eq!(text(&config, "2001:db8:ffff::7"), "2001:db8::/32");
    }

    #[test]
    fn a_prefix_out_of_range_is_refused_by_name() {
        for (ipv4_prefix, ipv6_prefix) in [(7, 64), (33, 64), (32, 31), (32, 129)] {
            let config = AddressConfig { ipv4_prefix, ipv6_prefix, ..AddressConfig::default() };
            let error = Addresses::new(&config).unwrap_err();
            let part =
                if ipv6_prefix == 64 { "address.ipv4_prefix" } else { "address.ipv6_prefix" };
            assert_eq!(error.part(), part);
        }
    }

    #[test]
    fn clients_behind_a_translator_are_told_apart() {
        let translators = vec!["64:ff9b::/96".parse().unwrap()];
        let config = AddressConfig { translators, ..AddressConfig::default() };
        assert_eq!(text(&config, "64:ff9b::192.0.2.7"), "192.0.2.7");
        assert_eq!(text(&config, "64:ff9b:1::192.0.2.7"), "64:ff9b:1::/64");
        let translators = vec!["64:ff9b::/64".parse().unwrap()];
        let config = AddressConfig { translators, ..AddressConfig::default() };
        assert_eq!(Addresses::new(&config).unwrap_err().part(), "address.translators[0]");
    }
}
