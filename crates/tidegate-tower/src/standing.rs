//! Where a caller stands under the limits of one call: what headers and bodies are made of.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate::rules::{LimitDecision, Reason};
use tidegate::{RuleDecision, Span};

use crate::text::is_written_alike;

/// What a client is told about one call: the policies that it is under, and whether it was denied.
///
/// It is made [of a decision](Self::of), or by hand where something else decided.
#[derive(Clone, Debug)]
pub struct Standing<'a> {
    policies: SmallVec<[Policy<'a>; 2]>,
    binding: Option<Binding>,
    denial: Option<Denial>,
}

/// One limit, as clients see it.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    pub(crate) name: &'a str,
    pub(crate) quota: u64,
    pub(crate) unit: Unit,
    /// The time in which the quota comes back; 0 is none that can be told.
    pub(crate) window_secs: u64,
    remaining: u64,
    until: Option<Duration>,
    violated: bool,
}

/// What a policy counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Calls, or what they cost.
    #[default]
    Requests,
    /// Calls that are under way.
    ConcurrentRequests,
}

/// The numbers of the limit that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) reset_after: Duration,
}

impl Binding {
    /// As they are told, with whole seconds until everything is back.
    pub(crate) fn numbers(&self) -> [u64; 3] {
        [self.limit, self.remaining, secs_ceil(self.reset_after)]
    }
}

/// Why a call was denied, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Denial {
    pub(crate) reason: Reason,
    pub(crate) retry_after: Option<Duration>,
}

impl<'a> Standing<'a> {
    /// Of a call that passes, under no policy so far.
    pub fn allowed() -> Self {
        Self { policies: SmallVec::new(), binding: None, denial: None }
    }

    /// Of a call that is denied, under no policy so far. `retry_after` is `None` where waiting does not
    /// help.
    pub fn denied(reason: Reason, retry_after: Option<Duration>) -> Self {
        Self { denial: Some(Denial { reason, retry_after }), ..Self::allowed() }
    }

    /// What a decision by rules says. Limits in shadow and those that keep a share for others are not
    /// told: clients can do nothing about them.
    #[inline]
    pub fn of(decision: &'a RuleDecision) -> Self {
        let mut standing = Self::without_policies(decision);
        standing.put_policies(decision);
        standing
    }

    /// The same for headers that tell no policies.
    #[inline]
    pub(crate) fn without_policies(decision: &RuleDecision) -> Self {
        let mut standing = Self::allowed();
        if let Some(reason) = decision.reason() {
            let retry_after = decision.retry_after();
            standing.denial = Some(Denial { reason, retry_after });
        }
        standing.put_binding(decision);
        standing
    }

    /// What a decision by rules says about a call that passes all the same, because somebody above the
    /// rules lets everything through.
    pub fn let_through(decision: &'a RuleDecision) -> Self {
        Self::allowed().under(decision)
    }

    /// What a decision by rules says about a call that is denied all the same, by somebody above the
    /// rules.
    pub fn turned_away(
        decision: &'a RuleDecision,
        reason: Reason,
        retry_after: Option<Duration>,
    ) -> Self {
        Self::denied(reason, retry_after).under(decision)
    }

    /// The same with the policies of a decision.
    #[must_use]
    fn under(mut self, decision: &'a RuleDecision) -> Self {
        self.put_policies(decision);
        self.put_binding(decision);
        self
    }

    #[inline]
    fn put_policies(&mut self, decision: &'a RuleDecision) {
        for limit in decision.limits() {
            if limit.is_enforced() && !limit.is_reserve() {
                self.policies.push(Policy::of(&limit));
            }
        }
    }

    #[inline]
    fn put_binding(&mut self, decision: &RuleDecision) {
        if let (Some(limit), Some(remaining), Some(reset_after)) =
            (decision.limit(), decision.remaining(), decision.reset_after())
        {
            self.binding = Some(Binding { limit, remaining, reset_after });
        }
    }

    /// The same with one more policy, which is shown after those before it.
    #[must_use]
    pub fn with(mut self, policy: Policy<'a>) -> Self {
        self.policies.push(policy);
        self
    }

    /// The same with the numbers of the limit that decided: the one that denies for longest or, where
    /// all allow, the one that has least left.
    #[must_use]
    pub fn bound_by(mut self, limit: u64, remaining: u64, reset_after: Duration) -> Self {
        self.binding = Some(Binding { limit, remaining, reset_after });
        self
    }

    /// Whether the call passes.
    pub fn is_allowed(&self) -> bool {
        self.denial.is_none()
    }

    pub(crate) fn denial(&self) -> Option<&Denial> {
        self.denial.as_ref()
    }

    pub(crate) fn binding(&self) -> Option<&Binding> {
        self.binding.as_ref()
    }

    /// The policies and, for each, how many before it have the same name. A name connects the two
    /// headers, so the second of a name has to be told from the first.
    #[inline]
    pub(crate) fn policies(&self) -> impl Iterator<Item = (&Policy<'a>, usize)> {
        self.policies.iter().enumerate().map(|(index, policy)| {
            let before = &self.policies[..index];
            (
                policy,
                before.iter().filter(|other| is_written_alike(other.name, policy.name)).count(),
            )
        })
    }

    /// The policy, where there is one and no more.
    pub(crate) fn only_policy(&self) -> Option<&Policy<'a>> {
        match &self.policies[..] {
            [only] => Some(only),
            _ => None,
        }
    }

    pub(crate) fn has_policies(&self) -> bool {
        !self.policies.is_empty()
    }

    /// After how many seconds the policy has everything back, where that is told. What is told beside a
    /// refusal is the wait of those that refuse, so that no other time is later than `Retry-After`.
    pub(crate) fn until_secs(&self, policy: &Policy<'_>) -> Option<u64> {
        if policy.violated || self.is_allowed() { policy.until_secs() } else { None }
    }

    /// The whole seconds to wait, at least 1; `None` where waiting does not help.
    #[inline]
    pub(crate) fn retry_after_secs(&self) -> Option<u64> {
        let wait = secs_ceil(self.denial?.retry_after?);
        let latest = self.policies.iter().filter_map(|policy| self.until_secs(policy)).max();
        Some(wait.max(latest.unwrap_or(0)).max(1))
    }
}

impl<'a> Policy<'a> {
    /// A policy that gives `quota` and has `remaining` left.
    pub const fn new(name: &'a str, quota: u64, remaining: u64) -> Self {
        let unit = Unit::Requests;
        let window_secs = 0;
        Self { name, quota, unit, window_secs, remaining, until: None, violated: false }
    }

    /// The same with the time in which the quota comes back, in whole seconds, rounded up. Below a
    /// second it is left out: the field knows no fractions.
    #[must_use]
    pub fn per(mut self, window: Duration) -> Self {
        self.window_secs = window_secs(window);
        self
    }

    /// The same, counting something else.
    #[must_use]
    pub const fn counting(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// The same, with everything back after so long.
    #[must_use]
    pub const fn resets_after(mut self, reset_after: Duration) -> Self {
        self.until = Some(reset_after);
        self
    }

    /// The same, denying: for so long, or `None` where the call never passes.
    #[must_use]
    pub const fn violated(mut self, retry_after: Option<Duration>) -> Self {
        self.violated = true;
        self.until = retry_after;
        self
    }

    #[inline]
    fn of(limit: &LimitDecision<'a>) -> Self {
        let policy = Self::new(limit.shown_name(), limit.limit(), limit.remaining());
        let policy = match limit.window() {
            Some(window) => policy.per(window),
            None => policy.counting(Unit::ConcurrentRequests),
        };
        if limit.is_allowed() {
            policy.resets_after(limit.reset_after())
        } else {
            policy.violated(limit.retry_after())
        }
    }

    /// That of a call that passes under one limit and no other.
    pub(crate) fn only(decision: &'a RuleDecision) -> Option<Self> {
        decision.only_limit().map(|limit| Self::of(&limit))
    }

    /// What clients know it by.
    pub const fn name(&self) -> &'a str {
        self.name
    }

    pub(crate) const fn quota(&self) -> u64 {
        self.quota
    }

    pub(crate) const fn unit(&self) -> Unit {
        self.unit
    }

    pub(crate) const fn window_secs(&self) -> u64 {
        self.window_secs
    }

    pub(crate) const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// After how many seconds it has everything back or, where it denies, lets the call pass.
    pub(crate) fn until_secs(&self) -> Option<u64> {
        self.until.map(secs_ceil)
    }

    pub(crate) const fn is_violated(&self) -> bool {
        self.violated
    }
}

impl PartialEq for Policy<'_> {
    fn eq(&self, other: &Self) -> bool {
        let told = |policy: &Self| (policy.quota, policy.unit, policy.window_secs());
        let left = |policy: &Self| (policy.remaining, policy.until, policy.violated);
        self.name == other.name && told(self) == told(other) && left(self) == left(other)
    }
}

impl Eq for Policy<'_> {}

/// A window as it is told: below a second it is none.
fn window_secs(window: Duration) -> u64 {
    if window < Duration::from_secs(1) { 0 } else { secs_ceil(window) }
}

/// Rounded up, so that waiting so long is long enough, as [`Span::as_secs_ceil`] does.
#[inline]
pub(crate) fn secs_ceil(duration: Duration) -> u64 {
    let is_more = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(is_more).min(Span::MAX.as_secs_ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_those_of_spans() {
        for secs in [0, 1, 86_399, 86_400, u64::MAX / 1_000_000, u64::MAX / 1_000, u64::MAX] {
            for nanos in [0, 1, 999, 1_000, 999_999_000, 999_999_999] {
                let duration = Duration::new(secs, nanos);
                let expected = Span::from(duration).as_secs_ceil();
                assert_eq!(secs_ceil(duration), expected, "{duration:?}");
            }
        }
    }
}
