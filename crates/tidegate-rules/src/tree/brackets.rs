//! Which `[` or `{` is still open where the YAML scanner gives up. It notices only lines later, and
//! points at what it did not expect there.

use std::iter::Peekable;
use std::str::CharIndices;

/// The innermost bracket that is open at the end of `text`, and where it is, in bytes.
///
/// It looks at quotes and comments, and for the rest takes a bracket for one where a value can begin.
/// That is not all of YAML, and enough to point at the place that a person would look for.
pub(super) fn unclosed(text: &str) -> Option<(usize, char)> {
    let mut open: Vec<(usize, char)> = Vec::new();
    let mut can_begin = true;
    let mut before = '\n';
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' | '\r' => can_begin = true,
            ' ' | '\t' => can_begin |= matches!(before, ':' | '-' | '?'),
            '#' if before.is_ascii_whitespace() => {
                chars.by_ref().find(|(_, c)| matches!(c, '\n' | '\r'));
                can_begin = true;
            }
            '\'' | '"' if can_begin => {
                skip_quoted(c, &mut chars);
                can_begin = false;
            }
            '[' | '{' if can_begin || !open.is_empty() => {
                open.push((at, c));
                can_begin = true;
            }
            ']' | '}' => {
                open.pop();
                can_begin = false;
            }
            ',' | ':' if !open.is_empty() => can_begin = true,
            _ => can_begin = false,
        }
        before = c;
    }
    open.pop()
}

/// Goes on behind the closing quote.
fn skip_quoted(quote: char, chars: &mut Peekable<CharIndices<'_>>) {
    while let Some((_, c)) = chars.next() {
        // Two single quotes are one in the text.
        let mut is_pair = || chars.next_if(|&(_, next)| quote == '\'' && next == quote).is_some();
        match c {
            '\\' if quote == '"' => {
                chars.next();
            }
            c if c == quote && !is_pair() => return,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_open_bracket_is_found() {
        for (text, expected) in [
            ("a: [b\nc", Some((3, '['))),
            ("a: {b: [c], d", Some((3, '{'))),
            ("a: {b: [c, d", Some((7, '['))),
            ("- [a]\n- {b: c}\n", None),
            ("[[]", Some((0, '['))),
            ("a: [\"]\", b", Some((3, '['))),
            ("a: ['it''s ]'", Some((3, '['))),
            ("a: [\"\\\"]\"]", None),
            ("a: [b] # [\nc", None),
        ] {
            assert_eq!(unclosed(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_bracket_inside_of_text_opens_nothing() {
        for text in ["a: b[c", "a: it's [b", "a: b {c", "# [\na: b"] {
            assert_eq!(unclosed(text), None, "{text:?}");
        }
    }
}
