//! What an operator can ask for on the command line, and the help for it.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use crate::args::attribute;
use crate::client::Server;

#[derive(Debug, Subcommand)]
pub(crate) enum OperateCommand {
    /// Ban an address, a range of addresses, or a value of an attribute
    #[command(after_help = BAN_EXAMPLES)]
    Ban(ListArgs),
    /// Let an address, a range of addresses, or a value of an attribute pass, whatever it has taken
    #[command(after_help = ALLOW_EXAMPLES)]
    Allow(ListArgs),
    /// Let everything through, or no longer
    #[command(after_help = BYPASS_EXAMPLES)]
    Bypass(SwitchArgs),
    /// Put all rules in shadow: they decide and count, and deny nobody
    #[command(after_help = SHADOW_EXAMPLES)]
    Shadow(SwitchArgs),
    Top(TopArgs),
    Peek(KeyArgs),
    /// Forget what was taken by requests like this one
    #[command(after_help = RESET_EXAMPLES)]
    Reset(KeyArgs),
}

impl OperateCommand {
    pub(crate) fn is_json(&self) -> bool {
        match self {
            Self::Ban(args) | Self::Allow(args) => args.admin.json,
            Self::Bypass(args) | Self::Shadow(args) => args.admin.json,
            Self::Top(args) => args.admin.json,
            Self::Peek(args) | Self::Reset(args) => args.admin.json,
        }
    }
}

/// Which daemon is asked.
#[derive(Debug, clap::Args)]
pub(crate) struct AdminArgs {
    /// Where the daemon's admin address is: `http://HOST:PORT`, or `unix:PATH`
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEGATE_ADMIN",
        default_value = "http://127.0.0.1:8082",
        value_parser = admin
    )]
    pub(crate) admin: Server,
    /// The file that holds the admin address's token
    #[arg(long = "admin-token-file", value_name = "FILE", env = "TIDEGATE_ADMIN_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    // Who writes a token on the command line shows it to everyone on the machine, so it has no flag that
    // the help tells of; the variable is what it is for.
    #[arg(
        long = "admin-token",
        value_name = "TOKEN",
        env = "TIDEGATE_ADMIN_TOKEN",
        hide = true,
        hide_env_values = true
    )]
    pub(crate) token: Option<String>,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// The variable is the daemon's too, which writes a port on the loopback address as `:8082`.
fn admin(text: &str) -> Result<Server, String> {
    match text.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}").parse(),
        None => text.parse(),
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// An address, a range of addresses (`192.0.2.0/24`), or an attribute and its value (`user=42`)
    #[arg(value_name = "TARGET", required_unless_present = "list")]
    pub(crate) target: Option<String>,
    /// For how long: `90s`, `1h`, `7d`; until it is lifted unless said
    #[arg(long = "for", value_name = "TIME", conflicts_with_all = ["list", "lift"])]
    pub(crate) for_time: Option<String>,
    /// Only in this domain
    #[arg(long, value_name = "NAME", conflicts_with = "list")]
    pub(crate) domain: Option<String>,
    /// What to remember about it
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["list", "lift"])]
    pub(crate) note: Option<String>,
    /// Show the list
    #[arg(long, conflicts_with_all = ["target", "lift"])]
    pub(crate) list: bool,
    /// Take TARGET off the list
    #[arg(long)]
    pub(crate) lift: bool,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

const BAN_EXAMPLES: &str = "\
Examples:
  tidegate ban 192.0.2.0/24 --for 1h
  tidegate ban user=42 --domain api --note 'scrapes the catalogue'
  tidegate ban --list
  tidegate ban --lift 192.0.2.0/24

The allow-list wins over bans. Where clients are counted by a prefix of their address, as IPv6 clients
are by 64 bits, ban the prefix: a single address in it is not told apart.

It ends with 0 where it is done, with 1 where there is nothing of that to lift, and with 2 where the
daemon cannot be reached or refuses.";

const ALLOW_EXAMPLES: &str = "\
Examples:
  tidegate allow 198.51.100.7 --note monitoring
  tidegate allow plan=internal --domain api
  tidegate allow --list
  tidegate allow --lift 198.51.100.7

Who is on the list passes and is not counted, also where a ban is about them.

It ends with 0 where it is done, with 1 where there is nothing of that to lift, and with 2 where the
daemon cannot be reached or refuses.";

/// What a switch can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
    Status,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SwitchArgs {
    /// Switch it on or off, or ask whether it is on
    #[arg(value_name = "on|off|status", default_value = "status")]
    pub(crate) switch: Switch,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

const BYPASS_EXAMPLES: &str = "\
Examples:
  tidegate bypass on          nothing is limited and nobody is banned until it is off again
  tidegate bypass off
  tidegate bypass status && echo 'limits are off'

`status` ends with 0 where it is on and with 1 where it is off; 2 is that the daemon cannot be reached.";

const SHADOW_EXAMPLES: &str = "\
Examples:
  tidegate shadow on          rules decide and count, and deny nobody; bans go on
  tidegate shadow status

`status` ends with 0 where it is on and with 1 where it is off; 2 is that the daemon cannot be reached.";

/// What keys are ranked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Denied,
    Requests,
}

/// Show the keys that were denied most, or that asked most, in the last minute or two
#[derive(Debug, clap::Args)]
#[command(after_help = TOP_EXAMPLES)]
pub(crate) struct TopArgs {
    /// What they are ranked by
    #[arg(long, value_name = "WHAT", default_value = "denied")]
    pub(crate) by: By,
    /// How many
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) count: u16,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

const TOP_EXAMPLES: &str = "\
Examples:
  tidegate top
  tidegate top --by requests --count 50
  tidegate top --json | jq -r '.keys[] | [.count, .rule, .key] | @tsv'

Keys are shown hashed, unless the daemon was told to show names.";

/// Say how requests like this one stand, and take nothing
#[derive(Debug, clap::Args)]
#[command(after_help = PEEK_EXAMPLES)]
pub(crate) struct KeyArgs {
    /// The domain of the request
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub(crate) domain: String,
    /// How much the request takes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) cost: u64,
    /// What describes the request. For rules of Envoy's the order matters
    #[arg(value_name = "NAME=VALUE", value_parser = attribute)]
    pub(crate) attributes: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
}

const PEEK_EXAMPLES: &str = "\
Examples:
  tidegate peek --domain api user=42 method=POST path=/login
  tidegate peek --domain api --cost 5 --json user=42 | jq .remaining

It ends with 0 where the request would pass, with 1 where it would be denied, and with 2 where that
could not be decided.";

const RESET_EXAMPLES: &str = "\
Examples:
  tidegate reset --domain api user=42 method=POST path=/login

Every limit that applies to the request has all of its quota again. It ends with 0 where there was such
a limit, with 1 where nothing is counted for such requests, and with 2 where there is no answer.";
