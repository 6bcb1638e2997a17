//! Why there is no answer, for a person and for a program.

use std::fmt;
use std::io;

use serde_json::{Value, json};
use tidegate_files::{ReadProblem, Reason};
use tidegate_rules::{Diagnostic, Report};

use crate::output::counted;

/// What stood in the way.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There are files that cannot be read, or mistakes in the rules: of one set of rules or of two.
    Rules(Vec<Unusable>),
    /// There are mistakes in the settings file.
    Settings(Report),
    /// Standard output is at fault.
    Output(io::Error),
    /// It was asked for something that there is not.
    Asked(String),
}

/// Why a set of rules cannot be used.
#[derive(Debug)]
pub(crate) struct Unusable {
    pub(crate) unread: Unread,
    /// What is wrong with those that were read.
    pub(crate) report: Report,
}

/// What could not be read.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    pub(crate) problems: Vec<ReadProblem>,
    /// How many there are beyond those listed.
    pub(crate) more: usize,
}

impl Unread {
    pub(crate) fn count(&self) -> usize {
        self.problems.len() + self.more
    }

    /// Each as a diagnostic that is about a whole file.
    fn as_json(&self) -> impl Iterator<Item = Value> {
        self.problems.iter().map(|problem| {
            let sentence = problem.reason.to_string();
            let (message, help) = match (&problem.reason, sentence.rsplit_once(": ")) {
                // What the system says is no help.
                (Reason::System { .. }, _) | (_, None) => (sentence.as_str(), None),
                (_, Some((message, help))) => (message, Some(help)),
            };
            json!({
                "severity": "error",
                "file": problem.path.to_string_lossy(),
                "line": null,
                "column": null,
                "length": null,
                "message": message,
                "help": help,
            })
        })
    }
}

impl Unusable {
    pub(crate) fn errors(&self) -> usize {
        self.unread.count() + self.report.errors()
    }

    /// First what could not be read, then what is wrong with the rest.
    pub(crate) fn diagnostics(&self) -> impl Iterator<Item = Value> {
        self.unread.as_json().chain(self.report.iter().map(diagnostic))
    }
}

/// A place that is a whole file has no line, and one that is nowhere has no file.
fn diagnostic((file, diagnostic): (&str, &Diagnostic)) -> Value {
    let Diagnostic { severity, place, message, help, .. } = diagnostic;
    let in_line = |number: u32| (place.line > 0).then_some(number);
    json!({
        "severity": severity.to_string(),
        "file": (!file.is_empty()).then_some(file),
        "line": in_line(place.line),
        "column": in_line(place.column),
        "length": in_line(place.length),
        "message": message,
        "help": help,
    })
}

impl Failure {
    /// For programs; `None` where there is nowhere to print it.
    pub(crate) fn as_json(&self) -> Option<Value> {
        match self {
            Self::Rules(unusable) => {
                let diagnostics = unusable.iter().flat_map(Unusable::diagnostics);
                Some(json!({
                    "error": "the rules cannot be used",
                    "errors": unusable.iter().map(Unusable::errors).sum::<usize>(),
                    "diagnostics": diagnostics.collect::<Vec<_>>(),
                }))
            }
            Self::Settings(report) => Some(json!({
                "error": "the settings cannot be used",
                "errors": report.errors(),
                "diagnostics": report.iter().map(diagnostic).collect::<Vec<_>>(),
            })),
            Self::Output(_) => None,
            Self::Asked(message) => Some(json!({ "error": message })),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rules(unusable) => {
                for one in unusable {
                    one.fmt(f)?;
                }
                let errors = unusable.iter().map(Unusable::errors).sum();
                writeln!(f, "{}: the rules cannot be used", counted(errors, "error"))
            }
            Self::Settings(report) => {
                let errors = counted(report.errors(), "error");
                writeln!(f, "{report}\n{errors}: the settings cannot be used")
            }
            Self::Output(error) => writeln!(f, "error: standard output: {error}"),
            Self::Asked(message) => writeln!(f, "error: {message}"),
        }
    }
}

impl fmt::Display for Unusable {
    /// In lines that are whole, the last of them empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.unread.problems {
            writeln!(f, "error: {problem}")?;
        }
        if self.unread.more > 0 {
            writeln!(f, "and {} more that cannot be read", self.unread.more)?;
        }
        if self.unread.count() > 0 {
            writeln!(f)?;
        }
        if !self.report.is_empty() {
            writeln!(f, "{}", self.report)?;
        }
        Ok(())
    }
}
