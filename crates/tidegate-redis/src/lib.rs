//! Shared limits: a [`Store`](tidegate_store::Store) on Redis or Valkey, for fleets that enforce one
//! limit together.
//!
//! In **strict mode** a request is decided by one atomic script in one round trip: all of its limits, all
//! or nothing, by the server's own clock. The script does the arithmetic of [`tidegate_core`] to the last
//! digit, and differs from it in nothing but the language. In **leased mode** a node reserves quota by the same
//! script and spends it by itself; [`lease`] says how, and why that is never over. [`Shared`] is what a limiter asks: several
//! deployments, each limit on its own terms, and an answer whatever becomes of the servers.
//!
//! ```no_run
//! use tidegate_redis::{RedisConfig, RedisStore};
//!
//! # async fn connect() -> Result<(), tidegate_redis::ConnectError> {
//! let store = RedisStore::connect(RedisConfig::new("redis://127.0.0.1:6379")?).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # The map
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`shared`] | [`Shared`]: groups of servers, policies where they fail, denials that are kept |
//! | [`lease`], `lease/` | quota that a node reserves and spends by itself: the book, and what runs it |
//! | [`deadline`] | by when a decision has to be there, whatever it is made of |
//! | `split` | one request whose limits are kept in several places |
//! | [`store`] | [`RedisStore`]: one deployment behind the seam of all stores |
//! | `lane`, `lane/` | all that happens on one connection: script calls in pipelines, replies |
//! | [`config`] | [`RedisConfig`] |
//! | [`stats`] | [`Stats`]: what a store has met so far |
//! | `cluster`, `cluster/` | who has which slot, and calls that go on to another server |
//! | `link`, `link/` | the connection to one server, and a new one after it was lost |
//! | [`probe`](mod@probe) | what there is to know of a deployment, and what to be warned of |
//! | `key` | the name of a key in the store |
//! | `protocol`, `protocol/` | a charge to the script's arguments; its reply to decisions |
//! | `script`, `script/*.lua` | the script, one file for each family of algorithms |
//!
//! There are no rules here, and no clock: the time is the server's, or that of the request.
#![doc = include_str!("state.md")]
#![forbid(unsafe_code)]

mod cluster;
pub mod config;
pub mod deadline;
mod key;
mod lane;
pub mod lease;
mod link;
pub mod probe;
mod protocol;
mod script;
pub mod shared;
mod split;
pub mod stats;
pub mod store;

pub use config::{ForeignState, RedisConfig, TimeSource};
pub use deadline::Deadline;
pub use link::ConnectError;
pub use probe::{Probe, probe};
pub use shared::{GroupStats, OpenError, Settled, Shared, SharedConfig, SharedStats};
pub use stats::{BreakerState, Stats};
pub use store::RedisStore;
