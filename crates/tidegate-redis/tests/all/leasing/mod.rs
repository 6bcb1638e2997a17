//! What the tests of leases share: the store's side, exactly and without a store.
#![allow(unreachable_pub, reason = "a part of the test program only")]

pub mod model;
