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
mod capture;
pub(crate) mod load;
pub(crate) mod scenario;
pub(crate) mod server;

use std::error::Error;
use std::path::{Path, PathBuf};

use self::load::{Asks, Driver};
use self::scenario::{Entrant, Scenario, Tried};
use self::server::{Cores, Server};
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

/// How long and how often.
#[derive(Clone, Copy)]
pub(crate) struct Effort {
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) starts: usize,
}

impl Effort {
    pub(crate) fn of(quick: bool) -> Self {
        if quick {
            Self { rounds: 2, seconds: 1.0, starts: 5 }
        } else {
            Self { rounds: 7, seconds: 3.0, starts: 20 }
        }
    }
}

/// Runs everything: the figures, and what is to be known about them.
pub(crate) fn figures(
    programs: &Programs,
    quick: bool,
) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    let effort = Effort::of(quick);
    let cores = Cores::two()?;
    let field = Field::start(programs, &cores)?;
    let driver = Driver { tidegate: programs.tidegate.clone(), core: cores.load };
    let mut tried = Vec::new();
    for scenario in field.scenarios() {
        tried.push(scenario.run(&driver, effort)?);
    }
    let half: Vec<Tried> = [(0, "HTTP"), (1, "gRPC")]
        .into_iter()
        .map(|(place, name)| field.half_load(&tried[place], name).run(&driver, effort))
        .collect::<Result<_, _>>()?;
    let mut figures: Vec<Figure> = tried.iter().flat_map(Tried::throughput).collect();
    figures.extend(half.iter().flat_map(Tried::latency));
    let mut notes: Vec<String> = tried.iter().flat_map(Tried::idle_servers).collect();
    drop(field);
    figures.extend(start_to_ready(&programs.tidegate, effort.starts)?);
    if quick {
        notes.push("a quick run: few and short rounds".to_owned());
    }
    Ok((figures, notes))
}

/// Every server, running.
struct Field {
    http: Server,
    grpc: Server,
    resp: Server,
    hyper: Server,
    tonic: Server,
    redis: Server,
    crab_http: Server,
    crab_grpc: Server,
    crab_resp: Server,
}

impl Field {
    /// Each protocol of ours has a process of its own, as the peers have: what one has in memory does
    /// not depend on which was measured before.
    fn start(programs: &Programs, cores: &Cores) -> Result<Self, Box<dyn Error>> {
        let ours = |protocol: &str| Server::tidegate(&programs.tidegate, protocol, cores.server);
        let crab = |protocol: &str| {
            let port = server::free_port()?;
            let flags = [
                format!("--{protocol}"),
                format!("--{protocol}-host=127.0.0.1"),
                format!("--{protocol}-port={port}"),
                "--log-level=error".to_owned(),
                "--store-capacity=1000000".to_owned(),
            ];
            Server::start(THROTTLECRAB, &programs.throttlecrab, &flags, port, cores.server, &[])
        };
        let (http, grpc) = (ours("http")?, ours("grpc")?);
        let own_path = std::env::current_exe()?;
        let bare = |name: &'static str, subcommand: &str, answer: &[u8]| {
            let port = server::free_port()?;
            let words = [subcommand.to_owned(), port.to_string()];
            Server::start(name, &own_path, &words, port, cores.server, answer)
        };
        let redis = {
            let port = server::free_port()?;
            let words = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""];
            let words = [&words[..], &["--appendonly", "no", "--loglevel", "warning"]].concat();
            let words: Vec<String> = words.into_iter().map(ToOwned::to_owned).collect();
            Server::start(REDIS, Path::new("redis-server"), &words, port, cores.server, &[])?
        };
        Ok(Self {
            hyper: bare(HYPER, bare::HTTP, &capture::http(http.port)?)?,
            tonic: bare(TONIC, bare::GRPC, &capture::grpc(grpc.port)?)?,
            resp: ours("resp")?,
            crab_http: crab("http")?,
            crab_grpc: crab("grpc")?,
            crab_resp: crab("redis")?,
            http,
            grpc,
            redis,
        })
    }

    /// In every scenario ours comes first.
    fn scenarios(&self) -> [Scenario; 5] {
        let [http, grpc] = self.over_http_and_grpc();
        let [deep, single, by_redis] = self.over_resp();
        [http, grpc, deep, single, by_redis]
    }

    fn over_http_and_grpc(&self) -> [Scenario; 2] {
        let post = |path, body| ["http", "--path", path, "--body", body];
        let check = post("/v1/check", CHECK_BODY);
        let crab_http = post("/throttle", THROTTLECRAB_BODY);
        let crab_grpc = ["grpc", "--service", "throttlecrab"];
        let http = vec![
            entrant(OURS, &self.http, &["http"], None),
            entrant(HYPER, &self.hyper, &["http"], Some(0.90)),
            entrant(THROTTLECRAB, &self.crab_http, &crab_http, Some(1.4)),
            entrant("tidegate, POST /v1/check", &self.http, &check, None),
        ];
        let grpc = vec![
            entrant(OURS, &self.grpc, &["grpc"], None),
            entrant(TONIC, &self.tonic, &["grpc"], Some(0.90)),
            entrant(THROTTLECRAB, &self.crab_grpc, &crab_grpc, Some(1.0)),
        ];
        [
            Scenario::closed("HTTP /limit/{key}, 1 M keys", 16, 1, http),
            Scenario::closed("gRPC ShouldRateLimit, 1 M keys", 8, 8, grpc),
        ]
    }

    fn over_resp(&self) -> [Scenario; 3] {
        const INCR: &str = "INCR {key}";
        let by_redis = |name, server: &Server, command: &str| {
            let command = command.replace("{key}", "key:__rand_int__");
            let words: Vec<&str> = command.split(' ').collect();
            let asks = Asks::ByRedisBenchmark { port: server.port, words: load::owned(&words) };
            Entrant { name, process: server.id(), asks, target: None }
        };
        let throttle = ["resp", "--command", THROTTLE];
        let crab = ["resp", "--command", THROTTLE.trim_start_matches("CL.")];
        let incr = ["resp", "--command", INCR];
        let resp = |least_to_redis, least_to_crab| {
            vec![
                entrant(OURS, &self.resp, &throttle, None),
                entrant(REDIS, &self.redis, &incr, Some(least_to_redis)),
                entrant(THROTTLECRAB, &self.crab_resp, &crab, least_to_crab),
            ]
        };
        let benchmark =
            vec![by_redis(OURS, &self.resp, THROTTLE), by_redis(REDIS, &self.redis, INCR)];
        [
            Scenario::closed(
                "RESP CL.THROTTLE, pipeline 64, 1 M keys",
                16,
                64,
                resp(1.0, Some(8.0)),
            ),
            Scenario::closed("RESP CL.THROTTLE, pipeline 1, 1 M keys", 50, 1, resp(0.95, None)),
            Scenario::closed("RESP by redis-benchmark, pipeline 64, 1 M keys", 16, 64, benchmark),
        ]
    }

    /// Half of what the bare server took at most, asked of it and of ours at fixed times.
    fn half_load(&self, tried: &Tried, protocol: &'static str) -> Scenario {
        let (ours, bare, name) = match protocol {
            "HTTP" => (&self.http, &self.hyper, HYPER),
            _ => (&self.grpc, &self.tonic, TONIC),
        };
        let word = [protocol.to_lowercase()];
        let word: Vec<&str> = word.iter().map(String::as_str).collect();
        let entrant = |name, server: &Server, target| Entrant {
            name,
            process: server.id(),
            asks: Asks::new(server, &word),
            target,
        };
        Scenario::open(
            format!("{protocol} at half of the bare server's most"),
            tried.best_rate_of(name) / 2.0,
            vec![entrant(OURS, ours, None), entrant(name, bare, Some(Target::AtMost(1.5)))],
        )
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
