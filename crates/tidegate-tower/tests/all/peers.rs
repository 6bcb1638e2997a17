//! Who is at the other end of a connection, and how the layer is told: by the connection, by what requests carry, or by the
//! program.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::extract::connect_info::Connected;
use axum::routing::get;
use axum::serve::IncomingStream;
use http::Extensions;
use tidegate::{ManualClock, RuleLimiter};
use tidegate_identity::{Identity, IdentityConfig, Trust};
use tidegate_tower::{InAxum, Peer, RateLimit, RateLimitLayer};
use tokio::net::TcpListener;
use tower::{Layer as _, ServiceExt as _};

use crate::support::{Client, limiter, request, rules, serve_limited, serve_made};

const TWO: &str = "{ domain: default, rules: [ { name: all, per: [ip], limit: 2/minute } ] }";

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

#[tokio::test]
async fn around_an_app_peers_are_known_to_the_limiter_or_to_handlers_too() {
    async fn noted(request: axum::extract::Request) -> String {
        let noted = request.extensions().get::<ConnectInfo<SocketAddr>>();
        noted.map_or("nobody".to_owned(), |ConnectInfo(address)| address.ip().to_string())
    }
    let app = || {
        let app = Router::new().route("/", get(noted));
        RateLimitLayer::new(limiter(TWO).0).around(app)
    };
    let alone = serve_made(app().into_make_service_with_peers()).await;
    let both = serve_limited(app()).await;
    for own in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)] {
        for (address, told) in [(alone, "nobody".to_owned()), (both, own.to_string())] {
            let mut client = Client::connect_from(own, address).await;
            for left in ["1", "0"] {
                let answer = client.get("/").await;
                assert_eq!(answer.header("x-ratelimit-remaining"), left);
                assert_eq!(answer.body, told);
            }
            assert_eq!(client.get("/").await.status, 429, "{own}");
        }
    }
}

/// Asks an app from three addresses, which has limits of two for each.
async fn asked_by_three(app: RateLimit<Router, RuleLimiter<ManualClock>, InAxum>) -> [u16; 3] {
    asked_by_three_at(serve_made(app.into_make_service_with_peers()).await).await
}

async fn asked_by_three_at(address: SocketAddr) -> [u16; 3] {
    let mut statuses = [0; 3];
    for (own, status) in (1..).zip(&mut statuses) {
        let mut client = Client::connect_from(Ipv4Addr::new(127, 0, 0, own), address).await;
        *status = client.get("/").await.status.as_u16();
    }
    statuses
}

#[tokio::test]
async fn what_the_program_says_of_a_peer_goes_before_its_connection() {
    let layer = || RateLimitLayer::new(limiter(TWO).0);
    assert_eq!(asked_by_three(layer().around(hello())).await, [200, 200, 200]);
    let somebody = |_: &Extensions| Some(IpAddr::from([192, 0, 2, 7]));
    assert_eq!(asked_by_three(layer().peer(somebody).around(hello())).await, [200, 200, 429]);
    // Who knows nothing leaves it to the connection.
    assert_eq!(asked_by_three(layer().peer(|_| None).around(hello())).await, [200, 200, 200]);
    // In whichever way the app is served.
    for (app, statuses) in [
        (layer().peer(somebody).around(hello()), [200, 200, 429]),
        (layer().peer(|_| None).around(hello()), [200, 200, 200]),
    ] {
        assert_eq!(asked_by_three_at(serve_limited(app).await).await, statuses);
    }
}

#[tokio::test]
async fn a_peer_that_a_request_carries_goes_before_its_connection() {
    let layer = RateLimitLayer::new(limiter(TWO).0).in_axum();
    let of_somebody_else = layer.layer(hello()).of_peer(SocketAddr::from(([192, 0, 2, 8], 80)));
    for status in [200, 200, 429] {
        let mut request = axum::extract::Request::new(Body::empty());
        request.extensions_mut().insert(Peer(SocketAddr::from(([192, 0, 2, 7], 80))));
        let response = of_somebody_else.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), status);
    }
    let request = axum::extract::Request::new(Body::empty());
    assert_eq!(of_somebody_else.oneshot(request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn a_peer_of_a_connection_is_believed_about_clients_only_where_it_is_trusted() {
    for (trusted, statuses) in [("127.0.0.1/32", [200, 200, 200]), ("10.0.0.0/8", [200, 200, 429])]
    {
        let mut config = IdentityConfig::new([7; 16]);
        config.proxies.trust = Trust::Networks(vec![trusted.parse().unwrap()]);
        let layer = RateLimitLayer::new(limiter(TWO).0).identity(Identity::new(config).unwrap());
        let address = serve_made(layer.around(hello()).into_make_service_with_peers()).await;
        let mut client = Client::connect(address).await;
        for (number, status) in (1..).zip(statuses) {
            let mut request = request("GET", "/", "");
            let forwarded = format!("192.0.2.{number}").parse().unwrap();
            request.headers_mut().insert("x-forwarded-for", forwarded);
            assert_eq!(client.send(request).await.status(), status, "{trusted}");
        }
    }
}

/// What a program knows of its connections: here that all of them are of one client.
#[derive(Clone)]
struct Client7(IpAddr);

impl Connected<IncomingStream<'_, TcpListener>> for Client7 {
    fn connect_info(_: IncomingStream<'_, TcpListener>) -> Self {
        Self(IpAddr::from([192, 0, 2, 7]))
    }
}

#[tokio::test]
async fn what_a_program_notes_of_connections_is_there_for_whoever_asks_for_it() {
    let known = |extensions: &Extensions| {
        let ConnectInfo(Client7(address)) = extensions.get()?;
        Some(*address)
    };
    let handler = async |ConnectInfo(Client7(address)): ConnectInfo<Client7>| address.to_string();
    let app = RateLimitLayer::new(limiter(TWO).0).peer(known);
    let app = app.around(Router::new().route("/", get(handler)));
    let address = serve_made(app.into_make_service_with_connect_info::<Client7>()).await;
    for (own, status) in [(1, 200), (2, 200), (3, 429)] {
        let mut client = Client::connect_from(Ipv4Addr::new(127, 0, 0, own), address).await;
        let answer = client.get("/").await;
        assert_eq!(answer.status, status);
        assert!(answer.status != 200 || answer.body == "192.0.2.7", "{}", answer.body);
    }
}

#[tokio::test]
async fn other_rules_hold_from_the_next_request_of_a_connection_on() {
    const BY_PATH: &str = "
domain: default
rules:
  - { name: all, match: { path: / }, per: [ip], limit: 2/minute }
  - { name: other, match: { path: /other }, per: [ip], limit: 1/minute }
";
    let limiter = Arc::new(limiter(TWO).0);
    let layer = RateLimitLayer::sharing(Arc::clone(&limiter));
    let app = layer.around(hello().route("/other", get(async || "other")));
    let mut client = Client::connect(serve_made(app.into_make_service_with_peers()).await).await;
    assert_eq!(client.get("/other").await.header("ratelimit"), r#""all";r=1;t=30"#);
    limiter.reload(rules(BY_PATH)).unwrap();
    assert_eq!(client.get("/other").await.header("ratelimit"), r#""other";r=0;t=60"#);
    assert_eq!(client.get("/other").await.status, 429);
    assert_eq!(client.get("/").await.header("ratelimit"), r#""all";r=0;t=60"#);
    limiter.reload(rules(TWO)).unwrap();
    assert_eq!(client.get("/other").await.status, 429);
}

#[tokio::test]
async fn descriptions_find_the_peer_of_a_connection() {
    const RULES: &str =
        "{ domain: default, rules: [ { name: all, per: [who], limit: 2/minute } ] }";
    let layer = RateLimitLayer::new(limiter(RULES).0).describe(|head, attributes| {
        let who = head.peer.map_or_else(String::new, |peer| peer.to_string());
        attributes.push("who", who.as_bytes());
    });
    let address = serve_made(layer.around(hello()).into_make_service_with_peers()).await;
    for own in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)] {
        let mut client = Client::connect_from(own, address).await;
        assert_eq!(client.get("/").await.header("x-ratelimit-remaining"), "1", "{own}");
    }
}
