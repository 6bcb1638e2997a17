//! What the daemon is told after a call: that places are still in use or free again, that something was not
//! used, how the response turned out. Decisions are asked for elsewhere.
//!
//! What is lost on the way is told again, so that a place is not held until its lease expires because of one
//! message. What gives back is told again only where it surely was not heard: given back twice, it would let
//! more pass than the limit says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tidegate_proto::tidegate::v1::limiter_client::LimiterClient;
use tidegate_proto::tidegate::v1::{
    CheckRequest, CheckResponse, CountResponseRequest, RefundRequest, ReleaseRequest, RenewRequest,
};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tonic::Response;

use crate::backoff::RETRY;
use crate::budget::RetryBudget;
use crate::client::{of_check, within};
use crate::config::ClientBuilder;
use crate::error::ClientError;
use crate::pool::Pool;

/// The most messages that are told or wait to be. What is more is not told, and comes back by itself in time.
const WAITING_MAX: usize = 65_536;
/// The most that are told at the same time, so that they leave room for calls on the connections.
const UNDER_WAY_MAX: usize = 64;

/// One message.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Release(ReleaseRequest),
    Refund(RefundRequest),
    Response(CountResponseRequest),
    Renewal(RenewRequest),
}

/// Tells the daemon what it has to know.
#[derive(Debug)]
pub(crate) struct Teller {
    pool: Arc<Pool>,
    deadline: Duration,
    retries_max: u32,
    budget: Arc<RetryBudget>,
    waiting: Arc<Semaphore>,
    under_way: Semaphore,
}

impl Teller {
    pub(crate) fn new(pool: Arc<Pool>, settings: &ClientBuilder) -> Arc<Self> {
        Arc::new(Self {
            pool,
            deadline: settings.deadline,
            retries_max: settings.retries_max,
            budget: Arc::clone(&settings.budget),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
            under_way: Semaphore::new(UNDER_WAY_MAX),
        })
    }

    /// Tells all of it, and says what went wrong first. Each try takes at most twice the deadline: to get its turn,
    /// and to be heard.
    pub(crate) async fn tell(&self, messages: Vec<Told>) -> Result<(), ClientError> {
        if messages.is_empty() {
            return Ok(());
        }
        let waiting = self.wait()?;
        self.tell_each(messages, waiting).await
    }

    /// Tells what nobody waits for. Where the daemon does not hear it, what was taken comes back by itself in
    /// time, places when their leases expire.
    pub(crate) fn tell_later(self: &Arc<Self>, messages: Vec<Told>) {
        if messages.is_empty() {
            return;
        }
        let (Ok(runtime), Ok(waiting)) = (Handle::try_current(), self.wait()) else { return };
        let teller = Arc::clone(self);
        runtime.spawn(async move {
            if let Err(error) = teller.tell_each(messages, waiting).await {
                tracing::debug!(%error, "the daemon was not told");
            }
        });
    }

    fn wait(&self) -> Result<OwnedSemaphorePermit, ClientError> {
        Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| ClientError::Busy)
    }

    /// Gives back what a call took, an encoded `CheckRequest`, whose answer nobody waits for any more.
    pub(crate) fn give_back(self: &Arc<Self>, call: Bytes, response: CheckResponse) {
        if !response.allowed || (response.lease_id.is_none() && response.taken_at_us.is_none()) {
            return;
        }
        // It was encoded here.
        let Ok(request) = CheckRequest::decode(call) else { return };
        // What was debited has been used, whoever hears of it.
        let taken = if request.debit { places(request, response) } else { all(request, response) };
        self.tell_later(taken);
    }

    async fn tell_each(
        &self,
        messages: Vec<Told>,
        _waiting: OwnedSemaphorePermit,
    ) -> Result<(), ClientError> {
        let mut outcome = Ok(());
        for message in messages {
            outcome = outcome.and(self.tell_one(message).await.map(drop));
        }
        outcome
    }

    /// Keeps the places of a call for as long as new ones would last, and says whether they were still held.
    /// What the daemon cannot know, because its store is away, counts as held.
    pub(crate) async fn renew(&self, request: RenewRequest) -> Result<bool, ClientError> {
        let _waiting = self.wait()?;
        self.tell_one(Told::Renewal(request)).await
    }

    /// Says whether what it is about was still there, which is known of a renewal only.
    async fn tell_one(&self, message: Told) -> Result<bool, ClientError> {
        self.budget.earn();
        let mut failures = 0;
        loop {
            let error = match self.tell_once(message.clone()).await {
                Ok(is_held) => return Ok(is_held),
                Err(error) => error,
            };
            failures += 1;
            let is_worth_it = message.may_be_told_again(error) && failures <= self.retries_max;
            if !is_worth_it || !self.budget.take() {
                return Err(error);
            }
            sleep(RETRY.wait(failures)).await;
        }
    }

    async fn tell_once(&self, message: Told) -> Result<bool, ClientError> {
        let Ok(Ok(_under_way)) = timeout(self.deadline, self.under_way.acquire()).await else {
            return Err(ClientError::Busy);
        };
        let deadline = self.deadline;
        let telling = async |channel| {
            let mut to = LimiterClient::new(channel);
            let told = match message {
                Told::Release(message) => to.release(within(message, deadline)).await.map(|_| true),
                Told::Refund(message) => to.refund(within(message, deadline)).await.map(|_| true),
                Told::Response(message) => {
                    to.count_response(within(message, deadline)).await.map(|_| true)
                }
                Told::Renewal(message) => {
                    let renewed =
                        to.renew(within(message, deadline)).await.map(Response::into_inner);
                    renewed.map(|renewed| renewed.lease_id.is_some() || renewed.degraded)
                }
            };
            told.map_err(|status| of_check(&status))
        };
        self.pool.send(deadline, telling).await.map_err(|error| match error {
            // It was sent: whoever says so in between may have handed it on all the same.
            ClientError::Busy => ClientError::NoAnswer,
            error => error,
        })
    }
}

impl Told {
    /// A place has a name, so it is given back or renewed once however often that is said.
    fn may_be_told_again(&self, error: ClientError) -> bool {
        match error {
            ClientError::Unavailable | ClientError::Busy => true,
            ClientError::NoAnswer => matches!(self, Self::Release(_) | Self::Renewal(_)),
            ClientError::Call | ClientError::Undecided => false,
        }
    }
}

/// What gives back all that a call took, places first: somebody may wait for them.
pub(crate) fn all(request: CheckRequest, response: CheckResponse) -> Vec<Told> {
    let taken_at_us = response.taken_at_us;
    let CheckRequest { domain, attributes, cost, .. } = request.clone();
    let mut messages = places(request, response);
    if taken_at_us.is_some() {
        let refund = RefundRequest { domain, attributes, cost, taken_at_us };
        messages.push(Told::Refund(refund));
    }
    messages
}

/// What gives back the places that a call holds.
pub(crate) fn places(request: CheckRequest, response: CheckResponse) -> Vec<Told> {
    let CheckRequest { domain, attributes, .. } = request;
    let release = |lease_id| Told::Release(ReleaseRequest { domain, attributes, lease_id });
    response.lease_id.map(release).into_iter().collect()
}
