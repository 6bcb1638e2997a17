//! What shared limits are told: the groups of servers, the memory of this node, and how to begin.

use std::fmt;
use std::time::Duration;

use tidegate_store::{TableConfig, TableError};

use super::groups::{GROUPS_MAX, WEIGHT_MAX};
use crate::{ConnectError, RedisConfig};

/// The settings of [`Shared`](crate::Shared) limits. One [`RedisConfig`] is settings as well, of one group.
#[derive(Clone, Debug)]
pub struct SharedConfig {
    pub(crate) groups: Vec<(RedisConfig, u16)>,
    pub(crate) memory: TableConfig,
    pub(crate) pulse_every: Duration,
    pub(crate) store_required: bool,
    pub(crate) keep_denials: bool,
    pub(crate) nodes: u32,
}

/// The memory of a node, unless said.
const MEMORY_BYTES: usize = 64 << 20;

/// How often a node says that it is there, unless said.
const PULSE_EVERY: Duration = Duration::from_millis(250);

impl SharedConfig {
    /// Groups of servers, each one deployment. Their order says which is which, and with it who keeps which
    /// keys, so it is the same on every node, and a new one comes last.
    pub fn new(groups: impl IntoIterator<Item = RedisConfig>) -> Self {
        Self {
            groups: groups.into_iter().map(|group| (group, 1)).collect(),
            memory: halves(MEMORY_BYTES),
            pulse_every: PULSE_EVERY,
            store_required: true,
            keep_denials: true,
            nodes: 1,
        }
    }

    /// How much each group keeps, compared with the others; 1 unless said, at most 1,000. A group of 0
    /// gets only the keys whose terms name it.
    #[must_use]
    pub fn weights(mut self, weights: &[u16]) -> Self {
        for ((_, weight), &said) in self.groups.iter_mut().zip(weights) {
            *weight = said.min(WEIGHT_MAX);
        }
        self
    }

    /// How long a decision may take, whatever the group; that of each group unless said.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        for (group, _) in &mut self.groups {
            group.deadline = deadline;
        }
        self
    }

    /// The ceiling of this node's own memory: for limits that it keeps by itself, and for its share of
    /// the others while a store cannot answer. 64 MiB unless said, one half for buckets and windows and the
    /// other for logs, slots and concurrency. Nothing is reserved before it is needed.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = halves(bytes);
        self
    }

    /// How often this node tells the others that it is there and learns who is; 250 ms unless said. What one
    /// node gives back is known to the others after as much.
    #[must_use]
    pub fn pulse_every(mut self, every: Duration) -> Self {
        self.pulse_every = every;
        self
    }

    /// Whether all groups must answer at the start; they must unless said. Otherwise this node begins
    /// without those that do not, and decides by the policy of each limit until they do.
    #[must_use]
    pub fn store_required(mut self, required: bool) -> Self {
        self.store_required = required;
        self
    }

    /// Whether a key that a store has refused is refused here until its wait is over, without asking again;
    /// it is unless said. Every such answer says so, and tells what was left when the store was asked.
    #[must_use]
    pub fn keep_denials(mut self, keep: bool) -> Self {
        self.keep_denials = keep;
        self
    }

    /// How many nodes there are with this one; 1 unless said. It counts until a group has told how many there
    /// are: a node that never reached a group keeps the limits of it divided by this number.
    #[must_use]
    pub fn nodes(mut self, nodes: u32) -> Self {
        self.nodes = nodes.max(1);
        self
    }

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        match self.groups.len() {
            0 => return Err(OpenError::NoGroups),
            number if number > GROUPS_MAX => return Err(OpenError::TooManyGroups),
            _ => {}
        }
        if self.groups.iter().all(|(_, weight)| *weight == 0) {
            return Err(OpenError::NoWeight);
        }
        Ok(())
    }
}

impl From<RedisConfig> for SharedConfig {
    fn from(group: RedisConfig) -> Self {
        Self::new([group])
    }
}

fn halves(bytes: usize) -> TableConfig {
    TableConfig { entry_bytes: bytes - bytes / 2, wide_bytes: bytes / 2 }
}

/// Why shared limits could not be opened. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no group of servers.
    NoGroups,
    /// There are more groups than 256.
    TooManyGroups,
    /// Every group has a weight of 0.
    NoWeight,
    /// The memory of this node is too small or too large, or there is none.
    Memory(TableError),
    /// A group cannot be used, and must be.
    Group {
        /// Its number, from 0.
        group: usize,
        /// Why.
        error: ConnectError,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGroups => f.write_str("there is no group of servers"),
            Self::TooManyGroups => write!(f, "there are more than {GROUPS_MAX} groups of servers"),
            Self::NoWeight => f.write_str("no group of servers has a weight"),
            Self::Memory(_) => f.write_str("the node's own memory cannot be used"),
            Self::Group { group, error } => write!(f, "group {group}: {error}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoGroups | Self::TooManyGroups | Self::NoWeight => None,
            Self::Memory(error) => Some(error),
            // It says the error itself, so its cause comes next.
            Self::Group { error, .. } => error.source(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(number: usize) -> SharedConfig {
        SharedConfig::new(vec![RedisConfig::new("redis://127.0.0.1:1").unwrap(); number])
    }

    #[test]
    fn there_is_at_least_one_group_with_a_weight_and_no_more_than_terms_can_name() {
        assert!(matches!(groups(0).check(), Err(OpenError::NoGroups)));
        assert!(groups(256).check().is_ok());
        assert!(matches!(groups(257).check(), Err(OpenError::TooManyGroups)));
        assert!(matches!(groups(2).weights(&[0, 0]).check(), Err(OpenError::NoWeight)));
        assert!(groups(2).weights(&[0]).check().is_ok());
    }

    #[test]
    fn a_deadline_is_that_of_every_group() {
        let config = groups(2).deadline(Duration::from_millis(7));
        assert!(config.groups.iter().all(|(group, _)| group.deadline == Duration::from_millis(7)));
    }
}
