//! `tidegate bench` against servers of a few lines that count what they are asked, and against our own.

mod daemon;
mod run;
mod servers;

use std::process::{Command, Stdio};

use run::{Ran, tidegate};
use serde_json::Value;
use servers::{ASKED_MAX, Server, Then, grpc, http, http2, resetting, resp};

fn bench(protocol: &str, server: &Server, more: &[&str]) -> (i32, Value) {
    bench_at(protocol, &server.address.to_string(), more)
}

fn bench_at(protocol: &str, address: &str, more: &[&str]) -> (i32, Value) {
    let mut args = vec!["bench", protocol, address, "--duration", "1s", "--json"];
    args.extend_from_slice(more);
    let ran = tidegate(&args);
    assert_eq!(ran.stderr, "", "nothing but data where there is no terminal");
    (ran.code, ran.json())
}

fn number(json: &Value, name: &str) -> u64 {
    json[name].as_u64().unwrap_or_else(|| panic!("{name} in {json:#}"))
}

/// Every request was answered, and both sides have counted the same; every third one is denied.
fn counts_add_up(server: &Server, code: i32, json: &Value) {
    let asked = server.asked();
    assert_eq!((code, number(json, "errors"), number(json, "unanswered")), (0, 0, 0), "{json:#}");
    assert!(asked > 100, "{asked}");
    assert_eq!(number(json, "answers"), asked);
    assert_eq!(number(json, "allowed") + number(json, "denied"), asked);
    assert_eq!(number(json, "denied"), asked / 3);
    let [rate, seconds, answers] = ["answers_per_second", "seconds", "answers"]
        .map(|name| json[name].as_f64().expect("a number"));
    assert!((rate * seconds - answers).abs() < 0.01 * answers, "{json:#}");
    let latency = &json["latency_us"];
    let quantiles = ["min", "p50", "p90", "p99", "p99.9", "p99.99", "max"];
    let times: Vec<u64> = quantiles.iter().map(|name| number(latency, name)).collect();
    assert!(times.is_sorted() && times[0] > 0, "{times:?}");
}

#[test]
fn http_counts_add_up() {
    let server = http();
    let (code, json) = bench("http", &server, &["--connections", "4", "--pipeline", "8"]);
    counts_add_up(&server, code, &json);
    assert_eq!(
        (&json["protocol"], &json["request"]),
        (&"http".into(), &"HTTP GET /limit/{key}".into())
    );
}

#[test]
fn http2_counts_add_up_against_another_implementation_of_it() {
    let server = http2(None);
    let more = ["--http2", "--connections", "4", "--pipeline", "8"];
    let (code, json) = bench("http", &server, &more);
    counts_add_up(&server, code, &json);
    assert_eq!(server.connections(), 4);
    let request = "HTTP/2 GET /limit/{key}";
    assert_eq!((&json["protocol"], &json["request"]), (&"http2".into(), &request.into()));
}

#[test]
fn the_daemon_answers_over_http2_as_over_http1() {
    let daemon = daemon::serve(&["--limit", "5 per day per key"]);
    let address = daemon.address("http");
    let body = r#"{"attributes":{"key":"posted:{key}"}}"#;
    for version in [&[][..], &["--http2"]] {
        for (paths, keys) in
            [(&["--path", "/limit/v{key}"][..], 7), (&["--path", "/v1/check", "--body", body], 3)]
        {
            let keys_text = keys.to_string();
            let more =
                [version, paths, &["--pipeline", "8", "--connections", "2", "--keys", &keys_text]]
                    .concat();
            let (code, json) = bench_at("http", &address, &more);
            assert_eq!((code, number(&json, "errors")), (0, 0), "{json:#}");
            assert!(number(&json, "denied") > 100, "{json:#}");
            let expected = if version.is_empty() { 5 * keys } else { 0 };
            assert_eq!(number(&json, "allowed"), expected, "{json:#}");
        }
    }
}

#[test]
fn the_gateway_forwards_and_denies_over_http2() {
    let server = http2(None);
    let upstream = format!("h2c://{}", server.address);
    let gateway = |limit| {
        let mut command = daemon::command();
        command.args(["gateway", "--json", "--listen", ":0", "--admin", "off"]);
        command.args(["--upstream", &upstream, "--limit", limit]);
        daemon::Daemon::start(command)
    };
    let more = ["--http2", "--connections", "2", "--pipeline", "8"];
    let forwarding = gateway("1000000000 per day per ip");
    let (code, json) = bench_at("http", &forwarding.address("gateway"), &more);
    counts_add_up(&server, code, &json);
    let denying = gateway("1 per day per ip");
    let (code, json) = bench_at("http", &denying.address("gateway"), &more);
    assert_eq!((code, number(&json, "errors"), number(&json, "unanswered")), (0, 0, 0));
    assert!(number(&json, "allowed") <= 1 && number(&json, "denied") > 100, "{json:#}");
}

#[test]
fn a_server_that_goes_away_is_asked_over_another_connection() {
    let server = http2(Some(Then::GoesAway));
    let (code, json) =
        bench("http", &server, &["--http2", "--connections", "2", "--pipeline", "4"]);
    counts_add_up(&server, code, &json);
    assert!(server.connections() >= server.asked() / (2 * ASKED_MAX), "{json:#}");
}

#[test]
fn requests_that_are_cut_off_and_connections_that_are_ended_are_errors_in_words() {
    for (server, words) in [
        (resetting(), "the server cut a request off: refused stream"),
        (http2(Some(Then::SendsAway)), "the server ended a connection: enhance your calm"),
    ] {
        let (code, json) =
            bench("http", &server, &["--http2", "--connections", "1", "--pipeline", "2"]);
        assert_eq!((code, &json["first_error"]), (1, &words.into()), "{json:#}");
        assert!(number(&json, "errors") > 0);
    }
}

#[test]
fn resp_counts_add_up() {
    let server = resp();
    let (code, json) = bench("resp", &server, &["--connections", "4", "--pipeline", "64"]);
    counts_add_up(&server, code, &json);
}

#[test]
fn grpc_counts_add_up_against_another_implementation_of_http2() {
    let server = grpc();
    let (code, json) = bench("grpc", &server, &["--connections", "2", "--pipeline", "16"]);
    counts_add_up(&server, code, &json);
}

#[test]
fn several_threads_share_the_connections() {
    let server = resp();
    let (code, json) = bench("resp", &server, &["--connections", "5", "--threads", "3"]);
    counts_add_up(&server, code, &json);
    assert_eq!(server.connections(), 5);
}

#[test]
fn an_open_loop_sends_what_its_rate_says() {
    let server = http();
    let (code, json) = bench("http", &server, &["--rate", "1000", "--connections", "3"]);
    assert_eq!((code, server.asked(), number(&json, "answers")), (0, 1_000, 1_000));
    assert_eq!(json["loop"], "open");
}

#[test]
fn a_person_gets_a_picture() {
    let server = resp();
    let address = server.address.to_string();
    let ran = tidegate(&["bench", "resp", &address, "--duration", "500ms", "--zipf", "1.1"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("█"), "{}", ran.stdout);
    assert!(ran.stdout.contains("p99.9 "), "{}", ran.stdout);
    assert!(ran.stdout.contains("1,000,000 keys by Zipf 1.1"), "{}", ran.stdout);
}

#[test]
fn a_server_that_is_not_there_is_said_plainly() {
    let address = tidegate_testing::free_address().to_string();
    let ran = tidegate(&["bench", "grpc", &address]);
    let expected = format!(
        "error: cannot connect to {address}: Connection refused (os error 111); is the server \
         running? `tidegate serve` starts one\n"
    );
    assert_eq!(ran, Ran { code: 2, stdout: String::new(), stderr: expected });
}

#[test]
fn a_server_that_speaks_something_else_is_an_error_and_no_hang() {
    let server = http();
    for (protocol, more) in [("resp", &[][..]), ("grpc", &[]), ("http", &["--http2"])] {
        let (code, json) = bench(protocol, &server, &[&["--connections", "1"], more].concat());
        assert_eq!((code, number(&json, "allowed"), number(&json, "denied")), (1, 0, 0));
        let error = json["first_error"].as_str().unwrap_or("");
        assert!(error.contains("does not speak this protocol"), "{protocol}: {json:#}");
    }
}

#[test]
fn ctrl_c_prints_what_there_is() {
    let server = resp();
    let address = server.address.to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["bench", "resp", &address, "--duration", "1h", "--connections", "4", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // Of what was asked, one question of each connection may not be answered yet.
    server.wait_until_asked(104);
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &id]).status().expect("kill starts");
    assert!(sent.success());
    let output = child.wait_with_output().expect("the command ends");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["interrupted"], true);
    assert!(number(&json, "answers") >= 100);
}

#[test]
fn what_does_not_fit_a_frame_is_refused_before_anybody_is_asked() {
    let long = "a".repeat(17_000);
    let path = format!("/{long}");
    for args in [["--path", &path], ["--body", &long]] {
        let ran = tidegate(&[&["bench", "http", ":1", "--http2"], &args[..]].concat());
        let stderr = "error: over HTTP/2, paths and bodies have at most about 16384 bytes here\n";
        assert_eq!(ran, Ran { code: 2, stdout: String::new(), stderr: stderr.to_owned() });
    }
}

#[test]
fn flags_that_mean_nothing_are_refused() {
    for args in [
        &["--duration", "soon"][..],
        &["--connections", "0"],
        &["--pipeline", "0"],
        &["--keys", "0"],
        &["--rate", "0"],
        &["--zipf", "0"],
        &["nowhere"],
    ] {
        let ran = tidegate(&[&["bench", "http"], args].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{args:?}");
        assert!(ran.stderr.contains("invalid value"), "{}", ran.stderr);
    }
}
