//! `cargo xtask bench wire`: the daemon over HTTP, gRPC and RESP beside servers that decide nothing,
//! beside Redis and beside throttlecrab-server. Each server has one core and the load another.
//! Servers take turns, round by round, and are compared within one run.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`bare`] | the servers that decide nothing: hyper and tonic |
//! | [`capture`] | what the daemon answers, for them to answer the same |
//! | [`server`] | processes on a core of their own |
//! | [`load`] | one measurement: `tidegate bench` or `redis-benchmark` on the other core |
//! | [`scenario`] | who is asked what, in which order, and the figures that follow |

pub(crate) mod bare;
pub(crate) mod capture;
pub(crate) mod load;
pub(crate) mod scenario;
pub(crate) mod server;

use std::error::Error;
use std::path::{Path, PathBuf};

use self::load::{Asks, Driver};
use self::scenario::{Entrant, Scenario, Tried};
use self::server::{Cores, Server};
use crate::parts;
use crate::targets::{Figure, Target};

/// The programs that are measured.
pub(crate) struct Programs {
    pub(crate) tidegate: PathBuf,
    pub(crate) throttlecrab: PathBuf,
}

/// Limits that are far away, so that a denial would mean that something else is measured; and slow to
/// come back, so that every key stays active.
const LIMIT: &str = "100000/day per key";
const THROTTLE: &str = "CL.THROTTLE {key} 100000 100000 86400";
const THROTTLECRAB_BODY: &str =
    r#"{"key":"{key}","max_burst":100000,"count_per_period":100000,"period":86400}"#;
const CHECK_BODY: &str = r#"{"domain":"default","attributes":{"key":"{key}"}}"#;

const OURS: &str = "tidegate";
const HYPER: &str = "bare hyper";
const TONIC: &str = "bare tonic";
const REDIS: &str = "redis-server INCR";
const THROTTLECRAB: &str = "throttlecrab-server";

/// How long and how often. Rounds are many and short: what else the machine does comes in bursts, and spoils a long
/// round sooner than the best of many short ones.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    /// How often a start is timed.
    pub(crate) starts: usize,
    /// How often servers are started anew where that matters.
    pub(crate) restarts: usize,
}

impl Effort {
    /// The same for servers that are all started anew so many [times](Self::restarts): one short round each time, since
    /// they differ by more from start to start than from round to round.
    pub(crate) fn of_a_start(self) -> Self {
        Self { rounds: 1, seconds: self.seconds.min(0.2), ..self }
    }

    pub(crate) fn of(quick: bool) -> Self {
        if quick {
            Self { rounds: 4, seconds: 0.5, starts: 5, restarts: 6 }
        } else {
            Self { rounds: 21, seconds: 1.0, starts: 20, restarts: 100 }
        }
    }
}

/// A part of the benchmark. Each has servers of its own, which end with it.
#[derive(Clone, Copy)]
enum Part {
    Http,
    Grpc,
    Resp,
    Start,
}

impl parts::Part for Part {
    const ALL: &'static [(&'static str, Self)] =
        &[("http", Self::Http), ("grpc", Self::Grpc), ("resp", Self::Resp), ("start", Self::Start)];
}

/// Runs some parts: the figures, and what is to be known about them.
pub(crate) fn figures(
    programs: &Programs,
    only: &[String],
    quick: bool,
) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    let field = Field { programs, cores: Cores::two()?, effort: Effort::of(quick) };
    let mut outcome = Outcome::default();
    for (_, part) in parts::chosen(only)? {
        match part {
            Part::Http => field.http(&mut outcome)?,
            Part::Grpc => field.grpc(&mut outcome)?,
            Part::Resp => field.resp(&mut outcome)?,
            Part::Start => {
                outcome.figures.extend(start_to_ready(&programs.tidegate, field.effort.starts)?);
            }
        }
    }
    if quick {
        outcome.notes.push("a quick run: few and short rounds".to_owned());
    }
    Ok((outcome.figures, outcome.notes))
}

/// What has come of it so far.
#[derive(Default)]
struct Outcome {
    figures: Vec<Figure>,
    notes: Vec<String>,
}

impl Outcome {
    fn note_throughput(&mut self, tried: &Tried) {
        self.figures.extend(tried.throughput());
        self.notes.extend(tried.idle_servers());
    }
}

/// Where servers are measured, and for how long.
struct Field<'p> {
    programs: &'p Programs,
    cores: Cores,
    effort: Effort,
}

/// In every scenario ours comes first.
impl Field<'_> {
    fn http(&self, outcome: &mut Outcome) -> Result<(), Box<dyn Error>> {
        let post = |path, body| ["http", "--path", path, "--body", body];
        let ours = self.ours("http")?;
        let hyper = self.bare(HYPER, bare::HTTP, &capture::http(ours.port)?)?;
        let crab = self.throttlecrab("http")?;
        let tried = self.run(Scenario::closed(
            "HTTP /limit/{key}, 1 M keys",
            16,
            1,
            vec![
                entrant(OURS, &ours, &["http"], None),
                entrant(HYPER, &hyper, &["http"], Some(0.90)),
                entrant(THROTTLECRAB, &crab, &post("/throttle", THROTTLECRAB_BODY), Some(1.4)),
                entrant("tidegate, POST /v1/check", &ours, &post("/v1/check", CHECK_BODY), None),
            ],
        ))?;
        outcome.note_throughput(&tried);
        self.half_load(("HTTP", "http"), &ours, (HYPER, &hyper), &tried, outcome)
    }

    fn grpc(&self, outcome: &mut Outcome) -> Result<(), Box<dyn Error>> {
        let ours = self.ours("grpc")?;
        let tonic = self.bare(TONIC, bare::GRPC, &capture::grpc(ours.port)?)?;
        let crab = self.throttlecrab("grpc")?;
        let tried = self.run(Scenario::closed(
            "gRPC ShouldRateLimit, 1 M keys",
            8,
            8,
            vec![
                entrant(OURS, &ours, &["grpc"], None),
                entrant(TONIC, &tonic, &["grpc"], Some(0.90)),
                entrant(THROTTLECRAB, &crab, &["grpc", "--service", "throttlecrab"], Some(1.0)),
            ],
        ))?;
        outcome.note_throughput(&tried);
        self.half_load(("gRPC", "grpc"), &ours, (TONIC, &tonic), &tried, outcome)
    }

    fn resp(&self, outcome: &mut Outcome) -> Result<(), Box<dyn Error>> {
        const INCR: &str = "INCR {key}";
        let (ours, redis) = (self.ours("resp")?, self.redis()?);
        let crab = self.throttlecrab("redis")?;
        let by_redis = |name, server: &Server, command: &str| {
            let command = command.replace("{key}", "key:__rand_int__");
            let words: Vec<&str> = command.split(' ').collect();
            let asks = Asks::ByRedisBenchmark { port: server.port, words: load::owned(&words) };
            Entrant { name, process: server.id(), asks, target: None }
        };
        let by_us = |least_to_redis, least_to_crab| {
            let crab_throttle = THROTTLE.trim_start_matches("CL.");
            vec![
                entrant(OURS, &ours, &["resp", "--command", THROTTLE], None),
                entrant(REDIS, &redis, &["resp", "--command", INCR], Some(least_to_redis)),
                entrant(THROTTLECRAB, &crab, &["resp", "--command", crab_throttle], least_to_crab),
            ]
        };
        let deep = by_us(1.0, Some(8.0));
        let benchmark = vec![by_redis(OURS, &ours, THROTTLE), by_redis(REDIS, &redis, INCR)];
        for scenario in [
            Scenario::closed("RESP CL.THROTTLE, pipeline 64, 1 M keys", 16, 64, deep),
            Scenario::closed("RESP CL.THROTTLE, pipeline 1, 1 M keys", 50, 1, by_us(0.95, None)),
            Scenario::closed("RESP by redis-benchmark, pipeline 64, 1 M keys", 16, 64, benchmark),
        ] {
            outcome.note_throughput(&self.run(scenario)?);
        }
        Ok(())
    }

    /// Half of what the bare server took at most, asked of it and of ours at fixed times.
    fn half_load(
        &self,
        (title, protocol): (&str, &str),
        ours: &Server,
        (bare_name, bare): (&'static str, &Server),
        tried: &Tried,
        outcome: &mut Outcome,
    ) -> Result<(), Box<dyn Error>> {
        let name = format!("{title} at half of the bare server's most");
        let mut bare_entrant = entrant(bare_name, bare, &[protocol], None);
        bare_entrant.target = Some(Target::AtMost(1.5));
        let entrants = vec![entrant(OURS, ours, &[protocol], None), bare_entrant];
        let half = Scenario::open(name, tried.best_rate_of(bare_name) / 2.0, entrants);
        outcome.figures.extend(self.run(half)?.latency());
        Ok(())
    }

    fn run(&self, scenario: Scenario) -> Result<Tried, Box<dyn Error>> {
        let driver = Driver {
            tidegate: self.programs.tidegate.clone(),
            core: self.cores.load,
            keys: load::KEYS,
        };
        scenario.run(&driver, self.effort)
    }

    /// Each protocol of ours has a process of its own, as the peers have: what one has in memory does
    /// not depend on which was measured before.
    fn ours(&self, protocol: &str) -> Result<Server, Box<dyn Error>> {
        Server::tidegate(&self.programs.tidegate, protocol, self.cores.server)
    }

    fn bare(
        &self,
        name: &'static str,
        subcommand: &str,
        answer: &[u8],
    ) -> Result<Server, Box<dyn Error>> {
        let port = server::free_port()?;
        let words = [subcommand.to_owned(), port.to_string()];
        Server::start(name, &std::env::current_exe()?, &words, port, self.cores.server, answer)
    }

    fn redis(&self) -> Result<Server, Box<dyn Error>> {
        let port = server::free_port()?;
        let words = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""];
        let words = [&words[..], &["--appendonly", "no", "--loglevel", "warning"]].concat();
        let words: Vec<String> = words.into_iter().map(ToOwned::to_owned).collect();
        Server::start(REDIS, Path::new("redis-server"), &words, port, self.cores.server, &[])
    }

    fn throttlecrab(&self, protocol: &str) -> Result<Server, Box<dyn Error>> {
        let port = server::free_port()?;
        let flags = [
            format!("--{protocol}"),
            format!("--{protocol}-host=127.0.0.1"),
            format!("--{protocol}-port={port}"),
            "--log-level=error".to_owned(),
            "--store-capacity=1000000".to_owned(),
        ];
        let program = &self.programs.throttlecrab;
        Server::start(THROTTLECRAB, program, &flags, port, self.cores.server, &[])
    }
}

/// A server with what is asked of it by our own load, and how much of its speed ours must reach.
pub(crate) fn entrant(
    name: &'static str,
    server: &Server,
    words: &[&str],
    least: Option<f64>,
) -> Entrant {
    let asks = Asks::new(server, words);
    Entrant { name, process: server.id(), asks, target: least.map(Target::AtLeast) }
}

/// From the call of the program to the first answer that says it is ready.
fn start_to_ready(tidegate: &Path, starts: usize) -> Result<Vec<Figure>, Box<dyn Error>> {
    let mut times_ms = Vec::new();
    for start in 1..=starts {
        eprintln!("  start to ready: {start} of {starts}");
        times_ms.push(server::start_to_ready_ms(tidegate)?);
    }
    times_ms.sort_by(f64::total_cmp);
    let figure = |which: &str, value, target| Figure {
        figure: format!("start to ready, {which}"),
        value,
        unit: "ms",
        peer: None,
        target,
    };
    // A promise about starts is about all of them, so it is held to the slowest.
    let slowest = times_ms.last().copied().unwrap_or(f64::NAN);
    Ok(vec![
        figure("median", times_ms[times_ms.len() / 2], None),
        figure("slowest", slowest, Some(Target::Below(100.0))),
    ])
}
