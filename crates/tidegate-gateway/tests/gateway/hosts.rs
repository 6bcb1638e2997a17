//! Whom a request is for: hosts that can be none, and targets in each of their forms, whatever stands behind.

use http::Response;
use tidegate_gateway::Running;

use crate::http2::{END_HEADERS, END_STREAM, ENDS, GET, HEADERS, fields, frame, of_kind, send};
use crate::support::{
    Folder, Upstream, exchange, failures, full, gateway, port, settings, until_idle, with_rules,
};

/// The twelfth entry of the table of HPACK is the status 400.
const IS_400: u8 = 0x8c;

/// A server that answers with the target that it was asked for, as it came.
async fn telling() -> Upstream {
    Upstream::serving(|request| {
        let target = request.uri().path_and_query().map(ToString::to_string);
        let raw = request.uri().path_and_query().map(|target| target.as_str().to_owned());
        async move { Response::new(full(format!("{target:?} {raw:?}"))) }
    })
    .await
}

/// Gateways before it, which speak HTTP/1.1 and HTTP/2 to it.
async fn before(upstream: &Upstream) -> [Running; 2] {
    let (one, two) = (upstream.url(), format!("h2c://{}", upstream.address));
    [gateway(settings(&[&one])).await, gateway(settings(&[&two])).await]
}

/// Asks by HTTP/1.1 as a plain request and as one that is none, and with a body.
async fn ask_each_way(running: &Running, host: &str) -> Vec<String> {
    let mut answers = Vec::new();
    for (line, more) in [
        ("GET / HTTP/1.1", "\r\n"),
        ("GET / HTTP/1.1", "Connection: close\r\n\r\n"),
        ("POST / HTTP/1.1", "Content-Length: 2\r\nConnection: close\r\n\r\nok"),
        ("OPTIONS * HTTP/1.1", "Connection: close\r\n\r\n"),
        ("GET / HTTP/1.0", "\r\n"),
    ] {
        // What is no request ends a connection that would be kept.
        let asking = format!("{line}\r\nHost: {host}\r\n{more}no request\r\n\r\n");
        answers.push(exchange(port(running), asking.as_bytes()).await);
    }
    answers
}

/// Asks over HTTP/2, and says whether that is answered with 400, or its stream reset, which says as much.
async fn is_refused_over_http2(running: &Running, lines: &[(&str, &str)]) -> bool {
    let asking = frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(lines));
    let answer = send(port(running), &[asking], &ENDS).await;
    of_kind(HEADERS, &answer).iter().all(|(_, head)| head[0] == IS_400)
}

#[tokio::test]
async fn a_host_that_can_be_none_is_400_and_no_failure_of_the_upstream() {
    let upstream = telling().await;
    for running in before(&upstream).await {
        for host in ["", ":", ":80", "a%20b", "a%2eb:80", "[::1", "a b", "u@a", "a,b", "a/b"] {
            for answer in ask_each_way(&running, host).await {
                assert!(answer.contains(" 400 Bad Request\r\n"), "{host:?} got {answer}");
            }
            let in_header = [GET[0], GET[1], GET[3], ("host", host)];
            assert!(is_refused_over_http2(&running, &in_header).await, "{host:?} in a header");
            let in_target = [GET[0], GET[1], (":authority", host), GET[3]];
            assert!(is_refused_over_http2(&running, &in_target).await, "{host:?} in the target");
        }
        for target in ["http://:80/", "http://a%20b/", "http:///"] {
            let asking = format!("GET {target} HTTP/1.1\r\nHost: :80\r\n\r\n");
            let answer = exchange(port(&running), asking.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{target} got {answer}");
        }
        assert_eq!((upstream.asked(), failures(&running)), (0, 0));
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn hosts_that_clients_send_reach_every_upstream() {
    let upstream = telling().await;
    for running in before(&upstream).await {
        for host in [
            "a",
            "A.Example:8000",
            "a_b.example.",
            "127.0.0.1:80",
            "[::1]:8000",
            "[2001:db8::1]",
            "xn--bcher-kva.example",
            "a:",
            " a\t",
        ] {
            for answer in ask_each_way(&running, host).await {
                assert!(answer.contains(" 200 OK\r\n"), "{host:?} got {answer}");
            }
            let in_header = [GET[0], GET[1], GET[3], ("host", host.trim())];
            assert!(!is_refused_over_http2(&running, &in_header).await, "{host:?}");
        }
        // HTTP/1.0 need not say one, and then the upstream is told its own.
        let answer = exchange(port(&running), b"GET / HTTP/1.0\r\n\r\n").await;
        assert!(answer.contains(" 200 OK\r\n"), "{answer}");
        assert_eq!(failures(&running), 0);
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn a_target_without_a_path_is_one_of_the_root_to_rules_and_to_every_upstream() {
    let upstream = telling().await;
    for running in before(&upstream).await {
        for (line, seen) in [
            ("GET http://a?q", "/?q"),
            ("GET http://a?", "/?"),
            ("GET http://a?/b?c", "/?/b?c"),
            ("GET http://a", "/"),
            ("GET http://a#f", "/"),
            ("GET http://a?q#f", "/?q"),
            ("GET /a#f", "/a"),
            ("GET http://a/?q", "/?q"),
            ("OPTIONS http://a?q", "/?q"),
            ("OPTIONS *", "*"),
        ] {
            let asking = format!("{line} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            let answer = exchange(port(&running), asking.as_bytes()).await;
            let told = format!("\r\n\r\nSome({seen:?}) Some({seen:?})");
            assert!(answer.ends_with(&told), "{line} became {answer}");
        }
        // Over HTTP/2 the path is never left out.
        for path in ["#", "#f", "#/a", "?q", "?q#f"] {
            let lines = [GET[0], GET[1], GET[2], (":path", path)];
            assert!(is_refused_over_http2(&running, &lines).await, "{path}");
        }
        assert_eq!(failures(&running), 0);
    }
    let folder = Folder::new("root");
    let rules = "{ domain: default, rules: [ \
        { name: root, match: { path: / }, per: [ip], cost: 5, limit: 2/day } ] }";
    let rules = folder.write("rules.yaml", rules);
    let settings = with_rules(&[&upstream.url()], |layer| layer.rules = Some(vec![rules]));
    let running = gateway(settings).await;
    for (target, status) in [("http://a?q", 429), ("http://a", 429), ("/?q", 429), ("/q", 200)] {
        let asking = format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let answer = exchange(port(&running), asking.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target} got {answer}");
    }
}
