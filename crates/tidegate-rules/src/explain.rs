//! Why a request is counted as it is: which rules were considered, which match and why the others do
//! not, and which limits and keys follow. Nothing is decided and nothing is spent.

use std::fmt;

use crate::compile::{CompiledDomain, CompiledRule, CompiledRules, Role, RuleId};
use crate::index::View;
use crate::resolve::{Ask, Plan, ResolveError};
use crate::rule::{Condition, Missing, Mode, Quota, Test};

/// Everything that a domain's rules say about one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The domain that was asked for.
    pub domain: String,
    /// Whether there is such a domain.
    pub is_domain_known: bool,
    /// Its rules, in the order of the files.
    pub rules: Vec<Considered>,
    /// What would be charged.
    pub charges: Vec<ExplainedCharge>,
    /// Why the request cannot be decided at all.
    pub error: Option<ResolveError>,
}

/// One rule, and whether it applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Considered {
    /// The rule's name.
    pub rule: String,
    /// Whether it applies, or why not.
    pub finding: Finding,
}

/// Whether a rule applies to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// It does.
    Applies {
        /// Where its limits come from.
        by: QuotaOf,
    },
    /// A condition does not hold.
    NoMatch {
        /// The condition, as text.
        condition: String,
        /// What the request has instead.
        value: Option<String>,
    },
    /// It matches, but an attribute that it counts by is missing.
    Missing {
        /// The attribute.
        attribute: String,
        /// What follows.
        then: Missing,
    },
    /// It does, and gives nothing to anyone.
    Banned,
    /// Envoy's descriptors lead elsewhere.
    OtherDescriptor,
}

/// Where the limits of a rule come from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaOf {
    /// The rule's own.
    Rule,
    /// The tier of this name.
    Tier(String),
    /// An override of this key.
    Override,
}

/// One limit that would be charged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedCharge {
    /// Whose limit.
    pub rule: String,
    /// The limit, as it is written.
    pub limit: String,
    /// What it is there for.
    pub role: Role,
    /// The class whose share a reserve keeps.
    pub reserved_for: Option<String>,
    /// Whether it can deny.
    pub mode: Mode,
    /// Whether it is stretched, because there is little pressure.
    pub is_relaxed: bool,
    /// Who is counted; the value is `None` where it is missing.
    pub per: Vec<(String, Option<String>)>,
    /// How much would be taken.
    pub cost: u64,
    /// The key's hash, by which a store knows it.
    pub key: u128,
}

impl CompiledRules {
    /// Explains what follows from a request.
    pub fn explain(&self, ask: &Ask<'_>) -> Explanation {
        let mut plan = Plan::default();
        let error = self.resolve(ask, &mut plan).err();
        let mut explanation = Explanation {
            domain: ask.domain.to_owned(),
            is_domain_known: plan.domain.is_some(),
            rules: Vec::new(),
            charges: Vec::new(),
            error,
        };
        if let (Some(domain), None) = (self.domain(ask.domain), error) {
            let view = domain.index.view(ask.attributes);
            explanation.rules = self.considered(ask, domain, &view, &plan);
            explanation.charges = self.explained_charges(ask, &view, &plan);
        }
        explanation
    }

    fn considered(
        &self,
        ask: &Ask<'_>,
        domain: &CompiledDomain,
        view: &View<'_>,
        plan: &Plan,
    ) -> Vec<Considered> {
        let rules = (domain.first..domain.first_descriptor).map(RuleId::new);
        let own = rules.map(|id| {
            let rule = self.compiled_rule(id);
            consider(ask, domain, rule, view)
        });
        let descriptors = (domain.first_descriptor..domain.end).map(|number| {
            let id = RuleId::new(number);
            let finding = if !plan.matched.contains(&id) {
                Finding::OtherDescriptor
            } else if self.rule(id).quota == Quota::Nothing {
                Finding::Banned
            } else {
                Finding::Applies { by: QuotaOf::Rule }
            };
            Considered { rule: self.rule(id).name.clone(), finding }
        });
        own.chain(descriptors).collect()
    }

    fn explained_charges(
        &self,
        ask: &Ask<'_>,
        view: &View<'_>,
        plan: &Plan,
    ) -> Vec<ExplainedCharge> {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let explained = plan.charges.iter().map(|planned| {
            let limit = self.limit(planned.limit);
            let compiled = self.compiled_rule(limit.rule());
            let rule = &compiled.rule;
            let value = |(&id, name): (_, &String)| {
                // Attributes of descriptors are taken as they are, not as they are viewed.
                let own = ask.attributes.iter().find(|one| one.name == *name).map(|one| one.value);
                (name.clone(), view.value(id).or(own).map(text))
            };
            let reserved_for = match limit.role() {
                Role::Reserve(class) => rule.priority.as_ref().and_then(|priority| {
                    priority.reserve.get(usize::from(class)).map(|(name, _)| name.clone())
                }),
                Role::Limit | Role::Candidate | Role::Plain => None,
            };
            ExplainedCharge {
                rule: rule.name.clone(),
                limit: limit.written().text.clone(),
                role: limit.role(),
                reserved_for,
                mode: if limit.is_enforced() { Mode::Enforce } else { Mode::Shadow },
                is_relaxed: planned.relaxed,
                per: compiled.per.iter().zip(&rule.per).map(value).collect(),
                cost: planned.cost,
                key: planned.key.as_hash(),
            }
        });
        explained.collect()
    }
}

/// Whether one rule applies.
fn consider(
    ask: &Ask<'_>,
    domain: &CompiledDomain,
    rule: &CompiledRule,
    view: &View<'_>,
) -> Considered {
    let finding = if let Some(condition) = domain.index.why_not(&rule.rule, view) {
        let value = ask.attributes.iter().find(|one| one.name == condition.attribute);
        Finding::NoMatch {
            condition: condition.to_string(),
            value: value.map(|one| String::from_utf8_lossy(one.value).into_owned()),
        }
    } else if let Some(missing) = (rule.per.iter().zip(&rule.rule.per))
        .find_map(|(&id, name)| view.value(id).is_none().then_some(name))
        && rule.rule.missing != Missing::Shared
    {
        Finding::Missing { attribute: missing.clone(), then: rule.rule.missing }
    } else {
        Finding::Applies { by: rule.quota_of(view, ask.now) }
    };
    Considered { rule: rule.rule.name.clone(), finding }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_domain_known {
            return writeln!(f, "domain {}: no rules, so the request passes", self.domain);
        }
        writeln!(f, "domain {}", self.domain)?;
        if let Some(error) = self.error {
            return writeln!(f, "  cannot be decided: {error}");
        }
        for considered in &self.rules {
            writeln!(f, "  rule {}: {}", considered.rule, considered.finding)?;
        }
        if self.charges.is_empty() {
            return writeln!(f, "nothing is counted");
        }
        writeln!(f, "counted under")?;
        for charge in &self.charges {
            writeln!(f, "  {charge}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Applies { by: QuotaOf::Rule } => f.write_str("applies"),
            Self::Applies { by: QuotaOf::Tier(tier) } => write!(f, "applies, with tier {tier:?}"),
            Self::Applies { by: QuotaOf::Override } => f.write_str("applies, with an override"),
            Self::NoMatch { condition, value: None } => {
                write!(f, "does not match: {condition}, and the request has none")
            }
            Self::NoMatch { condition, value: Some(value) } => {
                write!(f, "does not match: {condition}, and the request has {value:?}")
            }
            Self::Missing { attribute, then } => {
                let then = match then {
                    Missing::Skip => "does not apply",
                    Missing::Shared => "applies to all such requests together",
                    Missing::Deny => "denies",
                };
                write!(f, "{then}: it counts per {attribute}, which is missing")
            }
            Self::Banned => f.write_str("denies: it gives nothing to anyone"),
            Self::OtherDescriptor => {
                f.write_str("does not match: the attributes lead to another level, or end at one")
            }
        }
    }
}

impl fmt::Display for ExplainedCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.limit)?;
        if self.per.is_empty() {
            f.write_str(" for all requests together")?;
        }
        for (index, (name, value)) in self.per.iter().enumerate() {
            f.write_str(if index == 0 { " for " } else { ", " })?;
            match value {
                Some(value) => write!(f, "{name}={value:?}")?,
                None => write!(f, "{name} missing")?,
            }
        }
        if self.cost != 1 {
            write!(f, ", cost {}", self.cost)?;
        }
        if let Some(class) = &self.reserved_for {
            write!(f, ", less the share of {class:?}")?;
        }
        if self.is_relaxed {
            f.write_str(", stretched")?;
        }
        match (self.role, self.mode) {
            (Role::Candidate, _) => f.write_str(", tried out"),
            (Role::Plain, _) => f.write_str(", to mark what is beyond it"),
            (_, Mode::Shadow) => f.write_str(", in shadow"),
            (_, Mode::Enforce) => Ok(()),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.negated { "must not" } else { "must" };
        write!(f, "{} {word} ", self.attribute)?;
        for (index, test) in self.any_of.iter().enumerate() {
            if index > 0 {
                f.write_str(" or ")?;
            }
            match test {
                Test::Exact(text) => write!(f, "be {text:?}")?,
                Test::Prefix(text) => write!(f, "begin with {text:?}")?,
                Test::Glob(glob) => write!(f, "fit {:?}", glob.as_str())?,
                Test::Cidr(net) => write!(f, "be in {net}")?,
                Test::Path(path) => write!(f, "fit {}", path.as_str())?,
                Test::Present => f.write_str("be there")?,
            }
        }
        Ok(())
    }
}
