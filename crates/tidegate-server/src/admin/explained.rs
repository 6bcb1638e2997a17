//! An explanation as JSON, for the admin address and for the command line.

use serde_json::{Value, json};
use tidegate_rules::compile::Role;
use tidegate_rules::explain::{ExplainedCharge, Explanation, Finding, QuotaOf};
use tidegate_rules::rule::{Missing, Mode};

/// What the rules say about one request, and whether they deny it whatever has been counted.
pub fn explained(explanation: &Explanation, is_denied: bool) -> Value {
    let rules = explanation.rules.iter().map(|considered| {
        let mut value = finding(&considered.finding);
        value["rule"] = json!(considered.rule);
        value["text"] = json!(considered.finding.to_string());
        value
    });
    json!({
        "domain": explanation.domain,
        "rules": rules.collect::<Vec<_>>(),
        "charges": explanation.charges.iter().map(charge).collect::<Vec<_>>(),
        "denied": is_denied,
        "error": explanation.error.as_ref().map(ToString::to_string),
    })
}
fn finding(finding: &Finding) -> Value {
    match finding {
        Finding::Applies { by } => match by {
            QuotaOf::Rule => json!({ "finding": "applies", "limits_of": "rule" }),
            QuotaOf::Tier(tier) => {
                json!({ "finding": "applies", "limits_of": "tier", "tier": tier })
            }
            QuotaOf::Override => json!({ "finding": "applies", "limits_of": "override" }),
            _ => json!({ "finding": "applies" }),
        },
        Finding::NoMatch { condition, value } => {
            json!({ "finding": "no-match", "condition": condition, "value": value })
        }
        Finding::Missing { attribute, then } => {
            let then = match then {
                Missing::Skip => "skip",
                Missing::Shared => "shared",
                Missing::Deny => "deny",
            };
            json!({ "finding": "missing", "attribute": attribute, "then": then })
        }
        Finding::Banned => json!({ "finding": "banned" }),
        Finding::OtherDescriptor => json!({ "finding": "other-descriptor" }),
        // What is not known here yet is told by its text.
        _ => json!({ "finding": "other" }),
    }
}

fn charge(charge: &ExplainedCharge) -> Value {
    let per: Vec<Value> = charge
        .per
        .iter()
        .map(|(name, value)| json!({ "attribute": name, "value": value }))
        .collect();
    json!({
        "rule": charge.rule,
        "limit": charge.limit,
        "role": match charge.role {
            Role::Limit => "limit",
            Role::Reserve(_) => "reserve",
            Role::Candidate => "candidate",
            Role::Plain => "plain",
        },
        "reserved_for": charge.reserved_for,
        "mode": match charge.mode {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
        },
        "relaxed": charge.is_relaxed,
        "per": per,
        "cost": charge.cost,
        "key": format!("{:032x}", charge.key),
    })
}
