//! A `RateLimitRequest` from protobuf's JSON form: names in either spelling, whole numbers as numbers
//! or as text, `null` for what is not set, and nothing that the message does not have.

use serde_json::{Map, Value};

use crate::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use crate::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use crate::proto::envoy::r#type::v3::RateLimitUnit;

/// The text is no such message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAMessage;

type Read<T> = Result<T, NotAMessage>;

/// Reads a request.
pub(super) fn request(body: &[u8]) -> Read<RateLimitRequest> {
    let value: Value = serde_json::from_slice(body).map_err(|_| NotAMessage)?;
    let mut fields = Fields::of(value)?;
    let request = RateLimitRequest {
        domain: fields.text("domain", "domain")?,
        descriptors: fields.list("descriptors", "descriptors", descriptor)?,
        hits_addend: fields.number("hitsAddend", "hits_addend")?.map_or(Ok(0), narrow)?,
    };
    fields.end(request)
}

fn descriptor(value: Value) -> Read<RateLimitDescriptor> {
    let mut fields = Fields::of(value)?;
    let descriptor = RateLimitDescriptor {
        entries: fields.list("entries", "entries", entry)?,
        limit: fields.take("limit", "limit")?.map(limit).transpose()?,
        hits_addend: fields.number("hitsAddend", "hits_addend")?,
        is_negative_hits: match fields.take("isNegativeHits", "is_negative_hits")? {
            None => false,
            Some(value) => value.as_bool().ok_or(NotAMessage)?,
        },
    };
    fields.end(descriptor)
}

fn entry(value: Value) -> Read<Entry> {
    let mut fields = Fields::of(value)?;
    let entry = Entry { key: fields.text("key", "key")?, value: fields.text("value", "value")? };
    fields.end(entry)
}

fn limit(value: Value) -> Read<RateLimitOverride> {
    let mut fields = Fields::of(value)?;
    let limit = RateLimitOverride {
        requests_per_unit: fields
            .number("requestsPerUnit", "requests_per_unit")?
            .map_or(Ok(0), narrow)?,
        unit: match fields.take("unit", "unit")? {
            None => RateLimitUnit::Unknown.into(),
            Some(Value::String(name)) => {
                RateLimitUnit::from_str_name(&name).ok_or(NotAMessage)?.into()
            }
            Some(value) => i32::try_from(whole(&value)?).map_err(|_| NotAMessage)?,
        },
    };
    fields.end(limit)
}

fn narrow(number: u64) -> Read<u32> {
    u32::try_from(number).map_err(|_| NotAMessage)
}

/// The first number that has no room.
const END: f64 = 18_446_744_073_709_551_616.0;

/// A whole number, as a number or as text; `1.0` and `1e2` are whole.
fn whole(value: &Value) -> Read<u64> {
    let number = match value {
        Value::Number(number) => number.clone(),
        Value::String(text) if text.trim() == text => {
            serde_json::from_str(text).map_err(|_| NotAMessage)?
        }
        _ => return Err(NotAMessage),
    };
    if let Some(number) = number.as_u64() {
        return Ok(number);
    }
    match number.as_f64() {
        Some(number) if number.fract() == 0.0 && (0.0..END).contains(&number) =>
        {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is whole and within range"
            )]
            Ok(number as u64)
        }
        _ => Err(NotAMessage),
    }
}

/// The fields of a message that have not been read yet.
struct Fields(Map<String, Value>);

impl Fields {
    fn of(value: Value) -> Read<Self> {
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(NotAMessage),
        }
    }

    /// A field by one of its two names; not by both.
    fn take(&mut self, camel: &str, snake: &str) -> Read<Option<Value>> {
        let first = self.0.remove(camel);
        let second = if camel == snake { None } else { self.0.remove(snake) };
        match (first, second) {
            (Some(_), Some(_)) => Err(NotAMessage),
            (Some(value), None) | (None, Some(value)) => {
                Ok(Some(value).filter(|one| !one.is_null()))
            }
            (None, None) => Ok(None),
        }
    }

    fn text(&mut self, camel: &str, snake: &str) -> Read<String> {
        match self.take(camel, snake)? {
            None => Ok(String::new()),
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(NotAMessage),
        }
    }

    fn number(&mut self, camel: &str, snake: &str) -> Read<Option<u64>> {
        self.take(camel, snake)?.as_ref().map(whole).transpose()
    }

    fn list<T>(
        &mut self,
        camel: &str,
        snake: &str,
        read: impl Fn(Value) -> Read<T>,
    ) -> Read<Vec<T>> {
        match self.take(camel, snake)? {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => values.into_iter().map(read).collect(),
            Some(_) => Err(NotAMessage),
        }
    }

    /// The message, if nothing is left over.
    fn end<T>(self, message: T) -> Read<T> {
        if self.0.is_empty() { Ok(message) } else { Err(NotAMessage) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_names_are_read() {
        let camel = br#"{"domain":"d","hitsAddend":2,"descriptors":[{"entries":[{"key":"k","value":"v"}],
            "limit":{"requestsPerUnit":5,"unit":"MINUTE"},"hitsAddend":"3","isNegativeHits":true}]}"#;
        let snake = br#"{"domain":"d","hits_addend":"2","descriptors":[{"entries":[{"key":"k","value":"v"}],
            "limit":{"requests_per_unit":5.0,"unit":2},"hits_addend":3,"is_negative_hits":true}]}"#;
        let read = request(camel).unwrap();
        assert_eq!(Ok(&read), request(snake).as_ref());
        let descriptor = &read.descriptors[0];
        assert_eq!((read.hits_addend, descriptor.hits_addend), (2, Some(3)));
        assert_eq!(descriptor.limit.as_ref().unwrap().unit(), RateLimitUnit::Minute);
    }

    #[test]
    fn what_is_not_set_may_be_null_or_left_out() {
        let all = request(br#"{"domain":null,"descriptors":null,"hitsAddend":null}"#).unwrap();
        assert_eq!(all, RateLimitRequest::default());
        assert_eq!(request(b"{}").unwrap(), RateLimitRequest::default());
        let zero = request(br#"{"descriptors":[{"hitsAddend":0},{}]}"#).unwrap();
        let hits: Vec<_> = zero.descriptors.iter().map(|one| one.hits_addend).collect();
        assert_eq!(hits, [Some(0), None]);
    }

    #[test]
    fn what_the_message_does_not_have_is_refused() {
        for text in [
            "",
            "[]",
            "{",
            "7",
            r#""text""#,
            r#"{"domain":7}"#,
            r#"{"unknown":1}"#,
            r#"{"hitsAddend":-1}"#,
            r#"{"hitsAddend":4294967296}"#,
            r#"{"hitsAddend":1.5}"#,
            r#"{"hitsAddend":1,"hits_addend":1}"#,
            r#"{"descriptors":{}}"#,
            r#"{"descriptors":[{"entries":[{"key":"k","more":1}]}]}"#,
            r#"{"descriptors":[{"limit":{"unit":"FORTNIGHT"}}]}"#,
            r#"{"descriptors":[{"hitsAddend":18446744073709551616}]}"#,
        ] {
            assert_eq!(request(text.as_bytes()), Err(NotAMessage), "{text}");
        }
    }
}
