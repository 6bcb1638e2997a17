//! The connections of clients: TLS where there are certificates, HTTP/1.1 or HTTP/2 as the client speaks, with
//! the bounds that keep slow and hostile ones from holding anything for long.

pub(crate) mod asked;
mod end;
mod express;
mod gathered;
mod own;
mod pace;
mod streams;
pub(crate) mod strict;
mod wire;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_server::listen::{Peer, Stream};
use tidegate_server::metrics::Entrance;
use tidegate_server::web::End;
use tidegate_server::web::opening::Opened;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::body::{Noted, ResponseBody};
use crate::gateway::{Client, Gateway};
use crate::watched::Watched;
use gathered::Gathered;
use pace::{Follower, Over, Pace};
use streams::Streams;
use strict::Strict;

/// The most headers of a request.
const HEADERS_MAX: usize = 100;
/// The most requests under way on one connection over HTTP/2.
const STREAMS_MAX: u32 = 256;
/// The most streams that a client may have reset before we have taken note: beyond, it is an attack.
const RESETS_MAX: usize = 100;
/// The most bytes of an answer over HTTP/2 that are handed on at a time, which is what a client has to take within the
/// time that it has for taking something.
const PART_BYTES_MAX: usize = 16 << 10;
/// How long a client may give no window for more of an answer over HTTP/2, in times for a head: by default the minute that other
/// servers give. Some clients that read slowly give window seldom, and much of it.
const TAKEN_WITHIN_HEADS: u32 = 2;
/// The most bytes of an answer over HTTP/2 that wait to be sent while more of it is asked for.
const UNSENT_BYTES_MAX: usize = 64 << 10;
/// How much of one body over HTTP/2, and of all of a connection together, a client may send before anybody has taken it. Hyper's
/// adaptive window is the same for both, and so small at first that a hundred messages of gRPC at once are too many frames
/// for it.
const WINDOW_BYTES: u32 = 1 << 20;
const WINDOW_BYTES_OF_ALL: u32 = 16 << 20;
/// How long a connection over which nothing is under way may take for its next bytes once the drain has begun.
const NEXT_BYTES_GRACE: Duration = Duration::from_secs(1);
/// Hyper takes no smaller buffer.
pub(crate) const HEAD_BYTES_MIN: usize = 8 << 10;

/// How clients are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrontBounds {
    /// How long a client may take to send the head of a request, idle time of a kept connection included, to
    /// shake hands, and how long it may take nothing of what is there for it.
    pub head_timeout: Duration,
    /// The longest head of a request, in bytes.
    pub head_bytes_max: usize,
}

impl Default for FrontBounds {
    fn default() -> Self {
        Self { head_timeout: Duration::from_secs(30), head_bytes_max: 32 << 10 }
    }
}

/// What serves the connections of one gateway.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) bounds: FrontBounds,
}

impl Front {
    /// Serves one connection until it ends, or, once the drain has begun, until what is under way is answered.
    pub(crate) async fn serve(self, stream: Stream, peer: Peer) {
        let gateway = Arc::clone(&self.gateway);
        let _open = gateway.limits.engine.metrics().connected(Entrance::Gateway);
        let client = Client { peer, is_tls: self.tls.is_some() };
        match &self.tls {
            None => self.requests(stream, client).await,
            // Who speaks without it need not have room for it.
            Some(tls) => Box::pin(self.requests_in(tls, stream, client)).await,
        }
    }

    async fn requests_in(&self, tls: &TlsAcceptor, stream: Stream, client: Client) {
        let shaking = timeout(self.bounds.head_timeout, tls.accept(stream));
        let shaken = tokio::select! {
            biased;
            shaken = shaking => shaken,
            () = self.grace() => return,
        };
        if let Ok(Ok(stream)) = shaken {
            self.requests(stream, client).await;
        }
    }

    /// Ends a while after the drain has begun. Whoever had connected before it may still be about to ask: to
    /// close at once would drop that request.
    async fn grace(&self) {
        self.gateway.shutdown.drain.cancelled().await;
        tokio::time::sleep(NEXT_BYTES_GRACE).await;
    }

    async fn requests<S>(&self, stream: S, client: Client)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { gateway, bounds, .. } = self;
        let opened = Opened::new(stream, bounds.head_timeout);
        let drain = &gateway.shutdown.drain;
        let taken = express::serve(gateway, client, opened, bounds, drain);
        if let Some(opened) = taken.await {
            // It takes a lot of room, and a connection that does without is the nearer to hand for that.
            Box::pin(self.general(opened, client)).await;
        }
    }

    /// Serves the rest of a connection.
    async fn general<S>(&self, mut opened: Opened<S>, client: Client)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let version = tokio::select! {
            biased;
            version = timeout(self.bounds.head_timeout, opened.read_version()) => version,
            () = self.grace() => return,
        };
        // An error means that nothing sensible came in time.
        let Ok(Ok(is_http2)) = version else { return };
        let stream = Strict::of_requests(opened, is_http2);
        // What goes wrong on a connection is the client's doing, and ends with it.
        let ended =
            if is_http2 { self.two(stream, client).await } else { self.one(stream, client).await };
        if End::of(&ended) == End::NotTheProtocol {
            self.gateway.limits.engine.metrics().protocol_error(Entrance::Gateway);
        }
    }

    async fn one<S>(&self, stream: Strict<Opened<S>>, client: Client) -> hyper::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request| self.answer(client, request));
        let io = TokioIo::new(stream);
        let connection = http1(&self.bounds).serve_connection(io, service).with_upgrades();
        let mut connection = std::pin::pin!(connection);
        // Clients are told with their next answer that the connection ends; a client that keeps one and
        // asks for nothing meanwhile loses nothing with it.
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = self.grace() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    }

    async fn two<S>(&self, stream: Strict<Opened<S>>, client: Client) -> hyper::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let head_timeout = self.bounds.head_timeout;
        let pace = Pace::new();
        let streams = Streams::new(pace.clone(), TAKEN_WITHIN_HEADS * head_timeout);
        let io = TokioIo::new(Gathered::new(Watched::new(stream, Follower::new(pace.clone()))));
        let service = service_fn(|request| self.answer(client, request));
        let connection = http2(&self.bounds, streams.clone()).serve_connection(io, service);
        let mut connection = std::pin::pin!(connection);
        let idle_max = tokio::select! {
            biased;
            ended = streams.run(connection.as_mut()) => return ended,
            over = pace.over(head_timeout, head_timeout) => match over {
                Over::Late => return Ok(()),
                Over::Idle => head_timeout,
            },
            // What is left of answers has the time that it always has, also where nothing is asked any more.
            () = self.gateway.shutdown.drain.cancelled() => head_timeout,
        };
        // The client is told, and what it asked for before it knew is answered.
        connection.as_mut().graceful_shutdown();
        pace.renew();
        tokio::select! {
            biased;
            ended = streams.run(connection) => ended,
            _ = pace.over(idle_max, head_timeout) => Ok(()),
        }
    }

    fn answer(
        &self,
        client: Client,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, Infallible>> + Send + use<> {
        let gateway = Arc::clone(&self.gateway);
        async move {
            let is_http2 = request.version() == Version::HTTP_2;
            let is_head = request.method() == Method::HEAD;
            // Over HTTP/1 hyper counts them, and over HTTP/2 nobody does.
            let answer = if request.headers().len() > HEADERS_MAX {
                too_many_headers()
            } else {
                gateway.answer(client, request).await
            };
            let is_head = is_head || has_no_body(answer.status());
            let answer = if is_http2 && is_head { head_of(answer) } else { answer };
            // Its head is there to be taken, whether or not its body is asked for.
            Noted::Something.note();
            Ok(answer.map(|body| if is_http2 { body.in_parts(PART_BYTES_MAX) } else { body }))
        }
    }
}

/// An answer without its body, whose length is told. Over HTTP/1 hyper does as much for who asks for a head, and where the
/// status says that there is no body; over HTTP/2 it would go out, which clients take for a fault.
fn head_of(mut answer: Response<ResponseBody>) -> Response<ResponseBody> {
    let is_told = !has_no_body(answer.status());
    let length = answer.body().size_hint().exact().filter(|length| is_told && *length > 0);
    if let Some(length) = length {
        answer.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    answer.map(|_| ResponseBody::full(Bytes::new()))
}

fn has_no_body(status: StatusCode) -> bool {
    [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
}

/// As empty as the answer to a head that is too long, which others give.
fn too_many_headers() -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::new()));
    *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    response
}

fn http1(bounds: &FrontBounds) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head_timeout)
        .max_buf_size(bounds.head_bytes_max.max(HEAD_BYTES_MIN))
        // What is read at once may be more than the buffer is to hold.
        .max_header_size(bounds.head_bytes_max)
        .max_headers(HEADERS_MAX);
    builder
}

/// Requests that come together are looked at together: where all are denied, their answers leave in one write.
fn http2(bounds: &FrontBounds, streams: Streams) -> http2::Builder<Streams> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_mins(1))
        .keep_alive_timeout(Duration::from_secs(20))
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .max_send_buf_size(UNSENT_BYTES_MAX)
        .max_header_list_size(u32::try_from(bounds.head_bytes_max).unwrap_or(u32::MAX))
        .enable_connect_protocol()
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES_OF_ALL);
    builder
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::stream;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// A client with windows as large as can be, which asks for something without end, and reads nothing.
    const ASKING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
        \x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x7f\xff\xff\xff\
        \x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\x00\x00\
        \x00\x00\x03\x01\x05\x00\x00\x00\x01\x82\x86\x84";

    #[tokio::test(start_paused = true)]
    async fn little_is_kept_of_an_answer_that_nobody_reads() {
        let (mut client, stream) = tokio::io::duplex(1 << 10);
        client.write_all(ASKING).await.unwrap();
        let handed = AtomicUsize::new(0);
        let handed: &'static AtomicUsize = Box::leak(Box::new(handed));
        let service = service_fn(async |_: Request<Incoming>| {
            let parts = stream::repeat_with(|| {
                handed.fetch_add(PART_BYTES_MAX, Ordering::Relaxed);
                Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[0; PART_BYTES_MAX])))
            });
            Ok::<_, Infallible>(Response::new(StreamBody::new(parts)))
        });
        let bounds = FrontBounds::default();
        let streams = Streams::new(Pace::new(), bounds.head_timeout);
        let connection = http2(&bounds, streams.clone());
        let connection = pin!(connection.serve_connection(TokioIo::new(stream), service));
        let ended = timeout(Duration::from_secs(1), streams.run(connection)).await;
        assert!(ended.is_err(), "{ended:?}");
        let handed = handed.load(Ordering::Relaxed);
        let most = UNSENT_BYTES_MAX + 3 * PART_BYTES_MAX;
        assert!((UNSENT_BYTES_MAX..=most).contains(&handed), "{handed}");
    }
}
