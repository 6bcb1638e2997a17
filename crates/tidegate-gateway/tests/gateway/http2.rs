//! HTTP/2 as attackers and browsers speak it: heads that say two things, floods of frames, and tunnels over
//! one stream of a connection.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{
    Folder, PATIENCE, Upstream, ask_h2, full, gateway, get, port, settings, until, until_idle,
    with_rules,
};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// A setting that gives streams no window.
const NO_WINDOW: [u8; 6] = [0, 4, 0, 0, 0, 0];
const ENHANCE_YOUR_CALM: [u8; 4] = [0, 0, 0, 11];
/// What ends a request, whatever becomes of it.
pub(crate) const ENDS: [u8; 3] = [HEADERS, RST_STREAM, GOAWAY];

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Fields as they are, without the tables of HPACK.
pub(crate) fn fields(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in lines {
        block.push(0);
        for text in [name, value] {
            // What is longer is told in several bytes, of which the first says so.
            let length = u8::try_from(text.len()).ok().filter(|length| *length < 0x7f);
            let longer = text.len().wrapping_sub(0x7f);
            match length {
                Some(length) => block.push(length),
                None => block.extend([0x7f, 0x80 | (longer & 0x7f) as u8, (longer >> 7) as u8]),
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

pub(crate) const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/")];

/// Sends frames, and reads until the other end closes or one of these kinds of frames has come.
pub(crate) async fn send(to: std::net::SocketAddr, frames: &[Vec<u8>], kinds: &[u8]) -> Vec<u8> {
    let (mut reading, mut writing) = TcpStream::connect(to).await.unwrap().into_split();
    let bytes = [PREFACE, &frame(SETTINGS, 0, 0, &[]), &frames.concat()].concat();
    let sending = tokio::spawn(async move {
        let _ = writing.write_all(&bytes).await;
        writing
    });
    let mut answer = Vec::new();
    let taking = async {
        while !kinds.iter().any(|kind| !of_kind(*kind, &answer).is_empty())
            && reading.read_buf(&mut answer).await.is_ok_and(|read| read > 0)
        {}
    };
    tokio::time::timeout(PATIENCE, taking).await.expect("an answer in time");
    sending.abort();
    answer
}

/// The frames of this kind, and the payload of each.
pub(crate) fn of_kind(kind: u8, mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut found = Vec::new();
    while bytes.len() >= 9 {
        let length = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]) as usize;
        let stream = u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
        let Some(payload) = bytes.get(9..9 + length) else { break };
        if bytes[3] == kind {
            found.push((stream, payload.to_vec()));
        }
        bytes = &bytes[9 + length..];
    }
    found
}

#[tokio::test]
async fn a_head_that_says_two_things_is_refused() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let ask = |lines: &[(&str, &str)]| {
        let mut request = Request::post("http://a.example/");
        for (name, value) in lines {
            request = request.header(*name, *value);
        }
        ask_h2(port(&running), request.body(full("body")).unwrap())
    };
    for lines in [
        &[("host", "b.example")][..],
        &[("host", "a.example"), ("host", "a.example")],
        &[("content-length", "4"), ("content-length", "4")],
    ] {
        assert_eq!(ask(lines).await.status(), 400, "{lines:?}");
    }
    assert_eq!(upstream.asked(), 0);
    assert_eq!(ask(&[("host", "A.example"), ("content-length", "4")]).await.status(), 200);
    until_idle(&running).await;
}

#[tokio::test]
async fn fields_that_http2_forbids_reset_the_stream() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    for more in [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("upgrade", "websocket"),
        ("Upper", "case"),
        ("content-length", "5"),
        ("x", "a\r\nb: c"),
        (":path", "/again"),
        (":status", "200"),
    ] {
        let head = fields(&[&GET[..], &[more]].concat());
        let frames = [frame(HEADERS, END_HEADERS | END_STREAM, 1, &head)];
        let answer = send(port(&running), &frames, &ENDS).await;
        assert!(of_kind(HEADERS, &answer).is_empty(), "{more:?} is answered");
    }
    for path in ["", "login", "?q", "http://b/", "*", "/ /", "/\r\n"] {
        let mut head = GET;
        head[3].1 = path;
        let frames = [frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&head))];
        send(port(&running), &frames, &ENDS).await;
    }
    assert_eq!(upstream.asked(), 0, "nothing was forwarded");
    let well = [frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&GET))];
    assert_eq!(of_kind(HEADERS, &send(port(&running), &well, &ENDS).await).len(), 1);
    assert_eq!(upstream.asked(), 1);
    until_idle(&running).await;
}

/// The pseudo-headers of a request with this method and path.
pub(crate) fn asking<'t>(method: &'t str, path: &'t str) -> Vec<(&'t str, &'t str)> {
    vec![(":method", method), GET[1], GET[2], (":path", path)]
}

#[tokio::test]
async fn a_head_that_is_too_long_is_431() {
    // It takes any number of headers, so that it is not the one who refuses.
    let upstream = Upstream::raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let request = Request::get("http://a.example/").header("x", "y".repeat(40 << 10));
    assert_eq!(ask_h2(port(&running), request.body(full("")).unwrap()).await.status(), 431);
    let with = |headers: u32| {
        let mut request = Request::get("http://a.example/");
        for number in 0..headers {
            request = request.header(format!("x-{number}"), "y");
        }
        ask_h2(port(&running), request.body(full("")).unwrap())
    };
    for headers in [101, 500, 2_000] {
        assert_eq!(with(headers).await.status(), 431, "{headers}");
    }
    assert_eq!(upstream.asked(), 0);
    assert_eq!(with(100).await.status(), 200);
}

#[tokio::test]
async fn streams_that_are_opened_and_reset_by_the_thousand_end_the_connection() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let head = fields(&GET);
    let frames: Vec<Vec<u8>> = (0..20_000)
        .flat_map(|number| {
            let stream = number * 2 + 1;
            let opened = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
            [opened, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())]
        })
        .collect();
    let answer = send(port(&running), &frames, &[GOAWAY]).await;
    let calmed = of_kind(GOAWAY, &answer);
    assert!(calmed.iter().any(|(_, payload)| payload[4..8] == ENHANCE_YOUR_CALM), "{calmed:?}");
    assert_eq!(get(port(&running), "/").await.status(), 200, "others are unharmed");
    until_idle(&running).await;
    assert!(upstream.asked() < 5_000, "{}", upstream.asked());
}

#[tokio::test]
async fn floods_of_frames_end_or_are_borne_and_leave_nothing_behind() {
    let upstream = Upstream::serving(|request| async move {
        if request.uri().path() == "/held" {
            std::future::pending::<()>().await;
        }
        http::Response::new(full("ok"))
    })
    .await;
    let running = gateway(with_rules(&[&upstream.url()], |layer| {
        layer.limit = Some("200 at once for 1h per ip".parse().unwrap());
    }))
    .await;
    let held = frame(HEADERS, END_HEADERS, 1, &fields(&asking("POST", "/held")));
    let well = frame(HEADERS, END_HEADERS | END_STREAM, 3, &fields(&GET));
    // One entry of nearly 4 KiB in the table of HPACK, of which the head says 5,000 times that it is there.
    let entry = [&[0x40, 1, b'x', 0x7f, 0x81, 0x1f][..], &[b'y'; 0x7f + 0x01 + (0x1f << 7)]];
    let bomb = [fields(&GET), entry.concat(), vec![0xbe; 5_000]].concat();
    let each = |frames: &dyn Fn(u32) -> Vec<Vec<u8>>| {
        (0..5_000).flat_map(|number| frames(2 * number + 1).concat()).collect::<Vec<u8>>()
    };
    let one = |frame: Vec<u8>, times: usize| frame.repeat(times);
    let ended = [
        ("empty data", [held.clone(), one(frame(DATA, 0, 1, b""), 100_000)].concat()),
        ("data of padding", [held.clone(), one(frame(DATA, 8, 1, &[0]), 100_000)].concat()),
        ("heads within a head", frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb)),
        (
            "empty continuations",
            [frame(HEADERS, 0, 1, &fields(&GET)), one(frame(CONTINUATION, 0, 1, b""), 10_000)]
                .concat(),
        ),
        (
            "requests that the gateway has to reset",
            each(&|stream| {
                let opened = frame(HEADERS, END_HEADERS, stream, &fields(&asking("POST", "/held")));
                vec![opened, frame(WINDOW_UPDATE, 0, stream, &[0; 4])]
            }),
        ),
        (
            "heads that are none",
            each(&|stream| vec![frame(HEADERS, END_HEADERS, stream, &fields(&asking("GET", "")))]),
        ),
    ];
    for (what, bytes) in ended {
        let answer = send(port(&running), &[bytes], &[GOAWAY]).await;
        assert_eq!(of_kind(GOAWAY, &answer).len(), 1, "{what}");
        assert_eq!(get(port(&running), "/").await.status(), 200, "{what}: others are unharmed");
        until_idle(&running).await;
    }
    for (what, flood) in [
        ("pings", frame(PING, 0, 0, &[0; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
        ("priorities", frame(2, 0, 1, &[0, 0, 0, 3, 1])),
        ("what nobody knows", frame(0x77, 0, 1, &[0; 8])),
        ("window", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
    ] {
        let frames = [one(flood, 10_000), well.clone()];
        let answer = send(port(&running), &frames, &[HEADERS, GOAWAY]).await;
        assert_eq!(of_kind(HEADERS, &answer).len(), 1, "{what}");
        assert_eq!(get(port(&running), "/").await.status(), 200, "{what}: others are unharmed");
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn frames_that_may_not_come_end_the_connection_at_once() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let head = fields(&GET);
    let posted = frame(HEADERS, END_HEADERS, 1, &fields(&asking("POST", "/")));
    let promised = [&2_u32.to_be_bytes()[..], &head].concat();
    let window = 0x7fff_ffff_u32.to_be_bytes();
    for (what, frames) in [
        ("a window beyond all bounds", vec![frame(WINDOW_UPDATE, 0, 0, &window)]),
        ("a window of nothing", vec![frame(WINDOW_UPDATE, 0, 0, &[0; 4])]),
        ("a promise", vec![posted.clone(), frame(PUSH_PROMISE, END_HEADERS, 1, &promised)]),
        ("data of nobody", vec![frame(DATA, 0, 7, b"x")]),
        ("a reset of nobody", vec![frame(RST_STREAM, 0, 7, &[0; 4])]),
        ("window for nobody", vec![frame(WINDOW_UPDATE, 0, 7, &[0, 0, 0, 1])]),
        ("a stream of the server's", vec![frame(HEADERS, END_HEADERS, 2, &head)]),
        ("a stream without a number", vec![frame(HEADERS, END_HEADERS, 0, &head)]),
        ("more of a head that is none", vec![frame(CONTINUATION, END_HEADERS, 1, &head)]),
        ("something within a head", vec![frame(HEADERS, 0, 1, &head), frame(PING, 0, 0, &[0; 8])]),
        ("a frame that is too long", vec![frame(PING, 0, 0, &[0; 20_000])]),
        ("a ping that is too short", vec![frame(PING, 0, 0, &[0; 7])]),
        ("settings that are none", vec![frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1])]),
        ("windows of settings", vec![frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff])]),
        ("more padding than data", vec![posted.clone(), frame(DATA, 8, 1, &[9, 0])]),
    ] {
        let answer = send(port(&running), &frames, &[]).await;
        assert_eq!(of_kind(GOAWAY, &answer).len(), 1, "{what}");
        until_idle(&running).await;
    }
    assert_eq!(get(port(&running), "/").await.status(), 200, "others are unharmed");
}

/// Each of these frames is to be answered with another, and something is under way all the time.
#[tokio::test]
async fn a_client_that_reads_no_answers_to_its_frames_is_cut_off() {
    let upstream = Upstream::serving(|request| async move {
        if request.uri().path() == "/held" {
            std::future::pending::<()>().await;
        }
        http::Response::new(full("ok"))
    })
    .await;
    let mut settings = settings(&[&upstream.url()]);
    settings.front.head_timeout = Duration::from_millis(300);
    let running = gateway(settings).await;
    let block = |frame: Vec<u8>| frame.repeat(1_000);
    for flood in [block(frame(PING, 0, 0, &[0; 8])), block(frame(SETTINGS, 0, 0, &[]))] {
        let mut client = TcpStream::connect(port(&running)).await.unwrap();
        client.write_all(PREFACE).await.unwrap();
        client.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let held = fields(&asking("GET", "/held"));
        client.write_all(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &held)).await.unwrap();
        let flooding = async { while client.write_all(&flood).await.is_ok() {} };
        tokio::time::timeout(PATIENCE, flooding).await.expect("an end in time");
        until_idle(&running).await;
    }
    assert_eq!(get(port(&running), "/").await.status(), 200, "others are unharmed");
}

/// As a client of gRPC has them that sends many messages at once.
#[tokio::test]
async fn a_body_in_many_small_frames_arrives_whole() {
    let upstream = Upstream::serving(|request| async move {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let mut answer = http::Response::new(full(""));
        if body.len() != 10_000 {
            *answer.status_mut() = http::StatusCode::BAD_REQUEST;
        }
        answer
    })
    .await;
    for url in [upstream.url(), format!("h2c://{}", upstream.address)] {
        let running = gateway(settings(&[&url])).await;
        let head = frame(HEADERS, END_HEADERS, 1, &fields(&asking("POST", "/")));
        let body = frame(DATA, 0, 1, &[b'x'; 10]).repeat(1_000);
        let end = frame(DATA, END_STREAM, 1, b"");
        let answer = send(port(&running), &[head, body, end], &ENDS).await;
        // The eighth entry of the table of HPACK is the status 200.
        let heads = of_kind(HEADERS, &answer);
        assert_eq!(heads.first().map(|(_, head)| head[0]), Some(0x88), "{url}");
    }
}

#[tokio::test]
async fn a_head_without_end_ends_the_connection() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let more = fields(&[("x", &"y".repeat(100))]);
    let mut frames = vec![frame(HEADERS, END_STREAM, 1, &fields(&GET))];
    frames.extend((0..20_000).map(|_| frame(CONTINUATION, 0, 1, &more)));
    send(port(&running), &frames, &[GOAWAY]).await;
    until("closed", || running.counts().connections == 0).await;
    assert_eq!(get(port(&running), "/").await.status(), 200, "others are unharmed");
    assert_eq!(upstream.asked(), 1);
}

/// A client that reads frames and gives no window, however much there is for it.
#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_gives_its_place_back() {
    let upstream = Upstream::serving(|_| async { http::Response::new(full(vec![b'x'; 1 << 20])) });
    let upstream = upstream.await;
    let mut settings = with_rules(&[&upstream.url()], |layer| {
        layer.limit = Some("1 at once for 1h per ip".parse().unwrap());
    });
    settings.front.head_timeout = Duration::from_millis(500);
    let running = gateway(settings).await;
    let (to, window) = (port(&running), frame(SETTINGS, 0, 0, &NO_WINDOW));
    let asking = frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&GET));
    let taking_nothing =
        tokio::spawn(async move { send(to, &[window, asking], &[RST_STREAM]).await });
    until("asked", || upstream.asked() == 1).await;
    until("given back", || running.counts().under_way == 0).await;
    let frames = taking_nothing.await.unwrap();
    assert_eq!(of_kind(HEADERS, &frames).len(), 1);
    assert_eq!(of_kind(RST_STREAM, &frames).len(), 1);
    assert_eq!(get(port(&running), "/").await.status(), 200, "the place is free");
}

#[tokio::test]
async fn a_connection_without_a_request_ends_as_over_http1() {
    let upstream = Upstream::echo().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.front.head_timeout = Duration::from_secs(1);
    let running = gateway(settings).await;
    let asked = frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&GET));
    let (whole, pong) = (fields(&GET), frame(SETTINGS, 1, 0, &[]));
    for (what, frames, is_told) in [
        ("nothing but settings", vec![], true),
        ("settings are agreed to", vec![pong], true),
        ("a request, and no other", vec![asked.clone()], true),
        ("a head without an end", vec![frame(HEADERS, END_STREAM, 1, &whole)], false),
        ("a part of a head", vec![asked[..asked.len() - 1].to_vec()], false),
        ("a part of a frame's header", vec![asked[..5].to_vec()], false),
    ] {
        let answer = send(port(&running), &frames, &[]).await;
        assert_eq!(!of_kind(GOAWAY, &answer).is_empty(), is_told, "{what}");
    }
    // The preface alone, behind which `send` puts settings.
    let mut silent = TcpStream::connect(port(&running)).await.unwrap();
    silent.write_all(PREFACE).await.unwrap();
    crate::support::read_all(&mut silent).await;
    until_idle(&running).await;
    assert_eq!(upstream.asked(), 1);
}

#[tokio::test]
async fn a_long_answer_arrives_whole_at_a_client_with_a_small_window() {
    let body: Vec<u8> = (0..1_000_003_u32).map(|number| number as u8).collect();
    let answer = Bytes::from(body.clone());
    let upstream = Upstream::serving(move |_| {
        let answer = answer.clone();
        async move { http::Response::new(full(answer)) }
    });
    let upstream = upstream.await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let stream = TcpStream::connect(port(&running)).await.unwrap();
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1000);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://a.example/").body(Empty::<Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), body);
}

/// A status as HPACK has it, in its table or written out.
const NOT_FOUND: [u8; 1] = [0x8d];
const TOO_MANY_REQUESTS: [u8; 5] = [0x48, 0x83, 0x68, 0x4f, 0xff];
const BAD_GATEWAY: [u8; 4] = [0x48, 0x82, 0x6c, 0x02];

/// A 2xx would tell the client that it is open.
#[tokio::test]
async fn a_websocket_over_http2_that_the_upstream_does_not_open_is_not_open() {
    let websocket = [&asking("CONNECT", "/")[..], &[(":protocol", "websocket")]].concat();
    let asking = [frame(HEADERS, END_HEADERS, 1, &fields(&websocket))];
    let echo = Upstream::echo().await;
    let mut cases = vec![(format!("h2c://{}", echo.address), vec![])];
    for (answer, status) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"[..], 502),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 502),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 502),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", 404),
    ] {
        let upstream = Upstream::raw(answer).await;
        cases.push((upstream.url(), vec![(upstream, status)]));
    }
    for (url, upstreams) in cases {
        let running = gateway(settings(&[&url])).await;
        let answer = send(port(&running), &asking, &ENDS).await;
        let heads = of_kind(HEADERS, &answer);
        let expected = upstreams.first().map_or(&BAD_GATEWAY[..], |(_, status)| match status {
            404 => &NOT_FOUND,
            _ => &BAD_GATEWAY,
        });
        assert!(
            heads.first().is_some_and(|(_, head)| head.starts_with(expected)),
            "{url} {heads:?}"
        );
        assert_eq!(crate::support::failures(&running), 0);
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn a_websocket_over_http2_is_one_over_http1_to_the_upstream() {
    let upstream = crate::forward::shouting().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let stream = TcpStream::connect(port(&running)).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let ask = |protocol: Option<&'static str>| {
        let mut request = Request::new(Empty::<Bytes>::new());
        *request.method_mut() = Method::CONNECT;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = "http://a.example/chat".parse().unwrap();
        request.headers_mut().insert("sec-websocket-version", "13".parse().unwrap());
        // Firefox says so over HTTP/2, whatever it asks for.
        request.headers_mut().insert("te", "trailers".parse().unwrap());
        if let Some(protocol) = protocol {
            request.extensions_mut().insert(Protocol::from_static(protocol));
        }
        request
    };
    // Nothing but WebSockets can be told to an upstream. By the answer the client knows what the gateway takes.
    for protocol in [None, Some("connect-udp")] {
        assert_eq!(sender.send_request(ask(protocol)).await.unwrap().status(), 405);
    }
    let answer = sender.send_request(ask(Some("websocket"))).await.unwrap();
    assert_eq!(answer.status(), 200);
    for name in ["sec-websocket-accept", "upgrade", "connection"] {
        assert!(!answer.headers().contains_key(name), "{name}");
    }
    assert!(answer.headers().contains_key("ratelimit"));
    let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    for text in ["one\n\n", "\u{0}two"] {
        tunnel.write_all(text.as_bytes()).await.unwrap();
        let mut back = vec![0; text.len()];
        tokio::time::timeout(PATIENCE, tunnel.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(String::from_utf8(back).unwrap(), text.to_uppercase());
    }
    assert_eq!(running.counts().under_way, 1);
    drop((tunnel, sender));
    until_idle(&running).await;
    until("closed", || running.counts().upstream_connections == 0).await;
}

#[tokio::test]
async fn the_gateway_itself_tells_no_client_that_a_websocket_over_http2_is_open() {
    let websocket = |path, more: &[_]| {
        let lines = [&asking("CONNECT", path)[..], &[(":protocol", "websocket")], more].concat();
        [frame(HEADERS, END_HEADERS, 1, &fields(&lines))]
    };
    let folder = Folder::new("websocket");
    folder.write("index.html", "home");
    folder.write("empty", "");
    let mut of_files = settings(&[]);
    of_files.routes[0].folder = Some(folder.0.clone());
    let running = gateway(of_files).await;
    for path in ["/", "/empty"] {
        let answer = send(port(&running), &websocket(path, &[]), &ENDS).await;
        let heads = of_kind(HEADERS, &answer);
        assert!(heads.first().is_some_and(|(_, head)| head.starts_with(&BAD_GATEWAY)), "{heads:?}");
    }
    // A call of gRPC is denied with a 200.
    let limit = |layer: &mut tidegate_server::config::Layer| {
        layer.limit = Some("1/day per ip".parse().unwrap());
    };
    let upstream = Upstream::echo().await;
    let running = gateway(with_rules(&[&upstream.url()], limit)).await;
    get(port(&running), "/").await;
    let call = websocket("/", &[("content-type", "application/grpc")]);
    let heads = of_kind(HEADERS, &send(port(&running), &call, &ENDS).await);
    let is_denied = |(_, head): &(u32, Vec<u8>)| head.starts_with(&TOO_MANY_REQUESTS);
    assert!(heads.first().is_some_and(is_denied), "{heads:x?}");
}
