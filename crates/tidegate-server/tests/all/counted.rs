//! What is counted of calls over several descriptors, and of limits that calls bring along: in metrics,
//! and among the busiest keys.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Daemon, at_once};
use tidegate::Attribute;
use tidegate::rules::{DescriptorCall, Hits, PerUnit, Unit};
use tidegate_server::Protocol;
use tidegate_server::controls::{Entry, Which};
use tidegate_server::resp::RespSettings;
use tidegate_server::resp::conversation::{Conversation, Desk};
use tidegate_server::top::By;

const RULES: &str = "
domain: web
descriptors:
  - { key: user, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: path, rate_limit: { unit: minute, requests_per_unit: 9 } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: minute, requests_per_unit: 1 } }
---
domain: own
rules:
  - { name: wide, match: { kind: both }, limit: 100/minute }
  - { name: trial, match: { kind: both }, limit: 1/minute, mode: shadow }
  - { name: shaped, match: { kind: shaped }, limit: { rate: 4/s, algorithm: leaky-bucket, burst: 9 } }
  - { name: missed, match: { kind: both }, per: [tenant], limit: 1/minute }
";
const DELAY_MAX: Duration = Duration::from_millis(100);

fn ask_hits(daemon: &Daemon, domain: &str, wanted: &[(&str, Hits)]) -> bool {
    let entries: Vec<[Attribute<'_>; 1]> =
        wanted.iter().map(|(text, _)| [text.split_once('=').unwrap().into()]).collect();
    let calls: Vec<_> = (entries.iter().zip(wanted))
        .map(|(entry, &(_, hits))| DescriptorCall::new(entry).with_hits(hits))
        .collect();
    let answer =
        at_once(daemon.engine.check_descriptors(domain, &calls, DELAY_MAX, Protocol::Envoy));
    answer.unwrap().is_allowed()
}

fn ask(daemon: &Daemon, domain: &str, texts: &[&str]) -> bool {
    let wanted: Vec<_> = texts.iter().map(|&text| (text, Hits::Take(1))).collect();
    ask_hits(daemon, domain, &wanted)
}

fn says(daemon: &Daemon, lines: &str) {
    let settings = Arc::new(RespSettings::new());
    let mut conversation = Conversation::new(Arc::clone(&daemon.engine), settings, None);
    conversation.hear(&mut lines.replace('\n', "\r\n").into_bytes(), &mut Desk::default());
}

/// The value of a series; 0 where it is not there.
fn value(daemon: &Daemon, series: &str) -> u64 {
    let text = daemon.engine.metrics().render(&daemon.engine);
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map_or(0, |value| value.parse().unwrap())
}

/// Decisions by verdict: allowed, soft, denied only in shadow, denied.
fn decisions(daemon: &Daemon, domain: &str, rule: &str) -> [u64; 4] {
    ["allowed", "soft", "shadow_denied", "denied"].map(|verdict| {
        let labels = format!("domain=\"{domain}\",rule=\"{rule}\",verdict=\"{verdict}\"");
        value(daemon, &format!("tidegate_decisions_total{{{labels},source=\"memory\"}}"))
    })
}

fn shadow_denials(daemon: &Daemon, domain: &str, rule: &str) -> u64 {
    let labels = format!("domain=\"{domain}\",rule=\"{rule}\"");
    value(daemon, &format!("tidegate_shadow_denials_total{{{labels}}}"))
}

/// Answers of a protocol: allowed, denied.
fn answers(daemon: &Daemon, protocol: &str) -> [u64; 2] {
    ["allowed", "denied"].map(|verdict| {
        let labels = format!("protocol=\"{protocol}\",verdict=\"{verdict}\"");
        value(daemon, &format!("tidegate_answers_total{{{labels}}}"))
    })
}

fn rulings(daemon: &Daemon, ruling: &str) -> u64 {
    value(daemon, &format!("tidegate_rulings_total{{ruling=\"{ruling}\"}}"))
}

fn ranked(daemon: &Daemon, by: By) -> Vec<(String, u64)> {
    let ranking = daemon.engine.top().ranking(by, 10, daemon.engine.limiter().now());
    ranking.keys.into_iter().map(|key| (key.rule, key.count)).collect()
}

#[test]
fn a_call_over_descriptors_is_one_answer_and_a_decision_of_each_rule() {
    let daemon = Daemon::new(RULES);
    for _ in 0..3 {
        ask(&daemon, "web", &["user=ann", "path=/a", "unknown=x"]);
    }
    assert_eq!(answers(&daemon, "envoy"), [2, 1]);
    assert_eq!(decisions(&daemon, "web", "user"), [2, 0, 0, 1]);
    // The call that was denied took nothing from the path, so nothing was decided about it.
    assert_eq!(decisions(&daemon, "web", "path"), [2, 0, 0, 0]);
    assert_eq!(decisions(&daemon, "web", "(none)"), [2, 0, 0, 0]);
    assert!(ask(&daemon, "elsewhere", &["user=ann"]));
    assert_eq!(decisions(&daemon, "(unknown)", "(none)"), [1, 0, 0, 0]);
    assert_eq!(ranked(&daemon, By::Denied), [("user".to_owned(), 1)]);
    let busiest = ranked(&daemon, By::Requests);
    assert_eq!(busiest, [("user".to_owned(), 3), ("path".to_owned(), 2)]);
}

#[test]
fn descriptors_that_look_or_give_back_are_counted_nowhere() {
    let daemon = Daemon::new(RULES);
    ask_hits(&daemon, "web", &[("user=ann", Hits::Take(0)), ("path=/a", Hits::GiveBack(1))]);
    assert_eq!(answers(&daemon, "envoy"), [0, 0]);
    ask_hits(&daemon, "web", &[("user=ann", Hits::Take(0)), ("path=/a", Hits::Take(1))]);
    assert_eq!(answers(&daemon, "envoy"), [1, 0]);
    assert_eq!(decisions(&daemon, "web", "user"), [0; 4]);
    assert_eq!(decisions(&daemon, "web", "path"), [1, 0, 0, 0]);
    assert_eq!(ranked(&daemon, By::Requests), [("path".to_owned(), 1)]);
}

#[test]
fn quotas_that_are_over_and_rules_in_shadow_are_told_apart() {
    let daemon = Daemon::new(RULES);
    assert!(ask(&daemon, "web", &["quota=a", "quota=b", "tried=a"]));
    assert!(!ask(&daemon, "web", &["quota=a", "quota=b"]));
    assert_eq!(decisions(&daemon, "web", "quota"), [2, 0, 0, 2]);
    assert!(ask(&daemon, "web", &["quota=a", "quota=c"]));
    assert_eq!(decisions(&daemon, "web", "quota"), [3, 1, 0, 2]);
    assert!(ask(&daemon, "web", &["tried=a"]));
    assert_eq!(decisions(&daemon, "web", "tried"), [1, 0, 1, 0]);
    assert_eq!(shadow_denials(&daemon, "web", "tried"), 1);
}

#[test]
fn a_denial_in_shadow_is_counted_for_the_rule_that_is_in_shadow() {
    let daemon = Daemon::new(RULES);
    for _ in 0..3 {
        assert!(ask(&daemon, "own", &["kind=both"]));
    }
    assert_eq!(decisions(&daemon, "own", "wide"), [1, 0, 2, 0]);
    assert_eq!(shadow_denials(&daemon, "own", "wide"), 0);
    assert_eq!(shadow_denials(&daemon, "own", "trial"), 2);
    let skipped = value(&daemon, "tidegate_rules_skipped_total{domain=\"own\"}");
    assert_eq!(skipped, 3, "`missed` counts by what the calls do not have");
}

#[test]
fn a_call_that_is_turned_away_is_counted_as_denied() {
    let daemon = Daemon::new(RULES);
    assert!(ask(&daemon, "own", &["kind=shaped"]));
    assert!(!ask(&daemon, "own", &["kind=shaped"]), "its turn is too far off");
    assert_eq!(answers(&daemon, "envoy"), [1, 1]);
    assert_eq!(decisions(&daemon, "own", "shaped"), [1, 0, 0, 1]);
    assert_eq!(ranked(&daemon, By::Denied), [("shaped".to_owned(), 1)]);
}

#[test]
fn limits_that_envoys_calls_bring_along_are_counted_as_given() {
    let daemon = Daemon::new(RULES);
    daemon.engine.top().keep_names(true);
    let entries = [("user", "ann").into()];
    for _ in 0..3 {
        let call = DescriptorCall::new(&entries).with_limit(PerUnit { count: 1, unit: Unit::Hour });
        let answer =
            at_once(daemon.engine.check_descriptors("web", &[call], DELAY_MAX, Protocol::Envoy));
        let _ = answer.unwrap();
    }
    assert_eq!(decisions(&daemon, "(given)", "(given)"), [1, 0, 0, 2]);
    assert_eq!(decisions(&daemon, "web", "user"), [0; 4]);
    let ranking = daemon.engine.top().ranking(By::Denied, 10, daemon.engine.limiter().now());
    assert_eq!((&*ranking.keys[0].rule, ranking.keys[0].count), ("(given)", 2));
    assert_eq!(ranking.keys[0].name.as_deref(), Some("user=ann"));
}

#[test]
fn calls_that_the_controls_decide_are_rulings_and_no_decisions() {
    let daemon = Daemon::new(RULES);
    let (controls, now) = (daemon.engine.controls(), daemon.engine.limiter().now());
    for target in ["user=ann", "key=ann"] {
        let entry = Entry::new(target.parse().unwrap(), now);
        let _ = controls.add(Which::Bans, entry, now).unwrap();
    }
    assert!(!ask(&daemon, "web", &["user=ann", "path=/a"]));
    says(&daemon, "CL.THROTTLE ann 1 1 60\nTG.CHECK own 1 user ann\n");
    assert_eq!((answers(&daemon, "envoy"), answers(&daemon, "resp")), ([0, 1], [0, 2]));
    assert_eq!(rulings(&daemon, "banned"), 3);
    let _ = controls.set_bypass(true, now);
    assert!(ask(&daemon, "web", &["user=ann"]));
    says(&daemon, "CL.THROTTLE ann 1 1 60\n");
    let _ = controls.set_bypass(false, now);
    assert_eq!(rulings(&daemon, "bypassed"), 2);
    assert_eq!((answers(&daemon, "envoy"), answers(&daemon, "resp")), ([1, 1], [1, 2]));
    for rule in ["user", "path", "(none)"] {
        assert_eq!(decisions(&daemon, "web", rule), [0; 4]);
    }
    assert_eq!(decisions(&daemon, "(given)", "(given)"), [0; 4]);
}

#[test]
fn what_passes_only_in_shadow_is_counted_so() {
    let daemon = Daemon::new(RULES);
    let now = daemon.engine.limiter().now();
    let _ = daemon.engine.controls().set_shadow(true, now);
    for _ in 0..3 {
        assert!(ask(&daemon, "web", &["user=ann", "path=/a"]));
        says(&daemon, "CL.THROTTLE bob 0 1 60\n");
    }
    assert_eq!(decisions(&daemon, "web", "user"), [2, 0, 1, 0]);
    assert_eq!(shadow_denials(&daemon, "web", "user"), 1);
    assert_eq!(decisions(&daemon, "(given)", "(given)"), [1, 0, 2, 0]);
    assert_eq!(shadow_denials(&daemon, "(given)", "(given)"), 2);
    assert_eq!(rulings(&daemon, "shadow"), 3);
    assert_eq!((answers(&daemon, "envoy"), answers(&daemon, "resp")), ([3, 0], [3, 0]));
    // Who is throttled most is asked for before shadow is turned off, too.
    let throttled = ranked(&daemon, By::Denied);
    assert_eq!(throttled, [("(given)".to_owned(), 2), ("user".to_owned(), 1)]);
}

#[test]
fn throttled_keys_are_counted_and_looks_are_not() {
    let daemon = Daemon::new(RULES);
    says(&daemon, &"CL.THROTTLE ann 1 1 60\n".repeat(5));
    says(&daemon, "CL.THROTTLE ann 1 1 60 0\nCL.THROTTLE ann many 1 60\n");
    assert_eq!(decisions(&daemon, "(given)", "(given)"), [2, 0, 0, 3]);
    assert_eq!(answers(&daemon, "resp"), [2, 3]);
    assert_eq!(ranked(&daemon, By::Denied), [("(given)".to_owned(), 3)]);
    assert_eq!(ranked(&daemon, By::Requests), [("(given)".to_owned(), 5)]);
}

#[test]
fn a_connection_that_does_not_speak_the_protocol_of_redis_is_counted() {
    let daemon = Daemon::new(RULES);
    says(&daemon, "*1\nnonsense\n");
    assert_eq!(value(&daemon, "tidegate_protocol_errors_total{listener=\"resp\"}"), 1);
}
