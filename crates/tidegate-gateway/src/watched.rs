//! A stream with somebody who looks at what passes. All else is handed on.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Who looks at it.
pub(crate) trait Watch {
    /// Something was read: nothing, where the other end is done. What stands there in the end is what whoever reads gets.
    fn came(&mut self, bytes: &mut [u8]);

    /// So many bytes of these were written.
    fn sent(&mut self, _parts: &[IoSlice<'_>], _length: usize) {}
}

/// A stream that is looked at by `W`.
#[derive(Debug)]
pub(crate) struct Watched<S, W> {
    stream: S,
    pub(crate) watch: W,
}

impl<S, W> Watched<S, W> {
    pub(crate) fn new(stream: S, watch: W) -> Self {
        Self { stream, watch }
    }
}

impl<S: AsyncRead + Unpin, W: Watch + Unpin> AsyncRead for Watched<S, W> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        this.watch.came(&mut buffer.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin, W: Watch + Unpin> AsyncWrite for Watched<S, W> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length = ready!(Pin::new(&mut this.stream).poll_write(context, bytes))?;
        this.watch.sent(&[IoSlice::new(bytes)], length);
        Poll::Ready(Ok(length))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, parts))?;
        this.watch.sent(parts, length);
        Poll::Ready(Ok(length))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
