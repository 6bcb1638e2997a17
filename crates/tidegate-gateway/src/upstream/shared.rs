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
    is_making: bool,
    rests_until: Option<Instant>,
    /// Whether somebody asks again when that is over.
    is_rest_watched: bool,
    /// How long making one may take.
    within: Duration,
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
}

/// A connection is being made, until this is dropped.
struct Making(Arc<Inner>);

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
    /// is made, and that is waited for no longer than `within`.
    pub(super) async fn stream(&self, within: Duration) -> io::Result<Turn> {
        // ORDERING: the flag stands for itself, here and below.
        if self.0.is_unshared.load(Ordering::Relaxed) {
            return Ok(Turn::Unshared);
        }
        let turn = {
            let mut state = self.0.state.lock();
            state.within = within;
            if state.waiting.is_empty()
                && let Some(two) = state.with_room()
            {
                return Ok(Turn::of(two));
            }
            let (gives, turn) = oneshot::channel();
            state.waiting.push_back(gives);
            turn
        };
        let mut waiting = Waiting { inner: &self.0, turn };
        self.0.settle();
        (&mut waiting.turn).await.unwrap_or_else(|_| Err(io::ErrorKind::NotConnected.into()))
    }

    /// Shares a connection of HTTP/2 that was made for somebody alone.
    pub(super) async fn adopt(&self, wire: Wire, open: Open) -> io::Result<Turn> {
        let (two, _heard) = self.0.speak(wire, open).await?;
        let turn = Turn::of(&two);
        self.0.state.lock().connections.push(two);
        self.0.is_unshared.store(false, Ordering::Relaxed);
        Ok(turn)
    }

    /// Has no further request use this connection. What is under way on it goes on.
    pub(super) fn retire(&self, two: &Two) {
        self.0.state.lock().forget(|shared| shared.is(two));
        self.0.settle();
    }

    /// Closes the connections that nobody used for so long, or all that nobody uses. The first of them is kept.
    pub(super) fn sweep(&self, idle: Option<(Instant, Duration)>) {
        let mut state = self.0.state.lock();
        state.forget_ended();
        let mut is_first = true;
        state.connections.retain(|two| {
            let is_over = match idle {
                Some((now, timeout)) => two.is_idle_for(now, timeout),
                None => two.is_idle(),
            };
            std::mem::take(&mut is_first) || !is_over
        });
    }
}

impl Inner {
    /// Gives those that wait what there is room for, and has another connection made where that is not enough. It is asked
    /// for whenever something has changed.
    fn settle(self: &Arc<Self>) {
        let (left, lack, within) = {
            let mut state = self.state.lock();
            let left = state.give_turns();
            let lack = state.lack();
            match lack {
                Lack::Nothing => {}
                Lack::First | Lack::Further => state.is_making = true,
                Lack::Later(_) => state.is_rest_watched = true,
            }
            (left, lack, state.within)
        };
        // Neither of these may happen while it is locked: the stream in a turn that is dropped asks for this again, and a
        // runtime that is about to end drops what is spawned.
        drop(left);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let inner = Arc::clone(self);
        match lack {
            Lack::Nothing => {}
            Lack::First | Lack::Further => {
                drop(runtime.spawn(Making(inner).make(lack == Lack::First, within)));
            }
            Lack::Later(until) => drop(runtime.spawn(async move {
                sleep_until(until).await;
                inner.state.lock().is_rest_watched = false;
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
    async fn make(self, is_first: bool, within: Duration) {
        let inner = Arc::clone(&self.0);
        let made = timeout(within, inner.connect(is_first)).await;
        inner.state.lock().take(made.unwrap_or_else(|late| Err(late.into())), &inner);
        drop(self);
        inner.settle();
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.0.state.lock().is_making = false;
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
        let mut is_in_vain = false;
        self.connections.retain(|two| {
            let is_gone = is_gone(two);
            is_in_vain |= is_gone && !two.is_proven();
            !is_gone
        });
        if is_in_vain {
            self.rest();
        }
    }

    fn rest(&mut self) {
        self.rests_until = Some(Instant::now() + REST);
    }

    /// What nobody is left for is handed back: it must not be dropped while this is locked.
    fn give_turns(&mut self) -> Option<Turn> {
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
        if self.waiting.is_empty() || self.is_making {
            return Lack::Nothing;
        }
        if self.connections.is_empty() {
            return Lack::First;
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

    /// Notes what was made, or why nothing was.
    fn take(&mut self, made: io::Result<Made>, inner: &Inner) {
        self.forget_ended();
        match made {
            Ok(Made::Shared(two)) => self.connections.push(two),
            Ok(Made::Alone(wire, open)) => {
                inner.is_unshared.store(true, Ordering::Relaxed);
                let mut turn = Turn::Alone(wire, open);
                for gives in self.waiting.drain(..) {
                    if let Err(Ok(Turn::Alone(wire, open))) = gives.send(Ok(turn)) {
                        turn = Turn::Alone(wire, open);
                    } else {
                        turn = Turn::Unshared;
                    }
                }
            }
            Err(error) if self.connections.is_empty() => {
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
            // None at all is said of one connection, which may be about to end.
            if streams_max > 0 {
                // ORDERING: the number stands for itself.
                inner.streams_max.store(streams_max, Ordering::Relaxed);
            }
            inner.settle();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.turn.close();
        self.inner.state.lock().waiting.retain(|gives| !gives.is_closed());
    }
}
