//! The project's own commands, run as `cargo xtask COMMAND`.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`command`] | the command line, checked: what was asked for |
//! | [`suite`], [`step`] | `test` and `long`: the steps in order, and how one step runs |
//! | [`fuzz`] | looking for inputs that break a claim |
//! | [`setup`] | programs that the tests need, installed where they are missing |
//! | [`tidy`] | rules that the compiler and clippy cannot check |
//! | [`workspace`] | the root folder and what `cargo metadata` says of the crates |
//!
//! Exit codes: 0 done, 1 something failed, 2 the command line was not understood.

mod command;
mod fuzz;
mod setup;
mod step;
mod suite;
mod tidy;
mod workspace;

use std::process::ExitCode;

use command::Command;
use workspace::Workspace;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let command = match Command::parse(&words) {
        Ok(command) => command,
        Err(misuse) => {
            eprintln!("{misuse}");
            return ExitCode::from(2);
        }
    };
    match run(command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the command did what it should. An `Err` means that it could not be carried out.
fn run(command: Command) -> anyhow::Result<bool> {
    match command {
        Command::Help => {
            print!("{}", command::HELP);
            Ok(true)
        }
        Command::Test => suite::test(&Workspace::load()?),
        Command::Long => suite::long(&Workspace::load()?),
        Command::Tidy => tidy::run(&Workspace::load()?),
        Command::Setup => setup::run(&Workspace::load()?),
        Command::Bench(bench) => suite::bench(&Workspace::load()?, &bench),
        Command::Sim(sim) => suite::sim(&Workspace::load()?, &sim),
        Command::Fuzz(fuzz) => fuzz::run(&Workspace::load()?, &fuzz),
    }
}
