//! What a store has met so far, in numbers for people and their metrics.

pub use crate::lane::BreakerState;

/// What a store has met so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests and other calls that were let through to the server.
    pub calls: u64,
    /// Calls of the script that were sent for them.
    pub script_calls: u64,
    /// Requests that were decided by a script call that was sent for another.
    pub coalesced: u64,
    /// Calls that wait or are on their way now.
    pub in_flight: u64,
    /// Calls that were not answered by their deadline.
    pub timeouts: u64,
    /// Calls that failed at once, because too many were on their way.
    pub busy: u64,
    /// Calls that could not be sent, because there was no connection to be had.
    pub unreachable: u64,
    /// Calls whose connection broke, or was given up, before they were answered.
    pub broken: u64,
    /// Calls that the server answered with an error of its own, as one does that may not write.
    pub refused: u64,
    /// Calls that failed at once, because the breaker was open.
    pub short_circuits: u64,
    /// Whether calls are let through; where there are several servers, that of the worst.
    pub breaker: BreakerState,
    /// How often the breaker has opened.
    pub breaker_openings: u64,
    /// Keys that held a state that somebody else wrote.
    pub foreign_states: u64,
    /// Times that the server had lost the script.
    pub script_loads: u64,
    /// Connections there have been, the first one included.
    pub connections: u64,
    /// Calls that one server of a cluster sent on to another.
    pub redirects: u64,
    /// Places under concurrency limits that were given back because whoever asked for them had gone or been
    /// answered by others.
    pub places_returned: u64,
    /// Charges in several slots of a cluster, and places that nobody waited for any more, that could not be
    /// given back, or not for certain.
    pub give_backs_failed: u64,
}

impl Stats {
    /// What two of them have met together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            script_calls: self.script_calls + other.script_calls,
            coalesced: self.coalesced + other.coalesced,
            in_flight: self.in_flight + other.in_flight,
            timeouts: self.timeouts + other.timeouts,
            busy: self.busy + other.busy,
            unreachable: self.unreachable + other.unreachable,
            broken: self.broken + other.broken,
            refused: self.refused + other.refused,
            short_circuits: self.short_circuits + other.short_circuits,
            breaker: self.breaker.max(other.breaker),
            breaker_openings: self.breaker_openings + other.breaker_openings,
            foreign_states: self.foreign_states + other.foreign_states,
            script_loads: self.script_loads + other.script_loads,
            connections: self.connections + other.connections,
            redirects: self.redirects + other.redirects,
            places_returned: self.places_returned + other.places_returned,
            give_backs_failed: self.give_backs_failed + other.give_backs_failed,
        }
    }
}
