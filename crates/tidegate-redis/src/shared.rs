//! Shared limits as a limiter asks for them: each limit on its own terms, decided by whoever has to, in
//! time, whatever becomes of the store.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `node` | what is known without asking, and whom to ask |
//! | `groups`, `group` | which group of servers keeps a key; one group as this node sees it |
//! | `leased` | takes from what this node has leased |
//! | `places` | the places of a node, for requests that are in several |
//! | `policy` | what follows where a store could not decide: the one place that knows |
//! | `denials` | denials that still hold |
//! | `returning` | what is given back, whether somebody waits for it or not |
//! | `pulse` | what nodes tell each other |

mod config;
mod denials;
mod group;
mod groups;
mod leased;
mod node;
mod places;
mod policy;
mod pulse;
mod returning;
mod stats;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_core::{Consistency, Key, Limit, OnStoreFailure, Terms, Timestamp};
use tidegate_store::{Charge, Request, Store, StoreError, Table, TableError};
use tokio::task::AbortHandle;

pub use config::{OpenError, SharedConfig};
pub use stats::{GroupStats, SharedStats};
pub use tidegate_store::Settled;

use crate::deadline::Deadline;
use crate::lease::drive;
use crate::split::GiveBacks;
use crate::{RedisConfig, RedisStore};
use denials::Denials;
use group::Group;
use groups::Spread;
use leased::GroupLender;
use node::{Node, Place};
use pulse::NodeId;

/// Limits that nodes share. There is one for each process.
pub struct Shared {
    node: Arc<Node>,
    beats: Vec<AbortHandle>,
}

impl Shared {
    /// Connects to all groups of servers, and tells them that this node is there.
    pub async fn connect(config: impl Into<SharedConfig>) -> Result<Self, OpenError> {
        let config = config.into();
        config.check()?;
        // So that it is known now if there is no memory for it. The time of requests is not.
        Table::new(config.memory, Timestamp::ZERO).map_err(OpenError::Memory)?;
        // The keys of hashers are random.
        let id = NodeId(RandomState::new().build_hasher().finish());
        let mut groups = Vec::with_capacity(config.groups.len());
        for (number, (group, _)) in config.groups.iter().enumerate() {
            groups.push(open(number, group, id, &config).await?);
        }
        let weights: Vec<u16> = config.groups.iter().map(|(_, weight)| *weight).collect();
        let node = Arc::new(Node {
            id,
            groups: groups.into(),
            spread: Spread::new(&weights),
            memory: config.memory,
            table: OnceLock::new(),
            denials: Denials::new(config.keep_denials),
            give_backs: Arc::new(GiveBacks::default()),
            cached_denials: AtomicU64::new(0),
        });
        let mut beats = Vec::with_capacity(node.groups.len());
        for number in 0..node.groups.len() {
            // The first one is waited for, so that all nodes that are there know of each other.
            node.beat(number).await;
            let beating = pulse::keep_beating(Arc::downgrade(&node), number, config.pulse_every);
            beats.push(tokio::spawn(beating).abort_handle());
            let lender = GroupLender { node: Arc::clone(&node), group: number };
            beats.push(tokio::spawn(drive::keep_leasing(lender)).abort_handle());
        }
        Ok(Self { node, beats })
    }

    /// Decides a request, all or nothing, and appends to `settled` what each of its limits says, in
    /// order. There are as many `terms` as limits. An error says that a limit whose terms are to
    /// deny could not be decided, or that the request is none; then nothing is taken that this node knows
    /// of.
    ///
    /// What can be decided without asking a server is decided when the future is first polled. A caller
    /// who drops it may have taken from one place; what was taken of limits in several is given back.
    #[inline]
    pub async fn decide(
        &self,
        request: &Request<'_>,
        terms: &[Terms],
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        self.decide_by(&Deadline::default(), request, terms, settled).await
    }

    /// The same for a part of a decision, which has what is left of its time. Where that is nothing, the
    /// policy of each limit decides, and no server is asked.
    #[inline]
    pub async fn decide_by(
        &self,
        deadline: &Deadline,
        request: &Request<'_>,
        terms: &[Terms],
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        debug_assert_eq!(request.charges.len(), terms.len());
        if let Some(decided) = self.node.decide_at_hand(request, terms, settled) {
            return decided;
        }
        let end = deadline.end(self.node.deadline());
        self.node.decide_by_asking(request, terms, end, settled).await
    }

    /// Decides a take by one charge on the spot, if this node has leased enough for it. `None` for all else:
    /// nothing has happened then, and it is for [`Shared::decide`], which would have answered the same here.
    #[inline]
    pub fn spend_one(&self, now: Timestamp, charge: &Charge<'_>, terms: Terms) -> Option<Settled> {
        self.node.spend_one(now, charge, terms)
    }

    /// The same for a request under several limits, if there is enough for each of them: says whether there is,
    /// after `each` was handed what they say, in order. Where not, what it was handed is void.
    pub fn spend_several(
        &self,
        request: &Request<'_>,
        terms: &[Terms],
        each: impl FnMut(Settled),
    ) -> bool {
        debug_assert_eq!(request.charges.len(), terms.len());
        request.check().is_ok() && self.node.spend_several(request, terms, each)
    }

    /// Forgets the keys: each has all of its quota again, on every node within a second, except for what
    /// other nodes have leased, which they spend or give back. The terms are those of the limit that each key is under. All are tried, whatever becomes of one; the error is that
    /// of the first that could not be forgotten for certain.
    pub async fn forget(&self, keys: &[(Key, Terms)]) -> Result<(), StoreError> {
        if let Some(Some(table)) = self.node.table.get() {
            for (key, _) in keys {
                table.forget(*key);
            }
        }
        let mut result = Ok(());
        for (number, group) in (0_u8..=u8::MAX).zip(&self.node.groups) {
            let is_there = |key: Key, terms: Terms| match self.node.place(key, terms) {
                Place::Here => false,
                Place::Group(there) | Place::Alone(there, _) | Place::Leased(there, _) => {
                    there == number
                }
            };
            let there = keys.iter().filter(|(key, terms)| is_there(*key, *terms));
            let there: Vec<Key> = there.map(|(key, _)| *key).collect();
            if there.is_empty() {
                continue;
            }
            let book = group.leases.book();
            let held: Vec<_> = there.iter().map(|key| book.before_reset(*key)).collect();
            let forgotten = group.store.forget(&there).await;
            for (key, holder) in there.into_iter().zip(held) {
                if let Some(holder) = holder {
                    book.after_reset(key, holder, forgotten.is_ok());
                }
                self.node.lift(group, key);
            }
            result = result.and(forgotten);
        }
        result
    }

    /// What [`Shared::told_time`] of any node gave, as an instant of the clock that decides `key`, and rather too
    /// early than too late: for charges whose instant was told to somebody else in the meantime.
    pub fn place_time(&self, key: Key, terms: Terms, told: Timestamp) -> Timestamp {
        let first = &self.node.groups[0];
        match terms.consistency {
            Consistency::Local => first.earliest_of(told),
            Consistency::Strict | Consistency::Leased => match self.node.group_of(key, terms) {
                0 => told,
                group => self.node.groups[usize::from(group)].time_of(self.own_time(told)),
            },
        }
    }

    /// How long a decision may take that has to ask: that of the group with the longest deadline.
    pub fn deadline(&self) -> Duration {
        self.node.deadline()
    }

    /// An instant of this node's clock as one that all nodes understand, whatever their clocks show: one of the
    /// first group's.
    pub fn told_time(&self, at: Timestamp) -> Timestamp {
        self.node.groups[0].time_of(at)
    }

    /// What [`Shared::told_time`] of any node made this of, as an instant of this node's clock.
    pub fn own_time(&self, told: Timestamp) -> Timestamp {
        self.node.groups[0].own_time_of(told)
    }

    /// Gives back what a limit took of this node's own share, while its store could not answer: what was
    /// settled by [`Source::Fallback`](tidegate_store::Source::Fallback) was never taken from the store.
    pub fn give_back_share(&self, now: Timestamp, charge: &Charge<'_>, terms: Terms) {
        let is_counted = terms.on_failure == OnStoreFailure::Local;
        if let Some(Some(table)) = self.node.table.get().filter(|_| is_counted) {
            let group = self.node.group_of(charge.key, terms);
            let limit = charge.limit.divided(self.node.groups[usize::from(group)].nodes());
            let _ = table.decide_one(now, &Charge { limit: &limit, ..*charge });
        }
    }

    /// Whether the states of a limit fit into this node's own memory, where it is decided while its store
    /// cannot answer.
    pub fn check(&self, limit: &Limit) -> Result<(), TableError> {
        self.node.memory.check(limit)
    }

    /// How many groups of servers there are.
    pub fn groups(&self) -> usize {
        self.node.groups.len()
    }

    /// What has been met so far.
    pub fn stats(&self) -> SharedStats {
        let group = |group: &Group| GroupStats {
            is_well: group.is_well(),
            nodes: group.nodes(),
            fallbacks: group.fallbacks(),
            give_backs_kept: group.kept.count() as u64,
            store: group.store.stats(),
            leases: group.leases.book().stats(),
        };
        let groups: Vec<GroupStats> = self.node.groups.iter().map(group).collect();
        let within: u64 = groups.iter().map(|group| group.store.give_backs_failed).sum();
        let lost: u64 = self.node.groups.iter().map(|group| group.kept.lost()).sum();
        SharedStats {
            groups,
            // ORDERING: a number for people.
            cached_denials: self.node.cached_denials.load(Ordering::Relaxed),
            give_backs_failed: self.node.give_backs.failed() + within + lost,
        }
    }

    /// What this node's own memory holds, at a time; `None` while it has not been needed. It reads all of
    /// it, so it is for metrics, not for every request.
    pub fn memory_stats(&self, now: Timestamp) -> Option<tidegate_store::Stats> {
        Some(self.node.table.get()?.as_ref()?.stats(now))
    }

    /// How many denials are kept that still hold.
    pub fn denials_kept(&self, now: Timestamp) -> usize {
        self.node.denials.count(now)
    }

    /// Gives back what this node still holds, and tells the groups that it goes. For shutdown.
    pub async fn close(&self) {
        for group in 0..self.node.groups.len() {
            drive::close(&GroupLender { node: Arc::clone(&self.node), group }).await;
        }
        self.beats.iter().for_each(AbortHandle::abort);
        for group in &self.node.groups {
            self.node.send_kept(group).await;
            group.leave(self.node.id).await;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.beats.iter().for_each(AbortHandle::abort);
    }
}

async fn open(
    number: usize,
    config: &RedisConfig,
    node: NodeId,
    shared: &SharedConfig,
) -> Result<Group, OpenError> {
    let group = |store, is_well| Group::new(store, config, node, is_well, shared.nodes);
    match RedisStore::connect(config.clone()).await {
        Ok(store) => Ok(group(store, true)),
        Err(error) if shared.store_required => Err(OpenError::Group { group: number, error }),
        Err(error) => {
            tracing::warn!(
                group = number,
                %error,
                "the group cannot be used yet: its limits are decided by their policies"
            );
            Ok(group(RedisStore::open(config.clone()), false))
        }
    }
}
