//! How threads share one time: the current line, who finds the next one, and the high-water mark.
//! The arithmetic is next door, and so are the counters, which tests replace.

use std::sync::atomic::{AtomicU64, Ordering};

use super::anchor::{Anchor, Line, Reading, Source};
use super::latch::Latch;

/// How often a reading is tried; the one that took least time is used, or the first that took no
/// more than this. A thread that loses its processor between two counters would otherwise take the
/// pause for an error of the clock.
const READING_TRIES: u32 = 16;
const READING_GOOD_NS: u64 = 500;

/// What a machine counts time with.
pub(super) trait Counters {
    /// Whether there is a time stamp counter that claims to keep one pace.
    fn has_tsc(&self) -> bool;
    /// The time stamp counter.
    fn tsc(&self) -> u64;
    /// Nanoseconds of a clock that is never set, from an origin of its own.
    fn mono_ns(&self) -> u64;
    /// Nanoseconds of the wall clock since the Unix epoch.
    fn wall_ns(&self) -> u64;
}

/// A clock over some counters.
#[derive(Debug)]
pub(super) struct Engine<C> {
    counters: C,
    latch: Latch,
    lock: Lock,
    mark: Mark,
}

impl<C: Counters> Engine<C> {
    pub(super) const fn new(counters: C) -> Self {
        Self { counters, latch: Latch::new(), lock: Lock::new(), mark: Mark::new() }
    }

    /// The time in microseconds since the Unix epoch.
    #[inline]
    pub(super) fn now_micros(&self) -> u64 {
        self.mark.raise(self.micros_of_line())
    }

    /// The same, where nobody minds to be told less than another thread was, by no more than [`Mark::STEP_US`].
    #[inline]
    pub(super) fn now_micros_unordered(&self) -> u64 {
        self.mark.raise_in_steps(self.micros_of_line())
    }

    #[inline]
    fn micros_of_line(&self) -> u64 {
        let line = self.latch.line();
        match line.source {
            Source::Tsc => self.micros_on(&line, self.counters.tsc()),
            Source::Mono => self.micros_without_tsc(),
        }
    }

    #[inline]
    fn micros_on(&self, line: &Line, ticks: u64) -> u64 {
        // A thread that is stopped before it has read the ticks comes back with an age that is not fresh.
        let age_ticks = ticks.wrapping_sub(line.ticks);
        // Ticks from before the line began wrap around, and so take the slow path as well.
        if age_ticks < line.fresh_ticks { line.at(age_ticks) } else { self.micros_slowly() }
    }

    /// Apart, so that there is little code in whoever reads the time by the time stamp counter.
    #[inline(never)]
    fn micros_without_tsc(&self) -> u64 {
        let line = self.latch.line();
        self.micros_on(&line, self.ticks(line.source))
    }

    fn ticks(&self, source: Source) -> u64 {
        match source {
            Source::Tsc => self.counters.tsc(),
            Source::Mono => self.counters.mono_ns(),
        }
    }

    /// The time when the line is not fresh, and the next line if nobody else is finding it.
    #[cold]
    #[inline(never)]
    fn micros_slowly(&self) -> u64 {
        let (anchor, version) = self.latch.anchor();
        let Some(anchor) = anchor else {
            let first = Anchor::start(self.reading(), self.counters.has_tsc());
            self.lock.try_with(|| self.latch.replace(version, &first));
            return first.line.micros;
        };
        let age = age_of(&anchor.line, self.ticks(anchor.line.source));
        if let Age::Fresh(ticks) = age {
            return anchor.line.at(ticks);
        }
        let next = self.lock.try_with(|| {
            let next = anchor.next(self.reading());
            self.latch.replace(version, &next);
            next
        });
        match (next, age) {
            (Some(next), _) => next.line.micros,
            // Another thread is at it: carry on with the old line as long as that is right, and then
            // with a line of one's own. The other thread may be stopped for as long as it likes.
            (None, Age::Due(ticks) | Age::Fresh(ticks)) => anchor.line.at(ticks),
            (None, Age::Stale) => anchor.next(self.reading()).line.micros,
        }
    }

    /// All counters at one moment, as nearly as they can be had.
    fn reading(&self) -> Reading {
        let mut best = self.reading_once();
        for _ in 1..READING_TRIES {
            if best.doubt_ns <= READING_GOOD_NS {
                break;
            }
            let other = self.reading_once();
            if other.doubt_ns < best.doubt_ns {
                best = other;
            }
        }
        best
    }

    fn reading_once(&self) -> Reading {
        let before_ns = self.counters.mono_ns();
        let tsc = self.counters.tsc();
        let wall_ns = self.counters.wall_ns();
        let doubt_ns = self.counters.mono_ns().saturating_sub(before_ns);
        Reading { tsc, mono_ns: before_ns + doubt_ns / 2, wall_ns, doubt_ns }
    }
}

/// How old a line is.
enum Age {
    Fresh(u64),
    /// Time for the next line, though this one is still right.
    Due(u64),
    /// Too old to be right.
    Stale,
}

fn age_of(line: &Line, ticks: u64) -> Age {
    if ticks >= line.ticks {
        return match ticks - line.ticks {
            age if age < line.fresh_ticks => Age::Fresh(age),
            age if age < line.stale_ticks() => Age::Due(age),
            _ => Age::Stale,
        };
    }
    // The processor read the counter a little early, before the line began; or else the counter
    // was set back, which the next line has to sort out.
    if line.ticks - ticks < line.fresh_ticks { Age::Fresh(0) } else { Age::Stale }
}

/// The latest time that anyone was told in order, and nearly the latest that anyone was told at all: what
/// makes time never run back.
///
/// The line alone cannot, because the time stamp counter is read out of order, lines change, and
/// counters of two processors may differ. No fence is needed, see [`Mark::raise`]. The price is a write in each
/// microsecond to a cache line that all processors read, and between distant ones that takes a good part of the
/// microsecond. So decisions, which are many and need no order, raise it in steps.
#[repr(align(128))]
#[derive(Debug)]
struct Mark(AtomicU64);

impl Mark {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// `micros`, or the mark where that is later.
    #[inline]
    fn raise(&self, micros: u64) -> u64 {
        // ORDERING: Relaxed is enough, because one location never runs back for its readers: a load
        // that happens after another access finds that value or a later one, and values only grow.
        let mark = self.0.load(Ordering::Relaxed);
        if micros <= mark { mark } else { self.raise_from(micros) }
    }

    /// How far the mark may be behind times that were told without an order.
    const STEP_US: u64 = 64;

    /// `micros`, or the mark where that is later; raises the mark only where it is a step behind.
    #[inline]
    fn raise_in_steps(&self, micros: u64) -> u64 {
        // ORDERING: Relaxed, as above.
        let mark = self.0.load(Ordering::Relaxed);
        // A mark that is later wraps around, and takes the slow path as well.
        if micros.wrapping_sub(mark) < Self::STEP_US { micros } else { self.raise_from(micros) }
    }

    /// Once in a microsecond, or in a step.
    #[inline(never)]
    fn raise_from(&self, micros: u64) -> u64 {
        // ORDERING: Relaxed, as above; the swap itself keeps the values growing.
        self.0.fetch_max(micros, Ordering::Relaxed).max(micros)
    }
}

/// Lets one thread at a time find the next line. The others do not wait.
///
/// It holds the id of the process whose thread has it: after a `fork` in the wrong moment the
/// child's copy is held by a thread that the child does not have, and may be taken over.
#[derive(Debug)]
struct Lock(AtomicU64);

/// Held by nobody. No process has this id.
const FREE: u64 = 0;

impl Lock {
    const fn new() -> Self {
        Self(AtomicU64::new(FREE))
    }

    /// Does `work` unless another thread of this process is at it.
    fn try_with<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        let own = u64::from(std::process::id());
        // ORDERING: Relaxed, only a hint; the exchange decides.
        let held = self.0.load(Ordering::Relaxed);
        if held == own {
            return None;
        }
        // ORDERING: Acquire pairs with the Release below: what the last holder wrote is seen.
        self.0.compare_exchange(held, own, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let release = Release(&self.0);
        let done = work();
        drop(release);
        Some(done)
    }
}

/// Frees the lock also when the work panics.
struct Release<'a>(&'a AtomicU64);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        // ORDERING: Release, see `try_with`.
        self.0.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
