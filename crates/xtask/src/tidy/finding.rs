//! What a check has to say: where, what is wrong, and what to do about it.

use std::fmt;

/// One message of one check.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    severity: Severity,
    path: String,
    line: usize,
    what: String,
    remedy: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Severity {
    /// Tidy fails.
    Fault,
    /// Something could be tightened; tidy passes.
    Note,
}

impl Finding {
    pub(super) fn fault(path: &str, line: usize, what: String, remedy: &str) -> Self {
        Self { severity: Severity::Fault, path: path.into(), line, what, remedy: remedy.into() }
    }

    pub(super) fn note(path: &str, line: usize, what: String, remedy: &str) -> Self {
        Self { severity: Severity::Note, path: path.into(), line, what, remedy: remedy.into() }
    }

    pub(super) fn is_fault(&self) -> bool {
        self.severity == Severity::Fault
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = if self.is_fault() { "" } else { "note: " };
        writeln!(f, "{}:{}: {label}{}", self.path, self.line, self.what)?;
        write!(f, "    {}", self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_as_place_fault_and_remedy() {
        let fault = Finding::fault("a.rs", 3, "is wrong".into(), "right it");
        assert_eq!(fault.to_string(), "a.rs:3: is wrong\n    right it");
        let note = Finding::note("a.rs", 3, "is loose".into(), "tighten it");
        assert_eq!(note.to_string(), "a.rs:3: note: is loose\n    tighten it");
    }
}
