//! What is probably not meant in rules that are free of errors. Each is a warning and a hint: the
//! rules do exactly what they say.
//!
//! The work grows with the rules and not with their square, however alike they are.

use std::collections::BTreeMap;

use tidegate_core::{Limit, Rate};

use crate::diagnostic::{Problems, quoted};
use crate::rule::{Condition, Missing, Quota, Rule, RuleLimit, RuleSet, Test};
use crate::source::Place;

mod descriptors;
mod never;

/// A limit below this, that all requests share, was probably meant for each client.
const SHARED_COUNT_MIN: u64 = 1_000;
/// A burst below one part in so many of the count refuses nearly everything that comes at once.
const BURST_PARTS_MAX: u64 = 100;

/// Adds a warning for each. `places` are where the domains were first named.
pub(crate) fn lint(rules: &RuleSet, places: &[Place], problems: &mut Problems) {
    for (domain, &place) in rules.domains.iter().zip(places) {
        for rule in &domain.rules {
            lint_rule(rule, problems);
        }
        lint_duplicates(&domain.rules, problems);
        descriptors::lint(&domain.descriptors, problems);
        if domain.rules.is_empty() && domain.descriptors.is_empty() {
            let message = format!("the domain {} has no rules", quoted(&domain.name));
            problems.warning(place, message).help =
                Some("every request of it is allowed; add rules, or remove it".to_owned());
        }
    }
    if rules.domains.is_empty() {
        let nowhere = Place { source: u32::MAX, ..Place::default() };
        problems.warning(nowhere, "there are no rules").help =
            Some("every request is allowed".to_owned());
    }
}

fn lint_rule(rule: &Rule, problems: &mut Problems) {
    let name = quoted(&rule.name);
    if let Some(why) = never::why(rule) {
        let message = format!("the rule {name} can never match: {why}");
        problems.warning(rule.place, message).help =
            Some("change its `match`, or remove the rule".to_owned());
    }
    lint_per(rule, problems);
    for limit in limits(rule) {
        lint_burst(rule, limit, problems);
    }
}

/// A limit per key without a `per`.
fn lint_per(rule: &Rule, problems: &mut Problems) {
    if !rule.per.is_empty() {
        return;
    }
    let name = quoted(&rule.name);
    let per_key = [
        ("overrides", !rule.overrides.is_empty()),
        ("tiers", rule.tiers.is_some()),
        ("missing", rule.missing != Missing::Skip),
    ];
    if let Some((field, _)) = per_key.into_iter().find(|&(_, is_said)| is_said) {
        let message = format!("the rule {name} has `{field}` but no `per`");
        problems.warning(rule.place, message).help =
            Some("all requests share its limits; write `per` to count separately".to_owned());
        return;
    }
    let is_small = |limit: &RuleLimit| count(&limit.limit).is_some_and(|n| n < SHARED_COUNT_MIN);
    if rule.conditions.is_empty()
        && let Quota::Limits(limits) = &rule.quota
        && let Some(limit) = limits.iter().find(|limit| is_small(limit))
    {
        let message =
            format!("all requests together share the limit {} of {name}", quoted(&limit.text));
        problems.warning(rule.place, message).help =
            Some("if it is meant for each client, write `per: [ip]` or `per: [user]`".to_owned());
    }
}

fn lint_burst(rule: &Rule, limit: &RuleLimit, problems: &mut Problems) {
    let Some((rate, burst)) = bucket(&limit.limit) else {
        return;
    };
    if burst.saturating_mul(BURST_PARTS_MAX) >= rate.count() {
        return;
    }
    let message = format!(
        "the burst of {} in the rule {} is below 1 % of its rate",
        quoted(&limit.text),
        quoted(&rule.name)
    );
    problems.warning(rule.place, message).help =
        Some("requests that come together are refused; give it a larger `burst`".to_owned());
}

/// All limits that a rule has for anyone.
fn limits(rule: &Rule) -> impl Iterator<Item = &RuleLimit> {
    let tiers = rule.tiers.iter().flat_map(|tiers| tiers.quotas.iter().map(|(_, quota)| quota));
    let overrides = rule.overrides.iter().map(|one| &one.quota);
    let quotas = std::iter::once(&rule.quota).chain(tiers).chain(overrides);
    let limits = quotas.flat_map(|quota| match quota {
        Quota::Unlimited | Quota::Nothing => &[][..],
        Quota::Limits(limits) => limits,
    });
    limits.chain(&rule.candidate)
}

/// How many per period; `None` where it is so many at once.
fn count(limit: &Limit) -> Option<u64> {
    match limit {
        Limit::TokenBucket(limit) => Some(limit.rate().count()),
        Limit::SteppedBucket(limit) => Some(limit.rate().count()),
        Limit::LeakyBucket(limit) => Some(limit.rate().count()),
        Limit::FixedWindow(limit) => Some(limit.count()),
        Limit::SlidingWindow(limit) => Some(limit.rate().count()),
        Limit::SlidingSlots(limit) => Some(limit.rate().count()),
        Limit::SlidingLog(limit) => Some(limit.rate().count()),
        Limit::Concurrency(_) => None,
    }
}

/// The rate and burst of a limit that has both.
fn bucket(limit: &Limit) -> Option<(Rate, u64)> {
    match limit {
        Limit::TokenBucket(limit) => Some((limit.rate(), limit.burst())),
        Limit::SteppedBucket(limit) => Some((limit.rate(), limit.burst())),
        Limit::LeakyBucket(limit) => Some((limit.rate(), limit.burst())),
        Limit::FixedWindow(_)
        | Limit::SlidingWindow(_)
        | Limit::SlidingSlots(_)
        | Limit::SlidingLog(_)
        | Limit::Concurrency(_) => None,
    }
}

/// Rules that say what an earlier one says.
fn lint_duplicates(rules: &[Rule], problems: &mut Problems) {
    let mut first: BTreeMap<String, &Rule> = BTreeMap::new();
    for rule in rules {
        let earlier = *first.entry(fingerprint(rule)).or_insert(rule);
        if std::ptr::eq(earlier, rule) || !says_the_same(earlier, rule) {
            continue;
        }
        let (name, other) = (quoted(&rule.name), quoted(&earlier.name));
        let message = format!("the rule {name} says the same as {other}");
        let at = problems.locate(earlier.place);
        problems.warning(rule.place, message).help =
            Some(format!("remove one of them; {other} is at {at}"));
    }
}

/// Equal for rules that match the same requests, in whatever order they say it, and count them alike.
fn fingerprint(rule: &Rule) -> String {
    let mut conditions: Vec<String> = rule.conditions.iter().map(condition_text).collect();
    conditions.sort_unstable();
    let limits: Vec<&str> = match &rule.quota {
        Quota::Unlimited | Quota::Nothing => Vec::new(),
        Quota::Limits(limits) => limits.iter().map(|limit| limit.text.as_str()).collect(),
    };
    format!("{conditions:?} {:?} {limits:?}", rule.per)
}

fn condition_text(condition: &Condition) -> String {
    let mut tests: Vec<String> = condition.any_of.iter().map(test_text).collect();
    tests.sort_unstable();
    format!("{} {} {tests:?}", condition.attribute, condition.negated)
}

fn test_text(test: &Test) -> String {
    match test {
        Test::Exact(text) => format!("={text}"),
        Test::Prefix(text) => format!("^{text}"),
        Test::Glob(glob) => format!("*{}", glob.as_str()),
        Test::Cidr(net) => format!("/{net}"),
        Test::Path(template) => format!("p{}", template.as_str()),
        Test::Present => "present".to_owned(),
    }
}

/// Whether two rules of one fingerprint differ in nothing but what they are called.
fn says_the_same(a: &Rule, b: &Rule) -> bool {
    let mut b = b.clone();
    b.name.clone_from(&a.name);
    b.shown_as.clone_from(&a.shown_as);
    b.description.clone_from(&a.description);
    b.conditions.clone_from(&a.conditions);
    b == *a
}

#[cfg(test)]
mod tests;
