//! The one thing that JSON has and YAML has not: a character as a pair of escapes.

use std::borrow::Cow;
use std::fmt::Write as _;

/// `text` with pairs such as `\ud83d\ude00` as YAML writes them. Only where the text begins as JSON
/// does: elsewhere a backslash may be just that. Columns behind a pair, in its line, are two less.
pub(super) fn without_surrogates(text: &str) -> Cow<'_, str> {
    if !text.trim_start().starts_with(['{', '[']) || !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut rewritten = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        rewritten.push_str(before);
        if let Some(c) = pair(escape) {
            // Writing to a string cannot fail.
            let _ = write!(rewritten, "\\U{:08x}", u32::from(c));
            rest = &escape[PAIR_BYTES..];
        } else {
            // Whatever follows the backslash belongs to it, another backslash above all.
            let length = 1 + escape[1..].chars().next().map_or(0, char::len_utf8);
            rewritten.push_str(&escape[..length]);
            rest = &escape[length..];
        }
    }
    rewritten.push_str(rest);
    Cow::Owned(rewritten)
}

const PAIR_BYTES: usize = 12;

/// The character that the pair of escapes at the beginning of `text` stands for.
fn pair(text: &str) -> Option<char> {
    let unit = |text: &str| {
        let digits = text.strip_prefix("\\u")?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
        u16::from_str_radix(digits, 16).ok()
    };
    let units = [unit(text.get(..6)?)?, unit(text.get(6..PAIR_BYTES)?)?];
    // Two units that are one character, and not one each.
    (0xd800..=0xdbff).contains(&units[0]).then_some(())?;
    char::decode_utf16(units).next()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_become_one_escape_and_all_else_stays() {
        for (text, yaml) in [
            (r#"["\ud83d\ude00"]"#, r#"["\U0001f600"]"#),
            (r#" {"a\\": "x\uD83D\uDE00y"}"#, r#" {"a\\": "x\U0001f600y"}"#),
            (r#"["\\ud83d\ude00"]"#, r#"["\\ud83d\ude00"]"#),
            (
                r#"["\ud83d", "\ude00\ud83d", "\u0041\u0042"]"#,
                r#"["\ud83d", "\ude00\ud83d", "\u0041\u0042"]"#,
            ),
            (r#"a: "\ud83d\ude00""#, r#"a: "\ud83d\ude00""#),
            ("[\\", "[\\"),
        ] {
            assert_eq!(without_surrogates(text), yaml);
        }
    }
}
