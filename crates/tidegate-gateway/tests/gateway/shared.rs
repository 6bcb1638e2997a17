//! Clients whose requests go to a server over one connection of HTTP/2, and what one of them, or the answer to one,
//! does to the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Response;
use tidegate_gateway::Running;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::http2::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, fields,
    frame,
};
use crate::peer::{Caller, Peer, before, peer};
use crate::support::{
    PATIENCE, Upstream, exchange, full, gateway, get, port, post, settings, until, until_idle,
};

/// A client that has the head of its answer, and gives the body no window.
async fn stalling(running: &Running, path: &str) -> Caller<TcpStream> {
    let mut client = Caller::connect(port(running), 0).await;
    client.get(1, path).await;
    client.hear(&[HEADERS]).await.expect("the head of an answer");
    client
}

#[tokio::test]
async fn answers_that_their_clients_do_not_take_hold_up_no_others() {
    const BYTES: usize = 1 << 20;
    let upstream = Upstream::serving(|request| async move {
        let times = if request.uri().path() == "/large" { 8 } else { 1 };
        Response::new(full(vec![b'x'; times * BYTES]))
    })
    .await;
    let running = before(&upstream).await;
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(stalling(&running, "/large").await);
    }
    for number in 0..3 {
        let answer = timeout(PATIENCE / 3, get(port(&running), "/")).await;
        let answer = answer.unwrap_or_else(|_| panic!("answer {number} is held up"));
        assert_eq!(answer.body().len(), BYTES);
    }
    assert_eq!(running.counts().upstream_connections, 1, "all of it is one connection");
    drop(clients);
    until_idle(&running).await;
}

/// Answers the first request in parts of so many bytes, and others at once.
async fn in_parts(mut peer: Peer, parts: usize, bytes: usize) {
    let mut is_first = peer.before == 0;
    while let Some((_, flags, stream, _)) = peer.next().await {
        if flags & END_STREAM == 0 {
            continue;
        }
        if std::mem::take(&mut is_first) {
            peer.tell(HEADERS, END_HEADERS, stream, &[0x88]).await;
            let part = frame(DATA, 0, stream, &vec![b'x'; bytes]);
            peer.say(&part.repeat(parts)).await;
            peer.tell(DATA, END_STREAM, stream, b"").await;
        } else {
            peer.answer(stream, b"").await;
        }
    }
}

#[tokio::test]
async fn an_answer_in_many_small_parts_is_whole_and_costs_no_other_where_nobody_takes_it() {
    let (upstream, _) = peer(|peer| in_parts(peer, 3_000, 20)).await;
    let running = before(&upstream).await;
    let answer = get(port(&running), "/").await;
    assert_eq!(answer.body().len(), 60_000);
    let (upstream, seen) = peer(|peer| in_parts(peer, 3_000, 20)).await;
    let running = before(&upstream).await;
    let client = stalling(&running, "/").await;
    for _ in 0..3 {
        assert_eq!(post(port(&running), "body".into()).await, 200);
    }
    assert_eq!(seen.bodies.lock().len(), 3);
    assert_eq!(running.counts().upstream_connections, 1, "the connection goes on");
    drop(client);
    until_idle(&running).await;
}

/// Answers half of the first request, and all others with as many parts as a window of 256 KiB has room for.
async fn half_or_in_parts(mut peer: Peer) {
    while let Some((_, _, stream, _)) = peer.next().await {
        peer.tell(HEADERS, END_HEADERS, stream, &[0x88]).await;
        if stream == 1 {
            peer.tell(DATA, 0, stream, b"half").await;
        } else {
            peer.say(&frame(DATA, 0, stream, &[b'x'; 20]).repeat(13_000)).await;
        }
    }
}

#[tokio::test]
async fn answers_in_many_small_parts_that_nobody_takes_leave_others_whole() {
    let (upstream, _) = peer(half_or_in_parts).await;
    let mut settings = settings(&[&format!("h2c://{}", upstream.address)]);
    settings.routes[0].upstream.in_flight_max = 64;
    let running = gateway(settings).await;
    let mut other = Caller::connect(port(&running), 65_535).await;
    other.get(1, "/").await;
    other.hear(&[DATA]).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..16 {
        clients.push(stalling(&running, "/").await);
    }
    let ended = timeout(PATIENCE / 16, other.hear(&[RST_STREAM, GOAWAY])).await;
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(running.counts().upstream_connections, 1, "the connection goes on");
    drop((other, clients));
    until_idle(&running).await;
}

/// Takes three requests, answers them half, does something to the second, and answers the rest of the others.
async fn half_and_half(mut peer: Peer, fault: &(u8, u8, &'static [u8])) {
    let mut streams = Vec::new();
    while let Some((_, flags, stream, _)) = peer.next().await {
        if flags & END_STREAM == 0 {
            continue;
        }
        let length = fields(&[("content-length", "6")]);
        peer.tell(HEADERS, END_HEADERS, stream, &[&[0x88], &length[..]].concat()).await;
        peer.tell(DATA, 0, stream, b"abc").await;
        streams.push(stream);
        if let [first, second, third] = streams[..] {
            let (kind, flags, payload) = fault;
            peer.tell(*kind, *flags, second, payload).await;
            for stream in [first, third] {
                peer.tell(DATA, END_STREAM, stream, b"def").await;
            }
            streams.clear();
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_leaves_others_of_its_connection_whole() {
    for fault in [
        (RST_STREAM, 0, &[0, 0, 0, 0][..]),
        (RST_STREAM, 0, &[0, 0, 0, 8]),
        (RST_STREAM, 0, &[0, 0, 0, 11]),
        (DATA, END_STREAM, b"d"),
        (DATA, END_STREAM, b"defg"),
        (DATA, 0, b"defg"),
        (HEADERS, END_HEADERS | END_STREAM, &[0x88]),
    ] {
        let serve = move |peer| async move { half_and_half(peer, &fault).await };
        let (upstream, seen) = peer(serve).await;
        let running = before(&upstream).await;
        let to = port(&running);
        for _ in 0..2 {
            let asking = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
            let asked: Vec<_> = (0..3).map(|_| tokio::spawn(exchange(to, asking))).collect();
            let mut whole = 0;
            for answer in asked {
                let answer = answer.await.unwrap();
                whole += usize::from(answer.ends_with("\r\n\r\nabcdef"));
            }
            assert_eq!(whole, 2, "{fault:?}");
        }
        assert_eq!(seen.connections.load(Ordering::SeqCst), 1, "{fault:?}");
        until_idle(&running).await;
    }
}

/// Takes the body of each request but those of the first stream, for which it gives no window.
async fn take_others(mut peer: Peer) {
    peer.tell(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
    let mut first = None;
    while let Some((kind, flags, stream, payload)) = peer.next().await {
        let first = *first.get_or_insert(stream);
        let window = 2_u32 << 20;
        match kind {
            HEADERS if stream != first => {
                peer.tell(WINDOW_UPDATE, 0, stream, &window.to_be_bytes()).await;
            }
            DATA if !payload.is_empty() => {
                let taken = (payload.len() as u32).to_be_bytes();
                peer.tell(WINDOW_UPDATE, 0, 0, &taken).await;
            }
            _ => {}
        }
        if flags & END_STREAM != 0 {
            peer.answer(stream, b"").await;
        }
    }
}

#[tokio::test]
async fn a_body_that_its_server_does_not_take_holds_up_no_others() {
    let (upstream, seen) = peer(take_others).await;
    let mut settings = settings(&[&format!("h2c://{}", upstream.address)]);
    settings.routes[0].bounds.response_timeout = Duration::from_secs(2);
    let running = gateway(settings).await;
    let to = port(&running);
    let stuck = tokio::spawn(post(to, "x".repeat(4 << 20)));
    until("under way", || running.counts().under_way == 1).await;
    for _ in 0..3 {
        assert_eq!(post(to, "x".repeat(1 << 20)).await, 200);
        assert_eq!(get(to, "/").await.status(), 200);
    }
    assert!(!stuck.is_finished(), "they have not waited for it");
    assert_eq!(stuck.await.unwrap(), 504);
    assert_eq!(post(to, "x".repeat(1 << 20)).await, 200, "later ones are taken too");
    assert_eq!(seen.connections.load(Ordering::SeqCst), 1);
    until_idle(&running).await;
}

/// Takes no stream before it is told to.
async fn take_later(mut peer: Peer, later: Arc<Notify>) {
    peer.tell(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 0]).await;
    later.notified().await;
    peer.tell(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]).await;
    let mut body = Vec::new();
    while let Some((kind, flags, stream, payload)) = peer.next().await {
        body.extend(payload.iter().filter(|_| kind == DATA));
        if flags & END_STREAM != 0 {
            peer.answer(stream, &std::mem::take(&mut body)).await;
        }
    }
}

#[tokio::test]
async fn those_who_wait_in_vain_for_a_stream_leave_nothing_and_no_queue_to_be_sent() {
    let later = Arc::new(Notify::new());
    let told = Arc::clone(&later);
    let (upstream, seen) = peer(move |peer| take_later(peer, Arc::clone(&told))).await;
    let mut settings = settings(&[&format!("h2c://{}", upstream.address)]);
    settings.routes[0].bounds.response_timeout = Duration::from_millis(300);
    let running = gateway(settings).await;
    let to = port(&running);
    // It may be sent before the server has said that it takes none.
    assert_eq!(get(to, "/").await.status(), 504);
    let clients = (0..10).map(|number| {
        let bytes = if number % 2 == 0 { 1 } else { 200_000 };
        tokio::spawn(post(to, "x".repeat(bytes)))
    });
    for client in clients.collect::<Vec<_>>() {
        assert_eq!(client.await.unwrap(), 504);
    }
    until_idle(&running).await;
    later.notify_one();
    // On a busy machine it may take a few times.
    let mut tries = 0;
    while post(to, "later".into()).await != 200 {
        tries += 1;
        assert!(tries < 10, "later ones are harmed");
    }
    let bodies = seen.sorted();
    // The first may have been sent before the server said so.
    assert!(bodies.iter().all(|body| body == "later" || body.is_empty()), "{bodies:?}");
    assert!(bodies.iter().filter(|body| body.is_empty()).count() <= 1, "{bodies:?}");
    until_idle(&running).await;
}

/// Takes the first two of four requests, says of the others that it has not looked at them, and then answers.
async fn take_two(mut peer: Peer, reason: u8) {
    let (mut bodies, mut ended) = (BTreeMap::<u32, Vec<u8>>::new(), Vec::new());
    let mut is_away = peer.before > 0;
    while let Some((kind, flags, stream, payload)) = peer.next().await {
        bodies.entry(stream).or_default().extend(payload.iter().filter(|_| kind == DATA));
        if flags & END_STREAM != 0 {
            ended.push(stream);
        }
        if !is_away && bodies.len() == 4 && ended.len() == 4 {
            is_away = true;
            let last = *bodies.keys().nth(1).unwrap();
            ended.retain(|stream| *stream <= last);
            peer.tell(GOAWAY, 0, 0, &[&last.to_be_bytes()[..], &[0, 0, 0, reason]].concat()).await;
        }
        if is_away {
            for stream in ended.drain(..) {
                let body = bodies.remove(&stream).unwrap();
                peer.seen.bodies.lock().push(String::from_utf8(body).unwrap());
                peer.tell(HEADERS, END_HEADERS, stream, &[0x88]).await;
                peer.tell(DATA, 0, stream, &[b'x'; 10_000]).await;
                peer.tell(DATA, END_STREAM, stream, b"whole").await;
            }
        }
    }
}

#[tokio::test]
async fn what_a_server_that_goes_away_has_taken_is_answered_and_the_rest_is_sent_again() {
    for reason in [0, 11] {
        let (upstream, seen) = peer(move |peer| take_two(peer, reason)).await;
        let running = before(&upstream).await;
        let to = port(&running);
        let asked = (0..4).map(|number| {
            let asking = format!(
                "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1\r\n\r\n{number}"
            );
            tokio::spawn(async move { exchange(to, asking.as_bytes()).await })
        });
        for answer in asked.collect::<Vec<_>>() {
            let answer = answer.await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 "), "{reason}: {answer}");
            assert!(answer.contains("whole\r\n0\r\n\r\n"), "{reason}: {answer}");
        }
        assert_eq!(seen.sorted(), ["0", "1", "2", "3"], "each is taken once");
        assert_eq!(seen.connections.load(Ordering::SeqCst), 2);
        until_idle(&running).await;
    }
}
