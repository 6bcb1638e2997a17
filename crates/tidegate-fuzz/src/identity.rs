//! Requests to attributes: any headers are survived, and whatever a client writes, it is counted by the
//! address that the trusted proxy saw. Nothing is taken from a token that no key has signed.
//!
//! The input is a method and a target in the first line, and `name: value` lines.

use core::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use tidegate_core::Timestamp;
use tidegate_identity::config::VALUE_BYTES_MAX;
use tidegate_identity::{
    Attributes, Dialect, Extract, ForwardedHeader, Identity, IdentityConfig, RequestParts, Source,
    Token, TokenConfig, TokenKey, Trust, forward_auth,
};
use tidegate_rules::path::normalise;

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: &str = "192.0.2.7";
const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
/// Of the input, so that the map of headers never has to grow beyond its bounds.
const HEADERS_MAX: usize = 64;

/// A way to be set up, and the header that its proxy adds the client to.
struct Setting {
    identity: Identity,
    header: HeaderName,
    added: &'static str,
}

static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let networks = || Trust::Networks(vec!["10.0.0.0/8".parse().expect("a network")]);
    let x_forwarded_for = HeaderName::from_static("x-forwarded-for");
    [
        (networks(), ForwardedHeader::XForwardedFor, x_forwarded_for.clone(), CLIENT),
        (Trust::Hops(1), ForwardedHeader::XForwardedFor, x_forwarded_for, CLIENT),
        (networks(), ForwardedHeader::Forwarded, http::header::FORWARDED, "for=192.0.2.7"),
    ]
    .map(|(trust, header, name, added)| {
        let mut config = IdentityConfig::new([3; 16]);
        (config.proxies.trust, config.proxies.header) = (trust, header);
        Setting { identity: compiled(config), header: name, added }
    })
    .into()
});

/// One that trusts nobody.
static ALONE: LazyLock<Identity> = LazyLock::new(|| compiled(IdentityConfig::new([3; 16])));

/// The settings with everything that is taken from requests besides.
fn compiled(mut config: IdentityConfig) -> Identity {
    let key = TokenKey::secret(b"an example secret of more than 32 bytes").expect("a key");
    config.token = Some(TokenConfig::new(vec![key]));
    let header = |name| Source::header(name).expect("a name");
    config.api_key = vec![header("x-api-key"), Source::Query("key".into())];
    config.extract = vec![
        Extract::named("tenant", header("x-tenant")),
        Extract::named("session", Source::Cookie("session".into())),
        Extract::named("page", Source::Query("page".into())),
    ];
    Identity::new(config).expect("settings")
}

/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    let mut lines = data.split(|byte| *byte == b'\n');
    let first = lines.next().unwrap_or_default();
    let space = first.iter().position(|byte| *byte == b' ').unwrap_or(first.len());
    let (method, target) = (&first[..space], first.get(space + 1..).unwrap_or_default());
    let headers = headers(lines);

    let request = RequestParts::new(Some(PROXY), method, target, &headers);
    let out = attributes(&ALONE, &request);
    assert_eq!(out.value("ip"), Some(&b"10.0.0.1"[..]), "nobody is trusted, and yet believed");
    for setting in SETTINGS.iter() {
        setting.check(method, target, &headers);
    }
    for dialect in [Dialect::Either, Dialect::Forwarded, Dialect::Original] {
        match forward_auth(Some(PROXY), &headers, dialect) {
            Ok(request) => drop(attributes(&SETTINGS[0].identity, &request)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    if let Ok(text) = std::str::from_utf8(target)
        && let (Ok(uri), Ok(method)) = (text.parse(), http::Method::from_bytes(method))
    {
        let request = RequestParts::of_http(Some(PROXY), &method, &uri, &headers);
        attributes(&SETTINGS[0].identity, &request);
    }
}

impl Setting {
    /// The proxy adds the client's address to what the client sent: in a header of its own, or at the
    /// end of the last one.
    fn check(&self, method: &[u8], target: &[u8], headers: &HeaderMap) {
        let mut appended = headers.clone();
        appended.append(&self.header, HeaderValue::from_static(self.added));
        let mut extended = headers.clone();
        extended.remove(&self.header);
        let sent: Vec<&HeaderValue> = headers.get_all(&self.header).iter().collect();
        let mut values: Vec<Vec<u8>> = sent.iter().map(|value| value.as_bytes().to_vec()).collect();
        match values.last_mut() {
            Some(last) => last.extend([b", ", self.added.as_bytes()].concat()),
            None => values.push(self.added.into()),
        }
        for value in values {
            let value = HeaderValue::from_bytes(&value).expect("two good values and a comma");
            extended.append(&self.header, value);
        }
        for headers in [appended, extended] {
            let request = RequestParts::new(Some(PROXY), method, target, &headers);
            let out = attributes(&self.identity, &request);
            let ip = out.value("ip").map(<[u8]>::escape_ascii).map(|ip| ip.to_string());
            assert_eq!(ip.as_deref(), Some(CLIENT), "{headers:?}");
        }
    }
}

/// The attributes of a request, after a look at what holds for all of them.
fn attributes(identity: &Identity, request: &RequestParts<'_>) -> Attributes {
    let mut out = Attributes::new();
    identity.attributes(request, NOW, &mut out);
    let mut again = Attributes::new();
    again.push("left", b"over");
    identity.attributes(request, NOW, &mut again);
    assert_eq!(out.list(), again.list(), "the same request, other attributes");
    assert_ne!(out.token(), Token::Valid, "a token that nobody signed");
    assert_eq!(out.value("user"), None, "a claim of a token that nobody signed");
    for one in &out.list() {
        if one.name == "path" {
            assert_eq!(*normalise(one.value), *one.value);
        } else {
            assert!(one.value.len() <= VALUE_BYTES_MAX, "{} is too long", one.name);
        }
    }
    out
}

/// Those of the lines that are headers.
fn headers<'d>(lines: impl Iterator<Item = &'d [u8]>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in lines.take(HEADERS_MAX) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(&line[..colon]), value) {
            headers.append(name, value);
        }
    }
    headers
}
