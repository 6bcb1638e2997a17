//! Claims that become attributes.

use serde_json::{Map, Value};

use crate::config::VALUE_BYTES_MAX;
use crate::fingerprint::Fingerprint;

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

    /// Appends the claim as text; says `false` where there is none, or one that is no text, number or
    /// truth value.
    pub(super) fn write(
        &self,
        claims: &Map<String, Value>,
        fingerprint: &Fingerprint,
        out: &mut Vec<u8>,
    ) -> bool {
        let start = out.len();
        match find(claims, &self.path) {
            Some(Value::String(text)) => out.extend_from_slice(text.as_bytes()),
            Some(Value::Number(number)) => out.extend_from_slice(number.to_string().as_bytes()),
            Some(Value::Bool(yes)) => out.extend_from_slice(if *yes { b"true" } else { b"false" }),
            Some(Value::Null | Value::Array(_) | Value::Object(_)) | None => return false,
        }
        fingerprint.shorten(out, start, VALUE_BYTES_MAX);
        true
    }
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
    fn a_long_claim_is_shortened() {
        assert_eq!(text("long").unwrap().len(), VALUE_BYTES_MAX);
    }
}
