//! The bytes of one connection of a client: those that have come and were not taken, and those that were made and not
//! sent. What they mean is known elsewhere.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tidegate_server::web::opening::Opened;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::io::poll_read_buf;

use crate::forward::answer::Answer;
use crate::forward::ended::Ended;

/// Room for the bytes that are read at a time: little at first, which is what a connection keeps while it waits, and
/// more where more comes.
const READ_BYTES: usize = 2 << 10;
const READ_BYTES_LEAST: usize = 512;
const READ_BYTES_MAX: usize = 16 << 10;
/// The most bytes of requests that are kept while one is under way.
const AHEAD_BYTES_MAX: usize = 64 << 10;
/// The most room for what is sent that a connection keeps while it waits.
const KEPT_BYTES: usize = 4 << 10;

/// A client's stream, with what has come and was not taken, and what was made and not sent.
pub(super) struct Wire<S> {
    pub(super) stream: Opened<S>,
    pub(super) input: BytesMut,
    pub(super) output: Vec<u8>,
    /// How much of what was made is sent, while it is being sent.
    sent: usize,
    /// The longest head that is taken here.
    pub(super) head_bytes_max: usize,
    /// Room for what is read next.
    room: usize,
    /// Whether the last read filled all of the room.
    is_full: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(stream: Opened<S>, head_bytes_max: usize) -> Self {
        Self {
            stream,
            head_bytes_max,
            input: BytesMut::new(),
            output: Vec::new(),
            sent: 0,
            room: READ_BYTES,
            is_full: false,
        }
    }

    /// Reads on, and says how many bytes came; none is the end.
    #[inline]
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.is_empty() && self.input.capacity() > self.room {
            self.input = BytesMut::new();
        }
        // What is there already will do for now.
        if self.input.capacity() - self.input.len() < READ_BYTES_LEAST {
            self.input.reserve(self.room);
        }
        let read = ready!(poll_read_buf(Pin::new(&mut self.stream), context, &mut self.input))?;
        self.is_full = self.input.len() == self.input.capacity();
        self.room = if self.is_full { (2 * self.room).min(READ_BYTES_MAX) } else { READ_BYTES };
        Poll::Ready(Ok(read))
    }

    /// So many of the bytes that have come are done with.
    #[inline]
    pub(super) fn consume(&mut self, length: usize) {
        if length == self.input.len() {
            // The next ones come to the same place.
            self.input.clear();
        } else {
            self.input.advance(length);
        }
    }

    /// Whether there is a part of a request because there was no room for more.
    pub(super) fn is_cut(&self) -> bool {
        self.is_full && self.input.len() < self.head_bytes_max
    }

    /// Runs something for as long as the client is there. What it sends meanwhile is kept.
    pub(super) async fn while_there<F: Future + ?Sized>(
        &mut self,
        mut future: Pin<&mut F>,
    ) -> Option<F::Output> {
        poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if self.is_gone(context) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    fn is_gone(&mut self, context: &mut Context<'_>) -> bool {
        while self.input.len() < AHEAD_BYTES_MAX {
            match self.poll_read(context) {
                Poll::Pending => return false,
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) => return true,
            }
        }
        false
    }

    /// Moves a body from the upstream to the client, all but what comes last, which is left to be sent.
    /// `None` where it breaks off.
    pub(super) async fn carry(
        &mut self,
        answer: &mut Answer,
        ended: &mut Ended,
        idle_timeout: Duration,
    ) -> Option<()> {
        loop {
            let taken = answer.framing.take(&mut answer.line.input, &mut self.output).ok()?;
            ended.sent(taken.bytes as u64);
            if taken.is_whole {
                return Some(());
            }
            self.send().await?;
            let read = {
                let reading = pin!(timeout(idle_timeout, answer.line.read()));
                self.while_there(reading).await?.ok()?.ok()?
            };
            if read == 0 {
                return answer.framing.close(&mut self.output).ok();
            }
        }
    }

    /// Sends what was made.
    pub(super) async fn send(&mut self) -> Option<()> {
        poll_fn(|context| self.poll_send(context)).await
    }

    #[inline]
    pub(super) fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<Option<()>> {
        while self.sent < self.output.len() {
            let unsent = &self.output[self.sent..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, unsent)) {
                Ok(written @ 1..) => self.sent += written,
                Ok(0) | Err(_) => return Poll::Ready(None),
            }
        }
        // TLS says of bytes that they are written where it has put them by because the other end takes no more.
        if ready!(Pin::new(&mut self.stream).poll_flush(context)).is_err() {
            return Poll::Ready(None);
        }
        self.sent = 0;
        self.output.clear();
        self.output.shrink_to(KEPT_BYTES);
        Poll::Ready(Some(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex};
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);
    const TAKEN_BYTES: usize = 16;

    /// A stream that takes all that is written, as TLS does, and moves it on when it is flushed.
    struct Holding {
        held: Vec<u8>,
        stream: DuplexStream,
    }

    impl AsyncRead for Holding {
        fn poll_read(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
        }
    }

    impl AsyncWrite for Holding {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.get_mut().held.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            let Self { held, stream } = self.get_mut();
            while !held.is_empty() {
                let moved = ready!(Pin::new(&mut *stream).poll_write(context, held))?;
                held.drain(..moved);
            }
            Pin::new(stream).poll_flush(context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            ready!(self.as_mut().poll_flush(context))?;
            Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
        }
    }

    /// A wire with an answer to be sent, and the client's end of it, which takes little at a time.
    fn with_answer(answer: &[u8]) -> (Wire<Holding>, DuplexStream) {
        let (client, stream) = duplex(TAKEN_BYTES);
        let stream = Opened::new(Holding { held: Vec::new(), stream }, PATIENCE);
        let mut wire = Wire::new(stream, READ_BYTES);
        wire.output.extend_from_slice(answer);
        (wire, client)
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_sent_when_nothing_of_it_is_held_back() {
        let answer: Vec<u8> = (0..100).collect();
        let (mut wire, mut client) = with_answer(&answer);
        let sending = async {
            assert_eq!(wire.send().await, Some(()));
            assert!(wire.output.is_empty());
            drop(wire);
        };
        let mut taken = Vec::new();
        let ((), read) = tokio::join!(sending, client.read_to_end(&mut taken));
        read.unwrap();
        assert_eq!(taken, answer);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_of_what_is_held_back_loses_its_place() {
        let (mut wire, _client) = with_answer(&[b'a'; TAKEN_BYTES + 1]);
        let begun = Instant::now();
        assert_eq!(wire.send().await, None);
        assert!((PATIENCE..2 * PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_take_the_end_of_its_connection_loses_its_place() {
        let (mut wire, _client) = with_answer(&[]);
        wire.stream.write_all(&[b'a'; TAKEN_BYTES + 1]).await.unwrap();
        let begun = Instant::now();
        let ended = timeout(10 * PATIENCE, wire.stream.shutdown()).await;
        assert!(ended.expect("an end in time").is_err());
        assert!((PATIENCE..2 * PATIENCE).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    }
}
