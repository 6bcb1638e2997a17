//! What `tidegate gateway` can be told on the command line and by variables, and the help for it. Every
//! setting has a variable `TIDEGATE_` with its name, and a key in the settings file.

use std::path::PathBuf;

use clap::parser::ValueSource;
use tidegate_gateway::config::words::{BalanceWord, HostWord, LogFormatWord, Wait};
use tidegate_gateway::config::{GatewayLayer, RouteLayer};
use tidegate_gateway::tls::CertificateFiles;
use tidegate_gateway::upstream::{ServerSettings, UpstreamUrl};
use tidegate_server::config::Layer;
use tidegate_server::config::value::{Count, Size};
use tidegate_server::listen::Address;

use crate::failure::Failure;
use crate::serve::{SharedArgs, words};

/// Run a reverse proxy with the limiter in front: requests are forwarded, or answered with 429
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct GatewayArgs {
    /// Where clients connect: an address and a port, or `unix:PATH`. Can be given several times; in the
    /// variable they are separated by spaces [default: 127.0.0.1:8000]
    #[arg(
        long,
        value_name = "ADDR",
        env = "TIDEGATE_LISTEN",
        value_delimiter = ' ',
        help_heading = "Gateway"
    )]
    listen: Option<Vec<Address>>,
    /// Where requests go: `http://HOST:PORT`, `https://HOST`, or `h2c://HOST:PORT` for gRPC. Can be given
    /// several times; in the variable they are separated by spaces
    #[arg(
        long,
        value_name = "URL",
        env = "TIDEGATE_UPSTREAM",
        value_delimiter = ' ',
        help_heading = "Gateway"
    )]
    upstream: Option<Vec<UpstreamUrl>>,
    /// Whose rules hold [default: default]
    #[arg(long, value_name = "NAME", env = "TIDEGATE_DOMAIN", help_heading = "Gateway")]
    domain: Option<String>,
    /// How upstreams share requests: `round-robin`, `least-loaded`, or `hash:ATTRIBUTE`, which keeps a value
    /// at one of them [default: round-robin]
    #[arg(long, value_name = "HOW", env = "TIDEGATE_BALANCE", help_heading = "Gateway")]
    balance: Option<BalanceWord>,
    /// What upstreams are told as `Host`: `preserve`, `upstream`, or a host [default: preserve]
    #[arg(long, value_name = "HOST", env = "TIDEGATE_HOST", help_heading = "Gateway")]
    host: Option<HostWord>,
    /// The certificate that clients are shown, as PEM, which turns TLS on. It is read again when it changes
    #[arg(
        long,
        value_name = "FILE",
        env = "TIDEGATE_TLS_CERT",
        requires = "tls_key",
        help_heading = "Gateway"
    )]
    tls_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "TIDEGATE_TLS_KEY",
        requires = "tls_cert",
        help_heading = "Gateway"
    )]
    tls_key: Option<PathBuf>,
    /// Who vouches for upstreams that are reached by TLS, as PEM; without it, those the system trusts
    #[arg(long, value_name = "FILE", env = "TIDEGATE_UPSTREAM_CA", help_heading = "Gateway")]
    upstream_ca: Option<PathBuf>,
    /// The longest body of a request [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "TIDEGATE_BODY_MAX", help_heading = "Gateway")]
    body_max: Option<Size>,
    /// How long the whole body of a request may take [default: as long as some of it comes]
    #[arg(long, value_name = "TIME", env = "TIDEGATE_BODY_TIMEOUT", help_heading = "Gateway")]
    body_timeout: Option<Wait>,
    /// How long an upstream may take to begin its answer [default: 1m]
    #[arg(long, value_name = "TIME", env = "TIDEGATE_RESPONSE_TIMEOUT", help_heading = "Gateway")]
    response_timeout: Option<Wait>,
    /// How long nothing may come of a body or through a tunnel [default: 1m]
    #[arg(long, value_name = "TIME", env = "TIDEGATE_IDLE_TIMEOUT", help_heading = "Gateway")]
    idle_timeout: Option<Wait>,
    /// How long a client may take to send the head of a request [default: 30s]
    #[arg(long, value_name = "TIME", env = "TIDEGATE_HEAD_TIMEOUT", help_heading = "Gateway")]
    head_timeout: Option<Wait>,
    /// The most requests under way at one upstream [default: 1024]
    #[arg(long, value_name = "N", env = "TIDEGATE_IN_FLIGHT_MAX", help_heading = "Gateway")]
    in_flight_max: Option<Count>,
    /// Write a line for each request to this file; `-` is standard output
    #[arg(long, value_name = "FILE", env = "TIDEGATE_ACCESS_LOG", help_heading = "Gateway")]
    access_log: Option<PathBuf>,
    /// What these lines look like: `combined` or `json` [default: combined]
    #[arg(long, env = "TIDEGATE_ACCESS_LOG_FORMAT", help_heading = "Gateway", value_parser = words::<LogFormatWord>(&["combined", "json"]))]
    access_log_format: Option<LogFormatWord>,
    #[command(flatten)]
    pub(crate) shared: SharedArgs,
}

const EXAMPLES: &str = "\
Examples:
  tidegate gateway --upstream http://127.0.0.1:3000 --limit '100 per minute per ip'
  tidegate gateway --listen 0.0.0.0:443 --tls-cert cert.pem --tls-key key.pem \\
      --upstream http://10.0.0.5:3000 --upstream http://10.0.0.6:3000 --rules rules/
  tidegate gateway --upstream h2c://127.0.0.1:50051 --balance hash:user --rules rules/
  tidegate gateway --config gateway.yaml           routes, API keys and probes are in the file

A flag goes before its variable, and both go before the settings file. SIGHUP reads rules and
certificates again, SIGTERM finishes what is under way, and a second SIGTERM ends it at once.

It ends with 0 when it was told to, with 1 when it was told twice, and with 2 where it cannot start.";

impl GatewayArgs {
    /// What flags and variables say. `source_of` tells which of the two a value is from.
    pub(crate) fn layers(
        self,
        source_of: impl Fn(&str) -> Option<ValueSource>,
    ) -> Result<(Layer, GatewayLayer), Failure> {
        let tls = self.tls_cert.zip(self.tls_key);
        let servers = self.upstream.map(|urls| {
            urls.into_iter().map(|url| ServerSettings { url, weight: 1 }).collect::<Vec<_>>()
        });
        let all = RouteLayer {
            domain: self.domain,
            upstream: servers,
            balance: self.balance,
            host: self.host,
            body_max: self.body_max,
            body_timeout: self.body_timeout,
            response_timeout: self.response_timeout,
            idle_timeout: self.idle_timeout,
            in_flight_max: self.in_flight_max,
            upstream_ca: self.upstream_ca,
            ..RouteLayer::default()
        };
        let gateway = GatewayLayer {
            listen: self.listen,
            tls: tls.map(|(certificate, key)| vec![CertificateFiles { certificate, key }]),
            head_timeout: self.head_timeout,
            access_log: self.access_log,
            access_log_format: self.access_log_format,
            all,
            ..GatewayLayer::default()
        };
        Ok((self.shared.layer(source_of)?, gateway))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory as _;
    use tidegate_gateway::config::GatewayLayer;
    use tidegate_rules::Source;
    use tidegate_server::config::file;

    use crate::args::Args;

    const MANUAL: &str = include_str!("../../../../docs/gateway.md");

    #[test]
    fn every_flag_has_a_variable_a_key_in_the_file_and_a_place_in_the_manual() {
        let command = Args::command();
        let gateway = command.find_subcommand("gateway").expect("the command is there");
        let own = gateway.get_arguments().filter(|arg| arg.get_help_heading() == Some("Gateway"));
        let mut text = String::new();
        for arg in own {
            let flag = arg.get_long().expect("a flag");
            let key = flag.replace('-', "_");
            let env = arg.get_env().and_then(|env| env.to_str()).map(str::to_owned);
            assert_eq!(env, Some(format!("TIDEGATE_{}", key.to_uppercase())));
            assert!(MANUAL.contains(&format!("`--{flag}")), "the manual lacks --{flag}");
            text.push_str(&key);
            text.push_str(":\n");
        }
        // A key that is not known is a mistake, and one without a value is none.
        let source = Source::new("all.yaml", text);
        let parsed = file::parse_with(&source, Path::new(""), GatewayLayer::of_file);
        assert!(parsed.is_ok(), "{}", parsed.unwrap_err());
    }

    #[test]
    fn the_file_of_the_manual_is_one() {
        let block = MANUAL.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
        let source = Source::new("gateway.yaml", block.expect("an example"));
        let parsed = file::parse_with(&source, Path::new(""), GatewayLayer::of_file);
        let (_, gateway) = parsed.unwrap_or_else(|report| panic!("{report}"));
        assert_eq!(gateway.routes.map(|routes| routes.len()), Some(2));
    }
}
