//! `tidegate explain`: what rules do to one request, without spending anything.

use tidegate::{Attribute, Clock as _, SystemClock};
use tidegate_rules::RuleSet;
use tidegate_rules::compile::CompiledRules;
use tidegate_rules::identity::{KeyHasher, SECRET_BYTES};
use tidegate_rules::resolve::{Ask, Plan};
use tidegate_server::admin::explained;

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
        output::json(&explained(&explanation, is_denied))?;
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
