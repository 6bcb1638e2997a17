//! The log itself: every charge that still counts, oldest first, in a few bytes each. It knows
//! nothing of limits and windows; what leaves it, and when, is decided by the algorithm.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{SlidingLog, varint};
use crate::{SKEW_MAX, Timestamp};

/// The charges of one key: when, and how much.
///
/// The newest charge is held apart, so that charges of one tick become one entry and a single entry
/// needs no memory of its own. Each earlier one is a record of two varints in a ring of bytes:
///
/// ```text
/// 2 * (microseconds to the next entry) + (0 if the cost is 1, else 1)     [the cost, if it is not 1]
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    oldest_at: Timestamp,
    newest_at: Timestamp,
    newest_cost: u64,
    /// The time of the newest entry, or of the call that last dropped one if that was later: from
    /// then on a late call must not be answered as of a time at which that one still counted.
    latest: Timestamp,
    /// The sum of all costs. At most 2^20 entries of at most 2^40 each, so it cannot overflow.
    total: u64,
    /// How many records there are, that is, entries before the newest.
    earlier: u32,
    records: VecDeque<u8>,
}

/// The most that one entry counts. A debit beyond it, a million times the largest limit, is cut to
/// it, and then nothing of that entry is refunded: what was cut off is not known any more, and a
/// refund must not give back what is still owed.
const COST_MAX: u64 = 1 << 40;

/// The fewest bytes by which the ring grows: enough for any one record.
const GROWTH_MIN: usize = 2 * varint::LEN_MAX;

impl Log {
    pub(super) fn new(at: Timestamp, cost: u64) -> Self {
        let cost = cost.min(COST_MAX);
        Self {
            oldest_at: at,
            newest_at: at,
            newest_cost: cost,
            latest: at,
            total: cost,
            earlier: 0,
            records: VecDeque::new(),
        }
    }

    /// Adds a charge at `at`, or at the newest entry's time where that is later.
    pub(super) fn push(&mut self, at: Timestamp, cost: u64) {
        let gap = at.since(self.newest_at).as_micros();
        self.latest = self.latest.max(at);
        if gap == 0 {
            let merged = self.newest_cost.saturating_add(cost).min(COST_MAX);
            self.total += merged - self.newest_cost;
            self.newest_cost = merged;
            return;
        }
        self.make_room();
        write_record(gap, self.newest_cost, |byte| self.records.push_back(byte));
        self.earlier += 1;
        self.newest_at = at;
        self.newest_cost = cost.min(COST_MAX);
        self.total += self.newest_cost;
    }

    /// Drops every entry at or before `end`, as of `now`; `None` where nothing is left.
    pub(super) fn without_until(mut self, end: Timestamp, now: Timestamp) -> Option<Self> {
        if self.newest_at <= end {
            return None;
        }
        if self.oldest_at > end {
            return Some(self);
        }
        self.latest = self.latest.max(now);
        while self.oldest_at <= end {
            let (gap, cost) = self.pop_record()?;
            self.oldest_at = Timestamp::from_micros(self.oldest_at.as_micros() + gap);
            self.total -= cost;
        }
        self.give_back_memory();
        Some(self)
    }

    /// Merges the oldest entries into the ones that follow them until `count` entries are left.
    pub(super) fn fold_to(&mut self, count: u64) {
        while self.entry_count() > count.max(1) {
            let Some((gap, cost)) = self.pop_record() else { return };
            self.oldest_at = Timestamp::from_micros(self.oldest_at.as_micros() + gap);
            self.total -= cost;
            let Some((gap, next_cost)) = self.pop_record() else {
                self.push(self.newest_at, cost);
                return;
            };
            let merged = next_cost.saturating_add(cost).min(COST_MAX);
            self.total += merged - next_cost;
            self.push_record_front(gap, merged);
        }
    }

    /// Gives back `cost` that was charged at `at`, or a little later by a call that came late: from
    /// the oldest entry that it can have been, so that what is left counts no less long.
    pub(super) fn refunded(mut self, at: Timestamp, cost: u64) -> Option<Self> {
        if at > self.newest_at || at.plus(SKEW_MAX) < self.oldest_at {
            return Some(self);
        }
        if at == self.newest_at && self.newest_cost > cost && self.newest_cost < COST_MAX {
            self.newest_cost -= cost;
            self.total -= cost;
            return Some(self);
        }
        let (latest, mut found) = (self.latest, false);
        let mut log = self.rebuilt(|entry_at, entry_cost| {
            let meant = !found && entry_at >= at && entry_at.since(at) <= SKEW_MAX;
            found |= meant;
            let refundable = meant && entry_cost < COST_MAX;
            (entry_at, if refundable { entry_cost.saturating_sub(cost) } else { entry_cost })
        })?;
        log.latest = latest;
        Some(log)
    }

    /// Moves what lies after `now` to `now`, keeping its cost.
    pub(super) fn pulled_back_to(self, now: Timestamp) -> Option<Self> {
        self.rebuilt(|at, cost| (at.min(now), cost))
    }

    /// The log of the same entries after `change`, without those that cost nothing any more.
    fn rebuilt(self, mut change: impl FnMut(Timestamp, u64) -> (Timestamp, u64)) -> Option<Self> {
        let mut log: Option<Self> = None;
        for (at, cost) in self.entries() {
            match (change(at, cost), &mut log) {
                ((_, 0), _) => {}
                ((at, cost), Some(log)) => log.push(at, cost),
                ((at, cost), None) => log = Some(Self::new(at, cost)),
            }
        }
        log
    }

    /// All entries, oldest first.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Timestamp, u64)> {
        let mut bytes = self.records.iter().copied();
        let mut next_at = self.oldest_at;
        let earlier = core::iter::from_fn(move || {
            let (gap, cost) = read_record(&mut bytes)?;
            let at = next_at;
            next_at = Timestamp::from_micros(at.as_micros() + gap);
            Some((at, cost))
        });
        earlier.chain(core::iter::once((self.newest_at, self.newest_cost)))
    }

    /// How many entries there are, at least 1. Charges of one tick are one entry.
    pub fn entry_count(&self) -> u64 {
        u64::from(self.earlier) + 1
    }

    pub(super) const fn newest_at(&self) -> Timestamp {
        self.newest_at
    }

    /// The latest time that it knows of.
    pub(super) const fn latest(&self) -> Timestamp {
        self.latest
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// The bytes of memory that it holds beside itself.
    pub fn heap_bytes(&self) -> usize {
        self.records.capacity()
    }

    /// Appends the log to `out`, in a form that [`Log::decode`] reads.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut write = |number| varint::write(number, |byte| out.push(byte));
        write(self.latest.as_micros());
        write(self.oldest_at.as_micros());
        write(self.newest_cost);
        out.extend(&self.records);
    }

    /// Reads what [`Log::encode`] wrote; `None` for anything that is no log.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bytes = bytes.iter().copied();
        let latest = checked_time(varint::read(&mut bytes)?)?;
        let mut at = checked_time(varint::read(&mut bytes)?)?;
        let newest_cost = checked_cost(varint::read(&mut bytes)?)?;
        let mut log: Option<Self> = None;
        let mut bytes = bytes.peekable();
        while bytes.peek().is_some() {
            let (gap, cost) = read_record(&mut bytes)?;
            let cost = checked_cost(cost)?;
            let full =
                log.as_ref().is_some_and(|log| log.entry_count() >= SlidingLog::COUNT_MAX - 1);
            if gap == 0 || full {
                return None;
            }
            extend(&mut log, at, cost);
            at = checked_time(at.as_micros() + gap)?;
        }
        extend(&mut log, at, newest_cost);
        let mut log = log?;
        log.latest = Some(latest).filter(|latest| *latest >= at)?;
        Some(log)
    }

    fn pop_record(&mut self) -> Option<(u64, u64)> {
        let record = read_record(&mut core::iter::from_fn(|| self.records.pop_front()))?;
        self.earlier -= 1;
        Some(record)
    }

    fn push_record_front(&mut self, gap: u64, cost: u64) {
        let mut record = [0; GROWTH_MIN];
        let mut len = 0;
        write_record(gap, cost, |byte| {
            record[len] = byte;
            len += 1;
        });
        self.make_room();
        for &byte in record[..len].iter().rev() {
            self.records.push_front(byte);
        }
        self.earlier += 1;
    }

    /// Room for one more record. The ring grows by a sixteenth and not to the double, since it is
    /// the memory per key that a log is short of; a byte is still copied a bounded number of times.
    fn make_room(&mut self) {
        if self.records.capacity() - self.records.len() < GROWTH_MIN {
            self.records.reserve_exact(GROWTH_MIN.max(self.records.len() / 16));
        }
    }

    /// Gives memory back once three quarters of it are unused, so that one burst does not cost a
    /// key its memory for as long as it stays in use.
    fn give_back_memory(&mut self) {
        if self.records.capacity() / 4 > self.records.len() + GROWTH_MIN {
            self.records.shrink_to(self.records.len() + GROWTH_MIN);
        }
    }
}

/// Adds an entry to a log that may have none yet.
pub(super) fn extend(log: &mut Option<Log>, at: Timestamp, cost: u64) {
    match log {
        Some(log) => log.push(at, cost),
        None => *log = Some(Log::new(at, cost)),
    }
}

/// `gap` is below 2^63, since times are at most 2^62.
fn write_record(gap: u64, cost: u64, mut push: impl FnMut(u8)) {
    varint::write(gap << 1 | u64::from(cost != 1), &mut push);
    if cost != 1 {
        varint::write(cost, push);
    }
}

fn read_record(bytes: &mut impl Iterator<Item = u8>) -> Option<(u64, u64)> {
    let head = varint::read(bytes)?;
    let cost = if head & 1 == 0 { 1 } else { varint::read(bytes)? };
    Some((head >> 1, cost))
}

fn checked_time(micros: u64) -> Option<Timestamp> {
    (micros <= Timestamp::MAX.as_micros()).then(|| Timestamp::from_micros(micros))
}

fn checked_cost(cost: u64) -> Option<u64> {
    (1..=COST_MAX).contains(&cost).then_some(cost)
}
