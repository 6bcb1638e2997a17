//! The schema against the parser: the same fields, the same words, and the same opinion of examples.

use std::collections::BTreeSet;

use jsonschema::Validator;
use serde_json::Value as Json;

use super::schema;
use crate::diagnostic::Problems;
use crate::tree::{self, Node, Scalar, Value};
use crate::{ParseOptions, RuleSet, Source};

fn schema_json() -> Json {
    serde_json::from_str(schema()).unwrap()
}

pub(crate) fn validator() -> Validator {
    jsonschema::draft202012::new(&schema_json()).unwrap()
}

/// What the schema says against any document of a text.
pub(crate) fn complaints(validator: &Validator, text: &str) -> Vec<String> {
    let mut problems = Problems::default();
    let documents = tree::documents(&Source::new("", text), 0, &mut problems);
    assert!(!problems.has_errors() && !documents.is_empty(), "{text}");
    let documents: Vec<Json> = documents.iter().map(json).collect();
    documents.iter().flat_map(|json| validator.iter_errors(json)).map(|e| e.to_string()).collect()
}

/// What an editor takes a node for.
fn json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Scalar(Scalar { text, plain: true }) => match serde_json::from_str(text) {
            Ok(json @ (Json::Bool(_) | Json::Number(_))) => json,
            _ => Json::String(text.clone()),
        },
        Value::Scalar(Scalar { text, plain: false }) => Json::String(text.clone()),
        Value::List(nodes) => nodes.iter().map(json).collect(),
        Value::Map(entries) => {
            entries.iter().map(|(key, node)| (key.text.clone(), json(node))).collect()
        }
    }
}

/// The first mistake that the parser finds, with its help.
fn mistake(text: &str) -> Option<(String, String)> {
    let report = RuleSet::parse(&[Source::new("", text)], &ParseOptions::default()).err()?;
    let (_, first) = report.iter().next()?;
    Some((first.message.clone(), first.help.clone().unwrap_or_default()))
}

/// The words in backquotes that the parser would have accepted in place of `zzz`.
fn accepted(text: &str) -> BTreeSet<String> {
    let (message, help) = mistake(text).unwrap();
    assert!(message.contains("`zzz`") && help.starts_with("use "), "{text}: {message}: {help}");
    help.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn rule(fields: &str) -> String {
    format!("{{domain: a, rules: [{{name: a, limit: 1/s, {fields}}}]}}")
}

fn envoy(fields: &str) -> String {
    format!("{{domain: a, descriptors: [{{key: a, {fields}}}]}}")
}

/// Every mapping with fields of its own: where it is in the schema, and a text with one field too
/// many.
fn mappings() -> Vec<(&'static str, String)> {
    let limit = |limit: &str| format!("{{domain: a, rules: [{{name: a, {limit}}}]}}");
    vec![
        ("/$defs/own", "{domain: a, rules: [], zzz: 1}".into()),
        ("/$defs/rule", rule("zzz: 1")),
        ("/$defs/rule/properties/tiers", rule("tiers: {by: a, limits: {b: 1/s}, zzz: 1}")),
        ("/$defs/rule/properties/cost/anyOf/2", rule("cost: {attribute: a, zzz: 1}")),
        (
            "/$defs/rule/properties/elastic",
            rule("elastic: {up_to: 100%, while_pressure_below: 1, zzz: 1}"),
        ),
        ("/$defs/rule/properties/priority", rule("priority: {by: a, reserve: {b: 1%}, zzz: 1}")),
        ("/$defs/comparison", rule("match: {a: {zzz: 1}}")),
        ("/$defs/limitParts", limit("limit: {rate: 1/s, zzz: 1}")),
        ("/$defs/override", rule("per: a, overrides: {a=1: {limit: 1/s, zzz: 1}}")),
        ("/$defs/listedOverride", rule("per: a, overrides: [{for: {a: 1}, limit: 1/s, zzz: 1}]")),
        (
            "/$defs/short",
            "{domain: a, key: b, rate_limit: {unit: day, requests: 1}, zzz: 1}".into(),
        ),
        (
            "/$defs/short/properties/rate_limit",
            "{domain: a, key: b, rate_limit: {unit: day, requests: 1, zzz: 1}}".into(),
        ),
        ("/$defs/envoy", "{domain: a, descriptors: [], zzz: 1}".into()),
        ("/$defs/descriptor", envoy("zzz: 1")),
        ("/$defs/rateLimit", envoy("rate_limit: {unit: day, requests_per_unit: 1, zzz: 1}")),
        (
            "/$defs/rateLimit/properties/replaces/items",
            envoy("rate_limit: {unlimited: true, replaces: [{name: b, zzz: 1}]}"),
        ),
    ]
}

#[test]
fn the_schema_and_the_parser_know_the_same_fields() {
    let schema = schema_json();
    for (pointer, text) in mappings() {
        let properties = schema.pointer(pointer).unwrap()["properties"].as_object().unwrap();
        let known: BTreeSet<String> = properties.keys().cloned().collect();
        assert_eq!(known, accepted(&text), "{pointer}");
    }
}

#[test]
fn the_schema_and_the_parser_know_the_same_words() {
    let schema = schema_json();
    let own =
        |name: &str| (format!("/$defs/rule/properties/{name}/enum"), rule(&format!("{name}: zzz")));
    let part = |name: &str| {
        let text =
            format!("{{domain: a, rules: [{{name: a, limit: {{rate: 1/s, {name}: zzz}}}}]}}");
        (format!("/$defs/limitParts/properties/{name}/enum"), text)
    };
    let mut cases: Vec<(String, String)> =
        ["missing", "count", "mode", "on_store_failure", "consistency"].map(own).into();
    cases.extend(["algorithm", "refill", "align"].map(part));
    let unit = "/$defs/unit/anyOf/0/enum";
    cases.push((unit.into(), "{domain: a, key: b, rate_limit: {unit: zzz, requests: 1}}".into()));
    cases.push((unit.into(), envoy("rate_limit: {unit: zzz, requests_per_unit: 1}")));
    for (pointer, text) in cases {
        let words = schema.pointer(&pointer).unwrap().as_array().unwrap();
        let words: BTreeSet<String> = words.iter().map(|w| w.as_str().unwrap().into()).collect();
        assert_eq!(words, accepted(&text), "{pointer}");
    }
}

#[test]
fn every_mapping_is_closed_and_every_field_described() {
    let schema = schema_json();
    let (mut closed, mut pending) = (0, vec![&schema]);
    while let Some(json) = pending.pop() {
        match json {
            Json::Object(entries) => pending.extend(entries.values()),
            Json::Array(items) => pending.extend(items),
            _ => {}
        }
        // Two schemas have properties as conditions on the rule around them.
        if json.get("properties").is_none() || json.get("type").is_none() {
            continue;
        }
        for (name, property) in json["properties"].as_object().unwrap() {
            let target = property["$ref"].as_str().map(|path| schema.pointer(&path[1..]).unwrap());
            let described = [Some(property), target].into_iter().flatten();
            let described = described.filter(|json| json["description"].is_string()).count();
            assert!(described > 0, "`{name}` has no description");
        }
        match &json["additionalProperties"] {
            Json::Bool(false) => closed += 1,
            other => assert!(json["description"].is_string() && other.is_object(), "{json}"),
        }
    }
    assert_eq!(closed, mappings().len());
}

#[test]
fn what_is_right_is_valid() {
    let validator = validator();
    for text in [
        "{domain: a, key: email, rate_limit: {unit: day, requests: 5}}",
        "[{domain: a, key: b, rate_limit: {unit: DAY, requests: 1_000}}, {domain: b, rules: []}]",
        "{domain: a}",
        "{domain: a, descriptors: }",
        &envoy("value: 5, rate_limit: {unit: Second, requests_per_unit: 0}, shadow_mode: true"),
        &envoy("descriptors: [{key: b, rate_limit: {unlimited: true, replaces: [{name: c}]}}]"),
        &envoy("detailed_metric: true, metadata: {a: [1, {b: c}]}"),
        &rule(
            "match: {path: '/a/**', method: [GET, HEAD], ip: {not: 10.0.0.0/8}, ignore_case: true}",
        ),
        &rule("match: {header:x-a: {not: {in: [1, true]}}, b: {present: false}, c: [{prefix: d}]}"),
        &rule("per: [user, ip], overrides: {'user=1, ip=::1': {rate: 1/s}}"),
        &rule("per: user, overrides: [{for: {user: 1}, limits: [1/s], expires: 2030-12-31}]"),
        &rule("tiers: {by: plan, limits: {a: unlimited, b: [1/s], c: {at_once: 5}}}"),
        &rule("count: on-response, statuses: [401, 5xx, 500-503]"),
        &rule(
            "cost: {attribute: tokens, default: 0}, soft: 10%, shown_as: 'a b [c]', missing: deny",
        ),
        &rule("elastic: {up_to: 150%, while_pressure_below: 0.7}, candidate: [2/s]"),
        &rule("priority: {by: class, reserve: {critical: 20%}}, description: x, mode: shadow"),
    ] {
        assert_eq!(mistake(text), None, "{text}");
        assert_eq!(complaints(&validator, text), [""; 0], "{text}");
    }
}

#[test]
fn every_limit_that_can_be_written_is_valid() {
    let validator = validator();
    for limit in [
        "10/s",
        "10 / sec",
        "10 PER second",
        "300 per 3h",
        "5 per 1m30s",
        "1_000/min",
        "10k/s",
        "2M/hour",
        "1/5µs",
        "20/s burst 50",
        "20/s burst 50 stepped",
        "1/s leaky-bucket burst 5",
        "5/day fixed-window in Europe/Berlin",
        "5/minute fixed-window from-first-request",
        "500/hour sliding-slots slots 60 per-slot 10",
        "5 at once",
        "5 at_once",
        "5 concurrent",
        "5 At Once for 30s",
        "{rate: 300 per 3h, burst: 5, refill: stepped}",
        "{rate: 5/week, algorithm: fixed-window, align: calendar, zone: UTC, shown_as: a}",
        "{rate: 5/hour, algorithm: sliding-slots, slots: 60, per_slot: 1}",
        "{at_once: 5, expires_after: 1m30s}",
        "unlimited",
    ] {
        let text = format!("{{domain: a, rules: [{{name: a, limit: {limit}}}]}}");
        assert_eq!(mistake(&text), None, "{text}");
        assert_eq!(complaints(&validator, &text), [""; 0], "{text}");
    }
}

#[test]
fn what_is_wrong_is_not_valid() {
    let validator = validator();
    let limit = |limit: &str| format!("{{domain: a, rules: [{{name: a, {limit}}}]}}");
    let mut texts: Vec<String> = mappings().into_iter().map(|(_, text)| text).collect();
    texts.extend(
        [
            "limits: []",
            "limit: 10",
            "limit: ten/s",
            "limit: 10 minute",
            "limit: 10/",
            "limit: -1/s",
            "limit: [1/s]",
            "limits: 1/s",
            "limits: [1/s, unlimited]",
            "limit: {burst: 5}",
            "mode: shadow",
            "limit: {rate: 1/s, at_once: 5}",
            "limit: {rate: 1/s burst 5 in a-b}",
            "limit: {at_once: 0}",
            "limit: {rate: 1/s, slots: 1}",
            "limit: 1/s, limits: [2/s]",
            "limit: 1/s, candidate: unlimited",
        ]
        .map(limit),
    );
    texts.extend(
        [
            "soft: 10",
            "soft: 10 %",
            "missing: ignore",
            "per: [a, a]",
            "per: 'a b'",
            "per: ''",
            "cost: 0",
            "count: on-response",
            "statuses: [401]",
            "count: on-response, statuses: [600]",
            "count: on-request, statuses: [401]",
            "shown_as: 'a\"b'",
            "charge_refused: maybe",
            "match: {'a b': 1}",
            "match: {a: []}",
            "match: {a: {exact: 1, prefix: 2}}",
            "match: [a]",
            "elastic: {up_to: 150%, while_pressure_below: 0}",
            "overrides: 5",
            "tiers: {by: a, limits: {}}",
            "per: a, overrides: {'42': 1/s}",
            "per: a, overrides: {'a=1': {limit: 1/s, expires: soon}}",
        ]
        .map(rule),
    );
    texts.extend(
        ["{rules: []}", "{domain: '', rules: []}", "{key: a}", "{domain: a, key: b}"]
            .map(str::to_owned),
    );
    texts.push(envoy("rate_limit: {unit: fortnight, requests_per_unit: 1}"));
    texts.push(envoy("rate_limit: {unit: day, requests_per_unit: -1}"));
    for text in texts {
        assert!(mistake(&text).is_some(), "the parser takes {text}");
        assert!(!complaints(&validator, &text).is_empty(), "the schema takes {text}");
    }
}

#[test]
fn the_example_files_are_valid() {
    let validator = validator();
    for text in [
        include_str!("../../../../examples/rules/short.yaml"),
        include_str!("../../../../examples/rules/envoy.yaml"),
        include_str!("../../../../examples/rules/tidegate.yaml"),
        include_str!("../../../../examples/rules/tidegate.json"),
    ] {
        assert_eq!(complaints(&validator, text), [""; 0]);
    }
}
