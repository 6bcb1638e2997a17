//! A Rust file as a flat list of tokens, so that checks see code and never comments or strings.
//!
//! Only as much structure as the checks need: where a delimiter closes, where a function begins and
//! ends, and what is compiled for tests only. Function bodies inside macro calls are seen as well.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A word, a sign, a literal or a delimiter.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) line: usize,
    /// For an opening delimiter: how many tokens further on it closes. Zero for all others.
    pub(super) span: usize,
}

/// A function with a body.
pub(super) struct Function<'a> {
    pub(super) name: &'a str,
    pub(super) line: usize,
    /// From the line of `fn` to the line of the closing brace, both counted.
    pub(super) lines: usize,
    /// It carries an attribute like `#[test]`.
    pub(super) is_test: bool,
}

/// The tokens of a file; none at all where it does not parse.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut flat = Vec::new();
    if let Ok(stream) = text.parse() {
        flatten(stream, &mut flat);
    }
    flat
}

fn flatten(stream: TokenStream, flat: &mut Vec<Token>) {
    for tree in stream {
        let line = tree.span().start().line;
        let TokenTree::Group(group) = tree else {
            flat.push(Token { text: tree.to_string(), line, span: 0 });
            continue;
        };
        let (open, close) = match group.delimiter() {
            Delimiter::Brace => ("{", "}"),
            Delimiter::Bracket => ("[", "]"),
            Delimiter::Parenthesis => ("(", ")"),
            Delimiter::None => ("", ""),
        };
        let opened = flat.len();
        flat.push(Token { text: open.into(), line, span: 0 });
        flatten(group.stream(), flat);
        flat[opened].span = flat.len() - opened;
        let line = group.span_close().end().line;
        flat.push(Token { text: close.into(), line, span: 0 });
    }
}

/// Where this sequence of tokens occurs, by line. `::` is two signs.
pub(super) fn lines_of(tokens: &[Token], sequence: &[&str]) -> Vec<usize> {
    let found = tokens
        .windows(sequence.len())
        .filter(|window| window.iter().zip(sequence).all(|(token, text)| token.text == *text));
    found.map(|window| window[0].line).collect()
}

/// Every function with a body, wherever it stands.
pub(super) fn functions(tokens: &[Token]) -> Vec<Function<'_>> {
    let mut found = Vec::new();
    let (mut index, mut is_test) = (0, false);
    while index < tokens.len() {
        let token = &tokens[index];
        if let Some(length) = attribute_length(&tokens[index..]) {
            is_test |= is_test_attribute(&tokens[index..index + length]);
            index += length;
            continue;
        }
        if token.text == "fn" {
            if let Some((name, end_line)) = signature(&tokens[index + 1..]) {
                let lines = end_line + 1 - token.line;
                found.push(Function { name, line: token.line, lines, is_test });
            }
            is_test = false;
        }
        index += 1;
    }
    found
}

/// What is left when everything under `#[cfg(test)]` is taken away.
pub(super) fn without_tests(tokens: &[Token]) -> Vec<&Token> {
    let mut kept = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let rest = &tokens[index..];
        match attribute_length(rest) {
            Some(length) if is_test_attribute(&rest[..length]) => {
                index += length + item_length(&rest[length..]);
            }
            _ => {
                kept.push(&tokens[index]);
                index += 1;
            }
        }
    }
    kept
}

/// The name and the last line of a function, from the token after `fn`; `None` for a function
/// type, and for a declaration without a body.
fn signature(after: &[Token]) -> Option<(&str, usize)> {
    let name = after.first().filter(|token| token.span == 0 && token.text != "(")?;
    let mut index = 1;
    loop {
        let token = after.get(index)?;
        match token.text.as_str() {
            ";" => return None,
            "{" => return Some((&name.text, after[index + token.span].line)),
            _ => index += token.span + 1,
        }
    }
}

/// The length of an attribute `#[…]` or `#![…]` that begins here.
fn attribute_length(tokens: &[Token]) -> Option<usize> {
    let text = |index: usize| tokens.get(index).map(|token| token.text.as_str());
    let bracket = match (text(0), text(1), text(2)) {
        (Some("#"), Some("["), _) => 1,
        (Some("#"), Some("!"), Some("[")) => 2,
        _ => return None,
    };
    Some(bracket + tokens[bracket].span + 1)
}

/// `#[test]`, `#[tokio::test]`, `#[cfg(test)]`, but not `#[cfg(not(test))]`.
fn is_test_attribute(attribute: &[Token]) -> bool {
    let has = |word: &str| attribute.iter().any(|token| token.text == word);
    has("test") && !has("not")
}

/// How many tokens the item that begins here has: to its `;` or the end of its braces.
fn item_length(tokens: &[Token]) -> usize {
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        index += token.span + 1;
        if token.text == ";" || token.text == "{" {
            break;
        }
    }
    index.min(tokens.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_as_long_as_from_its_keyword_to_its_closing_brace() {
        let text =
            "/// Docs.\n#[inline]\nfn long(\n    a: u8,\n) -> u8 {\n    a\n}\nfn short() {}\n";
        let tokens = tokens(text);
        let found: Vec<_> =
            functions(&tokens).iter().map(|found| (found.name, found.line, found.lines)).collect();
        assert_eq!(found, [("long", 3, 5), ("short", 8, 1)]);
    }

    #[test]
    fn functions_inside_macro_calls_are_found_and_function_types_are_not() {
        let text = "proptest! {\n #[test]\n fn inside(a in 0..1) { }\n}\n\
                    type F = fn(u8) -> u8; trait T { fn declared(&self); }";
        let tokens = tokens(text);
        let names: Vec<_> = functions(&tokens).iter().map(|found| found.name).collect();
        assert_eq!(names, ["inside"]);
    }

    #[test]
    fn the_attribute_tells_tests_from_other_functions() {
        let text = "#[test] fn a() {} fn b() {} #[tokio::test] #[ignore] async fn c() {} #[cfg(not(test))] fn d() {}";
        let tokens = tokens(text);
        let tests: Vec<_> = functions(&tokens).iter().map(|found| found.is_test).collect();
        assert_eq!(tests, [true, false, true, false]);
    }

    #[test]
    fn comments_strings_and_docs_are_not_code() {
        let tokens = tokens("//! std\n/// std\n// std\nconst A: &str = \"std\";");
        assert!(lines_of(&tokens, &["std"]).is_empty());
    }

    #[test]
    fn code_for_tests_is_taken_away_whole() {
        let text = "#[cfg(test)]\nextern crate std;\nfn kept() {}\n#[cfg(test)]\n#[allow(x)]\nmod tests { use std::vec; }\nconst LAST: u8 = 0;";
        let tokens = tokens(text);
        let kept: Vec<_> = without_tests(&tokens).iter().map(|token| token.text.clone()).collect();
        assert_eq!(kept.join(" "), "fn kept ( ) { } const LAST : u8 = 0 ;");
    }
}
