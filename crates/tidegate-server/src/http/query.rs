//! What stands in a path or a query, with its escapes undone.

use std::borrow::Cow;

use super::problem::Problem;

/// What the endpoints that answer with a status can be told in the query.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Query<'q> {
    pub(super) domain: Option<Cow<'q, str>>,
    pub(super) cost: Option<u64>,
    pub(super) dialect: Option<Cow<'q, str>>,
}

impl<'q> Query<'q> {
    /// The query of a request, which may have these parameters and no others: one that is misspelt
    /// would otherwise change what is taken without a word.
    #[inline]
    pub(super) fn of(query: &'q str, known: &[&str]) -> Result<Self, Problem> {
        if query.is_empty() { Ok(Self::default()) } else { Self::parse(query, known) }
    }

    fn parse(query: &'q str, known: &[&str]) -> Result<Self, Problem> {
        let mut parsed = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if !known.contains(&name) {
                let detail = format!("there is no such parameter; there is {}", known.join(", "));
                return Err(Problem::bad(format!("?{name}"), detail));
            }
            let bad = |detail: &'static str| Problem::bad(format!("?{name}"), detail);
            let value = unescaped(value, Plus::Space).and_then(as_text);
            let value = value.ok_or_else(|| bad("it is not percent-encoded UTF-8"))?;
            let is_first = match name {
                "domain" => parsed.domain.replace(value).is_none(),
                "dialect" => parsed.dialect.replace(value).is_none(),
                _ => {
                    let cost = value.parse();
                    let cost = cost.map_err(|_| bad("it has to be a whole number, 0 or more"))?;
                    parsed.cost.replace(cost).is_none()
                }
            };
            if !is_first {
                return Err(bad("it is there more than once"));
            }
        }
        Ok(parsed)
    }
}

/// What a plus sign stands for: itself in a path, a space in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plus {
    Itself,
    Space,
}

/// The bytes that a text stands for; `None` where a percent sign is not followed by two hexadecimal
/// digits. Nothing is copied where there is nothing to undo.
#[inline]
pub(super) fn unescaped(text: &str, plus: Plus) -> Option<Cow<'_, [u8]>> {
    let is_plain = |byte: u8| byte != b'%' && (byte != b'+' || plus == Plus::Itself);
    if text.bytes().all(is_plain) {
        return Some(Cow::Borrowed(text.as_bytes()));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        bytes.push(match byte {
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                16 * hex(digits[0])? + hex(digits[1])?
            }
            b'+' if plus == Plus::Space => b' ',
            other => other,
        });
    }
    Some(Cow::Owned(bytes))
}

fn as_text(bytes: Cow<'_, [u8]>) -> Option<Cow<'_, str>> {
    match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone_and_half_ones_refused() {
        let path = |text| unescaped(text, Plus::Itself).map(Cow::into_owned);
        assert_eq!(path("ann").as_deref(), Some(&b"ann"[..]));
        assert_eq!(path("a%2Fb+%c3%a4%00").as_deref(), Some("a/b+ä\0".as_bytes()));
        for wrong in ["%", "a%2", "%zz", "%+1", "%ä"] {
            assert_eq!(path(wrong), None, "{wrong}");
        }
        let query = unescaped("a+b%2B", Plus::Space);
        assert_eq!(query.as_deref(), Some(&b"a b+"[..]));
    }

    #[test]
    fn a_query_has_each_parameter_once_and_no_others() {
        let known = ["domain", "cost"];
        let parsed = Query::parse("domain=a+b&cost=7", &known).unwrap();
        assert_eq!((parsed.domain.as_deref(), parsed.cost), (Some("a b"), Some(7)));
        assert_eq!(Query::parse("&", &known).unwrap(), Query::default());
        for wrong in ["costs=1", "cost=-1", "cost=", "cost=1&cost=1", "domain=%ff", "dialect=nginx"]
        {
            assert!(Query::parse(wrong, &known).is_err(), "{wrong}");
        }
    }
}
