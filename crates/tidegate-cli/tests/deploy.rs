//! What is under `deploy`, as far as it can be checked without an engine: each file by a program that
//! knows its format, and the settings and rules in them by the daemon itself.

#![cfg(unix)]

#[path = "proxies/process.rs"]
#[allow(dead_code, reason = "nothing is frozen here")]
mod process;
mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use process::{Process, program, wait_for};
use run::{scratch, tidegate};

/// What `systemd-analyze security` may find at most, in tenths: 0 is locked up, 100 is open.
const EXPOSURE_MAX: &str = "15";

fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(deploy(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn passes(command: &mut Command) -> Output {
    let output = command.output().expect("it was found, so it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{said}\n{complained}");
    output
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units_and_little_open() {
    let folder = scratch("deploy-units");
    for name in ["tidegate.service", "tidegate.socket"] {
        // It also looks whether what the unit starts is there.
        let binary = env!("CARGO_BIN_EXE_tidegate");
        let unit = read(&format!("systemd/{name}")).replace("/usr/bin/tidegate", binary);
        fs::write(folder.join(name), unit).expect("a written file");
    }
    let drop_ins = folder.join("tidegate.service.d");
    fs::create_dir_all(&drop_ins).expect("a folder");
    fs::write(drop_ins.join("store.conf"), read("systemd/store.conf")).expect("a written file");
    let analyze = || Command::new(program("systemd-analyze"));
    let units = ["tidegate.service", "tidegate.socket"].map(|name| folder.join(name));
    let verified = passes(analyze().args(["verify", "--man=no"]).args(&units));
    assert_eq!(String::from_utf8_lossy(&verified.stderr), "", "it warns of something");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    passes(analyze().args(["security", "--offline=true", &threshold]).arg(&units[0]));
}

#[test]
fn the_linter_has_nothing_to_say_about_the_dockerfile() {
    passes(Command::new(program("hadolint")).arg(deploy("docker/Dockerfile")));
}

#[test]
fn the_compose_file_says_what_compose_understands() {
    for file in ["docker/compose.yaml", "docker/compose.store.yaml"] {
        let mut check = Command::new(program("check-jsonschema"));
        passes(check.args(["--builtin-schema", "vendor.compose-spec"]).arg(deploy(file)));
    }
}

#[test]
fn envoy_takes_its_configuration_in_the_compose_file() {
    let file = deploy("docker/envoy.yaml");
    passes(Command::new(program("envoy")).args(["--mode", "validate", "--config-path"]).arg(file));
}

#[test]
fn kubernetes_knows_every_field_of_the_manifests() {
    for (folder, count) in [("kubernetes", 5), ("kubernetes-store", 3)] {
        let files = fs::read_dir(deploy(folder)).expect("the manifests");
        let files: Vec<PathBuf> = files.map(|file| file.expect("a manifest").path()).collect();
        assert!(files.len() >= count, "{files:?}");
        let mut validate = Command::new(program("kubernetes-validate"));
        passes(validate.args(["--strict", "--quiet"]).args(files));
    }
}

#[test]
fn the_daemon_starts_with_the_settings_of_the_compose_file() {
    let (settings, rules) =
        (read("docker/tidegate/tidegate.yaml"), read("docker/tidegate/rules.yaml"));
    starts("deploy-compose", &settings, &rules);
}

#[test]
fn the_daemon_starts_with_the_settings_in_the_config_map() {
    let map = read("kubernetes/config.yaml");
    starts("deploy-kubernetes", &entry(&map, "tidegate.yaml"), &entry(&map, "rules.yaml"));
}

/// Starts the daemon with these files, on ports that it picks, in a folder of the test.
fn starts(name: &str, settings: &str, rules: &str) {
    let folder = scratch(name);
    let path = folder.display().to_string();
    let mut settings = settings.replace("/etc/tidegate", &path).replace("/var/lib/tidegate", &path);
    for (written, free) in [(":8080", ":0"), (":8081", ":0"), (":8082", ":0")] {
        assert!(settings.contains(written), "there is no {written} in {settings}");
        settings = settings.replace(written, free);
    }
    fs::write(folder.join("tidegate.yaml"), settings).expect("a written file");
    let rules_file = folder.join("rules.yaml");
    fs::write(&rules_file, rules).expect("a written file");
    let ran = tidegate(&["rules", "validate", "--strict", rules_file.to_str().expect("a name")]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["serve", "--json", "--config"]).arg(folder.join("tidegate.yaml"));
    let mut daemon = Process::start(&mut command, folder.join("daemon.log"));
    wait_for("the daemon is ready", || {
        assert!(!daemon.has_ended(), "the daemon ended:\n{}", daemon.log());
        daemon.log().contains("\"ready\":true").then_some(())
    });
}

/// A text in a `ConfigMap`: the lines below its name, without their indent.
fn entry(map: &str, name: &str) -> String {
    let (_, rest) = map.split_once(&format!("\n  {name}: |\n")).expect("an entry");
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.flat_map(|line| [line.strip_prefix("    ").unwrap_or(line), "\n"]).collect()
}
