//! Where entries stand: two candidate lines per key, and how a new one finds its place.
//!
//! A key's entry stands in its first line or, where that is full, in its second, which follows from
//! the first and the fingerprint, so that an entry can be moved without knowing its key. A place is
//! free once its entry is full again, whoever's it was. When both lines are full of live entries,
//! one of the eight moves to its own other line; when none can, the one nearest to full is dropped.
//!
//! # Who may do what
//!
//! * Any thread may swap an unlocked word for another in one step.
//! * A word with the lock bit is changed by the thread that set it, and by no other.
//! * An entry comes into being, or moves, only under the *stripe* of its fingerprint. So a key has
//!   at most one entry, and a thread that holds its stripe and does not find it knows that there is
//!   none. Threads hold one stripe while they wait for nothing (or for one shard of the wide
//!   structure, whose holders wait for no stripe), and only *try* to get a second.
//! * While a snapshot is read, an entry moves only between lines that it has passed, or between
//!   lines that it has yet to come to, so it meets every entry once.

use tidegate_core::{Key, Timestamp};

use crate::entry::{Entry, Fingerprint};
use crate::forgotten::Forgotten;
use crate::lines::{Line, Lines};
use crate::sync::{AtomicBool, AtomicU64, Backoff, Mutex, MutexGuard, Ordering, fence};
use crate::word::Word;

/// The lines, and the locks under which entries come into being.
#[derive(Debug)]
pub(crate) struct Places {
    lines: Lines,
    stripes: Box<[Stripe]>,
    dropped: AtomicU64,
    /// The line that a snapshot is reading, plus one; 0 while there is none.
    reading: AtomicU64,
    /// Held by the one snapshot that there is at a time.
    reader: Mutex<()>,
}

/// Where a key's entry can stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) fingerprint: Fingerprint,
    first: usize,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe {
    taken: AtomicBool,
    /// When entries of this stripe were full whose places were given away, in microseconds since the
    /// table's origin.
    forgotten: Forgotten,
}

impl Places {
    /// Enough that threads hardly ever meet at one, few enough to stay in the cache.
    const STRIPES: usize = if cfg!(shuttle) { 4 } else { 256 };

    /// Places in so many lines; `None` where there is no memory for them.
    pub(crate) fn new(lines: usize) -> Option<Self> {
        let stripes = (0..Self::STRIPES).map(|_| Stripe::default()).collect();
        Some(Self {
            lines: Lines::zeroed(lines)?,
            stripes,
            dropped: AtomicU64::new(0),
            reading: AtomicU64::new(0),
            reader: Mutex::new(()),
        })
    }

    pub(crate) fn lines(&self) -> &[Line] {
        self.lines.as_slice()
    }

    /// How many live entries had to go because their lines were full of entries further from full.
    pub(crate) fn dropped(&self) -> u64 {
        // ORDERING: a statistic.
        self.dropped.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn probe(&self, key: Key) -> Probe {
        // The low half chooses the line and the fingerprint is cut from the high half, so that the
        // two are independent.
        let first = fast_range(key.as_hash() as u64, self.lines().len());
        Probe { fingerprint: Fingerprint::of(key), first }
    }

    /// Whether two keys have one entry between them: all that it knows of them is the same.
    pub(crate) fn share_entry(&self, one: Key, other: Key) -> bool {
        let (one, other) = (self.probe(one), self.probe(other));
        one.fingerprint == other.fingerprint
            && (one.first == other.first
                || self.other_line(one.fingerprint, one.first) == other.first)
    }

    #[inline]
    pub(crate) fn prefetch(&self, probe: Probe) {
        self.lines.prefetch(probe.first);
    }

    /// The other line of an entry that stands in `line`. Applied twice it gives `line` again.
    #[inline]
    fn other_line(&self, fingerprint: Fingerprint, line: usize) -> usize {
        let lines = self.lines().len();
        let spread = fingerprint.as_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let sum = fast_range(spread, lines);
        if sum >= line { sum - line } else { sum + lines - line }
    }

    /// The key's entry at a [glance](Word::glance_below), where it stands in its first line, as nine in ten
    /// do.
    #[inline]
    pub(crate) fn find_in_first(&self, probe: Probe) -> Option<(&Word, Entry)> {
        self.find_in(probe.first, probe.fingerprint)
    }

    /// The key's entry at a [glance](Word::glance_below), and its word.
    pub(crate) fn find(&self, probe: Probe) -> Option<(&Word, Entry)> {
        self.find_in(probe.first, probe.fingerprint).or_else(|| {
            let second = self.other_line(probe.fingerprint, probe.first);
            self.find_in(second, probe.fingerprint)
        })
    }

    #[inline]
    fn find_in(&self, line: usize, fingerprint: Fingerprint) -> Option<(&Word, Entry)> {
        // One branch per place and no arithmetic on which it is: for a key that comes again and
        // again the processor knows the place beforehand, and for others it waits for memory anyway.
        for word in &self.lines()[line].0 {
            let high = word.load_high();
            if fingerprint.matches_high(high) {
                return Some((word, Entry(word.glance_below(high))));
            }
        }
        None
    }

    /// Keeps others from making an entry for this key, or moving it, until the guard is dropped.
    pub(crate) fn hold(&self, probe: Probe) -> Hold<'_> {
        let index = stripe_of(probe.fingerprint);
        let mut backoff = Backoff::default();
        loop {
            if let Some(hold) = Hold::try_new(&self.stripes[index], index) {
                return hold;
            }
            backoff.wait();
        }
    }

    /// Puts a new entry in a free place, makes one, or takes that of the entry nearest to full.
    /// `hold` is the key's, and `find` has come back empty since it was taken. `now` is in
    /// microseconds since the table's origin. `None` where all places were locked or changed
    /// meanwhile: the caller lets go of its hold and tries again.
    pub(crate) fn place(
        &self,
        hold: &Hold<'_>,
        probe: Probe,
        now: u64,
        entry: Entry,
    ) -> Option<&Word> {
        let second = self.other_line(probe.fingerprint, probe.first);
        self.place_in_free(probe.first, now, entry)
            .or_else(|| self.place_in_free(second, now, entry))
            .or_else(|| self.place_by_moving(hold, probe.first, now, entry))
            .or_else(|| self.place_by_moving(hold, second, now, entry))
            .or_else(|| self.place_by_dropping([probe.first, second], entry))
    }

    fn place_in_free(&self, line: usize, now: u64, entry: Entry) -> Option<&Word> {
        self.lines()[line].0.iter().find(|word| {
            let old = Entry(word.load());
            if !is_free(old, now) {
                return false;
            }
            if old != Entry::FREE {
                self.note_full(old.fingerprint(), old.full_at() + 1, now);
            }
            word.compare_exchange(old.0, entry.0).is_ok()
        })
    }

    /// What is left of an entry whose key has all of its quota at `now`. One whose time has passed
    /// stays as it is: it is worth nothing, but it still tells a thread that is late that its own
    /// clock reading is.
    #[inline]
    pub(crate) fn emptied(&self, old: Entry, now: u64) -> Entry {
        if old.full_at() <= now && !old.is_spilled() {
            return old;
        }
        self.note_full(old.fingerprint(), now, now);
        Entry::FREE
    }

    /// Remembers when a key was full, before its entry goes at `now`.
    fn note_full(&self, fingerprint: Fingerprint, at: u64, now: u64) {
        self.stripes[stripe_of(fingerprint)].forgotten.note(at, now);
    }

    /// Moves one entry of `line` to its other line, and puts the new one in its place.
    fn place_by_moving(
        &self,
        hold: &Hold<'_>,
        line: usize,
        now: u64,
        entry: Entry,
    ) -> Option<&Word> {
        self.lines()[line].0.iter().find(|word| {
            let old = Entry(word.load());
            if old.is_locked() || old == Entry::FREE {
                return false;
            }
            let other = self.other_line(old.fingerprint(), line);
            if other == line
                || !self.lines()[other].0.iter().any(|w| is_free(Entry(w.load()), now))
                || !self.may_move(line, other)
            {
                return false;
            }
            let stripe = stripe_of(old.fingerprint());
            let held = if stripe == hold.index {
                None
            } else {
                match Hold::try_new(&self.stripes[stripe], stripe) {
                    Some(held) => Some(held),
                    None => return false,
                }
            };
            let moved = self.exchange_by_moving((word, line), old, other, now, entry);
            drop(held);
            moved
        })
    }

    /// Both copies are locked while there are two, so nobody reads either.
    fn exchange_by_moving(
        &self,
        (word, line): (&Word, usize),
        old: Entry,
        other: usize,
        now: u64,
        entry: Entry,
    ) -> bool {
        if word.compare_exchange(old.0, old.locked().0).is_err() {
            return false;
        }
        let Some(copy) = self.place_in_free(other, now, old.locked()) else {
            unlock(word, old.locked(), old);
            return false;
        };
        if !self.may_move(line, other) {
            unlock(copy, old.locked(), Entry::FREE);
            unlock(word, old.locked(), old);
            return false;
        }
        unlock(word, old.locked(), entry);
        unlock(copy, old.locked(), old);
        true
    }

    /// Whether a snapshot has passed both lines or will come to both. Otherwise it would miss an entry
    /// that goes from one to the other, or have it twice.
    fn may_move(&self, line: usize, other: usize) -> bool {
        // ORDERING: with the fence in `Reading::lines`, either this sees how far the snapshot is, or the
        // snapshot sees the locks that were set before, and waits for them.
        fence(Ordering::SeqCst);
        let reading = self.reading.load(Ordering::Relaxed);
        let (least, most) = (line.min(other) as u64 + 1, line.max(other) as u64 + 1);
        most < reading || least > reading
    }

    /// Begins a snapshot, the only one at a time. Other threads go on, but until it ends no entry moves
    /// from a line that has been read to one that has not, or back, and none comes back to its entry
    /// that has been spilled.
    pub(crate) fn begin_reading(&self) -> Reading<'_> {
        let one_at_a_time = self.reader.lock();
        self.reading.store(1, Ordering::Relaxed);
        Reading { places: self, _one_at_a_time: one_at_a_time }
    }

    /// Whether a snapshot may have met an entry that this thread has locked before it was.
    pub(crate) fn is_being_read(&self) -> bool {
        // ORDERING: as in `may_move`.
        fence(Ordering::SeqCst);
        self.reading.load(Ordering::Relaxed) != 0
    }

    /// Where an entry can stand that a snapshot found in `line`.
    pub(crate) fn probe_at(line: usize, entry: Entry) -> Probe {
        Probe { fingerprint: entry.fingerprint(), first: line }
    }

    /// Puts back an entry of a snapshot, and says whether it was new.
    pub(crate) fn restore(&self, probe: Probe, now: u64, entry: Entry) -> bool {
        let hold = self.hold(probe);
        let Some((word, old)) = self.find(probe) else {
            return self.place(&hold, probe, now, entry).is_some();
        };
        // The key was forgotten, and came back in its other line before the snapshot was there. What
        // is further from full counts.
        if !old.is_locked() && old.full_at() < entry.full_at() {
            let _ = word.compare_exchange(old.0, entry.0);
        }
        false
    }

    fn place_by_dropping(&self, lines: [usize; 2], entry: Entry) -> Option<&Word> {
        let words = lines.iter().flat_map(|&line| &self.lines()[line].0);
        let nearest = words
            .map(|word| (word, Entry(word.load())))
            .filter(|(_, old)| !old.is_locked())
            .min_by_key(|(_, old)| old.full_at());
        let (word, old) = nearest?;
        word.compare_exchange(old.0, entry.0).ok()?;
        // ORDERING: a statistic.
        self.dropped.fetch_add(1, Ordering::Relaxed);
        Some(word)
    }
}

/// A snapshot that is being made.
pub(crate) struct Reading<'a> {
    places: &'a Places,
    _one_at_a_time: MutexGuard<'a, ()>,
}

impl Reading<'_> {
    /// All lines, one after the other.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line> {
        self.places.lines().iter().zip(1..).map(|(line, number)| {
            self.places.reading.store(number, Ordering::Relaxed);
            // ORDERING: see `may_move`.
            fence(Ordering::SeqCst);
            line
        })
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.places.reading.store(0, Ordering::Relaxed);
    }
}

/// The right to make an entry, or to move one, in one stripe.
#[derive(Debug)]
pub(crate) struct Hold<'a> {
    stripe: &'a Stripe,
    index: usize,
}

impl<'a> Hold<'a> {
    fn try_new(stripe: &'a Stripe, index: usize) -> Option<Self> {
        // ORDERING: acquires what the last holder did under the stripe.
        let taken = stripe.taken.swap(true, Ordering::Acquire);
        // Lazily: a guard that was made and thrown away would open the stripe of who has it.
        (!taken).then(|| Self { stripe, index })
    }

    /// The instant at which a key that has no entry [starts anew](Forgotten::starts_at).
    pub(crate) fn starts_at(&self, now: Timestamp, origin: u64) -> Timestamp {
        // No moment lies before the origin.
        let Some(since_origin) = now.as_micros().checked_sub(origin) else { return now };
        Timestamp::from_micros(origin + self.stripe.forgotten.starts_at(since_origin))
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        // ORDERING: releases what was done under the stripe.
        self.stripe.taken.store(false, Ordering::Release);
    }
}

/// Replaces a word that this thread has locked.
pub(crate) fn unlock(word: &Word, locked: Entry, new: Entry) {
    debug_assert!(locked.is_locked());
    let swapped = word.compare_exchange(locked.0, new.0);
    debug_assert!(swapped.is_ok(), "nobody else changes a locked word");
}

fn is_free(entry: Entry, now: u64) -> bool {
    entry == Entry::FREE || (!entry.is_locked() && entry.full_at() < now)
}

#[inline]
fn stripe_of(fingerprint: Fingerprint) -> usize {
    fingerprint.as_u64() as usize % Places::STRIPES
}

/// Spreads 64 random bits over `0..count` without a division.
#[inline]
fn fast_range(random: u64, count: usize) -> usize {
    ((u128::from(random) * count as u128) >> 64) as usize
}
