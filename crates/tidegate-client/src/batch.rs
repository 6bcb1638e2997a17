//! Calls that are made at the same time, sent together: one message for all of them, and one answer.
//!
//! Nobody waits for company that does not come, unless settings have it linger. The first call of a batch lets
//! whoever is about to call do so, for as long as more keep coming and the window is open; and while enough batches
//! are under way, the next one gathers. So a call that comes within the window of another may go alone, but only
//! while the connections have room for both.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message as _;
use tidegate_proto::tidegate::v1::limiter_client::LimiterClient;
use tidegate_proto::tidegate::v1::{CheckRequest, CheckResponse, CheckResult, check_result};
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use crate::client::{of_check, within};
use crate::config::ClientBuilder;
use crate::error::ClientError;
use crate::pause::pause;
use crate::pool::Pool;
use crate::tell::Teller;

/// The most calls of one message, which is the daemon's bound.
const CALLS_MAX: usize = 1_000;
/// The most bytes of one message. The daemon takes 64 KiB; each call has a few bytes around it.
const BYTES_MAX: usize = 60 << 10;
const BYTES_PER_CALL: usize = 8;
/// The most bytes that the answer to one call may have. It names the limits that the call met, mostly 16 at the most,
/// with a few hundred bytes each.
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// The most calls that wait to be sent; others wait until there is room.
const QUEUE_MAX: usize = 65_536;
/// How many batches may be under way on one connection.
const UNDER_WAY_PER_CONNECTION: usize = 2;

/// Gathers calls, and sends them.
#[derive(Debug)]
pub(crate) struct Batches {
    pool: Arc<Pool>,
    teller: Arc<Teller>,
    /// Where the connections live. That of a caller may end, or stand still, while others wait.
    home: Handle,
    /// Zero where each call is sent by itself.
    window: Duration,
    /// How long the first call of a batch waits in any case.
    linger: Duration,
    deadline: Duration,
    queue: Mutex<Queue>,
    /// Told when there is as much as goes into one message, or a call that lingers no more.
    is_due: Notify,
    /// For calls that wait to be sent, and for those that are sent alone until they are answered.
    room: Arc<Semaphore>,
    /// How many messages were answered so far.
    answered: AtomicU64,
    under_way: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Queue {
    calls: VecDeque<Waiting>,
    /// How much room they take in messages.
    bytes: usize,
    /// How many calls have come here so far, and how many have left again. They leave in their order, so a call
    /// has left once as many have as had come before it, and one more.
    came: u64,
    left: u64,
    /// Whether somebody is gathering.
    is_attended: bool,
}

#[derive(Debug)]
struct Waiting {
    /// A `CheckRequest`, encoded.
    call: Bytes,
    reply: oneshot::Sender<Result<Heard, ClientError>>,
    /// When its caller came, who may be asking again.
    since: Instant,
}

/// What the daemon said to one call. Each caller decodes its own.
#[derive(Debug)]
enum Heard {
    /// A `CheckResult`, encoded, of a message with others.
    Together(Bytes),
    Alone(Box<CheckResponse>),
}

/// A caller that waits for its answer.
struct Listening<'a> {
    teller: &'a Arc<Teller>,
    call: Bytes,
    answer: oneshot::Receiver<Result<Heard, ClientError>>,
}

/// A `CheckManyRequest` whose calls are encoded already: on the wire, messages are bytes with a length. Each
/// caller encodes and decodes its own, so that what travels between tasks is small.
#[derive(Clone, PartialEq, prost::Message)]
struct Calls {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    checks: Vec<Bytes>,
}

/// A `CheckManyResponse`, in the same way.
#[derive(Clone, PartialEq, prost::Message)]
struct Results {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    results: Vec<Bytes>,
}

impl Batches {
    pub(crate) fn new(pool: Arc<Pool>, teller: Arc<Teller>, settings: &ClientBuilder) -> Arc<Self> {
        let ClientBuilder { window, linger, deadline, .. } = *settings;
        let under_way = Arc::new(Semaphore::new(pool.len() * UNDER_WAY_PER_CONNECTION));
        let room = Arc::new(Semaphore::new(QUEUE_MAX));
        Arc::new(Self {
            pool,
            teller,
            home: Handle::current(),
            window,
            linger,
            deadline,
            queue: Mutex::default(),
            is_due: Notify::new(),
            room,
            answered: AtomicU64::new(0),
            under_way,
        })
    }

    /// Sends a call, an encoded `CheckRequest`, with others if that is wanted, and waits for its answer until then.
    /// Lingering is over once its caller has waited for so long since it came. What was taken for a caller that does not
    /// wait any more is given back.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        call: Bytes,
        since: Instant,
        until: Instant,
    ) -> Result<CheckResponse, ClientError> {
        // The daemon would not read it, nor anything that is in the same message.
        if call.len() + BYTES_PER_CALL > BYTES_MAX {
            return Err(ClientError::Call);
        }
        // ORDERING: the number guards nothing but itself.
        let answered_before = self.answered.load(Ordering::Relaxed);
        let room = timeout_at(until, Arc::clone(&self.room).acquire_owned()).await;
        let Ok(Ok(room)) = room else { return Err(self.not_sent(answered_before)) };
        let (reply, answer) = oneshot::channel();
        let mut listening = Listening { teller: &self.teller, call: call.clone(), answer };
        let waiting = Waiting { call, reply, since };
        let place = if self.window.is_zero() {
            self.home.spawn(Arc::clone(self).send_alone(waiting, room));
            None
        } else {
            Some(self.queue_up(waiting, room))
        };
        if let Ok(heard) = timeout_at(until, &mut listening.answer).await {
            // Without an answer whoever had the call has come to an end.
            return heard.unwrap_or(Err(ClientError::NoAnswer))?.read();
        }
        let queue = self.queue();
        if place.is_none_or(|place| queue.left > place) {
            return Err(ClientError::NoAnswer);
        }
        // While nobody takes from the queue, so that it is not sent any more.
        listening.answer.close();
        Err(self.not_sent(answered_before))
    }

    /// Of a call whose time is over. Where somebody else was answered meanwhile the daemon is not away: there are
    /// too many calls.
    fn not_sent(&self, answered_before: u64) -> ClientError {
        // ORDERING: the number guards nothing but itself.
        if self.answered.load(Ordering::Relaxed) == answered_before {
            ClientError::Unavailable
        } else {
            ClientError::Busy
        }
    }

    /// Has the call sent with others. Says how many came before it.
    fn queue_up(self: &Arc<Self>, waiting: Waiting, room: OwnedSemaphorePermit) -> u64 {
        // Whoever takes it from the queue makes room again.
        room.forget();
        let has_lingered = !self.linger.is_zero() && waiting.since.elapsed() >= self.linger;
        let mut queue = self.queue();
        queue.bytes += waiting.bytes();
        queue.calls.push_back(waiting);
        queue.came += 1;
        if queue.is_full() || has_lingered {
            self.is_due.notify_waiters();
        }
        if !std::mem::replace(&mut queue.is_attended, true) {
            self.home.spawn(Arc::clone(self).gather());
        }
        queue.came - 1
    }

    /// Sends until nothing is left to send.
    async fn gather(self: Arc<Self>) {
        loop {
            self.wait_for_company().await;
            let permit = Arc::clone(&self.under_way).acquire_owned().await;
            self.linger().await;
            let (Ok(permit), Some(batch)) = (permit, self.next_batch()) else { return };
            tokio::spawn(Arc::clone(&self).send(batch, permit));
        }
    }

    async fn wait_for_company(&self) {
        let opened_at = Instant::now();
        let mut before = 0;
        loop {
            let count = self.queue().calls.len();
            if count <= before || count >= CALLS_MAX || opened_at.elapsed() >= self.window {
                return;
            }
            before = count;
            tokio::task::yield_now().await;
        }
    }

    /// Waits for calls that nobody is about to make yet, until the first that is there has waited long enough.
    async fn linger(&self) {
        if self.linger.is_zero() {
            return;
        }
        // Whoever comes after the look at the queue finds somebody to be told.
        let is_due = self.is_due.notified();
        let left = self.queue().first_waits(self.linger);
        if !left.is_zero() {
            tokio::select! {
                () = pause(left) => {}
                () = is_due => {}
            }
        }
    }

    /// As many calls as go into one message. `None` where there are none, and then nobody attends any more.
    fn next_batch(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue();
        let mut batch = Vec::with_capacity(queue.calls.len().min(CALLS_MAX));
        let mut bytes = 0;
        while let Some(next) = queue.calls.front() {
            bytes += next.bytes();
            if batch.len() == CALLS_MAX || (bytes > BYTES_MAX && !batch.is_empty()) {
                break;
            }
            let Some(next) = queue.calls.pop_front() else { break };
            queue.left += 1;
            queue.bytes -= next.bytes();
            self.room.add_permits(1);
            // Nobody takes from a limit for a caller that has given up.
            if !next.reply.is_closed() {
                batch.push(next);
            }
        }
        queue.is_attended = !batch.is_empty();
        (!batch.is_empty()).then_some(batch)
    }

    async fn send(self: Arc<Self>, batch: Vec<Waiting>, _permit: OwnedSemaphorePermit) {
        let checks = batch.iter().map(|waiting| waiting.call.clone()).collect();
        let request = within(Calls { checks }, self.deadline);
        let asked = self.pool.send(self.deadline, |channel| check_many(channel, request)).await;
        // Which answer is whose is known by their order alone.
        let results = match asked {
            Ok(results) if results.len() != batch.len() => Err(ClientError::NoAnswer),
            asked => asked,
        };
        match results {
            Ok(results) => {
                self.note_answer();
                for (waiting, result) in batch.into_iter().zip(results) {
                    waiting.answer(Ok(Heard::Together(result)), &self.teller);
                }
            }
            Err(error) => {
                for waiting in batch {
                    waiting.answer(Err(error), &self.teller);
                }
            }
        }
    }

    /// It is a task of its own so that the answer is heard even where the caller does not wait for it.
    async fn send_alone(self: Arc<Self>, waiting: Waiting, _room: OwnedSemaphorePermit) {
        // It was encoded here.
        let Ok(request) = CheckRequest::decode(waiting.call.clone()) else { return };
        let deadline = self.deadline;
        let checking = async |channel| {
            let checked = LimiterClient::new(channel).check(within(request, deadline)).await;
            checked.map_err(|status| of_check(&status))
        };
        let checked = self.pool.send(deadline, checking).await;
        if checked.is_ok() {
            self.note_answer();
        }
        let heard = checked.map(|response| Heard::Alone(Box::new(response.into_inner())));
        waiting.answer(heard, &self.teller);
    }

    fn note_answer(&self) {
        // ORDERING: the number guards nothing but itself.
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `Limiter.CheckMany`, as the generated client would call it.
async fn check_many(channel: Channel, request: Request<Calls>) -> Result<Vec<Bytes>, ClientError> {
    const PATH: &str = "/tidegate.v1.Limiter/CheckMany";
    let answers_bytes_max = request.get_ref().checks.len() * ANSWER_BYTES_MAX;
    let mut to = Grpc::new(channel).max_decoding_message_size(answers_bytes_max);
    to.ready().await.map_err(|_| ClientError::Unavailable)?;
    let codec = ProstCodec::<Calls, Results>::default();
    let answered = to.unary(request, PathAndQuery::from_static(PATH), codec).await;
    let results = answered.map(|response| response.into_inner().results);
    results.map_err(|status| ClientError::of_code(status.code()))
}

impl Queue {
    /// Whether there is more than a message takes, or as much.
    fn is_full(&self) -> bool {
        self.calls.len() >= CALLS_MAX || self.bytes > BYTES_MAX
    }

    /// How much longer the call waits whose caller came first, where it is to wait for so long; no longer where a message
    /// is full. One that is tried again may stand behind others.
    fn first_waits(&self, time: Duration) -> Duration {
        match self.calls.iter().map(|call| call.since).min() {
            Some(since) if !self.is_full() => time.saturating_sub(since.elapsed()),
            _ => Duration::ZERO,
        }
    }
}

impl Waiting {
    /// How much room it takes in a message.
    fn bytes(&self) -> usize {
        self.call.len() + BYTES_PER_CALL
    }

    fn answer(self, heard: Result<Heard, ClientError>, teller: &Arc<Teller>) {
        if let Err(Ok(unheard)) = self.reply.send(heard) {
            unheard.give_back(self.call, teller);
        }
    }
}

impl Drop for Listening<'_> {
    /// The answer may have come just before the caller went. Where it was read there is none.
    fn drop(&mut self) {
        self.answer.close();
        if let Ok(Ok(unheard)) = self.answer.try_recv() {
            unheard.give_back(std::mem::take(&mut self.call), self.teller);
        }
    }
}

impl Heard {
    fn read(self) -> Result<CheckResponse, ClientError> {
        let encoded = match self {
            Self::Alone(response) => return Ok(*response),
            Self::Together(encoded) => encoded,
        };
        // What cannot be read is as good as no answer.
        let result = CheckResult::decode(encoded).map_err(|_| ClientError::NoAnswer)?;
        match result.of {
            Some(check_result::Of::Response(response)) => Ok(response),
            // The daemon is there, and could not decide this one call.
            Some(check_result::Of::Failure(failure)) => Err(match Code::from(failure.code) {
                Code::Unavailable => ClientError::Undecided,
                code => ClientError::of_code(code),
            }),
            None => Err(ClientError::NoAnswer),
        }
    }

    fn give_back(self, call: Bytes, teller: &Arc<Teller>) {
        if let Ok(response) = self.read() {
            teller.give_back(call, response);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const LINGER: Duration = Duration::from_millis(100);
    const LATER: Duration = Duration::from_millis(30);
    const LEFT: Duration = Duration::from_millis(70);

    fn waiting() -> Waiting {
        Waiting { call: Bytes::new(), reply: oneshot::channel().0, since: Instant::now() }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_call_lingers_from_when_it_came() {
        let mut queue = Queue::default();
        assert_eq!(queue.first_waits(LINGER), Duration::ZERO, "there is none");
        queue.calls.push_back(waiting());
        advance(LATER).await;
        queue.calls.push_back(waiting());
        assert_eq!(queue.first_waits(LINGER), LEFT);
        queue.calls.rotate_left(1);
        assert_eq!(queue.first_waits(LINGER), LEFT, "it stands behind another");
        queue.calls.pop_back();
        assert_eq!(queue.first_waits(LINGER), LINGER);
        advance(2 * LINGER).await;
        assert_eq!(queue.first_waits(LINGER), Duration::ZERO, "it has waited for something else");
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_lingers_where_a_message_is_full() {
        let mut queue =
            Queue { calls: (0..CALLS_MAX).map(|_| waiting()).collect(), ..Queue::default() };
        assert_eq!(queue.first_waits(LINGER), Duration::ZERO, "of calls");
        queue.calls.truncate(1);
        assert_eq!(queue.first_waits(LINGER), LINGER);
        queue.bytes = BYTES_MAX + 1;
        assert_eq!(queue.first_waits(LINGER), Duration::ZERO, "of bytes");
    }
}
