//! Putting a limiter by rules together.

use std::fmt;
use std::path::Path;
#[cfg(feature = "redis")]
use std::sync::Arc;

use tidegate_core::{Consistency, Limit, OnStoreFailure};
#[cfg(feature = "redis")]
use tidegate_redis::Shared;
use tidegate_rules::compile::CompiledRules;
use tidegate_rules::diagnostic::Report;
use tidegate_rules::identity::SECRET_BYTES;
use tidegate_rules::rule::RuleSet;
use tidegate_store::{Table, TableConfig, TableError};

use super::carry::Carrier;
use super::in_force::InForce;
use super::limiter::RuleLimiter;
#[cfg(feature = "redis")]
use super::place::Place;
use super::sharing::{GroupRanges, Sharing};
use crate::secret::{Found, Secret};
use crate::{Clock, PressureSignal, Restored, SystemClock};

/// A limiter by rules in the making. See [`RuleLimiter::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RuleLimiterBuilder<C = SystemClock> {
    rules: RuleSet,
    memory_bytes: usize,
    secret: Option<[u8; SECRET_BYTES]>,
    sharing: Sharing,
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
        let sharing = Sharing::default();
        Self { rules, memory_bytes, secret: None, sharing, clock: SystemClock }
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
        let Self { rules, memory_bytes, secret, sharing, .. } = self;
        RuleLimiterBuilder { rules, memory_bytes, secret, sharing, clock }
    }

    /// The secret that keys are hashed with. Unless one is given it is random, which is best: nobody
    /// can then make keys that get in each other's way. Give one to keep it out of the state file, and
    /// where nodes share limits: each of them has to be given the same.
    pub fn secret(mut self, secret: [u8; SECRET_BYTES]) -> Self {
        self.secret = Some(secret);
        self
    }

    /// How exactly nodes share limits whose rules do not say it; [`Consistency::Strict`] unless said. It
    /// matters only where there is a store that nodes share.
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.sharing.consistency = consistency;
        self
    }

    /// What happens to limits whose rules do not say it while the store cannot answer;
    /// [`OnStoreFailure::Local`] unless said.
    pub fn on_store_failure(mut self, policy: OnStoreFailure) -> Self {
        self.sharing.on_failure = policy;
        self
    }

    /// Which group of servers keeps the limits of whom, where it is not the hash of the key that says
    /// so.
    pub fn groups(mut self, groups: GroupRanges) -> Self {
        self.sharing.groups = Some(groups);
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
        let restored = found.restore(&limiter.store, &limiter.label, limiter.clock.now());
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
        check_limits(&rules, |limit| config.check(limit))?;
        let table = Table::new(config, self.clock.now()).map_err(RulesError::Memory)?;
        Ok(RuleLimiter {
            current: InForce::new(rules),
            store: table,
            sharing: self.sharing,
            hasher,
            label: secret.label(),
            clock: self.clock,
            pressure: PressureSignal::default(),
            carrier: Carrier::default(),
        })
    }
}

#[cfg(feature = "redis")]
impl<C: Clock> RuleLimiterBuilder<C> {
    /// A limiter whose limits nodes share, each on its own terms. It needs the
    /// [secret](Self::secret) that all of them have. How much memory is used is said where `shared` is
    /// made.
    pub fn build_shared(self, shared: Arc<Shared>) -> Result<RuleLimiter<C, Place>, RulesError> {
        let given = self.secret.ok_or(RulesError::SecretMissing)?;
        let secret = Secret::new(Some(given));
        let hasher = secret.hasher();
        let groups = shared.groups();
        let missing = self.sharing.group_max().filter(|group| usize::from(*group) >= groups);
        if let Some(group) = missing {
            return Err(RulesError::GroupMissing { group, groups });
        }
        let rules = CompiledRules::shared(self.rules, &hasher);
        check_limits(&rules, |limit| shared.check(limit))?;
        Ok(RuleLimiter {
            current: InForce::new(rules),
            store: Place::Shared(shared),
            sharing: self.sharing,
            hasher,
            label: secret.label(),
            clock: self.clock,
            pressure: PressureSignal::default(),
            carrier: Carrier::default(),
        })
    }
}

#[cfg(feature = "redis")]
impl<C: Clock> From<RuleLimiter<C, Table>> for RuleLimiter<C, Place> {
    /// The same limiter in memory, behind the calls that may wait.
    fn from(limiter: RuleLimiter<C, Table>) -> Self {
        let RuleLimiter { current, store, sharing, hasher, label, clock, pressure, carrier } =
            limiter;
        let store = Place::Memory(store);
        Self { current, store, sharing, hasher, label, clock, pressure, carrier }
    }
}

/// Whether the states of all limits can be kept.
pub(super) fn check_limits(
    rules: &CompiledRules,
    check: impl Fn(&Limit) -> Result<(), TableError>,
) -> Result<(), RulesError> {
    for limit in rules.limits() {
        for relaxed in [false, true] {
            check(limit.limit(relaxed)).map_err(|error| RulesError::Limit {
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
    /// Limits are to be shared by nodes, and no secret is given that all of them have.
    SecretMissing,
    /// A range of numbers is kept by a group of servers that there is not.
    GroupMissing {
        /// The group, counted from 0.
        group: u8,
        /// How many there are.
        groups: usize,
    },
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
            Self::SecretMissing => f.write_str(
                "nodes that share limits hash keys with one secret: give each of them the same",
            ),
            Self::GroupMissing { group, groups } => {
                write!(
                    f,
                    "a range is to be kept by group {group}, and there are {groups}, from 0 on"
                )
            }
        }
    }
}

impl std::error::Error for RulesError {}
