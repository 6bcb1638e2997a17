//! The words of rule files for what rules say.

use tidegate::Timestamp;
use tidegate_rules::rule::{Consistency, Missing, Mode, OnStoreFailure, Statuses};

pub(super) fn missing(missing: Missing) -> &'static str {
    match missing {
        Missing::Skip => "skip",
        Missing::Shared => "shared",
        Missing::Deny => "deny",
    }
}

pub(super) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "enforce",
        Mode::Shadow => "shadow",
    }
}

pub(super) fn on_store_failure(policy: OnStoreFailure) -> &'static str {
    match policy {
        OnStoreFailure::Allow => "allow",
        OnStoreFailure::Deny => "deny",
        OnStoreFailure::Local => "local",
    }
}

pub(super) fn consistency(consistency: Consistency) -> &'static str {
    match consistency {
        Consistency::Local => "local",
        Consistency::Strict => "strict",
        Consistency::Leased => "leased",
    }
}

/// `401`, or `500-599`.
pub(super) fn statuses(range: Statuses) -> String {
    let Statuses { from, to } = range;
    if from == to { from.to_string() } else { format!("{from}-{to}") }
}

/// A moment in UTC, as RFC 3339 writes it.
pub(super) fn time(moment: Timestamp) -> String {
    let micros = i64::try_from(moment.as_micros()).unwrap_or(i64::MAX);
    // Rules can only name moments that have a date.
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX).to_string()
}
