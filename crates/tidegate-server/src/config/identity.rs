//! The part of the settings file that says who a request is from. What it names, keys and databases, is
//! read here: the crate that makes attributes opens no files.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ipnet::Ipv6Net;
use tidegate::Span;
use tidegate_identity::{
    AddressConfig, Claim, CountryConfig, Extract, ForwardedHeader, Identity, IdentityConfig,
    IdentityError, Proxies, Source, TokenConfig, TokenKey, Trust,
};
use tidegate_rules::Place;
use tidegate_rules::document::{
    Fields, Node, Problems, Value, boolean, list, list_of, quoted, text, word,
};

use super::file::{parsed, texts};
use super::value::{Time, ValueError};

/// The longest file of a token key or a set of them.
const KEY_FILE_BYTES_MAX: u64 = 1 << 20;
/// The longest database of countries or autonomous systems; the largest there are have some 100 MiB.
const DATABASE_BYTES_MAX: u64 = 1 << 30;

/// The settings in `node`, whose paths are relative to `folder`. Its secret is not set here.
pub(super) fn read(node: &Node, folder: &Path, problems: &mut Problems) -> Option<IdentityConfig> {
    let had_errors = problems.has_errors();
    let mut fields = Fields::of(node, "identity", problems)?;
    let mut config = IdentityConfig::new([0; 16]);
    let mut reader = Reader { folder, problems };
    if let Some(node) = fields.take("proxies") {
        config.proxies = reader.proxies(node).unwrap_or_default();
    }
    if let Some(node) = fields.take("address") {
        config.address = reader.address(node).unwrap_or_default();
    }
    if let Some(node) = fields.take("token") {
        config.token = reader.token(node);
    }
    if let Some(node) = fields.take("api_key") {
        config.api_key = reader.sources(node).unwrap_or_default();
    }
    if let Some(node) = fields.take("extract") {
        config.extract = reader.extract(node).unwrap_or_default();
    }
    if let Some(node) = fields.take("country") {
        config.country = reader.country(node).unwrap_or_default();
    }
    fields.finish(problems);
    if had_errors || problems.has_errors() {
        return None;
    }
    // What no part can tell alone is told now, where the file can still be named.
    match Identity::new(config.clone()) {
        Ok(_) => Some(config),
        Err(error) => {
            problems.error(place_of(node, error.part()), format!("`identity`: {error}"));
            None
        }
    }
}

struct Reader<'p> {
    folder: &'p Path,
    problems: &'p mut Problems,
}

impl Reader<'_> {
    fn proxies(&mut self, node: &Node) -> Option<Proxies> {
        let mut fields = Fields::of(node, "proxies", self.problems)?;
        let networks = fields.take("networks");
        let hops = fields.take("hops");
        let trust = match (networks, hops) {
            (Some(_), Some(hops)) => {
                let message = "`networks` and `hops` both say whom to trust";
                self.problems.error(hops.place, message).help =
                    Some("leave one of them out".to_owned());
                Trust::Nobody
            }
            (Some(node), None) => Trust::Networks(self.each(node, "networks").unwrap_or_default()),
            (None, Some(node)) => {
                Trust::Hops(parsed(node, "hops", self.problems).unwrap_or_default())
            }
            (None, None) => Trust::Nobody,
        };
        let headers = [
            ("x-forwarded-for", ForwardedHeader::XForwardedFor),
            ("forwarded", ForwardedHeader::Forwarded),
        ];
        let header = fields.take("header");
        let header = header.and_then(|node| word(node, "header", &headers, self.problems));
        let local = fields.take("local_peer_trusted");
        let local = local.and_then(|node| boolean(node, "local_peer_trusted", self.problems));
        fields.finish(self.problems);
        Some(Proxies {
            trust,
            header: header.unwrap_or_default(),
            local_peer_trusted: local.unwrap_or(false),
        })
    }

    fn address(&mut self, node: &Node) -> Option<AddressConfig> {
        let mut fields = Fields::of(node, "address", self.problems)?;
        let usual = AddressConfig::default();
        let mut prefix = |name: &'static str| {
            fields.take(name).and_then(|node| parsed::<Prefix>(node, name, self.problems))
        };
        let (ipv4, ipv6) = (prefix("ipv4_prefix"), prefix("ipv6_prefix"));
        let translators: Option<Vec<Ipv6Net>> =
            fields.take("translators").and_then(|node| self.each(node, "translators"));
        let whole = fields.take("whole");
        let whole = whole.and_then(|node| boolean(node, "whole", self.problems));
        fields.finish(self.problems);
        Some(AddressConfig {
            ipv4_prefix: ipv4.map_or(usual.ipv4_prefix, |prefix| prefix.0),
            ipv6_prefix: ipv6.map_or(usual.ipv6_prefix, |prefix| prefix.0),
            translators: translators.unwrap_or_default(),
            whole: whole.unwrap_or(false),
        })
    }

    fn token(&mut self, node: &Node) -> Option<TokenConfig> {
        let mut fields = Fields::of(node, "token", self.problems)?;
        let keys = fields.require("keys", self.problems);
        let keys = keys.and_then(|node| self.keys(node)).unwrap_or_default();
        let mut config = TokenConfig::new(keys);
        if let Some(node) = fields.take("source") {
            config.source = self.source(node).unwrap_or(Source::Bearer);
        }
        if let Some(node) = fields.take("claims") {
            let claims = self.pairs(node, "claims").unwrap_or_default();
            config.claims =
                claims.into_iter().map(|(name, path, _)| Claim::new(name, path)).collect();
        }
        if let Some(node) = fields.take("issuers") {
            config.issuers = texts(node, "issuers", self.problems).unwrap_or_default();
        }
        if let Some(node) = fields.take("audiences") {
            config.audiences = texts(node, "audiences", self.problems).unwrap_or_default();
        }
        if let Some(node) = fields.take("leeway") {
            let leeway: Option<Time> = parsed(node, "leeway", self.problems);
            config.leeway = leeway.map_or(Span::MINUTE, |time| time.duration().into());
        }
        if let Some(node) = fields.take("expiry_required") {
            let required = boolean(node, "expiry_required", self.problems);
            config.expiry_required = required.unwrap_or(true);
        }
        fields.finish(self.problems);
        Some(config)
    }

    fn keys(&mut self, node: &Node) -> Option<Vec<TokenKey>> {
        let mut keys = Vec::new();
        for item in list_of(node, "keys", self.problems)? {
            keys.extend(self.key(item).unwrap_or_default());
        }
        Some(keys)
    }

    /// The key, or the keys, of one file.
    fn key(&mut self, node: &Node) -> Option<Vec<TokenKey>> {
        let mut fields = Fields::of(node, "a key", self.problems)?;
        let kinds: [(&'static str, MakeKeys); 3] = [
            ("secret_file", |bytes| TokenKey::secret(bytes.trim_ascii_end()).map(|key| vec![key])),
            ("pem_file", |bytes| TokenKey::pem(bytes).map(|key| vec![key])),
            ("jwks_file", TokenKey::set),
        ];
        let found: Vec<(&Node, MakeKeys)> = kinds
            .into_iter()
            .filter_map(|(name, make)| fields.take(name).map(|node| (node, make)))
            .collect();
        let kid = fields.take("kid").and_then(|node| text(node, "kid", self.problems));
        let place = fields.place();
        fields.finish(self.problems);
        let [(file, make)] = found[..] else {
            self.problems.error(place, "a key is in one file").help =
                Some("write one of `secret_file`, `pem_file` and `jwks_file`".to_owned());
            return None;
        };
        let bytes = self.file(file, "the file of a key", KEY_FILE_BYTES_MAX)?;
        match make(&bytes) {
            // A set names its keys itself.
            Ok(keys) => Some(match (kid, keys.len()) {
                (Some(kid), 1) => keys.into_iter().map(|key| key.with_kid(kid.clone())).collect(),
                _ => keys,
            }),
            Err(error) => {
                self.problems.error(file.place, error.fault().to_string());
                None
            }
        }
    }

    fn sources(&mut self, node: &Node) -> Option<Vec<Source>> {
        match &node.value {
            Value::Scalar(_) => self.source(node).map(|source| vec![source]),
            Value::Null | Value::List(_) | Value::Map(_) => {
                let items = list(node, "api_key", self.problems)?;
                Some(items.iter().filter_map(|item| self.source(item)).collect())
            }
        }
    }

    fn source(&mut self, node: &Node) -> Option<Source> {
        parsed::<SourceText>(node, "source", self.problems).map(|source| source.0)
    }

    fn extract(&mut self, node: &Node) -> Option<Vec<Extract>> {
        // Without names of their own, attributes are called after their sources.
        if let Value::List(items) = &node.value {
            return Some(
                items.iter().filter_map(|item| self.source(item)).map(Extract::new).collect(),
            );
        }
        let pairs = self.pairs(node, "extract")?;
        let extract = pairs.into_iter().filter_map(|(name, _, node)| {
            self.source(node).map(|source| Extract::named(name, source))
        });
        Some(extract.collect())
    }

    fn country(&mut self, node: &Node) -> Option<CountryConfig> {
        let mut fields = Fields::of(node, "country", self.problems)?;
        let mut config = CountryConfig::default();
        if let Some(node) = fields.take("table") {
            for (network, country, node) in self.pairs(node, "table").unwrap_or_default() {
                match network.parse() {
                    Ok(network) => config.table.push((network, country)),
                    Err(_) => self.no_network(node, &network),
                }
            }
        }
        let mut database = |name: &'static str| -> Option<Arc<[u8]>> {
            let node = fields.take(name)?;
            self.file(node, "the database", DATABASE_BYTES_MAX).map(Into::into)
        };
        config.database = database("database");
        config.asn_database = database("asn_database");
        fields.finish(self.problems);
        Some(config)
    }

    /// The entries of a mapping of texts, each with the node of its value.
    fn pairs<'n>(&mut self, node: &'n Node, what: &str) -> Option<Vec<(String, String, &'n Node)>> {
        Fields::of(node, what, self.problems)?;
        let Value::Map(entries) = &node.value else { return None };
        let pairs = entries.iter().filter_map(|(key, node)| {
            Some((key.text.clone(), text(node, &key.text, self.problems)?, node))
        });
        Some(pairs.collect())
    }

    /// A list of networks.
    fn each<T: FromStr>(&mut self, node: &Node, what: &str) -> Option<Vec<T>> {
        let mut networks = Vec::new();
        for item in list(node, what, self.problems)? {
            let Some(text) = text(item, what, self.problems) else { continue };
            match text.parse() {
                Ok(network) => networks.push(network),
                Err(_) => self.no_network(item, &text),
            }
        }
        Some(networks)
    }

    fn no_network(&mut self, node: &Node, text: &str) {
        self.problems.error(node.place, format!("{} is no network", quoted(text))).help =
            Some("write an address and a prefix, such as `10.0.0.0/8`".to_owned());
    }

    /// The bytes of the file that `node` names.
    fn file(&mut self, node: &Node, what: &str, bytes_max: u64) -> Option<Vec<u8>> {
        let path: PathBuf = self.folder.join(text(node, what, self.problems)?);
        let mut bytes = Vec::new();
        let read =
            File::open(&path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes));
        let why = match read {
            Ok(count) if count as u64 <= bytes_max => return Some(bytes),
            Ok(_) => format!("it is longer than {} MiB", bytes_max >> 20),
            Err(error) => error.to_string(),
        };
        let path = path.display().to_string();
        self.problems.error(node.place, format!("{what} cannot be read: {why}")).help =
            Some(format!("it is looked for at {}", quoted(&path)));
        None
    }
}

type MakeKeys = fn(&[u8]) -> Result<Vec<TokenKey>, IdentityError>;

/// So many bits.
struct Prefix(u8);

impl FromStr for Prefix {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let error = |_| ValueError::new("write how many bits count, such as `64`");
        text.trim_start_matches('/').parse().map(Self).map_err(error)
    }
}

/// `header.NAME`, `cookie.NAME`, `query.NAME` or `bearer`.
struct SourceText(Source);

impl FromStr for SourceText {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let write = "write `header.NAME`, `cookie.NAME`, `query.NAME` or `bearer`";
        match text.split_once('.') {
            Some(("header", name)) => {
                let source = Source::header(name);
                source.map(Self).map_err(|error| ValueError::new(error.fault().to_string()))
            }
            Some(("cookie", name)) => Ok(Self(Source::Cookie(name.to_owned()))),
            Some(("query", name)) => Ok(Self(Source::Query(name.to_owned()))),
            None if text == "bearer" => Ok(Self(Source::Bearer)),
            _ => Err(ValueError::new(write)),
        }
    }
}

/// The place of a part such as `proxies.networks[2]`, or of the deepest part of the way there is.
fn place_of(node: &Node, part: &str) -> Place {
    let mut at = node;
    for name in part.split('.') {
        let (name, index) = match name.split_once('[') {
            Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
            None => (name, None),
        };
        let Value::Map(entries) = &at.value else { break };
        let Some((_, child)) = entries.iter().find(|(key, _)| key.text == name) else { break };
        at = child;
        at = match (&at.value, index) {
            (Value::List(items), Some(index)) => items.get(index).unwrap_or(at),
            (Value::Map(entries), Some(index)) => entries.get(index).map_or(at, |(_, node)| node),
            _ => at,
        };
    }
    at.place
}
