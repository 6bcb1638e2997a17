//! The service that asks before it hands a request on.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use crate::awaited::Awaited;
use crate::body::RateLimitBody;
use crate::decide::{Asked, Decide, Decided as _};
use crate::future::ResponseFuture;
use crate::head::{Head, Tongue};
use crate::judge::{First, Verdict};
use crate::layer::Settings;
use crate::passage::Passage;

/// A service behind a [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Debug)]
pub struct RateLimit<S, D> {
    inner: S,
    settings: Arc<Settings<D>>,
}

impl<S, D> RateLimit<S, D> {
    pub(crate) fn new(inner: S, settings: Arc<Settings<D>>) -> Self {
        Self { inner, settings }
    }

    /// The service behind.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Clone, D> Clone for RateLimit<S, D> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), settings: Arc::clone(&self.settings) }
    }
}

impl<S, D, A, B> Service<Request<A>> for RateLimit<S, D>
where
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    D: Decide,
    A: Send + 'static,
    B: 'static,
{
    type Response = Response<RateLimitBody<B>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, D, B, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let settings = &self.settings;
        let tongue = Tongue::of(request.headers());
        match settings.judge(&Head::of(&request), &tongue) {
            First::Known(Verdict::Pass(passage)) => {
                let headers = settings.headers;
                ResponseFuture::calling(self.inner.call(request), passage, headers)
            }
            First::Known(Verdict::Refuse(response)) => ResponseFuture::refused(response),
            First::Known(Verdict::Wait(passage, delay)) => {
                let waiting = self.take_ready().wait(request, passage, delay);
                ResponseFuture::later(Box::pin(waiting))
            }
            First::Ask(asked) => {
                let asking = self.take_ready().ask(request, asked, tongue);
                ResponseFuture::later(Box::pin(asking))
            }
        }
    }
}

impl<S: Clone, D> RateLimit<S, D> {
    /// The service that was found to be ready goes with the request; a fresh one stays.
    fn take_ready(&mut self) -> Self {
        let fresh = self.clone();
        std::mem::replace(self, fresh)
    }
}

impl<S, D: Decide> RateLimit<S, D> {
    async fn ask<A, B>(
        self,
        request: Request<A>,
        asked: Asked,
        tongue: Tongue,
    ) -> Result<Response<RateLimitBody<B>>, S::Error>
    where
        S: Service<Request<A>, Response = Response<B>>,
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
        match self.settings.weigh(decided, &tongue) {
            Verdict::Pass(passage) => self.pass(request, passage).await,
            Verdict::Wait(passage, delay) => self.wait(request, passage, delay).await,
            Verdict::Refuse(response) => Ok(response.map(RateLimitBody::refusal)),
        }
    }

    async fn wait<A, B>(
        self,
        request: Request<A>,
        mut passage: Passage<D>,
        delay: std::time::Duration,
    ) -> Result<Response<RateLimitBody<B>>, S::Error>
    where
        S: Service<Request<A>, Response = Response<B>>,
    {
        tokio::time::sleep(delay).await;
        passage.begin();
        self.pass(request, passage).await
    }

    async fn pass<A, B>(
        mut self,
        request: Request<A>,
        passage: Passage<D>,
    ) -> Result<Response<RateLimitBody<B>>, S::Error>
    where
        S: Service<Request<A>, Response = Response<B>>,
    {
        let response = self.inner.call(request).await?;
        Ok(passage.respond(response, self.settings.headers))
    }
}
