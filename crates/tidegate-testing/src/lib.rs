//! What tests of several crates need and no library has. It ships to nobody.

mod ports;
mod stalls;

pub use ports::{free_address, free_port};
pub use stalls::{always, seen_within, undisturbed};
