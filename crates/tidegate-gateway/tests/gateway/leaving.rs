//! Servers of HTTP/2 that end their connections in the midst of requests, refuse streams, or answer with what is no
//! answer over HTTP/1.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_gateway::Running;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::Notify;

use crate::http2::{
    DATA, END_HEADERS, END_STREAM, GET, GOAWAY, HEADERS, RST_STREAM, SETTINGS, fields, frame,
    of_kind, send,
};
use crate::peer::{Peer, before, peer, read_frame};
use crate::support::{Upstream, exchange, failures, get, port, post, until, until_idle};

impl Peer {
    /// Takes so many streams, goes away, and answers the streams that it took. On the first connection it says
    /// nothing before some came that it does not take.
    async fn take(mut self, streams_max: usize) {
        let mut bodies = BTreeMap::<u32, Vec<u8>>::new();
        let mut ended = Vec::new();
        let (mut taken, mut left, mut last, mut is_away) = (0, 0, 0, false);
        while let Some((kind, flags, stream, payload)) = self.next().await {
            match kind {
                HEADERS if taken < streams_max => {
                    (taken, last) = (taken + 1, stream);
                    bodies.insert(stream, Vec::new());
                }
                HEADERS => left += 1,
                _ => {
                    if let Some(body) = bodies.get_mut(&stream) {
                        body.extend(payload);
                    }
                }
            }
            if flags & END_STREAM != 0 {
                ended.extend(bodies.remove(&stream).map(|body| (stream, body)));
            }
            let is_full = taken == streams_max && (self.before > 0 || left >= 3);
            if is_full && !is_away {
                is_away = true;
                self.go_away(last).await;
            }
            if is_away || self.before > 0 {
                for (stream, body) in ended.drain(..) {
                    self.answer(stream, &body).await;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_that_ends_its_connections_in_good_order_costs_no_request() {
    let (upstream, seen) = peer(|peer| peer.take(20)).await;
    let running = before(&upstream).await;
    let to = port(&running);
    let clients: Vec<_> = (0..24_u32)
        .map(|client| {
            tokio::spawn(async move {
                for number in 0..5 {
                    assert_eq!(post(to, format!("{client:02} {number}")).await, 200);
                    // Without a body it may not be repeated either.
                    assert_eq!(post(to, String::new()).await, 200);
                    assert_eq!(get(to, "/").await.status(), 200);
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let bodies: Vec<String> =
        (0..24).flat_map(|client| (0..5).map(move |n| format!("{client:02} {n}"))).collect();
    let seen_bodies = seen.sorted();
    assert_eq!(seen_bodies.len(), 360, "each request is taken once");
    assert_eq!(seen_bodies[240..], bodies, "and so is each body");
    assert!(seen.connections.load(Ordering::SeqCst) >= 360 / 20);
    assert_eq!(failures(&running), 0);
    until_idle(&running).await;
}

#[tokio::test]
async fn a_stream_that_is_refused_is_sent_again_on_another_connection() {
    let (upstream, seen) = peer(|mut peer| async move {
        let is_first = peer.before == 0;
        let mut text = Vec::new();
        while let Some((kind, flags, stream, payload)) = peer.next().await {
            text.extend(payload.iter().filter(|_| kind == DATA));
            if flags & END_STREAM == 0 {
                continue;
            }
            if is_first {
                peer.tell(RST_STREAM, 0, stream, &7_u32.to_be_bytes()).await;
            } else {
                peer.answer(stream, &std::mem::take(&mut text)).await;
            }
        }
    })
    .await;
    let running = before(&upstream).await;
    assert_eq!(post(port(&running), "body".into()).await, 200);
    assert_eq!(get(port(&running), "/").await.status(), 200);
    assert_eq!(seen.sorted(), ["", "body"]);
    assert_eq!((seen.connections.load(Ordering::SeqCst), failures(&running)), (2, 0));
}

#[tokio::test]
async fn an_answer_with_two_lengths_is_a_failure_over_http2_too() {
    let (upstream, seen) = peer(|mut peer| async move {
        while let Some((_, flags, stream, _)) = peer.next().await {
            if flags & END_STREAM != 0 {
                let lengths = fields(&[("content-length", "0"), ("content-length", "5")]);
                let head = [&[0x88][..], &lengths].concat();
                peer.tell(HEADERS, END_HEADERS | END_STREAM, stream, &head).await;
            }
        }
    })
    .await;
    let running = before(&upstream).await;
    assert_eq!(post(port(&running), "body".into()).await, 502);
    assert_eq!((seen.connections.load(Ordering::SeqCst), failures(&running)), (1, 1));
}

#[tokio::test]
async fn a_body_that_is_too_long_to_be_kept_is_sent_once() {
    let (upstream, seen) = peer(|mut peer| async move {
        let mut bytes = 0;
        while let Some((kind, flags, stream, payload)) = peer.next().await {
            bytes += if kind == DATA { payload.len() } else { 0 };
            if peer.before == 0 && bytes > 500_000 {
                peer.go_away(0).await;
            } else if flags & END_STREAM != 0 {
                peer.answer(stream, b"").await;
            }
        }
    })
    .await;
    let running = before(&upstream).await;
    assert_eq!(post(port(&running), "x".repeat(1_000_000)).await, 502);
    assert_eq!(seen.connections.load(Ordering::SeqCst), 1);
    assert_eq!(post(port(&running), "x".repeat(1_000_000)).await, 200);
    assert_eq!(seen.connections.load(Ordering::SeqCst), 2);
}

/// A server that answers its first stream, holds the second, and takes no more; while a third waits it goes away, and ends.
/// Other connections are answered. Tells when it holds the second, and is told when to go.
async fn leave(mut peer: Peer, is_answered: bool, last: u32, [holds, leaving]: [Arc<Notify>; 2]) {
    let (mut text, mut streams) = (Vec::new(), 0);
    while let Some((kind, flags, stream, payload)) = peer.next().await {
        text.extend(payload.iter().filter(|_| kind == DATA));
        if flags & END_STREAM == 0 {
            continue;
        }
        streams += 1;
        let body = std::mem::take(&mut text);
        if peer.before > 0 || streams == 1 {
            peer.answer(stream, &body).await;
            continue;
        }
        peer.tell(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 0]).await;
        while read_frame(&mut peer.stream).await.is_some_and(|(kind, ..)| kind != SETTINGS) {}
        holds.notify_one();
        leaving.notified().await;
        if is_answered {
            peer.answer(stream, &body).await;
        } else if last >= stream {
            peer.seen.bodies.lock().push(String::from_utf8(body).unwrap());
        }
        peer.go_away(last).await;
        let _ = peer.stream.shutdown().await;
        // What is sent to it from here on it has said that it does not take.
        while peer.next().await.is_some() {}
        return;
    }
}

#[tokio::test]
async fn a_request_that_waits_for_a_stream_when_its_connection_ends_is_taken_once_at_most() {
    // Whether the request under way is answered, which stream is the last that was taken, and what its client gets.
    for (is_answered, last, status) in [(true, 3, 200), (false, 3, 502), (false, 1, 200)] {
        for waits_with_body in [true, false] {
            let (holds, leaving) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
            let told = [Arc::clone(&holds), Arc::clone(&leaving)];
            let serve = move |peer| leave(peer, is_answered, last, told.clone());
            let (upstream, seen) = peer(serve).await;
            let running = before(&upstream).await;
            let to = port(&running);
            assert_eq!(post(to, "first".into()).await, 200);
            let under_way = tokio::spawn(async move { post(to, "under way".into()).await });
            holds.notified().await;
            let waiting = tokio::spawn(async move {
                if waits_with_body {
                    post(to, "waiting".into()).await
                } else {
                    get(to, "/").await.status().as_u16()
                }
            });
            until("waiting", || running.counts().under_way == 2).await;
            leaving.notify_one();
            let what = (is_answered, last, waits_with_body);
            assert_eq!(under_way.await.unwrap(), status, "{what:?}");
            let waited = waiting.await.unwrap();
            let bodies = seen.sorted();
            let taken = |text: &str| bodies.iter().filter(|body| *body == text).count();
            assert_eq!((taken("first"), taken("under way")), (1, 1), "{what:?}: {bodies:?}");
            if waits_with_body {
                let expected = if waited == 200 { (200, 1) } else { (502, 0) };
                assert_eq!((waited, taken("waiting")), expected, "{what:?}: {bodies:?}");
            } else {
                // It may be done twice.
                assert_eq!(waited, 200, "{what:?}");
            }
            assert_eq!(post(to, "after".into()).await, 200);
            until_idle(&running).await;
            assert_eq!(running.counts().upstream_connections, 1, "{what:?}");
        }
    }
}

/// One frame on the stream of a request: its kind, flags and payload.
type Told = (u8, u8, Vec<u8>);

/// A server that answers each request with these frames, and ends the connection after them where that is said.
async fn telling(frames: Vec<Told>, is_cut: bool) -> (Upstream, Running) {
    let frames = Arc::new(frames);
    let (upstream, _) = peer(move |mut peer| {
        let frames = Arc::clone(&frames);
        async move {
            while let Some((_, flags, stream, _)) = peer.next().await {
                if flags & END_STREAM == 0 {
                    continue;
                }
                for (kind, flags, payload) in &*frames {
                    let stream = if *kind == GOAWAY { 0 } else { stream };
                    peer.tell(*kind, *flags, stream, payload).await;
                }
                if is_cut {
                    return;
                }
            }
        }
    })
    .await;
    let running = before(&upstream).await;
    (upstream, running)
}

fn head(lines: &[(&str, &str)]) -> Told {
    (HEADERS, END_HEADERS, fields(lines))
}

fn last(mut frame: Told) -> Told {
    frame.1 |= END_STREAM;
    frame
}

fn data(text: &str) -> Told {
    (DATA, 0, text.as_bytes().to_vec())
}

fn reset(reason: u32) -> Told {
    (RST_STREAM, 0, reason.to_be_bytes().to_vec())
}

/// What a client of HTTP/1.1 is told, without what depends on the time.
async fn told(running: &Running, method: &str) -> String {
    let asking =
        format!("{method} / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te, close\r\n\r\n");
    let answer = exchange(port(running), asking.as_bytes()).await;
    let passing = ["date:", "ratelimit", "x-ratelimit", "connection:"];
    let lines = answer.split("\r\n").filter(|line| !passing.iter().any(|it| line.starts_with(it)));
    lines.collect::<Vec<_>>().join("\r\n")
}

#[tokio::test]
async fn an_answer_over_http2_that_breaks_off_is_not_passed_off_as_whole() {
    let away = (GOAWAY, 0, vec![0; 8]);
    for length in [None, Some(("content-length", "100"))] {
        for (end, is_cut) in [
            (vec![reset(0)], false),
            (vec![reset(8)], false),
            (vec![away.clone()], false),
            (vec![away.clone()], true),
            (vec![], true),
            (vec![head(&[("x-sum", "7")])], false),
            (vec![last(head(&[("transfer-encoding", "chunked")]))], false),
        ] {
            let lines: Vec<_> = [(":status", "200")].into_iter().chain(length).collect();
            let frames = [vec![head(&lines), data("half")], end.clone()].concat();
            let (_upstream, running) = telling(frames, is_cut).await;
            let what = format!("{length:?} {end:?} {is_cut}");
            let answer = told(&running, "GET").await;
            assert!(!answer.ends_with("0\r\n\r\n"), "{what}: {answer}");
            assert!(!answer.contains(" 200 ") || answer.len() < 150, "{what}: {answer}");
            let asking = frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields(&GET));
            let answer = send(port(&running), &[asking], &[RST_STREAM, GOAWAY]).await;
            assert_eq!(of_kind(RST_STREAM, &answer).len(), 1, "{what}: {answer:?}");
            until_idle(&running).await;
        }
    }
    // Behind its end nothing is taken from it.
    let frames = vec![head(&[(":status", "200")]), last(data("whole")), reset(0)];
    let (_upstream, running) = telling(frames, false).await;
    let answer = told(&running, "GET").await;
    assert!(answer.ends_with("5\r\nwhole\r\n0\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn an_answer_over_http2_has_one_reading_over_http1() {
    let ok = (":status", "200");
    let chunked = "transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let of_length = "content-length: 2\r\n\r\nok";
    for (lines, rest) in [
        (vec![ok], chunked),
        (vec![ok, ("content-length", "2")], of_length),
        (vec![ok, ("content-length", "2"), ("content-length", "2")], of_length),
        (vec![ok, ("content_length", "9"), ("transfer_encoding", "gzip")], chunked),
        (vec![ok, ("te", "trailers")], chunked),
    ] {
        let (_upstream, running) = telling(vec![head(&lines), last(data("ok"))], false).await;
        let expected = format!("HTTP/1.1 200 OK\r\n{rest}");
        assert_eq!(told(&running, "GET").await, expected, "{lines:?}");
        assert_eq!(failures(&running), 0, "{lines:?}");
    }
    for status in ["204", "304"] {
        for length in [None, Some(("content-length", "5"))] {
            let lines: Vec<_> = [(":status", status)].into_iter().chain(length).collect();
            let (_upstream, running) =
                telling(vec![head(&lines), last(data("hello"))], false).await;
            for method in ["GET", "HEAD"] {
                let answer = told(&running, method).await;
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
                assert!(answer.ends_with("\r\n\r\n") && !answer.contains("chunked"), "{answer}");
            }
        }
    }
    let trailers =
        [("x-sum", "1"), ("content-length", "9"), ("content_length", "9"), ("host", "b")];
    let names = ("trailer", "x-sum, content-length, content_length, host");
    let frames = vec![head(&[ok, names]), data("ok"), last(head(&trailers))];
    let (_upstream, running) = telling(frames, false).await;
    let answer = told(&running, "GET").await;
    assert!(answer.ends_with("\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn an_answer_over_http2_that_is_none_is_502() {
    let ok = (":status", "200");
    for lines in [
        vec![ok, ("content-length", "2"), ("content-length", "3")],
        vec![ok, ("content-length", "+2")],
        vec![ok, ("content-length", "2, 2")],
        vec![ok, ("content-length", "")],
        vec![ok, ("transfer-encoding", "chunked")],
        vec![ok, ("connection", "close")],
        vec![ok, ("keep-alive", "1")],
        vec![ok, ("proxy-connection", "close")],
        vec![ok, ("upgrade", "h2c")],
        vec![ok, ("x", "a\r\nb: c")],
        vec![ok, ("X", "y")],
        vec![ok, ok],
        vec![("x", "y")],
        vec![(":status", "")],
        vec![(":status", "0")],
        vec![(":status", "099")],
        vec![(":status", "1000")],
        vec![(":status", "200\r\n")],
        vec![(":status", "100")],
        vec![(":status", "101")],
    ] {
        let (_upstream, running) = telling(vec![head(&lines), last(data("ok"))], false).await;
        let answer = told(&running, "GET").await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{lines:?} became {answer}");
        assert!(failures(&running) > 0, "{lines:?}");
        until_idle(&running).await;
    }
    for (lines, status) in
        [(vec![("content-length", "5")], "200"), (vec![], "100"), (vec![], "101")]
    {
        let lines = [vec![(":status", status)], lines].concat();
        let (_upstream, running) = telling(vec![last(head(&lines))], false).await;
        let answer = told(&running, "GET").await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{lines:?} became {answer}");
    }
}
