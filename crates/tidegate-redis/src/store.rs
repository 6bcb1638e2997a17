//! The store: a batch of requests becomes one pipeline of script calls, and their replies its answers.
//!
//! Calls of different tasks share one connection, and with it the packets that they travel in. The
//! deadline holds for a whole call. What is not here: policy. An answer that did not come is an error,
//! and what follows from it is decided by whoever asked.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerError, ServerErrorKind, Value};
use tidegate_core::{Decision, Key, Timestamp};
use tidegate_store::{Answers, Request, Store, StoreError};

use crate::config::{RedisConfig, TimeSource};
use crate::key::write_name;
use crate::link::{Link, Live, load_script};
use crate::protocol::{self, Reply};
use crate::{ConnectError, ForeignState};

/// State in one Redis or Valkey server, shared by all who use it.
pub struct RedisStore {
    config: RedisConfig,
    link: Link,
    /// How far the server's clock is ahead of that of the requests, in microseconds, by the last reply.
    /// It only says which windows of the calendar to send along.
    ahead_micros: AtomicI64,
    foreign_states: AtomicU64,
    foreign_state_logged: AtomicBool,
    script_loads: AtomicU64,
}

/// What a store has met so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys that held a state that somebody else wrote.
    pub foreign_states: u64,
    /// Times that the server had lost the script.
    pub script_loads: u64,
    /// Connections there have been, the first one included.
    pub connections: u64,
}

/// The most requests in one pipeline: longer batches are sent one pipeline after the other.
const PIPELINE_MAX: usize = 512;

/// The most that a request is sent: once, again where the server had lost the script, and again where
/// the calendar's windows were not those around its time.
const ROUNDS_MAX: usize = 4;

impl RedisStore {
    /// Connects to the server.
    pub async fn connect(config: RedisConfig) -> Result<Self, ConnectError> {
        Ok(Self {
            link: Link::connect(&config).await?,
            config,
            ahead_micros: AtomicI64::new(0),
            foreign_states: AtomicU64::new(0),
            foreign_state_logged: AtomicBool::new(false),
            script_loads: AtomicU64::new(0),
        })
    }

    /// What it has met so far.
    pub fn stats(&self) -> Stats {
        // ORDERING: each is a number for people, by itself.
        Stats {
            foreign_states: self.foreign_states.load(Ordering::Relaxed),
            script_loads: self.script_loads.load(Ordering::Relaxed),
            connections: self.link.connections(),
        }
    }

    /// Sends what is undecided until nothing is, or it has been sent often enough.
    async fn decide_all(&self, batch: &[Request<'_>], progress: &mut Progress) {
        let Some(mut live) = self.link.live().await else { return };
        for _ in 0..ROUNDS_MAX {
            let undecided = progress.undecided();
            if undecided.is_empty() {
                return;
            }
            let mut script_lost = false;
            for part in undecided.chunks(PIPELINE_MAX) {
                progress.asked = true;
                let replies = match self.send(&mut live, batch, part).await {
                    Ok(replies) => replies,
                    Err(error) => return self.broken(&live, &error),
                };
                for (&index, reply) in part.iter().zip(replies) {
                    script_lost |= self.read(&live, &batch[index], index, reply, progress);
                }
            }
            if script_lost {
                // ORDERING: a number for people.
                self.script_loads.fetch_add(1, Ordering::Relaxed);
                match load_script(&mut live.connection).await {
                    Ok(script) => live.script = script,
                    Err(error) => return self.broken(&live, &error),
                }
            }
        }
    }

    /// Sends the requests of these numbers, and gives their replies.
    async fn send(
        &self,
        live: &mut Live,
        batch: &[Request<'_>],
        part: &[usize],
    ) -> Result<Vec<Value>, RedisError> {
        if let [only] = part {
            let reply = live.connection.send_packed_command(&self.call(live, &batch[*only])).await;
            return match reply {
                Ok(value) => Ok(vec![value]),
                // An error that the server sent is a reply as well.
                Err(error) => {
                    ServerError::try_from(error).map(|sent| vec![Value::ServerError(sent)])
                }
            };
        }
        let mut pipeline = Pipeline::with_capacity(part.len());
        for &index in part {
            pipeline.add_command(self.call(live, &batch[index]));
        }
        live.connection.send_packed_commands(&pipeline, 0, part.len()).await
    }

    /// The call of the script that decides a request.
    fn call(&self, live: &Live, request: &Request<'_>) -> Cmd {
        let mut call = Cmd::with_capacity(4 + 2 * request.charges.len(), 512);
        call.arg("EVALSHA").arg(&*live.script).arg(request.charges.len());
        let mut bytes = Vec::with_capacity(128);
        for charge in request.charges {
            bytes.clear();
            write_name(&self.config.prefix, charge.key, &mut bytes);
            call.arg(&bytes[..]);
        }
        bytes.clear();
        let (time, policy) = (self.config.time, self.config.foreign_state);
        protocol::write_frame(time, policy, request.now, &mut bytes);
        let hopeless = request.charges.len() > 1 && protocol::is_hopeless(request);
        for charge in request.charges {
            protocol::write_charge(charge, hopeless, self.around(request.now), &mut bytes);
            call.arg(&bytes[..]);
            bytes.clear();
        }
        if request.charges.is_empty() {
            call.arg(&bytes[..]);
        }
        call
    }

    /// Takes note of a reply. Gives whether the server has lost the script.
    fn read(
        &self,
        live: &Live,
        request: &Request<'_>,
        index: usize,
        reply: Value,
        progress: &mut Progress,
    ) -> bool {
        let bytes = match reply {
            Value::BulkString(bytes) => bytes,
            Value::ServerError(error) => {
                let error = RedisError::from(error);
                if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
                    return true;
                }
                self.refused(live, &error);
                progress.outcomes[index] = Some(Err(StoreError::Refused));
                return false;
            }
            _ => Vec::new(),
        };
        let start = progress.decisions.len();
        match protocol::read_reply(&bytes, request.charges, &mut progress.decisions) {
            Some(Reply::Decided { now, foreign_keys }) => {
                if foreign_keys != 0 {
                    self.found_foreign_states(foreign_keys.count_ones());
                }
                self.learn_time(request.now, now);
                let decided = Decided { at: now, decisions: start..progress.decisions.len() };
                progress.outcomes[index] = Some(Ok(decided));
            }
            Some(Reply::AskAround { now }) => self.learn_time(request.now, now),
            Some(Reply::Foreign) => {
                self.found_foreign_states(1);
                progress.outcomes[index] = Some(Err(StoreError::ForeignState));
            }
            // Somebody answers who does not speak this protocol; who knows what he did.
            None => progress.outcomes[index] = Some(Err(StoreError::NoAnswer)),
        }
        false
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

    fn broken(&self, live: &Live, error: &RedisError) {
        tracing::debug!(kind = ?error.kind(), "the connection to the store is broken");
        self.link.lost(live);
    }

    fn refused(&self, live: &Live, error: &RedisError) {
        tracing::debug!(kind = ?error.kind(), "the store refused to decide");
        // What was the primary is none any more: another connection may find the new one.
        if error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly) {
            self.link.lost(live);
        }
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

impl Store for RedisStore {
    async fn decide(&self, batch: &[Request<'_>], answers: &mut Answers) {
        let mut progress = Progress::new(batch);
        let deciding = self.decide_all(batch, &mut progress);
        let _ = tokio::time::timeout(self.config.deadline, deciding).await;
        progress.answer(answers);
    }

    async fn forget(&self, keys: &[Key]) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut asked = false;
        let forgetting = async {
            let Some(mut live) = self.link.live().await else {
                return Err(StoreError::Unreachable);
            };
            for part in keys.chunks(PIPELINE_MAX) {
                let mut pipeline = Pipeline::with_capacity(part.len());
                for key in part {
                    let mut name = Vec::new();
                    write_name(&self.config.prefix, *key, &mut name);
                    pipeline.cmd("DEL").arg(name);
                }
                asked = true;
                let sent = live.connection.send_packed_commands(&pipeline, 0, part.len()).await;
                let replies = sent.map_err(|error| {
                    self.broken(&live, &error);
                    StoreError::NoAnswer
                })?;
                for reply in replies {
                    reply.extract_error().map_err(|error| {
                        self.refused(&live, &error);
                        StoreError::Refused
                    })?;
                }
            }
            Ok(())
        };
        let forgotten = tokio::time::timeout(self.config.deadline, forgetting).await;
        forgotten.unwrap_or(Err(if asked { StoreError::NoAnswer } else { StoreError::Unreachable }))
    }
}

/// How far a batch has come.
struct Progress {
    outcomes: Vec<Option<Result<Decided, StoreError>>>,
    /// The decisions of all requests, in the order of their replies.
    decisions: Vec<Decision>,
    /// Whether the server may have been asked.
    asked: bool,
}

struct Decided {
    at: Timestamp,
    decisions: Range<usize>,
}

impl Progress {
    fn new(batch: &[Request<'_>]) -> Self {
        let outcomes = batch.iter().map(|request| check(request).err().map(Err)).collect();
        Self { outcomes, decisions: Vec::new(), asked: false }
    }

    fn undecided(&self) -> Vec<usize> {
        (0..self.outcomes.len()).filter(|index| self.outcomes[*index].is_none()).collect()
    }

    fn answer(self, answers: &mut Answers) {
        let missing = if self.asked { StoreError::NoAnswer } else { StoreError::Unreachable };
        answers.clear();
        for outcome in self.outcomes {
            match outcome.unwrap_or(Err(missing)) {
                Ok(decided) => answers.push_at(decided.at, |decisions| {
                    decisions.extend_from_slice(&self.decisions[decided.decisions]);
                    Ok(())
                }),
                Err(error) => answers.push_with(|_| Err(error)),
            }
        }
    }
}

/// Whether a request is one. One without limits needs no server, and is sent all the same: its
/// answer is empty.
fn check(request: &Request<'_>) -> Result<(), StoreError> {
    if request.charges.len() > Request::CHARGES_MAX {
        return Err(StoreError::TooManyCharges);
    }
    let repeated = request.charges.iter().enumerate().any(|(index, charge)| {
        request.charges[..index].iter().any(|earlier| earlier.key == charge.key)
    });
    if repeated { Err(StoreError::RepeatedKey) } else { Ok(()) }
}
