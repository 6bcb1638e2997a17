//! Calls that wait to be sent: those that are the same in groups, and batches in their order. It does no
//! I/O and knows no clock.
//!
//! The first call of a group goes out at once. While it is on its way those that are the same wait for
//! each other, until it is answered or [`HOLD_MAX`] is over, and then go out as one.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use super::call::Call;
use super::ticket::Ticket;
use crate::protocol::REPEATS_MAX;

/// How long a call waits for one that is the same and on its way. Without it a call on a long way
/// would take twice as long wherever a key is hot.
pub(super) const HOLD_MAX: Duration = Duration::from_millis(1);

/// A call on its way, for all who are answered by it.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) call: Arc<Call>,
    pub(super) tickets: Vec<Arc<Ticket>>,
    /// Whether others may wait for it.
    grouped: bool,
}

/// All that waits, and how much is on its way. Times are those since any one instant.
#[derive(Debug)]
pub(super) struct Queue {
    groups: HashMap<Arc<Call>, Group, BuildHasherDefault<Digest>>,
    digests: RandomState,
    /// What can be sent, in order.
    ready: VecDeque<Ready>,
    /// Groups that wait for a call on its way, and until when at most.
    held: VecDeque<(Duration, Arc<Call>)>,
    /// Calls that wait or are on their way, whether somebody still waits for them or not.
    in_flight: usize,
    in_flight_max: usize,
}

#[derive(Debug)]
enum Ready {
    Group(Arc<Call>),
    /// Requests of one batch, which keep their order.
    Batch(Vec<Flight>),
}

#[derive(Debug, Default)]
struct Group {
    waiting: Vec<Arc<Ticket>>,
    /// Since when the first one waits.
    since: Duration,
    flights: usize,
    /// Whether it stands among those that can be sent.
    ready: bool,
}

/// Hands on the digest of a call, which is a hash already.
#[derive(Debug, Default)]
struct Digest(u64);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.is_empty(), "calls have digests");
    }

    fn write_u64(&mut self, digest: u64) {
        self.0 = digest;
    }
}

/// There is no place left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Queue {
    pub(super) fn new(in_flight_max: usize) -> Self {
        Self {
            groups: HashMap::default(),
            digests: RandomState::new(),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            in_flight: 0,
            in_flight_max,
        }
    }

    /// How many calls wait or are on their way.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Adds a call that can be decided together with those that are the same.
    pub(super) fn add(
        &mut self,
        now: Duration,
        call: Call,
        ticket: Arc<Ticket>,
    ) -> Result<(), Full> {
        self.reserve(1)?;
        let call = Arc::new(call.digested(&self.digests));
        let group = self.groups.entry(Arc::clone(&call)).or_default();
        group.waiting.push(ticket);
        if group.waiting.len() == 1 {
            group.since = now;
            if group.flights == 0 {
                group.ready = true;
                self.ready.push_back(Ready::Group(call));
            } else {
                self.held.push_back((now + HOLD_MAX, call));
            }
        }
        Ok(())
    }

    /// Adds the calls of a batch, which are sent in this order. Equal ones that follow each other
    /// become one.
    pub(super) fn add_batch(&mut self, calls: Vec<(Call, Arc<Ticket>)>) -> Result<(), Full> {
        self.reserve(calls.len())?;
        let mut flights: Vec<Flight> = Vec::new();
        for (call, ticket) in calls {
            match flights.last_mut() {
                Some(last)
                    if call.is_script()
                        && *last.call == call
                        && last.tickets.len() < REPEATS_MAX.into() =>
                {
                    last.tickets.push(ticket);
                }
                _ => flights.push(Flight {
                    call: Arc::new(call),
                    tickets: vec![ticket],
                    grouped: false,
                }),
            }
        }
        self.ready.push_back(Ready::Batch(flights));
        Ok(())
    }

    /// Takes what can be sent, up to about so many calls.
    pub(super) fn take(&mut self, now: Duration, calls_max: usize) -> Vec<Flight> {
        self.release_held(now);
        let mut flights = Vec::new();
        while flights.len() < calls_max {
            match self.ready.pop_front() {
                Some(Ready::Group(call)) => self.take_group(&call, &mut flights),
                Some(Ready::Batch(batch)) => flights.extend(batch),
                None => break,
            }
        }
        flights
    }

    /// Says that a flight has ended. Those that waited for it can be sent.
    pub(super) fn land(&mut self, flight: &Flight) {
        self.in_flight -= flight.tickets.len();
        if !flight.grouped {
            return;
        }
        let Some(group) = self.groups.get_mut(&flight.call) else { return };
        group.flights -= 1;
        if group.waiting.is_empty() {
            if group.flights == 0 {
                self.groups.remove(&flight.call);
            }
        } else if !group.ready {
            group.ready = true;
            self.ready.push_back(Ready::Group(Arc::clone(&flight.call)));
        }
    }

    /// Forgets tickets of a flight that nobody waits for, before it is sent.
    pub(super) fn drop_tickets(&mut self, count: usize) {
        self.in_flight -= count;
    }

    /// About how many calls can be sent now.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Whether something can be sent now.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When something can be sent that cannot now, unless an answer comes first.
    pub(super) fn next_release(&self) -> Option<Duration> {
        self.held.front().map(|(at, _)| *at)
    }

    fn reserve(&mut self, calls: usize) -> Result<(), Full> {
        if calls > self.in_flight_max - self.in_flight {
            return Err(Full);
        }
        self.in_flight += calls;
        Ok(())
    }

    /// Has the groups go out that have waited long enough.
    fn release_held(&mut self, now: Duration) {
        while let Some((at, call)) = self.held.pop_front_if(|(at, _)| *at <= now) {
            let Some(group) = self.groups.get_mut(&call) else { continue };
            // It may have gone out since, and others may have come.
            if !group.ready && !group.waiting.is_empty() && group.since + HOLD_MAX <= at {
                group.ready = true;
                self.ready.push_back(Ready::Group(call));
            }
        }
    }

    fn take_group(&mut self, call: &Arc<Call>, flights: &mut Vec<Flight>) {
        let Some(group) = self.groups.get_mut(call) else { return };
        group.ready = false;
        let before = group.waiting.len();
        group.waiting.retain(|ticket| !ticket.is_abandoned());
        self.in_flight -= before - group.waiting.len();
        // A command of the server itself is not repeated.
        let most = if call.is_script() { usize::from(REPEATS_MAX) } else { 1 };
        let mut waiting = std::mem::take(&mut group.waiting);
        while !waiting.is_empty() {
            let rest = waiting.split_off(most.min(waiting.len()));
            let tickets = std::mem::replace(&mut waiting, rest);
            group.flights += 1;
            flights.push(Flight { call: Arc::clone(call), tickets, grouped: true });
        }
        if group.flights == 0 {
            self.groups.remove(call);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ticket::Waiting;
    use super::*;

    fn call(number: usize) -> Call {
        let mut call = Call::script(0);
        call.add(|out| out.extend(number.to_be_bytes()));
        call
    }

    fn add(queue: &mut Queue, now_ms: u64, number: usize) -> Result<Waiting, Full> {
        let (waiting, ticket) = Ticket::issue(None);
        queue.add(Duration::from_millis(now_ms), call(number), ticket).map(|()| waiting)
    }

    fn take(queue: &mut Queue, now_ms: u64) -> Vec<Flight> {
        queue.take(Duration::from_millis(now_ms), usize::MAX)
    }

    fn sizes(flights: &[Flight]) -> Vec<usize> {
        flights.iter().map(|flight| flight.tickets.len()).collect()
    }

    #[test]
    fn calls_that_are_the_same_go_out_as_one_when_the_first_is_answered() {
        let mut queue = Queue::new(100);
        let _first = add(&mut queue, 0, 1).unwrap();
        let first = take(&mut queue, 0);
        assert_eq!(sizes(&first), [1]);
        let _others: Vec<_> = (0..3).map(|_| add(&mut queue, 0, 1).unwrap()).collect();
        let _different = add(&mut queue, 0, 2).unwrap();
        let second = take(&mut queue, 0);
        assert_eq!((sizes(&second), &*second[0].call), (vec![1], &call(2)), "others go at once");
        assert!(!queue.is_ready());
        queue.land(&first[0]);
        assert_eq!(sizes(&take(&mut queue, 0)), [3]);
        assert_eq!(queue.in_flight(), 4);
    }

    #[test]
    fn nobody_is_held_longer_than_the_bound() {
        let mut queue = Queue::new(100);
        let _first = add(&mut queue, 0, 1).unwrap();
        assert_eq!(take(&mut queue, 0).len(), 1);
        let _second = add(&mut queue, 5, 1).unwrap();
        assert_eq!(queue.next_release(), Some(Duration::from_millis(6)));
        assert!(take(&mut queue, 5).is_empty());
        assert_eq!(sizes(&take(&mut queue, 6)), [1]);
        assert_eq!(queue.next_release(), None);
    }

    #[test]
    fn more_than_the_bound_is_refused_until_flights_have_ended() {
        let mut queue = Queue::new(2);
        let (_one, _other) = (add(&mut queue, 0, 1).unwrap(), add(&mut queue, 0, 2).unwrap());
        assert_eq!(add(&mut queue, 0, 3).err(), Some(Full));
        let flights = take(&mut queue, 0);
        assert_eq!(add(&mut queue, 0, 3).err(), Some(Full), "they are on their way");
        queue.land(&flights[0]);
        assert!(add(&mut queue, 0, 3).is_ok());
        assert_eq!(add(&mut queue, 0, 4).err(), Some(Full));
    }

    #[test]
    fn more_calls_than_one_script_call_decides_go_out_as_several_at_once() {
        let mut queue = Queue::new(1_000);
        let tickets: Vec<_> = (0..600).map(|_| add(&mut queue, 0, 1).unwrap()).collect();
        let flights = take(&mut queue, 0);
        assert_eq!(sizes(&flights), [256, 256, 88]);
        for flight in &flights {
            queue.land(flight);
        }
        assert_eq!((queue.in_flight(), queue.groups.len()), (0, 0), "{}", tickets.len());
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_sent() {
        let mut queue = Queue::new(100);
        let _kept = add(&mut queue, 0, 1).unwrap();
        drop((add(&mut queue, 0, 1).unwrap(), add(&mut queue, 0, 2).unwrap()));
        assert_eq!(queue.in_flight(), 3);
        assert_eq!(sizes(&take(&mut queue, 0)), [1]);
        assert_eq!(queue.in_flight(), 1);
    }

    #[test]
    fn a_batch_keeps_its_order_and_joins_only_neighbours() {
        let mut queue = Queue::new(100);
        let numbers = [1, 1, 2, 1, 1, 1];
        let calls = numbers.map(|number| (call(number), Ticket::issue(None).1));
        queue.add_batch(calls.into()).unwrap();
        let flights = take(&mut queue, 0);
        assert_eq!(sizes(&flights), [2, 1, 3]);
        for flight in &flights {
            queue.land(flight);
        }
        assert_eq!(queue.in_flight(), 0);
    }
}
