//! The rules in force, and what they have decided so far. They are told as they are understood; the
//! values of overrides, which are identifiers, are only counted.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use tidegate_rules::rule::{Missing, Mode, Quota, Rule};

use super::body::Query;
use super::reply::{Problem, Reply};
use crate::controls::time_text;
use crate::engine::Engine;
use crate::metrics::{OTHER, RuleCounts, fingerprint};

/// The rules of all domains, or of one.
pub(super) fn list(engine: &Engine, mut query: Query) -> Result<Reply, Problem> {
    let domain = query.take("domain");
    query.end()?;
    let rules = engine.limiter().rules();
    if let Some(name) = &domain
        && rules.set().domain(name).is_none()
    {
        return Err(Problem::field("domain", "there is no such domain"));
    }
    let counts: HashMap<_, _> = engine.metrics().rule_counts(&rules).into_iter().collect();
    let mut domains = Vec::<(&str, Vec<Value>)>::new();
    for (name, rule) in rules.rule_domains() {
        if domain.as_deref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        // Rules beyond the bound of the metrics share one count, which would say nothing about one.
        let counted = counts.get(&(name.into(), rule.name.as_str().into()));
        let shown = shown(rule, counted.filter(|_| name != OTHER));
        match domains.last_mut() {
            Some((last, rules)) if *last == name => rules.push(shown),
            _ => domains.push((name, vec![shown])),
        }
    }
    let domains =
        domains.into_iter().map(|(name, rules)| json!({ "domain": name, "rules": rules }));
    Ok(Reply::json(&json!({
        "version": rules.version(),
        "fingerprint": format!("{:012x}", fingerprint(&rules)),
        "loaded": time_text(engine.metrics().rules_since(&rules)),
        "bypass": engine.controls().is_bypassed(),
        "shadow": engine.controls().is_in_shadow(),
        "domains": domains.collect::<Vec<_>>(),
    })))
}

fn shown(rule: &Rule, counts: Option<&RuleCounts>) -> Value {
    let tiers = rule.tiers.as_ref().map(|tiers| {
        let limits = tiers.quotas.iter().map(|(tier, quota)| (tier.clone(), texts(quota)));
        json!({ "by": tiers.by, "limits": limits.collect::<Map<_, _>>() })
    });
    let counts = counts.map(|counts| {
        json!({
            "allowed": counts.allowed,
            "soft": counts.soft,
            "shadow_denied": counts.shadow_denied,
            "denied": counts.denied,
            "shadow_denials": counts.shadow_denials,
        })
    });
    json!({
        "name": rule.name,
        "description": rule.description,
        "mode": match rule.mode {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
        },
        "conditions": rule.conditions.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "per": rule.per,
        "limits": texts(&rule.quota),
        "tiers": tiers,
        "overrides": rule.overrides.len(),
        "candidate": rule.candidate.iter().map(|limit| &limit.text).collect::<Vec<_>>(),
        "missing": match rule.missing {
            Missing::Skip => "skip",
            Missing::Shared => "shared",
            Missing::Deny => "deny",
        },
        "soft": rule.soft.map(|percent| percent.to_string()),
        "decisions": counts,
    })
}

/// The limits of a quota, or the word for there being none.
fn texts(quota: &Quota) -> Value {
    match quota {
        Quota::Unlimited => json!("unlimited"),
        Quota::Nothing => json!("nothing"),
        Quota::Limits(limits) => limits.iter().map(|limit| json!(limit.text)).collect(),
    }
}
