//! Attributes of requests: any list of them meets the rules that it would meet if every condition of
//! every rule were looked at, and is counted under keys that say who it is and nothing else.
//!
//! The input is lines of `name=value`, with a line `---` between two requests. Names that begin with
//! `!` say what is not an attribute: `!domain`, `!cost`, `!now` (in seconds) and `!pressure` (in
//! millionths).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use tidegate_core::Timestamp;
use tidegate_rules::compile::CompiledRules;
use tidegate_rules::explain::{Explanation, Finding};
use tidegate_rules::identity::KeyHasher;
use tidegate_rules::resolve::{Ask, Plan, ResolveError};
use tidegate_rules::rule::{Descriptor, DescriptorValue, Missing, Pressure, Rule};
use tidegate_rules::{Attribute, ParseOptions, RuleSet, Source};

/// Rules of all kinds, so that requests that differ a little meet different ones.
const RULES: &str = include_str!("attributes/rules.yaml");
/// The name of an attribute that none of the rules names.
const UNNAMED: &str = "nobody-asks-for-this";
/// The most attributes that a request may have, as the rules bound it.
const ATTRIBUTES_MAX: usize = 32;

static COMPILED: LazyLock<CompiledRules> = LazyLock::new(compile);
/// The same rules read again, as at a restart: they are to count the same clients.
static AGAIN: LazyLock<CompiledRules> = LazyLock::new(compile);

fn compile() -> CompiledRules {
    let sources = [Source::new("rules.yaml", RULES)];
    let checked = RuleSet::parse(&sources, &ParseOptions::default());
    let rules = checked.unwrap_or_else(|report| panic!("{report}")).rules;
    CompiledRules::new(rules, &KeyHasher::new(b"any secret at al"))
}

/// # Panics
///
/// Where the claim does not hold.
pub fn check(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let mut requests = lines.split(|line| *line == b"---").map(Request::read);
    let Some(one) = requests.next() else { return };
    let answer = one.check();
    if let Some(other) = requests.next() {
        keys_tell_apart(&answer, &other.check());
    }
}

/// What is asked, from the lines of the input.
struct Request<'d> {
    domain: &'d str,
    attributes: Vec<Attribute<'d>>,
    cost: u64,
    now: Timestamp,
    pressure: Pressure,
}

impl<'d> Request<'d> {
    /// Lines that say nothing are passed over.
    fn read(lines: &[&'d [u8]]) -> Self {
        let (now, pressure) = (Timestamp::from_secs(1_700_000_000), Pressure::FULL);
        let mut request = Self { domain: "api", attributes: Vec::new(), cost: 1, now, pressure };
        for line in lines {
            let Some(equals) = line.iter().position(|byte| *byte == b'=') else { continue };
            let (name, value) = (&line[..equals], &line[equals + 1..]);
            let Ok(name) = std::str::from_utf8(name) else { continue };
            if name.starts_with('!') {
                request.set(name, std::str::from_utf8(value).unwrap_or_default());
            } else {
                request.attributes.push(Attribute { name, value });
            }
        }
        request
    }

    fn set(&mut self, name: &str, value: &'d str) {
        let number = value.parse();
        match (name, number) {
            ("!domain", _) => self.domain = value,
            ("!cost", Ok(cost)) => self.cost = cost,
            // Within what a timestamp can say.
            ("!now", Ok(secs)) => self.now = Timestamp::from_secs(secs % (1 << 40)),
            ("!pressure", Ok(millionths)) => {
                let millionths = millionths.min(u64::from(Pressure::FULL.millionths()));
                self.pressure =
                    Pressure::from_millionths(millionths as u32).unwrap_or(Pressure::FULL);
            }
            _ => {}
        }
    }

    fn ask<'a>(&'a self, attributes: &'a [Attribute<'a>]) -> Ask<'a> {
        let Self { domain, cost, now, pressure, .. } = *self;
        Ask { domain, attributes, cost, now, pressure }
    }

    /// Resolves the request, and looks at the answer from all sides.
    fn check(&self) -> Answer {
        let rules = &*COMPILED;
        let ask = self.ask(&self.attributes);
        let (plan, resolved) = resolve(rules, &ask);
        let explanation = explained_as_resolved(rules, &ask, &plan, resolved);
        if resolved.is_ok() {
            descriptors_as_slowly(rules, &ask, &plan);
            self.order_is_nothing(rules, &plan);
            self.others_are_nothing(rules, &plan);
            assert_eq!(resolve(&AGAIN, &ask).0.charges, plan.charges);
        }
        Answer { plan, explanation }
    }

    /// Where no name comes twice, rules other than Envoy's do not see the order of attributes.
    fn order_is_nothing(&self, rules: &CompiledRules, plan: &Plan) {
        let names: BTreeSet<&str> = self.attributes.iter().map(|one| one.name).collect();
        let is_ordered = rules.set().domain(self.domain).is_some_and(has_descriptors);
        if names.len() < self.attributes.len() || is_ordered {
            return;
        }
        let reversed: Vec<Attribute<'_>> = self.attributes.iter().rev().copied().collect();
        same_plan(plan, &resolve(rules, &self.ask(&reversed)).0);
    }

    /// An attribute that no rule names changes nothing, where it stands does not matter.
    fn others_are_nothing(&self, rules: &CompiledRules, plan: &Plan) {
        let is_ordered = rules.set().domain(self.domain).is_some_and(has_descriptors);
        if self.attributes.len() >= ATTRIBUTES_MAX || is_ordered {
            return;
        }
        let mut more = self.attributes.clone();
        more.insert(more.len() / 2, Attribute::from((UNNAMED, "1")));
        same_plan(plan, &resolve(rules, &self.ask(&more)).0);
    }
}

/// What a request came to.
struct Answer {
    plan: Plan,
    explanation: Explanation,
}

fn resolve(rules: &CompiledRules, ask: &Ask<'_>) -> (Plan, Result<(), ResolveError>) {
    let mut plan = Plan::default();
    let resolved = rules.resolve(ask, &mut plan);
    (plan, resolved)
}

fn same_plan(one: &Plan, other: &Plan) {
    assert_eq!(one.matched, other.matched);
    assert_eq!(one.charges, other.charges);
    assert_eq!((one.skipped, one.denied_by), (other.skipped, other.denied_by));
    assert_eq!(one.shadow_denied_by, other.shadow_denied_by);
}

/// Under one limit, two requests have one key if they have the same values, and only then.
fn keys_tell_apart(one: &Answer, other: &Answer) {
    for (planned, charge) in one.plan.charges.iter().zip(&one.explanation.charges) {
        for (planned_too, charge_too) in other.plan.charges.iter().zip(&other.explanation.charges) {
            if planned.limit != planned_too.limit {
                continue;
            }
            let is_same_key = planned.key == planned_too.key;
            let is_same_value = charge.per == charge_too.per;
            // Values that are no text are shown alike and are not alike.
            let is_text =
                charge.per.iter().flat_map(|(_, value)| value).all(|v| !v.contains('\u{fffd}'));
            assert!(!is_same_key || is_same_value, "one key for {charge} and {charge_too}");
            assert!(is_same_key || !is_same_value || !is_text, "two keys for {charge}");
        }
    }
}

/// The explanation looks at every condition of every rule, and finds the rules that were matched by
/// way of the index.
pub(crate) fn explained_as_resolved(
    rules: &CompiledRules,
    ask: &Ask<'_>,
    plan: &Plan,
    resolved: Result<(), ResolveError>,
) -> Explanation {
    let explanation = rules.explain(ask);
    assert!(!explanation.to_string().is_empty());
    assert_eq!(explanation.error, resolved.err());
    assert_eq!(explanation.is_domain_known, plan.domain.is_some());
    if resolved.is_err() {
        assert!(plan.charges.is_empty() && plan.matched.is_empty(), "refused and yet charged");
        return explanation;
    }
    let (mut matched, mut skipped) = (Vec::new(), 0);
    for considered in &explanation.rules {
        match &considered.finding {
            Finding::Missing { then: Missing::Skip, .. } => skipped += 1,
            Finding::NoMatch { .. } | Finding::OtherDescriptor => {}
            _ => matched.push(considered.rule.as_str()),
        }
    }
    let found: Vec<&str> = plan.matched.iter().map(|id| rules.rule(*id).name.as_str()).collect();
    assert_eq!(found, matched, "the index and the conditions differ: {explanation}");
    assert_eq!(plan.skipped, skipped, "{explanation}");
    let keys: Vec<u128> = plan.charges.iter().map(|planned| planned.key.as_hash()).collect();
    let explained: Vec<u128> = explanation.charges.iter().map(|charge| charge.key).collect();
    assert_eq!(keys, explained);
    explanation
}

/// The levels of Envoy's descriptors, walked as they were written.
fn descriptors_as_slowly(rules: &CompiledRules, ask: &Ask<'_>, plan: &Plan) {
    let Some(domain) = rules.set().domain(ask.domain) else { return };
    let expected = walk(&domain.descriptors, ask.attributes).map(|rule| rule.name.as_str());
    let own = |name: &str| domain.rules.iter().any(|rule| rule.name == name);
    let found = plan.matched.iter().map(|id| rules.rule(*id).name.as_str()).find(|name| !own(name));
    assert_eq!(found, expected, "{ask:?}");
}

fn walk<'r>(levels: &'r [Descriptor], attributes: &[Attribute<'_>]) -> Option<&'r Rule> {
    let (first, rest) = attributes.split_first()?;
    let takes = |value: &DescriptorValue, rank: usize| match value {
        DescriptorValue::Exact(text) => rank == 0 && text.as_bytes() == first.value,
        DescriptorValue::Glob(glob) => rank == 1 && glob.matches(first.value),
        DescriptorValue::Any => rank == 2,
    };
    let mut named = (0..3).flat_map(|rank| levels.iter().map(move |level| (rank, level)));
    let (_, level) =
        named.find(|(rank, level)| level.key == first.name && takes(&level.value, *rank))?;
    if rest.is_empty() { level.rule.as_ref() } else { walk(&level.children, rest) }
}

fn has_descriptors(domain: &tidegate_rules::rule::Domain) -> bool {
    !domain.descriptors.is_empty()
}
