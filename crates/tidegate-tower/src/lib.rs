//! How Tidegate stands in front of services: a tower layer for axum, hyper and tonic, the headers that tell
//! clients where they stand, and what a refusal looks like. The daemon and the gateway answer with the
//! same headers and bodies. Limits are decided by whoever the layer is given, and no connection is served
//! here.
//!
//! ```
//! use std::convert::Infallible;
//!
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use tidegate::RuleLimiter;
//! use tidegate_tower::RateLimitLayer;
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let limiter = RuleLimiter::new("{ domain: api, rules: [ { name: all, limit: 1/minute } ] }")?;
//! let hello = service_fn(async |_: Request<()>| {
//!     Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
//! });
//! let service = RateLimitLayer::new(limiter).domain("api").layer(hello);
//!
//! let first = service.clone().oneshot(Request::new(())).await?;
//! assert_eq!(first.headers()["ratelimit"], r#""all";r=0;t=60"#);
//! let second = service.clone().oneshot(Request::new(())).await?;
//! assert_eq!(second.status(), 429);
//! assert_eq!(second.headers()["retry-after"], "60");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | feature | what it brings |
//! | --- | --- |
//! | `axum` | the address of the peer as axum notes it, the whole path inside nested routers, `around` for limits of a whole app, which its connections may tell their peers, and `in_axum`, which leaves bodies as axum made them |
//! | `tonic` | the address of the peer as tonic notes it |
//! | `redis` | limiters whose limits nodes share |
//!
//! # The map
//!
//! | file | what it holds |
//! | --- | --- |
//! | `layer` | [`RateLimitLayer`] and its settings; `around` puts it around a whole axum app |
//! | `service`, `future`, `body` | what it makes: [`RateLimit`], its response and the body of that |
//! | [`decide`] | [`Decide`]: who decides; `limiter` has those of this process |
//! | `awaited` | [`Awaited`]: a decision that is waited for, even where its client has gone |
//! | `judge`, `passage` | what becomes of a request, and who is told how it ended |
//! | `head` | [`Head`]: what is known of a request; [`Peer`]: who sent it |
//! | [`standing`] | [`Standing`]: what is told, checked and made of decisions or by hand |
//! | [`headers`] | [`HeaderSet`]: which headers there are, and how they are written |
//! | [`refusal`](mod@refusal), [`grpc`] | the response to a call that is denied |
//! | `values`, `text` | values of headers in memory that is used again; numbers and names as all write them |
//! | `mould` | header maps for responses that look alike |
#![deny(unsafe_code)]

#[cfg(feature = "axum")]
mod around;
mod awaited;
mod body;
pub mod decide;
mod future;
pub mod grpc;
mod head;
pub mod headers;
mod judge;
mod keeper;
mod lasting;
mod layer;
mod limiter;
mod mould;
mod passage;
pub mod refusal;
mod service;
pub mod standing;
mod text;
mod values;

#[cfg(feature = "axum")]
pub use around::{IntoMakeServiceWithConnectInfo, IntoMakeServiceWithPeers};
pub use awaited::Awaited;
#[cfg(feature = "axum")]
pub use body::InAxum;
pub use body::{Enclose, Enclosed, RateLimitBody};
pub use decide::{Decide, Decided, Undecided};
pub use future::ResponseFuture;
pub use head::{Head, Peer};
pub use headers::HeaderSet;
pub use keeper::{Keeper, Keeping};
pub use layer::{OnUndecided, RateLimitLayer};
pub use refusal::refusal;
pub use service::RateLimit;
pub use standing::{Policy, Standing, Unit};

/// The program of the page about the middleware, compiled with the other examples.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/middleware.md")]
struct MiddlewarePage;
