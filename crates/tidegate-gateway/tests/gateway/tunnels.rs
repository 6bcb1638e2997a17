//! `WebSocket`s over HTTP/2 whose ends reset, close half, go away, or take nothing: the other end learns of it, and nothing
//! stays behind.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_gateway::Running;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::http2::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE, asking, fields,
};
use crate::peer::Caller;
use crate::support::{
    PATIENCE, Upstream, gateway, port, read_head, settings, until, until_idle, with_rules,
};

const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                          Upgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n";

/// What becomes of the upstream's end of a tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    bytes: usize,
    /// Whether the other end has closed, or was reset.
    is_over: bool,
}

/// A server that takes `WebSocket`s and plain requests. Of the former it says what it hears, and runs what the function says
/// on each once it is open.
async fn chatting<F, R>(chat: F) -> (Upstream, watch::Sender<Heard>)
where
    F: Fn(TcpStream, watch::Sender<Heard>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let told = watch::Sender::new(Heard::default());
    let tell = told.clone();
    let upstream = Upstream::accepting(move |mut stream, asked| {
        let (chat, tell) = (chat.clone(), tell.clone());
        async move {
            while let Some(head) = read_head(&mut stream).await {
                asked.fetch_add(1, Ordering::SeqCst);
                if head.contains("upgrade: websocket") {
                    stream.write_all(SWITCHED).await.unwrap();
                    return chat(stream, tell).await;
                }
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                let _ = stream.write_all(answer).await;
            }
        }
    });
    (upstream.await, told)
}

/// Listens until the other end is done, and tells of it.
async fn listen(mut stream: TcpStream, tell: watch::Sender<Heard>) -> TcpStream {
    let mut buffer = [0; 4 << 10];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        tell.send_modify(|heard| heard.bytes += read);
    }
    tell.send_modify(|heard| heard.is_over = true);
    stream
}

/// A client whose WebSocket is open on the first stream.
async fn opened(running: &Running, window: u32) -> Caller<TcpStream> {
    let mut client = Caller::connect(port(running), window).await;
    let websocket = [&asking("CONNECT", "/")[..], &[(":protocol", "websocket")]].concat();
    client.say(HEADERS, END_HEADERS, 1, &fields(&websocket)).await;
    let (_, _, _, head) = client.hear(&[HEADERS]).await.unwrap();
    // The eighth entry of the table of HPACK is the status 200.
    assert_eq!(head[0], 0x88);
    client
}

async fn until_heard(told: &watch::Sender<Heard>, is_so: impl FnMut(&Heard) -> bool) {
    let mut told = told.subscribe();
    timeout(PATIENCE, told.wait_for(is_so)).await.expect("heard in time").unwrap();
}

/// Asks for something else over the same connection.
async fn still_answers(client: &mut Caller<TcpStream>) {
    client.get(3, "/").await;
    let (_, _, stream, head) = client.hear(&[HEADERS]).await.unwrap();
    assert_eq!((stream, head[0]), (3, 0x88));
}

async fn until_nothing_is_left(running: &Running) {
    until_idle(running).await;
    until("closed", || running.counts().upstream_connections == 0).await;
}

/// One place only, so that one that is not given back is missed.
async fn one_place(upstream: &Upstream) -> Running {
    gateway(with_rules(&[&upstream.url()], |layer| {
        layer.limit = Some("1 at once for 1h per ip".parse().unwrap());
    }))
    .await
}

#[tokio::test]
async fn a_client_that_ends_its_websocket_in_any_way_is_told_to_the_upstream() {
    let (upstream, told) = chatting(|stream, tell| async move {
        drop(listen(stream, tell).await);
    })
    .await;
    let running = one_place(&upstream).await;
    let reset = |reason: u8| Some((RST_STREAM, 0, vec![0, 0, 0, reason]));
    for (end, is_lost) in [
        (reset(0), false),
        (reset(2), false),
        (reset(8), false),
        (Some((DATA, END_STREAM, b"bye".to_vec())), false),
        (Some((DATA, END_STREAM, vec![])), false),
        // A frame that ends the connection.
        (Some((WINDOW_UPDATE, 0, vec![0; 3])), true),
        (None, true),
    ] {
        told.send_replace(Heard::default());
        let mut client = opened(&running, 65_535).await;
        client.say(DATA, 0, 1, b"hello").await;
        until_heard(&told, |heard| heard.bytes >= 5).await;
        assert_eq!(running.counts().under_way, 1);
        if let Some((kind, flags, payload)) = &end {
            client.say(*kind, *flags, 1, payload).await;
        }
        if is_lost {
            drop(client);
            until_heard(&told, |heard| heard.is_over).await;
        } else {
            until_heard(&told, |heard| heard.is_over).await;
            until("given back", || running.counts().under_way == 0).await;
            still_answers(&mut client).await;
            drop(client);
        }
        until_idle(&running).await;
        // That of the other request is kept.
        until("closed", || running.counts().upstream_connections <= 1).await;
    }
}

#[tokio::test]
async fn a_client_that_has_said_all_in_a_websocket_hears_the_rest() {
    let (upstream, _told) = chatting(|stream, tell| async move {
        let mut stream = listen(stream, tell).await;
        stream.write_all(&vec![b'x'; 100_000]).await.unwrap();
        stream.write_all(b"bye").await.unwrap();
    })
    .await;
    let running = one_place(&upstream).await;
    let mut client = opened(&running, 1 << 20).await;
    let window = (1_u32 << 20).to_be_bytes();
    client.say(WINDOW_UPDATE, 0, 0, &window).await;
    client.say(DATA, END_STREAM, 1, b"all").await;
    let (mut heard, mut is_whole) = (Vec::new(), false);
    while !is_whole {
        let (kind, flags, _, payload) = client.hear(&[DATA, RST_STREAM, GOAWAY]).await.unwrap();
        assert_eq!(kind, DATA);
        heard.extend(payload);
        is_whole = flags & END_STREAM != 0;
    }
    assert_eq!((heard.len(), heard.ends_with(b"bye")), (100_003, true));
    until("given back", || running.counts().under_way == 0).await;
    still_answers(&mut client).await;
    drop(client);
    until_idle(&running).await;
}

#[tokio::test]
async fn an_upstream_that_ends_its_websocket_in_any_way_is_told_to_the_client() {
    for is_reset in [false, true] {
        let (upstream, _told) = chatting(move |mut stream, _| async move {
            stream.write_all(b"bye").await.unwrap();
            stream.read_u8().await.unwrap();
            if is_reset {
                stream.set_zero_linger().unwrap();
            }
        })
        .await;
        let running = one_place(&upstream).await;
        let mut client = opened(&running, 65_535).await;
        let (_, _, _, said) = client.hear(&[DATA]).await.unwrap();
        assert_eq!(said, b"bye");
        client.say(DATA, 0, 1, b"x").await;
        let (kind, flags, _, _) = client.hear(&[DATA, RST_STREAM, GOAWAY]).await.unwrap();
        assert!(kind == RST_STREAM || (kind == DATA && flags & END_STREAM != 0), "{kind}");
        // Whose end is the last that is open has said all as well.
        if kind == DATA && !is_reset {
            client.say(DATA, END_STREAM, 1, b"").await;
        }
        until("given back", || running.counts().under_way == 0).await;
        still_answers(&mut client).await;
        drop(client);
        until_idle(&running).await;
    }
}

/// A client that reads frames and gives no window, in front of an upstream that has much to say, or goes away.
#[tokio::test]
async fn a_websocket_whose_client_takes_nothing_ends_in_time() {
    const TIME: Duration = Duration::from_millis(200);
    for goes_away in [false, true] {
        let (upstream, told) = chatting(move |mut stream, tell| async move {
            if goes_away {
                let _ = stream.write_all(&vec![b'x'; 100_000]).await;
                stream.set_zero_linger().unwrap();
                return;
            }
            while stream.write_all(&[b'x'; 10_000]).await.is_ok() {}
            tell.send_modify(|heard| heard.is_over = true);
        })
        .await;
        let mut settings = settings(&[&upstream.url()]);
        settings.routes[0].bounds.idle_timeout = TIME;
        settings.front.head_timeout = TIME;
        let running = gateway(settings).await;
        let mut client = opened(&running, 0).await;
        until("given back", || running.counts().under_way == 0).await;
        if !goes_away {
            until_heard(&told, |heard| heard.is_over).await;
        }
        // It is told, by a reset of its stream, and then nothing is under way on its connection any more.
        let end = client.hear(&[RST_STREAM]).await;
        assert!(end.is_some_and(|(_, _, stream, _)| stream == 1), "{goes_away}");
        assert!(client.hear(&[GOAWAY]).await.is_some());
        until_nothing_is_left(&running).await;
    }
}
