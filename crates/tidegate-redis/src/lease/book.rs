//! The node's side of leases: who has how much at hand, and what to ask the store for. It does no I/O and
//! reads no clock: it is told what time it is, and hands out the requests that somebody else sends.
//!
//! A key begins *cold*: it is only counted, and decided strictly. One that is asked for often becomes
//! *hot*, and the book opens a lease. How much it wants follows from how much was spent lately, so
//! that a steady key asks about a hundred times a second, however fast it is.
//!
//! Times are those of the node's own clock. It may show anything, but must not run back, nor more than
//! some percent too slowly. A request counts as sent at the latest time that the key was asked for,
//! which is no later than it really is.

mod slot;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use hashbrown::HashTable;
use parking_lot::Mutex;
use tidegate_core::{Decision, Key, Limit, Span, Timestamp};

use self::slot::{Slot, Step};
use super::{Ask, Holder, LeaseStats, Told};

/// The leases of one node in one deployment.
pub struct Book {
    node: u64,
    epochs: AtomicU32,
    /// For how many times the shortest time to spend ahead, by how many leases there are.
    stretch: AtomicU64,
    shards: Box<[Mutex<Shard>]>,
}

/// What becomes of a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a take that nobody answers is lost"]
pub struct Spend {
    /// How it is decided.
    pub outcome: Outcome,
    /// Whether [`Book::collect`] has something to send that it did not have before.
    pub due: bool,
}

/// How a take is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is: it was spent from a lease, or the store has refused as much a moment ago.
    Decided(Decision),
    /// Not yet: the store is being asked. The take is tried again when the book has the answer, which is
    /// when [`Book::answers`] is no longer this.
    Wait(u32),
    /// Not here: no lease is worth it, or none is to be had.
    Strict,
}

/// How far a lease was when something was spent of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    epoch: u32,
    /// Of the latest request. A lease has made one before anything is spent of it.
    sequence: u32,
}

/// A request to send.
#[derive(Clone, Debug)]
pub struct Call {
    /// Whose quota.
    pub key: Key,
    /// The limit that it is under.
    pub limit: Limit,
    /// What is asked.
    pub ask: Ask,
}

/// The most keys that a book looks after, cold ones included. Those beyond are decided strictly.
pub const KEYS_MAX: usize = 16_384;

/// Keys are spread over so many locks.
const SHARDS: usize = 64;

struct Shard {
    slots: HashTable<Slot>,
    /// Keys with something to send.
    due: Vec<Key>,
    /// Keys with a lease.
    held: Vec<Key>,
    /// When cold keys were last thrown out.
    cleared_at: Timestamp,
    /// All but what there is now.
    tally: LeaseStats,
}

impl Book {
    /// A book without leases, for the node of this number. Two nodes, and two lives of one node, must
    /// not have the same.
    pub fn new(node: u64) -> Self {
        let shard = || Shard {
            slots: HashTable::new(),
            due: Vec::new(),
            held: Vec::new(),
            cleared_at: Timestamp::ZERO,
            tally: LeaseStats::default(),
        };
        let shards = (0..SHARDS).map(|_| Mutex::new(shard())).collect();
        Self { node, epochs: AtomicU32::new(0), stretch: AtomicU64::new(1), shards }
    }

    /// Takes `cost` of a limit that [can be leased](Limit::is_leasable).
    #[inline]
    pub fn spend(&self, key: Key, limit: &Limit, cost: u64, now: Timestamp) -> Spend {
        let mut shard = self.shard(key).lock();
        let shard = &mut *shard;
        let Some(slot) = shard.slots.find_mut(hash(key), |slot| slot.key == key) else {
            shard.watch(key, limit, cost, now);
            return Spend { outcome: Outcome::Strict, due: false };
        };
        if let Some((decision, low)) = slot.spend(limit, cost, now) {
            let due = low && slot.mark_due();
            if due {
                shard.due.push(key);
            }
            return Spend { outcome: Outcome::Decided(decision), due };
        }
        let (step, held) = (slot.miss(limit, cost, now, || self.next_holder()), slot.is_new());
        if held {
            shard.held.push(key);
        }
        let due = match step {
            Step::Wait | Step::Told { due: true, .. } => slot.mark_due(),
            Step::Told { due: false, .. } => false,
        };
        if due {
            shard.due.push(key);
        }
        let outcome = match step {
            Step::Wait => Outcome::Wait(slot.answers()),
            Step::Told { decision: Some(decision), .. } => Outcome::Decided(decision),
            Step::Told { decision: None, .. } => {
                slot.leave_to_store(cost, now);
                Outcome::Strict
            }
        };
        Spend { outcome, due }
    }

    /// Whether a take is for the store to decide, beside whatever else it decides of the same request: the
    /// key is cold, or no lease is to be had. It counts as asked for. Where not, [`Book::spend`] is next.
    pub fn is_for_store(&self, key: Key, limit: &Limit, cost: u64, now: Timestamp) -> bool {
        let mut shard = self.shard(key).lock();
        let shard = &mut *shard;
        let Some(slot) = shard.slots.find_mut(hash(key), |slot| slot.key == key) else {
            shard.watch(key, limit, cost, now);
            return true;
        };
        let is_for_store = slot.is_for_store(limit, cost, now, || self.next_holder());
        if slot.is_new() {
            shard.held.push(key);
        }
        is_for_store
    }

    /// Takes `cost` if so much is at hand, and otherwise takes no note of it.
    #[inline]
    pub fn spend_at_hand(
        &self,
        key: Key,
        limit: &Limit,
        cost: u64,
        now: Timestamp,
    ) -> Option<(Decision, Mark)> {
        let mut shard = self.shard(key).lock();
        let shard = &mut *shard;
        let slot = shard.slots.find_mut(hash(key), |slot| slot.key == key)?;
        let (decision, low) = slot.spend(limit, cost, now)?;
        let mark = slot.mark();
        if low && slot.mark_due() {
            shard.due.push(key);
        }
        Some((decision, mark))
    }

    /// Undoes a take that was spent from a lease at this time, if the store has not been told of it. If
    /// not, it is given back as any other. A time that is too early does no harm.
    ///
    /// Where it is not known that a lease paid for it, `strict_within` is how long a take may have been on its way
    /// to the store: as much as was decided there is given back there. Otherwise the store's charge would stay,
    /// and be over before that of the take which is undone in its place.
    pub fn give_back(
        &self,
        key: Key,
        cost: u64,
        taken_at: Timestamp,
        strict_within: Option<Span>,
        now: Timestamp,
    ) -> Option<Decision> {
        self.with(key, |slot, _| slot.give_back(cost, taken_at, strict_within, now)).flatten()
    }

    /// The same for one that [`Book::spend_at_hand`] has just given this mark.
    pub fn undo(&self, key: Key, cost: u64, mark: Mark, now: Timestamp) -> Option<Decision> {
        self.with(key, |slot, _| slot.undo(cost, mark, now)).flatten()
    }

    /// Whether what is given back is for the store, beside whatever else it decides of the same request: it has
    /// been told of all that was spent. Then it counts as given back there. Where not, [`Book::give_back`] is next.
    pub fn is_return_for_store(
        &self,
        key: Key,
        cost: u64,
        taken_at: Timestamp,
        strict_within: Span,
    ) -> bool {
        let returned = |slot: &mut Slot| slot.is_return_for_store(cost, taken_at, strict_within);
        self.with(key, |slot, _| returned(slot)).unwrap_or(true)
    }

    /// How much can be spent of this key now without asking.
    pub fn spendable(&self, key: Key, limit: &Limit, now: Timestamp) -> u64 {
        self.with(key, |slot, _| slot.spendable(limit, now)).unwrap_or(0)
    }

    /// How many requests for this key have been answered or given up, modulo 2^32.
    pub fn answers(&self, key: Key) -> u32 {
        self.with(key, |slot, _| slot.answers()).unwrap_or(0)
    }

    /// Takes note of a take that is left to the store after it waited.
    pub fn leave_to_store(&self, key: Key, cost: u64, now: Timestamp) {
        self.with(key, |slot, _| slot.leave_to_store(cost, now));
    }

    /// Forgets that the store has refused something.
    pub fn lift(&self, key: Key) {
        self.with(key, |slot, _| slot.lift());
    }

    /// Forgets all that the store has refused.
    pub fn lift_all(&self) {
        for shard in &self.shards {
            shard.lock().slots.iter_mut().for_each(Slot::lift);
        }
    }

    /// Stops spending of a key that is about to be reset in the store. Gives the lease, if there is one,
    /// for [`Book::after_reset`].
    pub fn before_reset(&self, key: Key) -> Option<Holder> {
        self.with(key, Slot::before_reset).flatten()
    }

    /// Gives a lease back after its key was reset, or could not be.
    pub fn after_reset(&self, key: Key, holder: Holder, done: bool) {
        let mut shard = self.shard(key).lock();
        let shard = &mut *shard;
        if let Some(slot) = shard.slots.find_mut(hash(key), |slot| slot.key == key)
            && slot.after_reset(holder, done)
            && slot.mark_due()
        {
            shard.due.push(key);
        }
    }

    /// The requests to send, each once. They count as sent when this is called.
    pub fn collect(&self, now: Timestamp) -> Vec<Call> {
        let mut calls = Vec::new();
        // ORDERING: a number that stands for itself.
        let stretch = self.stretch.load(Ordering::Relaxed);
        for shard in &self.shards {
            let mut shard = shard.lock();
            let shard = &mut *shard;
            for key in shard.due.drain(..) {
                let slot = shard.slots.find_mut(hash(key), |slot| slot.key == key);
                calls.extend(slot.and_then(|slot| slot.call(now, stretch, &mut shard.tally)));
            }
        }
        calls
    }

    /// Takes note of the answer to a request. Gives whether [`Book::collect`] has something to send that it
    /// did not have before.
    pub fn answered(&self, key: Key, ask: &Ask, told: &Told, now: Timestamp) -> bool {
        let mut shard = self.shard(key).lock();
        let shard = &mut *shard;
        let Some(slot) = shard.slots.find_mut(hash(key), |slot| slot.key == key) else {
            return false;
        };
        let due = slot.answered(ask, told, now, &mut shard.tally) && slot.mark_due();
        if due {
            shard.due.push(key);
        }
        due
    }

    /// Takes note that a request has no answer, and will have none that is of use.
    pub fn lost(&self, key: Key, ask: &Ask, now: Timestamp) {
        self.with(key, |slot, tally| slot.lost(ask, now, tally));
    }

    /// Looks after leases that nobody spends from: extends, gives back, forgets. To be called every
    /// [`TICK`], with [`Book::collect`] after it. Gives how many leases there are.
    pub fn tick(&self, now: Timestamp) -> usize {
        let held = self.visit(|slot, tally| slot.tick(now, tally));
        // ORDERING: as in `collect`.
        let stretch = (held / STRETCH_KEYS).clamp(1, STRETCH_MAX) as u64;
        self.stretch.store(stretch, Ordering::Relaxed);
        held
    }

    /// Ends all leases: from now on nothing is spent, and [`Book::collect`] has what is to be sent.
    /// Gives how many are left.
    pub fn close(&self) -> usize {
        self.visit(|slot, _| slot.close())
    }

    /// How much is at hand for a key, whether it can still be spent or not.
    pub fn at_hand(&self, key: Key) -> u64 {
        self.with(key, |slot, _| slot.at_hand()).unwrap_or(0)
    }

    /// Calls `visit` for each key with a lease; those for which it gives `true` have something to send.
    fn visit(&self, mut visit: impl FnMut(&mut Slot, &mut LeaseStats) -> bool) -> usize {
        let mut count = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            let Shard { slots, due, held, tally, .. } = &mut *shard;
            held.retain(|&key| {
                let Some(slot) = slots.find_mut(hash(key), |slot| slot.key == key) else {
                    return false;
                };
                if visit(slot, tally) && slot.mark_due() {
                    due.push(key);
                }
                slot.stays_held()
            });
            count += held.len();
        }
        count
    }

    /// What all leases have come to so far. It looks at each, so it is for metrics, not for requests.
    pub fn stats(&self) -> LeaseStats {
        let mut all = LeaseStats::default();
        for shard in &self.shards {
            let shard = shard.lock();
            all = all.plus(shard.tally);
            for key in &shard.held {
                let slot = shard.slots.find(hash(*key), |slot| slot.key == *key);
                if let Some(slot) = slot.filter(|slot| slot.has_lease()) {
                    all.held += 1;
                    all.at_hand += slot.at_hand();
                }
            }
        }
        all
    }

    fn with<T>(&self, key: Key, change: impl FnOnce(&mut Slot, &mut LeaseStats) -> T) -> Option<T> {
        let mut shard = self.shard(key).lock();
        let Shard { slots, tally, .. } = &mut *shard;
        let slot = slots.find_mut(hash(key), |slot| slot.key == key)?;
        Some(change(slot, tally))
    }

    fn shard(&self, key: Key) -> &Mutex<Shard> {
        // The table inside uses the lowest and the highest bits of the hash.
        &self.shards[(key.as_hash() >> 32) as usize % SHARDS]
    }

    fn next_holder(&self) -> Holder {
        // ORDERING: a number that nobody else gets, and nothing else.
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed);
        Holder { node: self.node, epoch }
    }
}

/// How often [`Book::tick`] is to be called.
pub const TICK: Span = Span::from_millis(20);

/// With so many leases each asks a hundred times a second; with more of them each asks less often, so that
/// all together do not ask more often...
const STRETCH_KEYS: usize = 10;

/// ...down to ten times, for a lease does not last.
const STRETCH_MAX: usize = 10;

/// After how long a key that nobody asks for may be forgotten.
const COLD_AFTER: Span = Span::from_millis(100);

impl Shard {
    /// Begins to count a key, where there is room for it.
    #[cold]
    fn watch(&mut self, key: Key, limit: &Limit, cost: u64, now: Timestamp) {
        if self.slots.len() >= KEYS_MAX / SHARDS {
            // Not more often than anything can have become cold.
            if now.since(self.cleared_at) < COLD_AFTER {
                return;
            }
            self.cleared_at = now;
            self.slots.retain(|slot| !slot.may_go(now.minus(COLD_AFTER)));
            if self.slots.len() >= KEYS_MAX / SHARDS {
                return;
            }
        }
        let slot = Slot::new(key, limit, cost, now);
        self.slots.insert_unique(hash(key), slot, |slot| hash(slot.key));
    }
}

/// Keys are hashes already, made with a secret. The limits of one rule agree in the lowest bits.
fn hash(key: Key) -> u64 {
    (key.as_hash() ^ key.as_hash() >> 48) as u64
}

#[cfg(test)]
mod tests;
