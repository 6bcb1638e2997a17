//! One group of servers as a node sees it: the store, how many nodes share it, and whether it is well.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::Timestamp;
use tidegate_store::StoreError;

use super::pulse::{self, Heard, NodeId, PULSE_WITHIN, Pulse};
use super::returning::Kept;
use crate::lease::drive::Leases;
use crate::{BreakerState, RedisConfig, RedisStore};

pub(super) struct Group {
    pub(super) store: RedisStore,
    /// How long a decision of it may take.
    pub(super) deadline: Duration,
    pub(super) pulse: Pulse,
    pub(super) leases: Leases,
    /// What it is to be given back when it answers again.
    pub(super) kept: Kept,
    pulse_keys: [Vec<u8>; 2],
    /// How many nodes there were when it was last well; before that, how many there are said to be.
    nodes: AtomicU32,
    is_well: AtomicBool,
    fallbacks: AtomicU64,
    clock: Clock,
}

/// How far the clock of a group is ahead of that of requests, in microseconds: the least that was seen
/// lately. What an answer shows is too much by the time that the request took to get there.
struct Clock {
    least: AtomicI64,
    /// The least before.
    least_before: AtomicI64,
    /// The most that the two have been since then, and the most before.
    most: AtomicI64,
    most_before: AtomicI64,
    /// Answers since it was begun anew.
    answers: AtomicU64,
}

/// How many answers the least is taken of.
const CLOCK_ANSWERS: u64 = 1_024;

/// Nothing has been seen yet.
const UNKNOWN: i64 = i64::MAX;

impl Group {
    pub(super) fn new(
        store: RedisStore,
        config: &RedisConfig,
        node: NodeId,
        is_well: bool,
        nodes: u32,
    ) -> Self {
        Self {
            store,
            deadline: config.deadline,
            pulse: Pulse::new(),
            leases: Leases::new(node.0),
            kept: Kept::default(),
            pulse_keys: pulse::names(&config.prefix),
            nodes: AtomicU32::new(nodes),
            is_well: AtomicBool::new(is_well),
            fallbacks: AtomicU64::new(0),
            clock: Clock::new(),
        }
    }

    /// How many nodes there were when it was last well, this one included.
    pub(super) fn nodes(&self) -> u32 {
        // ORDERING: a number that stands for itself.
        self.nodes.load(Ordering::Relaxed).max(1)
    }

    /// Whether the last pulse was answered.
    pub(super) fn is_well(&self) -> bool {
        // ORDERING: a word for people.
        self.is_well.load(Ordering::Relaxed)
    }

    /// How many requests were decided by policy.
    pub(super) fn fallbacks(&self) -> u64 {
        // ORDERING: a number for people.
        self.fallbacks.load(Ordering::Relaxed)
    }

    pub(super) fn count_fallback(&self) {
        // ORDERING: a number for people.
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the group that this node is there, and learns of the others.
    pub(super) async fn beat(&self, node: NodeId) -> Result<Heard, StoreError> {
        // While the breaker is open the pulse is a probe: a group that is too slow for decisions is not
        // well.
        let within = match self.store.stats().breaker {
            BreakerState::Closed => PULSE_WITHIN,
            BreakerState::HalfOpen | BreakerState::Open => self.deadline.min(PULSE_WITHIN),
        };
        let eval = |arguments: [Vec<u8>; 4]| async move {
            self.store.eval(pulse::SCRIPT, &self.pulse_keys, &arguments, within).await
        };
        let heard = self.pulse.beat(node, eval).await?;
        // ORDERING: a number that stands for itself.
        self.nodes.store(heard.nodes, Ordering::Relaxed);
        Ok(heard)
    }

    /// Tells the group that this node goes.
    pub(super) async fn leave(&self, node: NodeId) {
        let arguments = [node.0.to_be_bytes().to_vec()];
        // Where it cannot be told, the node is forgotten a little later.
        let script = pulse::FAREWELL;
        let _ = self.store.eval(script, &self.pulse_keys, &arguments, PULSE_WITHIN).await;
    }

    /// Notes whether the group answers, and says so where that is new.
    pub(super) fn note_health(&self, number: usize, is_well: bool) {
        // ORDERING: only a log line follows from it.
        let was_well = self.is_well.swap(is_well, Ordering::Relaxed);
        match (was_well, is_well) {
            (true, false) => tracing::warn!(
                group = number,
                nodes = self.nodes(),
                "the group does not answer: its limits are decided by their policies"
            ),
            (false, true) => tracing::info!(group = number, "the group answers again"),
            (true, true) | (false, false) => {}
        }
    }

    /// Takes note of when a request was decided that was made at a time of this node.
    pub(super) fn learn_time(&self, made: Timestamp, decided: Timestamp) {
        self.clock.learn(decided.as_micros().cast_signed() - made.as_micros().cast_signed());
    }

    /// A time of this node as one of the group's, and rather too early than too late.
    pub(super) fn time_of(&self, at: Timestamp) -> Timestamp {
        Timestamp::from_micros(at.as_micros().saturating_add_signed(self.clock.ahead()))
    }

    /// What [`Group::time_of`] makes this of now.
    pub(super) fn own_time_of(&self, at: Timestamp) -> Timestamp {
        let back = self.clock.ahead().saturating_neg();
        Timestamp::from_micros(at.as_micros().saturating_add_signed(back))
    }

    /// What [`Group::time_of`] may have made this of, at the earliest.
    pub(super) fn earliest_of(&self, at: Timestamp) -> Timestamp {
        let back = self.clock.most_ahead().saturating_neg();
        Timestamp::from_micros(at.as_micros().saturating_add_signed(back))
    }
}

impl Clock {
    const fn new() -> Self {
        Self {
            least: AtomicI64::new(UNKNOWN),
            least_before: AtomicI64::new(UNKNOWN),
            most: AtomicI64::new(i64::MIN),
            most_before: AtomicI64::new(i64::MIN),
            answers: AtomicU64::new(0),
        }
    }

    fn learn(&self, ahead: i64) {
        // ORDERING: an estimate; whoever mixes two of them up has one all the same.
        let least = self.least.load(Ordering::Relaxed);
        let was = match least.min(self.least_before.load(Ordering::Relaxed)) {
            UNKNOWN => i64::MIN,
            was => was,
        };
        self.most.fetch_max(was, Ordering::Relaxed);
        if ahead < least {
            self.least.store(ahead, Ordering::Relaxed);
        }
        if self.answers.fetch_add(1, Ordering::Relaxed) % CLOCK_ANSWERS == CLOCK_ANSWERS - 1 {
            self.least_before.store(least.min(ahead), Ordering::Relaxed);
            self.least.store(UNKNOWN, Ordering::Relaxed);
            self.most_before.store(self.most.load(Ordering::Relaxed), Ordering::Relaxed);
            self.most.store(i64::MIN, Ordering::Relaxed);
        }
    }

    /// The most that [`Clock::ahead`] was lately.
    fn most_ahead(&self) -> i64 {
        // ORDERING: as above.
        let most = self.most.load(Ordering::Relaxed);
        most.max(self.most_before.load(Ordering::Relaxed)).max(self.ahead())
    }

    fn ahead(&self) -> i64 {
        // ORDERING: as above.
        let least = self.least.load(Ordering::Relaxed);
        match least.min(self.least_before.load(Ordering::Relaxed)) {
            UNKNOWN => 0,
            ahead => ahead,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_of_a_group_is_the_least_that_was_seen_lately() {
        let clock = Clock::new();
        assert_eq!(clock.ahead(), 0);
        for ahead in [900, 300, 700] {
            clock.learn(ahead);
        }
        assert_eq!(clock.ahead(), 300);
        for _ in 0..CLOCK_ANSWERS {
            clock.learn(500);
        }
        assert_eq!(clock.ahead(), 300, "it was lately");
        for _ in 0..CLOCK_ANSWERS {
            clock.learn(500);
        }
        assert_eq!(clock.ahead(), 500, "a clock that was set");
        assert_eq!(clock.most_ahead(), 500);
        clock.learn(-20);
        assert_eq!((clock.ahead(), clock.most_ahead()), (-20, 500), "it was 500 a moment ago");
        for _ in 0..2 * CLOCK_ANSWERS {
            clock.learn(-20);
        }
        assert_eq!(clock.most_ahead(), -20);
    }
}
