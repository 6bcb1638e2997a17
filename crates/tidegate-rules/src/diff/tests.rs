//! What is said of changes, field by field.

use proptest::prelude::*;
use tidegate_core::Timestamp;

use super::*;
use crate::rule::{
    Condition, Consistency, Cost, Count, Elastic, Missing, Mode, OnStoreFailure, Override, Percent,
    Pressure, Priority, RuleLimit, Statuses, Test, Tiers,
};
use crate::source::{Place, Source};
use crate::{ParseOptions, parse_limit};

fn limits(texts: &[&str]) -> Quota {
    Quota::Limits(texts.iter().copied().map(limit).collect())
}

fn limit(text: &str) -> RuleLimit {
    RuleLimit { limit: parse_limit(text).unwrap(), text: text.to_owned(), shown_as: None }
}

fn rule(name: &str, quota: Quota) -> Rule {
    let mut rule = Rule::new(name, Place::default());
    rule.per = vec!["ip".to_owned()];
    rule.quota = quota;
    rule
}

fn rules(domain: &str, rules: Vec<Rule>) -> RuleSet {
    let domain = Domain { name: domain.to_owned(), rules, descriptors: Vec::new() };
    RuleSet { domains: vec![domain] }
}

/// The change of one rule.
fn change(old: Rule, new: Rule) -> Change {
    let [change] = diff(&rules("api", vec![old]), &rules("api", vec![new])).try_into().unwrap();
    change
}

/// The change of a rule from one quota to another.
fn quota_change(old: Quota, new: Quota) -> Change {
    change(rule("login", old), rule("login", new))
}

fn envoy(descriptors: &str) -> RuleSet {
    let text = format!("{{ domain: d, descriptors: [{descriptors}] }}");
    RuleSet::parse(&[Source::new("a.yaml", text)], &ParseOptions::default()).unwrap().rules
}

fn lines(changes: &[Change]) -> Vec<String> {
    changes.iter().map(Change::to_string).collect()
}

#[test]
fn a_changed_number_keeps_what_has_been_spent() {
    let change = quota_change(limits(&["10/minute"]), limits(&["20/minute"]));
    assert_eq!(
        change.to_string(),
        "api/login: limit 10/minute -> 20/minute (what has been spent stays spent)"
    );
    assert!(change.keeps_state && !change.large);
    assert_eq!(change.limit, "20/minute");
}

#[test]
fn another_algorithm_period_or_attribute_counts_anew() {
    let algorithm = quota_change(limits(&["10/minute"]), limits(&["10/minute fixed-window"]));
    assert_eq!(
        algorithm.to_string(),
        "api/login: algorithm token-bucket -> fixed-window (counts anew)"
    );
    let both = quota_change(limits(&["10/minute"]), limits(&["5/hour sliding-log"]));
    assert_eq!(
        both.to_string(),
        "api/login: algorithm token-bucket -> sliding-log; limit 10/minute -> 5/hour (counts anew)"
    );
    let period = quota_change(limits(&["10/minute"]), limits(&["10/hour"]));
    let mut by_user = rule("login", limits(&["10/minute"]));
    by_user.per = vec!["user".to_owned()];
    let attribute = change(rule("login", limits(&["10/minute"])), by_user);
    assert_eq!(attribute.to_string(), "api/login: per ip -> user (counts anew)");
    for change in [algorithm, both, period, attribute] {
        assert!(!change.keeps_state && change.consequence == "counts anew");
    }
}

#[test]
fn of_several_limits_those_that_stay_go_on_counting() {
    let added = quota_change(limits(&["10/minute"]), limits(&["10/minute", "500/hour"]));
    assert!(!added.keeps_state && added.consequence.starts_with("what has been spent stays spent"));
    let removed = quota_change(limits(&["10/minute", "500/hour"]), limits(&["10/minute"]));
    assert!(removed.keeps_state);
    // The second of two alike has a counter of its own.
    let doubled = quota_change(limits(&["10/minute"]), limits(&["10/minute", "20/minute"]));
    assert!(!doubled.keeps_state);
    let swapped = quota_change(limits(&["10/minute", "5/day"]), limits(&["5/day", "10/minute"]));
    assert!(swapped.keeps_state && !swapped.large);
}

#[test]
fn added_and_removed_rules_and_domains_are_named() {
    let old = rules("api", vec![rule("a", limits(&["1/s"])), rule("b", limits(&["2/s"]))]);
    let mut new = rules("api", vec![rule("c", Quota::Unlimited), rule("b", limits(&["2/s"]))]);
    new.domains.extend(rules("web", vec![rule("a", limits(&["1/s"]))]).domains);
    assert_eq!(
        lines(&diff(&old, &new)),
        [
            "api/c: added, limit unlimited (it counts nothing)",
            "api/a: removed, limit was 1/s (what has been spent is forgotten)",
            "web/a: added, limit 1/s (counts from zero)",
        ]
    );
    assert_eq!(
        lines(&diff(&new, &old))[2],
        "web/a: removed, limit was 1/s (what has been spent is forgotten)"
    );
}

#[test]
fn the_place_and_the_order_of_rules_are_no_change() {
    let (one, other) = (rule("a", limits(&["1/s"])), rule("b", limits(&["2/s"])));
    let mut moved = one.clone();
    moved.place = Place { source: 1, line: 2, column: 3, length: 4 };
    let old = rules("api", vec![one, other.clone()]);
    assert_eq!(diff(&old, &rules("api", vec![other, moved])), []);
}

#[test]
fn ten_times_up_or_down_is_large_and_less_is_not() {
    let is_large = |old: &[&str], new: &[&str]| {
        let (up, down) =
            (quota_change(limits(old), limits(new)), quota_change(limits(new), limits(old)));
        assert_eq!(up.large, down.large);
        up.large
    };
    assert!(is_large(&["10/minute"], &["100/minute"]));
    assert!(!is_large(&["10/minute"], &["99/minute"]));
    assert!(is_large(&["10/minute"], &["10/hour"]), "a sixtieth");
    assert!(!is_large(&["10/minute"], &["600/hour"]), "the same rate");
    assert!(is_large(&["10/s burst 10"], &["10/s burst 100"]));
    assert!(is_large(&["10/s"], &["10/s", "100/day"]), "the slowest holds");
    assert!(is_large(&["5 at once"], &["50 at once"]) && !is_large(&["5 at once"], &["10/s"]));
    for (old, new) in [
        (Quota::Unlimited, limits(&["1/s"])),
        (limits(&["1/s"]), Quota::Nothing),
        (Quota::Nothing, Quota::Unlimited),
    ] {
        assert!(quota_change(old.clone(), new.clone()).large);
        assert!(quota_change(new, old).large);
    }
}

#[test]
fn a_tier_or_an_override_that_comes_is_compared_with_what_its_requests_had() {
    let with = |tier: Option<&str>, other: Option<&str>| {
        let mut rule = rule("a", limits(&["10/s"]));
        let quotas = tier.map(|text| ("pro".to_owned(), limits(&[text])));
        rule.tiers = Some(Tiers { by: "plan".to_owned(), quotas: quotas.into_iter().collect() });
        rule.overrides.extend(other.map(|text| Override {
            values: vec!["42".to_owned()],
            quota: limits(&[text]),
            expires: Some(Timestamp::from_secs(1_774_785_600)),
        }));
        rule
    };
    let small = change(with(None, None), with(Some("50/s"), Some("50/s")));
    assert_eq!(
        small.to_string(),
        "api/a: tier pro none -> 50/s; \
         override ip=42 none -> 50/s until 2026-03-29T12:00:00Z (what has been spent stays spent)"
    );
    assert!(!small.large && small.keeps_state);
    assert!(change(with(None, None), with(Some("100/s"), None)).large);
    assert!(change(with(None, Some("1/s")), with(None, None)).large);
    assert!(change(with(None, Some("20/s")), with(None, Some("200/s"))).large);
}

#[test]
fn every_field_of_a_rule_is_compared() {
    type Edit = fn(&mut Rule);
    let edits: [(&str, Edit); 17] = [
        ("match everything -> path not /a or present", |rule| {
            let any_of = vec![Test::Exact("/a".to_owned()), Test::Present];
            rule.conditions =
                vec![Condition { attribute: "path".to_owned(), any_of, negated: true }];
        }),
        ("ignore_case false -> true", |rule| rule.ignore_case = true),
        ("per ip -> none", |rule| rule.per = Vec::new()),
        ("limit 1/s -> nothing", |rule| rule.quota = Quota::Nothing),
        ("limit's shown_as none -> x", |rule| {
            let mut limit = limit("1/s");
            limit.shown_as = Some("x".to_owned());
            rule.quota = Quota::Limits(vec![limit]);
        }),
        ("missing skip -> deny", |rule| rule.missing = Missing::Deny),
        ("cost 1 -> attribute b, default 2", |rule| {
            rule.cost = Cost::Attribute { name: "b".to_owned(), default: 2 };
        }),
        ("soft none -> 10%", |rule| rule.soft = Some(Percent(10))),
        ("elastic none -> up to 150% below 0.7", |rule| {
            let while_pressure_below = Pressure::from_millionths(700_000).unwrap();
            rule.elastic = Some(Elastic { up_to: Percent(150), while_pressure_below });
        }),
        ("priority none -> by class: 20% for vip", |rule| {
            let reserve = vec![("vip".to_owned(), Percent(20))];
            rule.priority = Some(Priority { by: "class".to_owned(), reserve });
        }),
        ("count on-request -> on-response 401, 500-599", |rule| {
            let ranges = [(401, 401), (500, 599)].map(|(from, to)| Statuses { from, to });
            rule.count = Count::OnResponse(ranges.to_vec());
        }),
        ("charge_refused false -> true", |rule| rule.charge_refused = true),
        ("mode enforce -> shadow", |rule| rule.mode = Mode::Shadow),
        ("candidate none -> 5/s", |rule| rule.candidate = vec![limit("5/s")]),
        ("on_store_failure none -> local", |rule| {
            rule.on_store_failure = Some(OnStoreFailure::Local);
        }),
        ("consistency none -> leased", |rule| rule.consistency = Some(Consistency::Leased)),
        ("description none -> a\\nb", |rule| rule.description = Some("a\nb".to_owned())),
    ];
    for (expected, edit) in edits {
        let old = rule("a", limits(&["1/s"]));
        let mut new = old.clone();
        edit(&mut new);
        let line = change(old, new).to_string();
        assert!(line.starts_with(&format!("api/a: {expected} (")), "{line}");
    }
}

#[test]
fn descriptors_are_compared_by_their_path() {
    let old = envoy(
        "{ key: a, value: x, descriptors: [
             { key: b, rate_limit: { unit: day, requests_per_unit: 5 } }] },
         { key: ip, rate_limit: { unit: second, requests_per_unit: 5 } },
         { key: ip, value: 10.0.0.1 }",
    );
    let new = envoy(
        "{ key: ip, value: 10.0.0.1, rate_limit: { unit: second, requests_per_unit: 0 } },
         { key: ip, shadow_mode: true, quota_mode: true, metadata: { a: 1 },
           rate_limit: { unit: second, requests_per_unit: 5, name: n, replaces: [{ name: m }] } },
         { key: a, value: x, descriptors: [
             { key: b, rate_limit: { unit: day, requests_per_unit: 6 } }] }",
    );
    assert!(diff(&old, &new)[0].large, "from everything to nothing");
    assert_eq!(
        lines(&diff(&old, &new)),
        [
            "d/ip=10.0.0.1: limit none -> nothing (it counts nothing)",
            "d/ip: mode enforce -> shadow; shown_as none -> n; name none -> n; replaces none -> m; \
             quota_mode false -> true; metadata none -> a: 1 (what has been spent stays spent)",
            "d/a=x / b: limit 5/day fixed-window -> 6/day fixed-window \
             (what has been spent stays spent)",
        ]
    );
}

#[test]
fn sharing_at_any_level_changes_what_is_counted_by() {
    let level = |shares: bool| {
        envoy(&format!(
            "{{ key: a, value: x*, share_threshold: {shares}, descriptors: [
                 {{ key: b, rate_limit: {{ unit: day, requests_per_unit: 5 }} }}] }}"
        ))
    };
    assert_eq!(
        lines(&diff(&level(false), &level(true))),
        ["d/a=x* / b: share_threshold none -> x* (counts anew)"]
    );
}

#[test]
fn a_change_is_one_line_whatever_names_it_has() {
    let change =
        change(rule("a\nb\u{1b}[2J", Quota::Nothing), rule("a\nb\u{1b}[2J", limits(&["1/s"])));
    let line = change.to_string();
    assert!(!line.contains(char::is_control), "{line}");
}

proptest! {
    #[test]
    fn there_is_a_change_for_every_rule_that_differs_and_no_other(
        old in prop::collection::btree_map("[a-e]", 1_u32..3, 0..5),
        new in prop::collection::btree_map("[a-e]", 1_u32..3, 0..5),
    ) {
        let set = |all: &std::collections::BTreeMap<String, u32>| {
            let one = |(name, count): (&String, &u32)| rule(name, limits(&[&format!("{count}/s")]));
            rules("api", all.iter().map(one).collect())
        };
        let changes = diff(&set(&old), &set(&new));
        for name in ["a", "b", "c", "d", "e"] {
            let found: Vec<&Change> = changes.iter().filter(|change| change.rule == name).collect();
            prop_assert_eq!(found.len(), usize::from(old.get(name) != new.get(name)));
            if let [change] = found[..] {
                let is_right = match change.kind {
                    ChangeKind::Added => !old.contains_key(name),
                    ChangeKind::Removed => !new.contains_key(name),
                    ChangeKind::Changed { .. } => old.contains_key(name) && new.contains_key(name),
                };
                prop_assert!(is_right);
            }
        }
    }
}
