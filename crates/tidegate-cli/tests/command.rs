//! The command as a person or a script meets it: what is printed where, and with which exit code.

mod run;

use run::{Ran, examples, scratch, tidegate, tidegate_with};
use serde_json::Value;

const TWO_DOMAINS: &str = "
domain: api
rules:
  - { name: login, match: { path: /login }, per: [ip], limit: 10/minute }
  - { name: all, per: [user], limits: [100/minute, 1000/hour] }
---
{ domain: mail, key: email, rate_limit: { unit: day, requests: 5 } }
";

#[test]
fn validate_counts_what_is_in_the_rules_on_standard_output() {
    let ran = tidegate_with(&["rules", "validate", "-"], TWO_DOMAINS);
    assert_eq!(ran, Ran::yes("2 domains, 3 rules, 4 limits: ok\n"));
}

#[test]
fn every_example_validates_without_a_warning_and_is_read_back_from_its_json() {
    let folder = examples();
    let files = std::fs::read_dir(&folder).expect("the examples are there");
    let mut count = 0;
    for file in files {
        let path = file.expect("an entry").path();
        let name = path.to_str().expect("a plain name");
        let ran = tidegate(&["rules", "validate", "--strict", name]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{name}");
        let shown = tidegate(&["rules", "show", "--json", name]);
        let again = tidegate_with(&["rules", "diff", name, "-"], &shown.stdout);
        assert_eq!(again, Ran { code: 0, stdout: String::new(), stderr: "no changes\n".into() });
        count += 1;
    }
    assert!(count > 0, "there are no examples");
}

#[test]
fn a_warning_is_an_error_only_where_that_is_asked_for() {
    let text = "{ domain: api, rules: [{ name: all, limit: 10/minute }] }";
    let ran = tidegate_with(&["rules", "validate", "-"], text);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1 domain, 1 rule, 1 limit: 1 warning\n"));
    assert!(ran.stderr.starts_with("warning: "), "{}", ran.stderr);
    let ran = tidegate_with(&["rules", "validate", "--strict", "-"], text);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.ends_with("\n1 warning\n"), "{}", ran.stderr);
}

#[test]
fn what_cannot_be_read_or_understood_ends_with_2_and_prints_no_data() {
    let unreadable = scratch("cannot-be-read").join("nothing.yaml");
    let unreadable = unreadable.to_str().expect("a plain name");
    let calls: [&[&str]; 6] = [
        &["rules", "validate", unreadable],
        &["rules", "show", unreadable],
        &["rules", "diff", unreadable, unreadable],
        &["rules", "diff", "-", "-"],
        &["rules", "validate"],
        &["explain", "--rules", "-", "user"],
    ];
    for call in calls {
        let ran = tidegate(call);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{call:?}");
        assert!(ran.stderr.starts_with("error: "), "{call:?}: {}", ran.stderr);
    }
}

#[test]
fn broken_rules_are_an_answer_to_validate_and_in_the_way_of_everything_else() {
    let text = "{ domain: api, key: ip }";
    assert_eq!(tidegate_with(&["rules", "validate", "-"], text).code, 1);
    for call in [&["rules", "show", "-"][..], &["explain", "--rules", "-"]] {
        let ran = tidegate_with(call, text);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{call:?}");
        assert!(ran.stderr.contains("--> <stdin>:1:1"), "{}", ran.stderr);
        assert!(ran.stderr.ends_with("\n1 error: the rules cannot be used\n"), "{}", ran.stderr);
    }
}

#[test]
fn validate_tells_places_as_json() {
    let text = "domain: api\nkey: ip\nrate_limit: { unit: dya, requests: 5 }\n";
    let ran = tidegate_with(&["rules", "validate", "--json", "-"], text);
    assert_eq!((ran.code, ran.stderr.as_str()), (1, ""));
    let json = ran.json();
    assert_eq!((&json["valid"], &json["errors"]), (&Value::Bool(false), &1.into()));
    let found = &json["diagnostics"][0];
    assert_eq!((&found["file"], &found["severity"]), (&"<stdin>".into(), &"error".into()));
    let place = ["line", "column", "length"].map(|name| found[name].as_u64());
    assert_eq!(place, [Some(3), Some(21), Some(3)]);
    assert_eq!(found["help"], "did you mean `day`?");
}

#[test]
fn show_lists_rules_of_any_spelling_alike() {
    let ran = tidegate_with(&["rules", "show", "-"], TWO_DOMAINS);
    let expected = "\
domain api

  rule login
    match       path must fit /login
    per         ip
    limit       10/minute

  rule all
    match       every request
    per         user
    limit       100/minute
                1000/hour

domain mail

  rule email
    match       every request
    per         email
    limit       5/day fixed-window
";
    assert_eq!(ran, Ran::yes(expected));
}

#[test]
fn show_writes_every_default_into_its_json() {
    let ran = tidegate_with(&["rules", "show", "--json", "--domain", "mail", "-"], TWO_DOMAINS);
    assert_eq!(ran.code, 0);
    let json = ran.json();
    assert_eq!(json.as_array().map(Vec::len), Some(1));
    let rule = &json[0]["rules"][0];
    let words = ["missing", "count", "mode"].map(|name| rule[name].as_str());
    assert_eq!(words, [Some("skip"), Some("on-request"), Some("enforce")]);
    assert_eq!(rule["limit"]["algorithm"], "fixed-window");
    assert_eq!(rule["cost"], 1);
}

/// Everything that a rule can say, in all three spellings.
const EVERYTHING: &str = include_str!("everything.yaml");

#[test]
fn the_json_of_show_is_the_same_rules_again() {
    let shown = tidegate_with(&["rules", "show", "--json", "-"], EVERYTHING);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let folder = scratch("json-of-show");
    let (yaml, json) = (folder.join("a.yaml"), folder.join("b.json"));
    std::fs::write(&yaml, EVERYTHING).expect("a file to write");
    std::fs::write(&json, &shown.stdout).expect("a file to write");
    let (yaml, json) = (yaml.to_str().expect("a name"), json.to_str().expect("a name"));
    let ran = tidegate(&["rules", "diff", yaml, json]);
    assert_eq!(ran, Ran { code: 0, stdout: String::new(), stderr: "no changes\n".into() });
    assert_eq!(tidegate(&["rules", "show", "--json", json]).stdout, shown.stdout);
    assert_eq!(
        tidegate(&["rules", "show", json]).stdout,
        tidegate(&["rules", "show", yaml]).stdout
    );
}

#[test]
fn a_domain_that_is_not_there_is_named_with_those_that_are() {
    let show = tidegate_with(&["rules", "show", "--domain", "apj", "-"], TWO_DOMAINS);
    let explain = tidegate_with(&["explain", "--rules", "-", "--domain", "apj"], TWO_DOMAINS);
    for ran in [show, explain] {
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
        let expected = "error: there is no domain `apj`: the rules have `api`, `mail`\n";
        assert_eq!(ran.stderr, expected);
    }
}

#[test]
fn diff_says_which_state_survives_and_marks_large_changes() {
    let old = scratch("diff-marks").join("old.yaml");
    std::fs::write(&old, TWO_DOMAINS).expect("a file to write");
    let old = old.to_str().expect("a name");
    let new = TWO_DOMAINS.replace("10/minute", "200/minute").replace("name: all", "name: every");
    let ran = tidegate_with(&["rules", "diff", old, "-"], &new);
    assert_eq!(ran.code, 1);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", ran.stdout);
    assert!(lines[0].starts_with("~ api/login: limit 10/minute -> 200/minute"), "{}", lines[0]);
    assert!(lines[0].contains("stays spent") && lines[0].ends_with("look twice"), "{}", lines[0]);
    assert!(lines[1].starts_with("+ api/every: added"), "{}", lines[1]);
    assert!(lines[2].starts_with("- api/all: removed"), "{}", lines[2]);
    assert_eq!(ran.stderr, "3 changes, 1 large\n");

    let json = tidegate_with(&["rules", "diff", "--json", old, "-"], &new).json();
    let change = &json["changes"][0];
    assert_eq!((&change["kind"], &change["large"]), (&"changed".into(), &true.into()));
    assert_eq!(
        (&change["keeps_state"], &change["parts"][0]["field"]),
        (&true.into(), &"limit".into())
    );
}

#[test]
fn explain_needs_the_domain_only_where_there_are_several() {
    let ran = tidegate_with(&["explain", "--rules", "-", "user=42"], TWO_DOMAINS);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    let expected =
        "error: say which domain is meant, with --domain: the rules have `api`, `mail`\n";
    assert_eq!(ran.stderr, expected);
    let one = "{ domain: mail, key: email, rate_limit: { unit: day, requests: 5 } }";
    let ran = tidegate_with(&["explain", "--rules", "-", "email=a=b@example.com"], one);
    let expected = "\
domain mail
  rule email: applies
counted under
  email: 5/day fixed-window for email=\"a=b@example.com\"
";
    assert_eq!(ran, Ran::yes(expected));
}

#[test]
fn explain_tells_why_a_rule_does_not_apply() {
    let call = ["explain", "--rules", "-", "--domain", "api", "--cost", "3", "user=42", "path=/x"];
    let ran = tidegate_with(&call, TWO_DOMAINS);
    let expected = "\
domain api
  rule login: does not match: path must fit /login, and the request has \"/x\"
  rule all: applies
counted under
  all: 100/minute for user=\"42\", cost 3
  all: 1000/hour for user=\"42\", cost 3
";
    assert_eq!(ran, Ran::yes(expected));
}

#[test]
fn explain_gives_keys_that_tell_who_shares_a_counter() {
    let keys = |who: &str| {
        let call = ["explain", "--rules", "-", "--domain", "api", "--json", who, "x=1"];
        let json = tidegate_with(&call, TWO_DOMAINS).json();
        let charges = json["charges"].as_array().expect("a list").clone();
        charges.iter().map(|charge| charge["key"].as_str().expect("a key").to_owned()).collect()
    };
    let (ann, bob): (Vec<String>, Vec<String>) = (keys("user=ann"), keys("user=bob"));
    assert_eq!((ann.len(), &ann), (2, &keys("user=ann")));
    assert!(ann[0] != bob[0] && ann[0] != ann[1] && ann[0].len() == 32);
}

#[test]
fn explain_stretches_elastic_limits_below_their_pressure() {
    let text = "{ domain: api, rules: [{ name: a, per: [ip], limit: 10/minute, \
                elastic: { up_to: 150%, while_pressure_below: 0.7 } }] }";
    for (pressure, relaxed) in [("0.5", true), ("0.7", false), ("1", false)] {
        let call = ["explain", "--rules", "-", "--json", "--pressure", pressure, "ip=192.0.2.7"];
        let json = tidegate_with(&call, text).json();
        assert_eq!(json["charges"][0]["relaxed"], relaxed, "{pressure}");
    }
}

#[test]
fn explain_says_where_a_rule_denies_whatever_was_counted() {
    let text =
        "{ domain: api, rules: [{ name: a, per: [user], limit: 10/minute, missing: deny }] }";
    let ran = tidegate_with(&["explain", "--rules", "-"], text);
    let expected = "\
domain api
  rule a: denies: it counts per user, which is missing
nothing is counted
the request is denied
";
    assert_eq!(ran, Ran::yes(expected));
    let denied = |text: &str, who: &str| {
        tidegate_with(&["explain", "--json", "--rules", "-", who], text).json()["denied"].clone()
    };
    assert_eq!(denied(text, "ip=1"), true);
    assert_eq!(denied(text, "user=1"), false);
    assert_eq!(denied(&text.replace("missing", "mode: shadow, missing"), "ip=1"), false);
    let banned = "{ domain: api, descriptors: [{ key: bot, rate_limit: { unit: day, requests_per_unit: 0 } }] }";
    assert_eq!(denied(banned, "bot=1"), true);
    assert_eq!(denied(banned, "user=1"), false);
}

#[test]
fn explain_has_no_answer_for_a_request_that_cannot_be_decided() {
    let too_many: Vec<String> = (0..1_000).map(|number| format!("a{number}=1")).collect();
    let call = ["explain", "--rules", "-", "--domain", "api"];
    let call: Vec<&str> = call.into_iter().chain(too_many.iter().map(String::as_str)).collect();
    let ran = tidegate_with(&call, TWO_DOMAINS);
    assert_eq!(ran.code, 2, "{}", ran.stdout);
    assert!(ran.stdout.contains("  cannot be decided: "), "{}", ran.stdout);
}

#[test]
fn the_schema_is_json() {
    let ran = tidegate(&["rules", "schema"]);
    assert_eq!(ran.code, 0);
    assert!(ran.json()["$schema"].is_string());
}

#[test]
fn every_command_has_help_with_examples() {
    let commands: [&[&str]; 9] = [
        &["serve"],
        &["check"],
        &["man"],
        &["rules", "validate"],
        &["rules", "show"],
        &["rules", "diff"],
        &["rules", "schema"],
        &["explain"],
        &["completions"],
    ];
    for command in commands {
        let ran = tidegate(&[command, &["--help"]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{command:?}");
        assert!(ran.stdout.contains("Examples:\n  tidegate "), "{command:?}");
    }
}

#[test]
fn shells_are_given_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let ran = tidegate(&["completions", shell]);
        assert_eq!(ran.code, 0, "{shell}");
        assert!(ran.stdout.contains("validate"), "{shell}");
    }
}

#[test]
fn the_manual_has_a_page_for_each_command() {
    let folder = scratch("manual").join("pages");
    let ran = tidegate(&["man", folder.to_str().expect("a name")]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    for page in ["tidegate.1", "tidegate-serve.1", "tidegate-check.1", "tidegate-rules-validate.1"]
    {
        let text = std::fs::read_to_string(folder.join(page)).expect("the page is there");
        assert!(text.contains(".SH NAME"), "{page}");
    }
    let serve =
        std::fs::read_to_string(folder.join("tidegate-serve.1")).expect("the page is there");
    assert!(serve.contains("TIDEGATE_HTTP") && serve.contains("tidegate serve \\-\\-limit"));
}

#[test]
fn nothing_is_coloured_where_no_terminal_shows_it() {
    let shown = tidegate_with(&["rules", "show", "-"], TWO_DOMAINS);
    let broken = tidegate_with(&["rules", "validate", "-"], "{ domain: api, key: ip }");
    for text in [shown.stdout, broken.stderr] {
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
