//! Envoy's descriptors as JSON, in the format of their own files.

use serde_json::{Map, Value, json};
use tidegate::{Limit, Span};
use tidegate_rules::rule::{Descriptor, DescriptorValue, Mode, Quota};

use super::json::Fields;

/// The periods of that format, the longest first.
const UNITS: [(&str, Span); 7] = [
    ("year", Span::from_secs(365 * 86_400)),
    ("month", Span::from_secs(30 * 86_400)),
    ("week", Span::from_secs(7 * 86_400)),
    ("day", Span::DAY),
    ("hour", Span::HOUR),
    ("minute", Span::MINUTE),
    ("second", Span::SECOND),
];

/// A list of levels.
pub(super) fn json(levels: &[Descriptor]) -> Value {
    levels.iter().map(level).collect()
}

fn level(level: &Descriptor) -> Value {
    let traits = &level.traits;
    let is_shadow = level.rule.as_ref().is_some_and(|rule| rule.mode == Mode::Shadow);
    let mut fields = Fields::default();
    fields.set("key", level.key.as_str());
    match &level.value {
        DescriptorValue::Any => {}
        DescriptorValue::Exact(text) => fields.set("value", text.as_str()),
        DescriptorValue::Glob(glob) => fields.set("value", glob.as_str()),
    }
    fields.set_some("rate_limit", level.rule.as_ref().map(|rule| limit(level, &rule.quota)));
    for (name, is_set) in [
        ("shadow_mode", is_shadow),
        ("quota_mode", traits.quota_mode),
        ("share_threshold", traits.share_threshold),
        ("detailed_metric", traits.detailed_metric),
        ("value_to_metric", traits.value_to_metric),
    ] {
        fields.set_some(name, is_set.then_some(true));
    }
    if !traits.metadata.is_empty() {
        // It is kept as JSON, and only a text that is none is shown as text.
        let value = |text: &String| serde_json::from_str(text).unwrap_or_else(|_| json!(text));
        let entries = traits.metadata.iter().map(|(name, text)| (name.clone(), value(text)));
        fields.set("metadata", entries.collect::<Map<_, _>>());
    }
    fields.set_some("descriptors", (!level.children.is_empty()).then(|| json(&level.children)));
    fields.into_value()
}

fn limit(level: &Descriptor, quota: &Quota) -> Value {
    let mut fields = Fields::default();
    fields.set_some("name", level.traits.limit_name.as_deref());
    match quota {
        Quota::Unlimited => fields.set("unlimited", true),
        // In which unit nothing passes makes no difference.
        Quota::Nothing => {
            fields.set("unit", "second");
            fields.set("requests_per_unit", 0);
        }
        Quota::Limits(limits) => {
            // There is one, and it is a fixed window: the format has nothing else.
            if let Some(Limit::FixedWindow(window)) = limits.first().map(|one| &one.limit) {
                let period_us = limits[0].limit.period().as_micros();
                set_period(period_us, &mut fields);
                fields.set("requests_per_unit", window.count());
            }
        }
    }
    let replaces = level.traits.replaces.iter().map(|name| json!({ "name": name }));
    let replaces = replaces.collect::<Vec<_>>();
    fields.set_some("replaces", (!replaces.is_empty()).then_some(replaces));
    fields.into_value()
}

fn set_period(period_us: u64, fields: &mut Fields) {
    let unit = UNITS.iter().find(|(_, unit)| period_us.is_multiple_of(unit.as_micros()));
    let Some((name, unit)) = unit else { return };
    fields.set("unit", *name);
    let multiplier = period_us / unit.as_micros();
    fields.set_some("unit_multiplier", (multiplier > 1).then_some(multiplier));
}
