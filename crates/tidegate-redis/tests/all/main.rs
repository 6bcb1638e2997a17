//! Claims about stores on real servers. They are one program, as linking many takes long.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

mod conformance;
mod deadline;
mod differential;
mod failover;
mod failures;
mod families;
mod foreign;
mod harness;
mod histories;
mod lease_differential;
mod leased;
mod leased_outages;
mod leasing;
mod outages;
mod probing;
mod shared;
mod shared_conformance;
mod shared_outages;
mod sim;
mod simulation;
mod starting;
mod strict;
mod support;
mod together;
