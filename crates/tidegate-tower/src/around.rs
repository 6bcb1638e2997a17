//! Limits of a whole axum app: the layer stands around the router instead of inside of it. Limits of some routes are
//! what `Router::layer` and `Router::route_layer` are for.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use axum::extract::Request;
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::middleware::AddExtension;
use axum::routing::IntoMakeService;
use axum::{Extension, Router, ServiceExt};
use tower_layer::Layer as _;
use tower_service::Service;

use crate::body::InAxum;
use crate::decide::Decide;
use crate::layer::RateLimitLayer;
use crate::service::RateLimit;

impl<D: Decide, W> RateLimitLayer<D, W> {
    /// Limits all requests that come to an app, before they are routed: also those to paths that it does not have, and
    /// without the boxes that axum puts around what [`Router::layer`] gets. What routing finds out, such as
    /// `MatchedPath`, is not known there yet.
    ///
    /// ```no_run
    /// use axum::{Router, routing::get};
    /// # use tidegate::RuleLimiter;
    /// use tidegate_tower::RateLimitLayer;
    ///
    /// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = RuleLimiter::new("{ domain: default, rules: [ { name: all, limit: 10/s } ] }")?;
    /// # let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    /// let app = Router::new().route("/", get(async || "hello"));
    /// let app = RateLimitLayer::new(limiter).around(app);
    /// axum::serve(listener, app.into_make_service_with_peers()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn around(self, app: Router) -> RateLimit<Router, D, InAxum> {
        self.settings.warn_of_no_rules();
        // axum makes the handlers of an app that was never given its state anew for every request.
        RateLimit::new(app.with_state(()), self.settings)
    }
}

/// To be served by axum, as its routers are.
impl<D: Decide> RateLimit<Router, D, InAxum> {
    /// What `axum::serve` takes, with the addresses of peers noted in each request, and told to this layer where they are a
    /// [`SocketAddr`].
    pub fn into_make_service_with_connect_info<C>(self) -> IntoMakeServiceWithConnectInfo<D, C> {
        IntoMakeServiceWithConnectInfo { service: self.of_anybody(), noted: PhantomData }
    }

    /// The same with the addresses told to nobody else: what a request does not carry costs it nothing. Not where handlers
    /// ask for `ConnectInfo`, or where layers further in count by address; `describe` and `cost` find it in
    /// [`Head::peer`](crate::Head::peer). A listener of your own makes its services with [`of_peer`](Self::of_peer).
    pub fn into_make_service_with_peers(self) -> IntoMakeServiceWithPeers<D> {
        IntoMakeServiceWithPeers { service: self }
    }

    /// The same where something else notes them, or no rule counts by them.
    pub fn into_make_service(self) -> IntoMakeService<Self> {
        ServiceExt::<Request>::into_make_service(self.of_anybody())
    }
}

/// Makes the service of each connection. See [`RateLimit::into_make_service_with_connect_info`].
pub struct IntoMakeServiceWithConnectInfo<D, C> {
    service: RateLimit<Router, D, InAxum>,
    noted: PhantomData<fn() -> C>,
}

impl<D, C> fmt::Debug for IntoMakeServiceWithConnectInfo<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoMakeServiceWithConnectInfo").finish_non_exhaustive()
    }
}

impl<D, C> Clone for IntoMakeServiceWithConnectInfo<D, C> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone(), noted: PhantomData }
    }
}

impl<D: Decide, C: Connected<T>, T> Service<T> for IntoMakeServiceWithConnectInfo<D, C> {
    type Response = AddExtension<RateLimit<Router, D, InAxum>, ConnectInfo<C>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, connection: T) -> Self::Future {
        let (info, service) = (C::connect_info(connection), self.service.clone());
        let service = match (&info as &dyn Any).downcast_ref() {
            Some(peer) => service.of_peer(*peer),
            None => service,
        };
        ready(Ok(Extension(ConnectInfo(info)).layer(service)))
    }
}

/// Makes the service of each connection. See [`RateLimit::into_make_service_with_peers`].
pub struct IntoMakeServiceWithPeers<D> {
    service: RateLimit<Router, D, InAxum>,
}

impl<D> fmt::Debug for IntoMakeServiceWithPeers<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IntoMakeServiceWithPeers").finish_non_exhaustive()
    }
}

impl<D> Clone for IntoMakeServiceWithPeers<D> {
    fn clone(&self) -> Self {
        Self { service: self.service.clone() }
    }
}

impl<D: Decide, T> Service<T> for IntoMakeServiceWithPeers<D>
where
    SocketAddr: Connected<T>,
{
    type Response = RateLimit<Router, D, InAxum>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, connection: T) -> Self::Future {
        ready(Ok(self.service.clone().of_peer(SocketAddr::connect_info(connection))))
    }
}
