//! Several servers behind: which one is asked, what happens when one fails, and what is sent a second time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tidegate_gateway::upstream::{Balance, Probe};
use tidegate_identity::{Extract, Source};
use tokio::io::AsyncWriteExt as _;

use crate::support::{
    Upstream, ask, full, gateway, get, port, read_head, settings, until, until_idle,
};

#[tokio::test]
async fn requests_take_turns_by_weight() {
    let (one, two) = (Upstream::echo().await, Upstream::echo().await);
    let mut settings = settings(&[&one.url(), &two.url()]);
    settings.routes[0].servers[0].weight = 3;
    let running = gateway(settings).await;
    for _ in 0..8 {
        assert_eq!(get(port(&running), "/").await.status(), 200);
    }
    assert_eq!((one.asked(), two.asked()), (6, 2));
}

#[tokio::test]
async fn one_value_stays_at_one_server() {
    let (one, two) = (Upstream::echo().await, Upstream::echo().await);
    let mut settings = settings(&[&one.url(), &two.url()]);
    settings.routes[0].upstream.balance = Balance::Hash("user".into());
    settings.daemon.identity.extract =
        vec![Extract::named("user", Source::header("x-user").unwrap())];
    let running = gateway(settings).await;
    let mut both = 0;
    for user in 0..20 {
        let before = (one.asked(), two.asked());
        for _ in 0..3 {
            let request = Request::get("/").header("host", "a").header("x-user", user.to_string());
            ask(port(&running), request.body(Full::default()).unwrap()).await;
            until_idle(&running).await;
        }
        let more = (one.asked() - before.0, two.asked() - before.1);
        assert!(more == (3, 0) || more == (0, 3), "{more:?}");
        both |= if more.0 == 3 { 1 } else { 2 };
    }
    assert_eq!(both, 3, "both servers are used");
}

#[tokio::test]
async fn a_server_that_is_gone_costs_no_request_and_is_left_out() {
    let well = Upstream::echo().await;
    let gone = format!("http://{}", tidegate_testing::free_address());
    let running = gateway(settings(&[&gone, &well.url()])).await;
    for _ in 0..40 {
        // A body that was not begun can be sent to another server.
        let request = Request::post("/").header("host", "a");
        let body = Full::new(Bytes::from_static(b"body"));
        let answer = ask(port(&running), request.body(body).unwrap()).await;
        assert_eq!(answer.status(), 200);
        assert!(answer.body().ends_with("4 bytes: body"));
    }
    assert_eq!(well.asked(), 40);
}

#[tokio::test]
async fn only_what_may_be_done_twice_is_sent_twice() {
    let breaking = Upstream::raw(b"").await;
    let running = gateway(settings(&[&breaking.url()])).await;
    for (method, sent) in [("GET", 2), ("PUT", 2), ("POST", 1), ("PATCH", 1)] {
        let before = breaking.asked();
        let request = Request::builder().method(method).uri("/").header("host", "a");
        let answer = ask(port(&running), request.body(Full::default()).unwrap()).await;
        assert_eq!((answer.status().as_u16(), breaking.asked() - before), (502, sent), "{method}");
    }
    let before = breaking.asked();
    let request = Request::put("/").header("host", "a").body(Full::new(Bytes::from("body")));
    assert_eq!(ask(port(&running), request.unwrap()).await.status(), 502);
    assert_eq!(breaking.asked() - before, 1, "a body that was begun is not sent again");
}

#[tokio::test]
async fn retries_have_a_budget() {
    let breaking = Upstream::raw(b"").await;
    let running = gateway(settings(&[&breaking.url()])).await;
    for _ in 0..100 {
        get(port(&running), "/").await;
    }
    let retries = breaking.asked() - 100;
    assert!((10..=30).contains(&retries), "{retries}");
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_costs_no_request() {
    // It answers one request on each connection, says nothing of closing it, and closes it.
    let upstream = Upstream::accepting(|mut stream, asked| async move {
        if read_head(&mut stream).await.is_some() {
            asked.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let running = gateway(settings(&[&upstream.url()])).await;
    for _ in 0..30 {
        let request = Request::post("/").header("host", "a").body(Full::default()).unwrap();
        assert_eq!(ask(port(&running), request).await.status(), 200);
        // The gateway sees the end of the connection before the next request; the race itself is hyper's,
        // which says whether a request left.
        until("closed", || running.counts().upstream_connections == 0).await;
    }
    assert_eq!(upstream.asked(), 30);
}

#[tokio::test]
async fn connections_are_used_again_and_closed_when_idle() {
    let upstream = Upstream::echo().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.routes[0].upstream.idle_timeout = Duration::from_millis(300);
    let running = gateway(settings).await;
    for _ in 0..20 {
        assert_eq!(get(port(&running), "/").await.status(), 200);
        until_idle(&running).await;
    }
    assert!(running.counts().upstream_connections <= 2, "{:?}", running.counts());
    until("closed", || running.counts().upstream_connections == 0).await;
}

#[tokio::test]
async fn probes_leave_out_a_server_that_says_it_is_not_well() {
    let sick = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let is_sick = std::sync::Arc::clone(&sick);
    let moody = Upstream::serving(move |request| {
        let is_probe = request.uri().path() == "/health";
        let is_sick = is_sick.load(Ordering::SeqCst) && is_probe;
        async move {
            let mut response = http::Response::new(full(if is_probe { "probe" } else { "moody" }));
            if is_sick {
                *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            }
            response
        }
    })
    .await;
    let well = Upstream::echo().await;
    let mut settings = settings(&[&moody.url(), &well.url()]);
    settings.routes[0].upstream.probe = Some(Probe {
        path: "/health".into(),
        every: Duration::from_millis(20),
        timeout: Duration::from_secs(5),
    });
    let running = gateway(settings).await;
    until("probed", || moody.asked() >= 4).await;
    for _ in 0..6 {
        assert_ne!(get(port(&running), "/").await.body(), "moody");
    }
    sick.store(false, Ordering::SeqCst);
    let asked = moody.asked();
    until("probed again", || moody.asked() >= asked + 4).await;
    let mut answers = Vec::new();
    for _ in 0..6 {
        answers.push(get(port(&running), "/").await.into_body());
    }
    assert!(answers.iter().any(|answer| answer == "moody"), "{answers:?}");
}
