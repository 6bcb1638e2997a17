//! Which parts of a rule changed, and how each of them is put in words.

use std::collections::BTreeMap;

use super::{Entry, Part};
use crate::rule::{
    Condition, Consistency, Cost, Count, DescriptorTraits, Elastic, Missing, Mode, OnStoreFailure,
    Override, Pressure, Priority, Quota, Rule, RuleLimit, Statuses, Test, Tiers,
};

/// What `old` and `new` say differently.
pub(super) fn changed(old: &Entry<'_>, new: &Entry<'_>) -> Vec<Part> {
    let mut parts = Parts::default();
    match (old.rule, new.rule) {
        (Some(old), Some(new)) => rule(&mut parts, old, new),
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) => parts.add("limit", old.limit(), new.limit()),
    }
    parts.compare("share_threshold", &old.shared, &new.shared, |shared| words(shared));
    if let (Some(old), Some(new)) = (old.level, new.level) {
        traits(&mut parts, &old.traits, &new.traits);
    }
    parts.all
}

#[derive(Default)]
struct Parts {
    all: Vec<Part>,
}

impl Parts {
    fn add(&mut self, field: impl Into<String>, before: String, after: String) {
        self.all.push(Part { field: field.into(), before, after });
    }

    /// Adds a field if it changed.
    fn compare<T: PartialEq>(
        &mut self,
        field: &str,
        old: &T,
        new: &T,
        text: impl Fn(&T) -> String,
    ) {
        if old != new {
            self.add(field, text(old), text(new));
        }
    }

    /// Adds the entries that changed of what `of` is a list of.
    fn compare_all<'r, T: PartialEq + 'r>(
        &mut self,
        of: &str,
        old: impl Iterator<Item = (String, &'r T)>,
        new: impl Iterator<Item = (String, &'r T)>,
        text: impl Fn(&T) -> String,
    ) {
        let mut before: BTreeMap<String, &T> = old.collect();
        let or_none = |value: Option<&T>| value.map_or_else(|| NONE.to_owned(), &text);
        for (name, value) in new {
            let old = before.remove(&name);
            if old != Some(value) {
                self.add(format!("{of} {name}"), or_none(old), text(value));
            }
        }
        for (name, value) in before {
            self.add(format!("{of} {name}"), text(value), or_none(None));
        }
    }
}

/// What stands for something that is not said.
const NONE: &str = "none";

fn rule(parts: &mut Parts, old: &Rule, new: &Rule) {
    // Every field is named here, so that a new one cannot be forgotten.
    let Rule {
        name: _,
        place: _,
        conditions,
        ignore_case,
        per,
        quota: _,
        tiers: _,
        overrides: _,
        missing,
        cost,
        soft,
        elastic,
        priority,
        count,
        charge_refused,
        mode,
        candidate,
        on_store_failure,
        consistency,
        shown_as,
        description,
    } = old;
    limits(parts, old, new);
    parts.compare("match", conditions, &new.conditions, |all| conditions_text(all));
    parts.compare("ignore_case", ignore_case, &new.ignore_case, bool::to_string);
    parts.compare("per", per, &new.per, |per| words(per));
    parts.compare("missing", missing, &new.missing, |missing| missing_text(*missing).to_owned());
    parts.compare("cost", cost, &new.cost, cost_text);
    parts.compare("soft", soft, &new.soft, |soft| or_none(*soft));
    parts.compare("elastic", elastic, &new.elastic, |elastic| or_none(elastic.map(elastic_text)));
    parts.compare("priority", priority, &new.priority, |priority| {
        or_none(priority.as_ref().map(priority_text))
    });
    parts.compare("count", count, &new.count, count_text);
    parts.compare("charge_refused", charge_refused, &new.charge_refused, bool::to_string);
    parts.compare("mode", mode, &new.mode, |mode| mode_text(*mode).to_owned());
    parts.compare("candidate", candidate, &new.candidate, |limits| limits_text(limits));
    parts.compare("on_store_failure", on_store_failure, &new.on_store_failure, |policy| {
        or_none(policy.map(on_store_failure_text))
    });
    parts.compare("consistency", consistency, &new.consistency, |consistency| {
        or_none(consistency.map(consistency_text))
    });
    let optional = |text: &Option<String>| or_none(text.as_ref());
    parts.compare("shown_as", shown_as, &new.shown_as, optional);
    parts.compare("description", description, &new.description, optional);
}

/// The quota, the tiers and the overrides.
fn limits(parts: &mut Parts, old: &Rule, new: &Rule) {
    match (&old.quota, &new.quota) {
        (Quota::Limits(before), Quota::Limits(after)) if before.len() == 1 && after.len() == 1 => {
            one_limit(parts, &before[0], &after[0]);
        }
        (before, after) => parts.compare("limit", before, after, quota),
    }
    let by = |rule: &Rule| rule.tiers.as_ref().map(|tiers: &Tiers| tiers.by.clone());
    parts.compare("tiers by", &by(old), &by(new), |by| or_none(by.as_ref()));
    parts.compare_all("tier", tiers(old), tiers(new), quota);
    parts.compare_all("override", overrides(old), overrides(new), override_text);
}

fn tiers(rule: &Rule) -> impl Iterator<Item = (String, &Quota)> {
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.quotas);
    tiers.map(|(name, quota)| (name.clone(), quota))
}

fn overrides(rule: &Rule) -> impl Iterator<Item = (String, &Override)> {
    rule.overrides.iter().map(|other| (override_name(&rule.per, other), other))
}

/// A limit of its own: where the algorithm changed too, that is said first.
fn one_limit(parts: &mut Parts, old: &RuleLimit, new: &RuleLimit) {
    let (before, after) = (old.limit.name(), new.limit.name());
    parts.compare("algorithm", &before, &after, |name| (*name).to_owned());
    // The algorithm is part of the text of most limits and then says the same twice.
    let numbers = |limit: &RuleLimit| limit.text.replace(&format!(" {}", limit.limit.name()), "");
    if before == after {
        parts.compare("limit", &old.limit, &new.limit, |limit| {
            if *limit == old.limit { old.text.clone() } else { new.text.clone() }
        });
    } else {
        parts.compare("limit", &numbers(old), &numbers(new), String::clone);
    }
    parts.compare("limit's shown_as", &old.shown_as, &new.shown_as, |name| or_none(name.as_ref()));
}

fn traits(parts: &mut Parts, old: &DescriptorTraits, new: &DescriptorTraits) {
    let DescriptorTraits {
        limit_name,
        replaces,
        detailed_metric,
        value_to_metric,
        // Compared for all levels above too, by whoever calls.
        share_threshold: _,
        quota_mode,
        metadata,
    } = old;
    parts.compare("name", limit_name, &new.limit_name, |name| or_none(name.as_ref()));
    parts.compare("replaces", replaces, &new.replaces, |names| words(names));
    parts.compare("quota_mode", quota_mode, &new.quota_mode, bool::to_string);
    parts.compare("detailed_metric", detailed_metric, &new.detailed_metric, bool::to_string);
    parts.compare("value_to_metric", value_to_metric, &new.value_to_metric, bool::to_string);
    let pairs = |traits: &DescriptorTraits| {
        let pair = |(name, json): &(String, String)| format!("{name}: {json}");
        traits.metadata.iter().map(pair).collect::<Vec<_>>()
    };
    if *metadata != new.metadata {
        parts.add("metadata", words(&pairs(old)), words(&pairs(new)));
    }
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| NONE.to_owned(), |value| value.to_string())
}

fn words(words: &[impl AsRef<str>]) -> String {
    if words.is_empty() {
        return NONE.to_owned();
    }
    words.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

/// What may be taken.
pub(super) fn quota(quota: &Quota) -> String {
    match quota {
        Quota::Unlimited => "unlimited".to_owned(),
        Quota::Nothing => "nothing".to_owned(),
        Quota::Limits(limits) => limits_text(limits),
    }
}

fn limits_text(limits: &[RuleLimit]) -> String {
    let text = |limit: &RuleLimit| match &limit.shown_as {
        Some(name) => format!("{} as {name}", limit.text),
        None => limit.text.clone(),
    };
    words(&limits.iter().map(text).collect::<Vec<_>>())
}

fn override_name(per: &[String], other: &Override) -> String {
    let pairs = per.iter().zip(&other.values).map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join(", ")
}

fn override_text(other: &Override) -> String {
    let time = other.expires.and_then(|time| {
        jiff::Timestamp::from_microsecond(i64::try_from(time.as_micros()).ok()?).ok()
    });
    match (time, other.expires) {
        (Some(time), _) => format!("{} until {time}", quota(&other.quota)),
        (None, Some(_)) => format!("{} for ever", quota(&other.quota)),
        (None, None) => quota(&other.quota),
    }
}

fn conditions_text(conditions: &[Condition]) -> String {
    let condition = |condition: &Condition| {
        let tests: Vec<String> = condition.any_of.iter().map(test_text).collect();
        let not = if condition.negated { "not " } else { "" };
        format!("{} {not}{}", condition.attribute, tests.join(" or "))
    };
    match conditions {
        [] => "everything".to_owned(),
        conditions => words(&conditions.iter().map(condition).collect::<Vec<_>>()),
    }
}

fn test_text(test: &Test) -> String {
    match test {
        Test::Exact(text) => text.clone(),
        Test::Prefix(text) => format!("prefix {text}"),
        Test::Glob(glob) => format!("glob {}", glob.as_str()),
        Test::Cidr(range) => range.to_string(),
        Test::Path(template) => template.as_str().to_owned(),
        Test::Present => "present".to_owned(),
    }
}

fn missing_text(missing: Missing) -> &'static str {
    match missing {
        Missing::Skip => "skip",
        Missing::Shared => "shared",
        Missing::Deny => "deny",
    }
}

fn cost_text(cost: &Cost) -> String {
    match cost {
        Cost::Number(number) => number.to_string(),
        Cost::Attribute { name, default } => format!("attribute {name}, default {default}"),
    }
}

fn elastic_text(elastic: Elastic) -> String {
    format!("up to {} below {}", elastic.up_to, pressure_text(elastic.while_pressure_below))
}

/// As it is written, between 0 and 1.
fn pressure_text(pressure: Pressure) -> String {
    let full = Pressure::FULL.millionths();
    let (whole, rest) = (pressure.millionths() / full, pressure.millionths() % full);
    let text = format!("{whole}.{rest:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn priority_text(priority: &Priority) -> String {
    let kept = priority.reserve.iter().map(|(class, kept)| format!("{kept} for {class}"));
    format!("by {}: {}", priority.by, words(&kept.collect::<Vec<_>>()))
}

fn count_text(count: &Count) -> String {
    match count {
        Count::OnRequest => "on-request".to_owned(),
        Count::OnResponse(statuses) => {
            let range = |range: &Statuses| {
                if range.from == range.to {
                    range.from.to_string()
                } else {
                    format!("{}-{}", range.from, range.to)
                }
            };
            format!("on-response {}", words(&statuses.iter().map(range).collect::<Vec<_>>()))
        }
    }
}

fn mode_text(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
    }
}

fn on_store_failure_text(policy: OnStoreFailure) -> &'static str {
    match policy {
        OnStoreFailure::Allow => "allow",
        OnStoreFailure::Deny => "deny",
        OnStoreFailure::Local => "local",
    }
}

fn consistency_text(consistency: Consistency) -> &'static str {
    match consistency {
        Consistency::Local => "local",
        Consistency::Strict => "strict",
        Consistency::Leased => "leased",
    }
}
