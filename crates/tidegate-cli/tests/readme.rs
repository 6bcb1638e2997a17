//! The first minute of somebody new: what the README says to type, typed, and what it shows, seen. Ports
//! alone are others, so that the test is in nobody's way.

mod daemon;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use daemon::{Daemon, FREE_PORTS, command, serve};
use tidegate_testing::seen_within;

/// In less a token does not come back under the demo's limit.
const FIVE_SECONDS: Duration = Duration::from_secs(5);

const README: &str = include_str!("../../../README.md");

/// What is in the fenced block that holds these words.
fn block(words: &str) -> &'static str {
    let mut blocks = README.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.contains(words)).expect("the README has such a block");
    block.split_once('\n').expect("a language").1
}

/// What a shell prints, with the addresses of this daemon in the place of the usual ones.
fn typed(daemon: &Daemon, line: &str) -> String {
    let resp = daemon.address("resp");
    let port = resp.rsplit_once(':').expect("a port").1;
    let line = line
        .replace("127.0.0.1:8080", &daemon.address("http"))
        .replace("-p 6390", &format!("-p {port}"))
        .replace("tidegate check", "\"$TIDEGATE\" check");
    let output = Command::new("sh")
        .args(["-c", &line])
        .env("TIDEGATE", command().get_program())
        .env("TIDEGATE_SERVER", format!("http://{}", daemon.address("http")))
        .output();
    String::from_utf8(output.expect("a shell").stdout).expect("text").replace("\r\n", "\n")
}

#[test]
fn the_readme_leads_to_the_first_429() {
    // A token comes back every six seconds, so the times are of this moment.
    let printed: String = seen_within(
        FIVE_SECONDS,
        || serve(&[]),
        |daemon| block("/limit/ann").lines().map(|line| typed(daemon, line)).collect(),
    );
    let (statuses, answer) = printed.split_once("HTTP/1.1").expect("an answer");
    let shown = block("429 Too Many Requests");
    assert!(shown.starts_with(statuses.trim_end()), "{statuses}");
    let names = |text: &str| -> Vec<String> {
        let head = text.split_once("\n\n").expect("a head").0;
        let names = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        names.map(|(name, _)| name.to_owned()).collect()
    };
    let expected = names(shown.split_once("HTTP/1.1").expect("an answer").1);
    let found: Vec<String> = names(answer)
        .into_iter()
        .filter(|name| !["content-length", "date"].contains(&name.as_str()))
        .collect();
    assert_eq!(found, expected, "{answer}");
    assert!(answer.starts_with(" 429 Too Many Requests\n"), "{answer}");
    for part in shown.lines().skip_while(|line| !line.is_empty()).flat_map(|line| line.split("..."))
    {
        // What is shown of the body is in it, the seconds aside.
        let part = part.trim().trim_end_matches('}').trim_end_matches(", ").trim_end_matches(',');
        let part = part.split_once("after ").map_or(part, |(before, _)| before);
        assert!(answer.contains(part), "{part:?} in {answer}");
    }
}

#[test]
fn every_protocol_of_the_readme_answers() {
    let printed: Vec<String> = seen_within(
        FIVE_SECONDS,
        || serve(&[]),
        |daemon| block("/v1/check").lines().map(|line| typed(daemon, line)).collect(),
    );
    let [http, resp, check] = &printed[..] else { panic!("{printed:?}") };
    assert!(http.starts_with("{\"allowed\":true,\"rule\":\"demo\","), "{http}");
    assert_eq!(resp, "0\n16\n15\n-1\n2\n");
    assert_eq!(check, "allowed: 8 of 10 left, rule demo\n");
}

#[test]
fn the_line_to_try_works_as_it_is_printed() {
    for limit in ["5/day per key", "5/day per ip", "5/day per user, path"] {
        let mut command = command();
        command.args(["serve", "--limit", limit]).args(FREE_PORTS);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the command starts");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let line = lines.map_while(Result::ok).find(|line| line.trim_start().starts_with("curl"));
        let line = line.unwrap_or_default();
        let output = Command::new("sh").args(["-c", &line]).output().expect("a shell");
        child.kill().expect("it runs");
        child.wait().expect("it ends");
        let answer = String::from_utf8(output.stdout).expect("text");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{line}: {answer}");
        let is_counted =
            answer.contains("\"remaining\":4") || answer.contains("x-ratelimit-remaining: 4");
        assert!(is_counted, "{line}: {answer}");
    }
}
