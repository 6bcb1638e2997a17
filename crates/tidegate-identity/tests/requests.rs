//! Whole requests: what clients can and cannot do about who they are.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::HashSet;

use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;
use proptest::prelude::*;
use tidegate_core::Timestamp;
use tidegate_identity::config::VALUE_BYTES_MAX;
use tidegate_identity::{
    Attributes, Claim, Dialect, Extract, ForwardAuthError, ForwardedHeader, Identity,
    IdentityConfig, RequestParts, Source, TokenConfig, TokenKey, Trust, forward_auth,
};
use tidegate_rules::Reads;

const PROXY: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));

fn trusting(header: ForwardedHeader) -> IdentityConfig {
    let mut config = IdentityConfig::new([1; 16]);
    config.proxies.trust = Trust::Networks(vec!["10.0.0.0/8".parse().expect("a network")]);
    config.proxies.header = header;
    config
}

fn compiled(config: IdentityConfig) -> Identity {
    Identity::new(config).expect("settings")
}

fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        headers.append(*name, HeaderValue::from_bytes(value).expect("a value"));
    }
    headers
}

fn attributes(identity: &Identity, request: &RequestParts<'_>) -> Attributes {
    let mut out = Attributes::new();
    identity.attributes(request, Timestamp::ZERO, &mut out);
    out
}

/// One attribute of a GET request.
fn value(
    identity: &Identity,
    name: &str,
    peer: Option<IpAddr>,
    headers: &HeaderMap,
) -> Option<String> {
    let request = RequestParts::new(peer, b"GET", b"/", headers);
    let out = attributes(identity, &request);
    out.value(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

#[test]
fn what_is_read_is_made_as_ever_and_nothing_else() {
    let mut config = trusting(ForwardedHeader::XForwardedFor);
    config.address.whole = true;
    config.api_key = vec![Source::header("x-api-key").expect("a name")];
    config.extract = vec![Extract::named("tenant", Source::header("x-tenant").expect("a name"))];
    let identity = compiled(config);
    let lines: [(_, &[u8]); 4] = [
        ("host", b"example.com"),
        ("x-forwarded-for", b"192.0.2.7"),
        ("x-api-key", b"secret"),
        ("x-tenant", b"acme"),
    ];
    let headers = headers(&lines);
    let request = RequestParts::new(PROXY, b"GET", b"/a//b?c", &headers);
    let all = attributes(&identity, &request);
    assert_eq!(all.len(), 7);
    let mut out = Attributes::new();
    for first in all.iter() {
        for second in all.iter() {
            let reads = Reads::named(first.name).and(Reads::named(second.name));
            identity.attributes_read(&request, reads, Timestamp::ZERO, &mut out);
            let expected = all.iter().filter(|one| reads.any_of(Reads::named(one.name)));
            assert!(out.iter().eq(expected), "{reads:?}");
        }
    }
    identity.attributes_read(&request, Reads::NOTHING, Timestamp::ZERO, &mut out);
    assert!(out.is_empty());
    let client = RequestParts::of_client(PROXY, &headers);
    identity.attributes_read(&client, Reads::OF_CLIENT, Timestamp::ZERO, &mut out);
    assert!(out.iter().eq(all.iter().take(2)), "{out:?}");
}

#[test]
fn an_identity_is_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&compiled(IdentityConfig::new([1; 16])));
}

#[test]
fn a_hundred_thousand_addresses_of_one_network_are_one_client() {
    let identity = compiled(IdentityConfig::new([1; 16]));
    let headers = HeaderMap::new();
    let mut out = Attributes::new();
    // A fixed sequence that jumps about in the last 64 bits.
    let mut low = 1_u64;
    for _ in 0..100_000 {
        low = low.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let address = Ipv6Addr::from_bits(0x2001_0db8_0001_0002 << 64 | u128::from(low));
        let request = RequestParts::new(Some(address.into()), b"GET", b"/", &headers);
        identity.attributes(&request, Timestamp::ZERO, &mut out);
        assert_eq!(out.value("ip"), Some(&b"2001:db8:1:2::/64"[..]));
    }
}

#[test]
fn all_spellings_of_an_ipv4_address_are_one_client() {
    let identity = compiled(trusting(ForwardedHeader::XForwardedFor));
    for spelling in [
        "192.0.2.7",
        "192.0.2.7:1234",
        "::ffff:192.0.2.7",
        "::FFFF:c000:207",
        "0:0:0:0:0:ffff:192.0.2.7",
        "[::ffff:192.0.2.7]",
        "[::ffff:c000:0207]:99",
        "::ffff:192.0.2.7%eth0",
        "\"192.0.2.7\"",
    ] {
        let headers = headers(&[("x-forwarded-for", spelling.as_bytes())]);
        assert_eq!(
            value(&identity, "ip", PROXY, &headers).as_deref(),
            Some("192.0.2.7"),
            "{spelling}"
        );
    }
    let mapped = Some("::ffff:192.0.2.7".parse().expect("an address"));
    let ip = value(&identity, "ip", mapped, &HeaderMap::new());
    assert_eq!(ip.as_deref(), Some("192.0.2.7"));
}

#[test]
fn two_mapped_addresses_are_two_clients() {
    let identity = compiled(IdentityConfig::new([1; 16]));
    let addresses = (0..=255).map(|last| Ipv4Addr::new(192, 0, 2, last).to_ipv6_mapped());
    let ips: HashSet<_> = addresses
        .map(|address| value(&identity, "ip", Some(address.into()), &HeaderMap::new()))
        .collect();
    assert_eq!(ips.len(), 256);
}

#[test]
fn more_than_one_host_is_a_doubt_and_no_host() {
    let identity = compiled(IdentityConfig::new([1; 16]));
    let two = headers(&[("host", b"a"), ("host", b"b")]);
    for target in [&b"/"[..], b"http://c/"] {
        let out = attributes(&identity, &RequestParts::new(PROXY, b"GET", target, &two));
        assert_eq!(out.value("host"), None);
        assert!(out.doubts().host && out.doubts().any());
    }
    let odd = headers(&[("host", b"a, b")]);
    let out = attributes(&identity, &RequestParts::new(PROXY, b"GET", b"/", &odd));
    assert!(out.value("host").is_none() && out.doubts().host);
}

#[test]
fn the_host_of_the_target_goes_before_the_header() {
    let identity = compiled(IdentityConfig::new([1; 16]));
    let one = headers(&[("host", b"header.example")]);
    let host = |target: &[u8]| {
        let out = attributes(&identity, &RequestParts::new(PROXY, b"GET", target, &one));
        assert!(!out.doubts().any());
        String::from_utf8_lossy(out.value("host").expect("a host")).into_owned()
    };
    assert_eq!(host(b"http://Target.example:80/a"), "target.example");
    assert_eq!(host(b"/a"), "header.example");
}

#[test]
fn the_method_is_the_requests_own() {
    let identity = compiled(IdentityConfig::new([1; 16]));
    let headers = headers(&[("x-http-method-override", b"DELETE"), ("x-method-override", b"PUT")]);
    assert_eq!(value(&identity, "method", PROXY, &headers).as_deref(), Some("GET"));
}

#[test]
fn an_api_key_is_one_hash_wherever_it_stands_and_never_itself() {
    let mut config = IdentityConfig::new([1; 16]);
    config.api_key = vec![
        Source::header("x-api-key").expect("a header"),
        Source::Bearer,
        Source::Query("key".into()),
    ];
    let identity = compiled(config);
    let none = HeaderMap::new();
    let key = |target: &[u8], headers: &HeaderMap| {
        let out = attributes(&identity, &RequestParts::new(PROXY, b"GET", target, headers));
        out.value("api_key").map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let hash = key(b"/", &headers(&[("x-api-key", b"k-123456")])).expect("a key");
    assert_eq!(hash.len(), 32);
    assert!(!hash.contains("123456"));
    assert_eq!(key(b"/", &headers(&[("authorization", b"Bearer k-123456")])), Some(hash.clone()));
    assert_eq!(key(b"/?key=k-%3123456", &none), Some(hash.clone()));
    assert_ne!(key(b"/?key=k-123457", &none), Some(hash));
    assert_eq!(key(b"/?key=", &none), None);
    let twice = attributes(&identity, &RequestParts::new(PROXY, b"GET", b"/?key=a&key=b", &none));
    assert!(twice.value("api_key").is_none() && twice.doubts().api_key);
}

#[test]
fn api_keys_in_two_places_are_a_doubt_and_no_key() {
    let mut config = IdentityConfig::new([1; 16]);
    config.api_key = vec![
        Source::header("x-api-key").expect("a header"),
        Source::Bearer,
        Source::Query("key".into()),
    ];
    let identity = compiled(config);
    let of = |target: &[u8], lines: &[(&'static str, &[u8])]| {
        let headers = headers(lines);
        let out = attributes(&identity, &RequestParts::new(PROXY, b"GET", target, &headers));
        (out.value("api_key").is_some(), out.doubts().api_key)
    };
    assert_eq!(of(b"/?key=a", &[("x-api-key", b"b")]), (false, true));
    assert_eq!(of(b"/?key=a", &[("x-api-key", b"a")]), (false, true));
    assert_eq!(of(b"/", &[("x-api-key", b"a"), ("authorization", b"Bearer b")]), (false, true));
    assert_eq!(of(b"/", &[("x-api-key", b"a"), ("authorization", b"Bearerb")]), (false, true));
    assert_eq!(of(b"/", &[("authorization", b"Bearer")]), (false, true));
    assert_eq!(of(b"/?key=a", &[("x-api-key", b"")]), (true, false));
    assert_eq!(of(b"/", &[("authorization", b"Bearer\tb")]), (true, false));
    assert_eq!(of(b"/", &[("x-api-key", b"a"), ("authorization", b"Basic b")]), (true, false));
}

#[test]
fn repeated_values_are_joined_and_said_to_be() {
    let mut config = IdentityConfig::new([1; 16]);
    config.extract = vec![Extract::named("tenant", Source::header("x-tenant").expect("a header"))];
    let identity = compiled(config);
    let headers = headers(&[("x-tenant", b"a"), ("x-tenant", b"b")]);
    let out = attributes(&identity, &RequestParts::new(PROXY, b"GET", b"/", &headers));
    assert_eq!(out.value("tenant"), Some(&b"a, b"[..]));
    assert!(out.doubts().repeated);
}

#[test]
fn the_whole_address_is_there_where_it_is_asked_for() {
    let mut config = IdentityConfig::new([1; 16]);
    config.address.whole = true;
    let identity = compiled(config);
    let peer = Some("2001:db8::7".parse().expect("an address"));
    let none = HeaderMap::new();
    assert_eq!(value(&identity, "address", peer, &none).as_deref(), Some("2001:db8::7"));
    assert_eq!(value(&identity, "ip", peer, &none).as_deref(), Some("2001:db8::/64"));
}

fn described(
    lines: &[(&'static str, &[u8])],
    dialect: Dialect,
) -> Result<String, ForwardAuthError> {
    let headers = headers(lines);
    let identity = compiled(trusting(ForwardedHeader::XForwardedFor));
    let out = attributes(&identity, &forward_auth(PROXY, &headers, dialect)?);
    let pairs = out.iter().map(|attribute| {
        format!("{}={}", attribute.name, String::from_utf8_lossy(attribute.value))
    });
    Ok(pairs.collect::<Vec<_>>().join(" "))
}

const TRAEFIK: [(&str, &[u8]); 5] = [
    ("host", b"limiter.internal"),
    ("x-forwarded-for", b"192.0.2.7"),
    ("x-forwarded-host", b"API.example.com"),
    ("x-forwarded-method", b"POST"),
    ("x-forwarded-uri", b"/login?next=/"),
];

#[test]
fn a_request_is_read_from_the_headers_of_the_proxy() {
    let expected = "ip=192.0.2.7 method=POST host=api.example.com path=/login";
    assert_eq!(described(&TRAEFIK, Dialect::Forwarded).as_deref(), Ok(expected));
    assert_eq!(described(&TRAEFIK, Dialect::Either).as_deref(), Ok(expected));
    let nginx: [(&str, &[u8]); 4] = [
        ("host", b"limiter.internal"),
        ("x-forwarded-for", b"192.0.2.7"),
        ("x-original-uri", b"/login"),
        ("x-original-method", b"POST"),
    ];
    let expected = "ip=192.0.2.7 method=POST path=/login";
    assert_eq!(described(&nginx, Dialect::Original).as_deref(), Ok(expected));
    assert_eq!(described(&nginx, Dialect::Either).as_deref(), Ok(expected));
}

/// What ingress-nginx sends, for a client that wrote this `Host`.
fn ingress(host: &str) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("host", b"limiter.internal".to_vec()),
        ("x-forwarded-for", b"192.0.2.7".to_vec()),
        ("x-original-method", b"POST".to_vec()),
        ("x-original-url", format!("https://{host}/login?next=/").into_bytes()),
    ]
}

fn described_by_ingress(
    host: &str,
    more: &[(&'static str, &[u8])],
) -> Result<String, ForwardAuthError> {
    let lines = ingress(host);
    let lines = lines.iter().map(|(name, value)| (*name, value.as_slice()));
    let lines: Vec<_> = lines.chain(more.iter().copied()).collect();
    let either = described(&lines, Dialect::Either);
    assert_eq!(described(&lines, Dialect::Original), either);
    either
}

#[test]
fn a_request_is_read_from_the_url_that_ingress_nginx_sends() {
    let expected = "ip=192.0.2.7 method=POST host=api.example.com path=/login";
    let of = described_by_ingress;
    assert_eq!(of("API.example.com:443", &[]).as_deref(), Ok(expected));
    // The proxy wrote the host in the URL, and nobody knows who wrote the other.
    let own = [("x-original-host", &b"mine.example"[..])];
    assert_eq!(of("API.example.com", &own).as_deref(), Ok(expected));
    let own = [("x-original-uri", &b"/harmless"[..])];
    assert_eq!(of("API.example.com", &own), Err(ForwardAuthError::BothTargets));
}

#[test]
fn no_host_hides_the_path_in_a_url() {
    for host in ["a?", "a#", "a?b", "u@a", ""] {
        let found = described_by_ingress(host, &[]).expect("a request");
        assert!(found.ends_with("method=POST path=/login"), "{host}: {found}");
    }
}

#[test]
fn a_client_cannot_describe_its_own_request() {
    let mut lines = TRAEFIK.to_vec();
    lines.push(("x-original-uri", b"/harmless"));
    assert_eq!(described(&lines, Dialect::Either), Err(ForwardAuthError::BothDialects));
    let login = described(&lines, Dialect::Forwarded).expect("a request");
    assert!(login.ends_with("path=/login"), "{login}");
    let mut lines = TRAEFIK.to_vec();
    lines.push(("x-forwarded-uri", b"/harmless"));
    let repeated = ForwardAuthError::Repeated("x-forwarded-uri");
    assert_eq!(described(&lines, Dialect::Forwarded), Err(repeated));
}

#[test]
fn a_proxy_that_describes_nothing_is_told_what_is_missing() {
    let missing = ForwardAuthError::Missing("x-forwarded-method");
    assert_eq!(described(&[], Dialect::Either), Err(missing));
    let missing = ForwardAuthError::Missing("x-original-uri");
    assert_eq!(described(&[("x-original-method", b"GET")], Dialect::Either), Err(missing));
}

/// Every setting that looks at bytes of the request.
fn everything(header: ForwardedHeader) -> Identity {
    let mut config = trusting(header);
    let key = TokenKey::secret(b"an example secret of 32 bytes...").expect("a key");
    let mut token = TokenConfig::new(vec![key]);
    token.claims.push(Claim::new("org", "org.id"));
    config.token = Some(token);
    config.api_key =
        vec![Source::header("x-api-key").expect("a header"), Source::Query("key".into())];
    config.extract = vec![
        Extract::new(Source::header("x-tenant").expect("a header")),
        Extract::new(Source::Cookie("id".into())),
        Extract::new(Source::Query("q".into())),
    ];
    compiled(config)
}

/// What clients write: anything, and what looks like the real thing.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[-a-z0-9.:,;=\"\\\\%_ \\[\\]/?#&+@]{0,40}".prop_map(String::into_bytes),
        "(for=|For=\"|\\[|1\\.2\\.3\\.4|::ffff:1\\.2\\.3\\.4|\"|\\\\|;|,|unknown|_x| ){0,9}"
            .prop_map(String::into_bytes),
        "(Bearer |bearer)?[a-zA-Z0-9_-]{0,9}(\\.[a-zA-Z0-9_-]{0,9}){0,3}"
            .prop_map(String::into_bytes),
    ]
}

/// A value that a header can carry.
fn header_value() -> impl Strategy<Value = HeaderValue> {
    piece().prop_map(|mut bytes| {
        bytes.retain(|byte| HeaderValue::from_bytes(&[*byte]).is_ok());
        HeaderValue::from_bytes(&bytes).expect("only bytes that may stand in one")
    })
}

fn any_header() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
    const NAMES: &[&str] = &[
        "host",
        "x-forwarded-for",
        "forwarded",
        "authorization",
        "cookie",
        "x-tenant",
        "x-api-key",
        "x-forwarded-uri",
        "x-forwarded-method",
        "x-original-uri",
    ];
    (prop::sample::select(NAMES), header_value())
        .prop_map(|(name, value)| (HeaderName::from_static(name), value))
}

/// Where a connection comes from: of either family, mapped, or from behind a translator.
fn any_peer() -> impl Strategy<Value = IpAddr> {
    let proxy = any::<[u8; 3]>().prop_map(|[b, c, d]| Ipv4Addr::new(10, b, c, d));
    let v4 = prop_oneof![proxy, any::<u32>().prop_map(Ipv4Addr::from_bits)];
    let translated = |v4: Ipv4Addr| 0x64_ff9b << 96 | u128::from(v4.to_bits());
    prop_oneof![
        v4.clone().prop_map(IpAddr::V4),
        v4.clone().prop_map(|v4| v4.to_ipv6_mapped().into()),
        v4.prop_map(move |v4| Ipv6Addr::from_bits(translated(v4)).into()),
        any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into()),
    ]
}

/// A line in which proxies note addresses, or something that looks like one.
fn forwarding() -> impl Strategy<Value = (HeaderName, HeaderValue)> {
    let noted = prop::collection::vec(any_peer(), 1..4);
    let note = |entry: &IpAddr, name: &str| match (name, entry) {
        ("forwarded", IpAddr::V6(_)) => format!("for=\"[{entry}]\""),
        ("forwarded", IpAddr::V4(_)) => format!("for={entry}"),
        _ => entry.to_string(),
    };
    let names = prop::sample::select(vec!["forwarded", "x-forwarded-for"]);
    let line = (names, noted).prop_map(move |(name, noted)| {
        let entries: Vec<_> = noted.iter().map(|entry| note(entry, name)).collect();
        let value = HeaderValue::from_str(&entries.join(", ")).expect("a value");
        (HeaderName::from_static(name), value)
    });
    prop_oneof![4 => line, 1 => any_header()]
}

proptest! {
    #[test]
    fn whatever_a_client_sends_nothing_panics_and_values_are_bounded(
        lines in prop::collection::vec(any_header(), 0..12),
        method in piece(),
        target in piece(),
        peer: Option<[u8; 16]>,
        which: bool,
    ) {
        let header = if which { ForwardedHeader::Forwarded } else { ForwardedHeader::XForwardedFor };
        let identity = everything(header);
        let headers: HeaderMap = lines.into_iter().collect();
        let peer = peer.map(|bytes| IpAddr::V6(bytes.into()));
        let request = RequestParts::new(peer, &method, &target, &headers);
        let out = attributes(&identity, &request);
        for attribute in out.iter().filter(|attribute| attribute.name != "path") {
            prop_assert!(attribute.value.len() <= VALUE_BYTES_MAX);
        }
        if let Ok(request) = forward_auth(peer, &headers, Dialect::Either) {
            attributes(&identity, &request);
        }
    }

    /// The client writes any number of lines, and the beginning of the one that the proxy adds to.
    #[test]
    fn whatever_a_client_prepends_its_address_is_the_one_that_the_proxy_saw(
        lines in prop::collection::vec(header_value(), 0..4),
        begun in prop::option::of(header_value()),
        client in any::<u32>().prop_map(Ipv4Addr::from_bits).prop_filter(
            "clients are not in the proxies' network", |client| client.octets()[0] != 10),
        hops: bool,
        which: bool,
    ) {
        let (header, name, seen) = if which {
            (ForwardedHeader::Forwarded, "forwarded", format!("for={client};host=\"a,b\", for=10.0.0.2"))
        } else {
            (ForwardedHeader::XForwardedFor, "x-forwarded-for", format!("{client}, 10.0.0.2"))
        };
        let mut config = trusting(header);
        if hops {
            config.proxies.trust = Trust::Hops(2);
        }
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(name, line);
        }
        let mut last = begun.map_or_else(Vec::new, |begun| [begun.as_bytes(), b", "].concat());
        last.extend_from_slice(seen.as_bytes());
        headers.append(name, HeaderValue::from_bytes(&last).expect("a value"));
        let ip = value(&compiled(config), "ip", PROXY, &headers);
        prop_assert_eq!(ip, Some(client.to_string()));
    }

    /// With whatever is trusted, from peers of both families and in an IPv6 dress.
    #[test]
    fn the_ip_alone_is_the_ip_among_all_attributes(
        lines in prop::collection::vec(forwarding(), 0..4),
        peer in prop::option::of(any_peer()),
        trust in prop::sample::select(vec![
            Trust::Nobody, Trust::Hops(1), Trust::Hops(2),
            Trust::Networks(vec!["10.0.0.0/8".parse().expect("a network")]),
        ]),
        prefixes in prop::sample::select(vec![(32, 64), (24, 128), (8, 127), (31, 32)]),
        which: bool,
        local_peer_trusted: bool,
    ) {
        let header = if which { ForwardedHeader::Forwarded } else { ForwardedHeader::XForwardedFor };
        let mut config = trusting(header);
        config.proxies.trust = trust;
        config.proxies.local_peer_trusted = local_peer_trusted;
        config.address.translators = vec!["64:ff9b::/96".parse().expect("a network")];
        (config.address.ipv4_prefix, config.address.ipv6_prefix) = prefixes;
        let identity = compiled(config);
        let headers: HeaderMap = lines.into_iter().collect();
        let request = RequestParts::new(peer, b"GET", b"/", &headers);
        let all = attributes(&identity, &request);
        let mut read = Attributes::new();
        let client = RequestParts::of_client(peer, &headers);
        identity.attributes_read(&client, Reads::IP, Timestamp::ZERO, &mut read);
        prop_assert_eq!(read.value("ip"), all.value("ip"));
        identity.with_ip(&client, |list| {
            prop_assert!(read.iter().eq(list.iter().copied()), "{list:?}");
            Ok(())
        })?;
        if let Some(peer) = peer {
            identity.with_ip_of(&SocketAddr::new(peer, 80), &headers, |list| {
                prop_assert!(read.iter().eq(list.iter().copied()), "{list:?}");
                Ok(())
            })?;
        }
        // And it is what the standard library writes of the client.
        let written = identity.client(&client).map(|address| {
            let (prefix, whole) = match address {
                IpAddr::V4(_) => (prefixes.0, 32),
                IpAddr::V6(_) => (prefixes.1, 128),
            };
            let network = IpNet::new(address, prefix).expect("a prefix").trunc();
            if prefix == whole { address.to_string() } else { network.to_string() }
        });
        prop_assert_eq!(all.value("ip"), written.as_ref().map(String::as_bytes));
    }

    #[test]
    fn a_peer_that_is_not_trusted_cannot_change_its_address(
        lines in prop::collection::vec(any_header(), 0..8),
    ) {
        let identity = everything(ForwardedHeader::XForwardedFor);
        let peer = Some("192.0.2.1".parse().expect("an address"));
        let headers: HeaderMap = lines.into_iter().collect();
        let ip = value(&identity, "ip", peer, &headers);
        prop_assert_eq!(ip.as_deref(), Some("192.0.2.1"));
    }

    /// Separators of all kinds in short values, so that near misses are common.
    #[test]
    fn two_requests_share_their_attributes_only_if_their_values_are_the_same(
        one in ("[a,=; ]{0,4}", "[a,=; ]{0,4}"),
        two in ("[a,=; ]{0,4}", "[a,=; ]{0,4}"),
    ) {
        let mut config = IdentityConfig::new([1; 16]);
        let source = |name: &str| Source::header(name).expect("a header");
        config.extract = vec![Extract::named("a", source("a")), Extract::named("b", source("b"))];
        let identity = compiled(config);
        let list = |(a, b): &(String, String)| {
            let headers = headers(&[("a", a.trim().as_bytes()), ("b", b.trim().as_bytes())]);
            let out = attributes(&identity, &RequestParts::new(PROXY, b"GET", b"/", &headers));
            out.iter().map(|item| (item.name.to_owned(), item.value.to_vec())).collect::<Vec<_>>()
        };
        let same = one.0.trim() == two.0.trim() && one.1.trim() == two.1.trim();
        prop_assert_eq!(list(&one) == list(&two), same);
    }

    #[test]
    fn long_values_stay_apart(one in "[ab]{250,270}", two in "[ab]{250,270}") {
        let mut config = IdentityConfig::new([1; 16]);
        config.extract = vec![Extract::named("a", Source::header("a").expect("a header"))];
        let identity = compiled(config);
        let of = |text: &str| value(&identity, "a", PROXY, &headers(&[("a", text.as_bytes())]));
        prop_assert_eq!(of(&one) == of(&two), one == two);
        prop_assert!(of(&one).is_some_and(|value| value.len() <= VALUE_BYTES_MAX));
    }
}
