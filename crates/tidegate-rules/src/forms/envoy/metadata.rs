//! What stands in `metadata`: anything, kept as JSON.

use std::fmt::Write as _;

use crate::diagnostic::Problems;
use crate::read::Fields;
use crate::tree::{Node, Scalar, Value};

/// The names and values of the mapping, each value as JSON text.
pub(super) fn read(node: &Node, problems: &mut Problems) -> Vec<(String, String)> {
    let Value::Map(entries) = &node.value else {
        // It says what is wrong.
        Fields::of(node, "metadata", problems);
        return Vec::new();
    };
    let json = |node: &Node| {
        let mut json = String::new();
        push(&mut json, &node.value);
        json
    };
    entries.iter().map(|(key, node)| (key.text.clone(), json(node))).collect()
}

fn push(json: &mut String, value: &Value) {
    match value {
        Value::Null => json.push_str("null"),
        Value::Scalar(Scalar { text, plain: true }) if is_bool(text) => {
            json.push_str(&text.to_ascii_lowercase());
        }
        Value::Scalar(Scalar { text, plain: true }) if is_number(text) => json.push_str(text),
        Value::Scalar(Scalar { text, .. }) => push_text(json, text),
        Value::List(items) => {
            push_all(json, ('[', ']'), items, |json, item| push(json, &item.value));
        }
        Value::Map(entries) => push_all(json, ('{', '}'), entries, |json, (key, node)| {
            push_text(json, &key.text);
            json.push(':');
            push(json, &node.value);
        }),
    }
}

fn push_all<T>(
    json: &mut String,
    (open, close): (char, char),
    items: &[T],
    push: impl Fn(&mut String, &T),
) {
    json.push(open);
    for (place, item) in items.iter().enumerate() {
        if place > 0 {
            json.push(',');
        }
        push(json, item);
    }
    json.push(close);
}

fn push_text(json: &mut String, text: &str) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c.is_control() => {
                // Writing to a text cannot fail.
                let _ = write!(json, "\\u{:04x}", u32::from(c));
            }
            c => json.push(c),
        }
    }
    json.push('"');
}

fn is_bool(text: &str) -> bool {
    matches!(text, "true" | "True" | "TRUE" | "false" | "False" | "FALSE")
}

/// Whether this is a number in JSON too; YAML has more spellings, which stay text.
fn is_number(text: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (number, None),
    };
    let whole = whole.strip_prefix('-').unwrap_or(whole);
    is_digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(is_digits)
        && exponent.is_none_or(|text| is_digits(text.strip_prefix(['+', '-']).unwrap_or(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_of_json_are_numbers() {
        for text in ["0", "-1", "10", "1.5", "0.5e-3", "1E+2", "-0"] {
            assert!(is_number(text), "{text}");
        }
        for text in ["", "-", "01", "1.", ".5", "+1", "0x1f", "1_000", "1e", "1e+", "--1", ".inf"] {
            assert!(!is_number(text), "{text}");
        }
    }
}
