//! Text to tokens, each with its place. Nothing is refused here: what no rule knows becomes a token
//! that no grammar accepts, so that the grammar can say what it expected instead.

use std::ops::Range;

/// What a token is; what it says is the text in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Digits, with `_`, `.` or `,` between them: `1_000`, `0.5`.
    Number,
    /// Letters, with `-` or `_` between them: `per`, `µs`, `fixed-window`.
    Word,
    /// The slash of `10/s`.
    Slash,
    /// A minus right before a digit.
    Minus,
    /// Any other character.
    Other,
    /// Behind the last character.
    End,
}

/// A piece of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    /// Where it is, in bytes.
    pub(crate) range: Range<usize>,
}

/// A place in a text, from which tokens are read.
#[derive(Clone, Copy)]
pub(crate) struct Tokens<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// What `token` says.
    pub(crate) fn text(&self, token: &Token) -> &'a str {
        &self.text[token.range.clone()]
    }

    /// The next token, which stays the next one.
    pub(crate) fn peek(&self) -> Token {
        let rest = self.text[self.at..].trim_start();
        let start = self.text.len() - rest.len();
        let (kind, length) = first(rest);
        Token { kind, range: start..start + length }
    }

    /// Goes on behind `token`.
    pub(crate) fn skip(&mut self, token: &Token) {
        self.at = token.range.end;
    }

    /// The next token, if it is of this kind.
    pub(crate) fn take(&mut self, kind: Kind) -> Option<Token> {
        let token = self.peek();
        (token.kind == kind).then(|| {
            self.skip(&token);
            token
        })
    }

    /// The next token, if it is a word: in lower case, and with `-` for `_`.
    pub(crate) fn take_word(&mut self) -> Option<String> {
        let token = self.take(Kind::Word)?;
        Some(self.text(&token).to_lowercase().replace('_', "-"))
    }

    /// Everything up to the next white space or the end, as one token.
    pub(crate) fn take_chunk(&mut self) -> Token {
        let start = self.peek().range.start;
        let rest = &self.text[start..];
        let length = rest.find(char::is_whitespace).unwrap_or(rest.len());
        self.at = start + length;
        Token { kind: Kind::Other, range: start..self.at }
    }

    /// Where the last token ended, in bytes.
    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Whether `token` follows what was read last without a space.
    pub(crate) fn is_adjacent(&self, token: &Token) -> bool {
        token.range.start == self.at
    }
}

/// The kind and the length of the token that `rest` begins with.
fn first(rest: &str) -> (Kind, usize) {
    let mut chars = rest.chars();
    match chars.next() {
        None => (Kind::End, 0),
        Some('/') => (Kind::Slash, 1),
        Some(c) if c.is_ascii_digit() => {
            (Kind::Number, run(rest, |c| c.is_ascii_digit(), |c| matches!(c, '_' | '.' | ',')))
        }
        Some(c) if c.is_alphabetic() => {
            (Kind::Word, run(rest, char::is_alphabetic, |c| matches!(c, '-' | '_')))
        }
        Some(c @ ('-' | '\u{2212}')) if chars.next().is_some_and(|c| c.is_ascii_digit()) => {
            (Kind::Minus, c.len_utf8())
        }
        Some(c) => (Kind::Other, c.len_utf8()),
    }
}

/// The length of the characters at the front that belong together; a joint does so only between two
/// of them.
fn run(text: &str, belongs: impl Fn(char) -> bool, joins: impl Fn(char) -> bool) -> usize {
    let mut end = 0;
    for (at, c) in text.char_indices() {
        if belongs(c) {
            end = at + c.len_utf8();
        } else if !joins(c) || end != at {
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<(Kind, &str)> {
        let mut tokens = Tokens::new(text);
        let mut all = Vec::new();
        loop {
            let token = tokens.peek();
            if token.kind == Kind::End {
                return all;
            }
            tokens.skip(&token);
            all.push((token.kind, tokens.text(&token)));
        }
    }

    #[test]
    fn numbers_and_words_need_no_space_between_them() {
        use Kind::{Number, Slash, Word};
        assert_eq!(all("10/s"), [(Number, "10"), (Slash, "/"), (Word, "s")]);
        assert_eq!(
            all(" 5 per 1m30µs "),
            [
                (Number, "5"),
                (Word, "per"),
                (Number, "1"),
                (Word, "m"),
                (Number, "30"),
                (Word, "µs")
            ]
        );
    }

    #[test]
    fn joints_count_only_between_what_they_join() {
        use Kind::{Minus, Number, Other, Word};
        assert_eq!(all("1_000"), [(Number, "1_000")]);
        assert_eq!(all("0.5"), [(Number, "0.5")]);
        assert_eq!(all("5."), [(Number, "5"), (Other, ".")]);
        assert_eq!(all("1__0"), [(Number, "1"), (Other, "_"), (Other, "_"), (Number, "0")]);
        assert_eq!(all("fixed-window-"), [(Word, "fixed-window"), (Other, "-")]);
        assert_eq!(
            all("-5 - −7"),
            [(Minus, "-"), (Number, "5"), (Other, "-"), (Minus, "−"), (Number, "7")]
        );
    }
}
