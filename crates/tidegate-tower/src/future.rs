//! The response that is waited for. Where a request passes at once it is a plain struct around the future
//! of the service behind, and takes no memory of its own.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

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
        state: State<F, D, O, E>,
        enclosed_by: PhantomData<fn() -> W>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, D: Decide, O, E> {
        // The request is with the service behind.
        Calling { #[pin] future: F, passage: Passage<D> },
        Refused { response: Option<Response<Bytes>> },
        // It waits for its decision or for its turn first.
        Later { future: Pin<Box<dyn Future<Output = Answer<O, E>> + Send>> },
    }
}

impl<F, D: Decide, O, E, W> ResponseFuture<F, D, O, E, W> {
    #[inline]
    pub(crate) fn calling(future: F, passage: Passage<D>) -> Self {
        // Not by way of `of`: what is large is moved once.
        Self { state: State::Calling { future, passage }, enclosed_by: PhantomData }
    }

    pub(crate) fn refused(response: Response<Bytes>) -> Self {
        Self::of(State::Refused { response: Some(response) })
    }

    pub(crate) fn later(future: Pin<Box<dyn Future<Output = Answer<O, E>> + Send>>) -> Self {
        Self::of(State::Later { future })
    }

    #[inline]
    fn of(state: State<F, D, O, E>) -> Self {
        Self { state, enclosed_by: PhantomData }
    }
}

impl<F, D, B, E, W> Future for ResponseFuture<F, D, W::Body, E, W>
where
    F: Future<Output = Result<Response<B>, E>>,
    D: Decide,
    W: Enclose<B>,
{
    type Output = Answer<W::Body, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Calling { future, passage } => {
                let response = ready!(future.poll(cx))?;
                Poll::Ready(Ok(passage.respond::<B, W>(response)))
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
