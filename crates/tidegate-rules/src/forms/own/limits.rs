//! Limits in a rule: as text, as a mapping of their parts, and several of them as a quota. What
//! parts make a limit is not decided here but in [`spec`](crate::spec).

use tidegate_core::{Limit, Rate};

use super::parts;
use super::places::Written;
use crate::canonical::describe;
use crate::diagnostic::Problems;
use crate::read::{self, Fields};
use crate::rule::{Quota, RuleLimit};
use crate::source::Place;
use crate::text::parse_limit;
use crate::tree::{Node, Value};

/// The most limits that one request can meet in one rule, with those that are tried out.
pub(crate) const LIMITS_MAX: usize = 16;

/// The word for no limit at all.
const UNLIMITED: &str = "unlimited";

/// The limits that a rule tries out, beside which its quotas stand.
#[derive(Clone, Copy)]
pub(super) struct Scope<'r> {
    candidate: &'r [RuleLimit],
}

impl<'r> Scope<'r> {
    pub(super) fn beside(candidate: &'r [RuleLimit]) -> Self {
        Self { candidate }
    }

    /// The quota that the fields `limit` or `limits` say; one of them has to be there.
    pub(super) fn quota_of(
        self,
        fields: &mut Fields<'_>,
        problems: &mut Problems,
    ) -> Option<Quota> {
        match (fields.take("limit"), fields.take("limits")) {
            (None, None) => {
                let error = problems.error(fields.place(), "`limit` is missing");
                error.help = Some(
                    "write `limit: 10/minute`, `limits` with a list, or `limit: unlimited`".into(),
                );
                None
            }
            (Some(_), Some(node)) => {
                let error = problems.error(node.place, "`limits` stands beside `limit`");
                error.help = Some("put all limits into the list of `limits`".into());
                None
            }
            (Some(node), None) => match node.value {
                Value::List(_) => {
                    let error = problems.error(node.place, "`limit` is one limit, not a list");
                    error.help = Some("write `limits` for several".into());
                    None
                }
                Value::Null | Value::Scalar(_) | Value::Map(_) => self.quota(node, problems),
            },
            (None, Some(node)) => {
                read::list(node, "limits", problems)?;
                self.quota(node, problems)
            }
        }
    }

    /// The quota that `node` says: `unlimited`, a limit, or a list of limits.
    pub(super) fn quota(self, node: &Node, problems: &mut Problems) -> Option<Quota> {
        if is_unlimited(node) {
            return Some(Quota::Unlimited);
        }
        let (nodes, limits) = several(node, problems)?;
        if let Some(extra) = nodes.get(LIMITS_MAX - self.candidate.len()) {
            too_many(extra.place, problems);
            return None;
        }
        let at_once = limits.iter().find(|(_, limit)| limit.is_at_once());
        if let Some((place, _)) = at_once
            && self.candidate.iter().any(RuleLimit::is_at_once)
        {
            two_at_once(*place, problems);
        }
        Some(Quota::Limits(limits.into_iter().map(|(_, limit)| limit).collect()))
    }
}

/// The limits that are tried out: one, or a list.
pub(super) fn candidate(node: &Node, problems: &mut Problems) -> Vec<RuleLimit> {
    if is_unlimited(node) {
        let error = problems.error(node.place, "`unlimited` cannot be tried out");
        error.help = Some("write a limit such as `10/minute`, or leave `candidate` out".into());
        return Vec::new();
    }
    let Some((nodes, limits)) = several(node, problems) else { return Vec::new() };
    // At least one limit in force has to have room beside them.
    if let Some(extra) = nodes.get(LIMITS_MAX - 1) {
        too_many(extra.place, problems);
        return Vec::new();
    }
    limits.into_iter().map(|(_, limit)| limit).collect()
}

/// A limit and where it was written.
type Placed = (Place, RuleLimit);

/// What was written, and those of the limits in it that are right, each with its place. `None`
/// where there is none at all.
fn several<'n>(node: &'n Node, problems: &mut Problems) -> Option<(&'n [Node], Vec<Placed>)> {
    let nodes = super::one_or_several(node);
    if nodes.is_empty() {
        let error = problems.error(node.place, "there is no limit in the list");
        error.help = Some("write a limit such as `10/minute`, or `limit: unlimited`".into());
        return None;
    }
    let mut limits: Vec<Placed> = Vec::with_capacity(nodes.len().min(LIMITS_MAX));
    for node in nodes {
        let Some(limit) = limit(node, problems) else { continue };
        check_beside(&limit, node.place, &limits, problems);
        limits.push((node.place, limit));
    }
    Some((nodes, limits))
}

/// Of two limits alike in algorithm and period, one that is at least as large in every number can
/// never refuse what the other lets through, and is certainly a mistake.
fn check_beside(limit: &RuleLimit, place: Place, others: &[Placed], problems: &mut Problems) {
    if limit.is_at_once() && others.iter().any(|(_, other)| other.is_at_once()) {
        return two_at_once(place, problems);
    }
    for (_, other) in others {
        let idle = if is_within(&other.limit, &limit.limit) {
            (limit, other)
        } else if is_within(&limit.limit, &other.limit) {
            (other, limit)
        } else {
            continue;
        };
        let message =
            format!("`{}` can never refuse what `{}` lets through", idle.0.text, idle.1.text);
        problems.error(place, message).help = Some("leave one of them out".into());
        return;
    }
}

/// Whether `small` is of the same kind as `large` and no number of it is larger.
fn is_within(small: &Limit, large: &Limit) -> bool {
    let rates = |a: Rate, b: Rate| a.period() == b.period() && a.count() <= b.count();
    match (small, large) {
        (Limit::TokenBucket(a), Limit::TokenBucket(b)) => {
            rates(a.rate(), b.rate()) && a.burst() <= b.burst()
        }
        (Limit::SteppedBucket(a), Limit::SteppedBucket(b)) => {
            rates(a.rate(), b.rate()) && a.burst() <= b.burst()
        }
        (Limit::LeakyBucket(a), Limit::LeakyBucket(b)) => {
            rates(a.rate(), b.rate()) && a.burst() <= b.burst()
        }
        (Limit::FixedWindow(a), Limit::FixedWindow(b)) => {
            a.windows() == b.windows() && a.count() <= b.count()
        }
        (Limit::SlidingWindow(a), Limit::SlidingWindow(b)) => rates(a.rate(), b.rate()),
        (Limit::SlidingLog(a), Limit::SlidingLog(b)) => rates(a.rate(), b.rate()),
        // Slots may differ in their number and in what each may hold.
        _ => false,
    }
}

fn two_at_once(place: Place, problems: &mut Problems) {
    let error = problems.error(place, "a rule can have only one limit of so many at once");
    error.help = Some("keep the smaller one, or put it into a rule of its own".into());
}

fn too_many(place: Place, problems: &mut Problems) {
    let error = problems.error(place, "too many limits in one rule");
    error.help = Some(format!("a rule has at most {LIMITS_MAX}, with those of `candidate`"));
}

/// One limit.
fn limit(node: &Node, problems: &mut Problems) -> Option<RuleLimit> {
    if is_unlimited(node) {
        let error = problems.error(node.place, "`unlimited` cannot stand in a list of limits");
        error.help = Some("leave it out, or write `limit: unlimited` for no limit at all".into());
        return None;
    }
    match &node.value {
        Value::Scalar(scalar) => match parse_limit(&scalar.text) {
            Ok(limit) => Some(ready(limit, None)),
            Err(error) => {
                parts::report_text(&Written::of(node.place, scalar), &error, problems);
                None
            }
        },
        Value::Map(_) => parts::limit(node, problems),
        Value::Null | Value::List(_) => {
            let error = problems.error(node.place, "expected a limit");
            error.help = Some("write a limit such as `10/minute`".into());
            None
        }
    }
}

pub(super) fn ready(limit: Limit, shown_as: Option<String>) -> RuleLimit {
    RuleLimit { text: describe(&limit), limit, shown_as }
}

fn is_unlimited(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar(scalar) if scalar.text == UNLIMITED)
}

impl RuleLimit {
    /// Whether it is one of so many at once.
    pub(super) fn is_at_once(&self) -> bool {
        matches!(self.limit, Limit::Concurrency(_))
    }
}
