//! The response that is waited for. Where a request passes at once it is a plain struct around the future
//! of the service behind, and takes no memory of its own.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;

use crate::body::Enclose;
use crate::decide::Decide;
use crate::passage::Passage;

/// A response with what comes out of the layer as its body, or the error of the service behind.
type Answer<O, E> = Result<Response<O>, E>;

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit): of the future `F` of the service behind, with a body `O`,
    /// as `W` has it.
    pub struct ResponseFuture<F, D: Decide, O, E, W> {
        #[pin]
        state: State<F, O, E>,
        // Of a request that is with the service behind. It is not a part of the state, so that the future there is
        // made where it stays.
        passage: Passage<D>,
        enclosed_by: PhantomData<fn() -> W>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, O, E> {
        // The request is with the service behind.
        Calling { #[pin] future: F },
        Refused { response: Option<Response<Bytes>> },
        // It waits for its decision or for its turn first.
        Later { future: Pin<Box<dyn Future<Output = Answer<O, E>> + Send>> },
    }
}

impl<F, D: Decide, O, E, W> ResponseFuture<F, D, O, E, W> {
    /// With what calls the service behind.
    #[inline]
    pub(crate) fn calling(call: impl FnOnce() -> F, passage: Passage<D>) -> Self {
        Self { state: State::Calling { future: call() }, passage, enclosed_by: PhantomData }
    }

    pub(crate) fn refused(response: Response<Bytes>) -> Self {
        Self::of(State::Refused { response: Some(response) })
    }

    pub(crate) fn later(future: Pin<Box<dyn Future<Output = Answer<O, E>> + Send>>) -> Self {
        Self::of(State::Later { future })
    }

    fn of(state: State<F, O, E>) -> Self {
        Self { state, passage: Passage::undecided(), enclosed_by: PhantomData }
    }
}

impl<F, D, B, E, W> Future for ResponseFuture<F, D, W::Body, E, W>
where
    F: Future<Output = Result<Response<B>, E>>,
    D: Decide,
    W: Enclose<B>,
{
    type Output = Answer<W::Body, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        match this.state.project() {
            StateProjection::Calling { future } => {
                let mut polled = future.poll(cx);
                // Where it is: a response is large.
                if let Poll::Ready(Ok(response)) = &mut polled {
                    this.passage.tell(response);
                }
                if this.passage.is_over() {
                    return W::polled(polled);
                }
                polled.map_ok(|response| this.passage.enclose::<B, W>(response))
            }
            StateProjection::Refused { response } => {
                let response = response.take().unwrap_or_default();
                Poll::Ready(Ok(response.map(W::refusal)))
            }
            StateProjection::Later { future } => future.as_mut().poll(cx),
        }
    }
}

impl<F, D: Decide, O, E, W> fmt::Debug for ResponseFuture<F, D, O, E, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Calling { .. } => "ResponseFuture::Calling",
            State::Refused { .. } => "ResponseFuture::Refused",
            State::Later { .. } => "ResponseFuture::Later",
        })
    }
}
