//! Whatever rules are written, what is read is what was written.

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use crate::diagnostic::Problems;
use crate::forms::check_count;
use crate::rule::{
    Condition, Cost, Count, Elastic, Missing, Mode, Override, Percent, Pressure, Priority, Quota,
    Rule, RuleLimit, Statuses, Test, Tiers,
};
use crate::schema::tests::{complaints, validator};
use crate::{ParseOptions, Place, RuleSet, Source, describe, parse_limit};

/// A rule, and its fields as text.
type Written = (Rule, Vec<String>);

/// Text in double quotes, as YAML and JSON have it.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// Values with everything in them that could be taken for a mark.
fn values() -> impl Strategy<Value = String> {
    "[a-z0-9 ,=:*#'\"\\\\{}\\[\\]/é-]{0,12}"
}

/// A value that can stand in the text of a key: no separator in it, which two values could also
/// make between them.
fn key_values() -> impl Strategy<Value = String> {
    values().prop_map(|value| value.replace(',', ",_"))
}

/// Limits of different periods, with their texts.
fn limits() -> impl Strategy<Value = (Quota, String)> {
    let units = subsequence(vec!["s", "minute", "3h", "day", "90s"], 1..4);
    let endings = select(vec!["", " burst 7", " sliding-log", " leaky-bucket", " fixed-window"]);
    let limits = (units, 1_u64..100_000, endings).prop_map(|(units, count, ending)| {
        let texts: Vec<String> =
            units.iter().map(|unit| format!("{count}/{unit}{ending}")).collect();
        let limits = texts.iter().map(|text| limit(text)).collect();
        (Quota::Limits(limits), format!("[{}]", texts.join(", ")))
    });
    prop_oneof![4 => limits, 1 => Just((Quota::Unlimited, "unlimited".to_owned()))]
}

fn limit(text: &str) -> RuleLimit {
    let limit = parse_limit(text).unwrap();
    RuleLimit { text: describe(&limit), limit, shown_as: None }
}

/// `limit` or `limits`, whichever the quota needs.
fn quota_field((quota, text): &(Quota, String)) -> String {
    let name = if *quota == Quota::Unlimited { "limit" } else { "limits" };
    format!("{name}: {text}")
}

/// Adds a field to a rule.
fn with<T: std::fmt::Debug>(
    rules: impl Strategy<Value = Written>,
    values: impl Strategy<Value = T>,
    set: impl Fn(&mut Rule, T) -> String,
) -> impl Strategy<Value = Written> {
    (rules, proptest::option::of(values)).prop_map(move |((mut rule, mut fields), value)| {
        fields.extend(value.map(|value| set(&mut rule, value)));
        (rule, fields)
    })
}

/// A rule with who is counted, and how much each may take.
fn counted() -> impl Strategy<Value = Written> {
    let per = subsequence(vec!["user", "ip", "path", "header:x-a"], 1..=3).prop_shuffle();
    let overrides = proptest::collection::btree_map(
        proptest::collection::vec(key_values(), 3),
        (limits(), proptest::option::of(1_u64..4_000_000_000)),
        0..4,
    );
    (per, limits(), overrides).prop_map(|(per, quota, overrides)| {
        let mut rule = Rule::new("a", Place::default());
        let mut fields = vec![format!("per: [{}]", per.join(", ")), quota_field(&quota)];
        rule.quota = quota.0;
        let mut written = String::new();
        for (values, (quota, expires)) in overrides {
            let values = values[..per.len()].to_vec();
            if rule.overrides.iter().any(|found| found.values == values) {
                continue;
            }
            let pairs: Vec<String> =
                per.iter().zip(&values).map(|(name, value)| format!("{name}={value}")).collect();
            let expires_text = expires.map_or_else(String::new, |secs| {
                format!(", expires: {}", jiff::Timestamp::from_second(secs.cast_signed()).unwrap())
            });
            write!(
                written,
                "{}: {{{}{expires_text}}},",
                quoted(&pairs.join(", ")),
                quota_field(&quota)
            )
            .unwrap();
            let expires = expires.map(tidegate_core::Timestamp::from_secs);
            rule.overrides.push(Override { values, quota: quota.0, expires });
        }
        fields.push(format!("overrides: {{{written}}}"));
        rule.per = per.into_iter().map(str::to_owned).collect();
        (rule, fields)
    })
}

/// A rule with what else it can say.
fn rules() -> impl Strategy<Value = Written> {
    let rules = with(counted(), values(), |rule, value| {
        let test = Test::Exact(value.clone());
        rule.conditions.push(Condition {
            attribute: "tag".into(),
            any_of: vec![test],
            negated: true,
        });
        format!("match: {{tag: {{not: {}}}}}", quoted(&value))
    });
    let rules = with(rules, (values(), limits()), |rule, (value, quota)| {
        let text = format!("tiers: {{by: plan, limits: {{{}: {}}}}}", quoted(&value), quota.1);
        rule.tiers = Some(Tiers { by: "plan".into(), quotas: vec![(value, quota.0)] });
        text
    });
    let rules = with(rules, 1_u32..=1_000, |rule, percent| {
        rule.soft = Some(Percent(percent));
        format!("soft: {percent}%")
    });
    let rules = with(rules, (100_u32..=1_000, 1_u32..1_000_000), |rule, (up_to, millionths)| {
        let while_pressure_below = Pressure::from_millionths(millionths).unwrap();
        rule.elastic = Some(Elastic { up_to: Percent(up_to), while_pressure_below });
        format!("elastic: {{up_to: {up_to}%, while_pressure_below: 0.{millionths:06}}}")
    });
    let rules = with(rules, 1_u32..50, |rule, percent| {
        let reserve = vec![("b".into(), Percent(percent)), ("a".into(), Percent(percent))];
        rule.priority = Some(Priority { by: "class".into(), reserve });
        format!("priority: {{by: class, reserve: {{b: {percent}%, a: {percent}%}}}}")
    });
    let rules = with(rules, (100_u16..600, 100_u16..600), |rule, (a, b)| {
        let (from, to) = (a.min(b), a.max(b));
        rule.count = Count::OnResponse(vec![Statuses { from, to }]);
        format!("count: on-response, statuses: [{from}-{to}]")
    });
    let rules = with(rules, 1_u64..=1 << 44, |rule, cost| {
        rule.cost = Cost::Number(cost);
        format!("cost: {cost}")
    });
    with(rules, any::<bool>(), |rule, flag| {
        (rule.mode, rule.missing) = (Mode::Shadow, Missing::Shared);
        rule.charge_refused = flag;
        rule.candidate = vec![limit("77/s")];
        format!("mode: shadow, missing: shared, charge_refused: {flag}, candidate: 77/s")
    })
}

proptest! {
    #[test]
    fn a_rule_that_was_read_says_what_was_written((rule, mut fields) in rules().prop_flat_map(
        |(rule, fields)| (Just(rule), Just(fields).prop_shuffle())
    )) {
        fields.push("name: a".into());
        let text = format!("{{domain: api, rules: [{{{}}}]}}", fields.join(", "));
        match RuleSet::parse(&[Source::new("", text.as_str())], &ParseOptions::default()) {
            Ok(checked) => prop_assert_eq!(&checked.rules.domains()[0].rules, &[rule]),
            Err(report) => prop_assert!(false, "{}", report),
        }
        prop_assert_eq!(complaints(&VALIDATOR, &text), [""; 0], "{}", text);
    }
}

static VALIDATOR: std::sync::LazyLock<jsonschema::Validator> = std::sync::LazyLock::new(validator);

#[test]
fn a_set_has_a_largest_number_of_rules() {
    let text = "{domain: a, rules: [{name: x, limit: 1/s}, {name: y, limit: 1/s}]}\n---\n\
                {domain: b, descriptors: [{key: c, descriptors: [{key: d}]}]}";
    let rules = RuleSet::parse(&[Source::new("", text)], &ParseOptions::default()).unwrap().rules;
    for (rules_max, is_refused) in [(3, true), (4, false)] {
        let mut problems = Problems::default();
        check_count(rules.domains(), rules_max, &mut problems);
        assert_eq!(problems.has_errors(), is_refused, "at most {rules_max}");
    }
}
