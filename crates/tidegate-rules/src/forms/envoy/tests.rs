//! What envoyproxy/ratelimit takes and refuses, as claims.

use super::*;
use crate::diagnostic::{Report, Severity};
use crate::forms::{Checked, ParseOptions};
use crate::rule::{Quota, RuleSet};
use crate::source::Source;

fn parse_all(texts: &[&str], merge_domains: bool) -> Result<Checked, Report> {
    let name = |place| format!("{place}.yaml");
    let sources: Vec<Source> =
        (1..).zip(texts).map(|(place, text)| Source::new(name(place), *text)).collect();
    RuleSet::parse(&sources, &ParseOptions { merge_domains })
}

/// The top levels of a domain whose descriptors are written in flow style.
fn levels(descriptors: &str) -> Vec<Descriptor> {
    let text = format!("{{ domain: d, descriptors: [{descriptors}] }}");
    parse_all(&[&text], false).unwrap().rules.domains()[0].descriptors.clone()
}

fn only(descriptor: &str) -> Descriptor {
    let [level] = levels(descriptor).try_into().unwrap();
    level
}

/// The messages of this severity, with their columns.
fn messages(report: &Report, severity: Severity) -> Vec<String> {
    let of_severity =
        |(_, found): &(&str, &crate::diagnostic::Diagnostic)| found.severity == severity;
    report.iter().filter(of_severity).map(|(_, found)| found.message.clone()).collect()
}

fn errors(descriptors: &str) -> Vec<String> {
    let text = format!("{{ domain: d, descriptors: [{descriptors}] }}");
    messages(&parse_all(&[&text], false).unwrap_err(), Severity::Error)
}

/// Claims that there are these warnings; lints may add others.
fn assert_warns(descriptors: &str, expected: &[&str]) {
    let text = format!("{{ domain: d, descriptors: [{descriptors}] }}");
    let found = messages(&parse_all(&[&text], false).unwrap().warnings, Severity::Warning);
    for message in expected {
        assert!(found.iter().any(|found| found == message), "{message} is not in {found:?}");
    }
}

fn limit_text(level: &Descriptor) -> String {
    match &level.rule.as_ref().unwrap().quota {
        Quota::Limits(limits) => limits[0].text.clone(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_limit_becomes_a_rule_named_after_its_levels_and_counted_by_all_keys() {
    let levels = levels(
        "{ key: a, value: b, descriptors: [
            { key: a, rate_limit: { unit: day, requests_per_unit: 5 } } ] },
         { key: database, value: users, rate_limit: { requests_per_unit: 500, unit: second } }",
    );
    let nested = &levels[0].children[0];
    assert!(levels[0].rule.is_none());
    let rule = nested.rule.as_ref().unwrap();
    assert_eq!(
        (rule.name.as_str(), &rule.per[..]),
        ("a=b / a", &["a".to_owned(), "a".to_owned()][..])
    );
    assert_eq!(limit_text(nested), "5/day fixed-window");
    assert_eq!(levels[1].rule.as_ref().unwrap().name, "database=users");
    assert_eq!(levels[1].rule.as_ref().unwrap().mode, Mode::Enforce);
}

#[test]
fn values_are_exact_patterns_or_anything() {
    assert_eq!(only("{ key: a }").value, DescriptorValue::Any);
    assert_eq!(only("{ key: a, value: '' }").value, DescriptorValue::Any);
    assert_eq!(only("{ key: a, value: }").value, DescriptorValue::Any);
    assert_eq!(only("{ key: a, value: yes }").value, DescriptorValue::Exact("yes".into()));
    assert_eq!(only("{ key: a, value: 010 }").value, DescriptorValue::Exact("010".into()));
    assert_eq!(only("{ key: a, value: b*c }").value, DescriptorValue::Glob(Glob::new("b*c")));
}

#[test]
fn every_unit_is_taken_in_any_case_and_months_and_years_have_fixed_lengths() {
    for (unit, text) in [
        ("second", "7/second"),
        ("MINUTE", "7/minute"),
        ("Hour", "7/hour"),
        ("day", "7/day"),
        ("week", "7/week"),
        ("month", "7/30d"),
        ("year", "7/365d"),
    ] {
        let level =
            only(&format!("{{ key: a, rate_limit: {{ unit: {unit}, requests_per_unit: 7 }} }}"));
        assert_eq!(limit_text(&level), format!("{text} fixed-window"));
    }
    for unit in ["unknown", "fortnight", "seconds", "''"] {
        let text = format!("{{ key: a, rate_limit: {{ unit: {unit}, requests_per_unit: 7 }} }}");
        assert_eq!(errors(&text).len(), 1, "{unit}");
    }
    assert_eq!(errors("{ key: a, rate_limit: { requests_per_unit: 7 } }"), ["`unit` is missing"]);
}

#[test]
fn a_period_may_be_several_units() {
    let limit = |multiplier: &str| {
        format!(
            "{{ key: a, rate_limit: {{ unit: minute, requests_per_unit: 20, unit_multiplier: {multiplier} }} }}"
        )
    };
    assert_eq!(limit_text(&only(&limit("5"))), "20/5min fixed-window");
    assert_eq!(errors(&limit("0")), ["`unit_multiplier` is out of range"]);
    assert_eq!(errors(&limit("4294967295")), ["the period is too long; at most 10 years"]);
    assert_eq!(errors(&limit("4294967296")), ["`unit_multiplier` is out of range"]);
}

#[test]
fn zero_requests_let_nothing_pass_and_a_missing_number_says_so() {
    let zero =
        only("{ key: ip, value: 50.0.0.5, rate_limit: { unit: second, requests_per_unit: 0 } }");
    assert_eq!(zero.rule.unwrap().quota, Quota::Nothing);
    let missing = "{ key: ip, rate_limit: { unit: second } }";
    assert_eq!(only(missing).rule.unwrap().quota, Quota::Nothing);
    assert_warns(missing, &["`requests_per_unit` is missing, so that nothing passes"]);
    for wrong in ["4294967296", "-1", "'5'", "1.5"] {
        let text =
            format!("{{ key: ip, rate_limit: {{ unit: second, requests_per_unit: {wrong} }} }}");
        assert_eq!(errors(&text).len(), 1, "{wrong}");
    }
}

#[test]
fn unlimited_is_a_rule_too_and_has_no_unit() {
    let level = only("{ key: ldap, rate_limit: { unlimited: true } }");
    assert_eq!(level.rule.unwrap().quota, Quota::Unlimited);
    assert_eq!(
        errors("{ key: a, rate_limit: { unlimited: true, unit: second } }"),
        ["`unit` and `unlimited: true` cannot stand together"]
    );
    assert_warns(
        "{ key: a, rate_limit: { unlimited: true, requests_per_unit: 5, unit: x } }",
        &[
            "`requests_per_unit` has no effect beside `unlimited: true`",
            "`unit` has no effect beside `unlimited: true`",
        ],
    );
    let limited =
        only("{ key: a, rate_limit: { unlimited: false, unit: second, requests_per_unit: 1 } }");
    assert_eq!(limit_text(&limited), "1/second fixed-window");
}

#[test]
fn a_limit_replaces_others_by_name_but_not_itself() {
    let limit = |name: &str, replaces: &str| {
        format!(
            "{{ key: a, rate_limit: {{ unit: day, requests_per_unit: 1, name: {name}, \
             replaces: [{replaces}] }} }}"
        )
    };
    let level = only(&limit("one", "{ name: two }, { name: three }"));
    assert_eq!(level.traits.replaces, ["two", "three"]);
    assert_eq!(level.traits.limit_name.as_deref(), Some("one"));
    assert_eq!(level.rule.unwrap().shown_as.as_deref(), Some("one"));
    assert_eq!(errors(&limit("one", "{ name: one }")), ["the limit `one` cannot replace itself"]);
    assert_eq!(errors(&limit("one", "{ name: '' }")), ["`name` is empty"]);
    assert_eq!(errors(&limit("one", "{ }")), ["`name` is missing"]);
    assert_eq!(
        errors(&limit("one", "two")),
        ["an entry of `replaces` must be a mapping, not text"]
    );
}

#[test]
fn a_name_that_no_header_can_have_is_kept_but_not_shown() {
    for name in ["'caf\u{e9}'", "'a\"b'", r"'a\b'", r#""a\nb""#] {
        let text = format!(
            "{{ key: a, rate_limit: {{ unit: day, requests_per_unit: 1, name: {name} }} }}"
        );
        let level = only(&text);
        assert!(
            level.traits.limit_name.is_some() && level.rule.unwrap().shown_as.is_none(),
            "{name}"
        );
        assert_warns(&text, &["clients are not shown this name"]);
    }
}

#[test]
fn flags_are_kept_and_shadow_mode_is_the_rules_mode() {
    let level = only(
        "{ key: a, value: b*, shadow_mode: true, quota_mode: yes, detailed_metric: true,
           value_to_metric: true, share_threshold: true,
           rate_limit: { unit: day, requests_per_unit: 1 } }",
    );
    let traits = &level.traits;
    assert!(traits.quota_mode && traits.detailed_metric);
    assert!(traits.value_to_metric && traits.share_threshold);
    assert_eq!(level.rule.unwrap().mode, Mode::Shadow);
    assert_warns(
        "{ key: a, shadow_mode: true }, { key: b, quota_mode: true }",
        &[
            "`shadow_mode` has no effect without a `rate_limit` beside it",
            "`quota_mode` has no effect without a `rate_limit` beside it",
        ],
    );
}

#[test]
fn sharing_needs_a_pattern() {
    let message = "`share_threshold` needs a `value` with a `*` in it";
    assert_eq!(errors("{ key: a, value: b, share_threshold: true }"), [message]);
    assert_eq!(errors("{ key: a, share_threshold: true }"), [message]);
    assert!(only("{ key: a, value: '/api*v1', share_threshold: true }").traits.share_threshold);
    assert!(!only("{ key: a, value: b, share_threshold: false }").traits.share_threshold);
}

#[test]
fn metadata_may_hold_anything_and_is_kept_as_json() {
    let level = only(
        r#"{ key: a, metadata: { name: service_1, n: 5, "q": "5", deep: { x: [1.5, ~, true, 'a"b', 010] } } }"#,
    );
    let text = |(name, json): &(String, String)| format!("{name}={json}");
    assert_eq!(
        level.traits.metadata.iter().map(text).collect::<Vec<_>>(),
        [r#"name="service_1""#, "n=5", r#"q="5""#, r#"deep={"x":[1.5,null,true,"a\"b","010"]}"#]
    );
    assert_eq!(errors("{ key: a, metadata: [1] }"), ["`metadata` must be a mapping, not a list"]);
}

#[test]
fn the_same_key_and_value_cannot_come_twice_beside_each_other() {
    let text = "domain: d
descriptors:
  - key: a
    value: b
  - key: a
  - key: a
    value: b
    descriptors:
      - key: a
        value: b
";
    let report = parse_all(&[text], false).unwrap_err();
    assert_eq!(messages(&report, Severity::Error), ["the descriptor `a=b` is already there"]);
    let (_, found) = report.iter().next().unwrap();
    assert_eq!((found.place.line, found.place.column), (6, 10));
    assert_eq!(found.help.as_deref(), Some("remove one of the two; the first is at 1.yaml:3:10"));
}

#[test]
fn merged_domains_keep_the_order_of_the_files_and_share_no_descriptor() {
    let one = "{ domain: d, descriptors: [{ key: a, value: 'x*' }, { key: b }] }";
    let two = "{ domain: d, descriptors: [{ key: a, value: '*' }] }";
    let merged = parse_all(&[one, two], true).unwrap().rules;
    let keys: Vec<&str> =
        merged.domains()[0].descriptors.iter().map(|level| level.key.as_str()).collect();
    assert_eq!((merged.domains().len(), keys), (1, vec!["a", "b", "a"]));
    assert_eq!(parse_all(&[one, two], false).unwrap_err().errors(), 1);
    let report = parse_all(&[one, one], true).unwrap_err();
    assert_eq!(report.errors(), 2);
    assert!(report.to_string().contains("the first is at 1.yaml:1:35"), "{report}");
}

#[test]
fn unknown_fields_are_refused_wherever_they_are_and_all_are_reported() {
    assert_eq!(
        errors(
            "{ key: a, vale: b, rate_limit: { unit: day, requests: 5, requests_per_unit: 5 } },
             { key: b, descriptors: [{ kee: c }] }"
        ),
        ["unknown field `vale`", "unknown field `requests`", "unknown field `kee`"]
    );
    assert_eq!(
        errors("{ key: '' }, { value: b }, b"),
        ["`key` is empty", "`key` is missing", "a descriptor must be a mapping, not text"]
    );
}

#[test]
fn a_known_field_in_the_wrong_place_has_no_effect_and_says_so() {
    let text =
        "{ key: a, unit: day, rate_limit: { unit: day, requests_per_unit: 1, shadow_mode: true } }";
    assert_eq!(only(text).rule.unwrap().mode, Mode::Enforce);
    assert_warns(text, &["`unit` has no effect here", "`shadow_mode` has no effect here"]);
}

#[test]
fn a_domain_needs_a_name_and_its_descriptors_are_checked_all_the_same() {
    let report =
        parse_all(&["{ domain: '', descriptors: [{ key: a, valu: b }] }"], false).unwrap_err();
    assert_eq!(messages(&report, Severity::Error), ["`domain` is empty", "unknown field `valu`"]);
    let report = parse_all(&["{ descriptors: [] }"], false).unwrap_err();
    assert_eq!(messages(&report, Severity::Error), ["`domain` is missing"]);
    assert_eq!(levels(""), []);
    assert!(parse_all(&["domain: d\ndescriptors:\n"], false).is_ok());
}
