//! Nothing unfinished is left lying: no `todo!`, no `dbg!`, no marks for later.

use super::finding::Finding;
use super::tokens::lines_of;
use super::tree::{File, Tree};

/// Macros that stand for code not written, or not meant to stay.
const MACROS: [&str; 3] = ["todo", "unimplemented", "dbg"];

/// Marks in comments, spelled in two parts so that this file does not find itself.
const MARKS: [&str; 3] = [concat!("FIX", "ME"), concat!("XX", "X"), concat!("HA", "CK")];

pub(super) fn check(tree: &Tree<'_>) -> Vec<Finding> {
    tree.rust().flat_map(|file| macros(file).into_iter().chain(marks(file))).collect()
}

fn macros(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for name in MACROS {
        for line in lines_of(&file.tokens, &[name, "!"]) {
            let what = format!("`{name}!` is left in the code");
            let remedy = "finish it, or take it out and open an issue";
            found.push(Finding::fault(&file.path, line, what, remedy));
        }
    }
    found
}

fn marks(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(mark) = words.find(|word| MARKS.contains(word)) {
            let what = format!("`{mark}` marks something for later");
            let remedy = "do it now, or open an issue and say here what holds today";
            found.push(Finding::fault(&file.path, number, what, remedy));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> usize {
        check(&Tree::of(&[("a.rs", text)])).len()
    }

    #[test]
    fn macros_for_unfinished_code_are_faults() {
        for name in MACROS {
            assert_eq!(faults(&format!("fn f() {{ {name}!(); }}")), 1, "{name}");
        }
        assert_eq!(faults("// todo!() in a comment\nfn todo() {}"), 0);
    }

    #[test]
    fn marks_for_later_are_faults_as_whole_words() {
        for mark in MARKS {
            assert_eq!(faults(&format!("fn f() {{}} // {mark}: later")), 1, "{mark}");
            assert_eq!(faults(&format!("// {mark}X")), 0, "{mark}");
        }
    }
}
