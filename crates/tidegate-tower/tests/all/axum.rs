//! The layer in axum apps on real connections: headers, refusals, clones, routes, identity.

#[path = "../../examples/axum_hello.rs"]
#[allow(dead_code, reason = "its `main` is for people")]
mod axum_hello;
#[path = "../../examples/per_route.rs"]
#[allow(dead_code, reason = "its `main` is for people")]
mod per_route;
use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Answer, Client, limiter, request, rules, serve, serve_limited};
use axum::Router;
use axum::extract::MatchedPath;
use axum::routing::{any, get};
use tidegate_identity::{Identity, IdentityConfig, Source, Trust};
use tidegate_tower::{HeaderSet, RateLimitLayer};
use tokio::task::JoinSet;

const TWO: &str = "{ domain: default, rules: [ { name: all, per: [ip], limit: 2/minute } ] }";

fn hello() -> Router {
    Router::new().route("/", get(async || "hello"))
}

#[tokio::test]
async fn the_example_of_twenty_lines_limits() {
    let mut client = Client::connect(serve_limited(axum_hello::app().unwrap()).await).await;
    for left in (0..10).rev() {
        let answer = client.get("/").await;
        assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "hello\n"));
        assert_eq!(answer.header("x-ratelimit-remaining"), left.to_string());
    }
    assert_eq!(client.get("/").await.status, 429);
}

#[tokio::test]
async fn around_an_app_requests_are_limited_before_they_are_routed() {
    const RULES: &str = "{ domain: default, rules: [ { name: all, per: [ip], limit: 3/minute } ] }";
    let (limiter, _) = limiter(RULES);
    let handled = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&handled);
    let count = async move || {
        // ORDERING: a count that is read when all is over.
        counts.fetch_add(1, Ordering::Relaxed);
        "hello"
    };
    let app = Router::new().route("/", get(count));
    let app = RateLimitLayer::new(limiter).around(app);
    let mut client = Client::connect(serve_limited(app).await).await;
    // As inside of the router, a response has its length and its headers.
    let answer = client.get("/").await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "hello"));
    assert_eq!(answer.header("content-length"), "5");
    assert_eq!(answer.header("ratelimit"), r#""all";r=2;t=20"#);
    // Paths that the app does not have are counted like all others.
    assert_eq!(client.get("/no/such/path").await.status, 404);
    let head = client.send(request("HEAD", "/", "")).await;
    assert_eq!(
        (head.status().as_u16(), head.headers()["content-length"].as_bytes()),
        (200, &b"5"[..])
    );
    assert_eq!(Answer::of(head).await.body, "");
    // What is refused reaches nobody.
    let refused = client.get("/").await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, "20"));
    assert!(refused.body.contains("rate_limit_exceeded"));
    assert_eq!(refused.header("content-length"), refused.body.len().to_string());
    let refused = client.send(request("HEAD", "/", "")).await;
    assert_eq!(refused.status(), 429);
    assert_eq!(Answer::of(refused).await.body, "");
    assert_eq!(client.get("/").await.status, 429, "the connection goes on");
    assert_eq!(handled.load(Ordering::Relaxed), 2);
}

/// What responses have of their own and what they are told, as they come one after the other.
#[tokio::test]
async fn all_responses_of_a_kind_are_told_where_their_clients_stand() {
    const RULES: &str = "
domain: default
rules:
  - { name: all, match: { path: { not: /free } }, per: [ip], limit: 1000/minute }";
    let limits = async || ([("x-ratelimit-limit", "7")], "half told");
    let inner = RateLimitLayer::new(limiter(TWO).0).in_axum();
    let app = Router::new()
        .route("/", get(async || "hello"))
        .route("/long", get(async || ([("x-kind", "long"), ("etag", "\"1\"")], "hello, you")))
        .route("/half", get(limits))
        .route("/inner", get(async || "inner").layer(inner))
        .route("/free", get(async || "free"));
    let app = RateLimitLayer::new(limiter(RULES).0).around(app);
    let mut client = Client::connect(serve_limited(app).await).await;
    let mut left = 1000;
    for round in 0..12 {
        for (path, kind, length) in [("/", "", "5"), ("/long", "long", "10"), ("/half", "", "9")] {
            let answer = client.get(path).await;
            left -= 1;
            let reset = ((1000 - left) * 60_usize).div_ceil(1000).to_string();
            let place = format!("{path}, round {round}");
            assert_eq!(answer.header("x-kind"), kind, "{place}");
            assert_eq!(answer.header("content-length"), length, "{place}");
            assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8", "{place}");
            assert_eq!(answer.header("ratelimit-policy"), r#""all";q=1000;w=60"#, "{place}");
            let standing = format!(r#""all";r={left};t={reset}"#);
            assert_eq!(answer.header("ratelimit"), standing, "{place}");
            assert_eq!(answer.header("x-ratelimit-limit"), "1000", "{place}");
            assert_eq!(answer.header("x-ratelimit-remaining"), left.to_string(), "{place}");
            assert_eq!(answer.header("x-ratelimit-reset"), reset, "{place}");
            let ours = answer.headers.keys().filter(|name| name.as_str().contains("ratelimit"));
            assert_eq!(ours.count(), 5, "{place}");
            assert_eq!(answer.headers.keys_len(), answer.headers.len(), "each once, {place}");
        }
        let free = client.get("/free").await;
        assert!(free.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
        if round < 2 {
            let answer = client.get("/inner").await;
            left -= 1;
            let standings: Vec<_> = answer.headers.get_all("ratelimit").iter().collect();
            assert_eq!(standings.len(), 2, "of both layers");
            assert_eq!(answer.header("x-ratelimit-limit"), "2", "the limit with less left");
        }
    }
}

#[tokio::test]
async fn a_response_tells_where_the_client_stands() {
    let (limiter, _) = limiter(TWO);
    let mut client =
        Client::connect(serve(hello().layer(RateLimitLayer::new(limiter))).await).await;
    let answer = client.get("/").await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "hello"));
    assert_eq!(answer.header("ratelimit-policy"), r#""all";q=2;w=60"#);
    assert_eq!(answer.header("ratelimit"), r#""all";r=1;t=30"#);
    assert_eq!(answer.header("x-ratelimit-limit"), "2");
    assert_eq!(answer.header("x-ratelimit-remaining"), "1");
    assert_eq!(answer.header("x-ratelimit-reset"), "30");
    assert_eq!(answer.header("retry-after"), "");
}

#[tokio::test]
async fn a_refusal_has_status_headers_and_a_problem() {
    let (limiter, clock) = limiter(TWO);
    let mut client =
        Client::connect(serve(hello().layer(RateLimitLayer::new(limiter))).await).await;
    client.get("/").await;
    client.get("/").await;
    let answer = client.get("/").await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), "30");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_eq!(answer.header("content-length"), answer.body.len().to_string());
    let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(problem["error"], "rate_limit_exceeded");
    assert_eq!(problem["violated-policies"][0], "all");
    assert_eq!(problem["retry_after_ms"], 30_000);
    // The wait is exact: a microsecond too early is too early.
    clock.advance(std::time::Duration::from_micros(29_999_999));
    assert_eq!(client.get("/").await.status, 429);
    clock.advance(std::time::Duration::from_micros(1));
    assert_eq!(client.get("/").await.status, 200);
}

#[tokio::test]
async fn the_set_of_headers_is_a_setting() {
    let (limiter, _) = limiter(TWO);
    let layer = RateLimitLayer::new(limiter).headers(HeaderSet::None);
    let mut client = Client::connect(serve(hello().layer(layer)).await).await;
    let answer = client.get("/").await;
    assert!(answer.headers.keys().all(|name| !name.as_str().contains("ratelimit")));
}

#[tokio::test]
async fn two_hundred_at_once_on_a_limit_of_fifty_are_fifty() {
    const RULES: &str = "{ domain: default, rules: [ { name: all, per: [ip], limit: 50/day } ] }";
    let (limiter, _) = limiter(RULES);
    let served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&served);
    let app = Router::new().route(
        "/",
        get(async move || {
            // ORDERING: only the number matters, and it is read after all requests are done.
            counter.fetch_add(1, Ordering::Relaxed);
        }),
    );
    // Every connection has its own clone of the service, and every request another.
    let address = serve(app.layer(RateLimitLayer::new(limiter))).await;
    let mut clients = JoinSet::new();
    for _ in 0..20 {
        clients.spawn(async move {
            let mut client = Client::connect(address).await;
            let mut allowed = 0;
            for _ in 0..10 {
                allowed += usize::from(client.get("/").await.status == 200);
            }
            allowed
        });
    }
    assert_eq!(clients.join_all().await.iter().sum::<usize>(), 50);
    // ORDERING: as above.
    assert_eq!(served.load(Ordering::Relaxed), 50);
}

#[tokio::test]
async fn layers_of_one_limiter_share_what_was_taken() {
    let (limiter, _) = limiter(TWO);
    let layer = RateLimitLayer::new(limiter);
    let one = serve(hello().layer(layer.clone())).await;
    let other = serve(hello().layer(layer)).await;
    let (mut one, mut other) = (Client::connect(one).await, Client::connect(other).await);
    assert_eq!(one.get("/").await.status, 200);
    assert_eq!(other.get("/").await.status, 200);
    assert_eq!(one.get("/").await.status, 429);
    assert_eq!(other.get("/").await.status, 429);
}

#[tokio::test]
async fn routes_have_limits_of_their_own() {
    let mut client = Client::connect(serve_limited(per_route::app().unwrap()).await).await;
    // The policies of both layers are listed, and the numbers are of the tighter one.
    let report = client.get("/reports").await;
    assert_eq!(report.status, 200);
    let policies: Vec<_> = report.headers.get_all("ratelimit-policy").iter().collect();
    let places = r#""one-at-a-time";q=1;qu="concurrent-requests""#;
    assert_eq!(policies, [places, r#""everything";q=100;w=60"#]);
    assert_eq!(report.header("x-ratelimit-limit"), "1");
    // What does not pass the inner layer has passed the outer one, and the refusal stays as it is.
    let large = "x".repeat(900).leak();
    assert_eq!(client.post("/reports", large).await.status, 200);
    let refused = client.post("/reports", large).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("x-ratelimit-limit"), "1000");
    assert_eq!(client.get("/").await.status, 200);
}

#[tokio::test]
async fn only_failed_logins_count() {
    let mut client = Client::connect(serve_limited(per_route::app().unwrap()).await).await;
    for _ in 0..10 {
        assert_eq!(client.post("/login", "tide").await.status, 200);
    }
    for _ in 0..3 {
        assert_eq!(client.post("/login", "ebb").await.status, 401);
    }
    assert_eq!(client.post("/login", "tide").await.status, 429);
}

#[tokio::test]
async fn a_nested_router_meets_rules_for_the_whole_path() {
    const RULES: &str = "
domain: default
rules: [ { name: login, match: { path: /auth/login }, limit: 1/day } ]";
    let (limiter, _) = limiter(RULES);
    let inside = Router::new().route("/login", get(async || "in"));
    let app = Router::new().nest("/auth", inside.layer(RateLimitLayer::new(limiter)));
    let mut client = Client::connect(serve(app).await).await;
    assert_eq!(client.get("/auth/login").await.status, 200);
    assert_eq!(client.get("/auth/login").await.status, 429);
}

#[tokio::test]
async fn spoofed_addresses_change_nothing_unless_a_trusted_proxy_says_them() {
    let spoofed = |n: usize| {
        let mut request = request("GET", "/", "");
        let address = format!("198.51.100.{n}").parse().unwrap();
        request.headers_mut().insert("x-forwarded-for", address);
        request
    };
    let (limiter, _) = limiter(TWO);
    let mut client =
        Client::connect(serve(hello().layer(RateLimitLayer::new(limiter))).await).await;
    for (n, expected) in [(1, 200), (2, 200), (3, 429)] {
        assert_eq!(Answer::of(client.send(spoofed(n)).await).await.status, expected);
    }

    let (limiter, _) = support::limiter(TWO);
    let mut config = IdentityConfig::new([7; 16]);
    config.proxies.trust = Trust::Networks(vec!["127.0.0.0/8".parse().unwrap()]);
    let layer = RateLimitLayer::new(limiter).identity(Identity::new(config).unwrap());
    let mut client = Client::connect(serve(hello().layer(layer)).await).await;
    for (n, expected) in [(1, 200), (1, 200), (1, 429), (2, 200)] {
        assert_eq!(Answer::of(client.send(spoofed(n)).await).await.status, expected);
    }
}

#[tokio::test]
async fn a_request_is_described_by_the_program_too() {
    const RULES: &str = "
domain: default
rules: [ { name: all, match: { plan: free, route: '/users/{id}' }, per: [api_key], limit: 1/day } ]";
    let (limiter, _) = limiter(RULES);
    let mut config = IdentityConfig::new([7; 16]);
    config.api_key = vec![Source::header("x-api-key").unwrap()];
    let layer = RateLimitLayer::new(limiter)
        .identity(Identity::new(config).unwrap())
        .describe(|head, attributes| {
            attributes.push("plan", head.headers.get("x-plan").map_or(b"free", |_| b"paid"));
            if let Some(route) = head.extensions.get::<MatchedPath>() {
                attributes.push("route", route.as_str().as_bytes());
            }
        })
        .refuse_doubtful();
    let app = Router::new().route("/users/{id}", get(async || "ann")).layer(layer);
    let mut client = Client::connect(serve(app).await).await;
    let mut ask = async |id: u8, headers: &[(&'static str, &'static str)]| {
        let mut request = request("GET", &format!("/users/{id}"), "");
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        Answer::of(client.send(request).await).await.status.as_u16()
    };
    assert_eq!(ask(1, &[("x-api-key", "a")]).await, 200);
    assert_eq!(ask(2, &[("x-api-key", "a")]).await, 429);
    assert_eq!(ask(2, &[("x-api-key", "b")]).await, 200);
    assert_eq!(ask(2, &[("x-api-key", "a"), ("x-plan", "paid")]).await, 200);
    // Nobody gets away with two keys.
    assert_eq!(ask(2, &[("x-api-key", "c"), ("x-api-key", "d")]).await, 400);
}

#[tokio::test]
async fn what_reloaded_rules_read_is_there_from_the_first_request_on() {
    const BY_PATH: &str = "
domain: default
rules: [ { name: each, match: { method: GET }, per: [path, host], limit: 1/day } ]";
    let limiter = Arc::new(limiter(TWO).0);
    let app = Router::new().fallback(any(async || "hello"));
    let layer = RateLimitLayer::sharing(Arc::clone(&limiter));
    let mut client = Client::connect(serve(app.layer(layer)).await).await;
    for (path, status) in [("/a", 200), ("/b", 200), ("/c", 429)] {
        assert_eq!(client.get(path).await.status, status, "{path}");
    }
    limiter.reload(rules(BY_PATH)).unwrap();
    for (path, status) in [("/a", 200), ("/a", 429), ("/./a", 429), ("/b", 200), ("/b", 429)] {
        assert_eq!(client.get(path).await.status, status, "{path}");
    }
    assert_eq!(client.post("/a", "").await.status, 200);
    limiter.reload(rules(TWO)).unwrap();
    assert_eq!(client.get("/a").await.status, 429);
}

#[tokio::test]
async fn sixty_spellings_of_login_meet_the_same_rule() {
    const RULES: &str = "
domain: default
rules: [ { name: login, match: { path: /login }, per: [ip], limit: 1/day } ]";
    let (limiter, _) = limiter(RULES);
    let app = Router::new().fallback(any(async || "whatever it is"));
    let mut client = Client::connect(serve(app.layer(RateLimitLayer::new(limiter))).await).await;
    assert_eq!(client.get("/login").await.status, 200);
    assert!(SPELLINGS.len() >= 60, "{}", SPELLINGS.len());
    for spelling in SPELLINGS {
        assert_eq!(client.get(spelling).await.status, 429, "{spelling}");
    }
    for other in ["/logins", "/log/in", "/login/x", "/Login", "/login%00", "/", "/login%252F"] {
        assert_eq!(client.get(other).await.status, 200, "{other}");
    }
}

#[tokio::test]
async fn cases_of_login_meet_the_same_rule_where_it_folds_them() {
    const RULES: &str = "
domain: default
rules: [ { name: login, match: { folded: /login }, per: [ip], limit: 1/day } ]";
    let (limiter, _) = limiter(RULES);
    let layer = RateLimitLayer::new(limiter).describe(|_, attributes| {
        let path = attributes.value("path").map(<[u8]>::to_ascii_lowercase);
        attributes.push("folded", &path.unwrap_or_default());
    });
    let app = Router::new().fallback(any(async || "whatever it is")).layer(layer);
    let mut client = Client::connect(serve(app).await).await;
    assert_eq!(client.get("/login").await.status, 200);
    for spelling in ["/LOGIN", "/Login", "//LoGiN/", "/%4COGIN", "/a/../logiN;x"] {
        assert_eq!(client.get(spelling).await.status, 429, "{spelling}");
    }
}

/// Each of them as it goes over the wire.
const SPELLINGS: &[&str] = &[
    "/login",
    "/login/",
    "/login//",
    "//login",
    "///login",
    "/./login",
    "/././login",
    "/login/.",
    "/login/./",
    "/login/./.",
    "/../login",
    "/../../login",
    "/a/../login",
    "/a/b/../../login",
    "/a//../login",
    "/login/a/..",
    "/login/a/../",
    "/login/..//login",
    "/%6cogin",
    "/%6Cogin",
    "/%6c%6f%67%69%6e",
    "/%6C%6F%67%69%6E",
    "/l%6Fgin",
    "/logi%6e",
    "/%2Flogin",
    "/%2flogin",
    "/%2f%2flogin",
    "/login%2F",
    "/login%2f",
    "/login%2F%2F",
    "/%5Clogin",
    "/%5clogin",
    "/login%5C",
    "/%2e/login",
    "/%2E/login",
    "/%2e%2e/login",
    "/.%2e/login",
    "/%2e./login",
    "/a/%2e%2E/login",
    "/a%2F..%2Flogin",
    "/a%2f%2e%2e%2flogin",
    "/a%5c..%5clogin",
    "/login?",
    "/login?user=1",
    "/login?next=/a/../b",
    "/login??",
    "/login/?x",
    "/login;",
    "/login;x",
    "/login;x=y",
    "/login;jsessionid=1;b=2",
    "/login;x=%2Fy",
    "/login;x=y/",
    "/login/;x=y",
    "/;x=y/login",
    "/a/..;/login",
    "/a/..;x=y/login",
    "/.;/login",
    "/login/.;x",
    "/login;x?y",
    "/login.",
    "/login..",
    "/login./",
    "/login%2e",
    "/login.;x",
    "http://example.com/login",
    "http://example.com//login?x",
    "http://example.com/./login/",
];
