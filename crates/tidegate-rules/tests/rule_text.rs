//! Rule files of all three spellings, as a whole and as a program or a cat might change them.

use std::fmt::Write as _;

use proptest::prelude::*;
use tidegate_rules::{ParseOptions, Report, RuleSet, Source};

const SHORT: &str = "\
# Who may send how much.
domain: messaging
key: email
rate_limit: { unit: day, requests: 5 }
---
- domain: messaging
  key: sms
  rate_limit:
    unit: hour
    requests: 100
- { \"domain\": \"login\", \"key\": \"ip\", \"rate_limit\": { \"unit\": \"minute\", \"requests\": 10 } }
";

const ENVOY: &str = "\
domain: mongo_cps
descriptors:
  - key: database
    value: users
    rate_limit: &often { unit: second, requests_per_unit: 500 }
  - key: database
    value: default*
    shadow_mode: true
    rate_limit: *often
    descriptors:
      - key: remote_address
        detailed_metric: true
        rate_limit:
          name: per_address
          unit: minute
          requests_per_unit: 10
          replaces: [{ name: global }]
  - key: internal
    rate_limit: { unlimited: true }
";

const OWN: &str = "\
domain: api
rules:
  - name: login
    match: { method: POST, path: /login }
    per: [ip]
    limit: 10/minute
  - name: orders
    description: >
      Everything about orders,
      per user.
    match:
      path: \"/orders/**\"
      country: { not: IN }
      host: '*.example.com'
      ip: [192.0.2.0/24, { cidr: \"2001:db8::/32\" }]
    per: [user]
    limits: [ 10/minute, { rate: 500/hour, algorithm: sliding-slots, slots: 60 } ]
    tiers: { by: plan, limits: { pro: 100/minute, enterprise: unlimited } }
    overrides: { \"user=42\": 1000/minute }
    missing: skip
    cost: { attribute: bytes, default: 1 }
    soft: 10%
    elastic: { up_to: 150%, while_pressure_below: 0.7 }
    priority: { by: class, reserve: { critical: 20% } }
    on_store_failure: local
    consistency: leased
    mode: enforce
  - name: failed-logins
    match: { path: /login }
    per: [ip]
    limit: 5/minute
    count: on-response
    statuses: [401, 403, 5xx]
";

const EXAMPLES: [&str; 3] = [SHORT, ENVOY, OWN];

/// What is wrong with a text, printed or not.
fn parse(bytes: impl Into<Vec<u8>>) -> Report {
    let sources = [Source::new("rules.yaml", bytes)];
    let report = match RuleSet::parse(&sources, &ParseOptions::default()) {
        Ok(checked) => {
            assert_eq!(checked.warnings.errors(), 0);
            checked.warnings
        }
        Err(report) => {
            assert!(report.errors() > 0);
            report
        }
    };
    let shown = report.to_string();
    assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    report
}

#[test]
fn the_examples_have_no_errors() {
    for example in EXAMPLES {
        let report = parse(example);
        assert!(report.is_empty(), "{report}");
    }
    let sources = EXAMPLES.map(|example| Source::new("rules.yaml", example));
    let checked = RuleSet::parse(&sources, &ParseOptions::default()).expect("no errors");
    let names: Vec<&str> = checked.rules.domains().iter().map(|domain| &*domain.name).collect();
    assert_eq!(names, ["messaging", "login", "mongo_cps", "api"]);
    assert_eq!(checked.rules.domains()[3].rules.len(), 3);
}

#[test]
fn errors_of_all_files_are_shown_with_their_lines() {
    let sources = [
        Source::new("a.yaml", OWN.replace("per: [user]", "pre: [user]")),
        Source::new("b.yaml", "domain: [\n"),
        Source::new("c.yaml", SHORT.replace("unit: day", "unit: dya")),
    ];
    let report = RuleSet::parse(&sources, &ParseOptions::default()).expect_err("errors");
    let shown = report.to_string();
    for part in [
        "error: unknown field `pre`\n  --> a.yaml:16:5\n   |\n16 |     pre: [user]\n   |     ^^^\n   \
         = help: ",
        "error: this `[` is not closed\n --> b.yaml:1:9\n  |\n1 | domain: [\n  |         ^\n  = help: ",
        "error: `unit` cannot be `dya`\n --> c.yaml:4:21\n  |\n4 | rate_limit: { unit: dya, requests: \
         5 }\n  |                     ^^^\n  = help: ",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
}

#[test]
fn ten_thousand_rules_are_read() {
    let mut text = "domain: api\nrules:\n".to_owned();
    for number in 0..10_000 {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "  - name: rule-{number}\n    match: {{ method: POST, path: /orders/{number}/** }}\n    \
             per: [user]\n    limit: 10/minute\n"
        );
    }
    let checked = RuleSet::parse(&[Source::new("many.yaml", text)], &ParseOptions::default());
    assert_eq!(checked.expect("no errors").rules.domains()[0].rules.len(), 10_000);
}

/// A change that somebody might make.
#[derive(Clone, Debug)]
enum Change {
    Byte(u8),
    Insert(&'static str),
    Remove(usize),
    /// A part of one of the examples.
    Copy {
        example: usize,
        from: usize,
        length: usize,
    },
    Cut,
}

fn change() -> impl Strategy<Value = Change> {
    let text = prop::sample::select(vec![
        "\n",
        "  ",
        "\t",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ",",
        "'",
        "\"",
        "#",
        "&a ",
        "*a",
        "<<: *a",
        "---\n",
        "!x ",
        "|\n",
        "~",
        "\\",
        "\0",
        "\u{feff}",
        "é",
        "0",
        "-1",
        "1e3",
        "true",
        "null: ",
        "99999999999999999999",
        "name: x\n",
        "rules:\n",
        "descriptors:\n",
        "limit: 1/s\n",
        "*",
        "%",
    ]);
    prop_oneof![
        any::<u8>().prop_map(Change::Byte),
        text.prop_map(Change::Insert),
        (1_usize..20).prop_map(Change::Remove),
        (0..EXAMPLES.len(), any::<prop::sample::Index>(), 1_usize..80).prop_map(
            |(example, from, length)| {
                let from = from.index(EXAMPLES[example].len());
                Change::Copy { example, from, length }
            }
        ),
        Just(Change::Cut),
    ]
}

fn apply(text: &mut Vec<u8>, change: &Change, at: prop::sample::Index) {
    let at = at.index(text.len() + 1);
    let until = |length: usize| (at + length).min(text.len());
    match change {
        Change::Byte(byte) => text.insert(at, *byte),
        Change::Insert(more) => drop(text.splice(at..at, more.bytes())),
        Change::Remove(length) => drop(text.drain(at..until(*length))),
        Change::Copy { example, from, length } => {
            let part = EXAMPLES[*example].bytes().skip(*from).take(*length);
            text.splice(at..at, part);
        }
        // Most of these would leave nothing to look at.
        Change::Cut => text.truncate(at.max(text.len() / 2)),
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        example in prop::sample::select(EXAMPLES.to_vec()),
        changes in prop::collection::vec((change(), any::<prop::sample::Index>()), 1..6),
    ) {
        parse(bytes);
        let mut text = example.as_bytes().to_vec();
        for (change, at) in &changes {
            apply(&mut text, change, *at);
        }
        parse(text);
    }
}
