//! What can be wrong with paths and files, and what to do about it. What is wrong with the rules in
//! them is the parser's to say.

use std::error::Error;
use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};

/// How many problems one error lists; the rest are counted.
pub(crate) const PROBLEMS_MAX: usize = 100;

/// Why the rule files could not be read: every problem, not only the first. A part of the rules
/// is no rule set, so what could be read is not to be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    problems: Vec<ReadProblem>,
    more: usize,
}

impl ReadError {
    /// The problems in the order of the paths, one at least and 100 at most.
    pub fn problems(&self) -> &[ReadProblem] {
        &self.problems
    }

    /// How many problems there are beyond those listed.
    pub fn more(&self) -> usize {
        self.more
    }
}

impl fmt::Display for ReadError {
    /// One line for each problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(f, "{newline}{problem}")?;
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl Error for ReadError {}

/// One thing that stands in the way of reading the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadProblem {
    /// The file or folder, spelled as it was given.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: Reason,
}

impl fmt::Display for ReadProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Shown(&self.path), self.reason)
    }
}

/// A path without characters that a terminal obeys instead of showing them.
struct Shown<'p>(&'p Path);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.to_string_lossy().chars() {
            match c {
                '\'' | '"' | '\\' => f.write_char(c)?,
                _ => write!(f, "{}", c.escape_debug())?,
            }
        }
        Ok(())
    }
}

/// What is wrong with a file or folder. Its text says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Nothing is there.
    Missing,
    /// A link is there, and nothing where it points.
    DeadLink {
        /// What the link says.
        target: PathBuf,
    },
    /// This process may not read it.
    Denied,
    /// It is neither a file nor a folder. It was not opened, or not read from: that could wait for ever.
    NotAFile {
        /// What it is: `a pipe`, `a device`…
        found: &'static str,
    },
    /// A folder has the name of a rule file.
    FolderNamedAsFile,
    /// No file in the folder counts as a rule file.
    NoRuleFiles,
    /// The file is longer than [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX).
    FileTooLarge,
    /// With this file, all together are longer than [`TOTAL_BYTES_MAX`](crate::TOTAL_BYTES_MAX).
    TotalTooLarge,
    /// With this file, there are more than [`FILES_MAX`](crate::FILES_MAX).
    TooManyFiles,
    /// In this folder, the entries looked at become more than [`ENTRIES_MAX`](crate::ENTRIES_MAX).
    TooManyEntries,
    /// The folder lies more than [`DEPTH_MAX`](crate::DEPTH_MAX) folders deep in the one that was given.
    TooDeep,
    /// The system refused for another reason, in its own words.
    System {
        /// What kind of error it was.
        kind: io::ErrorKind,
        /// What the system says.
        text: String,
    },
}

impl Reason {
    /// What an error of the system, met at this path, means for somebody who wrote the path.
    pub(crate) fn of(error: &io::Error, path: &Path) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => {
                std::fs::read_link(path).map_or(Self::Missing, |target| Self::DeadLink { target })
            }
            io::ErrorKind::PermissionDenied => Self::Denied,
            kind => Self::System { kind, text: error.to_string() },
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::{DEPTH_MAX, ENTRIES_MAX, FILE_BYTES_MAX, FILES_MAX, TOTAL_BYTES_MAX};
        const MIB: u64 = 1 << 20;
        match self {
            Self::Missing => f.write_str("does not exist: create it, or correct the path"),
            Self::DeadLink { target } => write!(
                f,
                "links to `{}`, which does not exist: correct the link, or remove it",
                Shown(target)
            ),
            Self::Denied => {
                f.write_str("this process may not read it: let its user read the file and enter its folders")
            }
            Self::NotAFile { found } => {
                write!(f, "is {found}, not a file: write the rules to a file, and name that")
            }
            Self::FolderNamedAsFile => f.write_str(
                "is a folder with the name of a rule file: put the file in its place, or rename the \
                 folder (container engines make such a folder where the file to be mounted is missing)",
            ),
            Self::NoRuleFiles => f.write_str(
                "holds no rule files: put files in it that end in .yaml, .yml or .json and are not hidden",
            ),
            Self::FileTooLarge => {
                write!(f, "is larger than {} MiB: cut it into several files", FILE_BYTES_MAX / MIB)
            }
            Self::TotalTooLarge => write!(
                f,
                "with this file, the rule files hold more than {} MiB: name fewer files",
                TOTAL_BYTES_MAX / MIB
            ),
            Self::TooManyFiles => {
                write!(f, "with this file, there are more than {FILES_MAX} rule files: put several into one")
            }
            Self::TooManyEntries => write!(
                f,
                "with this folder, more than {ENTRIES_MAX} files and folders would be looked at: \
                 keep rules in folders of their own"
            ),
            Self::TooDeep => write!(
                f,
                "lies more than {DEPTH_MAX} folders deep: move it up, or name it as a path of its own"
            ),
            Self::System { text, .. } => write!(f, "cannot be read: {text}"),
        }
    }
}

/// Problems as they are found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Problems {
    listed: Vec<ReadProblem>,
    more: usize,
}

impl Problems {
    pub(crate) fn add(&mut self, path: &Path, reason: Reason) {
        if self.listed.len() == PROBLEMS_MAX {
            self.more += 1;
        } else {
            self.listed.push(ReadProblem { path: path.to_path_buf(), reason });
        }
    }

    /// An error, where there is anything to tell.
    pub(crate) fn into_result(self) -> Result<(), ReadError> {
        if self.listed.is_empty() {
            return Ok(());
        }
        Err(ReadError { problems: self.listed, more: self.more })
    }
}

/// Why watching did not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchError {
    /// The files cannot be read as things stand.
    Read(ReadError),
    /// The system gave no thread to watch on.
    Thread(io::Error),
}

impl fmt::Display for WatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(_) => f.write_str("the rule files to watch cannot be read"),
            Self::Thread(_) => {
                f.write_str("no thread to watch the rule files on: raise the limit of threads")
            }
        }
    }
}

impl Error for WatchError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Read(error) => Some(error),
            Self::Thread(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_the_system_says_whose_permission_is_missing() {
        let error = io::Error::from(io::ErrorKind::PermissionDenied);
        let reason = Reason::of(&error, Path::new("rules.yaml"));
        assert_eq!(reason, Reason::Denied);
        assert!(reason.to_string().contains("let its user read the file"));
    }

    #[test]
    fn problems_beyond_the_bound_are_counted_and_not_kept() {
        let mut problems = Problems::default();
        for _ in 0..PROBLEMS_MAX + 3 {
            problems.add(Path::new("a.yaml"), Reason::Missing);
        }
        let error = problems.into_result().unwrap_err();
        assert_eq!((error.problems().len(), error.more()), (PROBLEMS_MAX, 3));
        assert!(error.to_string().ends_with("\nand 3 more"));
    }

    #[test]
    fn what_a_terminal_would_obey_in_a_path_is_shown_as_an_escape() {
        let path = PathBuf::from("a\u{1b}[2J\n'é'.yaml");
        let reason = Reason::DeadLink { target: path.clone() };
        let text = ReadProblem { path, reason }.to_string();
        let shown = "a\\u{1b}[2J\\n'é'.yaml";
        assert!(text.starts_with(&format!("{shown}: links to `{shown}`")), "{text}");
    }

    #[test]
    fn every_reason_says_what_to_do_on_one_line() {
        let reasons = [
            Reason::Missing,
            Reason::DeadLink { target: "x".into() },
            Reason::Denied,
            Reason::NotAFile { found: "a pipe" },
            Reason::FolderNamedAsFile,
            Reason::NoRuleFiles,
            Reason::FileTooLarge,
            Reason::TotalTooLarge,
            Reason::TooManyFiles,
            Reason::TooManyEntries,
            Reason::TooDeep,
        ];
        for reason in reasons {
            let text = reason.to_string();
            assert!(text.contains(": ") && !text.contains('\n') && !text.contains("  "), "{text}");
        }
    }
}
