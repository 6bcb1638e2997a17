//! Connections: sockets around [`Lane`]s, on as many threads as were asked for.
//!
//! Each thread has a runtime of its own and keeps its connections to itself, so that nothing is
//! shared while the load runs but a counter for the progress bar.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tidegate::{Clock as _, Span, SystemClock, Timestamp};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio_util::sync::CancellationToken;

use super::lane::Lane;
use super::tally::Tally;
use super::wire::{ANSWER_BYTES_MAX, Broken, Wire};

/// How long answers are awaited after the last request was due.
const GRACE: Duration = Duration::from_secs(2);
/// How many connections in a row may end without one answer before the server is given up.
const VAIN_MAX: u32 = 3;
/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timers of the runtime are exact to a millisecond or two. What is due sooner is waited for awake.
const AWAKE: Duration = Duration::from_millis(3);

/// One thread's share of the load.
pub(crate) struct Share<W> {
    pub(crate) address: SocketAddr,
    /// Each lane with its connection.
    pub(crate) lanes: Vec<(Lane<W>, std::net::TcpStream)>,
    pub(crate) end: Timestamp,
    /// Whether it waits for answers without sleeping.
    pub(crate) awake: bool,
    pub(crate) stop: CancellationToken,
    /// Answers so far, for the progress bar.
    pub(crate) answers: Arc<AtomicU64>,
}

impl<W: Wire + 'static> Share<W> {
    /// Runs to the end, or until it is stopped.
    pub(crate) fn run(self) -> io::Result<Tally> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, self.run_here())
    }

    async fn run_here(self) -> io::Result<Tally> {
        let mut tasks = JoinSet::new();
        let mut lanes = Vec::with_capacity(self.lanes.len());
        for (lane, stream) in self.lanes {
            let stream = TcpStream::from_std(stream)?;
            let lane = Rc::new(RefCell::new(lane));
            lanes.push(Rc::clone(&lane));
            let answers = Arc::clone(&self.answers);
            let talk = Talk { address: self.address, awake: self.awake, answers };
            tasks.spawn_local(talk.keep_busy(lane, stream));
        }
        let time_left = Duration::from(self.end.since(SystemClock.now())) + GRACE;
        tokio::select! {
            () = async { while tasks.join_next().await.is_some() {} } => {}
            () = self.stop.cancelled() => {}
            () = tokio::time::sleep(time_left) => {}
        }
        tasks.shutdown().await;
        let now = SystemClock.now();
        let mut tally = Tally::new();
        for lane in lanes {
            tally.add(lane.borrow_mut().close(now));
        }
        Ok(tally)
    }
}

/// A connection, in time or not at all. Small requests leave at once.
pub(crate) async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let connecting = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address));
    let stream = connecting.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// How one connection after the other is talked over.
struct Talk {
    address: SocketAddr,
    awake: bool,
    answers: Arc<AtomicU64>,
}

impl Talk {
    /// Runs a lane to its end, over as many connections as that takes.
    async fn keep_busy<W: Wire>(self, lane: Rc<RefCell<Lane<W>>>, mut stream: TcpStream) {
        let mut in_vain = 0;
        loop {
            let before = lane.borrow().tally.answers();
            let Err(end) = self.converse(&lane, &mut stream).await else { return };
            {
                let mut lane = lane.borrow_mut();
                in_vain = if lane.tally.answers() > before { 0 } else { in_vain + 1 };
                lane.broke(&end.to_string());
                if in_vain == VAIN_MAX {
                    return lane.tally.failed(1, &end.to_string());
                }
                if lane.is_done(SystemClock.now()) {
                    return;
                }
            }
            stream = match connect(self.address).await {
                Ok(stream) => stream,
                Err(error) => {
                    let why = format!("could not connect again: {error}");
                    return lane.borrow_mut().tally.failed(1, &why);
                }
            };
            lane.borrow_mut().connected();
        }
    }

    /// Sends and reads until the lane has nothing left to do.
    async fn converse<W: Wire>(
        &self,
        lane: &RefCell<Lane<W>>,
        stream: &mut TcpStream,
    ) -> Result<(), End> {
        let mut input = Input::new();
        loop {
            let now = SystemClock.now();
            let wait = {
                let mut lane = lane.borrow_mut();
                lane.fill(now);
                if lane.is_done(now) {
                    return Ok(());
                }
                if self.awake {
                    Some(Span::ZERO)
                } else {
                    lane.next_due().map(|due| due.since(now))
                }
            };
            if exchange(lane, stream, &mut input, wait).await? {
                let mut lane = lane.borrow_mut();
                let before = lane.tally.answers();
                let read = lane.read(input.bytes(), SystemClock.now()).map_err(End::Broken)?;
                input.consume(read);
                self.answers.fetch_add(lane.tally.answers() - before, Ordering::Relaxed);
            }
        }
    }
}

/// Why a connection ended before its time.
enum End {
    Io(io::Error),
    Closed,
    Broken(Broken),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "a connection broke: {error}"),
            Self::Closed => f.write_str("the server closed a connection"),
            Self::Broken(broken) => broken.fmt(f),
        }
    }
}

/// Sends what there is to send, and waits for bytes, for at most so long. Whether some came.
async fn exchange<W: Wire>(
    lane: &RefCell<Lane<W>>,
    stream: &mut TcpStream,
    input: &mut Input,
    wait: Option<Span>,
) -> Result<bool, End> {
    let asleep = wait.map(Duration::from).and_then(|wait| wait.checked_sub(AWAKE));
    let is_awake = wait.is_some() && asleep.is_none();
    let mut timer = pin!(asleep.map(tokio::time::sleep));
    let came = poll_fn(|context| {
        let out = &mut lane.borrow_mut().out;
        while !out.is_empty() {
            match Pin::new(&mut *stream).poll_write(context, out) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(End::Closed)),
                Poll::Ready(Ok(sent)) => drop(out.drain(..sent)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(End::Io(error))),
                Poll::Pending => break,
            }
        }
        let mut buffer = ReadBuf::new(input.free());
        match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => Poll::Ready(Err(End::Closed)),
            Poll::Ready(Ok(())) => {
                let came = buffer.filled().len();
                input.end += came;
                Poll::Ready(Ok(true))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(End::Io(error))),
            Poll::Pending if is_awake => Poll::Ready(Ok(false)),
            Poll::Pending => match timer.as_mut().as_pin_mut() {
                Some(timer) => timer.poll(context).map(|()| Ok(false)),
                None => Poll::Pending,
            },
        }
    })
    .await?;
    if is_awake {
        // The others get their turn, and the runtime looks at the sockets.
        tokio::task::yield_now().await;
    }
    Ok(came)
}

/// Bytes that came and are not read yet.
struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    const BYTES_FIRST: usize = 64 << 10;
    /// Beyond a longest answer there is room for its head and for what follows it.
    const BYTES_MAX: usize = 2 * ANSWER_BYTES_MAX;

    fn new() -> Self {
        Self { buffer: vec![0; Self::BYTES_FIRST], start: 0, end: 0 }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            [self.start, self.end] = [0, 0];
        }
    }

    /// Room for more: what is left of the buffer, of which there is always something.
    fn free(&mut self) -> &mut [u8] {
        if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            [self.start, self.end] = [0, self.end - self.start];
            if self.end > self.buffer.len() / 2 {
                let bytes = (self.buffer.len() * 2).min(Self::BYTES_MAX);
                self.buffer.resize(bytes.max(self.end + 1), 0);
            }
        }
        &mut self.buffer[self.end..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_read_yet_are_kept_in_order() {
        let mut input = Input::new();
        let mut next_in = 0_u8;
        let mut next_out = 0_u8;
        for round in 1..2_000 {
            for byte in input.free().iter_mut().take(round) {
                *byte = next_in;
                next_in = next_in.wrapping_add(1);
            }
            let came = round.min(input.free().len());
            input.end += came;
            let read = input.bytes().len() * 2 / 3;
            for byte in &input.bytes()[..read] {
                assert_eq!(*byte, next_out);
                next_out = next_out.wrapping_add(1);
            }
            input.consume(read);
        }
    }
}
