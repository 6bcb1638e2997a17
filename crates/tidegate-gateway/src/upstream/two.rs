//! One connection of HTTP/2 to an upstream: how many requests it has room for, how much may come over it that nobody has
//! taken, and how long the upstream may take nothing. What is sent over it, and what is sent once more, is for the pool.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tidegate_server::web::patient::Patient;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::io::InspectReader;

use super::pool::{HEAD_BYTES_MAX, Open};
use super::shared::Bell;
use crate::forward::kept::Kept;
use crate::forward::one_task::{Parts, one_task};

/// How much of one answer is kept that its client has not taken yet.
const WINDOW_BYTES: u32 = 256 << 10;
/// The same for all of a connection together, which is as much as HTTP/2 has numbers for: answers that clients do not take are
/// to hold up no others, and there are no more of them than requests under way. Hyper's adaptive window is the same for one
/// answer as for all, so that one that is not taken would fill it. Small frames count for more than they carry, and by half of
/// this it is decided that they are too many.
const WINDOW_BYTES_OF_ALL: u32 = (1 << 31) - 1;
/// How long nothing may come while something is under way before it is asked whether there is anybody.
const ASKED_AFTER: Duration = Duration::from_secs(30);
/// How long a server may take to say so, and to take anything of what is there for it.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);

/// How many streams a server is taken to let there be of which nothing is known: at least as many as RFC 9113 recommends.
pub(super) const STREAMS_MAX_UNTIL_TOLD: usize = 100;

/// A connection, for who sends requests over it.
#[derive(Clone, Debug)]
pub(super) struct Two {
    pub(super) sender: SendRequest<Kept>,
    streams: Arc<Streams>,
}

/// How many streams there are, and how many the server takes at the same time.
#[derive(Debug)]
struct Streams {
    count: AtomicUsize,
    max: AtomicUsize,
    /// Whether there was ever one.
    is_used: AtomicBool,
    /// Whether one of them was answered.
    is_proven: AtomicBool,
    /// Since when there is none, where there is none.
    idle_since: Mutex<Instant>,
    bell: Bell,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Stream(Arc<Streams>);

impl Two {
    /// Speaks HTTP/2 over a stream to a server, which is taken to let there be so many streams until it says how many.
    /// `open` is held until the connection ends, which it does by itself; the bell rings when there may be more room, or none
    /// any more. The second value is told when the server has said anything, unless it is that it takes nothing.
    pub(super) async fn open<S>(
        stream: S,
        streams_max: usize,
        open: Open,
        bell: Bell,
    ) -> io::Result<(Self, oneshot::Receiver<()>)>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (parts, task) = one_task();
        let (says, heard) = oneshot::channel();
        let mut says = Some(says);
        let has_come = Arc::new(AtomicBool::new(false));
        let comes = Arc::clone(&has_come);
        let hearing = InspectReader::new(stream, move |bytes: &[u8]| {
            // ORDERING: it is read by the same task.
            comes.fetch_or(!bytes.is_empty(), Ordering::Relaxed);
        });
        let io = TokioIo::new(Patient::new(hearing, TAKEN_WITHIN));
        let (sender, connection) =
            settings(parts, streams_max).handshake(io).await.map_err(io::Error::other)?;
        let streams = Arc::new(Streams {
            count: AtomicUsize::new(0),
            max: AtomicUsize::new(streams_max),
            is_used: AtomicBool::new(false),
            is_proven: AtomicBool::new(false),
            idle_since: Mutex::new(Instant::now()),
            bell,
        });
        let told = Arc::clone(&streams);
        tokio::spawn(async move {
            let streams = Arc::clone(&told);
            // What goes wrong is told to the requests that are under way.
            let taking = async move {
                {
                    let mut connection = pin!(connection);
                    let taken = poll_fn(|context| {
                        let max = connection.current_max_send_streams();
                        // ORDERING: the number stands for itself, here and below.
                        if streams.max.swap(max, Ordering::Relaxed) != max {
                            streams.bell.told(max);
                        }
                        let taken = connection.as_mut().poll(context);
                        // It did not say that it goes away.
                        if taken.is_pending()
                            && has_come.load(Ordering::Relaxed)
                            && let Some(says) = says.take()
                        {
                            // Not everybody wants to know.
                            let _ = says.send(());
                        }
                        taken
                    });
                    drop(taken.await);
                }
                // It takes no more, though some that it has taken may be under way.
                streams.bell.ring();
            };
            task.run(taking).await;
            drop(open);
            told.bell.ring();
        });
        Ok((Self { sender, streams }, heard))
    }

    /// Whether this is one of its streams.
    pub(super) fn carries(&self, stream: &Stream) -> bool {
        Arc::ptr_eq(&self.streams, &stream.0)
    }

    /// Whether one more request need not wait for another to end.
    pub(super) fn has_room(&self) -> bool {
        self.streams.count.load(Ordering::Relaxed) < self.streams_max()
    }

    /// How many there may be at the same time.
    pub(super) fn streams_max(&self) -> usize {
        self.streams.max.load(Ordering::Relaxed)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.streams.count.load(Ordering::Relaxed) == 0
    }

    /// Whether there was no stream for so long.
    pub(super) fn is_idle_for(&self, now: Instant, time: Duration) -> bool {
        self.is_idle() && now.duration_since(*self.streams.idle_since.lock()) >= time
    }

    pub(super) fn is_proven(&self) -> bool {
        self.streams.is_proven.load(Ordering::Relaxed)
    }

    /// Counts one more stream, and says whether it is the first ever.
    pub(super) fn begin(&self) -> (Stream, bool) {
        self.streams.count.fetch_add(1, Ordering::Relaxed);
        let is_new = !self.streams.is_used.swap(true, Ordering::Relaxed);
        (Stream(Arc::clone(&self.streams)), is_new)
    }
}

impl Stream {
    /// It was answered.
    pub(super) fn prove(&self) {
        self.0.is_proven.store(true, Ordering::Relaxed);
    }
}

/// A connection on which nothing is under way is not asked for signs of life, and neither is one that has ended but for its
/// last words: who takes nothing is [found](Patient) by other means.
fn settings(parts: Parts, streams_max: usize) -> Builder<Parts> {
    let mut builder = Builder::new(parts);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(ASKED_AFTER)
        .keep_alive_timeout(TAKEN_WITHIN)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .initial_max_send_streams(streams_max)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES_OF_ALL);
    builder
}

impl Drop for Stream {
    fn drop(&mut self) {
        // First, so that it is there for who sees that there is none.
        *self.0.idle_since.lock() = Instant::now();
        // ORDERING: the number stands for itself.
        self.0.count.fetch_sub(1, Ordering::Relaxed);
        self.0.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_nothing_loses_its_connection_though_nothing_is_under_way() {
        // It has room for the first words of a client, and not for the next.
        let (_server, stream) = tokio::io::duplex(30);
        let (count, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        let (open, bell) = (Open::new(&count), Bell::default());
        let _two = Two::open(stream, STREAMS_MAX_UNTIL_TOLD, open, bell).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 1);
        while count.load(Ordering::Relaxed) > 0 && begun.elapsed() < Duration::from_hours(1) {
            sleep(Duration::from_millis(100)).await;
        }
        let lasted = begun.elapsed();
        assert!((TAKEN_WITHIN..TAKEN_WITHIN * 3 / 2).contains(&lasted), "{lasted:?}");
    }
}
