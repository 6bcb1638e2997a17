//! What is wrong with rule text, where, and what to do about it; and how a person is shown that.
//!
//! It finds nothing itself: the readers and the lints do, and put it into `Problems`.

use std::fmt;

use crate::source::{Place, Source};

mod snippet;

use snippet::{Cursor, Snippet};

/// How many errors, and how many warnings, are kept of one reading; further ones are only counted.
/// Nobody reads more, and one mistake in a file can be repeated in all of its lines.
pub const DIAGNOSTICS_MAX: usize = 100;
/// How much of a text of the file a message repeats.
const QUOTED_CHARS_MAX: usize = 40;

/// Whether the rules can be used in spite of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Severity {
    /// They cannot.
    Error,
    /// They can, but probably do not do what was meant.
    Warning,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// All that was found in a set of sources, in the order of the sources and of the places in them.
///
/// It displays as compilers do it, with the line that is meant:
///
/// ```text
/// error: unknown field `algoritm`
///   --> rules.yaml:12:7
///    |
/// 12 |       algoritm: token-bucket
///    |       ^^^^^^^^
///    = help: did you mean `algorithm`?
/// ```
#[derive(Clone, Debug, Default)]
pub struct Report {
    entries: Vec<Entry>,
    names: Vec<String>,
    errors: usize,
    warnings: usize,
}

/// A diagnostic with the line that it points at.
#[derive(Clone, Debug)]
struct Entry {
    diagnostic: Diagnostic,
    snippet: Option<Snippet>,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many errors were found, with those that are not kept.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// How many warnings were found, with those that are not kept.
    pub fn warnings(&self) -> usize {
        self.warnings
    }

    /// What was found, each with the name of its source, which is empty where it is about none.
    /// At most [`DIAGNOSTICS_MAX`] errors and as many warnings.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Diagnostic)> {
        self.entries.iter().map(|entry| (self.name(entry.diagnostic.place), &entry.diagnostic))
    }

    fn name(&self, place: Place) -> &str {
        self.names.get(place.source as usize).map_or("", String::as_str)
    }

    /// How many were found and not kept.
    fn left_out(&self, severity: Severity) -> usize {
        let kept = |entry: &&Entry| entry.diagnostic.severity == severity;
        let found = match severity {
            Severity::Error => self.errors,
            Severity::Warning => self.warnings,
        };
        found - self.entries.iter().filter(kept).count()
    }

    fn write_entry(&self, f: &mut fmt::Formatter<'_>, entry: &Entry) -> fmt::Result {
        let Diagnostic { severity, place, message, help } = &entry.diagnostic;
        writeln!(f, "{severity}: {}", printable(message))?;
        let number = if place.line == 0 { String::new() } else { place.line.to_string() };
        let margin = " ".repeat(number.len());
        let name = printable(self.name(*place));
        match (name.is_empty(), place.line) {
            (true, 0) => {}
            (false, 0) => writeln!(f, "{margin} --> {name}")?,
            (_, line) => writeln!(f, "{margin}--> {name}:{line}:{}", place.column)?,
        }
        if let Some(snippet) = &entry.snippet {
            writeln!(f, "{margin} |")?;
            writeln!(f, "{number} | {}", snippet.text())?;
            writeln!(f, "{margin} | {}", snippet.carets())?;
        }
        match help {
            Some(help) => writeln!(f, "{margin} = help: {}", printable(help)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.entries.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            self.write_entry(f, entry)?;
        }
        for severity in [Severity::Error, Severity::Warning] {
            match self.left_out(severity) {
                0 => {}
                1 => writeln!(f, "\nand 1 more {severity}")?,
                count => writeln!(f, "\nand {count} more {severity}s")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// What was found so far.
#[derive(Debug)]
pub struct Problems {
    names: Vec<String>,
    errors: Kept,
    warnings: Kept,
}

/// The first of one severity, and how many there were.
#[derive(Debug)]
struct Kept {
    diagnostics: Vec<Diagnostic>,
    found: usize,
    /// What callers may write to once enough are kept.
    spare: Diagnostic,
}

impl Default for Problems {
    fn default() -> Self {
        Self::new(&[])
    }
}

impl Problems {
    /// None yet in these sources.
    pub fn new(sources: &[Source]) -> Self {
        Self {
            names: sources.iter().map(|source| source.name.clone()).collect(),
            errors: Kept::new(Severity::Error),
            warnings: Kept::new(Severity::Warning),
        }
    }

    /// Adds what makes the rules unusable.
    pub fn error(&mut self, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        self.errors.add(place, message.into())
    }

    /// Adds what is probably not meant.
    pub(crate) fn warning(&mut self, place: Place, message: impl Into<String>) -> &mut Diagnostic {
        self.warnings.add(place, message.into())
    }

    /// Takes back that a field is missing, once it turns out to be there under a wrong name.
    pub(crate) fn take_back_missing(&mut self, place: Place, field: &str) {
        let message = format!("`{field}` is missing");
        let is_it = |known: &Diagnostic| {
            position(known.place) == position(place) && known.message.starts_with(&message)
        };
        for kept in [&mut self.errors, &mut self.warnings] {
            if let Some(at) = kept.diagnostics.iter().rposition(is_it) {
                kept.diagnostics.remove(at);
                kept.found -= 1;
            }
        }
    }

    /// Whether there is an error.
    pub fn has_errors(&self) -> bool {
        self.errors.found > 0
    }

    /// How many errors there are.
    pub(crate) fn errors(&self) -> usize {
        self.errors.found
    }

    /// Whether further errors are only counted, so that no work need go into their help.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.diagnostics.len() == DIAGNOSTICS_MAX
    }

    /// `place` as messages name it: `rules.yaml:3:7`.
    pub(crate) fn locate(&self, place: Place) -> String {
        match self.names.get(place.source as usize) {
            Some(name) => format!("{name}:{}:{}", place.line, place.column),
            None => format!("line {}, column {}", place.line, place.column),
        }
    }

    /// What was found, with the lines of the `sources` that it is about.
    pub fn into_report(self, sources: &[Source]) -> Report {
        let (errors, warnings) = (self.errors.found, self.warnings.found);
        let mut diagnostics = self.errors.diagnostics;
        diagnostics.extend(self.warnings.diagnostics);
        diagnostics.sort_by_key(|diagnostic| position(diagnostic.place));
        let mut report = Report { entries: Vec::new(), names: self.names, errors, warnings };
        let mut cursor: Option<(u32, Cursor<'_>)> = None;
        for diagnostic in diagnostics {
            let place = diagnostic.place;
            if cursor.as_ref().is_none_or(|(source, _)| *source != place.source) {
                let source = sources.get(place.source as usize);
                cursor = source.map(|source| (place.source, Cursor::new(&source.bytes)));
            }
            let snippet = cursor.as_mut().and_then(|(_, cursor)| cursor.snippet(place));
            report.entries.push(Entry { diagnostic, snippet });
        }
        report
    }
}

impl Kept {
    fn new(severity: Severity) -> Self {
        let place = Place::default();
        let spare = Diagnostic { severity, place, message: String::new(), help: None };
        Self { diagnostics: Vec::new(), found: 0, spare }
    }

    fn add(&mut self, place: Place, message: String) -> &mut Diagnostic {
        let at = self.diagnostics.len();
        // What an alias stands for is read again wherever the alias is.
        let is_known = |known: &Diagnostic| {
            position(known.place) == position(place) && known.message == message
        };
        if let Some(known) = self.diagnostics.iter().rposition(is_known) {
            return &mut self.diagnostics[known];
        }
        self.found += 1;
        if at == DIAGNOSTICS_MAX {
            return &mut self.spare;
        }
        let severity = self.spare.severity;
        self.diagnostics.push(Diagnostic { severity, place, message, help: None });
        &mut self.diagnostics[at]
    }
}

/// What places are ordered by.
fn position(place: Place) -> (u32, u32, u32) {
    (place.source, place.line, place.column)
}

/// A text of the file in a message: in backquotes, not long, and printable.
pub fn quoted(text: &str) -> String {
    let mut quoted = String::from("`");
    for (count, c) in text.chars().enumerate() {
        if count == QUOTED_CHARS_MAX {
            quoted.push('…');
            break;
        }
        push_printable(&mut quoted, c);
    }
    quoted.push('`');
    quoted
}

/// `text` without characters that a terminal obeys instead of showing them.
fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        push_printable(&mut shown, c);
    }
    shown
}

/// Adds `c`, or its escape where it cannot be seen or moves others about.
fn push_printable(text: &mut String, c: char) {
    match c {
        '\'' | '"' | '\\' => text.push(c),
        _ => text.extend(c.escape_debug()),
    }
}

#[cfg(test)]
mod tests;
