//! Instructions per decision, which do not depend on the machine, each with a ceiling: a run in
//! which one is exceeded fails.
//!
//! Needs valgrind and a `gungraun-runner` of the same version as the `gungraun` dependency:
//!
//! ```sh
//! cargo install gungraun-runner --version 0.20.0
//! cargo bench -p tidegate-instructions --bench instructions
//! ```
//!
//! The runner is looked for on the `PATH`, or where `GUNGRAUN_RUNNER` said when this was compiled.
//!
//! Time is handed in and stands still, so no clock is counted. Every benchmark makes [`DECISIONS`]
//! decisions on state that is already there. A ceiling leaves about a tenth of room for another
//! compiler; one that has to be raised is a change to give reasons for.
#![allow(missing_docs, unused_qualifications, reason = "what the macros expand to")]

use std::hint::black_box;

use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use tidegate::{Limiter, ManualClock};
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Decision, FixedWindow, Key, Limit, Operation, Rate, SlidingWindow, Span, Timestamp, TokenBucket,
};
use tidegate_store::{Answers, Charge, Request, Table, TableConfig};

/// Decisions per benchmark; a multiple of the batch.
const DECISIONS: u64 = 160;
const BATCH: usize = 16;
const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const TAKE: Operation = Operation::Take { cost: 1 };
const PEEK: Operation = Operation::Peek { cost: 1 };

/// Fails the run above so many instructions per decision.
fn at_most(per_decision: u64) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::default();
    callgrind.hard_limits([(EventKind::Ir, per_decision * DECISIONS)]);
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// A table with a hot key under some limits. It is leaked, so that its end is not counted.
struct Hot {
    table: Table,
    limits: Vec<Limit>,
    decisions: Vec<Decision>,
    answers: Answers,
}

impl Hot {
    /// One take of each of the first `keys` keys has been made under each limit.
    fn new(limits: Vec<Limit>, keys: u64) -> &'static mut Self {
        let config = TableConfig { entry_bytes: 1 << 20, wide_bytes: 1 << 16 };
        let table = Table::new(config, NOW).expect("a small table");
        for number in 0..keys {
            for (index, limit) in limits.iter().enumerate() {
                let charge = Charge { limit, key: key(number, index), operation: TAKE };
                assert!(table.decide_one(NOW, &charge).is_allowed());
            }
        }
        let (decisions, answers) = (Vec::with_capacity(BATCH), Answers::new());
        Box::leak(Box::new(Self { table, limits, decisions, answers }))
    }

    fn charge(&self, number: u64, index: usize, operation: Operation) -> Charge<'_> {
        Charge { limit: &self.limits[index], key: key(number, index), operation }
    }

    /// [`DECISIONS`] operations on the hot key, one after the other; how many were allowed.
    #[inline]
    fn repeat(&self, operation: Operation) -> u64 {
        let charge = self.charge(0, 0, operation);
        let allowed =
            |_: &u64| self.table.decide_one(black_box(NOW), black_box(&charge)).is_allowed();
        (0..DECISIONS).filter(allowed).count() as u64
    }
}

/// Bits as good as a keyed hash.
fn key(number: u64, limit: usize) -> Key {
    let mixed = (u128::from(number) << 8 | limit as u128) + 1;
    Key::from_hash(mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn hourly(count: u64) -> Rate {
    Rate::new(count, Span::HOUR).expect("a rate")
}

fn token_bucket(burst: u64) -> Limit {
    TokenBucket::new(hourly(1000), burst).expect("a bucket").into()
}

fn buckets() -> &'static mut Hot {
    Hot::new(vec![token_bucket(1000)], 1)
}

fn empty_bucket() -> &'static mut Hot {
    Hot::new(vec![token_bucket(1)], 1)
}

fn fixed_windows() -> &'static mut Hot {
    let limit = FixedWindow::new(1000, Windows::Clock(Span::HOUR)).expect("a window");
    Hot::new(vec![limit.into()], 1)
}

fn sliding_windows() -> &'static mut Hot {
    Hot::new(vec![SlidingWindow::new(hourly(1000)).expect("a window").into()], 1)
}

fn two_limits() -> &'static mut Hot {
    Hot::new(vec![token_bucket(1000), token_bucket(2000)], 1)
}

fn two_limits_of_which_one_is_empty() -> &'static mut Hot {
    Hot::new(vec![token_bucket(1000), token_bucket(1)], 1)
}

fn many_buckets() -> &'static mut Hot {
    let hot = Hot::new(vec![token_bucket(1000)], BATCH as u64);
    // Once before, so that the answers have their room.
    hot.batch();
    hot
}

impl Hot {
    /// [`DECISIONS`] takes under two limits.
    #[inline]
    fn take_both(&mut self) -> usize {
        let charges = [
            Charge { limit: &self.limits[0], key: key(0, 0), operation: TAKE },
            Charge { limit: &self.limits[1], key: key(0, 1), operation: TAKE },
        ];
        for _ in 0..DECISIONS {
            self.decisions.clear();
            let request = Request { now: black_box(NOW), charges: black_box(&charges) };
            let decided = self.table.decide(&request, &mut self.decisions);
            assert!(decided.is_ok());
        }
        self.decisions.len()
    }

    /// One batch of single-limit requests on [`BATCH`] keys.
    #[inline]
    fn batch(&mut self) -> usize {
        let charges: [Charge<'_>; BATCH] = std::array::from_fn(|number| Charge {
            limit: &self.limits[0],
            key: key(number as u64, 0),
            operation: TAKE,
        });
        let requests: [Request<'_>; BATCH] = std::array::from_fn(|number| Request {
            now: NOW,
            charges: std::slice::from_ref(&charges[number]),
        });
        self.table.decide_many(black_box(&requests), &mut self.answers);
        self.answers.len()
    }
}

#[library_benchmark(setup = buckets, config = at_most(190))]
#[bench::hot()]
fn take(hot: &mut Hot) -> u64 {
    hot.repeat(TAKE)
}

#[library_benchmark(setup = empty_bucket, config = at_most(230))]
#[bench::hot()]
fn deny(hot: &mut Hot) -> u64 {
    hot.repeat(TAKE)
}

#[library_benchmark(setup = buckets, config = at_most(400))]
#[bench::hot()]
fn peek(hot: &mut Hot) -> u64 {
    hot.repeat(PEEK)
}

#[library_benchmark(setup = fixed_windows, config = at_most(312))]
#[bench::hot()]
fn fixed_window(hot: &mut Hot) -> u64 {
    hot.repeat(TAKE)
}

#[library_benchmark(setup = sliding_windows, config = at_most(396))]
#[bench::hot()]
fn sliding_window(hot: &mut Hot) -> u64 {
    hot.repeat(TAKE)
}

#[library_benchmark(setup = two_limits, config = at_most(740))]
#[bench::hot()]
fn two_limits_at_once(hot: &mut Hot) -> usize {
    hot.take_both()
}

#[library_benchmark(setup = two_limits_of_which_one_is_empty, config = at_most(1080))]
#[bench::hot()]
fn two_limits_deny(hot: &mut Hot) -> usize {
    hot.take_both()
}

#[library_benchmark(setup = many_buckets, config = at_most(280))]
#[bench::sixteen()]
fn batch(hot: &mut Hot) -> usize {
    (0..DECISIONS as usize / BATCH).map(|_| hot.batch()).sum()
}

#[library_benchmark(config = at_most(120))]
#[bench::token_bucket(TokenBucket::new(hourly(1000), 1000).expect("a bucket"))]
fn core_only(limit: TokenBucket) -> u64 {
    let (mut state, mut allowed) = (None, 0);
    for _ in 0..DECISIONS {
        let (decision, next) = limit.decide(state, black_box(NOW), black_box(TAKE));
        allowed += u64::from(decision.is_allowed());
        state = next;
    }
    allowed
}

fn limiter() -> &'static Limiter<ManualClock> {
    let builder = Limiter::builder().limit(token_bucket(1000)).clock(ManualClock::new());
    let limiter = builder.memory_bytes(2 << 20).build().expect("a limiter");
    assert!(limiter.check("user:00000042").is_allowed());
    Box::leak(Box::new(limiter))
}

// The whole of a call of the library but for its clock: hashing the key and all.
#[library_benchmark(setup = limiter, config = at_most(355))]
#[bench::text()]
fn limiter_check(limiter: &Limiter<ManualClock>) -> u64 {
    let allowed = |_: &u64| limiter.check(black_box("user:00000042")).is_allowed();
    (0..DECISIONS).filter(allowed).count() as u64
}

library_benchmark_group!(
    name = decisions;
    benchmarks = take, deny, peek, fixed_window, sliding_window, two_limits_at_once,
        two_limits_deny, batch, core_only, limiter_check
);

main!(library_benchmark_groups = decisions);
