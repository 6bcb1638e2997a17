//! Requests and answers of the services that can be asked, in the few fields that matter here.

use crate::bench::keys::KEY_SHAPE;
use crate::bench::tally::Verdict;

/// Which service is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`, with one descriptor of one
    /// entry: the attribute and a key.
    Envoy { domain: String, attribute: String },
    /// `throttlecrab.RateLimiter/Throttle`, for comparisons.
    Throttlecrab,
}

/// Field numbers of the messages, and values of Envoy's `Code`.
mod field {
    pub(super) const DOMAIN: u8 = 1;
    pub(super) const DESCRIPTORS: u8 = 2;
    pub(super) const ENTRIES: u8 = 1;
    pub(super) const ENTRY_KEY: u8 = 1;
    pub(super) const ENTRY_VALUE: u8 = 2;
    pub(super) const OVERALL_CODE: u8 = 1;
    pub(super) const CODE_OK: u64 = 1;
    pub(super) const CODE_OVER_LIMIT: u64 = 2;
    pub(super) const ALLOWED: u8 = 1;
}

/// The limit that throttlecrab is asked about, far away: burst, count and seconds.
const FAR_LIMIT: [(u8, u64); 4] = [(2, 100_000), (3, 100_000), (4, 86_400), (5, 1)];

impl Service {
    pub(super) fn path(&self) -> &'static str {
        match self {
            Self::Envoy { .. } => "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            Self::Throttlecrab => "/throttlecrab.RateLimiter/Throttle",
        }
    }

    /// A request, with the shape of a key in the place of one.
    pub(super) fn message(&self) -> Vec<u8> {
        let mut message = Vec::new();
        match self {
            Self::Envoy { domain, attribute } => {
                let mut entry = Vec::new();
                bytes(field::ENTRY_KEY, attribute.as_bytes(), &mut entry);
                bytes(field::ENTRY_VALUE, KEY_SHAPE.as_bytes(), &mut entry);
                let mut descriptor = Vec::new();
                bytes(field::ENTRIES, &entry, &mut descriptor);
                bytes(field::DOMAIN, domain.as_bytes(), &mut message);
                bytes(field::DESCRIPTORS, &descriptor, &mut message);
            }
            Self::Throttlecrab => {
                bytes(1, KEY_SHAPE.as_bytes(), &mut message);
                for (number, value) in FAR_LIMIT {
                    message.push(number << 3);
                    varint(value, &mut message);
                }
            }
        }
        message
    }

    /// What an answer says.
    pub(super) fn verdict(&self, message: &[u8]) -> Verdict {
        match self {
            Self::Envoy { .. } => match number(field::OVERALL_CODE, message) {
                Some(field::CODE_OK) => Verdict::Allowed,
                Some(field::CODE_OVER_LIMIT) => Verdict::Denied,
                _ => Verdict::Failed("an answer of Envoy's service without a code".to_owned()),
            },
            // A field that is false is left out.
            Self::Throttlecrab => match number(field::ALLOWED, message) {
                Some(1) => Verdict::Allowed,
                _ => Verdict::Denied,
            },
        }
    }
}

/// A field of text or of another message.
fn bytes(number: u8, value: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 128 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The number in a field that writers put first. Servers write fields in their order, and the ones
/// that are looked for here are 1.
fn number(field: u8, message: &[u8]) -> Option<u64> {
    match message {
        [tag, value @ 0..=127, ..] if *tag == field << 3 => Some(u64::from(*value)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envoy() -> Service {
        Service::Envoy { domain: "api".into(), attribute: "user".into() }
    }

    #[test]
    fn envoys_request_is_as_protobuf_writes_it() {
        let expected = b"\x0a\x03api\x12\x1a\x0a\x18\x0a\x04user\x12\x10key:000000000000";
        assert_eq!(envoy().message(), expected);
    }

    #[test]
    fn throttlecrabs_request_is_as_protobuf_writes_it() {
        let expected =
            b"\x0a\x10key:000000000000\x10\xa0\x8d\x06\x18\xa0\x8d\x06\x20\x80\xa3\x05\x28\x01";
        assert_eq!(Service::Throttlecrab.message(), expected);
    }

    #[test]
    fn the_code_is_the_verdict() {
        assert_eq!(envoy().verdict(&[0x08, 1, 0x12, 0]), Verdict::Allowed);
        assert_eq!(envoy().verdict(&[0x08, 2]), Verdict::Denied);
        for message in [&[][..], &[0x08, 0], &[0x08, 3], &[0x12, 0]] {
            assert!(matches!(envoy().verdict(message), Verdict::Failed(_)), "{message:?}");
        }
        assert_eq!(Service::Throttlecrab.verdict(&[0x08, 1]), Verdict::Allowed);
        assert_eq!(Service::Throttlecrab.verdict(&[0x10, 5]), Verdict::Denied);
    }
}
