//! What changed from one rule set to the next, for people who are about to put it in force: which
//! rules, which of their parts, what becomes of what has been counted, and whether a number changed
//! so much that it may be a slip.
//!
//! Rules are told apart by their domain and name, so one with another name is a removed and an added
//! one. The order of rules is not compared.

mod large;
mod parts;

use std::collections::BTreeSet;
use std::fmt;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::descriptor::push_level;
use crate::rule::{Descriptor, DescriptorValue, Domain, Quota, Rule, RuleSet};

/// What happened to one rule.
///
/// It displays as one line:
///
/// ```
/// use tidegate_rules::diff::diff;
/// use tidegate_rules::{ParseOptions, RuleSet, Source};
///
/// let rules = |requests: u32| {
///     let text = format!("{{ domain: api, key: ip, rate_limit: {{ unit: day, requests: {requests} }} }}");
///     RuleSet::parse(&[Source::new("rules.yaml", text)], &ParseOptions::default()).unwrap().rules
/// };
/// let changes = diff(&rules(10), &rules(20));
/// assert_eq!(
///     changes[0].to_string(),
///     "api/ip: limit 10/day fixed-window -> 20/day fixed-window (what has been spent stays spent)",
/// );
/// assert!(changes[0].keeps_state && !changes[0].large);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Change {
    /// The domain of the rule.
    pub domain: String,
    /// The name of the rule.
    pub rule: String,
    /// What happened to it.
    pub kind: ChangeKind,
    /// The limit that it has from now on, or had until now where it is removed.
    pub limit: String,
    /// Whether all that its limits have counted goes on to count.
    pub keeps_state: bool,
    /// What becomes of what has been counted, in a few words.
    pub consequence: &'static str,
    /// Whether a limit allows ten times as much as before or a tenth of it, so that somebody should
    /// look twice. A rule that is added or removed is never said to be so.
    pub large: bool,
}

/// What happened to a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It says something else.
    Changed {
        /// What it says differently; at least one.
        parts: Vec<Part>,
    },
}

/// A part of a rule that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The field, as it is written in rules.
    pub field: String,
    /// What it said.
    pub before: String,
    /// What it says.
    pub after: String,
}

/// What changed from `old` to `new`: domain by domain, added and changed rules in the order of `new`,
/// then the removed ones. It takes time in proportion to the number of rules.
pub fn diff(old: &RuleSet, new: &RuleSet) -> Vec<Change> {
    let mut before: HashMap<&str, &Domain, RandomState> =
        old.domains.iter().map(|domain| (domain.name.as_str(), domain)).collect();
    let nothing = Domain::default();
    let mut changes = Vec::new();
    for domain in &new.domains {
        let old = before.remove(domain.name.as_str()).unwrap_or(&nothing);
        diff_domain(&domain.name, old, domain, &mut changes);
    }
    for domain in old.domains.iter().filter(|domain| before.contains_key(domain.name.as_str())) {
        diff_domain(&domain.name, domain, &nothing, &mut changes);
    }
    changes
}

fn diff_domain(name: &str, old: &Domain, new: &Domain, changes: &mut Vec<Change>) {
    let (old, new) = (entries(old), entries(new));
    let mut before: HashMap<(bool, &str), &Entry<'_>, RandomState> =
        old.iter().map(|entry| (entry.identity(), entry)).collect();
    for entry in &new {
        match before.remove(&entry.identity()) {
            None => changes.push(entry.change(name, ChangeKind::Added)),
            Some(old) => changes.extend(changed(name, old, entry)),
        }
    }
    let removed = old.iter().filter(|entry| before.contains_key(&entry.identity()));
    changes.extend(removed.map(|entry| entry.change(name, ChangeKind::Removed)));
}

/// A rule, or a level of Envoy's that has none and lets its requests pass.
struct Entry<'r> {
    name: String,
    rule: Option<&'r Rule>,
    level: Option<&'r Descriptor>,
    /// The patterns whose values share a counter, from the top level down to this one.
    shared: Vec<&'r str>,
}

impl Entry<'_> {
    fn identity(&self) -> (bool, &str) {
        (self.level.is_some(), &self.name)
    }

    fn limit(&self) -> String {
        self.rule.map_or_else(|| "none".to_owned(), |rule| parts::quota(&rule.quota))
    }

    /// A rule that was not there or is no longer there.
    fn change(&self, domain: &str, kind: ChangeKind) -> Change {
        let counts = self.rule.is_some_and(|rule| !kinds(rule).is_empty());
        let consequence = match kind {
            _ if !counts => "it counts nothing",
            ChangeKind::Removed => "what has been spent is forgotten",
            ChangeKind::Added | ChangeKind::Changed { .. } => "counts from zero",
        };
        Change {
            domain: domain.to_owned(),
            rule: self.name.clone(),
            kind,
            limit: self.limit(),
            keeps_state: false,
            consequence,
            large: false,
        }
    }
}

/// The change of a rule that was and is there; `None` if it says the same.
fn changed(domain: &str, old: &Entry<'_>, new: &Entry<'_>) -> Option<Change> {
    let parts = parts::changed(old, new);
    if parts.is_empty() {
        return None;
    }
    let (Some(before), Some(after)) = (old.rule, new.rule) else {
        // A level without a rule lets everything pass.
        let large = old.rule.or(new.rule).is_some_and(|rule| rule.quota != Quota::Unlimited);
        return Some(Change { large, ..new.change(domain, ChangeKind::Changed { parts }) });
    };
    let (counted, counts) = (kinds(before), kinds(after));
    let same_keys = before.per == after.per && old.shared == new.shared;
    let keeps_state = same_keys && counts.is_subset(&counted);
    let consequence = match keeps_state {
        true if counts.is_empty() => "it counts nothing",
        true => "what has been spent stays spent",
        false if same_keys && !counts.is_disjoint(&counted) => {
            "what has been spent stays spent where algorithm and period stay; the rest counts anew"
        }
        false => "counts anew",
    };
    let large = large::is_large(before, after);
    let kind = ChangeKind::Changed { parts };
    Some(Change { keeps_state, consequence, large, ..new.change(domain, kind) })
}

/// What the counters of a rule are known by besides its name and its attributes: algorithm, period in
/// microseconds, and how many alike stand before. Other numbers are no part of it, so state that
/// these find again goes on to count.
fn kinds(rule: &Rule) -> BTreeSet<(&'static str, u64, usize)> {
    let tiers = rule.tiers.iter().flat_map(|tiers| tiers.quotas.iter().map(|(_, quota)| quota));
    let overrides = rule.overrides.iter().map(|other| &other.quota);
    let mut kinds = BTreeSet::new();
    for quota in std::iter::once(&rule.quota).chain(tiers).chain(overrides) {
        let Quota::Limits(limits) = quota else {
            continue;
        };
        let kind = |place: usize| {
            let limit = &limits[place].limit;
            (limit.name(), limit.period().as_micros())
        };
        for place in 0..limits.len() {
            let alike = (0..place).filter(|&other| kind(other) == kind(place)).count();
            let (algorithm, period_us) = kind(place);
            kinds.insert((algorithm, period_us, alike));
        }
    }
    kinds
}

/// All that can be compared in a domain, in the order of the files.
fn entries(domain: &Domain) -> Vec<Entry<'_>> {
    let rules = domain.rules.iter().map(|rule| Entry {
        name: rule.name.clone(),
        rule: Some(rule),
        level: None,
        shared: Vec::new(),
    });
    let mut entries: Vec<Entry<'_>> = rules.collect();
    add_levels(&domain.descriptors, &mut String::new(), &mut Vec::new(), &mut entries);
    entries
}

fn add_levels<'r>(
    levels: &'r [Descriptor],
    name: &mut String,
    shared: &mut Vec<&'r str>,
    entries: &mut Vec<Entry<'r>>,
) {
    for level in levels {
        let (name_len, shared_len) = (name.len(), shared.len());
        push_level(name, &level.key, &level.value);
        if let (true, DescriptorValue::Glob(glob)) = (level.traits.share_threshold, &level.value) {
            shared.push(glob.as_str());
        }
        // A level without a limit is there for those below it, unless there are none.
        if level.rule.is_some() || level.children.is_empty() {
            let (name, shared) = (name.clone(), shared.clone());
            entries.push(Entry { name, rule: level.rule.as_ref(), level: Some(level), shared });
        }
        add_levels(&level.children, name, shared, entries);
        name.truncate(name_len);
        shared.truncate(shared_len);
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}: ", OneLine(&self.domain), OneLine(&self.rule))?;
        match &self.kind {
            ChangeKind::Added => write!(f, "added, limit {}", OneLine(&self.limit))?,
            ChangeKind::Removed => write!(f, "removed, limit was {}", OneLine(&self.limit))?,
            ChangeKind::Changed { parts } => {
                for (place, part) in parts.iter().enumerate() {
                    let separator = if place == 0 { "" } else { "; " };
                    write!(f, "{separator}{part}")?;
                }
            }
        }
        write!(f, " ({})", self.consequence)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, before, after } = self;
        write!(f, "{} {} -> {}", OneLine(field), OneLine(before), OneLine(after))
    }
}

/// Text in which nothing begins a new line or is obeyed by a terminal.
struct OneLine<'t>(&'t str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\'' | '"' | '\\' => write!(f, "{c}"),
            c => write!(f, "{}", c.escape_debug()),
        })
    }
}

#[cfg(test)]
mod tests;
