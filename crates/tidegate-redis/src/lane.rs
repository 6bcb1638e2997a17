//! A lane: everything that happens on the one connection to one server. Requests become script calls,
//! and replies become decisions.
//!
//! Calls of different tasks share the connection, the packets that they travel in and, where they
//! are the same, the script call. A call waits until its deadline, and fails at once where the breaker is
//! open or too many are on their way. What is not here: which server a key belongs to, and policy. An
//! answer that did not come is a failure, and what follows from it is decided by whoever asked.

mod breaker;
mod call;
mod exchange;
mod gate;
mod orphan;
mod outcome;
mod queue;
mod ticket;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tidegate_core::{Key, Timestamp};
use tidegate_store::{Request, StoreError};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

pub use breaker::BreakerState;
pub(crate) use call::Call;
pub(crate) use outcome::{Failure, Outcomes, Redirect, check};
pub(crate) use ticket::Reply;

use breaker::End;
use exchange::PIPELINE_MAX;
use gate::Gate;
use orphan::Orphan;
use queue::{Full, Queue};
use ticket::{Ticket, Waiting};

use crate::config::{RedisConfig, TimeSource};
use crate::lease::{Told, book};
use crate::link::Link;
use crate::protocol;
use crate::stats::Stats;
use crate::{ConnectError, ForeignState};

/// One server, and all calls to it.
pub(crate) struct Lane {
    core: Arc<Core>,
    /// The task that sends. It begins with the first call, since that comes from within a runtime.
    driver: OnceLock<AbortHandle>,
}

/// What the lane shares with those that send for it.
struct Core {
    config: Arc<RedisConfig>,
    link: Link,
    started: Instant,
    queue: Mutex<Queue>,
    /// Says that something waits to be sent.
    wake: Notify,
    gate: Gate,
    /// How far the server's clock is ahead of that of the requests, in microseconds, by the last reply.
    /// It only says which windows of the calendar to send along.
    ahead_micros: AtomicI64,
    foreign_states: AtomicU64,
    foreign_state_logged: AtomicBool,
    script_loads: AtomicU64,
    script_calls: AtomicU64,
    coalesced: AtomicU64,
    timeouts: AtomicU64,
    busy: AtomicU64,
    unreachable: AtomicU64,
    broken: AtomicU64,
    refused: AtomicU64,
    short_circuits: AtomicU64,
    places_returned: AtomicU64,
    give_backs_failed: AtomicU64,
}

/// The most calls that wait or are on their way. Those beyond fail at once.
const IN_FLIGHT_MAX: usize = 16_384;

/// A call that had less than this part of what a decision has, since others used up the rest, and was not
/// answered, says nothing about the server.
const HASTY_PART: u32 = 4;

/// The most that a request is sent: once, and again where the calendar's windows were not those around
/// its time.
const ROUNDS_MAX: usize = 3;

impl Lane {
    /// What goes to this server from now on.
    pub(crate) fn new(config: Arc<RedisConfig>, link: Link) -> Self {
        let core = Arc::new(Core {
            link,
            config,
            started: Instant::now(),
            queue: Mutex::new(Queue::new(IN_FLIGHT_MAX)),
            wake: Notify::new(),
            gate: Gate::new(),
            ahead_micros: AtomicI64::new(0),
            foreign_states: AtomicU64::new(0),
            foreign_state_logged: AtomicBool::new(false),
            script_loads: AtomicU64::new(0),
            script_calls: AtomicU64::new(0),
            coalesced: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            unreachable: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            short_circuits: AtomicU64::new(0),
            places_returned: AtomicU64::new(0),
            give_backs_failed: AtomicU64::new(0),
        });
        Self { core, driver: OnceLock::new() }
    }

    /// Connects, where that has not been done yet, and says what is wrong.
    pub(crate) async fn connect(&self) -> Result<(), ConnectError> {
        self.core.link.connect().await
    }

    /// What it has met so far.
    pub(crate) fn stats(&self) -> Stats {
        let core = &*self.core;
        let (breaker, breaker_openings) = core.gate.breaker();
        // ORDERING: each is a number for people, by itself.
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Stats {
            calls: core.gate.calls(),
            script_calls: read(&core.script_calls),
            coalesced: read(&core.coalesced),
            in_flight: core.queue.lock().in_flight() as u64,
            timeouts: read(&core.timeouts),
            busy: read(&core.busy),
            unreachable: read(&core.unreachable),
            broken: read(&core.broken),
            refused: read(&core.refused),
            short_circuits: read(&core.short_circuits),
            breaker,
            breaker_openings,
            foreign_states: read(&core.foreign_states),
            script_loads: read(&core.script_loads),
            connections: core.link.connections(),
            redirects: 0,
            places_returned: read(&core.places_returned),
            give_backs_failed: read(&core.give_backs_failed),
        }
    }

    /// Decides a batch as if its requests had come one after the other, and gives one outcome per
    /// request, in order. With `asking` the server is told that its keys are moving there, as a
    /// redirection of that kind wants it.
    pub(crate) async fn decide(
        &self,
        batch: &[Request<'_>],
        asking: bool,
        deadline: Instant,
    ) -> Outcomes {
        let mut outcomes = Outcomes::new(batch);
        for _ in 0..ROUNDS_MAX {
            let undecided = outcomes.undecided();
            if undecided.is_empty() {
                break;
            }
            for part in undecided.chunks(PIPELINE_MAX) {
                let calls = part.iter().map(|index| {
                    let request = &batch[*index];
                    let around = self.core.around(request.now);
                    let call = Call::decision(&self.core.config, request, around).asking(asking);
                    (call, Orphan::of(Arc::downgrade(&self.core), request, asking))
                });
                let mut index = part.iter();
                let each = |reply| {
                    if let Some(&index) = index.next() {
                        self.core.read(&batch[index], index, reply, &mut outcomes);
                    }
                };
                self.run(calls, deadline, each).await;
            }
        }
        outcomes
    }

    /// Sends requests for leases in one pipeline, and gives the answer to each, in order.
    pub(crate) async fn lease(
        &self,
        leases: &[book::Call],
        now: Timestamp,
        asking: bool,
        deadline: Instant,
    ) -> Vec<Result<Told, Failure>> {
        let mut answers: Vec<Option<Result<Told, Failure>>> = vec![None; leases.len()];
        for _ in 0..ROUNDS_MAX {
            let open: Vec<usize> =
                (0..leases.len()).filter(|index| answers[*index].is_none()).collect();
            for part in open.chunks(PIPELINE_MAX) {
                let around = self.core.around(now);
                let calls = part.iter().map(|index| {
                    let lease = &leases[*index];
                    let call = Call::lease(&self.core.config, lease, now, around);
                    (call.asking(asking), None)
                });
                let mut index = part.iter();
                let each = |reply| {
                    if let Some(&index) = index.next() {
                        answers[index] = self.core.read_told(&leases[index], now, reply);
                    }
                };
                self.run(calls, deadline, each).await;
            }
        }
        // The server could not tell, as often as it was asked, and has done nothing.
        let missing = || Err(StoreError::Refused.into());
        answers.into_iter().map(|answer| answer.unwrap_or_else(missing)).collect()
    }

    /// Makes a call of any kind, and gives the reply to it.
    pub(crate) async fn call(
        &self,
        call: Call,
        asking: bool,
        deadline: Instant,
    ) -> Result<Reply, Failure> {
        let mut reply = Err(Failure::Store(StoreError::NoAnswer));
        let calls = [(call.asking(asking), None)].into_iter();
        self.run(calls, deadline, |answer| reply = answer).await;
        reply
    }

    /// Forgets the keys, which are all this server's.
    pub(crate) async fn forget(
        &self,
        keys: &[Key],
        asking: bool,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let mut result = Ok(());
        for part in keys.chunks(PIPELINE_MAX) {
            let calls = part.iter().map(|key| {
                let call = Call::forget(&self.core.config, *key);
                (call.asking(asking), None)
            });
            let each = |reply: Result<Reply, Failure>| {
                if let Err(failure) = reply {
                    result = Err(failure);
                }
            };
            self.run(calls, deadline, each).await;
        }
        result
    }

    /// Makes the calls, in this order, and hands each reply to `each`. With each comes what is done with an
    /// answer that nobody waits for any more.
    async fn run(
        &self,
        calls: impl ExactSizeIterator<Item = (Call, Option<Box<Orphan>>)>,
        deadline: Instant,
        mut each: impl FnMut(Result<Reply, Failure>),
    ) {
        let (core, count) = (&*self.core, calls.len());
        let began = Instant::now();
        if began >= deadline {
            // Others used up the time, so it says nothing about this server.
            // ORDERING: a number for people.
            core.timeouts.fetch_add(count as u64, Ordering::Relaxed);
            return (0..count).for_each(|_| each(Err(StoreError::Unreachable.into())));
        }
        let Some(passage) = core.gate.enter() else {
            // ORDERING: a number for people.
            core.short_circuits.fetch_add(count as u64, Ordering::Relaxed);
            return (0..count).for_each(|_| each(Err(StoreError::Unreachable.into())));
        };
        let Ok(waiting) = core.add(calls) else {
            // ORDERING: a number for people.
            core.busy.fetch_add(count as u64, Ordering::Relaxed);
            return (0..count).for_each(|_| each(Err(StoreError::Busy.into())));
        };
        self.driver
            .get_or_init(|| tokio::spawn(exchange::drive(Arc::clone(&self.core))).abort_handle());
        core.wake.notify_one();
        let hasty = deadline - began < core.config.deadline / HASTY_PART;
        let mut end = End::Answered;
        for waiting in waiting {
            let answer = match waiting.answer(deadline).await {
                Ok(answer) => {
                    if let Err(Failure::Store(error)) = answer {
                        end = End::Failed;
                        core.count_failed(error);
                    }
                    answer
                }
                Err(missing) => {
                    // ORDERING: a number for people.
                    core.timeouts.fetch_add(1, Ordering::Relaxed);
                    end = end.missing(hasty);
                    Err(missing.into())
                }
            };
            each(answer);
        }
        if end == End::Answered && began.elapsed() > core.config.deadline {
            end = End::Late;
        }
        passage.end(end);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let Some(driver) = self.driver.get() {
            driver.abort();
        }
    }
}

impl Core {
    /// Puts calls into the queue: a single one together with those of others that are the same.
    fn add(
        &self,
        calls: impl ExactSizeIterator<Item = (Call, Option<Box<Orphan>>)>,
    ) -> Result<Vec<Waiting>, Full> {
        let mut waiting = Vec::with_capacity(calls.len());
        let mut tickets = Vec::with_capacity(calls.len());
        for (call, orphan) in calls {
            let (one, ticket) = Ticket::issue(orphan);
            waiting.push(one);
            tickets.push((call, ticket));
        }
        let now = self.elapsed();
        let mut queue = self.queue.lock();
        match tickets.pop_if(|_| waiting.len() == 1) {
            Some((call, ticket)) => queue.add(now, call, ticket)?,
            None => queue.add_batch(tickets)?,
        }
        Ok(waiting)
    }

    /// Waits until there is something to send.
    async fn something_to_send(&self) {
        loop {
            let release = {
                let queue = self.queue.lock();
                if queue.is_ready() {
                    return;
                }
                queue.next_release()
            };
            match release {
                Some(at) => {
                    let woken = timeout_at(self.started + at, self.wake.notified()).await;
                    if woken.is_err() {
                        return;
                    }
                }
                None => self.wake.notified().await,
            }
        }
    }

    fn count_failed(&self, error: StoreError) {
        let reason = match error {
            StoreError::Unreachable => &self.unreachable,
            StoreError::NoAnswer => &self.broken,
            _ => &self.refused,
        };
        // ORDERING: a number for people.
        reason.fetch_add(1, Ordering::Relaxed);
    }

    /// What has passed since the lane began.
    fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Takes note of the reply to a request. Says nothing to one that is to be sent again.
    fn read(
        &self,
        request: &Request<'_>,
        index: usize,
        reply: Result<Reply, Failure>,
        outcomes: &mut Outcomes,
    ) {
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => return outcomes.fail(index, failure),
        };
        let bytes = match &*reply.value {
            Value::BulkString(bytes) => &bytes[..],
            _ => &[],
        };
        let (charges, round) = (request.charges, reply.round);
        let start = outcomes.decisions.len();
        match protocol::read_reply(bytes, charges, round, &mut outcomes.decisions) {
            Some(protocol::Reply::Decided { now, foreign_keys }) => {
                if foreign_keys != 0 && round == 0 {
                    self.found_foreign_states(foreign_keys.count_ones());
                }
                self.learn_time(request.now, now);
                outcomes.decide(index, now, start);
            }
            Some(protocol::Reply::AskAround { now }) => self.learn_time(request.now, now),
            Some(protocol::Reply::Foreign) => {
                self.found_foreign_states(1);
                outcomes.fail(index, StoreError::ForeignState.into());
            }
            // Somebody answers who does not speak this protocol; who knows what he did.
            None => {
                outcomes.decisions.truncate(start);
                outcomes.fail(index, StoreError::NoAnswer.into());
            }
        }
    }

    /// The answer to a request for a lease; `None` for one that is to be sent again.
    fn read_told(
        &self,
        lease: &book::Call,
        now: Timestamp,
        reply: Result<Reply, Failure>,
    ) -> Option<Result<Told, Failure>> {
        let reply = match reply {
            Ok(reply) => reply,
            Err(failure) => return Some(Err(failure)),
        };
        let bytes = match &*reply.value {
            Value::BulkString(bytes) => &bytes[..],
            _ => &[],
        };
        match protocol::read_told(bytes, lease) {
            Some((protocol::Reply::Decided { now: at, foreign_keys }, Some(told))) => {
                if foreign_keys != 0 {
                    self.found_foreign_states(1);
                }
                self.learn_time(now, at);
                Some(Ok(told))
            }
            Some((protocol::Reply::AskAround { now: at }, _)) => {
                self.learn_time(now, at);
                None
            }
            Some((protocol::Reply::Foreign, _)) => {
                self.found_foreign_states(1);
                Some(Err(StoreError::ForeignState.into()))
            }
            Some((protocol::Reply::Decided { .. }, None)) | None => {
                Some(Err(StoreError::NoAnswer.into()))
            }
        }
    }

    /// The server's time when a request comes, as far as it is known.
    fn around(&self, now: Timestamp) -> Timestamp {
        match self.config.time {
            TimeSource::Request => now.min(protocol::TIME_MAX),
            TimeSource::Server => {
                // ORDERING: an estimate, which stands for itself.
                let ahead = self.ahead_micros.load(Ordering::Relaxed);
                Timestamp::from_micros(now.as_micros().saturating_add_signed(ahead))
            }
        }
    }

    fn learn_time(&self, asked: Timestamp, decided: Timestamp) {
        let ahead = decided.as_micros().cast_signed() - asked.as_micros().cast_signed();
        // ORDERING: an estimate, which stands for itself.
        self.ahead_micros.store(ahead, Ordering::Relaxed);
    }

    /// Counts, and logs the first one. Keys are not named.
    fn found_foreign_states(&self, keys: u32) {
        // ORDERING: a number for people, and a line that may come twice.
        self.foreign_states.fetch_add(keys.into(), Ordering::Relaxed);
        if !self.foreign_state_logged.swap(true, Ordering::Relaxed) {
            let what = match self.config.foreign_state {
                ForeignState::Reset => "started anew",
                ForeignState::Refuse => "left alone",
            };
            tracing::warn!("a key in the store holds a state that is not Tidegate's; it is {what}");
        }
    }
}
