//! Configuration files of envoyproxy/ratelimit, as they are: nested descriptors with limits.
//!
//! ```yaml
//! domain: messaging
//! descriptors:
//!   - key: message_type
//!     value: marketing
//!     descriptors:
//!       - key: to_number
//!         rate_limit: { unit: day, requests_per_unit: 5 }
//! ```
//!
//! It takes what that program takes and refuses what it refuses. What is accepted there and does
//! nothing, such as a `shadow_mode` inside `rate_limit`, is accepted here with a warning. How the
//! levels are searched is in [`descriptor`](crate::descriptor).

mod limit;
mod metadata;

use std::collections::BTreeMap;

use super::{Draft, Spelling};
use crate::descriptor::push_level;
use crate::diagnostic::{Problems, quoted};
use crate::glob::Glob;
use crate::read::{Fields, boolean, list_of, text};
use crate::rule::{Descriptor, DescriptorTraits, DescriptorValue, Mode, Rule};
use crate::source::Place;
use crate::tree::{Node, Value};

/// Adds the descriptors of a document in this form.
pub(crate) fn read(document: &Node, draft: &mut Draft, problems: &mut Problems) {
    let Some(mut fields) = Fields::of(document, "a document", problems) else {
        return;
    };
    let domain = fields.require("domain", problems);
    let levels = fields.take("descriptors");
    finish(fields, document, Home::Document, problems);

    let domain = domain.and_then(|node| {
        draft.domain(&text(node, "domain", problems)?, node.place, Spelling::Envoy, problems)
    });
    let mut reader = Reader { problems, name: String::new(), keys: Vec::new() };
    let Some(domain) = domain else {
        // For the other mistakes in it.
        reader.levels(levels, BTreeMap::new());
        return;
    };
    // Domains are merged at the top: below it, each level has its descriptors in one place.
    let seen = domain.descriptors.iter().map(|level| (composite(level), level.place)).collect();
    domain.descriptors.extend(reader.levels(levels, seen));
}

/// What tells the levels below one level apart.
fn composite(level: &Descriptor) -> String {
    let mut name = String::new();
    push_level(&mut name, &level.key, &level.value);
    name
}

/// Where a field is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    Document,
    Descriptor,
    Limit,
    Replaces,
}

impl Home {
    fn place(self) -> &'static str {
        match self {
            Self::Document => "at the top of the document",
            Self::Descriptor => "in a descriptor, beside its `key`",
            Self::Limit => "inside `rate_limit`",
            Self::Replaces => "inside `replaces`",
        }
    }
}

/// All fields of the format. That program refuses others wherever they are, and ignores these where
/// it does not look for them.
const FIELDS: [(&str, &[Home]); 17] = [
    ("domain", &[Home::Document]),
    ("descriptors", &[Home::Document, Home::Descriptor]),
    ("key", &[Home::Descriptor]),
    ("value", &[Home::Descriptor]),
    ("rate_limit", &[Home::Descriptor]),
    ("shadow_mode", &[Home::Descriptor]),
    ("quota_mode", &[Home::Descriptor]),
    ("share_threshold", &[Home::Descriptor]),
    ("detailed_metric", &[Home::Descriptor]),
    ("value_to_metric", &[Home::Descriptor]),
    ("metadata", &[Home::Descriptor]),
    ("unit", &[Home::Limit]),
    ("requests_per_unit", &[Home::Limit]),
    ("unit_multiplier", &[Home::Limit]),
    ("unlimited", &[Home::Limit]),
    ("replaces", &[Home::Limit]),
    ("name", &[Home::Limit, Home::Replaces]),
];

/// Reports the fields of `node` that are not looked for in this kind of mapping.
fn finish(mut fields: Fields<'_>, node: &Node, home: Home, problems: &mut Problems) {
    let Value::Map(entries) = &node.value else {
        return;
    };
    for (key, _) in entries {
        let Some(&(name, homes)) = FIELDS.iter().find(|(name, _)| key.text == *name) else {
            continue;
        };
        if let (false, [first, ..]) = (homes.contains(&home), homes) {
            fields.take(name);
            problems.warning(key.place, format!("`{name}` has no effect here")).help =
                Some(format!("it belongs {}", first.place()));
        }
    }
    fields.finish(problems);
}

/// Reads levels, and knows those around the current one.
struct Reader<'p> {
    problems: &'p mut Problems,
    /// The name that a rule at the current level has.
    name: String,
    /// The keys from the top down to the current level.
    keys: Vec<String>,
}

impl Reader<'_> {
    /// A list of levels. `seen` is what stands beside them already.
    fn levels(
        &mut self,
        node: Option<&Node>,
        mut seen: BTreeMap<String, Place>,
    ) -> Vec<Descriptor> {
        let items = node.and_then(|node| list_of(node, "descriptors", self.problems));
        let mut levels = Vec::new();
        for item in items.unwrap_or_default() {
            let Some(level) = self.level(item) else {
                continue;
            };
            let composite = composite(&level);
            if let Some(&first) = seen.get(&composite) {
                let first = self.problems.locate(first);
                let message = format!("the descriptor {} is already there", quoted(&composite));
                self.problems.error(level.place, message).help =
                    Some(format!("remove one of the two; the first is at {first}"));
            } else {
                seen.insert(composite, level.place);
                levels.push(level);
            }
        }
        levels
    }

    /// A level and those below it.
    fn level(&mut self, node: &Node) -> Option<Descriptor> {
        let mut fields = Fields::of(node, "a descriptor", self.problems)?;
        let key_node = fields.require("key", self.problems);
        let value = fields.take("value");
        let limit = fields.take("rate_limit");
        let children = fields.take("descriptors");
        let shadow_node = fields.take("shadow_mode");
        let (traits, quota_node) = self.traits(&mut fields);
        finish(fields, node, Home::Descriptor, self.problems);

        let key = key_node.and_then(|node| self.key(node));
        let value = value.map_or(Some(DescriptorValue::Any), |node| self.value(node));
        self.check_share(&traits, value.as_ref(), node.place);
        let is_shadow = self.flag(shadow_node, "shadow_mode");
        if limit.is_none() {
            for (node, name) in [(shadow_node, "shadow_mode"), (quota_node, "quota_mode")] {
                self.warn_without_limit(node, name);
            }
        }

        let (name_len, place) = (self.name.len(), key_node.map_or(node.place, |node| node.place));
        let (key, value) = (key.unwrap_or_default(), value.unwrap_or(DescriptorValue::Any));
        push_level(&mut self.name, &key, &value);
        self.keys.push(key.clone());
        let mut level = Descriptor { place, key, value, rule: None, traits, children: Vec::new() };
        let limit = limit.and_then(|node| limit::read(node, self.problems));
        if let Some(limit) = limit {
            let mut rule = Rule::new(self.name.clone(), place);
            rule.per.clone_from(&self.keys);
            rule.quota = limit.quota;
            rule.mode = if is_shadow { Mode::Shadow } else { Mode::Enforce };
            rule.shown_as = limit.shown_as;
            level.rule = Some(rule);
            level.traits.limit_name = limit.name;
            level.traits.replaces = limit.replaces;
        }
        level.children = self.levels(children, BTreeMap::new());
        self.keys.pop();
        self.name.truncate(name_len);
        (!level.key.is_empty()).then_some(level)
    }

    /// What is special about a level, and where it says that it has a quota.
    fn traits<'n>(&mut self, fields: &mut Fields<'n>) -> (DescriptorTraits, Option<&'n Node>) {
        let quota = fields.take("quota_mode");
        let mut flag = |name| {
            let node = fields.take(name);
            self.flag(node, name)
        };
        let mut traits = DescriptorTraits {
            share_threshold: flag("share_threshold"),
            detailed_metric: flag("detailed_metric"),
            value_to_metric: flag("value_to_metric"),
            ..DescriptorTraits::default()
        };
        traits.quota_mode = self.flag(quota, "quota_mode");
        if let Some(node) = fields.take("metadata") {
            traits.metadata = metadata::read(node, self.problems);
        }
        (traits, quota)
    }

    fn flag(&mut self, node: Option<&Node>, name: &str) -> bool {
        node.and_then(|node| boolean(node, name, self.problems)).unwrap_or(false)
    }

    fn key(&mut self, node: &Node) -> Option<String> {
        let key = text(node, "key", self.problems)?;
        if key.is_empty() {
            self.problems.error(node.place, "`key` is empty").help = Some(
                "write the key of the descriptor's entry, such as `remote_address`".to_owned(),
            );
            return None;
        }
        if key.contains('*') {
            self.problems.warning(node.place, "a `*` in a key stands for itself").help =
                Some("patterns go into `value`".to_owned());
        }
        Some(key)
    }

    fn value(&mut self, node: &Node) -> Option<DescriptorValue> {
        let value = text(node, "value", self.problems)?;
        Some(if value.is_empty() {
            DescriptorValue::Any
        } else if value.contains('*') {
            DescriptorValue::Glob(Glob::new(&value))
        } else {
            DescriptorValue::Exact(value)
        })
    }

    fn check_share(
        &mut self,
        traits: &DescriptorTraits,
        value: Option<&DescriptorValue>,
        place: Place,
    ) {
        let is_pattern = value.is_none_or(|value| matches!(value, DescriptorValue::Glob(_)));
        if traits.share_threshold && !is_pattern {
            self.problems.error(place, "`share_threshold` needs a `value` with a `*` in it").help =
                Some("write a pattern, such as `value: files/*`, or remove it".to_owned());
        }
    }

    fn warn_without_limit(&mut self, node: Option<&Node>, name: &str) {
        let Some(node) = node else {
            return;
        };
        let message = format!("`{name}` has no effect without a `rate_limit` beside it");
        self.problems.warning(node.place, message).help =
            Some("say it in each descriptor below that has a limit".to_owned());
    }
}

#[cfg(test)]
mod tests;
