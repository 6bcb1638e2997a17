//! The service that asks before it hands a request on.

use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::awaited::Awaited;
use crate::body::{Enclose, Enclosed};
use crate::decide::{Asked, Decide, Decided as _};
use crate::future::ResponseFuture;
use crate::head::{Connection, Tongue};
use crate::judge::{First, Verdict};
use crate::layer::Settings;
use crate::passage::Passage;

/// A service behind a [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Debug)]
pub struct RateLimit<S, D, W = Enclosed> {
    inner: S,
    settings: Arc<Settings<D>>,
    /// The connection that it serves, where something is known of it.
    connection: Option<Connection>,
    enclosed_by: PhantomData<fn() -> W>,
}

impl<S, D, W> RateLimit<S, D, W> {
    pub(crate) fn new(inner: S, settings: Arc<Settings<D>>) -> Self {
        Self { inner, settings, connection: None, enclosed_by: PhantomData }
    }

    /// The same for connections of which nothing is known.
    #[cfg(feature = "axum")]
    pub(crate) fn of_anybody(self) -> Self {
        Self { connection: None, ..self }
    }

    /// The service behind.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S, D: Decide, W> RateLimit<S, D, W> {
    /// The same for one connection, whose other end has this address: for servers that make a service for each
    /// connection. Its requests need not carry the address then, which spares each of them an entry in its extensions; and
    /// where rules read nothing else of them, whose limit they are under is looked for once. After a reload it is looked for in
    /// each request of the connections that are open then.
    /// What [`RateLimitLayer::peer`](crate::RateLimitLayer::peer) finds and a [`Peer`](crate::Peer) in a request go
    /// before it.
    #[must_use]
    pub fn of_peer(self, peer: SocketAddr) -> Self {
        let connection = Connection { peer, foreseen: self.settings.foresee(&peer) };
        Self { connection: Some(connection), ..self }
    }
}

impl<S: Clone, D, W> Clone for RateLimit<S, D, W> {
    fn clone(&self) -> Self {
        let Self { inner, settings, connection, .. } = self;
        Self { connection: *connection, ..Self::new(inner.clone(), Arc::clone(settings)) }
    }
}

impl<S, D, A, B, W> Service<Request<A>> for RateLimit<S, D, W>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    D: Decide,
    A: Send + 'static,
    B: 'static,
    W: Enclose<B> + 'static,
{
    type Response = Response<W::Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, D, W::Body, S::Error, W>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request<A>) -> Self::Future {
        let mut passage = Passage::undecided();
        if let Err(first) = self.settings.judge(&request, self.connection.as_ref(), &mut passage) {
            return self.call_otherwise(request, *first);
        }
        ResponseFuture::calling(|| self.inner.call(request), passage)
    }
}

impl<S, D, W> RateLimit<S, D, W> {
    /// The way of requests that do not pass at once.
    #[cold]
    #[inline(never)]
    fn call_otherwise<A, B>(
        &mut self,
        request: Request<A>,
        first: First<D>,
    ) -> ResponseFuture<S::Future, D, W::Body, S::Error, W>
    where
        S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        D: Decide,
        A: Send + 'static,
        B: 'static,
        W: Enclose<B> + 'static,
    {
        match first {
            First::Known(Verdict::Pass(passage)) => {
                ResponseFuture::calling(|| self.inner.call(request), passage)
            }
            First::Known(Verdict::Refuse(response)) => ResponseFuture::refused(response),
            First::Known(Verdict::Wait(passage, delay)) => {
                let waiting = self.take_ready().wait(request, passage, delay);
                ResponseFuture::later(Box::pin(waiting))
            }
            First::Ask(asked, tongue) => {
                let asking = self.take_ready().ask(request, asked, tongue);
                ResponseFuture::later(Box::pin(asking))
            }
        }
    }
}

impl<S: Clone, D, W> RateLimit<S, D, W> {
    /// The service that was found to be ready goes with the request; a fresh one stays.
    fn take_ready(&mut self) -> Self {
        let fresh = self.clone();
        std::mem::replace(self, fresh)
    }
}

impl<S, D: Decide, W> RateLimit<S, D, W> {
    async fn ask<A, B>(
        self,
        request: Request<A>,
        asked: Asked,
        tongue: Tongue,
    ) -> Result<Response<W::Body>, S::Error>
    where
        S: Service<Request<A>, Response = Response<B>>,
        W: Enclose<B>,
    {
        let decider = Arc::clone(&self.settings.decider);
        let deciding = Arc::clone(&decider).decide(asked);
        // A client that goes away meanwhile leaves nothing behind.
        let decided = Awaited::new(deciding, move |decided| {
            if let Ok(decided) = decided
                && decided.is_allowed()
            {
                decider.withdrawn(decided);
            }
        });
        let decided = decided.await;
        match self.settings.weigh(decided, || tongue) {
            Verdict::Pass(passage) => self.pass(request, passage).await,
            Verdict::Wait(passage, delay) => self.wait(request, passage, delay).await,
            Verdict::Refuse(response) => Ok(response.map(W::refusal)),
        }
    }

    async fn wait<A, B>(
        self,
        request: Request<A>,
        mut passage: Passage<D>,
        delay: std::time::Duration,
    ) -> Result<Response<W::Body>, S::Error>
    where
        S: Service<Request<A>, Response = Response<B>>,
        W: Enclose<B>,
    {
        tokio::time::sleep(delay).await;
        passage.begin();
        self.pass(request, passage).await
    }

    async fn pass<A, B>(
        mut self,
        request: Request<A>,
        mut passage: Passage<D>,
    ) -> Result<Response<W::Body>, S::Error>
    where
        S: Service<Request<A>, Response = Response<B>>,
        W: Enclose<B>,
    {
        let response = self.inner.call(request).await?;
        Ok(passage.respond::<B, W>(response))
    }
}
