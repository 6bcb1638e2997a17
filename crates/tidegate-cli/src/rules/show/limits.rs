//! One limit as JSON: its parts, as a rule file names them.

use serde_json::Value;
use tidegate::Limit;
use tidegate::core::fixed_window::Windows;
use tidegate_rules::rule::RuleLimit;

use super::json::Fields;

/// The parts of a limit.
pub(super) fn json(written: &RuleLimit) -> Value {
    let mut fields = Fields::default();
    // The text begins with the rate, or ends with the time that a place is held for.
    let (first, last) = (written.text.split(' ').next(), written.text.split(' ').next_back());
    match &written.limit {
        Limit::Concurrency(limit) => {
            fields.set("at_once", limit.limit());
            fields.set_some("expires_after", last);
        }
        _ => fields.set_some("rate", first),
    }
    match &written.limit {
        Limit::TokenBucket(limit) => bucket("token-bucket", limit.burst(), &mut fields),
        Limit::SteppedBucket(limit) => {
            bucket("token-bucket", limit.burst(), &mut fields);
            fields.set("refill", "stepped");
        }
        Limit::LeakyBucket(limit) => bucket("leaky-bucket", limit.burst(), &mut fields),
        Limit::FixedWindow(limit) => {
            fields.set("algorithm", "fixed-window");
            windows(limit.windows(), &mut fields);
        }
        Limit::SlidingWindow(_) => fields.set("algorithm", "sliding-window"),
        Limit::SlidingSlots(limit) => {
            fields.set("algorithm", "sliding-slots");
            fields.set("slots", limit.slots());
            fields.set_some("per_slot", limit.per_slot());
        }
        Limit::SlidingLog(_) => fields.set("algorithm", "sliding-log"),
        Limit::Concurrency(_) => {}
    }
    fields.set_some("shown_as", written.shown_as.as_deref());
    fields.into_value()
}

fn bucket(algorithm: &str, burst: u64, fields: &mut Fields) {
    fields.set("algorithm", algorithm);
    fields.set("burst", burst);
}

fn windows(windows: &Windows, fields: &mut Fields) {
    match windows {
        Windows::Clock(_) => fields.set("align", "clock"),
        Windows::FirstRequest(_) => fields.set("align", "first-request"),
        Windows::Calendar(calendar) => {
            fields.set("align", "calendar");
            fields.set("zone", calendar.zone().name());
        }
    }
}
