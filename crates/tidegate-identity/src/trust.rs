//! Which networks may be trusted as proxies': none in which clients lie, alone or together.
//!
//! A client whose own address is trusted is believed about where its request came from, and so chooses
//! whom it is counted as.

use core::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::error::{Fault, IdentityError};
use crate::networks::{NETWORKS_MAX, Networks, unmapped};

/// The shortest prefix of a trusted network of IPv4: what is wider is not one operator's.
pub const TRUST_PREFIX_V4_MIN: u8 = 8;

/// The shortest prefix of a trusted network of IPv6, local ones aside.
pub const TRUST_PREFIX_V6_MIN: u8 = 16;

/// IPv4 networks from which nobody comes over the internet: private use, shared by a carrier's customers, this
/// host, this link.
const LOCAL_V4: [Ipv4Net; 6] = [
    v4([10, 0, 0, 0], 8),
    v4([172, 16, 0, 0], 12),
    v4([192, 168, 0, 0], 16),
    v4([100, 64, 0, 0], 10),
    v4([127, 0, 0, 0], 8),
    v4([169, 254, 0, 0], 16),
];

/// The same for IPv6: unique local addresses, and this link. They may be listed however wide.
const LOCAL_V6: [Ipv6Net; 2] = [v6([0xfc00, 0, 0, 0], 7), v6([0xfe80, 0, 0, 0], 10)];

/// Networks of IPv6 that hold every IPv4 address: mapped ones, compatible ones, translated ones, 6to4 and Teredo.
const HOLD_IPV4: [Ipv6Net; 5] = [
    Ipv6Net::new_assert(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 96),
    v6([0, 0, 0, 0], 96),
    v6([0x64, 0xff9b, 0, 0], 96),
    v6([0x2002, 0, 0, 0], 16),
    v6([0x2001, 0, 0, 0], 32),
];

/// All of IPv4, and what of IPv6 is given out to the internet.
const ALL_V4: Ipv4Net = v4([0, 0, 0, 0], 0);
const INTERNET_V6: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b, c, d]: [u16; 4], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix)
}

/// These networks as a table, if each of them and all together leave clients outside. Addresses of `translators` are
/// IPv4 addresses by the time that they are looked up.
pub(crate) fn checked(
    networks: &[IpNet],
    translators: &[Ipv6Net],
) -> Result<Networks<()>, IdentityError> {
    let fail = |fault| IdentityError::new("proxies.networks", fault);
    if networks.len() > NETWORKS_MAX {
        return Err(fail(Fault::TooMany { count: networks.len(), max: NETWORKS_MAX }));
    }
    let mut each = Vec::with_capacity(networks.len());
    for (index, network) in networks.iter().enumerate() {
        let part = || format!("proxies.networks[{index}]");
        let network =
            narrow(*network, translators).map_err(|fault| IdentityError::new(part(), fault))?;
        each.push((network, ()));
    }
    let table = Networks::new(each).map_err(fail)?;
    narrow_together(&table, translators).map_err(fail)?;
    Ok(table)
}

fn narrow(network: IpNet, translators: &[Ipv6Net]) -> Result<IpNet, Fault> {
    let network = unmapped(network)?;
    let prefix_min = match network {
        IpNet::V4(_) => TRUST_PREFIX_V4_MIN,
        IpNet::V6(v6) if LOCAL_V6.iter().any(|local| local.contains(&v6)) => return Ok(network),
        IpNet::V6(_) => TRUST_PREFIX_V6_MIN,
    };
    if network.prefix_len() < prefix_min {
        return Err(Fault::TrustTooWide { network, prefix_min });
    }
    match network {
        IpNet::V6(v6) if holding_ipv4(translators).any(|holder| v6.contains(holder)) => {
            Err(Fault::TrustHoldsIpv4(network))
        }
        IpNet::V4(_) | IpNet::V6(_) => Ok(network),
    }
}

/// Many narrow networks may be a wide one.
fn narrow_together(table: &Networks<()>, translators: &[Ipv6Net]) -> Result<(), Fault> {
    let local: u128 = LOCAL_V4.iter().map(|local| table.covered(IpNet::V4(*local))).sum();
    if table.covered(IpNet::V4(ALL_V4)) - local > 1 << 31 {
        return Err(Fault::TrustTooWideTogether(IpNet::V4(ALL_V4)));
    }
    for space in holding_ipv4(translators).chain([&INTERNET_V6]) {
        let half = 1 << (127 - space.prefix_len());
        if table.covered(IpNet::V6(*space)) > half {
            return Err(Fault::TrustTooWideTogether(IpNet::V6(*space)));
        }
    }
    Ok(())
}

fn holding_ipv4(translators: &[Ipv6Net]) -> impl Iterator<Item = &'static Ipv6Net> {
    HOLD_IPV4.iter().filter(|holder| !translators.iter().any(|network| network.trunc() == **holder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(list: &[&str]) -> Result<(), IdentityError> {
        check_behind(list, &[])
    }

    fn check_behind(list: &[&str], translators: &[Ipv6Net]) -> Result<(), IdentityError> {
        let networks: Vec<IpNet> = list.iter().map(|text| text.parse().unwrap()).collect();
        checked(&networks, translators).map(drop)
    }

    #[test]
    fn ranges_that_swallow_the_internet_are_refused() {
        for wide in [
            "0.0.0.0/0",
            "128.0.0.0/1",
            "10.0.0.0/7",
            "::/0",
            "2000::/3",
            "2001::/15",
            "::ffff:0:0/96",
            "::ffff:10.0.0.0/8",
            "::ffff:0:0/95",
            "::ffff:0:0/32",
            "::/16",
            "::/80",
            "::/64",
            "fc00::/6",
            "fe80::/9",
        ] {
            let error = check(&["10.0.0.0/8", wide]).unwrap_err();
            assert_eq!(error.part(), "proxies.networks[1]", "{wide}");
        }
        let fine =
            ["10.0.0.0/8", "2001:db8::/32", "::1/128", "::ffff:10.0.0.0/104", "2002:a00::/24"];
        assert_eq!(check(&fine), Ok(()));
    }

    #[test]
    fn local_networks_may_be_wide() {
        for local in ["fc00::/7", "fd00::/8", "fe80::/10", "fc00::/16"] {
            assert_eq!(check(&[local]), Ok(()), "{local}");
        }
    }

    #[test]
    fn networks_that_hold_all_of_ipv4_are_refused() {
        for holder in
            ["64:ff9b::/96", "64:ff9b::/64", "2002::/16", "2001::/32", "2001::/16", "::/96"]
        {
            let error = check(&[holder]).unwrap_err();
            let network = holder.parse().unwrap();
            assert_eq!(error.fault(), &Fault::TrustHoldsIpv4(network), "{holder}");
        }
        // In two halves it is the same.
        let error = check(&["2002::/17", "2002:8000::/17"]).unwrap_err();
        let together = Fault::TrustTooWideTogether("2002::/16".parse().unwrap());
        assert_eq!(error.fault(), &together);
    }

    #[test]
    fn a_translators_network_never_meets_the_list() {
        let translator = "64:ff9b::/96".parse().unwrap();
        assert_eq!(check_behind(&["64:ff9b::/96"], &[translator]), Ok(()));
        assert!(check_behind(&["2002::/16"], &[translator]).is_err());
    }

    #[test]
    fn narrow_ranges_that_together_are_the_internet_are_refused() {
        let first = |count: u32, skip: &[u32]| {
            let octets = (0..count).filter(|octet| !skip.contains(octet));
            octets.map(|octet| format!("{octet}.0.0.0/8")).collect::<Vec<_>>()
        };
        let check_v4 =
            |list: Vec<String>| check(&list.iter().map(String::as_str).collect::<Vec<_>>());
        let all = Fault::TrustTooWideTogether("0.0.0.0/0".parse().unwrap());
        assert_eq!(check_v4(first(256, &[])).unwrap_err().fault(), &all);
        // Half of all addresses, with two private /8s and the shared part of 100/8 beside them.
        assert_eq!(check_v4(first(130, &[])), Ok(()));
        assert_eq!(check_v4(first(131, &[])).unwrap_err().fault(), &all);
        assert_eq!(check_v4(first(130, &[10, 127])), Ok(()));
        let v6: Vec<_> = (0x2000..0x3001).map(|group| format!("{group:x}:8000::/17")).collect();
        assert_eq!(check_v4(v6), Ok(()));
        let v6 = (0x2003..0x3004).map(|group| format!("{group:x}::/16"));
        let internet = Fault::TrustTooWideTogether("2000::/3".parse().unwrap());
        assert_eq!(check_v4(v6.collect()).unwrap_err().fault(), &internet);
    }
}
