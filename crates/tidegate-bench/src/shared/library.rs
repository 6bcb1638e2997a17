//! The library with 1,000 hot keys: in memory, with leases, and strictly. The same callers ask each, in a
//! process of their own on one core, where also everything runs that the library does behind them.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate::redis::{RedisConfig, Shared};
use tidegate::{Attribute, Call, Consistency, RuleLimiter, RuleSet, Source};
use tidegate_rules::ParseOptions;

use super::{CALLERS, Effort, in_own_process, number, ratio, redis, told};
use crate::random::Random;
use crate::targets::{Figure, Target};
use crate::wire::server::Cores;

/// What the program says to itself.
pub(crate) const SUBCOMMAND: &str = "library-of";

const KEYS: u32 = 1_000;

/// A limit that is far away.
const RULES: &str = "
domain: api
rules:
  - { name: hot, match: { method: GET }, per: [user], limit: 1000000/s }
";

/// How many decisions a caller asks for before it lets the others go on, as a server does with what it has
/// read of a connection.
const TURN: u32 = 16;

/// What share of a run's decisions has to be of its kind for it to count.
const OF_ITS_KIND_LEAST: f64 = 0.9;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Memory,
    Leased,
    Strict,
}

impl Mode {
    const ALL: [Self; 3] = [Self::Memory, Self::Leased, Self::Strict];

    const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Leased => "leased",
            Self::Strict => "strict",
        }
    }

    /// Who decides, where all is as it is to be.
    const fn source(self) -> Source {
        match self {
            Self::Memory => Source::Memory,
            Self::Leased => Source::Lease,
            Self::Strict => Source::Store,
        }
    }
}

/// Everything, by the best rounds.
pub(super) fn figures(cores: &Cores, effort: Effort) -> Result<Vec<Figure>, Box<dyn Error>> {
    let server = redis(cores.server)?;
    let mut best = [0_f64; 3];
    for round in 1..=effort.rounds {
        eprintln!("  round {round} of {}", effort.rounds);
        for (mode, best) in Mode::ALL.into_iter().zip(&mut best) {
            let (port, seconds) = (server.port.to_string(), effort.seconds.to_string());
            let words = [SUBCOMMAND, mode.name(), &port, &seconds].map(ToOwned::to_owned);
            let answer = in_own_process(cores.load, &words)?;
            *best = best.max(number(&answer, "decisions")? / number(&answer, "seconds")?);
        }
    }
    let [memory, leased, strict] = best;
    let rate = |mode: Mode, value| {
        let figure = format!("library, {}, {KEYS} hot keys, {CALLERS} callers", mode.name());
        told(figure, value, "decisions/s")
    };
    Ok(vec![
        rate(Mode::Memory, memory),
        rate(Mode::Leased, leased),
        rate(Mode::Strict, strict),
        ratio("library, leased", leased / memory, "memory", Target::AtLeast(0.5)),
        ratio("library, leased", leased / strict, "strict", Target::AtLeast(20.0)),
    ])
}

/// The other side of it.
pub(crate) fn run_here(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let [name, port, seconds] = words else { return Err("mode, port, seconds".into()) };
    let mode = Mode::ALL.into_iter().find(|mode| mode.name() == *name).ok_or("no such mode")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(run(mode, port.parse()?, seconds.parse()?))?;
    println!("{answer}");
    Ok(())
}

async fn run(mode: Mode, port: u16, seconds: f64) -> Result<Value, Box<dyn Error>> {
    let sources = [tidegate_rules::Source::new("rules.yaml", RULES)];
    let parsed = RuleSet::parse(&sources, &ParseOptions::default());
    let rules = parsed.map_err(|report| report.to_string())?.rules;
    let builder = RuleLimiter::builder(rules).secret([7; 16]);
    let consistency = match mode {
        Mode::Memory => return in_memory(&Arc::new(builder.build()?), seconds).await,
        Mode::Leased => Consistency::Leased,
        Mode::Strict => Consistency::Strict,
    };
    // It leaves room for a machine that is busy.
    let deadline = Duration::from_secs(1);
    let config = RedisConfig::new(&format!("redis://127.0.0.1:{port}"))?.deadline(deadline);
    let shared = Arc::new(Shared::connect(config).await?);
    let limiter = Arc::new(builder.consistency(consistency).build_shared(Arc::clone(&shared))?);
    let ask = |end: Instant| {
        let limiters = (0..CALLERS).map(|number| (number, Arc::clone(&limiter)));
        let callers = limiters.map(|(number, limiter)| async move {
            let (users, mut asked) = (users(), Asked::new(number, mode));
            let mut checker = limiter.checker();
            while Instant::now() < end {
                for _ in 0..TURN {
                    let attributes = asked.attributes(&users);
                    let decided = checker.check(&Call::new("api", &attributes)).await;
                    let decided = decided.map_err(|error| error.to_string())?;
                    asked.note(decided.is_allowed(), decided.source());
                }
                tokio::task::yield_now().await;
            }
            Ok::<_, String>(asked.counted)
        });
        callers.map(tokio::spawn).collect::<Vec<_>>()
    };
    // Keys are found to be hot.
    sum(ask(Instant::now() + Duration::from_secs_f64(seconds / 4.0))).await?;
    let began = Instant::now();
    let counted = sum(ask(began + Duration::from_secs_f64(seconds))).await?;
    let answer = answer(counted, began.elapsed())?;
    shared.close().await;
    Ok(answer)
}

/// The same without a store, and without anything to wait for.
async fn in_memory(limiter: &Arc<RuleLimiter>, seconds: f64) -> Result<Value, Box<dyn Error>> {
    let began = Instant::now();
    let end = began + Duration::from_secs_f64(seconds);
    let limiters = (0..CALLERS).map(|number| (number, Arc::clone(limiter)));
    let callers = limiters.map(|(number, limiter)| async move {
        let (users, mut asked) = (users(), Asked::new(number, Mode::Memory));
        let mut checker = limiter.checker();
        while Instant::now() < end {
            for _ in 0..TURN {
                let attributes = asked.attributes(&users);
                let decided = checker.check(&Call::new("api", &attributes));
                let decided = decided.map_err(|error| error.to_string())?;
                asked.note(decided.is_allowed(), decided.source());
            }
            tokio::task::yield_now().await;
        }
        Ok::<_, String>(asked.counted)
    });
    let counted = sum(callers.map(tokio::spawn).collect()).await?;
    answer(counted, began.elapsed())
}

fn users() -> Vec<String> {
    (0..KEYS).map(|number| format!("user-{number}")).collect()
}

/// What one caller asks, and what it is answered.
struct Asked {
    random: Random,
    source: Source,
    counted: Counted,
}

#[derive(Clone, Copy, Default)]
struct Counted {
    decisions: u64,
    of_its_kind: u64,
    denied: u64,
}

impl Asked {
    fn new(number: u32, mode: Mode) -> Self {
        let (random, counted) = (Random::new(number.into()), Counted::default());
        Self { random, source: mode.source(), counted }
    }

    fn attributes<'a>(&mut self, users: &'a [String]) -> [Attribute<'a>; 2] {
        let user = &*users[self.random.below(KEYS) as usize];
        [("method", "GET").into(), ("user", user).into()]
    }

    fn note(&mut self, allowed: bool, source: Source) {
        self.counted.decisions += 1;
        self.counted.of_its_kind += u64::from(source == self.source);
        self.counted.denied += u64::from(!allowed);
    }
}

async fn sum(
    callers: Vec<tokio::task::JoinHandle<Result<Counted, String>>>,
) -> Result<Counted, Box<dyn Error>> {
    let mut all = Counted::default();
    for caller in callers {
        let one = caller.await??;
        all.decisions += one.decisions;
        all.of_its_kind += one.of_its_kind;
        all.denied += one.denied;
    }
    Ok(all)
}

/// Numbers mean something only where it was decided as it is to be.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn answer(counted: Counted, took: Duration) -> Result<Value, Box<dyn Error>> {
    let Counted { decisions, of_its_kind, denied } = counted;
    if denied > 0 || (of_its_kind as f64) < OF_ITS_KIND_LEAST * decisions as f64 {
        let why = format!("of {decisions} decisions {of_its_kind} of its kind, {denied} denied");
        return Err(why.into());
    }
    Ok(json!({ "decisions": decisions, "seconds": took.as_secs_f64() }))
}
