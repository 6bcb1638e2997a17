//! Programs that a test starts and ends: by their process group, also when the test panics.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long to wait for what must come. Only a test that fails waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// How long a program has to end by itself.
const END_WITHIN: Duration = Duration::from_secs(5);

/// How often to look whether it has come.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running program, with everything that it started itself.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it in a group of its own. What it prints goes to the file `log`.
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Self {
        let output = File::create(&log).expect("a log file");
        let errors = output.try_clone().expect("a second handle");
        let started =
            command.process_group(0).stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let program = command.get_program().display();
        let child = started.unwrap_or_else(|error| panic!("{program} does not start: {error}"));
        Self { child, log }
    }

    /// Stops it where it stands. Its sockets stay open, and the system goes on accepting connections.
    pub(crate) fn freeze(&self) {
        assert!(self.signal("STOP"), "SIGSTOP could not be sent");
        // The signal is sent at once and seen by each thread when it runs next.
        wait_for("every thread stands still", || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).ok()?;
            let states = tasks.map(|task| {
                let stat = fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
                stat.rsplit_once(") ").map(|(_, rest)| rest.starts_with('T'))
            });
            states.into_iter().all(|state| state == Some(true)).then_some(())
        });
    }

    pub(crate) fn thaw(&self) {
        assert!(self.signal("CONT"), "SIGCONT could not be sent");
    }

    /// Whether the signal was sent to it and all that it started.
    fn signal(&self, name: &str) -> bool {
        let group = format!("-{}", self.child.id());
        let mut command = Command::new("sh");
        command.args(["-c", "kill -s \"$0\" -- \"$1\"", name, &group]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child of ours").is_some()
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(mut self) {
        assert!(self.signal("KILL"), "SIGKILL could not be sent");
        self.child.wait().expect("a child of ours");
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    /// Asks it to end, so that it can end and wait for what it started itself; and then sees to it.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        self.signal("CONT");
        self.signal("TERM");
        if !within(END_WITHIN, || !matches!(self.child.try_wait(), Ok(None))) {
            self.signal("KILL");
            let _ = self.child.wait();
        }
    }
}

/// Where a program is; a test never goes on without it.
pub(crate) fn program(name: &str) -> PathBuf {
    // `cargo xtask test` says where its tools are; elsewhere they are where it puts them.
    let tools = std::env::var_os("TIDEGATE_TOOLS").map(PathBuf::from);
    let tools = tools.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tools"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps nginx and haproxy where only root's PATH leads.
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), tools.join("python/bin")]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file()).unwrap_or_else(|| {
        panic!("{name} is missing, and this test needs it. To install it, run: cargo xtask setup")
    })
}

/// Looks again and again until there is something to see.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut seen = None;
    let came = within(PATIENCE, || {
        seen = look();
        seen.is_some()
    });
    assert!(came, "{what}: not within {PATIENCE:?}");
    seen.expect("it came")
}

/// Whether it comes true in about this time.
#[expect(clippy::disallowed_methods, reason = "a real process is waited for, up to a deadline")]
fn within(time: Duration, mut is_true: impl FnMut() -> bool) -> bool {
    let looks = time.as_millis() / LOOK_EVERY.as_millis();
    for _ in 0..looks {
        if is_true() {
            return true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    false
}
