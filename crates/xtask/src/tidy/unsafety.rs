//! `unsafe` stands only in the files listed here, each with its reason.

use super::finding::Finding;
use super::tokens::lines_of;
use super::tree::Tree;

/// Where `unsafe` is accepted: a path or the beginning of one, and why it is needed there.
const ACCEPTED: [(&str, &str); 7] = [
    ("crates/tidegate-store/src/word.rs", "128-bit atomics, which std does not have"),
    ("crates/tidegate-store/src/lines.rs", "a block of cache lines: alignment and prefetching"),
    ("crates/tidegate/src/clock", "the processor's time stamp counter"),
    ("crates/tidegate-tower/src/values.rs", "headers of digits, which need not be looked at again"),
    ("crates/tidegate-bench/src/allocations.rs", "an allocator that counts"),
    ("crates/tidegate-identity/tests/allocations.rs", "an allocator that counts"),
    ("crates/tidegate-tower/tests/allocations.rs", "an allocator that counts"),
];

const LIST: &str = "crates/xtask/src/tidy/unsafety.rs";

pub(super) fn check(tree: &Tree<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut used = [false; ACCEPTED.len()];
    for file in tree.rust() {
        let accepted = ACCEPTED.iter().position(|(path, _)| file.path.starts_with(path));
        for line in lines_of(&file.tokens, &["unsafe"]) {
            let Some(entry) = accepted else {
                let what = "`unsafe` in a file that is not listed for it".to_owned();
                let remedy = format!("do it safely, or list the file with a reason in {LIST}");
                found.push(Finding::fault(&file.path, line, what, &remedy));
                continue;
            };
            used[entry] = true;
        }
    }
    for ((path, _), _) in ACCEPTED.iter().zip(used).filter(|(_, used)| !used) {
        let what = format!("`{path}` is listed for `unsafe` and has none");
        found.push(Finding::note(LIST, 1, what, "take it off the list"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).iter().filter(|finding| finding.is_fault()).count()
    }

    #[test]
    fn unsafe_is_a_fault_except_in_listed_files() {
        let text = "fn f() { unsafe { g() } }";
        assert_eq!(faults("crates/tidegate-store/src/table.rs", text), 1);
        assert_eq!(faults("crates/tidegate-store/src/word.rs", text), 0);
        assert_eq!(faults("crates/tidegate/src/clock/counter.rs", text), 0);
    }

    #[test]
    fn lints_about_unsafe_are_not_unsafe() {
        assert_eq!(faults("crates/tidegate/src/lib.rs", "#![forbid(unsafe_code)] // unsafe"), 0);
    }

    #[test]
    fn a_listed_file_without_unsafe_is_noted() {
        let findings = check(&Tree::of(&[]));
        assert_eq!(findings.len(), ACCEPTED.len());
        assert!(!findings.iter().any(Finding::is_fault));
    }
}
