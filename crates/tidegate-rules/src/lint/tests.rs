//! Each lint on rules that it is about, and on their neighbours that it is not about.

use super::*;
use crate::glob::Glob;
use crate::path::PathTemplate;
use crate::rule::{
    Descriptor, DescriptorTraits, DescriptorValue, Domain, Mode, Override, Percent, Tiers,
};
use crate::text::parse_limit;

fn limits(texts: &[&str]) -> Quota {
    let limit = |text: &&str| RuleLimit {
        limit: parse_limit(text).unwrap(),
        text: (*text).to_owned(),
        shown_as: None,
    };
    Quota::Limits(texts.iter().map(limit).collect())
}

fn rule(name: &str, change: impl FnOnce(&mut Rule)) -> Rule {
    let mut rule = Rule::new(name, Place { line: 1, column: 1, length: 1, ..Place::default() });
    rule.per = vec!["user".to_owned()];
    rule.quota = limits(&["10/minute"]);
    change(&mut rule);
    rule
}

fn condition(attribute: &str, any_of: Vec<Test>) -> Condition {
    Condition { attribute: attribute.to_owned(), any_of, negated: false }
}

fn not(attribute: &str, any_of: Vec<Test>) -> Condition {
    Condition { negated: true, ..condition(attribute, any_of) }
}

fn exact(text: &str) -> Test {
    Test::Exact(text.to_owned())
}

fn prefix(text: &str) -> Test {
    Test::Prefix(text.to_owned())
}

fn glob(text: &str) -> Test {
    Test::Glob(Glob::new(text))
}

fn path(text: &str) -> Test {
    Test::Path(PathTemplate::parse(text).unwrap())
}

/// The messages about a domain.
fn messages_of(domain: Domain) -> Vec<String> {
    let mut problems = Problems::default();
    lint(&RuleSet { domains: vec![domain] }, &[Place::default()], &mut problems);
    let report = problems.into_report(&[]);
    report.iter().map(|(_, diagnostic)| diagnostic.message.clone()).collect()
}

fn messages(rules: Vec<Rule>) -> Vec<String> {
    messages_of(Domain { name: "api".to_owned(), rules, ..Domain::default() })
}

fn message_of_match(conditions: Vec<Condition>) -> Option<String> {
    messages(vec![rule("a", |rule| rule.conditions = conditions)]).into_iter().next()
}

#[test]
fn ordinary_rules_have_no_warning() {
    let rules = vec![
        rule("a", |_| {}),
        rule("b", |rule| rule.conditions = vec![condition("path", vec![path("/orders/**")])]),
        rule("c", |rule| rule.conditions = vec![not("country", vec![exact("IN")])]),
    ];
    assert_eq!(messages(rules), [""; 0]);
}

#[test]
fn warns_of_an_empty_list_of_values() {
    let message = message_of_match(vec![condition("user", vec![])]).unwrap();
    assert_eq!(message, "the rule `a` can never match: the list of values of `user` is empty");
    assert_eq!(message_of_match(vec![not("user", vec![])]), None);
}

#[test]
fn warns_of_values_that_exclude_each_other() {
    let one_of = |values: &[&str]| values.iter().map(|value| exact(value)).collect::<Vec<_>>();
    let expected = "the rule `a` can never match: no value of `plan` fits all that is said of it";
    for conditions in [
        vec![condition("plan", one_of(&["a", "b"])), condition("plan", one_of(&["c"]))],
        vec![condition("plan", one_of(&["a", "b"])), not("plan", one_of(&["b", "a", "c"]))],
        vec![condition("plan", one_of(&["ab"])), condition("plan", vec![prefix("b")])],
        vec![condition("plan", vec![glob("x*")]), condition("plan", one_of(&["ab"]))],
    ] {
        assert_eq!(message_of_match(conditions).as_deref(), Some(expected));
    }
    for conditions in [
        vec![condition("plan", one_of(&["a", "b"])), condition("plan", one_of(&["b", "c"]))],
        vec![condition("plan", one_of(&["a", "b"])), not("plan", one_of(&["a"]))],
        vec![condition("plan", one_of(&["a"])), condition("user", one_of(&["c"]))],
        vec![condition("plan", vec![prefix("a")]), condition("plan", vec![prefix("b")])],
    ] {
        assert_eq!(message_of_match(conditions), None);
    }
}

#[test]
fn warns_of_an_attribute_that_must_be_there_and_absent() {
    let expected =
        "the rule `a` can never match: `plan` would have to be there and not to be there";
    for everything in [Test::Present, prefix(""), glob("**"), path("/**")] {
        let conditions = vec![not("plan", vec![everything]), condition("plan", vec![prefix("a")])];
        assert_eq!(message_of_match(conditions).as_deref(), Some(expected));
    }
    assert_eq!(message_of_match(vec![not("plan", vec![Test::Present])]), None);
}

#[test]
fn warns_of_counting_by_what_must_be_absent() {
    let absent = || vec![not("user", vec![Test::Present])];
    assert!(message_of_match(absent()).unwrap().contains("counts by it"));
    let shared = rule("a", |rule| {
        rule.conditions = absent();
        rule.missing = Missing::Shared;
    });
    assert_eq!(messages(vec![shared]), [""; 0]);
}

#[test]
fn warns_of_paths_that_are_never_normal() {
    for test in [exact("login"), exact("/a//b"), exact("/a/../b"), prefix("api"), glob("api/*")] {
        let message = message_of_match(vec![condition("path", vec![test])]).unwrap();
        assert!(message.contains("normal form"), "{message}");
    }
    for test in [exact("/login"), prefix("/api"), glob("*/login"), path("/a/{b}"), Test::Present] {
        assert_eq!(message_of_match(vec![condition("path", vec![test])]), None);
    }
    assert_eq!(message_of_match(vec![condition("route", vec![exact("login")])]), None);
    assert_eq!(message_of_match(vec![condition("path", vec![exact("a"), exact("/a")])]), None);
}

#[test]
fn warns_of_a_rule_that_says_the_same_as_another() {
    let conditions =
        || vec![condition("plan", vec![exact("a"), exact("b")]), not("country", vec![exact("IN")])];
    let first = rule("first", |rule| rule.conditions = conditions());
    let second = |change: fn(&mut Rule)| {
        rule("second", |rule| {
            rule.conditions = conditions();
            rule.conditions.reverse();
            rule.conditions[1].any_of.reverse();
            rule.description = Some("other words".to_owned());
            change(rule);
        })
    };
    assert_eq!(
        messages(vec![first.clone(), second(|_| {})]),
        ["the rule `second` says the same as `first`"]
    );
    let changes: [fn(&mut Rule); 5] = [
        |rule| rule.quota = limits(&["11/minute"]),
        |rule| rule.per.push("ip".to_owned()),
        |rule| rule.mode = Mode::Shadow,
        |rule| rule.soft = Some(Percent(10)),
        |rule| rule.conditions[1].negated = true,
    ];
    for change in changes {
        assert_eq!(messages(vec![first.clone(), second(change)]), [""; 0]);
    }
}

#[test]
fn warns_of_what_is_per_key_without_a_per() {
    type Said = fn(&mut Rule);
    let changes: [(&str, Said); 3] = [
        ("tiers", |rule| rule.tiers = Some(Tiers { by: "plan".to_owned(), quotas: vec![] })),
        ("missing", |rule| rule.missing = Missing::Deny),
        ("overrides", |rule| {
            let quota = Quota::Unlimited;
            rule.overrides = vec![Override { values: vec![], quota, expires: None }];
        }),
    ];
    for (field, change) in changes {
        let keyless = rule("a", |rule| {
            rule.per.clear();
            change(rule);
        });
        assert_eq!(messages(vec![keyless]), [format!("the rule `a` has `{field}` but no `per`")]);
        assert_eq!(messages(vec![rule("a", change)]), [""; 0]);
    }
}

#[test]
fn hints_at_a_small_limit_that_all_requests_share() {
    let shared = |text: &str| {
        messages(vec![rule("a", |rule| {
            rule.per.clear();
            rule.quota = limits(&[text]);
        })])
    };
    let expected = "all requests together share the limit `999/minute` of `a`";
    assert_eq!(shared("999/minute"), [expected]);
    assert_eq!(shared("1000/minute"), [""; 0]);
    assert_eq!(shared("5 at once"), [""; 0]);
    let with_condition = rule("a", |rule| {
        rule.per.clear();
        rule.conditions = vec![condition("path", vec![path("/login")])];
    });
    assert_eq!(messages(vec![with_condition]), [""; 0]);
}

#[test]
fn warns_of_a_burst_below_a_hundredth_of_the_count() {
    let burst = |text: &str| messages(vec![rule("a", |rule| rule.quota = limits(&[text]))]);
    for text in ["1000/s burst 9", "1000/s burst 9 stepped", "1000/s leaky-bucket burst 9"] {
        let expected = format!("the burst of `{text}` in the rule `a` is below 1 % of its rate");
        assert_eq!(burst(text), [expected]);
    }
    assert_eq!(burst("1000/s burst 10"), [""; 0]);
    assert_eq!(burst("1000/s fixed-window"), [""; 0]);

    let in_tier = rule("a", |rule| {
        let quotas = vec![("pro".to_owned(), limits(&["500/s burst 1"]))];
        rule.tiers = Some(Tiers { by: "plan".to_owned(), quotas });
    });
    assert_eq!(messages(vec![in_tier]).len(), 1);
}

#[test]
fn warns_of_a_domain_without_rules_and_of_no_rules_at_all() {
    assert_eq!(messages(vec![]), ["the domain `api` has no rules"]);
    let mut problems = Problems::default();
    lint(&RuleSet::default(), &[], &mut problems);
    assert_eq!(
        problems.into_report(&[]).to_string(),
        "warning: there are no rules\n = help: every request is allowed\n"
    );
}

fn level(value: DescriptorValue) -> Descriptor {
    Descriptor {
        key: "path".to_owned(),
        place: Place::default(),
        value,
        rule: Some(rule("path", |_| {})),
        traits: DescriptorTraits::default(),
        children: vec![],
    }
}

fn pattern(text: &str) -> DescriptorValue {
    DescriptorValue::Glob(Glob::new(text))
}

#[test]
fn warns_of_a_pattern_behind_one_that_takes_all_of_it() {
    let messages = |values: [DescriptorValue; 2], is_below: bool| {
        let mut descriptors: Vec<Descriptor> = values.into_iter().map(level).collect();
        if is_below {
            let top = Descriptor { children: descriptors, ..level(DescriptorValue::Any) };
            descriptors = vec![top];
        }
        messages_of(Domain { descriptors, ..Domain::default() })
    };
    let never = |what: &str| vec![format!("`path` {what} is never reached")];
    for is_below in [false, true] {
        for (first, second) in [("/a*", "/a/b*"), ("/*", "/a/*/b*"), ("*", "*b"), ("a*c", "ab*bc")]
        {
            assert_eq!(
                messages([pattern(first), pattern(second)], is_below),
                never(&format!("with the value `{second}`"))
            );
            assert_eq!(messages([pattern(second), pattern(first)], is_below), [""; 0]);
        }
        for values in [[pattern("*"), DescriptorValue::Any], [DescriptorValue::Any, pattern("*")]] {
            assert_eq!(messages(values, is_below), never("without a value"));
        }
        assert_eq!(messages([pattern("/*"), DescriptorValue::Any], is_below), [""; 0]);
        let exact = DescriptorValue::Exact("/a".to_owned());
        assert_eq!(messages([pattern("/*"), exact], is_below), [""; 0]);
    }
}

/// With a square of the work this would take minutes.
#[test]
fn a_hundred_thousand_alike_rules_are_linted_in_one_go() {
    let tests: Vec<Test> = (0..20_000).map(|n| exact(&n.to_string())).collect();
    let others: Vec<Test> = (20_000..40_000).map(|n| exact(&n.to_string())).collect();
    let long = rule("long", |rule| {
        rule.conditions = vec![condition("plan", tests), condition("plan", others)];
    });
    let mut rules: Vec<Rule> = (0..100_000).map(|n| rule(&n.to_string(), |_| {})).collect();
    rules.push(long);
    let descriptors = (0..20_000).map(|n| level(pattern(&format!("{n}*")))).collect();
    let domain = Domain { rules, descriptors, ..Domain::default() };
    let mut problems = Problems::default();
    lint(&RuleSet { domains: vec![domain] }, &[Place::default()], &mut problems);
    assert!(problems.into_report(&[]).warnings() >= 1);
}
