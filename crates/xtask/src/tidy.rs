//! `cargo xtask tidy`: the house rules that neither the compiler nor clippy can check.
//!
//! A check is a function from the [`Tree`] of files to a list of [`Finding`]s. Each one lives in its
//! own file with tests that show it failing.

mod bans;
mod finding;
mod layers;
mod leftovers;
mod lengths;
mod markdown;
mod names;
mod places;
mod purity;
mod tokens;
mod tree;
mod unsafety;

use finding::Finding;
use tree::Tree;

use crate::workspace::Workspace;

type Check = fn(&Tree<'_>) -> Vec<Finding>;

const CHECKS: [Check; 9] = [
    layers::check,
    purity::check,
    unsafety::check,
    lengths::check,
    names::check,
    leftovers::check,
    places::check,
    markdown::check,
    bans::check,
];

/// Runs every check and prints what was found. Notes alone do not fail it.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    let tree = Tree::read(workspace)?;
    let findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&tree)).collect();
    for finding in &findings {
        println!("{finding}");
    }
    let faults = findings.iter().filter(|finding| finding.is_fault()).count();
    let files = tree.files.len();
    if faults == 0 {
        println!("tidy: {files} files keep every rule");
    } else {
        println!("tidy: {faults} faults in {files} files");
    }
    Ok(faults == 0)
}
