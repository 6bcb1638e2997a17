//! Memory has a ceiling and keeps it, whatever comes; and what is forgotten first is what would
//! soonest be full again.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

mod support;

use std::sync::{Mutex, MutexGuard, PoisonError};

use support::{START, bucket, key, later, left, log, one, peek, places, rate, table, takes};
use tidegate_core::{Limit, SlidingSlots, Span, Timestamp};
use tidegate_store::{Table, TableConfig, TableError};

const MIB: usize = 1 << 20;

/// Held by each test, since they share the memory that one of them measures.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The memory of this process that is in use, in bytes.
#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    const PAGE_BYTES: usize = 4096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * PAGE_BYTES
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes() -> usize {
    0
}

/// Runs a flood against a table of its own, and gives the keys that are left.
fn keeps_its_ceiling(name: &str, config: TableConfig, flood: impl Fn(&Table)) -> u64 {
    const SLACK_BYTES: usize = 3 * MIB;
    let before = resident_bytes();
    let table = table(config);
    flood(&table);
    let ceiling = config.entry_bytes + config.wide_bytes;
    let stats = table.stats(START);
    assert!(stats.bytes <= ceiling as u64, "{name}: {} of {ceiling}", stats.bytes);
    assert!(stats.dropped > 0, "{name}: the flood was too small to show anything");
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown <= ceiling + SLACK_BYTES, "{name}: {grown} bytes more, and {ceiling} allowed");
    stats.keys
}

#[test]
fn a_flood_of_new_keys_stays_below_the_ceiling() {
    let _alone = alone();
    let entries = TableConfig { entry_bytes: 8 * MIB, wide_bytes: MIB };
    let keys = keeps_its_ceiling("entries", entries, |table| {
        let limit = bucket(1, Span::HOUR, 5);
        for number in 0..5_000_000 {
            assert!(takes(table, &limit, key(number), START, 1));
        }
    });
    assert_eq!(keys, (8 * MIB / 16) as u64, "every place is used");

    let wide = TableConfig { entry_bytes: MIB, wide_bytes: 8 * MIB };
    let slots: Limit = SlidingSlots::new(rate(500, Span::HOUR), 60, None).unwrap().into();
    // How many keys a flood leaves is what a key takes at the ceiling: no more than so many bytes.
    let floods = [
        ("leases", places(5, Span::HOUR), 300),
        ("logs", log(5, Span::HOUR), 300),
        ("slots", slots, 700),
    ];
    for (name, limit, key_bytes) in floods {
        let keys = keeps_its_ceiling(name, wide, |table| {
            for number in 0..500_000 {
                assert!(takes(table, &limit, key(number), START, 1));
            }
        });
        assert!(keys >= (8 * MIB / key_bytes) as u64, "{name}: only {keys} keys are left");
    }
    let huge = bucket(1, Span::SECOND, 1 << 40);
    let keys = keeps_its_ceiling("spilled", wide, |table| {
        for number in 0..500_000 {
            assert!(takes(table, &huge, key(number), START, 1 << 39));
        }
    });
    assert!(keys >= (8 * MIB / 300) as u64, "spilled: only {keys} keys are left");
    logs_that_grow_stay_below_the_ceiling(wide);
}

fn logs_that_grow_stay_below_the_ceiling(config: TableConfig) {
    let limit = log(2_000, Span::HOUR);
    keeps_its_ceiling("logs that grow", config, |table| {
        for round in 0..400 {
            for number in 0..10_000 {
                let now = later(START, round * 1_000_003 + number);
                assert!(takes(table, &limit, key(number), now, 1));
            }
        }
    });
}

#[test]
fn a_million_active_keys_in_24_bytes_each_lose_fewer_than_one_in_10_000() {
    const KEYS: u64 = 1_000_000;
    let _alone = alone();
    let config = TableConfig { entry_bytes: 24_000_000, wide_bytes: TableConfig::WIDE_BYTES_MIN };
    let (table, limit) = (table(config), bucket(1, Span::HOUR, 5));
    for number in 0..KEYS {
        assert!(takes(&table, &limit, key(number), START, 1));
    }
    let stats = table.stats(START);
    assert!(stats.dropped < KEYS / 10_000, "{} dropped", stats.dropped);
    assert_eq!(stats.keys + stats.dropped, KEYS);
}

#[test]
fn a_key_over_its_limit_stays_over_while_keys_nearer_to_full_flood_the_table() {
    let _alone = alone();
    let (slow, quick) = (bucket(1, Span::HOUR, 1), bucket(1, Span::SECOND, 5));
    let table = table(support::SMALLEST);
    for number in 0..1_000 {
        assert!(takes(&table, &slow, key(number), START, 1));
    }
    for number in 1_000..500_000 {
        assert!(takes(&table, &quick, key(number), START, 1));
    }
    assert!(table.stats(START).dropped > 0);
    for number in 0..1_000 {
        assert!(!takes(&table, &slow, key(number), START, 1));
    }
}

#[test]
fn a_wide_key_over_its_limit_stays_over_while_keys_nearer_to_full_flood_the_table() {
    let _alone = alone();
    let (slow, quick) = (log(1, Span::HOUR), log(5, Span::SECOND));
    let table = table(TableConfig { wide_bytes: MIB, ..support::SMALLEST });
    for number in 0..500 {
        assert!(takes(&table, &slow, key(number), START, 1));
    }
    for number in 1_000..100_000 {
        assert!(takes(&table, &quick, key(number), START, 1));
    }
    assert!(table.stats(START).dropped > 0);
    for number in 0..500 {
        assert!(!takes(&table, &slow, key(number), START, 1));
    }
}

#[test]
fn keys_whose_quota_came_back_are_not_counted_as_dropped() {
    let _alone = alone();
    let entries = (bucket(1, Span::HOUR, 5), support::SMALLEST);
    let wide = TableConfig { wide_bytes: MIB, ..support::SMALLEST };
    for (limit, config) in [entries, (log(5, Span::HOUR), wide), (places(5, Span::HOUR), wide)] {
        let table = table(config);
        for number in 0..100_000 {
            assert!(takes(&table, &limit, key(number), START, 1));
        }
        let dropped = table.stats(START).dropped;
        assert!(dropped > 0, "the table is full");
        let now = START.plus(Span::from_secs(3_601));
        for number in 100_000..101_000 {
            assert!(takes(&table, &limit, key(number), now, 1));
        }
        assert_eq!(table.stats(now).dropped, dropped, "{}", limit.name());
    }
}

#[test]
fn a_wide_key_that_is_used_again_and_again_does_not_push_others_out() {
    let _alone = alone();
    let limit = places(5, Span::HOUR);
    let table = table(TableConfig { wide_bytes: MIB, ..support::SMALLEST });
    for number in 0..1_000 {
        assert!(takes(&table, &limit, key(number), START, 1));
    }
    for round in 0..200_000 {
        let now = later(START, round);
        let decision = one(&table, &limit, key(1_000 + round % 64), now, support::take(1));
        let lease = decision.lease.unwrap();
        let release = tidegate_core::Operation::Release { lease };
        assert!(one(&table, &limit, key(1_000 + round % 64), now, release).is_allowed());
    }
    let stats = table.stats(START);
    assert_eq!((stats.keys, stats.dropped), (1_000, 0));
}

#[test]
fn the_smallest_table_works_and_a_smaller_one_is_refused() {
    let _alone = alone();
    let table = table(support::SMALLEST);
    for limit in support::one_of_each(3) {
        for _ in 0..3 {
            assert!(takes(&table, &limit, key(1), START, 1), "{}", limit.name());
        }
        assert!(!takes(&table, &limit, key(1), START, 1), "{}", limit.name());
        table.forget(key(1));
        assert_eq!(left(&table, &limit, key(1), START), 3);
    }
    let refused = |entry_bytes, wide_bytes| {
        Table::new(TableConfig { entry_bytes, wide_bytes }, START).map(|_| ()).unwrap_err()
    };
    let (entries, wide) = (TableConfig::ENTRY_BYTES_MIN, TableConfig::WIDE_BYTES_MIN);
    assert_eq!(refused(entries - 1, wide), TableError::TooSmall { min: entries });
    assert_eq!(refused(entries, wide - 1), TableError::WideTooSmall { min: wide });
    let max = TableConfig::ENTRY_BYTES_MAX;
    assert_eq!(refused(max + 1, wide), TableError::TooLarge { max });
}

#[test]
fn looking_at_keys_takes_no_room() {
    let _alone = alone();
    let table = table(support::SMALLEST);
    for limit in support::one_of_each(3) {
        for number in 0..1_000 {
            let _ = one(&table, &limit, key(number), START, peek(1));
            let _ = one(&table, &limit, key(number), START, support::take(4));
        }
    }
    assert_eq!(table.stats(Timestamp::ZERO).keys, 0);
}
