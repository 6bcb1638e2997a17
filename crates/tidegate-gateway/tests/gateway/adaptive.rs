//! A limit that follows the latency of a real upstream: it comes down when the upstream slows down, what is less
//! important is refused first, elastic rules hear of it, and all of it goes back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use tidegate_gateway::route::Shed;
use tidegate_server::serve::process::Life as _;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{Folder, Upstream, full, gateway, port, until, whole, with_rules};

/// How fast the upstream is when it is well, and when it is not.
const FAST_MS: u64 = 20;
const SLOW_MS: u64 = 200;
/// How many ask at once, one half of them for what is less important.
const CLIENTS: usize = 60;
/// How many more there are when the upstream is slow: who would have been answered by then.
const MORE_CLIENTS: usize = 120;
/// How often is looked for something that a moment may hide.
const LOOKS: usize = 40;
const IN_A_ROW: usize = 3;
/// What the rule gives without stretching.
const QUOTA: &str = "1000000";

/// How often requests of one priority were forwarded and refused.
#[derive(Debug, Default)]
struct Seen {
    passed: AtomicUsize,
    refused: AtomicUsize,
}

impl Seen {
    fn take(&self) -> (usize, usize) {
        (self.passed.swap(0, Ordering::SeqCst), self.refused.swap(0, Ordering::SeqCst))
    }
}

/// Asks again and again over one connection.
async fn keep_asking(address: SocketAddr, path: &'static str, seen: Arc<Seen>) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    loop {
        let request = Request::get(path).header("host", "a");
        let request = request.body(Full::<bytes::Bytes>::default()).unwrap();
        sender.ready().await.unwrap();
        let answer = whole(sender.send_request(request).await.unwrap()).await;
        if answer.status() == 200 {
            seen.passed.fetch_add(1, Ordering::SeqCst);
        } else {
            assert_eq!(answer.status(), 503);
            seen.refused.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// How much the rule gives, as the first answer tells that is none of an upstream that is too busy.
async fn quota(address: SocketAddr) -> http::HeaderValue {
    loop {
        let answer = crate::support::get(address, "/").await;
        if answer.status() == 200 {
            return answer.headers()["x-ratelimit-limit"].clone();
        }
    }
}

/// Hardly any request is refused, several times in a row. A machine that stands still for a moment looks as an upstream
/// that got slow, so that it may take a while.
async fn assert_room_for_all(usual: &Seen, low: &Seen) {
    let (mut seen, mut in_a_row) = (Vec::new(), 0);
    for _ in 0..LOOKS {
        let _ = (usual.take(), low.take());
        until("asked", || usual.passed.load(Ordering::SeqCst) > 5 * CLIENTS).await;
        let ((passed, refused), (_, low_refused)) = (usual.take(), low.take());
        in_a_row = if refused + low_refused < passed / 10 { in_a_row + 1 } else { 0 };
        if in_a_row == IN_A_ROW {
            return;
        }
        seen.push((passed, refused, low_refused));
    }
    panic!("passed, refused, and refused of the less important: {seen:?}");
}

#[tokio::test]
async fn the_limit_follows_the_latency_and_what_is_less_important_goes_first() {
    let takes_ms = Arc::new(AtomicU64::new(FAST_MS));
    let takes = Arc::clone(&takes_ms);
    let upstream = Upstream::serving(move |_| {
        let takes_ms = takes.load(Ordering::SeqCst);
        async move {
            tokio::time::sleep(Duration::from_millis(takes_ms)).await;
            Response::new(full("done"))
        }
    })
    .await;
    let folder = Folder::new("adaptive");
    let rules = "{ domain: default, rules: [ { name: all, limit: 1000000/s, \
                 elastic: { up_to: 150%, while_pressure_below: 0.7 } } ] }";
    let rules = folder.write("rules.yaml", rules);
    let mut settings = with_rules(&[&upstream.url()], |layer| layer.rules = Some(vec![rules]));
    settings.routes[0].upstream.is_adaptive = true;
    settings.routes[0].shed = Some(Shed { attribute: "path".into(), values: vec!["/low".into()] });
    let running = gateway(settings).await;
    let (usual, low) = (Arc::new(Seen::default()), Arc::new(Seen::default()));
    let ask = |number: usize| {
        let (path, seen) = if number.is_multiple_of(2) { ("/", &usual) } else { ("/low", &low) };
        let asking = keep_asking(port(&running), path, Arc::clone(seen));
        AbortOnDropHandle::new(tokio::spawn(asking))
    };
    let asking: Vec<AbortOnDropHandle<()>> = (0..CLIENTS).map(ask).collect();
    let pressure = || running.upstream_pressure().unwrap().millionths();

    // While the upstream is fast, there comes to be room for all, and some to spare.
    until("room for all", || running.counts().under_way_max > CLIENTS * 5 / 4).await;
    until("little pressure", || pressure() < 850_000).await;
    assert_room_for_all(&usual, &low).await;

    takes_ms.store(SLOW_MS, Ordering::SeqCst);
    let more: Vec<AbortOnDropHandle<()>> = (0..MORE_CLIENTS).map(ask).collect();
    until("the limit comes down", || {
        let counts = running.counts();
        counts.under_way_max < CLIENTS / 3 && counts.under_way <= counts.under_way_max
    })
    .await;
    let _ = (usual.take(), low.take());
    until("some pass", || usual.passed.load(Ordering::SeqCst) > 3 * CLIENTS).await;
    let ((usual_passed, usual_refused), (low_passed, low_refused)) = (usual.take(), low.take());
    assert!(low_refused > 0 && usual_passed > 0, "{usual_passed} {low_refused}");
    let (all_usual, all_low) = (usual_passed + usual_refused, low_passed + low_refused);
    assert!(
        low_passed * all_usual < usual_passed * all_low,
        "of {all_usual} usual ones {usual_passed} passed, of {all_low} others {low_passed}"
    );
    let limiter = running.daemon().engine().limiter();
    // What they hear once a second is of that moment.
    let (mut looks, mut in_a_row) = (0, 0);
    while in_a_row < IN_A_ROW {
        let pressure = || limiter.pressure().at(limiter.now()).millionths();
        until("elastic rules hear of it", || pressure() > 850_000).await;
        in_a_row = if quota(port(&running)).await == QUOTA { in_a_row + 1 } else { 0 };
        looks += 1;
        assert!(looks < LOOKS, "limits are stretched");
    }

    takes_ms.store(FAST_MS, Ordering::SeqCst);
    drop(more);
    until("room for all again", || running.counts().under_way_max > CLIENTS * 5 / 4).await;
    until("little pressure again", || pressure() < 850_000).await;
    drop(asking);
    assert_eq!(running.shutdown().await.cut, 0);
}
