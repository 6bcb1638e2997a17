//! What ends the wait for the next request of a client where none comes.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// Why it is over.
pub(super) enum Over {
    /// The gateway ends.
    Drain,
    /// Nothing has come for the time that was set. It is set anew.
    Idle,
}

/// The end of the gateway, or of a client's time.
pub(super) struct End<'e, 'd> {
    drain: &'d CancellationToken,
    drained: Pin<&'e mut WaitForCancellationFuture<'d>>,
    idle: Pin<&'e mut Sleep>,
    idle_max: Duration,
    /// Who is woken by both.
    woken: Option<Waker>,
}

impl<'e, 'd> End<'e, 'd> {
    /// With the futures of both, which are this value's from here on.
    pub(super) fn new(
        drain: &'d CancellationToken,
        drained: Pin<&'e mut WaitForCancellationFuture<'d>>,
        idle: Pin<&'e mut Sleep>,
        idle_max: Duration,
    ) -> Self {
        Self { drain, drained, idle, idle_max, woken: None }
    }

    /// Ready when it is over. To poll both takes two locks, so they are polled only where one of them is ready or
    /// somebody else is to be woken.
    #[inline]
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Over> {
        let is_known = self.woken.as_ref().is_some_and(|woken| woken.will_wake(context.waker()));
        if is_known && !self.drain.is_cancelled() && !self.idle.is_elapsed() {
            return Poll::Pending;
        }
        self.woken = None;
        if self.drained.as_mut().poll(context).is_ready() {
            return Poll::Ready(Over::Drain);
        }
        if self.idle.as_mut().poll(context).is_ready() {
            self.idle.as_mut().reset(Instant::now() + self.idle_max);
            return Poll::Ready(Over::Idle);
        }
        self.woken = Some(context.waker().clone());
        Poll::Pending
    }
}
