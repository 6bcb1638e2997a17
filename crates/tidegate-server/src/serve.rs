//! The life of the daemon, from its start to the end of its drain. [`start`] is all of it inside of a
//! runtime, for tests and for whoever embeds a daemon; [`process`] is what a process of its own adds:
//! signals, the log, and the service manager.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`process`] | signals, readiness, and the runtime |
//! | `protocols` | which function serves which address |
//! | `rules` | the rules at the start, and the files that they follow |
//! | `state` | limits that survive a restart |
//! | `store` | the store that nodes share, from its settings |

pub mod process;
mod protocols;
mod rules;
mod state;
mod store;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tidegate::redis::Shared;
use tidegate::{HostPressure, RuleLimiter, RulesError};
use tidegate_files::{ReadError, WatchError, Watcher};
use tidegate_identity::{Identity, IdentityError};
use tokio::task::JoinSet;

use crate::admin::{TokenError, needs_token};
use crate::config::value::EnvoyHeaders;
use crate::config::{FleetKey, Settings, SettingsError};
use crate::controls::{Controls, LoadError};
use crate::engine::{DaemonLimiter, DescriptorsAnswer, Engine, EngineClock};
use crate::grpc::{self, EnvoySettings};
use crate::listen::accept::Shutdown;
use crate::listen::bind::{Bound, SocketFile, bind};
use crate::listen::{Address, BindError, Inherited, Service};
use crate::log::LogLevel;
use protocols::Wiring;
use state::{Claim, StateFile};

/// How often the host is asked how busy it is.
const PRESSURE_EVERY: Duration = Duration::from_secs(1);

/// A daemon that runs. Dropping it ends it at once; [`shutdown`](Self::shutdown) lets it finish.
#[derive(Debug)]
pub struct Running {
    engine: Arc<Engine>,
    addresses: Vec<(Service, Address)>,
    shutdown: Shutdown,
    drain_timeout: Duration,
    /// The loops that accept connections. They end with the drain, and their sockets with them.
    accepting: JoinSet<()>,
    socket_files: Vec<SocketFile>,
    /// What runs beside: the samples of the host's pressure.
    beside: JoinSet<()>,
    watcher: Option<Arc<Watcher>>,
    state: Option<StateFile>,
}

/// Starts a daemon. When it returns, every address accepts connections.
///
/// # Errors
///
/// [`StartError`] tells what stands in the way; nothing runs then.
pub async fn start(
    settings: Settings,
    mut inherited: Inherited,
    log: LogLevel,
) -> Result<Running, StartError> {
    let loaded = rules::load(&settings)?;
    // Whoever cannot have the state or an address leaves both as they are, so these come first.
    let claim = settings.state.as_deref().map(Claim::of).transpose()?;
    let bound = listeners(&settings, &mut inherited)?;
    let shared = match &settings.store {
        Some(store) => Some(store::connect(store, settings.memory_bytes).await?),
        None => None,
    };
    let engine = engine(&settings, &loaded, shared)?;
    rules::warn_of_strict(&engine);
    let watcher = rules::follow(&settings, loaded, &engine)?.map(Arc::new);
    let shutdown = Shutdown::default();
    let (mut addresses, mut socket_files) = (Vec::new(), Vec::new());
    let mut accepting = JoinSet::new();
    let drain_timeout = settings.drain_timeout;
    let wiring = Wiring::new(&engine, &settings, &shutdown.drain, watcher.as_ref(), log)?;
    let state = claim.map(|claim| StateFile::keep(claim, Arc::clone(&engine)));
    for (service, address, Bound { listener, file }) in bound {
        addresses.push((service, address));
        socket_files.extend(file);
        accepting.spawn(wiring.clone().serve(service, listener, shutdown.clone()));
    }
    let mut beside = JoinSet::new();
    beside.spawn(sample_pressure(Arc::clone(&engine)));
    Ok(Running {
        engine,
        addresses,
        shutdown,
        drain_timeout,
        accepting,
        socket_files,
        beside,
        watcher,
        state,
    })
}

impl Running {
    /// Where each service really listens, those that are off left out.
    pub fn addresses(&self) -> &[(Service, Address)] {
        &self.addresses
    }

    /// Where a service really listens.
    pub fn address(&self, service: Service) -> Option<&Address> {
        self.addresses.iter().find(|(known, _)| *known == service).map(|(_, address)| address)
    }

    /// What every protocol asks.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Reads the rule files again, whether or not they have changed. What comes of it is logged. Says
    /// `false` where the rules are not from files.
    pub fn reload(&self) -> bool {
        self.watcher.as_ref().inspect(|watcher| watcher.poke()).is_some()
    }

    /// Stops: says so to whoever asks for readiness, closes the sockets, waits until what is under way is
    /// answered, but no longer than the drain may take, and writes the state.
    pub async fn shutdown(mut self) -> Drained {
        self.shutdown.drain.cancel();
        while self.accepting.join_next().await.is_some() {}
        self.socket_files.clear();
        let connections = &self.shutdown.connections;
        connections.close();
        let began = self.engine.limiter().now();
        let drained = tokio::time::timeout(self.drain_timeout, connections.wait()).await;
        let cut = if drained.is_ok() { 0 } else { connections.len() };
        self.shutdown.cut.cancel();
        connections.wait().await;
        // A reload that is under way ends first, on a thread that may wait.
        let watcher = self.watcher.take();
        let _ = tokio::task::spawn_blocking(move || drop(watcher)).await;
        self.beside.shutdown().await;
        if let Some(shared) = self.engine.shared() {
            let took = self.engine.limiter().now().since(began);
            store::close(shared, self.drain_timeout.saturating_sub(took.into())).await;
        }
        if let Some(state) = self.state.take() {
            state.close().await;
        }
        Drained { cut }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.drain.cancel();
        self.shutdown.cut.cancel();
    }
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// How many connections were cut off because the drain took too long.
    pub cut: usize,
}

/// The limiter with its state, and what stands around it.
fn engine(
    settings: &Settings,
    loaded: &rules::Loaded,
    shared: Option<Arc<Shared>>,
) -> Result<Arc<Engine>, StartError> {
    let limiter = limiter(settings, loaded, shared)?;
    // API keys are hashed before they are counted: with a secret that comes back with the state, or
    // nobody would be found in it again.
    let mut identity = settings.identity.clone();
    identity.secret = limiter.derived_secret("identity");
    let identity = Identity::new(identity).map_err(StartError::Identity)?;
    let controls = match &settings.state {
        Some(path) => {
            let path = Controls::path_beside(path);
            let loaded = Controls::load(&path);
            loaded.map_err(|error| StartError::Controls { path, error })?
        }
        None => Controls::default(),
    };
    let controls = controls.with_shadow(settings.shadow);
    let headers: Option<fn(&DescriptorsAnswer) -> grpc::Headers> = match settings.envoy_headers {
        EnvoyHeaders::None => None,
        EnvoyHeaders::Reference => Some(grpc::reference_headers),
        EnvoyHeaders::XRateLimit => Some(grpc::x_ratelimit_headers),
    };
    let delay_max = settings.max_delay;
    let envoy = EnvoySettings { headers, delay_max, ..EnvoySettings::default() };
    let engine = Engine::new(limiter, identity, controls);
    Ok(Arc::new(engine.with_envoy(envoy)))
}

/// The limiter on the store, or with its state in memory.
fn limiter(
    settings: &Settings,
    loaded: &rules::Loaded,
    shared: Option<Arc<Shared>>,
) -> Result<DaemonLimiter, StartError> {
    let mut builder = RuleLimiter::builder(loaded.checked.rules.clone())
        .memory_bytes(settings.memory_bytes)
        .clock(EngineClock::System);
    if let Some(FleetKey(secret)) = settings.secret {
        builder = builder.secret(secret);
    }
    if let (Some(store), Some(shared)) = (&settings.store, shared) {
        let builder = store::terms(builder, store)?;
        return builder.build_shared(shared).map_err(StartError::Rules);
    }
    let Some(path) = &settings.state else {
        return Ok(builder.build().map_err(StartError::Rules)?.into());
    };
    let (limiter, restored) = builder.build_from(path).map_err(StartError::Rules)?;
    state::tell(path, &restored);
    Ok(limiter.into())
}

/// All sockets, or none: whoever cannot have one address gets an error instead of half a daemon.
fn listeners(
    settings: &Settings,
    inherited: &mut Inherited,
) -> Result<Vec<(Service, Address, Bound)>, StartError> {
    let mut listeners = Vec::new();
    for (service, address) in settings.addresses.each() {
        let bound = match inherited.take(service) {
            Some(Ok(listener)) => Some(Bound { listener, file: None }),
            Some(Err(error)) => return Err(StartError::Inherited { service, error }),
            None => bind(service, address).map_err(StartError::Bind)?,
        };
        let Some(bound) = bound else { continue };
        let address = bound.listener.address();
        let address = address.map_err(|error| StartError::Inherited { service, error })?;
        if service == Service::Admin && settings.admin_token.is_none() && needs_token(&address) {
            return Err(StartError::AdminOpen { address });
        }
        listeners.push((service, address, bound));
    }
    Ok(listeners)
}

/// Tells the elastic rules how busy this host is, for as long as the daemon runs.
async fn sample_pressure(engine: Arc<Engine>) {
    let mut host = HostPressure::new();
    let mut every = tokio::time::interval(PRESSURE_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        // The system answers from files.
        let sampled = tokio::task::spawn_blocking(move || {
            let sample = host.sample();
            (host, sample)
        });
        let Ok((back, sample)) = sampled.await else { return };
        host = back;
        if let Some(pressure) = sample {
            engine.limiter().pressure().set_host(pressure, engine.limiter().now());
        }
    }
}

/// Why a daemon does not start. Nothing runs, and no state was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The rule files cannot be read.
    Read(ReadError),
    /// There are mistakes in the rules, or they need more memory than there is.
    Rules(RulesError),
    /// The settings about who a request is from cannot be used.
    Identity(IdentityError),
    /// An address cannot be had.
    Bind(BindError),
    /// A socket of the service manager cannot be used.
    Inherited {
        /// What it is for.
        service: Service,
        /// What the system says.
        error: io::Error,
    },
    /// Other machines could reach the admin address, and nothing would be asked of them.
    AdminOpen {
        /// The address.
        address: Address,
    },
    /// The token can be none.
    Token(TokenError),
    /// What the operator had listed and switched cannot be read. To start without the bans of an attack
    /// that goes on would be worse than not to start.
    Controls {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        error: LoadError,
    },
    /// The rule files cannot be watched.
    Watch(WatchError),
    /// The store cannot be used.
    Store {
        /// Which it is and what is wrong with it, without its password.
        told: String,
    },
    /// What is set about the store cannot be used.
    Settings(SettingsError),
    /// The state cannot be kept where it is to be.
    State {
        /// The file, its folder, or what is beside it.
        path: std::path::PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Another daemon keeps its state there.
    StateInUse {
        /// The file.
        path: std::path::PathBuf,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => error.fmt(f),
            Self::Rules(error @ RulesError::Memory(_)) => write!(f, "--memory: {error}"),
            Self::Rules(error) => error.fmt(f),
            Self::Identity(error) => write!(f, "identity: {error}"),
            Self::Bind(error) => error.fmt(f),
            Self::Inherited { service, error } => {
                write!(
                    f,
                    "the service manager's socket for {} is of no use: {error}",
                    service.name()
                )
            }
            Self::AdminOpen { address } => write!(
                f,
                "--admin {address} can be reached from other machines, and asks for nothing: give it a token \
                 with --admin-token-file or TIDEGATE_ADMIN_TOKEN, or listen at 127.0.0.1"
            ),
            Self::Token(error) => {
                write!(f, "--admin-token-file or TIDEGATE_ADMIN_TOKEN: {error}")
            }
            Self::Controls { path, error } => write!(
                f,
                "bans and switches cannot be read from {}: {error}; mend it, or move it away to start without them",
                path.display()
            ),
            Self::Watch(error) => error.fmt(f),
            Self::Settings(error) => error.fmt(f),
            Self::Store { told } => write!(
                f,
                "{told}; `tidegate doctor` says more, and --store-required=false starts without it"
            ),
            Self::State { path, error } => {
                write!(f, "--state: {} cannot be used: {error}", path.display())
            }
            Self::StateInUse { path } => write!(
                f,
                "--state: another daemon keeps its state in {}: stop it, or give each a file of its own",
                path.display()
            ),
        }
    }
}

impl std::error::Error for StartError {}
