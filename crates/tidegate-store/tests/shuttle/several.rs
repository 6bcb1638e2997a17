//! Requests under several limits.

use shuttle::sync::Arc;
use tidegate_core::{Decision, Limit, Operation, Span};
use tidegate_store::{Charge, Request, Table};

use super::support::{
    START, key, left, log, one, peek, places, sliding, take, takes, takes_all, window,
};
use super::{HALF, LABEL, check, count, hourly, huge, keys_in, table, together, with};

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

/// Both keys of a pair are in entries, of which another key makes one go to its other line.
#[test]
fn two_limits_whose_entries_are_moved_meanwhile_are_charged_together_or_not_at_all() {
    check(|| {
        let table = table(2);
        let movable: Vec<_> = keys_in(0, true).take(4).collect();
        for &key in &movable {
            assert!(takes(&table, &hourly(3), key, START, 1));
        }
        let pair = |first: usize, second: usize| {
            let keys = [movable[first], movable[second]];
            with(&table, move |table| {
                let limit = hourly(3);
                let limits = keys.map(|key| (&limit, key));
                count((0..2).map(|_| takes_all(table, START, &limits)))
            })
        };
        let fixed = keys_in(0, false).next().unwrap();
        let moving = with(&table, move |table| {
            assert!(takes(table, &hourly(3), fixed, START, 1));
            0
        });
        let admitted: u64 = together(vec![pair(0, 1), pair(1, 2), moving]).into_iter().sum();
        assert_eq!(admitted, 2, "what the key in both pairs has left");
        assert_eq!(table.stats(START).dropped, 0);
        let left = |index: usize| left(&table, &hourly(3), movable[index], START);
        assert_eq!([left(0) + left(2), left(1), left(3)], [2, 0, 2]);
    });
}

#[test]
fn a_snapshot_has_both_keys_of_a_pair_while_it_is_charged() {
    check(|| {
        let table = table(2);
        let keys = [key(1), key(2)];
        for key in keys {
            assert!(takes(&table, &hourly(4), key, START, 1));
        }
        let pair = |keys: [_; 2]| {
            with(&table, move |table| {
                let limit = hourly(4);
                assert!(takes_all(table, START, &keys.map(|key| (&limit, key))));
            })
        };
        let file = Arc::new(shuttle::sync::Mutex::new(Vec::new()));
        let written = Arc::clone(&file);
        let writing = with(&table, move |table| {
            table.write_snapshot(&mut *written.lock().unwrap(), &LABEL, START).unwrap();
        });
        together(vec![writing, pair(keys), pair([keys[1], keys[0]])]);
        let restored = Table::with_few_lines(2, 1 << 16, START);
        restored.read_snapshot(&file.lock().unwrap(), &LABEL, START).unwrap();
        for key in keys {
            let left_over = left(&restored, &hourly(4), key, START);
            assert!((1..=3).contains(&left_over), "{left_over}");
            restored.forget(key);
            assert_eq!(left(&restored, &hourly(4), key, START), 4, "it is there twice");
        }
    });
}

/// What is asked of the table in one step.
#[derive(Clone, Debug)]
enum Asked {
    /// A request under some limits, each once.
    Decide(Vec<(usize, Operation)>),
    /// That the key under a limit starts anew.
    Forget(usize),
}

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
    let key_of = |index: usize| key(index as u64 + 1);
    let charges: Vec<_> = match asked {
        Asked::Decide(asked) => asked
            .iter()
            .map(|&(index, operation)| Charge {
                limit: &limits[index],
                key: key_of(index),
                operation,
            })
            .collect(),
        &Asked::Forget(index) => {
            table.forget(key_of(index));
            return Vec::new();
        }
    };
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
    let there = Asked::Decide(vec![(0, DEBIT), (1, REFUND)]);
    let back = Asked::Decide(vec![(0, REFUND), (1, DEBIT)]);
    let moves = vec![there.clone(), back.clone(), there, back];
    let looks = vec![Asked::Decide(vec![(0, LOOK), (1, LOOK)])];
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
            if below(8) == 0 {
                return Asked::Forget(below(limits.len() as u64) as usize);
            }
            let mut asked: Vec<(usize, Operation)> = Vec::new();
            for _ in 0..=below(limits.len() as u64) {
                let index = below(limits.len() as u64) as usize;
                if asked.iter().all(|(other, _)| *other != index) {
                    asked.push((index, operations[below(operations.len() as u64) as usize]));
                }
            }
            Asked::Decide(asked)
        };
        let programs: Vec<_> =
            [2, 2, 1].iter().map(|count| (0..*count).map(|_| request()).collect()).collect();
        ends_as_in_some_order(&limits, &spent, &programs, 100);
    }
}
