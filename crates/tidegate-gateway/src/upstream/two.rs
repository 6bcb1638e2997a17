//! One connection of HTTP/2 to an upstream. What is sent over it, and what is sent once more, is for the pool.

use std::io;
use std::time::Duration;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};

use super::pool::{HEAD_BYTES_MAX, Open};
use crate::forward::kept::Kept;
use crate::forward::one_task::one_task;

/// How long nothing may come while something is under way before it is asked whether there is anybody.
const ASKED_AFTER: Duration = Duration::from_secs(30);
/// How long a server may take to say so.
const TAKEN_WITHIN: Duration = Duration::from_secs(20);

/// Speaks HTTP/2 over a stream. `open` is held until the connection ends, which it does by itself.
pub(super) async fn open<S>(stream: S, open: Open) -> io::Result<SendRequest<Kept>>
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
        .adaptive_window(true);
    let io = TokioIo::new(stream);
    let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        // What goes wrong is told to the requests that are under way.
        let taking = async move { drop(connection.await) };
        task.run(taking).await;
        drop(open);
    });
    Ok(sender)
}
