//! The client and its calls.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tidegate::{Call, RuleDecision, RuleLimiter};
use tidegate_proto::tidegate::v1::{CheckRequest, CheckResponse, CountResponseRequest};
use tidegate_tower::decide::Asked;
use tidegate_tower::{Decide as _, Keeper};
use tokio::time::{Instant, sleep};
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};

use crate::answer::{Answer, By, Said};
use crate::backoff::{RETRY, moment_after, random_up_to};
use crate::batch::Batches;
use crate::config::{ClientBuilder, WhileAway};
use crate::error::{ClientError, ConfigError};
use crate::pool::Pool;
use crate::tell::{self, Teller, Told};
use crate::wire;

/// Asks a daemon. It is cheap to clone, and all clones share its connections.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    batches: Arc<Batches>,
    teller: Arc<Teller>,
    pool: Arc<Pool>,
    settings: ClientBuilder,
}

/// What a denied call waits longer than it is told to, as a part of that, so that callers who were
/// denied together do not come back together.
const SPREAD_PART: u32 = 10;

impl Client {
    /// A client of the daemon at this address, such as `http://127.0.0.1:8081`, with all defaults. It has
    /// to be made inside a tokio runtime, which it lives in; callers may be in others.
    pub fn connect(address: impl Into<String>) -> Result<Self, ConfigError> {
        Self::builder(address).build()
    }

    /// A client to be put together.
    pub fn builder(address: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(address.into())
    }

    pub(crate) fn of(endpoint: Endpoint, settings: ClientBuilder) -> Self {
        let pool = Arc::new(Pool::new(endpoint, settings.connections));
        let teller = Teller::new(Arc::clone(&pool), &settings);
        let batches = Batches::new(Arc::clone(&pool), Arc::clone(&teller), &settings);
        Self { inner: Arc::new(Inner { batches, teller, pool, settings }) }
    }

    /// Takes what the call costs, if it is there under every limit that applies.
    pub async fn check(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        self.decide(wire::of_call(call)).await
    }

    /// Answers as [`check`](Self::check) would, and takes nothing.
    pub async fn peek(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        self.decide(CheckRequest { peek: true, ..wire::of_call(call) }).await
    }

    /// Takes what the call costs whether it is there or not.
    pub async fn debit(&self, call: &Call<'_>) -> Result<Answer, ClientError> {
        self.decide(CheckRequest { debit: true, ..wire::of_call(call) }).await
    }

    /// Checks until the call is allowed, waiting as long as it is told each time and a little longer, by
    /// chance: up to a tenth, and after each denial up to twice as much more as after the one before. Where
    /// that would take longer than `within`, or waiting does not help, the denial is handed back. A call that is allowed
    /// may have a [`delay`](Answer::delay) all the same, which is the caller's to sleep out.
    pub async fn acquire(&self, call: &Call<'_>, within: Duration) -> Result<Answer, ClientError> {
        let until = moment_after(Instant::now(), within);
        let mut denials = 0;
        loop {
            let answer = self.check(call).await?;
            let Some(wait) = answer.retry_after().filter(|_| !answer.is_allowed()) else {
                return Ok(answer);
            };
            denials += 1;
            let spread = random_up_to(wait / SPREAD_PART) + RETRY.wait(denials);
            let next = moment_after(Instant::now(), wait.saturating_add(spread));
            if next > until {
                return Ok(answer);
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// Gives back everything that a call took, places too, as if it had not been.
    ///
    /// What the daemon surely did not hear it is told again, within the bounds of retries. So it is in
    /// [`release`](Self::release), where it may have heard it too, and in
    /// [`count_response`](Self::count_response).
    pub async fn refund(&self, answer: Answer) -> Result<(), ClientError> {
        let refund = |limiter: &RuleLimiter, decision| limiter.refund(decision);
        let Some(said) = self.said(answer, refund) else { return Ok(()) };
        self.inner.teller.tell(tell::all(said.request, said.response)).await
    }

    /// Gives back the places that a call holds. What it took stays taken.
    pub async fn release(&self, answer: Answer) -> Result<(), ClientError> {
        let abandon = |limiter: &RuleLimiter, decision| limiter.abandon(decision);
        let Some(said) = self.said(answer, abandon) else { return Ok(()) };
        self.inner.teller.tell(tell::places(said.request, said.response)).await
    }

    /// Counts the places that a call holds as taken now, for work that lasts longer than they would. To be
    /// called every [`renew_every`](Answer::renew_every) until the work is done. Says whether they were
    /// still held, as far as anybody knows: those that have expired, or were given back, stay free.
    pub async fn renew(&self, answer: &Answer) -> Result<bool, ClientError> {
        match (&answer.by, &self.inner.settings.while_away) {
            (By::Daemon(said), _) => match said.renewal() {
                Some(request) => self.inner.teller.renew(request).await,
                None => Ok(true),
            },
            (By::Local(decision), WhileAway::Local(limiter)) => {
                Ok(decision.holding().is_none_or(|holding| limiter.renew(&holding)))
            }
            (By::Local(_) | By::Nobody, _) => Ok(true),
        }
    }

    /// Who renews the places of a call until it is over; `None` where it holds none, or where an older
    /// daemon does not say how long they last.
    pub(crate) fn keeper(&self, answer: &Answer) -> Option<Keeper> {
        let every = answer.renew_every()?;
        match (&answer.by, &self.inner.settings.while_away) {
            (By::Daemon(said), _) => {
                let (teller, request) = (Arc::clone(&self.inner.teller), said.renewal()?);
                Some(Keeper::every(every, move || {
                    let (teller, request) = (Arc::clone(&teller), request.clone());
                    async move {
                        if let Err(error) = teller.renew(request).await {
                            tracing::debug!(%error, "places were not renewed");
                        }
                    }
                }))
            }
            (By::Local(decision), WhileAway::Local(limiter)) => limiter.keeper(decision),
            (By::Local(_) | By::Nobody, _) => None,
        }
    }

    /// As [`refund`](Self::refund), for who does not wait.
    pub(crate) fn refund_later(&self, answer: Answer) {
        let refund = |limiter: &RuleLimiter, decision| limiter.refund(decision);
        if let Some(said) = self.said(answer, refund) {
            self.inner.teller.tell_later(tell::all(said.request, said.response));
        }
    }

    /// As [`release`](Self::release), for who does not wait.
    pub(crate) fn release_later(&self, answer: Answer) {
        let abandon = |limiter: &RuleLimiter, decision| limiter.abandon(decision);
        if let Some(said) = self.said(answer, abandon) {
            self.inner.teller.tell_later(tell::places(said.request, said.response));
        }
    }

    /// What the daemon has to be told of; what was decided here is ended here.
    fn said(&self, answer: Answer, end: impl FnOnce(&RuleLimiter, RuleDecision)) -> Option<Said> {
        match (answer.by, &self.inner.settings.while_away) {
            (By::Daemon(said), _) => Some(said),
            (By::Local(decision), WhileAway::Local(limiter)) => {
                end(limiter, decision);
                None
            }
            (By::Local(_) | By::Nobody, _) => None,
        }
    }

    /// Tells the status of the response to a call, for rules that count by it. Places stay held.
    pub async fn count_response(
        &self,
        answer: &mut Answer,
        status: u16,
    ) -> Result<(), ClientError> {
        match self.take_response(answer, status) {
            Some(request) => self.inner.teller.tell(vec![Told::Response(request)]).await,
            None => Ok(()),
        }
    }

    /// As [`count_response`](Self::count_response), for who does not wait.
    pub(crate) fn count_response_later(&self, answer: &mut Answer, status: u16) {
        if let Some(request) = self.take_response(answer, status) {
            self.inner.teller.tell_later(vec![Told::Response(request)]);
        }
    }

    /// What is still to be told of a response; nobody has to be told twice.
    fn take_response(&self, answer: &mut Answer, status: u16) -> Option<CountResponseRequest> {
        match &mut answer.by {
            By::Daemon(said) => {
                if !std::mem::take(&mut said.awaits_response) {
                    return None;
                }
                let CheckRequest { domain, attributes, cost, .. } = said.request.clone();
                let taken_at_us = said.response.taken_at_us?;
                let status = status.into();
                Some(CountResponseRequest { domain, attributes, cost, taken_at_us, status })
            }
            By::Local(decision) => {
                if let WhileAway::Local(limiter) = &self.inner.settings.while_away {
                    limiter.count_response(decision, status);
                }
                None
            }
            By::Nobody => None,
        }
    }

    pub(crate) async fn decide_asked(&self, asked: &Asked) -> Result<Answer, ClientError> {
        self.decide(wire::of_asked(asked)).await
    }

    async fn decide(&self, request: CheckRequest) -> Result<Answer, ClientError> {
        let error = match self.ask(&request).await {
            Ok(response) => return Ok(Answer::of_daemon(request, response)),
            Err(error) => error,
        };
        match error {
            // The daemon has been heard, and its rules say so. Or others have heard it: were a call decided here
            // because there are too many, a flood would be a way around the limit.
            ClientError::Call | ClientError::Undecided | ClientError::Busy => Err(error),
            ClientError::Unavailable | ClientError::NoAnswer => self.stand_in(&request, error),
        }
    }

    /// Decides while the daemon is away.
    fn stand_in(&self, request: &CheckRequest, error: ClientError) -> Result<Answer, ClientError> {
        let by = match &self.inner.settings.while_away {
            WhileAway::Refuse => return Err(error),
            WhileAway::Allow => By::Nobody,
            WhileAway::Local(limiter) => {
                let attributes = wire::attributes(request);
                let call = Call::new(&request.domain, &attributes);
                let call = call.with_cost(request.cost.unwrap_or(1));
                let decided = match (request.peek, request.debit) {
                    (true, _) => limiter.peek(&call),
                    (_, true) => limiter.debit(&call),
                    _ => limiter.check(&call),
                };
                By::Local(decided.map_err(|_| ClientError::Call)?)
            }
        };
        Ok(Answer { by })
    }

    /// Asks the daemon, and again where that is safe, within the deadline and the budget.
    async fn ask(&self, request: &CheckRequest) -> Result<CheckResponse, ClientError> {
        let Inner { pool, settings, batches, .. } = &*self.inner;
        settings.budget.earn();
        // It is encoded once, however often it is sent.
        let call = Bytes::from(request.encode_to_vec());
        let since = Instant::now();
        let until = moment_after(since, settings.deadline);
        let mut failures = 0;
        loop {
            if !pool.may_ask() {
                return Err(ClientError::Unavailable);
            }
            let error = match batches.ask(call.clone(), since, until).await {
                Err(
                    error @ (ClientError::Unavailable | ClientError::NoAnswer | ClientError::Busy),
                ) => error,
                heard => return heard,
            };
            failures += 1;
            let is_safe = request.peek || !error.may_have_changed_state();
            let wait = RETRY.wait(failures);
            let is_worth_it =
                is_safe && failures <= settings.retries_max && Instant::now() + wait < until;
            if !is_worth_it || !settings.budget.take() {
                return Err(error);
            }
            sleep(wait).await;
        }
    }
}

/// Of a call by itself. A daemon that cannot decide says so with details, and a connection that cannot be
/// made has none.
pub(crate) fn of_check(status: &Status) -> ClientError {
    match status.code() {
        Code::Unavailable if !status.details().is_empty() => ClientError::Undecided,
        code => ClientError::of_code(code),
    }
}

/// A message that the daemon need not answer after so long.
pub(crate) fn within<T>(message: T, deadline: Duration) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline);
    request
}
