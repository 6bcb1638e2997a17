//! Each entry of clippy's ban-list says why it is there, and what to use in its place.

use super::finding::Finding;
use super::tree::{File, Tree};

const PATH: &str = "clippy.toml";

/// What a reason must at least be, to be more than a word.
const REASON_CHARS_MIN: usize = 20;

pub(super) fn check(tree: &Tree<'_>) -> Vec<Finding> {
    let lines = tree.file(PATH).into_iter().flat_map(File::lines);
    // One entry per line: a path in a table, or a bare path in quotes.
    let entries =
        lines.filter(|(_, line)| !line.trim_start().starts_with('#') && line.contains("::"));
    let without = entries.filter(|(_, line)| !has_reason(line));
    without
        .map(|(number, _)| {
            let what = "this ban has no reason".to_owned();
            let remedy = "one line: { path = \"…\", reason = \"why, and what to use instead\" }";
            Finding::fault(PATH, number, what, remedy)
        })
        .collect()
}

fn has_reason(line: &str) -> bool {
    let reason = line.split_once("reason = \"").and_then(|(_, after)| after.split('"').next());
    reason.is_some_and(|reason| reason.chars().count() >= REASON_CHARS_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> usize {
        check(&Tree::of(&[(PATH, text)])).len()
    }

    #[test]
    fn a_ban_without_a_reason_is_a_fault() {
        assert_eq!(faults("    \"std::thread::sleep\","), 1);
        assert_eq!(faults("    { path = \"std::thread::sleep\" },"), 1);
        assert_eq!(faults("    { path = \"std::thread::sleep\", reason = \"bad\" },"), 1);
        let reason = "it blocks a thread; wait for what is awaited";
        assert_eq!(
            faults(&format!("{{ path = \"std::thread::sleep\", reason = \"{reason}\" }},")),
            0
        );
    }
}
