//! **Sliding window**: two counters, one for the clock's window before this one and one for this one;
//! the earlier one weighs as much as the window `W` that ends now still covers of it.
//!
//! ```text
//! elapsed  = t mod W
//! used(t)  = previous * (W - elapsed) / W + current
//! allowed  iff  used(t) + cost <= N,  that is  previous * (W - elapsed) + (current + cost) * W <= N * W
//! ```
//!
//! It is an approximation, for it takes what was spent in the previous window for spread evenly. What
//! it admits in any time `d` is at most `N + N * d / W`, as a token bucket of burst `N` does, and
//! so fewer than `2 * N` in any time shorter than `W`; an exact limit ([`sliding_log`]) admits `N`. The
//! proof: let the time begin in a window that admits `a`, pass `m` whole windows, and end `e` into
//! one that admits `c` by then. No window admits more than `N`. When the last of the `c` was
//! admitted, `b * (W - e) / W + c <= N` held for the window before, whose total is `b`. The sum
//! is thus at most `a + (m - 1) * N + b + N - b * (W - e) / W <= N + m * N + N * e / W` (without whole
//! windows, `b` is `a`), and the time is at least `m * W + e`.
//!
//! It errs the other way too. Where the previous window was spent at its start, it refuses what an
//! exact limit would admit. And a little of the previous window weighs until the very end of this
//! one: somebody who always takes the next one as soon as possible gets `N - 1` per window in the
//! long run, and with `N = 1` one in every second window.
//!
//! [`sliding_log`]: crate::sliding_log

use crate::fixed_window::{aligned_start, latest_end};
use crate::{Decision, LimitError, Operation, Rate, Span, Timestamp, Verdict};

/// A sliding window's numbers, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlidingWindow {
    rate: Rate,
}

/// What was spent in two windows, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counters {
    /// The end of the window that `current` counts in.
    pub ends_at: Timestamp,
    /// How much was spent in the window before.
    pub previous: u64,
    /// How much was spent in the window that ends at `ends_at`.
    pub current: u64,
}

impl SlidingWindow {
    /// `rate.count()` in a window of `rate.period()`.
    pub const fn new(rate: Rate) -> Result<Self, LimitError> {
        Ok(Self { rate })
    }

    /// How much the window admits, and how long it is.
    pub const fn rate(&self) -> Rate {
        self.rate
    }

    /// Decides one operation. `None` is two windows in which nothing was spent, before and after.
    pub fn decide(
        &self,
        counters: Option<Counters>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<Counters>) {
        let mut counters = self.current(counters, now);
        let verdict = match operation {
            Operation::Take { cost } => {
                let verdict = self.room(counters, now, cost);
                if matches!(verdict, Verdict::Allow { .. }) {
                    counters.current += cost;
                }
                verdict
            }
            Operation::Peek { cost } => self.room(counters, now, cost),
            Operation::Debit { cost } => {
                // More than the largest count is not told apart from it: both are refused for the
                // rest of this window and nearly all of the next.
                counters.current = counters.current.saturating_add(cost).min(Rate::COUNT_MAX);
                ALLOW
            }
            Operation::Refund { cost, taken_at } => {
                self.refund(&mut counters, now, cost, taken_at);
                ALLOW
            }
            Operation::Release { .. } | Operation::Renew { .. } => ALLOW,
        };
        let state = (counters.previous > 0 || counters.current > 0).then_some(counters);
        (self.answer(verdict, counters, now), state)
    }

    /// The counters as they stand at `now`.
    ///
    /// Counters that lie ahead of `now` are still the ones to count in, as long as theirs is the next
    /// window or one that begins within [`SKEW_MAX`](crate::SKEW_MAX): a thread that is late must not
    /// drag them back. Those further ahead were left by a clock that was set back. How much the
    /// previous window weighed then is not known any more, so it counts in full, up to a limit that
    /// is used up.
    fn current(&self, counters: Option<Counters>, now: Timestamp) -> Counters {
        let start = aligned_start(now, self.length());
        let ends_at = start.plus(self.length());
        let fresh = Counters { ends_at, previous: 0, current: 0 };
        let Some(counters) = counters else { return fresh };
        if counters.ends_at == ends_at {
            return counters;
        }
        let counters = Counters { ends_at: self.edge(counters.ends_at), ..counters };
        if counters.ends_at < start {
            return fresh;
        }
        if counters.ends_at == start {
            return Counters { ends_at, previous: counters.current, current: 0 };
        }
        if counters.ends_at <= latest_end(ends_at, now, self.length()) {
            return counters;
        }
        let full = self.rate.count().max(counters.current);
        let current = counters.previous.saturating_add(counters.current).min(full);
        Counters { ends_at, previous: 0, current }
    }

    /// The end of a window, or the next one after a time at which none ends, as only a damaged
    /// state has.
    fn edge(&self, time: Timestamp) -> Timestamp {
        let start = aligned_start(time, self.length());
        if start == time { time } else { start.plus(self.length()) }
    }

    /// Whether `cost` fits, and if not, when it will.
    fn room(&self, counters: Counters, now: Timestamp, cost: u64) -> Verdict {
        let Some(most) = self.rate.count().checked_sub(cost) else { return Verdict::NeverFits };
        if self.used(counters, now) <= u128::from(most) * self.window() {
            return ALLOW;
        }
        // Within this window, `previous * rest <= (most - current) * W` must come to hold, where
        // `rest` is the time to the window's end. Where `current` alone is too much, the same must
        // hold in the next window, with `current` in the place of `previous`.
        let (end, previous, most) = match most.checked_sub(counters.current) {
            Some(room) => (counters.ends_at, counters.previous, room),
            None => (counters.ends_at.plus(self.length()), counters.current, most),
        };
        let rest = (u128::from(most) * self.window()).checked_div(u128::from(previous));
        let rest = rest.and_then(|rest| u64::try_from(rest).ok()).unwrap_or(u64::MAX);
        let rest = Span::from_micros(rest);
        Verdict::Deny { retry_after: end.minus(rest).since(now) }
    }

    /// What is used at `now`, times the length of the window in microseconds. Counters have 64 bits
    /// and a period has fewer than 49, so that the sum of both products fits.
    fn used(&self, counters: Counters, now: Timestamp) -> u128 {
        let rest = u128::from(counters.ends_at.since(now).as_micros()).min(self.window());
        u128::from(counters.previous) * rest + u128::from(counters.current) * self.window()
    }

    /// Gives `cost` back to the window that it was taken in, if that is one of the two.
    fn refund(&self, counters: &mut Counters, now: Timestamp, cost: u64, taken_at: Timestamp) {
        let start = counters.ends_at.minus(self.length());
        // Counters that lie ahead of `now` are in use all the same, so their start is the least
        // that `now` can be.
        let taken_at = taken_at.min(now.max(start));
        if taken_at >= start {
            counters.current = counters.current.saturating_sub(cost);
        } else if taken_at >= start.minus(self.length()) {
            counters.previous = counters.previous.saturating_sub(cost);
        }
    }

    fn answer(&self, verdict: Verdict, counters: Counters, now: Timestamp) -> Decision {
        let count = self.rate.count();
        let left = (u128::from(count) * self.window()).saturating_sub(self.used(counters, now));
        let full_at = match counters {
            Counters { previous: 0, current: 0, .. } => now,
            Counters { current: 0, ends_at, .. } => ends_at,
            Counters { ends_at, .. } => ends_at.plus(self.length()),
        };
        Decision {
            verdict,
            limit: count,
            remaining: u64::try_from(left / self.window()).unwrap_or(count),
            reset_after: full_at.since(now),
            lease: None,
        }
    }

    const fn length(&self) -> Span {
        self.rate.period()
    }

    /// The length of the window in microseconds, for products.
    const fn window(&self) -> u128 {
        self.rate.period().as_micros() as u128
    }
}

const ALLOW: Verdict = Verdict::Allow { delay: Span::ZERO };

#[cfg(test)]
mod tests {
    use super::*;

    fn per_minute(count: u64) -> SlidingWindow {
        SlidingWindow::new(Rate::new(count, Span::MINUTE).unwrap()).unwrap()
    }

    fn take(cost: u64) -> Operation {
        Operation::Take { cost }
    }

    /// The second minute, so many seconds in.
    fn seconds_in(seconds: u64) -> Timestamp {
        Timestamp::from_secs(60 + seconds)
    }

    fn counters(previous: u64, current: u64) -> Counters {
        Counters { ends_at: Timestamp::from_secs(120), previous, current }
    }

    #[test]
    fn previous_10_and_current_6_at_20_seconds_are_12_67_of_10_and_refused() {
        let (decision, _) = per_minute(10).decide(Some(counters(10, 6)), seconds_in(20), take(1));
        // Six and the one asked for leave room for three of the previous ten, which is 18 s before
        // the end of the window.
        assert_eq!(decision.verdict, Verdict::Deny { retry_after: Span::from_secs(22) });
        assert_eq!(decision.remaining, 0);
    }

    #[test]
    fn previous_80_and_current_20_at_30_seconds_are_60_of_100_and_allowed() {
        let limit = per_minute(100);
        assert_eq!(limit.decide(Some(counters(80, 20)), seconds_in(30), take(0)).0.remaining, 40);
        let (decision, next) = limit.decide(Some(counters(80, 20)), seconds_in(30), take(1));
        assert_eq!((decision.is_allowed(), decision.remaining), (true, 39));
        assert_eq!(next, Some(counters(80, 21)));
        assert_eq!(decision.reset_after, Span::from_secs(90));
    }

    #[test]
    fn what_fits_only_in_the_next_window_waits_for_the_weight_it_has_there() {
        let (decision, _) = per_minute(10).decide(Some(counters(0, 10)), seconds_in(50), take(1));
        assert_eq!(decision.verdict, Verdict::Deny { retry_after: Span::from_secs(16) });
        let (decision, _) = per_minute(10).decide(Some(counters(0, 10)), seconds_in(50), take(10));
        assert_eq!(decision.verdict, Verdict::Deny { retry_after: Span::from_secs(70) });
    }

    #[test]
    fn a_refund_goes_to_the_window_that_was_charged() {
        let limit = per_minute(10);
        let refund = |at| Operation::Refund { cost: 4, taken_at: Timestamp::from_secs(at) };
        let after = |at| limit.decide(Some(counters(8, 6)), seconds_in(30), refund(at)).1;
        assert_eq!(after(61), Some(counters(8, 2)));
        assert_eq!(after(1_000), Some(counters(8, 2)), "a time after now counts as now");
        assert_eq!(after(59), Some(counters(4, 6)));
        let long_ago =
            Some(Counters { ends_at: Timestamp::from_secs(300), previous: 8, current: 6 });
        let now = Timestamp::from_secs(270);
        assert_eq!(limit.decide(long_ago, now, refund(179)).1, long_ago);
    }

    #[test]
    fn a_clock_set_back_leaves_no_more_than_before() {
        let limit = per_minute(10);
        let state =
            Some(Counters { ends_at: Timestamp::from_secs(7_260), previous: 9, current: 3 });
        let before = limit.decide(state, Timestamp::from_secs(7_210), take(0)).0.remaining;
        let (after, next) = limit.decide(state, Timestamp::from_secs(3_650), take(0));
        assert!(after.remaining <= before);
        assert_eq!(next.map(|next| next.ends_at), Some(Timestamp::from_secs(3_660)));
    }
}
