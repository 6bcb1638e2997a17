//! What the YAML scanner says about broken text, in words that help, and at a place that helps.

use saphyr_parser::{Marker, ScanError};

use super::builder::{self, Builder, Stop};
use super::{Chunk, brackets};
use crate::diagnostic::Problems;
use crate::source::Place;

/// A part of what the scanner says, what we say for it, and what usually helps. The first that fits
/// is taken.
const MEANINGS: [(&str, &str, &str); 17] = [
    ("tab", "a tab cannot indent YAML", "use spaces"),
    (
        "unknown escape",
        "in double quotes a backslash begins an escape, and this is none",
        "use single quotes, or write `\\\\`",
    ),
    (
        "escape code",
        "this escape is no character",
        "write the character itself, or `\\U` and its eight digits",
    ),
    ("hexadecimal", "this escape has too few digits", "write `\\x41`, `\\u0041` or `\\U00000041`"),
    (
        "trailing content after double-quoted",
        "something stands behind the closing quote",
        "put a `,` between two entries, or the quotes around all of the text",
    ),
    ("quoted scalar", "the quotes are not closed", "close them, and indent all lines of the text"),
    (
        "unknown anchor",
        "this alias has no anchor",
        "write `&name` before a value, and `*name` behind it in the same document",
    ),
    ("in flow construct", "this line is not indented enough", BRACKETS_HELP),
    ("flow", "a `[` or `{` is not closed here, or a `,` is missing", BRACKETS_HELP),
    ("bracket", "this closes nothing", BRACKETS_HELP),
    (
        "comment",
        "a comment cannot stand here",
        "put a space before `#`, a comment in a line of its own, or quotes around text with `#` in it",
    ),
    ("unexpected character", "text cannot begin with this character", "put quotes around the text"),
    (
        "values are not allowed",
        "a second `:` makes no sense here",
        "put quotes around text with `: ` in it, or begin a new line for the mapping",
    ),
    (
        "placement of ':'",
        "a `:` cannot stand here, or a `[` or `{` before it is not closed",
        BRACKETS_HELP,
    ),
    (
        "indicator",
        "this line is not indented like what is before it",
        "indent it like the other keys of its item, or begin an item with `- `",
    ),
    ("key", "this is neither `key: value` nor indented like its neighbours", KEY_HELP),
    ("node content", "a value is missing here", BRACKETS_HELP),
];
const BRACKETS_HELP: &str =
    "close every `[` and `{`, put `,` between entries, and indent what is inside";
const KEY_HELP: &str = "put a space behind the colon, indent the keys of a mapping alike, and put \
    quotes around text with `: ` or ` #` in it";

/// Adds what the scanner found. Reading can go on with the next document.
pub(super) fn report(
    error: &ScanError,
    chunk: &Chunk<'_>,
    builder: &Builder,
    problems: &mut Problems,
) -> Stop {
    let marker = *error.marker();
    let info = error.info();
    let stopped = builder.place(marker, marker);
    let place = written_before(chunk.text, marker, info, stopped);
    // The scanner has a bound of its own, which it reaches before it gives us anything to count.
    if info.contains("recursion limit") {
        builder::report_depth(place, problems);
    } else {
        let meaning = MEANINGS.iter().find(|(part, ..)| info.contains(part));
        let (message, help) = match meaning {
            Some(&(_, message, help)) => (message.to_owned(), help),
            None => (format!("this is not YAML: {info}"), KEY_HELP),
        };
        let is_of_brackets = help == BRACKETS_HELP;
        if is_of_brackets && let Some(value) = braced_before(chunk.text, marker) {
            let help = format!("put quotes around a value with braces in it: \"{value}\"");
            problems.error(place, message).help = Some(help);
            return Stop::At { line: stopped.line };
        }
        match is_of_brackets.then(|| unclosed_before(chunk.text, marker, builder)).flatten() {
            Some((bracket, place)) => {
                problems.error(place, format!("this `{bracket}` is not closed")).help =
                    Some(BRACKETS_HELP.to_owned());
            }
            None => problems.error(place, message).help = Some(help.to_owned()),
        }
    }
    Stop::At { line: stopped.line }
}

/// How long a value may be that is repeated in a help.
const VALUE_CHARS_MAX: usize = 80;

/// The first value without quotes in the line of `marker` that has a `{` in it, such as
/// `/orders/{id}`. Between braces YAML takes that for the beginning of a mapping.
fn braced_before(text: &str, marker: Marker) -> Option<&str> {
    let line_start = text[..byte_of(text, marker)].rfind(is_break).map_or(0, |at| at + 1);
    let line = text[line_start..].split(is_break).next()?;
    let is_between = |c: char| c.is_whitespace() || matches!(c, ',' | '[');
    let mut values = line.split(is_between).filter_map(|word| {
        // What braces open or close around the word does not belong to it.
        let word = word.trim_start_matches('{');
        let last = word.rfind('{').filter(|&at| at > 0 && !word[..at].ends_with(':'))?;
        let end = last + word[last..].find('}')? + 1;
        let rest = word[end..].find(['}', ']']).map_or(word.len(), |at| end + at);
        Some(&word[..rest]).filter(|value| !value.contains(['"', '\'']))
    });
    values.find(|value| value.chars().count() <= VALUE_CHARS_MAX)
}

/// A bracket that is open at `marker`, and was opened in a line before it.
fn unclosed_before(text: &str, marker: Marker, builder: &Builder) -> Option<(char, Place)> {
    let (at, bracket) = brackets::unclosed(&text[..byte_of(text, marker)])?;
    let line_start = text[..at].rfind(is_break).map_or(0, |at| at + 1);
    let breaks = text[at..byte_of(text, marker)].replace("\r\n", "\n").matches(is_break).count();
    let place = builder.place(marker, marker);
    // The text has less than 2^32 bytes.
    let column = text[line_start..at].chars().count() as u32 + 1;
    let place = Place { line: place.line - breaks as u32, column, ..place };
    (breaks > 0).then_some((bracket, place))
}

/// The first tab of the line that `text` ends in, which is what is wrong, and not what follows.
fn tab_before(text: &str, place: Place) -> Place {
    let line_start = text.rfind(is_break).map_or(0, |at| at + 1);
    match text[line_start..].chars().position(|c| c == '\t') {
        // The text has less than 2^32 bytes.
        Some(before) => Place { column: before as u32 + 1, ..place },
        None => place,
    }
}

fn byte_of(text: &str, marker: Marker) -> usize {
    text.char_indices().nth(marker.index()).map_or(text.len(), |(at, _)| at)
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r')
}

/// `place`, or the last line with something in it where the scanner only noticed at the end of the
/// document, in an empty line or in a comment, or behind a line that should have had a `:`.
fn written_before(text: &str, marker: Marker, info: &str, place: Place) -> Place {
    let at = byte_of(text, marker);
    if info.contains("tab") {
        return tab_before(&text[..at], place);
    }
    let rest = text[at..].split(is_break).next().unwrap_or_default().trim();
    let is_end = marker.col() == 0 && (rest.starts_with("---") || rest.starts_with('#'));
    if !rest.is_empty() && !is_end && info != "simple key expect ':'" {
        return place;
    }
    let mut before = text[..at].trim_end();
    while !before.is_empty() {
        let line_start = before.rfind(is_break).map_or(0, |at| at + 1);
        let line = before[line_start..].trim_start();
        if !line.starts_with('#') {
            let indent = before.len() - line_start - line.len();
            let breaks = text[before.len()..at].replace("\r\n", "\n").matches(is_break).count();
            // The text has less than 2^32 bytes. Indents are single bytes.
            let length = line.chars().count() as u32;
            return Place {
                line: place.line - breaks as u32,
                column: indent as u32 + 1,
                length,
                ..place
            };
        }
        before = before[..line_start].trim_end();
    }
    place
}
