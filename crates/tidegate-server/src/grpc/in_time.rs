//! A message that has to arrive within a time: whoever sends half of one would otherwise keep its place for
//! good. No clock is looked at for one that is all there, which is nearly every one.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tonic::Status;

/// The body of a request.
pub(super) struct InTime<B> {
    body: B,
    patience: Duration,
    /// Set once something has to be waited for.
    end: Option<Pin<Box<Sleep>>>,
}

impl<B> InTime<B> {
    pub(super) const fn new(body: B, patience: Duration) -> Self {
        Self { body, patience, end: None }
    }
}

impl<B> Body for InTime<B>
where
    B: Body<Error: std::error::Error + Send + Sync + 'static> + Unpin,
{
    type Data = B::Data;
    type Error = Status;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, Status>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            let failed = |error| Status::from_error(Box::new(error));
            return Poll::Ready(frame.map(|frame| frame.map_err(failed)));
        }
        let patience = this.patience;
        let end = this.end.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        ready!(end.as_mut().poll(context));
        let late = Status::deadline_exceeded("the message did not arrive in time");
        Poll::Ready(Some(Err(late)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
