//! A request whose answer panics in the making fails alone, with an answer that says so. Requests of one
//! connection share a task, and would otherwise all end with it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::service::Service;
use hyper::{Method, Request, Response};

/// What is answered in the place of a panic, to `HEAD` or to another method.
pub(crate) type OnPanic<B> = fn(is_head: bool) -> Response<B>;

/// A service, and what it answers where it panics.
pub(super) struct Guarded<S, B> {
    service: S,
    on_panic: OnPanic<B>,
}

impl<S, B> Guarded<S, B> {
    pub(super) const fn new(service: S, on_panic: OnPanic<B>) -> Self {
        Self { service, on_panic }
    }
}

impl<S, I, B> Service<Request<I>> for Guarded<S, B>
where
    S: Service<Request<I>, Response = Response<B>>,
    S::Future: Unpin,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Guard<S::Future, B>;

    #[inline]
    fn call(&self, request: Request<I>) -> Self::Future {
        let is_head = request.method() == Method::HEAD;
        // Whatever other requests share with this one, they share with other threads too, and none of it is
        // left half done: a panic on another thread would leave it so.
        let answering = catch_unwind(AssertUnwindSafe(|| self.service.call(request)));
        Guard { answering: answering.ok(), is_head, on_panic: self.on_panic }
    }
}

/// An answer in the making; none where that has panicked already.
pub(super) struct Guard<F, B> {
    answering: Option<F>,
    is_head: bool,
    on_panic: OnPanic<B>,
}

impl<F, B, E> Future for Guard<F, B>
where
    F: Future<Output = Result<Response<B>, E>> + Unpin,
{
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(answering) = &mut this.answering
            && let Ok(polled) = catch_unwind(AssertUnwindSafe(|| Pin::new(answering).poll(context)))
        {
            return polled;
        }
        this.answering = None;
        Poll::Ready(Ok((this.on_panic)(this.is_head)))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::StatusCode;
    use hyper::body::Incoming;
    use hyper::client::conn::{http1, http2};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::listen::Stream;
    use crate::web::{self, Versions};

    type Body = Full<Bytes>;

    fn failed(_is_head: bool) -> Response<Body> {
        let mut response = Response::new(Body::default());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    }

    /// Panics at once, panics after a wait, or answers.
    async fn answer(request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
        match request.uri().path() {
            "/at-once" => panic!("for the test"),
            "/later" => {
                tokio::task::yield_now().await;
                panic!("for the test")
            }
            _ => Ok(Response::new(Body::default())),
        }
    }

    /// A connection to a server of that, which serves no other.
    async fn connection() -> TokioIo<TcpStream> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let service = service_fn(|request| Box::pin(answer(request)));
            let drain = CancellationToken::new();
            web::serve(service, failed, Stream::Tcp(stream), Versions::Both, drain).await
        });
        TokioIo::new(stream)
    }

    fn ask(path: &str) -> Request<Body> {
        Request::get(format!("http://t{path}")).body(Body::default()).unwrap()
    }

    #[tokio::test]
    async fn a_panic_fails_its_own_request_and_no_other_of_the_connection() {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), connection().await).await.unwrap();
        tokio::spawn(connection);
        // All are sent before the first is answered.
        let paths = ["/", "/at-once", "/", "/later", "/"];
        let asked = paths.map(|path| sender.clone().send_request(ask(path)));
        let mut statuses = Vec::new();
        for answered in asked {
            statuses.push(answered.await.unwrap().status().as_u16());
        }
        assert_eq!(statuses, [200, 500, 200, 500, 200]);
        assert_eq!(sender.clone().send_request(ask("/")).await.unwrap().status(), 200);
    }

    #[tokio::test]
    async fn over_http_1_the_connection_goes_on_after_a_panic() {
        let (mut sender, connection) = http1::handshake(connection().await).await.unwrap();
        tokio::spawn(connection);
        for (path, status) in [("/at-once", 500), ("/later", 500), ("/", 200)] {
            sender.ready().await.unwrap();
            assert_eq!(sender.send_request(ask(path)).await.unwrap().status(), status, "{path}");
        }
    }
}
