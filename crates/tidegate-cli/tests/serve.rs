//! The daemon as a process: what it says, where it listens, what signals do, and what is kept.

mod daemon;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::Duration;

use daemon::{Daemon, FREE_PORTS, Folder, Signal, command, exchange, is_open, serve};
use serde_json::Value;
use tidegate_testing::seen_within;

const RULES: &str = "{ domain: api, rules: [{ name: all, per: [user], limit: 10/minute }] }\n";

#[test]
fn it_starts_without_anything_and_tells_where_it_listens() {
    let daemon = serve(&[]);
    assert_eq!(daemon.ready["ready"], true);
    for service in ["http", "grpc", "resp", "admin"] {
        let address = daemon.address(service);
        assert!(address.starts_with("127.0.0.1:") && !address.ends_with(":0"), "{address}");
        assert!(is_open(&address), "{service}");
    }
    let (status, log) = daemon.stop();
    assert_eq!(status.code(), Some(0), "{log:?}");
}

#[test]
fn a_person_is_told_addresses_rules_and_a_line_to_try() {
    let mut command = command();
    command.arg("serve").args(FREE_PORTS).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let mut stderr = child.stderr.take().expect("a pipe");
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !said.ends_with(b"/limit/ann\n") {
        assert_eq!(stderr.read(&mut byte).expect("text"), 1, "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    let said = String::from_utf8(said).expect("text");
    let ports: Vec<&str> = said.matches(|c: char| c.is_ascii_digit()).collect();
    assert!(!ports.is_empty() && !said.contains('\u{1b}'), "{said:?}");
    // Ports are another each time.
    let mut shape = String::new();
    for word in said.split_inclusive([':', '\n', '/']) {
        let port: String = word.chars().take_while(char::is_ascii_digit).collect();
        let is_port = port.len() > 3 && shape.ends_with(':');
        shape.push_str(if is_port { "PORT" } else { "" });
        shape.push_str(if is_port { &word[port.len()..] } else { word });
    }
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "Tidegate {version} is ready

  http   http://127.0.0.1:PORT
  grpc   127.0.0.1:PORT
  resp   127.0.0.1:PORT
  admin  http://127.0.0.1:PORT

  rules  one to try it with; bring your own with --rules FILE or --limit '100/minute per ip'
         default/demo: 10/minute per key

Try it; the eleventh call in a row is refused:

  curl -i http://127.0.0.1:PORT/limit/ann
"
    );
    assert_eq!(shape, expected);
}

#[test]
fn services_can_be_off_or_at_a_socket_in_the_file_system() {
    let folder = Folder::new("unix");
    let socket = format!("unix:{}", folder.file("resp.sock"));
    let daemon = serve(&["--resp", &socket, "--grpc", "off"]);
    assert_eq!(daemon.address("resp"), socket);
    assert_eq!(daemon.ready["addresses"]["grpc"], Value::Null);
    assert!(is_open(&socket));
    daemon.stop();
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0, "it is removed");

    // One that was killed leaves it behind, and the next one takes its place.
    serve(&["--resp", &socket]).kill();
    assert!(folder.path().join("resp.sock").exists());
    let daemon = serve(&["--resp", &socket]);
    assert!(is_open(&socket));
    daemon.stop();
}

#[test]
fn sigterm_closes_the_sockets_and_ends_with_0() {
    for signal in [Signal::TERM, Signal::INT] {
        let daemon = serve(&[]);
        let address = daemon.address("http");
        daemon.signal(signal);
        let (status, log) = daemon.end();
        assert_eq!(status.code(), Some(0), "{log:?}");
        assert!(log.iter().any(|line| line.contains("stopping")), "{log:?}");
        assert!(log.last().is_some_and(|line| line.contains("stopped")), "{log:?}");
        assert!(!is_open(&address));
    }
}

#[test]
fn sighup_reads_the_rules_again_and_says_so() {
    let folder = Folder::new("hup");
    let rules = folder.write("rules.yaml", RULES);
    let mut daemon = serve(&["--rules", &rules]);
    daemon.signal(Signal::HUP);
    daemon.wait_for("reading the files again");
    daemon.wait_for("rules reloaded: 0 changed");
    daemon.stop();

    let mut daemon = serve(&[]);
    daemon.signal(Signal::HUP);
    daemon.wait_for("there are no files to read again");
    daemon.stop();
}

#[test]
fn changed_rules_are_put_in_force_and_broken_ones_are_not() {
    let folder = Folder::new("watch");
    let rules = folder.write("rules.yaml", RULES);
    let mut daemon = serve(&["--rules", &rules]);
    folder.write("rules.yaml", &RULES.replace("10/minute", "20/minute"));
    daemon.wait_for("rules reloaded: 1 changed");
    folder.write("rules.yaml", &RULES.replace("10/minute", "twenty"));
    daemon.wait_for("ERROR");
    daemon.wait_for("rules.yaml:1:");
    daemon.stop();
}

#[test]
fn state_is_written_at_the_end_and_read_at_the_start() {
    let folder = Folder::new("state");
    let state = folder.file("state");
    let mut daemon = serve(&["--state", &state]);
    daemon.wait_for("there is no state yet");
    assert_eq!(daemon.stop().0.code(), Some(0));
    let mut daemon = serve(&["--state", &state]);
    daemon.wait_for("the state was read");
    daemon.stop();
}

#[test]
fn state_is_written_every_ten_seconds_for_those_that_are_killed() {
    let folder = Folder::new("killed");
    let state = folder.file("state");
    let mut daemon = serve(&["--state", &state, "--log-level", "debug"]);
    daemon.wait_for("the state was written");
    daemon.kill();
    let mut daemon = serve(&["--state", &state]);
    daemon.wait_for("the state was read");
    daemon.stop();
}

#[test]
fn a_state_that_cannot_be_used_is_put_aside() {
    let folder = Folder::new("refused");
    let state = folder.write("state", "this is no state");
    let mut daemon = serve(&["--state", &state]);
    let line = daemon.wait_for("the state is not used");
    assert!(line.contains("is not a state file") && line.contains("state.refused"), "{line}");
    daemon.stop();
    let aside = std::fs::read_to_string(folder.file("state.refused"));
    assert_eq!(aside.expect("it is kept"), "this is no state");
}

#[test]
fn the_log_is_json_where_that_is_asked_for() {
    let daemon = serve(&["--log-format", "json"]);
    let (_, log) = daemon.stop();
    assert!(log.len() >= 3, "{log:?}");
    for line in &log {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"));
        let parts = ["timestamp", "level", "message", "target"].map(|name| line[name].is_string());
        assert_eq!(parts, [true; 4], "{line}");
    }
    let ready: Value = serde_json::from_str(&log[0]).expect("JSON");
    assert_eq!((&ready["message"], &ready["rules"]), (&"ready".into(), &1.into()));
    assert!(ready["http"].as_str().is_some_and(|http| http.starts_with("127.0.0.1:")), "{ready}");
}

#[test]
fn the_level_of_the_log_can_be_changed_while_it_runs() {
    let mut daemon = serve(&["--log-level", "error"]);
    let admin = daemon.address("admin");
    let body = r#"{"level":"info"}"#;
    let request = format!(
        "PUT /v1/log-level HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = String::from_utf8(exchange(&admin, request.as_bytes())).expect("text");
    assert!(answer.contains("200 OK") && answer.ends_with("{\"level\":\"info\"}\n"), "{answer}");
    // What operators change is told at any level.
    let line = daemon.wait_for("an operator's change");
    assert!(line.contains("action=\"log-level\""), "{line}");
    assert_eq!(daemon.log.len(), 1, "nothing else is an error: {:?}", daemon.log);
    daemon.signal(Signal::HUP);
    daemon.wait_for("there are no files to read again");
    daemon.stop();
}

#[test]
fn concurrency_limits_are_warned_of_at_the_start_and_at_a_reload() {
    let folder = Folder::new("places");
    let text = |name: &str| {
        format!("{{ domain: api, rules: [{{ name: {name}, per: [user], limit: 2 at once }}] }}\n")
    };
    let rules = folder.write("rules.yaml", &text("first"));
    let mut daemon = serve(&["--rules", &rules]);
    let line = daemon.wait_for("has a concurrency limit");
    assert!(line.contains("WARN") && line.contains("rule `first` of domain `api`"), "{line}");
    folder.write("rules.yaml", &text("second"));
    daemon.signal(Signal::HUP);
    let line = daemon.wait_for("has a concurrency limit");
    assert!(line.contains("rule `second`"), "{line}");
    // Many of them do not fill the log.
    let many = (0..12).map(|at| format!("{{ name: r{at}, per: [user], limit: 2 at once }}"));
    let many = many.collect::<Vec<_>>().join(", ");
    folder.write("rules.yaml", &format!("{{ domain: api, rules: [{many}] }}\n"));
    daemon.signal(Signal::HUP);
    let line = daemon.wait_for("the same is true of more rules");
    assert!(line.contains("rules=2"), "{line}");
    daemon.stop();
}

#[test]
fn a_second_daemon_does_not_touch_the_state_of_the_first() {
    let folder = Folder::new("second");
    let state = folder.file("state");
    let first = serve(&["--state", &state]);
    let second = command().args(["serve", "--state", &state]).args(FREE_PORTS).output();
    let second = second.expect("the command starts");
    assert_eq!(second.status.code(), Some(2));
    let expected = format!(
        "error: --state: another daemon keeps its state in {state}: stop it, or give each a file of its own\n"
    );
    assert_eq!(String::from_utf8_lossy(&second.stderr), expected);
    // One that was killed is not in the way.
    first.kill();
    serve(&["--state", &state]).stop();
}

#[test]
fn a_service_manager_is_told_when_it_is_ready_reloading_and_stopping() {
    let folder = Folder::new("notify");
    let path = folder.file("notify.sock");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
    let next = || {
        let mut buffer = [0; 4096];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let rules = folder.write("rules.yaml", RULES);
    let mut command = command();
    command.args(["serve", "--json", "--rules", &rules]).args(FREE_PORTS);
    command.env("NOTIFY_SOCKET", &path);
    let daemon = Daemon::start(command);
    assert_eq!(next(), "READY=1\n");
    daemon.signal(Signal::HUP);
    let reloading = next();
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(next(), "READY=1\n");
    daemon.signal(Signal::TERM);
    assert_eq!(next(), "STOPPING=1\n");
    assert_eq!(daemon.end().0.code(), Some(0));
}

/// A shell that makes its standard input descriptor 3, as a service manager would have it.
const ACTIVATE: &str =
    "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1; export LISTEN_PID LISTEN_FDS; exec \"$@\"";

#[test]
fn sockets_of_a_service_manager_are_used_by_name_or_by_order() {
    for (names, service) in [(Some("resp"), "resp"), (None, "http")] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let binary = command();
        let mut command = std::process::Command::new("sh");
        command.args(["-c", ACTIVATE, "sh"]).arg(binary.get_program());
        command.args(["serve", "--json"]).args(FREE_PORTS);
        command.stdin(Stdio::from(OwnedFd::from(listener)));
        if let Some(names) = names {
            command.env("LISTEN_FDNAMES", names);
        }
        let daemon = Daemon::start(command);
        assert_eq!(daemon.address(service), address);
        assert!(is_open(&address));
        assert_eq!(daemon.stop().0.code(), Some(0));
    }
}

#[test]
fn it_is_ready_soon_after_it_was_started() {
    // A bound that holds on a busy machine as well; the figure itself is measured by the benchmark.
    let start = || {
        let (send, started) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || send.send(Box::new(serve(&[]))));
        started
    };
    let daemon = seen_within(Duration::from_secs(5), start, |started| {
        started.recv_timeout(Duration::from_secs(20)).expect("it is ready by now")
    });
    daemon.stop();
}

#[test]
fn a_client_that_stays_does_not_hold_the_end_back() {
    let daemon = serve(&["--drain-timeout", "200ms"]);
    let mut client = TcpStream::connect(daemon.address("http")).expect("somebody listens");
    client.write_all(b"GET /heal").expect("it reads");
    let (status, log) = daemon.stop();
    assert_eq!(status.code(), Some(0), "{log:?}");
}
