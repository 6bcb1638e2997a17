//! The arithmetic of rate limits, and nothing else.
//!
//! One function, [`Limit::decide`], takes `(limit, state, now, operation)` and gives
//! `(decision, state)`. There is no clock here, no lock, no I/O and no floating point: the crate is
//! `no_std`, so the compiler keeps them out. Whoever calls it holds the state, in memory or in a
//! shared store, and hands in the time.
//!
//! ```
//! use tidegate_core::{Limit, Operation, Rate, Span, Timestamp, TokenBucket, Verdict};
//!
//! let limit = Limit::from(TokenBucket::new(Rate::new(1, Span::SECOND)?, 1)?);
//! let now = Timestamp::ZERO;
//! let (first, state) = limit.decide(None, now, Operation::Take { cost: 1 });
//! let (second, _) = limit.decide(state, now, Operation::Take { cost: 1 });
//! assert!(first.is_allowed());
//! assert_eq!(second.verdict, Verdict::Deny { retry_after: Span::SECOND });
//! # Ok::<(), tidegate_core::LimitError>(())
//! ```
//!
//! # The map
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`limit`] | [`Limit`], the enum of all algorithms, [`State`], and the one function |
//! | [`operation`], [`decision`], [`key`] | what is asked, what is answered, who is counted |
//! | [`time`], [`rate`] | timestamps and spans in microseconds; so many per period |
//! | `pace` | rates without rounding: the arithmetic under the buckets |
//! | [`token_bucket`], [`stepped_bucket`], [`leaky_bucket`] | the buckets |
//! | [`fixed_window`], [`sliding_window`], [`sliding_slots`], [`sliding_log`] | the windows |
//! | [`calendar`] | days, weeks, months and years in a time zone |
//! | [`concurrency`] | at most so many at once |
//!
//! # What holds for every algorithm
//!
//! * **A full limit is an absent one.** `None` is the state of a key that has all of its quota, and
//!   `decide` gives `None` back when that is so again. A store may forget a key at that moment.
//! * **Never over.** Whatever the order of calls and times, no more is admitted than the definition
//!   of the algorithm allows. Where a number cannot be represented, it is rounded towards denial.
//! * **Exact waits.** A denial says how long to wait: alone, a retry at that tick succeeds and one
//!   tick earlier it does not. (A concurrency limit gives its best estimate.)
//! * **Clocks may step back.** Differences up to [`SKEW_MAX`] are taken for threads that read the
//!   clock in one order and arrive in another; larger ones for a clock that was set back. Neither
//!   gives quota away, and nobody waits longer than from an empty limit, plus [`SKEW_MAX`], plus one
//!   window where the clock went back across the edge of one.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

extern crate alloc;

pub mod calendar;
pub mod concurrency;
pub mod decision;
pub mod fixed_window;
pub mod key;
pub mod leaky_bucket;
pub mod limit;
pub mod operation;
mod pace;
pub mod rate;
mod scaled;
pub mod sliding_log;
pub mod sliding_slots;
pub mod sliding_window;
pub mod stepped_bucket;
pub mod terms;
pub mod time;
pub mod token_bucket;

pub use concurrency::Concurrency;
pub use decision::{Decision, LeaseId, Verdict};
pub use fixed_window::FixedWindow;
pub use key::Key;
pub use leaky_bucket::LeakyBucket;
pub use limit::{Limit, LimitError, State};
pub use operation::Operation;
pub use rate::Rate;
pub use sliding_log::SlidingLog;
pub use sliding_slots::SlidingSlots;
pub use sliding_window::SlidingWindow;
pub use stepped_bucket::SteppedBucket;
pub use terms::{Consistency, OnStoreFailure, Terms};
pub use time::{SKEW_MAX, Span, Timestamp};
pub use token_bucket::TokenBucket;
