//! An anchor that many threads read while one replaces it, without either waiting.
//!
//! There are two slots and a version; the version's lowest bit says which slot is current. A writer
//! fills the other slot and then moves the version on, so readers carry on with the current one
//! meanwhile, even if the writer is stopped half way. A reader that saw the version move reads again:
//! its slot may have been the one that is written next.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::anchor::{Anchor, Line, Reading, Source, Trust};

/// Two cache lines apart from what is written often, since processors fetch them in pairs.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Latch {
    /// Zero until the first anchor is written.
    version: AtomicU64,
    slots: [Slot; 2],
}

/// An anchor as words. What a reading of the time needs comes first.
#[repr(align(64))]
#[derive(Debug)]
struct Slot {
    words: [AtomicU64; WORDS],
}

const WORDS: usize = 13;
const LINE_WORDS: usize = 6;

/// A version that a slot was read at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version(u64);

impl Latch {
    pub(super) const fn new() -> Self {
        Self { version: AtomicU64::new(0), slots: [Slot::new(), Slot::new()] }
    }

    /// The current line; before the first was written, one that is never fresh.
    #[inline]
    pub(super) fn line(&self) -> Line {
        let (words, _) = self.words::<LINE_WORDS>();
        line_from(words)
    }

    /// The current anchor, none before the first was written, and its version.
    pub(super) fn anchor(&self) -> (Option<Anchor>, Version) {
        let (words, version) = self.words::<WORDS>();
        ((version != 0).then(|| anchor_from(words)), Version(version))
    }

    /// Makes `anchor` the current one, unless another was written since `seen`.
    ///
    /// Only one thread may be in here at a time; the engine's lock sees to that.
    pub(super) fn replace(&self, seen: Version, anchor: &Anchor) {
        // ORDERING: Relaxed, because the lock orders this thread after the last writer.
        let version = self.version.load(Ordering::Relaxed);
        if version != seen.0 {
            return;
        }
        let next = version + 1;
        // ORDERING: this fence pairs with the one in `words_between`. A reader that finds a word written
        // below also finds a version that is at least the current one, which is not the version that
        // it began with if that pointed to this slot, so it reads again.
        fence(Ordering::Release);
        for (slot, word) in self.slot(next).words.iter().zip(words_of(anchor)) {
            slot.store(word, Ordering::Relaxed);
        }
        // ORDERING: Release, so that a reader that finds this version finds the words as well.
        self.version.store(next, Ordering::Release);
    }

    /// The first `N` words of the current slot, all of one version.
    ///
    /// It goes round again only if an anchor was replaced meanwhile, ten times a second at most.
    #[inline]
    fn words<const N: usize>(&self) -> ([u64; N], u64) {
        self.words_between(|_| {})
    }

    /// The same, with something done before each word: what other threads may do just then, for
    /// the tests, and otherwise nothing.
    #[inline]
    fn words_between<const N: usize>(&self, mut between: impl FnMut(usize)) -> ([u64; N], u64) {
        loop {
            // ORDERING: Acquire, pairs with the store of the version in `replace`.
            let version = self.version.load(Ordering::Acquire);
            let slot = self.slot(version);
            let words = std::array::from_fn(|n| {
                between(n);
                slot.words[n].load(Ordering::Relaxed)
            });
            // ORDERING: pairs with the fence in `replace`, see there.
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return (words, version);
            }
        }
    }

    #[inline]
    const fn slot(&self, version: u64) -> &Slot {
        &self.slots[(version & 1) as usize]
    }
}

impl Slot {
    const fn new() -> Self {
        Self { words: [const { AtomicU64::new(0) }; WORDS] }
    }
}

const MONO: u64 = 0;
const TSC: u64 = 1;

#[inline]
fn line_from(words: [u64; LINE_WORDS]) -> Line {
    let [ticks, micros, fraction, pace, fresh_ticks, source] = words;
    let source = if source == TSC { Source::Tsc } else { Source::Mono };
    Line { source, ticks, micros, fraction, pace, fresh_ticks }
}

const REFUSED: u64 = 0;
const WARMING: u64 = 1;
const TRUSTED: u64 = 2;

fn anchor_from(words: [u64; WORDS]) -> Anchor {
    let [ticks, micros, fraction, pace, fresh_ticks, source, rest @ ..] = words;
    let [tsc, mono_ns, wall_ns, doubt_ns, trust, tsc_pace, strikes] = rest;
    let trust = match trust {
        // A pace is never zero, so that zero can stand for none.
        WARMING => Trust::Warming { pace: (tsc_pace != 0).then_some(tsc_pace), strikes },
        TRUSTED => Trust::Trusted { pace: tsc_pace, strikes },
        _ => Trust::Refused,
    };
    Anchor {
        line: line_from([ticks, micros, fraction, pace, fresh_ticks, source]),
        reading: Reading { tsc, mono_ns, wall_ns, doubt_ns },
        trust,
    }
}

fn words_of(anchor: &Anchor) -> [u64; WORDS] {
    let Line { source, ticks, micros, fraction, pace, fresh_ticks } = anchor.line;
    let Reading { tsc, mono_ns, wall_ns, doubt_ns } = anchor.reading;
    let source = match source {
        Source::Mono => MONO,
        Source::Tsc => TSC,
    };
    let (trust, tsc_pace, strikes) = match anchor.trust {
        Trust::Refused => (REFUSED, 0, 0),
        Trust::Warming { pace, strikes } => (WARMING, pace.unwrap_or(0), strikes),
        Trust::Trusted { pace, strikes } => (TRUSTED, pace, strikes),
    };
    [
        ticks,
        micros,
        fraction,
        pace,
        fresh_ticks,
        source,
        tsc,
        mono_ns,
        wall_ns,
        doubt_ns,
        trust,
        tsc_pace,
        strikes,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An anchor all of whose numbers come from one, so that a mixture of two is seen.
    fn anchor(n: u64) -> Anchor {
        let trust = match n % 3 {
            0 => Trust::Warming { pace: Some(n + 1), strikes: n },
            1 => Trust::Warming { pace: None, strikes: n },
            _ => Trust::Trusted { pace: n + 1, strikes: n },
        };
        let source = if n.is_multiple_of(2) { Source::Mono } else { Source::Tsc };
        Anchor {
            line: Line { source, ticks: n, micros: n, fraction: n, pace: n, fresh_ticks: n },
            reading: Reading { tsc: n, mono_ns: n, wall_ns: n, doubt_ns: n },
            trust,
        }
    }

    #[test]
    fn an_anchor_comes_back_as_it_was_written() {
        let latch = Latch::new();
        assert_eq!(latch.line().fresh_ticks, 0);
        assert_eq!(latch.anchor().0, None);
        for n in 0..6 {
            let (_, version) = latch.anchor();
            latch.replace(version, &anchor(n));
            assert_eq!(latch.anchor().0, Some(anchor(n)));
            assert_eq!(latch.line(), anchor(n).line);
        }
    }

    #[test]
    fn an_anchor_found_from_an_old_one_is_not_written() {
        let latch = Latch::new();
        let (_, seen) = latch.anchor();
        latch.replace(seen, &anchor(1));
        latch.replace(seen, &anchor(2));
        assert_eq!(latch.anchor().0, Some(anchor(1)));
    }

    #[test]
    fn a_reader_that_is_overtaken_reads_again() {
        for (at_word, overtaken_by) in (0..WORDS).flat_map(|n| [(n, 1), (n, 2), (n, 3)]) {
            let latch = Latch::new();
            let mut written = 0;
            let mut write = || {
                latch.replace(Version(written), &anchor(written));
                written += 1;
            };
            write();
            let mut waiting = overtaken_by;
            let (words, version) = latch.words_between::<WORDS>(|n| {
                while n == at_word && waiting > 0 {
                    write();
                    waiting -= 1;
                }
            });
            assert_eq!(version, overtaken_by + 1);
            assert_eq!(anchor_from(words), anchor(overtaken_by), "overtaken at word {at_word}");
        }
    }

    #[test]
    fn readers_never_see_parts_of_two_anchors() {
        const ANCHORS: u64 = 200_000;
        let latch = Latch::new();
        std::thread::scope(|scope| {
            let reader = || {
                let mut last = 0;
                while last < ANCHORS {
                    let Some(seen) = latch.anchor().0 else { continue };
                    assert_eq!(seen, anchor(seen.line.ticks));
                    assert!(seen.line.ticks >= last, "an older anchor came back");
                    last = seen.line.ticks;
                    assert!(latch.line().ticks >= last);
                }
            };
            scope.spawn(reader);
            scope.spawn(reader);
            for n in 1..=ANCHORS {
                let (_, version) = latch.anchor();
                latch.replace(version, &anchor(n));
            }
        });
    }
}
