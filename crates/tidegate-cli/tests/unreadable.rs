//! What the command does with paths that are no files, and with files that cannot be read: it reads
//! what it can, says everything at once, and says it as JSON where that is asked for.
#![cfg(unix)]

mod run;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use run::{Ran, run_in, scratch, tidegate, tidegate_with};
use serde_json::Value;

const GOOD: &str = "{ domain: api, rules: [{ name: a, per: [ip], limit: 10/minute }] }";
const BROKEN: &str = "{ domain: api, rules: [{ name: a, per: [ip], limit: 10/minuet }] }";

/// A pipe with a name, and somebody who writes to it once it is read.
fn pipe(folder: &Path, name: &str, text: &'static str) -> PathBuf {
    let path = folder.join(name);
    let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo starts");
    assert!(made.success());
    let writer = path.clone();
    thread::spawn(move || std::fs::write(writer, text));
    path
}

#[test]
fn pipes_and_devices_that_are_named_are_read() {
    let ran = tidegate_with(&["rules", "validate", "/dev/stdin"], GOOD);
    assert_eq!(ran, Ran::yes("1 domain, 1 rule, 1 limit: ok\n"));
    let folder = scratch("named-pipes");
    let (old, new) = (pipe(&folder, "old", GOOD), pipe(&folder, "new", GOOD));
    let [old, new] = [&old, &new].map(|path| path.to_str().expect("a plain name"));
    let ran = tidegate(&["rules", "diff", old, new]);
    assert_eq!(ran, Ran { code: 0, stdout: String::new(), stderr: "no changes\n".into() });
}

#[test]
fn mistakes_in_a_pipe_are_told_under_its_name() {
    let ran = tidegate_with(&["rules", "validate", "/dev/stdin"], BROKEN);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("--> /dev/stdin:1:"), "{}", ran.stderr);
}

#[test]
fn a_device_without_an_end_is_too_large() {
    let ran = tidegate(&["rules", "validate", "/dev/zero"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    let expected =
        "error: /dev/zero: is larger than 32 MiB: cut it into several files\n\n1 error\n";
    assert_eq!(ran.stderr, expected);
}

#[test]
fn a_pipe_in_a_folder_is_refused_and_not_waited_for() {
    let folder = scratch("pipe-in-folder");
    let made = Command::new("mkfifo").arg(folder.join("a.yaml")).status().expect("mkfifo starts");
    assert!(made.success());
    let ran = run_in(&folder, &["rules", "validate", "."], "");
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("is a pipe, not a file"), "{}", ran.stderr);
}

#[test]
fn mistakes_are_told_beside_what_cannot_be_read() {
    let folder = scratch("beside");
    std::fs::write(folder.join("b.yaml"), BROKEN).expect("a file to write");
    let ran = run_in(&folder, &["rules", "validate", "b.yaml", "nope.yaml"], "");
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.starts_with("error: nope.yaml: does not exist"), "{}", ran.stderr);
    assert!(ran.stderr.contains("\n\nerror: unknown unit `minuet`"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("\n2 errors\n"), "{}", ran.stderr);
}

#[test]
fn every_command_tells_as_json_what_is_in_the_way_of_its_answer() {
    let folder = scratch("json-of-failures");
    std::fs::write(folder.join("b.yaml"), BROKEN).expect("a file to write");
    let calls: [&[&str]; 4] = [
        &["rules", "validate", "--json", "b.yaml", "nope.yaml"],
        &["rules", "show", "--json", "b.yaml", "nope.yaml"],
        &["rules", "diff", "--json", "nope.yaml", "b.yaml"],
        &["explain", "--json", "--rules", "b.yaml", "--rules", "nope.yaml"],
    ];
    for call in calls {
        let ran = run_in(&folder, call, "");
        assert_eq!((ran.code, ran.stderr.as_str()), (2, ""), "{call:?}");
        let json = ran.json();
        assert_eq!(json["errors"], 2, "{call:?}");
        let [unread, broken] = [&json["diagnostics"][0], &json["diagnostics"][1]];
        assert_eq!((&unread["file"], &unread["line"]), (&"nope.yaml".into(), &Value::Null));
        assert_eq!(
            (&unread["severity"], &unread["message"]),
            (&"error".into(), &"does not exist".into())
        );
        assert_eq!(unread["help"], "create it, or correct the path");
        assert_eq!((&broken["file"], &broken["line"]), (&"b.yaml".into(), &1.into()));
    }
}

#[test]
fn what_is_asked_for_and_not_there_is_told_as_json() {
    let calls: [&[&str]; 2] = [
        &["rules", "show", "--json", "--domain", "apj", "-"],
        &["explain", "--json", "--domain", "apj", "--rules", "-"],
    ];
    for call in calls {
        let ran = tidegate_with(call, GOOD);
        assert_eq!((ran.code, ran.stderr.as_str()), (2, ""), "{call:?}");
        let expected = "there is no domain `apj`: the rules have only `api`";
        assert_eq!(ran.json()["error"], expected, "{call:?}");
    }
}

#[test]
fn a_name_cannot_command_the_terminal() {
    let ran = tidegate(&["rules", "validate", "a\u{1b}[2Jb.yaml"]);
    assert!(ran.stderr.starts_with("error: a\\u{1b}[2Jb.yaml: does not exist"), "{}", ran.stderr);
}
