//! What one limit says of a call.

use std::time::Duration;

use tidegate_core::{self as core, LeaseId, Limit, Timestamp};
use tidegate_rules::compile::{CompiledRules, LimitMark, Role};
use tidegate_rules::resolve::Planned;
use tidegate_rules::rule::Rule;
use tidegate_store::Source;

use super::backing::DecidedBy;

/// What one limit says.
#[derive(Clone, Copy, Debug)]
pub struct LimitDecision<'d> {
    pub(super) rules: &'d CompiledRules,
    pub(super) planned: &'d Planned,
    pub(super) decision: &'d core::Decision,
    pub(super) by: DecidedBy,
}

/// What a call that memory let pass has left under the only limit that applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnlyLeft {
    /// Which limit it is, among all that this process ever has: by the same mark, all that can be said of a limit is the
    /// same, but for what it has left.
    pub mark: LimitMark,
    /// The most that it can have left.
    pub limit: u64,
    /// How much it has left.
    pub remaining: u64,
    /// The seconds until it has everything back, rounded up.
    pub reset_secs: u64,
}

impl<'d> LimitDecision<'d> {
    /// Whose limit it is.
    pub fn rule(&self) -> &'d Rule {
        self.rules.rule(self.rules.limit(self.planned.limit).rule())
    }

    /// The limit as it was written.
    pub fn text(&self) -> &'d str {
        &self.rules.limit(self.planned.limit).written().text
    }

    /// The algorithm and the numbers that decided, stretched where the rule says so.
    pub fn in_force(&self) -> &'d Limit {
        self.rules.limit(self.planned.limit).limit(self.planned.relaxed)
    }

    /// The name that clients see.
    pub fn shown_name(&self) -> &'d str {
        let limit = self.rules.limit(self.planned.limit);
        limit.written().shown_as.as_deref().unwrap_or_else(|| self.rule().shown_name())
    }

    /// Whether it counts for the decision; a rule in shadow and a candidate do not.
    pub fn is_enforced(&self) -> bool {
        self.rules.limit(self.planned.limit).is_enforced()
    }

    /// Whether it is there to keep a share for a class of calls.
    pub fn is_reserve(&self) -> bool {
        matches!(self.rules.limit(self.planned.limit).role(), Role::Reserve(_))
    }

    /// Whether this limit alone lets the call pass.
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// How much was asked for.
    pub fn cost(&self) -> u64 {
        self.planned.cost
    }

    /// The most that it can have left.
    pub fn limit(&self) -> u64 {
        self.decision.limit
    }

    /// How much it has left.
    pub fn remaining(&self) -> u64 {
        self.decision.remaining
    }

    /// How long until it has everything back.
    pub fn reset_after(&self) -> Duration {
        self.decision.reset_after.into()
    }

    /// How long to wait before it lets the same call pass.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision.retry_after().map(Duration::from)
    }

    /// Whether it counts calls that are under way.
    pub fn is_at_once(&self) -> bool {
        matches!(self.in_force(), Limit::Concurrency(_))
    }

    /// The time that belongs to its quota, so that the two of them give its rate: of a bucket, that in
    /// which the whole burst comes back. `None` where it counts calls that are under way.
    pub fn window(&self) -> Option<Duration> {
        let limit = self.in_force();
        let window = || limit.fill_time().unwrap_or_else(|| limit.period());
        (!self.is_at_once()).then(|| window().into())
    }

    /// Who decided it.
    pub fn source(&self) -> Source {
        self.by.source
    }

    /// When it was decided, by the clock of who decided.
    pub fn at(&self) -> Timestamp {
        self.by.at
    }

    /// The lease of a concurrency limit.
    pub fn lease(&self) -> Option<LeaseId> {
        self.decision.lease
    }
}
