//! `tidegate gateway`: settings from flags, variables and a file to a gateway, and what a person is told when
//! it is ready.

mod args;

use clap::ArgMatches;
use serde_json::{Value, json};
use tidegate_gateway::config::{GatewayLayer, StartError};
use tidegate_gateway::{GatewaySettings, Running, start};
use tidegate_server::config::value::LogFormat;
use tidegate_server::config::{Layer, Settings, file};
use tidegate_server::listen::Service;
use tidegate_server::serve::process::{Ended, RunError, run_as};

use crate::failure::Failure;
use crate::output::{HEADING, counted, printable};
use crate::rules::tally::Tally;
use crate::serve::{of_file, of_start, variables};
use crate::{Answer, output};

pub(crate) use args::GatewayArgs;

/// Runs the gateway until it is told to end.
pub(crate) fn run(args: GatewayArgs, matches: &ArgMatches) -> Result<Answer, Failure> {
    let is_json = args.shared.json;
    let (daemon_file, gateway_file) = match &args.shared.config {
        Some(path) => file::read_with(path, GatewayLayer::of_file).map_err(of_file)?,
        None => (Layer::default(), GatewayLayer::default()),
    };
    let source_of = |name: &str| matches.subcommand_matches("gateway")?.value_source(name);
    let (daemon, gateway) = args.layers(source_of)?;
    let daemon = Settings::new(daemon.over(daemon_file)).map_err(asked)?;
    let settings = gateway.over(gateway_file).settings(daemon).map_err(asked)?;
    for warning in variables::misspelled() {
        output::complain(&warning);
    }
    let log = (settings.daemon.log_format, settings.daemon.log_level);
    let told = settings.clone();
    let ended = run_as(
        log,
        |inherited, level| start(settings, inherited, level),
        |running| {
            // Whoever reads standard output waits for this line; one that is gone does not stop a gateway.
            if is_json {
                let _ = output::data(&format!("{}\n", ready(running)));
            }
            match log.0 {
                LogFormat::Text if !is_json => output::tell(&greeting(running, &told)),
                LogFormat::Text => {}
                LogFormat::Json => {
                    let listen = listen(running);
                    tracing::info!(listen, routes = told.routes.len(), "ready");
                }
            }
        },
    );
    match ended {
        Ok(Ended::Drained) => Ok(Answer::Yes),
        Ok(Ended::AtOnce) => Ok(Answer::No),
        Err(RunError::Start(StartError::Daemon(error))) => Err(of_start(error)),
        Err(error) => Err(asked(error)),
    }
}

fn asked(error: impl std::fmt::Display) -> Failure {
    Failure::Asked(error.to_string())
}

fn listen(running: &Running) -> String {
    let addresses: Vec<String> = running.addresses().iter().map(ToString::to_string).collect();
    addresses.join(", ")
}

/// What programs are told.
fn ready(running: &Running) -> Value {
    let listen: Vec<String> = running.addresses().iter().map(ToString::to_string).collect();
    let admin = running.daemon().address(Service::Admin).map(ToString::to_string);
    json!({
        "ready": true,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "addresses": { "gateway": listen.first(), "admin": admin },
        "listen": listen,
    })
}

/// What a person is told: where it listens, where requests go, and what limits them.
fn greeting(running: &Running, settings: &GatewaySettings) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut lines = vec![format!("{HEADING}Tidegate {version} is ready{HEADING:#}\n")];
    lines.push(format!("  gateway  {}", printable(&listen(running))));
    if let Some(admin) = running.daemon().address(Service::Admin) {
        lines.push(format!("  admin    {}", printable(&admin.to_string())));
    }
    for route in &settings.routes {
        let hosts = if route.hosts.is_empty() { "*".to_owned() } else { route.hosts.join(", ") };
        let servers = route.servers.iter().map(|server| server.url.to_string());
        let to = match &route.folder {
            Some(folder) => format!("files in {}", folder.display()),
            None => servers.collect::<Vec<_>>().join(", "),
        };
        let line = format!("  route    {hosts}{} to {to}, domain {}", route.path, route.domain);
        lines.push(printable(&line));
    }
    let rules = running.daemon().engine().limiter().rules();
    lines.push(format!("  rules    {}", counted(Tally::of(rules.set()).rules, "rule")));
    lines.join("\n") + "\n"
}
