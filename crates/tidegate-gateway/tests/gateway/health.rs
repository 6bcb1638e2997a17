//! Servers that fail: what their operator is told of it, and when they are left out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use tidegate_gateway::{GatewaySettings, Running};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use crate::log::Log;
use crate::support::{Upstream, ask, full, gateway, port, read_head, settings, until_idle};

/// Sends a request by the lane for plain ones, or by the general way, and gives its status.
async fn status(running: &Running, is_plain: bool) -> u16 {
    status_of(running, is_plain, "GET").await
}

async fn status_of(running: &Running, is_plain: bool, method: &str) -> u16 {
    let te = if is_plain { "x-te" } else { "te" };
    let request = Request::builder().method(method).uri("/secret?token=secret");
    let request = request.header("host", "secret").header(te, "trailers");
    ask(port(running), request.body(Full::default()).unwrap()).await.status().as_u16()
}

/// What is told of a server that fails one request, which is answered with this status.
async fn told(settings: GatewaySettings, is_plain: bool, answer: u16) -> String {
    let log = Log::begin();
    let running = gateway(settings).await;
    assert_eq!(status(&running, is_plain).await, answer);
    assert!(!log.text().contains("secret"), "{}", log.text());
    let lines = log.lines("an upstream fails");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains(" WARN "), "{lines:?}");
    lines[0].clone()
}

#[tokio::test]
async fn why_a_server_fails_is_told_at_the_usual_level() {
    let gone = format!("http://{}", tidegate_testing::free_address());
    let closing = Upstream::raw(b"").await;
    let mail = Upstream::raw(b"220 mail.example ESMTP\r\n").await;
    let silent = Upstream::accepting(|mut stream, _| async move {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    for is_plain in [true, false] {
        for (url, answer, why) in [
            (gone.clone(), 502, "no connection: Connection refused"),
            (closing.url(), 502, "the connection was closed before a whole answer"),
            (mail.url(), 502, "the answer is no HTTP"),
            (silent.url(), 504, "no answer within 50ms"),
        ] {
            let mut settings = settings(&[&url]);
            settings.routes[0].bounds.response_timeout = Duration::from_millis(50);
            settings.routes[0].upstream.attempts = 1;
            if answer != 504 {
                settings.routes[0].bounds.response_timeout = Duration::from_secs(30);
            }
            let line = told(settings, is_plain, answer).await;
            assert!(line.contains(&url) && line.contains(why), "{why}: {line}");
        }
    }
}

#[tokio::test]
async fn a_server_that_fails_is_told_of_and_when_it_is_left_out_and_not_for_every_request() {
    let gone = format!("http://{}", tidegate_testing::free_address());
    for is_plain in [true, false] {
        let log = Log::begin();
        let running = gateway(settings(&[&gone])).await;
        for _ in 0..50 {
            assert_eq!(status(&running, is_plain).await, 502);
        }
        let lines = log.lines("an upstream fails");
        assert_eq!(lines.len(), 2, "{lines:?}");
        let out = &lines[1];
        assert!(out.contains("is left out") && out.contains("seconds=5"), "{out}");
        assert!(out.contains("Connection refused"), "{out}");
    }
}

#[tokio::test]
async fn a_server_that_is_back_is_told_of() {
    // For so long it is left out the first time.
    const OUT: Duration = Duration::from_secs(5);
    let log = Log::begin();
    let mut servers = Vec::new();
    for is_plain in [true, false] {
        // It is well from the sixth request on.
        let upstream = Upstream::accepting(|mut stream, asked| async move {
            if read_head(&mut stream).await.is_some() && asked.fetch_add(1, Ordering::SeqCst) >= 5 {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            }
        })
        .await;
        let mut settings = settings(&[&upstream.url()]);
        settings.routes[0].upstream.attempts = 1;
        let running = gateway(settings).await;
        // Where all are left out, all are asked.
        for expected in [502, 502, 502, 502, 502, 200] {
            assert_eq!(status(&running, is_plain).await, expected);
        }
        servers.push((is_plain, upstream, running));
    }
    assert_eq!(log.lines("is left out").len(), 2, "{}", log.text());
    assert!(log.lines("an upstream is well again").is_empty(), "{}", log.text());
    tokio::time::sleep(OUT).await;
    for (is_plain, upstream, running) in &servers {
        for _ in 0..2 {
            assert_eq!(status(running, *is_plain).await, 200);
        }
        let back = log.lines("an upstream is well again");
        let own = back.iter().filter(|line| line.contains(&upstream.url()));
        assert_eq!(own.count(), 1, "{}", log.text());
    }
}

/// A server that answers with this status.
async fn answering(status: u16) -> Upstream {
    Upstream::serving(move |_| async move {
        let mut response = Response::new(full("sick"));
        *response.status_mut() = status.try_into().unwrap();
        response
    })
    .await
}

/// Settings by which 503 and 504 are failures.
fn failing(upstreams: &[&str]) -> GatewaySettings {
    let mut settings = settings(upstreams);
    settings.routes[0].upstream.fails_on = vec!["503-504".parse().unwrap()];
    settings
}

#[tokio::test]
async fn a_server_whose_answers_fail_is_left_out_where_that_is_said() {
    for is_plain in [true, false] {
        let (sick, well) = (answering(503).await, Upstream::echo().await);
        let log = Log::begin();
        let running = gateway(failing(&[&sick.url(), &well.url()])).await;
        // It may not be done twice, so the client gets what there is.
        let mut answers = Vec::new();
        for _ in 0..20 {
            answers.push(status_of(&running, is_plain, "PATCH").await);
        }
        let failed = answers.iter().filter(|answer| **answer == 503).count();
        assert_eq!((failed, sick.asked(), well.asked()), (5, 5, 15), "{answers:?}");
        let out = log.lines("is left out");
        assert_eq!(out.len(), 1, "{out:?}");
        assert!(out[0].contains("its answer has status 503"), "{out:?}");
    }
}

#[tokio::test]
async fn an_answer_is_no_failure_unless_that_is_said() {
    for is_plain in [true, false] {
        for (is_said, status) in [(false, 503), (true, 500)] {
            let (sick, well) = (answering(status).await, Upstream::echo().await);
            let urls = [&*sick.url(), &*well.url()];
            let running = gateway(if is_said { failing(&urls) } else { settings(&urls) }).await;
            for _ in 0..20 {
                status_of(&running, is_plain, "GET").await;
            }
            assert_eq!((sick.asked(), well.asked()), (10, 10), "{is_plain} {status}");
        }
    }
}

#[tokio::test]
async fn what_fails_with_an_answer_is_asked_of_another_server_where_it_may_be_sent_twice() {
    for is_plain in [true, false] {
        let (sick, well) = (answering(503).await, Upstream::echo().await);
        let running = gateway(failing(&[&sick.url(), &well.url()])).await;
        for _ in 0..20 {
            assert_eq!(status(&running, is_plain).await, 200);
        }
        assert_eq!((sick.asked(), well.asked()), (5, 20), "{is_plain}");
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn the_client_gets_the_answer_that_fails_where_no_other_server_can_be_asked() {
    for is_plain in [true, false] {
        let (sick, other) = (answering(503).await, answering(504).await);
        // There is no other; none may be asked; the other has as much to do as it may; the other fails too.
        let alone = gateway(failing(&[&sick.url()])).await;
        assert_eq!((status(&alone, is_plain).await, sick.asked()), (503, 1));
        let mut once = failing(&[&sick.url(), &other.url()]);
        once.routes[0].upstream.attempts = 1;
        let once = gateway(once).await;
        assert_eq!((status(&once, is_plain).await, sick.asked()), (503, 2));
        let both = gateway(failing(&[&sick.url(), &other.url()])).await;
        assert_eq!((status(&both, is_plain).await, sick.asked(), other.asked()), (504, 3, 1));
        let (held, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let busy = Upstream::serving({
            let (held, begun) = (Arc::clone(&held), Arc::clone(&begun));
            move |_| {
                let (held, begun) = (Arc::clone(&held), Arc::clone(&begun));
                async move {
                    begun.notify_one();
                    held.notified().await;
                    Response::new(full("at last"))
                }
            }
        })
        .await;
        let mut full = failing(&[&busy.url(), &sick.url()]);
        full.routes[0].upstream.in_flight_max = 1;
        let running = gateway(full).await;
        let holding = async { assert_eq!(status(&running, is_plain).await, 200) };
        let asking = async {
            begun.notified().await;
            assert_eq!((status(&running, is_plain).await, sick.asked()), (503, 4));
            held.notify_one();
        };
        tokio::join!(holding, asking);
        for running in [alone, once, both, running] {
            until_idle(&running).await;
        }
    }
}
