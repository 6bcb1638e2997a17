//! What the layer takes from the heap for a request that passes: nothing for the decision and the
//! future, and for headers the buffer of their values and the room in the map.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Empty;
use support::rules;
use tidegate::{Limiter, RuleLimiter};
use tidegate_tower::{HeaderSet, Peer, RateLimitLayer};
use tower::{Layer as _, Service};

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count for each thread.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller keeps the promises of `alloc`, which are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the promises of `dealloc`, and the system made the block.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller keeps the promises of `realloc`, and the system made the block.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// A service that takes nothing.
#[derive(Clone)]
struct Hello;

impl Service<Request<()>> for Hello {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Empty<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Empty::new())))
    }
}

fn request() -> Request<()> {
    let mut request = Request::get("/orders/17").header("host", "example.com").body(()).unwrap();
    request.extensions_mut().insert(Peer(SocketAddr::from(([192, 0, 2, 7], 4711))));
    request
}

/// The allocations of so many requests, once buffers have their size.
fn during<S, B>(service: S, requests: usize) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    during_those(service, requests, request)
}

/// The same of these requests.
fn during_those<S, B>(mut service: S, requests: usize, request: impl Fn() -> Request<()>) -> u64
where
    S: Service<Request<()>, Response = Response<B>, Error = Infallible>,
{
    let mut taken = 0;
    for number in 0..requests + 10 {
        let request = request();
        let before = TAKEN.get();
        let polled = {
            let calling = pin!(service.call(request));
            calling.poll(&mut Context::from_waker(Waker::noop()))
        };
        taken += if number < 10 { 0 } else { TAKEN.get() - before };
        let Poll::Ready(Ok(response)) = polled else { panic!("it is ready at once") };
        assert_eq!(response.status(), 200);
    }
    taken
}

const RULES: &str = "
domain: default
rules: [ { name: orders, match: { path: '/orders/{id}' }, per: [ip], limit: 1000000/day } ]";

fn layer() -> RateLimitLayer<RuleLimiter> {
    layer_of(RULES)
}

fn layer_of(text: &str) -> RateLimitLayer<RuleLimiter> {
    RateLimitLayer::new(RuleLimiter::builder(rules(text)).build().unwrap())
}

#[test]
fn a_limiter_of_two_limits_takes_nothing_from_the_heap() {
    let limiter =
        Limiter::builder().limit("1000000/day").limit("50/hour fixed-window").build().unwrap();
    assert!(limiter.check("ann").is_allowed());
    let before = TAKEN.get();
    let allowed = (0..1_000).filter(|_| limiter.check("ann").is_allowed()).count();
    assert_eq!((allowed, TAKEN.get() - before), (49, 0));
}

#[test]
fn a_request_that_passes_takes_nothing_from_the_heap() {
    assert_eq!(during(Hello, 1_000), 0);
    assert_eq!(during(layer().headers(HeaderSet::None).layer(Hello), 1_000), 0);
}

#[test]
fn a_request_under_two_limits_takes_nothing_from_the_heap_either() {
    for rule in [
        "{ name: orders, per: [ip], limits: [ 1000000/hour, 9000000/day ] }",
        "{ name: orders, per: [ip, host], limits: [ 1000000/hour, 9000000/day fixed-window ] }",
    ] {
        let text = format!("domain: default\nrules: [ {rule} ]");
        assert_eq!(during(layer_of(&text).headers(HeaderSet::None).layer(Hello), 100), 0, "{rule}");
    }
}

#[test]
fn a_request_of_a_connection_whose_limit_is_foreseen_takes_nothing_from_the_heap() {
    let rules = "{ domain: default, rules: [ { name: all, per: [ip], limit: 1000000/day } ] }";
    let service = layer_of(rules).headers(HeaderSet::None).layer(Hello);
    let service = service.of_peer(SocketAddr::from(([192, 0, 2, 7], 4711)));
    let anybody = || Request::get("/orders/17").body(()).unwrap();
    assert_eq!(during_those(service, 1_000, anybody), 0);
}

#[test]
fn a_request_that_is_told_of_no_limit_takes_nothing_from_the_heap() {
    for rule in [
        "{ name: other, match: { path: /elsewhere }, per: [ip], limit: 1000000/day }",
        "{ name: tried, per: [ip], limit: 1000000/day, mode: shadow }",
    ] {
        let text = format!("domain: default\nrules: [ {rule} ]");
        for set in [HeaderSet::All, HeaderSet::Ietf, HeaderSet::XRateLimit, HeaderSet::None] {
            assert_eq!(during(layer_of(&text).headers(set).layer(Hello), 100), 0, "{rule}, {set}");
        }
    }
}

/// A service whose responses have what those of most services have.
#[derive(Clone)]
struct Typed;

impl Service<Request<()>> for Typed {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Empty<Bytes>>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::new(Empty::new());
        let headers = response.headers_mut();
        headers.insert("content-type", HeaderValue::from_static("text/plain"));
        headers.insert("content-length", HeaderValue::from_static("0"));
        ready(Ok(response))
    }
}

#[test]
fn beside_headers_of_a_response_only_all_of_ours_take_another_map() {
    const MAP: u64 = 2;
    let own = during(Typed, 1_000);
    assert_eq!(own, MAP * 1_000);
    for (set, map) in [(HeaderSet::All, MAP), (HeaderSet::Ietf, 0), (HeaderSet::XRateLimit, 0)] {
        let taken = during(layer().headers(set).layer(Typed), 1_000) - own;
        let values = taken - map * 1_000;
        assert!(values <= 100, "{set}: {values} for the values of 1,000 responses");
    }
}

#[test]
fn its_headers_take_their_places_in_the_map_and_hardly_more() {
    // The table of the map and the list of its entries, which a response that has headers already has.
    const MAP: u64 = 2;
    for set in [HeaderSet::All, HeaderSet::Ietf, HeaderSet::XRateLimit] {
        let taken = during(layer().headers(set).layer(Hello), 1_000);
        let values = taken - MAP * 1_000;
        // The responses are gone when the next ones come, so their room is used again.
        assert!(values <= 100, "{set}: {values} for the values of 1,000 responses");
    }
}
