//! Servers as processes on a core of their own. Each ends with the value that stands for it.
#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark reads the real clock, and waits for others"
)]

use std::error::Error;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::LIMIT;

/// How long a server may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// One core for the servers and one for the load.
#[derive(Clone, Copy)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

impl Cores {
    /// The first and the last that we may run on.
    pub(crate) fn two() -> Result<Self, Box<dyn Error>> {
        let status = fs::read_to_string("/proc/self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cores = cores_in(list.unwrap_or("").trim());
        match (cores.first(), cores.last()) {
            (Some(&server), Some(&load)) if server != load => Ok(Self { server, load }),
            _ => Err("this takes two cores: one for the servers and one for the load".into()),
        }
    }
}

/// The numbers of a list such as `0-3,8`.
fn cores_in(list: &str) -> Vec<usize> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// A server that runs.
pub(crate) struct Server {
    pub(crate) port: u16,
    child: Child,
}

impl Server {
    /// The daemon with one protocol.
    pub(crate) fn tidegate(
        program: &Path,
        protocol: &str,
        core: usize,
    ) -> Result<Self, Box<dyn Error>> {
        Self::tidegate_with(program, protocol, core, &[])
    }

    /// The same, with more flags.
    pub(crate) fn tidegate_with(
        program: &Path,
        protocol: &str,
        core: usize,
        flags: &[String],
    ) -> Result<Self, Box<dyn Error>> {
        let port = free_port()?;
        let flags = [&daemon_flags(protocol, port)[..], flags].concat();
        Self::start("tidegate", program, &flags, port, core, &[])
    }

    /// Any server, on one core, once it listens. It reads `input` to its end.
    pub(crate) fn start(
        name: &str,
        program: &Path,
        words: &[String],
        port: u16,
        core: usize,
        input: &[u8],
    ) -> Result<Self, Box<dyn Error>> {
        eprintln!("  starting {name} on core {core}");
        let mut command = pinned(core, program);
        let child = command
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("could not start {name}: {error}"))?;
        let mut server = Self { port, child };
        if let Some(mut stdin) = server.child.stdin.take() {
            // One that does not read its input may have closed it.
            let _ = stdin.write_all(input);
        }
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(server.address()).is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("{name} ended at once: {status}").into());
            }
            if Instant::now() > deadline {
                return Err(format!("{name} does not listen on port {port}").into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        local(self.port)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Where it has ended already, that is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn daemon_flags(protocol: &str, port: u16) -> Vec<String> {
    let mut flags = vec!["serve".to_owned(), "--limit".to_owned(), LIMIT.to_owned()];
    for known in ["http", "grpc", "resp", "admin"] {
        let address = if known == protocol { local(port).to_string() } else { "off".to_owned() };
        flags.push(format!("--{known}={address}"));
    }
    flags
}

/// The program, to run on this core alone.
pub(crate) fn pinned(core: usize, program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &core.to_string()]).arg(program);
    command
}

/// A port that was free just now. Not every peer can pick one itself.
pub(crate) fn free_port() -> Result<u16, Box<dyn Error>> {
    Ok(TcpListener::bind(local(0))?.local_addr()?.port())
}

pub(crate) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Seconds of processor time that a process has taken so far.
pub(crate) fn processor_seconds(process: u32) -> Option<f64> {
    /// What Linux counts in, on every machine that we run on.
    const TICKS_PER_SECOND: f64 = 100.0;
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may hold anything. User and system time are the 12th and 13th after it.
    let (_, rest) = text.rsplit_once(')')?;
    let ticks = rest.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
    Some(ticks.sum::<Result<f64, _>>().ok()? / TICKS_PER_SECOND)
}

/// Starts the daemon and asks it whether it is ready until it says so.
pub(crate) fn start_to_ready_ms(tidegate: &Path) -> Result<f64, Box<dyn Error>> {
    let port = free_port()?;
    let mut command = Command::new(tidegate);
    command.args(daemon_flags("http", port)).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let _server = Server { port, child: command.spawn()? };
    while !is_ready(port) {
        if start.elapsed() > START_TIMEOUT {
            return Err("tidegate does not become ready".into());
        }
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn is_ready(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(local(port)) else { return false };
    let mut answer = [0; 12];
    let asked =
        stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
    asked.is_ok() && stream.read_exact(&mut answer).is_ok() && &answer == b"HTTP/1.1 200"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_ranges_and_numbers() {
        assert_eq!(cores_in("0-1"), [0, 1]);
        assert_eq!(cores_in("0-2,8"), [0, 1, 2, 8]);
        assert_eq!(cores_in(""), [0; 0]);
    }

    #[test]
    fn the_time_of_a_process_can_be_read() {
        assert!(processor_seconds(std::process::id()).is_some());
    }
}
