//! Documents are true where a program can tell: links lead somewhere, and the tests they name exist.
//!
//! A document names a test as `` `test: name` ``, in backticks. The name alone is enough; a path
//! before it (`tidegate_core::rate::name`) is for the reader.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::tokens::functions;
use super::tree::{File, Tree};

pub(super) fn check(tree: &Tree<'_>) -> Vec<Finding> {
    let tests = test_names(tree);
    let documents = tree.files.iter().filter(|file| file.is("md"));
    documents
        .flat_map(|file| {
            let prose = prose(file);
            let missing = missing_tests(file, &prose, &tests);
            broken_links(tree, file, &prose).into_iter().chain(missing).collect::<Vec<_>>()
        })
        .collect()
}

/// The lines outside of code blocks.
fn prose(file: &File) -> Vec<(usize, &str)> {
    let mut in_code = false;
    let outside = file.lines().filter(|(_, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    });
    outside.collect()
}

fn broken_links(tree: &Tree<'_>, file: &File, prose: &[(usize, &str)]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in prose {
        for target in link_targets(line) {
            if leads_to(tree, &file.path, target) {
                continue;
            }
            let what = format!("the link to `{target}` leads nowhere");
            let remedy = "correct it; links are relative to the file they stand in";
            found.push(Finding::fault(&file.path, *number, what, remedy));
        }
    }
    found
}

/// The relative targets of `[text](target)`, without the part after `#`.
fn link_targets(line: &str) -> Vec<&str> {
    let prose = pieces(line).into_iter().filter(|piece| !piece.is_code);
    let targets = prose.flat_map(|piece| piece.text.split("](").skip(1)).filter_map(|rest| {
        let target = rest.split([')', ' ', '#']).next().unwrap_or_default();
        let elsewhere = target.contains("://") || target.starts_with("mailto:");
        (!target.is_empty() && !elsewhere).then_some(target)
    });
    targets.collect()
}

/// A stretch of a line, inside or outside of backticks.
struct Piece<'a> {
    text: &'a str,
    is_code: bool,
}

/// Code ends at a run of as many backticks as it began with.
fn pieces(line: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find('`') {
        found.push(Piece { text: &rest[..start], is_code: false });
        let after = rest[start..].trim_start_matches('`');
        let fence = &rest[start..rest.len() - after.len()];
        let Some(end) = after.find(fence) else { return found };
        found.push(Piece { text: &after[..end], is_code: true });
        rest = after[end..].trim_start_matches('`');
    }
    found.push(Piece { text: rest, is_code: false });
    found
}

/// Whether a file, or a folder with files in it, is at `target` as seen from the file at `from`.
fn leads_to(tree: &Tree<'_>, from: &str, target: &str) -> bool {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.trim_end_matches('/').split('/') {
        match part {
            "." => {}
            ".." if parts.is_empty() => return false,
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    let folder = if path.is_empty() { path.clone() } else { format!("{path}/") };
    tree.files.iter().any(|file| file.path == path || file.path.starts_with(&folder))
}

fn missing_tests(file: &File, prose: &[(usize, &str)], tests: &BTreeSet<&str>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in prose {
        let code = pieces(line).into_iter().filter(|piece| piece.is_code);
        for named in code.filter_map(|piece| piece.text.strip_prefix("test: ")) {
            let name = named.rsplit("::").next().unwrap_or(named).trim();
            if !tests.contains(name) {
                let what = format!("there is no test `{name}`");
                let remedy = "write the test, or name the one that keeps this promise";
                found.push(Finding::fault(&file.path, *number, what, remedy));
            }
        }
    }
    found
}

/// Functions that are tests: by their attribute, or as checks of the suite that every store runs.
fn test_names<'a>(tree: &'a Tree<'_>) -> BTreeSet<&'a str> {
    let names = tree.rust().flat_map(|file| {
        let suite = file.path.contains("conformance");
        let functions = functions(&file.tokens).into_iter();
        functions.filter(move |function| function.is_test || suite).map(|function| function.name)
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> usize {
        let tests = "#[test] fn holds() {} fn plain() {}";
        check(&Tree::of(&[
            ("docs/guide.md", text),
            ("docs/other.md", ""),
            ("README.md", ""),
            ("crates/a/tests/a.rs", tests),
            ("crates/a/src/conformance.rs", "pub fn never_over() {}"),
        ]))
        .len()
    }

    #[test]
    fn a_link_must_lead_to_a_file_or_folder() {
        assert_eq!(faults("[a](other.md) [b](../README.md#top) [c](../crates/a/) [d](#here)"), 0);
        assert_eq!(faults("[a](gone.md)"), 1);
        assert_eq!(faults("[a](README.md)"), 1);
        assert_eq!(faults("[a](../../README.md)"), 1);
        assert_eq!(faults("![a](gone.svg \"title\")"), 1);
    }

    #[test]
    fn addresses_and_code_are_not_followed() {
        assert_eq!(faults("[a](https://example.com) [b](mailto:a@example.com) `[c](gone.md)`"), 0);
        assert_eq!(faults("```\n[a](gone.md)\n```\n[b](gone.md)"), 1);
    }

    #[test]
    fn a_test_that_a_document_names_must_exist() {
        assert_eq!(faults("| never over | `test: holds` |"), 0);
        assert_eq!(faults("`test: a::b::holds` and `test: never_over`"), 0);
        assert_eq!(faults("| never over | `test: held` |"), 1);
    }

    #[test]
    fn code_that_shows_backticks_names_no_test() {
        assert_eq!(faults("write `` `test: name` `` there, and `test: holds`"), 0);
        assert_eq!(faults("write `` `test: name` `` there, and `test: held`"), 1);
    }

    #[test]
    fn a_function_that_is_not_a_test_does_not_count_as_one() {
        assert_eq!(faults("`test: plain`"), 1);
    }
}
