//! The daemon as its users meet it over HTTP: the first 429, what a drain lets finish, and limits that
//! survive a restart.

mod daemon;
mod run;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use daemon::{Folder, Signal, http, serve};
use run::tidegate;
use tidegate_testing::seen_within;

/// A limit that gives nothing back while a test runs.
const SLOW: &str = "3/day per key";

#[test]
fn the_first_refusal_takes_nothing_but_the_daemon() {
    let daemon = serve(&[]);
    let address = daemon.address("http");
    let mut asked = 0;
    // A token comes back every six seconds.
    let request = || {
        asked += 1;
        format!("GET /limit/ann-{asked}")
    };
    let statuses: Vec<u16> = seen_within(Duration::from_secs(5), request, |request| {
        (0..11).map(|_| http(&address, request).0).collect()
    });
    assert_eq!(statuses[..10], [200; 10]);
    assert_eq!(statuses[10], 429);
    assert_eq!(http(&address, "GET /limit/bob").0, 200);
    daemon.stop();
}

#[test]
fn one_rule_on_the_command_line_is_enough() {
    let daemon = serve(&["--limit", SLOW]);
    let address = daemon.address("http");
    let statuses: Vec<u16> = (0..4).map(|_| http(&address, "GET /limit/ann").0).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    daemon.stop();
}

#[test]
fn in_shadow_nobody_is_refused() {
    let daemon = serve(&["--limit", SLOW, "--shadow"]);
    let address = daemon.address("http");
    let statuses: Vec<u16> = (0..5).map(|_| http(&address, "GET /limit/ann").0).collect();
    assert_eq!(statuses, [200; 5]);
    daemon.stop();
}

#[test]
fn a_reload_changes_the_number_and_keeps_what_was_spent() {
    let folder = Folder::new("reload");
    let rules = |count: u32| {
        format!("{{ domain: default, rules: [{{ name: a, per: [key], limit: {count}/day }}] }}\n")
    };
    let file = folder.write("rules.yaml", &rules(2));
    let mut daemon = serve(&["--rules", &file]);
    let address = daemon.address("http");
    let ask = || http(&address, "GET /limit/ann").0;
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);
    folder.write("rules.yaml", &rules(3));
    daemon.signal(Signal::HUP);
    daemon.wait_for("rules reloaded: 1 changed");
    assert_eq!([ask(), ask()], [200, 429]);
    daemon.stop();
}

#[test]
fn limits_survive_a_restart() {
    let folder = Folder::new("restart");
    let state = folder.file("state");
    let flags = ["--limit", SLOW, "--state", &state];
    let daemon = serve(&flags);
    let statuses: Vec<u16> =
        (0..2).map(|_| http(&daemon.address("http"), "GET /limit/ann").0).collect();
    assert_eq!(statuses, [200, 200]);
    daemon.stop();
    let daemon = serve(&flags);
    let statuses: Vec<u16> =
        (0..2).map(|_| http(&daemon.address("http"), "GET /limit/ann").0).collect();
    assert_eq!(statuses, [200, 429], "two of three are spent");
    daemon.stop();
}

#[test]
fn limits_survive_being_killed() {
    let folder = Folder::new("survive");
    let state = folder.file("state");
    let flags = ["--limit", SLOW, "--state", &state, "--log-level", "debug"];
    let mut daemon = serve(&flags);
    let statuses: Vec<u16> =
        (0..3).map(|_| http(&daemon.address("http"), "GET /limit/ann").0).collect();
    assert_eq!(statuses, [200; 3]);
    daemon.wait_for("the state was written");
    daemon.kill();
    let daemon = serve(&flags);
    assert_eq!(http(&daemon.address("http"), "GET /limit/ann").0, 429);
    daemon.stop();
}

const BODY: &str = r#"{"domain":"default","attributes":{"key":"ann"}}"#;

/// A connection on which a request has begun, and the daemon knows of it.
fn half_asked(address: &str) -> TcpStream {
    let head = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n",
        BODY.len()
    );
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    // First one whole request: when it is answered, the connection is known to the daemon.
    stream.write_all(format!("{head}{BODY}").as_bytes()).expect("it reads");
    let (mut first, mut byte) = (Vec::new(), [0]);
    while !first.ends_with(b"}") || !first.windows(4).any(|part| part == b"\r\n\r\n") {
        assert_eq!(stream.read(&mut byte).expect("an answer"), 1);
        first.push(byte[0]);
    }
    stream.write_all(format!("{head}{}", &BODY[..10]).as_bytes()).expect("it reads");
    // Another connection is asked and answered after these bytes have arrived.
    for _ in 0..3 {
        assert_eq!(http(address, "GET /healthz").0, 200);
    }
    stream
}

#[test]
fn a_request_under_way_is_answered_before_the_end() {
    let mut daemon = serve(&[]);
    let mut stream = half_asked(&daemon.address("http"));
    daemon.signal(Signal::TERM);
    daemon.wait_for("stopping");
    stream.write_all(&BODY.as_bytes()[10..]).expect("it reads on");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("an answer");
    assert!(rest.contains("200 OK") && rest.contains("\"allowed\""), "{rest}");
    assert_eq!(daemon.end().0.code(), Some(0));
}

#[test]
fn a_request_that_does_not_end_is_cut_off_in_the_end() {
    let mut daemon = serve(&["--drain-timeout", "300ms"]);
    let _stream = half_asked(&daemon.address("http"));
    daemon.signal(Signal::TERM);
    let line = daemon.wait_for("cut off what was still under way");
    assert!(line.contains("connections=1"), "{line}");
    assert_eq!(daemon.end().0.code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut daemon = serve(&["--drain-timeout", "10m"]);
    let _stream = half_asked(&daemon.address("http"));
    daemon.signal(Signal::TERM);
    daemon.wait_for("stopping");
    daemon.signal(Signal::INT);
    daemon.wait_for("told twice to stop");
    assert_eq!(daemon.end().0.code(), Some(1));
}

#[test]
fn check_answers_with_its_exit_code() {
    let daemon = serve(&["--limit", "1/day per key"]);
    let server = format!("http://{}", daemon.address("http"));
    let check = |args: &[&str]| tidegate(&[&["check", "--server", &server], args].concat());
    let ran = check(&["--peek", "key=ann"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "allowed: 1 of 1 left, rule limit\n"));
    let ran = check(&["key=ann"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "allowed: 0 of 1 left, rule limit\n"));
    let ran = check(&["key=ann"]);
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stdout.starts_with("denied: 0 of 1 left, rule limit, try again in 24 h"),
        "{}",
        ran.stdout
    );
    let ran = check(&["--json", "key=ann"]);
    assert_eq!((ran.code, &ran.json()["allowed"]), (1, &false.into()));
    let ran = check(&["user=ann"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "allowed: no rule applies\n"));
    let ran = check(&["--cost", "2", "key=bob"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stdout.contains("never-fits"), "{}", ran.stdout);
    daemon.stop();
    let ran = check(&["key=ann"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    assert!(ran.stderr.contains("start one with `tidegate serve`"), "{}", ran.stderr);
}

#[test]
fn check_asks_over_a_socket_in_the_file_system() {
    let folder = Folder::new("check");
    let socket = format!("unix:{}", folder.file("http.sock"));
    let daemon = serve(&["--http", &socket]);
    let ran = tidegate(&["check", "--server", &socket, "key=ann"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "allowed: 9 of 10 left, rule demo\n"));
    daemon.stop();
}
