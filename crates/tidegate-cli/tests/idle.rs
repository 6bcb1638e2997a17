//! Ten thousand clients that have asked once and then say nothing: what each of them costs, and that
//! others are answered meanwhile. The daemon is a process of its own, since both ends of so many
//! connections are more than one process may have open.

mod daemon;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use daemon::{Daemon, http, serve};

const IDLE: usize = 10_000;
/// The most memory that an idle connection may take, in bytes: 320 MB for all of them.
const BYTES_EACH_MAX: usize = 32 << 10;

#[test]
fn ten_thousand_idle_connections_over_http_leave_room_for_others() {
    let request = b"GET /limit/idle?cost=0 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stays_usable("http", request, b"HTTP/1.1 200");
}

#[test]
fn ten_thousand_idle_connections_over_resp_leave_room_for_others() {
    stays_usable("resp", b"*1\r\n$4\r\nPING\r\n", b"+PONG");
}

#[test]
fn a_connection_that_has_said_much_keeps_no_buffers() {
    const TALKERS: usize = 2_000;
    const TEXT_BYTES: usize = 60_000;
    let text = "x".repeat(TEXT_BYTES);
    let request = format!("*2\r\n$4\r\nPING\r\n${TEXT_BYTES}\r\n{text}\r\n");
    let answer = format!("${TEXT_BYTES}\r\n{text}\r\n");
    let _alone = alone();
    let daemon = serve(&[]);
    let address = daemon.address("resp");
    let talk = |_| idle(&address, request.as_bytes(), answer.as_bytes());
    // What the process keeps for whoever talks next is there already.
    let _first: Vec<TcpStream> = (0..20).map(talk).collect();
    let before = resident_bytes(&daemon);
    let _talkers: Vec<TcpStream> = (0..TALKERS).map(talk).collect();
    let each = resident_bytes(&daemon).saturating_sub(before) / TALKERS;
    assert!(each <= BYTES_EACH_MAX, "{each} bytes for each connection that waits");
}

fn stays_usable(service: &str, request: &[u8], answer: &[u8]) {
    let _alone = alone();
    let daemon = serve(&["--max-connections", "12000", "--limit", "10/day per key"]);
    // One of each, so that what is made once is there already.
    drop(idle(&daemon.address(service), request, answer));
    assert_eq!(http(&daemon.address("http"), "GET /limit/ann").0, 200);
    let before = resident_bytes(&daemon);
    let address = daemon.address(service);
    let held: Vec<TcpStream> = (0..IDLE).map(|_| idle(&address, request, answer)).collect();
    let each = resident_bytes(&daemon).saturating_sub(before) / IDLE;
    assert!(each <= BYTES_EACH_MAX, "{each} bytes for each idle connection");
    for _ in 0..9 {
        assert_eq!(http(&daemon.address("http"), "GET /limit/ann").0, 200);
    }
    assert_eq!(http(&daemon.address("http"), "GET /limit/ann").0, 429);
    let line = format!("tidegate_connections_open{{listener=\"{service}\"}}");
    assert!(open(&daemon, &line) >= IDLE, "they are all held");
    drop(held);
    // Until the daemon has seen the last of them go. The one that asks may be among those counted.
    while open(&daemon, &line) > 1 {}
}

/// One test at a time: two of them would have more open than many systems let a process have.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection on which one request was answered.
fn idle(address: &str, request: &[u8], answer: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request).expect("it reads");
    let mut begin = vec![0; answer.len()];
    stream.read_exact(&mut begin).expect("it answers");
    assert_eq!(begin, answer);
    stream
}

fn open(daemon: &Daemon, line: &str) -> usize {
    let (_, metrics) = http(&daemon.address("admin"), "GET /metrics");
    let value = metrics.lines().find_map(|one| one.strip_prefix(line));
    value.and_then(|value| value.trim().parse().ok()).expect("the metric")
}

fn resident_bytes(daemon: &Daemon) -> usize {
    let id = daemon.pid().as_raw_nonzero();
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().expect("a number");
    kib << 10
}
