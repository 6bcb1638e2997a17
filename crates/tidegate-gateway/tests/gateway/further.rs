//! What becomes of requests where a server takes no more of them over its connection of HTTP/2, and no further connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_gateway::Running;
use tidegate_gateway::upstream::Probe;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

use crate::http2::{DATA, END_STREAM, GOAWAY, RST_STREAM, SETTINGS};
use crate::peer::{Peer, Seen, before, peer};
use crate::room::{A_WHILE, REFUSED, all_pass, answering, ask_twice, hold, holding, takes};
use crate::support::{PATIENCE, failures, gateway, get, port, post, settings, until, until_idle};

/// The frames with which a server begins, and with which it says that it took nothing.
const GREETING: &[u8] = &[0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
const AWAY: &[u8] = &[0, 0, 8, GOAWAY, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// What becomes of connections to a server other than the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Refused,
    /// As by what stands in front of it.
    Closed,
    /// The server greets, and goes away.
    Leaving,
    /// Something in front of it speaks HTTP/1.
    NoHttp2,
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
                Others::Closed | Others::Silent | Others::Leaving | Others::NoHttp2 => loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    counted.connections.fetch_add(1, Ordering::SeqCst);
                    let words = match others {
                        Others::Closed => continue,
                        Others::Leaving => [GREETING, AWAY].concat(),
                        Others::NoHttp2 => b"HTTP/1.1 503 No\r\nConnection: close\r\n\r\n".to_vec(),
                        _ => Vec::new(),
                    };
                    stream.write_all(&words).await.unwrap();
                    kept.push(stream);
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
    use Others::{Closed, Leaving, NoHttp2, Refused, Silent, Unanswered};
    for others in [Refused, Closed, Leaving, NoHttp2, Silent, Unanswered] {
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
async fn a_connection_that_takes_no_streams_any_more_is_not_kept_for_ever() {
    let (upstream, _seen) = peer(|mut peer| async move {
        let mut count = 0;
        while let Some((_, flags, stream, _)) = peer.next().await {
            if flags & END_STREAM != 0 {
                peer.answer(stream, b"").await;
                count += 1;
            }
            if peer.before == 0 && count == 2 {
                peer.tell(SETTINGS, 0, 0, &takes(0)).await;
            }
        }
    })
    .await;
    let mut settings = settings(&[&format!("h2c://{}", upstream.address)]);
    settings.routes[0].upstream.idle_timeout = A_WHILE;
    let running = gateway(settings).await;
    ask_twice(&running).await;
    sleep(A_WHILE).await;
    let next = timeout(PATIENCE / 4, get(port(&running), "/")).await;
    assert_eq!(next.expect("it waits").status(), 200);
}

#[tokio::test]
async fn a_server_that_refuses_streams_is_not_connected_to_again_and_again() {
    let (upstream, seen) = peer(|mut peer| async move {
        while let Some((_, flags, stream, _)) = peer.next().await {
            if flags & END_STREAM != 0 {
                peer.tell(RST_STREAM, 0, stream, &REFUSED).await;
            }
        }
    })
    .await;
    let running = before(&upstream).await;
    let begun = Instant::now();
    for _ in 0..40 {
        assert_eq!(get(port(&running), "/").await.status(), 502);
    }
    let connections = seen.connections.load(Ordering::SeqCst) as u64;
    assert!(connections <= 3 + begun.elapsed().as_secs(), "{connections}");
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

/// Each connection but the second is answered; the first takes one stream and goes away before it answers it.
async fn leave_while_another_hangs(listener: TcpListener, goes: Arc<Notify>) {
    let (mut serving, mut kept) = (Vec::new(), Vec::new());
    for number in 1.. {
        let (stream, _) = listener.accept().await.unwrap();
        if number == 2 {
            kept.push(stream);
            continue;
        }
        let goes = Arc::clone(&goes);
        serving.push(AbortOnDropHandle::new(tokio::spawn(async move {
            let mut peer = Peer::greet(stream, Arc::default()).await;
            if number > 1 {
                return answering(peer).await;
            }
            peer.tell(SETTINGS, 0, 0, &takes(1)).await;
            while let Some((kind, flags, stream, _)) = peer.next().await {
                if kind == DATA {
                    goes.notified().await;
                    peer.go_away(stream).await;
                    return peer.answer(stream, b"").await;
                }
                if flags & END_STREAM != 0 {
                    peer.answer(stream, b"").await;
                }
            }
        })));
    }
}

#[tokio::test]
async fn another_connection_that_hangs_fails_nobody_once_the_first_has_ended() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = settings(&[&format!("h2c://{}", listener.local_addr().unwrap())]);
    settings.routes[0].upstream.connect_timeout = Duration::from_secs(2);
    let goes = Arc::new(Notify::new());
    let serving = leave_while_another_hangs(listener, Arc::clone(&goes));
    let _serving = AbortOnDropHandle::new(tokio::spawn(serving));
    let running = gateway(settings).await;
    ask_twice(&running).await;
    let held = hold(&running, 1).await;
    let waiting = hold(&running, 10).await;
    sleep(A_WHILE).await;
    goes.notify_one();
    all_pass(held).await;
    all_pass(waiting).await;
    assert_eq!(failures(&running), 0);
}

#[tokio::test]
async fn requests_wait_for_a_connection_no_longer_than_they_may_whatever_probes_do() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    // The last one that the system takes.
    let _taken = TcpStream::connect(address).await.unwrap();
    let mut settings = settings(&[&format!("h2c://{address}")]);
    settings.routes[0].upstream.connect_timeout = A_WHILE;
    let every = Duration::from_millis(50);
    settings.routes[0].upstream.probe = Some(Probe { path: "/".into(), every, timeout: PATIENCE });
    let running = gateway(settings).await;
    sleep(A_WHILE).await;
    let answer = timeout(PATIENCE / 4, get(port(&running), "/")).await;
    assert_eq!(answer.expect("it waits").status(), 502);
}
