//! The life of a gateway, from its start to the end of its drain. It runs on a daemon whose own protocols are
//! off: rules, store, state, the operator's address and the metrics are that daemon's.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Timestamp;
use tidegate_rules::rule::Pressure;
use tidegate_server::config::value::Headers;
use tidegate_server::listen::accept::{Shutdown, accept};
use tidegate_server::listen::bind::{Bound, SocketFile, bind};
use tidegate_server::listen::{Address, Inherited, Service};
use tidegate_server::log::LogLevel;
use tidegate_server::serve::Drained;
use tidegate_server::serve::process::Life;
use tidegate_tower::HeaderSet;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::DropGuard;

use crate::access_log::AccessLog;
use crate::config::{GatewaySettings, StartError};
use crate::front::Front;
use crate::gateway::Gateway;
use crate::limit::Limits;
use crate::route::{Route, Routes};
use crate::tls::Certificates;
use crate::upstream::probe;

/// How often certificates are compared with their files.
const CERTIFICATES_EVERY: Duration = Duration::from_secs(10);
/// How often elastic rules are told how busy adaptive upstreams are.
const PRESSURE_EVERY: Duration = Duration::from_secs(1);

/// How often it is looked whether there are new rules, of which some may be missing.
const RULES_EVERY: Duration = Duration::from_secs(1);
/// How many routes are warned of one by one; the others are counted.
const WARNINGS_MAX: usize = 10;

/// A gateway that runs. Dropping it ends it at once; [`shutdown`](Life::shutdown) lets it finish.
#[derive(Debug)]
pub struct Running {
    daemon: tidegate_server::Running,
    addresses: Vec<Address>,
    gateway: Arc<Gateway>,
    certificates: Option<Arc<Certificates>>,
    drain_timeout: Duration,
    accepting: JoinSet<()>,
    socket_files: Vec<SocketFile>,
    beside: JoinSet<()>,
    /// Whatever becomes of this value, the connections end with it.
    _ends: [DropGuard; 2],
}

/// What is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Connections of clients, and tunnels.
    pub connections: usize,
    /// Connections to upstreams, idle ones too.
    pub upstream_connections: usize,
    /// Requests that an upstream has not answered to the end.
    pub under_way: usize,
    /// How many there may be at most, all upstreams together. With `adaptive` it follows their latency.
    pub under_way_max: usize,
}

/// Starts a gateway. When it returns, every address accepts connections.
///
/// # Errors
///
/// [`StartError`] tells what stands in the way; nothing runs then.
pub async fn start(
    settings: GatewaySettings,
    mut inherited: Inherited,
    log: LogLevel,
) -> Result<Running, StartError> {
    let GatewaySettings { mut daemon, listen, certificates, routes, front, access_log } = settings;
    let bound = listeners(&listen, &mut inherited)?;
    let certificates = if certificates.is_empty() {
        None
    } else {
        Some(Arc::new(Certificates::read(certificates).map_err(StartError::Tls)?))
    };
    let tls = certificates.as_deref().map(Certificates::config).transpose();
    let tls = tls.map_err(StartError::Tls)?.map(TlsAcceptor::from);
    let routes = Routes::new(routes)?;
    let access_log = access_log.map(|settings| {
        let opened = AccessLog::open(&settings);
        opened.map_err(|error| StartError::AccessLog { path: settings.path, error })
    });
    let access_log = access_log.transpose()?;
    daemon.addresses.http = Address::Off;
    daemon.addresses.grpc = Address::Off;
    daemon.addresses.resp = Address::Off;
    let headers = header_set(daemon.headers);
    let (delay_max, drain_timeout) = (daemon.max_delay, daemon.drain_timeout);
    let connections_max = daemon.max_connections;
    let daemon = tidegate_server::start(daemon, inherited, log).await;
    let daemon = daemon.map_err(StartError::Daemon)?;
    let limits = Limits { engine: Arc::clone(daemon.engine()), headers, delay_max };
    let shutdown = Shutdown::default();
    let (reads, whose) = (routes.reads(), routes.whose(limits.engine.identity()));
    let shutting = shutdown.clone();
    let gateway = Gateway { limits, routes, reads, whose, access_log, shutdown: shutting };
    let gateway = Arc::new(gateway);
    watch(&gateway);
    if let Some(certificates) = &certificates {
        certificates.warn(gateway.limits.engine.limiter().now(), true);
        let certificates = Arc::clone(certificates);
        let metrics = gateway.limits.engine.metrics();
        metrics.watch_certificates(move || certificates.expiries_s());
    }
    let told = warn_of_no_rules(&gateway);
    let front = Front { gateway: Arc::clone(&gateway), tls, bounds: front };
    let (mut addresses, mut socket_files) = (Vec::new(), Vec::new());
    let mut accepting = JoinSet::new();
    for (address, Bound { listener, file }) in bound {
        addresses.push(address);
        socket_files.extend(file);
        let (front, shutdown) = (front.clone(), shutdown.clone());
        let serve = move |stream, peer| front.clone().serve(stream, peer);
        accepting.spawn(accept(Service::Gateway, listener, connections_max, shutdown, serve));
    }
    let mut beside = beside(&gateway, certificates.as_ref());
    beside.spawn(follow_rules(Arc::clone(&gateway), told));
    Ok(Running {
        daemon,
        addresses,
        gateway,
        certificates,
        drain_timeout,
        accepting,
        socket_files,
        beside,
        _ends: [shutdown.drain.drop_guard(), shutdown.cut.drop_guard()],
    })
}

/// The headers that answers have, as the layer names them.
fn header_set(headers: Headers) -> HeaderSet {
    match headers {
        Headers::All => HeaderSet::All,
        Headers::Ietf => HeaderSet::Ietf,
        Headers::XRateLimit => HeaderSet::XRateLimit,
        Headers::None => HeaderSet::None,
    }
}

impl Running {
    /// Where it really listens.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The daemon that decides.
    pub fn daemon(&self) -> &tidegate_server::Running {
        &self.daemon
    }

    /// What is under way.
    pub fn counts(&self) -> Counts {
        let mut counts =
            Counts { connections: self.gateway.shutdown.connections.len(), ..Counts::default() };
        for route in self.gateway.routes.each() {
            for server in route.upstreams.balancer.servers() {
                counts.upstream_connections += server.pool.open();
                counts.under_way += server.load.under_way();
                counts.under_way_max += server.load.at_most();
            }
        }
        counts
    }

    /// How busy elastic rules are told that adaptive upstreams are; `None` where none is adaptive.
    pub fn upstream_pressure(&self) -> Option<Pressure> {
        pressure(&self.gateway)
    }
}

/// How much of what it can do the busiest adaptive upstream does; `None` where none is.
fn pressure(gateway: &Gateway) -> Option<Pressure> {
    let servers = gateway.routes.each().iter().flat_map(|route| route.upstreams.balancer.servers());
    let adaptive = servers.filter(|server| server.load.is_adaptive());
    let millionths = adaptive.map(|server| {
        let (busy, at_most) = (server.load.under_way() as u64, server.load.at_most() as u64);
        (busy * 1_000_000 / at_most.max(1)).min(1_000_000)
    });
    Pressure::from_millionths(millionths.max()? as u32)
}

impl Life for Running {
    /// Reads rules, certificates and API keys again, and opens the access log anew.
    fn reload(&self) -> bool {
        let has_rules = self.daemon.reload();
        if let Some(certificates) = &self.certificates {
            renew(certificates, self.gateway.limits.engine.limiter().now(), true);
        }
        if let Some(log) = &self.gateway.access_log {
            log.reopen();
        }
        let auths = self.gateway.routes.each().iter().filter_map(|route| route.auth.as_ref());
        let mut has_keys = false;
        for keys in auths.filter_map(|auth| auth.keys.as_ref()) {
            has_keys = true;
            match keys.reload() {
                Ok(()) => tracing::info!("API keys were read again"),
                Err(error) => tracing::error!("API keys are not renewed: {error}"),
            }
        }
        let has_files = self.certificates.is_some() || self.gateway.access_log.is_some();
        has_rules || has_files || has_keys
    }

    /// Closes the sockets, waits until what is under way is answered, but no longer than the drain may take,
    /// and ends the daemon.
    async fn shutdown(mut self) -> Drained {
        let Shutdown { drain, cut, connections } = self.gateway.shutdown.clone();
        drain.cancel();
        while self.accepting.join_next().await.is_some() {}
        self.socket_files.clear();
        connections.close();
        let drained = timeout(self.drain_timeout, connections.wait()).await;
        let left = if drained.is_ok() { 0 } else { connections.len() };
        cut.cancel();
        connections.wait().await;
        self.beside.shutdown().await;
        for route in self.gateway.routes.each() {
            for server in route.upstreams.balancer.servers() {
                server.sweep(None);
            }
        }
        if let Some(log) = &self.gateway.access_log {
            // The process ends next, and the thread that writes would end with it.
            log.finish().await;
        }
        let daemon = self.daemon.shutdown().await;
        Drained { cut: left + daemon.cut }
    }
}

/// Has the metrics tell of the servers behind.
fn watch(gateway: &Gateway) {
    let metrics = gateway.limits.engine.metrics();
    for server in gateway.routes.each().iter().flat_map(|route| route.upstreams.balancer.servers())
    {
        let watched = Arc::clone(server);
        metrics.watch(server.name(), Arc::clone(&server.counts), move || watched.gauges());
    }
}

/// All sockets, or none.
fn listeners(
    listen: &[Address],
    inherited: &mut Inherited,
) -> Result<Vec<(Address, Bound)>, StartError> {
    let system = |error| StartError::Inherited { error };
    // A socket without a name of ours is for what this process does first, which is this.
    let given = inherited.take(Service::Gateway).or_else(|| inherited.take(Service::Http));
    if let Some(listener) = given {
        let listener = listener.map_err(system)?;
        let address = listener.address().map_err(system)?;
        return Ok(vec![(address, Bound { listener, file: None })]);
    }
    let mut listeners = Vec::new();
    for address in listen {
        if let Some(bound) = bind(Service::Gateway, address).map_err(StartError::Bind)? {
            listeners.push((bound.listener.address().map_err(system)?, bound));
        }
    }
    if listeners.is_empty() { Err(StartError::Nowhere) } else { Ok(listeners) }
}

/// What runs beside the connections.
fn beside(gateway: &Arc<Gateway>, certificates: Option<&Arc<Certificates>>) -> JoinSet<()> {
    let mut beside = JoinSet::new();
    for route in gateway.routes.each() {
        beside.spawn(probe::keep(Arc::clone(&route.upstreams)));
    }
    if let Some(certificates) = certificates {
        beside.spawn(follow(Arc::clone(gateway), Arc::clone(certificates)));
    }
    if gateway.routes.each().iter().any(|route| route.upstreams.settings.is_adaptive) {
        beside.spawn(post_pressure(Arc::clone(gateway)));
    }
    beside
}

/// Tells which routes are not limited, because no rule is of their domain: a name that is misspelt lets all of their
/// requests pass, and nobody would notice. Gives the version of the rules that it looked at.
fn warn_of_no_rules(gateway: &Gateway) -> u64 {
    let rules = gateway.limits.engine.limiter().rules();
    let is_limited = |route: &&Route| {
        let domain = rules.set().domain(&route.domain);
        domain.is_some_and(|domain| !domain.rules.is_empty() || !domain.descriptors.is_empty())
    };
    let mut open = gateway.routes.each().iter().filter(|route| !is_limited(route));
    for route in open.by_ref().take(WARNINGS_MAX) {
        tracing::warn!(
            "route {} asks domain `{}`, for which there are no rules: its requests pass unlimited",
            route.name(),
            route.domain
        );
    }
    let more = open.count();
    if more > 0 {
        tracing::warn!(routes = more, "the same is true of more routes");
    }
    rules.version()
}

/// Tells the same again when there are new rules.
async fn follow_rules(gateway: Arc<Gateway>, mut told: u64) {
    let mut every = interval(RULES_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let version = gateway.limits.engine.limiter().rules().version();
        if version != told {
            told = warn_of_no_rules(&gateway);
        }
    }
}

async fn follow(gateway: Arc<Gateway>, certificates: Arc<Certificates>) {
    let mut every = interval(CERTIFICATES_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let (certificates, now) =
            (Arc::clone(&certificates), gateway.limits.engine.limiter().now());
        let _ = tokio::task::spawn_blocking(move || renew(&certificates, now, false)).await;
    }
}

/// Reads certificates again; `is_asked` is that somebody wants to know what there is to say of them.
fn renew(certificates: &Certificates, now: Timestamp, is_asked: bool) {
    let reloaded = certificates.reload();
    certificates.warn(now, is_asked || matches!(reloaded, Ok(true)));
    match reloaded {
        Ok(false) => {}
        Ok(true) => tracing::info!("new certificates are in force"),
        Err(error) => tracing::error!("certificates are not renewed: {error}"),
    }
}

/// Tells elastic rules how busy upstreams are.
async fn post_pressure(gateway: Arc<Gateway>) {
    let mut every = interval(PRESSURE_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        if let Some(pressure) = pressure(&gateway) {
            let limiter = gateway.limits.engine.limiter();
            limiter.pressure().post(pressure, limiter.now());
        }
    }
}
