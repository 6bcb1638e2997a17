//! Putting a limiter by rules together.

use std::fmt;
use std::path::Path;
use std::sync::Mutex;

use arc_swap::ArcSwap;
use tidegate_rules::compile::CompiledRules;
use tidegate_rules::diagnostic::Report;
use tidegate_rules::identity::SECRET_BYTES;
use tidegate_rules::rule::RuleSet;
use tidegate_store::{Table, TableConfig, TableError};

use super::carry::Carrier;
use super::limiter::RuleLimiter;
use crate::secret::{Found, Secret};
use crate::{Clock, PressureSignal, Restored, SystemClock};

/// A limiter by rules in the making. See [`RuleLimiter::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RuleLimiterBuilder<C = SystemClock> {
    rules: RuleSet,
    memory_bytes: usize,
    secret: Option<[u8; SECRET_BYTES]>,
    clock: C,
}

impl RuleLimiterBuilder {
    /// The ceiling unless another is set: room for some two million active keys.
    pub const MEMORY_BYTES_DEFAULT: usize = 64 << 20;
    /// The part of the ceiling that is for logs, slots and concurrency limits, one in so many. It is
    /// there even if no rule has any, since the next reload may bring one.
    const WIDE_PART: usize = 4;

    pub(crate) fn new(rules: RuleSet) -> Self {
        let memory_bytes = Self::MEMORY_BYTES_DEFAULT;
        Self { rules, memory_bytes, secret: None, clock: SystemClock }
    }
}

impl<C: Clock> RuleLimiterBuilder<C> {
    /// The ceiling of the memory that keys take. A quarter of it is for logs, slots and concurrency
    /// limits.
    pub fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// Another source of time, in tests above all.
    pub fn clock<D: Clock>(self, clock: D) -> RuleLimiterBuilder<D> {
        let Self { rules, memory_bytes, secret, .. } = self;
        RuleLimiterBuilder { rules, memory_bytes, secret, clock }
    }

    /// The secret that keys are hashed with. Unless one is given it is random, which is best: nobody
    /// can then make keys that get in each other's way. Give one to keep it out of the state file.
    pub fn secret(mut self, secret: [u8; SECRET_BYTES]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The limiter, with every key's quota full.
    pub fn build(self) -> Result<RuleLimiter<C>, RulesError> {
        let secret = Secret::new(self.secret);
        self.build_with(&secret)
    }

    /// The limiter with the state that [`RuleLimiter::save`] wrote to `path`, and what was found
    /// there. A file that is refused is no reason not to start: the limiter starts empty.
    pub fn build_from(
        self,
        path: impl AsRef<Path>,
    ) -> Result<(RuleLimiter<C>, Restored), RulesError> {
        let found = Found::at(path.as_ref(), self.config());
        let secret = Secret::for_file(self.secret, &found);
        let limiter = self.build_with(&secret)?;
        let restored = found.restore(&limiter.table, &limiter.label, limiter.clock.now());
        Ok((limiter, restored))
    }

    fn config(&self) -> TableConfig {
        let wide_bytes =
            (self.memory_bytes / RuleLimiterBuilder::WIDE_PART).max(TableConfig::WIDE_BYTES_MIN);
        TableConfig { entry_bytes: self.memory_bytes.saturating_sub(wide_bytes), wide_bytes }
    }

    fn build_with(self, secret: &Secret) -> Result<RuleLimiter<C>, RulesError> {
        let config = self.config();
        let hasher = secret.hasher();
        let rules = CompiledRules::new(self.rules, &hasher);
        check_limits(&rules, config)?;
        let table = Table::new(config, self.clock.now()).map_err(RulesError::Memory)?;
        Ok(RuleLimiter {
            current: ArcSwap::from_pointee(rules),
            table,
            hasher,
            label: secret.label(),
            clock: self.clock,
            pressure: PressureSignal::default(),
            carrier: Carrier::default(),
            reloading: Mutex::new(()),
        })
    }
}

/// Whether the states of all limits fit the memory.
pub(super) fn check_limits(rules: &CompiledRules, config: TableConfig) -> Result<(), RulesError> {
    for limit in rules.limits() {
        for relaxed in [false, true] {
            config.check(limit.limit(relaxed)).map_err(|error| RulesError::Limit {
                rule: rules.rule(limit.rule()).name.clone(),
                limit: limit.written().text.clone(),
                error,
            })?;
        }
    }
    Ok(())
}

/// Why rules could not be put in force. The rules that were in force still are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RulesError {
    /// The text of the rules has mistakes.
    Text(Report),
    /// A limit needs more memory than there is.
    Limit {
        /// Whose limit it is.
        rule: String,
        /// The limit.
        limit: String,
        /// What is missing.
        error: TableError,
    },
    /// The memory setting cannot be used.
    Memory(TableError),
}

impl From<Report> for RulesError {
    fn from(report: Report) -> Self {
        Self::Text(report)
    }
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(report) => report.fmt(f),
            Self::Limit { rule, limit, error } => {
                write!(f, "the limit `{limit}` of rule `{rule}` does not fit the memory: {error}")
            }
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RulesError {}
