//! The client of the Tidegate daemon, over gRPC, and a layer for who calls other people's limited
//! services. The daemon itself is not here, and no limit is kept here but in a local fallback.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate::Call;
//! use tidegate_client::Client;
//!
//! let client = Client::connect("http://127.0.0.1:8081")?;
//! let attributes = [("user", "42"), ("path", "/login")].map(Into::into);
//! let answer = client.check(&Call::new("api", &attributes)).await?;
//! if !answer.is_allowed() {
//!     println!("come back in {:?}", answer.retry_after());
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The map
//!
//! | file | what it holds |
//! | --- | --- |
//! | `client` | [`Client`] and its calls |
//! | `config` | [`ClientBuilder`]: deadlines, the window, retries, what happens while the daemon is away |
//! | `answer` | [`Answer`]: what was decided, wherever |
//! | `batch` | calls that are made at the same time, sent together |
//! | `pause` | waiting for a few milliseconds or less |
//! | `tell` | what the daemon is told after a call |
//! | `pool` | the connections |
//! | `breaker` | whether the daemon is worth asking |
//! | `backoff`, `budget` | how long before a retry, and how many there may be |
//! | `decide` | the client as the one who decides for `tidegate-tower` |
//! | [`throttled`] | [`ThrottledLayer`]: waits and retries as other servers ask |
#![forbid(unsafe_code)]

mod answer;
mod backoff;
mod batch;
mod breaker;
mod budget;
mod client;
mod config;
mod decide;
mod error;
mod pause;
mod pool;
mod tell;
pub mod throttled;
mod wire;

pub use answer::Answer;
pub use budget::RetryBudget;
pub use client::Client;
pub use config::{ClientBuilder, WhileAway};
pub use error::{ClientError, ConfigError};
pub use throttled::{Replay, Throttled, ThrottledLayer};

/// The programs of the page about the client, compiled with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client.md")]
struct ClientPage;
