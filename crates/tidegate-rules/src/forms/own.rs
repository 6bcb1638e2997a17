//! Tidegate's own spelling: a domain and its rules. What the parts of a rule look like is in the
//! files below; here is what a rule is made of, and what its parts must have to do with each other.

mod limits;
mod matches;
mod names;
mod overrides;
mod parts;
mod places;
#[cfg(test)]
mod tests;
mod throttle;

use super::{Draft, Spelling};
use crate::diagnostic::Problems;
use crate::read::{self, Fields};
use crate::rule::{
    Condition, Consistency, Cost, Count, Missing, Mode, OnStoreFailure, Quota, Rule, RuleLimit,
};
use crate::source::Place;
use crate::tree::{Node, Value};

/// Adds the rules of one document to the draft.
pub(crate) fn read(document: &Node, draft: &mut Draft, problems: &mut Problems) {
    let Some(mut fields) = Fields::of(document, "a rule file", problems) else { return };
    // Editors look here for the schema of a JSON file.
    fields.take("$schema");
    let domain = fields.require("domain", problems);
    let name = domain.and_then(|node| Some((read::text(node, "domain", problems)?, node.place)));
    let rules = fields.require("rules", problems);
    let nodes = rules.and_then(|node| read::list_of(node, "rules", problems)).unwrap_or_default();
    fields.finish(problems);
    // The rules are read even where their domain is unusable, so that all mistakes show at once.
    let rules: Vec<Rule> = nodes.iter().filter_map(|node| rule(node, problems)).collect();
    let Some((name, place)) = name else { return };
    if let Some(domain) = draft.domain(&name, place, Spelling::Own, problems) {
        domain.rules.extend(rules);
    }
}

/// A rule, with defaults where it has mistakes; `None` where not even its name can be read.
fn rule(node: &Node, problems: &mut Problems) -> Option<Rule> {
    let mut fields = Fields::of(node, "a rule", problems)?;
    let name = fields.require("name", problems);
    let name = name.and_then(|node| Some((names::rule(node, problems)?, node.place)));
    let (name, place) = name.unwrap_or_else(|| (String::new(), fields.place()));
    let mut rule = Rule::new(name, place);
    (rule.conditions, rule.ignore_case) = match fields.take("match") {
        Some(node) => matches::read(node, problems),
        None => <(Vec<Condition>, bool)>::default(),
    };
    counted(&mut fields, &mut rule, problems);
    throttled(&mut fields, &mut rule, problems);
    rule.count = count(&mut fields, problems);
    handled(&mut fields, &mut rule, problems);
    rule.shown_as = fields.take("shown_as").and_then(|node| names::shown(node, problems));
    let description = fields.take("description");
    rule.description = description.and_then(|node| read::text(node, "description", problems));
    refuse_parts_of_limits(node, &mut fields, problems);
    fields.finish(problems);
    (!rule.name.is_empty()).then_some(rule)
}

/// Fields of a limit are often looked for one level too high, and nothing there is spelled like
/// them.
fn refuse_parts_of_limits(node: &Node, fields: &mut Fields<'_>, problems: &mut Problems) {
    let Value::Map(entries) = &node.value else { return };
    for name in parts::NAMES {
        let Some((key, _)) = entries.iter().find(|(key, _)| key.text == name) else { continue };
        fields.take(name);
        let error = problems.error(key.place, format!("`{name}` belongs into a limit"));
        error.help = Some(format!("write it there: `limit: {{ rate: 10/minute, {name}: … }}`"));
    }
}

/// Who is counted, and under which limits.
fn counted(fields: &mut Fields<'_>, rule: &mut Rule, problems: &mut Problems) {
    let per = match fields.take("per") {
        Some(node) => names::per(node, problems),
        None => Some(Vec::new()),
    };
    let candidate = fields.take("candidate");
    rule.candidate = candidate.map(|node| limits::candidate(node, problems)).unwrap_or_default();
    let scope = limits::Scope::beside(&rule.candidate);
    rule.quota = scope.quota_of(fields, problems).unwrap_or(Quota::Unlimited);
    rule.tiers = fields.take("tiers").and_then(|node| overrides::tiers(node, scope, problems));
    if let Some(node) = fields.take("overrides") {
        rule.overrides = overrides::read(node, per.as_deref(), scope, problems);
    }
    rule.per = per.unwrap_or_default();
    let missing = [("skip", Missing::Skip), ("shared", Missing::Shared), ("deny", Missing::Deny)];
    rule.missing = word(fields, "missing", &missing, problems).unwrap_or_default();
    rule.cost = match fields.take("cost") {
        Some(node) => throttle::cost(node, problems).unwrap_or_default(),
        None => Cost::default(),
    };
}

/// What is let through beyond the limits, and what is kept back.
fn throttled(fields: &mut Fields<'_>, rule: &mut Rule, problems: &mut Problems) {
    rule.soft = fields.take("soft").and_then(|node| throttle::soft(node, problems));
    rule.elastic = fields.take("elastic").and_then(|node| throttle::elastic(node, problems));
    rule.priority = fields.take("priority").and_then(|node| throttle::priority(node, problems));
}

/// When a request counts. Statuses without `on-response` would be ignored, and `on-response`
/// without statuses would count nothing, so one needs the other.
fn count(fields: &mut Fields<'_>, problems: &mut Problems) -> Count {
    #[derive(Clone, Copy, PartialEq)]
    enum When {
        Request,
        Response,
    }
    let words = [("on-request", When::Request), ("on-response", When::Response)];
    let count = fields.take("count");
    let when = match count {
        Some(node) => read::word(node, "count", &words, problems),
        None => Some(When::Request),
    };
    let statuses = fields.take("statuses");
    if let (Some(node), Some(When::Response), None) = (count, when, statuses) {
        let error = problems.error(node.place, "`count: on-response` needs `statuses`");
        error.help = Some("say which responses count, such as `statuses: [401, 403]`".into());
    }
    let Some(node) = statuses else { return Count::OnRequest };
    if when == Some(When::Request) {
        let message = "`statuses` needs `count: on-response`";
        let help = "add `count: on-response`, or leave `statuses` out";
        problems.error(node.place, message).help = Some(help.into());
    }
    let statuses = throttle::statuses(node, problems);
    if when == Some(When::Response) { Count::OnResponse(statuses) } else { Count::OnRequest }
}

/// What becomes of a decision.
fn handled(fields: &mut Fields<'_>, rule: &mut Rule, problems: &mut Problems) {
    if let Some(node) = fields.take("charge_refused") {
        rule.charge_refused = read::boolean(node, "charge_refused", problems).unwrap_or_default();
        if rule.charge_refused && has_at_once(rule) {
            refuse_charge_of_places(node.place, problems);
        }
    }
    let modes = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow)];
    rule.mode = word(fields, "mode", &modes, problems).unwrap_or_default();
    let failures = [
        ("allow", OnStoreFailure::Allow),
        ("deny", OnStoreFailure::Deny),
        ("local", OnStoreFailure::Local),
    ];
    rule.on_store_failure = word(fields, "on_store_failure", &failures, problems);
    let consistencies = [
        ("local", Consistency::Local),
        ("strict", Consistency::Strict),
        ("leased", Consistency::Leased),
    ];
    rule.consistency = word(fields, "consistency", &consistencies, problems);
}

/// A refused request never runs, so nobody would ever give back the place that it was charged.
fn refuse_charge_of_places(place: Place, problems: &mut Problems) {
    let message = "`charge_refused` does not go with a limit of so many at once";
    let help = "put that limit into a rule of its own: a refused request holds no place";
    problems.error(place, message).help = Some(help.into());
}

fn has_at_once(rule: &Rule) -> bool {
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.quotas).map(|(_, quota)| quota);
    let quotas = tiers.chain(rule.overrides.iter().map(|found| &found.quota)).chain([&rule.quota]);
    let limits = quotas.flat_map(|quota| match quota {
        Quota::Unlimited | Quota::Nothing => &[][..],
        Quota::Limits(limits) => limits,
    });
    limits.chain(&rule.candidate).any(RuleLimit::is_at_once)
}

/// A field that is one of a few words.
fn word<T: Copy>(
    fields: &mut Fields<'_>,
    name: &'static str,
    words: &[(&'static str, T)],
    problems: &mut Problems,
) -> Option<T> {
    fields.take(name).and_then(|node| read::word(node, name, words, problems))
}

/// `node` itself, or what is in it where it is a list.
fn one_or_several(node: &Node) -> &[Node] {
    match &node.value {
        Value::List(nodes) => nodes,
        Value::Null | Value::Scalar(_) | Value::Map(_) => std::slice::from_ref(node),
    }
}
