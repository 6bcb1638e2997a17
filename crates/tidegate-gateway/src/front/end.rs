//! What ends the wait for the next request of a client where none comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tidegate_server::listen::bell::Bell;
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
    /// Rung by both.
    bell: Bell,
}

impl<'e, 'd> End<'e, 'd> {
    /// With the futures of both, which are this value's from here on.
    pub(super) fn new(
        drain: &'d CancellationToken,
        drained: Pin<&'e mut WaitForCancellationFuture<'d>>,
        idle: Pin<&'e mut Sleep>,
        idle_max: Duration,
    ) -> Self {
        Self { drain, drained, idle, idle_max, bell: Bell::default() }
    }

    /// Ready when it is over.
    #[inline]
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Over> {
        let Self { drained, idle, idle_max, bell, .. } = self;
        bell.poll(context, |context| {
            if drained.as_mut().poll(context).is_ready() {
                return Poll::Ready(Over::Drain);
            }
            ready!(idle.as_mut().poll(context));
            idle.as_mut().reset(Instant::now() + *idle_max);
            Poll::Ready(Over::Idle)
        })
    }

    /// Whether the gateway ends.
    #[inline]
    pub(super) fn is_drain(&self) -> bool {
        !self.bell.is_silent() && self.drain.is_cancelled()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use tokio::task::coop::{consume_budget, has_budget_remaining};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_had_no_turn_left_when_he_first_asked_is_told_of_the_end() {
        let (drain, idle_max) = (CancellationToken::new(), Duration::from_secs(30));
        let (drained, idle) = (pin!(drain.cancelled()), pin!(tokio::time::sleep(idle_max)));
        let mut end = End::new(&drain, drained, idle, idle_max);
        poll_fn(|context| {
            while has_budget_remaining() {
                let _ = pin!(consume_budget()).poll(context);
            }
            assert!(end.poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        let over = tokio::time::timeout(2 * idle_max, poll_fn(|context| end.poll(context))).await;
        assert!(matches!(over, Ok(Over::Idle)));
    }
}
