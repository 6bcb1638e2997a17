//! Rule text: any bytes are rules, or a report whose every place is in the text; and rules that were
//! read can be compiled, matched and explained.

use tidegate_core::Timestamp;
use tidegate_rules::compile::CompiledRules;
use tidegate_rules::diff::diff;
use tidegate_rules::identity::KeyHasher;
use tidegate_rules::resolve::{Ask, Plan};
use tidegate_rules::rule::{Descriptor, Pressure, Quota, Rule};
use tidegate_rules::{
    Attribute, Checked, Diagnostic, ParseOptions, Report, RuleSet, Source, parse_limit,
};

use crate::attributes::explained_as_resolved;

/// How many domains are asked about a request; an input that names more shows nothing new.
const DOMAINS_MAX: usize = 8;

/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    let sources = [Source::new("rules.yaml", data)];
    for merge_domains in [false, true] {
        let options = ParseOptions { merge_domains };
        let read = RuleSet::parse(&sources, &options);
        same(&read, &RuleSet::parse(&sources, &options));
        match read {
            Ok(checked) => {
                assert_eq!(checked.warnings.errors(), 0);
                places_exist(data, &checked.warnings);
                usable(checked.rules);
            }
            Err(report) => {
                assert!(report.errors() > 0, "refused without an error");
                places_exist(data, &report);
            }
        }
    }
}

/// The same text gives the same rules and the same words about them.
fn same(one: &Result<Checked, Report>, other: &Result<Checked, Report>) {
    match (one, other) {
        (Ok(one), Ok(other)) => {
            assert_eq!(one.rules, other.rules);
            assert_eq!(one.warnings.to_string(), other.warnings.to_string());
        }
        (Err(one), Err(other)) => assert_eq!(one.to_string(), other.to_string()),
        (one, other) => panic!("read once as {one:?} and once as {other:?}"),
    }
}

/// Every diagnostic points at a line and column that there are. One behind the end of a line is where
/// something is missing. Only what is about the text as a whole has no line.
fn places_exist(data: &[u8], report: &Report) {
    let text = String::from_utf8_lossy(data);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lengths: Vec<usize> = text.split('\n').map(|line| line.chars().count()).collect();
    for (name, found) in report.iter() {
        let Diagnostic { place, message, .. } = found;
        assert!(!message.is_empty(), "a diagnostic without a message");
        if place.line == 0 {
            assert_eq!(report.iter().count(), 1, "{message}: without a line, and not alone");
            continue;
        }
        assert_eq!((name, place.source), ("rules.yaml", 0), "{message}");
        let length = lengths.get(place.line as usize - 1);
        let length = *length.unwrap_or_else(|| panic!("{message}: {place:?} has no such line"));
        assert!((1..=length + 1).contains(&(place.column as usize)), "{message}: {place:?}");
        let end = place.column as usize + place.length as usize;
        assert!(place.length > 0 && end <= length + 2, "{message}: {place:?} of {length}");
    }
}

/// The rules can be compared, compiled and asked.
fn usable(rules: RuleSet) {
    assert!(diff(&rules, &rules).is_empty(), "rules differ from themselves");
    for domain in rules.domains() {
        domain.rules.iter().for_each(limits_are_written);
        domain.descriptors.iter().for_each(descriptors_are_written);
    }
    let names: Vec<String> =
        rules.domains().iter().take(DOMAINS_MAX).map(|domain| domain.name.clone()).collect();
    let compiled = CompiledRules::new(rules, &KeyHasher::new(&[7; 16]));
    for domain in names.iter().map(String::as_str).chain(["no such domain"]) {
        for attributes in requests() {
            for (cost, pressure) in [(1, Pressure::FULL), (u64::MAX, Pressure::NONE)] {
                let now = Timestamp::from_secs(1_700_000_000);
                let ask = Ask { domain, attributes: &attributes, cost, now, pressure };
                let mut plan = Plan::default();
                let resolved = compiled.resolve(&ask, &mut plan);
                explained_as_resolved(&compiled, &ask, &plan, resolved);
            }
        }
    }
}

/// What is shown of a limit can be written into a file, and is the same limit there.
fn limits_are_written(rule: &Rule) {
    let tiers = rule.tiers.iter().flat_map(|tiers| tiers.quotas.iter().map(|(_, quota)| quota));
    let overrides = rule.overrides.iter().map(|one| &one.quota);
    let quotas = std::iter::once(&rule.quota).chain(tiers).chain(overrides);
    let limits = quotas.flat_map(|quota| match quota {
        Quota::Limits(limits) => &limits[..],
        Quota::Unlimited | Quota::Nothing => &[],
    });
    for one in limits.chain(&rule.candidate) {
        assert_eq!(parse_limit(&one.text).as_ref(), Ok(&one.limit), "{:?}", one.text);
    }
}

fn descriptors_are_written(descriptor: &Descriptor) {
    descriptor.rule.iter().for_each(limits_are_written);
    descriptor.children.iter().for_each(descriptors_are_written);
}

/// A handful of requests that the seeds have rules for.
fn requests() -> [Vec<Attribute<'static>>; 4] {
    let list = |pairs: &[(&'static str, &'static str)]| {
        pairs.iter().map(|pair| Attribute::from(*pair)).collect()
    };
    [
        Vec::new(),
        list(&[("database", "users"), ("user", "42")]),
        list(&[
            ("method", "POST"),
            ("path", "//Orders/7/items/.."),
            ("host", "API.example.com:443"),
            ("ip", "192.0.2.7"),
            ("user", "42"),
            ("plan", "pro"),
            ("class", "critical"),
            ("bytes", "18446744073709551615"),
            ("email", "ann@example.com"),
        ]),
        list(&[("path", "/login"), ("ip", "2001:db8::/64"), ("user", ""), ("user", "43")]),
    ]
}
