//! Calls as messages.

use bytes::Bytes;
use tidegate::{Attribute, Call};
use tidegate_proto::tidegate::v1::{self as wire, CheckRequest};
use tidegate_tower::decide::Asked;

pub(crate) fn of_call(call: &Call<'_>) -> CheckRequest {
    let attributes = call.attributes.iter().map(attribute).collect();
    request(call.domain, attributes, call.cost)
}

pub(crate) fn of_asked(asked: &Asked) -> CheckRequest {
    let attributes = asked.attributes.iter().map(|one| attribute(&one)).collect();
    request(&asked.domain, attributes, asked.cost)
}

fn request(domain: &str, attributes: Vec<wire::Attribute>, cost: u64) -> CheckRequest {
    CheckRequest {
        domain: domain.to_owned(),
        attributes,
        cost: Some(cost),
        ..CheckRequest::default()
    }
}

/// A value that is no text goes as bytes.
fn attribute(attribute: &Attribute<'_>) -> wire::Attribute {
    let name = attribute.name.to_owned();
    if let Ok(value) = str::from_utf8(attribute.value) {
        return wire::Attribute { name, value: value.to_owned(), raw_value: Bytes::new() };
    }
    let raw_value = Bytes::copy_from_slice(attribute.value);
    wire::Attribute { name, value: String::new(), raw_value }
}

/// The attributes of a message, for who decides them here.
pub(crate) fn attributes(request: &CheckRequest) -> Vec<Attribute<'_>> {
    request.attributes.iter().map(read).collect()
}

fn read(sent: &wire::Attribute) -> Attribute<'_> {
    let is_text = sent.raw_value.is_empty();
    let value = if is_text { sent.value.as_bytes() } else { &sent.raw_value[..] };
    Attribute { name: &sent.name, value }
}
