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
use smallvec::SmallVec;
use tidegate_core::{Decision, Key, State, Timestamp};

use crate::forgotten::Forgotten;
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
pub(crate) struct Guards<'a> {
    wide: &'a Wide,
    set: ShardSet,
    locked: SmallVec<[MutexGuard<'a, Shard>; 2]>,
}

/// Part of the keys, with part of the bytes.
///
/// Records lie side by side and a table of their numbers finds them: a table of the records
/// themselves would be up to half empty, at a hundred bytes a place.
#[derive(Debug)]
pub(crate) struct Shard {
    index: HashTable<u32>,
    records: Vec<Record>,
    queue: BinaryHeap<Reverse<Turn>>,
    /// What the states hold beside their records.
    heap_bytes: usize,
    bytes_max: usize,
    dropped: u64,
    /// When keys had all of their quota whose records are gone.
    forgotten: Forgotten,
}

#[derive(Debug)]
pub(crate) struct Record {
    /// In two halves, which need no 16-byte alignment.
    key: [u64; 2],
    pub(crate) full_at: Timestamp,
    /// The time under which the queue has it. A turn with another time is out of date.
    queued_at: Timestamp,
    pub(crate) state: State,
}

/// When a key was to be full, as of the time it was queued, and what the table is hashed by.
type Turn = (Timestamp, u64);

impl Wide {
    /// Enough that threads hardly ever meet at one. They are numbered by the bits of a [`ShardSet`].
    const SHARDS_MAX: usize = 64;
    /// What a shard has at least, where there is so much: a large state must fit one.
    const SHARD_BYTES: usize = 1 << 20;

    pub(crate) fn new(bytes_max: usize) -> Self {
        let count = Self::shard_count(bytes_max);
        let shard = || Mutex::new(Shard::new(bytes_max / count));
        Self { shards: (0..count).map(|_| shard()).collect() }
    }

    /// The most that one state can take where all of them may take `bytes_max`.
    pub(crate) fn state_bytes_max(bytes_max: usize) -> usize {
        // A state is grown beside the old one, and a record and its turn come with it.
        bytes_max / Self::shard_count(bytes_max) / 2
    }

    fn shard_count(bytes_max: usize) -> usize {
        (bytes_max / Self::SHARD_BYTES).clamp(1, Self::SHARDS_MAX)
    }

    pub(crate) fn shard_of(&self, key: Key) -> ShardSet {
        ShardSet(1 << self.index_of(key))
    }

    fn index_of(&self, key: Key) -> usize {
        // The top bits of the low half; the table inside a shard is hashed by the high half.
        (((key.as_hash() as u64 >> 32) * self.shards.len() as u64) >> 32) as usize
    }

    /// Locks a set of shards, in the order of their numbers, so that no two threads wait for each
    /// other.
    pub(crate) fn lock(&self, set: ShardSet) -> Guards<'_> {
        let chosen = (0..self.shards.len()).filter(|index| set.0 & (1 << index) != 0);
        Guards { wide: self, set, locked: chosen.map(|index| self.shards[index].lock()).collect() }
    }

    pub(crate) fn lock_one(&self, key: Key) -> MutexGuard<'_, Shard> {
        self.shards[self.index_of(key)].lock()
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
        let bit = self.wide.shard_of(key).0;
        let before = (self.set.0 & (bit - 1)).count_ones() as usize;
        &mut self.locked[before]
    }
}

impl Record {
    pub(crate) fn key(&self) -> Key {
        Key::from_hash(u128::from(self.key[0]) << 64 | u128::from(self.key[1]))
    }
}

impl Shard {
    fn new(bytes_max: usize) -> Self {
        Self {
            index: HashTable::new(),
            records: Vec::new(),
            queue: BinaryHeap::new(),
            heap_bytes: 0,
            bytes_max,
            dropped: 0,
            forgotten: Forgotten::default(),
        }
    }

    /// Runs one decision on the state of a key and keeps what follows from it.
    pub(crate) fn update(
        &mut self,
        key: Key,
        now: Timestamp,
        decide: impl FnOnce(Option<State>, Timestamp) -> (Decision, Option<State>),
    ) -> Decision {
        let Some(place) = self.find(key) else {
            let starts_at = self.starts_at(now);
            let (decision, next) = decide(None, starts_at);
            if let Some(state) = next {
                self.insert(key, starts_at.plus(decision.reset_after), state, now);
                self.tidy_up(now);
            }
            return decision;
        };
        let record = &mut self.records[place];
        let state = std::mem::replace(&mut record.state, NO_STATE);
        self.heap_bytes -= heap_bytes_of(&state);
        let (decision, next) = decide(Some(state), now);
        if let Some(state) = next {
            self.heap_bytes += heap_bytes_of(&state);
            record.state = state;
            record.full_at = now.plus(decision.reset_after);
            self.keep_ceiling(now);
        } else {
            self.note_full(now, now);
            self.remove_at(place);
        }
        decision
    }

    /// The instant at which a key without a record [starts anew](Forgotten::starts_at).
    pub(crate) fn starts_at(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_micros(self.forgotten.starts_at(now.as_micros()))
    }

    /// Remembers when a key was full whose record goes at `now`.
    fn note_full(&self, at: Timestamp, now: Timestamp) {
        self.forgotten.note(at.as_micros(), now.as_micros());
    }

    /// The state of a key, as it is.
    pub(crate) fn state(&self, key: Key) -> Option<&State> {
        self.find(key).map(|place| &self.records[place].state)
    }

    pub(crate) fn remove(&mut self, key: Key) {
        if let Some(place) = self.find(key) {
            self.remove_at(place);
        }
    }

    /// Keeps a state, in place of the one the key had.
    pub(crate) fn put(&mut self, key: Key, full_at: Timestamp, state: State, now: Timestamp) {
        self.remove(key);
        self.insert(key, full_at, state, now);
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
        self.index.allocation_size()
            + self.records.capacity() * size_of::<Record>()
            + self.queue.capacity() * size_of::<Turn>()
            + self.heap_bytes
    }

    fn find(&self, key: Key) -> Option<usize> {
        let halves = halves_of(key);
        let same = |&place: &u32| self.records[place as usize].key == halves;
        self.index.find(halves[0], same).map(|&place| place as usize)
    }

    fn insert(&mut self, key: Key, full_at: Timestamp, state: State, now: Timestamp) {
        let bytes = heap_bytes_of(&state);
        self.make_room(bytes, now);
        self.heap_bytes += bytes;
        let place = self.records.len() as u32;
        let halves = halves_of(key);
        let records = &mut self.records;
        if records.len() == records.capacity() {
            records.reserve_exact(growth(records.len()));
        }
        records.push(Record { key: halves, full_at, queued_at: full_at, state });
        self.index.insert_unique(halves[0], place, |&place| records[place as usize].key[0]);
        if self.queue.len() > 2 * self.records.len() + 16 {
            self.rebuild_queue();
        } else {
            self.queue_up(full_at, halves[0]);
        }
    }

    /// Removes a record and puts the last one in its place.
    fn remove_at(&mut self, place: usize) {
        let last = self.records.len() - 1;
        let hash = self.records[place].key[0];
        if let Ok(found) = self.index.find_entry(hash, |&other| other as usize == place) {
            found.remove();
        }
        let moved = self.records[last].key[0];
        if place != last
            && let Some(number) = self.index.find_mut(moved, |&other| other as usize == last)
        {
            *number = place as u32;
        }
        let record = self.records.swap_remove(place);
        self.heap_bytes -= heap_bytes_of(&record.state);
    }

    /// Drops what is nearest to full until a record can be added whose state holds `heap_bytes`. One
    /// that is larger than all of the shard stands alone in it.
    fn make_room(&mut self, heap_bytes: usize, now: Timestamp) {
        // Removals leave marks in the index that count as used until it is written anew.
        let index = &self.index;
        if index.len() == index.capacity() && index.len() < index.num_buckets() / 4 * 3 {
            self.rebuild_index();
        }
        while self.bytes() + self.growth_bytes() + heap_bytes > self.bytes_max
            && self.drop_nearest(now)
        {}
    }

    /// Drops what is nearest to full until the ceiling is kept again, after a state has grown.
    fn keep_ceiling(&mut self, now: Timestamp) {
        while self.bytes() > self.bytes_max && self.drop_nearest(now) {}
    }

    /// What one more record makes the lists grow by: only a full one grows.
    fn growth_bytes(&self) -> usize {
        let grown = |len, capacity| if len == capacity { growth(len) } else { 0 };
        let records = grown(self.records.len(), self.records.capacity());
        let turns = grown(self.queue.len(), self.queue.capacity());
        let is_full = self.index.len() == self.index.capacity();
        let index_bytes = if is_full { self.index.allocation_size() } else { 0 };
        records * size_of::<Record>() + turns * size_of::<Turn>() + index_bytes
    }

    /// Drops the record that is nearest to full; `false` where there is none.
    fn drop_nearest(&mut self, now: Timestamp) -> bool {
        let Some(place) = self.first_turn(usize::MAX) else { return false };
        self.drop_first(place, now);
        if self.records.len() < self.records.capacity() / 2 {
            self.give_back_memory();
        }
        true
    }

    /// The lists have grown for more and smaller states than there are now.
    fn give_back_memory(&mut self) {
        let room = self.records.len() + growth(self.records.len());
        self.records.shrink_to(room);
        self.rebuild_queue();
        self.queue.shrink_to(room);
        let (records, index_room) = (&self.records, room.min(self.index.capacity()));
        self.index.shrink_to(index_room, |&place| records[place as usize].key[0]);
    }

    /// Frees a few places whose time has passed, so that the shard holds what is active.
    fn tidy_up(&mut self, now: Timestamp) {
        const TURNS_MAX: usize = 2;
        for _ in 0..TURNS_MAX {
            match self.first_turn(TURNS_MAX) {
                Some(place) if self.records[place].full_at < now => self.drop_first(place, now),
                _ => break,
            }
        }
    }

    /// Drops the record that is first in the queue. Only a live one counts.
    fn drop_first(&mut self, place: usize, now: Timestamp) {
        let full_at = self.records[place].full_at;
        if full_at < now {
            self.note_full(full_at, now);
        } else {
            self.dropped += 1;
        }
        self.queue.pop();
        self.remove_at(place);
    }

    /// The record that is nearest to full, which is then first in the queue, after bringing at most
    /// `corrections_max` turns that are out of date where they belong.
    fn first_turn(&mut self, corrections_max: usize) -> Option<usize> {
        for _ in 0..corrections_max {
            let Reverse((queued_at, hash)) = *self.queue.peek()?;
            let records = &self.records;
            let queued = |&place: &u32| {
                let record = &records[place as usize];
                record.key[0] == hash && record.queued_at == queued_at
            };
            let place = self.index.find(hash, queued).map(|&place| place as usize);
            let full_at = place.map(|place| self.records[place].full_at);
            match (place, full_at) {
                (Some(place), Some(full_at)) if full_at > queued_at => {
                    self.queue.pop();
                    self.records[place].queued_at = full_at;
                    self.queue_up(full_at, hash);
                }
                (Some(place), _) => return Some(place),
                (None, _) => {
                    self.queue.pop();
                }
            }
        }
        None
    }

    fn queue_up(&mut self, full_at: Timestamp, hash: u64) {
        if self.queue.len() == self.queue.capacity() {
            self.queue.reserve_exact(growth(self.queue.len()));
        }
        self.queue.push(Reverse((full_at, hash)));
    }

    fn rebuild_index(&mut self) {
        let records = &self.records;
        self.index.clear();
        for (place, record) in records.iter().enumerate() {
            let hash_of = |&place: &u32| records[place as usize].key[0];
            self.index.insert_unique(record.key[0], place as u32, hash_of);
        }
    }

    /// Leaves out the turns of records that are gone, which outnumber the others.
    fn rebuild_queue(&mut self) {
        self.queue.clear();
        for place in 0..self.records.len() {
            let record = &mut self.records[place];
            record.queued_at = record.full_at;
            let (full_at, hash) = (record.full_at, record.key[0]);
            self.queue_up(full_at, hash);
        }
    }
}

/// How many places to add to a list of `len`: an eighth, so that little of it lies idle.
fn growth(len: usize) -> usize {
    (len / 8).max(4)
}

/// What stands in a record while its state is being decided on.
const NO_STATE: State =
    State::Window(tidegate_core::fixed_window::Window { ends_at: Timestamp::ZERO, count: 0 });

fn halves_of(key: Key) -> [u64; 2] {
    [(key.as_hash() >> 64) as u64, key.as_hash() as u64]
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
