//! Runs the built command and keeps what it printed.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run of the command left behind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// All is well, this is the data, and there was nothing else to say.
    pub(crate) fn yes(stdout: &str) -> Self {
        Self { code: 0, stdout: stdout.to_owned(), stderr: String::new() }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("no JSON ({error}):\n{}\n{}", self.stdout, self.stderr);
        })
    }
}

/// Runs it with nothing on standard input.
pub(crate) fn tidegate(args: &[&str]) -> Ran {
    tidegate_with(args, "")
}

/// Runs it with this text on standard input.
pub(crate) fn tidegate_with(args: &[&str], input: &str) -> Ran {
    run_in(Path::new(env!("CARGO_MANIFEST_DIR")), args, input)
}

/// Runs it in a folder.
pub(crate) fn run_in(folder: &Path, args: &[&str], input: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .current_dir(folder)
        // What a terminal may have set to force colours.
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // One that does not read its input may have ended by now, and then the rest is not wanted.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("the command ends");
    Ran {
        code: output.status.code().expect("an exit code"),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

/// The examples of rule files that the project shows.
pub(crate) fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rules")
}

/// An empty folder for one test.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder to write in");
    folder
}
