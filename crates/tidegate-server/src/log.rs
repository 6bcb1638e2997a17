//! The log: lines on standard error, for people or for programs. How much is logged can be changed while
//! the daemon runs. Of other people's libraries only warnings are let through, at any level: what they
//! say in detail may hold names and addresses, and those are in no log.

use std::fmt;
use std::io::{self, IsTerminal as _};

use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt as lines, reload};

use crate::admin::AUDIT;
use crate::config::value::{Level, LogFormat, ValueError};

/// What the targets of our own crates begin with.
const OURS: &str = "tidegate";

/// How much is logged. Clones are the same setting.
#[derive(Clone, Debug)]
pub struct LogLevel {
    handle: Option<reload::Handle<Targets, Registry>>,
    current: std::sync::Arc<parking_lot::Mutex<Level>>,
}

impl LogLevel {
    /// Starts the log of this process, once.
    pub fn start(format: LogFormat, level: Level) -> Result<Self, LogError> {
        let (filter, handle) = reload::Layer::new(targets(level));
        let started =
            tracing_subscriber::registry().with(written_as(format).with_filter(filter)).try_init();
        started.map_err(|_| LogError::Started)?;
        Ok(Self::new(Some(handle), level))
    }

    /// A level that nothing follows, for a daemon inside of a program with a log of its own.
    pub fn unused() -> Self {
        Self::new(None, Level::Info)
    }

    /// Changes the level: one of `error`, `warn`, `info`, `debug` and `trace`.
    pub fn set(&self, level: &str) -> Result<(), LogError> {
        let level: Level = level.parse().map_err(LogError::Level)?;
        let mut current = self.current.lock();
        if let Some(handle) = &self.handle {
            handle.reload(targets(level)).map_err(|_| LogError::Stopped)?;
        }
        *current = level;
        Ok(())
    }

    /// The level.
    pub fn level(&self) -> Level {
        *self.current.lock()
    }

    fn new(handle: Option<reload::Handle<Targets, Registry>>, level: Level) -> Self {
        Self { handle, current: std::sync::Arc::new(parking_lot::Mutex::new(level)) }
    }
}

fn written_as<S>(format: LogFormat) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let layer = lines::layer().with_writer(io::stderr);
    match format {
        LogFormat::Text => {
            let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            layer.with_target(false).with_ansi(colour).boxed()
        }
        LogFormat::Json => layer.json().flatten_event(true).with_current_span(false).boxed(),
    }
}

fn targets(level: Level) -> Targets {
    let ours = match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(ours.min(LevelFilter::WARN))
        .with_target(OURS, ours)
        // Who turns the log down does not thereby hide what they do next.
        .with_target(AUDIT, ours.max(LevelFilter::INFO))
}

/// Why the log is not as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LogError {
    /// This process has a log already.
    Started,
    /// The word is no level.
    Level(ValueError),
    /// The log has ended.
    Stopped,
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("this process has a log already"),
            Self::Level(error) => error.fmt(f),
            Self::Stopped => f.write_str("the log has ended"),
        }
    }
}

impl std::error::Error for LogError {}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level as Of;

    #[test]
    fn details_of_other_libraries_are_never_let_through() {
        let targets = targets(Level::Trace);
        assert!(targets.would_enable("tidegate_server::serve", &Of::TRACE));
        assert!(targets.would_enable("hyper::proto", &Of::WARN));
        assert!(!targets.would_enable("hyper::proto", &Of::INFO));
        let targets = super::targets(Level::Error);
        assert!(!targets.would_enable("hyper::proto", &Of::WARN));
    }

    #[test]
    fn what_operators_change_is_told_at_any_level() {
        let targets = targets(Level::Error);
        assert!(targets.would_enable(AUDIT, &Of::INFO));
        assert!(!targets.would_enable("tidegate_server::serve", &Of::INFO));
    }

    #[test]
    fn the_level_is_one_of_five_words() {
        let level = LogLevel::unused();
        assert_eq!(level.set("debug"), Ok(()));
        assert_eq!(level.level(), Level::Debug);
        assert!(level.set("loud").unwrap_err().to_string().starts_with("write `error`"));
        assert_eq!(level.level(), Level::Debug);
    }
}
