//! One connection's share of the load, without the connection: what to send at a given time, and
//! what the bytes that came mean. It reads no clock and touches no socket, so that a test can be
//! the server and the time.

use std::collections::VecDeque;

use tidegate::Timestamp;

use super::keys::Keys;
use super::pace::Pace;
use super::tally::{Tally, Verdict};
use super::wire::{Broken, Wire};

/// The most requests from the oldest without an answer to the newest, answered or not, where answers
/// may overtake each other.
const SPREAD_MAX: usize = 1 << 16;

/// The load of one connection.
#[derive(Debug)]
pub(crate) struct Lane<W> {
    wire: W,
    pace: Pace,
    keys: Keys,
    /// The most requests under way at once.
    depth: usize,
    /// No request is due from then on.
    end: Timestamp,
    /// How many of an open loop's requests were begun.
    begun: u64,
    under_way: UnderWay,
    /// Bytes that are to be sent.
    pub(crate) out: Vec<u8>,
    pub(crate) tally: Tally,
    answers: Vec<(u64, Verdict)>,
}

impl<W: Wire> Lane<W> {
    pub(crate) fn new(wire: W, pace: Pace, keys: Keys, depth: usize, end: Timestamp) -> Self {
        let mut lane = Self {
            wire,
            pace,
            keys,
            depth,
            end,
            begun: 0,
            under_way: UnderWay::default(),
            out: Vec::new(),
            tally: Tally::new(),
            answers: Vec::new(),
        };
        lane.connected();
        lane
    }

    /// A new connection begins: nothing is under way on it.
    pub(crate) fn connected(&mut self) {
        self.out.clear();
        self.wire.connected(&mut self.out);
    }

    /// Appends every request that may be sent now to `out`.
    pub(crate) fn fill(&mut self, now: Timestamp) {
        while self.has_room() {
            let since = match self.pace {
                Pace::Closed if now < self.end => now,
                Pace::Open(grid) => match grid.due(self.begun) {
                    due if due <= now && due < self.end => due,
                    _ => return,
                },
                Pace::Closed => return,
            };
            self.begun += 1;
            let key = self.keys.draw();
            self.wire.ask(&key, &mut self.out);
            self.under_way.begin(since);
        }
    }

    fn has_room(&self) -> bool {
        self.under_way.count < self.depth
            && self.under_way.since.len() < SPREAD_MAX
            && self.wire.room() > 0
    }

    /// When there is something to send without any answer before it; `None` where only an answer
    /// can bring that about.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        match self.pace {
            Pace::Open(grid) if self.has_room() => {
                Some(grid.due(self.begun)).filter(|due| *due < self.end)
            }
            Pace::Open(_) | Pace::Closed => None,
        }
    }

    /// Takes what it understands from the front of `input`, and says how many bytes that were.
    pub(crate) fn read(&mut self, input: &[u8], now: Timestamp) -> Result<usize, Broken> {
        let read = self.wire.read(input, &mut self.out, &mut self.answers);
        for (number, verdict) in self.answers.drain(..) {
            let due = self.under_way.end(number).ok_or(Broken::Unasked)?;
            self.tally.answered(verdict, due, now);
        }
        read
    }

    /// The connection is gone, and with it what was under way.
    pub(crate) fn broke(&mut self, why: &str) {
        let lost = self.under_way.drain().count() as u64;
        if lost > 0 {
            self.tally.failed(lost, why);
        }
    }

    /// Nothing is left to send or to wait for.
    pub(crate) fn is_done(&self, now: Timestamp) -> bool {
        let none_due = match self.pace {
            Pace::Closed => now >= self.end,
            Pace::Open(grid) => grid.due(self.begun) >= self.end,
        };
        none_due && self.under_way.count == 0
    }

    /// The run is over: what was due and has no answer is counted for as long as it has waited.
    pub(crate) fn close(&mut self, now: Timestamp) -> Tally {
        for since in self.under_way.drain() {
            self.tally.waited(now.since(since));
        }
        if let Pace::Open(grid) = self.pace {
            let end = self.end.min(now);
            while grid.due(self.begun) < end {
                self.tally.waited(now.since(grid.due(self.begun)));
                self.begun += 1;
            }
        }
        std::mem::replace(&mut self.tally, Tally::new())
    }
}

/// Since when each request is under way, by its number. Answers may come in any order.
#[derive(Debug, Default)]
struct UnderWay {
    /// From the oldest without an answer on; `None` has been answered.
    since: VecDeque<Option<Timestamp>>,
    /// The number of the first of them.
    first: u64,
    count: usize,
}

impl UnderWay {
    fn begin(&mut self, since: Timestamp) {
        self.since.push_back(Some(since));
        self.count += 1;
    }

    fn end(&mut self, number: u64) -> Option<Timestamp> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let since = self.since.get_mut(place)?.take()?;
        self.count -= 1;
        while let Some(None) = self.since.front() {
            self.since.pop_front();
            self.first += 1;
        }
        Some(since)
    }

    /// Everything that has no answer. The next connection counts from zero.
    fn drain(&mut self) -> impl Iterator<Item = Timestamp> {
        let since = std::mem::take(self).since;
        since.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests;
