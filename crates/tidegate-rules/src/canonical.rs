//! Limits and periods back to text, in one spelling each. What is written here is read back as the
//! same by [`text`](crate::text).

use std::fmt;

use tidegate_core::calendar::CalendarUnit;
use tidegate_core::fixed_window::Windows;
use tidegate_core::{FixedWindow, Limit, Rate, Span};

use crate::spec::{Alignment, Amount, LimitSpec};
use crate::unit::{UNITS, Unit};

/// The text of `limit`: [`parse_limit`](crate::parse_limit) makes the same limit of it.
///
/// ```
/// use tidegate_rules::{describe, parse_limit};
///
/// assert_eq!(describe(&parse_limit("300 per 180 min burst 500")?), "300/3h burst 500");
/// # Ok::<(), tidegate_rules::ParseLimitError>(())
/// ```
pub fn describe(limit: &Limit) -> String {
    match limit {
        Limit::TokenBucket(bucket) => bucket_text(bucket.rate(), bucket.burst(), ""),
        Limit::SteppedBucket(bucket) => bucket_text(bucket.rate(), bucket.burst(), " stepped"),
        Limit::LeakyBucket(bucket) => bucket_text(bucket.rate(), bucket.burst(), " leaky-bucket"),
        Limit::FixedWindow(window) => window_text(window),
        Limit::SlidingWindow(window) => format!("{} sliding-window", rate_text(window.rate())),
        Limit::SlidingSlots(window) => {
            let per_slot = window.per_slot().map(|most| format!(" per-slot {most}"));
            let (rate, slots) = (rate_text(window.rate()), window.slots());
            format!("{rate} sliding-slots slots {slots}{}", per_slot.unwrap_or_default())
        }
        Limit::SlidingLog(log) => format!("{} sliding-log", rate_text(log.rate())),
        Limit::Concurrency(limit) => {
            format!("{} at once for {}", limit.limit(), Period(limit.expires_after()).with_number())
        }
    }
}

fn rate_text(rate: Rate) -> String {
    format!("{}/{}", rate.count(), Period(rate.period()))
}

fn bucket_text(rate: Rate, burst: u64, algorithm: &str) -> String {
    let text = format!("{}{algorithm}", rate_text(rate));
    if burst == rate.count() { text } else { format!("{text} burst {burst}") }
}

fn window_text(window: &FixedWindow) -> String {
    let count = window.count();
    match window.windows() {
        Windows::Clock(period) => format!("{count}/{} fixed-window", Period(*period)),
        Windows::FirstRequest(period) => {
            format!("{count}/{} fixed-window from-first-request", Period(*period))
        }
        Windows::Calendar(calendar) => {
            let unit = match calendar.unit() {
                CalendarUnit::Day => "day",
                CalendarUnit::Week => "week",
                CalendarUnit::Month => "month",
                CalendarUnit::Year => "year",
            };
            format!("{count}/{unit} fixed-window in {}", calendar.zone().name())
        }
    }
}

impl fmt::Display for LimitSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.amount {
            Amount::Rate(rate) => f.write_str(&rate_text(rate))?,
            Amount::AtOnce(limit) => write!(f, "{limit} at once")?,
        }
        if let Some(algorithm) = self.algorithm {
            write!(f, " {}", algorithm.name())?;
        }
        for (word, number) in [
            ("burst", self.burst),
            ("slots", self.slots.map(u64::from)),
            ("per-slot", self.per_slot),
        ] {
            if let Some(number) = number {
                write!(f, " {word} {number}")?;
            }
        }
        if self.stepped {
            f.write_str(" stepped")?;
        }
        match &self.alignment {
            Alignment::Clock => {}
            Alignment::Calendar(zone) => write!(f, " in {}", zone.name())?,
            Alignment::FirstRequest => f.write_str(" from-first-request")?,
        }
        match self.expires_after {
            Some(span) => write!(f, " for {}", Period(span).with_number()),
            None => Ok(()),
        }
    }
}

/// A period as text: `minute`, `3h`, `90s`. Never in months or years, whose lengths are ours.
pub(crate) struct Period(pub(crate) Span);

impl Period {
    /// The same with a number also where that is 1: `1min`.
    pub(crate) fn with_number(&self) -> String {
        let (number, unit) = self.parts();
        format!("{number}{}", unit.symbol)
    }

    /// The longest unit that divides it, and how often.
    fn parts(&self) -> (u64, &'static Unit) {
        const WEEK: usize = 6;
        let divides = |unit: &&Unit| self.0.as_micros().is_multiple_of(unit.span.as_micros());
        let unit = UNITS[..=WEEK].iter().rfind(divides).unwrap_or(&UNITS[0]);
        (self.0.as_micros() / unit.span.as_micros(), unit)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (1, unit) => f.write_str(unit.name),
            (number, unit) => write!(f, "{number}{}", unit.symbol),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_written_in_the_longest_unit_that_divides_them() {
        for (seconds, text) in [
            (1, "second"),
            (60, "minute"),
            (90, "90s"),
            (3 * 3_600, "3h"),
            (86_400, "day"),
            (7 * 86_400, "week"),
            (30 * 86_400, "30d"),
            (365 * 86_400, "365d"),
        ] {
            assert_eq!(Period(Span::from_secs(seconds)).to_string(), text);
        }
        assert_eq!(Period(Span::from_millis(1_500)).to_string(), "1500ms");
        assert_eq!(Period(Span::TICK).with_number(), "1us");
    }
}
