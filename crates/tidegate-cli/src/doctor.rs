//! `tidegate doctor`: whether a store is fit for limits. It asks, says what it found and what follows from
//! it, and changes nothing.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use clap::ArgMatches;
use serde_json::{Value, json};
use tidegate::redis::probe::{Mode, Probe, ProbedServer, Role, ServerKind, Warning, probe};
use tidegate::redis::{ConnectError, RedisConfig};
use tidegate::{Clock as _, SystemClock};
use tidegate_server::config::file;
use tidegate_server::config::store::{StoreLayer, StoreUrl, told};
use tidegate_server::config::value::Time;

use crate::failure::Failure;
use crate::output::{HEADING, printable};
use crate::serve::StoreLink;
use crate::{Answer, output, serve};

/// Say whether a store is fit for limits that nodes share: is it there, its version and mode, scripts, its
/// clock, what it forgets when its memory is full, and how fast it answers
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// A file with settings, as `serve` takes it, which may name the store
    #[arg(long, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    config: Option<PathBuf>,
    #[command(flatten)]
    link: StoreLink,
    /// How long the store may take for a decision [default: 10ms]
    #[arg(long, value_name = "TIME", env = "TIDEGATE_STORE_DEADLINE", help_heading = "Store")]
    store_deadline: Option<Time>,
    /// Print what was found as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const EXAMPLES: &str = "\
Examples:
  tidegate doctor --store redis://10.0.0.5:6379
  tidegate doctor --config /etc/tidegate/tidegate.yaml
  tidegate doctor --store rediss-cluster://10.0.0.5:6379 --store-ca ca.pem --json | jq .verdict

It ends with 0 where all is well, with 1 where something should be looked at, and with 2 where a
store cannot be reached or used.";

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Ok,
    /// Good to know, and fine for many.
    Note,
    /// Somebody should look at it.
    Warn,
    /// It cannot be used.
    Fail,
}

/// One thing that was looked at.
#[derive(Debug)]
struct Finding {
    about: &'static str,
    verdict: Verdict,
    says: String,
    hints: Vec<String>,
}

/// What was found at one server, or of a store as a whole.
#[derive(Debug)]
struct Findings {
    at: String,
    findings: Vec<Finding>,
}

/// Looks at every store.
pub(crate) fn run(args: DoctorArgs, matches: &ArgMatches) -> Result<Answer, Failure> {
    let is_json = args.json;
    let stores = stores(args, matches)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Asked(format!("no runtime: {error}")))?;
    let mut found = Vec::new();
    for (url, config) in &stores {
        let probed = runtime.block_on(probe(config, || SystemClock.now()));
        found.push((url.to_string(), of_store(url, probed)));
    }
    let findings = || found.iter().flat_map(|(_, servers)| servers).flat_map(|one| &one.findings);
    let worst = findings().map(|one| one.verdict).max().unwrap_or(Verdict::Ok);
    if is_json {
        output::json(&as_json(&found, worst))?;
    } else {
        output::data(&as_text(&found))?;
    }
    Ok(match worst {
        Verdict::Ok | Verdict::Note => Answer::Yes,
        Verdict::Warn => Answer::No,
        Verdict::Fail => Answer::Unknown,
    })
}

/// The stores that flags, variables and the settings file name.
fn stores(args: DoctorArgs, matches: &ArgMatches) -> Result<Vec<(StoreUrl, RedisConfig)>, Failure> {
    let file = match &args.config {
        Some(path) => file::read(path).map_err(serve::of_file)?.store,
        None => StoreLayer::default(),
    };
    let source_of = |name: &str| matches.subcommand_matches("doctor")?.value_source(name);
    let mut layer = args.link.layer(source_of)?;
    layer.store_deadline = args.store_deadline;
    let settings = layer.over(file).links().map_err(|error| Failure::Asked(error.to_string()))?;
    let Some(settings) = settings else {
        let none =
            "there is no store to look at: name one with --store, TIDEGATE_STORE or --config";
        return Err(Failure::Asked(none.to_owned()));
    };
    let config = |url: &StoreUrl| match settings.config(url) {
        Ok(config) => Ok((url.clone(), config)),
        Err(error) => Err(Failure::Asked(error.to_string())),
    };
    settings.urls.iter().map(config).collect()
}

fn of_store(url: &StoreUrl, probed: Result<Probe, ConnectError>) -> Vec<Findings> {
    let probe = match probed {
        Ok(probe) => probe,
        Err(error) => {
            let findings = vec![missing(url, &error)];
            return vec![Findings { at: String::new(), findings }];
        }
    };
    let warnings = probe.warnings();
    let hints_of = |at: &str| {
        let about = |(address, _): &&(&str, Warning)| *address == at;
        warnings.iter().filter(about).map(|(_, warning)| warning).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    if let Some(mode) = of_mode(probe.mode, &hints_of("")) {
        found.push(Findings { at: String::new(), findings: vec![mode] });
    }
    for (address, server) in &probe.servers {
        let findings = match server {
            Ok(server) => of_server(server, probe.deadline, &hints_of(address)),
            Err(error) => vec![missing(url, error)],
        };
        let is_only = matches!(probe.mode, Mode::Standalone);
        let at = if is_only { String::new() } else { address.clone() };
        found.push(Findings { at, findings });
    }
    found
}

fn missing(url: &StoreUrl, error: &ConnectError) -> Finding {
    Finding { about: "reached", verdict: Verdict::Fail, says: told(url, error), hints: Vec::new() }
}

fn of_mode(mode: Mode, warnings: &[&Warning]) -> Option<Finding> {
    let says = match mode {
        Mode::Standalone => return None,
        Mode::Sentinel { sentinels, answering } => {
            format!("Sentinel: {answering} of {sentinels} know the service")
        }
        Mode::Cluster { slots } => format!("a cluster: {slots} of 16384 slots have a server"),
        _ => "of a kind that is not known here".to_owned(),
    };
    Some(finding("mode", says, warnings))
}

fn of_server(server: &ProbedServer, deadline: Duration, warnings: &[&Warning]) -> Vec<Finding> {
    let only = |wanted: fn(&Warning) -> bool| -> Vec<&Warning> {
        warnings.iter().copied().filter(|warning| wanted(warning)).collect()
    };
    let kind = match server.kind {
        ServerKind::Redis => "Redis",
        ServerKind::Valkey => "Valkey",
        _ => "not Redis and not Valkey,",
    };
    let role = match server.role {
        Role::Primary => "primary",
        Role::Replica => "replica",
        _ => "it does not say whether it may write",
    };
    let replicas = output::counted(server.replicas as usize, "replica");
    let says = format!("{kind} {}, {role}, {replicas}", printable(&server.version));
    let is_of_server = |warning: &Warning| {
        matches!(
            warning,
            Warning::Unknown | Warning::Old(_) | Warning::ReadOnly | Warning::NoReplica
        )
    };
    let scripts = if server.runs_scripts { "run" } else { "do not run" };
    let latency = format!(
        "{} in the middle, {} at worst; a decision may take {}",
        millis(server.latency.median),
        millis(server.latency.most),
        millis(deadline)
    );
    vec![
        finding("server", says, &only(is_of_server)),
        finding("scripts", scripts.to_owned(), &only(|one| matches!(one, Warning::NoScripts))),
        finding("clock", clock(server), &only(|one| matches!(one, Warning::ClockAhead(_)))),
        finding("memory", memory(server), &only(|one| matches!(one, Warning::MayEvict(_)))),
        finding("restart", restart(server), &only(|one| matches!(one, Warning::Forgetful))),
        finding("latency", latency, &only(|one| matches!(one, Warning::Slow(_)))),
    ]
}

fn finding(about: &'static str, says: String, warnings: &[&Warning]) -> Finding {
    let verdicts = warnings.iter().map(|warning| match warning {
        Warning::NoScripts | Warning::ReadOnly | Warning::ServerMissing => Verdict::Fail,
        // Limits are worth little after a restart, and many can do without a second server.
        Warning::Forgetful | Warning::NoReplica => Verdict::Note,
        _ => Verdict::Warn,
    });
    let verdict = verdicts.max().unwrap_or(Verdict::Ok);
    Finding { about, verdict, says, hints: warnings.iter().map(ToString::to_string).collect() }
}

fn clock(server: &ProbedServer) -> String {
    let Some(ahead) = server.clock_ahead_micros else { return "it does not tell".to_owned() };
    let by = millis(Duration::from_micros(ahead.unsigned_abs()));
    format!("{by} {} this machine's", if ahead < 0 { "behind" } else { "ahead of" })
}

fn memory(server: &ProbedServer) -> String {
    #[expect(clippy::cast_precision_loss, reason = "one digit behind the point is shown")]
    let size = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let used = size(server.memory_used_bytes);
    let policy = printable(&server.eviction_policy);
    match server.memory_max_bytes {
        Some(most) => format!("{used} of {} used, {policy}", size(most)),
        None => format!("{used} used, no ceiling, {policy}"),
    }
}

fn restart(server: &ProbedServer) -> String {
    match (server.appends, server.saves) {
        (true, _) => "it writes every change to a file",
        (false, Some(true)) => "it writes a file now and then",
        (false, Some(false)) => "it writes no file",
        (false, None) => "it does not say whether it writes a file",
    }
    .to_owned()
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

impl Verdict {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }

    const fn style(self) -> Style {
        match self {
            Self::Ok => AnsiColor::Green.on_default(),
            Self::Note => Style::new(),
            Self::Warn => AnsiColor::Yellow.on_default().bold(),
            Self::Fail => AnsiColor::Red.on_default().bold(),
        }
    }
}

fn as_text(found: &[(String, Vec<Findings>)]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    for (url, servers) in found {
        let _ = writeln!(text, "{HEADING}{}{HEADING:#}", printable(url));
        for Findings { at, findings } in servers {
            if !at.is_empty() {
                let _ = writeln!(text, "  {}", printable(at));
            }
            for Finding { about, verdict, says, hints } in findings {
                let style = verdict.style();
                let word = verdict.as_str();
                let _ = writeln!(text, "  {style}{word:<6}{style:#}{about:<9}{}", printable(says));
                for hint in hints {
                    let _ = writeln!(text, "                 {}", printable(hint));
                }
            }
        }
    }
    text
}

fn as_json(found: &[(String, Vec<Findings>)], worst: Verdict) -> Value {
    let finding = |one: &Finding| {
        json!({
            "about": one.about,
            "verdict": one.verdict.as_str(),
            "says": one.says,
            "hints": one.hints,
        })
    };
    let server = |one: &Findings| {
        let at = (!one.at.is_empty()).then_some(&one.at);
        json!({ "address": at, "findings": one.findings.iter().map(finding).collect::<Vec<_>>() })
    };
    let stores = found.iter().map(|(url, servers)| {
        json!({ "url": url, "servers": servers.iter().map(server).collect::<Vec<_>>() })
    });
    json!({ "verdict": worst.as_str(), "stores": stores.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_hint_is_the_verdict() {
        let verdict = |warnings: &[&Warning]| finding("x", String::new(), warnings).verdict;
        assert_eq!(verdict(&[]), Verdict::Ok);
        assert_eq!(verdict(&[&Warning::Forgetful]), Verdict::Note);
        assert_eq!(verdict(&[&Warning::Forgetful, &Warning::Unknown]), Verdict::Warn);
        assert_eq!(verdict(&[&Warning::NoScripts, &Warning::Unknown]), Verdict::Fail);
    }

    #[test]
    fn what_a_server_says_cannot_change_the_terminal() {
        let says = "\u{1b}[2Jhello".to_owned();
        let findings = vec![Finding { about: "server", verdict: Verdict::Ok, says, hints: vec![] }];
        let found = [("redis://a".to_owned(), vec![Findings { at: String::new(), findings }])];
        assert!(as_text(&found).contains("\\u{1b}[2Jhello"));
    }
}
