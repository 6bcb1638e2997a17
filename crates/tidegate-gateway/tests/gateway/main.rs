//! A gateway between real clients and real servers. One program for all of it: most of the time goes into
//! linking.
#![allow(clippy::unwrap_used, reason = "what fails in a helper fails the test")]

mod adaptive;
mod again;
mod answers;
mod bodies;
mod drain;
mod express;
mod files;
mod floods;
mod forward;
mod further;
mod health;
mod hostile;
mod hosts;
mod http2;
mod leaving;
mod limits;
mod log;
mod metrics;
mod peer;
mod room;
mod shared;
mod support;
mod tls;
mod translated;
mod tunnels;
mod upstreams;
