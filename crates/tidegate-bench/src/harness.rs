//! Timing: every contender of a stage is built and filled first, then all take turns, round by
//! round, so that whatever else the machine does hits all of them alike.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

use std::error::Error;
use std::ops::Range;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use crate::contenders::{Contender, Key, Quota};
use crate::workloads::{Lane, Shape, Stage};

/// The times of one contender on one workload, in nanoseconds per decision. With two threads that
/// is the time of both divided by the decisions of both, so twice the throughput is half the time.
pub(crate) struct Timing {
    pub(crate) workload: Shape,
    pub(crate) contender: &'static str,
    /// Of each block of each round, ascending.
    blocks_ns: Vec<f64>,
}

impl Timing {
    fn new(workload: Shape, contender: &'static str, mut blocks_ns: Vec<f64>) -> Self {
        blocks_ns.sort_by(f64::total_cmp);
        Self { workload, contender, blocks_ns }
    }

    /// The fastest block: noise only ever adds time, so it is the nearest to the cost of the code.
    pub(crate) fn best_ns(&self) -> f64 {
        self.blocks_ns.first().copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median_ns(&self) -> f64 {
        self.blocks_ns.get(self.blocks_ns.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// A contender that can be put on the list of a stage.
#[derive(Clone, Copy)]
pub(crate) struct Recruit {
    pub(crate) name: &'static str,
    /// Builds it and fills it with every key of the stage.
    pub(crate) build: Build,
    /// Aborts unless its counters move.
    pub(crate) self_check: fn() -> Result<(), Box<dyn Error>>,
}

type Build = fn(Quota, u32) -> Result<Box<dyn Entrant>, Box<dyn Error>>;

impl Recruit {
    pub(crate) const fn of<C: Contender + 'static>() -> Self {
        Self {
            name: C::NAME,
            build: |quota, keys| {
                let mut limiter = C::new(quota, keys)?;
                fill(&mut limiter, keys);
                Ok(Box::new(limiter))
            },
            self_check: crate::contenders::self_check::<C>,
        }
    }
}

/// Takes once from each key, so that all of them are active.
pub(crate) fn fill<C: Contender>(limiter: &mut C, keys: u32) {
    const CHUNK: usize = 1024;
    let mut chunk = Vec::with_capacity(CHUNK);
    let mut ids = 0..keys;
    while !ids.is_empty() {
        chunk.clear();
        chunk.extend(ids.by_ref().take(CHUNK).map(C::Key::of));
        limiter.run_alone(&chunk);
    }
}

/// A built contender, seen by the harness: one dynamic call per timed block.
pub(crate) trait Entrant {
    fn name(&self) -> &'static str;

    /// Runs its part of the lanes, a thread for each, block by block; nanoseconds per decision.
    fn time(&mut self, lanes: &[Lane], round: usize) -> Result<Vec<f64>, Box<dyn Error>>;
}

impl<C: Contender> Entrant for C {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn time(&mut self, lanes: &[Lane], round: usize) -> Result<Vec<f64>, Box<dyn Error>> {
        let length = lanes.first().map_or(0, |lane| lane.ids.len() / C::CALLS_DIVISOR);
        // All of a lane's accesses, or for the slow ones the next part.
        let first = round % C::CALLS_DIVISOR * length;
        // As many for each contender, since the best of more would be better.
        let blocks = lanes.first().map_or(1, |lane| (lane.ids.len() / BLOCK).max(1));
        let start = |block| first + block * length / blocks;
        (0..blocks).map(|block| time_block(self, lanes, start(block)..start(block + 1))).collect()
    }
}

/// How many accesses of a lane are timed at once, by contenders that run all of them; or up to twice as many, since all
/// blocks are of one size. Of blocks that take a millisecond some meet nobody else on the machine, and it
/// is long beside the time that two threads need to start together.
const BLOCK: usize = 1 << 16;

fn time_block<C: Contender>(
    limiter: &mut C,
    lanes: &[Lane],
    part: Range<usize>,
) -> Result<f64, Box<dyn Error>> {
    let block = match lanes {
        [lane] => time_alone(limiter, lane, part),
        lanes => time_together(limiter, lanes, &part),
    };
    // The limit is far away, so a denial means that something else is being measured.
    if block.allowed * 100 < block.decisions * 99 {
        return Err(format!(
            "{}: only {} of {} calls were allowed, where nearly all should be",
            C::NAME,
            block.allowed,
            block.decisions
        )
        .into());
    }
    Ok(block.elapsed.as_secs_f64() * 1e9 / as_f64(block.decisions))
}

struct Block {
    elapsed: Duration,
    decisions: usize,
    allowed: usize,
}

fn time_alone<C: Contender>(limiter: &mut C, lane: &Lane, part: Range<usize>) -> Block {
    C::Key::with(lane, part, |keys| {
        let start = Instant::now();
        let allowed = limiter.run_alone(keys);
        Block { elapsed: start.elapsed(), decisions: keys.len(), allowed }
    })
}

/// From the first thread's start to the last one's end.
fn time_together<C: Contender>(limiter: &C, lanes: &[Lane], part: &Range<usize>) -> Block {
    let barrier = Barrier::new(lanes.len());
    let work = |lane: &Lane| {
        C::Key::with(lane, part.clone(), |keys| {
            barrier.wait();
            let start = Instant::now();
            let allowed = limiter.run(keys);
            (start, Instant::now(), keys.len(), allowed)
        })
    };
    let done: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = lanes.iter().map(|lane| scope.spawn(|| work(lane))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let start = done.iter().map(|&(start, ..)| start).min();
    let end = done.iter().map(|&(_, end, ..)| end).max();
    Block {
        elapsed: start.zip(end).map_or(Duration::MAX, |(start, end)| end - start),
        decisions: done.iter().map(|&(_, _, decisions, _)| decisions).sum(),
        // A thread that panicked leaves its calls uncounted, which the check of the caller sees.
        allowed: if done.len() == lanes.len() { done.iter().map(|done| done.3).sum() } else { 0 },
    }
}

/// Runs a stage: builds, fills, and times round by round. The first round warms up and is not kept.
pub(crate) fn run(stage: &Stage, recruits: &[Recruit]) -> Result<Vec<Timing>, Box<dyn Error>> {
    let mut entrants = Vec::new();
    for recruit in recruits {
        eprintln!("  filling {} with {} keys", recruit.name, stage.keys);
        entrants.push((recruit.build)(stage.quota, stage.keys)?);
    }
    let mut timings = Vec::new();
    for &workload in &stage.workloads {
        let lanes = workload.prepare(stage.keys, stage.decisions);
        let mut times_ns = vec![Vec::with_capacity(stage.rounds); entrants.len()];
        for round in 0..=stage.rounds {
            eprintln!("  {}: round {round} of {}", workload.name(), stage.rounds);
            for (entrant, times_ns) in entrants.iter_mut().zip(&mut times_ns) {
                let blocks_ns = entrant.time(&lanes, round)?;
                if round > 0 {
                    times_ns.extend(blocks_ns);
                }
            }
        }
        for (entrant, times_ns) in entrants.iter().zip(times_ns) {
            timings.push(Timing::new(workload, entrant.name(), times_ns));
        }
    }
    Ok(timings)
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub(crate) const fn as_f64(count: usize) -> f64 {
    count as f64
}
