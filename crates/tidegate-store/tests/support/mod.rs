//! What the tests of the table have in common: keys, limits and requests in few words.
#![allow(dead_code, reason = "each test file uses its own part of it")]

use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, Decision, FixedWindow, Key, LeakyBucket, Limit, Operation, Rate, SlidingLog,
    SlidingSlots, SlidingWindow, Span, SteppedBucket, Timestamp, TokenBucket,
};
use tidegate_store::{Charge, Request, Table, TableConfig};

/// Where the tests' clocks start: a whole day, far enough from zero for them to be set back.
pub(crate) const START: Timestamp = Timestamp::from_secs(20_000 * 86_400);

/// The smallest table there is.
pub(crate) const SMALLEST: TableConfig = TableConfig {
    entry_bytes: TableConfig::ENTRY_BYTES_MIN,
    wide_bytes: TableConfig::WIDE_BYTES_MIN,
};

pub(crate) fn table(config: TableConfig) -> Table {
    Table::new(config, START).unwrap()
}

/// The key of that number; all of its bits are as good as random.
pub(crate) fn key(number: u64) -> Key {
    let half = |seed: u64| {
        // SplitMix64.
        let mut bits = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    };
    Key::from_hash(u128::from(half(2 * number + 1)) << 64 | u128::from(half(2 * number + 2)))
}

pub(crate) fn rate(count: u64, period: Span) -> Rate {
    Rate::new(count, period).unwrap()
}

pub(crate) fn bucket(count: u64, period: Span, burst: u64) -> Limit {
    TokenBucket::new(rate(count, period), burst).unwrap().into()
}

pub(crate) fn window(count: u64, length: Span) -> Limit {
    FixedWindow::new(count, Windows::Clock(length)).unwrap().into()
}

pub(crate) fn sliding(count: u64, period: Span) -> Limit {
    SlidingWindow::new(rate(count, period)).unwrap().into()
}

pub(crate) fn log(count: u64, period: Span) -> Limit {
    SlidingLog::new(rate(count, period)).unwrap().into()
}

pub(crate) fn places(count: u64, expires_after: Span) -> Limit {
    Concurrency::new(count, expires_after).unwrap().into()
}

/// One limit of each algorithm that admits `count` at a moment, and hours later the same again.
pub(crate) fn one_of_each(count: u64) -> [Limit; 9] {
    let hourly = rate(count, Span::HOUR);
    [
        TokenBucket::new(hourly, count).unwrap().into(),
        SteppedBucket::new(hourly, count).unwrap().into(),
        LeakyBucket::new(hourly, count).unwrap().into(),
        window(count, Span::HOUR),
        FixedWindow::new(count, Windows::FirstRequest(Span::HOUR)).unwrap().into(),
        SlidingWindow::new(hourly).unwrap().into(),
        SlidingSlots::new(hourly, 60, None).unwrap().into(),
        SlidingLog::new(hourly).unwrap().into(),
        Concurrency::new(count, Span::HOUR).unwrap().into(),
    ]
}

pub(crate) const fn take(cost: u64) -> Operation {
    Operation::Take { cost }
}

pub(crate) const fn peek(cost: u64) -> Operation {
    Operation::Peek { cost }
}

pub(crate) fn one(
    table: &Table,
    limit: &Limit,
    key: Key,
    now: Timestamp,
    what: Operation,
) -> Decision {
    table.decide_one(now, &Charge { limit, key, operation: what })
}

pub(crate) fn takes(table: &Table, limit: &Limit, key: Key, now: Timestamp, cost: u64) -> bool {
    one(table, limit, key, now, take(cost)).is_allowed()
}

/// What is left to a key.
pub(crate) fn left(table: &Table, limit: &Limit, key: Key, now: Timestamp) -> u64 {
    one(table, limit, key, now, peek(0)).remaining
}

/// Takes one of each, all or nothing, and says whether it was allowed.
pub(crate) fn takes_all(table: &Table, now: Timestamp, limits: &[(&Limit, Key)]) -> bool {
    let charge = |&(limit, key): &(_, _)| Charge { limit, key, operation: take(1) };
    let charges: Vec<_> = limits.iter().map(charge).collect();
    let mut decisions = Vec::new();
    table.decide(&Request { now, charges: &charges }, &mut decisions).unwrap();
    assert_eq!(decisions.len(), charges.len());
    decisions.iter().all(Decision::is_allowed)
}

pub(crate) fn later(time: Timestamp, micros: u64) -> Timestamp {
    time.plus(Span::from_micros(micros))
}
