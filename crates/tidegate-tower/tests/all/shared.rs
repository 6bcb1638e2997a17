//! The layer over limits that nodes share: two apps, one store, and a store that goes away.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Client, PATIENCE, rules, serve};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use tidegate::redis::lease::LeaseStats;
use tidegate::redis::{RedisConfig, Shared};
use tidegate::{Call, Place, RuleLimiter, SystemClock};
use tidegate_testing::undisturbed;
use tidegate_tower::RateLimitLayer;
use tokio::time::Instant;

const RULES: &str = "
domain: default
rules:
  - { name: all, match: { path: / }, limit: 4/hour, on_store_failure: deny }
  - { name: logins, match: { path: /login }, limit: 1/hour, count: on-response, statuses: [401] }
  - { name: places, match: { path: /place }, limit: 1 at once }
  - { name: short places, match: { path: /slow }, limit: 1 at once for 3s }
  - { name: leased, match: { path: /leased }, limit: 400/day, consistency: leased }
";

/// How long a handler takes that outlasts its place.
const SLOW: Duration = Duration::from_secs(5);

/// A running server. It ends with this value.
struct Server {
    child: Child,
    socket: PathBuf,
    _log: BufReader<ChildStdout>,
}

impl Server {
    fn start(name: &str) -> Self {
        let file = format!("tidegate-tower-{}-{name}.sock", std::process::id());
        let socket = std::env::temp_dir().join(file);
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "notice"]);
        command.arg("--unixsocket").arg(&socket).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut log = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("eady to accept connections") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended before it was ready");
        }
        Self { child, socket, _log: log }
    }

    async fn node(&self) -> Arc<RuleLimiter<SystemClock, Place>> {
        let url = format!("redis+unix://{}", self.socket.display());
        let config = RedisConfig::new(&url).unwrap().deadline(PATIENCE).connect_timeout(PATIENCE);
        let shared = Arc::new(Shared::connect(config).await.unwrap());
        let builder = RuleLimiter::builder(rules(RULES)).secret(*b"shared by a flee");
        Arc::new(builder.build_shared(shared).unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing that is worth keeping.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn app(limiter: Arc<RuleLimiter<SystemClock, Place>>) -> Client {
    let app = Router::new()
        .route("/", get(async || "hello"))
        .route("/place", get(async || "held"))
        .route("/slow", get(async || tokio::time::sleep(SLOW).await))
        .route("/leased", get(async || "quick"))
        .route(
            "/login",
            post(
                async |password: String| {
                    if password == "tide" { StatusCode::OK } else { StatusCode::UNAUTHORIZED }
                },
            ),
        );
    Client::connect(serve(app.layer(RateLimitLayer::sharing(limiter))).await).await
}

#[tokio::test]
async fn apps_on_one_store_share_a_limit() {
    let server = Server::start("share");
    let (mut one, mut other) = (app(server.node().await).await, app(server.node().await).await);
    for left in [3, 1] {
        let answer = one.get("/").await;
        assert_eq!(answer.header("x-ratelimit-remaining"), left.to_string());
        let answer = other.get("/").await;
        assert_eq!(answer.header("x-ratelimit-remaining"), (left - 1).to_string());
    }
    assert_eq!(one.get("/").await.status, 429);
    assert_eq!(other.get("/").await.status, 429);
}

#[tokio::test]
async fn what_is_leased_pays_for_requests_and_is_never_more_than_the_limit() {
    for _ in 0..5 {
        let (passed, leases) = spend_all_that_is_leased().await;
        assert!(passed <= 401, "{passed} of 400, and what came back in the meantime");
        assert!(leases.spent > 0, "{leases:?}");
        // A lease that was not looked after in time, on a machine that stood still, is charged in full.
        if leases.expired == 0 {
            assert!(passed >= 350, "{passed} of 400");
            return;
        }
    }
    panic!("leases expire each time");
}

/// How many requests passed until some were refused, and what became of the leases.
async fn spend_all_that_is_leased() -> (u32, LeaseStats) {
    let server = Server::start("leased");
    let limiter = server.node().await;
    let mut client = app(Arc::clone(&limiter)).await;
    let (mut passed, mut refused) = (0, 0);
    // It is leased once it is asked for often.
    for _ in 0..50 {
        let attributes = [("path", "/leased").into()];
        let decision = limiter.check(&Call::new("default", &attributes)).await.unwrap();
        passed += u32::from(decision.is_allowed());
    }
    while refused < 10 {
        let status = client.get("/leased").await.status;
        assert!(status == 200 || status == 429, "{status}");
        passed += u32::from(status == 200);
        refused += u32::from(status == 429);
    }
    let Place::Shared(shared) = limiter.place() else { unreachable!() };
    (passed, shared.stats().groups[0].leases)
}

#[tokio::test]
async fn places_and_uncounted_responses_come_back_to_the_store() {
    let server = Server::start("back");
    let limiter = server.node().await;
    let mut client = app(Arc::clone(&limiter)).await;
    // What is given back is told to the store after the response.
    let free = async |path: &str| {
        let attributes = [("path", path).into()];
        let waiting = async {
            while !limiter.peek(&Call::new("default", &attributes)).await.unwrap().is_allowed() {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    };
    for _ in 0..3 {
        assert_eq!(client.get("/place").await.status, 200);
        free("/place").await;
        assert_eq!(client.post("/login", "tide").await.status, 200);
        free("/login").await;
    }
    assert_eq!(client.post("/login", "ebb").await.status, 401);
    assert_eq!(client.post("/login", "tide").await.status, 429);
}

#[test]
fn a_place_of_the_store_is_renewed_while_the_call_goes_on() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    undisturbed(|| runtime.block_on(see_a_place_renewed()));
}

async fn see_a_place_renewed() {
    let server = Server::start("renew");
    let (here, there) = (server.node().await, server.node().await);
    let mut client = app(here).await;
    let began = Instant::now();
    let call = tokio::spawn(async move { client.get("/slow").await.status });
    let attributes = [("path", "/slow").into()];
    let is_free =
        async || there.peek(&Call::new("default", &attributes)).await.unwrap().is_allowed();
    while is_free().await {
        assert!(began.elapsed() < SLOW, "it takes a place");
    }
    while !is_free().await {
        assert!(began.elapsed() < SLOW + PATIENCE, "it gives its place back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() >= SLOW, "free after {:?}", began.elapsed());
    assert_eq!(call.await.unwrap(), 200);
}

#[tokio::test]
async fn a_store_that_is_away_is_503_where_the_rule_says_deny() {
    let server = Server::start("away");
    let mut client = app(server.node().await).await;
    assert_eq!(client.get("/").await.status, 200);
    drop(server);
    let waiting = async {
        loop {
            let answer = client.get("/").await;
            if answer.status == 503 {
                return answer;
            }
            // Until it is noticed, answers may come from what is known.
            assert_ne!(answer.status, 429);
        }
    };
    let answer = tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    assert!(answer.body.contains(r#""source":"fallback""#), "{}", answer.body);
}
