//! A fleet in one thread: real books, the model of a store, and a network between them that delays, loses,
//! repeats and reorders; nodes that crash, restart, pause and have clocks of their own, that give back, look,
//! reset and take beside their leases; a store that fails over and loses its last writes or all of them, and
//! whose clock is set. Everything follows from a seed.
#![allow(unreachable_pub, reason = "a module of a test")]

pub mod history;
pub mod node;
pub mod oracle;
pub mod plan;
pub mod store;
pub mod world;

/// Random numbers that are the same everywhere (`SplitMix64`).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    /// From `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub const fn chance(&mut self, permille: u64) -> bool {
        self.next() % 1_000 < permille
    }
}
