//! A denial as the error that clients act on by themselves: `RESOURCE_EXHAUSTED`, when to come back as
//! `RetryInfo` and as the trailer that gRPC's own retries obey, and which limits are over.

use tidegate::rules::LimitDecision;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, QuotaViolation, StatusExt as _};

use crate::answer::{Answer, millis};

/// The trailer by which a server sets the pace of a client's retries. A negative number means that
/// there should be none.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// The error for a call that was denied.
pub(super) fn status(answer: &Answer) -> Status {
    let wait = answer.retry_after();
    let mut details = ErrorDetails::new();
    if wait.is_some() {
        details.set_retry_info(wait);
    }
    details.set_quota_failure(violations(answer));
    let mut metadata = MetadataMap::new();
    let pushback = wait.map_or_else(|| "-1".to_owned(), |wait| millis(wait).to_string());
    if let Ok(value) = pushback.parse() {
        metadata.insert(PUSHBACK, value);
    }
    let reason = answer.reason().unwrap_or("over-limit");
    let message = match wait {
        Some(wait) => format!("{reason}: try again after {} ms", millis(wait)),
        None => format!("{reason}: trying again does not help"),
    };
    Status::with_error_details_and_metadata(Code::ResourceExhausted, message, details, metadata)
}

fn violations(answer: &Answer) -> Vec<QuotaViolation> {
    let is_over = |limit: &LimitDecision<'_>| limit.is_enforced() && !limit.is_allowed();
    let mut violations: Vec<_> = answer.limits().filter(is_over).map(|one| of(&one)).collect();
    if violations.is_empty() {
        // A rule that denies whatever has been taken, or a ban.
        let subject = answer.rule().map_or_else(|| "ban".to_owned(), |rule| format!("rule:{rule}"));
        violations.push(QuotaViolation::new(subject, answer.reason().unwrap_or("over-limit")));
    }
    violations
}

/// It names the rule, and not whom it counts.
fn of(limit: &LimitDecision<'_>) -> QuotaViolation {
    let rule = &limit.rule().name;
    let mut violation = QuotaViolation::new(format!("rule:{rule}"), limit.text());
    "tidegate".clone_into(&mut violation.api_service);
    limit.shown_name().clone_into(&mut violation.quota_metric);
    violation.quota_id.clone_from(rule);
    violation.quota_value = i64::try_from(limit.limit()).unwrap_or(i64::MAX);
    violation
}
