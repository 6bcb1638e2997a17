//! The suites: which steps `test` and `long` run, in which order, and how a benchmark is started.
//!
//! Cheap steps come first, so that a slip shows in seconds. Steps that build the same code with the
//! same profile stand together, so that they share it.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, ensure};

use crate::command::{Bench, Sim};
use crate::step::{Step, run_all};
use crate::workspace::{Target, Workspace, cargo, locked_version};
use crate::{setup, step, tidy};

/// How many cases each property gets in `long`, where the default is 256.
const PROPERTY_CASES_LONG: u32 = 20_000;

/// The variable that tells tests where `setup` has put what they start.
const TOOLS: &str = "TIDEGATE_TOOLS";

/// Targets without a standard library, any of which proves that the core needs none.
const BARE_TARGETS: [&str; 3] =
    ["x86_64-unknown-none", "thumbv7em-none-eabi", "riscv32imac-unknown-none-elf"];

/// Everything that must hold before a change lands.
pub(crate) fn test(workspace: &Workspace) -> anyhow::Result<bool> {
    let mut steps = vec![
        Step::own("setup", setup::run),
        Step::cargo("format", "fmt --all --check"),
        Step::own("tidy", tidy::run),
        Step::cargo("lints", "clippy --workspace --all-targets -- -D warnings"),
        // A second pass, because a feature can hide code as well as add it.
        Step::cargo(
            "lints with every feature",
            "clippy --workspace --all-targets --all-features -- -D warnings",
        ),
        // And a third: in the workspace nobody builds the library as most users have it, without a feature.
        Step::cargo("lints of the library alone", "clippy -p tidegate --lib -- -D warnings"),
        // Nor its examples and those of the middleware.
        Step::cargo(
            "lints of the examples alone",
            "clippy -p tidegate -p tidegate-tower --examples -- -D warnings",
        ),
        Step::cargo("tests", "test --workspace --tests").with(TOOLS, tools(workspace)),
        Step::cargo("doctests", "test --workspace --doc"),
    ];
    steps.extend(no_std());
    steps.extend(examples(workspace));
    steps.push(
        Step::cargo("docs", "doc --workspace --no-deps").with("RUSTDOCFLAGS", "-D warnings".into()),
    );
    steps.extend(interleavings());
    steps.push(instructions(workspace)?);
    run_all("cargo xtask test", workspace, &steps)
}

/// What takes too long for every change: ignored tests and many more property cases.
pub(crate) fn long(workspace: &Workspace) -> anyhow::Result<bool> {
    let tests =
        Step::cargo("long tests", "test --release --workspace --tests -- --include-ignored")
            .with("PROPTEST_CASES", PROPERTY_CASES_LONG.to_string())
            .with(TOOLS, tools(workspace));
    run_all("cargo xtask long", workspace, &[tests])
}

/// One benchmark, optimised, its output going where ours goes.
pub(crate) fn bench(workspace: &Workspace, bench: &Bench) -> anyhow::Result<bool> {
    let mut command = cargo();
    command.args(["run", "--release", "--package", "tidegate-bench", "--", &bench.name]);
    match bench.name.as_str() {
        "wire" => _ = command.args(wire_programs(workspace)?),
        "edges" | "shared" => _ = command.args(daemon_program(workspace)?),
        _ => {}
    }
    if let Some(file) = &bench.json {
        // The run starts in the root folder; the file is meant from where the user stands.
        command.arg("--json").arg(std::path::absolute(file)?);
    }
    step::passes(command.args(&bench.rest).current_dir(&workspace.root))
}

/// The lease protocol in simulated fleets.
pub(crate) fn sim(workspace: &Workspace, sim: &Sim) -> anyhow::Result<bool> {
    let (variable, number) = match sim {
        Sim::Seeds(number) => ("TIDEGATE_SIM_SEEDS", number),
        Sim::Seed(number) => ("TIDEGATE_SIM_SEED", number),
    };
    let mut command = cargo();
    command.args(["test", "--release", "--package", "tidegate-redis", "--test", "all"]);
    command.args(["no_world_", "--", "--nocapture"]).env(variable, number.to_string());
    step::passes(command.current_dir(&workspace.root))
}

fn tools(workspace: &Workspace) -> String {
    setup::tools(&workspace.target).display().to_string()
}

/// What `bench wire` measures: the daemon as users run it, and the peer that cargo installs.
fn wire_programs(workspace: &Workspace) -> anyhow::Result<[OsString; 4]> {
    let throttlecrab = setup::for_wire(workspace)?;
    let [flag, tidegate] = daemon_program(workspace)?;
    Ok([flag, tidegate, "--throttlecrab".into(), throttlecrab.into()])
}

/// The daemon as users run it, built now.
fn daemon_program(workspace: &Workspace) -> anyhow::Result<[OsString; 2]> {
    let mut build = cargo();
    build.args(["build", "--release", "--package", "tidegate-cli"]);
    ensure!(step::passes(build.current_dir(&workspace.root))?, "the daemon could not be built");
    Ok(["--tidegate".into(), workspace.target.join("release/tidegate").into()])
}

/// Builds the core for a machine without an operating system, where such a target is installed.
/// Elsewhere tidy says as much: `#![no_std]`, no mention of `std` and no dependencies leave no way in.
fn no_std() -> Option<Step> {
    let output = std::process::Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let libraries = Path::new(sysroot.trim()).join("lib/rustlib");
    let target = BARE_TARGETS.into_iter().find(|target| libraries.join(target).is_dir())?;
    Some(Step::cargo("no_std", &format!("check -p tidegate-core --target {target}")))
}

/// Each example of each crate, built with the profile and the features of the tests, so that nothing else is built anew.
fn examples(workspace: &Workspace) -> Vec<Step> {
    let mut steps = vec![Step::cargo("examples", "build --workspace --examples --profile test")];
    let programs = workspace.target.join("debug/examples");
    for package in &workspace.packages {
        let examples = package.targets.iter().filter(|target| target.kind == "example");
        for Target { name, .. } in examples {
            if !package.examples_not_run.contains(name) {
                steps.push(Step::program(&format!("example {name}"), programs.join(name)));
            }
        }
    }
    steps
}

/// The swap protocol of the in-memory table, under every interleaving that shuttle tries. A build of
/// its own, where shuttle's atomics and locks stand in for the real ones; it is linted as well.
fn interleavings() -> [Step; 2] {
    let steps = [
        ("lints of interleavings", "clippy -p tidegate-store --lib --test shuttle -- -D warnings"),
        ("interleavings", "test --release -p tidegate-store --test shuttle"),
    ];
    steps.map(|(name, words)| Step::cargo(name, words).with("RUSTFLAGS", "--cfg shuttle".into()))
}

/// Instructions per decision, against their ceilings: the same on every machine.
fn instructions(workspace: &Workspace) -> anyhow::Result<Step> {
    let version = locked_version(&workspace.root, "gungraun")?
        .context("Cargo.lock has no gungraun, which the bench `instructions` needs")?;
    let runner = setup::runner_path(&workspace.target, &version);
    Ok(Step::cargo("instruction counts", "bench -p tidegate-instructions --bench instructions")
        .with("GUNGRAUN_RUNNER", runner.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Package;

    fn workspace(package: &str, kind: &str, target: &str) -> Workspace {
        let target = Target { name: target.into(), kind: kind.into() };
        let package = Package { name: package.into(), targets: vec![target], ..Package::default() };
        Workspace { root: ".".into(), target: "target".into(), packages: vec![package] }
    }

    #[test]
    fn an_example_is_run_unless_its_crate_says_otherwise() {
        let mut workspace = workspace("tidegate", "example", "first");
        let lines = |workspace: &Workspace| -> Vec<_> {
            examples(workspace).iter().map(|step| step.action.to_string()).collect()
        };
        let built = "cargo build --workspace --examples --profile test";
        assert_eq!(lines(&workspace), [built, "target/debug/examples/first"]);
        workspace.packages[0].examples_not_run.push("first".into());
        assert_eq!(lines(&workspace), [built]);
    }

    #[test]
    fn instruction_counts_that_cannot_be_taken_are_an_error() {
        let mut unlocked = workspace("tidegate-instructions", "bench", "instructions");
        unlocked.root = "no/such/folder".into();
        assert!(instructions(&unlocked).is_err());
    }
}
