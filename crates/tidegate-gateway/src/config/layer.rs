//! What one place says of a gateway, a file or a command line: all that is not said is left to the place below.
//! What is said of no route in particular holds for all of them.

use std::path::{Path, PathBuf};

use tidegate_server::Settings;
use tidegate_server::config::RulesFrom;
use tidegate_server::config::value::{Count, Size, Time};
use tidegate_server::listen::Address;

use super::GatewaySettings;
use super::words::{BalanceWord, FailWord, HostWord, LogFormatWord, Wait};
use crate::access_log::AccessLogSettings;
use crate::auth::{AddressLists, Network};
use crate::front::FrontBounds;
use crate::route::{AuthSettings, Bounds, RouteSettings, Shed};
use crate::tls::CertificateFiles;
use crate::upstream::{Probe, ServerSettings, UpstreamSettings};

/// What is said of a gateway.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is the setting of its name, which the manual tells about")]
pub struct GatewayLayer {
    pub listen: Option<Vec<Address>>,
    pub tls: Option<Vec<CertificateFiles>>,
    pub head_timeout: Option<Wait>,
    pub head_max: Option<Size>,
    pub access_log: Option<PathBuf>,
    pub access_log_format: Option<LogFormatWord>,
    /// What holds for every route that does not say otherwise.
    pub all: RouteLayer,
    /// From the file alone: they are too much for a command line.
    pub routes: Option<Vec<RouteLayer>>,
}

/// What is said of one route, or of all.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "each is the setting of its name, which the manual tells about")]
pub struct RouteLayer {
    pub hosts: Option<Vec<String>>,
    pub path: Option<String>,
    pub domain: Option<String>,
    pub upstream: Option<Vec<ServerSettings>>,
    pub folder: Option<PathBuf>,
    pub balance: Option<BalanceWord>,
    pub host: Option<HostWord>,
    pub body_max: Option<Size>,
    pub body_timeout: Option<Wait>,
    pub response_timeout: Option<Wait>,
    pub idle_timeout: Option<Wait>,
    pub connect_timeout: Option<Wait>,
    pub keep_alive: Option<Time>,
    pub in_flight_max: Option<Count>,
    pub adaptive: Option<bool>,
    pub attempts: Option<Count>,
    pub fails_on: Option<Vec<FailWord>>,
    pub probe: Option<Probe>,
    pub upstream_ca: Option<PathBuf>,
    pub allow: Option<Vec<Network>>,
    pub deny: Option<Vec<Network>>,
    pub auth: Option<AuthSettings>,
    pub shed: Option<Shed>,
}

/// Where a gateway listens unless said.
const LISTEN: &str = "127.0.0.1:8000";

impl GatewayLayer {
    /// What this layer says, and below it what `below` says.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            listen: self.listen.or(below.listen),
            tls: self.tls.or(below.tls),
            head_timeout: self.head_timeout.or(below.head_timeout),
            head_max: self.head_max.or(below.head_max),
            access_log: self.access_log.or(below.access_log),
            access_log_format: self.access_log_format.or(below.access_log_format),
            all: self.all.over(below.all),
            routes: self.routes.or(below.routes),
        }
    }

    /// What the layers say together, or which route has nowhere to go to.
    pub fn settings(self, mut daemon: Settings) -> Result<GatewaySettings, NoUpstream> {
        if let (RulesFrom::Limit(limit), Some(domain)) = (&mut daemon.rules, &self.all.domain) {
            // Requests are of that domain, and a rule of another one would limit none of them.
            *limit = limit.clone().in_domain(domain);
        }
        let usual = FrontBounds::default();
        let front = FrontBounds {
            head_timeout: self.head_timeout.map_or(usual.head_timeout, Wait::duration),
            head_bytes_max: self.head_max.map_or(usual.head_bytes_max, Size::bytes),
        };
        let routes = self.routes.unwrap_or_else(|| vec![RouteLayer::default()]);
        let routes = routes.into_iter().enumerate().map(|(index, route)| {
            route.over(self.all.clone()).settings().ok_or(NoUpstream { route: index })
        });
        let format = self.access_log_format.map_or_else(Default::default, |word| word.0);
        let access_log = self.access_log.map(|path| AccessLogSettings {
            path: (path != Path::new("-")).then_some(path),
            format,
        });
        Ok(GatewaySettings {
            daemon,
            listen: self.listen.unwrap_or_else(|| LISTEN.parse().into_iter().collect()),
            certificates: self.tls.unwrap_or_default(),
            routes: routes.collect::<Result<_, _>>()?,
            front,
            access_log,
        })
    }
}

/// A route without a server behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoUpstream {
    route: usize,
}

impl std::fmt::Display for NoUpstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.route + 1;
        write!(
            f,
            "there is nowhere to forward to: name a service with --upstream http://HOST:PORT, or as `upstream` of route {number}"
        )
    }
}

impl std::error::Error for NoUpstream {}

impl RouteLayer {
    fn over(self, below: Self) -> Self {
        Self {
            hosts: self.hosts.or(below.hosts),
            path: self.path.or(below.path),
            domain: self.domain.or(below.domain),
            // Who names one of the two does not mean the other.
            folder: self.folder.clone().or(below.folder.filter(|_| self.upstream.is_none())),
            upstream: self.upstream.or(below.upstream.filter(|_| self.folder.is_none())),
            balance: self.balance.or(below.balance),
            host: self.host.or(below.host),
            body_max: self.body_max.or(below.body_max),
            body_timeout: self.body_timeout.or(below.body_timeout),
            response_timeout: self.response_timeout.or(below.response_timeout),
            idle_timeout: self.idle_timeout.or(below.idle_timeout),
            connect_timeout: self.connect_timeout.or(below.connect_timeout),
            keep_alive: self.keep_alive.or(below.keep_alive),
            in_flight_max: self.in_flight_max.or(below.in_flight_max),
            adaptive: self.adaptive.or(below.adaptive),
            attempts: self.attempts.or(below.attempts),
            fails_on: self.fails_on.or(below.fails_on),
            probe: self.probe.or(below.probe),
            upstream_ca: self.upstream_ca.or(below.upstream_ca),
            // Each by itself: who denies one more address does not mean to open the route to all others.
            allow: self.allow.or(below.allow),
            deny: self.deny.or(below.deny),
            auth: self.auth.or(below.auth),
            shed: self.shed.or(below.shed),
        }
    }

    /// `None` where there is neither an upstream nor a folder.
    fn settings(self) -> Option<RouteSettings> {
        let servers = self.upstream.unwrap_or_default();
        if servers.is_empty() && self.folder.is_none() {
            return None;
        }
        let usual = UpstreamSettings::default();
        let wait = |wait: Option<Wait>, usual| wait.map_or(usual, Wait::duration);
        let upstream = UpstreamSettings {
            balance: self.balance.map_or(usual.balance, |word| word.0),
            in_flight_max: self.in_flight_max.map_or(usual.in_flight_max, Count::number),
            is_adaptive: self.adaptive.unwrap_or(usual.is_adaptive),
            attempts: self.attempts.map_or(usual.attempts, Count::number),
            fails_on: self.fails_on.unwrap_or_default().into_iter().map(|word| word.0).collect(),
            connect_timeout: wait(self.connect_timeout, usual.connect_timeout),
            // Of nothing, it is a setting too: no connection is kept.
            idle_timeout: self.keep_alive.map_or(usual.idle_timeout, Time::duration),
            probe: self.probe,
            ca: self.upstream_ca,
        };
        let usual = Bounds::default();
        let bounds = Bounds {
            body_bytes_max: self.body_max.map_or(usual.body_bytes_max, |size| size.bytes() as u64),
            body_timeout: self.body_timeout.map(Wait::duration).or(usual.body_timeout),
            response_timeout: wait(self.response_timeout, usual.response_timeout),
            idle_timeout: wait(self.idle_timeout, usual.idle_timeout),
        };
        let route = RouteSettings::new(servers);
        Some(RouteSettings {
            hosts: self.hosts.unwrap_or_default(),
            path: self.path.unwrap_or(route.path),
            domain: self.domain.unwrap_or(route.domain),
            servers: route.servers,
            folder: self.folder,
            upstream,
            host: self.host.map_or(route.host, |word| word.0),
            bounds,
            addresses: AddressLists {
                allow: self.allow.unwrap_or_default(),
                deny: self.deny.unwrap_or_default(),
            },
            auth: self.auth,
            shed: self.shed,
        })
    }
}
