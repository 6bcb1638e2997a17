//! Putting a limiter together.

use std::fmt;
use std::path::Path;

use tidegate_core::Limit;
use tidegate_rules::identity::{KeyHasher, SECRET_BYTES};
use tidegate_rules::{ParseLimitError, parse_limit};
use tidegate_store::{Request, Table, TableConfig, TableError};

use crate::limiter::Salted;
use crate::secret::{Found, Secret};
use crate::{Clock, Limiter, Restored, SystemClock};

/// A limiter in the making. See [`Limiter::builder`].
///
/// ```
/// use tidegate::Limiter;
///
/// let limiter = Limiter::builder()
///     .limit("10/s burst 20")
///     .limit("500 per hour sliding-window")
///     .memory_bytes(64 << 20)
///     .build()?;
/// assert_eq!(limiter.limits().count(), 2);
/// # Ok::<(), tidegate::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct LimiterBuilder<C = SystemClock> {
    limits: Vec<Limit>,
    memory_bytes: usize,
    secret: Option<[u8; SECRET_BYTES]>,
    clock: C,
    /// The first mistake, told when the limiter is built, so that calls can be chained.
    error: Option<BuildError>,
}

impl LimiterBuilder {
    pub(crate) fn new() -> Self {
        Self {
            limits: Vec::new(),
            memory_bytes: Self::MEMORY_BYTES_DEFAULT,
            secret: None,
            clock: SystemClock,
            error: None,
        }
    }

    /// The ceiling unless another is set: room for some 690,000 active keys.
    pub const MEMORY_BYTES_DEFAULT: usize = 16 << 20;
}

impl<C: Clock> LimiterBuilder<C> {
    /// Adds a limit: text as in [`parse_limit`], or a [`Limit`]. A request must pass all of them.
    pub fn limit(mut self, limit: impl IntoLimit) -> Self {
        match limit.into_limit() {
            Ok(limit) => self.limits.push(limit),
            Err(error) => self.error = self.error.or(Some(BuildError::Limit(error))),
        }
        self
    }

    /// The ceiling of the memory that keys take, a little more than 1 MiB at least: 24 bytes for each
    /// key that is active at the same time, and more for logs, slots and concurrency limits.
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Another source of time, in tests above all.
    pub fn clock<D: Clock>(self, clock: D) -> LimiterBuilder<D> {
        let Self { limits, memory_bytes, secret, error, .. } = self;
        LimiterBuilder { limits, memory_bytes, secret, clock, error }
    }

    /// The secret that keys are hashed with. Unless one is given it is random, which is best: nobody
    /// can then make keys that get in each other's way. Give one to keep it out of the state file.
    pub fn secret(mut self, secret: [u8; SECRET_BYTES]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The limiter, with every key's quota full.
    pub fn build(self) -> Result<Limiter<C>, BuildError> {
        let secret = Secret::new(self.secret);
        self.build_with(&secret)
    }

    /// The limiter with the state that [`Limiter::save`] wrote to `path`, and what was found there.
    /// A file that is damaged, foreign, of another secret or of another memory size is refused and
    /// the limiter starts empty: a bad file is no reason not to start.
    pub fn build_from(self, path: impl AsRef<Path>) -> Result<(Limiter<C>, Restored), BuildError> {
        let config = TableConfig::for_limits(self.memory_bytes, &self.limits);
        let found = Found::at(path.as_ref(), config);
        let secret = Secret::for_file(self.secret, &found);
        let limiter = self.build_with(&secret)?;
        let restored = found.restore(&limiter.table, &limiter.label, limiter.clock.now());
        Ok((limiter, restored))
    }

    fn build_with(self, secret: &Secret) -> Result<Limiter<C>, BuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.limits.is_empty() {
            return Err(BuildError::NoLimit);
        }
        if self.limits.len() > Request::CHARGES_MAX {
            return Err(BuildError::TooManyLimits { max: Request::CHARGES_MAX });
        }
        let hasher = secret.hasher();
        let config = TableConfig::for_limits(self.memory_bytes, &self.limits);
        for limit in &self.limits {
            config.check(limit).map_err(BuildError::Memory)?;
        }
        let table = Table::new(config, self.clock.now()).map_err(BuildError::Memory)?;
        let limits = salted(self.limits, &hasher);
        Ok(Limiter { limits, table, hasher, label: secret.label(), clock: self.clock })
    }
}

/// Gives each limit what sets its keys apart: the algorithm, the period, and how many of the same
/// came before it.
fn salted(limits: Vec<Limit>, hasher: &KeyHasher) -> Box<[Salted]> {
    let mut seen: Vec<(&'static str, u64)> = Vec::new();
    let salt = |limit: Limit| {
        let kind = (limit.name(), limit.period().as_micros());
        let before = seen.iter().filter(|other| **other == kind).count() as u64;
        seen.push(kind);
        let salt = hasher.salt([
            ("algorithm", kind.0.as_bytes()),
            ("period", &kind.1.to_le_bytes()),
            ("before", &before.to_le_bytes()),
        ]);
        Salted { limit, salt }
    };
    limits.into_iter().map(salt).collect()
}

/// What can be given as a limit.
pub trait IntoLimit {
    /// The limit, or what is wrong with its text.
    fn into_limit(self) -> Result<Limit, ParseLimitError>;
}

impl IntoLimit for &str {
    fn into_limit(self) -> Result<Limit, ParseLimitError> {
        parse_limit(self)
    }
}

impl IntoLimit for &String {
    fn into_limit(self) -> Result<Limit, ParseLimitError> {
        parse_limit(self)
    }
}

impl IntoLimit for Limit {
    fn into_limit(self) -> Result<Limit, ParseLimitError> {
        Ok(self)
    }
}

/// Why a limiter could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BuildError {
    /// The text of a limit is wrong.
    Limit(ParseLimitError),
    /// No limit was given.
    NoLimit,
    /// More limits than one request can be under.
    TooManyLimits {
        /// The most.
        max: usize,
    },
    /// The memory setting cannot be used.
    Memory(TableError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(error) => error.fmt(f),
            Self::NoLimit => f.write_str("no limit was given; add one with `.limit(\"10/s\")`"),
            Self::TooManyLimits { max } => write!(f, "more than {max} limits were given"),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {}
