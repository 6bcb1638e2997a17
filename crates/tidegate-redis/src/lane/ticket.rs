//! A ticket: how one call waits for its answer, and knows whether the server was asked.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use redis::Value;
use tidegate_store::StoreError;
use tokio::time::{Instant, timeout_at};

use super::Failure;
use super::orphan::Orphan;

/// The reply to a call.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// What the server said to this call and to those that are the same.
    pub(crate) value: Arc<Value>,
    /// Which of them this is, counted from 0.
    pub(crate) round: u16,
}

/// The waiting place of one call, which it shares with whoever answers.
#[derive(Debug)]
pub(super) struct Ticket {
    state: Mutex<State>,
    /// What is done with an answer that nobody waits for any more.
    orphan: Option<Box<Orphan>>,
}

#[derive(Debug)]
enum State {
    Queued(Option<Waker>),
    /// The server may have been asked.
    Sent(Option<Waker>),
    Answered(Result<Reply, Failure>),
    /// Nobody waits any more.
    Abandoned,
}

impl Ticket {
    /// A place to wait, for who asks, and the same for who answers.
    pub(super) fn issue(orphan: Option<Box<Orphan>>) -> (Waiting, Arc<Self>) {
        let ticket = Arc::new(Self { state: Mutex::new(State::Queued(None)), orphan });
        (Waiting(Arc::clone(&ticket)), ticket)
    }

    /// One for a call that is sent though nobody waits for the answer.
    pub(super) fn of_nobody() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State::Queued(None)), orphan: None })
    }

    /// Says that the call is about to be sent; `false` where nobody waits for it any more.
    pub(super) fn send(&self) -> bool {
        let mut state = self.state.lock();
        match &mut *state {
            State::Queued(waker) => {
                *state = State::Sent(waker.take());
                true
            }
            State::Sent(_) | State::Answered(_) => true,
            State::Abandoned => false,
        }
    }

    /// Whether nobody waits any more.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(*self.state.lock(), State::Abandoned)
    }

    /// Answers, and wakes who waits. Where nobody does, what the answer gave is given back.
    pub(super) fn settle(&self, answer: Result<Reply, Failure>) {
        let mut state = self.state.lock();
        let waker = match &mut *state {
            State::Queued(waker) | State::Sent(waker) => waker.take(),
            State::Answered(_) => return,
            State::Abandoned => {
                drop(state);
                return self.orphaned(&answer);
            }
        };
        *state = State::Answered(answer);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Gives up waiting, and says what that means.
    fn abandon(&self) -> StoreError {
        let state = std::mem::replace(&mut *self.state.lock(), State::Abandoned);
        match state {
            State::Queued(_) => return StoreError::Unreachable,
            State::Answered(answer) => self.orphaned(&answer),
            State::Sent(_) | State::Abandoned => {}
        }
        StoreError::NoAnswer
    }

    fn orphaned(&self, answer: &Result<Reply, Failure>) {
        if let (Some(orphan), Ok(reply)) = (&self.orphan, answer) {
            orphan.give_back(reply);
        }
    }
}

/// Who waits. A caller that goes away takes back what has not been sent.
pub(super) struct Waiting(Arc<Ticket>);

impl Waiting {
    /// Waits for the answer, or says what it means that there is none by the deadline. What has not
    /// been sent by then never is.
    pub(super) async fn answer(
        self,
        deadline: Instant,
    ) -> Result<Result<Reply, Failure>, StoreError> {
        let answered = poll_fn(|context| {
            let mut state = self.0.state.lock();
            if let State::Queued(waker) | State::Sent(waker) = &mut *state {
                *waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            match std::mem::replace(&mut *state, State::Abandoned) {
                State::Answered(answer) => Poll::Ready(answer),
                State::Queued(_) | State::Sent(_) | State::Abandoned => Poll::Pending,
            }
        });
        timeout_at(deadline, answered).await.map_err(|_| self.0.abandon())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
