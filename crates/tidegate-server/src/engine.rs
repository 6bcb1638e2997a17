//! What every protocol asks: one limiter, the operator's controls in front of it, and what is counted
//! about both.

mod descriptors;

use std::sync::Arc;
use std::time::Duration;

use tidegate::{Call, CheckError, Clock, ManualClock, RuleLimiter, SystemClock, Timestamp};
use tidegate_identity::Identity;

use crate::answer::Answer;
use crate::controls::{Controls, Ruling};
use crate::grpc::EnvoySettings;
use crate::metrics::Metrics;
use crate::top::Top;

pub use descriptors::DescriptorsAnswer;

/// The limiter that the daemon runs on.
pub type DaemonLimiter = RuleLimiter<EngineClock>;

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
}

impl Protocol {
    /// Every protocol, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Http, Self::ForwardAuth, Self::Envoy, Self::Grpc, Self::Resp];

    /// The word for it in labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::ForwardAuth => "forward_auth",
            Self::Envoy => "envoy",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
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
    pub fn new(limiter: Arc<DaemonLimiter>, identity: Identity, controls: Controls) -> Self {
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
    pub fn check(&self, call: &Call<'_>, does: Does, over: Protocol) -> Result<Answer, CheckError> {
        let answer = self.decide(call, does, over)?;
        // Who only looks is neither let through nor turned away.
        if does != Does::Peek {
            self.count(call, &answer, over);
        }
        Ok(answer)
    }

    /// The same for a call that takes and that we hold back ourselves. One whose turn is further off than
    /// `delay_max` is denied, and what it took is given back: before its turn it would be over the limit.
    #[inline]
    pub fn check_within(
        &self,
        call: &Call<'_>,
        delay_max: Duration,
        over: Protocol,
    ) -> Result<Answer, CheckError> {
        let mut answer = self.decide(call, Does::Take, over)?;
        if let Some(decision) = answer.turn_away_beyond(delay_max) {
            self.limiter.refund_in(decision);
        }
        self.count(call, &answer, over);
        Ok(answer)
    }

    fn decide(&self, call: &Call<'_>, does: Does, over: Protocol) -> Result<Answer, CheckError> {
        let ruling = self.rule_on(call);
        match ruling {
            Some(ruling @ (Ruling::Bypassed | Ruling::AllowListed | Ruling::Banned { .. })) => {
                Ok(Answer::ruled(ruling, self.limiter.now()))
            }
            Some(Ruling::Shadow) | None => {
                let decided = match does {
                    Does::Take => self.limiter.check(call),
                    Does::Peek => self.limiter.peek(call),
                    Does::Debit => self.limiter.debit(call),
                };
                let decision = decided.inspect_err(|_| self.metrics.undecided(over))?;
                Ok(Answer::decided(decision, ruling.is_some()))
            }
        }
    }

    #[inline]
    fn count(&self, call: &Call<'_>, answer: &Answer, over: Protocol) {
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
