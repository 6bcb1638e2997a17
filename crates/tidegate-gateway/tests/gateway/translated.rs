//! A request over HTTP/2 as a server of HTTP/1.1 gets it, byte for byte: the same request, and no other in it.

use http::{Request, Response, StatusCode};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::http2::{
    DATA, END_HEADERS, END_STREAM, ENDS, HEADERS, PREFACE, RST_STREAM, SETTINGS, asking, fields,
    frame, of_kind, send,
};
use crate::support::{
    Upstream, ask_h2, full, gateway, port, settings, until, until_idle, with_rules,
};

/// What a gateway adds to say where a request came from.
fn is_added(line: &str) -> bool {
    ["x-forwarded-", "forwarded: ", "via: "].iter().any(|name| line.starts_with(name))
}

/// The frames of a request with a body, where it has one.
fn asked(lines: &[(&str, &str)], body: Option<&str>) -> Vec<Vec<u8>> {
    let flags = END_HEADERS | if body.is_none() { END_STREAM } else { 0 };
    let head = frame(HEADERS, flags, 1, &fields(lines));
    let body = body.map(|body| frame(DATA, END_STREAM, 1, body.as_bytes()));
    [head].into_iter().chain(body).collect()
}

#[tokio::test]
async fn a_request_over_http2_is_the_same_one_over_http1() {
    let (upstream, recorded) = Upstream::recording().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let chunked = "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let of_length = "content-length: 5\r\n\r\nhello";
    for (method, more, body, line, rest) in [
        ("GET", vec![], None, "/", "\r\n"),
        ("GET", vec![], Some("hello"), "/", chunked),
        ("GET", vec![], Some(""), "/", "\r\n"),
        ("HEAD", vec![], Some(""), "/", "\r\n"),
        ("POST", vec![], Some(""), "/", "\r\n"),
        ("HEAD", vec![], Some("hello"), "/", chunked),
        ("POST", vec![], Some("hello"), "/", chunked),
        ("GET", vec![("content-length", "5")], Some("hello"), "/", of_length),
        ("POST", vec![("content-length", "5")], Some("hello"), "/", of_length),
        ("POST", vec![("content-length", "0")], None, "/", "content-length: 0\r\n\r\n"),
        ("POST", vec![("content_length", "2")], Some("hello"), "/", chunked),
        ("GET", vec![("transfer_encoding", "chunked")], None, "/", "\r\n"),
        ("GET", vec![("http2-settings", "x"), ("keep_alive", "1")], None, "/", "\r\n"),
        ("GET", vec![("te", "trailers")], None, "/", "te: trailers\r\nconnection: te\r\n\r\n"),
        ("GET", vec![("cookie", "a=1"), ("cookie", "b=2")], None, "/", "cookie: a=1; b=2\r\n\r\n"),
        ("GET", vec![("host", "A")], None, "/", "\r\n"),
        ("get", vec![], None, "/", "\r\n"),
        ("GET", vec![], None, "//b/c", "\r\n"),
        ("GET", vec![], None, "/a@b", "\r\n"),
        ("OPTIONS", vec![], None, "*", "\r\n"),
    ] {
        let what = format!("{method} {line} {more:?} {body:?}");
        let frames = asked(&[asking(method, line), more].concat(), body);
        assert_eq!(
            of_kind(HEADERS, &send(port(&running), &frames, &ENDS).await).len(),
            1,
            "{what}"
        );
        let came = recorded.lock().pop().unwrap_or_else(|| panic!("{what} is not forwarded"));
        let expected = format!("{method} {line} HTTP/1.1\r\nhost: a\r\n{rest}");
        let sorted = |text: &str| {
            let mut lines: Vec<String> =
                text.split("\r\n").filter(|line| !is_added(line)).map(ToOwned::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(&came), sorted(&expected), "{what} became {came}");
        assert_eq!(came.split("\r\n\r\n").nth(1), expected.split("\r\n\r\n").nth(1), "{what}");
    }
    until_idle(&running).await;
}

type Lines = Vec<(&'static str, &'static str)>;

const OTHER: &str = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";

/// Requests whose length is not that of their body, or none.
fn of_no_length() -> Vec<(Lines, Option<&'static str>)> {
    let mut cases = Vec::new();
    for (length, body) in [
        ("0", Some(OTHER)),
        ("3", Some("hello")),
        ("9", Some("hello")),
        ("9", None),
        ("+5", Some("hello")),
        (" 5", Some("hello")),
        ("5, 5", Some("hello")),
        ("", Some("hello")),
        ("9999999999999999999", Some("hello")),
        ("18446744073709551621", Some("hello")),
    ] {
        for method in ["GET", "HEAD", "POST"] {
            let lines = [asking(method, "/"), vec![("content-length", length)]].concat();
            cases.push((lines, body));
        }
    }
    for lengths in [["5", "5"], ["5", "6"]] {
        let more = lengths.map(|length| ("content-length", length)).to_vec();
        cases.push(([asking("POST", "/"), more].concat(), Some("hello")));
    }
    cases
}

/// Requests with a header more than may be there, or one in the place of another, or one too few.
fn of_no_form() -> Vec<(Lines, Option<&'static str>)> {
    let mut cases = Vec::new();
    for (name, value) in [
        ("keep-alive", "1"),
        ("proxy-connection", "close"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
        ("a:b", "x"),
        ("a b", "x"),
        ("transfer-encoding ", "chunked"),
        (" transfer-encoding", "chunked"),
        ("", "x"),
        ("a\r\nb", "x"),
        ("a\0b", "x"),
        ("x", "a\rb"),
        ("x", "a\nb"),
        ("x", "a\0b"),
        (":protocol", "websocket"),
        (":unknown", "x"),
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
    ] {
        cases.push(([asking("GET", "/"), vec![(name, value)]].concat(), None));
    }
    for (name, value) in [
        (":method", ""),
        (":method", "G ET"),
        (":method", "GET\t"),
        (":method", "GET\0"),
        (":method", "GET / HTTP/1.1\r\nhost: b\r\n\r\nGET"),
        (":path", "@b"),
        (":path", "/ HTTP/1.1\r\nx: y"),
        (":path", "/\ta"),
        (":path", "/\0"),
        (":path", "/\n"),
        (":authority", "u:p@a"),
        (":authority", "a\r\nx: y"),
        (":authority", "a\0"),
        (":scheme", "http://b/?"),
        (":scheme", "http\r\n"),
    ] {
        let instead = |line: (_, _)| if line.0 == name { (name, value) } else { line };
        cases.push((asking("GET", "/").into_iter().map(instead).collect(), None));
    }
    for missing in [":method", ":scheme", ":path", ":authority"] {
        let mut lines = asking("GET", "/");
        lines.retain(|(name, _)| *name != missing);
        cases.push((lines, None));
    }
    cases
}

#[tokio::test]
async fn a_request_over_http2_that_hides_another_reaches_nobody() {
    let (upstream, recorded) = Upstream::recording().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let others = vec![
        (asking("CONNECT", "/"), None),
        (vec![(":method", "CONNECT"), (":authority", "b:443")], Some(OTHER)),
        ([asking("CONNECT", "/"), vec![(":protocol", "h2c")]].concat(), Some(OTHER)),
        ([vec![("x", "y")], asking("GET", "/")].concat(), None),
    ];
    for (lines, body) in [of_no_length(), of_no_form(), others].concat() {
        let answer = send(port(&running), &asked(&lines, body), &ENDS).await;
        // The eighth entry of the table of HPACK is the status 200.
        let is_well = |(_, head): &(u32, Vec<u8>)| head[0] == 0x88;
        assert!(!of_kind(HEADERS, &answer).iter().any(is_well), "{lines:?} {body:?}");
    }
    for trailer in [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("x", "a\r\n\r\nGET /smuggled HTTP/1.1"),
        ("X", "y"),
    ] {
        let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&[trailer]));
        let lines = [asking("POST", "/"), vec![("trailer", "x")]].concat();
        let mut frames = vec![frame(HEADERS, END_HEADERS, 1, &fields(&lines))];
        frames.extend([frame(DATA, 0, 1, b"hello"), trailers]);
        send(port(&running), &frames, &ENDS).await;
    }
    until_idle(&running).await;
    until("closed", || running.counts().upstream_connections == 0).await;
    assert_eq!(*recorded.lock(), Vec::<String>::new());
}

#[tokio::test]
async fn trailers_over_http2_add_nothing_to_a_head_over_http1() {
    let (upstream, recorded) = Upstream::recording().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let forbidden = [
        "content-length",
        "content_length",
        "host",
        "x-forwarded-for",
        "x_forwarded_for",
        "authorization",
        "cookie",
        "expect",
    ];
    let names = [&["x-sum"][..], &forbidden].concat();
    let list = names.join(",");
    let lines = [asking("POST", "/"), vec![("trailer", &*list)]].concat();
    let trailers: Vec<(&str, &str)> = names.iter().map(|name| (*name, "7")).collect();
    let frames = [
        frame(HEADERS, END_HEADERS, 1, &fields(&lines)),
        frame(DATA, 0, 1, b"hello"),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&trailers)),
    ];
    assert_eq!(of_kind(HEADERS, &send(port(&running), &frames, &ENDS).await).len(), 1);
    let came = recorded.lock().pop().unwrap();
    assert!(came.ends_with("\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 7\r\n\r\n"), "{came}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_body_that_its_client_resets_without_an_error_is_not_passed_off_as_whole() {
    let (upstream, recorded) = Upstream::recording().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    for reason in [0_u32, 8] {
        for _ in 0..20 {
            let frames = [
                PREFACE.to_vec(),
                frame(SETTINGS, 0, 0, &[]),
                frame(HEADERS, END_HEADERS, 1, &fields(&asking("POST", "/"))),
                frame(DATA, 0, 1, b"half"),
            ];
            let mut client = TcpStream::connect(port(&running)).await.unwrap();
            client.write_all(&frames.concat()).await.unwrap();
            until("sent on", || running.counts().upstream_connections == 1).await;
            client.write_all(&frame(RST_STREAM, 0, 1, &reason.to_be_bytes())).await.unwrap();
            until("closed", || running.counts().upstream_connections == 0).await;
            drop(client);
            until_idle(&running).await;
            assert_eq!(*recorded.lock(), Vec::<String>::new(), "{reason}");
        }
    }
}

#[tokio::test]
async fn who_asks_for_a_head_over_http2_is_sent_no_body() {
    let upstream = Upstream::echo().await;
    let limit = |layer: &mut tidegate_server::config::Layer| {
        layer.limit = Some("1/day per ip".parse().unwrap());
    };
    for url in [upstream.url(), format!("h2c://{}", upstream.address)] {
        let running = gateway(with_rules(&[&url], limit)).await;
        for status in [200, 429, 400] {
            let mut request = Request::head("http://a.example/");
            if status == 400 {
                request = request.header("host", "b.example");
            }
            // The client takes a body for a fault.
            let answer = ask_h2(port(&running), request.body(full("")).unwrap()).await;
            assert_eq!((answer.status().as_u16(), answer.body().as_str()), (status, ""), "{url}");
            assert_ne!(answer.headers()["content-length"], "0", "{url} {status}");
        }
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn an_answer_over_http2_whose_status_has_no_body_is_sent_none() {
    let upstream = Upstream::serving(|request| async move {
        let status: u16 = request.uri().path()[1..].parse().unwrap();
        let mut answer = Response::new(full("body"));
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        answer
    })
    .await;
    for url in [upstream.url(), format!("h2c://{}", upstream.address)] {
        let running = gateway(settings(&[&url])).await;
        for (path, body) in [("/200", "body"), ("/204", ""), ("/304", "")] {
            let request = Request::get(format!("http://a.example{path}"));
            let answer = ask_h2(port(&running), request.body(full("")).unwrap()).await;
            assert_eq!((answer.status().as_str(), &**answer.body()), (&path[1..], body), "{url}");
        }
        until_idle(&running).await;
    }
}
