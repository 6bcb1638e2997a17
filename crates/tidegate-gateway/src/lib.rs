//! A reverse proxy with the limiter in front: requests are forwarded, or answered with 429. What a limit says
//! is decided in `tidegate`, and the daemon around it is `tidegate-server`; here are routes, upstreams, and
//! HTTP from one connection to the next.
//!
//! # The map
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`config`] | what a gateway is told before it starts |
//! | [`serve`](mod@serve) | its life from start to drain |
//! | [`front`] | connections of clients, and requests that are refused before anybody reads them |
//! | `gateway` | one request from its head to its response |
//! | [`route`] | where a request goes |
//! | [`auth`] | API keys, tokens and lists of addresses |
//! | `limit` | the limiter in front |
//! | `files` | static files |
//! | `forward` | heads for the next connection, retries, tunnels |
//! | [`upstream`] | the servers behind |
//! | `body`, `problem` | bodies on their way; what the gateway answers by itself |
//! | `watched` | a stream with somebody who looks at what passes |
//! | [`tls`] | certificates |
//! | [`access_log`] | a line for each request |
//! | `claims` | what must hold for any bytes, for fuzzers |
#![forbid(unsafe_code)]

pub mod access_log;
pub mod auth;
mod body;
#[doc(hidden)]
pub mod claims;
pub mod config;
mod files;
mod forward;
pub mod front;
mod gateway;
mod limit;
mod problem;
pub mod route;
pub mod serve;
pub mod tls;
pub mod upstream;
mod watched;

pub use config::{GatewaySettings, StartError};
pub use route::RouteSettings;
pub use serve::{Running, start};
