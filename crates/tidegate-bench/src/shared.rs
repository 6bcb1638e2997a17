//! `cargo xtask bench shared`: limits that nodes share, on real servers, beside the least that such a
//! server can do. The server has one core and the callers another. Those who are compared take
//! turns, round by round, and are compared within one run.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`callers`] | tasks that ask a store as fast as answers come, in a process of their own |
//! | [`bare`] | the same script without us: what we send, and `redis-benchmark` sending it |
//! | [`memory`] | what keys take in the server |

mod bare;
pub(crate) mod callers;
mod memory;

use std::error::Error;
use std::path::Path;

use self::callers::{Calling, Sample};
use crate::targets::{Figure, Target};
use crate::wire::server::{Cores, Server, free_port};

/// How many ask at once, and so how many requests are in a pipeline.
const CALLERS: u32 = 50;

/// Among how many keys a caller draws, so that hardly two ask for the same at once.
const KEYS: u32 = 100_000;

const PEER: &str = "redis-benchmark EVALSHA";
const SMALLEST: &str = "the smallest key";

/// How long and how often.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    seconds: f64,
}

/// Runs everything: the figures, and what is to be known about them.
pub(crate) fn figures(quick: bool) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    let effort =
        if quick { Effort { rounds: 3, seconds: 1.0 } } else { Effort { rounds: 7, seconds: 3.0 } };
    let cores = Cores::two()?;
    let mut figures = strict(&cores, effort)?;
    figures.extend(memory_per_key(&cores)?);
    let mut notes = vec![format!(
        "{PEER} runs the script that our calls run, {CALLERS} in a pipeline on one connection; both \
         draw from {KEYS} keys"
    )];
    if quick {
        notes.push("a quick run: few and short rounds".to_owned());
    }
    Ok((figures, notes))
}

/// A server of its own, on the servers' core.
fn redis(cores: &Cores) -> Result<Server, Box<dyn Error>> {
    let port = free_port()?;
    let words = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""];
    let words = [&words[..], &["--appendonly", "no", "--loglevel", "warning"]].concat();
    let words: Vec<String> = words.into_iter().map(ToOwned::to_owned).collect();
    Server::start("redis-server", Path::new("redis-server"), &words, port, cores.server, &[])
}

/// Every decision in the server.
fn strict(cores: &Cores, effort: Effort) -> Result<Vec<Figure>, Box<dyn Error>> {
    let server = redis(cores)?;
    let call = bare::capture(server.port)?;
    let calling = |limits, keys| Calling {
        port: server.port,
        limits,
        keys,
        callers: CALLERS,
        seconds: effort.seconds,
    };
    let (mut one, mut three, mut hot, mut peer) = (Best::new(), Best::new(), Best::new(), 0_f64);
    let mut expected = 20_000.0;
    for round in 0..effort.rounds {
        eprintln!("  round {} of {}", round + 1, effort.rounds);
        one.add(calling(1, KEYS).in_own_process(cores.load)?);
        let bare = call.run(cores.load, CALLERS, expected * effort.seconds)?;
        (expected, peer) = (bare, peer.max(bare));
        three.add(calling(3, KEYS).in_own_process(cores.load)?);
        hot.add(calling(1, 1).in_own_process(cores.load)?);
    }
    let (one, three, hot) = (one.0, three.0, hot.0);
    let rate = |figure: &str, value| Figure {
        figure: format!("{figure}, {CALLERS} callers"),
        value,
        unit: "decisions/s",
        peer: None,
        target: None,
    };
    let ratio = |figure: &str, value, peer, least| Figure {
        figure: figure.to_owned(),
        value,
        unit: "times",
        peer: Some(peer),
        target: Some(Target::AtLeast(least)),
    };
    Ok(vec![
        rate("strict, 1 limit", one.per_second),
        rate("strict, 3 limits in one request", three.per_second),
        rate("strict, 1 limit, one hot key", hot.per_second),
        rate(PEER, peer),
        ratio("strict, 1 limit", one.per_second / peer, PEER, 0.9),
        ratio("strict, 3 limits", three.per_second / one.per_second, "1 limit", 0.6),
        Figure {
            figure: "strict, one hot key, script calls".to_owned(),
            value: hot.script_calls_per_decision,
            unit: "a decision",
            peer: None,
            target: None,
        },
    ])
}

/// A token bucket's state beside a key and a value that are as short as they can be.
fn memory_per_key(cores: &Cores) -> Result<Vec<Figure>, Box<dyn Error>> {
    let ours = memory::of_token_buckets(redis(cores)?.port)?;
    let smallest = memory::of_smallest_keys(redis(cores)?.port)?;
    let bytes = |figure: &str, value| Figure {
        figure: figure.to_owned(),
        value,
        unit: "bytes a key",
        peer: None,
        target: None,
    };
    Ok(vec![
        bytes("memory in the server, token bucket", ours),
        bytes("memory in the server, smallest key", smallest),
        Figure {
            figure: "memory in the server, token bucket".to_owned(),
            value: ours / smallest,
            unit: "times",
            peer: Some(SMALLEST),
            target: Some(Target::AtMost(1.15)),
        },
    ])
}

/// The best of several rounds.
struct Best(Sample);

impl Best {
    fn new() -> Self {
        Self(Sample { per_second: 0.0, script_calls_per_decision: 0.0 })
    }

    fn add(&mut self, sample: Sample) {
        if sample.per_second > self.0.per_second {
            self.0 = sample;
        }
    }
}
