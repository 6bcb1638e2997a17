//! What Envoy is told as metadata of a request, for its access log and its later filters, under the
//! names that envoyproxy/ratelimit uses. `quotaModeViolations` and `shadowModeViolations` are there
//! only where something is over.

use std::collections::BTreeMap;

use prost_types::value::Kind;
use prost_types::{ListValue, Struct, Value};
use tidegate::rules::DescriptorsDecision;

use crate::engine::DescriptorsAnswer;
use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

type Fields = BTreeMap<String, Value>;

/// The metadata of one answer.
pub(super) fn of(request: &RateLimitRequest, answer: &DescriptorsAnswer) -> Struct {
    let mut fields = Fields::new();
    fields.insert("domain".to_owned(), text(&request.domain));
    let descriptors = request.descriptors.iter().map(descriptor).collect();
    fields.insert("descriptors".to_owned(), list(descriptors));
    if request.hits_addend != 0 {
        fields.insert("hitsAddend".to_owned(), number(request.hits_addend.into()));
    }
    let (mut said, mut quotas, mut shadows) = (Fields::new(), Vec::new(), Vec::new());
    let statuses = answer.decision().into_iter().flat_map(DescriptorsDecision::statuses);
    for (index, status) in (0_u32..).zip(statuses) {
        for (name, json) in status.metadata() {
            // It was read as JSON when the rules were.
            let value = serde_json::from_str(json).unwrap_or_default();
            merge(&mut said, name, of_json(value));
        }
        if status.is_quota() && status.is_over() {
            quotas.push(number(index.into()));
        }
        if status.is_shadow_denied() {
            let name = status.limit_name().or(status.rule().map(|rule| rule.name.as_str()));
            shadows.extend(name.map(text));
        }
    }
    if !said.is_empty() {
        fields.insert("metadata".to_owned(), structure(said));
    }
    for (name, values) in [("quotaModeViolations", quotas), ("shadowModeViolations", shadows)] {
        if !values.is_empty() {
            fields.insert(name.to_owned(), list(values));
        }
    }
    Struct { fields }
}

fn descriptor(descriptor: &RateLimitDescriptor) -> Value {
    let entries = descriptor.entries.iter();
    let entries = entries.map(|entry| text(&format!("{}={}", entry.key, entry.value))).collect();
    let mut fields = Fields::from([("entries".to_owned(), list(entries))]);
    if let Some(limit) = &descriptor.limit {
        let unit = limit.unit().as_str_name();
        let limit = format!("requests_per_unit:{} unit:{unit}", limit.requests_per_unit);
        fields.insert("limit".to_owned(), text(&limit));
    }
    if let Some(hits) = descriptor.hits_addend {
        // The format has no whole numbers beyond 2^53.
        #[expect(clippy::cast_precision_loss, reason = "the format has no other numbers")]
        fields.insert("hitsAddend".to_owned(), number(hits as f64));
    }
    structure(fields)
}

/// What an earlier descriptor said stays; structures are put together.
fn merge(into: &mut Fields, name: &str, value: Value) {
    let Some(there) = into.get_mut(name) else {
        into.insert(name.to_owned(), value);
        return;
    };
    if let (Some(Kind::StructValue(there)), Some(Kind::StructValue(more))) =
        (&mut there.kind, value.kind)
    {
        for (name, value) in more.fields {
            merge(&mut there.fields, &name, value);
        }
    }
}

fn of_json(value: serde_json::Value) -> Value {
    use serde_json::Value as Json;
    let kind = match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(flag) => Kind::BoolValue(flag),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => Kind::StringValue(text),
        Json::Array(values) => return list(values.into_iter().map(of_json).collect()),
        Json::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, of_json(value)));
            return structure(fields.collect());
        }
    };
    Value { kind: Some(kind) }
}

fn text(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}

fn number(number: f64) -> Value {
    Value { kind: Some(Kind::NumberValue(number)) }
}

fn list(values: Vec<Value>) -> Value {
    Value { kind: Some(Kind::ListValue(ListValue { values })) }
}

fn structure(fields: Fields) -> Value {
    Value { kind: Some(Kind::StructValue(Struct { fields })) }
}
