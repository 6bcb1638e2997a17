//! The table's own code under schedules of shuttle's choice, random ones and such as seek out rare
//! orders (PCT). Run with
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p tidegate-store --test shuttle`.
//!
//! Under `--cfg shuttle` every load, swap and lock of the table is a point at which another thread
//! may go on, and both halves of a glance are loads of their own. What shuttle does not check is the
//! memory order: its atomics are sequentially consistent.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]
#![cfg(shuttle)]

mod support;

use shuttle::sync::Arc;
use shuttle::thread;
use support::{
    START, bucket, key, later, left, log, one, peek, places, sliding, take, takes, takes_all,
    window,
};
use tidegate_core::{Decision, Key, Limit, Operation, Span};
use tidegate_store::snapshot::Label;
use tidegate_store::{Charge, Request, Table};

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

#[test]
fn two_limits_in_opposite_orders_are_charged_together_or_not_at_all() {
    check(|| {
        let table = table(2);
        let (narrow, broad) = (hourly(2), window(4, Span::HOUR));
        let pair = |turned: bool| {
            let (narrow, broad) = (narrow.clone(), broad.clone());
            with(&table, move |table| {
                let mut limits = [(&narrow, key(1)), (&broad, key(2))];
                if turned {
                    limits.reverse();
                }
                count((0..2).map(|_| takes_all(table, START, &limits)))
            })
        };
        let mut threads = vec![pair(false), pair(true)];
        let broad_alone = broad.clone();
        threads.push(with(&table, move |table| {
            10 * count([takes(table, &broad_alone, key(2), START, 1)])
        }));
        assert_eq!(together(threads).into_iter().sum::<u64>(), 12, "two pairs and the single one");
        assert_eq!(left(&table, &narrow, key(1), START), 0);
        assert_eq!(left(&table, &broad, key(2), START), 1);
    });
}

/// All keys have entries, so that nothing but another thread is out of the ordinary.
#[test]
fn three_limits_that_have_entries_are_charged_together_or_not_at_all() {
    check(|| {
        let table = table(2);
        let limits = [hourly(3), window(9, Span::HOUR), sliding(4, Span::HOUR)];
        for (limit, number) in limits.iter().zip(1..) {
            assert!(takes(&table, limit, key(number), START, 1));
        }
        let all = |order: [usize; 3]| {
            let limits = limits.clone();
            with(&table, move |table| {
                let limits = order.map(|index| (&limits[index], key(index as u64 + 1)));
                count((0..2).map(|_| takes_all(table, START, &limits)))
            })
        };
        let mut threads = vec![all([0, 1, 2]), all([2, 1, 0])];
        let broad = limits[1].clone();
        threads.push(with(&table, move |table| {
            10 * count((0..2).map(|_| takes(table, &broad, key(2), START, 1)))
        }));
        assert_eq!(together(threads).into_iter().sum::<u64>(), 22, "two of all and two alone");
        let left = |index: usize| left(&table, &limits[index], key(index as u64 + 1), START);
        assert_eq!([left(0), left(1), left(2)], [0, 4, 1]);
    });
}

/// Between 73 and 74 hours after the start, both halves of the time in an entry change: one from before and one from
/// after would be a time long past, and all of the quota.
#[test]
fn who_looks_at_two_limits_sees_no_halves_of_different_moments() {
    let looks = |table: &Table| {
        let (limit, other) = (hourly(100), window(9, Span::HOUR));
        let charge = |limit, key| Charge { limit, key, operation: peek(1) };
        let charges = [charge(&limit, key(1)), charge(&other, key(2))];
        let mut decisions = Vec::new();
        table.decide(&Request { now: START, charges: &charges }, &mut decisions).unwrap();
        decisions[0].remaining
    };
    check(move || {
        let table = table(2);
        assert!(takes(&table, &hourly(100), key(1), START, 73));
        assert!(takes(&table, &window(9, Span::HOUR), key(2), START, 1));
        let one_more =
            with(&table, |table| one(table, &hourly(100), key(1), START, take(1)).remaining);
        let seen = together(vec![one_more, with(&table, looks)])[1];
        assert!([27, 26].contains(&seen), "{seen}");
    });
}

#[test]
fn two_limits_of_which_one_is_wide_are_charged_together_or_not_at_all() {
    check(|| {
        let table = table(1);
        let pair = |turned: bool| {
            with(&table, move |table| {
                let (plain, wide) = (hourly(3), places(2, Span::HOUR));
                let mut limits = [(&plain, key(1)), (&wide, key(2))];
                if turned {
                    limits.reverse();
                }
                count((0..2).map(|_| takes_all(table, START, &limits)))
            })
        };
        let admitted: u64 = together(vec![pair(false), pair(true)]).into_iter().sum();
        assert_eq!(admitted, 2);
        assert_eq!(left(&table, &hourly(3), key(1), START), 1);
        assert_eq!(left(&table, &places(2, Span::HOUR), key(2), START), 0);
    });
}

#[test]
fn two_limits_make_room_for_each_other_in_full_lines() {
    check(|| {
        let table = table(2);
        for key in keys_in(0, true).take(3).chain(keys_in(1, true).take(3)) {
            assert!(takes(&table, &hourly(1), key, START, 1));
        }
        let pair = |skip: usize| {
            let keys: Vec<_> = keys_in(0, true).skip(skip).take(2).collect();
            with(&table, move |table| {
                takes_all(table, START, &[(&hourly(9), keys[1]), (&hourly(9), keys[0])])
            })
        };
        assert_eq!(count(together(vec![pair(3), pair(4), pair(5)])), 3);
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
fn two_limits_of_which_one_spills_are_charged_together_or_not_at_all() {
    check(|| {
        let table = table(1);
        let pair = |turned: bool| {
            with(&table, move |table| {
                let (plain, big) = (window(2, Span::HOUR), huge());
                let charges = [(&plain, key(1), 1), (&big, key(2), HALF)];
                let mut charges =
                    charges.map(|(limit, key, cost)| Charge { limit, key, operation: take(cost) });
                if turned {
                    charges.reverse();
                }
                let mut decisions = Vec::new();
                let request = Request { now: START, charges: &charges };
                table.decide(&request, &mut decisions).unwrap();
                count([decisions.iter().all(Decision::is_allowed)])
            })
        };
        let single = with(&table, |table| 10 * count([takes(table, &huge(), key(2), START, HALF)]));
        let admitted: u64 = together(vec![pair(false), pair(true), single]).into_iter().sum();
        assert!(admitted == 2 || admitted == 11, "{admitted}");
        assert_eq!(left(&table, &window(2, Span::HOUR), key(1), START), 2 - admitted % 10);
        assert_eq!(left(&table, &huge(), key(2), START), 0);
    });
}

#[test]
fn forgetting_beside_takes_and_pairs_ends_and_gives_one_new_budget() {
    check(|| {
        let table = table(1);
        let threads = vec![
            with(&table, |table| {
                table.forget(key(1));
                0
            }),
            with(&table, |table| count((0..2).map(|_| takes(table, &hourly(1), key(1), START, 1)))),
            with(&table, |table| {
                let limits = [(&hourly(1), key(1)), (&log(9, Span::HOUR), key(2))];
                count((0..2).map(|_| takes_all(table, START, &limits)))
            }),
        ];
        let admitted: u64 = together(threads).into_iter().sum();
        assert!((1..=2).contains(&admitted), "{admitted}");
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

/// What one request asks of some limits, each once.
type Asked = Vec<(usize, Operation)>;

/// Runs requests in several threads, and compares all answers and what is left with those of every order in which the
/// requests could have come one after the other.
fn ends_as_in_some_order(limits: &[Limit], spent: &[u64], programs: &[Vec<Asked>], runs: usize) {
    let table_of = |limits: &[Limit], spent: &[u64]| {
        let table = table(2);
        for ((limit, &cost), number) in limits.iter().zip(spent).zip(1..) {
            assert!(takes(&table, limit, key(number), START, cost));
        }
        table
    };
    let ends = |table: &Table, limits: &[Limit], answers: Vec<Vec<Vec<Decision>>>| {
        let left = |(limit, number)| one(table, limit, key(number), START, peek(1));
        (answers, limits.iter().zip(1..).map(left).collect::<Vec<_>>())
    };
    let orders = orders_of(&programs.iter().map(Vec::len).collect::<Vec<_>>());
    let (limits, spent, programs) = (limits.to_vec(), spent.to_vec(), programs.to_vec());
    let scenario = move || {
        let table = table_of(&limits, &spent);
        let threads = programs.clone().into_iter().map(|program| {
            let limits = limits.clone();
            with(&table, move |table| {
                program.iter().map(|asked| answers(table, &limits, asked)).collect::<Vec<_>>()
            })
        });
        let seen = ends(&table, &limits, together(threads.collect()));
        let is_that = |order: &Vec<usize>| {
            let table = table_of(&limits, &spent);
            let mut by_thread = vec![Vec::new(); programs.len()];
            for &thread in order {
                let asked = &programs[thread][by_thread[thread].len()];
                by_thread[thread].push(answers(&table, &limits, asked));
            }
            ends(&table, &limits, by_thread) == seen
        };
        assert!(orders.iter().any(is_that), "{programs:?} gave {seen:?}");
    };
    shuttle::check_random(scenario.clone(), runs);
    shuttle::check_pct(scenario, runs, 4);
}

fn answers(table: &Table, limits: &[Limit], asked: &Asked) -> Vec<Decision> {
    let charge = |&(index, operation): &(usize, Operation)| Charge {
        limit: &limits[index],
        key: key(index as u64 + 1),
        operation,
    };
    let charges: Vec<_> = asked.iter().map(charge).collect();
    let mut decisions = Vec::new();
    table.decide(&Request { now: START, charges: &charges }, &mut decisions).unwrap();
    decisions
}

/// Every order in which threads can do so many things each.
fn orders_of(counts: &[usize]) -> Vec<Vec<usize>> {
    if counts.iter().all(|count| *count == 0) {
        return vec![Vec::new()];
    }
    let mut orders = Vec::new();
    for thread in (0..counts.len()).filter(|&thread| counts[thread] > 0) {
        let mut fewer = counts.to_vec();
        fewer[thread] -= 1;
        orders.extend(orders_of(&fewer).into_iter().map(|order| [vec![thread], order].concat()));
    }
    orders
}

const TAKE: Operation = take(1);
const LOOK: Operation = peek(1);
const DEBIT: Operation = Operation::Debit { cost: 1 };
const REFUND: Operation = Operation::Refund { cost: 1, taken_at: START };

/// Both entries leave what they are and come back to it, but never both at once.
#[test]
fn who_looks_at_two_limits_sees_them_at_one_moment() {
    let there = vec![(0, DEBIT), (1, REFUND)];
    let back = vec![(0, REFUND), (1, DEBIT)];
    let moves = vec![there.clone(), back.clone(), there, back];
    let looks = vec![vec![(0, LOOK), (1, LOOK)]];
    ends_as_in_some_order(&[hourly(10), hourly(10)], &[3, 3], &[moves, looks], 15_000);
}

#[test]
fn requests_under_any_limits_end_as_in_some_order() {
    const PROGRAMS: u64 = 150;
    for seed in 0..PROGRAMS {
        let mut drawn = seed << 32;
        let mut below = |end: u64| {
            drawn += 1;
            (key(drawn).as_hash() % u128::from(end)) as u64
        };
        let limits: Vec<_> = (0..2 + below(3))
            .map(|_| match below(6) {
                0 | 1 => hourly(3 + below(3)),
                2 => window(3 + below(3), Span::HOUR),
                3 => sliding(4, Span::HOUR),
                4 => log(4, Span::HOUR),
                _ => huge(),
            })
            .collect();
        let spent: Vec<_> = limits.iter().map(|_| below(4)).collect();
        let operations = [TAKE, TAKE, TAKE, TAKE, take(2), LOOK, DEBIT, REFUND, take(1 << 39)];
        let mut request = || {
            let mut asked = Asked::new();
            for _ in 0..=below(limits.len() as u64) {
                let index = below(limits.len() as u64) as usize;
                if asked.iter().all(|(other, _)| *other != index) {
                    asked.push((index, operations[below(operations.len() as u64) as usize]));
                }
            }
            asked
        };
        let programs: Vec<_> =
            [2, 2, 1].iter().map(|count| (0..*count).map(|_| request()).collect()).collect();
        ends_as_in_some_order(&limits, &spent, &programs, 100);
    }
}
