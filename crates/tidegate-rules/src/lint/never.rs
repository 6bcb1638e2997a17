//! Why a rule can never match. It finds the contradictions that people write, not all there are.

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use crate::path::{Segment, normalise};
use crate::rule::{Condition, Missing, Rule, Test};

/// How many values are tried on how many tests, at most; above it, a rule is taken to be fine.
const TRIALS_MAX: usize = 100_000;

/// Why no request can match `rule`, if that can be seen.
pub(super) fn why(rule: &Rule) -> Option<String> {
    for condition in &rule.conditions {
        if let Some(why) = why_not_alone(condition) {
            return Some(why);
        }
    }
    let mut by_attribute: BTreeMap<&str, Vec<&Condition>> = BTreeMap::new();
    for condition in &rule.conditions {
        by_attribute.entry(&condition.attribute).or_default().push(condition);
    }
    by_attribute.into_iter().find_map(|(attribute, conditions)| {
        if conditions.iter().any(|condition| wants_absence(condition)) {
            if conditions.iter().any(|condition| !condition.negated) {
                return Some(format!("`{attribute}` would have to be there and not to be there"));
            }
            let is_counted_by = rule.per.iter().any(|per| per == attribute);
            if is_counted_by && rule.missing == Missing::Skip {
                return Some(format!(
                    "it wants `{attribute}` to be absent, and counts by it and skips requests \
                     without it"
                ));
            }
        }
        // Paths that are compared without regard to case are not compared as below.
        let is_empty = !rule.ignore_case && has_no_value(&conditions);
        is_empty.then(|| format!("no value of `{attribute}` fits all that is said of it"))
    })
}

/// Why nothing fits one condition by itself.
fn why_not_alone(condition: &Condition) -> Option<String> {
    let Condition { attribute, any_of, negated } = condition;
    if *negated {
        return None;
    }
    if any_of.is_empty() {
        return Some(format!("the list of values of `{attribute}` is empty"));
    }
    let is_path = attribute == "path";
    (is_path && !any_of.iter().any(can_be_path)).then(|| {
        "paths are compared in their normal form, which begins with `/` and has no `//`, `/./` \
         or `/../` in it"
            .to_owned()
    })
}

/// Whether a normal path can pass.
fn can_be_path(test: &Test) -> bool {
    let begins_well = |text: &str| text.is_empty() || text.starts_with('/');
    match test {
        Test::Exact(text) => {
            text.starts_with('/') && *normalise(text.as_bytes()) == *text.as_bytes()
        }
        Test::Prefix(text) => begins_well(text) && !text.contains("//"),
        Test::Glob(glob) => begins_well(glob.literal_prefix()) && !glob.as_str().contains("//"),
        Test::Cidr(_) => false,
        Test::Path(_) | Test::Present => true,
    }
}

/// Whether it holds for requests without the attribute only.
fn wants_absence(condition: &Condition) -> bool {
    condition.negated && condition.any_of.iter().any(takes_everything)
}

fn takes_everything(test: &Test) -> bool {
    match test {
        Test::Present => true,
        Test::Prefix(text) => text.is_empty(),
        Test::Glob(glob) => !glob.as_str().is_empty() && glob.as_str().bytes().all(|c| c == b'*'),
        Test::Path(template) => template.segments() == [Segment::Rest],
        Test::Exact(_) | Test::Cidr(_) => false,
    }
}

/// Whether one condition leaves only a few values, and the others none of these.
fn has_no_value(conditions: &[&Condition]) -> bool {
    if conditions.len() < 2 {
        return false;
    }
    let Some(values) = conditions.iter().find_map(|condition| values_of(condition)) else {
        return false;
    };
    let sieves: Vec<Sieve<'_>> = conditions.iter().map(|condition| Sieve::new(condition)).collect();
    let slow_tests: usize = sieves.iter().map(|sieve| sieve.others.len()).sum();
    if slow_tests.saturating_mul(values.len()) > TRIALS_MAX {
        return false;
    }
    !values.iter().any(|value| sieves.iter().all(|sieve| sieve.passes(value)))
}

/// The values that a condition takes, if it can list them.
fn values_of(condition: &Condition) -> Option<Vec<&str>> {
    if condition.negated {
        return None;
    }
    condition.any_of.iter().map(value_of).collect()
}

/// The only value that a test takes, if there is only one.
fn value_of(test: &Test) -> Option<&str> {
    match test {
        Test::Exact(text) => Some(text),
        Test::Path(template) if template.is_literal() => Some(template.as_str()),
        Test::Prefix(_) | Test::Glob(_) | Test::Cidr(_) | Test::Path(_) | Test::Present => None,
    }
}

/// A condition, ready to be tried on many values.
struct Sieve<'c> {
    negated: bool,
    values: BTreeSet<&'c str>,
    others: Vec<&'c Test>,
}

impl<'c> Sieve<'c> {
    fn new(condition: &'c Condition) -> Self {
        let values = condition.any_of.iter().filter_map(value_of).collect();
        let others = condition.any_of.iter().filter(|test| value_of(test).is_none()).collect();
        Self { negated: condition.negated, values, others }
    }

    fn passes(&self, value: &str) -> bool {
        let is_taken =
            self.values.contains(value) || self.others.iter().any(|test| takes(test, value));
        is_taken != self.negated
    }
}

fn takes(test: &Test, value: &str) -> bool {
    match test {
        Test::Exact(text) => text == value,
        Test::Prefix(text) => value.starts_with(text.as_str()),
        Test::Glob(glob) => glob.matches(value.as_bytes()),
        Test::Cidr(net) => value.parse::<IpAddr>().is_ok_and(|address| net.contains(&address)),
        Test::Path(template) => template.matches(value.as_bytes()),
        Test::Present => true,
    }
}
