//! A store that is killed, paused, or gets a hundredth of its processor, under load. What callers see of it:
//! decisions that failed, how long they took, what the node's memory does, and when the store decides again.
//!
//! Everything but the server is in a process of its own on one core, so that its memory is the node's.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark reads the real clock, and an outage has a length"
)]

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate::{Clock as _, SystemClock};
use tidegate_core::{Consistency, Key, OnStoreFailure, Operation, Rate, Span, Terms, TokenBucket};
use tidegate_redis::{RedisConfig, Settled, Shared, SharedConfig};
use tidegate_store::{Charge, Request, Source, StoreError};

use super::{CALLERS, Effort, asked, in_own_process, number, redis, redis_on, told};
use crate::random::Random;
use crate::targets::{Figure, Target};
use crate::wire::server::{Cores, Server};

/// What the program says to itself.
pub(crate) const SUBCOMMAND: &str = "outage-of";

/// Among how many keys callers draw.
const KEYS: u32 = 1_000;

/// How long a decision may take, which is what a store has unless said.
const DEADLINE: Duration = Duration::from_millis(10);

/// How much longer it may be for one in a hundred.
const LATE_MAX: Duration = Duration::from_millis(1);

const HEALED_MAX: Duration = Duration::from_secs(3);

/// How much more memory a node may have at the end of an outage than after its first half, in MiB: pages
/// that are touched for the first time, and nothing that grows.
const GROWTH_MAX_MIB: f64 = 1.0;

/// How long each caller waits between an answer and the next question. Without it those that are answered
/// at once would ask a hundred times as often as the others, and hide them.
const PAUSE: Duration = Duration::from_millis(1);

/// A slow server runs for one part of this many.
const SLOWER: u32 = 100;
const SLOW_TURN: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Killed,
    Paused,
    Slow,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Killed, Self::Paused, Self::Slow];

    const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Paused => "paused",
            Self::Slow => "100 times slower",
        }
    }
}

/// Everything.
pub(super) fn figures(cores: &Cores, effort: Effort) -> Result<Vec<Figure>, Box<dyn Error>> {
    let mut figures = Vec::new();
    for kind in Kind::ALL {
        eprintln!("  the store is {}", kind.name());
        let seconds = if effort.quick { "2" } else { "10" };
        let words = [SUBCOMMAND, kind.name(), seconds, &cores.server.to_string()];
        let answer = in_own_process(cores.load, &words.map(ToOwned::to_owned))?;
        let value = |name: &str| number(&answer, name);
        let name = |what: &str| format!("store {} under load, {what}", kind.name());
        let late = (DEADLINE + LATE_MAX).as_secs_f64() * 1e3;
        let healed = HEALED_MAX.as_secs_f64();
        figures.extend([
            told(name("decisions without it"), value("fallbacks")?, "decisions"),
            asked(name("failed"), value("failed")?, "decisions", Target::AtMost(0.0)),
            asked(name("99th percentile"), value("p99_ms")?, "ms", Target::AtMost(late)),
            told(name("slowest"), value("slowest_ms")?, "ms"),
            asked(
                name("growth of memory"),
                value("growth_mib")?,
                "MiB",
                Target::AtMost(GROWTH_MAX_MIB),
            ),
            asked(name("healed after"), value("healed_s")?, "s", Target::AtMost(healed)),
        ]);
    }
    Ok(figures)
}

/// The other side of it.
pub(crate) fn run_here(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let [name, seconds, core] = words else { return Err("kind, seconds, core".into()) };
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == *name).ok_or("no such kind")?;
    let (seconds, core) = (Duration::from_secs(seconds.parse()?), core.parse()?);
    let server = redis(core)?;
    let config = RedisConfig::new(&format!("redis://127.0.0.1:{}", server.port))?;
    let config = SharedConfig::new([config]).deadline(DEADLINE);
    let seen = Arc::new(Seen::new());
    let load = {
        let seen = Arc::clone(&seen);
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map_err(|error| error.to_string())?.block_on(load(config, seen))
        })
    };
    let answer = outage(kind, server, core, seconds, &seen)?;
    seen.stop.store(true, Ordering::Relaxed);
    load.join().map_err(|_| "the callers panicked")??;
    println!("{answer}");
    Ok(())
}

/// What callers see.
// ORDERING: each of its numbers stands for itself, and is read when nobody waits for another.
struct Seen {
    began: Instant,
    stop: AtomicBool,
    counting: AtomicBool,
    stored: AtomicU64,
    fallbacks: AtomicU64,
    failed: AtomicU64,
    /// When the last decision was made without the store, in microseconds since it began.
    last_fallback_us: AtomicU64,
    /// How many decisions took so many times [`STEP`]; the last place is for all that took longer.
    times: Vec<AtomicU64>,
    slowest_us: AtomicU64,
}

const STEP: Duration = Duration::from_micros(10);
const STEPS: usize = 10_000;

impl Seen {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            began: Instant::now(),
            stop: AtomicBool::new(false),
            counting: AtomicBool::new(false),
            stored: zero(),
            fallbacks: zero(),
            failed: zero(),
            last_fallback_us: zero(),
            times: (0..STEPS).map(|_| zero()).collect(),
            slowest_us: zero(),
        }
    }

    fn note(&self, took: Duration, answer: &Result<Settled, StoreError>) {
        match answer {
            Ok(settled) if settled.source == Source::Fallback => {
                self.fallbacks.fetch_add(1, Ordering::Relaxed);
                let now_us = self.began.elapsed().as_micros() as u64;
                self.last_fallback_us.fetch_max(now_us, Ordering::Relaxed);
            }
            Ok(_) => _ = self.stored.fetch_add(1, Ordering::Relaxed),
            Err(_) => _ = self.failed.fetch_add(1, Ordering::Relaxed),
        }
        if self.counting.load(Ordering::Relaxed) {
            let step = (took.as_micros() / STEP.as_micros()) as usize;
            self.times[step.min(STEPS - 1)].fetch_add(1, Ordering::Relaxed);
            self.slowest_us.fetch_max(took.as_micros() as u64, Ordering::Relaxed);
        }
    }

    /// What so large a share of decisions took at most, in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    fn quantile_ms(&self, share: f64) -> f64 {
        let times: Vec<u64> = self.times.iter().map(|time| time.load(Ordering::Relaxed)).collect();
        let (all, mut below) = (times.iter().sum::<u64>() as f64, 0);
        let reached = |count: &u64| {
            below += count;
            below as f64 >= share * all
        };
        let step = times.iter().position(reached).unwrap_or(STEPS);
        (step + 1) as f64 * STEP.as_secs_f64() * 1e3
    }
}

/// Asks until it is told to stop.
async fn load(config: SharedConfig, seen: Arc<Seen>) -> Result<(), String> {
    let node = Shared::connect(config).await.map_err(|error| error.to_string())?;
    let node = Arc::new(node);
    let rate = Rate::new(1 << 30, Span::DAY).map_err(|error| error.to_string())?;
    let limit = TokenBucket::new(rate, 1 << 30).map_err(|error| error.to_string())?;
    let limit = Arc::new(tidegate_core::Limit::from(limit));
    let terms =
        Terms { consistency: Consistency::Strict, on_failure: OnStoreFailure::Local, group: None };
    let call = |number: u32| {
        let (node, limit, seen) = (Arc::clone(&node), Arc::clone(&limit), Arc::clone(&seen));
        async move {
            let (mut random, mut settled) = (Random::new(number.into()), Vec::new());
            while !seen.stop.load(Ordering::Relaxed) {
                let hash = u128::from(random.below(KEYS)) + 1;
                let key = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
                let operation = Operation::Take { cost: 1 };
                let charges = [Charge { limit: &limit, key: Key::from_hash(key), operation }];
                let request = Request { now: SystemClock.now(), charges: &charges };
                settled.clear();
                let asked = Instant::now();
                let answer = node.decide(&request, &[terms], &mut settled).await;
                seen.note(asked.elapsed(), &answer.map(|()| settled[0]));
                tokio::time::sleep(PAUSE).await;
            }
        }
    };
    let callers: Vec<_> = (0..CALLERS).map(|number| tokio::spawn(call(number))).collect();
    for caller in callers {
        caller.await.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Has the server go away and come back, while callers ask.
fn outage(
    kind: Kind,
    server: Server,
    core: usize,
    length: Duration,
    seen: &Seen,
) -> Result<Value, Box<dyn Error>> {
    let warm = Instant::now();
    while seen.stored.load(Ordering::Relaxed) < 10_000 {
        if warm.elapsed() > Duration::from_secs(30) {
            return Err("the store does not decide".into());
        }
        thread::sleep(Duration::from_millis(10));
    }
    let fallbacks = seen.fallbacks.load(Ordering::Relaxed);
    seen.counting.store(true, Ordering::Relaxed);
    let (port, began, half) = (server.port, Instant::now(), length / 2);
    let mut server = Some(server);
    match kind {
        Kind::Killed => drop(server.take()),
        Kind::Paused => signal(server.as_ref(), "-STOP")?,
        Kind::Slow => {}
    }
    let mut resident = Vec::new();
    for until in [half, length] {
        while began.elapsed() < until {
            if kind == Kind::Slow {
                signal(server.as_ref(), "-STOP")?;
                thread::sleep(SLOW_TURN * (SLOWER - 1) / SLOWER);
                signal(server.as_ref(), "-CONT")?;
                thread::sleep(SLOW_TURN / SLOWER);
            } else {
                thread::sleep(Duration::from_millis(10));
            }
        }
        resident.push(resident_mib()?);
    }
    match kind {
        Kind::Killed => server = Some(redis_on(port, core)?),
        Kind::Paused => signal(server.as_ref(), "-CONT")?,
        Kind::Slow => {}
    }
    seen.counting.store(false, Ordering::Relaxed);
    let back_us = seen.began.elapsed().as_micros() as u64;
    let stored = seen.stored.load(Ordering::Relaxed);
    thread::sleep(HEALED_MAX + Duration::from_secs(1));
    let last_us = seen.last_fallback_us.load(Ordering::Relaxed);
    drop(server);
    if seen.stored.load(Ordering::Relaxed) == stored {
        return Err("the store does not decide again".into());
    }
    Ok(json!({
        "fallbacks": seen.fallbacks.load(Ordering::Relaxed) - fallbacks,
        "failed": seen.failed.load(Ordering::Relaxed),
        "p99_ms": seen.quantile_ms(0.99),
        "slowest_ms": ms(seen.slowest_us.load(Ordering::Relaxed)),
        "growth_mib": (resident[1] - resident[0]).max(0.0),
        "healed_s": ms(last_us.saturating_sub(back_us)) / 1e3,
    }))
}

fn ms(time_us: u64) -> f64 {
    Duration::from_micros(time_us).as_secs_f64() * 1e3
}

fn signal(server: Option<&Server>, name: &str) -> Result<(), Box<dyn Error>> {
    let server = server.ok_or("no server to send a signal to")?;
    let status = Command::new("kill").args([name, &server.id().to_string()]).status()?;
    status.success().then_some(()).ok_or_else(|| "the server has ended".into())
}

/// What this process has in memory.
fn resident_mib() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.ok_or("no resident memory is told")?.trim().parse::<f64>()? / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_hundred_takes_longer_than_the_99th_percentile() {
        let seen = Seen::new();
        seen.counting.store(true, Ordering::Relaxed);
        let answer = Err(StoreError::Unreachable);
        for number in 1..=1_000 {
            let took = if number % 100 == 0 { 20 } else { 3 };
            seen.note(Duration::from_millis(took), &answer);
        }
        assert!((3.0..3.1).contains(&seen.quantile_ms(0.99)));
        assert!((20.0..20.1).contains(&seen.quantile_ms(0.995)));
        assert_eq!(seen.failed.load(Ordering::Relaxed), 1_000);
    }

    #[test]
    fn the_memory_of_a_process_can_be_read() {
        assert!(resident_mib().unwrap() > 1.0);
    }
}
