//! Claims that become attributes.

use serde_json::{Map, Number, Value};

use crate::config::VALUE_BYTES_MAX;
use crate::fingerprint::Fingerprint;

/// How many digits a broken number may have. So many survive being read.
const DECIMALS_MAX: usize = 15;

/// A claim of a token that becomes an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What the attribute is called.
    pub name: String,
    /// Which claim it is: its name, or a way through objects as `org.id`. A claim whose own name has
    /// dots, as `https://example.com/plan`, is found by that name.
    pub path: String,
}

impl Claim {
    /// The attribute `name` from the claim at `path`.
    pub fn new(name: impl Into<String>, path: impl Into<String>) -> Self {
        Self { name: name.into(), path: path.into() }
    }

    /// Appends the claim as text; says `false` where there is none, or one that is no text, truth value or
    /// number of at most 64 bits.
    pub(super) fn write(
        &self,
        claims: &Map<String, Value>,
        fingerprint: &Fingerprint,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        match find(claims, &self.path) {
            Some(Value::String(text)) => out.extend_from_slice(text.as_bytes()),
            Some(Value::Number(number)) => match exact(number) {
                Some(text) => out.extend_from_slice(text.as_bytes()),
                None => return false,
            },
            Some(Value::Bool(yes)) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => return false,
        }
        fingerprint.shorten(out, start, VALUE_BYTES_MAX);
        true
    }
}

/// A number as text, where the number at hand is the one in the token. What does not fit into 64 bits was rounded when
/// it was read, and two users with long numbers would become one.
fn exact(number: &Number) -> Option<String> {
    let text = number.to_string();
    let is_whole = number.is_i64() || number.is_u64();
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let is_short = digits <= DECIMALS_MAX && !text.contains(['e', 'E']);
    (is_whole || is_short).then_some(text)
}

/// The value at a path. At every level the longest name that exists is meant: `a.b` before `a` with a
/// `b` inside.
fn find<'c>(claims: &'c Map<String, Value>, path: &str) -> Option<&'c Value> {
    if let Some(value) = claims.get(path) {
        return Some(value);
    }
    let dots = path.rmatch_indices('.').map(|(at, _)| at);
    dots.filter_map(|at| Some((claims.get(&path[..at])?.as_object()?, &path[at + 1..])))
        .find_map(|(inner, rest)| find(inner, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(path: &str) -> Option<String> {
        let claims = json!({
            "sub": "ann",
            "https://example.com/plan": "pro",
            "https://example.com/org": {"id": 7, "a.b": {"c": true}},
            "org": {"id": -3, "deep": {"er": "x"}},
            "org.id.exact": "whole name first",
            "roles": ["a"], "nothing": null, "part": 2.5, "empty": "", "long": "x".repeat(1000),
        });
        let claims = claims.as_object().unwrap();
        let mut out = Vec::new();
        let fingerprint = Fingerprint::new(&[1; 16]);
        let found = Claim::new("a", path).write(claims, &fingerprint, &mut out);
        found.then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn claims_are_found_by_name_and_by_path() {
        assert_eq!(text("sub").as_deref(), Some("ann"));
        assert_eq!(text("https://example.com/plan").as_deref(), Some("pro"));
        assert_eq!(text("https://example.com/org.id").as_deref(), Some("7"));
        assert_eq!(text("https://example.com/org.a.b.c").as_deref(), Some("true"));
        assert_eq!(text("org.id").as_deref(), Some("-3"));
        assert_eq!(text("org.deep.er").as_deref(), Some("x"));
        assert_eq!(text("org.id.exact").as_deref(), Some("whole name first"));
        assert_eq!(text("part").as_deref(), Some("2.5"));
        assert_eq!(text("empty").as_deref(), Some(""));
    }

    #[test]
    fn what_is_no_text_gives_no_attribute() {
        for path in ["roles", "roles.0", "org", "nothing", "missing", "sub.x", "org.", ".", ""] {
            assert_eq!(text(path), None, "{path}");
        }
    }

    #[test]
    fn numbers_that_were_rounded_give_no_attribute() {
        let of = |number: &str| {
            let claims: Value = serde_json::from_str(&format!("{{\"id\": {number}}}")).unwrap();
            let mut out = Vec::new();
            let fingerprint = Fingerprint::new(&[1; 16]);
            let claims = claims.as_object().unwrap();
            Claim::new("a", "id").write(claims, &fingerprint, &mut out).then_some(out)
        };
        for fits in ["18446744073709551615", "-9223372036854775808", "2.5"] {
            assert_eq!(of(fits).as_deref(), Some(fits.as_bytes()), "{fits}");
        }
        for rounded in [
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
            "1e300",
            "9007199254740993.0",
            "0.1234567890123456789",
        ] {
            assert_eq!(of(rounded), None, "{rounded}");
        }
    }

    #[test]
    fn a_long_claim_is_shortened() {
        assert_eq!(text("long").unwrap().len(), VALUE_BYTES_MAX);
    }
}
