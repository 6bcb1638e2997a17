//! The requests of a connection over HTTP/2 while they are answered, and how long a client may leave there what is for
//! it.
//!
//! Over HTTP/1 a client that takes nothing keeps writes from ending, and `Opened` sees that. Over HTTP/2 it gives a stream
//! no window, the connection goes on, and the body of the answer is asked for nothing any more. So the time runs here, where
//! answers are run. At its end the answer is dropped, with all that it holds, which resets its stream. So is what is left of
//! a tunnel that has closed.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use tidegate_server::web::together::Together;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::pace::{Pace, UnderWay};
use crate::body::{Noted, Patience};
use crate::forward::tunnel::Closed;

/// What a connection over HTTP/2 hands its requests to.
#[derive(Clone)]
pub(super) struct Streams {
    together: Together,
    /// Told what is under way.
    pace: Pace,
    /// How long a client may take nothing of an answer.
    taken_within: Duration,
}

impl Streams {
    pub(super) fn new(pace: Pace, taken_within: Duration) -> Self {
        Self { together: Together::default(), pace, taken_within }
    }

    /// Runs the connection that this is the executor of, and its requests.
    pub(super) async fn run<C: Future>(&self, connection: Pin<&mut C>) -> C::Output {
        self.together.run(connection).await
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, answering: F) {
        self.together.execute(Stream {
            answering: Box::pin(answering),
            has_answer: false,
            tunnel: Closed::take().map(|Closed(closed)| Box::pin(closed.cancelled_owned())),
            patience: Patience::new(self.taken_within),
            _under_way: self.pace.begin(),
        });
    }
}

/// A request that is answered, or something else that a connection begins, such as a tunnel.
struct Stream<F> {
    answering: Pin<Box<F>>,
    /// Whether there is an answer. Before, the client is not who is waited for, and a tunnel never has one.
    has_answer: bool,
    /// Ends when the tunnel closes that this sends to the client of. While it is open it has its own time.
    tunnel: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    patience: Patience,
    _under_way: UnderWay,
}

impl<F: Future<Output = ()>> Future for Stream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let _of_another = Noted::take();
        let answered = this.answering.as_mut().poll(context);
        // Of a tunnel whose client has gone hyper sends nothing.
        let _of_nobody = Closed::take();
        if answered.is_ready() {
            return Poll::Ready(());
        }
        if let Some(closed) = &mut this.tunnel {
            ready!(closed.as_mut().poll(context));
            return this.patience.poll_end(context);
        }
        match Noted::take() {
            // There is nothing that could be taken.
            Some(Noted::Nothing) => {
                this.has_answer = true;
                this.patience.renew();
                return Poll::Pending;
            }
            Some(Noted::Something) => {
                this.has_answer = true;
                this.patience.renew();
            }
            None if this.has_answer => {}
            None => return Poll::Pending,
        }
        this.patience.poll_end(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;

    use tokio::time::{Instant, sleep};
    use tokio_util::sync::CancellationToken;

    use super::*;

    const TAKEN_WITHIN: Duration = Duration::from_secs(5);

    /// How long something runs that notes this again and again, every so often, and then no more; `None` where it is not
    /// ended within an hour.
    async fn lasts(noted: &[Noted], every: Duration) -> Option<Duration> {
        let (held, begun) = (Arc::new(()), Instant::now());
        let (holding, noted) = (Arc::clone(&held), noted.to_vec());
        Streams::new(Pace::new(), TAKEN_WITHIN).execute(async move {
            for noted in noted {
                noted.note();
                sleep(every).await;
            }
            // Hyper asks a body that had nothing again, whatever it is woken for.
            std::future::pending::<()>().await;
            drop(holding);
        });
        while Arc::strong_count(&held) > 1 && begun.elapsed() < Duration::from_hours(1) {
            sleep(Duration::from_millis(10)).await;
        }
        (Arc::strong_count(&held) == 1).then(|| begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_not_taken_in_time_is_dropped() {
        let lasted = lasts(&[Noted::Something], Duration::ZERO).await.unwrap();
        assert!((TAKEN_WITHIN..TAKEN_WITHIN * 3 / 2).contains(&lasted), "{lasted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_little_at_a_time_has_the_time_for_each_part() {
        let lasted = lasts(&[Noted::Something; 100], TAKEN_WITHIN * 4 / 5).await.unwrap();
        assert!(lasted >= 80 * TAKEN_WITHIN, "{lasted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_hurried_where_there_is_nothing_to_take() {
        assert_eq!(
            lasts(&[], Duration::ZERO).await,
            None,
            "a request without an answer, or a tunnel"
        );
        let slow = poll_fn::<(), _>(|_| {
            Noted::Nothing.note();
            Poll::Pending
        });
        let held = Arc::new(());
        let holding = Arc::clone(&held);
        Streams::new(Pace::new(), TAKEN_WITHIN).execute(async move {
            Noted::Something.note();
            slow.await;
            drop(holding);
        });
        sleep(10 * TAKEN_WITHIN).await;
        assert_eq!(Arc::strong_count(&held), 2, "an upstream that is slow");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_a_tunnel_has_the_time_from_when_it_closes() {
        let (closed, held) = (CancellationToken::new(), Arc::new(()));
        let holding = Arc::clone(&held);
        Closed(closed.clone()).note();
        Streams::new(Pace::new(), TAKEN_WITHIN).execute(async move {
            std::future::pending::<()>().await;
            drop(holding);
        });
        sleep(10 * TAKEN_WITHIN).await;
        assert_eq!(Arc::strong_count(&held), 2, "it is open");
        closed.cancel();
        sleep(TAKEN_WITHIN / 2).await;
        assert_eq!(Arc::strong_count(&held), 2, "it has just closed");
        sleep(TAKEN_WITHIN).await;
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
