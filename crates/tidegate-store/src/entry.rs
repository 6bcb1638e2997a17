//! The 128 bits of one entry: who it belongs to, and what is remembered of them.
//!
//! ```text
//! 127          77   76    75  74  73                                    0
//! | fingerprint | lock | format | payload                               |
//!                        0, 1     50 bits microseconds | 24 bits part     (1: in debt)
//!                        2        30 bits seconds      | 44 bits part
//!                        3        50 bits microseconds | unused           (spilled)
//! ```
//!
//! The time in the payload is when the entry is full again, counted from the table's origin, so that
//! anyone can tell a dead entry from a live one without knowing its limit. An entry of all zeros is
//! a free place. What the part means is the algorithm's affair; a state that does not fit, which
//! takes very large numbers, is *spilled*: it lives in the wide structure, and the entry keeps its
//! place and its lock.

use tidegate_core::fixed_window::Window;
use tidegate_core::sliding_window::Counters;
use tidegate_core::stepped_bucket::Steps;
use tidegate_core::token_bucket::Bucket;
use tidegate_core::{
    Decision, FixedWindow, Key, LeakyBucket, Limit, Operation, SlidingWindow, State, SteppedBucket,
    Timestamp, TokenBucket,
};

/// One entry, as it stands in a word of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(pub(crate) u128);

/// The part of a key that an entry stores, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

/// What is remembered, and when it is worth nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload(u128);

const PAYLOAD_BITS: u32 = 74;
const FORMAT_SHIFT: u32 = PAYLOAD_BITS;
const LOCK: u128 = 1 << 76;
const FINGERPRINT_SHIFT: u32 = 77;

const FORMAT_DEBT: u128 = 1;
const FORMAT_SECONDS: u128 = 2;
const FORMAT_SPILLED: u128 = 3;

const MICROS_BITS: u32 = 50;
const PART_BITS: u32 = PAYLOAD_BITS - MICROS_BITS;
const SECONDS_BITS: u32 = 30;
const SECONDS_PART_BITS: u32 = PAYLOAD_BITS - SECONDS_BITS;
const MICROS_PER_SECOND: u64 = 1_000_000;

impl Fingerprint {
    #[inline]
    pub(crate) fn of(key: Key) -> Self {
        Self(((key.as_hash() >> FINGERPRINT_SHIFT) as u64).max(1))
    }

    #[inline]
    pub(crate) fn as_u64(self) -> u64 {
        self.0
    }

    /// Whether the upper half of a word belongs to this key.
    #[inline]
    pub(crate) fn matches_high(self, high: u64) -> bool {
        high >> (FINGERPRINT_SHIFT - 64) == self.0
    }
}

impl Entry {
    pub(crate) const FREE: Self = Self(0);
    /// The last time that an entry can say, some 35 years after the origin.
    pub(crate) const TIME_MAX: u64 = (1 << MICROS_BITS) - 1;

    #[inline]
    pub(crate) fn new(fingerprint: Fingerprint, payload: Payload) -> Self {
        Self((u128::from(fingerprint.0) << FINGERPRINT_SHIFT) | payload.0)
    }

    /// An entry that holds a place for a key whose state is not known yet.
    #[inline]
    pub(crate) fn placeholder(fingerprint: Fingerprint) -> Self {
        Self((u128::from(fingerprint.0) << FINGERPRINT_SHIFT) | LOCK)
    }

    #[inline]
    pub(crate) fn fingerprint(self) -> Fingerprint {
        Fingerprint((self.0 >> FINGERPRINT_SHIFT) as u64)
    }

    /// Whether no key has this fingerprint, as in a free place.
    pub(crate) fn is_nobodys(self) -> bool {
        self.fingerprint().0 == 0
    }

    #[inline]
    pub(crate) fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    #[inline]
    pub(crate) fn locked(self) -> Self {
        Self(self.0 | LOCK)
    }

    /// Whether it can be read and swapped as it is: neither locked nor spilled.
    #[inline]
    pub(crate) fn is_plain(self) -> bool {
        // The lock stands above the format, so a locked entry is beyond the last format.
        self.0 >> FORMAT_SHIFT & 0b111 < FORMAT_SPILLED
    }

    /// Whether it is plain, in microseconds, and not in debt.
    #[inline]
    pub(crate) fn is_fine(self) -> bool {
        self.0 & 0b111 << FORMAT_SHIFT == 0
    }

    /// The same [fine](Self::is_fine) entry, full so many microseconds later; `None` where its bits cannot
    /// say that.
    #[inline]
    pub(crate) fn later(self, micros: u64) -> Option<Self> {
        let room = Self::TIME_MAX - self.payload().fine_full_at();
        (micros <= room).then(|| Self(self.0 + (u128::from(micros) << PART_BITS)))
    }

    #[inline]
    pub(crate) fn is_spilled(self) -> bool {
        self.payload().format() == FORMAT_SPILLED
    }

    #[inline]
    pub(crate) fn payload(self) -> Payload {
        Payload(self.0 & (LOCK - 1))
    }

    /// The entry with its time counted from another origin, `later` or else earlier by so many whole
    /// seconds; `None` where it lies before that origin. One that lies too far ahead for its bits
    /// is as far ahead as they can say.
    pub(crate) fn with_origin(self, seconds: u64, later: bool) -> Option<Self> {
        let (unit, shift, bits) = if self.payload().format() == FORMAT_SECONDS {
            (1, SECONDS_PART_BITS, SECONDS_BITS)
        } else {
            (MICROS_PER_SECOND, PART_BITS, MICROS_BITS)
        };
        let field = (1_u128 << bits) - 1;
        let time = ((self.0 >> shift) & field) as u64;
        let change = seconds.saturating_mul(unit);
        let moved = if later { time.checked_sub(change)? } else { time.saturating_add(change) };
        Some(Self(self.0 & !(field << shift) | u128::from(moved).min(field) << shift))
    }

    /// When the entry is full again, in microseconds since the table's origin. Whoever's entry it
    /// is, it says nothing from then on, and its place is free.
    #[inline]
    pub(crate) fn full_at(self) -> u64 {
        self.payload().full_at()
    }
}

impl Payload {
    #[inline]
    fn format(self) -> u128 {
        self.0 >> FORMAT_SHIFT
    }

    #[inline]
    fn full_at(self) -> u64 {
        if self.format() == FORMAT_SECONDS {
            let seconds = (self.0 >> SECONDS_PART_BITS) as u64 & ((1 << SECONDS_BITS) - 1);
            seconds * MICROS_PER_SECOND
        } else {
            self.fine_full_at()
        }
    }

    #[inline]
    fn part(self) -> u64 {
        if self.format() == FORMAT_SECONDS {
            self.0 as u64 & ((1 << SECONDS_PART_BITS) - 1)
        } else {
            self.fine_part()
        }
    }

    /// The time of a payload that is known to be in microseconds.
    #[inline]
    fn fine_full_at(self) -> u64 {
        (self.0 >> PART_BITS) as u64 & ((1 << MICROS_BITS) - 1)
    }

    /// The part of a payload that is known to be in microseconds.
    #[inline]
    fn fine_part(self) -> u64 {
        self.0 as u64 & ((1 << PART_BITS) - 1)
    }

    #[inline]
    fn micros(full_at: u64, part: u64, in_debt: bool) -> Option<Self> {
        if full_at >> MICROS_BITS != 0 || part >> PART_BITS != 0 {
            return None;
        }
        let format = if in_debt { FORMAT_DEBT << FORMAT_SHIFT } else { 0 };
        Some(Self(format | u128::from(full_at) << PART_BITS | u128::from(part)))
    }

    #[inline]
    fn seconds(full_at: u64, part: u64) -> Option<Self> {
        let seconds = full_at / MICROS_PER_SECOND;
        let whole = full_at.is_multiple_of(MICROS_PER_SECOND);
        if !whole || seconds >> SECONDS_BITS != 0 || part >> SECONDS_PART_BITS != 0 {
            return None;
        }
        let format = FORMAT_SECONDS << FORMAT_SHIFT;
        Some(Self(format | u128::from(seconds) << SECONDS_PART_BITS | u128::from(part)))
    }

    /// What an entry keeps of a state that lives in the wide structure: until when it matters, or
    /// the end of what 50 bits can say, where that is sooner.
    pub(crate) fn spilled(full_at: u64) -> Self {
        let full_at = full_at.min(Entry::TIME_MAX);
        Self(FORMAT_SPILLED << FORMAT_SHIFT | u128::from(full_at) << PART_BITS)
    }
}

/// A limit whose state fits an entry unless its numbers are very large. `origin` is the table's, in
/// microseconds; a whole second.
pub(crate) trait Inline {
    type State: Copy;

    fn decide(
        &self,
        state: Option<Self::State>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<Self::State>);

    /// The ordinary case of [`Inline::decide`], without a call where there is one; `None` for all
    /// else.
    #[inline]
    fn decide_ordinary(
        &self,
        state: Option<Self::State>,
        now: Timestamp,
        operation: Operation,
    ) -> Option<(Decision, Option<Self::State>)> {
        Some(self.decide(state, now, operation))
    }

    /// The state in 76 bits, or `None` where it does not fit.
    fn pack(&self, state: Self::State, origin: u64) -> Option<Payload>;

    /// The state that was packed.
    fn unpack(&self, payload: Payload, origin: u64) -> Self::State;
}

macro_rules! inline {
    ($limit:ty, $state:ty) => {
        type State = $state;

        #[inline]
        fn decide(
            &self,
            state: Option<$state>,
            now: Timestamp,
            operation: Operation,
        ) -> (Decision, Option<$state>) {
            <$limit>::decide(self, state, now, operation)
        }
    };
}

impl Inline for TokenBucket {
    inline!(TokenBucket, Bucket);

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as the function that it stands for")]
    fn decide_ordinary(
        &self,
        bucket: Option<Bucket>,
        now: Timestamp,
        operation: Operation,
    ) -> Option<(Decision, Option<Bucket>)> {
        Self::decide_ordinary(self, bucket, now, operation)
    }

    #[inline]
    fn pack(&self, bucket: Bucket, origin: u64) -> Option<Payload> {
        let full_at = bucket.full_at_micros.checked_sub(origin)?;
        Payload::micros(full_at, u64::from(bucket.full_at_fraction), bucket.in_debt)
    }

    #[inline]
    fn unpack(&self, payload: Payload, origin: u64) -> Bucket {
        Bucket {
            full_at_micros: origin + payload.fine_full_at(),
            full_at_fraction: payload.fine_part() as u32,
            in_debt: payload.format() == FORMAT_DEBT,
        }
    }
}

impl Inline for LeakyBucket {
    inline!(LeakyBucket, Bucket);

    #[inline]
    fn pack(&self, bucket: Bucket, origin: u64) -> Option<Payload> {
        self.queue().pack(bucket, origin)
    }

    #[inline]
    fn unpack(&self, payload: Payload, origin: u64) -> Bucket {
        self.queue().unpack(payload, origin)
    }
}

impl Inline for SteppedBucket {
    inline!(SteppedBucket, Steps);

    #[inline]
    fn pack(&self, steps: Steps, origin: u64) -> Option<Payload> {
        let full_at = steps.full_at.as_micros().checked_sub(origin)?;
        // A part is at least 1 and at most 2^24, so one less is kept.
        Payload::micros(full_at, steps.part.checked_sub(1)?, steps.in_debt)
    }

    #[inline]
    fn unpack(&self, payload: Payload, origin: u64) -> Steps {
        Steps {
            full_at: Timestamp::from_micros(origin + payload.fine_full_at()),
            part: payload.fine_part() + 1,
            in_debt: payload.format() == FORMAT_DEBT,
        }
    }
}

impl Inline for FixedWindow {
    inline!(FixedWindow, Window);

    #[inline]
    fn pack(&self, window: Window, origin: u64) -> Option<Payload> {
        let full_at = window.ends_at.as_micros().checked_sub(origin)?;
        Payload::micros(full_at, window.count, false)
            .or_else(|| Payload::seconds(full_at, window.count))
    }

    #[inline]
    fn unpack(&self, payload: Payload, origin: u64) -> Window {
        Window {
            ends_at: Timestamp::from_micros(origin + payload.full_at()),
            count: payload.part(),
        }
    }
}

impl Inline for SlidingWindow {
    inline!(SlidingWindow, Counters);

    /// Both counters share the part, half of its bits each. The time is when the last of them has
    /// left: one window after the present one ends, or at its end where it is still empty.
    #[inline]
    fn pack(&self, counters: Counters, origin: u64) -> Option<Payload> {
        let ends_at = counters.ends_at.as_micros().checked_sub(origin)?;
        let tail = if counters.current > 0 { self.rate().period().as_micros() } else { 0 };
        let full_at = ends_at.checked_add(tail)?;
        let halves = |bits: u32| {
            let fits = (counters.previous | counters.current) >> bits == 0;
            fits.then_some(counters.previous << bits | counters.current)
        };
        halves(PART_BITS / 2)
            .and_then(|part| Payload::micros(full_at, part, false))
            .or_else(|| Payload::seconds(full_at, halves(SECONDS_PART_BITS / 2)?))
    }

    #[inline]
    fn unpack(&self, payload: Payload, origin: u64) -> Counters {
        let bits =
            if payload.format() == FORMAT_SECONDS { SECONDS_PART_BITS } else { PART_BITS } / 2;
        let (previous, current) = (payload.part() >> bits, payload.part() & ((1 << bits) - 1));
        let tail = if current > 0 { self.rate().period().as_micros() } else { 0 };
        let ends_at = (origin + payload.full_at()).saturating_sub(tail);
        Counters { ends_at: Timestamp::from_micros(ends_at), previous, current }
    }
}

/// Packs a state whose limit is known at run time only; `None` where it does not fit an entry.
pub(crate) fn pack(limit: &Limit, state: &State, origin: u64) -> Option<Payload> {
    match (limit, state) {
        (Limit::TokenBucket(limit), State::Bucket(state)) => limit.pack(*state, origin),
        (Limit::LeakyBucket(limit), State::Bucket(state)) => limit.pack(*state, origin),
        (Limit::SteppedBucket(limit), State::Steps(state)) => limit.pack(*state, origin),
        (Limit::FixedWindow(limit), State::Window(state)) => limit.pack(*state, origin),
        (Limit::SlidingWindow(limit), State::Counters(state)) => limit.pack(*state, origin),
        _ => None,
    }
}

/// The state that an entry of this limit holds; `None` for a limit whose states are never there.
pub(crate) fn unpack(limit: &Limit, payload: Payload, origin: u64) -> Option<State> {
    Some(match limit {
        Limit::TokenBucket(limit) => State::Bucket(limit.unpack(payload, origin)),
        Limit::LeakyBucket(limit) => State::Bucket(limit.unpack(payload, origin)),
        Limit::SteppedBucket(limit) => State::Steps(limit.unpack(payload, origin)),
        Limit::FixedWindow(limit) => State::Window(limit.unpack(payload, origin)),
        Limit::SlidingWindow(limit) => State::Counters(limit.unpack(payload, origin)),
        Limit::SlidingSlots(_) | Limit::SlidingLog(_) | Limit::Concurrency(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{Rate, Span};

    const ORIGIN: u64 = 1_700_000_000 * MICROS_PER_SECOND;

    fn round_trip<L: Inline>(limit: &L, state: L::State) -> Option<L::State> {
        let key = Key::from_hash(u128::MAX / 7);
        let entry = Entry::new(Fingerprint::of(key), limit.pack(state, ORIGIN)?);
        assert_eq!(entry.fingerprint(), Fingerprint::of(key));
        assert!(!entry.is_locked() && entry.locked().is_locked());
        assert_eq!(entry.locked().payload(), entry.payload());
        Some(limit.unpack(entry.payload(), ORIGIN))
    }

    #[test]
    fn a_bucket_keeps_every_bit() {
        let limit = TokenBucket::new(Rate::new(9_999_991, Span::SECOND).unwrap(), 5).unwrap();
        for in_debt in [false, true] {
            for full_at_micros in [ORIGIN, ORIGIN + 1, ORIGIN + (1 << 50) - 1] {
                let bucket = Bucket { full_at_micros, full_at_fraction: 9_999_990, in_debt };
                assert_eq!(round_trip(&limit, bucket), Some(bucket));
            }
        }
    }

    #[test]
    fn an_entry_that_is_full_later_is_that_of_the_later_state_or_none() {
        let limit = TokenBucket::new(Rate::new(1, Span::SECOND).unwrap(), 1 << 40).unwrap();
        let fingerprint = Fingerprint::of(Key::from_hash(u128::MAX));
        let bucket =
            |full_at_micros| Bucket { full_at_micros, full_at_fraction: 0, in_debt: false };
        for full_at in [0, 1, (1 << 40) - 1, 1 << 40, (1 << 50) - 2, (1 << 50) - 1] {
            let entry =
                Entry::new(fingerprint, limit.pack(bucket(ORIGIN + full_at), ORIGIN).unwrap());
            for micros in [1, 1_000_000, 1 << 40, (1 << 50) - 1, 1 << 50, 1 << 62] {
                let packed = limit.pack(bucket(ORIGIN + full_at + micros), ORIGIN);
                let later = packed.map(|payload| Entry::new(fingerprint, payload));
                assert_eq!(entry.later(micros), later, "{full_at} and {micros}");
            }
        }
    }

    #[test]
    fn a_bucket_that_is_full_in_a_thousand_years_does_not_fit() {
        let limit = TokenBucket::new(Rate::new(1, Span::SECOND).unwrap(), 1 << 40).unwrap();
        let full_at_micros = ORIGIN + (1 << 50);
        let bucket = Bucket { full_at_micros, full_at_fraction: 0, in_debt: false };
        assert_eq!(round_trip(&limit, bucket), None);
    }

    #[test]
    fn a_window_of_whole_seconds_counts_to_seventeen_trillion() {
        let windows = tidegate_core::fixed_window::Windows::Clock(Span::DAY);
        let limit = FixedWindow::new(1 << 44, windows).unwrap();
        let ends_at = Timestamp::from_micros(ORIGIN + 3600 * MICROS_PER_SECOND);
        for count in [1, (1 << 24) - 1, 1 << 24, (1 << 44) - 1] {
            let window = Window { ends_at, count };
            assert_eq!(round_trip(&limit, window), Some(window));
        }
        assert_eq!(round_trip(&limit, Window { ends_at, count: 1 << 44 }), None);
    }

    #[test]
    fn a_sliding_window_of_whole_seconds_counts_to_four_million_twice() {
        let limit = SlidingWindow::new(Rate::new(4_000_000, Span::MINUTE).unwrap()).unwrap();
        let ends_at = Timestamp::from_micros(ORIGIN + 3600 * MICROS_PER_SECOND);
        for (previous, current) in [(0, 1), (1, 0), (4095, 4095), (4096, 0), (4_194_303, 4_194_303)]
        {
            let counters = Counters { ends_at, previous, current };
            assert_eq!(round_trip(&limit, counters), Some(counters));
        }
        assert_eq!(round_trip(&limit, Counters { ends_at, previous: 0, current: 1 << 22 }), None);
    }
}
