//! What `tidegate serve` can be told on the command line and by variables, and the help for it. Every
//! setting has a variable `TIDEGATE_` with its name, and a key in the settings file.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::builder::{BoolishValueParser, TypedValueParser as _};
use clap::parser::ValueSource;
use tidegate_server::config::Layer;
use tidegate_server::config::limit::LimitPer;
use tidegate_server::config::secret::Secret;
use tidegate_server::config::value::{
    Consistency, Count, EnvoyHeaders, Headers, Level, LogFormat, Size, Time,
};
use tidegate_server::listen::Address;

use crate::failure::Failure;

/// The variables with secrets. There are no flags for them: every user of a machine sees flags.
const ADMIN_TOKEN: &str = "TIDEGATE_ADMIN_TOKEN";
const RESP_PASSWORD: &str = "TIDEGATE_RESP_PASSWORD";

/// Run the daemon: HTTP, Envoy's rate limit service and the protocol of Redis on one limiter
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// A file with settings: each under the name of its flag, with `_` for `-`
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// A rule file, or a folder of them, which is watched. Can be given several times; in the
    /// variable, paths are separated as in PATH
    #[arg(long, value_name = "PATH", env = "TIDEGATE_RULES", help_heading = "Rules")]
    rules: Option<Vec<PathBuf>>,
    /// One rule without a file, in the domain `default`: `10/minute per ip`
    #[arg(long, value_name = "RATE per ATTRIBUTE", env = "TIDEGATE_LIMIT", help_heading = "Rules")]
    limit: Option<LimitPer>,
    /// Let several Envoy files add to one domain, as `MERGE_DOMAIN_CONFIG` does there
    #[arg(long, env = "TIDEGATE_MERGE_DOMAINS", help_heading = "Rules", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_possible_values = true, value_parser = BoolishValueParser::new())]
    merge_domains: Option<bool>,
    /// Decide and count everything, and deny nothing
    #[arg(long, env = "TIDEGATE_SHADOW", help_heading = "Rules", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_possible_values = true, value_parser = BoolishValueParser::new())]
    shadow: Option<bool>,

    /// Where the state of keys lives; so far `memory` alone
    #[arg(long, value_name = "URL", env = "TIDEGATE_STORE", help_heading = "State")]
    store: Option<Vec<String>>,
    /// How exactly nodes share a limit, where a rule does not say: without a shared store, `local`
    #[arg(long, env = "TIDEGATE_CONSISTENCY", help_heading = "State", value_parser = words::<Consistency>(Consistency::WORDS))]
    consistency: Option<Consistency>,
    /// The ceiling of the table: 24 bytes for each key that is active [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "TIDEGATE_MEMORY", help_heading = "State")]
    memory: Option<Size>,
    /// Keep limits over a restart: written here every 10 s and at the end, and read at the start
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STATE", help_heading = "State")]
    state: Option<PathBuf>,

    /// Where HTTP listens: an address and a port, `unix:PATH`, or `off` [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_HTTP", help_heading = "Addresses")]
    http: Option<Address>,
    /// Where gRPC listens [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_GRPC", help_heading = "Addresses")]
    grpc: Option<Address>,
    /// Where clients of Redis are listened to [default: 127.0.0.1:6390]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_RESP", help_heading = "Addresses")]
    resp: Option<Address>,
    /// Where operators are listened to; needs a token unless it is this machine alone
    /// [default: 127.0.0.1:8082]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_ADMIN", help_heading = "Addresses")]
    admin: Option<Address>,
    /// The file with the token that operators show; or the variable `TIDEGATE_ADMIN_TOKEN`
    #[arg(
        long,
        value_name = "FILE",
        env = "TIDEGATE_ADMIN_TOKEN_FILE",
        help_heading = "Addresses"
    )]
    admin_token_file: Option<PathBuf>,
    /// The file with the password for AUTH over RESP; or the variable `TIDEGATE_RESP_PASSWORD`
    #[arg(
        long,
        value_name = "FILE",
        env = "TIDEGATE_RESP_PASSWORD_FILE",
        help_heading = "Addresses"
    )]
    resp_password_file: Option<PathBuf>,
    /// The most connections of each address; further ones wait [default: 16384]
    #[arg(long, value_name = "N", env = "TIDEGATE_MAX_CONNECTIONS", help_heading = "Addresses")]
    max_connections: Option<Count>,

    /// Which rate limit headers answers carry [default: all]
    #[arg(long, env = "TIDEGATE_HEADERS", help_heading = "Answers", value_parser = words::<Headers>(Headers::WORDS))]
    headers: Option<Headers>,
    /// Which headers Envoy is asked to add to its responses [default: none]
    #[arg(long, env = "TIDEGATE_ENVOY_HEADERS", help_heading = "Answers", value_parser = words::<EnvoyHeaders>(EnvoyHeaders::WORDS))]
    envoy_headers: Option<EnvoyHeaders>,
    /// How long the delay of a leaky bucket is waited out for proxies, at most [default: 1s]
    #[arg(long, value_name = "TIME", env = "TIDEGATE_MAX_DELAY", help_heading = "Answers")]
    max_delay: Option<Time>,
    /// Show the names of the busiest keys on the admin address, instead of hashes
    #[arg(long, env = "TIDEGATE_NAMES_IN_TOP", help_heading = "Answers", num_args = 0..=1,
        require_equals = true, default_missing_value = "true", value_name = "BOOL",
        hide_possible_values = true, value_parser = BoolishValueParser::new())]
    names_in_top: Option<bool>,

    /// What the lines of the log look like [default: text]
    #[arg(long, env = "TIDEGATE_LOG_FORMAT", help_heading = "Process", value_parser = words::<LogFormat>(LogFormat::WORDS))]
    log_format: Option<LogFormat>,
    /// How much is logged [default: info]
    #[arg(long, env = "TIDEGATE_LOG_LEVEL", help_heading = "Process", value_parser = words::<Level>(Level::WORDS))]
    log_level: Option<Level>,
    /// How long requests under way have to finish after SIGTERM [default: 10s]
    #[arg(long, value_name = "TIME", env = "TIDEGATE_DRAIN_TIMEOUT", help_heading = "Process")]
    drain_timeout: Option<Time>,
    /// When ready, print one line of JSON on standard output with the addresses, and no greeting
    #[arg(long, help_heading = "Process")]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tidegate serve                                   a rule to try it with: 10/minute per key
  tidegate serve --limit '100 per minute per ip'
  tidegate serve --rules rules/ --state /var/lib/tidegate/state
  tidegate serve --http 0.0.0.0:8080 --grpc off --resp unix:/run/tidegate/resp.sock
  tidegate serve --json --http :0 > ready.json     a free port, told when it is ready

A flag goes before its variable, and both go before the settings file. SIGHUP reads the rules
again, SIGTERM finishes what is under way, and a second SIGTERM ends it at once.

It ends with 0 when it was told to, with 1 when it was told twice, and with 2 where it cannot start.";

/// A parser of words that shows them in the help and completes them.
fn words<T>(words: &'static [&'static str]) -> impl clap::builder::TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

impl ServeArgs {
    /// What flags and variables say. `source_of` tells which of the two a value is from.
    pub(crate) fn layer(
        self,
        source_of: impl Fn(&str) -> Option<ValueSource>,
    ) -> Result<Layer, Failure> {
        let rules = match self.rules {
            // One variable holds several paths, as PATH does; a flag holds one, whatever is in it.
            Some(paths) if source_of("rules") == Some(ValueSource::EnvVariable) => {
                Some(paths.iter().flat_map(std::env::split_paths).collect())
            }
            paths => paths,
        };
        Ok(Layer {
            rules,
            limit: self.limit,
            store: self.store,
            consistency: self.consistency,
            memory: self.memory,
            state: self.state,
            shadow: self.shadow,
            http: self.http,
            grpc: self.grpc,
            resp: self.resp,
            admin: self.admin,
            headers: self.headers,
            envoy_headers: self.envoy_headers,
            log_format: self.log_format,
            log_level: self.log_level,
            admin_token_file: self.admin_token_file,
            admin_token: secret(ADMIN_TOKEN)?,
            resp_password_file: self.resp_password_file,
            resp_password: secret(RESP_PASSWORD)?,
            max_delay: self.max_delay,
            max_connections: self.max_connections,
            drain_timeout: self.drain_timeout,
            merge_domains: self.merge_domains,
            names_in_top: self.names_in_top,
            identity: None,
        })
    }
}

/// The secret in a variable.
fn secret(variable: &str) -> Result<Option<Secret>, Failure> {
    let Some(value) = std::env::var_os(variable) else { return Ok(None) };
    let value: OsString = value;
    match Secret::new(value.as_encoded_bytes()) {
        Ok(secret) => Ok(Some(secret)),
        Err(fault) => Err(Failure::Asked(format!("the variable {variable}: {fault}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;
    use tidegate_rules::Source;
    use tidegate_server::config::file;

    use crate::args::Args;

    const MANUAL: &str = include_str!("../../../../docs/operating.md");
    /// What is no setting of the daemon, but of this one start of it.
    const FLAGS_ONLY: [&str; 2] = ["config", "json"];

    fn arguments() -> Vec<clap::Arg> {
        let command = Args::command();
        let serve = command.find_subcommand("serve").expect("the command is there");
        let settings = serve.get_arguments().filter(|arg| arg.get_long() != Some("help"));
        settings.cloned().collect()
    }

    fn key(arg: &clap::Arg) -> String {
        arg.get_long().expect("a flag").replace('-', "_")
    }

    /// How the row of the manual for this flag begins: flag, variable, key and default.
    fn row(arg: &clap::Arg) -> String {
        let long = arg.get_long().expect("a flag");
        let values =
            arg.get_value_names().filter(|_| arg.get_num_args().is_none_or(|n| n.min_values() > 0));
        let value = values.and_then(<[_]>::first).filter(|_| arg.get_action().takes_values());
        let value = value.map_or_else(String::new, |value| format!(" {value}"));
        let env = arg
            .get_env()
            .map_or_else(String::new, |env| format!("`{}`", env.to_str().expect("a plain name")));
        let key =
            if FLAGS_ONLY.contains(&long) { String::new() } else { format!("`{}`", key(arg)) };
        let help = arg.get_help().expect("every flag has help").to_string();
        let default =
            help.split_once("[default: ").map_or("", |(_, rest)| rest.trim_end_matches(']'));
        format!("| `--{long}{value}` | {env} | {key} | {default} | ")
    }

    #[test]
    fn the_manual_lists_every_flag_with_its_variable_key_and_default() {
        let lines: Vec<&str> = MANUAL.lines().filter(|line| line.starts_with("| `--")).collect();
        let arguments = arguments();
        for arg in &arguments {
            let row = row(arg);
            assert!(lines.iter().any(|line| line.starts_with(&row)), "the manual lacks {row:?}");
        }
        assert_eq!(lines.len(), arguments.len(), "the manual lists a flag that there is not");
    }

    #[test]
    fn every_flag_has_a_variable_of_its_name_and_a_key_in_the_file() {
        let mut text = String::new();
        for arg in arguments() {
            let key = key(&arg);
            if key != "json" {
                let env = arg.get_env().and_then(|env| env.to_str()).map(str::to_owned);
                assert_eq!(env, Some(format!("TIDEGATE_{}", key.to_uppercase())));
            }
            if !FLAGS_ONLY.contains(&key.as_str()) {
                text.push_str(&key);
                text.push_str(":\n");
            }
        }
        // A key that is not known is a mistake, and one without a value is none.
        let parsed = file::parse(&Source::new("all.yaml", text), Path::new(""));
        assert!(parsed.is_ok(), "{}", parsed.unwrap_err());
    }
}
