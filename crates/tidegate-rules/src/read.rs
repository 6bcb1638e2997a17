//! Taking a tree apart, field by field. Every mistake is added to the problems and reading goes on, so
//! that one run shows them all. It knows no field's meaning.

use std::borrow::Cow;

use crate::diagnostic::{Problems, quoted};
use crate::source::Place;
use crate::spelling;
use crate::tree::{Key, Node, Scalar, Value};

/// The entries of a mapping, as they are asked for.
#[derive(Debug)]
pub struct Fields<'n> {
    place: Place,
    entries: &'n [(Key, Node)],
    /// What was asked for.
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// The entries of `node`, if it is a mapping. `what` is the field that it is the value of, or some
    /// words such as `a rule`.
    pub fn of(node: &'n Node, what: &str, problems: &mut Problems) -> Option<Self> {
        if let Value::Map(entries) = &node.value {
            return Some(Self { place: node.place, entries, known: Vec::new() });
        }
        let message = format!("{} must be a mapping, not {}", named(what), kind(&node.value));
        let help = if lacks_space(&node.value) {
            "put a space behind the colon"
        } else {
            "write `key: value` lines"
        };
        problems.error(node.place, message).help = Some(help.to_owned());
        None
    }

    /// Where the mapping begins.
    pub fn place(&self) -> Place {
        self.place
    }

    /// The value of a field, which is known from now on. One that is null counts as absent.
    pub fn take(&mut self, name: &'static str) -> Option<&'n Node> {
        self.known.push(name);
        let (_, node) = self.entries.iter().find(|(key, _)| key.text == name)?;
        (node.value != Value::Null).then_some(node)
    }

    /// The same for a field that must be there.
    pub fn require(&mut self, name: &'static str, problems: &mut Problems) -> Option<&'n Node> {
        let node = self.take(name);
        if node.is_none() {
            let empty = self.entries.iter().find(|(key, _)| key.text == name);
            let (place, message, help) = match empty {
                Some((key, _)) => {
                    let help = "write its value behind the colon".to_owned();
                    (key.place, format!("`{name}` is empty"), help)
                }
                None => (self.place, format!("`{name}` is missing"), format!("add `{name}: …`")),
            };
            problems.error(place, message).help = Some(help);
        }
        node
    }

    /// Reports the fields that nobody asked for.
    pub fn finish(self, problems: &mut Problems) {
        for (key, _) in self.entries {
            if self.known.contains(&key.text.as_str()) {
                continue;
            }
            let is_full = problems.is_full();
            let diagnostic =
                problems.error(key.place, format!("unknown field {}", quoted(&key.text)));
            if !is_full {
                diagnostic.help = Some(meant(&key.text, &self.known));
                // One mistake, told once: the field is there, under a wrong name.
                if let Some(field) = spelling::closest(&key.text, self.known.iter().copied()) {
                    problems.take_back_missing(self.place, field);
                }
            }
        }
    }
}

/// Whether it looks like `key:value`, which YAML takes for text.
pub(crate) fn lacks_space(value: &Value) -> bool {
    matches!(value, Value::Scalar(Scalar { text, plain: true }) if text.contains(':'))
}

/// A text. Numbers and words are text as they are written.
pub fn text(node: &Node, what: &str, problems: &mut Problems) -> Option<String> {
    match &node.value {
        Value::Scalar(scalar) => Some(scalar.text.clone()),
        Value::Null | Value::List(_) | Value::Map(_) => wrong(node, what, "text", problems),
    }
}

/// A whole number of 0 or more, in decimal digits.
pub fn number(node: &Node, what: &str, problems: &mut Problems) -> Option<u64> {
    let Value::Scalar(Scalar { text, plain }) = &node.value else {
        return wrong(node, what, "a number", problems);
    };
    let help = match whole(text) {
        Ok(number) if *plain => return Some(number),
        Ok(number) => format!("remove the quotes: `{number}`"),
        Err(help) => help,
    };
    let message = format!("{} must be a whole number, not {}", named(what), quoted(text));
    problems.error(node.place, message).help = Some(help);
    None
}

/// The number that `text` is, or what to write.
fn whole(text: &str) -> Result<u64, String> {
    const DIGITS_HELP: &str = "write it in digits, such as `1000` or `1_000`";
    let digits: String = text.chars().filter(|&c| c != '_').collect();
    let is_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digits || text.starts_with('_') || text.ends_with('_') {
        let is_negative = text.starts_with('-');
        let help = if is_negative { "use 1 or more" } else { DIGITS_HELP };
        return Err(help.to_owned());
    }
    if digits.len() > 1 && digits.starts_with('0') {
        // YAML's older readers take this for octal.
        let number = digits.trim_start_matches('0');
        let number = if number.is_empty() { "0" } else { number };
        return Err(format!("remove the zeros before it: `{number}`"));
    }
    digits.parse().map_err(|_| format!("use at most {}", u64::MAX))
}

/// `true` or `false`. The other words of YAML 1.1 can mean nothing else where this is asked for, and
/// files of other programs have them.
pub fn boolean(node: &Node, what: &str, problems: &mut Problems) -> Option<bool> {
    let Value::Scalar(Scalar { text, plain }) = &node.value else {
        return wrong(node, what, "`true` or `false`", problems);
    };
    let help = match (text.to_ascii_lowercase().as_str(), plain) {
        ("true" | "yes" | "on", true) => return Some(true),
        ("false" | "no" | "off", true) => return Some(false),
        ("true" | "yes" | "on" | "false" | "no" | "off", false) => "remove the quotes",
        _ => "write `true` or `false`",
    };
    let message = format!("{} must be `true` or `false`, not {}", named(what), quoted(text));
    problems.error(node.place, message).help = Some(help.to_owned());
    None
}

/// The items of a list of what cannot be said in a word, such as `rules`.
pub fn list_of<'n>(node: &'n Node, what: &str, problems: &mut Problems) -> Option<&'n [Node]> {
    let Value::Scalar(scalar) = &node.value else {
        return list(node, what, problems);
    };
    let message = format!("{} must be a list, not {}", named(what), quoted(&scalar.text));
    let help = format!("write a list of {what}, and begin each with `- `");
    problems.error(node.place, message).help = Some(help);
    None
}

/// The items of a list.
pub fn list<'n>(node: &'n Node, what: &str, problems: &mut Problems) -> Option<&'n [Node]> {
    match &node.value {
        Value::List(items) => Some(items),
        Value::Scalar(scalar) => {
            let message = format!("{} must be a list, not {}", named(what), quoted(&scalar.text));
            problems.error(node.place, message).help =
                Some(format!("write {}", quoted(&format!("[{}]", scalar.text))));
            None
        }
        Value::Null | Value::Map(_) => {
            let found = kind(&node.value);
            let message = format!("{} must be a list, not {found}", named(what));
            problems.error(node.place, message).help =
                Some("begin each entry with `- `".to_owned());
            None
        }
    }
}

/// One of some words. Case does not matter, and `_` is as good as `-`.
pub fn word<T: Copy>(
    node: &Node,
    what: &str,
    words: &[(&'static str, T)],
    problems: &mut Problems,
) -> Option<T> {
    let Value::Scalar(Scalar { text, .. }) = &node.value else {
        return wrong(node, what, "a word", problems);
    };
    let plain = |word: &str| word.to_ascii_lowercase().replace('_', "-");
    let written = plain(text);
    if let Some(&(_, meaning)) = words.iter().find(|(word, _)| plain(word) == written) {
        return Some(meaning);
    }
    let known: Vec<&'static str> = words.iter().map(|&(word, _)| word).collect();
    problems.error(node.place, format!("{} cannot be {}", named(what), quoted(text))).help =
        Some(meant(text, &known));
    None
}

/// Reports a value of the wrong kind.
fn wrong<T>(node: &Node, what: &str, expected: &str, problems: &mut Problems) -> Option<T> {
    let found = kind(&node.value);
    problems.error(node.place, format!("{} must be {expected}, not {found}", named(what))).help =
        Some("write a single value".to_owned());
    None
}

/// What to do about an unknown word.
fn meant(word: &str, known: &[&'static str]) -> String {
    match (spelling::closest(word, known.iter().copied()), known) {
        (Some(closest), _) => format!("did you mean `{closest}`?"),
        (None, []) => "remove it".to_owned(),
        (None, [one]) => format!("use `{one}`"),
        (None, [first @ .., last]) => {
            let first: Vec<String> = first.iter().map(|word| format!("`{word}`")).collect();
            format!("use {} or `{last}`", first.join(", "))
        }
    }
}

/// A field's name in backquotes; other words as they are.
fn named(what: &str) -> Cow<'_, str> {
    if what.contains([' ', '`']) { Cow::Borrowed(what) } else { Cow::Owned(quoted(what)) }
}

/// What a value is, for messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Scalar(_) => "text",
        Value::List(_) => "a list",
        Value::Map(_) => "a mapping",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::tree;

    /// What `read` makes of a text, and what it says about it.
    fn run<T>(text: &str, read: impl FnOnce(&Node, &mut Problems) -> T) -> (T, Vec<String>) {
        let source = Source::new("x", text);
        let mut problems = Problems::default();
        let document = tree::documents(&source, 0, &mut problems).remove(0);
        let result = read(&document, &mut problems);
        let report = problems.into_report(&[]);
        let said = report.iter().map(|(_, diagnostic)| {
            let help = diagnostic.help.as_deref().unwrap_or_default();
            format!("{}; {help}", diagnostic.message)
        });
        (result, said.collect())
    }

    #[test]
    fn fields_are_taken_required_and_left_over() {
        let ((), said) = run("name: a\nempty:\nlimits: 1\nfoo: 2\nper: ~", |node, problems| {
            let mut fields = Fields::of(node, "a rule", problems).unwrap();
            assert!(fields.take("name").is_some());
            assert!(fields.take("per").is_none(), "null is as if it were not there");
            assert!(fields.require("empty", problems).is_none());
            assert!(fields.require("limit", problems).is_none());
            fields.finish(problems);
        });
        assert_eq!(
            said,
            [
                "`empty` is empty; write its value behind the colon",
                "unknown field `limits`; did you mean `limit`?",
                "unknown field `foo`; use `name`, `per`, `empty` or `limit`",
            ]
        );
        let (fields, said) =
            run("[]", |node, problems| Fields::of(node, "match", problems).is_some());
        assert!(!fields);
        assert_eq!(said, ["`match` must be a mapping, not a list; write `key: value` lines"]);
        let (_, said) = run("a:b", |node, problems| Fields::of(node, "match", problems).is_some());
        assert_eq!(said, ["`match` must be a mapping, not text; put a space behind the colon"]);
    }

    #[test]
    fn numbers_are_whole_decimal_and_without_quotes() {
        for (text, expected) in [
            ("0", Ok(0)),
            ("1_000", Ok(1_000)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", Err("use at most 18446744073709551615")),
            ("'10'", Err("remove the quotes: `10`")),
            ("010", Err("remove the zeros before it: `10`")),
            ("00", Err("remove the zeros before it: `0`")),
            ("-5", Err("use 1 or more")),
            ("1e3", Err("write it in digits, such as `1000` or `1_000`")),
            ("0x10", Err("write it in digits, such as `1000` or `1_000`")),
            ("1.5", Err("write it in digits, such as `1000` or `1_000`")),
            ("_", Err("write it in digits, such as `1000` or `1_000`")),
        ] {
            let (found, said) = run(text, |node, problems| number(node, "count", problems));
            match expected {
                Ok(number) => assert_eq!((found, said), (Some(number), vec![]), "{text}"),
                Err(help) => {
                    let text = quoted(text.trim_matches('\''));
                    let message = format!("`count` must be a whole number, not {text}; {help}");
                    assert_eq!((found, said), (None, vec![message]));
                }
            }
        }
    }

    #[test]
    fn booleans_are_words_without_quotes() {
        for (text, expected) in
            [("true", true), ("False", false), ("yes", true), ("off", false), ("NO", false)]
        {
            let found = run(text, |node, problems| boolean(node, "x", problems));
            assert_eq!(found, (Some(expected), vec![]), "{text}");
        }
        for text in ["'true'", "1", "y"] {
            let (found, said) = run(text, |node, problems| boolean(node, "x", problems));
            assert_eq!((found, said.len()), (None, 1), "{text}");
        }
    }

    #[test]
    fn lists_and_words_say_what_is_expected() {
        let words: [(&'static str, u8); 2] = [("on-request", 1), ("on-response", 2)];
        let (is_list, said) = run("a", |node, problems| list(node, "per", problems).is_some());
        assert!(!is_list);
        assert_eq!(said, ["`per` must be a list, not `a`; write `[a]`"]);

        let (_, said) = run("5", |node, problems| list_of(node, "rules", problems).is_some());
        let help = "write a list of rules, and begin each with `- `";
        assert_eq!(said, [format!("`rules` must be a list, not `5`; {help}")]);

        let read = |node: &Node, problems: &mut Problems| word(node, "count", &words, problems);
        assert_eq!(run("ON_RESPONSE", read).0, Some(2));
        assert_eq!(
            run("on-respone", read).1,
            ["`count` cannot be `on-respone`; did you mean `on-response`?"]
        );
        assert_eq!(run("x", read).1, ["`count` cannot be `x`; use `on-request` or `on-response`"]);
        assert_eq!(run("[]", read).1, ["`count` must be a word, not a list; write a single value"]);
    }
}
