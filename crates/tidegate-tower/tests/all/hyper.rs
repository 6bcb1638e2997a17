//! The layer around a service that hyper serves, without any framework, over HTTP/1.1 and HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;

use crate::support::{Client, PATIENCE, limiter};
use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tidegate::{ManualClock, RuleLimiter};
use tidegate_tower::{Peer, RateLimitLayer};
use tokio::net::{TcpListener, TcpStream};
use tower::{Layer as _, service_fn};

const TWO: &str = "{ domain: default, rules: [ { name: all, per: [ip], limit: 2/minute } ] }";

/// With the address of the peer noted in each request, or known to the service of a connection.
async fn serve(limiter: RuleLimiter<ManualClock>, is_noted: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let layer = RateLimitLayer::new(limiter);
    tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let hello = service_fn(async |_: Request<Incoming>| {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
            });
            let limited =
                if is_noted { layer.layer(hello) } else { layer.layer(hello).of_peer(peer) };
            let service = service_fn(move |mut request: Request<Incoming>| {
                if is_noted {
                    request.extensions_mut().insert(Peer(peer));
                }
                tower::ServiceExt::oneshot(limited.clone(), request)
            });
            tokio::spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                let service = TowerToHyperService::new(service);
                server.serve_connection(TokioIo::new(stream), service).await.ok();
            });
        }
    });
    address
}

#[tokio::test]
async fn a_service_of_hyper_is_limited_over_both_versions_of_http() {
    is_limited_over_both_versions(serve(limiter(TWO).0, true).await).await;
}

#[tokio::test]
async fn a_service_of_hyper_knows_the_peer_of_its_connection() {
    is_limited_over_both_versions(serve(limiter(TWO).0, false).await).await;
}

async fn is_limited_over_both_versions(address: SocketAddr) {
    let first = Client::connect(address).await.get("/").await;
    assert_eq!((first.status.as_u16(), first.body.as_str()), (200, "hello"));
    assert_eq!(first.header("x-ratelimit-remaining"), "1");

    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    for expected in [200, 429, 429] {
        let request = Request::get(format!("http://{address}/")).version(Version::HTTP_2);
        let sending = sender.send_request(request.body(Full::new(Bytes::new())).unwrap());
        let response = tokio::time::timeout(PATIENCE, sending).await.unwrap().unwrap();
        assert_eq!(response.status(), expected);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(!body.is_empty());
        assert_eq!(body.starts_with(b"{"), expected == 429);
    }
}
