//! A rate limiter to embed.
//!
//! ```
//! let limiter = tidegate::Limiter::new("2/minute")?;
//! assert!(limiter.check("ann").is_allowed());
//! assert!(limiter.check("ann").is_allowed());
//! let denied = limiter.check("ann").retry_after().expect("two a minute, and this is the third");
//! println!("come back in {denied:?}"); // come back in 29.99…s
//! # assert!(denied.as_secs() >= 29);
//! # Ok::<(), tidegate::BuildError>(())
//! ```
//!
//! A [`Limiter`] is made of rates as people write them, is shared between threads as it is, and
//! decides in some tens of nanoseconds without locks. It has no background thread and needs no
//! async runtime. Its memory has a ceiling that holds under any flood of new keys.
//!
//! # Several limits at once
//!
//! A request under several limits is charged to all of them or to none:
//!
//! ```
//! use tidegate::Limiter;
//!
//! let limiter = Limiter::builder().limit("10/s burst 20").limit("500 per hour").build()?;
//! let decision = limiter.check_cost("ann", 5);
//! assert_eq!(decision.remaining(), 15); // of the limit that has least left
//! # Ok::<(), tidegate::BuildError>(())
//! ```
//!
//! # Counted by more than a name
//!
//! ```
//! # let limiter = tidegate::Limiter::new("2/minute")?;
//! let decision = limiter.check([("user", "42"), ("path", "/login")]);
//! # assert!(decision.is_allowed());
//! # Ok::<(), tidegate::BuildError>(())
//! ```
//!
//! # In tests
//!
//! Time is handed in, so a test need not sleep:
//!
//! ```
//! use std::time::Duration;
//! use tidegate::{Limiter, ManualClock};
//!
//! let clock = ManualClock::new();
//! let limiter = Limiter::builder().limit("1/minute").clock(clock.clone()).build()?;
//! assert!(limiter.check("ann").is_allowed());
//! assert!(!limiter.check("ann").is_allowed());
//! clock.advance(Duration::from_secs(60));
//! assert!(limiter.check("ann").is_allowed());
//! # Ok::<(), tidegate::BuildError>(())
//! ```
//!
//! # The map
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`limiter`] | [`Limiter`] and its calls |
//! | [`builder`] | [`LimiterBuilder`]: limits, memory, clock, secret, state file |
//! | [`decision`] | [`Decision`] over all limits of a call |
//! | [`permit`] | [`Permit`]: a place under a concurrency limit, given back on drop |
//! | [`keyed`] | [`Keyed`]: what can be counted by |
//! | [`rules`] | [`RuleLimiter`]: the same by rules, which can be exchanged while it runs |
//! | [`pressure`] | [`PressureSignal`]: how busy the protected service is, for elastic rules |
//! | [`clock`] | [`Clock`], [`SystemClock`], [`ManualClock`] |
#![forbid(unsafe_op_in_unsafe_fn)]

pub mod builder;
pub mod clock;
pub mod decision;
pub mod keyed;
pub mod limiter;
pub mod permit;
pub mod pressure;
pub mod rules;
mod secret;

pub use builder::{BuildError, IntoLimit, LimiterBuilder};
pub use clock::{Clock, ManualClock, SystemClock};
pub use decision::Decision;
pub use keyed::Keyed;
pub use limiter::Limiter;
pub use permit::{OwnedPermit, Permit};
pub use pressure::{HostPressure, PressureSignal};
#[cfg(feature = "redis")]
pub use rules::Place;
pub use rules::{
    Call, CheckError, Checker, RuleDecision, RuleLimiter, RuleLimiterBuilder, RulesError,
};
pub use secret::Restored;
pub use tidegate_core as core;
pub use tidegate_core::{Consistency, LeaseId, Limit, OnStoreFailure, Span, Timestamp};
#[cfg(feature = "redis")]
pub use tidegate_redis as redis;
pub use tidegate_rules::{Attribute, ParseLimitError, Reads, RuleSet};
pub use tidegate_store::snapshot::SnapshotError;
pub use tidegate_store::{Charge, Settled, Source, Stats, StoreError};

/// The examples of the README, compiled and run with the others.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct ReadmeExamples;

/// The same of the page about the library.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryPage;
