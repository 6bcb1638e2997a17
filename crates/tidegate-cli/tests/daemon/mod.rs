//! Starts the real daemon on free ports and talks to it as its users do. What it starts, it ends, by its
//! own id.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;

/// How long a daemon may take for what it is waited for: it writes its state every ten seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many lines of its log are kept until they are read.
const LINES_MAX: usize = 10_000;

/// A daemon that runs, on free ports unless its flags say otherwise.
pub(crate) struct Daemon {
    child: Option<Child>,
    /// The line that it prints when it is ready.
    pub(crate) ready: Value,
    lines: Receiver<String>,
    reading: Option<JoinHandle<()>>,
    /// What was read of its log so far.
    pub(crate) log: Vec<String>,
}

/// The command, on free ports, without what the environment of the test may say.
pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TIDEGATE_") {
            command.env_remove(name);
        }
    }
    command.env_remove("CLICOLOR_FORCE").env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

/// Flags for a daemon that is in nobody's way.
pub(crate) const FREE_PORTS: [&str; 8] =
    ["--http", ":0", "--grpc", ":0", "--resp", ":0", "--admin", ":0"];

/// A daemon with these flags; they go before the free ports.
pub(crate) fn serve(flags: &[&str]) -> Daemon {
    let mut command = command();
    command.args(["serve", "--json"]).args(free_ports_but(flags)).args(flags);
    Daemon::start(command)
}

/// Free ports for the services that the flags do not name.
fn free_ports_but(flags: &[&str]) -> Vec<&'static str> {
    let pairs = FREE_PORTS.chunks(2).filter(|pair| !flags.contains(&pair[0]));
    pairs.flatten().copied().collect()
}

impl Daemon {
    /// Runs a command that is to become a daemon, and waits until it is ready.
    pub(crate) fn start(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the command starts");
        let stderr = child.stderr.take().expect("a pipe");
        let (send, lines) = sync_channel(LINES_MAX);
        let reading = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        let mut first = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        stdout.read_line(&mut first).expect("a line");
        let mut daemon = Self {
            child: Some(child),
            ready: Value::Null,
            lines,
            reading: Some(reading),
            log: Vec::new(),
        };
        daemon.ready = serde_json::from_str(&first).unwrap_or_else(|_| {
            let log = daemon.rest_of_log().join("\n");
            panic!("it is not ready, but says {first:?}\n{log}");
        });
        daemon
    }

    /// Where a service listens.
    pub(crate) fn address(&self, service: &str) -> String {
        let address = self.ready["addresses"][service].as_str();
        address.unwrap_or_else(|| panic!("{service} is off: {}", self.ready)).to_owned()
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it runs"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Waits until none of its threads runs any more: a signal that stops them is on its way for a moment.
    pub(crate) fn wait_until_stopped(&self) {
        let tasks = format!("/proc/{}/task", self.pid().as_raw_nonzero());
        let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
            let stat = task.and_then(|task| std::fs::read_to_string(task.path().join("stat")));
            stat.is_ok_and(|stat| {
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
            })
        };
        while !std::fs::read_dir(&tasks).expect("it is there").all(is_stopped) {
            std::thread::yield_now();
        }
    }

    /// Waits for a line of the log that has these words.
    pub(crate) fn wait_for(&mut self, words: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.log.push(line.clone());
                    if line.contains(words) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("there is no {words:?} in its log:\n{}", self.log.join("\n"));
                }
            }
        }
    }

    /// Asks it to end, and gives how it did, with all of its log.
    pub(crate) fn stop(self) -> (ExitStatus, Vec<String>) {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Ends it without asking.
    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
        self.end();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>) {
        let status = self.child.take().expect("it runs").wait().expect("it ends");
        (status, self.rest_of_log())
    }

    fn rest_of_log(&mut self) -> Vec<String> {
        let mut log = std::mem::take(&mut self.log);
        log.extend(self.lines.iter());
        if let Some(reading) = self.reading.take() {
            reading.join().expect("lines of text");
        }
        log
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What an address answers to these bytes, until it ends the connection.
pub(crate) fn exchange(address: &str, bytes: &[u8]) -> Vec<u8> {
    if let Some(path) = address.strip_prefix("unix:") {
        let stream = UnixStream::connect(path).expect("somebody listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        return exchange_on(stream, bytes);
    }
    let stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    exchange_on(stream, bytes)
}

fn exchange_on(mut stream: impl Read + Write, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    stream.write_all(bytes).expect("it reads");
    stream.read_to_end(&mut answer).expect("it answers");
    answer
}

/// The status and the text of an HTTP answer.
pub(crate) fn http(address: &str, request: &str) -> (u16, String) {
    let request = format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let answer = String::from_utf8(exchange(address, request.as_bytes())).expect("text");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no HTTP: {answer:?}")), answer)
}

/// Whether somebody listens at an address.
pub(crate) fn is_open(address: &str) -> bool {
    match address.strip_prefix("unix:") {
        Some(path) => UnixStream::connect(path).is_ok(),
        None => TcpStream::connect(address).is_ok(),
    }
}

/// An empty folder for one test, with a short name: sockets have names of at most a hundred letters.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tg-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder to write in");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The name of a file in it.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a plain name").to_owned()
    }

    /// Writes a file, and gives its name.
    pub(crate) fn write(&self, name: &str, text: &str) -> String {
        let file = self.file(name);
        std::fs::write(&file, text).expect("a file to write");
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
