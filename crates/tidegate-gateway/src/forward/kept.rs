//! The body of a request that can be taken back from a connection that did nothing with it: what was given of
//! it is kept, up to a bound, and given once more. Where the bound is passed it can be sent only once.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use crate::body::{BodyError, Progress, RequestBody};
use crate::upstream::two::Stream;

/// How much of one body is kept until its response begins. What a server lets a client send before it has
/// looked at the request is 64 KiB unless it says otherwise.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// The body of a request on its way to an upstream.
#[derive(Debug)]
pub(crate) struct Kept {
    inner: Inner,
    /// The stream that it is sent on, unless it is empty.
    held: Option<Arc<Stream>>,
}

#[derive(Debug)]
enum Inner {
    Once(RequestBody),
    Again(Arc<Mutex<State>>),
}

/// Takes a body back. Where it is dropped before that, nobody waits for a response any more, and the body ends: the request
/// may be in a queue that nobody takes it from, and the connection of the client would wait with it.
#[derive(Debug)]
pub(crate) struct Keeper(Option<Arc<Mutex<State>>>);

#[derive(Debug)]
struct State {
    /// `None` once it was taken back.
    body: Option<RequestBody>,
    /// What comes before what is still in the body.
    again: VecDeque<Piece>,
    /// What was given; `None` once that is more than is kept.
    given: Option<Vec<Piece>>,
    given_bytes: usize,
}

#[derive(Clone, Debug)]
enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

/// A body that is handed on as it comes, until somebody wants to [`keep`](Kept::keep) it.
impl From<RequestBody> for Kept {
    fn from(body: RequestBody) -> Self {
        Self { inner: Inner::Once(body), held: None }
    }
}

impl Kept {
    pub(crate) fn empty() -> Self {
        Self::from(RequestBody::empty())
    }

    /// Keeps what is given of it from now on.
    pub(crate) fn keep(&mut self) -> Keeper {
        match &mut self.inner {
            Inner::Once(body) if body.is_empty() => Keeper(None),
            Inner::Once(body) => {
                let body = std::mem::replace(body, RequestBody::empty());
                let state = State::shared(body, VecDeque::new());
                self.inner = Inner::Again(Arc::clone(&state));
                Keeper(Some(state))
            }
            Inner::Again(state) => Keeper(Some(Arc::clone(state))),
        }
    }

    /// Holds the stream that it is sent on until it is dropped. An empty one ends with the head of its request.
    pub(crate) fn hold(&mut self, stream: Arc<Stream>) {
        if !self.is_empty() {
            self.held = Some(stream);
        }
    }

    /// How it gets on; `None` where there is no body.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        match &self.inner {
            Inner::Once(body) => body.progress(),
            Inner::Again(state) => state.lock().body.as_ref().and_then(RequestBody::progress),
        }
    }

    /// Whether there is nothing in it.
    pub(crate) fn is_empty(&self) -> bool {
        match &self.inner {
            Inner::Once(body) => body.is_empty(),
            Inner::Again(_) => false,
        }
    }
}

impl Keeper {
    /// Keeps nothing any more: the response has begun.
    pub(crate) fn let_go(mut self) {
        if let Some(state) = self.0.take() {
            state.lock().given = None;
        }
    }

    /// The whole body once more, which whoever has it now loses; `None` where too much of it was given.
    pub(crate) fn take_back(mut self) -> Option<Kept> {
        let Some(state) = self.0.take() else { return Some(Kept::empty()) };
        let mut state = state.lock();
        let given = state.given.take()?;
        let body = state.body.take()?;
        let again = given.into_iter().chain(state.again.drain(..)).collect();
        Some(Kept { inner: Inner::Again(State::shared(body, again)), held: None })
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // It is dropped after the lock.
        let _body = self.0.take().and_then(|state| state.lock().body.take());
    }
}

impl State {
    fn shared(body: RequestBody, again: VecDeque<Piece>) -> Arc<Mutex<Self>> {
        let given = Some(Vec::new());
        Arc::new(Mutex::new(Self { body: Some(body), again, given, given_bytes: 0 }))
    }

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        // Nobody reads on the stream from which it was taken back, so it does not matter how that one ends.
        let Some(body) = &mut self.body else { return Poll::Ready(Some(Err(BodyError::Request))) };
        let piece = if let Some(piece) = self.again.pop_front() {
            piece
        } else {
            match ready!(Pin::new(body).poll_frame(context)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => Piece::Data(data),
                    Err(frame) => Piece::Trailers(frame.into_trailers().unwrap_or_default()),
                },
            }
        };
        self.note(&piece);
        Poll::Ready(Some(Ok(match piece {
            Piece::Data(data) => Frame::data(data),
            Piece::Trailers(trailers) => Frame::trailers(trailers),
        })))
    }

    fn note(&mut self, piece: &Piece) {
        self.given_bytes += piece.bytes();
        if self.given_bytes > KEPT_BYTES_MAX {
            self.given = None;
        }
        if let Some(given) = &mut self.given {
            given.push(piece.clone());
        }
    }

    fn size_hint(&self) -> SizeHint {
        let Some(body) = &self.body else { return SizeHint::default() };
        let again = self.again.iter().map(|piece| match piece {
            Piece::Data(data) => data.len() as u64,
            Piece::Trailers(_) => 0,
        });
        let (again, rest) = (again.sum::<u64>(), body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + again);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + again);
        }
        hint
    }
}

impl Piece {
    /// What it takes to keep it; frames of nothing take room too.
    fn bytes(&self) -> usize {
        match self {
            Self::Data(data) => data.len() + size_of::<Self>(),
            Self::Trailers(trailers) => {
                trailers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
            }
        }
    }
}

impl Body for Kept {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().inner {
            Inner::Once(body) => Pin::new(body).poll_frame(context),
            Inner::Again(state) => state.lock().poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.inner {
            Inner::Once(body) => body.is_end_stream(),
            Inner::Again(state) => {
                let state = state.lock();
                state.again.is_empty() && state.body.as_ref().is_some_and(Body::is_end_stream)
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Once(body) => body.size_hint(),
            Inner::Again(state) => state.lock().size_hint(),
        }
    }
}
