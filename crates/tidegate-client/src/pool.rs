//! The connections to the daemon that messages take turns on, and which of them are worth it.
//!
//! The other end of a connection can go without a word: a machine that lost its power, a firewall that forgot.
//! Whatever is sent there is lost, while all is well on the next one. So failures are counted for each of them, and
//! for all together, which says whether the daemon is there. What is counted is messages, however many calls are in
//! one: they fail together.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tonic::transport::{Channel, Endpoint};

use crate::breaker::Breaker;
use crate::error::ClientError;

/// After so many failures in a row the daemon counts as away.
const FAILURES_MAX: u32 = 5;

/// After so many failures in a row a line is left out while there are others. One alone may be chance.
const LINE_FAILURES_MAX: u32 = 2;

#[derive(Debug)]
pub(crate) struct Pool {
    endpoint: Endpoint,
    lines: Vec<Line>,
    next: AtomicUsize,
    /// Over all lines.
    breaker: Breaker,
}

/// A connection, and the one that takes its place.
#[derive(Debug)]
struct Line {
    connection: Mutex<Connection>,
    breaker: Breaker,
}

/// It is made when it is used first, and again where it was closed.
#[derive(Clone, Debug)]
struct Connection {
    channel: Channel,
    /// How many there were before on the same line.
    number: u64,
}

impl Pool {
    pub(crate) fn new(endpoint: Endpoint, connections: usize) -> Self {
        let now = Instant::now();
        let line = |_| {
            let connection = Connection { channel: endpoint.connect_lazy(), number: 0 };
            let breaker = Breaker::new(now, LINE_FAILURES_MAX);
            Line { connection: Mutex::new(connection), breaker }
        };
        let lines = (0..connections).map(line).collect();
        let breaker = Breaker::new(now, FAILURES_MAX);
        Self { endpoint, lines, next: AtomicUsize::new(0), breaker }
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether this call may ask, since the daemon is there or somebody has to try.
    pub(crate) fn may_ask(&self) -> bool {
        self.breaker.may_ask(Instant::now())
    }

    /// Sends one message, whose answer has to come within the deadline.
    pub(crate) async fn send<T, F: Future<Output = Result<T, ClientError>>>(
        &self,
        deadline: Duration,
        sending: impl FnOnce(Channel) -> F,
    ) -> Result<T, ClientError> {
        let line = self.line();
        let Connection { channel, number } = line.connection().clone();
        let sent = timeout(deadline, sending(channel)).await;
        let sent = sent.unwrap_or(Err(ClientError::NoAnswer));
        if let Err(error @ (ClientError::Unavailable | ClientError::NoAnswer)) = &sent {
            line.failed(number, *error, &self.endpoint);
            if self.breaker.failed(Instant::now()) {
                tracing::warn!(%error, "the daemon counts as away");
            }
        } else {
            line.answered(number);
            if self.breaker.answered() {
                tracing::info!("the daemon answers again");
            }
        }
        sent
    }

    /// The next one that is worth asking, or else the next one.
    fn line(&self) -> &Line {
        // ORDERING: it does not matter who gets which.
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let (now, count) = (Instant::now(), self.lines.len());
        let mut in_turn = (0..count).map(|after| &self.lines[next.wrapping_add(after) % count]);
        in_turn.find(|line| line.breaker.may_ask(now)).unwrap_or(&self.lines[next % count])
    }
}

impl Line {
    fn answered(&self, number: u64) {
        // What is heard of the one before says nothing about this one.
        if self.connection().number == number {
            self.breaker.answered();
        }
    }

    fn failed(&self, number: u64, error: ClientError, endpoint: &Endpoint) {
        let mut connection = self.connection();
        if connection.number != number {
            return;
        }
        self.breaker.failed(Instant::now());
        // One that cannot be made is made again by itself. One that is silent would be so for the next try too.
        if error == ClientError::NoAnswer && self.breaker.is_away() {
            *connection = Connection { channel: endpoint.connect_lazy(), number: number + 1 };
        }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
