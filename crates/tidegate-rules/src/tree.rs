//! YAML or JSON text to a tree whose every part knows its place. It gives no meaning to what it
//! reads: a scalar keeps its text as it was written, so that `010`, `1e3` and `on` are whatever the
//! reader of the field takes them for, or a mistake.
//!
//! Everything is bounded before it is built: the size of the text, the depth, and the number of nodes,
//! in which an alias counts as what it stands for.

use saphyr_parser::Parser;

use crate::diagnostic::{Problems, quoted};
use crate::source::{Place, Source};

mod brackets;
mod builder;
mod json;
mod syntax;

use builder::{Builder, Stop};

/// The longest text that is read.
pub(crate) const SOURCE_BYTES_MAX: usize = 32 << 20;
/// How many lists and mappings may be inside each other. Rules need less than ten, Envoy's descriptors
/// two per level.
pub(crate) const DEPTH_MAX: usize = 32;
/// How many scalars, lists, mappings and keys one text may have. What an alias stands for counts
/// again each time, so that a few lines cannot fill the memory.
pub(crate) const NODES_MAX: usize = 4_000_000;
/// How many documents one text may have.
pub(crate) const DOCUMENTS_MAX: usize = 200_000;

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it begins. What an alias stands for is where its anchor is.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// What a part of a document is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// A text, number or word.
    Scalar(Scalar),
    /// In the order of the text.
    List(Vec<Node>),
    /// In the order of the text; no key comes twice.
    Map(Vec<(Key, Node)>),
}

/// A text, number or word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// As it is written, without quotes.
    pub text: String,
    /// Whether it is written without quotes, so that `true` and `10` may be more than text.
    pub plain: bool,
}

/// The name of an entry of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where it is.
    pub place: Place,
    /// As it is written, without quotes.
    pub text: String,
}

/// The documents of `source`, which is number `index`; a mistake where there are none.
pub(crate) fn documents(source: &Source, index: u32, problems: &mut Problems) -> Vec<Node> {
    let errors_before = problems.errors();
    let documents = documents_or_none(source, index, problems);
    if documents.is_empty() && problems.errors() == errors_before {
        let place = Place { source: index, ..Place::default() };
        problems.error(place, "there are no rules in it").help = Some(EMPTY_HELP.to_owned());
    }
    documents
}

/// The documents of `source`, which is number `index`. Documents that are nothing are left out, and so
/// are those with a mistake that leaves unclear what they are.
pub fn documents_or_none(source: &Source, index: u32, problems: &mut Problems) -> Vec<Node> {
    let Some(text) = checked_text(source, index, problems) else {
        return Vec::new();
    };
    let text = json::without_surrogates(text);
    let mut builder = Builder::new(place_behind(&text, index));
    let mut chunk = Chunk { text: &text, lines_before: 0 };
    while let Err(stop) = read_chunk(&chunk, &mut builder, problems) {
        let Stop::At { line } = stop else {
            break;
        };
        // The next document can be read whatever is wrong with this one: `---` at the beginning of a
        // line always begins a document.
        match chunk.next_document(line) {
            Some(next) => chunk = next,
            None => break,
        }
    }
    builder.into_documents()
}

const EMPTY_HELP: &str =
    "write `domain: NAME` and below it `rules:` with a list of rules, or leave it out";

/// The rest of a text, from the beginning of a document on.
struct Chunk<'t> {
    text: &'t str,
    lines_before: u32,
}

impl Chunk<'_> {
    /// From the first document behind this one's first line that begins in `line`, a line of the
    /// whole text, or later.
    fn next_document(&self, line: u32) -> Option<Self> {
        let (mut rest, mut lines_before) = (self.text, self.lines_before);
        loop {
            let end = rest.find(['\n', '\r'])?;
            let length = if rest[end..].starts_with("\r\n") { 2 } else { 1 };
            rest = &rest[end + length..];
            lines_before += 1;
            if lines_before + 1 >= line && rest.starts_with("---") {
                return Some(Self { text: rest, lines_before });
            }
        }
    }
}

/// Reads on until the end, or until something that leaves the rest unclear.
fn read_chunk(
    chunk: &Chunk<'_>,
    builder: &mut Builder,
    problems: &mut Problems,
) -> Result<(), Stop> {
    builder.begin(chunk.lines_before);
    let mut parser = Parser::new_from_str(chunk.text);
    while let Some(event) = parser.next_event() {
        match event {
            Ok((event, span)) => builder.add(event, span, problems)?,
            Err(error) => return Err(syntax::report(&error, chunk, builder, problems)),
        }
    }
    Ok(())
}

/// The text of `source`, if it is one that can be read.
fn checked_text<'s>(source: &'s Source, index: u32, problems: &mut Problems) -> Option<&'s str> {
    let bytes = &source.bytes[..];
    let whole = Place { source: index, ..Place::default() };
    if bytes.len() > SOURCE_BYTES_MAX {
        let message = format!("{} bytes are too many: at most {SOURCE_BYTES_MAX}", bytes.len());
        problems.error(whole, message).help = Some("write several files".to_owned());
        return None;
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let (before, after) = bytes.split_at(error.valid_up_to());
            let place = place_behind(&String::from_utf8_lossy(before), index);
            let byte = after.first().copied().unwrap_or_default();
            problems.error(place, format!("the byte {byte:#04x} is not UTF-8")).help =
                Some("save the file in the encoding UTF-8".to_owned());
            return None;
        }
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // YAML has no such characters, and its scanner would take NUL for the end of the text.
    let is_refused = |c: char| c.is_ascii_control() && !matches!(c, '\t' | '\n' | '\r');
    if let Some(at) = text.find(is_refused) {
        let c = text[at..].chars().next().unwrap_or_default();
        let message = format!("the control character {} is not allowed", quoted(&c.to_string()));
        problems.error(place_behind(&text[..at], index), message).help = Some(format!(
            "remove it, or write \"\\x{:02x}\" with the double quotes where it is meant",
            u32::from(c)
        ));
        return None;
    }
    if is_too_much(text) {
        problems.error(whole, builder::TOO_MUCH).help = Some(builder::TOO_MUCH_HELP.to_owned());
        return None;
    }
    Some(text)
}

/// Whether there are more marks between parts than there may be parts. The scanner keeps all of
/// `[…]` in memory before it gives us the first part, so it is too late to count then.
fn is_too_much(text: &str) -> bool {
    let is_mark = |byte: &u8| matches!(byte, b',' | b'[' | b'{' | b':');
    text.len() > NODES_MAX && text.bytes().filter(is_mark).count() > NODES_MAX
}

/// The place of the character that follows `before`.
fn place_behind(before: &str, index: u32) -> Place {
    let before = before.strip_prefix('\u{feff}').unwrap_or(before);
    let line_start = before.rfind(['\n', '\r']).map_or(0, |at| at + 1);
    let breaks = before.matches(['\n', '\r']).count() - before.matches("\r\n").count();
    let columns = before[line_start..].chars().count();
    // No text has 2^32 bytes.
    Place { source: index, line: breaks as u32 + 1, column: columns as u32 + 1, length: 1 }
}

#[cfg(test)]
mod tests;
