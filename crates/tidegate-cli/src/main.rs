//! The `tidegate` command: it turns flags into calls of the libraries, and their answers into text,
//! JSON and exit codes. It decides nothing about rules itself.
//!
//! Data goes to standard output, everything else to standard error. The exit code is 0 where all is
//! well, 1 where the answer is no, and 2 where there is no answer.

mod args;
mod bench;
mod check;
mod client;
mod doctor;
mod explain;
mod failure;
mod gateway;
mod input;
mod man;
mod operate;
mod output;
mod rules;
mod serve;

use std::process::ExitCode;

use clap::{ArgMatches, FromArgMatches as _};

use crate::args::{Args, Command, RulesCommand};
use crate::failure::Failure;

/// An answer over HTTP takes about ten small pieces of memory, and they are given back on the thread that took them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What was asked is so, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    /// There is no answer, and why was printed.
    Unknown,
}

/// There is no answer. Clap ends with the same code where it does not understand the flags.
const NO_ANSWER: u8 = 2;

fn main() -> ExitCode {
    let matches = args::command().get_matches();
    // What the matches are made for is what they fit.
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let is_json = args.command.is_json();
    match run(args, &matches) {
        Ok(Answer::Yes) => ExitCode::SUCCESS,
        Ok(Answer::No) => ExitCode::FAILURE,
        Ok(Answer::Unknown) => ExitCode::from(NO_ANSWER),
        Err(failure) => {
            tell(&failure, is_json);
            ExitCode::from(NO_ANSWER)
        }
    }
}

/// Says why there is no answer. Who asked for JSON reads standard output, and gets it there.
fn tell(failure: &Failure, is_json: bool) {
    let json = failure.as_json().filter(|_| is_json);
    if json.is_none_or(|value| output::json(&value).is_err()) {
        output::complain(&failure.to_string());
    }
}

fn run(args: Args, matches: &ArgMatches) -> Result<Answer, Failure> {
    match args.command {
        Command::Serve(args) => serve::run(*args, matches),
        Command::Gateway(args) => gateway::run(*args, matches),
        Command::Check(args) => check::run(&args),
        Command::Rules { command } => match command {
            RulesCommand::Validate(args) => rules::validate::run(&args),
            RulesCommand::Show(args) => rules::show::run(&args),
            RulesCommand::Diff(args) => rules::diff::run(&args),
            RulesCommand::Schema => rules::schema::run(),
        },
        Command::Explain(args) => explain::run(&args),
        Command::Doctor(args) => doctor::run(args, matches),
        Command::Bench(args) => bench::run(&args),
        Command::Operate(command) => operate::run(&command),
        Command::Man { folder } => man::run(&folder),
        Command::Completions { shell } => args::completions(shell),
    }
}
