//! Whose request it is, by address: the socket's peer, or whoever the trusted proxies say it came from.

use core::net::IpAddr;

use http::HeaderMap;
use ipnet::IpNet;

use crate::address::Addresses;
use crate::chain::{Chain, ForwardedHeader};
use crate::error::{Fault, IdentityError};
use crate::networks::Networks;
use crate::trust;

pub use crate::trust::{TRUST_PREFIX_V4_MIN, TRUST_PREFIX_V6_MIN};

/// How many entries of a chain are looked at. No request comes through so many proxies.
pub const CHAIN_MAX: usize = 64;

/// Which proxies stand in front, and where they note what they saw.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// Whom to believe.
    pub trust: Trust,
    /// The header that they write.
    pub header: ForwardedHeader,
    /// Whether a peer without an address, as on a Unix socket, is a trusted proxy.
    pub local_peer_trusted: bool,
}

/// Whom to believe about the address of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Nobody: the client is the socket's peer, and headers are ignored.
    #[default]
    Nobody,
    /// Proxies in these networks. The client is the first address from the right that lies in none.
    Networks(Vec<IpNet>),
    /// That many proxies, wherever they are: the peer is the nearest, and the client is that many
    /// entries from the right. For load balancers whose addresses change; it is only safe where
    /// nobody can reach this server around them.
    Hops(u8),
}

/// Compiled proxies.
#[derive(Debug)]
pub(crate) struct Clients {
    trust: Trusted,
    header: ForwardedHeader,
    local_peer_trusted: bool,
}

#[derive(Debug)]
enum Trusted {
    Nobody,
    Networks(Networks<()>),
    Hops(usize),
}

impl Clients {
    pub(crate) fn new(proxies: &Proxies, addresses: &Addresses) -> Result<Self, IdentityError> {
        let trust = match &proxies.trust {
            Trust::Nobody => Trusted::Nobody,
            Trust::Networks(networks) => {
                Trusted::Networks(trust::checked(networks, addresses.translators())?)
            }
            Trust::Hops(hops) => {
                let count = usize::from(*hops);
                if !(1..=CHAIN_MAX).contains(&count) {
                    let (value, max) = (u64::from(*hops), CHAIN_MAX as u64);
                    let fault = Fault::OutOfRange { value, min: 1, max };
                    return Err(IdentityError::new("proxies.hops", fault));
                }
                Trusted::Hops(count)
            }
        };
        let Proxies { header, local_peer_trusted, .. } = *proxies;
        Ok(Self { trust, header, local_peer_trusted })
    }

    /// Whether what this peer says of a client is believed.
    pub(crate) fn is_proxy(&self, peer: Option<IpAddr>, addresses: &Addresses) -> bool {
        let Some(peer) = peer.map(|peer| addresses.unmapped(peer)) else {
            return self.local_peer_trusted;
        };
        match &self.trust {
            Trusted::Nobody => false,
            Trusted::Networks(networks) => networks.find(peer).is_some(),
            Trusted::Hops(_) => true,
        }
    }

    /// Whether nobody is believed, so that clients are their peers.
    #[inline]
    pub(crate) fn are_peers(&self) -> bool {
        matches!(self.trust, Trusted::Nobody)
    }

    /// The client's address in its own family. None if nobody who is believed named one.
    #[inline]
    pub(crate) fn address(
        &self,
        peer: Option<IpAddr>,
        headers: &HeaderMap,
        addresses: &Addresses,
    ) -> Option<IpAddr> {
        let peer = peer.map(|peer| addresses.unmapped(peer));
        if self.are_peers() {
            // What headers say is not even looked for.
            return peer;
        }
        self.past_proxies(peer, headers, addresses)
    }

    #[inline(never)]
    fn past_proxies(
        &self,
        peer: Option<IpAddr>,
        headers: &HeaderMap,
        addresses: &Addresses,
    ) -> Option<IpAddr> {
        if peer.is_none() && !self.local_peer_trusted {
            return None;
        }
        let chain = Chain::new(headers, self.header);
        let mut chain = chain.map(|entry| entry.map(|address| addresses.unmapped(address)));
        match &self.trust {
            Trusted::Nobody => peer,
            Trusted::Networks(networks) => past_networks(peer, &mut chain, networks),
            Trusted::Hops(hops) => past_hops(peer, &mut chain, *hops),
        }
    }
}

/// Walks while the address at hand is a trusted proxy's, which makes the entry it added credible. An
/// entry without an address ends the walk at the proxy that added it.
fn past_networks(
    peer: Option<IpAddr>,
    chain: &mut dyn Iterator<Item = Option<IpAddr>>,
    networks: &Networks<()>,
) -> Option<IpAddr> {
    let mut client = peer;
    for entry in chain.take(CHAIN_MAX) {
        // No address is the peer of a Unix socket, which has been found to be trusted.
        let believed = client.is_none_or(|client| networks.find(client).is_some());
        match entry {
            Some(address) if believed => client = Some(address),
            _ => break,
        }
    }
    client
}

/// Takes the entry that the farthest proxy added. Where there are fewer entries than proxies, the
/// request did not come through all of them, and nothing in the header is credible.
fn past_hops(
    peer: Option<IpAddr>,
    chain: &mut dyn Iterator<Item = Option<IpAddr>>,
    hops: usize,
) -> Option<IpAddr> {
    let mut client = peer;
    for _ in 0..hops {
        match chain.next() {
            Some(Some(address)) => client = Some(address),
            Some(None) => return client,
            None => return peer,
        }
    }
    client
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::AddressConfig;
    use http::HeaderValue;

    fn networks(list: &[&str]) -> Trust {
        Trust::Networks(list.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn client(trust: Trust, peer: Option<&str>, lines: &[&str]) -> Option<String> {
        let proxies = Proxies { trust, local_peer_trusted: true, ..Proxies::default() };
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("x-forwarded-for", HeaderValue::from_str(line).unwrap());
        }
        let addresses = Addresses::new(&AddressConfig::default()).unwrap();
        let clients = Clients::new(&proxies, &addresses).unwrap();
        let peer = peer.map(|peer| peer.parse().unwrap());
        clients.address(peer, &headers, &addresses).map(|address| address.to_string())
    }

    fn from_ten(peer: &str, line: &str) -> String {
        client(networks(&["10.0.0.0/8"]), Some(peer), &[line]).unwrap()
    }

    #[test]
    fn without_trust_the_peer_is_the_client() {
        assert_eq!(client(Trust::Nobody, Some("192.0.2.1"), &["6.6.6.6"]).unwrap(), "192.0.2.1");
    }

    #[test]
    fn a_peer_that_is_no_trusted_proxy_is_the_client_whatever_it_says() {
        assert_eq!(from_ten("192.0.2.1", "6.6.6.6"), "192.0.2.1");
        assert_eq!(from_ten("192.0.2.1", "6.6.6.6, 10.0.0.1"), "192.0.2.1");
    }

    #[test]
    fn the_walk_stops_at_the_first_address_that_is_not_trusted() {
        assert_eq!(from_ten("10.0.0.1", "6.6.6.6, 192.0.2.7, 10.0.0.9"), "192.0.2.7");
        assert_eq!(from_ten("::ffff:10.0.0.1", "6.6.6.6, ::ffff:192.0.2.7"), "192.0.2.7");
        assert_eq!(from_ten("10.0.0.1", "10.0.0.3, 10.0.0.2"), "10.0.0.3");
        assert_eq!(from_ten("10.0.0.1", ""), "10.0.0.1");
    }

    #[test]
    fn a_chain_that_breaks_ends_at_the_last_good_address() {
        assert_eq!(from_ten("10.0.0.1", "6.6.6.6, unknown, 10.0.0.2"), "10.0.0.2");
        assert_eq!(from_ten("10.0.0.1", "6.6.6.6, 192.0.2.300"), "10.0.0.1");
    }

    #[test]
    fn hops_count_from_the_right_and_a_short_chain_is_not_believed() {
        let hops = |hops, line| client(Trust::Hops(hops), Some("10.0.0.1"), &[line]).unwrap();
        assert_eq!(hops(1, "6.6.6.6, 192.0.2.7"), "192.0.2.7");
        assert_eq!(hops(2, "6.6.6.6, 192.0.2.7, 198.51.100.1"), "192.0.2.7");
        assert_eq!(hops(3, "6.6.6.6, 192.0.2.7"), "10.0.0.1");
        assert_eq!(hops(3, "6.6.6.6, unknown, 198.51.100.1"), "198.51.100.1");
    }

    #[test]
    fn a_unix_peer_is_believed_only_where_that_is_set() {
        let trust = || networks(&["10.0.0.0/8"]);
        assert_eq!(client(trust(), None, &["6.6.6.6, 192.0.2.7"]).unwrap(), "192.0.2.7");
        assert_eq!(client(trust(), None, &["unknown"]), None);
        let addresses = Addresses::new(&AddressConfig::default()).unwrap();
        let proxies = Proxies { trust: trust(), ..Proxies::default() };
        let distrustful = Clients::new(&proxies, &addresses).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.7"));
        assert_eq!(distrustful.address(None, &headers, &addresses), None);
    }

    #[test]
    fn a_mapped_range_trusts_its_ipv4_network_and_no_more() {
        let trust = || networks(&["::ffff:10.0.0.0/104"]);
        assert_eq!(client(trust(), Some("10.9.9.9"), &["192.0.2.7"]).unwrap(), "192.0.2.7");
        assert_eq!(client(trust(), Some("11.0.0.1"), &["192.0.2.7"]).unwrap(), "11.0.0.1");
    }

    #[test]
    fn hops_have_a_range() {
        let addresses = Addresses::new(&AddressConfig::default()).unwrap();
        for hops in [0, 65] {
            let proxies = Proxies { trust: Trust::Hops(hops), ..Proxies::default() };
            assert_eq!(Clients::new(&proxies, &addresses).unwrap_err().part(), "proxies.hops");
        }
    }
}
