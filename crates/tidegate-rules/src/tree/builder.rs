//! Events of the YAML parser to trees, with a stack of its own and within the bounds.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use saphyr_parser::{Event, Marker, ScalarStyle, Span, Tag};

use super::{DEPTH_MAX, DOCUMENTS_MAX, Key, NODES_MAX, Node, Scalar, Value};
use crate::diagnostic::{Problems, quoted};
use crate::source::Place;

pub(super) const TOO_MUCH: &str = "more than 4,000,000 values are too much for one file";
pub(super) const TOO_MUCH_HELP: &str =
    "write several files; what an alias stands for counts each time";

/// Why reading does not simply go on. It was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The document cannot be understood from this line on.
    At { line: u32 },
    /// There is too much of it.
    Everywhere,
}

/// Makes trees of events.
#[derive(Debug)]
pub(super) struct Builder {
    source: u32,
    lines_before: u32,
    /// Behind the last character of the text.
    end: Place,
    documents: Vec<Node>,
    /// The lists and mappings that are not complete, from the outermost to the innermost.
    open: Vec<Open>,
    /// What the anchors of this document stand for.
    anchors: BTreeMap<usize, Anchored>,
    /// How many nodes were built, of all documents.
    nodes: usize,
}

/// A list or mapping that is not complete.
#[derive(Debug)]
struct Open {
    place: Place,
    anchor: usize,
    /// How many nodes there were before it.
    nodes_before: usize,
    /// How many lists and mappings are inside each other in it, so far.
    height: usize,
    content: Content,
}

#[derive(Debug)]
enum Content {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, merged: Vec<Node>, next: Next },
}

/// What the next node of a mapping is.
#[derive(Debug)]
enum Next {
    Key,
    Value(Key),
    /// The value of `<<`.
    Merged,
    /// The value of a key that was refused.
    Ignored,
}

/// What an anchor stands for.
#[derive(Debug)]
struct Anchored {
    node: Node,
    size: usize,
    height: usize,
}

impl Builder {
    /// A builder for a text that ends at `end`.
    pub(super) fn new(end: Place) -> Self {
        Self {
            source: end.source,
            lines_before: 0,
            end,
            documents: Vec::new(),
            open: Vec::new(),
            anchors: BTreeMap::new(),
            nodes: 0,
        }
    }

    /// Goes on with a parser whose first line follows so many others.
    pub(super) fn begin(&mut self, lines_before: u32) {
        self.lines_before = lines_before;
        self.open.clear();
        self.anchors.clear();
    }

    pub(super) fn into_documents(self) -> Vec<Node> {
        self.documents
    }

    /// The place between two marks. At the end of a text the scanner counts one line more, also where
    /// the last line has no line break; the end of that line is meant.
    pub(super) fn place(&self, start: Marker, end: Marker) -> Place {
        // The text has less than 2^32 characters. What goes on in another line is pointed at where
        // it begins.
        let line = self.lines_before + start.line() as u32;
        if line > self.end.line {
            return self.end;
        }
        let length =
            if start.line() == end.line() { end.col().saturating_sub(start.col()) } else { 1 };
        Place {
            source: self.source,
            line,
            column: start.col() as u32 + 1,
            length: (length as u32).max(1),
        }
    }

    /// Takes the next event.
    pub(super) fn add(
        &mut self,
        event: Event<'_>,
        span: Span,
        problems: &mut Problems,
    ) -> Result<(), Stop> {
        let place = self.place(span.start, span.end);
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) => {
                self.anchors.clear();
                Ok(())
            }
            Event::Alias(anchor) => self.alias(anchor, place, problems),
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, place, problems)?;
                let value = scalar(text, style, tag.as_deref(), place, problems);
                self.complete(Node { place, value }, anchor, 1, 0, problems)
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), "seq", place, problems);
                self.open(anchor, place, Content::List(Vec::new()), problems)
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), "map", place, problems);
                let content =
                    Content::Map { entries: Vec::new(), merged: Vec::new(), next: Next::Key };
                self.open(anchor, place, content, problems)
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(problems),
        }
    }

    fn open(
        &mut self,
        anchor: usize,
        place: Place,
        content: Content,
        problems: &mut Problems,
    ) -> Result<(), Stop> {
        if self.open.len() == DEPTH_MAX {
            report_depth(place, problems);
            return Err(Stop::At { line: place.line });
        }
        let nodes_before = self.nodes;
        self.count(1, place, problems)?;
        self.open.push(Open { place, anchor, nodes_before, height: 1, content });
        Ok(())
    }

    fn close(&mut self, problems: &mut Problems) -> Result<(), Stop> {
        let Some(Open { mut place, anchor, nodes_before, height, content }) = self.open.pop()
        else {
            return Ok(());
        };
        let value = match content {
            Content::List(items) => Value::List(items),
            Content::Map { entries, merged, .. } => {
                if let Some((key, _)) = entries.first()
                    && (key.place.line, key.place.column) == (place.line, place.column)
                {
                    // A mapping without braces begins with its first key, which shows it better than
                    // one letter does.
                    place = key.place;
                }
                Value::Map(with_merged(unique(entries, problems), merged))
            }
        };
        let size = self.nodes - nodes_before;
        self.complete(Node { place, value }, anchor, size, height, problems)
    }

    /// Puts what an anchor stands for in the place of the alias.
    fn alias(&mut self, anchor: usize, place: Place, problems: &mut Problems) -> Result<(), Stop> {
        let Some(&Anchored { size, height, .. }) = self.anchors.get(&anchor) else {
            let message = "this alias is inside of what it stands for, or in another document";
            problems.error(place, message).help =
                Some("an anchor can be used behind its value, and in its own document".to_owned());
            return Err(Stop::At { line: place.line });
        };
        if self.open.len() + height > DEPTH_MAX {
            report_depth(place, problems);
            return Err(Stop::At { line: place.line });
        }
        self.count(size, place, problems)?;
        let node = self.anchors[&anchor].node.clone();
        self.complete(node, 0, size, height, problems)
    }

    /// Puts a complete node into what it belongs to.
    fn complete(
        &mut self,
        node: Node,
        anchor: usize,
        size: usize,
        height: usize,
        problems: &mut Problems,
    ) -> Result<(), Stop> {
        if anchor != 0 {
            // The copy that is kept is memory like any other.
            self.count(size, node.place, problems)?;
            self.anchors.insert(anchor, Anchored { node: node.clone(), size, height });
        }
        let Some(parent) = self.open.last_mut() else {
            return self.add_document(node, problems);
        };
        parent.height = parent.height.max(height + 1);
        match &mut parent.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, merged, next } => {
                *next = match std::mem::replace(next, Next::Key) {
                    Next::Key => key_of(node, problems),
                    Next::Value(key) => {
                        entries.push((key, node));
                        Next::Key
                    }
                    Next::Merged => {
                        check_merged(&node, problems);
                        merged.push(node);
                        Next::Key
                    }
                    Next::Ignored => Next::Key,
                }
            }
        }
        Ok(())
    }

    fn add_document(&mut self, node: Node, problems: &mut Problems) -> Result<(), Stop> {
        if node.value == Value::Null {
            return Ok(());
        }
        if self.documents.len() == DOCUMENTS_MAX {
            problems
                .error(node.place, format!("a file may have at most {DOCUMENTS_MAX} documents"))
                .help = Some("write several files, or one list of rules".to_owned());
            return Err(Stop::Everywhere);
        }
        self.documents.push(node);
        Ok(())
    }

    /// Makes room for so many nodes more.
    fn count(&mut self, nodes: usize, place: Place, problems: &mut Problems) -> Result<(), Stop> {
        if nodes > NODES_MAX - self.nodes {
            problems.error(place, TOO_MUCH).help = Some(TOO_MUCH_HELP.to_owned());
            return Err(Stop::Everywhere);
        }
        self.nodes += nodes;
        Ok(())
    }
}

/// Adds that something is too deep.
pub(super) fn report_depth(place: Place, problems: &mut Problems) {
    let message = format!("more than {DEPTH_MAX} lists and mappings are inside each other");
    problems.error(place, message).help = Some("close them, or write the rules flatter".to_owned());
}

fn scalar(
    text: Cow<'_, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    place: Place,
    problems: &mut Problems,
) -> Value {
    let mut plain = style == ScalarStyle::Plain;
    match tag.map(|tag| (tag.is_yaml_core_schema(), tag.suffix.as_str())) {
        None | Some((true, "int" | "float" | "bool")) => {}
        Some((true, "null")) => return Value::Null,
        Some((true, "str")) => plain = false,
        Some(_) => report_tag(tag, place, problems),
    }
    if plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL") {
        return Value::Null;
    }
    Value::Scalar(Scalar { text: text.into_owned(), plain })
}

/// A list or mapping may only say that it is one.
fn check_tag(tag: Option<&Tag>, expected: &str, place: Place, problems: &mut Problems) {
    if tag.is_some_and(|tag| !tag.is_yaml_core_schema() || tag.suffix != expected) {
        report_tag(tag, place, problems);
    }
}

fn report_tag(tag: Option<&Tag>, place: Place, problems: &mut Problems) {
    let tag = tag.map_or(String::new(), |tag| {
        if tag.is_yaml_core_schema() {
            format!("!!{}", tag.suffix)
        } else {
            format!("{}{}", tag.handle, tag.suffix)
        }
    });
    problems.error(place, format!("unknown tag {}", quoted(&tag))).help =
        Some("remove it: values need no tags here".to_owned());
}

/// What follows a key.
fn key_of(node: Node, problems: &mut Problems) -> Next {
    let place = node.place;
    let what = match node.value {
        Value::Scalar(Scalar { text, plain }) if plain && text == "<<" => return Next::Merged,
        Value::Scalar(Scalar { text, .. }) => return Next::Value(Key { place, text }),
        Value::Null => "nothing",
        Value::List(_) => "a list",
        Value::Map(_) => "a mapping",
    };
    problems.error(place, format!("a key must be text, not {what}")).help =
        Some("put quotes around text that begins with `{`, `[`, `?` or `:`".to_owned());
    Next::Ignored
}

/// `entries` without those whose key was there before.
fn unique(mut entries: Vec<(Key, Node)>, problems: &mut Problems) -> Vec<(Key, Node)> {
    let mut first: BTreeMap<&str, Place> = BTreeMap::new();
    let mut repeated = Vec::new();
    for (index, (key, _)) in entries.iter().enumerate() {
        if let Some(place) = first.get(key.text.as_str()) {
            let message = format!("{} is written twice in this mapping", quoted(&key.text));
            problems.error(key.place, message).help =
                Some(format!("keep one; the first is in line {}", place.line));
            repeated.push(index);
        } else {
            first.insert(&key.text, key.place);
        }
    }
    if !repeated.is_empty() {
        let mut repeated = repeated.into_iter().peekable();
        let mut index = 0;
        entries.retain(|_| {
            let is_repeated = repeated.next_if_eq(&index).is_some();
            index += 1;
            !is_repeated
        });
    }
    entries
}

/// `<<` takes a mapping or a list of mappings.
fn check_merged(node: &Node, problems: &mut Problems) {
    let is_map = |node: &Node| matches!(node.value, Value::Map(_));
    let is_mergeable = match &node.value {
        Value::List(items) => items.iter().all(is_map),
        Value::Map(_) => true,
        Value::Null | Value::Scalar(_) => false,
    };
    if !is_mergeable {
        problems.error(node.place, "`<<` must be a mapping or a list of mappings").help =
            Some("write the alias of a mapping behind it, such as `<<: *defaults`".to_owned());
    }
}

/// Adds the entries of `merged` mappings whose keys are not there yet; what comes first wins.
fn with_merged(mut entries: Vec<(Key, Node)>, merged: Vec<Node>) -> Vec<(Key, Node)> {
    if merged.is_empty() {
        return entries;
    }
    let mut keys: BTreeSet<String> = entries.iter().map(|(key, _)| key.text.clone()).collect();
    let maps = merged.into_iter().flat_map(|node| match node.value {
        Value::List(items) => items,
        Value::Null | Value::Scalar(_) | Value::Map(_) => vec![node],
    });
    for map in maps {
        if let Value::Map(more) = map.value {
            entries.extend(more.into_iter().filter(|(key, _)| keys.insert(key.text.clone())));
        }
    }
    entries
}
