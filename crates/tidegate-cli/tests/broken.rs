//! Every kind of mistake in a rule file, and what a person is told about it, word for word.
//!
//! Each file or folder in `tests/broken` has a file beside it that ends in `.stderr`, and so has each
//! in `tests/doubtful`, whose rules can be used and are probably not meant. After a message was
//! changed on purpose, `TIDEGATE_BLESS=1 cargo test -p tidegate-cli --test broken` writes them anew:
//! read what it wrote as somebody would who has made that mistake.

mod run;

use std::path::{Path, PathBuf};

use run::run_in;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// The names of all files and folders that have something said of them.
fn cases(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.into_string().expect("a plain name"));
    let mut cases: Vec<String> = names.filter(|name| !name.ends_with(".stderr")).collect();
    cases.sort();
    cases
}

/// Compares what is said of each with what was agreed; each ends with `code`.
#[track_caller]
fn assert_told(folder: &Path, code: i32) {
    let is_blessing = std::env::var_os("TIDEGATE_BLESS").is_some();
    let mut different = Vec::new();
    for case in cases(folder) {
        let golden = folder.join(format!("{case}.stderr"));
        let ran = run_in(folder, &["rules", "validate", &case], "");
        assert_eq!(ran.code, code, "{case}: {}", ran.stderr);
        if is_blessing {
            std::fs::write(&golden, &ran.stderr).expect("a file to write");
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if ran.stderr != expected || expected.is_empty() {
            different.push(format!("{case}, expected\n{expected}\nbut found\n{}", ran.stderr));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn every_mistake_is_told_as_it_was_agreed() {
    assert_told(&folder("broken"), 1);
}

#[test]
fn every_doubt_is_told_as_it_was_agreed_and_is_no_error() {
    assert_told(&folder("doubtful"), 0);
}

#[test]
fn every_error_has_a_place_and_says_what_to_do() {
    for folder in ["broken", "doubtful"].map(folder) {
        for case in cases(&folder) {
            let ran = run_in(&folder, &["rules", "validate", "--json", &case], "");
            let json = ran.json();
            let found = json["diagnostics"].as_array().expect("a list");
            assert!(!found.is_empty(), "{case}");
            for diagnostic in found {
                assert!(diagnostic["file"].is_string(), "{case}: {diagnostic}");
                assert!(diagnostic["help"].is_string(), "{case}: {diagnostic}");
            }
        }
    }
}

#[test]
fn all_mistakes_of_a_file_are_told_at_once() {
    let ran = run_in(&folder("broken"), &["rules", "validate", "seven-mistakes.yaml"], "");
    assert_eq!(ran.stderr.matches("error: ").count(), 7);
    assert!(ran.stderr.ends_with("\n7 errors\n"));
}

#[test]
fn a_domain_of_several_envoy_files_is_merged_on_demand() {
    let ran = run_in(
        &folder("broken"),
        &["rules", "validate", "--merge-domains", "duplicate-domain"],
        "",
    );
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1 domain, 2 rules, 2 limits: ok\n"));
}
