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
    #[inline]
    pub(crate) fn unmapped(&self, address: IpAddr) -> IpAddr {
        match address {
            IpAddr::V4(_) => address,
            IpAddr::V6(v6) => self.unmapped_v6(v6),
        }
    }

    fn unmapped_v6(&self, v6: Ipv6Addr) -> IpAddr {
        if let Some(v4) = v6.to_ipv4_mapped() {
            return IpAddr::V4(v4);
        }
        if self.translators.iter().any(|network| network.contains(&v6)) {
            // The last 32 bits are the IPv4 address.
            return IpAddr::V4(Ipv4Addr::from_bits(v6.to_bits() as u32));
        }
        IpAddr::V6(v6)
    }

    /// Whether all bits of IPv4 addresses count.
    #[inline]
    pub(crate) fn is_v4_whole(&self) -> bool {
        self.ipv4_prefix == 32
    }

    /// The network of an address that is in its own family, or the address alone where all bits count.
    #[inline]
    pub(crate) fn network(&self, address: IpAddr) -> AddressText {
        match address {
            IpAddr::V4(v4) if self.is_v4_whole() => AddressText::of_v4(v4),
            _ => self.network_in_general(address),
        }
    }

    #[inline(never)]
    fn network_in_general(&self, address: IpAddr) -> AddressText {
        let (first, prefix) = match address {
            IpAddr::V4(v4) => {
                let bits = v4.to_bits() & (u32::MAX << (32 - self.ipv4_prefix));
                (Ipv4Addr::from_bits(bits).into(), self.ipv4_prefix)
            }
            IpAddr::V6(v6) if self.ipv6_prefix == 128 => return AddressText::of(v6.into()),
            IpAddr::V6(v6) => {
                let bits = v6.to_bits() & (u128::MAX << (128 - self.ipv6_prefix));
                (Ipv6Addr::from_bits(bits).into(), self.ipv6_prefix)
            }
        };
        let mut text = AddressText::of(first);
        text.put(format_args!("/{prefix}"));
        text
    }
}

/// An address or a network in its one canonical spelling (RFC 5952). It takes no memory from the heap.
#[derive(Clone, Copy)]
pub(crate) struct AddressText {
    bytes: [u8; ADDRESS_TEXT_BYTES],
    length: usize,
}

/// More than the longest has: eight groups of four digits, seven colons, and `/127`.
const ADDRESS_TEXT_BYTES: usize = 48;

impl AddressText {
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    pub(crate) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(v4) => Self::of_v4(v4),
            IpAddr::V6(v6) => {
                let mut text = Self { bytes: [0; ADDRESS_TEXT_BYTES], length: 0 };
                text.put(format_args!("{v6}"));
                text
            }
        }
    }

    /// By hand: it is on the way of every request, and formatting takes ten times as long. The text is put together in
    /// registers and written at once, because who reads it soon after has to wait for what was written byte by byte.
    #[inline]
    pub(crate) fn of_v4(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        let ((first, first_bits), (second, second_bits)) = (two_octets(a, b), two_octets(c, d));
        let text = u128::from(first) | u128::from(second) << first_bits;
        let mut bytes = [0; ADDRESS_TEXT_BYTES];
        bytes[..16].copy_from_slice(&text.to_le_bytes());
        // Without the dot behind the last number.
        Self { bytes, length: (first_bits + second_bits) as usize / 8 - 1 }
    }

    fn put(&mut self, text: core::fmt::Arguments<'_>) {
        let mut rest = &mut self.bytes[self.length..];
        let before = rest.len();
        // There is room for every address.
        let _ = rest.write_fmt(text);
        self.length += before - rest.len();
    }
}

impl core::fmt::Debug for AddressText {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        String::from_utf8_lossy(self.as_bytes()).fmt(f)
    }
}

/// Two numbers of an address, each with a dot behind it, the first character in the lowest byte, and how many bits that is.
#[inline]
fn two_octets(first: u8, second: u8) -> (u64, u32) {
    let (first, second) = (OCTETS[usize::from(first)], OCTETS[usize::from(second)]);
    let (first_bits, second_bits) = (text_bits(first), text_bits(second));
    (u64::from(first) | u64::from(second) << first_bits, first_bits + second_bits)
}

/// How many bits the text of an octet has. Its last byte is the dot, whose two highest bits are not set.
#[inline]
const fn text_bits(octet: u32) -> u32 {
    34 - octet.leading_zeros()
}

/// Each octet with a dot behind it, the first character in the lowest byte.
static OCTETS: [u32; 256] = {
    let mut octets = [0; 256];
    let mut number = 0;
    while number < 256 {
        let (mut text, mut rest) = (b'.' as u32, number as u32);
        loop {
            text = text << 8 | (b'0' as u32 + rest % 10);
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        octets[number] = text;
        number += 1;
    }
    octets
};

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
            let text = AddressText::of(address.into());
            assert_eq!(text.as_bytes(), address.to_string().as_bytes());
        }
    }

    fn text(config: &AddressConfig, address: &str) -> String {
        let addresses = Addresses::new(config).unwrap();
        let text = addresses.network(addresses.unmapped(address.parse().unwrap()));
        String::from_utf8(text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn ipv6_is_written_as_its_network_and_ipv4_whole() {
        let config = AddressConfig::default();
        assert_eq!(text(&config, "2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(text(&config, "192.0.2.7"), "192.0.2.7");
        assert_eq!(text(&config, "::ffff:192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn the_longest_address_has_room() {
        let config = AddressConfig { ipv6_prefix: 127, ..AddressConfig::default() };
        let longest = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe";
        assert_eq!(text(&config, longest), format!("{longest}/127"));
        assert_eq!(text(&config, "255.255.255.255"), "255.255.255.255");
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
