//! Why there is no answer.

use std::fmt;
use std::io;

use tidegate_files::ReadError;
use tidegate_rules::Report;

/// What stood in the way.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A file or folder cannot be read.
    Read(ReadError),
    /// There are mistakes in the rules.
    Rules(Report),
    /// Standard input or output is at fault.
    Stream {
        /// Which of the two.
        name: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// It was asked for something that there is not.
    Asked(String),
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Self::Rules(report)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => {
                for line in error.to_string().lines() {
                    writeln!(f, "error: {line}")?;
                }
                Ok(())
            }
            Self::Rules(report) => {
                let errors = crate::output::counted(report.errors(), "error");
                writeln!(f, "{report}\n{errors}: the rules cannot be used")
            }
            Self::Stream { name, error } => writeln!(f, "error: {name}: {error}"),
            Self::Asked(message) => writeln!(f, "error: {message}"),
        }
    }
}
