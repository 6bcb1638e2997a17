//! What the tests of the layer share: limiters by rules, services on real sockets, and a plain client.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use axum::serve::IncomingStream;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tidegate::{ManualClock, RuleLimiter, RuleSet};
use tidegate_rules::{ParseOptions, Source};
use tidegate_tower::{Decide, InAxum, RateLimit};
use tokio::net::{TcpListener, TcpSocket};
use tower::Service;

/// How long anything may take before a test fails. The machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn rules(text: &str) -> RuleSet {
    let parsed = RuleSet::parse(&[Source::new("rules.yaml", text)], &ParseOptions::default());
    parsed.unwrap_or_else(|report| panic!("{report}")).rules
}

/// A limiter whose clock stands still unless it is moved.
pub(crate) fn limiter(text: &str) -> (RuleLimiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_700_000_000));
    (RuleLimiter::builder(rules(text)).clock(clock.clone()).build().unwrap(), clock)
}

/// Serves an axum app on a free port of this machine.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    serve_made(app.into_make_service_with_connect_info::<SocketAddr>()).await
}

/// The same with a layer around the whole app.
pub(crate) async fn serve_limited<D: Decide>(app: RateLimit<Router, D, InAxum>) -> SocketAddr {
    serve_made(app.into_make_service_with_connect_info::<SocketAddr>()).await
}

/// Serves what is made for each connection.
pub(crate) async fn serve_made<M, S>(make: M) -> SocketAddr
where
    M: for<'a> Service<IncomingStream<'a, TcpListener>, Error = Infallible, Response = S>,
    M: Send + 'static,
    for<'a> <M as Service<IncomingStream<'a, TcpListener>>>::Future: Send,
    S: Service<axum::extract::Request, Response = axum::response::Response, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, make).await });
    address
}

/// One connection of HTTP/1.1.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::connect_from(Ipv4Addr::LOCALHOST, address).await
    }

    /// From another address of this machine.
    pub(crate) async fn connect_from(own: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((own, 0).into()).unwrap();
        let stream = socket.connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        Self { sender }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        self.sender.ready().await.unwrap();
        let sending = self.sender.send_request(request);
        tokio::time::timeout(PATIENCE, sending).await.unwrap().unwrap()
    }

    pub(crate) async fn get(&mut self, target: &str) -> Answer {
        Answer::of(self.send(request("GET", target, "")).await).await
    }

    pub(crate) async fn post(&mut self, target: &str, body: &'static str) -> Answer {
        Answer::of(self.send(request("POST", target, body)).await).await
    }
}

pub(crate) fn request(method: &str, target: &str, body: &'static str) -> Request<Full<Bytes>> {
    let builder = Request::builder().method(method).uri(target).header("host", "example.com");
    builder.body(Full::new(Bytes::from_static(body.as_bytes()))).unwrap()
}

/// A whole response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) async fn of(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        let body = tokio::time::timeout(PATIENCE, body.collect()).await.unwrap().unwrap();
        let body = String::from_utf8(body.to_bytes().to_vec()).unwrap();
        Self { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// Waits until something is true, and fails where it never is.
pub(crate) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}
