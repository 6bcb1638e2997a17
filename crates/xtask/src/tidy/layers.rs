//! Dependencies point down, and libraries stay out of the layers they would leak from.
//!
//! The table below is the design's list of crates. Reading it from the top, a crate may depend on
//! those before it and on no other, in `[dev-dependencies]` too.

use super::finding::Finding;
use super::tree::Tree;
use crate::workspace::{Dependency, Package};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// Arithmetic and parsing: no clock, no I/O.
    Pure,
    /// Locks allowed; the clock only through `Clock`.
    Stateful,
    /// Sockets, files, the runtime; no arithmetic on limits.
    Edge,
    /// Programs for developers, which ship to nobody.
    Tool,
}

/// What tests share. It is below all others, and no crate that ships has it but for its tests.
const TESTING: &str = "tidegate-testing";

/// Every crate, those to come as well, lowest first.
const CRATES: [(&str, Layer); 18] = [
    (TESTING, Layer::Tool),
    ("tidegate-core", Layer::Pure),
    ("tidegate-rules", Layer::Pure),
    ("tidegate-identity", Layer::Pure),
    ("tidegate-store", Layer::Stateful),
    ("tidegate-redis", Layer::Stateful),
    ("tidegate", Layer::Stateful),
    ("tidegate-files", Layer::Edge),
    ("tidegate-tower", Layer::Edge),
    ("tidegate-proto", Layer::Edge),
    ("tidegate-client", Layer::Edge),
    ("tidegate-server", Layer::Edge),
    ("tidegate-gateway", Layer::Edge),
    ("tidegate-cli", Layer::Edge),
    ("tidegate-bench", Layer::Tool),
    ("tidegate-fuzz", Layer::Tool),
    ("tidegate-instructions", Layer::Tool),
    ("xtask", Layer::Tool),
];

/// Pairs that would point down and are wrong all the same.
const FORBIDDEN: [(&str, &str, &str); 2] = [
    ("tidegate-store", "tidegate-rules", "a store decides resolved requests and knows no rules"),
    ("tidegate-redis", "tidegate-rules", "a store decides resolved requests and knows no rules"),
];

/// Dev-dependencies that point up, each with the reason. (crate, dependency)
const DEV_UPWARD: [(&str, &str); 0] = [];

/// Libraries that bring an async runtime, our own store on Redis among them: the library depends on it
/// for limits that nodes share, and only where that is asked for.
const RUNTIMES: [&str; 7] = [
    "tokio",
    "tokio-util",
    "async-std",
    "smol",
    "async-global-executor",
    "futures-executor",
    "tidegate-redis",
];

/// Crates that are programs, where errors only go to a person.
const BINARIES: [&str; 3] = ["tidegate-cli", "tidegate-bench", "xtask"];

pub(super) fn check(tree: &Tree<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    for package in tree.packages {
        let Some(rank) = rank(&package.name) else {
            let what = format!("the crate `{}` is in no layer", package.name);
            let remedy = "give it a place in the table of crates/xtask/src/tidy/layers.rs";
            found.push(fault(tree, package, &package.name, what, remedy));
            continue;
        };
        for dependency in &package.dependencies {
            found.extend(between_ours(tree, package, rank, dependency));
            found.extend(on_others(tree, package, CRATES[rank].1, dependency));
        }
    }
    found
}

/// The layer of the crate that holds this path; `None` outside of `crates/`.
pub(super) fn layer_of_path(path: &str) -> Option<Layer> {
    let name = path.strip_prefix("crates/")?.split('/').next()?;
    rank(name).map(|rank| CRATES[rank].1)
}

fn rank(name: &str) -> Option<usize> {
    CRATES.iter().position(|(known, _)| *known == name)
}

/// A dependency on one of our own crates.
fn between_ours(
    tree: &Tree<'_>,
    package: &Package,
    own_rank: usize,
    dependency: &Dependency,
) -> Option<Finding> {
    let other_rank = rank(&dependency.name)?;
    let (name, other) = (package.name.as_str(), dependency.name.as_str());
    if let Some((.., why)) = FORBIDDEN.iter().find(|(a, b, _)| (*a, *b) == (name, other)) {
        let what = format!("`{name}` depends on `{other}`, which it must not: {why}");
        return Some(fault(tree, package, other, what, "move the code that needs it up a layer"));
    }
    if other == TESTING && !dependency.dev && CRATES[own_rank].1 != Layer::Tool {
        let what = format!("`{name}` depends on `{other}`, which ships to nobody");
        return Some(fault(tree, package, other, what, "move it to `[dev-dependencies]`"));
    }
    // A crate may name itself among its dev-dependencies, to switch on a feature for its tests.
    let documented = dependency.dev && (name == other || DEV_UPWARD.contains(&(name, other)));
    (other_rank >= own_rank && !documented).then(|| {
        let (own, above) = (CRATES[own_rank].1, CRATES[other_rank].1);
        let what = format!("`{name}` ({own:?}) depends on `{other}` ({above:?}) above it");
        fault(tree, package, other, what, "dependencies point down: move the shared part lower")
    })
}

/// A dependency on someone else's crate.
fn on_others(
    tree: &Tree<'_>,
    package: &Package,
    layer: Layer,
    dependency: &Dependency,
) -> Option<Finding> {
    if dependency.dev {
        return None;
    }
    let (name, other) = (package.name.as_str(), dependency.name.as_str());
    if name == "tidegate-core" {
        let what = format!("tidegate-core depends on `{other}`");
        return Some(fault(
            tree,
            package,
            other,
            what,
            "the core is arithmetic on its own: no_std, no dependencies",
        ));
    }
    if RUNTIMES.contains(&other) && !may_hold_a_runtime(name, layer, dependency.optional) {
        let what = format!("`{name}` depends on `{other}`, an async runtime");
        return Some(fault(
            tree,
            package,
            other,
            what,
            "runtimes belong to the edges, or behind a feature of `tidegate`",
        ));
    }
    (other == "anyhow" && !BINARIES.contains(&name)).then(|| {
        let what = format!("`{name}` depends on `anyhow` and is not a program");
        fault(tree, package, other, what, "a library has one error enum per operation")
    })
}

/// The Redis store waits on sockets by nature; the library offers async only where asked to.
fn may_hold_a_runtime(name: &str, layer: Layer, optional: bool) -> bool {
    match layer {
        Layer::Edge | Layer::Tool => true,
        Layer::Stateful => name == "tidegate-redis" || (name == "tidegate" && optional),
        Layer::Pure => false,
    }
}

/// A fault in the manifest of `package`, at the line that begins with `word`.
fn fault(tree: &Tree<'_>, package: &Package, word: &str, what: String, remedy: &str) -> Finding {
    let path = format!("crates/{}/Cargo.toml", package.name);
    let line = tree.file(&path).and_then(|file| {
        file.lines().find_map(|(number, line)| {
            let after = line.strip_prefix(word)?;
            after.starts_with([' ', '=', '.']).then_some(number)
        })
    });
    Finding::fault(&path, line.unwrap_or(1), what, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, bool, bool)]) -> Package {
        let dependencies = dependencies.iter().map(|(name, dev, optional)| Dependency {
            name: (*name).into(),
            dev: *dev,
            optional: *optional,
        });
        Package { name: name.into(), dependencies: dependencies.collect(), ..Package::default() }
    }

    fn messages(packages: &[Package]) -> Vec<String> {
        let tree = Tree { packages, ..Tree::default() };
        check(&tree).iter().map(ToString::to_string).collect()
    }

    const NORMAL: (bool, bool) = (false, false);

    fn one(name: &str, dependency: &str, (dev, optional): (bool, bool)) -> usize {
        messages(&[package(name, &[(dependency, dev, optional)])]).len()
    }

    #[test]
    fn a_dependency_that_points_up_is_a_fault_in_tests_too() {
        assert_eq!(one("tidegate-store", "tidegate-core", NORMAL), 0);
        assert_eq!(one("tidegate-rules", "tidegate-store", NORMAL), 1);
        assert_eq!(one("tidegate-store", "tidegate", (true, false)), 1);
        assert_eq!(one("tidegate-store", "tidegate-store", (true, false)), 0);
    }

    #[test]
    fn what_ships_has_what_tests_share_for_its_tests_alone() {
        assert_eq!(one("tidegate-redis", "tidegate-testing", (true, false)), 0);
        assert_eq!(one("tidegate-redis", "tidegate-testing", NORMAL), 1);
        assert_eq!(one("tidegate-bench", "tidegate-testing", NORMAL), 0);
    }

    #[test]
    fn a_crate_without_a_layer_is_a_fault() {
        assert_eq!(messages(&[package("tidegate-new", &[])]).len(), 1);
    }

    #[test]
    fn stores_know_no_rules() {
        assert_eq!(one("tidegate-store", "tidegate-rules", NORMAL), 1);
        assert_eq!(one("tidegate-redis", "tidegate-rules", NORMAL), 1);
        assert_eq!(one("tidegate", "tidegate-rules", NORMAL), 0);
    }

    #[test]
    fn a_runtime_stays_at_the_edges() {
        assert_eq!(one("tidegate-server", "tokio", NORMAL), 0);
        assert_eq!(one("tidegate-store", "tokio", NORMAL), 1);
        assert_eq!(one("tidegate-store", "tokio", (true, false)), 0);
        assert_eq!(one("tidegate", "tokio", NORMAL), 1);
        assert_eq!(one("tidegate", "tokio", (false, true)), 0);
    }

    #[test]
    fn the_library_has_the_store_on_redis_behind_a_feature() {
        assert_eq!(one("tidegate", "tidegate-redis", NORMAL), 1);
        assert_eq!(one("tidegate", "tidegate-redis", (false, true)), 0);
        assert_eq!(one("tidegate-server", "tidegate-redis", NORMAL), 0);
    }

    #[test]
    fn anyhow_is_for_programs_and_the_core_stands_alone() {
        assert_eq!(one("tidegate", "anyhow", NORMAL), 1);
        assert_eq!(one("tidegate-cli", "anyhow", NORMAL), 0);
        assert_eq!(one("tidegate-core", "libm", NORMAL), 1);
        assert_eq!(one("tidegate-core", "proptest", (true, false)), 0);
    }

    #[test]
    fn a_fault_names_the_line_of_the_manifest() {
        let packages = [package("tidegate", &[("anyhow", false, false)])];
        let mut tree =
            Tree::of(&[("crates/tidegate/Cargo.toml", "[dependencies]\nanyhow = \"1\"\n")]);
        tree.packages = &packages;
        assert!(check(&tree)[0].to_string().starts_with("crates/tidegate/Cargo.toml:2: "));
    }
}
