//! A decision that is waited for. Whoever asked may go away meanwhile; then it is waited for all the same, because
//! what it takes has to be given back, and nobody else would know of it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;

/// A future that comes to its end even where it is dropped before. It has to have an end of its own: a deadline.
pub struct Awaited<T: Send + 'static, U: FnOnce(T) + Send + 'static> {
    future: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    /// What is done with an outcome that nobody waits for any more.
    unwanted: Option<U>,
    is_begun: bool,
}

impl<T: Send, U: FnOnce(T) + Send> Awaited<T, U> {
    /// Waits for a future, and hands its outcome to `unwanted` where this is dropped first.
    pub fn new(future: impl Future<Output = T> + Send + 'static, unwanted: U) -> Self {
        Self { future: Some(Box::pin(future)), unwanted: Some(unwanted), is_begun: false }
    }
}

impl<T: Send, U: FnOnce(T) + Send + Unpin> Future for Awaited<T, U> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.is_begun = true;
        // It is there until the outcome; futures are not polled after that.
        let Some(future) = &mut self.future else { return Poll::Pending };
        let outcome = ready!(future.as_mut().poll(cx));
        self.future = None;
        Poll::Ready(outcome)
    }
}

impl<T: Send, U: FnOnce(T) + Send> Drop for Awaited<T, U> {
    fn drop(&mut self) {
        let (Some(future), Some(unwanted)) = (self.future.take(), self.unwanted.take()) else {
            return;
        };
        // What was never polled has done nothing. Outside of a runtime nothing can be waited for.
        if let Ok(runtime) = Handle::try_current()
            && self.is_begun
        {
            runtime.spawn(async move { unwanted(future.await) });
        }
    }
}

impl<T: Send, U: FnOnce(T) + Send> fmt::Debug for Awaited<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").field("is_begun", &self.is_begun).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    /// Tells of an outcome that nobody waits for any more.
    fn telling(unwanted: oneshot::Sender<u32>) -> impl FnOnce(u32) + Send + Unpin {
        move |outcome| {
            let _ = unwanted.send(outcome);
        }
    }

    #[tokio::test]
    async fn what_nobody_waits_for_any_more_is_still_taken_care_of() {
        let (answer, answered) = oneshot::channel();
        let (unwanted, heard) = oneshot::channel();
        let future = async { answered.await.unwrap_or_default() };
        let mut awaited = Awaited::new(future, telling(unwanted));
        assert!(futures_util::poll!(&mut awaited).is_pending());
        drop(awaited);
        answer.send(7).unwrap();
        assert_eq!(heard.await, Ok(7));
    }

    #[tokio::test]
    async fn what_came_or_never_began_is_nobodys_concern() {
        let (unwanted, heard) = oneshot::channel();
        assert_eq!(Awaited::new(std::future::ready(7), telling(unwanted)).await, 7);
        assert!(heard.await.is_err(), "it was dropped without a word");
        let (unwanted, heard) = oneshot::channel();
        drop(Awaited::new(std::future::ready(7), telling(unwanted)));
        assert!(heard.await.is_err());
    }
}
