//! What runs a book on a store: it sends what the book has to send, and wakes those who wait for an answer.
//!
//! Takes that find something at hand never come here. What becomes due by them is sent with the next round,
//! and all that is due together goes in one pipeline; what somebody waits for is sent at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_core::{Decision, Key, Limit, Span, Timestamp};
use tidegate_store::StoreError;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::book::{Book, Call, Outcome, TICK};
use super::{TTL, Told};

/// How often what is due is sent while there are leases.
const ROUND: Duration = Duration::from_millis(2);

/// How long a request for a lease may take. It is more than a decision has: a late answer is of use to
/// those who come after.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_millis(100);

/// The most pipelines on their way. Those beyond wait, and so does what becomes due meanwhile.
const PIPELINES_MAX: usize = 64;

/// Those who wait are called by so many bells, each for its part of the keys.
const BELLS: usize = 64;

/// The leases of one node in one deployment, and those who wait for them.
pub(crate) struct Leases {
    book: Book,
    /// Somebody waits for something that is due.
    wake: Notify,
    bells: Box<[Notify]>,
    /// A time of requests, and when that was.
    clock: Mutex<(Timestamp, Instant)>,
    pipelines: Arc<Semaphore>,
    held: AtomicUsize,
}

/// A take that was decided with the help of the store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) decision: Decision,
    /// When, by the node's own clock.
    pub(crate) at: Timestamp,
    /// Whether it waited for an answer of the store.
    pub(crate) asked: bool,
}

/// Who answers requests for leases. It is a handle: all clones are the same store.
pub(crate) trait Lender: Clone + Send + Sync + 'static {
    /// The leases that it is asked for.
    fn leases(&self) -> &Leases;

    /// Sends requests, and gives the answer to each, in order.
    fn lend(
        &self,
        calls: &[Call],
        now: Timestamp,
        within: Duration,
    ) -> impl Future<Output = Vec<Result<Told, StoreError>>> + Send;
}

impl Leases {
    /// No leases yet, for the node of this number.
    pub(crate) fn new(node: u64) -> Self {
        Self {
            book: Book::new(node),
            wake: Notify::new(),
            bells: (0..BELLS).map(|_| Notify::new()).collect(),
            clock: Mutex::new((Timestamp::ZERO, Instant::now())),
            pipelines: Arc::new(Semaphore::new(PIPELINES_MAX)),
            held: AtomicUsize::new(0),
        }
    }

    /// Takes from what is at hand, if there is enough. It is to be called before anything is waited for:
    /// `now` is when the request came, and what has expired meanwhile must not be spent.
    #[inline]
    pub(crate) fn spend_at_hand(
        &self,
        key: Key,
        limit: &Limit,
        cost: u64,
        now: Timestamp,
    ) -> Option<Decision> {
        self.book.spend_at_hand(key, limit, cost, now).map(|(decision, _)| decision)
    }

    fn spend(&self, key: Key, limit: &Limit, cost: u64, now: Timestamp) -> Outcome {
        let spend = self.book.spend(key, limit, cost, now);
        let mut clock = self.clock.lock();
        // A request that comes late has a time from before.
        if now > clock.0.plus(since(clock.1)) {
            *clock = (now, Instant::now());
        }
        drop(clock);
        if spend.due {
            self.wake.notify_one();
        }
        spend.outcome
    }

    /// Takes where not enough is at hand: waits for the answers of the store until it is decided; `None`
    /// where it is to be decided strictly, at the latest at `until`.
    pub(crate) async fn take(
        &self,
        key: Key,
        limit: &Limit,
        cost: u64,
        now: Timestamp,
        until: Instant,
    ) -> Option<Taken> {
        let (began, mut asked) = (Instant::now(), false);
        loop {
            let rung = self.bell(key).notified();
            tokio::pin!(rung);
            rung.as_mut().enable();
            let now = now.plus(since(began)).max(self.now());
            let answers = match self.spend(key, limit, cost, now) {
                Outcome::Decided(decision) => return Some(Taken { decision, at: now, asked }),
                Outcome::Strict => return None,
                Outcome::Wait(answers) => answers,
            };
            let mut rang = timeout_at(until, &mut rung).await.is_ok();
            while rang && self.book.answers(key) == answers {
                // It rang for somebody else.
                rung.set(self.bell(key).notified());
                rung.as_mut().enable();
                if self.book.answers(key) == answers {
                    rang = timeout_at(until, &mut rung).await.is_ok();
                }
            }
            if !rang {
                self.book.leave_to_store(key, cost, self.now());
                return None;
            }
            asked = true;
        }
    }

    /// What is at hand, and for whom.
    pub(crate) const fn book(&self) -> &Book {
        &self.book
    }

    /// How many leases there were a moment ago.
    pub(crate) fn held(&self) -> usize {
        // ORDERING: a number for people.
        self.held.load(Ordering::Relaxed)
    }

    fn bell(&self, key: Key) -> &Notify {
        &self.bells[(key.as_hash() >> 32) as usize % BELLS]
    }

    /// The time by which requests come now.
    fn now(&self) -> Timestamp {
        let (now, at) = *self.clock.lock();
        now.plus(since(at))
    }

    /// Takes note of what the store said, or did not.
    fn learn(&self, call: &Call, answer: &Result<Told, StoreError>, now: Timestamp) {
        match answer {
            Ok(told) => {
                if self.book.answered(call.key, &call.ask, told, now) {
                    self.wake.notify_one();
                }
            }
            Err(_) => self.book.lost(call.key, &call.ask, now),
        }
        self.bell(call.key).notify_waiters();
    }
}

/// Sends what is due, for as long as there is anybody to ask.
pub(crate) async fn keep_leasing<L: Lender>(lender: L) {
    let leases = lender.leases();
    let mut ticked = Instant::now();
    loop {
        if leases.held() > 0 {
            let _ = timeout(ROUND, leases.wake.notified()).await;
        } else {
            leases.wake.notified().await;
        }
        let now = leases.now();
        if ticked.elapsed() >= Duration::from_micros(TICK.as_micros()) {
            ticked = Instant::now();
            let held = leases.book.tick(now);
            // ORDERING: it only says whether to come again soon.
            leases.held.store(held, Ordering::Relaxed);
        }
        let calls = leases.book.collect(now);
        if calls.is_empty() {
            continue;
        }
        // ORDERING: as above.
        leases.held.fetch_max(1, Ordering::Relaxed);
        let Ok(permit) = Arc::clone(&leases.pipelines).acquire_owned().await else { return };
        let lender = lender.clone();
        tokio::spawn(async move {
            send(&lender, &calls, now).await;
            drop(permit);
        });
    }
}

async fn send(lender: &impl Lender, calls: &[Call], now: Timestamp) {
    let answers = lender.lend(calls, now, ANSWER_WITHIN).await;
    let leases = lender.leases();
    let now = leases.now();
    for (call, answer) in calls.iter().zip(&answers) {
        leases.learn(call, answer, now);
    }
}

/// Gives everything back. Nothing is to be spent any more when it is called.
pub(crate) async fn close(lender: &impl Lender) {
    let (leases, until) = (lender.leases(), Instant::now() + CLOSED_WITHIN);
    let mut sent = 0;
    // What is on its way is answered first, and one that is lost is tried again, but not in a hurry: a
    // store that is away says so at once.
    while leases.book.close() > 0 && sent < CLOSING_CALLS && Instant::now() < until {
        if sent > 0 {
            tokio::time::sleep(CLOSING_PAUSE).await;
        }
        let calls = leases.book.collect(leases.now());
        if calls.is_empty() {
            let _ = timeout(ROUND, leases.wake.notified()).await;
            continue;
        }
        send(lender, &calls, leases.now()).await;
        sent += 1;
    }
}

/// How often [`close`] sends what there is to send...
const CLOSING_CALLS: usize = 4;

/// ...how long it waits before it does so again...
const CLOSING_PAUSE: Duration = Duration::from_millis(20);

/// ...and how long all of it may take: by then the leases have expired.
const CLOSED_WITHIN: Duration = Duration::from_millis(TTL.as_micros() / 1_000);

fn since(instant: Instant) -> Span {
    Span::from_micros(u64::try_from(instant.elapsed().as_micros()).unwrap_or(u64::MAX))
}
