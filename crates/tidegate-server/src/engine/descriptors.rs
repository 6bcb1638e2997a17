//! Calls of Envoy's rate limit service, which are several descriptors each: the operator's controls
//! in front of the rules, over all entries of all of them.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate::rules::{DescriptorCall, DescriptorStatus, DescriptorsDecision};
use tidegate::{Attribute, CheckError, Timestamp};

use super::{Engine, Protocol};
use crate::controls::Ruling;

/// The answer to one call over several descriptors.
#[derive(Debug)]
#[must_use = "an answer that nobody reads limits nothing"]
pub struct DescriptorsAnswer {
    by: By,
    at: Timestamp,
    /// The longest that the caller waits, where the call would have to wait longer.
    turned_away_after: Option<Duration>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all answers are of the large kind")]
enum By {
    /// Without the rules: banned, or let through.
    Controls(Ruling),
    /// By the rules; while everything is in shadow, their denial is only noted.
    Rules { decision: DescriptorsDecision, in_shadow: bool },
    /// By nobody, since the store could not: it passes, as everything does that is in shadow.
    Nobody,
}

impl Engine {
    /// Decides one call over several descriptors: the operator's controls first, then the rules. A
    /// call that would have to be held back for longer than `delay_max` is denied.
    pub async fn check_descriptors(
        &self,
        domain: &str,
        calls: &[DescriptorCall<'_>],
        delay_max: Duration,
        over: Protocol,
    ) -> Result<DescriptorsAnswer, CheckError> {
        let ruling = self.rule_on_all(domain, calls);
        let answer = match ruling {
            Some(ruling @ (Ruling::Bypassed | Ruling::AllowListed | Ruling::Banned { .. })) => {
                DescriptorsAnswer::new(By::Controls(ruling), self.limiter.now())
            }
            Some(Ruling::Shadow) | None => {
                let began = self.is_shared().then(|| self.limiter.now());
                let decided = self.limiter.check_descriptors(domain, calls).await;
                if let Some(began) = began {
                    self.note_store(began, decided.as_ref().ok().map(DescriptorsDecision::source));
                }
                let in_shadow = ruling.is_some();
                match decided {
                    Ok(decision) => {
                        let at = decision.at();
                        DescriptorsAnswer::new(By::Rules { decision, in_shadow }, at)
                    }
                    Err(CheckError::Store(_)) if in_shadow => {
                        DescriptorsAnswer::new(By::Nobody, self.limiter.now())
                    }
                    Err(error) => {
                        self.metrics.undecided(over);
                        return Err(error);
                    }
                }
            }
        };
        let answer = self.within(delay_max, answer).await;
        // Who only looks or gives back is neither let through nor turned away.
        if calls.iter().any(|call| call.hits.takes()) {
            self.metrics.decided_descriptors(over, calls, &answer);
            self.top.decided_descriptors(domain, calls, &answer);
        }
        Ok(answer)
    }

    /// Turns a call away that would not be let go in time, and gives back what it took: its turn is too
    /// far off to be waited for, and before its turn it would be over the limit.
    async fn within(
        &self,
        delay_max: Duration,
        mut answer: DescriptorsAnswer,
    ) -> DescriptorsAnswer {
        if answer.delay() > delay_max
            && let By::Rules { decision, .. } = &mut answer.by
        {
            let rest = self.rest_of(answer.at);
            self.limiter.refund_descriptors_by(&rest, decision).await;
            answer.turned_away_after = Some(delay_max);
        }
        answer
    }

    /// What the controls say of a call with all these entries. While nothing is listed or switched, it
    /// does not even put them together.
    fn rule_on_all(&self, domain: &str, calls: &[DescriptorCall<'_>]) -> Option<Ruling> {
        if self.controls.is_idle() {
            return None;
        }
        let now = self.limiter.now();
        if let [only] = calls {
            return self.controls.rule_on(domain, only.entries, now);
        }
        let all: SmallVec<[Attribute<'_>; 16]> =
            calls.iter().flat_map(|call| call.entries.iter().copied()).collect();
        self.controls.rule_on(domain, &all, now)
    }
}

impl DescriptorsAnswer {
    fn new(by: By, at: Timestamp) -> Self {
        Self { by, at, turned_away_after: None }
    }

    /// Whether the call may pass, perhaps after [`delay`](Self::delay).
    pub fn is_allowed(&self) -> bool {
        if self.is_turned_away() {
            return false;
        }
        match &self.by {
            By::Controls(ruling) => !matches!(ruling, Ruling::Banned { .. }),
            By::Rules { decision, in_shadow } => decision.is_allowed() || *in_shadow,
            By::Nobody => true,
        }
    }

    /// How long to wait before the same call passes; `None` where it was allowed or where waiting
    /// does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Some(delay_max) = self.turned_away_after {
            return Some(self.delay().saturating_sub(delay_max));
        }
        match &self.by {
            By::Controls(Ruling::Banned { until }) => {
                until.map(|until| Duration::from(until.since(self.at)))
            }
            By::Controls(_) | By::Rules { in_shadow: true, .. } | By::Nobody => None,
            By::Rules { decision, .. } => decision.retry_after(),
        }
    }

    /// How long to hold an allowed call back. While everything is in shadow, nobody is.
    pub fn delay(&self) -> Duration {
        match &self.by {
            By::Controls(_) | By::Rules { in_shadow: true, .. } | By::Nobody => Duration::ZERO,
            By::Rules { decision, .. } => decision.delay(),
        }
    }

    /// Whether the rules would have let it pass, and its turn is too far off to be waited for.
    pub fn is_turned_away(&self) -> bool {
        self.turned_away_after.is_some()
    }

    /// Whether this descriptor is told as being over: it is, or it holds the call back for too long.
    pub fn is_over(&self, status: &DescriptorStatus<'_>) -> bool {
        status.is_over() || self.turned_away_after.is_some_and(|max| status.delay() > max)
    }

    /// How long to wait before this descriptor alone passes; `None` where it is not over, or where
    /// waiting does not help.
    pub fn retry_after_of(&self, status: &DescriptorStatus<'_>) -> Option<Duration> {
        match self.turned_away_after {
            Some(max) if status.delay() > max => Some(status.delay().saturating_sub(max)),
            _ => status.retry_after(),
        }
    }

    /// Whether something in shadow would have denied it.
    pub fn is_shadow_denied(&self) -> bool {
        match &self.by {
            By::Controls(_) | By::Nobody => false,
            By::Rules { decision, in_shadow } => {
                decision.is_shadow_denied() || (*in_shadow && !decision.is_allowed())
            }
        }
    }

    /// When it was decided.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// What the rules say, of each descriptor too; `None` where the controls decided, or nobody.
    pub fn decision(&self) -> Option<&DescriptorsDecision> {
        match &self.by {
            By::Controls(_) | By::Nobody => None,
            By::Rules { decision, .. } => Some(decision),
        }
    }

    /// What the controls say, where they decided.
    pub fn ruling(&self) -> Option<Ruling> {
        match self.by {
            By::Controls(ruling) => Some(ruling),
            By::Rules { .. } | By::Nobody => None,
        }
    }
}
