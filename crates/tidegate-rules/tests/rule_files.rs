//! The rule files that users start from are free of errors and warnings, and say what they claim.

use tidegate_rules::rule::{Count, Mode, Quota, Rule};
use tidegate_rules::{ParseOptions, RuleSet, Source};

const SHORT: &str = include_str!("../../../examples/rules/short.yaml");
const ENVOY: &str = include_str!("../../../examples/rules/envoy.yaml");
const OWN: &str = include_str!("../../../examples/rules/tidegate.yaml");
const JSON: &str = include_str!("../../../examples/rules/tidegate.json");

fn parse(name: &str, text: &str) -> RuleSet {
    match RuleSet::parse(&[Source::new(name, text)], &ParseOptions::default()) {
        Ok(checked) if checked.warnings.is_empty() => checked.rules,
        Ok(checked) => panic!("{}", checked.warnings),
        Err(report) => panic!("{report}"),
    }
}

#[test]
fn the_short_example_has_a_rule_per_document() {
    let rules = parse("short.yaml", SHORT);
    let names = |domain: &str| -> Vec<&str> {
        let domain = rules.domain(domain).expect("the domain");
        domain.rules.iter().map(|rule| rule.name.as_str()).collect()
    };
    assert_eq!(names("messaging"), ["email"]);
    assert_eq!(names("auth"), ["ip", "user"]);
    assert_eq!(names("reports"), ["account"]);
}

#[test]
fn the_envoy_example_has_descriptors_and_no_rules() {
    let rules = parse("envoy.yaml", ENVOY);
    let domain = rules.domain("storefront").expect("the domain");
    assert_eq!((domain.descriptors.len(), domain.rules.len()), (6, 0));
}

#[test]
fn the_example_of_the_own_form_uses_every_field_once() {
    let rules = parse("tidegate.yaml", OWN);
    let rules = &rules.domain("shop").expect("the domain").rules;
    let uses = |what: &str, is_used: fn(&Rule) -> bool| {
        assert!(rules.iter().any(is_used), "no rule has {what}");
    };
    uses("conditions", |rule| rule.conditions.len() > 1);
    uses("ignore_case", |rule| rule.ignore_case);
    uses("several in per", |rule| rule.per.len() > 1);
    uses("limits", |rule| matches!(&rule.quota, Quota::Limits(limits) if limits.len() > 1));
    uses("tiers", |rule| rule.tiers.is_some());
    uses("overrides", |rule| rule.overrides.iter().any(|found| found.expires.is_some()));
    uses("soft", |rule| rule.soft.is_some());
    uses("elastic", |rule| rule.elastic.is_some());
    uses("priority", |rule| rule.priority.is_some());
    uses("count", |rule| matches!(rule.count, Count::OnResponse(_)));
    uses("charge_refused", |rule| rule.charge_refused);
    uses("mode", |rule| rule.mode == Mode::Shadow);
    uses("candidate", |rule| !rule.candidate.is_empty());
    uses("on_store_failure", |rule| rule.on_store_failure.is_some());
    uses("consistency", |rule| rule.consistency.is_some());
    uses("shown_as", |rule| rule.shown_as.is_some());
    uses("description", |rule| rule.description.is_some());
}

#[test]
fn the_json_example_is_read_like_yaml() {
    let rules = parse("tidegate.json", JSON);
    let rules = &rules.domain("api").expect("the domain").rules;
    assert_eq!(rules[0].overrides[0].values, ["42"]);
    assert_eq!(rules[1].shown_name(), "parallel downloads");
}
