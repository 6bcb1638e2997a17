//! Looks for inputs that break a claim: libFuzzer over the targets of `crates/tidegate-fuzz`.
//!
//! No sanitizer is used. Those need a nightly toolchain, and look for what safe Rust does not do; the
//! coverage that leads the search comes from flags that every toolchain has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, bail, ensure};

use crate::command::Fuzz;
use crate::setup::{Build, install_tool, on_path};
use crate::step::passes;
use crate::workspace::Workspace;

const CARGO_FUZZ_VERSION: &str = "0.13.2";

/// What one input may take. More is a finding as well.
const INPUT_SECONDS_MAX: u32 = 20;
const MEMORY_MIB_MAX: u32 = 2048;

/// Seeds of rule text that are in the tree for another reason.
const RULE_FOLDERS: [&str; 3] =
    ["examples/rules", "crates/tidegate-cli/tests/broken", "crates/tidegate-cli/tests/doubtful"];

/// Runs one target, or lists them. Whether nothing was found.
pub(crate) fn run(workspace: &Workspace, fuzz: &Fuzz) -> anyhow::Result<bool> {
    let targets = targets(&workspace.root)?;
    let Some(target) = &fuzz.target else {
        println!("{}", targets.join("\n"));
        println!("\nTo run one: cargo xtask fuzz {} --seconds {}", targets[0], fuzz.seconds);
        return Ok(true);
    };
    if !targets.contains(target) {
        bail!("no target `{target}`; there is {}", targets.join(", "));
    }
    ensure!(on_path("c++"), "libFuzzer is C++, and there is no `c++`; Debian's package is g++");
    let why = "it builds the targets for libFuzzer";
    let program =
        install_tool(&workspace.target, "cargo-fuzz", CARGO_FUZZ_VERSION, Build::Quick, why)?;
    follow_lock(&workspace.root)?;
    // New inputs are kept from run to run, and outside of the tree.
    fs::create_dir_all(workspace.target.join("fuzz/corpus").join(target))?;
    let mut command = Command::new(&program);
    command.args(arguments(workspace, target, fuzz.seconds)).current_dir(&workspace.root);
    let found_nothing = passes(&mut command)?;
    if !found_nothing {
        match newest_in(&workspace.root.join("fuzz/artifacts").join(target)) {
            Some(input) => {
                println!("\nThe input is {}. To run it again:", input.display());
                println!("{}", line_for(workspace, &program, target, &input));
            }
            None => println!("\nNo input was kept: what went wrong is said above."),
        }
    }
    Ok(found_nothing)
}

/// What was written last to a folder.
fn newest_in(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    entries.map(|entry| entry.path()).max_by_key(|path| {
        let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
        changed.unwrap_or(SystemTime::UNIX_EPOCH)
    })
}

/// The line that runs one input again, from any folder of the project, with what is built already.
fn line_for(workspace: &Workspace, program: &Path, target: &str, input: &Path) -> String {
    let (root, built) = (workspace.root.join("fuzz"), workspace.target.join("fuzz"));
    let [program, root, built, input] = [program, &root, &built, input].map(quoted);
    let flags = format!("--sanitizer none --fuzz-dir {root} --target-dir {built}");
    format!("{program} fuzz run {flags} {target} {input}")
}

/// A path as a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The names of the files that hand on inputs.
fn targets(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    ensure!(!names.is_empty(), "there are no targets in {}", folder.display());
    Ok(names)
}

/// The fuzzer is a workspace of its own. It is to run the versions that the project runs.
fn follow_lock(root: &Path) -> anyhow::Result<()> {
    let (ours, theirs) = (root.join("Cargo.lock"), root.join("fuzz/Cargo.lock"));
    let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified());
    let is_current = changed(&theirs).is_ok_and(|at| changed(&ours).is_ok_and(|ours| ours <= at));
    if !is_current {
        fs::copy(&ours, &theirs).context("copying Cargo.lock to fuzz/")?;
    }
    Ok(())
}

fn arguments(workspace: &Workspace, target: &str, seconds: u32) -> Vec<String> {
    let built = workspace.target.join("fuzz");
    let mut words: Vec<String> =
        ["fuzz", "run", "--sanitizer", "none", "--target-dir"].map(Into::into).into();
    words.push(built.display().to_string());
    words.push(target.into());
    // The first folder is the one that new inputs are put into.
    words.push(built.join("corpus").join(target).display().to_string());
    words.push(format!("fuzz/seeds/{target}"));
    if target == "rule_text" {
        words.extend(RULE_FOLDERS.map(Into::into));
    }
    words.push("--".into());
    words.push(format!("-dict=fuzz/dictionaries/{target}.dict"));
    words.push(format!("-max_total_time={seconds}"));
    words.push(format!("-timeout={INPUT_SECONDS_MAX}"));
    words.push(format!("-rss_limit_mb={MEMORY_MIB_MAX}"));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(target: &str) -> String {
        let workspace =
            Workspace { root: ".".into(), target: "target".into(), packages: Vec::new() };
        arguments(&workspace, target, 7).join(" ")
    }

    #[test]
    fn new_inputs_stay_out_of_the_tree() {
        let line = line("path");
        assert!(line.contains(" path target/fuzz/corpus/path fuzz/seeds/path -- "), "{line}");
        assert!(line.contains(" -max_total_time=7 "), "{line}");
    }

    #[test]
    fn a_finding_is_run_again_by_a_line_that_needs_nothing_installed() {
        let workspace =
            Workspace { root: "/a b".into(), target: "/t".into(), packages: Vec::new() };
        let (program, input) = (Path::new("/t/tools/cargo-fuzz"), Path::new("/a b/crash-1"));
        let expected = "/t/tools/cargo-fuzz fuzz run --sanitizer none --fuzz-dir '/a b/fuzz' \
                        --target-dir /t/fuzz path '/a b/crash-1'";
        assert_eq!(line_for(&workspace, program, "path", input), expected);
        assert_eq!(quoted(Path::new("it's")), r"'it'\''s'");
    }

    #[test]
    fn rule_text_begins_with_the_examples_and_the_broken_files() {
        for folder in RULE_FOLDERS {
            assert!(line("rule_text").contains(folder));
            assert!(!line("path").contains(folder));
        }
    }
}
