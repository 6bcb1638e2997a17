//! Rules as a listing for people: what a rule says, and nothing of what it leaves at the default.

use std::fmt::{self, Write as _};

use tidegate_rules::rule::{
    Cost, Count, Descriptor, Domain, Missing, Mode, Override, Quota, Rule, RuleLimit,
};

use super::words;
use crate::output::{HEADING, printable};

/// How wide the column of field names is.
const LABEL_COLUMNS: usize = 12;
/// How many overrides are listed; further ones are counted.
const OVERRIDES_SHOWN_MAX: usize = 5;

/// The domains with their rules, and an empty line between all of them.
pub(super) fn listing(domains: &[&Domain]) -> String {
    let mut listing = Listing { text: String::new() };
    for domain in domains {
        listing.domain(domain);
    }
    listing.text
}

struct Listing {
    text: String,
}

impl Listing {
    fn domain(&mut self, domain: &Domain) {
        self.gap();
        self.heading("domain ", &domain.name);
        let is_empty = domain.rules.is_empty() && domain.descriptors.is_empty();
        if is_empty {
            self.line(format_args!("  no rules: every request passes"));
        }
        for rule in &domain.rules {
            self.gap();
            self.heading("  rule ", &rule.name);
            self.rule(rule);
        }
        self.levels(&domain.descriptors);
    }

    fn levels(&mut self, levels: &[Descriptor]) {
        for level in levels {
            if let Some(rule) = &level.rule {
                self.gap();
                self.heading("  descriptor ", &rule.name);
                self.quota("limit", &rule.quota);
                self.level(level);
                self.handled(rule);
            }
            self.levels(&level.children);
        }
    }

    fn rule(&mut self, rule: &Rule) {
        self.field_if("about", rule.description.as_deref());
        for (index, condition) in rule.conditions.iter().enumerate() {
            self.field(if index == 0 { "match" } else { "" }, condition);
        }
        self.field_if("", rule.ignore_case.then_some("paths in upper and lower case are the same"));
        if rule.conditions.is_empty() {
            self.field("match", "every request");
        }
        let per = rule.per.join(", ");
        self.field("per", if per.is_empty() { "all requests together" } else { &per });
        self.quota("limit", &rule.quota);
        self.others(rule);
        self.throttled(rule);
        self.handled(rule);
    }

    /// Limits for some, and limits that are only tried out.
    fn others(&mut self, rule: &Rule) {
        for (index, (tier, quota)) in
            rule.tiers.iter().flat_map(|tiers| tiers.quotas.iter()).enumerate()
        {
            let by = rule.tiers.as_ref().map_or("", |tiers| &tiers.by);
            let label = if index == 0 { "tiers" } else { "" };
            self.field(label, format_args!("{by}={tier}: {}", Text(quota)));
        }
        for (index, one) in rule.overrides.iter().take(OVERRIDES_SHOWN_MAX).enumerate() {
            let label = if index == 0 { "overrides" } else { "" };
            self.field(label, OfKey { per: &rule.per, one });
        }
        if let Some(more @ 1..) = rule.overrides.len().checked_sub(OVERRIDES_SHOWN_MAX) {
            self.field("", format_args!("and {more} more"));
        }
        for (index, limit) in rule.candidate.iter().enumerate() {
            self.field(if index == 0 { "candidate" } else { "" }, LimitText(limit));
        }
    }

    fn throttled(&mut self, rule: &Rule) {
        match &rule.cost {
            Cost::Number(1) => {}
            Cost::Number(number) => self.field("cost", number),
            Cost::Attribute { name, default } => {
                self.field("cost", format_args!("what {name} says, or {default}"));
            }
        }
        self.field_if("soft", rule.soft.map(|soft| format!("{soft} over pass and are marked")));
        if let Some(elastic) = rule.elastic {
            let below = f64::from(elastic.while_pressure_below.millionths()) / 1e6;
            let up_to = elastic.up_to;
            self.field(
                "elastic",
                format_args!("up to {up_to} while the pressure is below {below}"),
            );
        }
        for (index, (class, share)) in
            rule.priority.iter().flat_map(|priority| priority.reserve.iter()).enumerate()
        {
            let by = rule.priority.as_ref().map_or("", |priority| &priority.by);
            let label = if index == 0 { "priority" } else { "" };
            self.field(label, format_args!("{share} are kept for {by}={class}"));
        }
    }

    fn handled(&mut self, rule: &Rule) {
        let missing = match rule.missing {
            Missing::Skip => None,
            Missing::Shared | Missing::Deny => Some(words::missing(rule.missing)),
        };
        self.field_if("missing", missing);
        if let Count::OnResponse(ranges) = &rule.count {
            let statuses: Vec<String> = ranges.iter().copied().map(words::statuses).collect();
            self.field("count", format_args!("responses of status {}", statuses.join(", ")));
        }
        self.field_if("refused", rule.charge_refused.then_some("charged all the same"));
        match rule.mode {
            Mode::Enforce => {}
            Mode::Shadow => self.field("mode", "shadow: never denies"),
        }
        self.field_if("on failure", rule.on_store_failure.map(words::on_store_failure));
        self.field_if("consistency", rule.consistency.map(words::consistency));
        self.field_if("shown as", rule.shown_as.as_deref());
    }

    fn level(&mut self, level: &Descriptor) {
        let traits = &level.traits;
        self.field_if("name", traits.limit_name.as_deref());
        if !traits.replaces.is_empty() {
            self.field("replaces", traits.replaces.join(", "));
        }
        for (label, is_set, text) in [
            ("shared", traits.share_threshold, "all values of the pattern have one counter"),
            ("quota mode", traits.quota_mode, "tells and does not deny"),
            ("metrics", traits.detailed_metric, "detailed_metric"),
            ("metrics", traits.value_to_metric, "value_to_metric"),
        ] {
            self.field_if(label, is_set.then_some(text));
        }
        for (index, (name, value)) in traits.metadata.iter().enumerate() {
            self.field(if index == 0 { "metadata" } else { "" }, format_args!("{name}: {value}"));
        }
    }

    fn quota(&mut self, label: &str, quota: &Quota) {
        match quota {
            Quota::Limits(limits) => {
                for (index, limit) in limits.iter().enumerate() {
                    self.field(if index == 0 { label } else { "" }, LimitText(limit));
                }
            }
            Quota::Unlimited | Quota::Nothing => self.field(label, Text(quota)),
        }
    }

    fn field_if(&mut self, label: &str, value: Option<impl fmt::Display>) {
        if let Some(value) = value {
            self.field(label, value);
        }
    }

    fn field(&mut self, label: &str, value: impl fmt::Display) {
        let value = printable(&value.to_string());
        self.line(format_args!("    {label:LABEL_COLUMNS$}{value}"));
    }

    fn heading(&mut self, kind: &str, name: &str) {
        let name = printable(name);
        self.line(format_args!("{kind}{HEADING}{name}{HEADING:#}"));
    }

    fn gap(&mut self) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a text cannot fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// A quota in one line.
struct Text<'q>(&'q Quota);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Quota::Unlimited => f.write_str("unlimited"),
            Quota::Nothing => f.write_str("nothing passes"),
            Quota::Limits(limits) => {
                for (index, limit) in limits.iter().enumerate() {
                    let and = if index == 0 { "" } else { " and " };
                    write!(f, "{and}{}", LimitText(limit))?;
                }
                Ok(())
            }
        }
    }
}

/// A limit with the name that clients see, where it has its own.
struct LimitText<'l>(&'l RuleLimit);

impl fmt::Display for LimitText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)?;
        match &self.0.shown_as {
            Some(name) => write!(f, " (shown as {name})"),
            None => Ok(()),
        }
    }
}

/// An override with the key that it is for.
struct OfKey<'r> {
    per: &'r [String],
    one: &'r Override,
}

impl fmt::Display for OfKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, value)) in self.per.iter().zip(&self.one.values).enumerate() {
            write!(f, "{}{name}={value:?}", if index == 0 { "" } else { ", " })?;
        }
        write!(f, ": {}", Text(&self.one.quota))?;
        match self.one.expires {
            Some(expires) => write!(f, " until {}", words::time(expires)),
            None => Ok(()),
        }
    }
}
