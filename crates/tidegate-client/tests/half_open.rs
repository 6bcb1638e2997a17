//! Connections whose other end has gone without a word.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod fake;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use fake::{Act, Fake, until};
use tidegate::Call;
use tidegate_client::{Client, WhileAway};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Hands connections on. The first of them can be made to swallow whatever comes, without being closed.
#[derive(Default)]
struct Swallowing {
    is_silent: AtomicBool,
    connections: AtomicUsize,
    /// Whether the client has given the first one up.
    is_given_up: AtomicBool,
}

impl Swallowing {
    async fn before(to: SocketAddr) -> (SocketAddr, Arc<Self>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let this = Arc::new(Self::default());
        let proxy = Arc::clone(&this);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let is_first = proxy.connections.fetch_add(1, Ordering::SeqCst) == 0;
                let far = TcpStream::connect(to).await.unwrap();
                let ((near_in, near_out), (far_in, far_out)) =
                    (near.into_split(), far.into_split());
                let hand_on = |from, to| Arc::clone(&proxy).hand_on(from, to, is_first);
                let (to_far, to_near) = (hand_on(near_in, far_out), hand_on(far_in, near_out));
                let ended = Arc::clone(&proxy);
                tokio::spawn(to_near);
                tokio::spawn(async move {
                    to_far.await;
                    ended.is_given_up.fetch_or(is_first, Ordering::SeqCst);
                });
            }
        });
        (address, this)
    }

    async fn hand_on(
        self: Arc<Self>,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        is_first: bool,
    ) {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            let is_swallowed = is_first && self.is_silent.load(Ordering::SeqCst);
            if !is_swallowed && to.write_all(&bytes[..count]).await.is_err() {
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_connection_that_went_silent_is_left_out() {
    let fake = Fake::new(|_| Act::Allow);
    let (address, proxy) = Swallowing::before(fake.serve().await).await;
    let builder = Client::builder(format!("http://{address}")).while_away(WhileAway::Allow);
    let client = builder.deadline(Duration::from_secs(2)).build().unwrap();
    let mut unanswered = 0;
    for number in 0..60 {
        // By then there are all connections.
        if number == 10 {
            assert_eq!(proxy.connections.load(Ordering::SeqCst), 2);
            proxy.is_silent.store(true, Ordering::SeqCst);
        }
        let answer = client.check(&Call::new("api", &[])).await.unwrap();
        unanswered += usize::from(answer.is_fallback());
    }
    // Two until it is known. Were calls to go on taking turns, it would be half of them.
    assert!((1..=4).contains(&unanswered), "{unanswered}");
    // Another one takes its place before long.
    while proxy.connections.load(Ordering::SeqCst) == 2 {
        assert!(!client.check(&Call::new("api", &[])).await.unwrap().is_fallback());
    }
}

#[tokio::test]
async fn a_connection_that_went_silent_is_given_up_without_a_call() {
    let fake = Fake::new(|_| Act::Allow);
    let (address, proxy) = Swallowing::before(fake.serve().await).await;
    let builder = Client::builder(format!("http://{address}")).connections(1);
    let builder = builder.deadline(Duration::from_secs(5));
    let client = builder.keep_alive(Duration::from_millis(500)).build().unwrap();
    assert!(client.check(&Call::new("api", &[])).await.unwrap().is_allowed());
    proxy.is_silent.store(true, Ordering::SeqCst);
    until("it is given up", || proxy.is_given_up.load(Ordering::SeqCst)).await;
    assert!(client.check(&Call::new("api", &[])).await.unwrap().is_allowed());
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 2);
}
