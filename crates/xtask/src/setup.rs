//! Installs what the tests need and the machine lacks: Debian packages, and cargo tools of ours.
//!
//! A machine with Rust and Debian's package manager is enough to start from. What is there already
//! is left alone. Cargo tools go under the target folder, so nothing of the user's is replaced.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{bail, ensure};

use crate::step::passes;
use crate::workspace::{Workspace, cargo, locked_version};

/// A program that a step starts.
struct Program {
    name: &'static str,
    /// The Debian package that holds it.
    package: &'static str,
    why: &'static str,
}

const PROGRAMS: [Program; 2] = [
    Program { name: "git", package: "git", why: "tidy asks it which files are ours" },
    Program { name: "valgrind", package: "valgrind", why: "it counts instructions per decision" },
];

/// Parts of the toolchain, by the cargo command that they answer to.
const COMPONENTS: [(&str, &str); 2] = [("fmt", "rustfmt"), ("clippy", "clippy")];

/// Makes sure that everything is there. Says so for each thing that it installs.
pub(crate) fn run(workspace: &Workspace) -> anyhow::Result<bool> {
    for (command, component) in COMPONENTS {
        ensure!(
            cargo().args([command, "--version"]).output()?.status.success(),
            "cargo {command} is missing; `rustup component add {component}` brings it"
        );
    }
    let missing: Vec<&Program> = PROGRAMS.iter().filter(|program| !on_path(program.name)).collect();
    if !missing.is_empty() {
        install_packages(&missing)?;
    }
    // The runner must be of the very version that the benchmark was built with.
    if let Some(version) = locked_version(&workspace.root, "gungraun")? {
        install_runner(&workspace.target, &version)?;
    }
    println!("setup: everything that the tests need is installed");
    Ok(true)
}

/// Where the program that runs the instruction counts is installed. Its folder carries the
/// version, so another version is another file.
pub(crate) fn runner_path(target: &Path, version: &str) -> PathBuf {
    tool_path(target, "gungraun-runner", version)
}

/// Where a cargo tool of ours is installed.
fn tool_path(target: &Path, name: &str, version: &str) -> PathBuf {
    tool_root(target, name, version).join("bin").join(name)
}

fn tool_root(target: &Path, name: &str, version: &str) -> PathBuf {
    target.join("tools").join(format!("{name}-{version}"))
}

fn install_runner(target: &Path, version: &str) -> anyhow::Result<()> {
    install_tool(target, "gungraun-runner", version, "it drives the instruction counts").map(drop)
}

/// Installs a cargo tool unless it is there, and says where it is.
pub(crate) fn install_tool(
    target: &Path,
    name: &str,
    version: &str,
    why: &str,
) -> anyhow::Result<PathBuf> {
    let path = tool_path(target, name, version);
    if path.is_file() {
        return Ok(path);
    }
    println!("setup: installing {name} {version}: {why}");
    let build = target.join("tools/build");
    let mut install = cargo();
    install.args(["install", "--locked", "--debug", name, "--version", version]);
    install.arg("--root").arg(tool_root(target, name, version));
    install.arg("--target-dir").arg(&build).env("CARGO_PROFILE_DEV_DEBUG", "false");
    ensure!(passes(&mut install)?, "{name} {version} could not be installed");
    // Only the program is needed again, and what it was built from is large.
    std::fs::remove_dir_all(&build)?;
    Ok(path)
}

fn install_packages(missing: &[&Program]) -> anyhow::Result<()> {
    for program in missing {
        let Program { name, package, why } = program;
        println!("setup: {name} is missing: {why}; installing the Debian package {package}");
    }
    let commands = apt_commands(missing, privilege()?);
    let by_hand = || commands.iter().map(|words| words.join(" ")).collect::<Vec<_>>().join(" && ");
    if !on_path("apt-get") {
        bail!("there is no apt-get here; on Debian this would do: {}", by_hand());
    }
    if privilege()? == Privilege::None {
        bail!("installing needs root, and there is no sudo; as root run: {}", by_hand());
    }
    for words in &commands {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive");
        ensure!(passes(&mut command)?, "failed: {}", words.join(" "));
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Privilege {
    Root,
    Sudo,
    None,
}

fn privilege() -> anyhow::Result<Privilege> {
    let user = Command::new("id").arg("-u").output()?;
    Ok(match (user.stdout.trim_ascii(), on_path("sudo")) {
        (b"0", _) => Privilege::Root,
        (_, true) => Privilege::Sudo,
        (_, false) => Privilege::None,
    })
}

/// The list is refreshed first: on a fresh machine it is empty.
fn apt_commands(missing: &[&Program], privilege: Privilege) -> Vec<Vec<&'static str>> {
    let mut install = vec!["apt-get", "install", "--yes", "--no-install-recommends"];
    install.extend(missing.iter().map(|program| program.package));
    let mut commands = vec![vec!["apt-get", "update"], install];
    if privilege == Privilege::Sudo {
        for words in &mut commands {
            words.insert(0, "sudo");
        }
    }
    commands
}

pub(crate) fn on_path(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(privilege: Privilege) -> Vec<String> {
        let missing: Vec<&Program> = PROGRAMS.iter().collect();
        apt_commands(&missing, privilege).iter().map(|words| words.join(" ")).collect()
    }

    #[test]
    fn the_package_list_is_refreshed_once_before_one_install() {
        assert_eq!(
            lines(Privilege::Root),
            ["apt-get update", "apt-get install --yes --no-install-recommends git valgrind"]
        );
    }

    #[test]
    fn a_user_who_is_not_root_installs_through_sudo() {
        assert!(lines(Privilege::Sudo).iter().all(|line| line.starts_with("sudo apt-get ")));
    }

    #[test]
    fn another_version_of_the_runner_is_another_file() {
        let target = Path::new("target");
        assert_ne!(runner_path(target, "0.20.0"), runner_path(target, "0.20.1"));
    }

    #[test]
    fn a_program_that_does_not_exist_is_not_on_the_path() {
        assert!(on_path("sh"));
        assert!(!on_path("no-such-program-anywhere"));
    }
}
