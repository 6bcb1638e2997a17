//! A table of networks, asked by address: the longest prefix wins.
//!
//! It is kept as ranges that do not overlap, so an answer is one binary search however the networks
//! were nested.

use core::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

use crate::error::Fault;

/// How many networks one table may list.
pub const NETWORKS_MAX: usize = 1 << 20;

/// Networks with something known about each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Networks<T> {
    // Two tables: an IPv6 network never speaks about IPv4 addresses, not even `::/0`.
    v4: Vec<Range<T>>,
    v6: Vec<Range<T>>,
}

/// Addresses from `first` to `last`, both included, as numbers.
#[derive(Clone, Copy, Debug)]
struct Range<T> {
    first: u128,
    last: u128,
    known: T,
}

impl<T: Copy + PartialEq> Networks<T> {
    /// A table of these networks, whose IPv4-mapped ones [`unmapped`] has seen to.
    pub(crate) fn new(networks: impl IntoIterator<Item = (IpNet, T)>) -> Result<Self, Fault> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (network, known) in networks {
            let (first, last) = bounds(network);
            let table = if matches!(network, IpNet::V4(_)) { &mut v4 } else { &mut v6 };
            table.push((Range { first, last, known }, network));
        }
        Ok(Self { v4: flat(v4)?, v6: flat(v6)? })
    }

    /// What is known about the narrowest network that holds this address.
    pub(crate) fn find(&self, address: IpAddr) -> Option<T> {
        let (table, number) = match address {
            IpAddr::V4(v4) => (&self.v4, u128::from(v4.to_bits())),
            IpAddr::V6(v6) => (&self.v6, v6.to_bits()),
        };
        let after = table.partition_point(|range| range.first <= number);
        let range = table[..after].last()?;
        (number <= range.last).then_some(range.known)
    }

    /// How many addresses of `space` lie in some network of the table. The space must not be all of IPv6, whose
    /// number of addresses has no place in the answer.
    pub(crate) fn covered(&self, space: IpNet) -> u128 {
        let table = if matches!(space, IpNet::V4(_)) { &self.v4 } else { &self.v6 };
        let (first, last) = bounds(space);
        let parts = table.iter().map(|range| (range.first.max(first), range.last.min(last)));
        parts.filter(|(from, to)| from <= to).map(|(from, to)| to - from + 1).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }
}

fn bounds(network: IpNet) -> (u128, u128) {
    match network {
        IpNet::V4(v4) => (v4.network().to_bits().into(), v4.broadcast().to_bits().into()),
        IpNet::V6(v6) => (v6.network().to_bits(), v6.broadcast().to_bits()),
    }
}

/// Nested ranges to ranges side by side. Networks either nest or lie apart, so a stack of those that
/// are open is enough.
fn flat<T: Copy + PartialEq>(mut nested: Vec<(Range<T>, IpNet)>) -> Result<Vec<Range<T>>, Fault> {
    nested.sort_by(|(a, _), (b, _)| a.first.cmp(&b.first).then(b.last.cmp(&a.last)));
    for pair in nested.windows(2) {
        let [(a, _), (b, network)] = pair else { continue };
        if (a.first, a.last) == (b.first, b.last) && a.known != b.known {
            return Err(Fault::NetworkTwice(network.trunc()));
        }
    }
    let mut side_by_side = Vec::with_capacity(nested.len());
    let mut open: Vec<Range<T>> = Vec::new();
    // From where on nothing has been said yet; none after the last address of all.
    let mut next = Some(0);
    for (range, _) in nested {
        while let Some(inner) = open.pop_if(|inner| inner.last < range.first) {
            next = close(inner, next, &mut side_by_side);
        }
        if let (Some(outer), Some(from)) = (open.last(), next)
            && from < range.first
        {
            side_by_side.push(Range { first: from, last: range.first - 1, known: outer.known });
        }
        next = Some(range.first);
        open.push(range);
    }
    while let Some(inner) = open.pop() {
        next = close(inner, next, &mut side_by_side);
    }
    Ok(side_by_side)
}

/// Says what is left of a range that ends, and gives where the next one begins.
fn close<T: Copy>(range: Range<T>, next: Option<u128>, out: &mut Vec<Range<T>>) -> Option<u128> {
    let from = next?;
    if from <= range.last {
        out.push(Range { first: from, ..range });
    }
    range.last.checked_add(1)
}

/// The network in its own family: an IPv4-mapped one becomes IPv4.
///
/// A mapped address with a prefix below 96 is refused. Read by the letter it is a network of IPv6 that
/// holds all of IPv4, and whoever wrote it meant a small network of IPv4.
pub(crate) fn unmapped(network: IpNet) -> Result<IpNet, Fault> {
    let IpNet::V6(v6) = network else { return Ok(network.trunc()) };
    let Some(v4) = v6.addr().to_ipv4_mapped() else { return Ok(network.trunc()) };
    let prefix = v6.prefix_len().checked_sub(96).ok_or(Fault::MappedPrefix(network))?;
    let v4 = Ipv4Net::new(v4, prefix).map_err(|_| Fault::MappedPrefix(network))?;
    Ok(IpNet::V4(v4.trunc()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn the_longest_prefix_wins_and_its_neighbours_stay_outside() {
        let table = Networks::new([
            (net("10.0.0.0/8"), 'a'),
            (net("10.1.0.0/16"), 'b'),
            (net("10.1.2.0/24"), 'c'),
        ])
        .unwrap();
        let find = |text| table.find(address(text));
        assert_eq!(find("10.0.255.255"), Some('a'));
        assert_eq!(find("10.1.1.255"), Some('b'));
        assert_eq!(find("10.1.2.9"), Some('c'));
        assert_eq!(find("10.1.3.0"), Some('b'));
        assert_eq!(find("10.2.0.0"), Some('a'));
        assert_eq!((find("9.255.255.255"), find("11.0.0.0")), (None, None));
    }

    #[test]
    fn the_last_address_of_all_has_a_place() {
        let table = Networks::new([
            (net("::/0"), 'a'),
            (net("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff/128"), 'b'),
        ])
        .unwrap();
        assert_eq!(table.find(address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")), Some('b'));
        assert_eq!(table.find(address("ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe")), Some('a'));
    }

    #[test]
    fn an_address_in_two_networks_is_covered_once() {
        let nets = ["10.0.0.0/8", "10.1.0.0/16", "11.0.0.0/24", "2001:db8::/126"];
        let table = Networks::new(nets.map(|text| (net(text), ()))).unwrap();
        assert_eq!(table.covered(net("0.0.0.0/0")), (1 << 24) + (1 << 8));
        assert_eq!(table.covered(net("10.1.2.0/24")), 1 << 8);
        assert_eq!(table.covered(net("12.0.0.0/8")), 0);
        assert_eq!(table.covered(net("2000::/3")), 4);
    }

    #[test]
    fn ipv6_says_nothing_about_ipv4() {
        let table = Networks::new([(net("::/0"), ())]).unwrap();
        assert_eq!(table.find(address("192.0.2.1")), None);
    }

    #[test]
    fn one_network_with_two_meanings_is_refused() {
        let twice = Networks::new([(net("10.0.0.0/8"), 1), (net("10.0.0.0/8"), 2)]);
        assert_eq!(twice.unwrap_err(), Fault::NetworkTwice(net("10.0.0.0/8")));
        assert!(Networks::new([(net("10.0.0.0/8"), 1), (net("10.0.0.0/8"), 1)]).is_ok());
    }

    #[test]
    fn a_mapped_network_is_one_of_ipv4() {
        assert_eq!(unmapped(net("::ffff:10.0.0.0/104")), Ok(net("10.0.0.0/8")));
        let short = net("::ffff:10.0.0.0/8");
        assert_eq!(unmapped(short), Err(Fault::MappedPrefix(short)));
    }

    proptest! {
        /// Few bits, so that networks nest and addresses fall on their edges.
        #[test]
        fn a_table_answers_as_a_search_through_all_networks(
            networks in prop::collection::btree_map((0_u32..64, 26_u8..=32), 0_u8..9, 0..12),
            high: bool,
        ) {
            let base = if high { u32::MAX - 63 } else { 0 };
            let mut listed = std::collections::BTreeMap::new();
            for ((bits, prefix), known) in networks {
                let network = Ipv4Net::new((base + bits).into(), prefix).unwrap().trunc();
                listed.insert(network, known);
            }
            let nets = listed.iter().map(|(network, known)| (IpNet::V4(*network), *known));
            let table = Networks::new(nets).unwrap();
            for bits in 0..64 {
                let address = core::net::Ipv4Addr::from(base + bits);
                let holding = listed.iter().filter(|(network, _)| network.contains(&address));
                let longest = holding.max_by_key(|(network, _)| network.prefix_len());
                prop_assert_eq!(table.find(address.into()), longest.map(|(_, known)| *known));
            }
        }
    }
}
