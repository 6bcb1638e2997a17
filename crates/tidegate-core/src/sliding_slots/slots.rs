//! The counts of the newest slots in a ring, as narrow as the largest of them allows. It knows
//! nothing of limits and times; a slot is known by its number since the origin.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::SlidingSlots;
use crate::sliding_log::varint;
use crate::{Rate, Timestamp};

/// How much was charged in each of the newest slots of one key.
#[derive(Clone, Debug)]
pub struct Slots {
    /// The number of the newest slot: slots are numbered from the origin on.
    newest: u64,
    /// The sum of all counts. At most 2^10 slots of at most 2^45 each, so it cannot overflow.
    sum: u64,
    /// The count of slot `n` is at `n` modulo their number.
    counts: Counts,
}

/// Two bytes a slot suffice for most limits; a slot that needs more widens them all.
#[derive(Clone, Debug)]
enum Counts {
    Narrow(Box<[u16]>),
    Middle(Box<[u32]>),
    Wide(Box<[u64]>),
}

/// The most that one slot counts. A debit beyond it, twice the largest limit, is cut to it, and
/// then nothing of that slot is refunded: what was cut off is not known any more, and a refund must
/// not give back what is still owed.
const COUNT_MAX: u64 = 2 * Rate::COUNT_MAX;

impl Slots {
    /// So many slots, all empty, the newest of them `newest`.
    pub(super) fn new(len: u32, newest: u64) -> Self {
        let counts = Counts::Narrow(vec![0; len as usize].into_boxed_slice());
        Self { newest, sum: 0, counts }
    }

    /// Makes `newest` the newest slot, if it is later, and forgets what is then too old.
    pub(super) fn advance_to(&mut self, newest: u64) {
        let steps = newest.saturating_sub(self.newest);
        if steps >= u64::from(self.len()) {
            *self = Self::new(self.len(), newest);
            return;
        }
        for slot in self.newest + 1..=newest {
            self.set(slot, 0);
        }
        self.newest = self.newest.max(newest);
    }

    /// The same counts in a ring of `len` slots that ends with `newest`. Each slot's count goes to
    /// the slot that `target` names, or to the newest where that is later still.
    pub(super) fn moved(&self, len: u32, newest: u64, target: impl Fn(u64) -> u64) -> Self {
        let mut moved = Self::new(len, newest);
        for (slot, count) in self.entries() {
            moved.add(target(slot).min(newest), count);
        }
        moved
    }

    /// Adds `cost` to a slot, if the ring still has it.
    pub(super) fn add(&mut self, slot: u64, cost: u64) {
        if self.covers(slot) {
            self.set(slot, self.count(slot).saturating_add(cost).min(COUNT_MAX));
        }
    }

    /// Gives back up to `cost` of what a slot counts, if the ring still has it.
    pub(super) fn refund(&mut self, slot: u64, cost: u64) {
        if self.covers(slot) && self.count(slot) < COUNT_MAX {
            self.set(slot, self.count(slot).saturating_sub(cost));
        }
    }

    /// The slots that count something, oldest first.
    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> {
        let oldest = self.newest.saturating_sub(u64::from(self.len()) - 1);
        (oldest..=self.newest).map(|slot| (slot, self.count(slot))).filter(|(_, count)| *count > 0)
    }

    pub(super) const fn newest(&self) -> u64 {
        self.newest
    }

    pub(super) fn newest_count(&self) -> u64 {
        self.count(self.newest)
    }

    pub(super) const fn sum(&self) -> u64 {
        self.sum
    }

    /// How many slots there are.
    pub(super) fn len(&self) -> u32 {
        match &self.counts {
            Counts::Narrow(counts) => counts.len() as u32,
            Counts::Middle(counts) => counts.len() as u32,
            Counts::Wide(counts) => counts.len() as u32,
        }
    }

    /// The bytes of memory that it holds beside itself.
    pub fn heap_bytes(&self) -> usize {
        match &self.counts {
            Counts::Narrow(counts) => size_of_val::<[u16]>(counts),
            Counts::Middle(counts) => size_of_val::<[u32]>(counts),
            Counts::Wide(counts) => size_of_val::<[u64]>(counts),
        }
    }

    /// Appends the slots to `out`, in a form that [`Slots::decode`] reads: their number, the number
    /// of the newest, and the counts from the newest back to the oldest that is not 0.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut write = |number| varint::write(number, |byte| out.push(byte));
        write(u64::from(self.len()));
        write(self.newest);
        let oldest = self.entries().next().map_or(self.newest, |(slot, _)| slot);
        for slot in (oldest..=self.newest).rev() {
            write(self.count(slot));
        }
    }

    /// Reads what [`Slots::encode`] wrote; `None` for anything that is no ring of slots.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = bytes.iter().copied();
        let len = u32::try_from(varint::read(&mut bytes)?).ok()?;
        let newest = varint::read(&mut bytes)?;
        let in_range = (SlidingSlots::SLOTS_MIN..=SlidingSlots::SLOTS_MAX).contains(&len);
        if !in_range || newest > Timestamp::MAX.as_micros() {
            return None;
        }
        let mut slots = Self::new(len, newest);
        let mut bytes = bytes.peekable();
        let mut slot = Some(newest);
        while bytes.peek().is_some() {
            let count = varint::read(&mut bytes)?;
            let place = slot.filter(|slot| slots.covers(*slot) && count <= COUNT_MAX)?;
            slots.set(place, count);
            slot = place.checked_sub(1);
        }
        Some(slots)
    }

    fn covers(&self, slot: u64) -> bool {
        slot <= self.newest && self.newest - slot < u64::from(self.len())
    }

    fn position(&self, slot: u64) -> usize {
        (slot % u64::from(self.len())) as usize
    }

    fn count(&self, slot: u64) -> u64 {
        let position = self.position(slot);
        match &self.counts {
            Counts::Narrow(counts) => counts[position].into(),
            Counts::Middle(counts) => counts[position].into(),
            Counts::Wide(counts) => counts[position],
        }
    }

    fn set(&mut self, slot: u64, count: u64) {
        let position = self.position(slot);
        self.sum = self.sum - self.count(slot) + count;
        self.counts.widen_for(count);
        match &mut self.counts {
            Counts::Narrow(counts) => counts[position] = count as u16,
            Counts::Middle(counts) => counts[position] = count as u32,
            Counts::Wide(counts) => counts[position] = count,
        }
    }
}

impl Counts {
    /// Makes room for `count` in each place. The ring does not become narrow again: a key that
    /// needed the room once soon needs it again, and one that falls idle loses its state anyway.
    fn widen_for(&mut self, count: u64) {
        if let Self::Narrow(counts) = self
            && count > u64::from(u16::MAX)
        {
            *self = Self::Middle(counts.iter().map(|count| u32::from(*count)).collect());
        }
        if let Self::Middle(counts) = self
            && count > u64::from(u32::MAX)
        {
            *self = Self::Wide(counts.iter().map(|count| u64::from(*count)).collect());
        }
    }
}

/// Two rings are equal when they count the same, however wide they are.
impl PartialEq for Slots {
    fn eq(&self, other: &Self) -> bool {
        self.newest == other.newest
            && self.len() == other.len()
            && self.entries().eq(other.entries())
    }
}

impl Eq for Slots {}
