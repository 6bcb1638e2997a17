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
    use tokio::io::AsyncWriteExt as _;

    use super::*;

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
