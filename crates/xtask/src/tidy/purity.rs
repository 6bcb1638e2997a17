//! What a layer must never hold, as far as its code shows it: clocks, floats, `std`, files, sockets.
//!
//! Which libraries a crate may depend on is the business of [`super::layers`].

use super::finding::Finding;
use super::layers::{Layer, layer_of_path};
use super::tokens::{lines_of, without_tests};
use super::tree::{File, Tree};

/// Ways to read a clock. `::` is two signs.
const CLOCKS: [&[&str]; 6] = [
    &["Instant", ":", ":", "now"],
    &["SystemTime"],
    &["_rdtsc"],
    &["__rdtscp"],
    &["clock_gettime"],
    &["quanta"],
];

/// Where the clock is read, and where its truth is tested.
const CLOCK_PATHS: [&str; 2] = ["crates/tidegate/src/clock", "crates/tidegate/tests/all/clock"];

/// Where calls to servers have deadlines, by the timer of the runtime. That `Instant` there is the runtime's
/// and not that of `std` is checked by clippy, which knows types. No decision depends on it.
const TIMER_PATHS: [&str; 4] = [
    "crates/tidegate-client/",
    "crates/tidegate-gateway/",
    "crates/tidegate-redis/",
    "crates/tidegate-tower/tests/",
];

/// Modules of `std` that do I/O.
const OUTSIDE_WORLD: [&[&str]; 4] = [
    &["std", ":", ":", "fs"],
    &["std", ":", ":", "net"],
    &["std", ":", ":", "process"],
    &["std", ":", ":", "thread"],
];

/// Pure crates that use `std`, but not these modules of it.
const NO_OUTSIDE_WORLD: [&str; 2] = ["crates/tidegate-rules/src/", "crates/tidegate-identity/src/"];

pub(super) fn check(tree: &Tree<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in tree.rust() {
        found.extend(clock_reads(file));
        if file.path.starts_with("crates/tidegate-core/src/") {
            found.extend(impurities_of_the_core(file));
        }
        if NO_OUTSIDE_WORLD.iter().any(|crate_path| file.path.starts_with(crate_path)) {
            found.extend(outside_world(file));
        }
    }
    found.extend(core_without_no_std(tree));
    found
}

fn clock_reads(file: &File) -> Vec<Finding> {
    let exempt = layer_of_path(&file.path) == Some(Layer::Tool)
        || CLOCK_PATHS.iter().any(|allowed| file.path.starts_with(allowed));
    if exempt {
        return Vec::new();
    }
    let has_timer = TIMER_PATHS.iter().any(|path| file.path.starts_with(path));
    let clocks = if has_timer { &CLOCKS[1..] } else { &CLOCKS };
    let what = "reads the system clock";
    every_use(file, clocks, what, "take `now` as a parameter, or use a `Clock`")
}

/// Tests may use `std` and floats; what ships may not.
fn impurities_of_the_core(file: &File) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut before = "";
    for token in without_tests(&file.tokens) {
        let text = token.text.as_str();
        if text == "std" {
            let what = "the core names `std`".to_owned();
            let remedy = "use `core` or `alloc`: the core is no_std";
            found.push(Finding::fault(&file.path, token.line, what, remedy));
        }
        // After a dot it is a field of a field: `pair.0.1`.
        if is_float(text) && before != "." {
            let what = format!("`{text}` is a float in the core");
            let remedy = "integers only: scale the number, or keep a fraction";
            found.push(Finding::fault(&file.path, token.line, what, remedy));
        }
        before = text;
    }
    found
}

fn is_float(token: &str) -> bool {
    let decimal =
        token.starts_with(|first: char| first.is_ascii_digit()) && !token.starts_with("0x");
    let suffixed = token.ends_with("f32") || token.ends_with("f64");
    matches!(token, "f32" | "f64") || (decimal && (suffixed || token.contains('.')))
}

fn outside_world(file: &File) -> Vec<Finding> {
    let what = "reaches outside, and the rules are pure";
    every_use(file, &OUTSIDE_WORLD, what, "take the text as a parameter; an edge reads files")
}

/// A fault for each place where one of the sequences of tokens occurs.
fn every_use(file: &File, sequences: &[&[&str]], what: &str, remedy: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for sequence in sequences {
        for line in lines_of(&file.tokens, sequence) {
            let what = format!("`{}` {what}", sequence.concat());
            found.push(Finding::fault(&file.path, line, what, remedy));
        }
    }
    found
}

fn core_without_no_std(tree: &Tree<'_>) -> Option<Finding> {
    let root = tree.file("crates/tidegate-core/src/lib.rs")?;
    let declared = !lines_of(&root.tokens, &["#", "!", "[", "no_std", "]"]).is_empty();
    (!declared).then(|| {
        let what = "the core does not say `#![no_std]`".to_owned();
        Finding::fault(&root.path, 1, what, "write it: the compiler then keeps clocks and I/O out")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn one_folder_reads_the_clock_and_tools_may_time_themselves() {
        let text = "fn f() { std::time::Instant::now(); }";
        assert_eq!(faults("crates/tidegate-store/src/table.rs", text), 1);
        assert_eq!(faults("crates/tidegate/src/limiter.rs", text), 1);
        assert_eq!(faults("crates/tidegate/src/clock/system.rs", text), 0);
        assert_eq!(faults("crates/tidegate-bench/src/main.rs", text), 0);
    }

    #[test]
    fn calls_to_servers_have_deadlines_and_still_read_no_calendar() {
        let path = "crates/tidegate-redis/src/lane.rs";
        assert_eq!(faults(path, "fn f() { tokio::time::Instant::now(); }"), 0);
        assert_eq!(faults(path, "fn f() { std::time::SystemTime::now(); }"), 1);
    }

    #[test]
    fn every_way_to_read_a_clock_is_seen() {
        for clock in CLOCKS {
            let text = format!("fn f() {{ {}; }}", clock.concat());
            assert_eq!(faults("crates/tidegate/src/limiter.rs", &text), 1, "{text}");
        }
    }

    #[test]
    fn the_core_has_no_std_and_no_floats_outside_its_tests() {
        let path = "crates/tidegate-core/src/rate.rs";
        assert_eq!(faults(path, "use std::vec::Vec;"), 1);
        assert_eq!(faults(path, "const A: f64 = 1.5;"), 2);
        assert_eq!(faults(path, "const A: u32 = 2f32 as u32 + 0xf32;"), 1);
        assert_eq!(faults(path, "fn f() { for i in 0..10 { t.0.1; } }"), 0);
        assert_eq!(faults(path, "#[cfg(test)] mod tests { use std::vec; const A: f64 = 1.0; }"), 0);
    }

    #[test]
    fn the_core_says_no_std() {
        assert_eq!(faults("crates/tidegate-core/src/lib.rs", "mod rate;"), 1);
        assert_eq!(faults("crates/tidegate-core/src/lib.rs", "#![no_std]\nmod rate;"), 0);
    }

    #[test]
    fn rules_do_not_read_files() {
        let text = "fn f() { std::fs::read(path); }";
        assert_eq!(faults("crates/tidegate-rules/src/rate.rs", text), 1);
        assert_eq!(faults("crates/tidegate-store/src/snapshot.rs", text), 0);
    }
}
