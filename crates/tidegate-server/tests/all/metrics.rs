//! What is counted, and the text of it: checked against promtool, the documents, the dashboard and the
//! alert rules.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Daemon, at_once};
use tidegate::{Attribute, Call, RuleSet};
use tidegate_rules::Source;
use tidegate_server::answer::Source as Decider;
use tidegate_server::metrics::{Entrance, RULE_SERIES_MAX, RuleCounts, names};
use tidegate_server::{Does, Protocol};

const RULES: &str = "
domain: api
rules:
  - { name: login, match: { path: /login }, per: [user], limit: 2/minute }
  - { name: tried, match: { path: /tried }, per: [user], limit: 1/minute, mode: shadow }
  - { name: mild, match: { path: /mild }, per: [user], limit: 10/minute, soft: 50% }
  - { name: quiet, match: { path: /quiet }, per: [tenant], limit: 1/minute }
---
domain: 'a \"strange\\ domain'
rules:
  - { name: all, per: [user], limit: 1/minute }
";

fn check(daemon: &Daemon, domain: &str, attributes: &[(&str, &str)]) -> bool {
    let attributes: Vec<Attribute<'_>> = attributes.iter().map(|&pair| pair.into()).collect();
    let call = Call::new(domain, &attributes);
    let answer = at_once(daemon.engine.check(&call, Does::Take, Protocol::Http));
    answer.expect("a decision").is_allowed()
}

fn text(daemon: &Daemon) -> String {
    daemon.engine.metrics().render(&daemon.engine)
}

/// The value of the one series that is written so.
fn value(text: &str, series: &str) -> u64 {
    let found: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' ')).collect();
    match found[..] {
        [value] => value.parse().unwrap_or_else(|_| panic!("{series} is {value}")),
        _ => panic!("{} of {series} in\n{text}", found.len()),
    }
}

fn decisions(text: &str, rule: &str, verdict: &str) -> u64 {
    let series = format!(
        "tidegate_decisions_total{{domain=\"api\",rule=\"{rule}\",verdict=\"{verdict}\",source=\"memory\"}}"
    );
    value(text, &series)
}

/// Without the values, so that only new and lost series make a difference.
fn series(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| line.rsplit_once(' ').map(|(series, _)| series)).collect()
}

fn promtool(args: &[&str], folder: &Path, input: &str) {
    let child = Command::new("promtool")
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("promtool is on the path; `cargo xtask setup` installs it");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {args:?}:\n{said}");
    assert!(!args.contains(&"metrics") || said.is_empty(), "promtool {args:?}:\n{said}");
}

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn file(path: &str) -> String {
    let path = project().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn promtool_finds_nothing_wrong_with_the_text() {
    let daemon = Daemon::new(RULES);
    for path in ["/login", "/login", "/login", "/tried", "/tried", "/quiet", "/other"] {
        check(&daemon, "api", &[("path", path), ("user", "42")]);
    }
    check(&daemon, "a \"strange\\ domain", &[("user", "42")]);
    daemon.engine.metrics().took(Protocol::Grpc, Duration::from_micros(3));
    let text = text(&daemon);
    assert!(text.contains("domain=\"a \\\"strange\\\\ domain\""), "{text}");
    promtool(&["check", "metrics"], &project(), &text);
}

#[test]
fn decisions_are_counted_by_domain_rule_verdict_and_source() {
    let daemon = Daemon::new(RULES);
    for _ in 0..5 {
        check(&daemon, "api", &[("path", "/login"), ("user", "42")]);
    }
    for _ in 0..12 {
        check(&daemon, "api", &[("path", "/mild"), ("user", "42")]);
    }
    check(&daemon, "api", &[("path", "/nothing")]);
    let text = text(&daemon);
    assert_eq!((decisions(&text, "login", "allowed"), decisions(&text, "login", "denied")), (2, 3));
    assert_eq!((decisions(&text, "mild", "allowed"), decisions(&text, "mild", "soft")), (10, 2));
    assert_eq!(decisions(&text, "(none)", "allowed"), 1);
    assert_eq!(value(&text, "tidegate_answers_total{protocol=\"http\",verdict=\"allowed\"}"), 15);
    assert_eq!(value(&text, "tidegate_answers_total{protocol=\"http\",verdict=\"denied\"}"), 3);
}

#[test]
fn a_rule_in_shadow_counts_what_it_would_have_denied() {
    let daemon = Daemon::new(RULES);
    for _ in 0..3 {
        assert!(check(&daemon, "api", &[("path", "/tried"), ("user", "42")]));
    }
    let text = text(&daemon);
    assert_eq!(decisions(&text, "tried", "shadow_denied"), 2);
    let series = "tidegate_shadow_denials_total{domain=\"api\",rule=\"tried\"}";
    assert_eq!(value(&text, series), 2);
    assert_eq!(value(&text, "tidegate_rulings_total{ruling=\"shadow\"}"), 0);
}

#[test]
fn with_all_rules_in_shadow_the_rule_that_would_deny_is_counted() {
    let daemon = Daemon::new(RULES);
    let _ = daemon.engine.controls().set_shadow(true, daemon.engine.limiter().now());
    for _ in 0..5 {
        assert!(check(&daemon, "api", &[("path", "/login"), ("user", "42")]));
    }
    let text = text(&daemon);
    assert_eq!(decisions(&text, "login", "shadow_denied"), 3);
    assert_eq!(decisions(&text, "login", "denied"), 0);
    let series = "tidegate_shadow_denials_total{domain=\"api\",rule=\"login\"}";
    assert_eq!(value(&text, series), 3);
    assert_eq!(value(&text, "tidegate_rulings_total{ruling=\"shadow\"}"), 3);
    assert_eq!(value(&text, "tidegate_shadow"), 1);
}

#[test]
fn what_no_rule_counts_is_counted() {
    let daemon = Daemon::new(RULES);
    check(&daemon, "api", &[("path", "/quiet"), ("user", "42")]);
    check(&daemon, "nobody-wrote-this", &[("user", "42")]);
    let many: Vec<(String, String)> = (0..40).map(|n| (format!("a{n}"), String::new())).collect();
    let many: Vec<Attribute<'_>> = many.iter().map(|(a, b)| (&**a, &**b).into()).collect();
    let undecided =
        at_once(daemon.engine.check(&Call::new("api", &many), Does::Take, Protocol::Resp));
    assert!(undecided.is_err());
    let text = text(&daemon);
    assert_eq!(value(&text, "tidegate_rules_skipped_total{domain=\"api\"}"), 1);
    assert_eq!(value(&text, "tidegate_unknown_domain_total"), 1);
    assert_eq!(value(&text, "tidegate_undecided_total{protocol=\"resp\"}"), 1);
    assert!(!text.contains("nobody-wrote-this"), "{text}");
}

#[test]
fn looking_is_not_counted() {
    let daemon = Daemon::new(RULES);
    let attributes = [("path", "/login").into(), ("user", "42").into()];
    let call = Call::new("api", &attributes);
    let _ = at_once(daemon.engine.check(&call, Does::Peek, Protocol::Http)).expect("a decision");
    let text = text(&daemon);
    assert_eq!(decisions(&text, "login", "allowed"), 0);
    assert_eq!(value(&text, "tidegate_answers_total{protocol=\"http\",verdict=\"allowed\"}"), 0);
}

#[test]
fn limits_that_calls_bring_along_are_counted_apart() {
    let daemon = Daemon::new(RULES);
    let mut counts = RuleCounts::default();
    (counts.allowed, counts.denied) = (7, 2);
    daemon.engine.metrics().decided_given(Protocol::Resp, Decider::Memory, &counts);
    let text = text(&daemon);
    for (verdict, count) in [("allowed", 7), ("denied", 2)] {
        let series = format!(
            "tidegate_decisions_total{{domain=\"(given)\",rule=\"(given)\",verdict=\"{verdict}\",source=\"memory\"}}"
        );
        assert_eq!(value(&text, &series), count);
        let series = format!("tidegate_answers_total{{protocol=\"resp\",verdict=\"{verdict}\"}}");
        assert_eq!(value(&text, &series), count);
    }
}

#[test]
fn a_million_values_give_the_same_series_as_one() {
    let daemon = Daemon::new(RULES);
    check(&daemon, "api", &[("path", "/login"), ("user", "0")]);
    let one = text(&daemon);
    for number in 0..1_000_000 {
        let user = format!("somebody-{number}");
        check(
            &daemon,
            if number % 2 == 0 { "api" } else { &user },
            &[("path", "/login"), ("user", &user)],
        );
    }
    let many = text(&daemon);
    assert_eq!(series(&one), series(&many));
    assert!(!many.contains("somebody"), "an identifier is in the text");
}

fn reload(daemon: &Daemon, rules: &str) {
    let parsed = RuleSet::parse(
        &[Source::new("rules.yaml", rules)],
        &tidegate_rules::ParseOptions::default(),
    );
    let rules = parsed.unwrap_or_else(|report| panic!("{report}")).rules;
    daemon.engine.limiter().reload(rules).expect("limits that fit");
    daemon.engine.metrics().reloaded(true);
}

#[test]
fn counters_go_on_over_a_reload_that_moves_rules() {
    let daemon = Daemon::new(RULES);
    for _ in 0..5 {
        check(&daemon, "api", &[("path", "/login"), ("user", "42")]);
    }
    let before = text(&daemon);
    daemon.clock.advance(Duration::from_secs(100));
    // Other rules stand before it now, in other domains too, and one is gone.
    reload(
        &daemon,
        "
domain: first
rules: [ { name: all, per: [user], limit: 1/minute } ]
---
domain: api
rules:
  - { name: new, match: { path: /new }, per: [user], limit: 1/minute }
  - { name: login, match: { path: /login }, per: [user], limit: 2/minute }
",
    );
    check(&daemon, "api", &[("path", "/login"), ("user", "42")]);
    let after = text(&daemon);
    assert_eq!(decisions(&before, "login", "allowed") + 1, decisions(&after, "login", "allowed"));
    assert_eq!(decisions(&after, "login", "denied"), 3);
    assert_eq!(decisions(&after, "new", "allowed"), 0);
    for name in ["tidegate_rules_version", "tidegate_rules_reloads_total"] {
        assert_eq!(value(&after, name), value(&before, name) + 1);
    }
    let loaded = "tidegate_rules_loaded_timestamp_seconds";
    assert_eq!(value(&after, loaded), value(&before, loaded) + 100);
    assert_eq!(value(&after, "tidegate_start_time_seconds"), value(&before, loaded));
}

#[test]
fn the_fingerprint_is_of_what_rules_say_and_not_of_where_they_stand() {
    let print = |rules: &str| value(&text(&Daemon::new(rules)), "tidegate_rules_fingerprint");
    let rules = |limit: &str| {
        format!("{{ domain: api, rules: [ {{ name: all, per: [user], limit: {limit} }} ] }}")
    };
    assert_eq!(print(&rules("1/s")), print(&format!("# a comment\n\n{}", rules("1/s"))));
    assert_ne!(print(&rules("1/s")), print(&rules("2/s")));
}

#[test]
fn rules_beyond_the_bound_share_one_series() {
    let mut rules = String::from("domain: api\nrules:\n");
    for number in 0..RULE_SERIES_MAX + 100 {
        let (name, rest) = (format!("r{number}"), "per: [user], limit: 1/minute");
        writeln!(rules, "  - {{ name: {name}, match: {{ path: /{name} }}, {rest} }}")
            .expect("text");
    }
    let daemon = Daemon::new(&rules);
    for number in [0, RULE_SERIES_MAX + 50, RULE_SERIES_MAX + 99] {
        assert!(check(&daemon, "api", &[("path", &format!("/r{number}")), ("user", "42")]));
    }
    let text = text(&daemon);
    assert_eq!(decisions(&text, "r0", "allowed"), 1);
    let other = "tidegate_decisions_total{domain=\"(other)\",rule=\"(other)\",verdict=\"allowed\",source=\"memory\"}";
    assert_eq!(value(&text, other), 2);
    let allowed = text.lines().filter(|line| {
        line.starts_with("tidegate_decisions_total") && line.contains("\"allowed\"")
    });
    assert_eq!(allowed.count(), RULE_SERIES_MAX);
}

#[test]
fn rules_that_are_gone_make_room_for_new_ones() {
    let rules = |prefix: &str| {
        let one = |n| {
            format!("{{ name: {prefix}{n}, match: {{ path: /{n} }}, per: [user], limit: 1/s }}")
        };
        let all: Vec<String> = (0..RULE_SERIES_MAX / 2).map(one).collect();
        format!("{{ domain: api, rules: [ {} ] }}", all.join(", "))
    };
    let daemon = Daemon::new(&rules("a"));
    for prefix in ["b", "c", "d"] {
        text(&daemon);
        reload(&daemon, &rules(prefix));
    }
    check(&daemon, "api", &[("path", "/7"), ("user", "42")]);
    assert_eq!(decisions(&text(&daemon), "d7", "allowed"), 1);
}

#[test]
fn what_the_table_says_is_read_at_most_once_a_second() {
    let daemon = Daemon::new(RULES);
    let keys = || value(&text(&daemon), "tidegate_keys");
    check(&daemon, "api", &[("path", "/login"), ("user", "1")]);
    assert_eq!(keys(), 1);
    check(&daemon, "api", &[("path", "/login"), ("user", "2")]);
    assert_eq!(keys(), 1);
    daemon.clock.advance(Duration::from_millis(1_001));
    assert_eq!(keys(), 2);
}

#[test]
fn latency_and_connections_are_counted_by_protocol() {
    let daemon = Daemon::new(RULES);
    let metrics = daemon.engine.metrics();
    metrics.took(Protocol::Http, Duration::from_micros(2));
    metrics.took(Protocol::Http, Duration::from_millis(2));
    let open = metrics.connected(Entrance::Resp);
    drop(metrics.connected(Entrance::Resp));
    metrics.protocol_error(Entrance::Resp);
    metrics.reloaded(false);
    let text = text(&daemon);
    let bucket = |le: &str| {
        value(
            &text,
            &format!("tidegate_request_duration_seconds_bucket{{protocol=\"http\",le=\"{le}\"}}"),
        )
    };
    assert_eq!((bucket("0.000001"), bucket("0.0000025"), bucket("0.001")), (0, 1, 1));
    assert_eq!((bucket("0.0025"), bucket("+Inf")), (2, 2));
    let sum = "\ntidegate_request_duration_seconds_sum{protocol=\"http\"} 0.002002\n";
    assert!(text.contains(sum), "{text}");
    assert_eq!(value(&text, "tidegate_connections_open{listener=\"resp\"}"), 1);
    assert_eq!(value(&text, "tidegate_connections_total{listener=\"resp\"}"), 2);
    assert_eq!(value(&text, "tidegate_protocol_errors_total{listener=\"resp\"}"), 1);
    assert_eq!(value(&text, "tidegate_rules_reload_errors_total"), 1);
    drop(open);
}

/// The names of metrics in a text, without what a histogram adds to its own.
fn named_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_');
    let names = words.filter(|word| word.starts_with("tidegate_")).map(|word| {
        let parts = ["_bucket", "_sum", "_count"];
        parts.iter().find_map(|part| word.strip_suffix(part)).unwrap_or(word)
    });
    names.collect()
}

fn exposed() -> BTreeSet<String> {
    let text = text(&Daemon::new(RULES));
    let lines = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines.filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

#[test]
fn the_documented_metrics_are_those_that_are_exposed() {
    let document = file("docs/metrics.md");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let documented: BTreeSet<String> = rows.map(str::to_owned).collect();
    assert_eq!(documented, exposed());
    assert_eq!(documented, names().map(str::to_owned).collect());
    for name in named_in(&document) {
        assert!(documented.contains(name), "the document names {name}");
    }
}

#[test]
fn dashboard_and_alerts_name_only_metrics_that_are_exposed() {
    let exposed = exposed();
    for path in [
        "deploy/grafana/tidegate.json",
        "deploy/prometheus/alerts.yaml",
        "deploy/prometheus/alerts.test.yaml",
    ] {
        let text = file(path);
        let named = named_in(&text);
        assert!(named.len() > 8, "{path} names only {named:?}");
        for name in named {
            assert!(exposed.contains(name), "{path} names {name}");
        }
    }
    // And the dashboard shows all there is.
    let dashboard = file("deploy/grafana/tidegate.json");
    let shown = named_in(&dashboard);
    let hidden: Vec<_> = exposed.iter().filter(|name| !shown.contains(name.as_str())).collect();
    assert!(hidden.is_empty(), "the dashboard does not show {hidden:?}");
}

#[test]
fn the_dashboard_is_one_that_grafana_can_import() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&file("deploy/grafana/tidegate.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<_> =
        panels.iter().map(|panel| panel["id"].as_u64().expect("a number")).collect();
    assert_eq!(ids.len(), panels.len(), "numbers of panels are different");
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        let place = &panel["gridPos"];
        assert!(
            place["x"].as_u64().zip(place["w"].as_u64()).is_some_and(|(x, w)| x + w <= 24),
            "{title}"
        );
        for target in panel["targets"].as_array().into_iter().flatten() {
            assert!(target["expr"].as_str().is_some_and(|expr| !expr.is_empty()), "{title}");
        }
    }
}

/// What the dashboard asks is asked of promtool too, with its variables filled in.
#[test]
fn promtool_understands_what_the_dashboard_asks() {
    let dashboard: serde_json::Value =
        serde_json::from_str(&file("deploy/grafana/tidegate.json")).expect("JSON");
    let targets = dashboard["panels"].as_array().expect("panels").iter();
    let targets = targets.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    for (number, target) in targets.enumerate() {
        let expr =
            target["expr"].as_str().expect("an expression").replace("$__rate_interval", "5m");
        writeln!(rules, "      - {{ record: 'panel_{number}', expr: '{expr}' }}").expect("text");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = folder.join("dashboard-rules.yaml");
    std::fs::write(&path, rules).expect("a file");
    promtool(&["check", "rules", path.to_str().expect("a plain name")], folder, "");
}

#[test]
fn the_alert_rules_pass_their_tests() {
    let folder = project().join("deploy/prometheus");
    promtool(&["check", "rules", "alerts.yaml"], &folder, "");
    promtool(&["test", "rules", "alerts.test.yaml"], &folder, "");
}
