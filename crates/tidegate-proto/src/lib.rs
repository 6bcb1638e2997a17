//! What `build.rs` makes of the files in `proto/`: messages, servers and clients, in modules that are
//! called as their packages. Nothing in them is written by hand. The daemon and its client share it, and
//! neither has to build the other.
#![allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "it is generated"
)]

/// The files in `proto/` and those that they import, as reflection tells them.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

include!(concat!(env!("OUT_DIR"), "/packages.rs"));
