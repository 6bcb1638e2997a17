//! `cargo xtask bench shared`: limits that nodes share, on real servers, beside the least that such a
//! server can do. The server has one core and the callers another. Those who are compared take
//! turns, round by round, and are compared within one run.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`strict`] | every decision in the server: one limit, three, and one hot key |
//! | [`callers`] | tasks that ask a store as fast as answers come, in a process of their own |
//! | [`bare`] | the same script without us: what we send, and `redis-benchmark` sending it |
//! | [`library`] | the library in memory, with leases and strictly, under the same load |
//! | [`http`] | the daemon in memory and with leases |
//! | [`outages`] | a store that is killed, paused or slow under load |
//! | [`rounds`] | many callers at once on a small limit, on three nodes |
//! | [`memory`] | what keys take in the server |

mod bare;
pub(crate) mod callers;
mod http;
pub(crate) mod library;
mod memory;
pub(crate) mod outages;
pub(crate) mod rounds;
mod strict;

use std::error::Error;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::parts;
use crate::targets::{Figure, Target};
use crate::wire::server::{Cores, Server, free_port, pinned};

/// How many ask at once, and so how many requests are in a pipeline.
const CALLERS: u32 = 50;

/// How long and how often.
#[derive(Clone, Copy)]
struct Effort {
    quick: bool,
    rounds: usize,
    seconds: f64,
}

#[derive(Clone, Copy)]
enum Part {
    Strict,
    Library,
    Http,
    Outages,
    Rounds,
    Memory,
}

impl parts::Part for Part {
    const ALL: &'static [(&'static str, Self)] = &[
        ("strict", Self::Strict),
        ("library", Self::Library),
        ("http", Self::Http),
        ("outages", Self::Outages),
        ("rounds", Self::Rounds),
        ("memory", Self::Memory),
    ];
}

impl Part {
    fn figures(
        self,
        tidegate: &Path,
        cores: &Cores,
        effort: Effort,
    ) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
        Ok(match self {
            Self::Strict => (strict::figures(cores, effort)?, vec![strict::note()]),
            Self::Library => (library::figures(cores, effort)?, Vec::new()),
            Self::Http => http::figures(tidegate, cores, effort.quick)?,
            Self::Outages => (outages::figures(cores, effort)?, Vec::new()),
            Self::Rounds => (rounds::figures(cores, effort)?, Vec::new()),
            Self::Memory => (memory::figures(cores)?, Vec::new()),
        })
    }
}

/// Runs everything, or some parts of it: the figures, and what is to be known about them.
pub(crate) fn figures(
    tidegate: &Path,
    only: &[String],
    quick: bool,
) -> Result<(Vec<Figure>, Vec<String>), Box<dyn Error>> {
    let (rounds, seconds) = if quick { (3, 1.0) } else { (7, 3.0) };
    let effort = Effort { quick, rounds, seconds };
    let cores = Cores::two()?;
    let (mut figures, mut notes) = (Vec::new(), Vec::new());
    for (name, part) in parts::chosen::<Part>(only)? {
        eprintln!("{name}:");
        let (more_figures, more_notes) = part.figures(tidegate, &cores, effort)?;
        figures.extend(more_figures);
        notes.extend(more_notes);
    }
    if quick {
        notes.push("a quick run: few and short rounds".to_owned());
    }
    Ok((figures, notes))
}

/// A server of its own, on the servers' core.
fn redis(core: usize) -> Result<Server, Box<dyn Error>> {
    redis_on(free_port()?, core)
}

/// The same, on this port.
fn redis_on(port: u16, core: usize) -> Result<Server, Box<dyn Error>> {
    let words = ["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""];
    let words = [&words[..], &["--appendonly", "no", "--loglevel", "warning"]].concat();
    let words: Vec<String> = words.into_iter().map(ToOwned::to_owned).collect();
    Server::start("redis-server", Path::new("redis-server"), &words, port, core, &[])
}

/// Has this program do something in a process of its own, on one core, and gives what it prints.
fn in_own_process(core: usize, words: &[String]) -> Result<Value, Box<dyn Error>> {
    let mut command = pinned(core, &std::env::current_exe()?);
    let output = command.args(words).stderr(Stdio::inherit()).output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| format!("{} failed", words[0]).into())
}

/// A number of what such a process prints.
fn number(answer: &Value, name: &str) -> Result<f64, Box<dyn Error>> {
    answer[name].as_f64().ok_or_else(|| format!("an answer without {name}").into())
}

/// A figure that is only told.
fn told(figure: String, value: f64, unit: &'static str) -> Figure {
    Figure { figure, value, unit, peer: None, target: None }
}

/// A figure that has to be reached.
fn asked(figure: String, value: f64, unit: &'static str, target: Target) -> Figure {
    Figure { figure, value, unit, peer: None, target: Some(target) }
}

/// One over another, which has to be reached.
fn ratio(figure: &str, value: f64, peer: &'static str, target: Target) -> Figure {
    let figure = figure.to_owned();
    Figure { figure, value, unit: "times", peer: Some(peer), target: Some(target) }
}
