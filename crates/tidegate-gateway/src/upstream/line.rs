//! Connections to an upstream that speaks HTTP/1 without TLS, as bytes: for requests that are sent without a
//! general client in between. They are kept apart from those of the pool, and counted with them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::connect::Connector;
use super::pool::Open;

/// The most idle connections that are kept.
const IDLE_MAX: usize = 512;
/// Room for the bytes that are read at a time: little at first, and more where more comes.
const READ_BYTES: usize = 4 << 10;
const READ_BYTES_MAX: usize = 64 << 10;

/// The connections to one upstream.
#[derive(Debug)]
pub(crate) struct Lines {
    connector: Connector,
    /// A server that closes a connection just as we use it costs a request. Ours are closed before that.
    idle_timeout: Duration,
    idle: Mutex<Vec<(Line, Instant)>>,
    open: Arc<AtomicUsize>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
    /// What has come and was not taken.
    pub(crate) input: BytesMut,
    /// Room for what is read next.
    room: usize,
    _open: Open,
}

/// Why bytes are not on their way.
#[derive(Debug)]
pub(crate) enum SendError {
    /// None of them left.
    Unsent(io::Error),
    /// Some of them did.
    Broken(io::Error),
}

impl Lines {
    /// Counts its connections in `open`.
    pub(crate) fn new(
        connector: Connector,
        idle_timeout: Duration,
        open: Arc<AtomicUsize>,
    ) -> Self {
        Self { connector, idle_timeout, idle: Mutex::default(), open }
    }

    /// The connection that was used last, if it can be used again.
    pub(crate) fn idle(&self) -> Option<Line> {
        let mut idle = self.idle.lock();
        while let Some((line, since)) = idle.pop() {
            if since.elapsed() >= self.idle_timeout {
                // All that are below are older.
                idle.clear();
                return None;
            }
            if line.is_quiet() {
                return Some(line);
            }
        }
        None
    }

    /// A new connection.
    pub(crate) async fn connect(&self, connect_timeout: Duration) -> io::Result<Line> {
        let stream = timeout(connect_timeout, self.connector.connect_plain()).await??;
        let open = Open::new(&self.open);
        Ok(Line { stream, input: BytesMut::new(), room: READ_BYTES, _open: open })
    }

    /// Keeps a connection on which nothing is under way.
    pub(crate) fn put_back(&self, line: Line) {
        if line.is_quiet() {
            let mut idle = self.idle.lock();
            if idle.len() < IDLE_MAX {
                idle.push((line, Instant::now()));
            }
        }
    }

    /// Closes the connections that nobody used for too long, or all of them.
    pub(crate) fn sweep(&self, now: Option<Instant>) {
        self.idle.lock().retain(|(line, since)| {
            now.is_some_and(|now| now.duration_since(*since) < self.idle_timeout) && line.is_quiet()
        });
    }
}

impl Line {
    /// Sends bytes, and says whether some may have left where that fails.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), SendError> {
        let first = self.stream.write(bytes).await.map_err(SendError::Unsent)?;
        self.stream.write_all(&bytes[first..]).await.map_err(SendError::Broken)
    }

    /// Reads on, and says how many bytes came; none is the end.
    pub(crate) async fn read(&mut self) -> io::Result<usize> {
        if self.input.is_empty() && self.input.capacity() > self.room {
            self.input = BytesMut::new();
        }
        self.input.reserve(self.room);
        let read = self.stream.read_buf(&mut self.input).await?;
        let is_full = self.input.len() == self.input.capacity();
        self.room = if is_full { (2 * self.room).min(READ_BYTES_MAX) } else { READ_BYTES };
        Ok(read)
    }

    /// Whether the other end has neither closed it nor said anything that nobody asked for. It takes a call of
    /// the system only where something has happened.
    fn is_quiet(&self) -> bool {
        let nothing = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        self.input.is_empty() && self.stream.try_read(&mut [0]).is_err_and(nothing)
    }
}
