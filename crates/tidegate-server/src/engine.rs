//! What every protocol asks: one limiter, the operator's controls in front of it, and what is counted
//! about both.

mod descriptors;

use std::borrow::Borrow;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tidegate::redis::{Deadline, Shared};
use tidegate::rules::Held;
use tidegate::{
    Call, Charge, CheckError, Clock, ManualClock, Place, RuleDecision, RuleLimiter, Settled,
    Source, SystemClock, Timestamp,
};
use tidegate_identity::Identity;
use tidegate_tower::{Decide as _, Keeping};

use crate::answer::Answer;
use crate::controls::{Controls, Ruling};
use crate::grpc::EnvoySettings;
use crate::metrics::Metrics;
use crate::top::Top;

pub use descriptors::DescriptorsAnswer;

/// The most calls of one batch that a store is asked about at a time.
pub(crate) const TOGETHER_MAX: usize = 128;

/// The limiter that the daemon runs on.
pub type DaemonLimiter = RuleLimiter<EngineClock, Place>;

/// Decides for all protocols, so that the same call gets the same answer over each of them.
#[derive(Debug)]
pub struct Engine {
    limiter: Arc<DaemonLimiter>,
    identity: Identity,
    controls: Controls,
    metrics: Metrics,
    top: Top,
    envoy: EnvoySettings,
}

/// The system's clock, or one that a test moves.
#[derive(Clone, Debug, Default)]
pub enum EngineClock {
    /// The system's.
    #[default]
    System,
    /// A test's.
    Manual(ManualClock),
}

impl Clock for EngineClock {
    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            Self::System => SystemClock.now(),
            Self::Manual(clock) => clock.now(),
        }
    }

    #[inline]
    fn now_unordered(&self) -> Timestamp {
        match self {
            Self::System => SystemClock.now_unordered(),
            Self::Manual(clock) => clock.now(),
        }
    }
}

/// Over what a call came, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// The endpoints of HTTP that take attributes or a key.
    Http,
    /// The endpoint that proxies ask before they let a request pass.
    ForwardAuth,
    /// Envoy's rate limit service, and its form in JSON.
    Envoy,
    /// The native gRPC service.
    Grpc,
    /// The protocol of Redis.
    Resp,
    /// Requests that a gateway forwards.
    Gateway,
}

impl Protocol {
    /// Every protocol, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Http, Self::ForwardAuth, Self::Envoy, Self::Grpc, Self::Resp, Self::Gateway];

    /// The word for it in labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::ForwardAuth => "forward_auth",
            Self::Envoy => "envoy",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Gateway => "gateway",
        }
    }
}

/// What a call does to the limits that apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Does {
    /// Takes the cost, all or nothing.
    #[default]
    Take,
    /// Answers as if it took, and takes nothing.
    Peek,
    /// Takes the cost whether it is there or not.
    Debit,
}

impl Engine {
    /// An engine on a limiter.
    pub fn new(limiter: impl Into<DaemonLimiter>, identity: Identity, controls: Controls) -> Self {
        let limiter = Arc::new(limiter.into());
        let metrics = Metrics::new(limiter.now());
        let envoy = EnvoySettings::default();
        Self { limiter, identity, controls, metrics, top: Top::new(), envoy }
    }

    /// The same, with what answers of Envoy's service have beside the decision.
    #[must_use]
    pub fn with_envoy(mut self, envoy: EnvoySettings) -> Self {
        self.envoy = envoy;
        self
    }

    /// Decides one call: the operator's controls first, then the rules. Whoever asks is told of a
    /// delay, and waits.
    #[inline]
    pub async fn check(
        &self,
        call: &Call<'_>,
        does: Does,
        over: Protocol,
    ) -> Result<Answer, CheckError> {
        let answer = self.decide(call, does, over).await?;
        // Who only looks is neither let through nor turned away.
        if does != Does::Peek {
            self.count(call, &answer, over);
        }
        Ok(answer)
    }

    /// The same for a call that takes and that we hold back ourselves. One whose turn is further off than
    /// `delay_max` is denied, and what it took is given back: before its turn it would be over the limit.
    #[inline]
    pub async fn check_within(
        &self,
        call: &Call<'_>,
        delay_max: Duration,
        over: Protocol,
    ) -> Result<Answer, CheckError> {
        let mut answer = self.decide(call, Does::Take, over).await?;
        let began = answer.at();
        if let Some(decision) = answer.turn_away_beyond(delay_max) {
            self.limiter.refund_in_by(&self.rest_of(began), decision).await;
        }
        self.count(call, &answer, over);
        Ok(answer)
    }

    /// The same where memory decides, or what this node has leased, at an instant that was just read, for who
    /// answers call after call: there is no future, and `then` is handed the answer where it stands. `None`
    /// where a store may have to be asked; nothing has happened then.
    #[inline]
    pub(crate) fn check_within_at_once<T>(
        &self,
        call: &Call<'_>,
        (delay_max, over): (Duration, Protocol),
        now: Timestamp,
        then: impl FnOnce(Result<&Answer<&mut RuleDecision>, CheckError>) -> T,
    ) -> Option<T> {
        let ruling = self.rule_on(call);
        if let Some(ruling @ (Ruling::Bypassed | Ruling::AllowListed | Ruling::Banned { .. })) =
            ruling
        {
            let answer = Answer::ruled(ruling, now);
            self.count(call, &answer, over);
            return Some(then(Ok(&answer)));
        }
        self.limiter.check_at_once(call, now, |decided| {
            let answer = match decided {
                Ok(decision) => Ok(Answer::decided(decision, ruling.is_some())),
                Err(error) => self.unable(error, ruling.is_some(), over),
            };
            let mut answer = match answer {
                Ok(answer) => answer,
                Err(error) => return then(Err(error)),
            };
            if let Some(decision) = answer.turn_away_beyond(delay_max) {
                // Only memory holds anybody back here: no lease is of a limit that does.
                at_once(self.limiter.refund_in(decision));
            }
            self.count(call, &answer, over);
            then(Ok(&answer))
        })
    }

    /// The same for who forwards calls that pass, and keeps the decision of those: it is made where it stands, of one
    /// that the limiter [began](RuleLimiter::begin). What becomes of a call that does not pass is for `denied` to
    /// say; one that does may pass after so long.
    #[inline]
    pub fn admit_at_once<T>(
        &self,
        begun: &mut RuleDecision,
        call: &Call<'_>,
        (delay_max, over): (Duration, Protocol),
        now: Timestamp,
        denied: impl FnOnce(&Answer<&mut RuleDecision>) -> T,
    ) -> Option<Result<ControlFlow<T, Duration>, CheckError>> {
        if !self.is_at_once() {
            return None;
        }
        if let Err(error) = self.limiter.check_begun_at_once(begun, call, now)? {
            self.metrics.undecided(over);
            return Some(Err(error));
        }
        let mut answer = Answer::decided(begun, false);
        if let Some(decision) = answer.turn_away_beyond(delay_max) {
            // Only memory holds anybody back here.
            at_once(self.limiter.refund_in(decision));
        }
        self.count(call, &answer, over);
        Some(Ok(if answer.is_allowed() {
            ControlFlow::Continue(answer.delay())
        } else {
            ControlFlow::Break(denied(&answer))
        }))
    }

    /// Whether the rules in memory decide alone. What the operator has switched or listed is rare, and so is a store.
    #[inline]
    pub fn is_at_once(&self) -> bool {
        !self.is_shared() && self.controls.is_idle()
    }

    /// Renews the places that a call holds until this is dropped. `None` where it holds none.
    pub fn keep(&self, answer: &Answer) -> Option<Keeping> {
        self.limiter.keeper(answer.decision()?)?.start()
    }

    /// Ends a call that was let through: gives its leases back, and, where rules count by the response, what
    /// a response of this status does not count for.
    pub async fn complete(&self, answer: Answer, status: u16) {
        if let Some(decision) = answer.into_decision() {
            self.limiter.complete(decision, status).await;
        }
    }

    /// Gives back everything that a call took, leases too, as if it had not been.
    pub async fn give_back(&self, answer: Answer) {
        if let Some(decision) = answer.into_decision() {
            self.limiter.refund(decision).await;
        }
    }

    /// Gives back what an equal call took at `taken_at`, which its answer tells.
    pub async fn refund(
        &self,
        call: &Call<'_>,
        taken_at: Timestamp,
    ) -> Result<RuleDecision, CheckError> {
        self.limiter.refund_at(call, taken_at).await
    }

    /// Gives back the leases that an equal call was given.
    pub async fn release(
        &self,
        call: &Call<'_>,
        held: &[Held],
    ) -> Result<RuleDecision, CheckError> {
        self.limiter.release_held(call, held).await
    }

    /// Counts the leases that an equal call was given as taken now. The answer holds those that were still
    /// held.
    pub async fn renew(&self, call: &Call<'_>, held: &[Held]) -> Result<RuleDecision, CheckError> {
        self.limiter.renew_held(call, held).await
    }

    /// What the rules alone say of a call, which takes nothing.
    pub async fn peek(&self, call: &Call<'_>) -> Result<RuleDecision, CheckError> {
        self.limiter.peek(call).await
    }

    /// Decides one operation under a limit that the call brings along.
    pub(crate) async fn decide_given(&self, charge: &Charge<'_>) -> Result<Settled, CheckError> {
        let began = self.limiter.now();
        let decided = self.limiter.decide_given(charge).await;
        self.note_store(began, decided.as_ref().ok().map(|settled| settled.source));
        decided.map_err(CheckError::Store)
    }

    /// Forgets what was taken by calls like this one.
    pub async fn reset(&self, call: &Call<'_>) -> Result<(), CheckError> {
        self.limiter.reset(call).await
    }

    /// Whether a store may have to be waited for. Where it is not, every future of an engine is ready
    /// at once.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared().is_some()
    }

    /// The store that nodes share; `None` where there is none.
    #[inline]
    pub fn shared(&self) -> Option<&Arc<Shared>> {
        match self.limiter.place() {
            Place::Memory(_) => None,
            Place::Shared(shared) => Some(shared),
        }
    }

    /// What is left of the time of a decision that began then.
    fn rest_of(&self, began: Timestamp) -> Deadline {
        let Some(shared) = self.shared() else { return Deadline::default() };
        let passed = Duration::from(self.limiter.now().since(began));
        Deadline::lasting(shared.deadline().saturating_sub(passed))
    }

    #[inline]
    async fn decide(
        &self,
        call: &Call<'_>,
        does: Does,
        over: Protocol,
    ) -> Result<Answer, CheckError> {
        let ruling = self.rule_on(call);
        match ruling {
            Some(ruling @ (Ruling::Bypassed | Ruling::AllowListed | Ruling::Banned { .. })) => {
                Ok(Answer::ruled(ruling, self.limiter.now()))
            }
            Some(Ruling::Shadow) | None => {
                let began = self.is_shared().then(|| self.limiter.now());
                let decided = match does {
                    Does::Take => self.limiter.check(call).await,
                    Does::Peek => self.limiter.peek(call).await,
                    Does::Debit => self.limiter.debit(call).await,
                };
                if let Some(began) = began {
                    self.note_store(began, decided.as_ref().ok().map(RuleDecision::source));
                }
                let in_shadow = ruling.is_some();
                match decided {
                    Ok(decision) => Ok(Answer::decided(decision, in_shadow)),
                    Err(error) => self.unable(error, in_shadow, over),
                }
            }
        }
    }

    /// What becomes of a call that could not be decided.
    #[cold]
    fn unable<D: Borrow<RuleDecision>>(
        &self,
        error: CheckError,
        in_shadow: bool,
        over: Protocol,
    ) -> Result<Answer<D>, CheckError> {
        // Nobody is turned away in shadow, whatever rules say for this case.
        if in_shadow && matches!(error, CheckError::Store(_)) {
            return Ok(Answer::undecided(self.limiter.now()));
        }
        self.metrics.undecided(over);
        Err(error)
    }

    /// Notes how long a decision took, where it was for a store to make.
    pub(crate) fn note_store(&self, began: Timestamp, source: Option<Source>) {
        match source {
            Some(Source::Memory | Source::Lease | Source::CachedDeny) => {}
            Some(Source::Store | Source::Fallback) | None => {
                self.metrics.store_took(self.limiter.now().since(began).into());
            }
        }
    }

    #[inline]
    fn count<D>(&self, call: &Call<'_>, answer: &Answer<D>, over: Protocol)
    where
        D: Borrow<RuleDecision>,
    {
        self.metrics.decided(over, answer);
        self.top.decided(call, answer);
    }

    /// What the controls say about a call. While nothing is listed or switched, it does not even ask
    /// the time, which the limiter is about to do.
    #[inline]
    fn rule_on(&self, call: &Call<'_>) -> Option<Ruling> {
        if self.controls.is_idle() {
            return None;
        }
        self.controls.rule_on(call.domain, call.attributes, self.limiter.now())
    }

    /// The limiter, for what needs no controls: refunds, releases, explanations, reloads.
    pub fn limiter(&self) -> &Arc<DaemonLimiter> {
        &self.limiter
    }

    /// How attributes are made of HTTP requests.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// What the operator has switched and listed.
    pub fn controls(&self) -> &Controls {
        &self.controls
    }

    /// What answers of Envoy's service have beside the decision.
    pub fn envoy(&self) -> &EnvoySettings {
        &self.envoy
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The busiest and most throttled keys.
    pub fn top(&self) -> &Top {
        &self.top
    }
}

/// Awaits decisions of a store together, and answers in their order. The store decides them in the order
/// in which they are sent, and that is this order.
pub(crate) async fn together<F: Future>(deciding: Vec<F>) -> Vec<F::Output> {
    stream::iter(deciding).buffered(TOGETHER_MAX).collect().await
}

/// What a future gives that is ready at once, as all of an engine are that has no store to wait for. It
/// takes no task and no memory from the heap.
#[inline]
pub fn at_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
