//! HTTP connections, with the bounds that keep slow and hostile ones from holding anything for long.
//! HTTP, gRPC and the admin address all run on it.

pub mod date;
mod guarded;
pub mod opening;
pub mod patient;
pub mod together;

use std::error::Error as StdError;
use std::time::Duration;

use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio_util::sync::CancellationToken;

use crate::listen::Stream;
use guarded::Guarded;
pub(crate) use guarded::OnPanic;
pub(crate) use opening::Opened;
use together::Together;

/// How long a client may take to send the head of a request, idle time of a kept connection included, and
/// how long it may take nothing of what is written.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of a head over HTTP/1, and of a header list over HTTP/2.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;
/// The most headers of a request over HTTP/1.
const HEADERS_MAX: usize = 100;
/// The most requests under way on one connection over HTTP/2.
const STREAMS_MAX: u32 = 1_000;
/// The most streams that a client may have reset before we have taken note: beyond, it is an attack.
const RESETS_MAX: usize = 100;

/// Which versions a connection may speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Versions {
    /// HTTP/1.1, and HTTP/2 where the client begins with its preface.
    Both,
    /// HTTP/2 alone, which is what gRPC speaks.
    Two,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "what is not the protocol is counted"]
pub enum End {
    /// One of us closed it, or it broke.
    Closed,
    /// The client said something that is not the protocol.
    NotTheProtocol,
}

/// Serves one connection until it ends, or, once `drain` is cancelled, until what is under way is
/// answered.
pub(crate) async fn serve<S, B>(
    service: S,
    on_panic: OnPanic<B>,
    stream: Stream,
    versions: Versions,
    drain: CancellationToken,
) -> End
where
    S: Service<Request<Incoming>, Response = Response<B>> + Send,
    S::Future: Send + Unpin + 'static,
    S::Error: Into<Box<dyn StdError + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let stream = Opened::new(stream, HEAD_TIMEOUT);
    serve_opened((service, on_panic), stream, versions, drain, HEAD_TIMEOUT).await
}

/// The same for a stream of which something may have been read, and with another time in which a client
/// has to send the head of a request.
pub(crate) async fn serve_opened<S, B>(
    (service, on_panic): (S, OnPanic<B>),
    mut stream: Opened,
    versions: Versions,
    drain: CancellationToken,
    head_timeout: Duration,
) -> End
where
    S: Service<Request<Incoming>, Response = Response<B>> + Send,
    S::Future: Send + Unpin + 'static,
    S::Error: Into<Box<dyn StdError + Send + Sync>>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    // What has arrived goes before the end: a request that is there is answered.
    let opened = tokio::select! {
        biased;
        opened = tokio::time::timeout(head_timeout, stream.read_version()) => opened,
        () = drain.cancelled() => return End::Closed,
    };
    let Ok(Ok(is_two)) = opened else { return End::Closed };
    let service = Guarded::new(service, on_panic);
    // What goes wrong on a connection is the client's doing, and ends with it.
    if versions == Versions::Two || is_two {
        let together = Together::default();
        let mut builder = http2::Builder::new(together.clone());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_mins(1))
            .keep_alive_timeout(Duration::from_secs(20))
            .max_concurrent_streams(STREAMS_MAX)
            .max_pending_accept_reset_streams(RESETS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            biased;
            ended = together.run(connection.as_mut()) => return End::of(&ended),
            () = drain.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        return End::of(&together.run(connection).await);
    }
    let mut builder = http1::Builder::new();
    // `pipeline_flush` stays off: with it, an answer waits for as long as half of another request has been
    // read, and what is said about a request that cannot be read is never sent.
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        // Bodies are short: to copy one behind its head costs less than to send it as a second part.
        .writev(false);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => return End::of(&ended),
        () = drain.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    End::of(&connection.await)
}

impl End {
    /// A client that is gone, or too slow, has said nothing wrong.
    pub fn of(ended: &hyper::Result<()>) -> Self {
        let Err(error) = ended else { return Self::Closed };
        let two = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
        // Over HTTP/2 what a library ends by itself is what it cannot read.
        if error.is_parse() || two.is_some_and(h2::Error::is_library) {
            Self::NotTheProtocol
        } else {
            Self::Closed
        }
    }
}
