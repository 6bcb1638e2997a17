//! The daemon as a process: the log, the runtime, signals, and what a service manager is told.
//!
//! `SIGTERM` and `SIGINT` begin the drain, and a second one ends it. `SIGHUP` reads the rule files again.

use std::fmt;
use std::future::Future;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Drained, Running, StartError, start};
use crate::config::Settings;
use crate::config::value::{Level, LogFormat};
use crate::listen::{Inherited, InheritedError};
use crate::log::{LogError, LogLevel};

/// How the process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// What was under way was answered, or had its time, and the state is written.
    Drained,
    /// It was told twice, and waited for nothing.
    AtOnce,
}

/// What lives as a process: a daemon, or a gateway around one.
pub trait Life: Sized {
    /// Reads its files again, and says `false` where there are none.
    fn reload(&self) -> bool;

    /// Finishes what is under way, and ends.
    fn shutdown(self) -> impl Future<Output = Drained> + Send;
}

impl Life for Running {
    fn reload(&self) -> bool {
        Self::reload(self)
    }

    fn shutdown(self) -> impl Future<Output = Drained> + Send {
        Self::shutdown(self)
    }
}

/// Runs a daemon until it is told to end. `ready` is called once, when every address accepts connections.
/// Call it first thing in a process: it takes over sockets that the service manager has opened.
pub fn run(settings: Settings, ready: impl FnOnce(&Running)) -> Result<Ended, RunError> {
    let log = (settings.log_format, settings.log_level);
    run_as(log, |inherited, level| start(settings, inherited, level), ready)
}

/// The same for whatever `start` starts.
pub fn run_as<L: Life, E, S>(
    (format, level): (LogFormat, Level),
    start: impl FnOnce(Inherited, LogLevel) -> S,
    ready: impl FnOnce(&L),
) -> Result<Ended, RunError<E>>
where
    S: Future<Output = Result<L, E>>,
{
    let inherited = Inherited::from_env().map_err(RunError::Inherited)?;
    let log = LogLevel::start(format, level).map_err(RunError::Log)?;
    raise_descriptor_limit();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.enable_all().build().map_err(RunError::System)?;
    let ended = runtime.block_on(async { live(start(inherited, log), ready).await });
    // Whatever is left has had its time.
    runtime.shutdown_background();
    ended
}

async fn live<L: Life, E>(
    starting: impl Future<Output = Result<L, E>>,
    ready: impl FnOnce(&L),
) -> Result<Ended, RunError<E>> {
    // Before anybody is told that we are ready: a signal that comes then must find us.
    let mut signals = Signals::new().map_err(RunError::System)?;
    let running = starting.await.map_err(RunError::Start)?;
    ready(&running);
    notify(&[NotifyState::Ready]);
    loop {
        match signals.next().await {
            Told::Reload => reload(&running),
            Told::Stop(name) => {
                tracing::info!(signal = name, "stopping; a second signal ends it at once");
                break;
            }
        }
    }
    notify(&[NotifyState::Stopping]);
    tokio::select! {
        biased;
        () = signals.stop() => {
            tracing::warn!("told twice to stop: requests under way are cut off, the state is not written");
            Ok(Ended::AtOnce)
        }
        drained = running.shutdown() => {
            match drained.cut {
                0 => tracing::info!("stopped"),
                cut => tracing::warn!(connections = cut, "stopped, and cut off what was still under way"),
            }
            Ok(Ended::Drained)
        }
    }
}

fn reload(running: &impl Life) {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        notify(&[NotifyState::Reloading, now]);
    }
    // Said first: what comes of it is said by another thread.
    tracing::info!(signal = "SIGHUP", "reading the files again");
    if !running.reload() {
        tracing::info!("there are no files to read again");
        notify_reloaded();
    }
}

/// Tells the service manager that the rules are what they will be.
pub(super) fn notify_reloaded() {
    notify(&[NotifyState::Ready]);
}

/// Tells the service manager something; where there is none, nothing happens.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}

/// Lets this process have as many descriptors as it may: each connection is one, and the limit that
/// shells and service managers set at first is for programs that break with more.
fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(%error, "the limit of open files could not be raised");
    }
}

/// What a signal asks for.
enum Told {
    Reload,
    Stop(&'static str),
}

struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.term.recv() => Told::Stop("SIGTERM"),
            _ = self.int.recv() => Told::Stop("SIGINT"),
            _ = self.hup.recv() => Told::Reload,
        }
    }

    async fn stop(&mut self) {
        while !matches!(self.next().await, Told::Stop(_)) {}
    }
}

/// Why the process ended before it was told to.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError<E = StartError> {
    /// It did not start.
    Start(E),
    /// The sockets of the service manager cannot be used.
    Inherited(InheritedError),
    /// The log did not start.
    Log(LogError),
    /// The system gave no threads or no signals.
    System(io::Error),
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => error.fmt(f),
            Self::Inherited(error) => error.fmt(f),
            Self::Log(error) => error.fmt(f),
            Self::System(error) => write!(f, "the system does not let it run: {error}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for RunError<E> {}
