//! The connections of HTTP/2 to one upstream, which all requests share: who gets a stream of which of them, who waits for
//! one, and when another is made. Whoever waits does so here and not in a connection, so that the first stream of any of
//! them is for who has waited longest, and nothing has left of a request that is waiting.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use super::connect::{Connector, Protocol, Wire};
use super::pool::Open;
use super::two::{STREAMS_MAX_UNTIL_TOLD, Stream, Two};

/// How long no further connection is tried for where one could not be made, or went at once, as long as another is there.
const REST: Duration = Duration::from_secs(1);

/// The connections that all share. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Shared(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    connector: Connector,
    open: Arc<AtomicUsize>,
    /// Set where the upstream is known to speak HTTP/1, so that there is nothing to share.
    is_unshared: AtomicBool,
    /// How many streams the upstream said last that it takes on a connection. It is taken at its word on the next.
    streams_max: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The first that has room is used, so that the last ones are those that are needed no more.
    connections: Vec<Two>,
    /// Nobody waits while a connection has room.
    waiting: VecDeque<oneshot::Sender<io::Result<Turn>>>,
    is_making_first: bool,
    is_making_further: bool,
    rests_until: Option<Instant>,
    /// Until when no connection is given up because the server refuses streams of it.
    bears_until: Option<Instant>,
    /// Whether somebody asks again when that is over.
    is_rest_watched: bool,
    /// How long making one may take: the longest that anybody was ready to wait for.
    within: Duration,
    /// Those that are used no more. They are dropped while nothing is locked, since what may be left in them is a stream.
    gone: Vec<Two>,
}

/// What somebody gets who asked for a stream.
#[derive(Debug)]
pub(super) enum Turn {
    /// A stream, and whether it is the first of its connection.
    Stream(Two, Stream, bool),
    /// A connection to an upstream that turned out to speak HTTP/1, and is for one request at a time.
    Alone(Wire, Open),
    /// The same upstream; others have to connect by themselves.
    Unshared,
}

/// Told by connections when there may be more room on them.
#[derive(Clone, Debug, Default)]
pub(super) struct Bell(Weak<Inner>);

/// Somebody who waits, until this is dropped.
struct Waiting<'a> {
    inner: &'a Inner,
    turn: oneshot::Receiver<io::Result<Turn>>,
    is_served: bool,
}

/// A connection is being made, until this is dropped.
struct Making {
    inner: Arc<Inner>,
    is_first: bool,
}

/// What those that wait need besides room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    Nothing,
    /// A connection, which is the first or a further one.
    First,
    Further,
    /// A further one, which is not tried before then.
    Later(Instant),
}

/// What was made.
enum Made {
    Shared(Two),
    Alone(Wire, Open),
}

impl Shared {
    pub(super) fn new(connector: Connector, open: Arc<AtomicUsize>) -> Self {
        let is_unshared = AtomicBool::new(connector.url.protocol == Protocol::One);
        let streams_max = AtomicUsize::new(STREAMS_MAX_UNTIL_TOLD);
        let state = Mutex::default();
        Self(Arc::new(Inner { connector, open, is_unshared, streams_max, state }))
    }

    /// A stream on a connection over which the upstream takes one more, which is waited for. Where there is no connection one
    /// is made, and waited for no longer than `within`.
    pub(super) async fn stream(&self, within: Duration) -> io::Result<Turn> {
        // ORDERING: the flag stands for itself, here and below.
        if self.0.is_unshared.load(Ordering::Relaxed) {
            return Ok(Turn::Unshared);
        }
        let turn = self.0.with(|state| {
            state.within = state.within.max(within);
            if state.waiting.is_empty()
                && let Some(two) = state.with_room()
            {
                return Ok(Turn::of(two));
            }
            let (gives, turn) = oneshot::channel();
            state.waiting.push_back(gives);
            Err(turn)
        });
        let turn = match turn {
            Ok(turn) => return Ok(turn),
            Err(turn) => turn,
        };
        let mut waiting = Waiting { inner: &self.0, turn, is_served: false };
        self.0.settle();
        let turn = match timeout(within, &mut waiting.turn).await {
            Ok(turn) => turn,
            Err(late) if self.0.with(State::is_without) => return Err(late.into()),
            Err(_) => (&mut waiting.turn).await,
        };
        waiting.is_served = true;
        turn.unwrap_or_else(|_| Err(io::ErrorKind::NotConnected.into()))
    }

    /// Shares a connection of HTTP/2 that was made for somebody alone.
    pub(super) async fn adopt(&self, wire: Wire, open: Open) -> io::Result<Turn> {
        let (two, _heard) = self.0.speak(wire, open).await?;
        let turn = Turn::of(&two);
        self.0.with(|state| state.connections.push(two));
        self.0.is_unshared.store(false, Ordering::Relaxed);
        self.0.settle();
        Ok(turn)
    }

    /// Has no further request use the connection of this stream. What is under way on it goes on.
    pub(super) fn retire(&self, stream: &Stream) {
        self.0.with(|state| state.forget(|two| two.carries(stream)));
        self.0.settle();
    }

    /// The server refuses this stream: it may take fewer than it has said so far, and the next connection begins with what it says
    /// now. Where that was tried a moment ago it has enough to do, of which each further connection would be more.
    pub(super) fn refuse(&self, stream: &Stream) {
        let now = Instant::now();
        let is_tried = self.0.with(|state| {
            let is_tried = state.bears_until.is_some_and(|until| now < until);
            if !is_tried {
                state.bears_until = Some(now + REST);
            }
            is_tried
        });
        if !is_tried {
            self.retire(stream);
        }
    }

    /// Closes the connections that nobody used for so long, or all that nobody uses. The first of them is kept, unless it takes
    /// no streams.
    pub(super) fn sweep(&self, idle: Option<(Instant, Duration)>) {
        self.0.with(|state| {
            state.forget_ended();
            let mut is_first = true;
            let is_over = |two: &mut Two| {
                let is_over = match idle {
                    Some((now, timeout)) => two.is_idle_for(now, timeout),
                    None => two.is_idle(),
                };
                let is_kept = std::mem::take(&mut is_first) && two.streams_max() > 0;
                !is_kept && is_over
            };
            let over = state.connections.extract_if(.., is_over);
            state.gone.extend(over);
        });
        self.0.settle();
    }
}

impl Inner {
    fn with<T>(&self, does: impl FnOnce(&mut State) -> T) -> T {
        let (done, gone) = {
            let mut state = self.state.lock();
            (does(&mut state), std::mem::take(&mut state.gone))
        };
        drop(gone);
        done
    }

    /// Gives those that wait what there is room for, and has another connection made where that is not enough. It is asked
    /// for whenever something has changed.
    fn settle(self: &Arc<Self>) {
        // Without one nobody waits any more.
        let runtime = tokio::runtime::Handle::try_current().ok();
        let (left, lack, within) = self.with(|state| {
            let left = state.give_turns();
            let lack = if runtime.is_some() { state.lack() } else { Lack::Nothing };
            match lack {
                Lack::Nothing => {}
                Lack::First => state.is_making_first = true,
                Lack::Further => state.is_making_further = true,
                Lack::Later(_) => state.is_rest_watched = true,
            }
            (left, lack, state.within)
        });
        // Neither of these may happen while it is locked: the stream in a turn that is dropped asks for this again, and a
        // runtime that is about to end drops what is spawned.
        drop(left);
        let (Some(runtime), inner) = (runtime, Arc::clone(self)) else { return };
        match lack {
            Lack::Nothing => {}
            Lack::First | Lack::Further => {
                let making = Making { inner, is_first: lack == Lack::First };
                drop(runtime.spawn(making.make(within)));
            }
            Lack::Later(until) => drop(runtime.spawn(async move {
                sleep_until(until).await;
                inner.with(|state| state.is_rest_watched = false);
                inner.settle();
            })),
        }
    }

    async fn connect(self: &Arc<Self>, is_first: bool) -> io::Result<Made> {
        let (wire, is_two) = self.connector.connect(false).await?;
        let open = Open::new(&self.open);
        if !is_two {
            return Ok(Made::Alone(wire, open));
        }
        let (two, heard) = self.speak(wire, open).await?;
        // The system takes connections for a server that takes none any more, and what stands in front of it may close them.
        // As long as there is another one, requests are not sent to see.
        if !is_first && heard.await.is_err() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Made::Shared(two))
    }

    async fn speak(
        self: &Arc<Self>,
        wire: Wire,
        open: Open,
    ) -> io::Result<(Two, oneshot::Receiver<()>)> {
        let streams_max = self.streams_max.load(Ordering::Relaxed);
        Two::open(wire, streams_max, open, Bell(Arc::downgrade(self))).await
    }
}

impl Making {
    async fn make(self, within: Duration) {
        let inner = Arc::clone(&self.inner);
        let made = timeout(within, inner.connect(self.is_first)).await;
        let made = made.unwrap_or_else(|late| Err(late.into()));
        let is_unshared = inner.with(|state| state.take(made, self.is_first));
        if is_unshared {
            inner.is_unshared.store(true, Ordering::Relaxed);
        }
        drop(self);
        inner.settle();
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.inner.with(|state| {
            let is_making = if self.is_first {
                &mut state.is_making_first
            } else {
                &mut state.is_making_further
            };
            *is_making = false;
        });
    }
}

impl State {
    fn with_room(&mut self) -> Option<&Two> {
        self.forget_ended();
        self.connections.iter().find(|two| two.has_room())
    }

    fn forget_ended(&mut self) {
        self.forget(|two| !two.sender.is_ready());
    }

    /// One that goes before it has brought a single answer is no better than one that could not be made.
    fn forget(&mut self, is_gone: impl Fn(&Two) -> bool) {
        let gone = self.connections.extract_if(.., |two| is_gone(two)).collect::<Vec<_>>();
        if gone.iter().any(|two| !two.is_proven()) {
            self.rest();
        }
        self.gone.extend(gone);
    }

    fn is_without(&mut self) -> bool {
        self.forget_ended();
        self.connections.is_empty()
    }

    fn rest(&mut self) {
        self.rests_until = Some(Instant::now() + REST);
    }

    /// What nobody is left for is handed back: it must not be dropped while this is locked.
    fn give_turns(&mut self) -> Option<Turn> {
        self.forget_ended();
        while !self.waiting.is_empty()
            && let Some(two) = self.with_room()
        {
            let mut turn = Turn::of(two);
            loop {
                let Some(gives) = self.waiting.pop_front() else { return Some(turn) };
                match gives.send(Ok(turn)) {
                    Err(Ok(back)) => turn = back,
                    _ => break,
                }
            }
        }
        None
    }

    /// A server that takes no stream at all on one connection is not asked by another whether it takes any there.
    fn lack(&self) -> Lack {
        if self.waiting.is_empty() || self.is_making_first {
            return Lack::Nothing;
        }
        // One that is being made may be waited for in vain, and nothing else is there now.
        if self.connections.is_empty() {
            return Lack::First;
        }
        if self.is_making_further {
            return Lack::Nothing;
        }
        if self.connections.iter().any(|two| two.streams_max() == 0) {
            return Lack::Nothing;
        }
        match self.rests_until.filter(|until| Instant::now() < *until) {
            None => Lack::Further,
            Some(_) if self.is_rest_watched => Lack::Nothing,
            Some(until) => Lack::Later(until),
        }
    }

    /// Notes what was made, or why nothing was, and says whether there is nothing to share.
    fn take(&mut self, made: io::Result<Made>, is_first: bool) -> bool {
        let is_without = self.is_without();
        match made {
            Ok(Made::Shared(two)) => self.connections.push(two),
            Ok(Made::Alone(wire, open)) => {
                let mut turn = Turn::Alone(wire, open);
                while let Some(gives) = self.waiting.pop_front() {
                    match gives.send(Ok(turn)) {
                        // Who has gone needs none.
                        Err(Ok(back)) => turn = back,
                        _ if is_without => turn = Turn::Unshared,
                        // Those that are there may be the last of their kind, or this the only one of its own.
                        _ => break,
                    }
                }
                if !is_without {
                    self.rest();
                }
                return is_without;
            }
            Err(error) if is_first && is_without => {
                let error = Arc::new(error);
                for gives in self.waiting.drain(..) {
                    let error = io::Error::new(error.kind(), Arc::clone(&error));
                    // Whoever has gone wants to know no more.
                    let _ = gives.send(Err(error));
                }
            }
            // Those that are there have room again in a while.
            Err(error) => {
                tracing::debug!(%error, "no further connection of HTTP/2 to an upstream");
                self.rest();
            }
        }
        false
    }
}

impl Turn {
    fn of(two: &Two) -> Self {
        let (stream, is_new) = two.begin();
        Self::Stream(two.clone(), stream, is_new)
    }
}

impl Bell {
    /// There may be more room, or less.
    pub(super) fn ring(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.settle();
        }
    }

    /// The upstream says how many streams it takes.
    pub(super) fn told(&self, streams_max: usize) {
        if let Some(inner) = self.0.upgrade() {
            let said = match streams_max {
                // That is said of one connection, which may be about to end.
                0 => None,
                usize::MAX => Some(STREAMS_MAX_UNTIL_TOLD),
                max => Some(max),
            };
            if let Some(max) = said {
                // ORDERING: the number stands for itself.
                inner.streams_max.store(max, Ordering::Relaxed);
            }
            inner.settle();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.is_served {
            self.turn.close();
            self.inner.with(|state| state.waiting.retain(|gives| !gives.is_closed()));
        }
    }
}
