//! The workspace as cargo sees it: where it is, its crates, what they depend on, what they build.
//!
//! Read once per command from `cargo metadata`. What the files say inside is not looked at here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::Value;

/// The workspace that this program was started in.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Where cargo builds, and where tools are installed.
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One crate of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) targets: Vec<Target>,
    /// Examples that wait for someone (a server, say) and are therefore built but not run:
    /// `[package.metadata.xtask] examples-not-run = ["name"]`.
    pub(crate) examples_not_run: Vec<String>,
}

/// One line of a `[dependencies]` table.
#[derive(Debug)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// From `[dev-dependencies]`.
    pub(crate) dev: bool,
    pub(crate) optional: bool,
}

/// Something that cargo builds from a crate.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: String,
    /// `lib`, `bin`, `test`, `bench`, `example`…
    pub(crate) kind: String,
}

impl Workspace {
    pub(crate) fn load() -> anyhow::Result<Self> {
        let output = cargo()
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .output()
            .context("could not start cargo")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "cargo metadata failed:\n{complaint}");
        let metadata: Value = serde_json::from_slice(&output.stdout)?;
        Ok(Self {
            root: text(&metadata["workspace_root"]).into(),
            target: text(&metadata["target_directory"]).into(),
            packages: list(&metadata["packages"], package),
        })
    }
}

/// The cargo that runs us, so that every step uses the same toolchain.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The version of a crate that `Cargo.lock` settled on; `None` where nothing uses it.
pub(crate) fn locked_version(root: &Path, name: &str) -> anyhow::Result<Option<String>> {
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).context("reading Cargo.lock")?;
    Ok(version_in(&lock, name))
}

fn version_in(lock: &str, name: &str) -> Option<String> {
    let (_, after) = lock.split_once(&format!("\nname = \"{name}\"\nversion = \""))?;
    after.split_once('"').map(|(version, _)| version.to_owned())
}

fn package(value: &Value) -> Package {
    Package {
        name: text(&value["name"]),
        dependencies: list(&value["dependencies"], |dependency| Dependency {
            name: text(&dependency["name"]),
            dev: dependency["kind"] == "dev",
            optional: dependency["optional"] == true,
        }),
        targets: list(&value["targets"], |target| Target {
            name: text(&target["name"]),
            kind: text(&target["kind"][0]),
        }),
        examples_not_run: list(&value["metadata"]["xtask"]["examples-not-run"], text),
    }
}

fn list<T>(value: &Value, read: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().into_iter().flatten().map(read).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_version_is_found_by_the_whole_name() {
        let lock = "[[package]]\nname = \"gungraun-common\"\nversion = \"0.1.0\"\n\n\
                    [[package]]\nname = \"gungraun\"\nversion = \"0.20.0\"\n";
        assert_eq!(version_in(lock, "gungraun").as_deref(), Some("0.20.0"));
        assert_eq!(version_in(lock, "gun"), None);
    }

    #[test]
    fn dependencies_targets_and_settings_are_read_from_metadata() {
        let metadata = r#"{
            "name": "tidegate",
            "dependencies": [
                {"name": "tidegate-core", "kind": null, "optional": false},
                {"name": "proptest", "kind": "dev", "optional": false}
            ],
            "targets": [{"name": "first", "kind": ["example"]}],
            "metadata": {"xtask": {"examples-not-run": ["server"]}}
        }"#;
        let package = package(&serde_json::from_str(metadata).unwrap());
        assert_eq!(package.dependencies.iter().filter(|found| found.dev).count(), 1);
        assert_eq!(package.targets[0].kind, "example");
        assert_eq!(package.examples_not_run, ["server"]);
    }
}
