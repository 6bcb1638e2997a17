//! A connection to an upstream that is still listened to when it takes nothing any more. A server that refuses a
//! request half way answers and closes; what is then written fails, and the answer waits to be read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose writes do not fail because the other end has closed: that is told by reads.
#[derive(Debug)]
pub(crate) struct Hearing<S> {
    stream: S,
    /// Whether what is written goes nowhere.
    is_deaf: bool,
}

impl<S> Hearing<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, is_deaf: false }
    }

    /// Takes an end of the other side for a success; `whole` is what that looks like.
    fn heard<T>(&mut self, written: Poll<io::Result<T>>, whole: T) -> Poll<io::Result<T>> {
        match written {
            Poll::Ready(Err(error)) if is_closed(&error) => {
                self.is_deaf = true;
                Poll::Ready(Ok(whole))
            }
            other => other,
        }
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl<S: AsyncRead + Unpin> AsyncRead for Hearing<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Hearing<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.is_deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.heard(written, bytes.len())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let length = parts.iter().map(|part| part.len()).sum();
        if this.is_deaf {
            return Poll::Ready(Ok(length));
        }
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.heard(written, length)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_deaf {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.heard(flushed, ())
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
