//! Short writes, gathered until they are to be sent.
//!
//! Over a stream that takes several parts in one write, the `h2` crate sends every body of 256 bytes or more by
//! itself, together with its head. The body of a denial is a little longer than that, so each would be a write of
//! its own. Over a stream that says that it takes one part at a time, bodies of up to a kilobyte are copied behind
//! their heads, and whatever is ready leaves together. This is such a stream. A longer body then comes as two parts
//! after all, and they are put together here.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest part that is copied; a longer one is sent at once, with what waits in front of it.
const SHORT_BYTES: usize = 2 << 10;
/// The most bytes that wait to be sent.
const WAITING_BYTES_MAX: usize = 16 << 10;

pub(super) struct Gathered<S> {
    stream: S,
    /// What was written and not sent.
    waiting: Vec<u8>,
}

impl<S: AsyncWrite + Unpin> Gathered<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, waiting: Vec::new() }
    }

    /// Sends what waits, and some of `more` behind it, as far as it is taken; says how much of `more` that was.
    fn poll_send(&mut self, context: &mut Context<'_>, more: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            if self.waiting.is_empty() && more.is_empty() {
                return Poll::Ready(Ok(0));
            }
            let parts = [IoSlice::new(&self.waiting), IoSlice::new(more)];
            let sent = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, &parts[..]))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            match sent.checked_sub(self.waiting.len()) {
                None => drop(self.waiting.drain(..sent)),
                Some(of_more) => {
                    self.waiting.clear();
                    if of_more > 0 || more.is_empty() {
                        return Poll::Ready(Ok(of_more));
                    }
                }
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gathered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gathered<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let is_short = bytes.len() <= SHORT_BYTES;
        if is_short && this.waiting.len() + bytes.len() <= WAITING_BYTES_MAX {
            this.waiting.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        this.poll_send(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(context, &[]))?;
        Pin::new(&mut this.stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(context, &[]))?;
        Pin::new(&mut this.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures_util::future::join_all;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty, Full};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tidegate_server::web::together::Together;
    use tokio::io::{AsyncWriteExt as _, DuplexStream};

    use super::*;

    /// A stream that counts the writes that reach it.
    struct Counted {
        stream: DuplexStream,
        writes: Arc<AtomicUsize>,
    }

    impl AsyncRead for Counted {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        }
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.stream).poll_write(context, bytes)
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut self.stream).poll_write_vectored(context, parts)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(context)
        }
    }

    /// How many writes the answers to eight requests take that come together, each with a body as long as that of a
    /// denial.
    async fn writes_of_eight<S>(over: impl FnOnce(Counted) -> S) -> usize
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (near, far) = tokio::io::duplex(1 << 20);
        let writes = Arc::new(AtomicUsize::new(0));
        let io = TokioIo::new(over(Counted { stream: far, writes: Arc::clone(&writes) }));
        tokio::spawn(async move {
            let answer = service_fn(async |_: Request<hyper::body::Incoming>| {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(&[b'x'; 400]))))
            });
            let together = Together::default();
            let builder = hyper::server::conn::http2::Builder::new(together.clone());
            together.run(pin!(builder.serve_connection(io, answer))).await.ok();
        });
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near))
                .await
                .unwrap();
        tokio::spawn(connection);
        let mut ask = async |requests: usize| {
            let request = || Request::new(Empty::<Bytes>::new());
            let asked: Vec<_> = (0..requests).map(|_| sender.send_request(request())).collect();
            for response in join_all(asked).await {
                let body = response.unwrap().into_body().collect().await.unwrap().to_bytes();
                assert_eq!(body.len(), 400);
            }
        };
        // Both sides have told their settings then.
        ask(1).await;
        let before = writes.load(Ordering::Relaxed);
        ask(8).await;
        writes.load(Ordering::Relaxed) - before
    }

    #[tokio::test]
    async fn answers_over_http2_to_requests_that_come_together_leave_in_one_write() {
        assert_eq!(writes_of_eight(Gathered::new).await, 1);
        assert!(writes_of_eight(|stream| stream).await > 1, "or there would be no need for it");
    }

    /// Takes so many bytes of a write, or all, and keeps the writes apart.
    #[derive(Default)]
    struct Taken {
        most: Option<usize>,
        writes: Vec<Vec<u8>>,
        is_shut: bool,
    }

    impl AsyncWrite for Taken {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.most.unwrap_or(usize::MAX));
            self.writes.push(bytes[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            self.poll_write(context, &all)
        }

        fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            self.is_shut = true;
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn short_writes_leave_together_when_they_are_to_be_sent() {
        let mut gathered = Gathered::new(Taken::default());
        assert!(!gathered.is_write_vectored());
        for part in ["one", "two"] {
            gathered.write_all(part.as_bytes()).await.unwrap();
        }
        assert_eq!(gathered.stream.writes, [b""; 0]);
        gathered.flush().await.unwrap();
        gathered.flush().await.unwrap();
        assert_eq!(gathered.stream.writes, [b"onetwo"]);
    }

    #[tokio::test]
    async fn a_long_write_takes_what_waits_along() {
        let mut gathered = Gathered::new(Taken::default());
        gathered.write_all(b"head").await.unwrap();
        gathered.write_all(&[b'x'; SHORT_BYTES + 1]).await.unwrap();
        let lengths: Vec<usize> = gathered.stream.writes.iter().map(Vec::len).collect();
        assert_eq!(lengths, [4 + SHORT_BYTES + 1]);
    }

    #[tokio::test]
    async fn no_more_waits_than_there_is_room_for() {
        let mut gathered = Gathered::new(Taken::default());
        for _ in 0..100 {
            gathered.write_all(&[b'x'; SHORT_BYTES]).await.unwrap();
            assert!(gathered.waiting.len() <= WAITING_BYTES_MAX);
        }
    }

    #[tokio::test]
    async fn every_byte_arrives_once_and_in_order_wherever_writes_are_cut() {
        for most in [1, 3, 1_000, 4_096] {
            let most = Some(most);
            let mut gathered = Gathered::new(Taken { most, ..Taken::default() });
            let mut expected = Vec::new();
            for (round, length) in [5, 3_000, 0, 2_048, 7, 9_000, 1].into_iter().enumerate() {
                let part = vec![round as u8; length];
                gathered.write_all(&part).await.unwrap();
                expected.extend_from_slice(&part);
            }
            gathered.shutdown().await.unwrap();
            assert_eq!(gathered.stream.writes.concat(), expected, "{most:?}");
            assert!(gathered.stream.is_shut);
        }
    }

    #[tokio::test]
    async fn a_stream_that_takes_nothing_is_an_error() {
        let mut gathered = Gathered::new(Taken { most: Some(0), ..Taken::default() });
        gathered.write_all(b"head").await.unwrap();
        assert_eq!(gathered.flush().await.unwrap_err().kind(), io::ErrorKind::WriteZero);
    }
}
