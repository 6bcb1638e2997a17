//! The load against a server that is a few lines of the test, on a clock that the test moves.

use tidegate::Span;

use super::super::keys::Key;
use super::super::pace::Grid;
use super::*;

/// A protocol of one byte each way: `?` asks, `y` allows, `n` denies.
#[derive(Debug, Default)]
struct Bytes {
    answered: u64,
}

impl Wire for Bytes {
    fn connected(&mut self, _out: &mut Vec<u8>) {
        self.answered = 0;
    }

    fn room(&self) -> usize {
        usize::MAX
    }

    fn ask(&mut self, _key: &Key, out: &mut Vec<u8>) {
        out.push(b'?');
    }

    fn read(
        &mut self,
        input: &[u8],
        _out: &mut Vec<u8>,
        answers: &mut Vec<(u64, Verdict)>,
    ) -> Result<usize, Broken> {
        for byte in input {
            let verdict = if *byte == b'y' { Verdict::Allowed } else { Verdict::Denied };
            answers.push((self.answered, verdict));
            self.answered += 1;
        }
        Ok(input.len())
    }
}

fn lane(pace: Pace, depth: usize, end_ms: u64) -> Lane<Bytes> {
    let keys = Keys::new(10, None, 1).unwrap();
    Lane::new(Bytes::default(), pace, keys, depth, at(end_ms))
}

fn at(ms: u64) -> Timestamp {
    Timestamp::ZERO.plus(Span::from_millis(ms))
}

/// A thousand requests a second on one connection.
fn every_ms() -> Pace {
    let start = Timestamp::ZERO;
    Pace::Open(Grid { start, per_second: 1_000, connections: 1, connection: 0 })
}

/// Runs a server that answers within the millisecond, but not in `stall_ms`, and gives what was
/// tallied in the end.
fn run(pace: Pace, depth: usize, stall_ms: std::ops::Range<u64>) -> Tally {
    let mut lane = lane(pace, depth, 1_000);
    for ms in 0..=1_000 {
        lane.fill(at(ms));
        if !stall_ms.contains(&ms) {
            let asked = std::mem::take(&mut lane.out).len();
            lane.read(&vec![b'y'; asked], at(ms)).unwrap();
        }
    }
    lane.close(at(1_000))
}

#[test]
fn a_stall_shows_in_the_percentiles_of_an_open_loop() {
    let tally = run(every_ms(), usize::MAX, 500..600);
    assert_eq!((tally.allowed, tally.unanswered), (1_000, 0));
    // A tenth of all requests fell into the stall, and waited for what was left of it.
    let percentile = |percentile| tally.latency_us.value_at_quantile(percentile) / 1_000;
    assert_eq!(percentile(0.5), 0);
    assert!((49..=51).contains(&percentile(0.95)), "{}", percentile(0.95));
    assert!((99..=101).contains(&percentile(0.999)), "{}", percentile(0.999));
}

#[test]
fn the_same_stall_shows_where_only_one_request_is_under_way_at_once() {
    // The requests of the stall could not even be sent, and count from their time all the same.
    // Afterwards one goes out each millisecond and one falls due: the backlog never shrinks.
    let tally = run(every_ms(), 1, 500..600);
    let p999_ms = tally.latency_us.value_at_quantile(0.999) / 1_000;
    assert!((99..=101).contains(&p999_ms), "{p999_ms}");
    assert_eq!(tally.allowed + tally.unanswered, 1_000);
    assert!(tally.unanswered >= 99, "{}", tally.unanswered);
}

#[test]
fn a_closed_loop_hides_the_same_stall() {
    let tally = run(Pace::Closed, 1, 500..600);
    assert!(tally.latency_us.value_at_quantile(0.99) < 1_000);
    assert_eq!(tally.latency_us.max() / 1_000, 100);
}

#[test]
fn a_closed_loop_keeps_its_depth_under_way_and_stops_at_the_end() {
    let mut lane = lane(Pace::Closed, 4, 10);
    lane.fill(at(0));
    assert_eq!(lane.out.len(), 4);
    lane.read(b"yn", at(1)).unwrap();
    lane.fill(at(1));
    assert_eq!(lane.out.len(), 6);
    assert_eq!(lane.next_due(), None);
    lane.read(b"yyyy", at(10)).unwrap();
    lane.fill(at(10));
    assert_eq!(lane.out.len(), 6);
    assert!(lane.is_done(at(10)));
    assert_eq!((lane.tally.allowed, lane.tally.denied), (5, 1));
}

#[test]
fn an_open_loop_sends_on_its_grid_and_says_when_it_is_next_due() {
    let mut lane = lane(every_ms(), 2, 3);
    lane.fill(at(0));
    assert_eq!((lane.out.len(), lane.next_due()), (1, Some(at(1))));
    lane.fill(at(1));
    assert_eq!((lane.out.len(), lane.next_due()), (2, None));
    lane.read(b"yy", at(2)).unwrap();
    assert_eq!(lane.next_due(), Some(at(2)));
    lane.fill(at(9));
    assert_eq!((lane.out.len(), lane.next_due()), (3, None));
    assert!(!lane.is_done(at(9)));
    lane.read(b"y", at(9)).unwrap();
    assert!(lane.is_done(at(9)));
}

#[test]
fn a_broken_connection_loses_what_was_under_way_and_no_more() {
    let mut lane = lane(Pace::Closed, 3, 10);
    lane.fill(at(0));
    lane.read(b"y", at(0)).unwrap();
    lane.broke("gone");
    lane.connected();
    assert_eq!((lane.tally.allowed, lane.tally.errors), (1, 2));
    assert_eq!(lane.tally.first_error.as_deref(), Some("gone"));
    lane.fill(at(1));
    lane.read(b"yyy", at(1)).unwrap();
    assert_eq!(lane.tally.allowed, 4);
}

#[test]
fn an_answer_to_nothing_is_refused() {
    let mut lane = lane(Pace::Closed, 1, 10);
    lane.fill(at(0));
    assert_eq!(lane.read(b"yy", at(0)), Err(Broken::Unasked));
}

#[test]
fn requests_that_are_due_and_unanswered_at_the_end_are_counted_with_their_wait() {
    let mut lane = lane(every_ms(), 1, 10);
    lane.fill(at(0));
    let tally = lane.close(at(20));
    assert_eq!(tally.unanswered, 10);
    assert_eq!(tally.latency_us.max() / 1_000, 20);
}
