//! How Tidegate answers over HTTP: the headers that tell clients where they stand, and the body of a
//! refusal. The daemon, the middleware and the gateway all answer with these. Nothing is decided here,
//! and no connection is served.
//!
//! ```
//! use tidegate::{Call, RuleLimiter};
//! use tidegate_tower::{HeaderSet, Standing, refusal};
//!
//! let limiter = RuleLimiter::new("{ domain: api, rules: [ { name: all, limit: 1/minute } ] }")?;
//! let call = Call::new("api", &[]);
//! let first = limiter.check(&call)?;
//! let mut headers = http::HeaderMap::new();
//! HeaderSet::All.write(&Standing::of(&first), &mut headers);
//! assert_eq!(headers["ratelimit-policy"], r#""all";q=1;w=60"#);
//! assert_eq!(headers["ratelimit"], r#""all";r=0;t=60"#);
//!
//! let second = limiter.check(&call)?;
//! let response = refusal(&Standing::of(&second), HeaderSet::All);
//! assert_eq!(response.status(), 429);
//! assert_eq!(response.headers()["retry-after"], "60");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The map
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`standing`] | [`Standing`]: what is told, checked and made of decisions or by hand |
//! | [`headers`] | [`HeaderSet`]: which headers there are, and how they are written |
//! | [`refusal`](mod@refusal) | the response to a call that is denied |
//! | `text` | numbers and names as both write them |
#![forbid(unsafe_code)]

pub mod headers;
pub mod refusal;
pub mod standing;
mod text;

pub use headers::HeaderSet;
pub use refusal::refusal;
pub use standing::{Policy, Standing, Unit};
