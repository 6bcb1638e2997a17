//! What is prepared for ordinary rules adds what the general way adds, for any rules and requests.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::identity::KeyHasher;
use crate::rule::RuleSet;
use crate::{ParseOptions, Reads, Source};

fn compiled(text: &str) -> CompiledRules {
    let checked = RuleSet::parse(&[Source::new("rules", text)], &ParseOptions::default());
    CompiledRules::new(
        checked.unwrap_or_else(|r| panic!("{text}\n{r}")).rules,
        &KeyHasher::new(&[7; 16]),
    )
}

fn plan(rules: &CompiledRules, request: &[(&str, String)], pressure: Pressure) -> String {
    let attributes: Vec<Attribute<'_>> =
        request.iter().map(|(name, value)| (*name, value.as_str()).into()).collect();
    let now = Timestamp::from_micros(1_000_000);
    let ask = Ask { domain: "api", attributes: &attributes, cost: 3, now, pressure };
    let mut plan = Plan::default();
    let resolved = rules.resolve(&ask, &mut plan);
    format!("{resolved:?} {plan:?}")
}

const ONE: &str = "{ domain: api, rules: [ { name: one, per: [ip], limit: 10/minute } ] }";

#[test]
fn too_many_attributes_are_an_error_also_under_one_rule() {
    let rules = compiled(ONE);
    let many = |count: usize| plan(&rules, &vec![("ip", "1".to_owned()); count], Pressure::NONE);
    assert!(many(ATTRIBUTES_MAX).starts_with("Ok"), "{}", many(ATTRIBUTES_MAX));
    assert!(many(ATTRIBUTES_MAX + 1).starts_with("Err(TooMany"), "{}", many(ATTRIBUTES_MAX + 1));
}

#[test]
fn no_two_limits_have_one_mark() {
    let two = "{ domain: api, rules: [ { name: two, limits: [1/s, 2/minute] } ] }";
    let marks = |rules: &CompiledRules| -> Vec<u64> {
        let ids = 0..rules.limits().len() as u32;
        ids.map(|id| rules.limit_mark(LimitId::new(id)).number()).collect()
    };
    let one = || RuleSet::parse(&[Source::new("rules", ONE)], &ParseOptions::default());
    let mut all = Vec::new();
    for _ in 0..3 {
        let old = compiled(two);
        let hasher = KeyHasher::new(&[7; 16]);
        let new = CompiledRules::following(one().unwrap().rules, &hasher, &old, Timestamp::ZERO);
        all.extend([marks(&old), marks(&new)].concat());
    }
    assert_eq!(all.len(), 3 * 3);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 3 * 3);
}

/// What a rule may say besides, where it is counted by these attributes.
const PARTS: [&str; 20] = [
    "limit: 10/minute",
    "limit: 10/minute",
    "limit: 10/minute, mode: shadow",
    "limit: 7/hour fixed-window",
    "limit: 3 at once",
    "limit: unlimited",
    "limits: [10/minute, 100/hour]",
    "limits: [10/minute, 100/hour, 1000/day]",
    "limits: [10/minute, 100/hour fixed-window], mode: shadow",
    "limits: [10/minute, 3 at once]",
    "limit: 10/minute, tiers: { by: plan, limits: { a: 100/minute, b: unlimited } }",
    "limit: 10/minute, soft: 10%",
    "limit: 10/minute, elastic: { up_to: 150%, while_pressure_below: 0.7 }",
    "limit: 10/minute, priority: { by: plan, reserve: { a: 20% } }",
    "limit: 10/minute, candidate: 5/minute",
    "limit: 10/minute, cost: 2",
    "limit: 10/minute, cost: { attribute: plan, default: 5 }",
    "limit: 10/minute, missing: deny",
    "limit: 10/minute, missing: shared",
    "limit: 10/minute, charge_refused: true",
];
/// The same with so many limits, where it has the usual one.
fn with_limits(part: &str, count: usize) -> String {
    let limits = ["10/minute", "100/hour", "1000/day"][..count].join(", ");
    part.replacen("limit: 10/minute", &format!("limits: [{limits}]"), 1)
}

const MATCHES: [&str; 5] = [
    "",
    "match: { plan: a }, ",
    "match: { plan: { not: a } }, ",
    "match: { path: /a }, ",
    "match: { path: '/{x}' }, ",
];
const PERS: [&str; 6] = ["user", "user", "plan", "path", "host", "user, plan"];

fn rules() -> impl Strategy<Value = String> {
    let rule = (0..MATCHES.len(), 0..PERS.len(), 0..PARTS.len(), 1..4_usize, any::<bool>());
    prop::collection::vec(rule, 1..4).prop_map(|rules| {
        let mut text = String::from("domain: api\nrules:\n");
        for (number, (matches, per, part, count, has_override)) in rules.into_iter().enumerate() {
            let (matches, per, part) = (MATCHES[matches], PERS[per], PARTS[part]);
            let overrides = if has_override && per == "user" && part == PARTS[0] {
                ", overrides: { 'user=a': 1000/minute }"
            } else {
                ""
            };
            let part = with_limits(part, count);
            let _ = writeln!(
                text,
                "  - {{ name: r{number}, {matches}per: [{per}], {part}{overrides} }}"
            );
        }
        text
    })
}

fn requests() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let names = prop::sample::select(vec!["user", "plan", "path", "host", "other"]);
    prop::collection::vec((names, "a|b|/a|//A/|/b/c"), 0..5)
}

proptest! {
    #[test]
    fn an_ordinary_rule_adds_what_the_general_way_adds(
        text in rules(),
        requests in prop::collection::vec(requests(), 1..6),
        is_calm: bool,
    ) {
        let prepared = compiled(&text);
        let mut general = compiled(&text);
        general.forget_ordinary();
        let pressure = if is_calm { Pressure::NONE } else { Pressure::FULL };
        for request in requests {
            let (fast, slow) = (plan(&prepared, &request, pressure), plan(&general, &request, pressure));
            prop_assert_eq!(fast, slow, "{}", text);
        }
    }
}

/// A name that is too long to be compared as whole words.
const LONG: &str = "an_attribute_of_some_length";

proptest! {
    /// With the attribute once, twice and not at all, and with a limit of Envoy's in the same domain.
    #[test]
    fn the_only_rule_adds_what_the_general_way_adds(
        per in prop::sample::select(vec!["user", "ip", LONG, "path", "host"]),
        part in 0..PARTS.len(),
        count in 1..4_usize,
        has_descriptors: bool,
        requests in prop::collection::vec(
            prop::collection::vec(
                (prop::sample::select(vec!["user", "ip", LONG, "path", "host"]), "a|b|/a|//A/"),
                0..5,
            ),
            1..9,
        ),
    ) {
        let part = with_limits(PARTS[part], count);
        let own = format!("domain: api\nrules:\n  - {{ name: r, per: [{per}], {part} }}\n");
        let envoys = "---\ndomain: api\ndescriptors:\n  - key: user\n    \
                      rate_limit: { unit: minute, requests_per_unit: 5 }\n";
        let text = if has_descriptors { own + envoys } else { own };
        let prepared = compiled(&text);
        let mut general = compiled(&text);
        general.forget_ordinary();
        for request in requests {
            let [fast, slow] = [&prepared, &general].map(|rules| plan(rules, &request, Pressure::FULL));
            prop_assert_eq!(fast, slow, "{}", text);
        }
    }
}

proptest! {
    #[test]
    fn attributes_that_no_rule_reads_make_no_difference(
        text in rules(),
        requests in prop::collection::vec(requests(), 1..6),
    ) {
        let rules = compiled(&text);
        for mut request in requests {
            let whole = plan(&rules, &request, Pressure::FULL);
            request.retain(|(name, _)| rules.reads().any_of(Reads::named(name)));
            prop_assert_eq!(plan(&rules, &request, Pressure::FULL), whole, "{}", text);
        }
    }
}

#[test]
fn rules_read_what_they_name_in_any_place() {
    let reads = |rules: &str| compiled(&format!("{{ domain: api, {rules} }}")).reads();
    let rule = |rule: &str| reads(&format!("rules: [ {{ name: a, limit: 9/s, {rule} }} ]"));
    assert_eq!(reads("rules: [ { name: a, limit: 9/s } ]"), Reads::NOTHING);
    assert_eq!(rule("per: [ip]"), Reads::IP);
    assert_eq!(rule("match: { path: /a, method: POST }"), Reads::PATH.and(Reads::METHOD));
    assert_eq!(rule("match: { path: /A, ignore_case: true }"), Reads::PATH);
    assert_eq!(rule("match: { host: { not: a } }"), Reads::HOST);
    assert_eq!(rule("tiers: { by: country, limits: { a: 10/s } }"), Reads::COUNTRY);
    assert_eq!(rule("cost: { attribute: asn, default: 5 }"), Reads::ASN);
    assert_eq!(rule("priority: { by: api_key, reserve: { a: 20% } }"), Reads::API_KEY);
    assert_eq!(rule("per: [user, address]"), Reads::OTHERS.and(Reads::ADDRESS));
    let descriptors =
        "descriptors: [ { key: a, rate_limit: { unit: second, requests_per_unit: 9 } } ]";
    assert_eq!(reads(descriptors), Reads::ALL);
}

#[test]
fn one_rule_for_everybody_is_met_straight() {
    let is_straight = |rules: &str| {
        let rules = compiled(&format!("{{ domain: api, {rules} }}"));
        rules.domain("api").is_some_and(|domain| domain.straight.is_some())
    };
    let rule = "{ name: a, per: [ip], limit: 10/minute }";
    assert!(is_straight(&format!("rules: [ {rule} ]")));
    assert!(!is_straight("rules: [ { name: a, per: [host], limit: 10/minute } ]"));
    assert!(!is_straight(
        "rules: [ { name: a, match: { plan: a }, per: [ip], limit: 10/minute } ]"
    ));
    let other = "{ name: b, per: [ip], limit: 99/hour }";
    assert!(!is_straight(&format!("rules: [ {rule}, {other} ]")));
}

#[test]
fn the_rules_that_most_people_write_are_ordinary() {
    let is_ordinary = |rule: &str| {
        let text = format!("{{ domain: api, rules: [ {{ name: a, {rule} }} ] }}");
        compiled(&text).compiled_rule(RuleId::new(0)).ordinary.is_some()
    };
    assert!(is_ordinary("match: { path: /login }, per: [ip], limit: 10/minute"));
    assert!(is_ordinary("per: [user], limit: 10/minute, mode: shadow"));
    assert!(!is_ordinary("per: [user, ip], limit: 10/minute"));
    assert!(is_ordinary("per: [user], limits: [10/minute, 100/hour]"));
    assert!(!is_ordinary("per: [user], limits: [10/minute, 100/hour], soft: 20%"));
    assert!(!is_ordinary("per: [user], limit: unlimited"));
}
