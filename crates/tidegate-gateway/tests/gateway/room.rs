//! How many requests a server takes at a time over one connection of HTTP/2: who has another connection, and who waits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_gateway::Running;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::http2::{DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, fields};
use crate::peer::{Caller, Peer, Seen, before, peer};
use crate::support::{
    PATIENCE, Upstream, failures, gateway, get, port, post, settings, until, until_idle,
};

/// How long what has to be heard of a server may take, before something else is done.
const A_WHILE: Duration = Duration::from_millis(300);
const REFUSED: [u8; 4] = [0, 0, 0, 7];

const fn takes(streams: u8) -> [u8; 6] {
    [0, 3, 0, 0, 0, streams]
}

/// Waits until something has come, or the end, and takes nothing of it.
async fn something(peer: &Peer) {
    let _ = peer.stream.peek(&mut [0]).await;
}

/// Takes so many streams at a time, and answers those with bodies once it may.
async fn holding(mut peer: Peer, streams: u8, mut may: watch::Receiver<bool>) {
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
async fn answering(mut peer: Peer) {
    while let Some((_, flags, stream, _)) = peer.next().await {
        if flags & END_STREAM != 0 {
            peer.answer(stream, b"").await;
        }
    }
}

/// By the second answer it is known how many streams the server takes.
async fn ask_twice(running: &Running) {
    for _ in 0..2 {
        assert_eq!(get(port(running), "/").await.status(), 200);
    }
}

/// So many requests that the server holds.
async fn hold(running: &Running, count: usize) -> Vec<JoinHandle<u16>> {
    let before = running.counts().under_way;
    let held = (0..count).map(|_| tokio::spawn(post(port(running), "body".into()))).collect();
    until("under way", || running.counts().under_way == before + count).await;
    held
}

async fn all_pass(asked: Vec<JoinHandle<u16>>) {
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

/// What becomes of connections to a server other than the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Refused,
    /// As by what stands in front of it.
    Closed,
    /// The server greets, and goes away.
    Leaving,
    /// The system takes them.
    Silent,
    /// The system drops what would connect.
    Unanswered,
}

/// A gateway whose server takes two streams on its first connection.
async fn with_others(
    others: Others,
    connect_timeout: Duration,
    may: watch::Receiver<bool>,
) -> (Running, Arc<Seen>, AbortOnDropHandle<()>) {
    let seen = Arc::<Seen>::default();
    let counted = Arc::clone(&seen);
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(if others == Others::Unanswered { 0 } else { 128 }).unwrap();
    let address = listener.local_addr().unwrap();
    let mut settings = settings(&[&format!("h2c://{address}")]);
    settings.routes[0].upstream.connect_timeout = connect_timeout;
    let running = gateway(settings).await;
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let first = Peer::greet(stream, Arc::clone(&counted)).await;
        let mut kept = Vec::new();
        let others = async {
            match others {
                Others::Refused => drop(listener),
                // It is the last one that the system takes.
                Others::Unanswered => kept.push(TcpStream::connect(address).await.unwrap()),
                Others::Closed | Others::Silent | Others::Leaving => loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    if others == Others::Leaving {
                        Peer::greet(stream, Arc::clone(&counted)).await.go_away(0).await;
                        continue;
                    }
                    counted.connections.fetch_add(1, Ordering::SeqCst);
                    if others == Others::Silent {
                        kept.push(stream);
                    }
                },
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = holding(first, 2, may) => {}
            () = others => {}
        }
    });
    ask_twice(&running).await;
    (running, seen, AbortOnDropHandle::new(serving))
}

#[tokio::test]
async fn requests_beyond_what_a_server_takes_at_once_wait_where_it_has_no_other_connection() {
    use Others::{Closed, Leaving, Refused, Silent, Unanswered};
    for others in [Refused, Closed, Leaving, Silent, Unanswered] {
        let (lets, may) = watch::channel(false);
        let (running, seen, _serving) = with_others(others, A_WHILE, may).await;
        let to = port(&running);
        let held = hold(&running, 2).await;
        let waiting: Vec<_> = (0..6)
            .map(|number| {
                tokio::spawn(async move {
                    if number % 2 == 0 {
                        get(to, "/").await.status().as_u16()
                    } else {
                        post(to, "waiting".into()).await
                    }
                })
            })
            .collect();
        until("waiting", || running.counts().under_way == 8).await;
        // Another connection has failed by then.
        sleep(A_WHILE * 2).await;
        assert_eq!(running.counts().under_way, 8, "{others:?}");
        let connections = seen.connections.load(Ordering::SeqCst);
        assert!(connections < 5, "{others:?}: it is not tried {connections} times");
        lets.send_replace(true);
        all_pass(held).await;
        all_pass(waiting).await;
        assert_eq!(failures(&running), 0, "{others:?}");
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_another_connection_harms_nobody_on_the_first() {
    for others in [Others::Silent, Others::Unanswered] {
        let (lets, may) = watch::channel(false);
        let (running, _seen, _serving) = with_others(others, PATIENCE, may).await;
        let held = hold(&running, 2).await;
        let waiting = hold(&running, 3).await;
        // Another connection is being made, and will be for long.
        sleep(A_WHILE).await;
        let begun = Instant::now();
        lets.send_replace(true);
        all_pass(held).await;
        all_pass(waiting).await;
        assert_eq!(get(port(&running), "/").await.status(), 200);
        assert!(begun.elapsed() < PATIENCE / 2, "{others:?}: {:?}", begun.elapsed());
        assert_eq!(failures(&running), 0, "{others:?}");
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn another_connection_is_tried_again_after_a_while() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = settings(&[&format!("h2c://{}", listener.local_addr().unwrap())]);
    let (lets, may) = watch::channel(false);
    let serving = tokio::spawn(async move {
        let (first, _) = listener.accept().await.unwrap();
        let first = holding(Peer::greet(first, Arc::default()).await, 2, may);
        let second = async {
            drop(listener.accept().await.unwrap());
            let (stream, _) = listener.accept().await.unwrap();
            answering(Peer::greet(stream, Arc::default()).await).await;
        };
        tokio::join!(first, second);
    });
    let _serving = AbortOnDropHandle::new(serving);
    let running = gateway(settings).await;
    ask_twice(&running).await;
    let held = hold(&running, 2).await;
    let to = port(&running);
    for _ in 0..2 {
        let next = timeout(PATIENCE / 4, get(to, "/")).await;
        assert_eq!(next.expect("it waits").status(), 200);
    }
    assert_eq!(failures(&running), 0);
    lets.send_replace(true);
    all_pass(held).await;
    until_idle(&running).await;
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
                sleep(Duration::from_millis(100)).await;
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
