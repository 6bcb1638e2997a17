//! Requests that are like those before them on their connection, of which something is remembered: they are answered as
//! if nothing was.

use proptest::test_runner::{Config, TestRunner};
use tidegate_gateway::Running;
use tidegate_gateway::route::AuthSettings;
use tidegate_identity::Source;
use tidegate_rules::{ParseOptions, RuleSet, Source as Text};
use tidegate_server::controls::{Entry, Which};
use tidegate_server::serve::process::Life as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Folder, Upstream, gateway, port, read_head, settings, with_rules};

const PLAIN: &str = "GET /a HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\n\r\n";

const LINES: [&str; 9] = [
    "GET /a",
    "GET /never/x?y=1",
    "HEAD /never/x",
    "HEAD /a",
    "GET /a?key=two",
    "DELETE /a",
    "OPTIONS /a/b",
    "GET /b//../never/x",
    "GET /caf\u{e9}",
];
const HEADERS: [&str; 14] = [
    "Host: a.example",
    "Host: b.example",
    "host: b.example",
    "Host: b.example\r\nX-Key: one",
    "Host: b.example\r\nX-Key: two",
    "Host: b.example\r\nX-Key: one\r\nX-Key: two",
    "Host: a.example\r\nContent-Type: application/grpc",
    "Host: b.example\r\nContent-Type: application/grpc",
    "Host: b.example\r\nCookie: a=1\r\nCookie: b=2",
    "Host: b.example\r\nVia: 1.1 before",
    "Host: b.example\r\nConnection: keep-alive\r\nX-Forwarded-For: 192.0.2.1",
    "Host: b.example\r\nTE: trailers",
    "Host: b.example\r\nContent-Length: 2\r\n\r\nok",
    "X-Key: one",
];

/// Requests of cost 5 never fit, so that what is told of them does not depend on the time.
const RULES: &str = "{ domain: default, rules: [ \
    { name: never, match: { path: '/never/*' }, per: [ip], cost: 5, limit: 2/day }, \
    { name: host, match: { host: a.example }, per: [ip], cost: 5, limit: 2/day }, \
    { name: two, match: { api_key: '*' }, per: [api_key], cost: 5, limit: 2/day }, \
    { name: deletes, match: { method: DELETE }, per: [ip], cost: 5, limit: 2/day } ] }";

fn rules(text: &str) -> RuleSet {
    RuleSet::parse(&[Text::new("rules", text)], &ParseOptions::default()).unwrap().rules
}

/// The next answer on a connection, but for the time; `None` at its end.
async fn answer(stream: &mut TcpStream, request: &str) -> Option<(Vec<String>, String)> {
    let head = read_head(stream).await?;
    let lines = head.lines().filter(|line| !line.starts_with("date: ")).map(ToOwned::to_owned);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let has_body = !request.starts_with("HEAD");
    let mut body = vec![0; length.filter(|_| has_body).map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await.ok()?;
    Some((lines.collect(), String::from_utf8_lossy(&body).into_owned()))
}

/// The same whatever the order of its lines: the general server has another one.
fn sorted((mut head, body): (Vec<String>, String)) -> (Vec<String>, Vec<String>) {
    let mut body: Vec<String> = body.lines().map(ToOwned::to_owned).collect();
    head.sort_unstable();
    body.sort_unstable();
    (head, body)
}

/// Sends requests over one connection, and each over one of its own.
async fn answers_are_those_of_fresh_connections(
    running: &Running,
    requests: &[String],
    is_piped: bool,
) {
    let mut kept = TcpStream::connect(port(running)).await.unwrap();
    if is_piped {
        kept.write_all(requests.concat().as_bytes()).await.unwrap();
    }
    let mut is_general = false;
    for request in requests {
        if !is_piped {
            kept.write_all(request.as_bytes()).await.unwrap();
        }
        let mut fresh = TcpStream::connect(port(running)).await.unwrap();
        fresh.write_all(request.as_bytes()).await.unwrap();
        let expected = answer(&mut fresh, request).await.expect("an answer");
        let told = answer(&mut kept, request).await.expect("an answer");
        let is_last = expected.0.iter().any(|line| line == "connection: close");
        if is_general {
            assert_eq!(sorted(told), sorted(expected), "{requests:?}");
        } else {
            assert_eq!(told, expected, "{requests:?}");
        }
        if is_last {
            return;
        }
        let words = ["\u{e9}", "\r\nTE", "Length: 2", "one\r\nX-Key: two", "HTTP/1.1\r\nX-Key"];
        is_general |= words.iter().any(|word| request.contains(word));
        is_general |= request.contains("key=two") && request.contains("X-Key");
    }
}

/// A gateway with the rules of this place, and its upstream.
async fn ruled(folder: &Folder) -> (Running, Upstream) {
    let (upstream, rules) = (Upstream::echo().await, folder.write("rules.yaml", RULES));
    let mut settings = with_rules(&[&upstream.url()], |layer| layer.rules = Some(vec![rules]));
    let key = Source::Query("key".to_owned());
    settings.daemon.identity.api_key = vec![Source::header("x-key").unwrap(), key];
    (gateway(settings).await, upstream)
}

#[tokio::test]
async fn a_denied_call_of_grpc_that_asks_for_no_body_is_told_no_length_by_either_server() {
    let folder = Folder::new("again-head");
    let (running, _upstream) = ruled(&folder).await;
    let general = "GET /a HTTP/1.1\r\nHost: b.example\r\nTE: trailers\r\n\r\n";
    let call =
        "HEAD /never/x HTTP/1.1\r\nHost: b.example\r\nContent-Type: application/grpc\r\n\r\n";
    let requests = [general, call].map(ToOwned::to_owned);
    answers_are_those_of_fresh_connections(&running, &requests, false).await;
}

#[test]
fn requests_that_were_sent_before_are_answered_as_on_fresh_connections() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let folder = Folder::new("again");
    let (running, _upstream) = runtime.block_on(ruled(&folder));
    let one = (0..LINES.len(), 0..HEADERS.len(), 1..4_usize);
    let requests = proptest::collection::vec(one, 1..16);
    let mut runner =
        TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(48) });
    let tried = runner.run(&(requests, proptest::bool::ANY), |(requests, is_piped)| {
        let each = requests.into_iter().flat_map(|(line, headers, times)| {
            let (line, headers) = (LINES[line], HEADERS[headers]);
            let end = if headers.ends_with("ok") { "" } else { "\r\n\r\n" };
            vec![format!("{line} HTTP/1.1\r\n{headers}{end}"); times]
        });
        let requests: Vec<String> = each.collect();
        runtime.block_on(answers_are_those_of_fresh_connections(&running, &requests, is_piped));
        Ok(())
    });
    tried.unwrap();
}

/// The status of the next answer to the same request.
async fn status(client: &mut TcpStream) -> String {
    status_of(client, PLAIN).await
}

async fn status_of(client: &mut TcpStream, request: &str) -> String {
    client.write_all(request.as_bytes()).await.unwrap();
    let (head, _) = answer(client, request).await.unwrap();
    head[0].split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_key_that_is_anothers_or_nobodys_now_is_so_for_the_next_of_many_equal_requests() {
    let upstream = Upstream::echo().await;
    let folder = Folder::new("again-keys");
    // The hash of `secret`.
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let (anns, bobs) = (format!("ann {hash}\n"), format!("bob {hash}\n"));
    let keys = folder.write("keys", &anns);
    let rules = "{ domain: default, rules: [ \
        { name: ann, match: { client: ann }, per: [client], cost: 5, limit: 2/day } ] }";
    let rules = folder.write("rules.yaml", rules);
    let mut settings = with_rules(&[&upstream.url()], |layer| layer.rules = Some(vec![rules]));
    let header = http::HeaderName::from_static("x-api-key");
    settings.routes[0].auth = Some(AuthSettings { is_required: true, header, keys: Some(keys) });
    let running = gateway(settings).await;
    let mut client = TcpStream::connect(port(&running)).await.unwrap();
    let request = "GET /a HTTP/1.1\r\nHost: a.example\r\nX-Api-Key: secret\r\n\r\n";
    // She is denied each time, which is when something is remembered.
    for (keys, expected) in [(&*bobs, "200"), ("", "401"), (&*bobs, "200")] {
        folder.write("keys", &anns);
        assert!(running.reload());
        for _ in 0..2 {
            assert_eq!(status_of(&mut client, request).await, "429");
        }
        folder.write("keys", keys);
        assert!(running.reload());
        for _ in 0..2 {
            assert_eq!(status_of(&mut client, request).await, expected, "{keys}");
        }
    }
}

#[tokio::test]
async fn rules_that_read_more_hold_for_the_next_of_many_equal_requests() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let limiter = running.daemon().engine().limiter();
    let mut client = TcpStream::connect(port(&running)).await.unwrap();
    let open = "{ domain: default, rules: [ { name: all, per: [ip], limit: 1000000/s } ] }";
    for what in ["path: /a", "method: GET", "host: a.example"] {
        for _ in 0..2 {
            assert_eq!(status(&mut client).await, "200");
        }
        let never = format!(
            "{{ domain: default, rules: [ {{ name: never, match: {{ {what} }}, per: [ip], cost: 5, limit: 2/day }} ] }}"
        );
        limiter.reload(rules(&never)).unwrap();
        for _ in 0..2 {
            assert_eq!(status(&mut client).await, "429", "{what}");
        }
        limiter.reload(rules(open)).unwrap();
    }
}

#[tokio::test]
async fn a_ban_by_what_no_rule_reads_holds_for_the_next_of_many_equal_requests() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let engine = running.daemon().engine();
    let mut client = TcpStream::connect(port(&running)).await.unwrap();
    for target in ["path=/a", "method=GET", "host=a.example"] {
        for _ in 0..2 {
            assert_eq!(status(&mut client).await, "200");
        }
        let (target, now) = (target.parse().unwrap(), engine.limiter().now());
        let ban = Entry::new(target, now);
        let _ = engine.controls().add(Which::Bans, ban.clone(), now).unwrap();
        for _ in 0..2 {
            assert_eq!(status(&mut client).await, "429", "{}", ban.target);
        }
        let _ = engine.controls().lift(Which::Bans, &ban.target, None, now).unwrap();
    }
}
