//! Names say what a thing is: no drawers for odds and ends, no `get_`, and every file says at its
//! top what it holds.

use super::finding::Finding;
use super::tokens::functions;
use super::tree::{File, Tree};

/// Names that say nothing about what is inside.
const DRAWERS: [&str; 7] = ["util", "utils", "common", "helper", "helpers", "manager", "misc"];

pub(super) fn check(tree: &Tree<'_>) -> Vec<Finding> {
    let rust = tree.rust().flat_map(|file| {
        path_parts(file).into_iter().chain(modules(file)).chain(accessors(file)).chain(header(file))
    });
    rust.collect()
}

/// The names of the file and of the folders it lies in.
fn path_parts(file: &File) -> Vec<Finding> {
    let parts = file.path.trim_end_matches(".rs").split('/');
    parts.filter(|part| is_drawer(part)).map(|part| drawer(file, 1, part)).collect()
}

/// `mod utils { … }` inside a file. (`mod utils;` is a file and found as one.)
fn modules(file: &File) -> Vec<Finding> {
    let inline = file.tokens.windows(3).filter(|window| {
        window[0].text == "mod" && is_drawer(&window[1].text) && window[2].text == "{"
    });
    inline.map(|window| drawer(file, window[1].line, &window[1].text)).collect()
}

/// `token_manager` is as empty a name as `manager`.
fn is_drawer(name: &str) -> bool {
    name.split(['_', '-']).any(|word| DRAWERS.contains(&word))
}

fn drawer(file: &File, line: usize, name: &str) -> Finding {
    let what = format!("`{name}` does not say what is inside");
    Finding::fault(&file.path, line, what, "name it after the one thing it holds")
}

fn accessors(file: &File) -> Vec<Finding> {
    let functions = functions(&file.tokens);
    let accessors = functions.iter().filter_map(|function| {
        let plain = function.name.strip_prefix("get_")?;
        let what = format!("`{}` begins with get_", function.name);
        Some(Finding::fault(&file.path, function.line, what, &format!("call it `{plain}`")))
    });
    accessors.collect()
}

fn header(file: &File) -> Option<Finding> {
    (!file.text.starts_with("//!")).then(|| {
        let what = "the file does not begin with `//!`".to_owned();
        Finding::fault(&file.path, 1, what, "say at its top what it is and what it is not")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_file_or_folder_named_after_nothing_is_a_fault() {
        for path in ["a/utils.rs", "a/common/mod.rs", "tests/test_helpers.rs", "a/misc-x/b.rs"] {
            assert_eq!(faults(path, "//! Docs."), 1, "{path}");
        }
        assert_eq!(faults("a/utility.rs", "//! Docs."), 0);
    }

    #[test]
    fn an_inline_module_named_after_nothing_is_a_fault() {
        assert_eq!(faults("a.rs", "//! Docs.\nmod helpers { }"), 1);
        assert_eq!(faults("a.rs", "//! Docs.\nmod tests { }"), 0);
    }

    #[test]
    fn a_function_does_not_begin_with_get() {
        assert_eq!(faults("a.rs", "//! Docs.\nfn get_rate() -> u8 { 1 }"), 1);
        assert_eq!(faults("a.rs", "//! Docs.\nfn get(key: u8) -> u8 { budget_of(key) }"), 0);
    }

    #[test]
    fn a_file_begins_by_saying_what_it_is() {
        assert_eq!(faults("a.rs", "use core::fmt;"), 1);
        assert_eq!(faults("a.rs", ""), 1);
    }
}
