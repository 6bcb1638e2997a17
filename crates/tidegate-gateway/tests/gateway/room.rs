//! How many requests a server takes at a time over one connection of HTTP/2: who has another connection, and who waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate_gateway::Running;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::http2::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, fields};
use crate::peer::{Caller, Peer, before, peer};
use crate::support::{
    PATIENCE, Upstream, exchange, failures, gateway, get, port, post, settings, until, until_idle,
};

/// How long what has to be heard of a server may take, before something else is done.
pub(crate) const A_WHILE: Duration = Duration::from_millis(300);
pub(crate) const REFUSED: [u8; 4] = [0, 0, 0, 7];
pub(crate) const fn takes(streams: u8) -> [u8; 6] {
    [0, 3, 0, 0, 0, streams]
}

/// Waits until something has come, or the end, and takes nothing of it.
async fn something(peer: &Peer) {
    let _ = peer.stream.peek(&mut [0]).await;
}

/// Takes so many streams at a time, and answers those with bodies once it may.
pub(crate) async fn holding(mut peer: Peer, streams: u8, mut may: watch::Receiver<bool>) {
    peer.tell(SETTINGS, 0, 0, &takes(streams)).await;
    let mut held = Vec::new();
    loop {
        let is_let = *may.borrow();
        while let Some(stream) = held.pop_if(|_| is_let) {
            peer.answer(stream, b"held").await;
        }
        tokio::select! {
            () = something(&peer) => {}
            _ = may.changed(), if !is_let => continue,
        }
        match peer.hear().await {
            Some((HEADERS, flags, stream, _)) if flags & END_STREAM != 0 => {
                peer.answer(stream, b"").await;
            }
            Some((DATA, flags, stream, _)) if flags & END_STREAM != 0 => held.push(stream),
            Some(_) => {}
            None => return,
        }
    }
}

/// Answers whatever comes.
pub(crate) async fn answering(mut peer: Peer) {
    while let Some((_, flags, stream, _)) = peer.next().await {
        if flags & END_STREAM != 0 {
            peer.answer(stream, b"").await;
        }
    }
}

/// By the second answer it is known how many streams the server takes.
pub(crate) async fn ask_twice(running: &Running) {
    for _ in 0..2 {
        assert_eq!(get(port(running), "/").await.status(), 200);
    }
}

/// So many requests that the server holds.
pub(crate) async fn hold(running: &Running, count: usize) -> Vec<JoinHandle<u16>> {
    let before = running.counts().under_way;
    let held = (0..count).map(|_| tokio::spawn(post(port(running), "body".into()))).collect();
    until("under way", || running.counts().under_way == before + count).await;
    held
}

pub(crate) async fn all_pass(asked: Vec<JoinHandle<u16>>) {
    for asked in asked {
        let status = timeout(PATIENCE / 4, asked).await.expect("it waits for too long");
        assert_eq!(status.unwrap(), 200);
    }
}

#[tokio::test]
async fn requests_beyond_what_a_server_takes_at_once_have_another_connection() {
    let (lets, may) = watch::channel(false);
    let (upstream, seen) = peer(move |peer| holding(peer, 2, may.clone())).await;
    let mut settings = settings(&[&format!("h2c://{}", upstream.address)]);
    settings.routes[0].upstream.idle_timeout = Duration::from_millis(500);
    let running = gateway(settings).await;
    ask_twice(&running).await;
    let held = hold(&running, 5).await;
    for _ in 0..3 {
        assert_eq!(get(port(&running), "/").await.status(), 200);
    }
    assert_eq!(seen.connections.load(Ordering::SeqCst), 3);
    // Those that are needed no more are closed.
    lets.send_replace(true);
    all_pass(held).await;
    until("closed", || running.counts().upstream_connections == 1).await;
    assert_eq!(get(port(&running), "/").await.status(), 200);
    assert_eq!(seen.connections.load(Ordering::SeqCst), 3);
    until_idle(&running).await;
}

#[tokio::test]
async fn who_waits_has_another_connection_once_the_only_one_takes_no_more() {
    let goes = Arc::new(Notify::new());
    let told = Arc::clone(&goes);
    let (upstream, seen) = peer(move |mut peer| {
        let goes = Arc::clone(&told);
        async move {
            if peer.before > 0 {
                return answering(peer).await;
            }
            while let Some((kind, flags, stream, _)) = peer.next().await {
                if kind == DATA {
                    peer.tell(SETTINGS, 0, 0, &takes(0)).await;
                    goes.notified().await;
                    peer.go_away(stream).await;
                    // This stream goes on for long.
                    while peer.hear().await.is_some() {}
                } else if flags & END_STREAM != 0 {
                    peer.answer(stream, b"").await;
                }
            }
        }
    })
    .await;
    let running = before(&upstream).await;
    ask_twice(&running).await;
    let _held = hold(&running, 1).await;
    sleep(A_WHILE).await;
    let waiting = hold(&running, 1).await;
    sleep(A_WHILE).await;
    assert_eq!(seen.connections.load(Ordering::SeqCst), 1);
    goes.notify_one();
    all_pass(waiting).await;
}

#[tokio::test]
async fn what_asks_for_an_upgrade_before_a_server_of_http2_goes_over_the_connection_that_is_there()
{
    let (upstream, seen) = peer(answering).await;
    let running = before(&upstream).await;
    let asking = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, close\r\nUpgrade: foo\r\n\r\n";
    for _ in 0..5 {
        let answer = exchange(port(&running), asking).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    assert_eq!(seen.connections.load(Ordering::SeqCst), 1);
}

/// Does whatever a server may do, until it is calm.
async fn raging(mut peer: Peer, is_calm: Arc<AtomicBool>) {
    let mut dice = Dice(peer.before as u64 + 1);
    let mut held = Vec::new();
    peer.tell(SETTINGS, 0, 0, &takes(1 + dice.below(3) as u8)).await;
    loop {
        if timeout(Duration::from_millis(3), something(&peer)).await.is_ok() {
            match peer.hear().await {
                Some((HEADERS | DATA, flags, stream, _)) if flags & END_STREAM != 0 => {
                    held.push(stream);
                }
                Some(_) => {}
                None => return,
            }
            continue;
        }
        if is_calm.load(Ordering::SeqCst) {
            peer.tell(SETTINGS, 0, 0, &takes(5)).await;
            for stream in held.drain(..) {
                peer.answer(stream, b"").await;
            }
            sleep(Duration::from_millis(20)).await;
            continue;
        }
        match (dice.below(12), held.pop()) {
            (0, _) => return,
            (1, last) => peer.go_away(last.unwrap_or(0)).await,
            (2, stream) => {
                peer.tell(SETTINGS, 0, 0, &takes(dice.below(4) as u8)).await;
                held.extend(stream);
            }
            (3, Some(stream)) => peer.tell(RST_STREAM, 0, stream, &REFUSED).await,
            (_, Some(stream)) => peer.answer(stream, b"").await,
            (_, None) => {}
        }
    }
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % end
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_stuck_whatever_a_server_and_clients_have_done() {
    let is_calm = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_calm);
    let (upstream, _) = peer(move |peer| raging(peer, Arc::clone(&told))).await;
    let mut settings = settings(&[&format!("h2c://{}", upstream.address)]);
    settings.routes[0].upstream.idle_timeout = A_WHILE;
    settings.routes[0].bounds.response_timeout = Duration::from_secs(5);
    let running = gateway(settings).await;
    let to = port(&running);
    let until_then = Instant::now() + Duration::from_secs(2);
    let clients = (0..24).map(|seed| {
        let mut dice = Dice(seed);
        tokio::spawn(async move {
            while Instant::now() < until_then {
                let waits = [Duration::from_micros(dice.below(40_000)), PATIENCE];
                let waits = waits[dice.below(2) as usize];
                if dice.below(4) == 0 {
                    let _ = timeout(waits, post(to, "body".into())).await;
                } else {
                    let _ = timeout(waits, get(to, "/")).await;
                }
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    is_calm.store(true, Ordering::SeqCst);
    until("idle", || running.counts().under_way == 0).await;
    // It may be left out for a while.
    let mut last = 0;
    for _ in 0..40 {
        let answer = timeout(PATIENCE / 3, get(to, "/")).await;
        last = answer.expect("it is stuck").status().as_u16();
        if last == 200 {
            break;
        }
        sleep(A_WHILE).await;
    }
    assert_eq!(last, 200);
    until("closed", || running.counts().upstream_connections <= 1).await;
}

#[tokio::test]
async fn requests_that_wait_take_the_first_stream_that_any_connection_has() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = settings(&[&format!("h2c://{}", listener.local_addr().unwrap())]);
    let lets: [_; 2] = std::array::from_fn(|_| watch::channel(false));
    let mays = lets.each_ref().map(|(_, may)| may.clone());
    let serving = tokio::spawn(async move {
        let mut serving = Vec::new();
        for may in mays {
            let (stream, _) = listener.accept().await.unwrap();
            serving.push(AbortOnDropHandle::new(tokio::spawn(async move {
                holding(Peer::greet(stream, Arc::default()).await, 2, may).await;
            })));
        }
        drop(listener);
        std::future::pending::<()>().await;
    });
    let _serving = AbortOnDropHandle::new(serving);
    let running = gateway(settings).await;
    ask_twice(&running).await;
    let held = hold(&running, 4).await;
    until("two", || running.counts().upstream_connections == 2).await;
    let waiting = hold(&running, 3).await;
    sleep(A_WHILE).await;
    // The first connection has two free streams from here on, and answers at once.
    lets[0].0.send_replace(true);
    all_pass(waiting).await;
    assert_eq!(get(port(&running), "/").await.status(), 200);
    assert_eq!(running.counts().under_way, 2, "those of the other connection");
    lets[1].0.send_replace(true);
    all_pass(held).await;
    until_idle(&running).await;
}

/// The first connection takes one stream, which it says with its first words or later, and holds it.
async fn hold_first(mut peer: Peer, is_said_first: bool, holds: Arc<Notify>) {
    if peer.before > 0 {
        return answering(peer).await;
    }
    if is_said_first {
        peer.tell(SETTINGS, 0, 0, &takes(1)).await;
    }
    if peer.next().await.is_none() {
        return;
    }
    if !is_said_first {
        peer.tell(SETTINGS, 0, 0, &takes(1)).await;
    }
    // What both sides have to say at first is over by then.
    while timeout(A_WHILE, something(&peer)).await.is_ok() {
        if peer.hear().await.is_none() {
            return;
        }
    }
    holds.notify_one();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn the_next_request_after_a_server_has_said_that_it_takes_no_more_has_another_connection() {
    for is_said_first in [true, false] {
        let holds = Arc::new(Notify::new());
        let told = Arc::clone(&holds);
        let serve = move |peer| hold_first(peer, is_said_first, Arc::clone(&told));
        let (upstream, seen) = peer(serve).await;
        let running = before(&upstream).await;
        let to = port(&running);
        let _held = tokio::spawn(get(to, "/"));
        holds.notified().await;
        let next = timeout(PATIENCE / 4, get(to, "/")).await;
        assert_eq!(next.expect("it waits").status(), 200, "said first: {is_said_first}");
        assert_eq!(seen.connections.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn a_stream_whose_request_goes_on_after_its_answer_takes_room() {
    let (upstream, seen) = peer(|mut peer| async move {
        peer.tell(SETTINGS, 0, 0, &takes(1)).await;
        while let Some((kind, _, stream, _)) = peer.next().await {
            if kind == HEADERS {
                peer.answer(stream, b"").await;
            }
        }
    })
    .await;
    let running = before(&upstream).await;
    ask_twice(&running).await;
    let mut client = Caller::connect(port(&running), 65_535).await;
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")];
    client.say(HEADERS, END_HEADERS, 1, &fields(&head)).await;
    client.say(DATA, 0, 1, b"some").await;
    client.hear(&[HEADERS, RST_STREAM, GOAWAY]).await.unwrap();
    until("answered", || running.counts().under_way == 0).await;
    let next = timeout(PATIENCE / 4, get(port(&running), "/")).await;
    assert_eq!(next.expect("it waits").status(), 200);
    assert_eq!(seen.connections.load(Ordering::SeqCst), 2);
    drop(client);
    until_idle(&running).await;
}

#[tokio::test]
async fn another_connection_is_kept_as_long_as_idle_ones_are() {
    let (upstream, seen) = peer(|mut peer| async move {
        peer.tell(SETTINGS, 0, 0, &takes(1)).await;
        while let Some((_, flags, stream, _)) = peer.next().await {
            if flags & END_STREAM != 0 {
                sleep(A_WHILE).await;
                peer.answer(stream, b"").await;
            }
        }
    })
    .await;
    let mut settings = settings(&[&format!("h2c://{}", upstream.address)]);
    settings.routes[0].upstream.idle_timeout = PATIENCE;
    let running = gateway(settings).await;
    ask_twice(&running).await;
    for _ in 0..3 {
        all_pass(hold(&running, 4).await).await;
        // They are looked at every quarter of a second.
        sleep(Duration::from_millis(400)).await;
    }
    let connections = seen.connections.load(Ordering::SeqCst);
    assert!((2..=4).contains(&connections), "{connections}");
}

/// How many streams are taken by a server that says so only after a while, and refuses what is more.
const FEW: u8 = 10;

/// As long as requests come together they are there together.
async fn refusing(stream: TcpStream) {
    let mut peer = Peer::meet(stream, Arc::default()).await;
    // As far away as a server may be.
    sleep(Duration::from_millis(50)).await;
    peer.tell(SETTINGS, 0, 0, &takes(FEW)).await;
    let mut open = Vec::new();
    loop {
        if timeout(Duration::from_millis(150), something(&peer)).await.is_err() {
            for stream in open.drain(..) {
                peer.answer(stream, b"").await;
            }
        } else {
            match peer.hear().await {
                Some((HEADERS, _, stream, _)) => {
                    if open.len() < usize::from(FEW) {
                        open.push(stream);
                    } else {
                        peer.tell(RST_STREAM, 0, stream, &REFUSED).await;
                    }
                }
                Some(_) => {}
                None => return,
            }
        }
    }
}

#[tokio::test]
async fn what_a_server_said_of_its_streams_holds_for_its_next_connection() {
    let upstream = Upstream::accepting(|stream, _| refusing(stream)).await;
    let running = before(&upstream).await;
    let to = port(&running);
    let asked: Vec<_> = (0..60)
        .map(|_| tokio::spawn(async move { get(to, "/").await.status().as_u16() }))
        .collect();
    all_pass(asked).await;
    assert_eq!(failures(&running), 0);
    until_idle(&running).await;
}

/// The first connection takes one stream and holds it until it goes away.
async fn go_when_told(mut peer: Peer, goes: Arc<Notify>, may: watch::Receiver<bool>) {
    if peer.before > 0 {
        return holding(peer, 2, may).await;
    }
    peer.tell(SETTINGS, 0, 0, &takes(1)).await;
    while let Some((kind, flags, stream, _)) = peer.next().await {
        if flags & END_STREAM == 0 {
            continue;
        }
        if kind == DATA {
            goes.notified().await;
            peer.answer(stream, b"held").await;
            return peer.go_away(stream).await;
        }
        peer.answer(stream, b"").await;
    }
}

#[tokio::test]
async fn a_connection_that_lives_is_kept_rather_than_one_that_has_ended() {
    let ((lets, may), goes) = (watch::channel(false), Arc::new(Notify::new()));
    let told = Arc::clone(&goes);
    let (upstream, seen) =
        peer(move |peer| go_when_told(peer, Arc::clone(&told), may.clone())).await;
    let mut settings = settings(&[&format!("h2c://{}", upstream.address)]);
    settings.routes[0].upstream.idle_timeout = Duration::from_millis(1);
    let running = gateway(settings).await;
    ask_twice(&running).await;
    let one = hold(&running, 1).await;
    let other = hold(&running, 1).await;
    until("two", || running.counts().upstream_connections == 2).await;
    sleep(A_WHILE).await;
    goes.notify_one();
    all_pass(one).await;
    until("gone", || running.counts().upstream_connections == 1).await;
    lets.send_replace(true);
    all_pass(other).await;
    // By then idle ones were looked at.
    sleep(A_WHILE * 2).await;
    assert_eq!(get(port(&running), "/").await.status(), 200);
    assert_eq!(seen.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_connection_that_takes_no_streams_draws_nobody_from_one_that_has_room_again() {
    let (lets, may) = watch::channel(false);
    let (upstream, seen) = peer(move |peer| {
        let may = may.clone();
        async move {
            let streams = if peer.before == 1 { 0 } else { 2 };
            holding(peer, streams, may).await;
        }
    })
    .await;
    let running = before(&upstream).await;
    ask_twice(&running).await;
    let held = hold(&running, 2).await;
    // The first of them may be sent over the other connection before that has said that it takes none.
    let to = port(&running);
    let first = tokio::spawn(get(to, "/"));
    until("two", || running.counts().upstream_connections == 2).await;
    sleep(A_WHILE).await;
    let waiting = hold(&running, 5).await;
    sleep(A_WHILE).await;
    assert_eq!(seen.connections.load(Ordering::SeqCst), 2, "it is not asked again and again");
    lets.send_replace(true);
    all_pass(held).await;
    all_pass(waiting).await;
    assert_eq!(first.await.unwrap().status(), 200);
}
