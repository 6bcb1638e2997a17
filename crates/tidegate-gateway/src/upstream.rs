//! The servers behind: how they are reached, how busy and how well they are, and which is next.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`connect`] | where one is, and a connection to it |
//! | `pool`, `line` | connections that are kept for the next request; the same as bytes |
//! | `shared`, `two` | the connections of HTTP/2, and who gets a stream or waits for one; one of them |
//! | `hearing` | a connection that is listened to when it takes nothing any more |
//! | [`balance`] | which one is next |
//! | `health`, `probe` | whether one is fit to be asked |
//! | `cause` | why one did not answer, in words |
//! | `load`, `gradient` | how much one has to do, and how much it can |
//! | `budget` | how many requests may be sent again |

pub mod balance;
pub(crate) mod budget;
pub(crate) mod cause;
pub mod connect;
pub(crate) mod gradient;
pub(crate) mod health;
pub(crate) mod hearing;
pub(crate) mod line;
pub(crate) mod load;
pub(crate) mod pool;
pub(crate) mod probe;
mod shared;
pub(crate) mod two;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use rustls::ClientConfig;
use tidegate_rules::rule::Statuses;
use tidegate_server::metrics::{UpstreamCounts, UpstreamGauges};
use tokio::time::Instant;
use tracing::field::display;

pub use balance::Balance;
use balance::Balancer;
use budget::Budget;
use cause::Cause;
use connect::{Connector, Protocol};
pub use connect::{UpstreamUrl, UpstreamUrlError};
use health::{Change, Health};
use line::Lines;
use load::{Busy, Load};
use pool::Pool;
pub use probe::Probe;

use crate::tls::{self, TlsError};

/// The most servers of one route, and the greatest weight of one.
pub const SERVERS_MAX: usize = 64;
/// The greatest weight of a server.
pub const WEIGHT_MAX: u32 = 100;

/// One server, as it is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Where it is.
    pub url: UpstreamUrl,
    /// Its share of the requests, against that of the others.
    pub weight: u32,
}

/// What holds for the servers of one route.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UpstreamSettings {
    /// How they share the requests.
    pub balance: Balance,
    /// The most requests under way at one server.
    pub in_flight_max: usize,
    /// Whether that number is found out from the latency, up to the one that is set.
    pub is_adaptive: bool,
    /// How many servers a request may be sent to before it has failed.
    pub attempts: usize,
    /// Statuses of responses that count as failures of the server.
    pub fails_on: Vec<Statuses>,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long a connection is kept that nobody uses. It has to be less than the servers keep it.
    pub idle_timeout: Duration,
    /// How they are asked whether they are well; without it, what comes of requests alone tells.
    pub probe: Option<Probe>,
    /// Who vouches for servers that are reached by TLS, as PEM; without it, those the system trusts.
    pub ca: Option<PathBuf>,
}

impl Default for UpstreamSettings {
    fn default() -> Self {
        Self {
            balance: Balance::default(),
            in_flight_max: 1024,
            is_adaptive: false,
            attempts: 2,
            fails_on: Vec::new(),
            connect_timeout: Duration::from_secs(3),
            idle_timeout: Duration::from_secs(4),
            probe: None,
            ca: None,
        }
    }
}

/// One server.
#[derive(Debug)]
pub(crate) struct Server {
    url: UpstreamUrl,
    name: String,
    pub(crate) weight: u32,
    pub(crate) pool: Pool,
    /// Where it speaks HTTP/1 without TLS.
    pub(crate) lines: Option<Lines>,
    pub(crate) load: Arc<Load>,
    pub(crate) health: Health,
    pub(crate) counts: Arc<UpstreamCounts>,
    fails_on: Box<[Statuses]>,
}

impl Server {
    pub(crate) fn new(
        server: ServerSettings,
        settings: &UpstreamSettings,
        tls: Option<Arc<ClientConfig>>,
    ) -> Self {
        let ServerSettings { url, weight } = server;
        let connector = Connector { url: url.clone(), tls };
        let pool = Pool::new(connector.clone(), settings.idle_timeout);
        let lines = (url.protocol == Protocol::One)
            .then(|| Lines::new(connector, settings.idle_timeout, pool.open_count()));
        Self {
            name: url.to_string(),
            url,
            weight,
            pool,
            lines,
            load: Load::new(settings.in_flight_max, settings.is_adaptive),
            health: Health::new(Instant::now()),
            counts: Arc::default(),
            fails_on: settings.fails_on.clone().into(),
        }
    }

    /// What it is called in the log.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its own host and port.
    pub(crate) fn authority(&self) -> &str {
        self.url.authority.as_str()
    }

    /// How many requests are under way there and may be, and how many connections are open.
    pub(crate) fn gauges(&self) -> UpstreamGauges {
        UpstreamGauges {
            in_flight: self.load.under_way(),
            in_flight_max: self.load.at_most(),
            connections: self.pool.open(),
        }
    }

    /// Takes note that it began to answer a request, and says whether it failed with that.
    pub(crate) fn answered(&self, busy: &Busy, status: StatusCode) -> bool {
        self.counts.answered(status.as_u16(), busy.answered());
        let has_failed = self.fails_on.iter().any(|fails| fails.hold(status.as_u16()));
        if has_failed {
            self.failed(&Cause::Status(status));
        } else {
            self.tell(self.health.answered(Instant::now), None);
        }
        has_failed
    }

    /// Takes note that it failed to answer.
    pub(crate) fn failed(&self, cause: &Cause) {
        if let Some(failure) = cause.failure() {
            self.counts.failed(failure);
        }
        self.tell(self.health.failed(Instant::now()), Some(cause));
    }

    /// Takes note of what a probe found.
    pub(crate) fn probed(&self, found: Result<(), Cause>) {
        self.tell(self.health.probed(found.is_ok()), found.err().as_ref());
    }

    /// Closes the connections that nobody used for too long, or all of them.
    pub(crate) fn sweep(&self, now: Option<Instant>) {
        self.pool.sweep(now);
        if let Some(lines) = &self.lines {
            lines.sweep(now);
        }
    }

    /// Says what changes, and why. What changes nothing is many lines where much fails.
    fn tell(&self, change: Option<Change>, cause: Option<&Cause>) {
        let (upstream, cause) = (self.name(), cause.map(display));
        match change {
            Some(Change::Fails) => tracing::warn!(upstream, cause, "an upstream fails"),
            Some(Change::Out(Some(time))) => {
                self.counts.ejected();
                let seconds = time.as_secs();
                tracing::warn!(upstream, cause, seconds, "an upstream fails and is left out");
            }
            Some(Change::Out(None)) => {
                self.counts.ejected();
                let message = "an upstream is left out until its probes succeed";
                tracing::warn!(upstream, cause, message);
            }
            Some(Change::Back) => tracing::info!(upstream, "an upstream is well again"),
            None if cause.is_some() => tracing::debug!(upstream, cause, "an upstream fails again"),
            None => {}
        }
    }
}

/// The servers of one route.
#[derive(Debug)]
pub(crate) struct Upstreams {
    pub(crate) balancer: Balancer,
    pub(crate) budget: Budget,
    pub(crate) settings: UpstreamSettings,
}

impl Upstreams {
    /// Reads the certificates that are trusted, where a server is reached by TLS.
    pub(crate) fn new(
        servers: Vec<ServerSettings>,
        settings: UpstreamSettings,
    ) -> Result<Self, TlsError> {
        let needs_tls = servers.iter().any(|server| server.url.protocol == Protocol::Tls);
        let config = if needs_tls { Some(tls::client(settings.ca.as_deref())?) } else { None };
        let servers = servers.into_iter().map(|server| {
            let tls = config.clone().filter(|_| server.url.protocol == Protocol::Tls);
            Arc::new(Server::new(server, &settings, tls))
        });
        let balancer = Balancer::new(servers.collect(), settings.balance.clone());
        Ok(Self { balancer, budget: Budget::default(), settings })
    }
}
