//! Each target for a moment: over its seeds, and over a few thousand inputs that are nearly seeds, the
//! same ones each time. `cargo xtask fuzz` looks further.

use std::fs;

use tidegate_fuzz::mutation::Mutator;
use tidegate_fuzz::{TARGETS, seeds, snapshot};

/// Runs the target of this name over its seeds and `count` inputs made from them.
fn survives(name: &str, count: usize) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let mut inputs = seeds::of(name).expect("seeds");
    assert!(!inputs.is_empty(), "there are no seeds of {name}");
    let words = seeds::words(name).expect("words");
    assert!(!words.is_empty(), "there are no words of {name}");
    for (number, input) in inputs.iter().enumerate() {
        checked(target, input, &format!("seed {number}"));
    }
    inputs.sort_by_key(Vec::len);
    let mut mutator = Mutator::new(&inputs, &words, 1);
    for number in 0..count {
        checked(target, &mutator.input(), &format!("input {number}"));
    }
}

/// A failure names the input, as text that can be put into a file.
fn checked(target: &tidegate_fuzz::Target, input: &[u8], what: &str) {
    let outcome = std::panic::catch_unwind(|| (target.check)(input));
    assert!(outcome.is_ok(), "{}, {what}: b\"{}\"", target.name, input.escape_ascii());
}

#[test]
fn any_rule_text_is_rules_or_a_report_that_points_into_it() {
    survives("rule_text", 1_000);
}

#[test]
fn any_attributes_meet_the_rules_that_they_would_meet_if_all_were_looked_at() {
    survives("attributes", 5_000);
}

#[test]
fn any_body_of_a_call_says_what_it_says_or_is_refused_at_a_place_of_it() {
    survives("check_body", 20_000);
}

#[test]
fn any_body_of_the_json_form_is_refused_or_answered_for_each_descriptor() {
    survives("json_body", 20_000);
}

#[test]
fn any_limit_text_is_written_and_read_back_or_refused_at_a_column_of_it() {
    survives("limit_text", 50_000);
}

#[test]
fn any_path_has_one_normal_form_and_templates_match_it_as_they_say() {
    survives("path", 50_000);
}

#[test]
fn any_state_file_is_taken_over_or_changes_nothing() {
    survives("snapshot", 300);
}

#[test]
fn any_headers_are_survived_and_change_no_address() {
    survives("identity", 5_000);
}

#[test]
fn any_bytes_of_the_protocol_of_redis_are_the_same_commands_however_they_arrive() {
    survives("resp", 20_000);
}

#[test]
fn any_requests_are_refused_or_end_where_others_have_them_end() {
    survives("gateway_requests", 20_000);
}

#[test]
fn any_answer_has_one_reading_for_the_client_with_the_bytes_that_came() {
    survives("gateway_answers", 20_000);
}

#[test]
fn every_target_has_a_shim_that_is_built() {
    let folder = seeds::folder();
    let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
    for target in TARGETS {
        let path = format!("fuzz_targets/{}.rs", target.name);
        let shim = fs::read_to_string(folder.join(&path)).expect("a shim");
        assert!(shim.contains(&format!("tidegate_fuzz::{}::check(data)", target.name)), "{path}");
        assert!(manifest.contains(&format!("path = \"{path}\"")), "{path} is not in the manifest");
    }
}

#[test]
fn the_seed_of_state_files_is_what_a_table_writes() {
    let seeds = seeds::of("snapshot").expect("seeds");
    assert!(seeds.contains(&snapshot::seed()), "write `snapshot::seed()` into fuzz/seeds/snapshot");
}
