//! `tidegate gateway` as its users start it, in front of a real nginx.

mod daemon;
mod run;

use std::collections::BTreeSet;
use std::fs::{File, read_to_string};
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use daemon::{Daemon, Folder, Signal, command, exchange, http, is_open};

/// How many an nginx that leaves takes on each connection.
const REQUESTS_OF_A_CONNECTION: usize = 7;

/// An nginx that serves one text, and ends with this value.
struct Nginx {
    child: Child,
    address: String,
}

impl Nginx {
    fn start(folder: &Folder) -> Self {
        Self::listening(folder, "", "")
    }

    /// With TLS, HTTP/2 where that is agreed on, and the end of a connection after so many requests on it.
    fn leaving(folder: &Folder) -> Self {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let own = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let certificate = folder.write("nginx.pem", &own.cert.pem());
        let key = folder.write("nginx-key.pem", &own.signing_key.serialize_pem());
        let settings = format!(
            "ssl_certificate {certificate}; ssl_certificate_key {key}; keepalive_requests {REQUESTS_OF_A_CONNECTION};"
        );
        Self::listening(folder, "ssl http2", &settings)
    }

    fn listening(folder: &Folder, how: &str, settings: &str) -> Self {
        let address = tidegate_testing::free_address().to_string();
        let temporary = folder.file("tmp");
        std::fs::create_dir_all(&temporary).expect("a folder");
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {temporary}/{name};"));
        let config = format!(
            "daemon off; master_process off; pid {}; error_log {};\n\
             events {{ }}\n\
             http {{ access_log off; {}\n\
             server {{ listen {address} {how}; {settings}\n\
             location / {{ return 200 \"nginx saw $http_host $uri over $server_protocol on $connection.\"; }} }} }}\n",
            folder.file("pid"),
            folder.file("error.log"),
            paths.join(" ")
        );
        let config = folder.write("nginx.conf", &config);
        // Debian keeps it where only root's PATH leads.
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut nginx = Command::new("nginx");
        nginx.env("PATH", path).args(["-e", &folder.file("error.log"), "-c", &config]);
        let child =
            nginx.process_group(0).stdin(Stdio::null()).spawn().expect("nginx is installed");
        let nginx = Self { child, address };
        wait_until("nginx listens", || is_open(&nginx.address));
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_so() {
            return;
        }
        // Another process is waited for, and has nothing to wait on.
        std::thread::park_timeout(Duration::from_millis(50));
    }
    panic!("never: {what}");
}

fn gateway(flags: &[&str]) -> Daemon {
    let mut command = command();
    command.args(["gateway", "--json", "--listen", ":0", "--admin", ":0"]).args(flags);
    Daemon::start(command)
}

#[test]
fn a_gateway_limits_what_nginx_serves_and_drains_when_it_is_told() {
    let folder = Folder::new("gateway");
    let nginx = Nginx::start(&folder);
    let upstream = format!("http://{}", nginx.address);
    let log = folder.file("access.log");
    let flags = ["--upstream", &upstream, "--limit", "2/hour per ip", "--access-log", &log];
    let gateway = gateway(&flags);
    let address = gateway.address("gateway");
    for _ in 0..2 {
        let (status, answer) = http(&address, "GET /page");
        assert_eq!(status, 200, "{answer}");
        assert!(answer.contains("nginx saw localhost /page"), "{answer}");
        assert!(answer.contains("ratelimit-policy: "), "{answer}");
    }
    let (status, answer) = http(&address, "GET /page");
    assert_eq!(status, 429, "{answer}");
    let (_, metrics) = http(&gateway.address("admin"), "GET /metrics");
    let counted = r#"tidegate_answers_total{protocol="gateway",verdict="denied"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    let (status, _) = gateway.stop();
    assert_eq!(status.code(), Some(0));
    let lines = read_to_string(&log).expect("a log");
    let statuses: Vec<&str> = lines.lines().filter_map(|line| line.split(' ').nth(8)).collect();
    assert_eq!(statuses, ["200", "200", "429"], "{lines}");
}

#[test]
fn a_server_with_tls_and_http2_that_ends_its_connections_costs_no_request() {
    const REQUESTS: usize = 50;
    let connections = Mutex::<BTreeSet<String>>::default();
    let folder = Folder::new("gateway-leaving");
    let nginx = Nginx::leaving(&folder);
    let (upstream, ca) = (format!("https://{}", nginx.address), folder.file("nginx.pem"));
    let flags = ["--upstream", &upstream, "--upstream-ca", &ca, "--limit", "1000000/s per ip"];
    let gateway = gateway(&flags);
    let address = gateway.address("gateway");
    let asking = || {
        for number in 0..REQUESTS {
            // A POST is not sent again where it may have been taken.
            let method = if number % 2 == 0 { "GET" } else { "POST" };
            let (status, answer) = http(&address, &format!("{method} /page"));
            assert_eq!(status, 200, "{answer}");
            let (_, connection) = answer.split_once("over HTTP/2.0 on ").expect("HTTP/2");
            connections.lock().expect("nobody panics").insert(connection.to_owned());
        }
    };
    std::thread::scope(|scope| {
        for client in [0; 4].map(|_| scope.spawn(asking)) {
            client.join().expect("no request is lost");
        }
    });
    let connections = connections.lock().expect("nobody panics").len();
    assert!(connections >= 4 * REQUESTS / REQUESTS_OF_A_CONNECTION, "{connections}");
    let (_, metrics) = http(&gateway.address("admin"), "GET /metrics");
    let failed: Vec<_> = metrics
        .lines()
        .filter(|line| line.starts_with("tidegate_upstream_failures_total{"))
        .filter(|line| !line.ends_with(" 0"))
        .collect();
    assert!(metrics.contains("tidegate_upstream_responses_total{"), "{metrics}");
    assert!(failed.is_empty(), "{failed:?}");
    gateway.stop();
}

/// Hands the socket on standard input over as a service manager does.
const ACTIVATE: &str =
    "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1; export LISTEN_PID LISTEN_FDS; exec \"$@\"";

#[test]
fn a_restart_on_one_socket_drops_no_request() {
    let folder = Folder::new("gateway-restart");
    let nginx = Nginx::start(&folder);
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address").to_string();
    let start = || {
        let binary = command();
        let mut command = Command::new("sh");
        command.args(["-c", ACTIVATE, "sh"]).arg(binary.get_program());
        command.args(["gateway", "--json", "--admin", "off", "--limit", "1000000/s per ip"]);
        command.args(["--upstream", &format!("http://{}", nginx.address)]);
        let socket = socket.try_clone().expect("another descriptor");
        command.stdin(Stdio::from(OwnedFd::from(socket)));
        Daemon::start(command)
    };
    let done = AtomicBool::new(false);
    let asked = std::thread::scope(|scope| {
        let asking = || {
            let mut asked = 0;
            while !done.load(Ordering::SeqCst) {
                let (status, answer) = http(&address, "GET /");
                assert_eq!(status, 200, "{answer}");
                asked += 1;
            }
            asked
        };
        let first = start();
        let clients = [0; 4].map(|_| scope.spawn(asking));
        let mut running = first;
        for _ in 0..3 {
            assert_eq!(running.stop().0.code(), Some(0));
            running = start();
            assert_eq!(http(&address, "GET /").0, 200);
        }
        done.store(true, Ordering::SeqCst);
        let asked: usize = clients.into_iter().map(|client| client.join().expect("no drop")).sum();
        running.stop();
        asked
    });
    assert!(asked > 4, "{asked}");
}

#[test]
fn routes_are_in_the_settings_file() {
    let folder = Folder::new("gateway-routes");
    let nginx = Nginx::start(&folder);
    let rules = "{ domain: api, rules: [ { name: all, limit: 1/hour } ] }";
    folder.write("rules.yaml", rules);
    let config = format!(
        "rules: rules.yaml\nupstream: http://{}\nroutes:\n  - path: /api\n    domain: api\n  - path: /web\n",
        nginx.address
    );
    let config = folder.write("gateway.yaml", &config);
    let gateway = gateway(&["--config", &config]);
    let address = gateway.address("gateway");
    let status = |path: &str| http(&address, &format!("GET {path}")).0;
    assert_eq!(
        [status("/api"), status("/api/x"), status("/web"), status("/")],
        [200, 429, 200, 404]
    );
    gateway.signal(Signal::HUP);
    assert_eq!(status("/web"), 200);
    gateway.stop();
}

#[test]
fn the_rule_of_a_flag_holds_in_the_domain_of_a_flag() {
    let folder = Folder::new("gateway-domain");
    let nginx = Nginx::start(&folder);
    let upstream = format!("http://{}", nginx.address);
    let gateway =
        gateway(&["--upstream", &upstream, "--domain", "api", "--limit", "1/hour per ip"]);
    let address = gateway.address("gateway");
    assert_eq!([(); 2].map(|()| http(&address, "GET /").0), [200, 429]);
    gateway.stop();
}

#[test]
fn a_route_whose_domain_has_no_rules_is_told_of_at_the_start_and_after_a_reload() {
    let folder = Folder::new("gateway-no-rules");
    let rules = |domain: &str| {
        let rules = format!("{{ domain: {domain}, rules: [ {{ name: all, limit: 1/hour }} ] }}");
        folder.write("rules.yaml", &rules)
    };
    rules("api");
    let config = folder.write(
        "gateway.yaml",
        "rules: rules.yaml\nupstream: http://127.0.0.1:1\nroutes:\n  - { path: /api, domain: api }\n  \
         - { hosts: [a.example], domain: nosuch }\n",
    );
    let mut gateway = gateway(&["--config", &config]);
    let line =
        gateway.wait_for("route a.example/ asks domain `nosuch`, for which there are no rules");
    assert!(line.contains("WARN"), "{line}");
    assert!(!gateway.log.iter().any(|line| line.contains("asks domain `api`")));
    rules("other");
    gateway.signal(Signal::HUP);
    gateway.wait_for("route */api asks domain `api`, for which there are no rules");
    gateway.stop();
}

#[test]
fn a_body_has_the_time_that_a_flag_a_variable_or_the_file_gives_it() {
    let folder = Folder::new("gateway-body-timeout");
    // It takes connections and never answers: nothing ends a request but the time of its body.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let upstream = format!("http://{}", silent.local_addr().expect("an address"));
    let file = |name: &str, text: &str| {
        folder.write(name, &format!("limit: 100/s per ip\nupstream: {upstream}\n{text}"))
    };
    let of_all = file("all.yaml", "body_timeout: 200ms\n");
    let of_route =
        file("route.yaml", "body_timeout: 1h\nroutes: [ { path: /, body_timeout: 200ms } ]\n");
    let long = file("long.yaml", "body_timeout: 1h\n");
    let none = file("none.yaml", "");
    for (config, flags, variable) in [
        (&of_all, &[][..], None),
        (&of_route, &[], None),
        (&long, &["--body-timeout", "200ms"], Some("2h")),
        (&none, &[], Some("200ms")),
    ] {
        let mut command = command();
        command.args(["gateway", "--json", "--listen", ":0", "--admin", "off", "--config", config]);
        command.args(flags).envs(variable.map(|time| ("TIDEGATE_BODY_TIMEOUT", time)));
        let gateway = Daemon::start(command);
        let half = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\nhalf";
        let answer = exchange(&gateway.address("gateway"), half);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 408 "), "{config} {flags:?} {variable:?}: {answer:?}");
        gateway.kill();
    }
}

/// A gateway in front of nothing, which answers 502 and writes that down.
fn logging(log: &str) -> Daemon {
    gateway(&["--upstream", "http://127.0.0.1:1", "--limit", "1000/s per ip", "--access-log", log])
}

#[test]
fn an_access_log_that_fails_is_told_of_once() {
    let mut gateway = logging("/dev/full");
    let address = gateway.address("gateway");
    assert_eq!(http(&address, "GET /").0, 502);
    let line = gateway.wait_for("the access log /dev/full cannot be written");
    assert!(line.contains("WARN") && line.contains("No space left"), "{line}");
    for _ in 0..5 {
        assert_eq!(http(&address, "GET /").0, 502);
    }
    let (status, log) = gateway.stop();
    assert_eq!(status.code(), Some(0));
    let told = log.iter().filter(|line| line.contains("cannot be written")).count();
    assert_eq!(told, 1, "{log:?}");
}

#[test]
fn an_access_log_whose_folder_is_gone_is_told_of_and_so_is_its_return() {
    let folder = Folder::new("gateway-log-gone");
    let logs = folder.file("logs");
    std::fs::create_dir(&logs).expect("a folder");
    let log = format!("{logs}/access.log");
    let mut gateway = logging(&log);
    std::fs::remove_dir_all(&logs).expect("a folder to remove");
    gateway.signal(Signal::HUP);
    gateway.wait_for("cannot be written (`access_log`)");
    std::fs::create_dir(&logs).expect("a folder");
    assert_eq!(http(&gateway.address("gateway"), "GET /back").0, 502);
    gateway.wait_for("is written again");
    assert_eq!(gateway.stop().0.code(), Some(0));
    assert!(read_to_string(&log).expect("a log").contains("GET /back"));
}

#[test]
fn a_pipe_that_nobody_reads_stops_neither_the_start_nor_the_end() {
    let folder = Folder::new("gateway-log-pipe");
    let pipe = folder.file("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo is there");
    assert!(made.success());
    let unread = logging(&pipe);
    assert_eq!(http(&unread.address("gateway"), "GET /").0, 502);
    assert_eq!(unread.stop().0.code(), Some(0));
    let mut read = logging(&pipe);
    let mut reader = BufReader::new(File::open(&pipe).expect("somebody writes"));
    assert_eq!(http(&read.address("gateway"), "GET /read").0, 502);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a line");
    assert!(line.contains("GET /read"), "{line}");
    drop(reader);
    assert_eq!(http(&read.address("gateway"), "GET /unread").0, 502);
    read.wait_for("cannot be written (`access_log`): Broken pipe");
    let _reader = File::options().read(true).write(true).open(&pipe).expect("a pipe");
    assert_eq!(http(&read.address("gateway"), "GET /again").0, 502);
    let again = read.wait_for("is written again");
    assert!(again.contains("lost=1"), "{again}");
    assert_eq!(read.stop().0.code(), Some(0));
}

#[test]
fn a_route_to_files_says_which() {
    let folder = Folder::new("gateway-greeting");
    let config = folder.write("gateway.yaml", "limit: 1/s per ip\nfolder: .\n");
    let mut command = command();
    command.args(["gateway", "--listen", ":0", "--admin", "off", "--config", &config]);
    let child = command.stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the command starts");
    let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let route = lines.map_while(Result::ok).find(|line| line.contains("  route "));
    child.kill().and_then(|()| child.wait()).expect("it runs");
    let files = format!("*/ to files in {}/., domain default", folder.path().display());
    assert!(route.as_ref().is_some_and(|line| line.contains(&files)), "{route:?}");
}

#[test]
fn what_cannot_be_is_told_with_what_to_do() {
    let folder = Folder::new("gateway-wrong");
    let refused = |flags: &[&str]| {
        let mut command = command();
        command.args(["gateway", "--listen", ":0", "--admin", "off"]).args(flags);
        let output = command.output().expect("the command starts");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).expect("text")
    };
    let none = refused(&[]);
    assert!(none.contains("nowhere to forward to") && none.contains("--upstream"), "{none}");
    let path = refused(&["--upstream", "http://a/b"]);
    assert!(path.contains("without a path"), "{path}");
    let config =
        folder.write("gateway.yaml", "upstream: http://127.0.0.1:1\nroutes:\n  - pth: /a\n");
    let slip = refused(&["--config", &config]);
    assert!(slip.contains("gateway.yaml:3") && slip.contains("did you mean `path`?"), "{slip}");
    // No server could ever be well.
    let config = folder
        .write("gateway.yaml", "upstream: http://127.0.0.1:1\nprobe:\n  path: \"health check\"\n");
    let probe = refused(&["--config", &config]);
    assert!(probe.contains("gateway.yaml:3") && probe.contains("/healthz"), "{probe}");
    let (cert, key) = (folder.write("c.pem", "nonsense"), folder.write("k.pem", "nonsense"));
    let flags = ["--upstream", "http://127.0.0.1:1", "--tls-cert", &cert, "--tls-key", &key];
    let tls = refused(&flags);
    assert!(tls.contains("TLS: ") && tls.contains("c.pem"), "{tls}");
    assert!(tls.contains("--tls-cert"), "{tls}");
    let log = folder.file("none/access.log");
    let log = refused(&["--upstream", "http://127.0.0.1:1", "--access-log", &log]);
    assert!(log.contains("--access-log: ") && log.contains("none/access.log"), "{log}");
    let config = folder.write("gateway.yaml", "folder: none\n");
    let files = refused(&["--config", &config]);
    assert!(files.contains("`folder`: ") && files.contains("/none"), "{files}");
    let time = refused(&["--upstream", "http://127.0.0.1:1", "--response-timeout", "0"]);
    assert!(time.contains("longer than nothing"), "{time}");
}
