//! Real threads on real hardware: however many hammer a limit at once, it admits exactly its number.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

mod support;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use support::{
    START, bucket, key, left, one, one_of_each, places, table, take, takes, takes_all, window,
};
use tidegate_core::{Key, Limit, Operation, Span};
use tidegate_store::{Answers, Charge, Request, Table, TableConfig};

const THREADS: u64 = 6;
const CONFIG: TableConfig = TableConfig { entry_bytes: 4 << 20, wide_bytes: 8 << 20 };

/// In each round all threads start at once and take as often as `run` says; the sum is checked.
fn rounds(rounds: u64, run: impl Fn(u64, u64) -> u64 + Sync, check: impl Fn(u64, u64) + Sync) {
    let (start, end) = (Barrier::new(THREADS as usize), Barrier::new(THREADS as usize));
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, end, admitted, run, check) = (&start, &end, &admitted, &run, &check);
            scope.spawn(move || {
                for round in 0..rounds {
                    start.wait();
                    admitted.fetch_add(run(round, thread), Ordering::SeqCst);
                    if end.wait().is_leader() {
                        check(round, admitted.swap(0, Ordering::SeqCst));
                    }
                }
            });
        }
    });
}

fn count(allowed: impl Iterator<Item = bool>) -> u64 {
    allowed.map(u64::from).sum()
}

#[test]
fn every_algorithm_admits_exactly_its_number_over_thousands_of_rounds() {
    const ROUNDS: u64 = 3_000;
    const NUMBER: u64 = 10;
    for limit in one_of_each(NUMBER) {
        let table = table(CONFIG);
        rounds(
            ROUNDS,
            |round, _| count((0..5).map(|_| takes(&table, &limit, key(round), START, 1))),
            |round, admitted| {
                assert_eq!(admitted, NUMBER, "{} in round {round}", limit.name());
                assert_eq!(left(&table, &limit, key(round), START), 0);
            },
        );
        assert_eq!(table.stats(START).dropped, 0);
    }
}

#[test]
fn costs_that_spill_and_come_back_add_up() {
    let limit = bucket(1, Span::SECOND, 1 << 40);
    let table = table(CONFIG);
    rounds(
        3_000,
        |round, thread| {
            let cost = if thread % 2 == 0 { 1 << 38 } else { 1 };
            cost * count((0..3).map(|_| takes(&table, &limit, key(round), START, cost)))
        },
        |round, admitted| {
            assert_eq!(left(&table, &limit, key(round), START), (1 << 40) - admitted);
        },
    );
}

#[test]
fn single_calls_and_batches_share_one_number() {
    const NUMBER: u64 = 40;
    let limit = bucket(1, Span::HOUR, NUMBER);
    let table = table(CONFIG);
    rounds(
        3_000,
        |round, thread| {
            if thread % 2 == 0 {
                return count((0..10).map(|_| takes(&table, &limit, key(round), START, 1)));
            }
            batch_of_takes(&table, &limit, key(round), 10)
        },
        |round, admitted| assert_eq!(admitted, NUMBER, "in round {round}"),
    );
}

fn batch_of_takes(table: &Table, limit: &Limit, key: Key, count: usize) -> u64 {
    let charges = [Charge { limit, key, operation: take(1) }];
    let batch = vec![Request { now: START, charges: &charges }; count];
    let mut answers = Answers::new();
    table.decide_many(&batch, &mut answers);
    answers.iter().map(|answer| u64::from(answer.unwrap()[0].is_allowed())).sum()
}

#[test]
fn two_limits_in_either_order_are_charged_together_or_not_at_all() {
    const NARROW: u64 = 7;
    let (narrow, broad) = (bucket(1, Span::HOUR, NARROW), bucket(1, Span::HOUR, 20));
    let wide = places(30, Span::HOUR);
    let table = table(CONFIG);
    rounds(
        5_000,
        |round, thread| {
            let keys = [3 * round, 3 * round + 1, 3 * round + 2].map(key);
            let mut limits = [(&narrow, keys[0]), (&broad, keys[1]), (&wide, keys[2])];
            limits.rotate_left(thread as usize % 3);
            count((0..3).map(|_| takes_all(&table, START, &limits)))
        },
        |round, admitted| {
            assert_eq!(admitted, NARROW, "in round {round}");
            assert_eq!(left(&table, &narrow, key(3 * round), START), 0);
            assert_eq!(left(&table, &broad, key(3 * round + 1), START), 20 - NARROW);
            assert_eq!(left(&table, &wide, key(3 * round + 2), START), 30 - NARROW);
        },
    );
}

/// All of them in entries, which are there from the first request of a round on.
#[test]
fn three_limits_in_entries_are_charged_together_or_not_at_all() {
    const NARROW: u64 = 90;
    let limits =
        [bucket(1, Span::HOUR, NARROW), window(200, Span::HOUR), bucket(7, Span::HOUR, 300)];
    let table = table(CONFIG);
    rounds(
        1_000,
        |round, thread| {
            let mut each = [0, 1, 2].map(|index| (&limits[index], key(3 * round + index as u64)));
            each.rotate_left(thread as usize % 3);
            count((0..60).map(|_| takes_all(&table, START, &each)))
        },
        |round, admitted| {
            assert_eq!(admitted, NARROW, "in round {round}");
            for (limit, (index, left_over)) in limits.iter().zip([(0, 0), (1, 110), (2, 210)]) {
                assert_eq!(left(&table, limit, key(3 * round + index), START), left_over);
            }
        },
    );
}

#[test]
fn no_more_leases_are_held_at_once_than_there_are_places() {
    const PLACES: u64 = 4;
    let limit = places(PLACES, Span::HOUR);
    let (table, held) = (table(CONFIG), AtomicU64::new(0));
    rounds(
        200,
        |round, _| {
            let mut admitted = 0;
            for _ in 0..50 {
                let decision = one(&table, &limit, key(round), START, take(1));
                let Some(lease) = decision.lease else { continue };
                admitted += 1;
                assert!(held.fetch_add(1, Ordering::SeqCst) < PLACES);
                thread::yield_now();
                held.fetch_sub(1, Ordering::SeqCst);
                let release = Operation::Release { lease };
                assert!(one(&table, &limit, key(round), START, release).is_allowed());
            }
            admitted
        },
        |round, admitted| {
            assert!(admitted >= PLACES);
            assert_eq!(left(&table, &limit, key(round), START), PLACES);
        },
    );
    assert_eq!(table.stats(START).keys, 0);
}

#[test]
fn a_crowded_table_keeps_every_key_at_one_budget_while_entries_move() {
    // Nine tenths full, so that nearly every insertion moves something.
    const KEYS_PER_ROUND: u64 = 590;
    const ROUNDS: u64 = 100;
    let limit = bucket(1, Span::HOUR, 2);
    let table = table(support::SMALLEST);
    rounds(
        ROUNDS,
        |round, thread| {
            let keys = (0..KEYS_PER_ROUND).map(|number| key(round * KEYS_PER_ROUND + number));
            let half = KEYS_PER_ROUND as usize * (thread as usize % 2) / 2;
            let turned = keys.clone().skip(half).chain(keys.take(half));
            count(turned.map(|key| takes(&table, &limit, key, START, 1)))
        },
        |round, admitted| {
            let dropped = table.stats(START).dropped;
            let most = 2 * KEYS_PER_ROUND + 2 * dropped;
            assert!((2 * KEYS_PER_ROUND..=most).contains(&admitted), "{admitted} in round {round}");
        },
    );
    let stats = table.stats(START);
    // A key that was dropped comes back when the next thread uses it.
    assert!(stats.keys <= ROUNDS * KEYS_PER_ROUND);
    assert!(stats.keys + stats.dropped >= ROUNDS * KEYS_PER_ROUND);
    assert!(stats.dropped < 1_000, "{} dropped", stats.dropped);
}
