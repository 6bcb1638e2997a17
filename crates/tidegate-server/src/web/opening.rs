//! The beginning and the end of a connection. The first bytes are read within a time: they say which
//! version of HTTP it speaks, and whoever sends none of them, or half a preface, would otherwise stay for
//! good. What is written has to be taken within that time too. At the end, what a client is still sending is thrown away for
//! a moment.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::patient::Patient;
use crate::listen::Stream;

/// What a client that speaks HTTP/2 begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long a client that was refused half way may go on sending. A socket that is closed over unread
/// bytes is reset, and the client may then never see the answer.
const LINGER: Duration = Duration::from_secs(1);

/// A stream of which some bytes may have been read already.
#[derive(Debug)]
pub struct Opened<S = Stream> {
    stream: Patient<S>,
    /// What was read and is to be read again.
    first: BytesMut,
    /// Set once our half is closed.
    lingering: Option<Pin<Box<Sleep>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Opened<S> {
    /// A stream of which nothing was read.
    pub fn new(stream: S, patience: Duration) -> Self {
        Self { stream: Patient::new(stream, patience), first: BytesMut::new(), lingering: None }
    }

    /// Has the next one to read begin with these bytes.
    pub fn give_back(&mut self, read: BytesMut) {
        debug_assert!(self.first.is_empty(), "they would come in another order");
        self.first = read;
    }

    /// Reads until it is known whether the client means to speak HTTP/2.
    pub async fn read_version(&mut self) -> io::Result<bool> {
        loop {
            let known = self.first.len().min(PREFACE.len());
            if self.first[..known] != PREFACE[..known] {
                return Ok(false);
            }
            if known == PREFACE.len() {
                return Ok(true);
            }
            if self.stream.read_buf(&mut self.first).await? == 0 {
                return Ok(false);
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Opened<S> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.first.is_empty() {
            let part = this.first.len().min(buffer.remaining());
            buffer.put_slice(&this.first.split_to(part));
            if this.first.is_empty() {
                this.first = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Opened<S> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    #[inline]
    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
        }
        let mut discarded = [0; 4 << 10];
        let time = this.lingering.get_or_insert_with(|| Box::pin(tokio::time::sleep(LINGER)));
        while time.as_mut().poll(context).is_pending() {
            let mut discarded = ReadBuf::new(&mut discarded);
            ready!(Pin::new(&mut this.stream).poll_read(context, &mut discarded))?;
            if discarded.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}
