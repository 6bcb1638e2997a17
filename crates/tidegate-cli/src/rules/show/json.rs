//! Rules as JSON: a list of documents that are rule files themselves, with every default written out,
//! so that a program that reads them need not know the defaults.
//!
//! What came from Envoy's files is written as there; all else in Tidegate's own spelling.

use serde_json::{Map, Value, json};
use tidegate_rules::rule::{
    Condition, Cost, Count, Domain, Override, Pressure, Quota, Rule, Test, Tiers,
};

use super::levels;
use super::limits;
use super::words;

/// One document for each domain, or two for one that has both rules and descriptors.
pub(super) fn documents(domains: &[&Domain]) -> Value {
    let mut documents = Vec::new();
    for domain in domains {
        if !domain.rules.is_empty() {
            let rules: Vec<Value> = domain.rules.iter().map(rule).collect();
            documents.push(json!({ "domain": domain.name, "rules": rules }));
        }
        if !domain.descriptors.is_empty() || domain.rules.is_empty() {
            let levels = levels::json(&domain.descriptors);
            documents.push(json!({ "domain": domain.name, "descriptors": levels }));
        }
    }
    Value::Array(documents)
}

/// Fields of an object, in order; those with nothing to say are left out.
#[derive(Default)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    pub(super) fn set_some(&mut self, name: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }

    fn set_quota(&mut self, quota: &Quota) {
        match quota {
            Quota::Limits(several) if several.len() > 1 => {
                self.set("limits", several.iter().map(limits::json).collect::<Value>());
            }
            Quota::Limits(_) | Quota::Unlimited | Quota::Nothing => {
                self.set("limit", one_or_several(quota));
            }
        }
    }

    pub(super) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

fn rule(rule: &Rule) -> Value {
    let mut fields = Fields::default();
    fields.set("name", rule.name.as_str());
    fields.set_some("description", rule.description.as_deref());
    let conditions = !rule.conditions.is_empty() || rule.ignore_case;
    fields.set_some("match", conditions.then(|| matches(rule)));
    fields.set("per", rule.per.clone());
    fields.set_quota(&rule.quota);
    fields.set_some("tiers", rule.tiers.as_ref().map(tiers));
    let others = rule.overrides.iter().map(|one| of_key(&rule.per, one));
    fields.set_some("overrides", (!rule.overrides.is_empty()).then(|| others.collect::<Value>()));
    fields.set("missing", words::missing(rule.missing));
    fields.set("cost", cost(&rule.cost));
    throttled(rule, &mut fields);
    handled(rule, &mut fields);
    fields.set_some("shown_as", rule.shown_as.as_deref());
    fields.into_value()
}

fn throttled(rule: &Rule, fields: &mut Fields) {
    fields.set_some("soft", rule.soft.map(|percent| percent.to_string()));
    let elastic = rule.elastic.map(|elastic| {
        let below = decimal(elastic.while_pressure_below);
        json!({ "up_to": elastic.up_to.to_string(), "while_pressure_below": below })
    });
    fields.set_some("elastic", elastic);
    let priority = rule.priority.as_ref().map(|priority| {
        let shares = priority.reserve.iter();
        let shares = shares.map(|(class, share)| (class.clone(), json!(share.to_string())));
        json!({ "by": priority.by, "reserve": shares.collect::<Map<_, _>>() })
    });
    fields.set_some("priority", priority);
}

fn handled(rule: &Rule, fields: &mut Fields) {
    match &rule.count {
        Count::OnRequest => fields.set("count", "on-request"),
        Count::OnResponse(statuses) => {
            fields.set("count", "on-response");
            let statuses = statuses.iter().copied().map(words::statuses);
            fields.set("statuses", statuses.collect::<Value>());
        }
    }
    fields.set("charge_refused", rule.charge_refused);
    fields.set("mode", words::mode(rule.mode));
    let candidate = rule.candidate.iter().map(limits::json);
    fields
        .set_some("candidate", (!rule.candidate.is_empty()).then(|| candidate.collect::<Value>()));
    fields.set_some("on_store_failure", rule.on_store_failure.map(words::on_store_failure));
    fields.set_some("consistency", rule.consistency.map(words::consistency));
}

fn matches(rule: &Rule) -> Value {
    let mut fields = Fields::default();
    for condition in &rule.conditions {
        fields.set(&condition.attribute, tests(condition));
    }
    fields.set_some("ignore_case", rule.ignore_case.then_some(true));
    fields.into_value()
}

fn tests(condition: &Condition) -> Value {
    let test = |test: &Test| match test {
        Test::Exact(text) if is_text_exact(&condition.attribute) => json!(text),
        Test::Exact(text) => json!({ "exact": text }),
        Test::Prefix(text) => json!({ "prefix": text }),
        Test::Glob(glob) => json!({ "glob": glob.as_str() }),
        Test::Cidr(net) => json!({ "cidr": net.to_string() }),
        Test::Path(path) => json!(path.as_str()),
        Test::Present => json!({ "present": true }),
        // The enum may grow; what is not known here is shown, and refused when it is read.
        other => json!({ "unknown": format!("{other:?}") }),
    };
    let tests = match &condition.any_of[..] {
        [one] => test(one),
        several => several.iter().map(test).collect(),
    };
    if condition.negated { json!({ "not": tests }) } else { tests }
}

/// Whether a bare text means this very text. Paths and hosts can have places in them.
fn is_text_exact(attribute: &str) -> bool {
    !matches!(attribute, "path" | "host" | "ip")
}

fn one_or_several(quota: &Quota) -> Value {
    match quota {
        Quota::Unlimited => json!("unlimited"),
        Quota::Nothing => json!("nothing"),
        Quota::Limits(several) => match &several[..] {
            [one] => limits::json(one),
            several => several.iter().map(limits::json).collect(),
        },
    }
}

fn tiers(tiers: &Tiers) -> Value {
    let quotas = tiers.quotas.iter().map(|(tier, quota)| (tier.clone(), one_or_several(quota)));
    json!({ "by": tiers.by, "limits": quotas.collect::<Map<_, _>>() })
}

fn of_key(per: &[String], one: &Override) -> Value {
    let values = per.iter().cloned().zip(one.values.iter().map(|value| json!(value)));
    let mut fields = Fields::default();
    fields.set("for", values.collect::<Map<_, _>>());
    fields.set_quota(&one.quota);
    fields.set_some("expires", one.expires.map(words::time));
    fields.into_value()
}

fn cost(cost: &Cost) -> Value {
    match cost {
        Cost::Number(number) => json!(number),
        Cost::Attribute { name, default } => json!({ "attribute": name, "default": default }),
    }
}

fn decimal(pressure: Pressure) -> f64 {
    f64::from(pressure.millionths()) / f64::from(Pressure::FULL.millionths())
}
