//! How answers and complaints are printed: data to standard output, talk to standard error, and
//! colour only where a terminal shows it.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use anstyle::{AnsiColor, Style};
use serde_json::Value;

use crate::failure::Failure;

/// What stands out in a listing.
pub(crate) const HEADING: Style = Style::new().bold();

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();

/// Prints what was asked for.
pub(crate) fn data(text: &str) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // Whoever reads it has seen enough, as `head` has.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::Output(error)),
        Ok(()) => Ok(()),
    }
}

/// Prints what was asked for as JSON.
pub(crate) fn json(value: &Value) -> Result<(), Failure> {
    data(&format!("{value:#}\n"))
}

/// Tells a person something, in lines that are whole.
pub(crate) fn complain(text: &str) {
    let mut painted = String::with_capacity(text.len());
    for line in text.lines() {
        // Lines of a rule file are indented in a report, so no word of theirs is taken for ours.
        let word = [("error", ERROR), ("warning", WARNING)]
            .into_iter()
            .find(|(word, _)| line.strip_prefix(word).is_some_and(|rest| rest.starts_with(':')));
        // Writing to a string cannot fail.
        let _ = match word {
            Some((word, style)) => {
                writeln!(painted, "{style}{word}{style:#}{}", &line[word.len()..])
            }
            None => writeln!(painted, "{line}"),
        };
    }
    // There is nobody left to tell it to where this fails.
    let _ = anstream::stderr().lock().write_all(painted.as_bytes());
}

/// Tells a person something, without looking for words to paint.
pub(crate) fn tell(text: &str) {
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// `1 rule`, `2 rules`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// `text` without characters that a terminal obeys instead of showing them.
pub(crate) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\'' | '"' | '\\' => shown.push(c),
            _ => shown.extend(c.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_counted_in_the_singular() {
        assert_eq!(counted(0, "rule"), "0 rules");
        assert_eq!(counted(1, "rule"), "1 rule");
        assert_eq!(counted(2, "rule"), "2 rules");
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_an_escape() {
        assert_eq!(printable("a\u{1b}[31m 'b' é"), "a\\u{1b}[31m 'b' é");
    }
}
