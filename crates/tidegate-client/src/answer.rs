//! What was decided about a call: by the daemon, by the limiter that stands in for it, or by nobody.

use std::time::Duration;

use tidegate::RuleDecision;
use tidegate::rules::{Reason, renew_every};
use tidegate_proto::tidegate::v1::{CheckRequest, CheckResponse, LimitStatus, RenewRequest};
use tidegate_tower::{Policy, Standing, Unit};

/// The answer to one call.
#[derive(Debug)]
#[must_use = "an answer that nobody reads limits nothing"]
pub struct Answer {
    pub(crate) by: By,
}

#[derive(Debug)]
pub(crate) enum By {
    Daemon(Said),
    /// The daemon is away.
    Local(RuleDecision),
    /// The daemon is away, and calls pass meanwhile.
    Nobody,
}

/// What the daemon said, and to what.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) request: CheckRequest,
    pub(crate) response: CheckResponse,
    /// Whether rules that count by the response still have to be told of it.
    pub(crate) awaits_response: bool,
}

impl Answer {
    pub(crate) fn of_daemon(request: CheckRequest, response: CheckResponse) -> Self {
        let awaits_response = response.counts_responses && response.taken_at_us.is_some();
        Self { by: By::Daemon(Said { request, response, awaits_response }) }
    }

    /// Whether the call may pass, perhaps after [`delay`](Self::delay).
    pub fn is_allowed(&self) -> bool {
        match &self.by {
            By::Daemon(said) => said.response.allowed,
            By::Local(decision) => decision.is_allowed(),
            By::Nobody => true,
        }
    }

    /// Why it was denied; `None` where it was allowed.
    pub fn reason(&self) -> Option<Reason> {
        match &self.by {
            By::Daemon(said) if said.response.allowed => None,
            By::Daemon(said) => Some(reason(said.response.reason.as_deref())),
            By::Local(decision) => decision.reason(),
            By::Nobody => None,
        }
    }

    /// The name of the rule of the binding limit.
    pub fn rule(&self) -> Option<&str> {
        match &self.by {
            By::Daemon(said) => said.response.rule.as_deref(),
            By::Local(decision) => decision.rule().map(|rule| rule.name.as_str()),
            By::Nobody => None,
        }
    }

    /// The most that the binding limit can have left; `None` where nothing is counted.
    pub fn limit(&self) -> Option<u64> {
        match &self.by {
            By::Daemon(said) => said.response.limit,
            By::Local(decision) => decision.limit(),
            By::Nobody => None,
        }
    }

    /// How much the binding limit has left.
    pub fn remaining(&self) -> Option<u64> {
        match &self.by {
            By::Daemon(said) => said.response.remaining,
            By::Local(decision) => decision.remaining(),
            By::Nobody => None,
        }
    }

    /// How long until the binding limit has everything back.
    pub fn reset_after(&self) -> Option<Duration> {
        match &self.by {
            By::Daemon(said) => said.response.reset_after_ms.map(Duration::from_millis),
            By::Local(decision) => decision.reset_after(),
            By::Nobody => None,
        }
    }

    /// How long to wait before the same call passes; `None` where it was allowed or where waiting does
    /// not help.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.by {
            By::Daemon(said) => said.response.retry_after_ms.map(Duration::from_millis),
            By::Local(decision) => decision.retry_after(),
            By::Nobody => None,
        }
    }

    /// How long to hold an allowed call back.
    pub fn delay(&self) -> Duration {
        match &self.by {
            By::Daemon(said) => Duration::from_millis(said.response.delay_ms),
            By::Local(decision) => decision.delay(),
            By::Nobody => Duration::ZERO,
        }
    }

    /// Whether it was decided without whoever should have: the daemon, or the daemon's store.
    pub fn is_degraded(&self) -> bool {
        match &self.by {
            By::Daemon(said) => said.response.degraded,
            By::Local(_) | By::Nobody => true,
        }
    }

    /// Whether it was decided in this process, because the daemon is away.
    pub fn is_fallback(&self) -> bool {
        match &self.by {
            By::Daemon(_) => false,
            By::Local(_) | By::Nobody => true,
        }
    }

    /// Whether places are held, which have to be [released](crate::Client::release).
    pub fn holds_places(&self) -> bool {
        match &self.by {
            By::Daemon(said) => said.response.lease_id.is_some(),
            By::Local(decision) => decision.holds_places(),
            By::Nobody => false,
        }
    }

    /// How often those places have to be [renewed](crate::Client::renew) by work that lasts longer than
    /// they do: three times before the first of them would expire. `None` where none are held, or where
    /// an older daemon does not say how long they last.
    pub fn renew_every(&self) -> Option<Duration> {
        let expires_after = match &self.by {
            By::Daemon(said) => said.response.lease_expires_after_ms.map(Duration::from_millis),
            By::Local(decision) => decision.expires_after(),
            By::Nobody => None,
        };
        expires_after.map(renew_every)
    }

    /// Whether a rule counts by the status of the response, which has to be
    /// [told](crate::Client::count_response).
    pub fn counts_responses(&self) -> bool {
        match &self.by {
            By::Daemon(said) => said.awaits_response,
            By::Local(decision) => decision.counts_responses(),
            By::Nobody => false,
        }
    }

    /// What headers are made of.
    pub fn standing(&self) -> Standing<'_> {
        match &self.by {
            By::Daemon(said) => {
                let standing = match self.reason() {
                    Some(reason) => Standing::denied(reason, self.retry_after()),
                    None => Standing::allowed(),
                };
                said.under(standing)
            }
            By::Local(decision) => Standing::of(decision),
            By::Nobody => Standing::allowed(),
        }
    }

    /// The same for a call that is denied all the same, because its turn is too far off.
    pub(crate) fn turned_away(&self, retry_after: Duration) -> Standing<'_> {
        let (reason, wait) = (Reason::OverLimit, Some(retry_after));
        match &self.by {
            By::Daemon(said) => said.under(Standing::denied(reason, wait)),
            By::Local(decision) => Standing::turned_away(decision, reason, wait),
            By::Nobody => Standing::denied(reason, wait),
        }
    }
}

impl Said {
    /// What renews the places that the call holds.
    pub(crate) fn renewal(&self) -> Option<RenewRequest> {
        let CheckRequest { domain, attributes, .. } = self.request.clone();
        let lease_id = self.response.lease_id.clone()?;
        Some(RenewRequest { domain, attributes, lease_id })
    }

    fn under<'a>(&'a self, standing: Standing<'a>) -> Standing<'a> {
        let shown = self.response.limits.iter().filter(|limit| limit.enforced && !limit.reserve);
        let standing = shown.fold(standing, |standing, limit| standing.with(policy(limit)));
        let CheckResponse { limit, remaining, reset_after_ms, .. } = self.response;
        match (limit, remaining, reset_after_ms) {
            (Some(limit), Some(remaining), Some(reset_ms)) => {
                standing.bound_by(limit, remaining, Duration::from_millis(reset_ms))
            }
            _ => standing,
        }
    }
}

fn policy(limit: &LimitStatus) -> Policy<'_> {
    let policy = Policy::new(&limit.name, limit.limit, limit.remaining);
    let policy = match limit.window_ms {
        Some(window_ms) => policy.per(Duration::from_millis(window_ms)),
        None if limit.at_once => policy.counting(Unit::ConcurrentRequests),
        None => policy,
    };
    if limit.allowed {
        policy.resets_after(Duration::from_millis(limit.reset_after_ms))
    } else {
        policy.violated(limit.retry_after_ms.map(Duration::from_millis))
    }
}

/// Whatever else there may come to be is about having too little.
fn reason(word: Option<&str>) -> Reason {
    [Reason::NeverFits, Reason::MissingAttribute, Reason::Banned]
        .into_iter()
        .find(|reason| Some(reason.as_str()) == word)
        .unwrap_or(Reason::OverLimit)
}
