//! Sets of headers for answers of Envoy's service: a proxy adds them to what the client sees.

use std::time::Duration;

use tidegate::rules::DescriptorStatus;

use super::Headers;
use super::envoy::saturated;
use crate::engine::DescriptorsAnswer;

/// `RateLimit-Limit`, `RateLimit-Remaining` and `RateLimit-Reset`, as envoyproxy/ratelimit sends them:
/// of the descriptor that denies, or of the one with least left.
pub fn reference_headers(answer: &DescriptorsAnswer) -> Headers {
    of_binding(answer, ["RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"])
}

/// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, and `Retry-After` on a denial.
pub fn x_ratelimit_headers(answer: &DescriptorsAnswer) -> Headers {
    let names = ["X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];
    let mut headers = of_binding(answer, names);
    if let Some(wait) = answer.retry_after() {
        headers.push(("Retry-After".to_owned(), seconds(wait).max(1).to_string()));
    }
    headers
}

fn of_binding(answer: &DescriptorsAnswer, names: [&str; 3]) -> Headers {
    let Some(decision) = answer.decision() else { return Vec::new() };
    let counted = decision.statuses().filter_map(|status| {
        let limit = status.per_unit()?;
        let is_denying = status.is_over() && !status.is_quota();
        Some((!is_denying, status.remaining().unwrap_or(0), limit.count, reset_after(&status)))
    });
    let Some((_, remaining, limit, reset)) = counted.min_by_key(|&(free, left, ..)| (free, left))
    else {
        return Vec::new();
    };
    let values = [u64::from(limit), saturated(remaining).into(), reset];
    names.into_iter().zip(values).map(|(name, value)| (name.into(), value.to_string())).collect()
}

fn reset_after(status: &DescriptorStatus<'_>) -> u64 {
    status.reset_after().map_or(0, seconds)
}

/// Rounded up.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
