//! Servers and clients of HTTP/2 that are made of frames, which say what no library would.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tidegate_gateway::Running;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::http2::{
    ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, SETTINGS, WINDOW_UPDATE,
    asking, fields, frame,
};
use crate::support::{PATIENCE, Upstream, gateway, settings};

/// The kind of a frame, its flags, its stream, and its payload.
pub(crate) type Frame = (u8, u8, u32, Vec<u8>);

/// The next frame; `None` at the end.
pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Option<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.ok()?;
    Some((head[3], head[4], id, payload))
}

/// What a server of HTTP/2 was asked.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connections: AtomicUsize,
    /// The bodies of requests that were answered.
    pub(crate) bodies: Mutex<Vec<String>>,
}

impl Seen {
    pub(crate) fn sorted(&self) -> Vec<String> {
        let mut bodies = self.bodies.lock().clone();
        bodies.sort_unstable();
        bodies
    }
}

/// One connection of such a server.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) seen: Arc<Seen>,
    /// How many connections there were before this one.
    pub(crate) before: usize,
}

impl Peer {
    /// One that has said nothing yet.
    pub(crate) async fn meet(stream: TcpStream, seen: Arc<Seen>) -> Self {
        let before = seen.connections.fetch_add(1, Ordering::SeqCst);
        let mut peer = Self { stream, seen, before };
        let mut preface = [0; 24];
        peer.stream.read_exact(&mut preface).await.unwrap();
        peer
    }

    /// The first of all says how much may be sent.
    pub(crate) async fn greet(stream: TcpStream, seen: Arc<Seen>) -> Self {
        let mut peer = Self::meet(stream, seen).await;
        // Windows of 2 MiB, for each stream and for all together.
        let window = [&[0, 4][..], &(2_u32 << 20).to_be_bytes()].concat();
        peer.tell(SETTINGS, 0, 0, &window).await;
        peer.tell(WINDOW_UPDATE, 0, 0, &(2_u32 << 20).to_be_bytes()).await;
        peer
    }

    pub(crate) async fn tell(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.say(&frame(kind, flags, stream, payload)).await;
    }

    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// The next frame, to which is said what has to be said to it.
    pub(crate) async fn hear(&mut self) -> Option<Frame> {
        let (kind, flags, stream, payload) = read_frame(&mut self.stream).await?;
        if matches!(kind, SETTINGS | PING) && flags & ACK == 0 {
            let echo = if kind == PING { &payload[..] } else { &[] };
            self.tell(kind, ACK, 0, echo).await;
        }
        Some((kind, flags, stream, payload))
    }

    /// The next frame of a request.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            let frame = self.hear().await?;
            if matches!(frame.0, HEADERS | DATA) {
                return Some(frame);
            }
        }
    }

    pub(crate) async fn answer(&mut self, stream: u32, body: &[u8]) {
        self.seen.bodies.lock().push(String::from_utf8(body.to_vec()).unwrap());
        // The eighth entry of the table of HPACK is the status 200.
        self.tell(HEADERS, END_HEADERS | END_STREAM, stream, &[0x88]).await;
    }

    pub(crate) async fn go_away(&mut self, last: u32) {
        let payload = [last.to_be_bytes(), [0; 4]].concat();
        self.tell(GOAWAY, 0, 0, &payload).await;
    }
}

/// A server of HTTP/2 that does with each connection what the function says.
pub(crate) async fn peer<F, R>(serve: F) -> (Upstream, Arc<Seen>)
where
    F: Fn(Peer) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send + 'static,
{
    let seen = Arc::<Seen>::default();
    let counted = Arc::clone(&seen);
    let upstream = Upstream::accepting(move |stream, _| {
        let (serve, seen) = (serve.clone(), Arc::clone(&counted));
        async move { serve(Peer::greet(stream, seen).await).await }
    });
    (upstream.await, seen)
}

pub(crate) async fn before(upstream: &Upstream) -> Running {
    gateway(settings(&[&format!("h2c://{}", upstream.address)])).await
}

/// A client of HTTP/2 that reads and sends what it is told to, and nothing by itself.
pub(crate) struct Caller<S> {
    pub(crate) stream: S,
}

impl Caller<TcpStream> {
    /// One that gives each stream a window of so many bytes.
    pub(crate) async fn connect(to: SocketAddr, window: u32) -> Self {
        Self::over(TcpStream::connect(to).await.unwrap(), window).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Caller<S> {
    pub(crate) async fn over(mut stream: S, window: u32) -> Self {
        let window = [&[0, 4][..], &window.to_be_bytes()].concat();
        let begun = [PREFACE, &frame(SETTINGS, 0, 0, &window)].concat();
        stream.write_all(&begun).await.unwrap();
        stream.flush().await.unwrap();
        Self { stream }
    }

    pub(crate) async fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.stream.write_all(&frame(kind, flags, stream, payload)).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// Asks without a body.
    pub(crate) async fn get(&mut self, stream: u32, path: &str) {
        let head = fields(&asking("GET", path));
        self.say(HEADERS, END_HEADERS | END_STREAM, stream, &head).await;
    }

    /// The next frame of one of these kinds; `None` at the end.
    pub(crate) async fn hear(&mut self, kinds: &[u8]) -> Option<Frame> {
        let hearing = async {
            loop {
                let frame = read_frame(&mut self.stream).await?;
                if kinds.contains(&frame.0) {
                    return Some(frame);
                }
            }
        };
        tokio::time::timeout(PATIENCE, hearing).await.expect("a frame, or the end, in time")
    }
}
