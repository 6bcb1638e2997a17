//! The daemon: HTTP, Envoy's rate limit service and RESP on one limiter, with an admin address and
//! metrics. What a limit says is decided in `tidegate`; here are sockets, formats and life cycle.
//!
//! # The map
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`engine`] | [`Engine`]: the one thing that every protocol asks |
//! | [`answer`] | [`Answer`]: a decision as protocols show it |
//! | [`controls`] | bans, the allow-list, and the switches of the admin address |
//! | [`metrics`], [`top`] | what is counted, and which keys are busiest |
//! | [`http`], [`grpc`], [`resp`], [`admin`] | the protocols |
//! | [`listen`], [`web`] | sockets, and HTTP connections on them |
//! | [`log`] | what is logged, and how much |
//! | [`config`], [`serve`](mod@serve) | settings, and the life of the daemon from start to drain |
//! | [`proto`] | the messages and services of `tidegate-proto` |
#![forbid(unsafe_code)]

pub mod admin;
pub mod answer;
pub mod config;
pub mod controls;
pub mod engine;
pub mod grpc;
pub mod http;
mod lease;
pub mod listen;
pub mod log;
pub mod metrics;
pub mod resp;
pub mod serve;
mod shard;
pub mod top;
pub mod web;

pub use answer::Answer;
pub use config::Settings;
pub use engine::{Does, Engine, EngineClock, Protocol};
pub use log::LogLevel;
pub use serve::{Running, start};
pub use tidegate_proto as proto;
