//! States that do not fit an entry: logs, slots, leases, and numbers too large to pack. Likewise
//! bounded in bytes, and likewise the first to be forgotten is the one that would soonest be full.
//!
//! A shard is a hash table and a queue of the same keys by the time at which they are full. The
//! queue is lazy: a key that is used again stays where it is, and is put in its new place only when
//! it comes up for eviction. So a decision costs one look-up, and keeping order costs next to
//! nothing.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::HashTable;
use tidegate_core::{Decision, Key, SKEW_MAX, State, Timestamp};

use crate::sync::{Mutex, MutexGuard};

/// All shards.
#[derive(Debug)]
pub(crate) struct Wide {
    shards: Box<[Mutex<Shard>]>,
}

/// A set of shards, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShardSet(u64);

/// Locked shards, in the order of their numbers.
#[derive(Default)]
pub(crate) struct Guards<'a> {
    set: ShardSet,
    guards: Vec<MutexGuard<'a, Shard>>,
}

/// Part of the keys, with part of the bytes.
#[derive(Debug)]
pub(crate) struct Shard {
    records: HashTable<Record>,
    queue: BinaryHeap<Reverse<Turn>>,
    /// What the states hold beside their records.
    heap_bytes: usize,
    bytes_max: usize,
    dropped: u64,
    /// The latest time at which a record was removed because its key had all of its quota. A thread
    /// whose clock reading is older starts anew no earlier than that.
    forgotten: Timestamp,
}

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) full_at: Timestamp,
    /// The time under which the queue has it. A turn with another time is out of date.
    queued_at: Timestamp,
    pub(crate) state: State,
}

/// When a key was to be full, as of the time it was queued, and what the table is hashed by.
type Turn = (Timestamp, u64);

impl Wide {
    const SHARDS: usize = 64;

    pub(crate) fn new(bytes_max: usize) -> Self {
        let shard = || Mutex::new(Shard::new(bytes_max / Self::SHARDS));
        Self { shards: (0..Self::SHARDS).map(|_| shard()).collect() }
    }

    pub(crate) fn shard_of(key: Key) -> ShardSet {
        ShardSet(1 << Self::index_of(key))
    }

    fn index_of(key: Key) -> usize {
        // The top bits of the low half; the table inside a shard is hashed by the high half.
        (key.as_hash() as u64 >> 58) as usize % Self::SHARDS
    }

    /// Locks a set of shards, in the order of their numbers, so that no two threads wait for each
    /// other.
    pub(crate) fn lock(&self, set: ShardSet) -> Guards<'_> {
        let chosen = (0..Self::SHARDS).filter(|index| set.0 & (1 << index) != 0);
        Guards { set, guards: chosen.map(|index| self.shards[index].lock()).collect() }
    }

    pub(crate) fn lock_one(&self, key: Key) -> MutexGuard<'_, Shard> {
        self.shards[Self::index_of(key)].lock()
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(Mutex::lock)
    }
}

impl ShardSet {
    #[must_use]
    pub(crate) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Guards<'_> {
    pub(crate) fn holds(&self, set: ShardSet) -> bool {
        self.set.contains(set)
    }

    /// The locked shard of a key. The set that was locked must hold it.
    pub(crate) fn shard(&mut self, key: Key) -> &mut Shard {
        let bit = Wide::shard_of(key).0;
        let before = (self.set.0 & (bit - 1)).count_ones() as usize;
        &mut self.guards[before]
    }
}

impl Shard {
    fn new(bytes_max: usize) -> Self {
        Self {
            records: HashTable::new(),
            queue: BinaryHeap::new(),
            heap_bytes: 0,
            bytes_max,
            dropped: 0,
            forgotten: Timestamp::ZERO,
        }
    }

    /// Runs one decision on the state of a key and keeps what follows from it.
    pub(crate) fn update(
        &mut self,
        key: Key,
        now: Timestamp,
        decide: impl FnOnce(Option<State>, Timestamp) -> (Decision, Option<State>),
    ) -> Decision {
        let hash = hash_of(key);
        let Some(record) = self.records.find_mut(hash, |record| record.key == key) else {
            let late = self.forgotten > now && self.forgotten.since(now) <= SKEW_MAX;
            let now = if late { self.forgotten } else { now };
            let (decision, next) = decide(None, now);
            if let Some(state) = next {
                self.insert(key, now.plus(decision.reset_after), state);
                self.tidy_up(now);
            }
            return decision;
        };
        let state = std::mem::replace(&mut record.state, NO_STATE);
        self.heap_bytes -= heap_bytes_of(&state);
        let (decision, next) = decide(Some(state), now);
        if let Some(state) = next {
            self.heap_bytes += heap_bytes_of(&state);
            record.state = state;
            record.full_at = now.plus(decision.reset_after);
            self.keep_ceiling(0);
        } else {
            self.forgotten = self.forgotten.max(now);
            self.remove(key);
        }
        decision
    }

    /// The state of a key, as it is.
    pub(crate) fn state(&self, key: Key) -> Option<&State> {
        self.records.find(hash_of(key), |record| record.key == key).map(|record| &record.state)
    }

    pub(crate) fn remove(&mut self, key: Key) {
        if let Ok(found) = self.records.find_entry(hash_of(key), |record| record.key == key) {
            let (record, _) = found.remove();
            self.heap_bytes -= heap_bytes_of(&record.state);
        }
    }

    /// Keeps a state, in place of the one the key had.
    pub(crate) fn put(&mut self, key: Key, full_at: Timestamp, state: State) {
        self.remove(key);
        self.insert(key, full_at, state);
    }

    fn insert(&mut self, key: Key, full_at: Timestamp, state: State) {
        let bytes = heap_bytes_of(&state);
        self.keep_ceiling(bytes + size_of::<Record>());
        self.heap_bytes += bytes;
        let record = Record { key, full_at, queued_at: full_at, state };
        self.records.insert_unique(hash_of(key), record, |record| hash_of(record.key));
        if self.queue.len() > 2 * self.records.len() + 16 {
            self.rebuild_queue();
        } else {
            self.queue.push(Reverse((full_at, hash_of(key))));
        }
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// How many live keys had to go for want of room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes in use, all included.
    pub(crate) fn bytes(&self) -> usize {
        self.records.allocation_size() + self.queue.capacity() * size_of::<Turn>() + self.heap_bytes
    }

    /// Drops what is nearest to full until there is room for `more` bytes.
    fn keep_ceiling(&mut self, more: usize) {
        while !self.records.is_empty() && self.bytes_with(more) > self.bytes_max {
            let Some((_, hash)) = self.first_turn(usize::MAX) else { break };
            self.take_turn(hash);
            self.dropped += 1;
        }
    }

    fn bytes_with(&self, more: usize) -> usize {
        // A full table is about to double.
        let full = more > 0 && self.records.len() == self.records.capacity();
        self.bytes() + more + if full { self.records.allocation_size() } else { 0 }
    }

    /// Frees a few places whose time has passed, so that the table holds what is active.
    fn tidy_up(&mut self, now: Timestamp) {
        const TURNS_MAX: usize = 2;
        for _ in 0..TURNS_MAX {
            match self.first_turn(TURNS_MAX) {
                Some((full_at, hash)) if full_at < now => {
                    self.forgotten = self.forgotten.max(full_at);
                    self.take_turn(hash);
                }
                _ => break,
            }
        }
    }

    /// The turn of the record that is nearest to full, after bringing at most `corrections_max` that
    /// are out of date where they belong.
    fn first_turn(&mut self, corrections_max: usize) -> Option<Turn> {
        for _ in 0..corrections_max {
            let Reverse((queued_at, hash)) = *self.queue.peek()?;
            let in_queue = |record: &Record| hash_of(record.key) == hash;
            match self.records.find_mut(hash, in_queue) {
                Some(record) if record.queued_at == queued_at => {
                    if record.full_at <= queued_at {
                        return Some((queued_at, hash));
                    }
                    self.queue.pop();
                    record.queued_at = record.full_at;
                    self.queue.push(Reverse((record.full_at, hash)));
                }
                _ => {
                    self.queue.pop();
                }
            }
        }
        None
    }

    /// Takes the first of the queue, whose record hashes to `hash`, and removes both.
    fn take_turn(&mut self, hash: u64) {
        self.queue.pop();
        if let Ok(found) = self.records.find_entry(hash, |record| hash_of(record.key) == hash) {
            let (record, _) = found.remove();
            self.heap_bytes -= heap_bytes_of(&record.state);
        }
    }

    /// Leaves out the turns of records that are gone, which outnumber the others.
    fn rebuild_queue(&mut self) {
        self.queue.clear();
        for record in &mut self.records {
            record.queued_at = record.full_at;
            self.queue.push(Reverse((record.full_at, hash_of(record.key))));
        }
    }
}

/// What stands in a record while its state is being decided on.
const NO_STATE: State =
    State::Window(tidegate_core::fixed_window::Window { ends_at: Timestamp::ZERO, count: 0 });

fn hash_of(key: Key) -> u64 {
    (key.as_hash() >> 64) as u64
}

/// What a state keeps outside of its record, with what the allocator adds.
fn heap_bytes_of(state: &State) -> usize {
    const ALLOCATION_BYTES: usize = 16;
    match state {
        State::Bucket(_) | State::Steps(_) | State::Window(_) | State::Counters(_) => 0,
        State::Slots(slots) => slots.heap_bytes() + ALLOCATION_BYTES,
        State::Log(log) => log.heap_bytes() + ALLOCATION_BYTES,
        State::Leases(leases) => leases.heap_bytes() + ALLOCATION_BYTES,
    }
}
