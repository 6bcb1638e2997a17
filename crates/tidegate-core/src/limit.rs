//! All the algorithms behind one enum, and the one function over them.
//!
//! An enum and not a trait, because the set is ours: it travels on the wire, is written to files and
//! is matched without wildcards, so that a new algorithm is a compile error wherever it is forgotten.

use core::fmt;

use crate::concurrency::Leases;
use crate::fixed_window::{Window, Windows};
use crate::sliding_log::Log;
use crate::sliding_slots::Slots;
use crate::sliding_window::Counters;
use crate::stepped_bucket::Steps;
use crate::token_bucket::Bucket;
use crate::{
    Concurrency, Decision, FixedWindow, LeakyBucket, Operation, Rate, SlidingLog, SlidingSlots,
    SlidingWindow, Span, SteppedBucket, Timestamp, TokenBucket,
};

/// An algorithm with its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// See [`token_bucket`](crate::token_bucket).
    TokenBucket(TokenBucket),
    /// See [`stepped_bucket`](crate::stepped_bucket).
    SteppedBucket(SteppedBucket),
    /// See [`leaky_bucket`](crate::leaky_bucket).
    LeakyBucket(LeakyBucket),
    /// See [`fixed_window`](crate::fixed_window).
    FixedWindow(FixedWindow),
    /// See [`sliding_window`](crate::sliding_window).
    SlidingWindow(SlidingWindow),
    /// See [`sliding_slots`](crate::sliding_slots).
    SlidingSlots(SlidingSlots),
    /// See [`sliding_log`](crate::sliding_log).
    SlidingLog(SlidingLog),
    /// See [`concurrency`](crate::concurrency).
    Concurrency(Concurrency),
}

/// What is remembered of one key under one limit. A key with all of its quota has no state at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a token bucket or a leaky bucket.
    Bucket(Bucket),
    /// Of a bucket with stepped refill.
    Steps(Steps),
    /// Of a fixed window.
    Window(Window),
    /// Of a sliding window.
    Counters(Counters),
    /// Of sliding slots.
    Slots(Slots),
    /// Of a sliding log.
    Log(Log),
    /// Of a concurrency limit.
    Leases(Leases),
}

impl Limit {
    /// The algorithm's name, as rules spell it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "token-bucket",
            Self::SteppedBucket(_) => "stepped-bucket",
            Self::LeakyBucket(_) => "leaky-bucket",
            Self::FixedWindow(_) => "fixed-window",
            Self::SlidingWindow(_) => "sliding-window",
            Self::SlidingSlots(_) => "sliding-slots",
            Self::SlidingLog(_) => "sliding-log",
            Self::Concurrency(_) => "concurrency",
        }
    }

    /// The period that belongs to a key: a limit of another period counts anew. A concurrency limit
    /// has none.
    pub const fn period(&self) -> Span {
        match self {
            Self::TokenBucket(limit) => limit.rate().period(),
            Self::SteppedBucket(limit) => limit.rate().period(),
            Self::LeakyBucket(limit) => limit.rate().period(),
            Self::FixedWindow(limit) => limit.windows().period(),
            Self::SlidingWindow(limit) => limit.rate().period(),
            Self::SlidingSlots(limit) => limit.rate().period(),
            Self::SlidingLog(limit) => limit.rate().period(),
            Self::Concurrency(_) => Span::ZERO,
        }
    }

    /// Whether nodes can reserve some of it and spend that by themselves. They cannot where it matters
    /// in which order requests come, as in a queue, which one is over, as with places that are given
    /// back, or which one was the first.
    pub const fn is_leasable(&self) -> bool {
        match self {
            Self::TokenBucket(_)
            | Self::SteppedBucket(_)
            | Self::SlidingWindow(_)
            | Self::SlidingSlots(_)
            | Self::SlidingLog(_) => true,
            Self::FixedWindow(limit) => match limit.windows() {
                Windows::Clock(_) | Windows::Calendar(_) => true,
                Windows::FirstRequest(_) => false,
            },
            Self::LeakyBucket(_) | Self::Concurrency(_) => false,
        }
    }

    /// Decides `operation` at `now` on `state`: the answer, and the state that follows.
    ///
    /// A state of another algorithm counts as none. It cannot come up where keys contain the
    /// algorithm, as they must.
    pub fn decide(
        &self,
        state: Option<State>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<State>) {
        macro_rules! decide {
            ($limit:expr, $kind:ident) => {{
                let state = match state {
                    Some(State::$kind(state)) => Some(state),
                    _ => None,
                };
                let (decision, next) = $limit.decide(state, now, operation);
                (decision, next.map(State::$kind))
            }};
        }
        match self {
            Self::TokenBucket(limit) => decide!(limit, Bucket),
            Self::SteppedBucket(limit) => decide!(limit, Steps),
            Self::LeakyBucket(limit) => decide!(limit, Bucket),
            Self::FixedWindow(limit) => decide!(limit, Window),
            Self::SlidingWindow(limit) => decide!(limit, Counters),
            Self::SlidingSlots(limit) => decide!(limit, Slots),
            Self::SlidingLog(limit) => decide!(limit, Log),
            Self::Concurrency(limit) => decide!(limit, Leases),
        }
    }
}

macro_rules! from_algorithm {
    ($($algorithm:ident),+) => {$(
        impl From<$algorithm> for Limit {
            fn from(limit: $algorithm) -> Self {
                Self::$algorithm(limit)
            }
        }
    )+};
}

from_algorithm!(
    TokenBucket,
    SteppedBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
    SlidingSlots,
    SlidingLog,
    Concurrency
);

/// Why numbers do not make a limit. Nothing was made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LimitError {
    /// The count is 0.
    CountZero,
    /// The count is above the largest.
    CountTooLarge {
        /// The largest count.
        max: u64,
    },
    /// The period is 0.
    PeriodZero,
    /// The period is above the longest.
    PeriodTooLong {
        /// The longest period.
        max: Span,
    },
    /// The rate is above ten million per second and cannot be kept to one part in a million.
    RateTooFine,
    /// The burst is 0.
    BurstZero,
    /// The burst is above the largest.
    BurstTooLarge {
        /// The largest burst.
        max: u64,
    },
    /// The burst would take too long to come back.
    BurstTooDeep {
        /// The longest time that a burst may take.
        max: Span,
    },
    /// The number of slots is out of range.
    SlotsOutOfRange {
        /// The fewest slots.
        min: u32,
        /// The most slots.
        max: u32,
    },
    /// The period is not a whole number of microseconds for each slot.
    SlotsUneven,
    /// The limit per slot is 0.
    PerSlotZero,
    /// The limit per slot is above the largest.
    PerSlotTooLarge {
        /// The largest limit per slot.
        max: u64,
    },
    /// The time after which a lease expires is 0.
    ExpiryZero,
    /// The time after which a lease expires is above the longest.
    ExpiryTooLong {
        /// The longest time.
        max: Span,
    },
}

impl fmt::Display for LimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let years = |span: &Span| span.as_secs_ceil() / (366 * 86_400);
        match self {
            Self::CountZero => f.write_str("the count is 0; it must be at least 1"),
            Self::CountTooLarge { max } => write!(f, "the count is too large; at most {max}"),
            Self::PeriodZero => f.write_str("the period is 0; it must be at least 1 microsecond"),
            Self::PeriodTooLong { max } => {
                write!(f, "the period is too long; at most {} years", years(max))
            }
            Self::RateTooFine => f.write_str(
                "the rate is above 10000000 per second and not a multiple of 1000000 per second",
            ),
            Self::BurstZero => f.write_str("the burst is 0; it must be at least 1"),
            Self::BurstTooLarge { max } => write!(f, "the burst is too large; at most {max}"),
            Self::BurstTooDeep { max } => write!(
                f,
                "the burst takes too long to come back at this rate; at most {} years",
                years(max)
            ),
            Self::SlotsOutOfRange { min, max } => {
                write!(f, "the number of slots is out of range; {min} to {max}")
            }
            Self::SlotsUneven => f.write_str(
                "the slots are uneven; their number must divide the period in microseconds",
            ),
            Self::PerSlotZero => f.write_str("the limit per slot is 0; it must be at least 1"),
            Self::PerSlotTooLarge { max } => {
                write!(f, "the limit per slot is too large; at most {max}")
            }
            Self::ExpiryZero => {
                f.write_str("the expiry of leases is 0; it must be at least 1 microsecond")
            }
            Self::ExpiryTooLong { max } => {
                write!(f, "the expiry of leases is too long; at most {} years", years(max))
            }
        }
    }
}

impl core::error::Error for LimitError {}

const _: () = assert!(Rate::COUNT_MAX < u64::MAX / 4, "sums of a few counts cannot overflow");
