//! The gate that every call of a lane goes through: the breaker, behind a look that costs nothing
//! while all is well, and a log line where it changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::breaker::{Breaker, BreakerState, Change, End, Pass};

pub(super) struct Gate {
    started: Instant,
    breaker: Mutex<Breaker>,
    /// Whether the breaker is closed and nothing has failed since something succeeded.
    calm: AtomicBool,
    openings: AtomicU64,
    /// Calls that were let through.
    calls: AtomicU64,
}

/// A call that was let through. What becomes of it is told once; the caller may go away before.
pub(super) struct Passage<'a> {
    gate: &'a Gate,
    pass: Pass,
    told: bool,
}

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            breaker: Mutex::new(Breaker::new()),
            calm: AtomicBool::new(true),
            openings: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        }
    }

    /// Lets a call through, or not.
    pub(super) fn enter(&self) -> Option<Passage<'_>> {
        // ORDERING: a look that is late by a moment lets a call through that need not have been.
        let pass = if self.calm.load(Ordering::Relaxed) {
            Breaker::calm_pass(self.openings.load(Ordering::Relaxed))
        } else {
            let mut breaker = self.breaker.lock();
            breaker.admit(self.started.elapsed())?
        };
        // ORDERING: a number that the breaker compares with itself, and people read.
        self.calls.fetch_add(1, Ordering::Relaxed);
        Some(Passage { gate: self, pass, told: false })
    }

    /// Calls that were let through.
    pub(super) fn calls(&self) -> u64 {
        // ORDERING: a number for people.
        self.calls.load(Ordering::Relaxed)
    }

    /// The breaker's state, and how often it has opened.
    pub(super) fn breaker(&self) -> (BreakerState, u64) {
        let breaker = self.breaker.lock();
        (breaker.state(), breaker.openings())
    }

    fn end(&self, pass: Pass, end: End) {
        // ORDERING: as in `enter`. An answer while all is well changes nothing.
        if end == End::Answered && self.calm.load(Ordering::Relaxed) {
            return;
        }
        let change = {
            let mut breaker = self.breaker.lock();
            let calls = self.calls.load(Ordering::Relaxed);
            let change = breaker.end(self.started.elapsed(), pass, end, calls);
            self.openings.store(breaker.openings(), Ordering::Relaxed);
            self.calm.store(breaker.is_calm(), Ordering::Relaxed);
            change
        };
        match change {
            // That a whole deployment does not answer is said by whoever decides without it.
            Some(Change::Opened) => tracing::debug!("the store does not answer and is left alone"),
            Some(Change::Closed) => tracing::debug!("the store answers again"),
            None => {}
        }
    }
}

impl Passage<'_> {
    pub(super) fn end(mut self, end: End) {
        self.told = true;
        self.gate.end(self.pass, end);
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.gate.end(self.pass, End::Unknown);
        }
    }
}
