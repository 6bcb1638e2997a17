//! The line that a diagnostic points at, cut and escaped so that any line can be shown.

use std::borrow::Cow;

use super::push_printable;
use crate::source::Place;

/// How many characters of a line are shown; of a longer one, those around the place.
const LINE_CHARS_MAX: usize = 160;
/// How many of them may come before the place where the line is cut.
const BEFORE_CHARS_MAX: usize = 60;

/// A part of a line, and what of it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Snippet {
    before: String,
    meant: String,
    after: String,
}

impl Snippet {
    /// The part of the line.
    pub(super) fn text(&self) -> String {
        format!("{}{}{}", self.before, self.meant, self.after)
    }

    /// What stands below it, so that the carets are under what is meant.
    pub(super) fn carets(&self) -> String {
        // At the end of a line nothing is meant but the place itself.
        let count = columns(&self.meant).max(1);
        format!("{}{}", " ".repeat(columns(&self.before)), "^".repeat(count))
    }
}

/// Walks a source once, for places in ascending order.
#[derive(Debug)]
pub(super) struct Cursor<'s> {
    text: Cow<'s, str>,
    /// Where the current line begins, in bytes.
    line_start: usize,
    line: u32,
    /// A character of the current line: its column, and where it begins, in bytes.
    column: u32,
    at: usize,
}

impl<'s> Cursor<'s> {
    pub(super) fn new(bytes: &'s [u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        // The mark is in no column.
        let start = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
        Self { text, line_start: start, line: 1, column: 1, at: start }
    }

    /// What to show of `place`, which is not before the last one. `None` where there is no such line.
    pub(super) fn snippet(&mut self, place: Place) -> Option<Snippet> {
        if place.line == 0 || !self.go_to(place) {
            return None;
        }
        let rest = &self.text[self.at..];
        let rest = &rest[..rest.find(['\n', '\r']).unwrap_or(rest.len())];
        let line_before = &self.text[self.line_start..self.at];

        let before = match line_before.char_indices().rev().nth(BEFORE_CHARS_MAX) {
            // Short lines are shown from their beginning, even where the place is near the end.
            Some(_) if is_at_most(line_before, rest, LINE_CHARS_MAX) => escaped(line_before),
            Some((cut, c)) => format!("…{}", escaped(&line_before[cut + c.len_utf8()..])),
            None => escaped(line_before),
        };
        let room = LINE_CHARS_MAX.saturating_sub(before.chars().count()).max(1);
        let shown = &rest[..byte_of(rest, room)];
        let meant = &shown[..byte_of(shown, place.length as usize)];
        let mut after = escaped(&shown[meant.len()..]);
        if shown.len() < rest.len() {
            after.push('…');
        }
        Some(Snippet { before, meant: escaped(meant), after })
    }

    /// Whether `place` was reached.
    fn go_to(&mut self, place: Place) -> bool {
        while self.line < place.line {
            let rest = &self.text[self.at..];
            let Some(end) = rest.find(['\n', '\r']) else {
                return false;
            };
            let length = if rest[end..].starts_with("\r\n") { 2 } else { 1 };
            self.line_start = self.at + end + length;
            (self.at, self.line, self.column) = (self.line_start, self.line + 1, 1);
        }
        for c in self.text[self.at..].chars() {
            if self.column >= place.column || matches!(c, '\n' | '\r') {
                break;
            }
            self.at += c.len_utf8();
            self.column += 1;
        }
        true
    }
}

/// Where the character number `count` of `text` begins, or its end.
fn byte_of(text: &str, count: usize) -> usize {
    text.char_indices().nth(count).map_or(text.len(), |(at, _)| at)
}

/// Whether both together have at most so many characters. Looks at no more of them than that.
fn is_at_most(a: &str, b: &str, count_max: usize) -> bool {
    a.chars().chain(b.chars()).nth(count_max).is_none()
}

fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        push_printable(&mut shown, c);
    }
    shown
}

/// How many columns of a terminal escaped text takes.
fn columns(text: &str) -> usize {
    text.chars().map(|c| if is_wide(c) { 2 } else { 1 }).sum()
}

/// Whether terminals give it two columns: the blocks of East Asian scripts and of pictures. Not
/// exact, and it need not be: carets that are off by one still show the place.
fn is_wide(c: char) -> bool {
    matches!(u32::from(c),
        0x1100..=0x115f | 0x2e80..=0xa4cf | 0xac00..=0xd7a3 | 0xf900..=0xfaff | 0xfe30..=0xfe6f
        | 0xff00..=0xff60 | 0xffe0..=0xffe6 | 0x1f300..=0x1faff | 0x20000..=0x3fffd)
}
