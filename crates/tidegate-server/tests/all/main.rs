//! Claims about the daemon, over every protocol. They are one program, as linking many takes long.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod admin;
mod controlled;
mod controls;
mod counted;
mod grpc_envoy;
mod grpc_native;
mod grpc_wire;
mod http;
mod http_auth;
mod http_bad_input;
mod http_express;
mod http_openapi;
mod metrics;
mod protocol_errors;
mod resp;
mod serve;
#[path = "../support/mod.rs"]
mod support;
mod top;
mod unreached;
#[path = "../wire/mod.rs"]
mod wire;
