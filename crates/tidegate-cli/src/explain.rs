//! `tidegate explain`: what rules do to one request, without spending anything.

use serde_json::{Value, json};
use tidegate::{Attribute, Clock as _, SystemClock};
use tidegate_rules::RuleSet;
use tidegate_rules::compile::{CompiledRules, Role};
use tidegate_rules::explain::{ExplainedCharge, Explanation, Finding, QuotaOf};
use tidegate_rules::identity::{KeyHasher, SECRET_BYTES};
use tidegate_rules::resolve::{Ask, Plan};
use tidegate_rules::rule::{Missing, Mode};

use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::{Answer, input, output};

/// Keys tell here which requests share a counter, and nothing is stored under them: so they need no
/// secret, and are the same from one run to the next.
const NO_SECRET: [u8; SECRET_BYTES] = [0; SECRET_BYTES];

/// Explains the request.
pub(crate) fn run(args: &ExplainArgs) -> Result<Answer, Failure> {
    let set = input::rules(&args.rules, args.reading)?;
    let domain = domain_of(args, &set)?.to_owned();
    let attributes: Vec<Attribute<'_>> = args
        .attributes
        .iter()
        .map(|(name, value)| Attribute::from((name.as_str(), value.as_str())))
        .collect();
    let ask = Ask {
        domain: &domain,
        attributes: &attributes,
        cost: args.cost,
        now: SystemClock.now(),
        pressure: args.pressure,
    };
    let rules = CompiledRules::new(set, &KeyHasher::new(&NO_SECRET));
    let explanation = rules.explain(&ask);
    let is_denied = is_denied(&rules, &ask);
    if args.json {
        output::json(&as_json(&explanation, is_denied))?;
    } else {
        let outcome = if is_denied { "the request is denied\n" } else { "" };
        output::data(&format!("{explanation}{outcome}"))?;
    }
    Ok(if explanation.error.is_some() { Answer::Unknown } else { Answer::Yes })
}

/// Whether a rule denies the request whatever has been counted. One in shadow does not.
fn is_denied(rules: &CompiledRules, ask: &Ask<'_>) -> bool {
    let mut plan = Plan::default();
    rules.resolve(ask, &mut plan).is_ok() && plan.denied_by.is_some()
}

/// The domain that is meant: the one that was named, or the only one.
fn domain_of<'a>(args: &'a ExplainArgs, set: &'a RuleSet) -> Result<&'a str, Failure> {
    match (&args.domain, set.domains()) {
        (Some(name), _) => Ok(&input::domain(set, name)?.name),
        (None, [only]) => Ok(&only.name),
        (None, _) => {
            let known = input::domains_of(set);
            Err(Failure::Asked(format!("say which domain is meant, with --domain: {known}")))
        }
    }
}

fn as_json(explanation: &Explanation, is_denied: bool) -> Value {
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
