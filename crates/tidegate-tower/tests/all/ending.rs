//! How requests end: delays, places that are held until a body ends, clients that go away, handlers that
//! panic, decisions that cannot be made.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::support::{Client, limiter, request, rules, serve, until};
use axum::Router;
use axum::body::Body;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tidegate::{Call, ManualClock, Reads, RuleDecision, RuleLimiter};
use tidegate_tower::decide::{Asked, Deciding};
use tidegate_tower::{Decide, OnUndecided, RateLimitLayer, Undecided};
use tokio::sync::{Mutex, Notify, mpsc, oneshot};
use tower::{Layer as _, Service as _, ServiceExt as _, service_fn};

const ONE_AT_ONCE: &str = "{ domain: default, rules: [ { name: places, limit: 1 at once } ] }";

/// How many places are left for a call without attributes.
fn places_left(limiter: &RuleLimiter<ManualClock>) -> u64 {
    limiter.peek(&Call::new("default", &[]).with_cost(0)).unwrap().remaining().unwrap()
}

/// Whether the only place is free.
fn is_free(limiter: &RuleLimiter<ManualClock>) -> bool {
    limiter.peek(&Call::new("default", &[])).unwrap().is_allowed()
}

/// An app whose `/stream` sends what comes over a channel.
fn streaming(limiter: &Arc<RuleLimiter<ManualClock>>) -> (Router, mpsc::Sender<Bytes>) {
    let (app, sender) = streaming_alone();
    (app.layer(RateLimitLayer::sharing(Arc::clone(limiter))), sender)
}

/// The same without a limit.
fn streaming_alone() -> (Router, mpsc::Sender<Bytes>) {
    let (sender, receiver) = mpsc::channel::<Bytes>(1);
    let receiver = Arc::new(Mutex::new(Some(receiver)));
    let handler = async move || {
        let receiver = receiver.lock().await.take().unwrap();
        let frames = stream::unfold(receiver, async |mut receiver| {
            let bytes = receiver.recv().await?;
            Some((Ok::<_, Infallible>(bytes), receiver))
        });
        Body::from_stream(frames)
    };
    let app = Router::new().route("/stream", get(handler)).route("/", get(async || "hello"));
    (app, sender)
}

#[tokio::test]
async fn a_place_is_held_until_the_body_ends() {
    let limiter = Arc::new(limiter(ONE_AT_ONCE).0);
    let (app, sender) = streaming(&limiter);
    let address = serve(app).await;
    let (mut client, mut other) = (Client::connect(address).await, Client::connect(address).await);
    let mut response = client.send(request("GET", "/stream", "")).await;
    assert_eq!(response.status(), 200);
    sender.send(Bytes::from_static(b"first")).await.unwrap();
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "first");
    // The head and a part of the body are there, and the place is still taken.
    assert!(!is_free(&limiter));
    assert_eq!(other.get("/").await.status, 429);
    drop(sender);
    assert!(response.body_mut().frame().await.is_none());
    until("the place is given back", || is_free(&limiter)).await;
    assert_eq!(other.get("/").await.status, 200);
    until("the place is given back", || is_free(&limiter)).await;
}

/// Both clocks go on, and who waits for them gets his turn.
async fn pass_time(clock: &ManualClock, time: Duration) {
    clock.advance(time);
    tokio::time::advance(time).await;
    tokio::task::yield_now().await;
}

#[tokio::test(start_paused = true)]
async fn a_place_is_renewed_while_the_call_goes_on() {
    const STEP: Duration = Duration::from_secs(5);
    const STEPS: u32 = 120;
    let (limiter, clock) = limiter(ONE_AT_ONCE);
    let limiter = Arc::new(limiter);
    let holders = Arc::strong_count(&limiter);
    let respond = Arc::new(Notify::new());
    let responding = Arc::clone(&respond);
    let service = service_fn(move |_: Request<Body>| {
        let responding = Arc::clone(&responding);
        async move {
            responding.notified().await;
            Ok::<_, Infallible>(Response::new(Full::from("slow")))
        }
    });
    let service = RateLimitLayer::sharing(Arc::clone(&limiter)).layer(service);
    let call = tokio::spawn(service.oneshot(Request::new(Body::empty())));
    tokio::task::yield_now().await;
    for _ in 0..STEPS {
        pass_time(&clock, STEP).await;
        assert!(!is_free(&limiter), "the handler is still at work");
    }
    respond.notify_one();
    let response = call.await.unwrap().unwrap();
    for _ in 0..STEPS {
        pass_time(&clock, STEP).await;
        assert!(!is_free(&limiter), "the body has not ended");
    }
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "slow");
    assert!(is_free(&limiter));
    // Nobody renews any more.
    pass_time(&clock, STEP).await;
    assert_eq!(Arc::strong_count(&limiter), holders);
}

#[tokio::test]
async fn a_place_is_held_until_a_body_of_axums_ends() {
    let limiter = Arc::new(limiter(ONE_AT_ONCE).0);
    let (app, sender) = streaming_alone();
    let layer = RateLimitLayer::sharing(Arc::clone(&limiter)).in_axum();
    let address = serve(app.layer(layer)).await;
    let (mut client, mut other) = (Client::connect(address).await, Client::connect(address).await);
    let mut response = client.send(request("GET", "/stream", "")).await;
    sender.send(Bytes::from_static(b"first")).await.unwrap();
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "first");
    assert!(!is_free(&limiter));
    let refused = other.get("/").await;
    assert_eq!(refused.status, 429);
    assert!(refused.body.contains("rate_limit_exceeded"), "{}", refused.body);
    drop(sender);
    assert!(response.body_mut().frame().await.is_none());
    until("the place is given back", || is_free(&limiter)).await;
    assert_eq!(other.get("/").await.body, "hello");
}

#[tokio::test]
async fn a_client_that_goes_away_in_mid_body_gives_its_place_back() {
    let limiter = Arc::new(limiter(ONE_AT_ONCE).0);
    let (app, sender) = streaming(&limiter);
    let address = serve(app).await;
    let mut client = Client::connect(address).await;
    let mut response = client.send(request("GET", "/stream", "")).await;
    sender.send(Bytes::from_static(b"first")).await.unwrap();
    response.body_mut().frame().await.unwrap().unwrap();
    assert!(!is_free(&limiter));
    drop((client, response));
    until("the place is given back", || is_free(&limiter)).await;
}

#[tokio::test]
async fn a_client_that_goes_away_before_the_response_gives_its_place_back() {
    let limiter = Arc::new(limiter(ONE_AT_ONCE).0);
    let (begun, has_begun) = oneshot::channel::<()>();
    let begun = Arc::new(Mutex::new(Some(begun)));
    let handler = async move || {
        begun.lock().await.take().unwrap().send(()).unwrap();
        std::future::pending::<()>().await;
    };
    let app = Router::new().route("/", get(handler));
    let address = serve(app.layer(RateLimitLayer::sharing(Arc::clone(&limiter)))).await;
    let asking = tokio::spawn(async move { Client::connect(address).await.get("/").await });
    has_begun.await.unwrap();
    assert!(!is_free(&limiter));
    asking.abort();
    until("the place is given back", || is_free(&limiter)).await;
}

#[tokio::test]
async fn a_handler_that_panics_gives_its_place_back() {
    let limiter = Arc::new(limiter(ONE_AT_ONCE).0);
    let panics = service_fn(async |_: Request<()>| -> Result<Response<Full<Bytes>>, Infallible> {
        panic!("a mistake of the handler")
    });
    let mut service = RateLimitLayer::sharing(Arc::clone(&limiter)).layer(panics);
    for _ in 0..3 {
        let calling = service.ready().await.unwrap().call(Request::new(()));
        assert!(!is_free(&limiter));
        assert!(tokio::spawn(calling).await.unwrap_err().is_panic());
        assert!(is_free(&limiter));
    }
}

#[tokio::test]
async fn an_error_of_the_service_gives_its_place_back() {
    let limiter = Arc::new(limiter(ONE_AT_ONCE).0);
    let fails = service_fn(async |_: Request<()>| Err::<Response<Full<Bytes>>, _>("broken"));
    let service = RateLimitLayer::sharing(Arc::clone(&limiter)).layer(fails);
    assert_eq!(service.oneshot(Request::new(())).await.unwrap_err(), "broken");
    assert!(is_free(&limiter));
}

#[tokio::test]
async fn a_hundred_streams_at_once_leave_no_place_behind() {
    const RULES: &str = "{ domain: default, rules: [ { name: places, limit: 40 at once } ] }";
    let limiter = Arc::new(limiter(RULES).0);
    let app = Router::new().route("/", get(async || "x".repeat(100_000)));
    let address = serve(app.layer(RateLimitLayer::sharing(Arc::clone(&limiter)))).await;
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..100_usize {
        clients.spawn(async move {
            let mut client = Client::connect(address).await;
            let mut response = client.send(request("GET", "/", "")).await;
            let allowed = response.status() == StatusCode::OK;
            // Every third goes away when it has seen some of it.
            if number.is_multiple_of(3) {
                response.body_mut().frame().await;
            } else {
                response.collect().await.unwrap();
            }
            usize::from(allowed)
        });
    }
    assert!(clients.join_all().await.iter().sum::<usize>() >= 40);
    until("all places are free", || places_left(&limiter) == 40).await;
}

#[tokio::test]
async fn a_guess_that_nobody_waits_for_stays_counted() {
    const RULES: &str = "
domain: default
rules: [ { name: logins, limit: 1/day, count: on-response, statuses: [401] } ]";
    let limiter = Arc::new(limiter(RULES).0);
    let never = service_fn(async |_: Request<()>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
    });
    let mut service = RateLimitLayer::sharing(Arc::clone(&limiter)).layer(never);
    drop(service.call(Request::new(())));
    assert!(!is_free(&limiter));
}

#[tokio::test]
async fn a_place_and_a_count_by_the_response_end_each_at_its_time() {
    const RULES: &str = "
domain: default
rules:
  - { name: logins, limit: 1/day, count: on-response, statuses: [401] }
  - { name: places, limit: 2 at once }";
    let limiter = Arc::new(limiter(RULES).0);
    let fine = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("welcome"))))
    });
    let service = RateLimitLayer::sharing(Arc::clone(&limiter)).layer(fine);
    let left = || -> Vec<u64> {
        let decision = limiter.peek(&Call::new("default", &[])).unwrap();
        decision.limits().map(|limit| limit.remaining()).collect()
    };
    let before = left();
    let response = service.oneshot(Request::new(())).await.unwrap();
    // The login is not counted any more, and the place is still held.
    assert_eq!(left(), [before[0], before[1] - 1]);
    response.into_body().collect().await.unwrap();
    assert_eq!(left(), before);
}

const QUEUE: &str =
    "{ domain: default, rules: [ { name: queue, limit: 1/minute burst 4 leaky-bucket } ] }";

fn echo() -> impl tower::Service<
    Request<()>,
    Response = Response<Full<Bytes>>,
    Error = Infallible,
    Future: Send + 'static,
> + Clone
+ Send {
    service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
    })
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_holds_requests_back() {
    let limiter = limiter(QUEUE).0;
    let layer = RateLimitLayer::new(limiter).delay_max(Duration::from_mins(2));
    let service = layer.layer(echo());
    let start = tokio::time::Instant::now();
    // Without a wait, after one and after two minutes; the fourth would wait for too long.
    for (minutes, expected) in [(0, 200), (1, 200), (2, 200), (0, 429)] {
        let asked_at = tokio::time::Instant::now();
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), expected);
        // The limiter's clock stands still, so all of them come at one moment for it.
        let waited = asked_at.elapsed();
        assert!(waited >= Duration::from_secs(60 * minutes), "{waited:?}");
        assert!(waited < Duration::from_secs(60 * minutes + 1), "{waited:?}");
    }
    assert!(start.elapsed() >= Duration::from_mins(3));
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_turn_is_too_far_off_is_refused_and_takes_nothing() {
    let limiter = Arc::new(limiter(QUEUE).0);
    let layer = RateLimitLayer::sharing(Arc::clone(&limiter)).delay_max(Duration::from_secs(30));
    let service = layer.layer(echo());
    assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap().status(), 200);
    for _ in 0..10 {
        let response = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(response.status(), 429);
        // In half a minute its turn would be half a minute off.
        assert_eq!(response.headers()["retry-after"], "30");
    }
    assert_eq!(limiter.peek(&Call::new("default", &[])).unwrap().delay(), Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_goes_away_while_it_waits_gives_its_turn_back() {
    let limiter = Arc::new(limiter(QUEUE).0);
    let layer = RateLimitLayer::sharing(Arc::clone(&limiter)).delay_max(Duration::from_mins(2));
    let service = layer.layer(echo());
    let turn = || limiter.peek(&Call::new("default", &[])).unwrap().delay().as_secs();
    service.clone().oneshot(Request::new(())).await.unwrap();
    let waiting = tokio::spawn(service.clone().oneshot(Request::new(())));
    until("it waits", || turn() == 120).await;
    waiting.abort();
    until("its turn is given back", || turn() == 60).await;
}

/// Never decides, and has to be waited for to say so.
struct Nobody;

impl Decide for Nobody {
    type Decided = RuleDecision;

    fn decide_now(&self, _: &Call<'_>) -> Option<Result<RuleDecision, Undecided>> {
        None
    }

    fn decide(self: Arc<Self>, asked: Asked) -> Deciding<RuleDecision> {
        assert_eq!((&*asked.domain, asked.cost), ("default", 1));
        Box::pin(async {
            tokio::task::yield_now().await;
            Err(Undecided::Unavailable)
        })
    }

    fn responded(self: &Arc<Self>, _: &mut RuleDecision, _: u16) {}

    fn ended(self: &Arc<Self>, _: RuleDecision) {}

    fn withdrawn(self: &Arc<Self>, _: RuleDecision) {}
}

#[tokio::test]
async fn what_cannot_be_decided_is_no_denial() {
    let app = || Router::new().route("/", post(async || "hello"));
    let address = serve(app().layer(RateLimitLayer::new(Nobody))).await;
    let answer = Client::connect(address).await.post("/", "").await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("retry-after"), "1");
    let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!((&problem["status"], &problem["source"]), (&503.into(), &"fallback".into()));

    let layer = RateLimitLayer::new(Nobody).on_undecided(OnUndecided::LetPass);
    let address = serve(app().layer(layer)).await;
    let answer = Client::connect(address).await.post("/", "").await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "hello"));
}

/// Reads the address where it decides at once, and never does.
struct NotNow;

impl Decide for NotNow {
    type Decided = RuleDecision;

    fn decide_now(&self, call: &Call<'_>) -> Option<Result<RuleDecision, Undecided>> {
        let names: Vec<_> = call.attributes.iter().map(|attribute| attribute.name).collect();
        assert_eq!(names, ["ip"]);
        None
    }

    fn reads(&self, _: Option<&RuleDecision>) -> Reads {
        Reads::IP
    }

    fn decide(self: Arc<Self>, asked: Asked) -> Deciding<RuleDecision> {
        assert_eq!(asked.attributes.value("ip"), Some(&b"127.0.0.1"[..]));
        assert_eq!(asked.attributes.value("method"), Some(&b"POST"[..]));
        assert_eq!(asked.attributes.value("path"), Some(&b"/"[..]));
        Box::pin(async { Err(Undecided::Unavailable) })
    }

    fn responded(self: &Arc<Self>, _: &mut RuleDecision, _: u16) {}

    fn ended(self: &Arc<Self>, _: RuleDecision) {}

    fn withdrawn(self: &Arc<Self>, _: RuleDecision) {}
}

#[tokio::test]
async fn who_is_waited_for_is_told_everything() {
    let layer = RateLimitLayer::new(NotNow).on_undecided(OnUndecided::LetPass);
    let app = Router::new().route("/", post(async || "hello")).layer(layer);
    let answer = Client::connect(serve(app).await).await.post("/", "").await;
    assert_eq!((answer.status.as_u16(), answer.body.as_str()), (200, "hello"));
}

/// Takes a place at once, and says so late, as a store does that answers over a network.
struct Late(Arc<RuleLimiter<ManualClock>>, Arc<Notify>);

impl Decide for Late {
    type Decided = RuleDecision;

    fn decide_now(&self, _: &Call<'_>) -> Option<Result<RuleDecision, Undecided>> {
        None
    }

    fn decide(self: Arc<Self>, asked: Asked) -> Deciding<RuleDecision> {
        Box::pin(async move {
            let decided = self.0.check(&asked.call(&[])).map_err(Undecided::from);
            self.1.notified().await;
            decided
        })
    }

    fn responded(self: &Arc<Self>, _: &mut RuleDecision, _: u16) {}

    fn ended(self: &Arc<Self>, decided: RuleDecision) {
        self.0.abandon(decided);
    }

    fn withdrawn(self: &Arc<Self>, decided: RuleDecision) {
        self.0.refund(decided);
    }
}

#[tokio::test]
async fn a_client_that_goes_away_while_a_store_decides_gives_its_place_back() {
    let limiter = Arc::new(limiter(ONE_AT_ONCE).0);
    let answers = Arc::new(Notify::new());
    let late = Late(Arc::clone(&limiter), Arc::clone(&answers));
    let service = RateLimitLayer::new(late).layer(echo());
    let asking = tokio::spawn(service.oneshot(Request::new(())));
    until("it is taken", || !is_free(&limiter)).await;
    asking.abort();
    assert!(asking.await.is_err());
    assert!(!is_free(&limiter), "nobody knows of it yet");
    answers.notify_one();
    until("it is given back", || is_free(&limiter)).await;
}

/// May be called once each time it was found ready, and a clone of it was not.
#[derive(Default)]
struct Picky {
    is_ready: bool,
}

impl Clone for Picky {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl tower::Service<Request<()>> for Picky {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Full<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.is_ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(std::mem::take(&mut self.is_ready), "called without having been found ready");
        std::future::ready(Ok(Response::new(Full::default())))
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_found_ready_is_the_one_that_is_called() {
    // At once, after a delay, and after a decision that is waited for.
    let layer = RateLimitLayer::new(limiter(QUEUE).0).delay_max(Duration::from_mins(2));
    let mut service = layer.layer(Picky::default());
    for _ in 0..3 {
        let response = service.ready().await.unwrap().call(Request::new(())).await.unwrap();
        assert_eq!(response.status(), 200);
    }
    let answers = Arc::new(Notify::new());
    answers.notify_one();
    let late = Late(Arc::new(limiter(QUEUE).0), answers);
    let mut service = RateLimitLayer::new(late).layer(Picky::default());
    let response = service.ready().await.unwrap().call(Request::new(())).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn a_limiter_that_may_wait_decides_in_memory_at_once() {
    let limiter = RuleLimiter::builder(rules(ONE_AT_ONCE)).build().unwrap();
    let limiter: Arc<RuleLimiter<_, tidegate::Place>> = Arc::new(limiter.into());
    let service = RateLimitLayer::sharing(Arc::clone(&limiter)).layer(echo());
    let first = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(first.status(), 200);
    assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap().status(), 429);
    drop(first);
    assert_eq!(service.clone().oneshot(Request::new(())).await.unwrap().status(), 200);
}
