//! What the daemon is started with, checked. Flags, variables and the file each give a [`Layer`]; the
//! layers become one [`Settings`], in which no value needs checking again.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`value`] | sizes, times and words, from text |
//! | [`limit`] | `RATE per ATTRIBUTE` |
//! | [`secret`] | tokens and passwords, which nobody shows |
//! | [`store`] | the store that nodes share, and the secret that they do |
//! | [`file`](mod@file) | the settings file |
//! | `identity` | its part about who a request is from |

pub mod file;
mod identity;
pub mod limit;
pub mod secret;
pub mod store;
pub mod value;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_identity::IdentityConfig;

use crate::listen::{Address, Service};
use limit::LimitPer;
use secret::{Secret, SecretError};
use store::{DEADLINES, FLEET_SECRET_BYTES_MIN, GROUPS_MAX, NODES_MAX, StoreLayer, StoreSettings};
use value::{Count, EnvoyHeaders, Headers, Level, LogFormat, Size, Time};

/// The longest that a leaky bucket's delay may be waited out by the daemon.
pub const MAX_DELAY_MAX: Duration = Duration::from_mins(1);
/// The longest drain.
pub const DRAIN_TIMEOUT_MAX: Duration = Duration::from_mins(10);
/// The most connections of one address.
pub const CONNECTIONS_MAX: usize = 1_000_000;

/// The ports of the loopback address on which each service listens unless said.
const PORTS: [(Service, u16); 4] =
    [(Service::Http, 8080), (Service::Grpc, 8081), (Service::Resp, 6390), (Service::Admin, 8082)];

/// Everything that the daemon is told before it starts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Where the rules come from.
    pub rules: RulesFrom,
    /// Whether several Envoy files may add to one domain.
    pub merge_domains: bool,
    /// The store that nodes share; `None` is this process's memory.
    pub store: Option<StoreSettings>,
    /// What keys are hashed with, where it is given.
    pub secret: Option<FleetKey>,
    /// The ceiling of the table.
    pub memory_bytes: usize,
    /// Where the state is kept over a restart.
    pub state: Option<PathBuf>,
    /// Whether everything is decided and nothing denied.
    pub shadow: bool,
    /// Where each service listens.
    pub addresses: Addresses,
    /// Which rate limit headers answers carry.
    pub headers: Headers,
    /// Which headers Envoy is asked to add to its responses.
    pub envoy_headers: EnvoyHeaders,
    /// What the lines of the log look like.
    pub log_format: LogFormat,
    /// How much is logged at first.
    pub log_level: Level,
    /// What callers of the admin address must show.
    pub admin_token: Option<Secret>,
    /// What clients of the RESP address must show.
    pub resp_password: Option<Secret>,
    /// How long a leaky bucket's delay is waited out for callers that cannot wait themselves.
    pub max_delay: Duration,
    /// The most connections of each address.
    pub max_connections: usize,
    /// How long requests under way have to finish once the daemon is told to stop.
    pub drain_timeout: Duration,
    /// Whether the list of busiest keys shows names instead of hashes.
    pub names_in_top: bool,
    /// How attributes are made of HTTP requests. Its secret is set when the daemon starts.
    pub identity: IdentityConfig,
}

/// What keys are hashed with: the same on all nodes that share a store. It does not show.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FleetKey(pub(crate) [u8; 16]);

impl fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetKey")
    }
}

/// Where rules come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RulesFrom {
    /// Files and folders, which are watched.
    Files(Vec<PathBuf>),
    /// One rule that was written where the daemon was started.
    Limit(LimitPer),
    /// Nothing was said: a rule to try it with.
    Demonstration,
}

/// One value for each service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The HTTP endpoints.
    pub http: Address,
    /// The gRPC services.
    pub grpc: Address,
    /// The protocol of Redis.
    pub resp: Address,
    /// What an operator sees and switches.
    pub admin: Address,
}

impl Addresses {
    /// Each service with its address.
    pub fn each(&self) -> [(Service, &Address); 4] {
        [
            (Service::Http, &self.http),
            (Service::Grpc, &self.grpc),
            (Service::Resp, &self.resp),
            (Service::Admin, &self.admin),
        ]
    }
}

/// What one place says, a file or a command line: all that is not said is left to the place below.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is the setting of its name, which the manual tells about")]
pub struct Layer {
    pub rules: Option<Vec<PathBuf>>,
    pub limit: Option<LimitPer>,
    pub store: StoreLayer,
    pub memory: Option<Size>,
    pub state: Option<PathBuf>,
    pub shadow: Option<bool>,
    pub http: Option<Address>,
    pub grpc: Option<Address>,
    pub resp: Option<Address>,
    pub admin: Option<Address>,
    pub headers: Option<Headers>,
    pub envoy_headers: Option<EnvoyHeaders>,
    pub log_format: Option<LogFormat>,
    pub log_level: Option<Level>,
    pub admin_token_file: Option<PathBuf>,
    /// Never from a file of settings or a flag: both are read by others.
    pub admin_token: Option<Secret>,
    pub resp_password_file: Option<PathBuf>,
    /// Never from a file of settings or a flag.
    pub resp_password: Option<Secret>,
    pub max_delay: Option<Time>,
    pub max_connections: Option<Count>,
    pub drain_timeout: Option<Time>,
    pub merge_domains: Option<bool>,
    pub names_in_top: Option<bool>,
    /// From the file alone: it is too much for a command line.
    pub identity: Option<IdentityConfig>,
}

impl Layer {
    /// What this layer says, and below it what `below` says.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        let (admin_token_file, admin_token) = secret_of(
            (self.admin_token_file, self.admin_token),
            (below.admin_token_file, below.admin_token),
        );
        let (resp_password_file, resp_password) = secret_of(
            (self.resp_password_file, self.resp_password),
            (below.resp_password_file, below.resp_password),
        );
        Self {
            rules: self.rules.or(below.rules),
            limit: self.limit.or(below.limit),
            store: self.store.over(below.store),
            memory: self.memory.or(below.memory),
            state: self.state.or(below.state),
            shadow: self.shadow.or(below.shadow),
            http: self.http.or(below.http),
            grpc: self.grpc.or(below.grpc),
            resp: self.resp.or(below.resp),
            admin: self.admin.or(below.admin),
            headers: self.headers.or(below.headers),
            envoy_headers: self.envoy_headers.or(below.envoy_headers),
            log_format: self.log_format.or(below.log_format),
            log_level: self.log_level.or(below.log_level),
            admin_token_file,
            admin_token,
            resp_password_file,
            resp_password,
            max_delay: self.max_delay.or(below.max_delay),
            max_connections: self.max_connections.or(below.max_connections),
            drain_timeout: self.drain_timeout.or(below.drain_timeout),
            merge_domains: self.merge_domains.or(below.merge_domains),
            names_in_top: self.names_in_top.or(below.names_in_top),
            identity: self.identity.or(below.identity),
        }
    }
}

type SecretSetting = (Option<PathBuf>, Option<Secret>);

/// A secret and the file of one are the same setting: who says either, overrides both.
fn secret_of(above: SecretSetting, below: SecretSetting) -> SecretSetting {
    if above.0.is_some() || above.1.is_some() { above } else { below }
}

impl Settings {
    /// Checks what the layers say together, and reads the files of secrets.
    pub fn new(layer: Layer) -> Result<Self, SettingsError> {
        let (store, secret_of_keys) = layer.store.checked()?;
        let rules = match (layer.rules, layer.limit) {
            (Some(_), Some(_)) => return Err(SettingsError::RulesAndLimit),
            (Some(paths), None) if paths.is_empty() => return Err(SettingsError::NoRules),
            (Some(paths), None) => RulesFrom::Files(paths),
            (None, Some(limit)) => RulesFrom::Limit(limit),
            (None, None) => RulesFrom::Demonstration,
        };
        let addresses = Addresses {
            http: layer.http.unwrap_or_else(|| usual(Service::Http)),
            grpc: layer.grpc.unwrap_or_else(|| usual(Service::Grpc)),
            resp: layer.resp.unwrap_or_else(|| usual(Service::Resp)),
            admin: layer.admin.unwrap_or_else(|| usual(Service::Admin)),
        };
        check_addresses(&addresses)?;
        let seconds = |time: Option<Time>, default| time.map_or(default, Time::duration);
        let max_delay = seconds(layer.max_delay, Duration::from_secs(1));
        let drain_timeout = seconds(layer.drain_timeout, Duration::from_secs(10));
        let max_connections = layer.max_connections.map_or(16_384, Count::number);
        at_most("max-delay", max_delay, MAX_DELAY_MAX)?;
        at_most("drain-timeout", drain_timeout, DRAIN_TIMEOUT_MAX)?;
        if max_connections > CONNECTIONS_MAX {
            return Err(SettingsError::TooManyConnections);
        }
        let token = ("admin-token-file", layer.admin_token_file, layer.admin_token);
        let password = ("resp-password-file", layer.resp_password_file, layer.resp_password);
        Ok(Self {
            rules,
            merge_domains: layer.merge_domains.unwrap_or(false),
            store,
            secret: secret_of_keys.map(FleetKey),
            memory_bytes: layer.memory.map_or(64 << 20, Size::bytes),
            state: layer.state,
            shadow: layer.shadow.unwrap_or(false),
            addresses,
            headers: layer.headers.unwrap_or(Headers::All),
            envoy_headers: layer.envoy_headers.unwrap_or(EnvoyHeaders::None),
            log_format: layer.log_format.unwrap_or(LogFormat::Text),
            log_level: layer.log_level.unwrap_or(Level::Info),
            admin_token: secret(token)?,
            resp_password: secret(password)?,
            max_delay,
            max_connections,
            drain_timeout,
            names_in_top: layer.names_in_top.unwrap_or(false),
            identity: layer.identity.unwrap_or_else(|| IdentityConfig::new([0; 16])),
        })
    }
}

/// Where a service listens unless said.
fn usual(service: Service) -> Address {
    let port = PORTS.into_iter().find(|(known, _)| *known == service).map_or(0, |(_, port)| port);
    Address::Tcp(SocketAddr::from(([127, 0, 0, 1], port)))
}

fn check_addresses(addresses: &Addresses) -> Result<(), SettingsError> {
    let each = addresses.each();
    for (index, (second, address)) in each.iter().enumerate() {
        let same = each[..index].iter().find(|(_, other)| is_same_place(other, address));
        if let Some((first, _)) = same {
            let (first, second) = (*first, *second);
            return Err(SettingsError::SameAddress { first, second, at: (*address).clone() });
        }
    }
    if each.iter().all(|(service, address)| **address == Address::Off || *service == Service::Admin)
    {
        return Err(SettingsError::Nowhere);
    }
    Ok(())
}

/// Whether two services cannot both have it. A port of 0 is another one each time.
fn is_same_place(one: &Address, other: &Address) -> bool {
    match (one, other) {
        (Address::Tcp(one), Address::Tcp(other)) => one == other && one.port() != 0,
        (Address::Unix(one), Address::Unix(other)) => one == other,
        _ => false,
    }
}

fn at_most(setting: &'static str, time: Duration, max: Duration) -> Result<(), SettingsError> {
    if time <= max { Ok(()) } else { Err(SettingsError::TooLong { setting, max }) }
}

fn secret(
    (setting, file, given): (&'static str, Option<PathBuf>, Option<Secret>),
) -> Result<Option<Secret>, SettingsError> {
    match (file, given) {
        (Some(_), Some(_)) => Err(SettingsError::SecretTwice { setting }),
        (Some(path), None) => {
            let read = Secret::read(&path);
            read.map(Some).map_err(|error| SettingsError::Secret { setting, error })
        }
        (None, given) => Ok(given),
    }
}

/// Why the settings cannot be used. Nothing was started.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettingsError {
    /// Rules from files and from a line at once.
    RulesAndLimit,
    /// A list of rule files without one in it.
    NoRules,
    /// Sharing without a store to share.
    Consistency,
    /// A store that nodes share, and memory beside it.
    StoreAndMemory,
    /// More groups of servers than [`GROUPS_MAX`].
    TooManyGroups,
    /// One store as two groups.
    StoreTwice {
        /// Which, without its password.
        url: String,
    },
    /// A store that nodes share, and no secret that they do.
    FleetSecretMissing,
    /// A secret that could be guessed.
    FleetSecretShort,
    /// A time for the store that is out of [`DEADLINES`].
    StoreDeadline,
    /// More nodes than [`NODES_MAX`].
    StoreNodes,
    /// A certificate without its key, or the other way round.
    StoreCertificate,
    /// Certificates for a store that is not reached by TLS.
    StoreNotEncrypted,
    /// A range of a group that there is not.
    StoreRange {
        /// How many there are.
        groups: usize,
    },
    /// A URL or a prefix that cannot be used.
    StoreUrl {
        /// Which store, without its password.
        url: String,
        /// What is wrong.
        error: Told,
    },
    /// Two services at one address.
    SameAddress {
        /// One of them.
        first: Service,
        /// The other.
        second: Service,
        /// The address.
        at: Address,
    },
    /// No service that decides anything has an address.
    Nowhere,
    /// A time that is too long.
    TooLong {
        /// Which setting it is.
        setting: &'static str,
        /// The longest.
        max: Duration,
    },
    /// More connections than [`CONNECTIONS_MAX`].
    TooManyConnections,
    /// A secret from a file and from a variable.
    SecretTwice {
        /// The setting of the file.
        setting: &'static str,
    },
    /// The file of a secret cannot be used.
    Secret {
        /// The setting of the file.
        setting: &'static str,
        /// What is wrong with it.
        error: SecretError,
    },
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RulesAndLimit => f.write_str(
                "there are rules from files and one from --limit: move that one into a file, or leave one of them out",
            ),
            Self::NoRules => f.write_str("the list of rules is empty: name a file or a folder"),
            Self::Consistency => f.write_str(
                "--consistency: `strict` and `leased` need a store that several nodes share: name one with --store, or write `local`",
            ),
            Self::StoreAndMemory => f.write_str(
                "--store: there is `memory` and a store beside it: leave one out",
            ),
            Self::TooManyGroups => write!(f, "--store: there are more than {GROUPS_MAX} of them"),
            Self::StoreTwice { url } => {
                write!(f, "--store: {url} is there twice: each group is a store of its own")
            }
            Self::FleetSecretMissing => f.write_str(
                "--store: nodes that share limits hash keys with one secret, and this one has none: make it once with \
                 `openssl rand -hex 32`, and give the same to every node, with --secret-file or TIDEGATE_SECRET",
            ),
            Self::FleetSecretShort => write!(
                f,
                "--secret-file or TIDEGATE_SECRET: a secret has at least {FLEET_SECRET_BYTES_MIN} characters: make one \
                 with `openssl rand -hex 32`",
            ),
            Self::StoreDeadline => {
                let (least, most) = (DEADLINES.start().as_millis(), DEADLINES.end().as_secs());
                write!(f, "--store-deadline is from {least}ms to {most}s")
            }
            Self::StoreNodes => write!(f, "--store-nodes is at most {NODES_MAX}"),
            Self::StoreCertificate => f.write_str(
                "--store-cert and --store-key go together: the certificate of this node, and its key",
            ),
            Self::StoreNotEncrypted => f.write_str(
                "--store-ca, --store-cert: no store is reached by TLS: write its URL with `rediss://`",
            ),
            Self::StoreRange { groups } => {
                write!(f, "store_ranges: a range names a group beyond the {groups} that --store names")
            }
            Self::StoreUrl { url, error } => write!(f, "--store {url}: {error}"),
            Self::SameAddress { first, second, at } => {
                let (first, second) = (first.flag(), second.flag());
                write!(f, "{first} and {second} are both {at}: give each its own address, or turn one `off`")
            }
            Self::Nowhere => f.write_str(
                "--http, --grpc and --resp are all off: nobody could ask anything; leave one on",
            ),
            Self::TooLong { setting, max } => {
                write!(f, "--{setting} is too long: at most {}s", max.as_secs())
            }
            Self::TooManyConnections => {
                write!(f, "--max-connections is too large: at most {CONNECTIONS_MAX}")
            }
            Self::SecretTwice { setting } => {
                let name = setting.trim_end_matches("-file").replace('-', "_").to_uppercase();
                write!(f, "the secret comes from --{setting} and from TIDEGATE_{name}: leave one out")
            }
            Self::Secret { setting, error } => write!(f, "--{setting}: {error}"),
        }
    }
}

impl std::error::Error for SettingsError {}

/// An error, and what it comes from, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told(String);

impl Told {
    /// The sentence.
    pub fn new(error: &dyn std::error::Error) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(found) = cause {
            let words = found.to_string();
            // Some errors say what they come from, and name it as well.
            if !text.ends_with(&words) {
                text.push_str(": ");
                text.push_str(&words);
            }
            cause = found.source();
        }
        Self(text)
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests;
