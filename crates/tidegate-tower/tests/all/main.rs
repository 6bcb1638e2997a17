//! Claims about the layer in front of real services. They are one program, as linking many takes long.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod axum;
mod ending;
mod foreseen;
mod golden;
mod hyper;
mod peers;
mod properties;
mod shared;
#[path = "../support/mod.rs"]
mod support;
mod tonic;
