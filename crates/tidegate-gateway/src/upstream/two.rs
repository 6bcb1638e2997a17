//! One connection of HTTP/2 to an upstream: how many requests it has room for, how much may come over it that nobody has
//! taken, and how long the upstream may take nothing. What is sent over it, and what is sent once more, is for the pool.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_server::web::patient::Patient;
use tokio::io::{AsyncRead, AsyncWrite};

use super::pool::{HEAD_BYTES_MAX, Open};
use crate::forward::kept::Kept;
use crate::forward::one_task::one_task;

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
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Stream(Arc<Streams>);

impl Two {
    /// Speaks HTTP/2 over a stream to a server, which is taken to let there be so many streams until it says how many.
    /// `open` is held until the connection ends, which it does by itself.
    pub(super) async fn open<S>(stream: S, streams_max: usize, open: Open) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (parts, task) = one_task();
        let mut builder = Builder::new(parts);
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(ASKED_AFTER)
            .keep_alive_timeout(TAKEN_WITHIN)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .initial_max_send_streams(streams_max)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES_OF_ALL);
        // A connection on which nothing is under way is not asked, and neither is one that has ended but for its last words.
        let io = TokioIo::new(Patient::new(stream, TAKEN_WITHIN));
        let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
        let (count, max) = (AtomicUsize::new(0), AtomicUsize::new(streams_max));
        let streams = Arc::new(Streams { count, max });
        let told = Arc::clone(&streams);
        tokio::spawn(async move {
            // What goes wrong is told to the requests that are under way.
            let taking = async move {
                let mut connection = pin!(connection);
                let taken = poll_fn(|context| {
                    // ORDERING: the number stands for itself, here and below.
                    told.max.store(connection.current_max_send_streams(), Ordering::Relaxed);
                    connection.as_mut().poll(context)
                });
                drop(taken.await);
            };
            task.run(taking).await;
            drop(open);
        });
        Ok(Self { sender, streams })
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.streams, &other.streams)
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

    /// Counts one more stream.
    pub(super) fn begin(&self) -> Stream {
        self.streams.count.fetch_add(1, Ordering::Relaxed);
        Stream(Arc::clone(&self.streams))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // ORDERING: the number stands for itself.
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_nothing_loses_its_connection_though_nothing_is_under_way() {
        // It has room for the first words of a client, and not for the next.
        let (_server, stream) = tokio::io::duplex(30);
        let (count, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        let _two = Two::open(stream, STREAMS_MAX_UNTIL_TOLD, Open::new(&count)).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 1);
        while count.load(Ordering::Relaxed) > 0 && begun.elapsed() < Duration::from_hours(1) {
            sleep(Duration::from_millis(100)).await;
        }
        let lasted = begun.elapsed();
        assert!((TAKEN_WITHIN..TAKEN_WITHIN * 3 / 2).contains(&lasted), "{lasted:?}");
    }
}
