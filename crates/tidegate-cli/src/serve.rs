//! `tidegate serve`: settings from flags, variables and a file to a daemon, and what a person is told
//! when it is ready.

mod args;
mod greeting;
mod shared;
mod store;
pub(crate) mod variables;

use clap::ArgMatches;
use serde_json::{Value, json};
use tidegate::RulesError;
use tidegate_rules::Report;
use tidegate_server::config::file::{self, FileError};
use tidegate_server::config::store::StoreSettings;
use tidegate_server::config::value::LogFormat;
use tidegate_server::config::{Layer, Settings};
use tidegate_server::serve::Running;
use tidegate_server::serve::StartError;
use tidegate_server::serve::process::{Ended, RunError, run as run_daemon};

use crate::failure::{Failure, Unread, Unusable};
use crate::{Answer, output};

pub(crate) use args::ServeArgs;
pub(crate) use shared::{SharedArgs, words};
pub(crate) use store::StoreLink;

/// Runs the daemon until it is told to end.
pub(crate) fn run(args: ServeArgs, matches: &ArgMatches) -> Result<Answer, Failure> {
    let is_json = args.shared.json;
    let file = match &args.shared.config {
        Some(path) => file::read(path).map_err(of_file)?,
        None => Layer::default(),
    };
    let source_of = |name: &str| matches.subcommand_matches("serve")?.value_source(name);
    let layer = args.layer(source_of)?.over(file);
    let settings = Settings::new(layer).map_err(|error| Failure::Asked(error.to_string()))?;
    for warning in variables::misspelled() {
        output::complain(&warning);
    }
    let (log_format, rules) = (settings.log_format, settings.rules.clone());
    let store = settings.store.clone();
    let store = store.as_ref();
    let ended = run_daemon(settings, |running| {
        // Whoever reads standard output waits for this line; one that is gone does not stop a daemon.
        if is_json {
            let _ = output::data(&format!("{}\n", ready(running, store)));
        }
        match log_format {
            LogFormat::Text if !is_json => {
                output::tell(&greeting::greeting(running, &rules, store));
            }
            LogFormat::Text => {}
            LogFormat::Json => greeting::log(running, store),
        }
    });
    match ended {
        Ok(Ended::Drained) => Ok(Answer::Yes),
        Ok(Ended::AtOnce) => Ok(Answer::No),
        Err(error) => Err(of_run(error)),
    }
}

/// What programs are told: where each service really listens, and which store it shares.
fn ready(running: &Running, store: Option<&StoreSettings>) -> Value {
    let addresses = running.addresses().iter();
    let addresses = addresses
        .map(|(service, address)| (service.name().to_owned(), Value::String(address.to_string())));
    let store = store.map(|store| {
        let urls: Vec<String> = store.urls.iter().map(ToString::to_string).collect();
        json!({ "urls": urls, "consistency": store.consistency.as_str() })
    });
    json!({
        "ready": true,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "addresses": addresses.collect::<serde_json::Map<_, _>>(),
        "store": store,
    })
}

pub(crate) fn of_file(error: FileError) -> Failure {
    match error {
        FileError::Mistakes(report) => Failure::Settings(report),
        error => Failure::Asked(error.to_string()),
    }
}

fn of_run(error: RunError) -> Failure {
    match error {
        RunError::Start(error) => of_start(error),
        error => Failure::Asked(error.to_string()),
    }
}

/// Mistakes in rules are told as everywhere else.
pub(crate) fn of_start(error: StartError) -> Failure {
    match error {
        StartError::Read(error) => {
            let unread = Unread { problems: error.problems().to_vec(), more: error.more() };
            Failure::Rules(vec![Unusable { unread, report: Report::default() }])
        }
        StartError::Rules(RulesError::Text(report)) => {
            Failure::Rules(vec![Unusable { unread: Unread::default(), report }])
        }
        error => Failure::Asked(error.to_string()),
    }
}
