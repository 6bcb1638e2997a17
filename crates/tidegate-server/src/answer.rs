//! A decision as protocols show it: what the rules say, or what the operator's controls say before
//! them.

use std::borrow::{Borrow, BorrowMut};
use std::time::Duration;

pub use tidegate::Source;
use tidegate::rules::{LimitDecision, Reason};
use tidegate::{RuleDecision, Span, Timestamp};
use tidegate_tower::Standing;

use crate::controls::Ruling;
use crate::lease;

/// The answer to one call. What the rules decided is a part of it, or borrowed where somebody answers call
/// after call: it is too large to be handed on and on.
#[derive(Debug)]
#[must_use = "an answer that nobody reads limits nothing"]
pub struct Answer<D = RuleDecision> {
    by: By<D>,
    at: Timestamp,
    /// How long until the same call would be held back for no longer than the caller waits.
    turned_away: Option<Duration>,
}

#[derive(Debug)]
enum By<D> {
    /// Without the rules: banned, or let through.
    Controls(Ruling),
    /// By the rules; while everything is in shadow, their denial is only noted.
    Rules { decision: D, in_shadow: bool },
    /// By nobody, since the store could not: it passes, as everything does that is in shadow.
    Nobody,
}

impl<D: Borrow<RuleDecision>> Answer<D> {
    pub(crate) fn ruled(ruling: Ruling, at: Timestamp) -> Self {
        Self { by: By::Controls(ruling), at, turned_away: None }
    }

    /// Of a call in shadow that the store could not decide.
    pub(crate) fn undecided(at: Timestamp) -> Self {
        Self { by: By::Nobody, at, turned_away: None }
    }

    /// What the rules decided, whether or not everybody is let through all the same.
    pub fn decided(decision: D, in_shadow: bool) -> Self {
        let at = decision.borrow().at();
        Self { by: By::Rules { decision, in_shadow }, at, turned_away: None }
    }

    /// Denies a call that would be held back for longer than its caller waits. The decision is handed
    /// out so that what it took can be given back; `None` where nobody has to wait so long.
    #[inline]
    pub(crate) fn turn_away_beyond(&mut self, delay_max: Duration) -> Option<&mut RuleDecision>
    where
        D: BorrowMut<RuleDecision>,
    {
        let delay = self.delay();
        if delay <= delay_max {
            return None;
        }
        self.turned_away = Some(delay.saturating_sub(delay_max));
        match &mut self.by {
            By::Controls(_) | By::Nobody => None,
            By::Rules { decision, .. } => Some(decision.borrow_mut()),
        }
    }

    /// Whether the call may pass, perhaps after [`delay`](Self::delay).
    pub fn is_allowed(&self) -> bool {
        if self.is_turned_away() {
            return false;
        }
        match &self.by {
            By::Controls(ruling) => !matches!(ruling, Ruling::Banned { .. }),
            By::Rules { decision, in_shadow } => decision.borrow().is_allowed() || *in_shadow,
            By::Nobody => true,
        }
    }

    /// Whether the rules allow it after a delay that is longer than its caller waits.
    pub fn is_turned_away(&self) -> bool {
        self.turned_away.is_some()
    }

    /// Why it was denied, in the word of the wire; `None` where it was allowed.
    pub fn reason(&self) -> Option<&'static str> {
        self.denied_for().map(Reason::as_str)
    }

    /// The same as programs know it.
    pub(crate) fn denied_for(&self) -> Option<Reason> {
        if self.is_turned_away() {
            return Some(Reason::OverLimit);
        }
        match &self.by {
            By::Controls(Ruling::Banned { .. }) => Some(Reason::Banned),
            By::Controls(_) | By::Rules { in_shadow: true, .. } | By::Nobody => None,
            By::Rules { decision, .. } => decision.borrow().reason(),
        }
    }

    /// The name of the rule of the binding limit; `None` where no rule applies.
    pub fn rule(&self) -> Option<&str> {
        self.decision()?.rule().map(|rule| rule.name.as_str())
    }

    /// The most that the binding limit can have left; `None` where nothing is counted.
    pub fn limit(&self) -> Option<u64> {
        self.decision()?.limit()
    }

    /// How much the binding limit has left.
    pub fn remaining(&self) -> Option<u64> {
        self.decision()?.remaining()
    }

    /// How long until the binding limit has everything back.
    pub fn reset_after(&self) -> Option<Duration> {
        self.decision()?.reset_after()
    }

    /// How long to wait before the same call passes; `None` where it was allowed or where waiting
    /// does not help.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_turned_away() {
            return self.turned_away;
        }
        match &self.by {
            By::Controls(Ruling::Banned { until }) => {
                until.map(|until| Duration::from(until.since(self.at)))
            }
            By::Controls(_) | By::Rules { in_shadow: true, .. } | By::Nobody => None,
            By::Rules { decision, .. } => decision.borrow().retry_after(),
        }
    }

    /// How long to hold an allowed call back. While everything is in shadow, nobody is.
    pub fn delay(&self) -> Duration {
        match &self.by {
            By::Rules { decision, in_shadow: false } if !self.is_turned_away() => {
                decision.borrow().delay()
            }
            By::Rules { .. } | By::Controls(_) | By::Nobody => Duration::ZERO,
        }
    }

    /// Whether it was let through beyond what a limit gives, by a rule that is soft.
    pub fn is_soft(&self) -> bool {
        self.decision().is_some_and(RuleDecision::is_soft)
    }

    /// Whether something in shadow would have denied it.
    pub fn is_shadow_denied(&self) -> bool {
        match &self.by {
            By::Controls(_) | By::Nobody => false,
            By::Rules { decision, in_shadow } => {
                let decision = decision.borrow();
                decision.is_shadow_denied() || (*in_shadow && !decision.is_allowed())
            }
        }
    }

    /// Where it was decided.
    pub fn source(&self) -> Source {
        match &self.by {
            By::Controls(_) => Source::Memory,
            By::Rules { decision, .. } => decision.borrow().source(),
            By::Nobody => Source::Fallback,
        }
    }

    /// Whether it was decided without the store that should have.
    pub fn is_degraded(&self) -> bool {
        self.source() == Source::Fallback
    }

    /// What a refund has to name: when something was taken; `None` where nothing was.
    pub fn taken_at(&self) -> Option<Timestamp> {
        self.decision().filter(|decision| decision.took()).map(RuleDecision::told_at)
    }

    /// The leases that it was given under concurrency limits, as callers hand them back; `None` where
    /// there are none.
    pub fn lease_id(&self) -> Option<String> {
        self.decision()
            .filter(|decision| decision.took())
            .and_then(|one| lease::written(one.held()))
    }

    /// How long those leases last unless they are renewed; `None` where there are none.
    pub fn lease_expires_after(&self) -> Option<Duration> {
        self.decision().filter(|decision| decision.took())?.expires_after()
    }

    /// When it was decided.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// What each limit says; none where the controls decided.
    pub fn limits(&self) -> impl Iterator<Item = LimitDecision<'_>> {
        self.decision().into_iter().flat_map(RuleDecision::limits)
    }

    /// What the rules say; `None` where the controls decided, or nobody.
    pub fn decision(&self) -> Option<&RuleDecision> {
        match &self.by {
            By::Controls(_) | By::Nobody => None,
            By::Rules { decision, .. } => Some(decision.borrow()),
        }
    }

    /// The same for whoever ends the call.
    pub(crate) fn into_decision(self) -> Option<D> {
        match self.by {
            By::Controls(_) | By::Nobody => None,
            By::Rules { decision, .. } => Some(decision),
        }
    }

    /// What clients are told of it.
    pub fn standing(&self) -> Standing<'_> {
        match (self.decision(), self.denied_for()) {
            (Some(decision), None) => Standing::let_through(decision),
            (Some(decision), Some(reason)) => {
                Standing::turned_away(decision, reason, self.retry_after())
            }
            (None, None) => Standing::allowed(),
            (None, Some(reason)) => Standing::denied(reason, self.retry_after()),
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

/// Whole milliseconds, as every protocol tells times: rounded up, so that waiting so long is long enough.
pub(crate) fn millis(duration: Duration) -> u64 {
    Span::from(duration).as_millis_ceil()
}
