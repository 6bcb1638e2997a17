//! Files and functions stay short. What is longer already is listed with its size, a ratchet that
//! only turns one way.

use super::finding::Finding;
use super::tokens::functions;
use super::tree::{File, Tree};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

const RATCHET: &str = "crates/xtask/ratchet.txt";

/// A file, or a function `path::name`, and its number of lines.
struct Measured {
    kind: Kind,
    name: String,
    path: String,
    line: usize,
    lines: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Function,
}

/// One line of the ratchet file.
struct Entry<'a> {
    kind: Kind,
    name: &'a str,
    /// Where it stands in the ratchet file.
    line: usize,
    lines: usize,
}

pub(super) fn check(tree: &Tree<'_>) -> Vec<Finding> {
    let (entries, mut found) = ratchet(tree);
    let measured = measure(tree);
    for item in &measured {
        let entry = entries.iter().find(|entry| entry.names(item));
        found.extend(judge(item, entry.map(|entry| entry.lines)));
    }
    for entry in &entries {
        let lines = measured.iter().filter(|item| entry.names(item)).map(|item| item.lines).max();
        found.extend(slack(entry, lines));
    }
    found
}

/// Too long, or longer than the ratchet lets it be.
fn judge(item: &Measured, listed: Option<usize>) -> Option<Finding> {
    let Measured { kind, path, line, lines, name } = item;
    let max = kind.max();
    if *lines <= listed.unwrap_or(0).max(max) {
        return None;
    }
    let what = match listed {
        Some(listed) => format!("`{name}` grew from {listed} to {lines} lines"),
        None => format!("`{name}` has {lines} lines; {} have at most {max}", kind.plural()),
    };
    Some(Finding::fault(path, *line, what, "split it where a reader would pause"))
}

/// An entry that could be lower, or go.
fn slack(entry: &Entry<'_>, lines: Option<usize>) -> Option<Finding> {
    let Entry { kind, name, line, lines: listed } = entry;
    let (what, remedy) = match lines {
        None => (format!("`{name}` is gone"), "remove this line".to_owned()),
        Some(lines) if lines <= kind.max() => {
            (format!("`{name}` has only {lines} lines now"), "remove this line".to_owned())
        }
        Some(lines) if lines < *listed => (
            format!("`{name}` shrank from {listed} to {lines} lines"),
            format!("write {lines} here"),
        ),
        Some(_) => return None,
    };
    Some(Finding::note(RATCHET, *line, what, &remedy))
}

fn measure(tree: &Tree<'_>) -> Vec<Measured> {
    let mut measured = Vec::new();
    for file in tree.rust() {
        let path = &file.path;
        measured.push(Measured {
            kind: Kind::File,
            name: path.clone(),
            path: path.clone(),
            line: 1,
            lines: file.lines().count(),
        });
        measured.extend(functions(&file.tokens).into_iter().map(|function| Measured {
            kind: Kind::Function,
            name: format!("{path}::{}", function.name),
            path: path.clone(),
            line: function.line,
            lines: function.lines,
        }));
    }
    measured
}

/// The entries, and faults for lines that are none.
fn ratchet<'a>(tree: &'a Tree<'_>) -> (Vec<Entry<'a>>, Vec<Finding>) {
    let (mut entries, mut found) = (Vec::new(), Vec::new());
    let lines = tree.file(RATCHET).into_iter().flat_map(File::lines);
    for (line, text) in lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
        if let Some(entry) = Entry::parse(line, text) {
            entries.push(entry);
        } else {
            let what = format!("`{text}` is not an entry");
            let remedy = "write `file PATH LINES` or `function PATH::NAME LINES`";
            found.push(Finding::fault(RATCHET, line, what, remedy));
        }
    }
    (entries, found)
}

impl<'a> Entry<'a> {
    fn parse(line: usize, text: &'a str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let kind = match words.next()? {
            "file" => Kind::File,
            "function" => Kind::Function,
            _ => return None,
        };
        let (name, lines) = (words.next()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(Self { kind, name, line, lines })
    }

    fn names(&self, item: &Measured) -> bool {
        self.kind == item.kind && self.name == item.name
    }
}

impl Kind {
    fn max(self) -> usize {
        match self {
            Self::File => FILE_LINES_MAX,
            Self::Function => FUNCTION_LINES_MAX,
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::File => "files",
            Self::Function => "functions",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(ratchet: &str, text: &str) -> Vec<String> {
        let tree = Tree::of(&[(RATCHET, ratchet), ("a.rs", text)]);
        check(&tree).iter().map(|finding| finding.to_string().replace("\n    ", " | ")).collect()
    }

    /// A function of that many lines.
    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_file_has_at_most_600_lines() {
        assert!(messages("", &"\n".repeat(600)).is_empty());
        assert_eq!(
            messages("", &"\n".repeat(601)),
            [
                "a.rs:1: `a.rs` has 601 lines; files have at most 600 | split it where a reader would pause"
            ]
        );
    }

    #[test]
    fn a_function_has_at_most_70_lines() {
        assert!(messages("", &function(70)).is_empty());
        assert!(messages("", &function(71))[0].starts_with("a.rs:1: `a.rs::f` has 71 lines"));
    }

    #[test]
    fn a_listed_function_may_stay_and_may_not_grow() {
        let ratchet = "# comment\nfunction a.rs::f 80\n";
        assert!(messages(ratchet, &function(80)).is_empty());
        assert!(messages(ratchet, &function(81))[0].contains("grew from 80 to 81"));
    }

    #[test]
    fn an_entry_with_slack_is_noted() {
        let note = |lines| messages("function a.rs::f 80", &function(lines)).remove(0);
        assert!(note(75).ends_with("shrank from 80 to 75 lines | write 75 here"));
        assert!(note(70).ends_with("has only 70 lines now | remove this line"));
        assert!(messages("file b.rs 700", "").remove(0).contains("`b.rs` is gone"));
    }

    #[test]
    fn a_line_that_is_no_entry_is_a_fault() {
        for line in ["files a.rs 700", "file a.rs", "file a.rs many", "file a.rs 700 1"] {
            assert!(messages(line, "")[0].contains("is not an entry"), "{line}");
        }
    }
}
