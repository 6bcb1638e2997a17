//! Text with `*` in it, which stands for any run of bytes, also an empty one.
//!
//! It is not a regular expression and has no other special character, and no way to write a `*`
//! that means itself. Matching takes time linear in the value, whatever the pattern: what stands
//! between two `*` is looked for from left to right, once, and the first place is always good
//! enough, since a later one leaves less of the value to the rest.

/// Text with `*` in it.
///
/// ```
/// use tidegate_rules::glob::Glob;
///
/// let glob = Glob::new("api-*.example.*");
/// assert!(glob.matches(b"api-eu.example.com"));
/// assert!(!glob.matches(b"api.example.com"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Glob {
    text: String,
    /// What stands between two `*`, where that is not empty, in order.
    inner: Box<[Part]>,
}

impl Glob {
    /// Any text is one; without a `*` it matches itself only.
    pub fn new(text: &str) -> Self {
        let mut parts: Vec<&str> = text.split('*').skip(1).collect();
        parts.pop();
        let inner = parts.into_iter().filter(|part| !part.is_empty()).map(Part::new).collect();
        Self { text: text.to_owned(), inner }
    }

    /// Whether the value has this shape.
    pub fn matches(&self, value: &[u8]) -> bool {
        if !self.text.contains('*') {
            return value == self.text.as_bytes();
        }
        let Some(value) = value.strip_prefix(self.literal_prefix().as_bytes()) else {
            return false;
        };
        let Some(mut rest) = value.strip_suffix(self.literal_suffix().as_bytes()) else {
            return false;
        };
        for part in &self.inner {
            let Some(end) = part.find_end(rest) else { return false };
            rest = &rest[end..];
        }
        true
    }

    /// The text it was made from.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What every match begins with: the text before the first `*`, or all of it.
    pub fn literal_prefix(&self) -> &str {
        self.text.split('*').next().unwrap_or_default()
    }

    /// What every match ends with: the text after the last `*`, or all of it.
    pub fn literal_suffix(&self) -> &str {
        self.text.rsplit('*').next().unwrap_or_default()
    }

    /// Whether nothing but what stands before the first and after the last `*` must be there.
    pub(crate) fn has_inner(&self) -> bool {
        !self.inner.is_empty()
    }
}

/// A text to look for, with what is needed to find it without looking at a byte twice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    text: Box<[u8]>,
    /// For each length of what is found so far: the longest shorter beginning of the text that
    /// what is found also ends with. A byte that does not fit continues from there.
    fallback: Box<[usize]>,
}

impl Part {
    fn new(text: &str) -> Self {
        let text: Box<[u8]> = text.as_bytes().into();
        let mut fallback = vec![0; text.len()];
        let mut found = 0;
        for at in 1..text.len() {
            found = step(&text, &fallback, found, text[at]);
            fallback[at] = found;
        }
        Self { text, fallback: fallback.into() }
    }

    /// Where its first occurrence ends.
    fn find_end(&self, value: &[u8]) -> Option<usize> {
        let mut found = 0;
        for (at, &byte) in value.iter().enumerate() {
            found = step(&self.text, &self.fallback, found, byte);
            if found == self.text.len() {
                return Some(at + 1);
            }
        }
        None
    }
}

/// How much of the text is found after one more byte.
fn step(text: &[u8], fallback: &[usize], mut found: usize, byte: u8) -> usize {
    while found > 0 && text[found] != byte {
        found = fallback[found - 1];
    }
    found + usize::from(text[found] == byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, in time that is exponential in the number of `*`.
    fn model(pattern: &[u8], value: &[u8]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some((b'*', rest)) => (0..=value.len()).any(|skipped| model(rest, &value[skipped..])),
            Some((byte, rest)) => value.first() == Some(byte) && model(rest, &value[1..]),
        }
    }

    #[test]
    fn star_stands_for_any_run_also_an_empty_one() {
        for (pattern, value, expected) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "a", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*.example.com", "api.example.com", true),
            ("*.example.com", "example.com", false),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("*b*b*", "b", false),
        ] {
            assert_eq!(Glob::new(pattern).matches(value.as_bytes()), expected, "{pattern} {value}");
        }
    }

    #[test]
    fn two_stars_are_one() {
        assert!(Glob::new("a**b").matches(b"ab"));
        assert!(Glob::new("***").matches(b""));
        assert!(!Glob::new("a**b").matches(b"a"));
    }

    #[test]
    fn evil_pattern_takes_linear_time() {
        // With a search that starts again after each near miss this would be 10^11 steps.
        let half = "a".repeat(300_000);
        let evil = Glob::new(&format!("*{half}b*{half}b*"));
        let value = "a".repeat(900_000);
        assert!(!evil.matches(value.as_bytes()));
        let many = Glob::new(&"*a".repeat(100_000));
        assert!(!many.matches(&vec![b'a'; 99_999]));
        assert!(many.matches(&vec![b'a'; 200_000]));
    }

    #[test]
    fn literal_ends_are_what_every_match_has() {
        let glob = Glob::new("ab*c*de");
        assert_eq!((glob.literal_prefix(), glob.literal_suffix()), ("ab", "de"));
        let whole = Glob::new("ab");
        assert_eq!((whole.literal_prefix(), whole.literal_suffix()), ("ab", "ab"));
        assert!(glob.has_inner() && !whole.has_inner() && !Glob::new("a*b").has_inner());
    }

    proptest! {
        #[test]
        fn matches_as_the_model_does(pattern in "[ab*]{0,8}", value in "[ab]{0,10}") {
            let value = value.as_bytes();
            prop_assert_eq!(Glob::new(&pattern).matches(value), model(pattern.as_bytes(), value));
        }

        #[test]
        fn finds_long_parts(part in "[ab]{1,12}", value in "[ab]{0,60}") {
            let glob = Glob::new(&format!("*{part}*"));
            prop_assert_eq!(glob.matches(value.as_bytes()), value.contains(&part));
        }
    }
}
