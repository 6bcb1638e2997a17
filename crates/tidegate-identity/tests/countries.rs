//! Countries from a database in the format of `MaxMind`, which these tests write themselves: search
//! tree, data section and metadata, in a few lines of bytes each.

use core::net::IpAddr;
use std::sync::Arc;

use http::HeaderMap;
use ipnet::IpNet;
use tidegate_core::Timestamp;
use tidegate_identity::{Attributes, Identity, IdentityConfig, RequestParts};

/// A value of the data section.
enum Data<'a> {
    Text(&'a str),
    Short(u16),
    Number(u32),
    Long(u64),
    Map(Vec<(&'a str, Data<'a>)>),
    EmptyList,
}

impl Data<'_> {
    fn write(&self, out: &mut Vec<u8>) {
        // A control byte has the type in its three high bits and the size in the five low ones.
        let control = |kind: u8, size: usize| {
            assert!(size < 29, "longer ones need more bytes for the size");
            kind << 5 | u8::try_from(size).expect("less than 29")
        };
        match self {
            Self::Text(text) => {
                out.push(control(2, text.len()));
                out.extend_from_slice(text.as_bytes());
            }
            Self::Short(number) => {
                out.push(control(5, 2));
                out.extend_from_slice(&number.to_be_bytes());
            }
            Self::Number(number) => {
                out.push(control(6, 4));
                out.extend_from_slice(&number.to_be_bytes());
            }
            // Types from 8 on have a zero in the high bits, and the type less 7 in the next byte.
            Self::Long(number) => {
                out.extend_from_slice(&[control(0, 8), 9 - 7]);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Self::EmptyList => out.extend_from_slice(&[control(0, 0), 11 - 7]),
            Self::Map(pairs) => {
                out.push(control(7, pairs.len()));
                for (key, value) in pairs {
                    Data::Text(key).write(out);
                    value.write(out);
                }
            }
        }
    }
}

/// What a record of the search tree leads to.
#[derive(Clone, Copy)]
enum Record {
    Nothing,
    Node(usize),
    Data(usize),
}

/// A database of IPv6 with 24 bits per record; IPv4 lies at `::/96`, as in `MaxMind`'s own.
fn database(kind: &str, rows: &[(&str, Data<'_>)]) -> Arc<[u8]> {
    let mut nodes = vec![[Record::Nothing; 2]];
    let mut data = Vec::new();
    for (network, value) in rows {
        let (bits, length) = match network.parse().expect("a network") {
            IpNet::V4(v4) => (u128::from(v4.network().to_bits()), v4.prefix_len() + 96),
            IpNet::V6(v6) => (v6.network().to_bits(), v6.prefix_len()),
        };
        let mut node = 0;
        for depth in 0..length - 1 {
            let side = usize::from(bits >> (127 - depth) & 1 == 1);
            node = match nodes[node][side] {
                Record::Node(next) => next,
                Record::Nothing | Record::Data(_) => {
                    nodes.push([nodes[node][side]; 2].map(|old| match old {
                        Record::Data(_) => old,
                        Record::Nothing | Record::Node(_) => Record::Nothing,
                    }));
                    let next = nodes.len() - 1;
                    nodes[node][side] = Record::Node(next);
                    next
                }
            };
        }
        let side = usize::from(bits >> (128 - length) & 1 == 1);
        nodes[node][side] = Record::Data(data.len());
        value.write(&mut data);
    }
    let count = nodes.len();
    let mut out = Vec::new();
    for record in nodes.iter().flatten() {
        let number = match record {
            Record::Nothing => count,
            Record::Node(node) => *node,
            Record::Data(offset) => count + 16 + offset,
        };
        out.extend_from_slice(&u32::try_from(number).expect("a small tree").to_be_bytes()[1..]);
    }
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&data);
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    let node_count = u32::try_from(count).expect("a small tree");
    Data::Map(vec![
        ("binary_format_major_version", Data::Short(2)),
        ("binary_format_minor_version", Data::Short(0)),
        ("build_epoch", Data::Long(1_700_000_000)),
        ("database_type", Data::Text(kind)),
        ("description", Data::Map(vec![("en", Data::Text("made by a test"))])),
        ("ip_version", Data::Short(6)),
        ("languages", Data::EmptyList),
        ("node_count", Data::Number(node_count)),
        ("record_size", Data::Short(24)),
    ])
    .write(&mut out);
    out.into()
}

fn country(code: &str) -> Data<'_> {
    Data::Map(vec![("country", Data::Map(vec![("iso_code", Data::Text(code))]))])
}

fn countries() -> Arc<[u8]> {
    database(
        "GeoLite2-Country",
        &[
            ("192.0.2.0/24", country("DE")),
            ("192.0.2.128/25", country("FR")),
            ("2001:db8::/32", country("IN")),
            ("198.51.100.0/24", Data::Map(vec![("country_code", Data::Text("br"))])),
            ("203.0.113.0/24", Data::Map(vec![("continent", Data::Text("EU"))])),
        ],
    )
}

fn attributes(config: IdentityConfig, peer: &str) -> Attributes {
    let identity = Identity::new(config).expect("settings");
    let headers = HeaderMap::new();
    let peer: IpAddr = peer.parse().expect("an address");
    let mut out = Attributes::new();
    let request = RequestParts::new(Some(peer), b"GET", b"/", &headers);
    identity.attributes(&request, Timestamp::ZERO, &mut out);
    out
}

fn with_database() -> IdentityConfig {
    let mut config = IdentityConfig::new([1; 16]);
    config.country.database = Some(countries());
    config
}

fn country_of(config: IdentityConfig, peer: &str) -> Option<String> {
    let out = attributes(config, peer);
    out.value("country").map(|value| String::from_utf8_lossy(value).into_owned())
}

#[test]
fn the_database_knows_the_country_of_an_address() {
    let of = |peer| country_of(with_database(), peer);
    assert_eq!(of("192.0.2.1").as_deref(), Some("DE"));
    assert_eq!(of("::ffff:192.0.2.1").as_deref(), Some("DE"));
    assert_eq!(of("192.0.2.200").as_deref(), Some("FR"));
    assert_eq!(of("2001:db8:1:2:3:4:5:6").as_deref(), Some("IN"));
    assert_eq!(of("198.51.100.9").as_deref(), Some("BR"));
}

#[test]
fn where_no_country_is_known_the_attribute_is_absent() {
    for peer in ["10.0.0.1", "203.0.113.1", "2001:db9::1"] {
        assert_eq!(country_of(with_database(), peer), None, "{peer}");
    }
    assert_eq!(country_of(IdentityConfig::new([1; 16]), "192.0.2.1"), None);
}

#[test]
fn the_table_goes_before_the_database() {
    let mut config = with_database();
    config.country.table = vec![("192.0.2.0/28".parse().expect("a network"), "us".into())];
    assert_eq!(country_of(config.clone(), "192.0.2.1").as_deref(), Some("US"));
    assert_eq!(country_of(config, "192.0.2.17").as_deref(), Some("DE"));
}

#[test]
fn the_network_operator_comes_from_a_database_of_its_own() {
    let row = Data::Map(vec![("autonomous_system_number", Data::Number(64_496))]);
    let operators = database("GeoLite2-ASN", &[("192.0.2.0/24", row)]);
    let mut config = with_database();
    config.country.asn_database = Some(Arc::clone(&operators));
    assert_eq!(attributes(config.clone(), "192.0.2.1").value("asn"), Some(&b"64496"[..]));
    assert_eq!(attributes(config.clone(), "10.0.0.1").value("asn"), None);
    config.country.database = Some(operators);
    let error = Identity::new(config.clone()).expect_err("the wrong database");
    assert_eq!(error.part(), "country.database");
    config.country.database = None;
    for kind in ["GeoLite2-Country", "GeoLite2-City", "DBIP-Country-Lite"] {
        let places = database(kind, &[("192.0.2.0/24", country("DE"))]);
        config.country.asn_database = Some(places);
        let error = Identity::new(config.clone()).expect_err("the wrong database");
        assert_eq!(error.part(), "country.asn_database", "{kind}");
    }
}

#[test]
fn a_database_cut_short_is_refused() {
    let whole = countries();
    for length in 0..whole.len() {
        let mut config = IdentityConfig::new([1; 16]);
        config.country.database = Some(Arc::from(&whole[..length]));
        assert!(Identity::new(config).is_err(), "{length}");
    }
}
