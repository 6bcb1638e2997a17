//! Nothing but a place for `benches/instructions.rs`, which needs few dependencies: a test run counts
//! instructions without building the servers, clients and peers of the other benchmarks.
