//! Nodes that share limits, and what they are asked in tests.

use std::process::Command;
use std::time::Duration;

use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, Consistency, FixedWindow, Key, Limit, OnStoreFailure, Operation, Rate, Span,
    Terms, Timestamp, TokenBucket,
};
use tidegate_redis::{Settled, Shared, SharedConfig};
use tidegate_store::{Charge, Request, StoreError};
use tokio::time::Instant;

use super::{PATIENCE, Server, block_on};

/// Each limit is in the store, and a store that cannot answer is an error.
pub const STRICT: Terms = on_failure(OnStoreFailure::Deny);

/// The terms of a limit that the store keeps.
pub const fn on_failure(on_failure: OnStoreFailure) -> Terms {
    Terms { consistency: Consistency::Strict, on_failure, group: None }
}

/// The same, in a group.
pub const fn in_group(terms: Terms, group: u8) -> Terms {
    Terms { group: Some(group), ..terms }
}

/// A node on these servers, one group each.
pub fn node(servers: &[&Server]) -> Shared {
    open(SharedConfig::new(servers.iter().map(|server| server.config())))
}

pub fn open(config: SharedConfig) -> Shared {
    block_on(Shared::connect(config)).expect("the servers are there")
}

/// A bucket that is not refilled while a test runs.
pub fn bucket(burst: u64) -> Limit {
    let rate = Rate::new(burst, Span::DAY).expect("a rate");
    TokenBucket::new(rate, burst).expect("a bucket").into()
}

/// A window that lasts longer than a test. What is refunded comes back to the last unit, where a bucket
/// keeps what it was refilled by in the meantime.
pub fn window(count: u64) -> Limit {
    FixedWindow::new(count, Windows::FirstRequest(Span::DAY)).expect("a window").into()
}

pub fn places(limit: u64, expires_after: Span) -> Limit {
    Concurrency::new(limit, expires_after).expect("a limit").into()
}

/// A key with a tag of its own, as subjects have them.
pub fn key(number: u128) -> Key {
    Key::from_hash((number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

pub fn take(limit: &Limit, key: Key) -> Charge<'_> {
    does(limit, key, Operation::Take { cost: 1 })
}

pub fn does(limit: &Limit, key: Key, operation: Operation) -> Charge<'_> {
    Charge { limit, key, operation }
}

/// The time of a node: it runs like the machine's, and starts on a day of its own.
pub fn now() -> Timestamp {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = *START.get_or_init(Instant::now);
    let passed = Span::from_micros(start.elapsed().as_micros() as u64);
    Timestamp::from_secs(1_790_553_600).plus(passed)
}

pub async fn ask(
    node: &Shared,
    charges: &[Charge<'_>],
    terms: &[Terms],
) -> Result<Vec<Settled>, StoreError> {
    let mut settled = Vec::new();
    node.decide(&Request { now: now(), charges }, terms, &mut settled).await?;
    assert_eq!(settled.len(), charges.len());
    Ok(settled)
}

pub async fn ask_one(
    node: &Shared,
    charge: Charge<'_>,
    terms: Terms,
) -> Result<Settled, StoreError> {
    Ok(ask(node, &[charge], &[terms]).await?[0])
}

pub async fn remaining(node: &Shared, limit: &Limit, key: Key, terms: Terms) -> u64 {
    let look = does(limit, key, Operation::Peek { cost: 0 });
    ask_one(node, look, terms).await.expect("the store is well").decision.remaining
}

/// Sends a signal to a server.
pub fn signal(server: &Server, name: &str) {
    let sent = Command::new("kill").args([name, &server.pid().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Waits until something is so, and gives how long that took.
pub async fn wait_until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    start.elapsed()
}
