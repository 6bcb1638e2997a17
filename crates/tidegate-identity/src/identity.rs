//! A request to its attributes, all settings applied.

use core::net::{IpAddr, SocketAddr};
use std::io::Write as _;

use http::HeaderMap;
use http::header::{HOST, HeaderName};
use tidegate_core::Timestamp;
use tidegate_rules::path::normalise;
use tidegate_rules::{Attribute, Reads};

use crate::address::{AddressText, Addresses};
use crate::attributes::{Attributes, Token, TokenFault};
use crate::client::Clients;
use crate::config::{IdentityConfig, VALUE_BYTES_MAX, names};
use crate::country::Countries;
use crate::error::IdentityError;
use crate::fingerprint::Fingerprint;
use crate::host;
use crate::request::{Host, RequestParts};
use crate::source::{Extract, Source};
use crate::token::Tokens;

/// Makes attributes from requests. It is compiled once and shared.
#[derive(Debug)]
pub struct Identity {
    clients: Clients,
    addresses: Addresses,
    countries: Countries,
    tokens: Option<Tokens>,
    api_key: Vec<Source>,
    extract: Vec<Extract>,
    fingerprint: Fingerprint,
    /// Those that are not made of headers and the address alone.
    of_moment: Reads,
}

impl Identity {
    /// Checks and compiles settings.
    pub fn new(config: IdentityConfig) -> Result<Self, IdentityError> {
        config.check()?;
        let addresses = Addresses::new(&config.address)?;
        let of_moment = of_moment(&config);
        Ok(Self {
            clients: Clients::new(&config.proxies, &addresses)?,
            addresses,
            countries: Countries::new(config.country)?,
            tokens: config.token.map(Tokens::new).transpose()?,
            api_key: config.api_key,
            extract: config.extract,
            fingerprint: Fingerprint::new(&config.secret),
            of_moment,
        })
    }

    /// Puts the attributes of a request into `out`, in the place of those before.
    ///
    /// They come in this order, each absent where the request does not say it: `ip`, `address`, `country`, `asn`,
    /// `method`, `host`, `path`, the claims of a valid token, `api_key`, and what else is extracted, both in the
    /// order of the settings. `now` is the time since the Unix epoch; only the times in tokens are compared with it.
    pub fn attributes(&self, request: &RequestParts<'_>, now: Timestamp, out: &mut Attributes) {
        self.attributes_read(request, Reads::ALL, now, out);
    }

    /// The same with those attributes alone that somebody reads. What became of the token and what the request leaves
    /// open is told of them and of no others.
    #[inline]
    pub fn attributes_read(
        &self,
        request: &RequestParts<'_>,
        reads: Reads,
        now: Timestamp,
        out: &mut Attributes,
    ) {
        out.clear();
        if reads.any_of(Reads::OF_CLIENT) {
            self.put_client(request, reads, out);
        }
        if reads.any_of(Reads::OF_REQUEST) {
            self.put_request(request, reads, now, out);
        }
    }

    /// Hands the attribute `ip` to `read`, as a list of one, or of none where the request has none: for who reads no
    /// other, and needs no buffer then.
    #[inline]
    pub fn with_ip<T>(
        &self,
        request: &RequestParts<'_>,
        read: impl FnOnce(&[Attribute<'_>]) -> T,
    ) -> T {
        let (text, ip);
        let list = match self.client(request) {
            Some(client) => {
                text = self.addresses.network(client);
                ip = [Attribute { name: names::IP, value: text.as_bytes() }];
                &ip[..]
            }
            None => &[],
        };
        read(list)
    }

    /// The same of a request whose peer is known to have an address. One of IPv4 stays in a register where it is the
    /// client's, and all of it counts.
    #[inline]
    pub fn with_ip_of<T>(
        &self,
        peer: &SocketAddr,
        headers: &HeaderMap,
        read: impl FnOnce(&[Attribute<'_>]) -> T,
    ) -> T {
        if let SocketAddr::V4(peer) = peer
            && self.clients.are_peers()
            && self.addresses.is_v4_whole()
        {
            let text = AddressText::of_v4(*peer.ip());
            return read(&[Attribute { name: names::IP, value: text.as_bytes() }]);
        }
        self.with_ip(&RequestParts::of_client(Some(peer.ip()), headers), read)
    }

    /// The address of the client whose request it is, past trusted proxies; `None` if nobody who is
    /// believed named one.
    #[inline]
    pub fn client(&self, request: &RequestParts<'_>) -> Option<IpAddr> {
        self.clients.address(request.peer, request.headers, &self.addresses)
    }

    /// The headers whose values become attributes, those of API keys among them.
    pub fn header_names(&self) -> impl Iterator<Item = &HeaderName> {
        let extracted = self.extract.iter().map(|extract| &extract.source);
        self.api_key.iter().chain(extracted).filter_map(Source::name_of_header)
    }

    /// Whether the time makes a difference to [`attributes`](Self::attributes), so that who has none at hand reads
    /// no clock for nothing.
    pub fn reads_time(&self) -> bool {
        self.tokens.is_some()
    }

    /// Whether all of these attributes are the same for two requests of one peer whose headers are the same and name
    /// the host: nothing of them comes of method, path or query, or depends on the time.
    #[inline]
    pub fn is_of_headers(&self, reads: Reads) -> bool {
        !reads.any_of(self.of_moment)
    }

    /// Whether the other end of a connection is a proxy that is believed about where requests come from.
    pub fn is_proxy(&self, peer: Option<IpAddr>) -> bool {
        self.clients.is_proxy(peer, &self.addresses)
    }

    fn put_client(&self, request: &RequestParts<'_>, reads: Reads, out: &mut Attributes) {
        let Some(client) = self.client(request) else { return };
        if reads.any_of(Reads::IP) {
            out.push(names::IP, self.addresses.network(client).as_bytes());
        }
        if self.addresses.whole && reads.any_of(Reads::ADDRESS) {
            out.push(names::ADDRESS, AddressText::of(client).as_bytes());
        }
        if self.countries.is_empty() {
            return;
        }
        if reads.any_of(Reads::COUNTRY) {
            out.push_if(names::COUNTRY, |values| self.countries.write_country(client, values));
        }
        if let Some(asn) = reads.any_of(Reads::ASN).then(|| self.countries.asn(client)).flatten() {
            // Writing to a `Vec` cannot fail.
            out.push_with(names::ASN, |values| drop(write!(values, "{asn}")));
        }
    }

    /// All that does not come of the address.
    fn put_request(
        &self,
        request: &RequestParts<'_>,
        reads: Reads,
        now: Timestamp,
        out: &mut Attributes,
    ) {
        if reads.any_of(Reads::METHOD) {
            out.push_with(names::METHOD, |values| {
                let start = values.len();
                values.extend_from_slice(request.method);
                self.fingerprint.shorten(values, start, VALUE_BYTES_MAX);
            });
        }
        if reads.any_of(Reads::HOST) {
            host(request, out);
        }
        if let Some(path) = request.path.filter(|_| reads.any_of(Reads::PATH)) {
            // It is not shortened, since a rule may look at the end of it. Servers bound it.
            out.push(names::PATH, &normalise(path));
        }
        let reads_others = reads.any_of(Reads::OTHERS);
        if reads_others {
            self.token(request, now, out);
        }
        if reads.any_of(Reads::API_KEY) {
            self.api_key(request, out);
        }
        for extract in self.extract.iter().filter(|_| reads_others) {
            self.extract(extract, request, out);
        }
    }

    fn token(&self, request: &RequestParts<'_>, now: Timestamp, out: &mut Attributes) {
        let Some(tokens) = &self.tokens else { return };
        // Verifying allocates anyway.
        let mut token = Vec::new();
        let found = tokens.source().read(request, &mut token);
        let outcome = match found.count {
            0 => Token::Absent,
            1 if found.malformed => Token::Invalid(TokenFault::Malformed),
            1 => match tokens.read(&token, now, &self.fingerprint, out) {
                Ok(()) => Token::Valid,
                Err(fault) => Token::Invalid(fault),
            },
            _ => Token::Invalid(TokenFault::Repeated),
        };
        out.set_token(outcome);
    }

    /// All places are looked at: which of two keys the server behind believes is not known here. An
    /// empty key is none, unless it stands beside another in one place.
    fn api_key(&self, request: &RequestParts<'_>, out: &mut Attributes) {
        let mut doubt = false;
        out.push_if(names::API_KEY, |values| {
            let start = values.len();
            let mut keys = 0;
            for source in &self.api_key {
                let before = values.len();
                let found = source.read(request, values);
                keys += usize::from(values.len() > before);
                doubt |= found.count > 1 || found.malformed || keys > 1;
            }
            if doubt || keys == 0 {
                return false;
            }
            self.fingerprint.conceal(values, start);
            true
        });
        out.doubts_mut().api_key |= doubt;
    }

    fn extract(&self, extract: &Extract, request: &RequestParts<'_>, out: &mut Attributes) {
        let mut count = 0;
        out.push_if(&extract.name, |values| {
            let start = values.len();
            count = extract.source.read(request, values).count;
            self.fingerprint.shorten(values, start, VALUE_BYTES_MAX);
            count > 0
        });
        out.doubts_mut().repeated |= count > 1;
    }
}

/// The attributes that may be others in the next request of a client, though its headers are the same.
fn of_moment(config: &IdentityConfig) -> Reads {
    let is_of_query = |source: &Source| matches!(source, Source::Query(_));
    let mut reads = Reads::METHOD.and(Reads::PATH);
    if config.api_key.iter().any(is_of_query) {
        reads = reads.and(Reads::API_KEY);
    }
    if config.token.is_some() || config.extract.iter().any(|one| is_of_query(&one.source)) {
        reads = reads.and(Reads::OTHERS);
    }
    reads
}

/// The host of the target goes before the header, as RFC 9112 has it (section 3.2.2). More than one
/// header, or one that is no host, is a doubt, and then no host is better than the wrong one.
fn host(request: &RequestParts<'_>, out: &mut Attributes) {
    let mut lines = request.headers.get_all(HOST).iter().map(http::HeaderValue::as_bytes);
    let text = match request.host {
        Host::Absent => return,
        Host::Named(name) => Some(name),
        Host::InHeader => lines.next(),
    };
    let repeated = match request.host {
        Host::InHeader => lines.next().is_some(),
        Host::Named(_) => lines.nth(1).is_some(),
        Host::Absent => false,
    };
    let mut doubt = repeated;
    if let (Some(text), false) = (text, repeated) {
        out.push_if(names::HOST, |values| {
            let written = host::write(text, values);
            doubt = written.is_err();
            written.unwrap_or(false)
        });
    }
    out.doubts_mut().host |= doubt;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{TokenConfig, TokenKey};

    fn header() -> Source {
        Source::header("x-a").expect("a name")
    }

    fn cookie() -> Source {
        Source::Cookie("a".to_owned())
    }

    fn query() -> Source {
        Source::Query("a".to_owned())
    }

    fn config(api_key: Vec<Source>, extract: Vec<Source>, has_token: bool) -> IdentityConfig {
        let mut config = IdentityConfig::new([1; 16]);
        config.api_key = api_key;
        let named = |(index, source)| Extract::named(format!("x{index}"), source);
        config.extract = extract.into_iter().enumerate().map(named).collect();
        let key = || TokenKey::secret(b"an example secret of 32 bytes...").expect("a key");
        config.token = has_token.then(|| TokenConfig::new(vec![key()]));
        config
    }

    #[test]
    fn what_comes_of_the_first_line_or_depends_on_the_time_is_not_of_headers() {
        // Whether the API key is, and whether those are that have no place of their own.
        let table = [
            (config(vec![], vec![], false), (true, true)),
            (config(vec![header(), cookie()], vec![header(), cookie()], false), (true, true)),
            (config(vec![query()], vec![], false), (false, true)),
            (config(vec![header(), query()], vec![header()], false), (false, true)),
            (config(vec![], vec![query()], false), (true, false)),
            (config(vec![header()], vec![cookie(), query()], false), (true, false)),
            (config(vec![header()], vec![header()], true), (true, false)),
            (config(vec![query()], vec![], true), (false, false)),
        ];
        for (index, (config, expected)) in table.into_iter().enumerate() {
            let identity = Identity::new(config).expect("settings");
            let is = |reads| identity.is_of_headers(reads);
            assert_eq!((is(Reads::API_KEY), is(Reads::OTHERS)), expected, "row {index}");
            let always = Reads::OF_CLIENT.and(Reads::HOST);
            assert!(is(always) && is(Reads::NOTHING), "row {index}");
            for never in [Reads::METHOD, Reads::PATH, Reads::ALL] {
                assert!(!is(never) && !is(never.and(always)), "row {index}: {never:?}");
            }
        }
    }
}
