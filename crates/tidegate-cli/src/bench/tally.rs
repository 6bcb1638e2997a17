//! What came of the requests: how they were answered, and how long that took.

use hdrhistogram::Histogram;
use tidegate::{Span, Timestamp};

/// How a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    Denied,
    /// Neither, in words.
    Failed(String),
}

/// The longest time that is told apart from longer ones.
const LATENCY_MAX: Span = Span::from_secs(600);
/// Digits that a latency is kept with: 1 in 1,000 is nearer than two runs ever are.
const DIGITS: u8 = 3;

/// Counts and times. Several connections each have one, and they add up.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    /// Answers that are neither, and requests whose connection broke.
    pub(crate) errors: u64,
    /// Requests that had no answer when the run was over.
    pub(crate) unanswered: u64,
    /// When the last answer came.
    pub(crate) last_answer: Timestamp,
    /// What the first error was, for a person.
    pub(crate) first_error: Option<String>,
    /// In microseconds: of answers that allow or deny, and of requests without one, for as long as
    /// they had waited by then. Errors are left out: a server that refuses quickly is not a fast one.
    pub(crate) latency_us: Histogram<u64>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let latency_us = Histogram::new_with_max(LATENCY_MAX.as_micros(), DIGITS);
        #[expect(clippy::expect_used, reason = "both bounds are constants that it takes")]
        let latency_us = latency_us.expect("bounds in order");
        let [allowed, denied, errors, unanswered] = [0; 4];
        let last_answer = Timestamp::ZERO;
        Self { allowed, denied, errors, unanswered, last_answer, first_error: None, latency_us }
    }

    /// An answer came now, to a request that was due then.
    pub(crate) fn answered(&mut self, verdict: Verdict, due: Timestamp, now: Timestamp) {
        self.last_answer = self.last_answer.max(now);
        match verdict {
            Verdict::Allowed => self.allowed += 1,
            Verdict::Denied => self.denied += 1,
            Verdict::Failed(error) => return self.failed(1, &error),
        }
        self.note(now.since(due));
    }

    /// Nobody will answer these requests.
    pub(crate) fn failed(&mut self, requests: u64, error: &str) {
        self.errors += requests;
        self.first_error.get_or_insert_with(|| error.to_owned());
    }

    /// The run is over, and there was no answer in this time.
    pub(crate) fn waited(&mut self, time: Span) {
        self.unanswered += 1;
        self.note(time);
    }

    fn note(&mut self, time: Span) {
        // The histogram begins at 1: what takes no microsecond takes one.
        self.latency_us.saturating_record(time.as_micros().max(1));
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.allowed += other.allowed;
        self.denied += other.denied;
        self.errors += other.errors;
        self.unanswered += other.unanswered;
        self.last_answer = self.last_answer.max(other.last_answer);
        if self.first_error.is_none() {
            self.first_error = other.first_error;
        }
        // Both are made alike, so that nothing can fall outside.
        let _ = self.latency_us.add(&other.latency_us);
    }

    /// Requests that were answered, whatever the answer.
    pub(crate) fn answers(&self) -> u64 {
        self.allowed + self.denied + self.errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let [due, now] = [1, 2].map(Timestamp::from_secs);
        let mut one = Tally::new();
        one.answered(Verdict::Allowed, due, now);
        one.answered(Verdict::Failed("first".into()), due, now);
        let mut other = Tally::new();
        other.answered(Verdict::Denied, due, due);
        other.failed(2, "second");
        other.waited(Span::from_secs(1));
        one.add(other);
        assert_eq!([one.allowed, one.denied, one.errors, one.unanswered], [1, 1, 3, 1]);
        assert_eq!(one.first_error.as_deref(), Some("first"));
        assert_eq!(one.latency_us.len(), 3);
        assert_eq!(one.last_answer, now);
        assert_eq!(one.answers(), 5);
    }

    #[test]
    fn times_beyond_the_scale_count_as_its_end() {
        let mut tally = Tally::new();
        tally.answered(Verdict::Allowed, Timestamp::ZERO, Timestamp::MAX);
        tally.answered(Verdict::Allowed, Timestamp::ZERO, Timestamp::ZERO);
        assert!(tally.latency_us.max() >= LATENCY_MAX.as_micros());
        assert_eq!(tally.latency_us.min(), 1);
    }
}
