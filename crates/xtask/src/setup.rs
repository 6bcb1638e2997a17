//! Installs what the tests need and the machine lacks: Debian packages, packages of `PyPI`, and cargo
//! tools of ours.
//!
//! A machine with Rust and Debian's package manager is enough to start from. What is there already
//! is left alone. All but Debian's packages go under the target folder, so nothing of the user's is
//! replaced.

mod python;

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

const PROGRAMS: [Program; 11] = [
    Program { name: "caddy", package: "caddy", why: "it asks the daemon in tests" },
    Program { name: "curl", package: "curl", why: "the README's lines are tried with it" },
    Program { name: "git", package: "git", why: "tidy asks it which files are ours" },
    Program { name: "haproxy", package: "haproxy", why: "it asks the daemon in tests" },
    Program { name: "nginx", package: "nginx", why: "it asks the daemon in tests" },
    Program { name: "promtool", package: "prometheus", why: "it checks metrics and alert rules" },
    Program { name: "python3", package: "python3-venv", why: "clients in Python run in tests" },
    Program { name: "redis-cli", package: "redis-tools", why: "it talks to the daemon in a test" },
    Program { name: "redis-server", package: "redis-server", why: "its replies are compared" },
    Program { name: "systemd-analyze", package: "systemd", why: "it checks our units" },
    Program { name: "valgrind", package: "valgrind", why: "it counts instructions per decision" },
];

/// Packages whose programs are also services of the system. Tests start their own; a machine that gets a
/// package from us must not find a web server on its port 80, now or after the next start.
const SERVICES: [&str; 5] = ["caddy", "haproxy", "nginx", "prometheus", "redis-server"];

/// Runs its arguments while a policy forbids packages to start services. Debian's tools ask that file, and
/// nothing else, before they start one; where there is one already, it is somebody's decision and stays.
const WITHOUT_SERVICES: &str = "\
set -e
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT
    trap 'exit 1' INT TERM
    printf '#!/bin/sh\\nexit 101\\n' >$policy
    chmod 755 $policy
fi
\"$@\"
";

/// What `bench wire` starts beside what the tests need.
const WIRE_PROGRAMS: [Program; 4] = [
    Program {
        name: "protoc",
        package: "protobuf-compiler",
        why: "throttlecrab-server is built with it",
    },
    Program { name: "redis-benchmark", package: "redis-tools", why: "it puts load on servers" },
    Program { name: "redis-server", package: "redis-server", why: "it is measured beside ours" },
    Program { name: "taskset", package: "util-linux", why: "servers and load get a core each" },
];

/// The server that the daemon is measured against.
const THROTTLECRAB_VERSION: &str = "0.4.40";

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
    install_missing(&PROGRAMS)?;
    python::install(&workspace.target)?;
    // The runner must be of the very version that the benchmark was built with.
    if let Some(version) = locked_version(&workspace.root, "gungraun")? {
        install_runner(&workspace.target, &version)?;
    }
    println!("setup: everything that the tests need is installed");
    Ok(true)
}

/// Makes sure that what `bench wire` starts is there, and says where throttlecrab-server is.
pub(crate) fn for_wire(workspace: &Workspace) -> anyhow::Result<PathBuf> {
    install_missing(&WIRE_PROGRAMS)?;
    let (name, why) = ("throttlecrab-server", "it is measured beside ours");
    install_tool(&workspace.target, name, THROTTLECRAB_VERSION, Build::Optimised, why)
}

/// The folder of what is installed under the target folder. Tests know it as `TIDEGATE_TOOLS`.
pub(crate) fn tools(target: &Path) -> PathBuf {
    target.join("tools")
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
    tools(target).join(format!("{name}-{version}"))
}

fn install_runner(target: &Path, version: &str) -> anyhow::Result<()> {
    let why = "it drives the instruction counts";
    install_tool(target, "gungraun-runner", version, Build::Quick, why).map(drop)
}

/// How a cargo tool is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// In the shortest time: it only drives others.
    Quick,
    /// As its users run it: it is measured.
    Optimised,
}

/// Installs a cargo tool unless it is there, and says where it is.
pub(crate) fn install_tool(
    target: &Path,
    name: &str,
    version: &str,
    build: Build,
    why: &str,
) -> anyhow::Result<PathBuf> {
    let path = tool_path(target, name, version);
    if path.is_file() {
        return Ok(path);
    }
    println!("setup: installing {name} {version}: {why}");
    let build_folder = tools(target).join("build");
    let mut install = cargo();
    install.args(["install", "--locked", name, "--version", version]);
    if build == Build::Quick {
        install.arg("--debug").env("CARGO_PROFILE_DEV_DEBUG", "false");
    }
    install.arg("--root").arg(tool_root(target, name, version));
    install.arg("--target-dir").arg(&build_folder);
    let is_installed = passes(&mut install)?;
    // Only the program is needed again, and what it was built from is large. What was left by a
    // failure would be built upon, and what was missing then be missed for ever.
    std::fs::remove_dir_all(&build_folder)?;
    ensure!(is_installed, "{name} {version} could not be installed");
    Ok(path)
}

fn install_missing(programs: &[Program]) -> anyhow::Result<()> {
    let missing: Vec<&Program> = programs.iter().filter(|program| !is_there(program)).collect();
    if missing.is_empty() { Ok(()) } else { install_packages(&missing) }
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
        // Without a running systemd there is nothing to turn off.
        if words.contains(&"systemctl") && !Path::new("/run/systemd/system").is_dir() {
            continue;
        }
        let (sudo, words) = words.split_at(usize::from(words[0] == "sudo"));
        let line = [sudo, &["sh", "-c", WITHOUT_SERVICES, "sh"], words].concat();
        ensure!(
            passes(Command::new(line[0]).args(&line[1..]))?,
            "failed: {}",
            [sudo, words].concat().join(" ")
        );
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
    let packages = missing.iter().map(|program| program.package);
    let services: Vec<&str> = packages.filter(|package| SERVICES.contains(package)).collect();
    if !services.is_empty() {
        commands.push([&["systemctl", "disable", "--quiet", "--now"], &services[..]].concat());
    }
    if privilege == Privilege::Sudo {
        for words in &mut commands {
            words.insert(0, "sudo");
        }
    }
    commands
}

/// Whether a program can be started. Debian's Python starts, and lacks a part until its package is there.
fn is_there(program: &Program) -> bool {
    on_path(program.name) && (program.name != "python3" || python::makes_environments())
}

pub(crate) fn on_path(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps servers where only root's PATH leads.
    let mut folders = std::env::split_paths(&folders).chain(["/usr/sbin".into()]);
    folders.any(|folder| folder.join(program).is_file())
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
        let packages = "caddy curl git haproxy nginx prometheus python3-venv redis-tools redis-server \
                        systemd valgrind";
        let install = format!("apt-get install --yes --no-install-recommends {packages}");
        assert_eq!(lines(Privilege::Root)[..2], ["apt-get update", &install]);
    }

    #[test]
    fn services_of_new_packages_are_turned_off_and_others_left_alone() {
        let off = "systemctl disable --quiet --now caddy haproxy nginx prometheus redis-server";
        assert_eq!(lines(Privilege::Root)[2..], [off]);
        let git: Vec<&Program> = PROGRAMS.iter().filter(|program| program.name == "git").collect();
        assert_eq!(apt_commands(&git, Privilege::Root).len(), 2);
    }

    #[test]
    fn a_user_who_is_not_root_installs_through_sudo() {
        assert!(lines(Privilege::Sudo).iter().all(|line| line.starts_with("sudo ")));
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
