//! A conversation on its socket: one read, one write, and nothing kept in between.
//!
//! The buffers belong to the thread. A connection that waits for its client, as nearly all do at any
//! moment, has none: it keeps bytes only where a command came in halves or where the client does not
//! read what it asked for. While it does not, nothing more is read from it.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Sleep, sleep, timeout};

use super::RespSettings;
use super::conversation::{Asking, Conversation, Desk, Next};
use crate::listen::Stream;

/// The most that one read brings, and so the most commands that are answered together.
const READ_BYTES_MAX: usize = 64 << 10;
/// What a thread keeps of its output buffer.
const OUTPUT_BYTES_KEPT: usize = 256 << 10;
/// How long a client that was sent away may take to notice, and how much it may still send.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES_MAX: usize = 1 << 20;

/// One connection.
pub(super) struct Connection {
    stream: Stream,
    conversation: Conversation,
    settings: Arc<RespSettings>,
    /// What the client has not taken yet, from `written` on.
    unread: Vec<u8>,
    written: usize,
    next: Next,
    /// Answers that a store is waited for. Nothing more is read meanwhile.
    asking: Option<Asking>,
    is_draining: bool,
    alarm: Option<Alarm>,
    /// How often the output was all taken.
    flushes: u64,
}

/// What wakes a connection on which nothing happens.
#[derive(Debug)]
struct Alarm {
    timer: Pin<Box<Sleep>>,
    patience: Duration,
    /// What had happened when it was set.
    since: (u64, u64),
}

/// The buffers of a thread.
struct Buffers {
    input: Box<[u8]>,
    desk: Desk,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        input: vec![0; READ_BYTES_MAX].into(),
        desk: Desk::default(),
    });
}

impl Connection {
    pub(super) fn new(
        stream: Stream,
        conversation: Conversation,
        settings: Arc<RespSettings>,
    ) -> Self {
        Self {
            stream,
            conversation,
            settings,
            unread: Vec::new(),
            written: 0,
            next: Next::Listen,
            asking: None,
            is_draining: false,
            alarm: None,
            flushes: 0,
        }
    }

    /// Goes on until the connection is at its end: closed by the client, by what it said, or because
    /// nothing happens on it.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let progress = BUFFERS.with_borrow_mut(|buffers| self.poll_in(buffers, context));
        if progress.is_ready() {
            return Poll::Ready(());
        }
        self.poll_alarm(context)
    }

    /// Reads no more. Whether everything that was read is answered.
    pub(super) fn drain(&mut self) -> bool {
        self.is_draining = true;
        self.unread.is_empty() && self.asking.is_none()
    }

    /// Says goodbye. Whoever is told of a mistake may still be sending, and a socket that is closed
    /// over unread bytes takes the message with it: what comes is read for a moment.
    pub(super) async fn close(mut self) {
        if self.stream.shutdown().await.is_err() || self.next != Next::Close {
            return;
        }
        let mut rest = self.stream.take(LINGER_BYTES_MAX as u64);
        let mut ignored = [0; 4096];
        let _ = timeout(LINGER, async {
            while rest.read(&mut ignored).await.is_ok_and(|bytes| bytes > 0) {}
        })
        .await;
    }

    fn poll_in(&mut self, buffers: &mut Buffers, context: &mut Context<'_>) -> Poll<()> {
        let Buffers { input, desk } = buffers;
        loop {
            if ready!(self.poll_unread(context)).is_err() {
                return Poll::Ready(());
            }
            if let Some(asking) = &mut self.asking {
                let answers = ready!(asking.as_mut().poll(context));
                self.asking = None;
                if ready!(self.poll_send(&answers, context)).is_err() {
                    return Poll::Ready(());
                }
            }
            self.next = match self.next {
                Next::Close => return Poll::Ready(()),
                Next::Resume => self.conversation.hear(&mut [], desk),
                Next::Listen if self.is_draining => return Poll::Ready(()),
                Next::Listen => {
                    let mut read = ReadBuf::new(input);
                    let stream = Pin::new(&mut self.stream);
                    if ready!(stream.poll_read(context, &mut read)).is_err() {
                        return Poll::Ready(());
                    }
                    let fresh = read.filled_mut();
                    if fresh.is_empty() {
                        return Poll::Ready(());
                    }
                    self.conversation.hear(fresh, desk)
                }
            };
            self.asking = self.conversation.asking(&mut desk.output);
            let is_sent = self.poll_send(&desk.output, context);
            desk.output.clear();
            desk.output.shrink_to(OUTPUT_BYTES_KEPT);
            if ready!(is_sent).is_err() {
                return Poll::Ready(());
            }
        }
    }

    /// Writes what was just answered, and keeps what the client does not take.
    fn poll_send(&mut self, output: &[u8], context: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        let mut sent = 0;
        while sent < output.len() {
            match Pin::new(&mut self.stream).poll_write(context, &output[sent..]) {
                Poll::Ready(Ok(bytes)) if bytes > 0 => sent += bytes,
                Poll::Ready(_) => return Poll::Ready(Err(Gone)),
                Poll::Pending => {
                    self.unread.extend_from_slice(&output[sent..]);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes what was kept.
    fn poll_unread(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        if self.unread.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while self.written < self.unread.len() {
            let stream = Pin::new(&mut self.stream);
            match ready!(stream.poll_write(context, &self.unread[self.written..])) {
                Ok(bytes) if bytes > 0 => self.written += bytes,
                Ok(_) | Err(_) => return Poll::Ready(Err(Gone)),
            }
        }
        (self.unread, self.written) = (Vec::new(), 0);
        self.flushes += 1;
        Poll::Ready(Ok(()))
    }

    /// Ready when the connection has to go. An alarm is not put off with every command, which would
    /// cost something each time: when it goes off and something has happened since, it is set again.
    /// So a connection goes after one to two times what it is given.
    fn poll_alarm(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let is_stalled = self.conversation.is_amid() || !self.unread.is_empty();
            let patience = if is_stalled {
                Some(self.settings.stall_timeout)
            } else {
                self.settings.idle_timeout
            };
            let happened = (self.conversation.answered(), self.flushes);
            // One that was set for longer than there is patience now would come too late.
            let is_late = |alarm: &mut Alarm| patience.is_some_and(|now| alarm.patience > now);
            drop(self.alarm.take_if(is_late));
            let alarm = match (&mut self.alarm, patience) {
                (None, None) => return Poll::Pending,
                (None, Some(patience)) => {
                    let timer = Box::pin(sleep(patience));
                    self.alarm.insert(Alarm { timer, patience, since: happened })
                }
                (Some(alarm), _) => alarm,
            };
            ready!(alarm.timer.as_mut().poll(context));
            if patience == Some(alarm.patience) && alarm.since == happened {
                return Poll::Ready(());
            }
            self.alarm = None;
        }
    }
}

/// The other side is no longer there.
struct Gone;
