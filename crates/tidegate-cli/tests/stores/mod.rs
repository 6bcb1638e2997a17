//! Real servers of Redis on free ports. What a test starts, it ends, by its own id.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidegate_testing::free_port;

/// Long enough for a machine that is busy with something else.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that runs.
pub(crate) struct Redis {
    child: Child,
    pub(crate) port: u16,
    /// Held open, so that the server can go on logging.
    _log: BufReader<ChildStdout>,
}

impl Redis {
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_on(free_port(), options)
    }

    /// On this port, as one that was stopped and comes back does.
    pub(crate) fn start_on(port: u16, options: &[&str]) -> Self {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.args(["--port", &port.to_string()]).args(options).stdout(Stdio::piped());
        let mut child = command.spawn().expect("redis-server is installed");
        let mut log = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("eady to accept connections") {
            line.clear();
            assert!(log.read_line(&mut line).expect("a log") > 0, "it ended before it was ready");
        }
        Self { child, port, _log: log }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Stops it where it is, without ending it.
    pub(crate) fn pause(&self) {
        kill_process(Pid::from_child(&self.child), Signal::STOP).expect("it runs");
    }

    pub(crate) fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("it runs");
    }

    /// What the server says to a command, as it is on the wire.
    pub(crate) fn says(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Somebody who is no Redis: answers every connection with these bytes, and ends it.
pub(crate) fn somebody_else(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(answer);
        }
    });
    port
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let pause = Duration::from_millis(20);
    for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
        if is_so() {
            return;
        }
        thread::park_timeout(pause);
    }
    panic!("it takes too long until {what}");
}
