//! What can be asked on the command line, and the help for it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;
use tidegate_rules::rule::Pressure;

use tidegate_server::config::value::Time;

use crate::bench::args::BenchArgs;
use crate::client::Server;
use crate::doctor::DoctorArgs;
use crate::failure::Failure;
use crate::gateway::GatewayArgs;
use crate::operate::OperateCommand;
use crate::serve::ServeArgs;
use crate::{Answer, output};

/// A rate limiter: run it, ask it, and check, read and compare its rules.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXIT_CODES, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  all is well
  1  the answer is no: denied, mistakes, or differences
  2  there is no answer: wrong usage, a file that cannot be read, a daemon that cannot be reached or
     started, or a request that cannot be decided";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    // It has many more flags than the others have.
    Serve(Box<ServeArgs>),
    Gateway(Box<GatewayArgs>),
    Check(CheckArgs),
    /// Check, show and compare rule files
    Rules {
        #[command(subcommand)]
        command: RulesCommand,
    },
    Explain(ExplainArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    #[command(flatten)]
    Operate(OperateCommand),
    /// Write the manual, one page for each command, into a folder
    #[command(after_help = MAN_EXAMPLES)]
    Man {
        /// The folder, which is made where there is none
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Print a script that completes this command in a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Command {
    /// Whether the answer is to be JSON.
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Self::Serve(args) => args.shared.json,
            Self::Gateway(args) => args.shared.json,
            Self::Check(args) => args.json,
            Self::Rules { command } => match command {
                RulesCommand::Validate(args) => args.json,
                RulesCommand::Show(args) => args.json,
                RulesCommand::Diff(args) => args.json,
                RulesCommand::Schema => false,
            },
            Self::Explain(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Bench(args) => args.load().json,
            Self::Operate(command) => command.is_json(),
            Self::Man { .. } | Self::Completions { .. } => false,
        }
    }
}

const MAN_EXAMPLES: &str = "\
Examples:
  tidegate man ~/.local/share/man/man1
  tidegate man pages && man -l pages/tidegate-serve.1";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish";

#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    Validate(ValidateArgs),
    Show(ShowArgs),
    Diff(DiffArgs),
    /// Print the JSON schema of rule files, for editors to complete and check them
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema,
}

const SCHEMA_EXAMPLES: &str = "\
Examples:
  tidegate rules schema > rules.schema.json

and at the top of a rule file, for editors that use the YAML language server:
  # yaml-language-server: $schema=./rules.schema.json";

/// Where rules are read from.
#[derive(Debug, clap::Args)]
pub(crate) struct RulePaths {
    /// Rule files, and folders of them; `-` is standard input
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
}

/// How rules are read.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Reading {
    /// Let several Envoy files add to one domain, as `MERGE_DOMAIN_CONFIG` does there
    #[arg(long)]
    pub(crate) merge_domains: bool,
}

/// Check rule files, and say everything that is wrong with them
#[derive(Debug, clap::Args)]
#[command(after_help = VALIDATE_EXAMPLES)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    pub(crate) from: RulePaths,
    /// Take warnings for errors
    #[arg(long)]
    pub(crate) strict: bool,
    /// Print what was found as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const VALIDATE_EXAMPLES: &str = "\
Examples:
  tidegate rules validate rules.yaml
  tidegate rules validate --strict rules/            every rule file in the folder
  helm template chart | tidegate rules validate -    what another program prints
  tidegate rules validate --json rules.yaml | jq '.diagnostics[].message'

It ends with 0 where the rules are free of mistakes, with 1 where they are not, and with 2 where
a file cannot be read.";

/// Show rules as Tidegate understands them, whatever spelling they are written in
#[derive(Debug, clap::Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) from: RulePaths,
    /// Only this domain
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// Print the rules as JSON with every default written out, which is a rule file itself
    #[arg(long)]
    pub(crate) json: bool,
}

const SHOW_EXAMPLES: &str = "\
Examples:
  tidegate rules show rules.yaml
  tidegate rules show rules/ --domain api
  tidegate rules show envoy.yaml --json > same-rules.json";

/// Say what changes from one set of rules to another, and which state survives
#[derive(Debug, clap::Args)]
#[command(after_help = DIFF_EXAMPLES)]
pub(crate) struct DiffArgs {
    /// The rules in force: a file, or a folder of them; `-` is standard input
    pub(crate) old: PathBuf,
    /// The rules that are to come
    pub(crate) new: PathBuf,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Print the changes as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const DIFF_EXAMPLES: &str = "\
Examples:
  tidegate rules diff rules.yaml new-rules.yaml
  git show HEAD:rules.yaml | tidegate rules diff - rules.yaml
  tidegate rules diff <(git show v1:rules.yaml) <(git show v2:rules.yaml)

It ends with 0 where nothing changes, with 1 where something does, and with 2 where either cannot
be read or has mistakes in it.";

/// Ask a running daemon whether a request may pass, and take what it costs
#[derive(Debug, clap::Args)]
#[command(after_help = CHECK_EXAMPLES)]
pub(crate) struct CheckArgs {
    /// Where the daemon's HTTP address is: `http://HOST:PORT`, or `unix:PATH`
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEGATE_SERVER",
        default_value = "http://127.0.0.1:8080"
    )]
    pub(crate) server: Server,
    /// The domain of the request
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) domain: String,
    /// How much the request takes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) cost: u64,
    /// Look, and take nothing
    #[arg(long)]
    pub(crate) peek: bool,
    /// How long to wait for an answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub(crate) timeout: Duration,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// What describes the request
    #[arg(value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<(String, String)>,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  tidegate check key=ann                           the rule of `tidegate serve` without rules
  tidegate check --domain api user=42 method=POST path=/login
  tidegate check --domain api --cost 5 --peek --json user=42 | jq .remaining
  tidegate check --server unix:/run/tidegate/http.sock user=42 && ./send-mail

It ends with 0 where the request may pass, with 1 where it is denied, and with 2 where that could not
be decided.";

fn time(text: &str) -> Result<Duration, String> {
    text.parse().map(Time::duration).map_err(|error| error.to_string())
}

/// Say which rules apply to a request, why the others do not, and what is counted; spends nothing
#[derive(Debug, clap::Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
pub(crate) struct ExplainArgs {
    /// A rule file, or a folder of them; `-` is standard input. Can be given several times
    #[arg(long, required = true, value_name = "PATH")]
    pub(crate) rules: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// The domain of the request; needed where the rules have several
    #[arg(long, value_name = "NAME")]
    pub(crate) domain: Option<String>,
    /// How much the request takes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) cost: u64,
    /// How busy the protected service is, from 0 to 1, for elastic limits
    #[arg(long, value_name = "PRESSURE", default_value = "1", value_parser = pressure)]
    pub(crate) pressure: Pressure,
    /// Print the explanation as JSON. Its keys tell which requests share a counter, and are not
    /// those of a running node, which has a secret of its own
    #[arg(long)]
    pub(crate) json: bool,
    /// What describes the request. For rules of Envoy's the order matters
    #[arg(value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<(String, String)>,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tidegate explain --rules rules.yaml user=42 method=POST path=/login
  tidegate explain --rules rules/ --domain api --cost 5 user=42
  tidegate explain --rules rules.yaml --pressure 0.5 --json user=42 | jq '.charges'";

/// The name is what comes before the first `=`; values may have more of them.
pub(crate) fn attribute(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("there is no name before `=`".to_owned()),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("write an attribute as NAME=VALUE, such as `user=42`".to_owned()),
    }
}

fn pressure(text: &str) -> Result<Pressure, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1.0).contains(number));
    #[expect(clippy::cast_sign_loss, reason = "it is 0 at least, and a million at most")]
    let millionths = number.map(|number| (number * 1e6).round() as u32);
    let pressure = millionths.and_then(Pressure::from_millionths);
    pressure.ok_or_else(|| "write a number from 0 to 1, such as `0.5`".to_owned())
}

/// The command with all that it takes.
pub(crate) fn command() -> clap::Command {
    // Help is shown to others and kept in files: it names variables, and not what is in them here.
    let hidden = |arg: clap::Arg| arg.hide_env_values(true);
    let args = Args::command();
    args.mut_subcommands(|command| command.mut_args(hidden))
}

/// Prints the script for this shell.
pub(crate) fn completions(shell: Shell) -> Result<Answer, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "tidegate", &mut script);
    output::data(&String::from_utf8_lossy(&script))?;
    Ok(Answer::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_free_of_contradictions() {
        command().debug_assert();
    }

    #[test]
    fn a_value_may_have_equals_signs_and_may_be_empty() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(attribute("token=a=b="), pair("token", "a=b="));
        assert_eq!(attribute("user="), pair("user", ""));
        assert!(attribute("user").is_err() && attribute("=42").is_err());
    }

    #[test]
    fn a_pressure_is_from_0_to_1() {
        assert_eq!(pressure("0.5").map(Pressure::millionths), Ok(500_000));
        assert_eq!(pressure("1"), Ok(Pressure::FULL));
        for text in ["1.1", "-0.1", "NaN", "inf", "half", ""] {
            assert!(pressure(text).is_err(), "{text}");
        }
    }
}
