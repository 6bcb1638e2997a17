//! The table's own code under schedules of shuttle's choice, random ones and such as seek out rare
//! orders (PCT). Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p tidegate-store --test shuttle`.
//!
//! Under `--cfg shuttle` every load, swap and lock of the table is a point at which another thread
//! may go on, and both halves of a glance are loads of their own. What shuttle does not check is the
//! memory order: its atomics are sequentially consistent.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]
#![cfg(shuttle)]

mod several;
#[path = "../support/mod.rs"]
mod support;

use shuttle::sync::Arc;
use shuttle::thread;
use support::{START, bucket, key, later, left, log, one, peek, sliding, takes, takes_all, window};
use tidegate_core::{Key, Limit, Operation, Span};
use tidegate_store::Table;
use tidegate_store::snapshot::Label;

const LABEL: Label = [7; 32];
const SECOND: u64 = 1_000_000;

/// Runs a scenario under both kinds of schedules.
fn check(scenario: impl Fn() + Send + Sync + Clone + 'static) {
    const RANDOM: usize = 15_000;
    const PCT: usize = 15_000;
    const PCT_DEPTH: usize = 3;
    shuttle::check_random(scenario.clone(), RANDOM);
    shuttle::check_pct(scenario, PCT, PCT_DEPTH);
}

fn table(lines: usize) -> Arc<Table> {
    Arc::new(Table::with_few_lines(lines, 1 << 16, START))
}

/// Runs all of them at once and gives what they return.
fn together<T: Send + 'static>(threads: Vec<Box<dyn FnOnce() -> T + Send>>) -> Vec<T> {
    let running: Vec<_> = threads.into_iter().map(thread::spawn).collect();
    running.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// A thread that does something with the table.
fn with<T>(
    table: &Arc<Table>,
    run: impl FnOnce(&Table) -> T + Send + 'static,
) -> Box<dyn FnOnce() -> T + Send> {
    let table = Arc::clone(table);
    Box::new(move || run(&table))
}

/// Keys by where they stand in a table of two lines: in `line` only, or in either, `line` first.
fn keys_in(line: u64, moves: bool) -> impl Iterator<Item = Key> {
    (0..).map(key).filter(move |key| {
        let fingerprint = (key.as_hash() >> 77) as u64;
        let sum = fingerprint.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63;
        (key.as_hash() as u64 >> 63) == line && (sum == 1) == moves
    })
}

fn hourly(burst: u64) -> Limit {
    bucket(1, Span::HOUR, burst)
}

fn count(allowed: impl IntoIterator<Item = bool>) -> u64 {
    allowed.into_iter().map(u64::from).sum()
}

#[test]
fn several_threads_get_exactly_what_one_limit_has_left() {
    for limit in [hourly(3), window(3, Span::HOUR), sliding(3, Span::HOUR), log(3, Span::HOUR)] {
        check(move || {
            let table = table(1);
            assert!(takes(&table, &limit, key(1), START, 1));
            let taking = |_| {
                let limit = limit.clone();
                with(&table, move |table| {
                    count((0..2).map(|_| takes(table, &limit, key(1), START, 1)))
                })
            };
            let admitted: u64 = together((0..3).map(taking).collect()).into_iter().sum();
            assert_eq!(admitted, 2);
            assert_eq!(left(&table, &limit, key(1), START), 0);
        });
    }
}

#[test]
fn a_key_that_several_threads_insert_at_once_has_one_entry() {
    check(|| {
        let table = table(2);
        let taking = |_| with(&table, |table| takes(table, &hourly(2), key(1), START, 1));
        assert_eq!(count(together((0..3).map(taking).collect())), 2);
        assert_eq!(table.stats(START).keys, 1);
    });
}

#[test]
fn keys_that_are_inserted_at_once_all_find_a_place() {
    check(|| {
        let table = table(2);
        let taking =
            |number| with(&table, move |table| takes(table, &hourly(1), key(number), START, 1));
        assert_eq!(count(together((0..4).map(taking).collect())), 4);
        assert_eq!(table.stats(START).keys, 4);
        for number in 0..4 {
            assert_eq!(left(&table, &hourly(1), key(number), START), 0);
        }
    });
}

#[test]
fn an_entry_that_is_moved_while_others_use_it_is_neither_lost_nor_doubled() {
    check(|| {
        let table = table(2);
        let movable: Vec<_> = keys_in(0, true).take(4).collect();
        for &key in &movable {
            assert!(takes(&table, &hourly(4), key, START, 1));
        }
        // Line 0 is full, and these can stand nowhere else: each moves one of the four.
        let fixed: Vec<_> = keys_in(0, false).take(2).collect();
        let mut threads: Vec<_> = fixed
            .iter()
            .map(|&key| with(&table, move |table| count([takes(table, &hourly(4), key, START, 1)])))
            .collect();
        for chunk in movable.chunks(2) {
            let chunk = chunk.to_vec();
            threads.push(with(&table, move |table| {
                count(chunk.iter().map(|&key| takes(table, &hourly(4), key, START, 1)))
            }));
        }
        assert_eq!(together(threads).into_iter().sum::<u64>(), 6);
        for &key in &movable {
            assert_eq!(left(&table, &hourly(4), key, START), 2);
        }
        for &key in &fixed {
            assert_eq!(left(&table, &hourly(4), key, START), 3);
        }
        let stats = table.stats(START);
        assert_eq!((stats.keys, stats.dropped), (6, 0));
    });
}

#[test]
fn a_full_again_entry_is_overwritten_while_its_owner_uses_it_and_the_owner_has_one_budget() {
    check(|| {
        let table = table(1);
        let (limit, owner) = (bucket(1, Span::SECOND, 1), key(1));
        assert!(takes(&table, &limit, owner, START, 1));
        let now = later(START, 2 * SECOND);
        let owning =
            |_| with(&table, move |table| takes(table, &bucket(1, Span::SECOND, 1), owner, now, 1));
        let mut threads: Vec<_> = (0..2).map(owning).collect();
        threads.push(with(&table, move |table| takes(table, &hourly(1), key(2), now, 1)));
        assert_eq!(count(together(threads)), 2, "one of the owner's and the other key's");
        assert_eq!(left(&table, &limit, owner, now), 0);
        assert_eq!(left(&table, &hourly(1), key(2), now), 0);
        assert_eq!(table.stats(now).dropped, 0);
    });
}

/// One per second: of what is admitted up to 1.95 s, the second is only due at 1 s and a third at 2 s.
fn admits_two_by_1_95_seconds(other: impl FnOnce(&Table) + Send + Sync + Clone + 'static) {
    check(move || {
        let table = table(1);
        let limit = bucket(1, Span::SECOND, 1);
        assert!(takes(&table, &limit, key(1), START, 1));
        let other = other.clone();
        let threads = vec![
            with(&table, move |table| {
                other(table);
                0
            }),
            with(&table, |table| {
                let late = later(START, 950_000);
                count([takes(table, &bucket(1, Span::SECOND, 1), key(1), late, 1)])
            }),
        ];
        let late: u64 = together(threads).into_iter().sum();
        let then = count([takes(&table, &limit, key(1), later(START, 1_950_000), 1)]);
        assert!(1 + late + then <= 2, "{late} at 0.95 s and {then} at 1.95 s");
    });
}

#[test]
fn a_late_clock_gains_nothing_when_the_entry_was_given_away() {
    admits_two_by_1_95_seconds(|table| {
        assert!(takes(table, &hourly(1), key(2), later(START, 1_900_000), 1));
    });
}

#[test]
fn a_late_clock_gains_nothing_when_somebody_looked_at_the_full_key() {
    admits_two_by_1_95_seconds(|table| {
        let limit = bucket(1, Span::SECOND, 1);
        let _ = one(table, &limit, key(1), later(START, 1_900_000), peek(1));
    });
}

/// 2^40 at one per second take 35,000 years to come back, which no entry can say.
fn huge() -> Limit {
    bucket(1, Span::SECOND, 1 << 40)
}

const HALF: u64 = 1 << 39;

#[test]
fn a_state_that_spills_and_comes_back_counts_every_charge() {
    check(|| {
        let table = table(1);
        let big =
            |_| with(&table, |table| HALF * count([takes(table, &huge(), key(1), START, HALF)]));
        let mut threads: Vec<_> = (0..2).map(big).collect();
        threads.push(with(&table, |table| {
            count((0..2).map(|_| takes(table, &huge(), key(1), START, 1)))
        }));
        threads.push(with(&table, |table| {
            assert!(takes(table, &hourly(1), key(2), START, 1));
            0
        }));
        let admitted: u64 = together(threads).into_iter().sum();
        assert_eq!(left(&table, &huge(), key(1), START), (1 << 40) - admitted);
        let refund = Operation::Refund { cost: HALF, taken_at: START };
        for _ in 0..admitted / HALF {
            let _ = one(&table, &huge(), key(1), START, refund);
        }
        assert_eq!(left(&table, &huge(), key(1), START), (1 << 40) - admitted % HALF);
    });
}

#[test]
fn forgetting_a_spilled_key_gives_one_new_budget() {
    check(|| {
        let table = table(1);
        let taking = |_| {
            with(&table, |table| {
                count((0..2).map(|_| takes(table, &huge(), key(1), START, 1 << 40)))
            })
        };
        let mut threads: Vec<_> = (0..2).map(taking).collect();
        threads.push(with(&table, |table| {
            table.forget(key(1));
            0
        }));
        let admitted: u64 = together(threads).into_iter().sum();
        assert!((1..=2).contains(&admitted), "{admitted}");
    });
}

#[test]
fn a_snapshot_has_every_key_once_while_others_are_inserted_and_moved() {
    // Entries move the way the snapshot goes, and against it.
    for line in [0, 1] {
        check(move || snapshot_while_entries_leave(line));
    }
}

#[test]
fn a_snapshot_has_a_key_whose_state_spills_and_comes_back_meanwhile() {
    check(|| {
        let (table, key) = (table(2), key(1));
        assert!(takes(&table, &huge(), key, START, 1));
        let file = Arc::new(shuttle::sync::Mutex::new(Vec::new()));
        let written = Arc::clone(&file);
        let threads = vec![
            with(&table, move |table| {
                table.write_snapshot(&mut *written.lock().unwrap(), &LABEL, START).unwrap();
            }),
            with(&table, move |table| {
                let spilling = 1 << 39;
                for _ in 0..2 {
                    assert!(takes(table, &huge(), key, START, spilling));
                    let refund = Operation::Refund { cost: spilling, taken_at: START };
                    let _ = one(table, &huge(), key, START, refund);
                }
            }),
        ];
        together(threads);
        let restored = Table::with_few_lines(2, 1 << 16, START);
        restored.read_snapshot(&file.lock().unwrap(), &LABEL, START).unwrap();
        assert_ne!(left(&restored, &huge(), key, START), 1 << 40, "it starts anew");
    });
}

fn snapshot_while_entries_leave(line: u64) {
    let table = table(2);
    let movable: Vec<_> = keys_in(line, true).take(4).collect();
    for &key in &movable {
        assert!(takes(&table, &hourly(1), key, START, 1));
    }
    let fixed: Vec<_> = keys_in(line, false).take(2).collect();
    let file = Arc::new(shuttle::sync::Mutex::new(Vec::new()));
    let written = Arc::clone(&file);
    let inserting = fixed[0];
    let pair = [fixed[1], key(1_001)];
    let threads = vec![
        with(&table, move |table| {
            table.write_snapshot(&mut *written.lock().unwrap(), &LABEL, START).unwrap();
        }),
        with(&table, move |table| assert!(takes(table, &hourly(1), inserting, START, 1))),
        with(&table, move |table| {
            assert!(takes_all(table, START, &[(&hourly(1), pair[0]), (&huge(), pair[1])]));
        }),
    ];
    together(threads);
    let restored = Table::with_few_lines(2, 1 << 16, START);
    restored.read_snapshot(&file.lock().unwrap(), &LABEL, START).unwrap();
    let is_complete = table.stats(START).dropped == 0;
    for &key in &movable {
        assert!(!is_complete || left(&restored, &hourly(1), key, START) == 0, "it is lost");
        restored.forget(key);
        assert_eq!(left(&restored, &hourly(1), key, START), 1, "it is there twice");
    }
}
