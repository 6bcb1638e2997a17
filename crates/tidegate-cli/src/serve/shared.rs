//! What every command that runs a limiter can be told: `tidegate serve` and `tidegate gateway`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::builder::{BoolishValueParser, TypedValueParser as _};
use clap::parser::ValueSource;
use tidegate_server::config::Layer;
use tidegate_server::config::limit::LimitPer;
use tidegate_server::config::secret::Secret;
use tidegate_server::config::value::{Count, Headers, Level, LogFormat, Size, Time};
use tidegate_server::listen::Address;

use super::store::StoreArgs;
use crate::failure::Failure;

/// The variable with a secret. There is no flag for it: every user of a machine sees flags.
const ADMIN_TOKEN: &str = "TIDEGATE_ADMIN_TOKEN";

/// Rules, state, store, the operator's address, answers and the process.
#[derive(Debug, clap::Args)]
pub(crate) struct SharedArgs {
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

    /// The ceiling of the table: 24 bytes for each key that is active [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "TIDEGATE_MEMORY", help_heading = "State")]
    memory: Option<Size>,
    /// Keep limits over a restart: written here every 10 s and at the end, and read at the start. With a
    /// shared store, bans and switches alone: limits are in the store
    #[arg(long, value_name = "FILE", env = "TIDEGATE_STATE", help_heading = "State")]
    state: Option<PathBuf>,

    #[command(flatten)]
    store: StoreArgs,

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
    /// The most connections of each address; further ones wait [default: 16384]
    #[arg(long, value_name = "N", env = "TIDEGATE_MAX_CONNECTIONS", help_heading = "Addresses")]
    max_connections: Option<Count>,

    /// Which rate limit headers answers carry [default: all]
    #[arg(long, env = "TIDEGATE_HEADERS", help_heading = "Answers", value_parser = words::<Headers>(Headers::WORDS))]
    headers: Option<Headers>,
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

/// A parser of words that shows them in the help and completes them.
pub(crate) fn words<T>(
    words: &'static [&'static str],
) -> impl clap::builder::TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>
        + Clone
        + Send
        + Sync
        + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse::<T>())
}

impl SharedArgs {
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
            store: self.store.layer(&source_of)?,
            memory: self.memory,
            state: self.state,
            shadow: self.shadow,
            admin: self.admin,
            headers: self.headers,
            log_format: self.log_format,
            log_level: self.log_level,
            admin_token_file: self.admin_token_file,
            admin_token: secret(ADMIN_TOKEN)?,
            max_delay: self.max_delay,
            max_connections: self.max_connections,
            drain_timeout: self.drain_timeout,
            merge_domains: self.merge_domains,
            names_in_top: self.names_in_top,
            ..Layer::default()
        })
    }
}

/// The secret in a variable.
pub(super) fn secret(variable: &str) -> Result<Option<Secret>, Failure> {
    let Some(value) = std::env::var_os(variable) else { return Ok(None) };
    let value: OsString = value;
    match Secret::new(value.as_encoded_bytes()) {
        Ok(secret) => Ok(Some(secret)),
        Err(fault) => Err(Failure::Asked(format!("the variable {variable}: {fault}"))),
    }
}
