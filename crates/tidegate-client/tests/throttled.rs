//! The layer that waits for other people's limits, on a clock that the runtime moves.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use tidegate::{ManualClock, RuleLimiter, RuleSet};
use tidegate_client::{RetryBudget, ThrottledLayer};
use tidegate_rules::{ParseOptions, Source};
use tidegate_tower::RateLimitLayer;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::{Layer as _, Service, ServiceExt as _, service_fn};

type Body = Full<Bytes>;

/// A server that answers from a list, and notes when it was asked.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<Vec<Response<()>>>>,
    asked_at: Arc<Mutex<Vec<Instant>>>,
}

/// What the layer goes around.
trait Answers:
    Service<Request<Body>, Response = Response<()>, Error = Infallible, Future: Send + 'static>
    + Clone
    + Send
    + 'static
{
}

impl<S> Answers for S where
    S: Service<Request<Body>, Response = Response<()>, Error = Infallible, Future: Send + 'static>
        + Clone
        + Send
        + 'static
{
}

impl Server {
    /// Answers in this order, and then 200.
    fn new(answers: &[(u16, &[(&'static str, &str)])]) -> Self {
        let answer = |(status, headers): &(u16, &[(&'static str, &str)])| {
            let mut builder = Response::builder().status(*status);
            for (name, value) in *headers {
                builder = builder.header(*name, *value);
            }
            builder.body(()).unwrap()
        };
        let answers = answers.iter().rev().map(answer).collect();
        Self { answers: Arc::new(Mutex::new(answers)), ..Self::default() }
    }

    fn service(&self) -> impl Answers + use<> {
        let server = self.clone();
        service_fn(move |_: Request<Body>| {
            server.asked_at.lock().unwrap().push(Instant::now());
            let next = server.answers.lock().unwrap().pop();
            async move { Ok(next.unwrap_or_default()) }
        })
    }

    fn asked(&self) -> usize {
        self.asked_at.lock().unwrap().len()
    }

    /// How long before each request but the first.
    fn waits(&self) -> Vec<Duration> {
        let asked_at = self.asked_at.lock().unwrap();
        asked_at.windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

fn request(method: Method) -> Request<Body> {
    let mut request = Request::new(Full::new(Bytes::from("body")));
    *request.method_mut() = method;
    request
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_waited_out() {
    let server = Server::new(&[
        (429, &[("retry-after", "7")]),
        (503, &[("ratelimit", r#""default";r=0;t=5"#)]),
        (
            429,
            &[
                ("retry-after", "Sun, 06 Nov 1994 08:49:40 GMT"),
                ("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ],
        ),
    ]);
    let service = ThrottledLayer::new().layer(server.service());
    assert_eq!(service.oneshot(request(Method::GET)).await.unwrap().status(), 200);
    let waits = server.waits();
    assert_eq!(waits.len(), 3);
    for (wait, told) in waits.iter().zip([7_u64, 5, 3]) {
        let told = Duration::from_secs(told);
        // Up to a tenth is added by chance, and the timer's ticks are whole milliseconds.
        let most = told + told / 10 + Duration::from_millis(1);
        assert!(*wait >= told && *wait <= most, "{wait:?} for {told:?}");
    }
}

/// When each of a thousand callers comes back to a server that refuses for ten seconds. `answer` is how many
/// milliseconds it takes and how many seconds it tells, for each request by its number.
async fn back_at(answer: fn(usize) -> (u64, u64)) -> Vec<Duration> {
    let start = Instant::now();
    let server = Server::default();
    let noted = server.clone();
    let service = service_fn(move |_: Request<Body>| {
        noted.asked_at.lock().unwrap().push(Instant::now());
        let (latency_ms, told_secs) = answer(noted.asked());
        let mut response = Response::new(());
        if start.elapsed() < Duration::from_secs(10) {
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert("retry-after", told_secs.into());
        }
        async move {
            sleep(Duration::from_millis(latency_ms)).await;
            Ok::<_, Infallible>(response)
        }
    });
    let layer = ThrottledLayer::new().retry_budget(RetryBudget::new(100, 10_000));
    let mut callers = JoinSet::new();
    for caller in 0..1_000 {
        let service = layer.layer(service.clone());
        callers.spawn(async move {
            // Half of them come when others were told already, and do not ask.
            sleep(Duration::from_millis(300 * (caller % 2))).await;
            service.oneshot(request(Method::GET)).await.unwrap().status()
        });
    }
    assert!(callers.join_all().await.into_iter().all(|status| status == 200));
    let asked_at = server.asked_at.lock().unwrap();
    assert_eq!(asked_at.len(), 500 + 1_000);
    asked_at[500..].iter().map(|at| *at - start).collect()
}

/// Each tenth of the second has its share of a thousand: that one has fewer than 30 happens never.
fn assert_spread_over_a_second(times: &[Duration], from_ms: u128) {
    assert!(times.iter().all(|time| time.as_millis() >= from_ms), "before {from_ms} ms");
    for tenth in 0..10 {
        let from = from_ms + tenth * 100;
        let share = times.iter().filter(|time| (from..from + 100).contains(&time.as_millis()));
        assert!(share.count() >= 30, "from {from} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_together_come_back_apart() {
    assert_spread_over_a_second(&back_at(|_| (100, 10)).await, 10_100);
}

/// The first one hears after 9.9 seconds that it takes one more. That holds for all, and all of them have
/// waited for so long that a tenth of one second would bring them together.
#[tokio::test(start_paused = true)]
async fn a_short_wait_at_the_end_of_a_long_one_brings_nobody_together() {
    let times = back_at(|number| if number == 1 { (9_900, 1) } else { (100, 10) }).await;
    assert_spread_over_a_second(&times, 10_900);
}

#[tokio::test(start_paused = true)]
async fn who_waits_need_not_ask_once_another_was_told_to_wait_on() {
    let used_up = [("ratelimit", r#""default";r=0;t=10"#)];
    let server = Server::new(&[(200, &used_up), (429, &[("retry-after", "5")])]);
    let layer = ThrottledLayer::new();
    let ask = || layer.layer(server.service()).oneshot(request(Method::POST));
    ask().await.unwrap();
    let (one, other) = tokio::join!(ask(), ask());
    let mut statuses = [one, other].map(|response| response.unwrap().status().as_u16());
    statuses.sort_unstable();
    assert_eq!((statuses, server.asked()), ([200, 429], 3));
    assert!(server.waits()[1] >= Duration::from_secs(5), "{:?}", server.waits());
}

#[tokio::test(start_paused = true)]
async fn no_request_waits_longer_than_it_may() {
    let server = Server::new(&[(429, &[("retry-after", "3600")])]);
    let service = ThrottledLayer::new().wait_max(Duration::from_secs(10)).layer(server.service());
    let start = Instant::now();
    let response = service.oneshot(request(Method::GET)).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!((server.asked(), start.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn who_waits_with_others_waits_no_longer_than_it_may() {
    let used_up = [("ratelimit", r#""default";r=0;t=9"#)];
    for _ in 0..50 {
        let server = Server::new(&[(200, &used_up)]);
        let layer = ThrottledLayer::new().wait_max(Duration::from_secs(10));
        for _ in 0..2 {
            layer.layer(server.service()).oneshot(request(Method::GET)).await.unwrap();
        }
        let [wait] = server.waits()[..] else { panic!("two requests") };
        // The timer's ticks are whole milliseconds.
        assert!(wait <= Duration::from_millis(10_001), "{wait:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn for_ever_is_a_time_to_wait() {
    let server = Server::new(&[(429, &[("retry-after", "3600")])]);
    let service = ThrottledLayer::new().wait_max(Duration::MAX).layer(server.service());
    assert_eq!(service.oneshot(request(Method::GET)).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_gone_is_not_sent_again() {
    use http_body_util::BodyExt as _;
    use http_body_util::combinators::UnsyncBoxBody;
    let asked = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&asked);
    let refuses = service_fn(move |_: Request<UnsyncBoxBody<Bytes, Infallible>>| {
        *counted.lock().unwrap() += 1;
        let refused = Response::builder().status(429).header("retry-after", "1").body(()).unwrap();
        async move { Ok::<_, Infallible>(refused) }
    });
    let service = ThrottledLayer::new().layer(refuses);
    let request = Request::put("/").body(Full::new(Bytes::from("body")).boxed_unsync()).unwrap();
    assert_eq!(service.oneshot(request).await.unwrap().status(), 429);
    assert_eq!(*asked.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_what_may_be_made_twice_is() {
    for (method, key, asked) in [
        (Method::GET, false, 2),
        (Method::PUT, false, 2),
        (Method::DELETE, false, 2),
        (Method::POST, false, 1),
        (Method::PATCH, false, 1),
        (Method::POST, true, 2),
    ] {
        let server = Server::new(&[(429, &[("retry-after", "1")])]);
        let mut request = request(method.clone());
        if key {
            request.headers_mut().insert("idempotency-key", "17".parse().unwrap());
        }
        ThrottledLayer::new().layer(server.service()).oneshot(request).await.unwrap();
        assert_eq!(server.asked(), asked, "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn retries_have_a_number_and_a_budget() {
    let refusal = (429, &[("retry-after", "1")] as &[_]);
    let server = Server::new(&[refusal; 100]);
    let service = ThrottledLayer::new().retries_max(2).layer(server.service());
    let response = service.oneshot(request(Method::GET)).await.unwrap();
    assert_eq!((response.status().as_u16(), server.asked()), (429, 3));

    let server = Server::new(&[refusal; 100]);
    let layer = ThrottledLayer::new().retry_budget(RetryBudget::new(0, 5));
    for _ in 0..10 {
        let service = layer.layer(server.service());
        service.oneshot(request(Method::GET)).await.unwrap();
    }
    assert_eq!(server.asked(), 10 + 5);
}

#[tokio::test(start_paused = true)]
async fn once_nothing_is_left_others_wait_too() {
    let server = Server::new(&[(200, &[("ratelimit", r#""default";r=0;t=20"#)])]);
    let layer = ThrottledLayer::new();
    for _ in 0..2 {
        let service = layer.layer(server.service());
        // What cannot be made twice can still be made late.
        assert_eq!(service.oneshot(request(Method::POST)).await.unwrap().status(), 200);
    }
    let [wait] = server.waits()[..] else { panic!("two requests") };
    assert!(wait >= Duration::from_secs(20) && wait <= Duration::from_secs(25), "{wait:?}");
}

/// How long each of these requests took, one after the other, at our own layer under this limit. None is refused.
async fn times_under(limit: &str, requests: usize) -> Vec<Duration> {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_700_000_007));
    let rules = format!("{{ domain: default, rules: [ {{ name: all, limit: {limit} }} ] }}");
    let source = [Source::new("rules.yaml", rules)];
    let parsed = RuleSet::parse(&source, &ParseOptions::default()).unwrap();
    let limiter = RuleLimiter::builder(parsed.rules).clock(clock.clone()).build().unwrap();
    let hello =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::default())));
    let server = RateLimitLayer::new(limiter).layer(hello);
    let told_at = Arc::new(Mutex::new(Instant::now()));
    let server = service_fn(move |request: Request<Body>| {
        let last = std::mem::replace(&mut *told_at.lock().unwrap(), Instant::now());
        clock.advance(last.elapsed());
        server.clone().oneshot(request)
    });
    let layer = ThrottledLayer::new();
    let mut times = Vec::new();
    for _ in 0..requests {
        let start = Instant::now();
        // What cannot be made twice shows each refusal.
        let response = layer.layer(server.clone()).oneshot(request(Method::POST)).await.unwrap();
        assert_eq!(response.status(), 200);
        times.push(start.elapsed());
    }
    times
}

#[tokio::test(start_paused = true)]
async fn the_next_token_is_waited_for_and_not_the_whole_bucket() {
    for limit in ["1/s burst 20", "20 per 20s"] {
        let times = times_under(limit, 25).await;
        assert!(times[..20].iter().all(Duration::is_zero), "{limit}: {times:?}");
        for time in &times[20..] {
            // A second, a tenth of it by chance, and a tick of the timer.
            let expected = Duration::from_secs(1)..=Duration::from_millis(1_101);
            assert!(expected.contains(time), "{limit}: {times:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_used_up_is_waited_out() {
    let times = times_under("20 per 20s fixed-window", 21).await;
    // It began seven seconds before the first request.
    let expected = Duration::from_secs(13)..=Duration::from_millis(14_301);
    assert!(expected.contains(&times[20]), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_free_again_is_not_waited_for() {
    let times = times_under("1 at once for 10s", 3).await;
    assert!(times.iter().all(Duration::is_zero), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_without_a_time_is_backed_off() {
    let server = Server::new(&[(429, &[]), (503, &[]), (429, &[])]);
    let service = ThrottledLayer::new().layer(server.service());
    assert_eq!(service.oneshot(request(Method::GET)).await.unwrap().status(), 200);
    for (wait, most) in server.waits().into_iter().zip([100, 200, 400]) {
        // The timer's ticks are whole milliseconds.
        assert!(wait <= Duration::from_millis(most + 1), "{wait:?}");
    }
}

/// A wait by chance may be short, so that many of them are looked at: their mean is half of the most.
#[tokio::test(start_paused = true)]
async fn no_time_at_all_is_backed_off_too() {
    let past = [
        ("retry-after", "Sun, 06 Nov 1994 08:49:37 GMT"),
        ("date", "Sun, 06 Nov 1994 08:49:40 GMT"),
    ];
    for told in [&[("retry-after", "0")][..], &past, &[("ratelimit", r#""default";r=0;t=0"#)]] {
        let mut sums = [Duration::ZERO; 3];
        for _ in 0..100 {
            let server = Server::new(&[(503, told), (429, told), (503, told)]);
            let service = ThrottledLayer::new().layer(server.service());
            assert_eq!(service.oneshot(request(Method::GET)).await.unwrap().status(), 200);
            for (sum, wait) in sums.iter_mut().zip(server.waits()) {
                *sum += wait;
            }
        }
        for (sum, most_ms) in sums.into_iter().zip([100, 200, 400]) {
            let mean = sum / 100;
            let most = Duration::from_millis(most_ms);
            assert!(mean > most / 4 && mean < most * 3 / 4, "{mean:?} of {most:?} for {told:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn other_answers_are_handed_on() {
    let server = Server::new(&[(500, &[("retry-after", "1")]), (404, &[])]);
    let layer = ThrottledLayer::new();
    for expected in [500, 404] {
        let service = layer.layer(server.service());
        assert_eq!(service.oneshot(request(Method::GET)).await.unwrap().status(), expected);
    }
    assert_eq!(server.asked(), 2);
}
