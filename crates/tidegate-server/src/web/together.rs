//! The requests of an HTTP/2 connection that arrived together, answered together.
//!
//! Hyper has each request of HTTP/2 run as a task of its own. The first of them to be answered wakes the
//! connection, which the runtime then prefers to the others, and so each answer is sent by itself. Nearly all
//! of ours need to wait for nothing. So they are run right here, after all that arrived has been read, and
//! their answers leave in one write. What does have to wait becomes a task after all.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use parking_lot::Mutex;

/// What a connection over HTTP/2 hands its requests to.
#[derive(Clone, Default)]
pub struct Together {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Whether the connection is being run, and will look at what has begun.
    is_running: bool,
    /// Requests that have begun and were not run yet. There are at most as many as a connection may have
    /// under way.
    begun: Vec<Begun>,
}

type Begun = Pin<Box<dyn Future<Output = ()> + Send>>;

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Together {
    fn execute(&self, request: F) {
        let mut state = self.state.lock();
        if state.is_running {
            state.begun.push(Box::pin(request));
        } else {
            // What a request begins by itself, such as a tunnel, is no request, and the connection may have
            // nothing to wake for.
            drop(state);
            tokio::spawn(request);
        }
    }
}

impl Together {
    /// Runs the connection that this is the executor of, and its requests.
    pub async fn run<C: Future>(&self, mut connection: Pin<&mut C>) -> C::Output {
        let mut batch = Vec::new();
        poll_fn(|context| {
            loop {
                self.state.lock().is_running = true;
                let polled = connection.as_mut().poll(context);
                {
                    let mut state = self.state.lock();
                    state.is_running = false;
                    std::mem::swap(&mut state.begun, &mut batch);
                }
                let is_over = polled.is_ready() || batch.is_empty();
                batch.drain(..).for_each(begin);
                if is_over {
                    return polled;
                }
                // Now there is something to send.
            }
        })
        .await
    }
}

/// Runs a request as far as it goes without waiting, and the rest of it as a task.
fn begin(mut request: Begun) {
    // Whatever it waits for is asked again by the task, which leaves word whom to wake.
    let mut context = Context::from_waker(Waker::noop());
    // One that panics ends alone, as it would have as a task.
    let polled = catch_unwind(AssertUnwindSafe(|| request.as_mut().poll(&mut context)));
    if matches!(polled, Ok(Poll::Pending)) {
        tokio::spawn(request);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    /// A connection that begins so many requests, and ends once it is polled and all were answered.
    struct Connection {
        requests: Together,
        left: usize,
        /// One that does something else.
        other: Option<Begun>,
        answered: Arc<AtomicUsize>,
        /// How many had been answered each time that it was polled.
        seen: Vec<usize>,
    }

    impl Connection {
        fn new(requests: usize) -> Self {
            let (together, answered) = (Together::default(), Arc::default());
            Self { requests: together, left: requests, other: None, answered, seen: Vec::new() }
        }

        fn with(self, other: impl Future<Output = ()> + Send + 'static) -> Self {
            Self { other: Some(Box::pin(other)), ..self }
        }

        async fn run(&mut self) {
            let requests = self.requests.clone();
            requests.run(Pin::new(self)).await;
        }
    }

    impl Future for Connection {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
            let answered = self.answered.load(Ordering::Relaxed);
            self.seen.push(answered);
            if let Some(other) = self.other.take() {
                self.requests.execute(other);
            }
            while self.left > 0 {
                self.left -= 1;
                let answered = Arc::clone(&self.answered);
                self.requests.execute(async move { _ = answered.fetch_add(1, Ordering::Relaxed) });
            }
            if answered == 0 { Poll::Pending } else { Poll::Ready(()) }
        }
    }

    #[tokio::test]
    async fn requests_that_arrive_together_are_answered_before_the_connection_goes_on() {
        let mut connection = Connection::new(8);
        connection.run().await;
        assert_eq!(connection.seen, [0, 8]);
    }

    #[tokio::test]
    async fn what_begins_while_the_connection_waits_does_not_wait_for_it() {
        let (together, done) = (Together::default(), Arc::new(Notify::new()));
        let connection = pin!(std::future::pending::<()>());
        let mut waiting = pin!(together.run(connection));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        let ending = Arc::clone(&done);
        together.execute(async move { ending.notify_one() });
        done.notified().await;
    }

    #[tokio::test]
    async fn a_request_that_panics_ends_alone() {
        let mut connection = Connection::new(2).with(async { panic!("for the test") });
        connection.run().await;
        assert_eq!(connection.seen, [0, 2]);
    }

    #[tokio::test]
    async fn a_request_that_has_to_wait_holds_up_nobody_and_is_answered_later() {
        let (go, done) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (going, ending) = (Arc::clone(&go), Arc::clone(&done));
        let mut connection = Connection::new(1).with(async move {
            going.notified().await;
            ending.notify_one();
        });
        connection.run().await;
        assert_eq!(connection.seen, [0, 1]);
        go.notify_one();
        done.notified().await;
    }
}
