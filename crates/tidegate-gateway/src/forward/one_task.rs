//! All that belongs to one connection of HTTP/2, as one task.
//!
//! A general executor would run the part that takes requests beside the part that reads frames. A `GOAWAY` that
//! comes between two steps of the former is then told to a request that the server has taken as well as to one
//! that it has not, in the same words. Here they take turns, so that a request that is told of it was not taken, and no
//! request is taken any more once one has come. Of a request that waited for a stream when the connection ended, and is
//! told of no `GOAWAY`, nothing is known.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use tokio::sync::mpsc;

type Part = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes the parts of a connection as they come up. There are at most two for each stream.
#[derive(Clone, Debug)]
pub(crate) struct Parts(mpsc::UnboundedSender<Part>);

/// Runs the parts.
pub(crate) struct OneTask {
    coming: mpsc::UnboundedReceiver<Part>,
}

pub(crate) fn one_task() -> (Parts, OneTask) {
    let (parts, coming) = mpsc::unbounded_channel();
    (Parts(parts), OneTask { coming })
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Parts {
    fn execute(&self, part: F) {
        // Nobody takes it once the connection has ended.
        let _ = self.0.send(Box::pin(part));
    }
}

impl OneTask {
    /// Runs until the connection has ended. `taking` is what takes requests.
    pub(crate) async fn run(mut self, taking: impl Future<Output = ()> + Send + 'static) {
        let mut taking: Option<Part> = Some(Box::pin(taking));
        // The first one is that which reads and writes frames.
        let mut frames = self.coming.recv().await;
        let mut others = FuturesUnordered::new();
        poll_fn(|context| {
            // What takes requests is dropped as soon as it has ended, which is how senders know.
            poll_once(&mut taking, context);
            poll_once(&mut frames, context);
            // What has come may say how many streams there may be, and nobody else asks for that.
            poll_once(&mut taking, context);
            while let Poll::Ready(Some(part)) = self.coming.poll_recv(context) {
                others.push(part);
            }
            while let Poll::Ready(Some(())) = others.poll_next_unpin(context) {}
            let is_over = taking.is_none() && frames.is_none() && others.is_empty();
            if is_over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

fn poll_once(part: &mut Option<Part>, context: &mut Context<'_>) {
    if part.as_mut().is_some_and(|part| part.as_mut().poll(context).is_ready()) {
        *part = None;
    }
}
