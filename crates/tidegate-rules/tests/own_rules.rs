//! Tidegate's own spelling: what each field of a rule becomes.

use tidegate_core::{Limit, Timestamp};
use tidegate_rules::glob::Glob;
use tidegate_rules::path::PathTemplate;
use tidegate_rules::rule::{
    Condition, Consistency, Cost, Count, Elastic, Missing, Mode, OnStoreFailure, Percent, Pressure,
    Priority, Quota, Rule, RuleLimit, Statuses, Test,
};
use tidegate_rules::{ParseOptions, RuleSet, Source, parse_limit};

/// The rules of a text.
fn parse(text: &str) -> RuleSet {
    let sources = [Source::new("rules.yaml", text)];
    match RuleSet::parse(&sources, &ParseOptions::default()) {
        Ok(checked) => checked.rules,
        Err(report) => panic!("{report}"),
    }
}

/// A rule with these fields, besides its name and limit.
fn rule(fields: &str) -> Rule {
    let limit = if fields.starts_with("limit") { "" } else { "    limit: 10/minute\n" };
    let fields = fields.replace('\n', "\n    ");
    let rules = parse(&format!("domain: api\nrules:\n  - name: a\n{limit}    {fields}\n"));
    rules.domain("api").expect("the domain").rules[0].clone()
}

fn limit(text: &str) -> RuleLimit {
    let limit = parse_limit(text).expect("a limit");
    RuleLimit { text: tidegate_rules::describe(&limit), limit, shown_as: None }
}

fn limits(texts: &[&str]) -> Quota {
    Quota::Limits(texts.iter().map(|text| limit(text)).collect())
}

fn condition(attribute: &str, any_of: Vec<Test>, negated: bool) -> Condition {
    Condition { attribute: attribute.to_owned(), any_of, negated }
}

fn exact(value: &str) -> Test {
    Test::Exact(value.to_owned())
}

fn cidr(network: &str) -> Test {
    Test::Cidr(network.parse().expect("a network"))
}

#[test]
fn a_rule_that_says_little_has_the_defaults() {
    let mut expected = Rule::new("a", tidegate_rules::Place::default());
    expected.quota = limits(&["10/minute"]);
    assert_eq!(rule("description: "), expected);
}

#[test]
fn rules_of_several_documents_add_to_one_domain_in_order() {
    let rules = parse(
        "{domain: a, rules: [{name: x, limit: 1/s}]}\n---\n\
         {domain: b, rules: []}\n---\n{domain: a, rules: [{name: y, limit: 1/s}]}",
    );
    let names = |domain: &str| -> Vec<String> {
        rules.domain(domain).unwrap().rules.iter().map(|rule| rule.name.clone()).collect()
    };
    assert_eq!((names("a"), names("b")), (vec!["x".into(), "y".into()], vec![]));
}

#[test]
fn a_rule_remembers_the_place_of_its_name() {
    let rules = parse("domain: api\nrules:\n  - limit: 1/s\n    name: a\n");
    let place = rules.domains()[0].rules[0].place;
    assert_eq!((place.line, place.column, place.length), (4, 11, 1));
}

#[test]
fn a_json_file_may_name_its_schema() {
    let rules = parse(r#"{"$schema": "x.json", "domain": "a", "rules": []}"#);
    assert_eq!(rules.domains()[0].name, "a");
}

#[test]
fn a_plain_value_is_exact_except_for_paths_hosts_and_addresses() {
    let glob = |text: &str| Test::Glob(Glob::new(text));
    for (written, attribute, expected) in [
        ("country: IN", "country", vec![exact("IN")]),
        ("version: 1.10", "version", vec![exact("1.10")]),
        ("country: [IN, DE]", "country", vec![exact("IN"), exact("DE")]),
        (
            "path: '/orders/{id}'",
            "path",
            vec![Test::Path(PathTemplate::parse("/orders/{id}").unwrap())],
        ),
        ("path: { exact: '/{id}' }", "path", vec![exact("/{id}")]),
        ("host: Api.Example.COM", "host", vec![exact("api.example.com")]),
        ("host: '*.Example.com'", "host", vec![glob("*.example.com")]),
        ("host: { exact: 'A*' }", "host", vec![exact("a*")]),
        ("ip: 192.0.2.7", "ip", vec![cidr("192.0.2.7/32")]),
        (
            "ip: ['2001:db8::1', 10.0.0.0/8]",
            "ip",
            vec![cidr("2001:db8::1/128"), cidr("10.0.0.0/8")],
        ),
        ("ip: '::/0'", "ip", vec![cidr("::/0")]),
        ("method: POST", "method", vec![exact("POST")]),
        ("method: M-SEARCH", "method", vec![exact("M-SEARCH")]),
    ] {
        let read = rule(&format!("match: {{ {written} }}")).conditions;
        assert_eq!(read, [condition(attribute, expected, false)], "{written}");
    }
}

#[test]
fn every_way_to_compare_can_be_named_and_negated() {
    let prefix = |text: &str| Test::Prefix(text.to_owned());
    for (written, expected) in [
        ("{ exact: a }", vec![exact("a")]),
        ("{ exact: [a, b] }", vec![exact("a"), exact("b")]),
        ("{ in: [a, b] }", vec![exact("a"), exact("b")]),
        ("{ prefix: a }", vec![prefix("a")]),
        ("{ prefix: [a, b] }", vec![prefix("a"), prefix("b")]),
        ("{ glob: 'a*b' }", vec![Test::Glob(Glob::new("a*b"))]),
        ("{ cidr: 10.0.0.0/8 }", vec![cidr("10.0.0.0/8")]),
        ("{ present: true }", vec![Test::Present]),
        ("[a, { prefix: b }]", vec![exact("a"), prefix("b")]),
        ("a", vec![exact("a")]),
    ] {
        for (written, negated) in [
            (written.to_owned(), false),
            (format!("{{ not: {written} }}"), true),
            (format!("{{ not: {{ not: {written} }} }}"), false),
        ] {
            let read = rule(&format!("match: {{ tag: {written} }}")).conditions;
            assert_eq!(read, [condition("tag", expected.clone(), negated)], "{written}");
        }
    }
    let absent = rule("match: { tag: { present: false } }").conditions;
    assert_eq!(absent, [condition("tag", vec![Test::Present], true)]);
}

#[test]
fn ignore_case_is_of_the_match_and_not_a_condition() {
    let read = rule("match: { path: /a, ignore_case: true }");
    assert!(read.ignore_case);
    assert_eq!(read.conditions.len(), 1);
}

#[test]
fn per_is_one_attribute_or_several() {
    assert_eq!(rule("per: user").per, ["user"]);
    assert_eq!(rule("per: [user, header:x-a.b_c]").per, ["user", "header:x-a.b_c"]);
    assert_eq!(rule("per: []").per, [""; 0]);
}

#[test]
fn a_limit_is_text_or_its_parts() {
    for (parts, text) in [
        ("{ rate: 20/s }", "20/s"),
        ("{ rate: 20/s, burst: 1_000 }", "20/s burst 1000"),
        ("{ rate: 20/s, burst: 50, refill: stepped }", "20/s burst 50 stepped"),
        ("{ rate: 20/s, refill: continuous }", "20/s"),
        ("{ rate: 1/s, algorithm: leaky-bucket, burst: 5 }", "1/s leaky-bucket burst 5"),
        ("{ rate: 5/day, algorithm: fixed-window }", "5/day fixed-window"),
        ("{ rate: 5/day, algorithm: fixed-window, align: clock }", "5/day fixed-window"),
        ("{ rate: 5/day, algorithm: fixed_window, align: calendar }", "5/day fixed-window in UTC"),
        (
            "{ rate: 5/month, algorithm: fixed-window, align: calendar, zone: Europe/Berlin }",
            "5/month fixed-window in Europe/Berlin",
        ),
        ("{ rate: 5/week, algorithm: fixed-window, zone: utc }", "5/week fixed-window in UTC"),
        (
            "{ rate: 5/minute, algorithm: fixed-window, align: first-request }",
            "5/minute fixed-window from-first-request",
        ),
        ("{ rate: 5/minute, algorithm: sliding-window }", "5/minute sliding-window"),
        ("{ rate: 5/minute, algorithm: sliding-log }", "5/minute sliding-log"),
        (
            "{ rate: 500/hour, algorithm: sliding-slots, slots: 60, per_slot: 10 }",
            "500/hour sliding-slots slots 60 per-slot 10",
        ),
        ("{ at_once: 5 }", "5 at once"),
        ("{ at_once: 5, expires_after: 1m30s }", "5 at once for 90s"),
    ] {
        assert_eq!(rule(&format!("limit: {parts}")).quota, limits(&[text]), "{parts}");
        assert_eq!(rule(&format!("limit: {text}")).quota, limits(&[text]), "{text}");
        assert_eq!(rule(&format!("limits: [{parts}]")).quota, limits(&[text]), "{parts}");
    }
}

#[test]
fn a_limit_is_shown_in_one_spelling_and_perhaps_under_its_own_name() {
    let read = rule("limit: { rate: 300 per 180 min, burst: 500, shown_as: burst }");
    let Quota::Limits(read) = read.quota else { panic!("{:?}", read.quota) };
    assert_eq!(read[0].text, "300/3h burst 500");
    assert_eq!(read[0].shown_as.as_deref(), Some("burst"));
    assert!(matches!(read[0].limit, Limit::TokenBucket(_)));
}

#[test]
fn a_quota_is_unlimited_or_has_up_to_sixteen_limits() {
    assert_eq!(rule("limit: unlimited").quota, Quota::Unlimited);
    let texts: Vec<String> = (1..=16).map(|period| format!("5/{period}s")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert_eq!(rule(&format!("limits: [{}]", texts.join(", "))).quota, limits(&texts));
}

#[test]
fn limits_of_one_period_are_told_apart_by_their_algorithm() {
    let texts = ["10/minute", "20/minute sliding-log", "3 at once", "9/minute stepped"];
    assert_eq!(rule(&format!("limits: [{}]", texts.join(", "))).quota, limits(&texts));
}

#[test]
fn tiers_have_quotas_of_their_own() {
    let read =
        rule("tiers: { by: plan, limits: { pro: 1/s, big: [1/s, 9/minute], all: unlimited } }");
    let tiers = read.tiers.expect("tiers");
    assert_eq!(tiers.by, "plan");
    let expected = [
        ("pro".to_owned(), limits(&["1/s"])),
        ("big".to_owned(), limits(&["1/s", "9/minute"])),
        ("all".to_owned(), Quota::Unlimited),
    ];
    assert_eq!(tiers.quotas, expected);
}

#[test]
fn overrides_are_written_by_key_or_as_a_list() {
    let by_key = rule(
        "per: [user, path]\noverrides:\n  \"path=/x, user=a=b\": 5/s\n  \
         \"user=, path=1,2\": { limits: [1/s, 9/minute], expires: 2030-12-31 }\n  \
         'user=7, path=/': { rate: 3/s, burst: 9 }\n  'user=8, path=/': unlimited",
    );
    let listed = rule(
        "per: [user, path]\noverrides:\n  - { for: { user: a=b, path: /x }, limit: 5/s }\n  \
         - { for: { path: '1,2', user: '' }, limits: [1/s, 9/minute], expires: 2030-12-31 }\n  \
         - { for: { user: 7, path: / }, limit: { rate: 3/s, burst: 9 } }\n  \
         - { for: { user: 8, path: / }, limit: unlimited }",
    );
    assert_eq!(by_key, listed);
    let values: Vec<_> = by_key.overrides.iter().map(|found| found.values.join("|")).collect();
    assert_eq!(values, ["a=b|/x", "|1,2", "7|/", "8|/"]);
    assert_eq!(by_key.overrides[1].quota, limits(&["1/s", "9/minute"]));
    assert_eq!(by_key.overrides[2].quota, limits(&["3/s burst 9"]));
    assert_eq!(by_key.overrides[3].quota, Quota::Unlimited);
}

#[test]
fn an_override_expires_at_a_time_or_at_midnight_in_utc() {
    // 31 December 2030, 0:00 in UTC.
    let midnight = 1_924_905_600;
    for (written, expected) in [
        ("2030-12-31", Timestamp::from_secs(midnight)),
        ("2030-12-31T18:00:00Z", Timestamp::from_secs(midnight + 18 * 3_600)),
        (
            "2030-12-31T18:00:00.5+02:00",
            Timestamp::from_micros((midnight + 16 * 3_600) * 1_000_000 + 500_000),
        ),
        ("1970-01-01", Timestamp::ZERO),
    ] {
        let read = rule(&format!(
            "per: user\noverrides: {{ \"user=1\": {{ limit: 1/s, expires: {written} }} }}"
        ));
        assert_eq!(read.overrides[0].expires, Some(expected), "{written}");
    }
}

#[test]
fn a_value_with_the_separator_in_it_is_written_as_a_list() {
    let read = rule("per: user\noverrides: [{ for: { user: 'a, b' }, limit: 1/s }]");
    assert_eq!(read.overrides[0].values, ["a, b"]);
}

#[test]
fn words_choose_what_happens() {
    for (written, expected) in
        [("skip", Missing::Skip), ("shared", Missing::Shared), ("deny", Missing::Deny)]
    {
        assert_eq!(rule(&format!("missing: {written}")).missing, expected);
    }
    for (written, expected) in [("enforce", Mode::Enforce), ("shadow", Mode::Shadow)] {
        assert_eq!(rule(&format!("mode: {written}")).mode, expected);
    }
    for (written, expected) in [
        ("allow", OnStoreFailure::Allow),
        ("deny", OnStoreFailure::Deny),
        ("local", OnStoreFailure::Local),
    ] {
        let read = rule(&format!("on_store_failure: {written}"));
        assert_eq!(read.on_store_failure, Some(expected));
    }
    for (written, expected) in [
        ("local", Consistency::Local),
        ("strict", Consistency::Strict),
        ("leased", Consistency::Leased),
    ] {
        assert_eq!(rule(&format!("consistency: {written}")).consistency, Some(expected));
    }
    assert!(rule("charge_refused: true").charge_refused);
    assert!(!rule("charge_refused: false").charge_refused);
}

#[test]
fn cost_is_a_number_or_what_an_attribute_says() {
    let attribute = |default| Cost::Attribute { name: "bytes".to_owned(), default };
    for (written, expected) in [
        ("5", Cost::Number(5)),
        ("17_592_186_044_416", Cost::Number(1 << 44)),
        ("{ attribute: bytes }", attribute(1)),
        ("{ attribute: bytes, default: 0 }", attribute(0)),
        ("{ attribute: bytes, default: 1000 }", attribute(1_000)),
    ] {
        assert_eq!(rule(&format!("cost: {written}")).cost, expected, "{written}");
    }
}

#[test]
fn soft_is_1_to_1000_percent() {
    assert_eq!(rule("soft: 1%").soft, Some(Percent(1)));
    assert_eq!(rule("soft: '1000%'").soft, Some(Percent(1_000)));
}

#[test]
fn elastic_has_a_percentage_and_a_pressure_in_millionths() {
    for (up_to, pressure, millionths) in [
        (100, "0.7", 700_000),
        (150, "0.000001", 1),
        (1_000, "1", 1_000_000),
        (150, "1.0", 1_000_000),
    ] {
        let read =
            rule(&format!("elastic: {{ up_to: {up_to}%, while_pressure_below: {pressure} }}"));
        let while_pressure_below = Pressure::from_millionths(millionths).unwrap();
        let expected = Elastic { up_to: Percent(up_to), while_pressure_below };
        assert_eq!(read.elastic, Some(expected), "{pressure}");
    }
}

#[test]
fn priority_reserves_shares_of_less_than_everything() {
    let read = rule("priority: { by: class, reserve: { critical: 20%, paid: 79% } }");
    let reserve = vec![("critical".to_owned(), Percent(20)), ("paid".to_owned(), Percent(79))];
    assert_eq!(read.priority, Some(Priority { by: "class".to_owned(), reserve }));
}

#[test]
fn places_can_be_soft_elastic_and_reserved_as_rates_can() {
    let read = rule(
        "limit: 10 at once\nsoft: 10%\nelastic: { up_to: 150%, while_pressure_below: 0.5 }\n\
         priority: { by: class, reserve: { critical: 20% } }\ncount: on-response\nstatuses: 5xx",
    );
    assert_eq!(read.quota, limits(&["10 at once"]));
    assert!(read.soft.is_some() && read.elastic.is_some() && read.priority.is_some());
}

#[test]
fn statuses_are_single_or_classes_or_ranges() {
    assert_eq!(rule("count: on-request").count, Count::OnRequest);
    let read = rule("count: on-response\nstatuses: [401, 5xx, 400-403, '100', 599]");
    let range = |from, to| Statuses { from, to };
    let expected =
        vec![range(401, 401), range(500, 599), range(400, 403), range(100, 100), range(599, 599)];
    assert_eq!(read.count, Count::OnResponse(expected));
    assert!(read.count.counts(402) && !read.count.counts(404));
}

#[test]
fn a_candidate_is_one_limit_or_several() {
    assert_eq!(rule("candidate: 20/minute").candidate, [limit("20/minute")]);
    let read = rule("candidate: [20/minute, { rate: 1/s, algorithm: sliding-log }]");
    assert_eq!(read.candidate, [limit("20/minute"), limit("1/s sliding-log")]);
}

#[test]
fn texts_for_clients_and_readers_are_kept() {
    let read = rule("shown_as: Log-ins [v2]\ndescription: |\n  Why it\n  is there.");
    assert_eq!(read.shown_name(), "Log-ins [v2]");
    assert_eq!(read.description.as_deref(), Some("Why it\nis there.\n"));
}

#[test]
fn a_rule_may_have_any_printable_name() {
    let rules = parse("domain: a\nrules: [{ name: 'Größe \"a\\b\" हिन्दी', limit: 1/s }]");
    assert_eq!(rules.domains()[0].rules[0].name, "Größe \"a\\b\" हिन्दी");
}
