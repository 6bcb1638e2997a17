//! **Fixed window**: time is cut into windows, each admits `count`, and what a window did not use is
//! lost when it ends.
//!
//! ```text
//! start(t) = floor(t / W) * W                 (windows aligned to the clock)
//! used(t)  = the sum of what was spent since start(t)
//! allowed  iff  used(t) + cost <= count
//! ```
//!
//! Windows are aligned to the clock, to the calendar of a time zone, or begin with the first request
//! that is charged.
//!
//! The known weakness: around the edge of two windows it admits up to `2 * count` in a moment, the
//! whole of one window at its end and the whole of the next at its start. A window that begins with
//! the first request has the same weakness, at its own edges. Where that matters, take a
//! [`sliding_log`](crate::sliding_log) or a [`token_bucket`](crate::token_bucket).

use crate::calendar::Calendar;
use crate::{Decision, LimitError, Operation, Rate, SKEW_MAX, Span, Timestamp, Verdict};

/// A fixed window's numbers, checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FixedWindow {
    count: u64,
    windows: Windows,
}

/// How time is cut into windows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Windows {
    /// Windows of one length, which begin at its whole multiples.
    Clock(Span),
    /// Days, weeks, months or years of a time zone.
    Calendar(Calendar),
    /// A window of this length begins with the first request that is charged while none is open.
    FirstRequest(Span),
}

/// What was spent in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The first tick that is no longer in the window.
    pub ends_at: Timestamp,
    /// How much was spent in it.
    pub count: u64,
}

impl FixedWindow {
    /// The largest count of windows whose end is not a whole second: such an end takes more of the
    /// room that a state has.
    pub const FINE_COUNT_MAX: u64 = 1 << 24;

    /// `count` per window.
    ///
    /// It is at most [`Rate::COUNT_MAX`] where windows end at whole seconds, as those of the calendar
    /// and those of the clock with a length of whole seconds do, and otherwise at most
    /// [`FixedWindow::FINE_COUNT_MAX`].
    pub fn new(count: u64, windows: Windows) -> Result<Self, LimitError> {
        if let Windows::Clock(length) | Windows::FirstRequest(length) = windows {
            Rate::new(1, length)?;
        }
        if count == 0 {
            return Err(LimitError::CountZero);
        }
        let max = windows.count_max();
        if count > max {
            return Err(LimitError::CountTooLarge { max });
        }
        Ok(Self { count, windows })
    }

    /// How much each window admits.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// How time is cut into windows.
    pub const fn windows(&self) -> &Windows {
        &self.windows
    }

    /// Decides one operation. `None` is a window in which nothing was spent, before and after.
    pub fn decide(
        &self,
        window: Option<Window>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<Window>) {
        let mut window = self.windows.current(window, now);
        let verdict = match operation {
            Operation::Take { cost } => {
                let verdict = self.room(window, now, cost);
                if matches!(verdict, Verdict::Allow { .. }) {
                    window.count += cost;
                }
                verdict
            }
            Operation::Peek { cost } => self.room(window, now, cost),
            Operation::Debit { cost } => {
                // More than the largest count is not told apart from it: a state has no room, and
                // both are refused until the window ends.
                window.count = window.count.saturating_add(cost).min(self.windows.count_max());
                ALLOW
            }
            Operation::Refund { cost, taken_at } => {
                if self.windows.contains(window, now, taken_at) {
                    window.count = window.count.saturating_sub(cost);
                }
                ALLOW
            }
            Operation::Release { .. } | Operation::Renew { .. } => ALLOW,
        };
        let state = (window.count > 0).then_some(window);
        let reset_after = state.map_or(Span::ZERO, |window| window.ends_at.since(now));
        let remaining = self.count.saturating_sub(window.count);
        (Decision { verdict, limit: self.count, remaining, reset_after, lease: None }, state)
    }

    /// Whether `cost` fits into the window.
    fn room(&self, window: Window, now: Timestamp, cost: u64) -> Verdict {
        if cost > self.count {
            Verdict::NeverFits
        } else if window.count <= self.count - cost {
            ALLOW
        } else {
            Verdict::Deny { retry_after: window.ends_at.since(now) }
        }
    }
}

impl Windows {
    /// How long a window is; for one of the calendar, how long it usually is.
    pub const fn period(&self) -> Span {
        match self {
            Self::Clock(length) | Self::FirstRequest(length) => *length,
            Self::Calendar(calendar) => calendar.unit().usual_length(),
        }
    }

    /// The window that is spent from at `now`: the one in the state, or a new one.
    ///
    /// A window that lies ahead of `now` is still the one to spend from, as long as it is the next
    /// one or begins within [`SKEW_MAX`]: a thread that is late must not drag it back, since the
    /// others would then find a new one. One that lies further ahead was left by a clock that was
    /// set back, and what was spent in it counts in the window that contains `now`.
    fn current(&self, window: Option<Window>, now: Timestamp) -> Window {
        match window {
            Some(window) if window.ends_at > now => {
                if window.ends_at <= self.latest_end(now) {
                    window
                } else {
                    Window { ends_at: self.end(now), ..window }
                }
            }
            Some(_) | None => Window { ends_at: self.end(now), count: 0 },
        }
    }

    /// The end of the window that contains `now`, or would begin then.
    fn end(&self, now: Timestamp) -> Timestamp {
        match self {
            Self::Clock(length) => aligned_start(now, *length).plus(*length),
            Self::Calendar(calendar) => calendar.window_containing(now).1,
            Self::FirstRequest(length) => now.plus(*length),
        }
    }

    /// The latest end of a window that is taken for the current one at `now`.
    fn latest_end(&self, now: Timestamp) -> Timestamp {
        let end = self.end(now);
        match self {
            Self::Clock(length) | Self::FirstRequest(length) => latest_end(end, now, *length),
            Self::Calendar(calendar) => calendar.window_containing(end).1,
        }
    }

    /// Whether what was spent at `taken_at` was spent in `window`, the current one.
    fn contains(&self, window: Window, now: Timestamp, taken_at: Timestamp) -> bool {
        let start = match self {
            Self::Clock(length) | Self::FirstRequest(length) => window.ends_at.minus(*length),
            Self::Calendar(calendar) => {
                calendar.window_containing(window.ends_at.minus(Span::TICK)).0
            }
        };
        // A window that lies ahead of `now` has begun all the same, so its start is the least that
        // `now` can be.
        let taken_at = taken_at.min(now.max(start));
        start <= taken_at && taken_at < window.ends_at
    }

    /// The most that a window counts, which is also the largest limit.
    pub fn count_max(&self) -> u64 {
        match self {
            Self::Clock(length) if length.as_micros() % Span::SECOND.as_micros() == 0 => {
                Rate::COUNT_MAX
            }
            Self::Calendar(_) => Rate::COUNT_MAX,
            Self::Clock(_) | Self::FirstRequest(_) => FixedWindow::FINE_COUNT_MAX,
        }
    }
}

const ALLOW: Verdict = Verdict::Allow { delay: Span::ZERO };

/// The start of the window of this length, aligned to the origin, that contains `time`. A length of
/// zero, which no checked limit has, counts as one tick.
pub(crate) const fn aligned_start(time: Timestamp, length: Span) -> Timestamp {
    match time.as_micros().checked_rem(length.as_micros()) {
        Some(elapsed) => time.minus(Span::from_micros(elapsed)),
        None => time,
    }
}

/// The latest end of a window of this length that is taken for the current one at `now`, where the one
/// around `now` ends at `end`: the next one, or one that begins within [`SKEW_MAX`].
pub(crate) fn latest_end(end: Timestamp, now: Timestamp, length: Span) -> Timestamp {
    end.plus(length).max(now.plus(SKEW_MAX).plus(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(cost: u64) -> Operation {
        Operation::Take { cost }
    }

    fn at(minutes: u64, seconds: u64) -> Timestamp {
        Timestamp::from_secs(60 * minutes + seconds)
    }

    #[test]
    fn second_125_lies_in_the_minute_that_starts_at_120() {
        assert_eq!(aligned_start(at(0, 125), Span::MINUTE), at(0, 120));
    }

    #[test]
    fn ten_pass_at_1_58_and_ten_more_at_2_03_which_is_the_known_weakness() {
        let limit = FixedWindow::new(10, Windows::Clock(Span::MINUTE)).unwrap();
        let mut state = None;
        for now in [at(1, 58), at(2, 3)] {
            for left in (0..10).rev() {
                let (decision, next) = limit.decide(state, now, take(1));
                assert_eq!((decision.is_allowed(), decision.remaining), (true, left));
                state = next;
            }
            let (denied, _) = limit.decide(state, now, take(1));
            assert_eq!(
                denied.retry_after(),
                Some(at(now.as_micros() / 60_000_000 + 1, 0).since(now))
            );
        }
    }

    #[test]
    fn of_two_messages_in_one_second_and_three_in_the_next_only_the_fifth_is_refused() {
        let limit = FixedWindow::new(2, Windows::Clock(Span::SECOND)).unwrap();
        let mut state = None;
        let allowed = [300_000, 400_000, 1_200_000, 1_500_000, 1_700_000].map(|micros| {
            let (decision, next) = limit.decide(state, Timestamp::from_micros(micros), take(1));
            state = next;
            decision.is_allowed()
        });
        assert_eq!(allowed, [true, true, true, true, false]);
    }

    #[test]
    fn five_per_minute_from_the_first_request_and_full_again_after_that_minute() {
        let limit = FixedWindow::new(5, Windows::FirstRequest(Span::MINUTE)).unwrap();
        let mut state = None;
        for second in 0..5 {
            let (decision, next) = limit.decide(state, at(7, 42 + second), take(1));
            assert!(decision.is_allowed());
            state = next;
        }
        let (sixth, next) = limit.decide(state, at(8, 41), take(1));
        assert_eq!(sixth.verdict, Verdict::Deny { retry_after: Span::SECOND });
        let (again, _) = limit.decide(next, at(8, 42), take(5));
        assert!(again.is_allowed());
        assert_eq!(again.reset_after, Span::MINUTE, "a new window began with this request");
    }

    #[test]
    fn a_debit_is_gone_with_its_window_and_a_refund_does_not_reach_into_the_next() {
        let limit = FixedWindow::new(5, Windows::Clock(Span::MINUTE)).unwrap();
        let (_, state) = limit.decide(None, at(0, 10), Operation::Debit { cost: 12 });
        let (denied, _) = limit.decide(state, at(0, 10), take(0));
        assert_eq!(denied.retry_after(), Some(Span::from_secs(50)));
        let (fresh, state) = limit.decide(state, at(1, 0), take(5));
        assert!(fresh.is_allowed());
        let late = Operation::Refund { cost: 5, taken_at: at(0, 59) };
        assert_eq!(limit.decide(state, at(1, 1), late).0.remaining, 0);
        let timely = Operation::Refund { cost: 5, taken_at: at(1, 0) };
        assert_eq!(limit.decide(state, at(1, 1), timely).1, None);
    }

    #[test]
    fn a_late_thread_spends_from_the_window_that_the_others_have_begun() {
        let limit = FixedWindow::new(5, Windows::Clock(Span::MINUTE)).unwrap();
        let (_, state) = limit.decide(None, at(1, 0), take(5));
        let (late, next) = limit.decide(state, at(0, 59), take(1));
        assert_eq!(late.retry_after(), Some(Span::from_secs(61)));
        assert_eq!(next, state, "the window is not dragged back");
    }

    #[test]
    fn refuses_numbers_that_make_no_window_and_says_what_it_accepts() {
        let clock = |count, length| FixedWindow::new(count, Windows::Clock(length)).err();
        assert_eq!(clock(0, Span::SECOND), Some(LimitError::CountZero));
        assert_eq!(clock(1, Span::ZERO), Some(LimitError::PeriodZero));
        assert_eq!(clock(1, Span::MAX), Some(LimitError::PeriodTooLong { max: Rate::PERIOD_MAX }));
        assert_eq!(clock(1 << 44, Span::SECOND), None);
        let max = 1 << 24;
        assert_eq!(
            clock(max + 1, Span::from_millis(1_500)),
            Some(LimitError::CountTooLarge { max })
        );
        let first = FixedWindow::new(max + 1, Windows::FirstRequest(Span::MINUTE));
        assert_eq!(first, Err(LimitError::CountTooLarge { max }));
    }
}
