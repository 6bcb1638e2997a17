//! What a person is told when the daemon is ready: where it listens, what is limited, and a line to try.

use std::fmt::Write as _;

use tidegate_rules::RuleSet;
use tidegate_rules::rule::{Quota, Rule, Test};
use tidegate_server::config::RulesFrom;
use tidegate_server::config::store::StoreSettings;
use tidegate_server::config::value::OnStoreFailure;
use tidegate_server::listen::{Address, Service};
use tidegate_server::serve::Running;

use crate::output::{HEADING, counted, printable};
use crate::rules::tally::Tally;

/// How many rules are shown; the rest are counted.
const RULES_SHOWN: usize = 8;

/// The greeting, in lines that are whole.
pub(crate) fn greeting(
    running: &Running,
    from: &RulesFrom,
    store: Option<&StoreSettings>,
) -> String {
    let rules = running.engine().limiter().rules();
    let set = rules.set();
    let mut text = String::new();
    // Writing to a string cannot fail.
    let version = env!("CARGO_PKG_VERSION");
    let _ = writeln!(text, "{HEADING}Tidegate {version} is ready{HEADING:#}\n");
    for (service, address) in running.addresses() {
        let _ = writeln!(text, "  {:<7}{}", service.name(), shown(*service, address));
    }
    text.push('\n');
    if let Some(store) = store {
        let _ = writeln!(text, "  {:<7}{}\n", "store", store_line(store));
    }
    rule_lines(&mut text, set, from);
    if let Some(line) = line_to_try(set, running) {
        let hint = match from {
            RulesFrom::Demonstration => "Try it; the eleventh call in a row is refused:",
            RulesFrom::Files(_) | RulesFrom::Limit(_) => "Try it:",
        };
        let _ = writeln!(text, "\n{hint}\n\n  {HEADING}{line}{HEADING:#}\n");
    }
    text
}

/// The same for programs that read the log.
pub(crate) fn log(running: &Running, store: Option<&StoreSettings>) {
    let at =
        |service| running.address(service).map_or_else(|| "off".to_owned(), ToString::to_string);
    let tally = Tally::of(running.engine().limiter().rules().set());
    let [http, grpc, resp, admin] = Service::ALL.map(at);
    let store = store.map_or_else(|| "memory".to_owned(), store_line);
    tracing::info!(http, grpc, resp, admin, rules = tally.rules, store, "ready");
}

/// Where the store is and how limits are kept in it. No password is in it.
fn store_line(store: &StoreSettings) -> String {
    let urls: Vec<String> = store.urls.iter().map(|url| printable(&url.to_string())).collect();
    format!(
        "{}; {} unless a rule says otherwise, and {} while it cannot answer",
        urls.join(", "),
        store.consistency,
        match store.on_failure {
            OnStoreFailure::Allow => "everything passes",
            OnStoreFailure::Deny => "nothing is decided (503)",
            OnStoreFailure::Local => "each node keeps its share",
        }
    )
}

/// An address as a client writes it.
fn shown(service: Service, address: &Address) -> String {
    match (service, address) {
        (Service::Http | Service::Admin, Address::Tcp(tcp)) => format!("http://{tcp}"),
        _ => printable(&address.to_string()),
    }
}

fn rule_lines(text: &mut String, set: &RuleSet, from: &RulesFrom) {
    let of = match from {
        RulesFrom::Files(paths) => {
            let paths: Vec<String> =
                paths.iter().map(|path| printable(&path.to_string_lossy())).collect();
            format!("{} in {}, watched", Tally::of(set), paths.join(", "))
        }
        RulesFrom::Limit(_) => "one rule, from --limit".to_owned(),
        RulesFrom::Demonstration => {
            "one to try it with; bring your own with --rules FILE or --limit '100/minute per ip'"
                .to_owned()
        }
    };
    let _ = writeln!(text, "  {:<7}{of}", "rules");
    let rules: Vec<(&str, &Rule)> = set
        .domains()
        .iter()
        .flat_map(|domain| domain.rules.iter().map(|rule| (domain.name.as_str(), rule)))
        .collect();
    for (domain, rule) in rules.iter().take(RULES_SHOWN) {
        let (domain, name) = (printable(domain), printable(&rule.name));
        let per = if rule.per.is_empty() {
            "all together".to_owned()
        } else {
            format!("per {}", rule.per.join(", "))
        };
        let _ = writeln!(text, "         {domain}/{name}: {} {per}", quota(&rule.quota));
    }
    // Rules of Envoy's are levels inside of levels, too much for a line; they are counted.
    let more = Tally::of(set).rules - rules.len().min(RULES_SHOWN);
    if more > 0 {
        let more = counted(more, "more rule");
        let _ = writeln!(text, "         and {more}: see them with `tidegate rules show`");
    }
}

fn quota(quota: &Quota) -> String {
    match quota {
        Quota::Unlimited => "unlimited".to_owned(),
        Quota::Nothing => "nothing".to_owned(),
        Quota::Limits(limits) => {
            let limits: Vec<&str> = limits.iter().map(|limit| limit.text.as_str()).collect();
            limits.join(" and ")
        }
    }
}

/// A call that meets the first rule that a line can be written for.
fn line_to_try(set: &RuleSet, running: &Running) -> Option<String> {
    let (curl, base) = match running.address(Service::Http)? {
        Address::Tcp(tcp) => ("curl -i".to_owned(), format!("http://{tcp}")),
        Address::Unix(path) => {
            let path = path.to_str().filter(|path| is_plain(path))?;
            (format!("curl -i --unix-socket {path}"), "http://localhost".to_owned())
        }
        Address::Off => return None,
    };
    let domains = set.domains().iter();
    let mut rules = domains.flat_map(|domain| domain.rules.iter().map(move |rule| (domain, rule)));
    rules.find_map(|(domain, rule)| {
        let attributes = attributes_of(rule)?;
        if !is_plain(&domain.name) {
            return None;
        }
        if let [(name, value)] = &attributes[..]
            && name == "key"
        {
            let query = match domain.name.as_str() {
                "default" => String::new(),
                name => format!("?domain={name}"),
            };
            return Some(format!("{curl} {base}/limit/{value}{query}"));
        }
        let attributes = attributes.into_iter().map(|(name, value)| (name, value.into()));
        let attributes: serde_json::Map<_, _> = attributes.collect();
        let body = serde_json::json!({ "domain": domain.name, "attributes": attributes });
        // Without the header, curl says that it sends a form.
        let json = "-H 'content-type: application/json'";
        Some(format!("{curl} {base}/v1/check {json} -d '{body}'"))
    })
}

/// Attributes with which a rule applies; `None` where that would be a guess, or hard to quote.
fn attributes_of(rule: &Rule) -> Option<Vec<(String, String)>> {
    let mut attributes: Vec<(String, String)> = Vec::new();
    for condition in &rule.conditions {
        let value = match condition.any_of.first()? {
            Test::Exact(value) if !condition.negated && is_plain(value) => value.clone(),
            Test::Path(template) if !condition.negated => {
                Some(template.as_str().to_owned()).filter(|path| is_plain(path))?
            }
            _ => return None,
        };
        attributes.push((condition.attribute.clone(), value));
    }
    for name in &rule.per {
        if attributes.iter().all(|(known, _)| known != name) {
            let value = if name == "ip" { "192.0.2.7" } else { "ann" };
            attributes.push((name.clone(), value.to_owned()));
        }
    }
    (!attributes.is_empty()).then_some(attributes)
}

/// Whether shells and addresses take it as it stands.
fn is_plain(text: &str) -> bool {
    let is_of_it = |c: char| c.is_ascii_alphanumeric() || "_-./:".contains(c);
    !text.is_empty() && text.chars().all(is_of_it)
}
