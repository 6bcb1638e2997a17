//! The breaker: whether a server is asked at all. A machine of states that does no I/O and is handed the
//! time, as what has passed since any one instant.
//!
//! It opens where calls fail in a row, or where half of them do. While it is open every call is refused
//! at once, except one in a while, the *probe*: if that one is answered in time, all are let through again.

use std::time::Duration;

/// So many failures without a success between them open it,
pub(super) const ROW_MIN: u32 = 5;
/// if they are spread over so much time: all calls of one moment can fail for one reason.
pub(super) const ROW_SPAN_MIN: Duration = Duration::from_millis(25);

/// So many failures within [`WINDOW`] open it where they are half of the calls.
pub(super) const SHARE_MIN: u64 = 20;
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// How long it is until the first probe. Each probe that fails doubles it,
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(50);
/// up to this: a server that is back is found by then.
pub(super) const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Decides which calls are let through.
#[derive(Clone, Debug)]
pub(super) struct Breaker {
    state: State,
    openings: u64,
}

/// Whether calls are let through to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakerState {
    /// All are.
    #[default]
    Closed,
    /// One is, to see whether the store answers again.
    HalfOpen,
    /// None is.
    Open,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed(Tally),
    Open {
        until: Duration,
        pause: Duration,
    },
    /// The probe is on its way.
    HalfOpen {
        pause: Duration,
    },
}

/// Failures while it is closed.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    /// Since the last success.
    row: u32,
    row_since: Duration,
    window_since: Duration,
    window_failures: u64,
    /// How many calls there had been when the window began.
    window_calls: u64,
}

/// What lets a call through. What became of the call is told with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// How often it had opened. The end of a call from before says nothing about the server of now.
    openings: u64,
    probe: bool,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The server answered in time.
    Answered,
    Failed,
    /// The server answered later than a decision can wait for. Some calls have more time than that.
    Late,
    /// The caller went away, so nobody knows.
    Unknown,
}

impl End {
    /// The same with an answer that did not come by the deadline, to a call that had time enough or not.
    pub(super) fn missing(self, hasty: bool) -> Self {
        match self {
            Self::Answered | Self::Unknown if hasty => Self::Unknown,
            Self::Answered | Self::Failed | Self::Late | Self::Unknown => Self::Failed,
        }
    }
}

/// That it has opened or closed, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Opened,
    Closed,
}

impl Breaker {
    /// A closed one.
    pub(super) fn new() -> Self {
        Self { state: State::Closed(Tally::default()), openings: 0 }
    }

    /// Whether a call may be made now.
    pub(super) fn admit(&mut self, now: Duration) -> Option<Pass> {
        let probe = match self.state {
            State::Closed(_) => false,
            State::Open { until, pause } if now >= until => {
                self.state = State::HalfOpen { pause };
                true
            }
            State::Open { .. } | State::HalfOpen { .. } => return None,
        };
        Some(Pass { openings: self.openings, probe })
    }

    /// What became of a call that was let through, when there had been `calls` of them in all.
    pub(super) fn end(
        &mut self,
        now: Duration,
        pass: Pass,
        end: End,
        calls: u64,
    ) -> Option<Change> {
        if pass.openings != self.openings {
            return None;
        }
        match (&mut self.state, end) {
            (State::Closed(tally), End::Answered) => {
                tally.row = 0;
                None
            }
            (State::Closed(tally), End::Failed) => {
                if !tally.fail(now, calls) {
                    return None;
                }
                self.openings += 1;
                self.state = State::Open { until: now + PAUSE_MIN, pause: PAUSE_MIN };
                Some(Change::Opened)
            }
            (State::HalfOpen { .. }, End::Answered) if pass.probe => {
                self.state = State::Closed(Tally::default());
                Some(Change::Closed)
            }
            (State::HalfOpen { pause }, End::Failed | End::Late) if pass.probe => {
                let pause = (*pause * 2).min(PAUSE_MAX);
                self.state = State::Open { until: now + pause, pause };
                None
            }
            (State::HalfOpen { pause }, End::Unknown) if pass.probe => {
                // The next call may try.
                self.state = State::Open { until: now, pause: *pause };
                None
            }
            (State::Closed(_) | State::Open { .. } | State::HalfOpen { .. }, _) => None,
        }
    }

    /// Whether it is closed and no call has failed since one was answered.
    pub(super) fn is_calm(&self) -> bool {
        matches!(self.state, State::Closed(tally) if tally.row == 0)
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.state {
            State::Closed(_) => BreakerState::Closed,
            State::Open { .. } => BreakerState::Open,
            State::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// How often it has opened.
    pub(super) fn openings(&self) -> u64 {
        self.openings
    }

    /// The pass of a call while it is calm, which needs no look at the state.
    pub(super) fn calm_pass(openings: u64) -> Pass {
        Pass { openings, probe: false }
    }
}

impl Tally {
    /// Counts a failure. Gives whether that is enough.
    fn fail(&mut self, now: Duration, calls: u64) -> bool {
        if self.row == 0 {
            self.row_since = now;
        }
        self.row += 1;
        if self.window_failures == 0 || now.saturating_sub(self.window_since) > WINDOW {
            (self.window_since, self.window_failures) = (now, 0);
            self.window_calls = calls.saturating_sub(1);
        }
        self.window_failures += 1;
        let in_a_row = self.row >= ROW_MIN && now.saturating_sub(self.row_since) >= ROW_SPAN_MIN;
        let many = self.window_failures >= SHARE_MIN
            && now.saturating_sub(self.window_since) >= ROW_SPAN_MIN;
        in_a_row || many && self.window_failures * 2 >= calls.saturating_sub(self.window_calls)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// One that has been opened by failures up to this time.
    fn opened(at: Duration) -> Breaker {
        let mut breaker = Breaker::new();
        for number in 0..=ROW_MIN {
            let now = if number == 0 { at.saturating_sub(ROW_SPAN_MIN) } else { at };
            let pass = breaker.admit(now);
            if let Some(pass) = pass {
                breaker.end(now, pass, End::Failed, number.into());
            }
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_refuses_at_once() {
        let mut breaker = opened(ms(100));
        assert_eq!(breaker.openings(), 1);
        assert_eq!(breaker.admit(ms(149)), None);
    }

    #[test]
    fn many_failures_of_one_moment_do_not_open_it() {
        let mut breaker = Breaker::new();
        for _ in 0..1_000 {
            let pass = breaker.admit(ms(1)).unwrap();
            assert_eq!(breaker.end(ms(1), pass, End::Failed, 1_000), None);
        }
        assert!(!breaker.is_calm());
        let pass = breaker.admit(ms(2)).unwrap();
        breaker.end(ms(2), pass, End::Answered, 1_001);
        assert!(breaker.is_calm());
    }

    #[test]
    fn it_opens_where_half_of_the_calls_fail_and_not_where_a_third_does() {
        for (period, opens) in [(2, true), (3, false)] {
            let mut breaker = Breaker::new();
            let mut changes = Vec::new();
            for call in 1..1_000_u64 {
                let Some(pass) = breaker.admit(ms(call)) else { break };
                let end = if call.is_multiple_of(period) { End::Failed } else { End::Answered };
                changes.extend(breaker.end(ms(call), pass, end, call));
            }
            assert_eq!(changes.contains(&Change::Opened), opens, "one of {period}");
        }
    }

    #[test]
    fn one_probe_at_a_time_goes_out_and_closes_it_where_it_is_answered() {
        let mut breaker = opened(ms(100));
        let probe = breaker.admit(ms(150)).expect("a probe");
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert_eq!(breaker.admit(ms(10_000)), None, "one is on its way");
        let change = breaker.end(ms(155), probe, End::Answered, 9);
        assert_eq!((change, breaker.state()), (Some(Change::Closed), BreakerState::Closed));
    }

    #[test]
    fn probes_that_fail_come_less_and_less_often_and_no_less_than_twice_a_second() {
        let mut breaker = opened(ms(100));
        let mut now = ms(100);
        for pause in [50, 100, 200, 400, 500, 500] {
            assert_eq!(breaker.admit(now + ms(pause - 1)), None);
            now += ms(pause);
            let probe = breaker.admit(now).expect("a probe");
            assert_eq!(breaker.end(now, probe, End::Failed, 9), None);
        }
    }

    #[test]
    fn a_late_answer_neither_ends_a_row_of_failures_nor_closes_it() {
        let mut breaker = Breaker::new();
        for number in 0..u64::from(ROW_MIN) {
            for end in [End::Failed, End::Late] {
                if let Some(pass) = breaker.admit(ms(10 * number)) {
                    breaker.end(ms(10 * number), pass, end, 10 * number);
                }
            }
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        let probe = breaker.admit(ms(100)).expect("a probe");
        assert_eq!(breaker.end(ms(101), probe, End::Late, 99), None);
        assert_eq!(breaker.state(), BreakerState::Open);
    }

    #[test]
    fn a_probe_whose_caller_went_away_makes_room_for_another() {
        let mut breaker = opened(ms(100));
        let probe = breaker.admit(ms(150)).expect("a probe");
        breaker.end(ms(151), probe, End::Unknown, 9);
        assert!(breaker.admit(ms(151)).is_some());
    }

    #[test]
    fn answers_to_calls_from_before_do_not_close_it() {
        let mut breaker = Breaker::new();
        let old = breaker.admit(ms(0)).expect("it is closed");
        for now in [10, 20, 30, 40, 50, 60] {
            if let Some(pass) = breaker.admit(ms(now)) {
                breaker.end(ms(now), pass, End::Failed, now);
            }
        }
        assert_eq!(breaker.state(), BreakerState::Open);
        assert_eq!(breaker.end(ms(70), old, End::Answered, 70), None);
        assert_eq!(breaker.state(), BreakerState::Open);
        let probe = breaker.admit(ms(500)).expect("a probe");
        assert_eq!(breaker.end(ms(501), old, End::Answered, 70), None);
        assert_eq!(breaker.end(ms(502), probe, End::Answered, 70), Some(Change::Closed));
    }

    proptest! {
        /// Whatever happened, a server that answers every call is asked by all of them again before
        /// the longest pause is over, and a server that answers none is asked no more than rarely.
        #[test]
        fn it_heals_and_does_not_storm(
            past in prop::collection::vec((0..60_u64, 0..3_u8, 0..4_usize), 0..200),
        ) {
            let mut breaker = Breaker::new();
            let (mut now, mut calls, mut under_way) = (ms(0), 0, Vec::new());
            let (mut probes, mut opened_at) = (0, None);
            for (step, end, which) in past {
                now += ms(step);
                if let Some(pass) = breaker.admit(now) {
                    calls += 1;
                    probes += u32::from(pass.probe);
                    under_way.push(pass);
                }
                if which < under_way.len() {
                    let end = [End::Answered, End::Failed, End::Unknown][usize::from(end)];
                    let change = breaker.end(now, under_way.swap_remove(which), end, calls);
                    match change {
                        Some(Change::Opened) => opened_at = Some((now, probes)),
                        Some(Change::Closed) => opened_at = None,
                        None => {}
                    }
                }
                let on_their_way = under_way
                    .iter()
                    .filter(|pass| pass.probe && pass.openings == breaker.openings)
                    .count();
                prop_assert!(on_their_way <= 1, "one probe at a time");
                prop_assert_eq!(opened_at.is_some(), breaker.state() != BreakerState::Closed);
            }
            for pass in under_way {
                breaker.end(now, pass, End::Failed, calls);
            }
            now += PAUSE_MAX;
            for _ in 0..3 {
                let pass = breaker.admit(now).expect("a probe, or closed");
                breaker.end(now, pass, End::Answered, calls);
            }
            prop_assert_eq!(breaker.state(), BreakerState::Closed);

            let mut asked = 0;
            for step in 0..10_000 {
                let now = now + ms(step);
                if let Some(pass) = breaker.admit(now) {
                    asked += 1;
                    breaker.end(now, pass, End::Failed, calls + asked);
                }
            }
            prop_assert!(asked < 60, "{} calls in ten seconds to a server that is gone", asked);
        }
    }
}
