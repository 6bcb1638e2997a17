//! Bodies on their way: that of a request with its bounds, and that of a response with what is to be done
//! at its end. Both pass frame by frame, trailers included, and nothing is gathered.

use std::cell::Cell;
use std::error::Error as StdError;
use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, Version};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::files::Reading;
use crate::forward::ended::Ended;
use crate::forward::{hop, origin};
use crate::problem::Problem;
use crate::route::Bounds;

/// The body of a request on its way to an upstream.
#[derive(Debug)]
pub(crate) struct RequestBody {
    /// `None` is a body of nothing.
    inner: Option<Bounded>,
}

#[derive(Debug)]
struct Bounded {
    body: Coming,
    /// How many bytes it may still have.
    left: u64,
    patience: Patience,
    /// For all of it, where there is a bound on that.
    whole: Option<Patience>,
    progress: Arc<Progress>,
    /// Headers that say whose it is: no trailer may say so.
    whose: Arc<[HeaderName]>,
}

/// How a body gets on, for whoever waits for the response.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    frames: AtomicU32,
    fault: AtomicU8,
}

impl RequestBody {
    /// A body of nothing.
    pub(crate) fn empty() -> Self {
        Self { inner: None }
    }

    /// A body of at most so many bytes, of which some come in any such time, and all in time.
    pub(crate) fn bounded(
        body: Incoming,
        version: Version,
        bounds: &Bounds,
        whose: &Arc<[HeaderName]>,
    ) -> Self {
        let mut body = Coming::new(body, version);
        if body.is_end_stream() || body.is_nothing() {
            return Self::empty();
        }
        let progress = Arc::new(Progress::default());
        let patience = Patience::new(bounds.idle_timeout);
        let whole = bounds.body_timeout.map(Patience::new);
        let (left, whose) = (bounds.body_bytes_max, Arc::clone(whose));
        Self { inner: Some(Bounded { body, left, patience, whole, progress, whose }) }
    }

    /// How it gets on; `None` where there is no body.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        self.inner.as_ref().map(|inner| Arc::clone(&inner.progress))
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.inner.is_none()
    }
}

impl Progress {
    const FAULTS: [Problem; 3] = [
        Problem::Malformed("the body of the request cannot be read"),
        Problem::BodyTooLarge,
        Problem::BodySlow,
    ];

    /// How many frames have been read.
    pub(crate) fn frames(&self) -> u32 {
        // ORDERING: the number stands for itself.
        self.frames.load(Ordering::Relaxed)
    }

    /// What is wrong with the body, where that is why a request failed.
    pub(crate) fn fault(&self) -> Option<Problem> {
        // ORDERING: the number stands for itself; the failure that is asked about came after it through a
        // channel.
        let fault = self.fault.load(Ordering::Relaxed);
        Self::FAULTS.get(usize::from(fault).checked_sub(1)?).copied()
    }

    fn break_off(&self, index: u8) -> BodyError {
        // ORDERING: as in `fault`.
        self.fault.store(index + 1, Ordering::Relaxed);
        BodyError::Request
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(inner) = &mut self.get_mut().inner else { return Poll::Ready(None) };
        let is_over = inner.whole.as_ref().is_some_and(Patience::is_over);
        let frame = if is_over { Poll::Pending } else { inner.body.poll_frame(context) };
        let Poll::Ready(frame) = frame else {
            let whole = inner.whole.as_mut().map(|whole| whole.poll_end(context));
            if whole.is_none_or(|end| end.is_pending()) {
                ready!(inner.patience.poll_end(context));
            }
            return Poll::Ready(Some(Err(inner.progress.break_off(2))));
        };
        inner.patience.renew();
        // ORDERING: as in `frames`.
        inner.progress.frames.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(match frame {
            None => None,
            Some(Err(_)) => Some(Err(inner.progress.break_off(0))),
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                match inner.left.checked_sub(bytes) {
                    None => Some(Err(inner.progress.break_off(1))),
                    Some(left) => {
                        inner.left = left;
                        without(frame, |trailers| strip_asked(trailers, &inner.whose)).map(Ok)
                    }
                }
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(|inner| inner.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or(SizeHint::with_exact(0), |inner| inner.body.incoming.size_hint())
    }
}

/// A body as it comes from a connection.
#[derive(Debug)]
struct Coming {
    incoming: Incoming,
    is_http2: bool,
    /// What was looked at and not handed on. It is large, and mostly there is none.
    first: Option<Box<Result<Frame<Bytes>, BrokenOff>>>,
}

/// It has not come to its end.
#[derive(Debug)]
struct BrokenOff;

impl Coming {
    fn new(incoming: Incoming, version: Version) -> Self {
        Self { incoming, is_http2: version == Version::HTTP_2, first: None }
    }

    /// Whether there is nothing in it, of one whose length is not told: over HTTP/2 a client may say that in a frame of its
    /// own behind the head. Nobody waits for that frame here.
    fn is_nothing(&mut self) -> bool {
        if !self.is_http2 || self.incoming.size_hint().exact().is_some() {
            return false;
        }
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(first) = self.poll_frame(&mut context) else { return false };
        let is_empty = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(Bytes::is_empty);
        match first {
            None => true,
            Some(Ok(frame)) if is_empty(&frame) && self.incoming.is_end_stream() => true,
            first => {
                self.first = first.map(Box::new);
                false
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.incoming.is_end_stream()
    }

    /// Over HTTP/2 hyper takes it for an end as well where a stream is reset, or a connection goes away, without an error.
    /// That may be in the middle of a body, which only `END_STREAM` ends.
    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(*first));
        }
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(context));
        Poll::Ready(match frame {
            None if self.is_http2 && !self.incoming.is_end_stream() => Some(Err(BrokenOff)),
            frame => frame.map(|frame| frame.map_err(|_| BrokenOff)),
        })
    }
}

/// The body of a response on its way to a client.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    kind: Kind,
    /// The most bytes that are handed out at a time, and what is left of a frame that had more.
    part_bytes_max: usize,
    rest: Bytes,
    /// What is done when it has ended, or nobody wants it any more.
    ended: Option<Box<Ended>>,
}

#[derive(Debug)]
enum Kind {
    Full(Option<Bytes>),
    Relayed { body: Coming, patience: Patience },
    File(Reading),
}

impl ResponseBody {
    /// A body that is there.
    pub(crate) fn full(bytes: Bytes) -> Self {
        Self::of(Kind::Full(Some(bytes).filter(|bytes| !bytes.is_empty())))
    }

    /// A body that comes from an upstream, some of it in any such time.
    pub(crate) fn relayed(body: Incoming, version: Version, idle_max: Duration) -> Self {
        let body = Coming::new(body, version);
        Self::of(Kind::Relayed { body, patience: Patience::new(idle_max) })
    }

    /// A body that comes from a file.
    pub(crate) fn file(reading: Reading) -> Self {
        Self::of(Kind::File(reading))
    }

    fn of(kind: Kind) -> Self {
        Self { kind, part_bytes_max: usize::MAX, rest: Bytes::new(), ended: None }
    }

    /// The same, handed out in parts of at most so many bytes: whoever is asked for the next one can tell by that how
    /// the client gets on.
    pub(crate) fn in_parts(mut self, part_bytes_max: usize) -> Self {
        self.part_bytes_max = part_bytes_max;
        self
    }

    /// The bytes of one that is there; none of any other.
    pub(crate) fn whole(self) -> Bytes {
        match self.kind {
            Kind::Full(bytes) => bytes.unwrap_or_default(),
            Kind::Relayed { .. } | Kind::File(_) => Bytes::new(),
        }
    }

    /// The same, with something to do at its end.
    pub(crate) fn until_ended(mut self, ended: Ended) -> Self {
        self.ended = Some(Box::new(ended));
        self
    }
}

impl ResponseBody {
    fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if !self.rest.is_empty() {
            let length = self.rest.len().min(self.part_bytes_max);
            return Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))));
        }
        let frame = match &mut self.kind {
            Kind::Full(bytes) => bytes.take().map(|bytes| Ok(Frame::data(bytes))),
            Kind::Relayed { body, patience } => match body.poll_frame(context) {
                Poll::Pending => {
                    ready!(patience.poll_end(context));
                    Some(Err(BodyError::Slow))
                }
                Poll::Ready(frame) => {
                    patience.renew();
                    frame.map(|frame| frame.map_err(|_| BodyError::Response))
                }
            },
            Kind::File(reading) => ready!(reading.poll_next(context))
                .map(|part| part.map(Frame::data).map_err(|_| BodyError::File)),
        };
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                without(frame, hop::strip_trailers).map(|frame| Ok(self.first_part(frame)))
            }
            other => other,
        })
    }

    /// As much of a frame as is handed out at a time. The rest is kept.
    fn first_part(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        match frame.into_data() {
            Ok(mut bytes) if bytes.len() > self.part_bytes_max => {
                let part = bytes.split_to(self.part_bytes_max);
                self.rest = bytes;
                Frame::data(part)
            }
            Ok(bytes) => Frame::data(bytes),
            Err(trailers) => trailers,
        }
    }
}

/// A frame with its trailers as the function leaves them; none where nothing is left, which ends a body as well.
fn without(frame: Frame<Bytes>, strip: impl FnOnce(&mut HeaderMap)) -> Option<Frame<Bytes>> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            strip(&mut trailers);
            (!trailers.is_empty()).then(|| Frame::trailers(trailers))
        }
        Err(frame) => Some(frame),
    }
}

/// Nobody is trusted to say in trailers where a request came from, or whose it is: that is said in the head.
fn strip_asked(trailers: &mut HeaderMap, whose: &[HeaderName]) {
    hop::strip_trailers(trailers);
    origin::strip(trailers);
    for name in whose {
        hop::strip_spellings(trailers, name);
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = this.poll_part(context);
        Noted::of(&polled).note();
        let frame = ready!(polled);
        match (&frame, &mut this.ended) {
            (Some(Ok(frame)), Some(ended)) => {
                ended.sent(frame.data_ref().map_or(0, Bytes::len) as u64);
            }
            (Some(Err(_)), Some(ended)) => ended.broke(),
            _ => {}
        }
        if this.is_end_stream() || frame.is_none() {
            // What it held goes back now: a client that keeps the connection may drop the body late.
            this.ended = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let is_end = match &self.kind {
            Kind::Full(bytes) => bytes.is_none(),
            Kind::Relayed { body, .. } => body.is_end_stream(),
            Kind::File(reading) => reading.left == 0,
        };
        is_end && self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        let more = match &self.kind {
            Kind::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Kind::Relayed { body, .. } => body.incoming.size_hint(),
            Kind::File(reading) => SizeHint::with_exact(reading.left),
        };
        let rest = self.rest.len() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(more.lower().saturating_add(rest));
        if let Some(upper) = more.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}

/// What the answer to a client had when it was last asked. Hyper keeps the body of an answer inside of the future that it
/// hands out to be run, so that nothing but the thread that runs it links the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// Nothing yet: more has to come from elsewhere.
    Nothing,
    /// Something, which is now for the client to take.
    Something,
}

thread_local! {
    static NOTED: Cell<Option<Noted>> = const { Cell::new(None) };
}

impl Noted {
    fn of<T>(polled: &Poll<T>) -> Self {
        if polled.is_ready() { Self::Something } else { Self::Nothing }
    }

    /// Notes it for whoever runs this.
    pub(crate) fn note(self) {
        NOTED.set(Some(self));
    }

    /// What was noted last on this thread since this was called before.
    pub(crate) fn take() -> Option<Self> {
        NOTED.take()
    }
}

/// How long nothing may happen. The timer is made when it is first needed: most bodies are there at once.
#[derive(Debug)]
pub(crate) struct Patience {
    idle_max: Duration,
    timer: Option<Pin<Box<Sleep>>>,
    is_idle: bool,
}

impl Patience {
    pub(crate) fn new(idle_max: Duration) -> Self {
        Self { idle_max, timer: None, is_idle: false }
    }

    pub(crate) fn renew(&mut self) {
        self.is_idle = false;
    }

    /// Whether it has ended since it was last asked.
    fn is_over(&self) -> bool {
        self.timer.as_ref().is_some_and(|timer| timer.is_elapsed())
    }

    /// Ready when nothing has happened for too long. The time runs from when that is first asked.
    pub(crate) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let idle_max = self.idle_max;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(idle_max)));
        if !self.is_idle {
            self.is_idle = true;
            timer.as_mut().reset(Instant::now() + idle_max);
        }
        timer.as_mut().poll(context)
    }
}

/// Why a body broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The client's: it cannot be read, is too long, or takes too long.
    Request,
    /// The upstream's connection broke.
    Response,
    /// The upstream sent nothing for too long.
    Slow,
    /// A file cannot be read to its end.
    File,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "the body of the request broke off",
            Self::Response => "the body of the response broke off",
            Self::Slow => "the body of the response took too long",
            Self::File => "the file could not be read to its end",
        })
    }
}

impl StdError for BodyError {}
