//! What `tidegate serve` can be told on the command line and by variables, and the help for it. Every
//! setting has a variable `TIDEGATE_` with its name, and a key in the settings file.

use std::path::PathBuf;

use clap::parser::ValueSource;
use tidegate_server::config::Layer;
use tidegate_server::config::value::EnvoyHeaders;
use tidegate_server::listen::Address;

use super::shared::{SharedArgs, secret, words};
use crate::failure::Failure;

/// The variable with a secret. There is no flag for it: every user of a machine sees flags.
const RESP_PASSWORD: &str = "TIDEGATE_RESP_PASSWORD";

/// Run the daemon: HTTP, Envoy's rate limit service and the protocol of Redis on one limiter
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) shared: SharedArgs,

    /// Where HTTP listens: an address and a port, `unix:PATH`, or `off` [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_HTTP", help_heading = "Addresses")]
    http: Option<Address>,
    /// Where gRPC listens [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_GRPC", help_heading = "Addresses")]
    grpc: Option<Address>,
    /// Where clients of Redis are listened to [default: 127.0.0.1:6390]
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_RESP", help_heading = "Addresses")]
    resp: Option<Address>,
    /// The file with the password for AUTH over RESP; or the variable `TIDEGATE_RESP_PASSWORD`
    #[arg(
        long,
        value_name = "FILE",
        env = "TIDEGATE_RESP_PASSWORD_FILE",
        help_heading = "Addresses"
    )]
    resp_password_file: Option<PathBuf>,
    /// Which headers Envoy is asked to add to its responses [default: none]
    #[arg(long, env = "TIDEGATE_ENVOY_HEADERS", help_heading = "Answers", value_parser = words::<EnvoyHeaders>(EnvoyHeaders::WORDS))]
    envoy_headers: Option<EnvoyHeaders>,
}

const EXAMPLES: &str = "\
Examples:
  tidegate serve                                   a rule to try it with: 10/minute per key
  tidegate serve --limit '100 per minute per ip'
  tidegate serve --rules rules/ --state /var/lib/tidegate/state
  tidegate serve --http 0.0.0.0:8080 --grpc off --resp unix:/run/tidegate/resp.sock
  tidegate serve --store redis://10.0.0.5:6379 --secret-file /etc/tidegate/secret --rules rules/
  tidegate serve --json --http :0 > ready.json     a free port, told when it is ready

A flag goes before its variable, and both go before the settings file. SIGHUP reads the rules
again, SIGTERM finishes what is under way, and a second SIGTERM ends it at once.

It ends with 0 when it was told to, with 1 when it was told twice, and with 2 where it cannot start.";

impl ServeArgs {
    /// What flags and variables say. `source_of` tells which of the two a value is from.
    pub(crate) fn layer(
        self,
        source_of: impl Fn(&str) -> Option<ValueSource>,
    ) -> Result<Layer, Failure> {
        Ok(Layer {
            http: self.http,
            grpc: self.grpc,
            resp: self.resp,
            resp_password_file: self.resp_password_file,
            resp_password: secret(RESP_PASSWORD)?,
            envoy_headers: self.envoy_headers,
            ..self.shared.layer(source_of)?
        })
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
