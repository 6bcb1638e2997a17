//! The leases of one key, in the order in which they were taken or last renewed. It knows nothing of limits; which
//! of them have expired is decided by the algorithm.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Concurrency;
use crate::sliding_log::varint;
use crate::{LeaseId, Timestamp};

/// The leases of one key, and what is held without a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leases {
    /// The highest number given so far, also to a lease that is gone.
    last_id: u64,
    /// Oldest first and, since numbers only go up, by number as well, but for those that were renewed.
    by_age: VecDeque<Lease>,
    /// The places of all leases, and those without one. At most 2^20 times 2^32 and once 2^52, so
    /// it cannot overflow.
    held: u64,
    /// Places that debits hold beyond the most leases that are kept: they come free by time only.
    unnamed: u64,
    /// When the newest of those was taken.
    unnamed_at: Timestamp,
}

/// When it was taken or last renewed, and not when it expires, so that a changed expiry applies at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    id: u64,
    taken_at: Timestamp,
    cost: u32,
}

/// The most that one lease holds. A debit beyond it, four thousand times the largest limit, is cut
/// to it, and then nothing of that lease is refunded: what was cut off is not known any more, and a
/// refund must not give back what is still owed. A release gives all of it back.
const COST_MAX: u64 = u32::MAX as u64;

/// The most that is held without a lease; what a debit adds beyond it is cut.
const UNNAMED_MAX: u64 = 1 << 52;

/// From here on (the year 2398) numbers count up without the clock, so that 64 bits hold them and
/// 2^62 more takes.
const CLOCK_MAX_MICROS: u64 = 3 << 52;

/// The bits below the clock in a number: so many leases a microsecond before it runs ahead.
const ID_BITS: u32 = 10;

/// The highest number that is read back, which leaves 2^61 that can follow it.
const ID_READ_MAX: u64 = 7 << 61;

impl Leases {
    pub(super) const fn new() -> Self {
        Self {
            last_id: 0,
            by_age: VecDeque::new(),
            held: 0,
            unnamed: 0,
            unnamed_at: Timestamp::ZERO,
        }
    }

    /// Adds a lease of `cost` places.
    ///
    /// Its number is above every other of this state, and is led by the clock, so that a state which
    /// was dropped when its last lease came back does not give the same numbers again, unless the
    /// clock stands still or runs backwards.
    pub(super) fn add(&mut self, at: Timestamp, cost: u64) -> Option<LeaseId> {
        let by_clock = at.as_micros().min(CLOCK_MAX_MICROS) << ID_BITS | 1;
        self.last_id = self.last_id.saturating_add(1).max(by_clock);
        let cost = cost.min(COST_MAX) as u32;
        self.by_age.push_back(Lease { id: self.last_id, taken_at: at, cost });
        self.held += u64::from(cost);
        LeaseId::from_u64(self.last_id)
    }

    /// Adds places that no lease gives back. They all count as taken now, the earlier ones too:
    /// one time for all of them is what bounds the memory, and the latest errs towards denial.
    pub(super) fn add_unnamed(&mut self, at: Timestamp, cost: u64) {
        let unnamed = self.unnamed.saturating_add(cost).min(UNNAMED_MAX);
        self.held += unnamed - self.unnamed;
        self.unnamed = unnamed;
        self.unnamed_at = at;
    }

    /// Drops what was taken at or before `end`.
    pub(super) fn drop_until(&mut self, end: Timestamp) {
        while let Some(lease) = self.by_age.pop_front_if(|lease| lease.taken_at <= end) {
            self.held -= u64::from(lease.cost);
        }
        if self.unnamed_at <= end {
            self.held -= self.unnamed;
            self.unnamed = 0;
        }
        self.give_back_memory();
    }

    /// Moves what was taken after `now` to `now`.
    pub(super) fn pull_back_to(&mut self, now: Timestamp) {
        for lease in self.by_age.iter_mut().rev().take_while(|lease| lease.taken_at > now) {
            lease.taken_at = now;
        }
        self.unnamed_at = self.unnamed_at.min(now);
    }

    /// Gives back a lease; one that is not there changes nothing.
    pub(super) fn release(&mut self, lease: LeaseId) {
        if let Some(lease) = self.take_out(lease) {
            self.held -= u64::from(lease.cost);
            self.give_back_memory();
        }
    }

    /// Has a lease count as taken `at`, which is no earlier than any other; whether it is there.
    pub(super) fn renew(&mut self, lease: LeaseId, at: Timestamp) -> bool {
        let renewed = self.take_out(lease).map(|lease| Lease { taken_at: at, ..lease });
        self.by_age.extend(renewed);
        renewed.is_some()
    }

    /// A lease that was never renewed stands among others by its number, most often in order. Those that
    /// were are looked for one by one, which is no more work than closing the gap.
    fn take_out(&mut self, lease: LeaseId) -> Option<Lease> {
        let id = lease.as_u64();
        let by_number = self.by_age.binary_search_by_key(&id, |lease| lease.id).ok();
        let index = by_number.or_else(|| self.by_age.iter().position(|lease| lease.id == id))?;
        self.by_age.remove(index)
    }

    /// Gives back up to `cost` places of the leases taken at exactly `at`, newest first.
    pub(super) fn refund(&mut self, at: Timestamp, mut cost: u64) {
        let mut index = self.by_age.partition_point(|lease| lease.taken_at <= at);
        while cost > 0 && index > 0 {
            index -= 1;
            let Some(lease) = self.by_age.get_mut(index).filter(|lease| lease.taken_at == at)
            else {
                return;
            };
            if u64::from(lease.cost) == COST_MAX {
                continue;
            }
            let back = u64::from(lease.cost).min(cost);
            lease.cost -= back as u32;
            self.held -= back;
            cost -= back;
            if lease.cost == 0 {
                self.by_age.remove(index);
            }
        }
    }

    /// What is held, with the time it was taken at, oldest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        let middle = self.by_age.partition_point(|lease| lease.taken_at <= self.unnamed_at);
        let entry = |lease: &Lease| (lease.taken_at, u64::from(lease.cost));
        let unnamed = (self.unnamed > 0).then_some((self.unnamed_at, self.unnamed));
        let before = self.by_age.range(..middle).map(entry);
        before.chain(unnamed).chain(self.by_age.range(middle..).map(entry))
    }

    /// When the newest of what is held was taken.
    pub(super) fn newest_at(&self) -> Timestamp {
        let lease_at = self.by_age.back().map_or(Timestamp::ZERO, |lease| lease.taken_at);
        if self.unnamed > 0 { lease_at.max(self.unnamed_at) } else { lease_at }
    }

    /// How many places are held.
    pub(super) const fn held(&self) -> u64 {
        self.held
    }

    /// How many leases there are.
    pub fn lease_count(&self) -> u64 {
        self.by_age.len() as u64
    }

    /// The bytes of memory that it holds beside itself.
    pub fn heap_bytes(&self) -> usize {
        self.by_age.capacity() * size_of::<Lease>()
    }

    /// Appends the leases to `out`, in a form that [`Leases::decode`] reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut write = |number| varint::write(number, |byte| out.push(byte));
        write(self.last_id);
        write(self.unnamed);
        write(self.unnamed_at.as_micros());
        let (mut id, mut at) = (0, 0);
        for lease in &self.by_age {
            // Renewed leases have numbers below that of the one before them: the step then wraps.
            write(lease.id.wrapping_sub(id));
            write(lease.taken_at.as_micros() - at);
            write(lease.cost.into());
            (id, at) = (lease.id, lease.taken_at.as_micros());
        }
    }

    /// Reads what [`Leases::encode`] wrote; `None` for anything that is no leases.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = bytes.iter().copied().peekable();
        let mut read = |max| varint::read(&mut bytes).filter(|number| *number <= max);
        let mut leases = Self::new();
        leases.last_id = read(ID_READ_MAX)?;
        let unnamed = read(UNNAMED_MAX)?;
        leases.add_unnamed(Timestamp::from_micros(read(Timestamp::MAX.as_micros())?), unnamed);
        let (mut id, mut at) = (0u64, 0u64);
        while bytes.peek().is_some() {
            let mut read = |max| varint::read(&mut bytes).filter(|number| *number <= max);
            id = id.wrapping_add(read(u64::MAX)?);
            if id == 0 || id > leases.last_id {
                return None;
            }
            at += read(Timestamp::MAX.as_micros() - at)?;
            let cost = read(COST_MAX).filter(|cost| *cost > 0)?;
            if leases.lease_count() == Concurrency::LIMIT_MAX {
                return None;
            }
            let taken_at = Timestamp::from_micros(at);
            leases.by_age.push_back(Lease { id, taken_at, cost: cost as u32 });
            leases.held += cost;
        }
        Some(leases)
    }

    /// Gives memory back once three quarters of it are unused.
    fn give_back_memory(&mut self) {
        if self.by_age.capacity() / 4 > self.by_age.len().max(1) {
            self.by_age.shrink_to(2 * self.by_age.len());
        }
    }
}
