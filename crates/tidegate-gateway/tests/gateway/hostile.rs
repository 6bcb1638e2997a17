//! Clients and servers that do not behave: each gets the answer that fits, others are unharmed, and nothing
//! stays behind.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tidegate_gateway::Running;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::{Upstream, ask, exchange, gateway, get, port, read_all, settings, until_idle};

/// A request that would be noticed if it were forwarded.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

async fn quiet() -> (Upstream, Running) {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    (upstream, running)
}

#[tokio::test]
async fn what_can_be_read_in_two_ways_gets_400_and_a_closed_connection() {
    let (upstream, running) = quiet().await;
    let cases = [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 40\r\n\r\n",
        "Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "Content-Length: +5\r\n\r\nhello",
        "Content-Length: 18446744073709551615\r\n\r\nhello",
        "Content-Length: 5,5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: identity\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n\r\n",
        "X: a\0b\r\n\r\n",
        "Host: b\r\n\r\n",
        "Host: a\r\n\r\n",
        "Foo\r\n\r\n",
        ": x\r\n\r\n",
    ];
    for case in cases {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{case}{SMUGGLED}");
        let answer = exchange(port(&running), request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{case:?} got {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{case:?} got {answer:?}");
    }
    for head in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET login HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ] {
        let answer = exchange(port(&running), format!("{head}{SMUGGLED}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{head:?} got {answer:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{head:?} got {answer:?}");
    }
    assert_eq!(upstream.asked(), 0, "nothing was forwarded");
    assert_eq!(get(port(&running), "/").await.status(), 200);
    until_idle(&running).await;
}

#[tokio::test]
async fn chunks_that_are_none_get_400() {
    let (_upstream, running) = quiet().await;
    for body in
        ["zz\r\nabc\r\n", "3\nabc\r\n0\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n", "-1\r\n\r\n", "3\r\nab"]
    {
        let request =
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let mut stream = TcpStream::connect(port(&running)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = read_all(&mut stream).await;
        let is_cut_off = body == "3\r\nab" && answer.is_empty();
        assert!(answer.starts_with("HTTP/1.1 400 ") || is_cut_off, "{body:?} got {answer:?}");
    }
    until_idle(&running).await;
}

/// Others end a line where there is a line feed alone, and count to any number of zeros.
#[tokio::test]
async fn lines_about_chunks_that_others_end_elsewhere_hide_no_request() {
    let (_upstream, running) = quiet().await;
    let ambiguous =
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        format!("2;\nxx\r\n4a\r\n0\r\n\r\n{SMUGGLED}"),
        format!("2;a=b\n\r\n4a\r\n0\r\n\r\n{SMUGGLED}"),
        format!("{}2\r\n4a\r\n0\r\n\r\n{ambiguous}0\r\n\r\n", "0".repeat(2 << 20)),
        format!("2{}\r\n4a\r\n0\r\n\r\n{ambiguous}0\r\n\r\n", " ".repeat(2 << 20)),
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut stream = TcpStream::connect(port(&running)).await.unwrap();
        // It is closed before all of it was read.
        let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        let _ = stream.shutdown().await;
        let answer = read_all(&mut stream).await;
        let is_refused = answer.starts_with("HTTP/1.1 400 ") || answer.is_empty();
        assert!(is_refused && answer.matches("HTTP/1.1 ").count() <= 1, "{answer}");
    }
    until_idle(&running).await;
}

#[tokio::test]
async fn methods_for_other_proxies_are_not_forwarded() {
    let (upstream, running) = quiet().await;
    for head in ["CONNECT b:443 HTTP/1.1\r\nHost: b:443", "TRACE / HTTP/1.1\r\nHost: a"] {
        let request = format!("{head}\r\nConnection: close\r\n\r\n");
        let answer = exchange(port(&running), request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    }
    assert_eq!(upstream.asked(), 0);
}

#[tokio::test]
async fn a_request_for_another_version_of_http_is_no_tunnel() {
    let (_upstream, running) = quiet().await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n\
                   Upgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    let answer = exchange(port(&running), request.as_bytes()).await.to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 200 "), "{answer}");
    assert!(!answer.contains("upgrade: h2c") && !answer.contains("http2-settings"), "{answer}");
}

#[tokio::test]
async fn what_is_too_large_is_refused() {
    let upstream = Upstream::echo().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.routes[0].bounds.body_bytes_max = 1000;
    settings.front.head_bytes_max = 8 << 10;
    let running = gateway(settings).await;
    let post = |bytes: usize| {
        let body = Full::new(Bytes::from(vec![b'x'; bytes]));
        Request::post("/").header("host", "a").body(body).unwrap()
    };
    assert_eq!(ask(port(&running), post(1000)).await.status(), 200);
    let answer = ask(port(&running), post(1001)).await;
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["content-type"]),
        (413, &"application/problem+json".parse().unwrap())
    );
    let chunked = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n{}\r\n0\r\n\r\n",
        "x".repeat(1001)
    );
    let answer = exchange(port(&running), chunked.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(20_000));
    let answer = exchange(port(&running), long.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: y\r\n".repeat(200));
    let answer = exchange(port(&running), many.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    until_idle(&running).await;
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_however_much_of_it_comes_at_once() {
    let (upstream, running) = quiet().await;
    let bytes_max = tidegate_gateway::front::FrontBounds::default().head_bytes_max;
    let head = |bytes: usize| {
        let head = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: ";
        format!("{head}{}\r\n\r\n", "y".repeat(bytes - head.len() - 4))
    };
    for bytes in [bytes_max + 1, 33_000, 40_000, 48_000, 100_000] {
        let answer = exchange(port(&running), head(bytes).as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{bytes}: {answer}");
    }
    assert_eq!(upstream.asked(), 0);
    let answer = exchange(port(&running), head(bytes_max).as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn who_is_too_slow_is_not_waited_for() {
    let upstream = Upstream::echo().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.front.head_timeout = Duration::from_millis(200);
    settings.routes[0].bounds.idle_timeout = Duration::from_millis(200);
    let running = gateway(settings).await;
    for part in ["", "GET", "GET / HTTP/1.1\r\nHost: a\r\nX: "] {
        let answer = exchange(port(&running), part.as_bytes()).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{part:?}: {answer}");
    }
    let half = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello";
    let answer = exchange(port(&running), half).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    until_idle(&running).await;
    assert_eq!(running.counts().under_way, 0);
}

#[tokio::test]
async fn an_upstream_that_gives_no_answer_is_502() {
    let answers: [&[u8]; 6] = [
        b"",
        b"garbage that is no HTTP\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 999999 Strange\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ];
    for answer in answers {
        let upstream = Upstream::raw(answer).await;
        let running = gateway(settings(&[&upstream.url()])).await;
        let shown = get(port(&running), "/").await;
        let what = String::from_utf8_lossy(answer);
        assert_eq!(shown.status(), 502, "{what:?}");
        assert_eq!(shown.headers()["content-type"], "application/problem+json");
        until_idle(&running).await;
    }
}

/// Some of them speak first and wait to be spoken to, so that nothing more comes.
#[tokio::test]
async fn an_upstream_that_speaks_something_else_is_502_at_once() {
    for first in [&b"SSH-2.0-OpenSSH_9\r\n"[..], b"220 mail\r\n", b"\0\0\x12\x04\0\0\0\0\0", b"H2"]
    {
        let upstream = Upstream::accepting(move |mut stream, _| async move {
            crate::support::read_head(&mut stream).await;
            stream.write_all(first).await.unwrap();
            std::future::pending::<()>().await;
        })
        .await;
        let running = gateway(settings(&[&upstream.url()])).await;
        for more in ["", "TE: trailers\r\n"] {
            let request = format!("GET / HTTP/1.1\r\nHost: a\r\n{more}Connection: close\r\n\r\n");
            let answer = exchange(port(&running), request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 502 "), "{first:?}: {answer}");
        }
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_502_and_one_that_hangs_504() {
    let gone = format!("http://{}", tidegate_testing::free_address());
    let running = gateway(settings(&[&gone])).await;
    assert_eq!(get(port(&running), "/").await.status(), 502);
    let hanging = Upstream::accepting(|mut stream, _| async move {
        crate::support::read_head(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let mut settings = settings(&[&hanging.url()]);
    settings.routes[0].bounds.response_timeout = Duration::from_millis(100);
    let running = gateway(settings).await;
    let answer = get(port(&running), "/").await;
    assert_eq!(answer.status(), 504);
    assert!(answer.body().contains("took too long"), "{}", answer.body());
    until_idle(&running).await;
    crate::support::until("closed", || running.counts().upstream_connections == 0).await;
}

#[test]
fn a_body_that_was_sent_at_once_does_not_double_the_time_for_an_answer() {
    const TIME: Duration = Duration::from_millis(600);
    tidegate_testing::undisturbed(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let hanging = Upstream::accepting(|mut stream, _| async move {
                crate::support::read_head(&mut stream).await;
                std::future::pending::<()>().await;
            })
            .await;
            let mut settings = settings(&[&hanging.url()]);
            settings.routes[0].bounds.response_timeout = TIME;
            let running = gateway(settings).await;
            let request = Request::post("/").header("host", "a").body(Full::new("x".into()));
            let began = tokio::time::Instant::now();
            assert_eq!(ask(port(&running), request.unwrap()).await.status(), 504);
            let took = began.elapsed();
            assert!((TIME * 9 / 10..TIME * 3 / 2).contains(&took), "{took:?}");
        });
    });
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_passed_off_as_whole() {
    for head in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"[..],
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let upstream = Upstream::raw(head).await;
        let running = gateway(settings(&[&upstream.url()])).await;
        let answer = exchange(port(&running), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("half"), "{answer}");
        assert!(!answer.ends_with("0\r\n\r\n"), "{answer}");
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn clients_that_go_away_leave_nothing_behind() {
    let hanging = Upstream::accepting(|mut stream, asked| async move {
        crate::support::read_head(&mut stream).await;
        asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        std::future::pending::<()>().await;
    })
    .await;
    let running = gateway(settings(&[&hanging.url()])).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = TcpStream::connect(port(&running)).await.unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        clients.push(client);
    }
    crate::support::until("asked", || hanging.asked() == 20).await;
    assert_eq!(running.counts().under_way, 20);
    drop(clients);
    until_idle(&running).await;
    crate::support::until("closed", || running.counts().upstream_connections == 0).await;
}
