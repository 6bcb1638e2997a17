//! The HTTP endpoints: decisions for programs, for people with `curl`, and for proxies. No framework: a
//! path is matched, and the one that is asked most (`/limit/{key}`) is answered without a task or a
//! future on the heap, unless a store is waited for.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `route` | which paths and methods there are |
//! | `limit`, `auth` | the endpoints that answer with a status: `/limit/{key}` and `/v1/auth` |
//! | `express` | the plainest requests of `/limit/{key}`, without a general server in between |
//! | `check` | those that answer with JSON: `/v1/check`, its batch, `/v1/refund`, `/v1/release`, `/v1/renew` |
//! | [`body`], `read`, `query` | what calls say: JSON, its bytes, the query |
//! | `rooms` | how much one connection can make us keep |
//! | `shown`, `lease` | what JSON answers say |
//! | `problem`, `pages` | what goes wrong, and what is there besides |
//! | [`settings`] | [`HttpSettings`] |

mod auth;
pub mod body;
mod check;
mod express;
mod limit;
mod pages;
mod problem;
mod query;
mod read;
mod rooms;
mod route;
pub mod settings;
pub(crate) mod shown;
mod status;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::header::{ALLOW, CONTENT_LENGTH, HeaderValue};
use ::http::{HeaderMap, Method, Request, Response, Uri};
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::Service;
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, Protocol, at_once};
use crate::listen::{Peer, Stream};
use crate::metrics::Entrance;
use crate::web::{self, End, OnPanic, Opened, Versions};
use problem::Problem;
use rooms::Rooms;
pub use route::ROUTES;
use route::Route;
pub use settings::HttpSettings;

/// Serves one connection until it ends, or until `drain` is cancelled and what is under way is answered.
pub async fn serve(engine: Arc<Engine>, stream: Stream, peer: Peer, drain: CancellationToken) {
    serve_with(engine, Arc::default(), stream, peer, drain).await;
}

/// The same with settings.
pub async fn serve_with(
    engine: Arc<Engine>,
    settings: Arc<HttpSettings>,
    stream: Stream,
    peer: Peer,
    drain: CancellationToken,
) {
    let head_timeout = settings.head_timeout;
    let (drain_of_all, rooms) = (drain.clone(), Rooms::default());
    let connection = Connection { engine, settings, peer, drain: drain_of_all, rooms };
    let connection = Arc::new(connection);
    let opened = Opened::new(stream, head_timeout);
    let opened = express::serve(&connection, opened, head_timeout, &drain).await;
    let Some(opened) = opened else { return };
    let service = (Endpoints(Arc::clone(&connection)), panicked as OnPanic<_>);
    let end = web::serve_opened(service, opened, Versions::Both, drain, head_timeout).await;
    if end == End::NotTheProtocol {
        connection.engine.metrics().protocol_error(Entrance::Http);
    }
}

/// What every request of a connection is answered with.
type Answered = Response<Full<Bytes>>;

/// What the requests of a connection share.
struct Connection {
    engine: Arc<Engine>,
    settings: Arc<HttpSettings>,
    peer: Peer,
    drain: CancellationToken,
    rooms: Rooms,
}

struct Endpoints(Arc<Connection>);

/// An answer that is there already, which is the common case, or one that something is waited for.
enum Answering {
    Ready(Option<Answered>),
    Later(Pin<Box<dyn Future<Output = Answered> + Send>>),
}

impl Service<Request<Incoming>> for Endpoints {
    type Response = Answered;
    type Error = Infallible;
    type Future = Answering;

    #[inline]
    fn call(&self, request: Request<Incoming>) -> Answering {
        let is_head = request.method() == Method::HEAD;
        match Route::of(request.uri().path()) {
            Some(route) if !route.allows(request.method()) => {
                let mut answer = Problem::method(request.method()).answer();
                answer.headers_mut().insert(ALLOW, HeaderValue::from_static(route.methods()));
                Answering::ready(answer, is_head)
            }
            Some(route) => self.0.answer(route, request),
            None => Answering::ready(Problem::not_found().answer(), is_head),
        }
    }
}

impl Connection {
    #[inline]
    fn answer(self: &Arc<Self>, route: Route, request: Request<Incoming>) -> Answering {
        let is_head = request.method() == Method::HEAD;
        let held = match route {
            Route::Limit | Route::Auth if self.engine.is_shared() => {
                let (connection, (head, _)) = (Arc::clone(self), request.into_parts());
                return Answering::Later(Box::pin(async move {
                    connection.status(route, &head.uri, &head.headers).await.in_time(is_head).await
                }));
            }
            Route::Limit | Route::Auth => {
                let held = at_once(self.status(route, request.uri(), request.headers()));
                held.unwrap_or_else(|| Problem::late().answer().into())
            }
            Route::Check
            | Route::Batch
            | Route::Refund
            | Route::Release
            | Route::Renew
            | Route::Json => {
                let connection = Arc::clone(self);
                let answering = async move { check::answer(&connection, route, request).await };
                return Answering::Later(Box::pin(answering));
            }
            Route::Health => pages::health().into(),
            Route::Ready => pages::ready(self.is_ready()).into(),
            Route::Healthcheck => pages::healthcheck(self.is_ready()).into(),
            Route::Metrics => {
                let connection = Arc::clone(self);
                let answering = async move {
                    let room = connection.rooms.large().await;
                    let answer = finished(pages::metrics(&connection.engine).await, is_head);
                    room.until_taken(answer).await
                };
                return Answering::Later(Box::pin(answering));
            }
            Route::OpenApi => pages::open_api().into(),
        };
        if held.delay.is_zero() {
            return Answering::ready(held.answer, is_head);
        }
        Answering::Later(Box::pin(held.in_time(is_head)))
    }

    /// The endpoints that answer with a status.
    #[inline]
    async fn status(&self, route: Route, uri: &Uri, headers: &HeaderMap) -> HeldBack {
        if route == Route::Auth {
            self.timed(Protocol::ForwardAuth, auth::answer(self, uri, headers)).await
        } else {
            let query = uri.query().unwrap_or_default();
            let answering = limit::answer(self, (uri.path(), query), limit::allowed);
            self.timed(Protocol::Http, answering).await
        }
    }

    fn is_ready(&self) -> bool {
        !self.settings.leaving.is_cancelled() && !self.drain.is_cancelled()
    }

    /// Notes how long it takes to make an answer; what a caller is held back for is not part of it.
    #[inline]
    async fn timed<T>(&self, over: Protocol, making: impl Future<Output = T>) -> T {
        let began = self.engine.limiter().now();
        let made = making.await;
        self.engine.metrics().took(over, self.engine.limiter().now().since(began).into());
        made
    }
}

/// An answer, and how long to hold it back.
struct HeldBack<T = Answered> {
    answer: T,
    delay: std::time::Duration,
}

impl HeldBack {
    /// The answer, when it is time for it.
    async fn in_time(self, is_head: bool) -> Answered {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        finished(self.answer, is_head)
    }
}

impl<T: From<Answered>> From<Answered> for HeldBack<T> {
    fn from(answer: Answered) -> Self {
        Self { answer: answer.into(), delay: std::time::Duration::ZERO }
    }
}

impl Answering {
    #[inline]
    fn ready(answer: Answered, is_head: bool) -> Self {
        Self::Ready(Some(finished(answer, is_head)))
    }
}

impl Future for Answering {
    type Output = Result<Answered, Infallible>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Ready(answer) => Poll::Ready(Ok(answer.take().unwrap_or_default())),
            Self::Later(answering) => answering.as_mut().poll(context).map(Ok),
        }
    }
}

fn panicked(is_head: bool) -> Answered {
    finished(Problem::panicked().answer(), is_head)
}

/// The answer to `HEAD` has the length of the body and not the body. Over HTTP/2 nobody below sees to it.
#[inline]
fn finished(mut answer: Answered, is_head: bool) -> Answered {
    if is_head {
        let length = answer.body().size_hint().exact().unwrap_or(0);
        answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        *answer.body_mut() = Full::default();
    }
    answer
}
