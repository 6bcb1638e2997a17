//! `cargo xtask bench memory`: the in-memory limiter beside governor, throttlecrab and limitador in
//! one run; `cargo xtask bench rules`: matching, deciding and reloading by rules; `cargo xtask bench
//! wire`: the daemon over its protocols beside other servers; `cargo xtask bench shared`: limits that
//! nodes share; `cargo xtask bench edges`: the middleware, the client and the gateway. Tables on stdout, progress on
//! stderr, `--json FILE` for programs.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `workloads` | which keys, in which order, from how many threads |
//! | `contenders` | the limiters behind one seam, and the check that they count |
//! | `harness` | interleaved rounds and their times |
//! | `anatomy` | where the time of a hot decision goes |
//! | `footprint` | bytes per key by resident memory, a fresh process for each |
//! | `targets` | the figures to reach |
//! | `report` | tables and JSON |
//! | `priority` | who else runs meanwhile |
//! | `random` | seeded numbers and Zipf ranks |
//! | `rules` | matching, deciding and reloading by rules |
//! | `wire` | the daemon over its protocols |
//! | `shared` | limits that nodes share, in Redis |
//! | `edges` | the middleware in front of a service, the client of the daemon, the gateway |
//! | `allocations` | how often a piece of work takes memory from the heap |
//!
//! Instruction counts, which do not depend on the machine, are in `tidegate-instructions`.

mod allocations;
mod anatomy;
mod contenders;
mod edges;
mod footprint;
mod harness;
mod parts;
mod priority;
mod random;
mod report;
mod rules;
mod shared;
mod targets;
mod wire;
mod workloads;

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
Measures Tidegate: its in-memory limiter, its rules, its daemon, shared limits or its edges, peers beside
it in one run.

Usage: tidegate-bench memory|rules|wire|shared|edges [--quick] [--json FILE]

  memory       decisions and bytes per key, with governor, throttlecrab and limitador beside ours;
               and where the time of a decision on a hot key goes
  rules        matching among 10 to 100,000 rules, deciding by rules, reloading
  wire         HTTP, gRPC and RESP, with bare servers, Redis and throttlecrab-server beside ours;
               takes --tidegate PROGRAM and --throttlecrab PROGRAM, which `cargo xtask` builds;
               parts: http, grpc, resp, start
  shared       limits in Redis, strict and leased, with redis-benchmark running the bare script and
               memory beside them; takes --tidegate PROGRAM, which `cargo xtask` builds;
               parts: strict, library, http, outages, rounds, memory
  edges        the middleware beside no layer and tower_governor, the client's batches, and the
               gateway beside nginx; takes --tidegate PROGRAM, which `cargo xtask` builds;
               parts: layer, client, gateway, places
  --only PART  one part of the benchmark; may be repeated
  --quick      fewer rounds and no 10 M keys: a minute or two, for a first impression
  --json FILE  also writes a list of {figure, value, unit, peer, target, met}
  --help       this text

Times are nanoseconds per decision; of two threads, the time of both over the decisions of both.
`memory`, `wire` and `edges` ask for real-time priority (chrt) where that is allowed: let them have
the machine.
Over the wire it is requests per second, each server on one core and the load on another.
The exit code is 0 also where a target is not met, and 1 where a measurement is not possible.

Examples:
  cargo xtask bench memory
  cargo xtask bench rules
  cargo xtask bench wire -- --quick
  cargo xtask bench wire -- --only http
  cargo xtask bench shared -- --quick
  cargo xtask bench edges -- --quick
  cargo run --release -p tidegate-bench -- memory --quick
  cargo run --release -p tidegate-bench -- memory --json memory.json
";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        // How the program calls itself to measure memory in a fresh process.
        [footprint::SUBCOMMAND, subject, keys] => footprint::measure_here(subject, keys),
        ["memory", options @ ..] => Options::whole(options).and_then(|options| memory(&options)),
        ["rules", options @ ..] => Options::whole(options).and_then(|options| rules(&options)),
        ["wire", options @ ..] => Options::parse(options).and_then(|options| wire(&options)),
        ["shared", options @ ..] => Options::parse(options).and_then(|options| shared(&options)),
        // How the program calls itself to have one core for what it does.
        [shared::callers::SUBCOMMAND, words @ ..] => shared::callers::call_here(words),
        [shared::library::SUBCOMMAND, words @ ..] => shared::library::run_here(words),
        [shared::outages::SUBCOMMAND, words @ ..] => shared::outages::run_here(words),
        [shared::rounds::SUBCOMMAND, words @ ..] => shared::rounds::run_here(words),
        ["edges", options @ ..] => Options::parse(options).and_then(|options| edges(&options)),
        // How the program calls itself for a service with a layer in front of it.
        [edges::served::SUBCOMMAND, layer, port] => edges::served::serve(layer, port),
        [edges::batches::SUBCOMMAND, address, window_us, seconds] => {
            edges::batches::call_here(address, window_us, seconds)
        }
        // How the program calls itself for a server that only answers.
        [edges::behind::SUBCOMMAND, port] => edges::behind::serve(port),
        [edges::between::SUBCOMMAND, port, behind] => edges::between::serve(port, behind),
        // How the program calls itself for servers that decide nothing.
        [wire::bare::HTTP, port] => wire::bare::http(port),
        [wire::bare::GRPC, port] => wire::bare::grpc(port),
        ["--help" | "-h" | "help"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err("say `memory`, `rules`, `wire`, `shared` or `edges`, or `--help` for more".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The figures, and what their reader has to know.
type Measured = (Vec<targets::Figure>, Vec<String>);
/// Measures the daemon of that program: the parts of these names, quickly or not.
type MeasureDaemon = fn(&Path, &[String], bool) -> Result<Measured, Box<dyn Error>>;

#[derive(Default)]
struct Options {
    quick: bool,
    help: bool,
    json: Option<PathBuf>,
    tidegate: Option<PathBuf>,
    throttlecrab: Option<PathBuf>,
    only: Vec<String>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut options = Self::default();
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--quick" => options.quick = true,
                "--help" | "-h" => options.help = true,
                "--json" | "--tidegate" | "--throttlecrab" => {
                    let path = words.next().ok_or_else(|| format!("{word} takes a path"))?;
                    *match word {
                        "--json" => &mut options.json,
                        "--tidegate" => &mut options.tidegate,
                        _ => &mut options.throttlecrab,
                    } = Some(PathBuf::from(path));
                }
                "--only" => {
                    let part = words.next().ok_or("--only takes the name of a part; see --help")?;
                    options.only.push((*part).to_owned());
                }
                _ => return Err(format!("unknown option `{word}`; see --help").into()),
            }
        }
        Ok(options)
    }

    /// The options of a benchmark that has no parts.
    fn whole(words: &[&str]) -> Result<Self, Box<dyn Error>> {
        let options = Self::parse(words)?;
        if options.only.is_empty() { Ok(options) } else { Err("it has no parts for --only".into()) }
    }

    /// Whether there is something to measure; otherwise the help was printed.
    fn ask_for_a_run(&self) -> Result<bool, Box<dyn Error>> {
        if self.help {
            print!("{HELP}");
            return Ok(false);
        }
        if cfg!(debug_assertions) {
            return Err("a build without optimisation measures nothing; use --release".into());
        }
        Ok(true)
    }

    /// Measures among the other programs of this machine, and reports.
    fn measure(
        &self,
        figures: impl FnOnce() -> Result<Measured, Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let busy = priority::busy();
        let (figures, notes) = figures()?;
        self.report((figures, busy.into_iter().chain(notes).collect()))
    }

    /// The same for what takes the daemon's program.
    fn measure_daemon(&self, figures: MeasureDaemon) -> Result<(), Box<dyn Error>> {
        if !self.ask_for_a_run()? {
            return Ok(());
        }
        let tidegate = self.tidegate.as_deref().ok_or(
            "--tidegate names the program of the daemon; `cargo xtask bench` builds and names it",
        )?;
        self.measure(|| figures(tidegate, &self.only, self.quick))
    }

    fn report(&self, (figures, notes): Measured) -> Result<(), Box<dyn Error>> {
        report::print_figures(&figures);
        for note in notes {
            println!("Note: {note}.\n");
        }
        report::print_targets(&figures);
        self.write_json(&figures)
    }

    fn write_json(&self, figures: &[targets::Figure]) -> Result<(), Box<dyn Error>> {
        self.json.as_ref().map_or(Ok(()), |file| report::write_json(figures, file))
    }
}

fn rules(options: &Options) -> Result<(), Box<dyn Error>> {
    if !options.ask_for_a_run()? {
        return Ok(());
    }
    options.measure(|| Ok((rules::figures(options.quick)?, Vec::new())))
}

fn wire(options: &Options) -> Result<(), Box<dyn Error>> {
    if !options.ask_for_a_run()? {
        return Ok(());
    }
    let (Some(tidegate), Some(throttlecrab)) = (&options.tidegate, &options.throttlecrab) else {
        return Err("--tidegate and --throttlecrab name the programs; `cargo xtask bench wire` \
                    builds and names them"
            .into());
    };
    let programs =
        wire::Programs { tidegate: tidegate.clone(), throttlecrab: throttlecrab.clone() };
    options.measure(|| wire::figures(&programs, &options.only, options.quick))
}

fn shared(options: &Options) -> Result<(), Box<dyn Error>> {
    options.measure_daemon(shared::figures)
}

fn edges(options: &Options) -> Result<(), Box<dyn Error>> {
    options.measure_daemon(edges::figures)
}

fn memory(options: &Options) -> Result<(), Box<dyn Error>> {
    if !options.ask_for_a_run()? {
        return Ok(());
    }
    let mut notes = Vec::from_iter(priority::before_all_others());
    let recruits = contenders::recruits();
    for recruit in &recruits {
        (recruit.self_check)()?;
    }
    eprintln!("every contender allows exactly 5 of 8 calls under a limit of 5");

    let footprints = footprint::measure_all(options.quick)?;
    let mut timings = Vec::new();
    for stage in workloads::stages(options.quick) {
        let (able, note) = footprint::without_too_large(&recruits, &footprints, stage.keys);
        notes.extend(note);
        timings.extend(harness::run(&stage, &able)?);
    }
    let parts = anatomy::run()?;
    if options.quick {
        notes.push("a quick run: few rounds, and no 10 M keys".to_owned());
    }
    report::print_timings(&timings, &notes);
    report::print_anatomy(&parts);
    report::print_footprints(&footprints);
    let mut figures = targets::figures(&timings, &footprints);
    figures.extend(anatomy::figures(&parts));
    report::print_targets(&figures);
    options.write_json(&figures)
}
