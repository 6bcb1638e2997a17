//! The protocol of Redis: what is read, what is answered byte for byte, how connections behave, and
//! clients that people use, unchanged.

mod clients;
mod connections;
mod golden;
mod parsing;
mod talk;
mod throttle;
