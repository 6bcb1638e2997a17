//! Everything that a decision tells, as text: two that read alike are alike.

use std::fmt::Write as _;

use tidegate::rules::DescriptorsDecision;
use tidegate::{CheckError, RuleDecision};

/// Everything that is said of a call, except who says it, and the numbers of leases, which mean nothing.
pub(crate) fn told(decision: Result<&RuleDecision, CheckError>) -> String {
    let decision = match decision {
        Ok(decision) => decision,
        Err(error) => return format!("{error:?}"),
    };
    let mut text = format!(
        "allowed {} reason {:?} rule {:?} limit {:?} left {:?} reset {:?} retry {:?} delay {:?} soft {} \
         shadow {} {:?} took {} skipped {} holds {}",
        decision.is_allowed(),
        decision.reason(),
        decision.rule().map(|rule| &rule.name),
        decision.limit(),
        decision.remaining(),
        decision.reset_after(),
        decision.retry_after(),
        decision.delay(),
        decision.is_soft(),
        decision.is_shadow_denied(),
        decision.shadow_denials().collect::<Vec<_>>(),
        decision.took(),
        decision.skipped(),
        decision.held().count(),
    );
    for limit in decision.limits() {
        write!(
            text,
            "\n  {} of {}: allowed {} cost {} of {} left {} reset {:?} retry {:?} at {:?}",
            limit.text(),
            limit.rule().name,
            limit.is_allowed(),
            limit.cost(),
            limit.limit(),
            limit.remaining(),
            limit.reset_after(),
            limit.retry_after(),
            limit.at(),
        )
        .unwrap();
    }
    text
}

pub(crate) fn told_of_all(decision: &Result<DescriptorsDecision, CheckError>) -> String {
    let decision = match decision {
        Ok(decision) => decision,
        Err(error) => return format!("{error:?}"),
    };
    let mut text = format!(
        "allowed {} retry {:?} shadow {}",
        decision.is_allowed(),
        decision.retry_after(),
        decision.is_shadow_denied()
    );
    for status in decision.statuses() {
        write!(
            text,
            "\n  over {} {:?} left {:?} reset {:?} retry {:?} rule {:?}",
            status.is_over(),
            status.reason(),
            status.remaining(),
            status.reset_after(),
            status.retry_after(),
            status.rule().map(|rule| &rule.name),
        )
        .unwrap();
    }
    text
}
