//! Servers that fail: what their operator is told of it, and when they are left out.

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use tidegate_gateway::{GatewaySettings, Running};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::log::Log;
use crate::support::{Upstream, ask, gateway, port, read_head, settings};

/// Sends a request by the lane for plain ones, or by the general way, and gives its status.
async fn status(running: &Running, is_plain: bool) -> u16 {
    let te = if is_plain { "x-te" } else { "te" };
    let request =
        Request::get("/secret?token=secret").header("host", "secret").header(te, "trailers");
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
            (closing.url(), 502, "the connection was closed before an answer"),
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
    for is_plain in [true, false] {
        let log = Log::begin();
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
        for expected in [502, 502, 502, 502, 502, 200, 200] {
            assert_eq!(status(&running, is_plain).await, expected);
        }
        assert_eq!(log.lines("is left out").len(), 1, "{}", log.text());
        let back = log.lines("an upstream is well again");
        assert!(back.len() == 1 && back[0].contains(&upstream.url()), "{}", log.text());
    }
}
