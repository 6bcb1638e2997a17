//! The response that is waited for. Where a request passes at once it is a plain struct around the future
//! of the service behind, and takes no memory of its own.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;

use crate::body::RateLimitBody;
use crate::decide::Decide;
use crate::headers::HeaderSet;
use crate::passage::Passage;

/// What a service behind the layer answers.
type Answer<B, E> = Result<Response<RateLimitBody<B>>, E>;

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit).
    pub struct ResponseFuture<F, D: Decide, B, E> {
        #[pin]
        state: State<F, D, B, E>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, D: Decide, B, E> {
        // The request is with the service behind.
        Calling { #[pin] future: F, passage: Option<Passage<D>>, headers: HeaderSet },
        Refused { response: Option<Response<Bytes>> },
        // It waits for its decision or for its turn first.
        Later { future: Pin<Box<dyn Future<Output = Answer<B, E>> + Send>> },
    }
}

impl<F, D: Decide, B, E> ResponseFuture<F, D, B, E> {
    #[inline]
    pub(crate) fn calling(future: F, passage: Passage<D>, headers: HeaderSet) -> Self {
        Self { state: State::Calling { future, passage: Some(passage), headers } }
    }

    pub(crate) fn refused(response: Response<Bytes>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }

    pub(crate) fn later(future: Pin<Box<dyn Future<Output = Answer<B, E>> + Send>>) -> Self {
        Self { state: State::Later { future } }
    }
}

impl<F, D, B, E> Future for ResponseFuture<F, D, B, E>
where
    F: Future<Output = Result<Response<B>, E>>,
    D: Decide,
{
    type Output = Answer<B, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Calling { future, passage, headers } => {
                let response = ready!(future.poll(cx))?;
                // It is there until the first answer; futures are not polled after that.
                let passage = passage.take().unwrap_or_else(Passage::undecided);
                Poll::Ready(Ok(passage.respond(response, *headers)))
            }
            StateProjection::Refused { response } => {
                let response = response.take().unwrap_or_default();
                Poll::Ready(Ok(response.map(RateLimitBody::refusal)))
            }
            StateProjection::Later { future } => future.as_mut().poll(cx),
        }
    }
}

impl<F, D: Decide, B, E> fmt::Debug for ResponseFuture<F, D, B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Calling { .. } => "ResponseFuture::Calling",
            State::Refused { .. } => "ResponseFuture::Refused",
            State::Later { .. } => "ResponseFuture::Later",
        })
    }
}
