//! What the tests of leases share: the store's side, exactly and without a store.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

pub mod model;
