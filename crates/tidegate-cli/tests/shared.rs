//! Claims about daemons that share a store: real processes, and a real server that is killed, paused and
//! brought back.

#![cfg(unix)]

mod daemon;
mod stores;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use daemon::{Daemon, Folder, command, http};
use serde_json::Value;
use stores::{Redis, somebody_else, until};
use tidegate_testing::{free_address, free_port};

/// Of a store that is asked by a busy machine: the claims are about counts, not about times.
const PATIENT: [&str; 2] = ["--store-deadline", "10s"];
const SECRET: &str = "a secret of more than sixteen bytes";

/// The command for a daemon on this store, with one rule and these flags.
fn on_store(url: &str, limit: &str, flags: &[&str]) -> std::process::Command {
    let mut command = command();
    command.args(["serve", "--limit", limit, "--store", url]);
    let ports = daemon::FREE_PORTS.chunks(2).filter(|pair| !flags.contains(&pair[0])).flatten();
    command.args(ports).args(flags).env("TIDEGATE_SECRET", SECRET);
    command
}

fn started(url: &str, limit: &str, flags: &[&str]) -> Daemon {
    let mut command = on_store(url, limit, flags);
    command.arg("--json");
    Daemon::start(command)
}

/// What a check of this key is answered with.
fn check(address: &str, key: &str) -> (u16, Value) {
    let body = format!(r#"{{"attributes":{{"key":"{key}"}}}}"#);
    let request = format!(
        "POST /v1/check HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = daemon::exchange(address, request.as_bytes());
    let answer = String::from_utf8(answer).expect("text");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    (status.expect("a status"), serde_json::from_str(body).expect("JSON"))
}

/// The value of a metric.
fn metric(daemon: &Daemon, series: &str) -> u64 {
    let (_, text) = http(&daemon.address("admin"), "GET /metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {series} in {text}")).parse().expect("a number")
}

/// How a daemon that does not start ends, and what it says.
fn refused(mut command: std::process::Command) -> (i32, String) {
    let output = command.output().expect("the command starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    (output.status.code().expect("a code"), String::from_utf8(output.stderr).expect("text"))
}

#[test]
fn three_daemons_on_one_store_share_one_limit_exactly() {
    let redis = Redis::start(&[]);
    let daemons = [(); 3].map(|()| started(&redis.url(), "50/day per key", &PATIENT));
    let addresses: Vec<String> = daemons.iter().map(|one| one.address("http")).collect();
    let callers: Vec<_> = (0..200)
        .map(|caller| {
            let address = addresses[caller % addresses.len()].clone();
            thread::spawn(move || http(&address, "GET /limit/ann").0)
        })
        .collect();
    let statuses: Vec<u16> =
        callers.into_iter().map(|caller| caller.join().expect("it ended well")).collect();
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    assert_eq!((count(200), count(429)), (50, 150), "{statuses:?}");
    let (_, denied) = check(&addresses[0], "ann");
    assert_eq!((&denied["allowed"], &denied["degraded"]), (&false.into(), &false.into()));
    until("every daemon knows of the others", || {
        daemons.iter().all(|one| metric(one, "tidegate_store_nodes{group=\"1\"}") == 3)
    });
    for daemon in daemons {
        assert!(daemon.stop().0.success());
    }
}

#[test]
fn the_commands_of_a_pipeline_are_answered_as_if_they_came_one_after_the_other() {
    let redis = Redis::start(&[]);
    let daemon = started(&redis.url(), "3/day per key", &PATIENT);
    let mut said = String::from("PING\r\n");
    said.push_str(&"TG.CHECK default 1 key ann\r\n".repeat(4));
    said.push_str("TG.RESET default key ann\r\nTG.CHECK default 1 key ann\r\n");
    said.push_str(&"CL.THROTTLE bob 1 10 86400\r\n".repeat(3));
    said.push_str("TG.CHECK default\r\nECHO last\r\nQUIT\r\n");
    let answer = daemon::exchange(&daemon.address("resp"), said.as_bytes());
    let answer = String::from_utf8(answer).expect("text");
    let mut rest = answer.as_str();
    let mut next = |words: &str| {
        let (before, after) = rest.split_once(words).unwrap_or_else(|| panic!("{words:?}: {rest}"));
        rest = after;
        before.to_owned()
    };
    assert_eq!(next("+PONG\r\n"), "");
    // Whether it passed comes first, and what is left after the name and the number of the limit.
    for (allowed, left) in [(1, 2), (1, 1), (1, 0), (0, 0)] {
        next(&format!("*16\r\n:{allowed}\r\n$5\r\nlimit\r\n:3\r\n:{left}\r\n"));
        assert!(next("$5\r\nstore\r\n").len() < 80, "{answer}");
    }
    next("+OK\r\n");
    next("*16\r\n:1\r\n$5\r\nlimit\r\n:3\r\n:2\r\n");
    next("*5\r\n:0\r\n:2\r\n:1\r\n");
    next("*5\r\n:0\r\n:2\r\n:0\r\n");
    next("*5\r\n:1\r\n:2\r\n:0\r\n");
    next("-ERR wrong number of arguments");
    assert_eq!(next("$4\r\nlast\r\n+OK\r\n").lines().count(), 1);
    assert_eq!(rest, "");
}

/// Asks again and again, each time for another key, until it is told to stop. Gives how many answers were
/// degraded, and how many were not.
fn load(address: &str, end: &Arc<AtomicBool>) -> JoinHandle<(u64, u64)> {
    let (address, end) = (address.to_owned(), Arc::clone(end));
    thread::spawn(move || {
        let (mut degraded, mut whole) = (0, 0);
        while !end.load(Ordering::Relaxed) {
            let (status, answer) = check(&address, &format!("key{}", degraded + whole));
            assert_eq!((status, &answer["allowed"]), (200, &true.into()), "{answer}");
            match (answer["degraded"].as_bool(), answer["source"].as_str()) {
                (Some(true), Some("fallback")) => degraded += 1,
                (Some(false), Some("store")) => whole += 1,
                other => panic!("{other:?}: {answer}"),
            }
        }
        (degraded, whole)
    })
}

/// Under load, the store goes away, is missed, and comes back.
fn decides_on_while(
    daemon: &mut Daemon,
    away: impl FnOnce(),
    back: impl FnOnce() -> Option<Redis>,
) {
    let address = daemon.address("http");
    let end = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..4).map(|_| load(&address, &end)).collect();
    let is_degraded = || check(&address, "witness").1["degraded"].as_bool() == Some(true);
    until("the store decides", || !is_degraded());
    away();
    until("the daemon goes on without the store", is_degraded);
    until("the metrics say so", || metric(daemon, "tidegate_store_up{group=\"1\"}") == 0);
    assert_eq!(http(&address, "GET /readyz").0, 200, "decisions go on, so it is ready");
    assert!(metric(daemon, "tidegate_store_fallback_decisions_total{group=\"1\"}") > 0);
    let _redis = back();
    until("the store decides again", || !is_degraded());
    until("the metrics say so", || metric(daemon, "tidegate_store_up{group=\"1\"}") == 1);
    end.store(true, Ordering::Relaxed);
    let answers: Vec<(u64, u64)> =
        callers.into_iter().map(|one| one.join().expect("it ended well")).collect();
    assert!(answers.iter().all(|(degraded, whole)| *degraded > 0 && *whole > 0), "{answers:?}");
}

#[test]
fn decisions_go_on_while_the_store_is_killed_and_heal_when_it_is_back() {
    let redis = Redis::start(&[]);
    let port = redis.port;
    let mut daemon = started(&redis.url(), "1000000/s per key", &["--store-deadline", "200ms"]);
    let back = || Some(Redis::start_on(port, &[]));
    decides_on_while(&mut daemon, || drop(redis), back);
    let (status, log) = daemon.stop();
    assert!(status.success());
    let lines = log.iter().filter(|line| line.contains("store") && line.contains("WARN")).count();
    assert!((1..=3).contains(&lines), "a line for each change, not for each call: {log:#?}");
}

#[test]
fn decisions_go_on_while_the_store_is_paused_and_heal_when_it_goes_on() {
    let redis = Redis::start(&[]);
    let mut daemon = started(&redis.url(), "1000000/s per key", &["--store-deadline", "200ms"]);
    decides_on_while(
        &mut daemon,
        || redis.pause(),
        || {
            redis.go_on();
            None
        },
    );
    assert!(daemon.stop().0.success());
}

#[test]
fn a_rule_that_denies_without_the_store_is_answered_with_503_and_never_with_429() {
    let redis = Redis::start(&[]);
    let flags = ["--on-store-failure", "deny", "--store-deadline", "200ms"];
    let daemon = started(&redis.url(), "5/day per key", &flags);
    let address = daemon.address("http");
    until("the store decides", || check(&address, "bob").0 == 200);
    drop(redis);
    for _ in 0..10 {
        let (status, problem) = check(&address, "ann");
        assert_eq!((status, &problem["status"]), (503, &503.into()), "{problem}");
        assert_eq!((&problem["source"], &problem["degraded"]), (&"fallback".into(), &true.into()));
        let (status, answer) = http(&address, "GET /limit/ann");
        assert_eq!(status, 503);
        assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    }
    let resp = daemon::exchange(
        &daemon.address("resp"),
        b"TG.CHECK default 1 key ann\r\nCL.THROTTLE bob 1 1 60\r\nQUIT\r\n",
    );
    let resp = String::from_utf8(resp).expect("text");
    assert_eq!(resp.matches("-TGERR could not decide: the store").count(), 2, "{resp}");
}

#[test]
fn every_wrong_store_is_told_apart_and_keeps_the_daemon_from_starting() {
    let redis = Redis::start(&["--requirepass", "hunter2", "--databases", "4"]);
    let url = |rest: &str| format!("redis://{rest}");
    let nobody = free_address();
    let web = somebody_else(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let port = redis.port;
    for (store, words) in [
        (url(&nobody.to_string()), "the store cannot be reached"),
        (url(&format!("127.0.0.1:{port}")), "does not accept the user name or password"),
        (url(&format!(":wrong@127.0.0.1:{port}")), "does not accept the user name or password"),
        (url(&format!(":hunter2@127.0.0.1:{port}/7")), "no database of that number"),
        (url(&format!("127.0.0.1:{web}")), "not a Redis or Valkey server"),
        (format!("rediss://:hunter2@127.0.0.1:{port}"), "as a server without TLS does"),
        (format!("redis-cluster://:hunter2@127.0.0.1:{port}"), "the store is not a cluster"),
    ] {
        // A server without TLS waits for more of what it takes for a command, until whoever speaks TLS gives up.
        let flags: &[&str] = if store.starts_with("rediss:") { &[] } else { &PATIENT };
        let (code, said) = refused(on_store(&store, "5/day per key", flags));
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("error: --store redis"), "{said}");
        assert!(said.contains(words), "{store}: {said}");
        assert!(!said.contains("hunter2") && !said.contains("wrong@"), "{said}");
        assert_eq!(said.lines().filter(|line| line.starts_with("error")).count(), 1, "{said}");
    }
    // A password from a file stands nowhere.
    let folder = Folder::new("store-password");
    let file = folder.write("password", "hunter2\n");
    let flags = [&PATIENT[..], &["--store-password-file", &file]].concat();
    let daemon = started(&redis.url(), "5/day per key", &flags);
    assert_eq!(daemon.ready["store"]["urls"][0], redis.url());
    let (_, log) = daemon.stop();
    assert!(!log.join("\n").contains("hunter2"), "{log:?}");
}

#[test]
fn a_store_that_is_not_required_is_gone_on_with_when_it_comes() {
    let port = free_port();
    let url = format!("redis://127.0.0.1:{port}");
    let daemon = started(&url, "5/day per key", &["--store-required=false"]);
    let address = daemon.address("http");
    let (status, answer) = check(&address, "ann");
    assert_eq!((status, &answer["degraded"]), (200, &true.into()), "{answer}");
    assert_eq!(answer["source"], "fallback");
    let _redis = Redis::start_on(port, &[]);
    until("the store decides", || check(&address, "bob").1["degraded"] == false);
    assert!(daemon.stop().0.success());
}

#[test]
fn a_secret_is_needed_and_is_long_enough_and_other_secrets_share_nothing() {
    let redis = Redis::start(&[]);
    let mut command = on_store(&redis.url(), "1/day per key", &[]);
    command.env_remove("TIDEGATE_SECRET");
    let (code, said) = refused(command);
    assert_eq!(code, 2);
    assert!(said.contains("`openssl rand -hex 32`") && said.contains("--secret-file"), "{said}");
    let mut command = on_store(&redis.url(), "1/day per key", &[]);
    command.env("TIDEGATE_SECRET", "fifteen letters");
    let (code, said) = refused(command);
    assert_eq!(code, 2);
    assert!(said.contains("at least 16 characters"), "{said}");
    let folder = Folder::new("fleet-secret");
    let file = folder.write("secret", &format!("{SECRET}\n"));
    let mut command = on_store(&redis.url(), "1/day per key", &PATIENT);
    command.env_remove("TIDEGATE_SECRET").args(["--json", "--secret-file", &file]);
    let same = Daemon::start(command);
    let first = started(&redis.url(), "1/day per key", &PATIENT);
    let mut command = on_store(&redis.url(), "1/day per key", &PATIENT);
    command.env("TIDEGATE_SECRET", "another secret of many bytes").arg("--json");
    let other = Daemon::start(command);
    let allowed = |daemon: &Daemon| check(&daemon.address("http"), "ann").1["allowed"].as_bool();
    assert_eq!(allowed(&first), Some(true));
    assert_eq!(allowed(&same), Some(false), "the file and the variable hold one secret");
    assert_eq!(allowed(&other), Some(true), "whoever has another secret has other keys");
}

#[test]
fn what_is_in_the_store_says_nothing_about_whom() {
    let redis = Redis::start(&[]);
    let daemon = started(&redis.url(), "5/day per key", &PATIENT);
    check(&daemon.address("http"), "ann@example.com");
    let keys = redis.says("KEYS *");
    assert!(keys.starts_with('*') && !keys.starts_with("*0"), "{keys}");
    for words in ["ann", "example", "limit", "default", SECRET] {
        assert!(!keys.contains(words), "{keys}");
    }
}

#[test]
fn a_person_is_told_which_store_it_is() {
    let redis = Redis::start(&[]);
    let url = format!("redis://default:anything@127.0.0.1:{}", redis.port);
    // A server without a password takes none, so the user has to be the default one.
    let mut command = on_store(&redis.url(), "5/day per key", &["--consistency", "leased"]);
    command.args(["--log-format", "json"]).arg("--json");
    let mut daemon = Daemon::start(command);
    let line = daemon.wait_for("\"ready\"");
    assert!(line.contains(&redis.url()) && line.contains("leased"), "{line}");
    daemon.stop();
    let (_, said) = refused(on_store(&url, "5/day per key", &["--http", "192.0.2.1:1"]));
    assert!(said.contains("there is a password in --store"), "{said}");
    assert!(!said.contains("anything"), "{said}");
}

#[test]
fn a_drain_ends_in_time_where_the_store_is_gone() {
    let redis = Redis::start(&[]);
    let flags = ["--drain-timeout", "1s", "--consistency", "leased"];
    let daemon = started(&redis.url(), "1000/s per key", &flags);
    check(&daemon.address("http"), "ann");
    redis.pause();
    let (sent, ended) = std::sync::mpsc::sync_channel(1);
    thread::spawn(move || sent.send(daemon.stop().0));
    let status = ended.recv_timeout(Duration::from_secs(20)).expect("it ends");
    assert!(status.success());
    redis.go_on();
}

#[test]
fn clients_that_leave_in_mid_call_leave_nothing_behind() {
    let redis = Redis::start(&[]);
    let daemon = started(&redis.url(), "1000/day per key", &["--store-deadline", "2s"]);
    let address = daemon.address("http");
    check(&address, "ann");
    redis.pause();
    for number in 0..20 {
        let mut client = std::net::TcpStream::connect(&address).expect("somebody listens");
        let request = format!("GET /limit/key{number} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        std::io::Write::write_all(&mut client, request.as_bytes()).expect("it reads");
    }
    let open = "tidegate_connections_open{listener=\"http\"}";
    until("their connections are closed", || metric(&daemon, open) == 0);
    redis.go_on();
    let in_flight = "tidegate_store_in_flight{group=\"1\"}";
    until("nothing is under way", || metric(&daemon, in_flight) == 0);
    until("the store decides", || check(&address, "ann").1["degraded"] == false);
}

#[test]
fn the_doctor_says_whether_a_store_is_fit_for_limits() {
    let doctor = |flags: &[&str]| {
        let output = command().arg("doctor").args(flags).output().expect("the command starts");
        let said = String::from_utf8(output.stdout).expect("text");
        (output.status.code().expect("a code"), said)
    };
    let redis = Redis::start(&["--maxmemory", "100mb", "--maxmemory-policy", "noeviction"]);
    // A busy machine is slow, which is what it would rightly be told.
    let flags = ["--store", &redis.url(), "--store-deadline", "10s"];
    let (code, said) = doctor(&flags);
    assert_eq!(code, 0, "{said}");
    for words in ["Redis 7", "primary", "scripts  run", "clock", "noeviction", "latency"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    redis.says("CONFIG SET maxmemory-policy allkeys-lru");
    let (code, said) = doctor(&flags);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("warn  memory") && said.contains("limits start anew"), "{said}");
    let (code, said) = doctor(&[&flags[..], &["--json"]].concat());
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, &said["verdict"]), (1, &"warn".into()));
    assert_eq!(said["stores"][0]["url"], redis.url());
    let (code, said) = doctor(&["--store", &format!("redis://:hunter2@{}", free_address())]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("fail  reached") && !said.contains("hunter2"), "{said}");
    assert_eq!(doctor(&[]).0, 2, "there is no store to look at");
}
