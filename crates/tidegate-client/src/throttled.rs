//! For callers of other people's limited services: a layer that does as their servers ask. It waits as long
//! as `Retry-After` or the `RateLimit` fields say, and makes the request again where that is safe, within bounds.

mod advice;
mod replay;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tidegate::{Clock as _, SystemClock};
use tokio::time::{Instant, sleep_until};
use tower_layer::Layer;
use tower_service::Service;

use crate::backoff::{Backoff, moment_after, random_up_to};
use crate::budget::RetryBudget;

pub use advice::{more_after, retry_after, used_up_for};
pub use replay::Replay;

/// Waits and retries as servers ask.
///
/// - A response of 429 or 503 is waited out and the request is made again, where it
///   [may be](Replay), at most [`retries_max`](Self::retries_max) times and within the
///   [budget](Self::retry_budget). Without a time to wait, or with one of nothing, it is backed off exponentially,
///   with full jitter.
/// - Once a server says that nothing is left, with a 429 or with `RateLimit`, requests that come
///   after wait until [there is](more_after), instead of asking in vain.
/// - No request waits longer than [`wait_max`](Self::wait_max) in all. What would take longer is handed back
///   as it is.
///
/// What is read is `Retry-After`, in seconds and as a date, and without it the fields `RateLimit`, or
/// `RateLimit-Remaining` and `RateLimit-Reset`, in the forms that [`used_up_for`] lists. `X-RateLimit-` fields
/// are not read: a refusal that has nothing else is backed off.
///
/// One layer is for one server: all services that it makes wait together. Who calls several has one layer for
/// each, around clones of one client, or else the limit of one server holds up the calls of the others.
#[derive(Clone, Debug)]
pub struct ThrottledLayer {
    shared: Arc<Shared>,
}

#[derive(Clone, Debug)]
struct Shared {
    wait_max: Duration,
    retries_max: u32,
    budget: Arc<RetryBudget>,
    /// Before this moment nobody need ask. It is what servers said: each caller adds its own
    /// [spread](turn), because one that all of them shared would bring them back together.
    closed_until: Arc<Mutex<Option<Instant>>>,
}

/// The waits after a refusal that says nothing of time.
const UNTOLD: Backoff =
    Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) };

/// What is waited longer than a server says, as a part of the wait, so that callers do not come back together.
const SPREAD_PART: u32 = 10;
/// The most of it.
const SPREAD_MAX: Duration = Duration::from_secs(5);

impl ThrottledLayer {
    /// How long a request waits at most, unless said.
    pub const WAIT_MAX_DEFAULT: Duration = Duration::from_secs(30);
    /// How often it is made again, unless said.
    pub const RETRIES_MAX_DEFAULT: u32 = 3;

    /// A layer with all defaults.
    pub fn new() -> Self {
        let shared = Shared {
            wait_max: Self::WAIT_MAX_DEFAULT,
            retries_max: Self::RETRIES_MAX_DEFAULT,
            budget: Arc::default(),
            closed_until: Arc::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// How long a request waits at most, over all its retries.
    #[must_use]
    pub fn wait_max(mut self, wait_max: Duration) -> Self {
        Arc::make_mut(&mut self.shared).wait_max = wait_max;
        self
    }

    /// How often a request is made again.
    #[must_use]
    pub fn retries_max(mut self, retries_max: u32) -> Self {
        Arc::make_mut(&mut self.shared).retries_max = retries_max;
        self
    }

    /// How many retries there may be over all requests.
    #[must_use]
    pub fn retry_budget(mut self, budget: impl Into<Arc<RetryBudget>>) -> Self {
        Arc::make_mut(&mut self.shared).budget = budget.into();
        self
    }
}

impl Default for ThrottledLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for ThrottledLayer {
    type Service = Throttled<S>;

    fn layer(&self, inner: S) -> Throttled<S> {
        Throttled { inner, shared: Arc::clone(&self.shared) }
    }
}

/// A service behind a [`ThrottledLayer`].
#[derive(Clone, Debug)]
pub struct Throttled<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S, A, B> Service<Request<A>> for Throttled<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    A: Replay + Send + 'static,
    B: Send + 'static,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // The service that was found to be ready goes with the request; a fresh one stays.
        let fresh = self.inner.clone();
        let inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(Arc::clone(&self.shared).make(inner, request))
    }
}

impl Shared {
    async fn make<S, A, B>(
        self: Arc<Self>,
        mut service: S,
        mut request: Request<A>,
    ) -> Result<Response<B>, S::Error>
    where
        S: Service<Request<A>, Response = Response<B>>,
        A: Replay,
    {
        // Since when it waits, and until when it may.
        let mut since = Instant::now();
        let until = moment_after(since, self.wait_max);
        self.budget.earn();
        let mut refusals = 0;
        loop {
            self.wait_until_open(since, until).await;
            let again = replay::copy(&request);
            let response = service.call(request).await?;
            since = Instant::now();
            let refused = matches!(
                response.status(),
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
            );
            if !refused {
                if let Some(wait) = more_after(response.headers()) {
                    self.close_until(since + wait);
                }
                return Ok(response);
            }
            refusals += 1;
            let told = retry_after(response.headers(), SystemClock.now())
                .or_else(|| used_up_for(response.headers()))
                // Who refuses and says "now" has said nothing of time: a wait that is below a second and was
                // rounded down, or a clock that is ahead.
                .filter(|wait| !wait.is_zero());
            let next = match told {
                Some(wait) => {
                    self.close_until(since + wait);
                    turn(since + wait, since, until)
                }
                None => Some(since + UNTOLD.wait(refusals)).filter(|next| *next <= until),
            };
            match (again, next) {
                (Some(again), Some(next)) if refusals <= self.retries_max && self.budget.take() => {
                    drop(response);
                    request = again;
                    sleep_until(next).await;
                }
                _ => return Ok(response),
            }
            std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
        }
    }

    /// Waits while nothing is left, unless that would take too long: then the server may say so itself.
    /// Whoever comes back first may be told to wait again, and then the others need not ask.
    async fn wait_until_open(&self, since: Instant, until: Instant) {
        while let Some(next) = self.closed_until().and_then(|open_at| turn(open_at, since, until)) {
            sleep_until(next).await;
        }
    }

    fn closed_until(&self) -> Option<Instant> {
        let closed_until = *self.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        closed_until.filter(|open_at| *open_at > Instant::now())
    }

    fn close_until(&self, at: Instant) {
        let mut closed_until = self.closed_until.lock().unwrap_or_else(PoisonError::into_inner);
        *closed_until = closed_until.max(Some(at));
    }
}

/// When somebody comes back who waits since then for what opens at `open_at`; `None` where that is too late.
/// The spread is a part of all of the wait and not of its last piece: who waited together for long may be
/// held up for a moment more, and would come back together within a part of that moment.
fn turn(open_at: Instant, since: Instant, until: Instant) -> Option<Instant> {
    let left = until.checked_duration_since(open_at)?;
    let wait = open_at.saturating_duration_since(since);
    Some(open_at + random_up_to((wait / SPREAD_PART).min(SPREAD_MAX).min(left)))
}
