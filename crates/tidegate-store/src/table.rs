//! The in-memory store: a table of entries in cache lines, and a wide structure for what does not
//! fit. One limit with a state that fits is one line and one compare-and-swap; a few of them go through
//! `quick`, and everything else through `several`.

use std::fmt;

use tidegate_core::{Decision, Key, Limit, Operation, Span, Timestamp, TokenBucket};

use crate::entry::{Entry, Inline};
use crate::lines::Line;
use crate::places::{Places, Probe};
use crate::seam::{Answers, Charge, Request, StoreError};
use crate::sync::Backoff;
use crate::wide::Wide;
use crate::word::Word;
use crate::{Store, quick, several};

/// The state of keys in this process's memory.
///
/// It is made with a ceiling in bytes and keeps it: there is no resizing, no sweeping and no
/// background thread. A key whose quota has fully come back takes no room, so the ceiling bounds the
/// number of keys that are *active* at once. Where more are, the one nearest to full is dropped and
/// counted in [`Stats::dropped`].
#[derive(Debug)]
pub struct Table {
    pub(crate) places: Places,
    pub(crate) wide: Wide,
    /// In microseconds, a whole second. Entries count time from here, in 50 bits.
    pub(crate) origin: u64,
    config: TableConfig,
}

/// How large a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableConfig {
    /// For buckets, fixed and sliding windows. An active key takes 24 bytes, if fewer than one in
    /// 10,000 are to be dropped; an entry is 16, but not every place can be used.
    pub entry_bytes: usize,
    /// For logs, slots and concurrency leases.
    pub wide_bytes: usize,
}

/// A key, and where its entry is looked for first in the table that [fetched](Table::prefetch) it.
#[derive(Clone, Copy, Debug)]
pub struct Fetched {
    key: Key,
    probe: Probe,
}

/// What a table holds at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Keys that have spent something which has not come back yet.
    pub keys: u64,
    /// Live keys that were dropped at the ceiling since the table was made.
    pub dropped: u64,
    /// Bytes reserved for entries and in use for wide states.
    pub bytes: u64,
}

impl TableConfig {
    /// The smallest part for entries. It gives a key 64 effective bits: 51 in its entry and 14 in
    /// the choice of the line, less one for there being two.
    pub const ENTRY_BYTES_MIN: usize = 1 << 20;
    /// The smallest part for wide states.
    pub const WIDE_BYTES_MIN: usize = 1 << 16;
    /// The largest part for entries, 256 GiB.
    pub const ENTRY_BYTES_MAX: usize = 1 << 38;

    /// `bytes` in all, split for the limits that will be used: all but a small part for the kind
    /// that there is, or half for each where there are both.
    pub fn for_limits<'a>(bytes: usize, limits: impl IntoIterator<Item = &'a Limit>) -> Self {
        let (mut entries, mut wide) = (false, false);
        for limit in limits {
            if fits_entry(limit) {
                entries = true;
            } else {
                wide = true;
            }
        }
        let wide_bytes = match (entries, wide) {
            (_, false) => bytes / 64,
            (true, true) => bytes / 2,
            (false, true) => bytes.saturating_sub(Self::ENTRY_BYTES_MIN),
        };
        let wide_bytes = wide_bytes.max(Self::WIDE_BYTES_MIN);
        Self { entry_bytes: bytes.saturating_sub(wide_bytes), wide_bytes }
    }

    /// Whether the largest state of a limit fits. One that did not would be dropped as soon as it had
    /// grown too large, and its key never limited.
    pub fn check(&self, limit: &Limit) -> Result<(), TableError> {
        let (needed, most) = (state_bytes(limit), Wide::state_bytes_max(self.wide_bytes));
        if needed > most {
            return Err(TableError::StateTooLarge { needed, most });
        }
        Ok(())
    }
}

impl Table {
    /// How far before the time of its making a table can tell times apart, for clocks that are set
    /// back. The 50 bits of an entry then reach more than 34 years ahead.
    const PAST: Span = Span::from_secs(366 * 86_400);

    /// An empty table. `now` is any time near the first request's.
    pub fn new(config: TableConfig, now: Timestamp) -> Result<Self, TableError> {
        if config.entry_bytes < TableConfig::ENTRY_BYTES_MIN {
            return Err(TableError::TooSmall { min: TableConfig::ENTRY_BYTES_MIN });
        }
        if config.entry_bytes > TableConfig::ENTRY_BYTES_MAX {
            return Err(TableError::TooLarge { max: TableConfig::ENTRY_BYTES_MAX });
        }
        if config.wide_bytes < TableConfig::WIDE_BYTES_MIN {
            return Err(TableError::WideTooSmall { min: TableConfig::WIDE_BYTES_MIN });
        }
        if !Word::is_supported() {
            return Err(TableError::UnsupportedProcessor);
        }
        let lines = config.entry_bytes / size_of::<Line>();
        Self::with_lines(lines, config, now)
    }

    fn with_lines(lines: usize, config: TableConfig, now: Timestamp) -> Result<Self, TableError> {
        let past = now.minus(Self::PAST).as_micros();
        let no_memory = TableError::NoMemory { bytes: config.entry_bytes };
        Ok(Self {
            places: Places::new(lines).ok_or(no_memory)?,
            wide: Wide::new(config.wide_bytes),
            origin: past - past % Span::SECOND.as_micros(),
            config,
        })
    }

    /// A table that is smaller than any of use, so that few keys already meet in its lines.
    #[cfg(shuttle)]
    #[doc(hidden)]
    pub fn with_few_lines(lines: usize, wide_bytes: usize, now: Timestamp) -> Self {
        let config = TableConfig { entry_bytes: lines * 16 * Line::WORDS, wide_bytes };
        Self::with_lines(lines, config, now).expect("a few lines")
    }

    /// How large the table was made.
    pub fn config(&self) -> TableConfig {
        self.config
    }

    /// Decides one operation on one limit.
    #[inline]
    pub fn decide_one(&self, now: Timestamp, charge: &Charge<'_>) -> Decision {
        let fetched = Fetched { key: charge.key, probe: self.places.probe(charge.key) };
        self.decide_fetched(now, charge.limit, fetched, charge.operation, |decision| decision)
    }

    /// Decides one operation on one limit, for a key whose line of this table is on its way, and makes of
    /// the decision what the caller returns: no decision is copied, which takes longer than the arithmetic.
    ///
    /// `fetched` comes from [`Table::prefetch`] of this table. One of a table with more lines may panic,
    /// and one with fewer has the key in another place than other calls look for it in.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "arguments and decision would pass through memory")]
    pub fn decide_fetched<R>(
        &self,
        now: Timestamp,
        limit: &Limit,
        Fetched { key, probe }: Fetched,
        operation: Operation,
        finish: impl FnOnce(Decision) -> R,
    ) -> R {
        debug_assert_eq!(probe, self.places.probe(key), "a key that another table has fetched");
        // So short that it stands in the caller's own loop, where the processor begins the next decision
        // while it is at this one. Everything else may be behind a call.
        if let Limit::TokenBucket(bucket) = limit
            && operation == (Operation::Take { cost: 1 })
            && let Some(decision) = self.take_plainly(bucket, probe, now)
        {
            return finish(decision);
        }
        self.decide_otherwise(now, &Charge { limit, key, operation }, probe, finish)
    }

    /// The same for whoever has much else to do around it: all but the most ordinary case is behind a call, so that there
    /// is little code in between. What [`decide_fetched`](Self::decide_fetched) says of `fetched` holds here too.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    pub fn decide_fetched_shortly(
        &self,
        now: Timestamp,
        limit: &Limit,
        Fetched { key, probe }: Fetched,
        operation: Operation,
    ) -> Decision {
        debug_assert_eq!(probe, self.places.probe(key), "a key that another table has fetched");
        if let Limit::TokenBucket(bucket) = limit
            && operation == (Operation::Take { cost: 1 })
            && let Some(decision) = self.take_plainly(bucket, probe, now)
        {
            return decision;
        }
        self.decide_apart(now, &Charge { limit, key, operation }, probe)
    }

    #[inline(never)]
    fn decide_apart(&self, now: Timestamp, charge: &Charge<'_>, probe: Probe) -> Decision {
        self.decide_otherwise(now, charge, probe, |decision| decision)
    }

    /// Decides a take of 1 in the most ordinary case of all: from a bucket that is neither full nor
    /// in debt, in its first line, with nobody else at it. `None` for all else, and then nothing was changed.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as the function that it stands in")]
    fn take_plainly(&self, limit: &TokenBucket, probe: Probe, now: Timestamp) -> Option<Decision> {
        let (word, entry) = self.places.find_in_first(probe)?;
        let (decision, new) = self.plain_outcome(limit, entry, now)?;
        swap(word, entry, new).then_some(decision)
    }

    /// What becomes of an entry by a take of 1 in that case.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as the function that it stands in")]
    pub(crate) fn plain_outcome(
        &self,
        limit: &TokenBucket,
        entry: Entry,
        now: Timestamp,
    ) -> Option<(Decision, Entry)> {
        if !entry.is_fine() {
            return None;
        }
        let state = limit.unpack(entry.payload(), self.origin);
        let (decision, next) = limit.take_plain(state, now)?;
        Some((decision, entry.later(next.full_at_micros - state.full_at_micros)?))
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "every algorithm saves a call")]
    fn decide_otherwise<R>(
        &self,
        now: Timestamp,
        charge: &Charge<'_>,
        probe: Probe,
        finish: impl FnOnce(Decision) -> R,
    ) -> R {
        match charge.limit {
            Limit::TokenBucket(limit) => self.decide_entry(limit, probe, now, charge, finish),
            Limit::LeakyBucket(limit) => self.decide_entry(limit, probe, now, charge, finish),
            Limit::SteppedBucket(limit) => self.decide_entry(limit, probe, now, charge, finish),
            Limit::FixedWindow(limit) => self.decide_entry(limit, probe, now, charge, finish),
            Limit::SlidingWindow(limit) => self.decide_entry(limit, probe, now, charge, finish),
            Limit::SlidingSlots(_) | Limit::SlidingLog(_) | Limit::Concurrency(_) => {
                finish(self.decide_wide(now, charge))
            }
        }
    }

    /// Decides one request, all or nothing, and appends one decision per charge.
    pub fn decide(
        &self,
        request: &Request<'_>,
        decisions: &mut Vec<Decision>,
    ) -> Result<(), StoreError> {
        self.decide_each(request, |decision| decisions.push(decision))
    }

    /// The same, with each decision handed to `each`, in the order of the charges. Nothing is handed to it where
    /// there is an error.
    #[inline]
    pub fn decide_each(
        &self,
        request: &Request<'_>,
        mut each: impl FnMut(Decision),
    ) -> Result<(), StoreError> {
        if let [charge] = request.charges {
            each(self.decide_one(request.now, charge));
            return Ok(());
        }
        if quick::decide(self, request, &mut each) {
            return Ok(());
        }
        several::decide(self, request, &mut each)
    }

    /// Decides a batch, each request as if they had come one after the other.
    pub fn decide_many(&self, batch: &[Request<'_>], answers: &mut Answers) {
        answers.clear();
        for group in batch.chunks(Self::PREFETCH) {
            for charge in group.iter().flat_map(|request| request.charges) {
                self.prefetch(charge.key);
            }
            for request in group {
                answers.push_with(|decisions| self.decide(request, decisions));
            }
        }
    }

    /// How many decisions ahead [`Table::prefetch`] is worth calling: as many cache misses as a core
    /// can have under way, and few enough that the first line is still there when its turn comes.
    pub const PREFETCH: usize = 32;

    /// Has the processor fetch a key's line, so that a decision a little later does not wait for it.
    #[inline]
    pub fn prefetch(&self, key: Key) -> Fetched {
        let probe = self.places.probe(key);
        self.places.prefetch(probe);
        Fetched { key, probe }
    }

    /// Forgets a key: it has all of its quota again.
    pub fn forget(&self, key: Key) {
        several::forget(self, key);
    }

    /// What the table holds. It reads every entry, so it is for metrics, not for every request.
    pub fn stats(&self, now: Timestamp) -> Stats {
        let now = self.since_origin(now);
        let words = self.places.lines().iter().flat_map(|line| &line.0);
        let live = words
            .map(|word| Entry(word.load()))
            .filter(|entry| *entry != Entry::FREE && !entry.is_spilled() && entry.full_at() >= now);
        let keys = live.count() as u64;
        let bytes = size_of_val(self.places.lines()) as u64;
        let stats = Stats { keys, dropped: self.places.dropped(), bytes };
        self.wide.shards().fold(stats, |stats, shard| Stats {
            keys: stats.keys + shard.len() as u64,
            dropped: stats.dropped + shard.dropped(),
            bytes: stats.bytes + shard.bytes() as u64,
        })
    }

    /// A time as entries have it. One beyond what they can say is their last: an entry that lies as
    /// far ahead is then still alive, as it must be.
    #[inline]
    pub(crate) fn since_origin(&self, now: Timestamp) -> u64 {
        now.as_micros().saturating_sub(self.origin).min(Entry::TIME_MAX)
    }

    /// What a state that is read at a glance comes to in the ordinary case: the decision, and the entry
    /// to swap it for. `None` for all that is out of the ordinary.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as the functions that it stands between")]
    fn try_entry<L: Inline>(
        &self,
        limit: &L,
        entry: Entry,
        now: Timestamp,
        operation: Operation,
    ) -> Option<(Decision, Entry)> {
        if !entry.is_plain() {
            return None;
        }
        let state = limit.unpack(entry.payload(), self.origin);
        let (decision, next) = limit.decide_ordinary(Some(state), now, operation)?;
        Some((decision, self.next_entry(limit, entry, next, now)?))
    }

    /// The fast path: an entry in its first line, one swap. It is a straight line, so that nothing has
    /// to be kept for a second round.
    #[inline]
    fn decide_entry<L: Inline, R>(
        &self,
        limit: &L,
        probe: Probe,
        now: Timestamp,
        charge: &Charge<'_>,
        finish: impl FnOnce(Decision) -> R,
    ) -> R {
        if let Some((word, entry)) = self.places.find_in_first(probe)
            && let Some((decision, new)) = self.try_entry(limit, entry, now, charge.operation)
            && swap(word, entry, new)
        {
            return finish(decision);
        }
        finish(self.decide_entry_slowly(limit, probe, now, charge))
    }

    /// As [`Table::decide_entry`], wherever the entry is and whatever others do to it meanwhile.
    #[inline(never)]
    fn decide_entry_slowly<L: Inline>(
        &self,
        limit: &L,
        probe: Probe,
        now: Timestamp,
        charge: &Charge<'_>,
    ) -> Decision {
        let mut backoff = Backoff::default();
        loop {
            let Some((word, entry)) = self.places.find(probe) else {
                match self.decide_new(limit, probe, now, charge.operation) {
                    New::Decided(decision) => return decision,
                    New::TryAgain => {
                        backoff.wait();
                        continue;
                    }
                    New::Spills => break,
                }
            };
            if entry.is_locked() {
                backoff.wait();
                continue;
            }
            if entry.is_spilled() {
                break;
            }
            let state = limit.unpack(entry.payload(), self.origin);
            let (decision, next) = limit.decide(Some(state), now, charge.operation);
            let Some(new) = self.next_entry(limit, entry, next, now) else { break };
            if swap(word, entry, new) {
                return decision;
            }
        }
        several::decide_one(self, now, charge)
    }

    /// Decides for a key that has no entry.
    #[cold]
    #[inline(never)]
    fn decide_new<L: Inline>(
        &self,
        limit: &L,
        probe: Probe,
        now: Timestamp,
        operation: Operation,
    ) -> New {
        let hold = self.places.hold(probe);
        if self.places.find(probe).is_some() {
            return New::TryAgain;
        }
        let starts_at = hold.starts_at(now, self.origin);
        let (decision, next) = limit.decide(None, starts_at, operation);
        let Some(state) = next else { return New::Decided(decision) };
        let Some(payload) = limit.pack(state, self.origin) else { return New::Spills };
        let entry = Entry::new(probe.fingerprint, payload);
        match self.places.place(&hold, probe, self.since_origin(now), entry) {
            Some(_) => New::Decided(decision),
            None => New::TryAgain,
        }
    }

    /// What becomes of an entry; `None` where its state has to be spilled.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "part of the fast path, and not only of it")]
    pub(crate) fn next_entry<L: Inline>(
        &self,
        limit: &L,
        old: Entry,
        next: Option<L::State>,
        now: Timestamp,
    ) -> Option<Entry> {
        match next {
            Some(state) => Some(Entry::new(old.fingerprint(), limit.pack(state, self.origin)?)),
            None => Some(self.places.emptied(old, self.since_origin(now))),
        }
    }

    fn decide_wide(&self, now: Timestamp, charge: &Charge<'_>) -> Decision {
        let mut shard = self.wide.lock_one(charge.key);
        shard
            .update(charge.key, now, |state, now| charge.limit.decide(state, now, charge.operation))
    }
}

impl Store for Table {
    async fn decide(&self, batch: &[Request<'_>], answers: &mut Answers) {
        self.decide_many(batch, answers);
    }

    async fn forget(&self, keys: &[Key]) -> Result<(), StoreError> {
        for &key in keys {
            Self::forget(self, key);
        }
        Ok(())
    }
}

/// Replaces an entry that was read at a glance. One that stays as it is is not written, but looked at
/// again in one piece: a decision on halves of different moments is none.
#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the fast path, and not only of it")]
fn swap(word: &Word, old: Entry, new: Entry) -> bool {
    if new == old { word.load() == old.0 } else { word.compare_exchange(old.0, new.0).is_ok() }
}

/// What became of a decision for a key without an entry.
enum New {
    Decided(Decision),
    /// It has got an entry meanwhile, or there was no place for one just now.
    TryAgain,
    /// Its first state already does not fit an entry.
    Spills,
}

/// Whether the limit's states live in entries, unless their numbers are very large.
pub(crate) fn fits_entry(limit: &Limit) -> bool {
    match limit {
        Limit::TokenBucket(_)
        | Limit::SteppedBucket(_)
        | Limit::LeakyBucket(_)
        | Limit::FixedWindow(_)
        | Limit::SlidingWindow(_) => true,
        Limit::SlidingSlots(_) | Limit::SlidingLog(_) | Limit::Concurrency(_) => false,
    }
}

/// What the largest state of a limit takes beside its record.
fn state_bytes(limit: &Limit) -> usize {
    let bytes = match limit {
        Limit::SlidingLog(log) => {
            // Charges that are spread evenly take most room: seven bits of the distance to a byte.
            let distance = 2 * (log.rate().period().as_micros() / log.rate().count()).max(1);
            log.rate().count() * u64::from(distance.ilog2() / 7 + 1) / 8 * 9
        }
        Limit::SlidingSlots(slots) => u64::from(slots.slots()) * 8,
        Limit::Concurrency(concurrency) => concurrency.limit() * 40,
        Limit::TokenBucket(_)
        | Limit::SteppedBucket(_)
        | Limit::LeakyBucket(_)
        | Limit::FixedWindow(_)
        | Limit::SlidingWindow(_) => 0,
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Why a table could not be made, or not for a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// The part for entries is below the smallest.
    TooSmall {
        /// The smallest, in bytes.
        min: usize,
    },
    /// The part for entries is above the largest.
    TooLarge {
        /// The largest, in bytes.
        max: usize,
    },
    /// The part for wide states is below the smallest.
    WideTooSmall {
        /// The smallest, in bytes.
        min: usize,
    },
    /// The state of one key under a limit can grow larger than the memory for wide states allows.
    StateTooLarge {
        /// What it can take, in bytes.
        needed: usize,
        /// The most that there is for one, in bytes.
        most: usize,
    },
    /// The operating system did not give the memory for entries.
    NoMemory {
        /// How much was asked for, in bytes.
        bytes: usize,
    },
    /// The processor cannot swap 128 bits in one step.
    UnsupportedProcessor,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { min } => {
                write!(f, "the memory for entries is too small; at least {min} bytes")
            }
            Self::TooLarge { max } => {
                write!(f, "the memory for entries is too large; at most {max} bytes")
            }
            Self::WideTooSmall { min } => {
                write!(
                    f,
                    "the memory for logs, slots and leases is too small; at least {min} bytes"
                )
            }
            Self::StateTooLarge { needed, most } => write!(
                f,
                "one key of this limit can take {needed} bytes, and there is room for {most}: \
                 give it more memory or a smaller count"
            ),
            Self::NoMemory { bytes } => {
                write!(f, "the operating system did not give {bytes} bytes for entries")
            }
            Self::UnsupportedProcessor => {
                f.write_str("this processor has no 128-bit compare-and-swap (cmpxchg16b)")
            }
        }
    }
}

impl std::error::Error for TableError {}
