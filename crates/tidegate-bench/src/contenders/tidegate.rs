//! Ours, through its public interface: one token bucket per key, the default clock, and 24 bytes of
//! memory per key, all included. Single calls by text and by sixteen bytes, and batches of text.

use std::error::Error;

use tidegate::Limiter;
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, FixedWindow, Key, LeakyBucket, Limit, LimitError, Operation, Rate, SlidingLog,
    SlidingSlots, SlidingWindow, Span, SteppedBucket, Timestamp, TokenBucket,
};
use tidegate_store::{Charge, Table, TableConfig};

use super::{Contender, Quota};
use crate::random::{Random, mix};

/// What an active key may take.
const BYTES_PER_KEY: usize = 24;
/// Below this a limiter cannot be built.
pub(crate) const MEMORY_BYTES_MIN: usize = 2 << 20;

pub(crate) fn limiter(quota: Quota, keys: u32) -> Result<Limiter, Box<dyn Error>> {
    let bytes = (keys as usize * BYTES_PER_KEY).max(MEMORY_BYTES_MIN);
    Ok(Limiter::builder().limit(bucket(quota)?).memory_bytes(bytes).build()?)
}

/// The limit in our terms.
pub(crate) fn bucket(quota: Quota) -> Result<Limit, LimitError> {
    let rate = Rate::new(1, Span::from_secs(u64::from(quota.token_secs)))?;
    Ok(TokenBucket::new(rate, u64::from(quota.burst))?.into())
}

/// Single calls with text.
pub(crate) struct Text(Limiter);

impl Contender for Text {
    type Key = String;
    const NAME: &'static str = "tidegate, &str";

    fn new(quota: Quota, keys: u32) -> Result<Self, Box<dyn Error>> {
        limiter(quota, keys).map(Self)
    }

    #[inline]
    fn check(&self, key: &String) -> bool {
        self.0.check(key).is_allowed()
    }
}

/// Single calls with sixteen bytes.
pub(crate) struct Bytes(Limiter);

impl Contender for Bytes {
    type Key = [u8; 16];
    const NAME: &'static str = "tidegate, [u8; 16]";

    fn new(quota: Quota, keys: u32) -> Result<Self, Box<dyn Error>> {
        limiter(quota, keys).map(Self)
    }

    #[inline]
    fn check(&self, key: &[u8; 16]) -> bool {
        self.0.check(key).is_allowed()
    }
}

/// Batches of `N` texts.
pub(crate) struct Batches<const N: usize>(Limiter);

impl<const N: usize> Contender for Batches<N> {
    type Key = String;
    const NAME: &'static str = match N {
        16 => "tidegate, batches of 16",
        64 => "tidegate, batches of 64",
        _ => panic!("a batch size without a name"),
    };

    fn new(quota: Quota, keys: u32) -> Result<Self, Box<dyn Error>> {
        limiter(quota, keys).map(Self)
    }

    fn check(&self, key: &String) -> bool {
        self.0.check(key).is_allowed()
    }

    fn run(&self, keys: &[String]) -> usize {
        let mut allowed = 0;
        for batch in keys.chunks(N) {
            self.0.check_many(batch, |decision| allowed += usize::from(decision.is_allowed()));
        }
        allowed
    }
}

/// Our algorithms, for their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    TokenBucket,
    SteppedBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
    SlidingSlots,
    SlidingLog,
    Concurrency,
}

impl Algorithm {
    pub(crate) const ALL: [Self; 8] = [
        Self::TokenBucket,
        Self::SteppedBucket,
        Self::LeakyBucket,
        Self::FixedWindow,
        Self::SlidingWindow,
        Self::SlidingSlots,
        Self::SlidingLog,
        Self::Concurrency,
    ];

    /// The name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "tidegate, token bucket",
            Self::SteppedBucket => "tidegate, stepped bucket",
            Self::LeakyBucket => "tidegate, leaky bucket",
            Self::FixedWindow => "tidegate, fixed window",
            Self::SlidingWindow => "tidegate, sliding window",
            Self::SlidingSlots => "tidegate, sliding slots (60)",
            Self::SlidingLog => "tidegate, sliding log (500)",
            Self::Concurrency => "tidegate, concurrency",
        }
    }

    /// The algorithm of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The key counts at which its memory is measured.
    pub(crate) const fn key_counts(self) -> &'static [u32] {
        match self {
            // Five hundred takes per key: as many calls as ten million keys of the others. A million
            // keys take four minutes, and ten million would take 23 GB.
            Self::SlidingLog => &[20_000],
            _ => &[1_000_000, 10_000_000],
        }
    }

    fn limit(self) -> Result<Limit, LimitError> {
        let rate = Rate::new(500, Span::HOUR)?;
        Ok(match self {
            Self::TokenBucket => TokenBucket::new(rate, 500)?.into(),
            Self::SteppedBucket => SteppedBucket::new(rate, 500)?.into(),
            Self::LeakyBucket => LeakyBucket::new(rate, 500)?.into(),
            Self::FixedWindow => FixedWindow::new(500, Windows::Clock(Span::HOUR))?.into(),
            Self::SlidingWindow => SlidingWindow::new(rate)?.into(),
            Self::SlidingSlots => SlidingSlots::new(rate, 60, Some(10))?.into(),
            Self::SlidingLog => SlidingLog::new(rate)?.into(),
            Self::Concurrency => Concurrency::new(500, Span::HOUR)?.into(),
        })
    }

    /// The ceiling that the table gets, in bytes per key. Entries are reserved beforehand, so
    /// theirs is what they may take; the others take what they need, so theirs is out of the way.
    const fn ceiling_per_key(self) -> usize {
        match self {
            Self::TokenBucket
            | Self::SteppedBucket
            | Self::LeakyBucket
            | Self::FixedWindow
            | Self::SlidingWindow => BYTES_PER_KEY,
            Self::SlidingSlots | Self::Concurrency => 1000,
            Self::SlidingLog => 10_000,
        }
    }

    /// How often each key is taken from, and how far apart: a log is filled, and spread over its
    /// window as requests would be; a sliding window gets both of its counters.
    const fn passes(self) -> (u32, Span) {
        match self {
            Self::SlidingLog => (500, Span::from_millis(7_100)),
            Self::SlidingWindow => (2, Span::from_secs(1_900)),
            _ => (1, Span::ZERO),
        }
    }

    /// A table that holds `keys` active keys under this algorithm.
    pub(crate) fn filled(self, keys: u32) -> Result<Filled, Box<dyn Error>> {
        let limit = self.limit()?;
        let bytes = (keys as usize * self.ceiling_per_key()).max(MEMORY_BYTES_MIN);
        let mut now = Timestamp::from_secs(1_800_000_000);
        let table = Table::new(TableConfig::for_limits(bytes, [&limit]), now)?;
        let (passes, step) = self.passes();
        let mut random = Random::new(3);
        let operation = Operation::Take { cost: 1 };
        for pass in 0..passes {
            for id in 0..keys {
                let charge = Charge { limit: &limit, key: key(id), operation };
                if !table.decide_one(now, &charge).is_allowed() {
                    return Err(format!("{}: denied in pass {pass}", self.name()).into());
                }
            }
            let jitter = Span::from_micros(u64::from(random.below(100_000)));
            now = now.plus(step).plus(if step.is_zero() { step } else { jitter });
        }
        let dropped = table.stats(now).dropped;
        Ok(Filled { _table: table, dropped })
    }
}

/// A table that is kept alive while its memory is read.
pub(crate) struct Filled {
    _table: Table,
    pub(crate) dropped: u64,
}

/// As good as the keyed hash that a limiter would make.
fn key(id: u32) -> Key {
    let number = u64::from(id);
    Key::from_hash((u128::from(mix(number)) << 64) | u128::from(mix(!number)))
}
