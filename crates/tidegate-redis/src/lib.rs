//! Shared limits: a [`Store`](tidegate_store::Store) on Redis or Valkey, for fleets that enforce one
//! limit together.
//!
//! In **strict mode**, which is what is here, a request is decided by one atomic script in one round
//! trip: all of its limits, all or nothing, by the server's own clock. The script does the arithmetic of
//! [`tidegate_core`] to the last digit, and differs from it in nothing but the language.
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
//! | [`store`] | [`RedisStore`]: a batch of requests, in one pipeline |
//! | [`config`] | [`RedisConfig`] |
//! | `link` | the connection, and a new one after it was lost |
//! | `key` | the name of a key in the store |
//! | `protocol`, `protocol/` | a charge to the script's arguments; its reply to decisions |
//! | `script`, `script/*.lua` | the script, one file for each family of algorithms |
//!
//! There are no rules here, and no clock: the time is the server's, or that of the request.
#![doc = include_str!("state.md")]
#![forbid(unsafe_code)]

pub mod config;
mod key;
mod link;
mod protocol;
mod script;
pub mod store;

pub use config::{ForeignState, RedisConfig, TimeSource};
pub use link::ConnectError;
pub use store::{RedisStore, Stats};
