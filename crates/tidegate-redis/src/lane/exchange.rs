//! Sending what waits: a task that takes all of it at once, and one exchange for each pipeline, which
//! waits for the replies and hands them out.
//!
//! A call is sent once. Only where the server says that it did not run it, since it had lost the
//! script, it is sent again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{ErrorKind, Pipeline, RedisError, ServerError, ServerErrorKind, Value};
use tidegate_store::StoreError;
use tokio::time::timeout;

use super::Core;
use super::outcome::{self, Failure};
use super::queue::Flight;
use super::ticket::Reply;
use crate::link::{Live, is_stale, load_script};

/// About the most calls in one pipeline.
pub(super) const PIPELINE_MAX: usize = 512;

/// Where more than this many calls wait, half of them go out first, so that the server works on those
/// while we send the others, and on the others while we hand out the first replies. All in one
/// pipeline would have each of us wait for the other.
const HALVE_ABOVE: usize = 16;

/// A server that says nothing for so long is given up with its connection, on which answers may be
/// that nobody waits for. At least: calls with a longer deadline wait for longer.
const SILENCE_MIN: Duration = Duration::from_millis(500);

/// The most that a pipeline is sent: once, and again where the server had lost the script.
const SENDS_MAX: usize = 3;

/// Sends what waits, for as long as the lane is there.
pub(super) async fn drive(core: Arc<Core>) {
    loop {
        core.something_to_send().await;
        let Some(live) = core.link.live().await else {
            fail_waiting(&core);
            continue;
        };
        // Callers that can run now add what they have, and it all goes out in one packet.
        tokio::task::yield_now().await;
        let flights = {
            let mut queue = core.queue.lock();
            let half = queue.ready().div_ceil(2).max(HALVE_ABOVE);
            queue.take(core.elapsed(), half.min(PIPELINE_MAX))
        };
        if !flights.is_empty() {
            tokio::spawn(Exchange { core: Arc::clone(&core), live, flights }.run());
        }
    }
}

/// Says to all that wait that there is no connection.
fn fail_waiting(core: &Core) {
    let mut queue = core.queue.lock();
    let flights = queue.take(core.elapsed(), usize::MAX);
    for flight in &flights {
        queue.land(flight);
    }
    drop(queue);
    for ticket in flights.iter().flat_map(|flight| &flight.tickets) {
        ticket.settle(Err(StoreError::Unreachable.into()));
    }
}

/// One pipeline on its way.
struct Exchange {
    core: Arc<Core>,
    live: Live,
    flights: Vec<Flight>,
}

impl Exchange {
    async fn run(mut self) {
        self.drop_abandoned();
        for _ in 0..SENDS_MAX {
            if self.flights.is_empty() {
                return;
            }
            let silence = SILENCE_MIN.max(2 * self.core.config.deadline);
            let replies = match timeout(silence, self.send()).await {
                Ok(Ok(replies)) => replies,
                Ok(Err(error)) => {
                    tracing::debug!(kind = ?error.kind(), "the connection to the store is broken");
                    return self.give_up();
                }
                Err(_) => {
                    tracing::debug!("the store is silent, and its connection given up");
                    return self.give_up();
                }
            };
            let script_lost = self.hand_out(replies);
            if script_lost {
                // ORDERING: a number for people.
                self.core.script_loads.fetch_add(1, Ordering::Relaxed);
                match timeout(silence, load_script(&mut self.live.connection)).await {
                    Ok(Ok(script)) => self.live.script = script,
                    Ok(Err(_)) | Err(_) => return self.give_up(),
                }
            }
        }
        // A server that forgets the script as soon as it has it.
        self.land_all(&StoreError::Refused.into());
    }

    /// Forgets those that nobody waits for any more, before they are sent.
    fn drop_abandoned(&mut self) {
        let mut dropped = 0;
        for flight in &mut self.flights {
            let before = flight.tickets.len();
            flight.tickets.retain(|ticket| ticket.send());
            dropped += before - flight.tickets.len();
        }
        let mut queue = self.core.queue.lock();
        queue.drop_tickets(dropped);
        self.flights.retain(|flight| {
            if flight.tickets.is_empty() {
                queue.land(flight);
            }
            !flight.tickets.is_empty()
        });
    }

    /// Sends them all in one pipeline, and gives the replies.
    async fn send(&mut self) -> Result<Vec<Value>, RedisError> {
        let (script, connection) = (&self.live.script, &mut self.live.connection);
        let script_calls = self.flights.iter().filter(|flight| flight.call.is_script());
        // ORDERING: a number for people.
        self.core.script_calls.fetch_add(script_calls.count() as u64, Ordering::Relaxed);
        let command = |flight: &Flight| flight.call.command(script, flight.tickets.len() as u16);
        if let [only] = &self.flights[..]
            && !only.call.is_asking()
        {
            return match connection.send_packed_command(&command(only)).await {
                Ok(value) => Ok(vec![value]),
                // An error that the server sent is a reply as well.
                Err(error) => {
                    ServerError::try_from(error).map(|sent| vec![Value::ServerError(sent)])
                }
            };
        }
        let mut pipeline = Pipeline::with_capacity(self.flights.len());
        let mut wanted = Vec::with_capacity(self.flights.len());
        for flight in &self.flights {
            if flight.call.is_asking() {
                pipeline.cmd("ASKING");
                wanted.push(false);
            }
            pipeline.add_command(command(flight));
            wanted.push(true);
        }
        let replies = connection.send_packed_commands(&pipeline, 0, wanted.len()).await?;
        let wanted = replies.into_iter().zip(wanted).filter(|(_, wanted)| *wanted);
        Ok(wanted.map(|(reply, _)| reply).collect())
    }

    /// Answers all that were decided, and keeps those that were not because the script is not there.
    fn hand_out(&mut self, replies: Vec<Value>) -> bool {
        let flights = std::mem::take(&mut self.flights);
        let mut landed = Vec::with_capacity(flights.len());
        for (flight, value) in flights.into_iter().zip(replies) {
            let answer = match value {
                Value::ServerError(error) => {
                    let error = RedisError::from(error);
                    if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
                        self.flights.push(flight);
                        continue;
                    }
                    Err(self.refused(&error))
                }
                value => Ok(Arc::new(value)),
            };
            landed.push((flight, answer));
        }
        self.land(landed);
        !self.flights.is_empty()
    }

    /// What follows from an error that the server sent.
    fn refused(&self, error: &RedisError) -> Failure {
        if let Some(redirect) = outcome::redirect(error) {
            return Failure::Redirected(redirect);
        }
        if error.kind() == ErrorKind::Server(ServerErrorKind::TryAgain) {
            return Failure::Parted;
        }
        tracing::debug!(kind = ?error.kind(), "the store refused to decide");
        if is_stale(error) {
            self.core.link.lost(&self.live);
        }
        StoreError::Refused.into()
    }

    fn give_up(&mut self) {
        self.core.link.lost(&self.live);
        self.land_all(&StoreError::NoAnswer.into());
    }

    fn land_all(&mut self, failure: &Failure) {
        let flights = std::mem::take(&mut self.flights);
        self.land(flights.into_iter().map(|flight| (flight, Err(failure.clone()))).collect());
    }

    /// Makes room first, so that whoever is woken finds it.
    fn land(&self, landed: Vec<(Flight, Result<Arc<Value>, Failure>)>) {
        let ready = {
            let mut queue = self.core.queue.lock();
            for (flight, _) in &landed {
                queue.land(flight);
            }
            queue.is_ready()
        };
        if ready {
            self.core.wake.notify_one();
        }
        let coalesced = landed.iter().map(|(flight, _)| flight.tickets.len() as u64 - 1).sum();
        // ORDERING: a number for people. Whoever is woken finds it.
        self.core.coalesced.fetch_add(coalesced, Ordering::Relaxed);
        for (flight, answer) in landed {
            for (round, ticket) in (0..).zip(&flight.tickets) {
                ticket.settle(answer.clone().map(|value| Reply { value, round }));
            }
        }
    }
}

impl Drop for Exchange {
    /// Where the runtime ends before the answers came.
    fn drop(&mut self) {
        if !self.flights.is_empty() {
            self.give_up();
        }
    }
}
