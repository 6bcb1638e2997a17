//! One connection of HTTP/2 to an upstream: how much may come over it that nobody has taken, and how long the upstream may
//! take nothing. What is sent over it, and what is sent once more, is for the pool.

use std::io;
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
/// The same for all of a connection together: at least so much, since small frames count for more than they carry, and at most
/// what HTTP/2 has numbers for.
const WINDOW_BYTES_OF_ALL_MIN: u32 = 16 << 20;
const WINDOW_BYTES_OF_ALL_MAX: u32 = (1 << 31) - 1;
/// How long nothing may come while something is under way before it is asked whether there is anybody.
const ASKED_AFTER: Duration = Duration::from_secs(30);
/// How long a server may take to say so, and to take anything of what is there for it.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);

/// Speaks HTTP/2 over a stream to a server at which so many requests may be under way. `open` is held until the connection
/// ends, which it does by itself.
pub(super) async fn open<S>(
    stream: S,
    in_flight_max: usize,
    open: Open,
) -> io::Result<SendRequest<Kept>>
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
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(window_bytes_of_all(in_flight_max));
    // A connection on which nothing is under way is not asked, and neither is one that has ended but for its last words.
    let io = TokioIo::new(Patient::new(stream, TAKEN_WITHIN));
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        // What goes wrong is told to the requests that are under way.
        let taking = async move { drop(connection.await) };
        task.run(taking).await;
        drop(open);
    });
    Ok(sender)
}

/// Room for the windows of as many answers as there may be, so that those that clients do not take hold up no others. Hyper's
/// adaptive window is the same for one answer as for all of them, and one that is not taken would fill it.
fn window_bytes_of_all(in_flight_max: usize) -> u32 {
    let answers = u32::try_from(in_flight_max).unwrap_or(u32::MAX);
    let all = answers.saturating_mul(WINDOW_BYTES);
    all.clamp(WINDOW_BYTES_OF_ALL_MIN, WINDOW_BYTES_OF_ALL_MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::{Instant, sleep};

    use super::*;

    #[test]
    fn answers_that_nobody_takes_leave_room_for_others_as_long_as_http2_has_any() {
        assert_eq!(window_bytes_of_all(1), WINDOW_BYTES_OF_ALL_MIN);
        assert_eq!(window_bytes_of_all(1024), 1024 * WINDOW_BYTES);
        assert_eq!(window_bytes_of_all(usize::MAX), WINDOW_BYTES_OF_ALL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_takes_nothing_loses_its_connection_though_nothing_is_under_way() {
        // It has room for the first words of a client, and not for the next.
        let (_server, stream) = tokio::io::duplex(30);
        let (count, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        let _sender = open(stream, 1, Open::new(&count)).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 1);
        while count.load(Ordering::Relaxed) > 0 && begun.elapsed() < Duration::from_hours(1) {
            sleep(Duration::from_millis(100)).await;
        }
        let lasted = begun.elapsed();
        assert!((TAKEN_WITHIN..TAKEN_WITHIN * 3 / 2).contains(&lasted), "{lasted:?}");
    }
}
