//! An answer as JSON. The names and the order of the fields are part of the interface.

use serde::Serialize;
use serde::ser::Serializer;
use tidegate::rules::LimitDecision;
use tidegate::{RuleDecision, Timestamp};

use super::problem::Problem;
use crate::answer::{Answer, millis};
use crate::lease;

/// What a check is answered with, here and at the admin address.
#[derive(Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are fields of the interface")]
pub(crate) struct Checked<'a> {
    allowed: bool,
    rule: Option<&'a str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_after_ms: Option<u64>,
    retry_after_ms: Option<u64>,
    delay_ms: u64,
    reason: Option<&'static str>,
    soft: bool,
    shadow_denied: bool,
    source: &'static str,
    degraded: bool,
    limits: Limits<'a>,
    lease_id: Option<String>,
    lease_expires_after_ms: Option<u64>,
    /// What a refund names; `None` where nothing was taken.
    taken_at_us: Option<u64>,
}

/// What giving back is answered with: what is left then.
#[derive(Serialize)]
pub(super) struct Left<'a> {
    rule: Option<&'a str>,
    limit: Option<u64>,
    remaining: Option<u64>,
    reset_after_ms: Option<u64>,
    source: &'static str,
    degraded: bool,
    limits: Limits<'a>,
}

/// What renewing is answered with: what is still held, and what is left beside it.
#[derive(Serialize)]
pub(super) struct Renewed<'a> {
    lease_id: Option<String>,
    lease_expires_after_ms: Option<u64>,
    #[serde(flatten)]
    left: Left<'a>,
}

/// One answer of a batch: a decision, or why there is none.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum OneOfMany<'a> {
    Checked(Box<Checked<'a>>),
    Undecided(Problem),
}

/// What each limit says, those in shadow too.
struct Limits<'a>(Option<&'a RuleDecision>);

#[derive(Serialize)]
struct OneLimit<'a> {
    rule: &'a str,
    name: &'a str,
    text: &'a str,
    enforced: bool,
    reserve: bool,
    allowed: bool,
    cost: u64,
    limit: u64,
    remaining: u64,
    reset_after_ms: u64,
    retry_after_ms: Option<u64>,
}

impl<'a> Checked<'a> {
    pub(crate) fn of(answer: &'a Answer) -> Self {
        Self {
            allowed: answer.is_allowed(),
            rule: answer.rule(),
            limit: answer.limit(),
            remaining: answer.remaining(),
            reset_after_ms: answer.reset_after().map(millis),
            retry_after_ms: answer.retry_after().map(millis),
            delay_ms: millis(answer.delay()),
            reason: answer.reason(),
            soft: answer.is_soft(),
            shadow_denied: answer.is_shadow_denied(),
            source: answer.source().as_str(),
            degraded: answer.is_degraded(),
            limits: Limits(answer.decision()),
            lease_id: answer.lease_id(),
            lease_expires_after_ms: answer.lease_expires_after().map(millis),
            taken_at_us: answer.taken_at().map(Timestamp::as_micros),
        }
    }
}

impl<'a> Left<'a> {
    pub(super) fn of(decision: &'a RuleDecision) -> Self {
        Self {
            rule: decision.rule().map(|rule| rule.name.as_str()),
            limit: decision.limit(),
            remaining: decision.remaining(),
            reset_after_ms: decision.reset_after().map(millis),
            source: decision.source().as_str(),
            degraded: decision.is_degraded(),
            limits: Limits(Some(decision)),
        }
    }
}

impl<'a> Renewed<'a> {
    pub(super) fn of(decision: &'a RuleDecision) -> Self {
        Self {
            lease_id: lease::written(decision.held()),
            lease_expires_after_ms: decision.expires_after().map(millis),
            left: Left::of(decision),
        }
    }
}

impl Serialize for Limits<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let limits = self.0.into_iter().flat_map(RuleDecision::limits);
        serializer.collect_seq(limits.map(|limit| OneLimit::of(&limit)))
    }
}

impl<'a> OneLimit<'a> {
    fn of(limit: &LimitDecision<'a>) -> Self {
        Self {
            rule: &limit.rule().name,
            name: limit.shown_name(),
            text: limit.text(),
            enforced: limit.is_enforced(),
            reserve: limit.is_reserve(),
            allowed: limit.is_allowed(),
            cost: limit.cost(),
            limit: limit.limit(),
            remaining: limit.remaining(),
            reset_after_ms: millis(limit.reset_after()),
            retry_after_ms: limit.retry_after().map(millis),
        }
    }
}
