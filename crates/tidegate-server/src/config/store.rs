//! The settings of a store that nodes share: where it is, how exactly limits are shared, what happens while
//! it cannot answer, and the secret that all nodes have in common. What is checked here is what can be
//! known without asking the store.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use tidegate::redis::{ConnectError, ForeignState, RedisConfig};
use tidegate_rules::document::{Fields, Node, Problems, list, number, text};

use super::secret::Secret;
use super::value::{Consistency, Count, OnStoreFailure, StoreForeignState, Time, ValueError};
use super::{SecretSetting, SettingsError, Told, secret, secret_of};

/// The least that the secret of a fleet has: what is shorter can be guessed.
pub const FLEET_SECRET_BYTES_MIN: usize = 16;
/// The most groups of servers.
pub const GROUPS_MAX: usize = 64;
/// The shortest and the longest time that the store may be given for a decision.
pub const DEADLINES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
/// The most nodes that can be said to share a store.
pub const NODES_MAX: usize = 10_000;
/// What a store is given for a decision unless said.
pub const DEADLINE: Duration = Duration::from_millis(10);
/// How long a connection to a store may take at least.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// What the URLs of stores begin with. What is behind it is checked by whoever connects.
const SCHEMES: [&str; 2] = ["redis", "valkey"];

/// The options of URLs.
const OPTIONS: [&str; 10] = [
    "ca",
    "cert",
    "db",
    "key",
    "pass",
    "password-file",
    "sentinel-password",
    "sentinel-password-file",
    "sentinel-user",
    "user",
];

/// Where state lives: `memory`, or the URL of a store. It is shown without what is secret in it.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl(Box<str>);

impl StoreUrl {
    /// All of it, with the password.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is this process's memory.
    pub fn is_memory(&self) -> bool {
        &*self.0 == "memory"
    }

    /// Whether it says what the password of the servers is, or which file holds it.
    pub fn has_password(&self) -> bool {
        self.is_password_in_place() || self.has_option(&["pass", "password-file"])
    }

    /// Whether whoever reads it reads a password, of the servers or of the Sentinels.
    pub fn shows_password(&self) -> bool {
        self.is_password_in_place() || self.has_option(&["pass", "sentinel-password"])
    }

    /// Whether a password stands before the servers. No user stands before the path of a socket.
    fn is_password_in_place(&self) -> bool {
        let (place, _) = self.parts();
        let user = place.rsplit_once('@').and_then(|(user, _)| user.split_once(':'));
        !self.is_socket() && user.is_some_and(|(_, password)| !password.is_empty())
    }

    fn has_option(&self, names: &[&str]) -> bool {
        let (_, options) = self.parts();
        options.split('&').filter_map(|one| one.split_once('=')).any(|one| names.contains(&one.0))
    }

    /// What stands before the options, and the options, as whoever connects reads them.
    fn parts(&self) -> (&str, &str) {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        rest.split_once('?').unwrap_or((rest, ""))
    }

    fn is_socket(&self) -> bool {
        self.scheme().ends_with("unix")
    }

    /// What it begins with.
    fn scheme(&self) -> &str {
        self.0.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// A URL over an encrypted connection.
    pub fn is_encrypted(&self) -> bool {
        ["rediss", "valkeys"].iter().any(|scheme| self.0.starts_with(scheme))
    }
}

impl FromStr for StoreUrl {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        let is_store = |scheme: &str| SCHEMES.iter().any(|known| scheme.starts_with(known));
        if text == "memory" || scheme.is_some_and(is_store) {
            return Ok(Self(text.into()));
        }
        // The text is not repeated: it may hold a password.
        Err(ValueError::new(
            "write `memory`, or a URL such as `redis://host:6379`, `rediss://host:6379`, \
             `redis-sentinel://host:26379/main` or `redis-cluster://host:6379`",
        ))
    }
}

impl fmt::Display for StoreUrl {
    /// Without user, password and parameters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.0.split_once("://") else { return f.write_str(&self.0) };
        let place = match rest.split_once('?') {
            // An `@` may be part of a password among the options.
            Some((place, options)) if self.is_socket() || begins_with_option(options) => place,
            // A password may hold anything, an `@`, a `/` or a `?` too where it was not escaped.
            _ => rest,
        };
        let place = match place.rsplit_once('@') {
            Some((_, place)) if !self.is_socket() => place,
            _ => place,
        };
        let place = place.split_once(['?', '#']).map_or(place, |(place, _)| place);
        write!(f, "{scheme}://{place}")
    }
}

/// Whether a text is options, and not the rest of a password that has a `?` in it.
fn begins_with_option(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| OPTIONS.contains(&name))
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreUrl({self})")
    }
}

/// Which group keeps whose limits, by ranges of a numeric attribute. Groups are counted from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRanges {
    /// The attribute.
    pub attribute: String,
    /// Numbers, and their group.
    pub ranges: Vec<(RangeInclusive<u64>, u8)>,
}

/// A store that nodes share, as it is to be used.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreSettings {
    /// One for each group of servers.
    pub urls: Vec<StoreUrl>,
    /// How exactly limits are shared, where a rule does not say.
    pub consistency: Consistency,
    /// What happens while the store cannot answer, where a rule does not say.
    pub on_failure: OnStoreFailure,
    /// Whether the daemon starts only where the store is there.
    pub is_required: bool,
    /// How long a decision of the store may take.
    pub deadline: Duration,
    /// How many nodes there are, until the store has told.
    pub nodes: u32,
    /// What every key begins with.
    pub prefix: Option<String>,
    /// What happens to a key that holds what somebody else wrote.
    pub foreign_state: StoreForeignState,
    /// The password of URLs that have none, and the file that it is in, where it may change.
    pub password: Option<(Secret, Option<PathBuf>)>,
    /// Who vouches for the servers; those that the system trusts where it is not said.
    pub ca: Option<PathBuf>,
    /// What this node shows to the servers: a certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Groups by ranges of an attribute.
    pub ranges: Option<StoreRanges>,
}

/// Why this store cannot be used, in one sentence.
pub fn told(url: &StoreUrl, error: &ConnectError) -> String {
    let told = Told::new(error);
    match error {
        // A server that speaks no TLS waits for more of what it takes for a command.
        ConnectError::Silent if url.is_encrypted() => {
            format!("{told}, as a server without TLS does where the URL says {}", url.scheme())
        }
        _ => told.to_string(),
    }
}

impl StoreSettings {
    /// What one group is reached with.
    pub fn config(&self, url: &StoreUrl) -> Result<RedisConfig, SettingsError> {
        let fail = |error: ConnectError| SettingsError::StoreUrl {
            url: url.to_string(),
            error: Told::new(&error),
        };
        let mut config = RedisConfig::new(url.as_str()).map_err(fail)?.deadline(self.deadline);
        // Whoever waits longer for an answer waits as long for a connection.
        config = config.connect_timeout(self.deadline.max(CONNECT_TIMEOUT));
        config = config.foreign_state(match self.foreign_state {
            StoreForeignState::Reset => ForeignState::Reset,
            StoreForeignState::Refuse => ForeignState::Refuse,
        });
        match &self.password {
            Some(_) if url.has_password() => {}
            // It is read again for every connection, so that it can be replaced.
            Some((_, Some(file))) => config = config.password_file(file),
            Some((password, None)) => {
                config = config.password(&String::from_utf8_lossy(password.as_bytes()));
            }
            None => {}
        }
        if let Some(ca) = &self.ca {
            config = config.ca(ca);
        }
        if let Some((certificate, key)) = &self.identity {
            config = config.certificate(certificate, key);
        }
        match &self.prefix {
            Some(prefix) => config.prefix(prefix).map_err(fail),
            None => Ok(config),
        }
    }
}

/// What one place says about the store.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is the setting of its name, which the manual tells about")]
pub struct StoreLayer {
    pub store: Option<Vec<StoreUrl>>,
    pub consistency: Option<Consistency>,
    pub on_store_failure: Option<OnStoreFailure>,
    pub store_required: Option<bool>,
    pub store_deadline: Option<Time>,
    pub store_nodes: Option<Count>,
    pub store_prefix: Option<String>,
    pub store_foreign_state: Option<StoreForeignState>,
    pub store_password_file: Option<PathBuf>,
    /// Never from a file of settings or a flag.
    pub store_password: Option<Secret>,
    pub store_ca: Option<PathBuf>,
    pub store_cert: Option<PathBuf>,
    pub store_key: Option<PathBuf>,
    pub secret_file: Option<PathBuf>,
    /// Never from a file of settings or a flag.
    pub secret: Option<Secret>,
    /// From the file alone: it is too much for a command line.
    pub store_ranges: Option<StoreRanges>,
}

impl StoreLayer {
    /// What this layer says, and below it what `below` says.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        let (store_password_file, store_password) = secret_of(
            (self.store_password_file, self.store_password),
            (below.store_password_file, below.store_password),
        );
        let (secret_file, secret) =
            secret_of((self.secret_file, self.secret), (below.secret_file, below.secret));
        Self {
            store: self.store.or(below.store),
            consistency: self.consistency.or(below.consistency),
            on_store_failure: self.on_store_failure.or(below.on_store_failure),
            store_required: self.store_required.or(below.store_required),
            store_deadline: self.store_deadline.or(below.store_deadline),
            store_nodes: self.store_nodes.or(below.store_nodes),
            store_prefix: self.store_prefix.or(below.store_prefix),
            store_foreign_state: self.store_foreign_state.or(below.store_foreign_state),
            store_password_file,
            store_password,
            store_ca: self.store_ca.or(below.store_ca),
            store_cert: self.store_cert.or(below.store_cert),
            store_key: self.store_key.or(below.store_key),
            secret_file,
            secret,
            store_ranges: self.store_ranges.or(below.store_ranges),
        }
    }

    /// The store, or `None` where it is memory; and the secret that keys are hashed with.
    pub(super) fn checked(
        mut self,
    ) -> Result<(Option<StoreSettings>, Option<[u8; 16]>), SettingsError> {
        let urls = self.store.take().unwrap_or_default();
        let is_shared = urls.iter().any(|url| !url.is_memory());
        let fleet_secret: SecretSetting = (self.secret_file.take(), self.secret.take());
        let rest = self;
        let fleet_secret = secret(("secret-file", fleet_secret.0, fleet_secret.1))?;
        let short = |secret: &Secret| secret.as_bytes().len() < FLEET_SECRET_BYTES_MIN;
        if fleet_secret.as_ref().is_some_and(short) {
            return Err(SettingsError::FleetSecretShort);
        }
        let hashed_with = fleet_secret.as_ref().map(key_of);
        if !is_shared {
            return match rest.consistency {
                Some(Consistency::Strict | Consistency::Leased) => Err(SettingsError::Consistency),
                Some(Consistency::Local) | None => Ok((None, hashed_with)),
            };
        }
        check_urls(&urls)?;
        if fleet_secret.is_none() {
            return Err(SettingsError::FleetSecretMissing);
        }
        Ok((Some(rest.of(urls)?), hashed_with))
    }

    /// The stores and how they are reached, for who looks at them and shares no limits; `None` where there
    /// are none.
    pub fn links(mut self) -> Result<Option<StoreSettings>, SettingsError> {
        let urls = self.store.take().unwrap_or_default();
        if urls.iter().all(StoreUrl::is_memory) {
            return Ok(None);
        }
        self.of(urls).map(Some)
    }

    fn of(self, urls: Vec<StoreUrl>) -> Result<StoreSettings, SettingsError> {
        check_urls(&urls)?;
        let deadline = self.store_deadline.map_or(DEADLINE, Time::duration);
        if !DEADLINES.contains(&deadline) {
            return Err(SettingsError::StoreDeadline);
        }
        let nodes = self.store_nodes.map_or(1, Count::number);
        if nodes > NODES_MAX {
            return Err(SettingsError::StoreNodes);
        }
        let identity = match (self.store_cert, self.store_key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(SettingsError::StoreCertificate),
        };
        if (self.store_ca.is_some() || identity.is_some())
            && !urls.iter().any(StoreUrl::is_encrypted)
        {
            return Err(SettingsError::StoreNotEncrypted);
        }
        let group_max = self.store_ranges.iter().flat_map(|one| &one.ranges).map(|one| one.1).max();
        if group_max.is_some_and(|group| usize::from(group) >= urls.len()) {
            return Err(SettingsError::StoreRange { groups: urls.len() });
        }
        let password_file = self.store_password_file;
        let password = secret(("store-password-file", password_file.clone(), self.store_password))?;
        let settings = StoreSettings {
            urls,
            consistency: self.consistency.unwrap_or(Consistency::Strict),
            on_failure: self.on_store_failure.unwrap_or(OnStoreFailure::Local),
            is_required: self.store_required.unwrap_or(true),
            deadline,
            nodes: nodes as u32,
            prefix: self.store_prefix,
            foreign_state: self.store_foreign_state.unwrap_or(StoreForeignState::Reset),
            password: password.map(|password| (password, password_file)),
            ca: self.store_ca,
            identity,
            ranges: self.store_ranges,
        };
        for url in &settings.urls {
            settings.config(url)?;
        }
        Ok(settings)
    }
}

fn check_urls(urls: &[StoreUrl]) -> Result<(), SettingsError> {
    if urls.iter().any(StoreUrl::is_memory) {
        return Err(SettingsError::StoreAndMemory);
    }
    if urls.len() > GROUPS_MAX {
        return Err(SettingsError::TooManyGroups);
    }
    for (index, url) in urls.iter().enumerate() {
        if urls[..index].iter().any(|other| other.to_string() == url.to_string()) {
            return Err(SettingsError::StoreTwice { url: url.to_string() });
        }
    }
    Ok(())
}

/// The key of the hash, from a secret of any length.
fn key_of(secret: &Secret) -> [u8; 16] {
    let mut key = [0; 16];
    key.copy_from_slice(&digest(&SHA256, secret.as_bytes()).as_ref()[..16]);
    key
}

/// The ranges of groups in the settings file: an attribute, and a list of `from`, `to` and `group`, where
/// groups are counted from 1 as people do.
pub(super) fn ranges(node: &Node, problems: &mut Problems) -> Option<StoreRanges> {
    let mut fields = Fields::of(node, "store_ranges", problems)?;
    let attribute = fields.require("attribute", problems);
    let attribute = attribute.and_then(|node| text(node, "attribute", problems));
    let items = fields.require("ranges", problems);
    let items = items.and_then(|node| list(node, "ranges", problems));
    fields.finish(problems);
    let mut ranges = Vec::new();
    for item in items? {
        let mut fields = Fields::of(item, "a range", problems)?;
        let from = fields.require("from", problems);
        let from = from.and_then(|node| number(node, "from", problems));
        let to = match fields.take("to") {
            Some(node) => number(node, "to", problems),
            None => Some(u64::MAX),
        };
        let group = fields.require("group", problems);
        let group = group.and_then(|node| {
            let group = number(node, "group", problems)?;
            let found = u8::try_from(group).ok().and_then(|group| group.checked_sub(1));
            if found.is_none() {
                problems.error(node.place, "there is no such group").help =
                    Some("groups are counted from 1, in the order of `store`".to_owned());
            }
            found
        });
        fields.finish(problems);
        let (Some(from), Some(to), Some(group)) = (from, to, group) else { continue };
        if from > to {
            problems.error(item.place, "the range ends before it begins");
        }
        ranges.push((from..=to, group));
    }
    let mut sorted: Vec<_> = ranges.iter().map(|(range, _)| range).collect();
    sorted.sort_unstable_by_key(|range| *range.start());
    if sorted.windows(2).any(|pair| pair[0].end() >= pair[1].start()) {
        problems.error(node.place, "two ranges have a number in common");
    }
    Some(StoreRanges { attribute: attribute?, ranges })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        for (url, shown) in [
            ("redis://localhost", "redis://localhost"),
            ("redis://:hunter2@localhost:6379/3", "redis://localhost:6379/3"),
            ("rediss://ann:hunter2@[::1]:6379", "rediss://[::1]:6379"),
            ("redis://ann:hun/ter@2@localhost/1", "redis://localhost/1"),
            ("redis+unix:///run/redis.sock?pass=hunter2", "redis+unix:///run/redis.sock"),
            ("redis+unix:///run/r.sock?pass=hun@ter2", "redis+unix:///run/r.sock"),
            ("redis+unix:///run/r.sock?db=1&pass=hun@ter2", "redis+unix:///run/r.sock"),
            ("redis-sentinel://:hunter2@a:1,b:2/main?x=hunter2", "redis-sentinel://a:1,b:2/main"),
            ("redis-sentinel://a:1/main?sentinel-password=p@ss", "redis-sentinel://a:1/main"),
            (
                "redis-sentinel://:hun@ter2@a/main?sentinel-user=ann&sentinel-password=p@ss",
                "redis-sentinel://a/main",
            ),
            ("redis://:hun?ter2@localhost", "redis://localhost"),
        ] {
            let parsed: StoreUrl = url.parse().unwrap();
            assert_eq!(parsed.to_string(), shown);
            assert_eq!(format!("{parsed:?}"), format!("StoreUrl({shown})"));
        }
    }

    #[test]
    fn a_password_is_one_by_its_place_and_not_by_its_letters() {
        for (url, has, shows) in [
            ("redis://localhost", false, false),
            ("redis://compass:6379", false, false),
            ("redis://ann@passage", false, false),
            ("redis://ann:@localhost", false, false),
            ("redis://:hunter2@localhost:6379/3", true, true),
            ("redis://ann:hun/ter@2@localhost/1", true, true),
            ("redis+unix:///run/a:b@compass.sock", false, false),
            ("redis+unix:///run/redis.sock?db=1&pass=hunter2", true, true),
            ("redis://localhost?password-file=/run/secret", true, false),
            ("redis-sentinel://a/main?sentinel-password=hunter2", false, true),
            ("redis-sentinel://a/main?sentinel-password-file=/run/secret", false, false),
        ] {
            let parsed: StoreUrl = url.parse().unwrap();
            assert_eq!((parsed.has_password(), parsed.shows_password()), (has, shows), "{url}");
        }
    }

    #[test]
    fn what_is_no_url_of_a_store_is_refused_and_not_repeated() {
        for text in ["", "redis", "http://:hunter2@localhost", "hunter2", "redis:/localhost"] {
            let error = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(error.starts_with("write `memory`"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn equal_secrets_make_equal_keys_and_others_do_not() {
        let key = |text: &str| key_of(&Secret::new(text.as_bytes()).unwrap());
        assert_eq!(key("0123456789abcdef"), key("0123456789abcdef\n"));
        assert_ne!(key("0123456789abcdef"), key("0123456789abcdeg"));
    }
}
