//! What passes through a gateway, and how it looks on the other side.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper_util::rt::TokioIo;
use tidegate_gateway::GatewaySettings;
use tidegate_gateway::route::HostHeader;
use tidegate_identity::Trust;
use tidegate_server::listen::Address;
use tidegate_server::serve::process::Life as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::support::{
    PATIENCE, Upstream, ask, ask_h2, exchange, full, gateway, get, port, read_all, settings,
    until_idle,
};

#[tokio::test]
async fn a_request_passes_with_what_is_about_it_and_without_what_is_about_its_connection() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let request = Request::post("/a/../b?c=%20d")
        .header("host", "a.example:8000")
        .header("connection", "x-mine, keep-alive")
        .header("x-mine", "1")
        .header("te", "gzip")
        .header("accept", "*/*")
        .header("x-forwarded-for", "198.51.100.1")
        .header("x-real-ip", "198.51.100.1")
        .body(Full::new(Bytes::from_static(b"hello")))
        .unwrap();
    let answer = ask(port(&running), request).await;
    assert_eq!(answer.status(), 200);
    assert!(!answer.headers().contains_key("x-hop") && answer.headers().contains_key("x-end"));
    assert!(answer.headers().contains_key("ratelimit"));
    let seen = answer.body();
    assert!(seen.starts_with("POST /a/../b?c=%20d HTTP/1.1\n"), "{seen}");
    assert!(seen.ends_with("\n5 bytes: hello"), "{seen}");
    for line in [
        "host: a.example:8000",
        "accept: */*",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: a.example:8000",
        "forwarded: for=127.0.0.1;host=\"a.example:8000\";proto=http",
        "via: 1.1 tidegate",
        "content-length: 5",
    ] {
        assert!(seen.lines().any(|seen| seen == line), "{line} is not in {seen}");
    }
    for name in ["x-mine", "te:", "x-real-ip", "198.51.100.1", "connection:"] {
        assert!(!seen.contains(name), "{name} is in {seen}");
    }
    until_idle(&running).await;
}

#[tokio::test]
async fn a_trusted_proxy_is_believed_and_others_are_not() {
    let upstream = Upstream::echo().await;
    for is_trusted in [false, true] {
        let mut settings = settings(&[&upstream.url()]);
        if is_trusted {
            let networks = vec!["127.0.0.1/32".parse().unwrap()];
            settings.daemon.identity.proxies.trust = Trust::Networks(networks);
        }
        let running = gateway(settings).await;
        let request = Request::get("/")
            .header("host", "a.example")
            .header("x-forwarded-for", "198.51.100.1")
            .header("x-forwarded-proto", "https");
        let answer = ask(port(&running), request.body(Full::default()).unwrap()).await;
        let expected = if is_trusted {
            ["x-forwarded-for: 198.51.100.1, 127.0.0.1\n", "x-forwarded-proto: https\n"]
        } else {
            ["x-forwarded-for: 127.0.0.1\n", "x-forwarded-proto: http\n"]
        };
        for line in expected {
            assert!(answer.body().contains(line), "{is_trusted} {}", answer.body());
        }
    }
}

#[tokio::test]
async fn http2_passes_in_and_out_in_every_combination() {
    let upstream = Upstream::echo().await;
    let h2c = format!("h2c://{}", upstream.address);
    for (url, version) in [(upstream.url(), "HTTP/1.1"), (h2c, "HTTP/2.0")] {
        let running = gateway(settings(&[&url])).await;
        let two = Request::post("http://b.example/x?y")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .body(full("body"))
            .unwrap();
        let answer = ask_h2(port(&running), two).await;
        assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_2));
        let seen = answer.body();
        assert!(seen.contains(version) && seen.contains("/x?y"), "{seen}");
        assert!(seen.contains("b.example") && seen.contains("cookie: a=1; b=2"), "{seen}");
        assert!(seen.contains("via: 2 tidegate") && seen.ends_with("4 bytes: body"), "{seen}");
        let answer = get(port(&running), "/one").await;
        assert!(answer.body().contains(version), "{}", answer.body());
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&format!("h2c://{}", upstream.address)])).await;
    let mut trailers = HeaderMap::new();
    trailers.insert("x-checksum", HeaderValue::from_static("7"));
    let frames = [Ok(Frame::data(Bytes::from_static(b"abc"))), Ok(Frame::trailers(trailers))];
    let body = StreamBody::new(stream::iter(frames)).boxed_unsync();
    let request = Request::post("http://a.example/trailers").header("te", "trailers");
    let answer = ask_h2(port(&running), request.body(body).unwrap()).await;
    assert!(answer.body().contains("te: trailers"), "{}", answer.body());
    assert!(answer.body().contains(r#"trailers: {"x-checksum": "7"}"#), "{}", answer.body());
    assert!(answer.body().ends_with(r#"{"x-sum": "42"}"#), "{}", answer.body());
}

#[tokio::test]
async fn bodies_stream_both_ways_and_nothing_is_gathered() {
    // The server sends back each frame as it comes.
    let upstream = Upstream::serving(|request| async {
        let frames = request.into_body().into_data_stream();
        let frames =
            frames.filter_map(|bytes| async { bytes.ok().map(|bytes| Ok(Frame::data(bytes))) });
        Response::new(StreamBody::new(frames).boxed_unsync())
    })
    .await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let (frames, taken) = mpsc::channel::<Bytes>(1);
    let taken = stream::unfold(taken, |mut taken| async {
        let bytes = taken.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(Frame::data(bytes)), taken))
    });
    let stream = TcpStream::connect(port(&running)).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("/").header("host", "a").body(StreamBody::new(taken)).unwrap();
    let asking = tokio::spawn(async move { sender.send_request(request).await.unwrap() });
    frames.send(Bytes::from_static(b"first")).await.unwrap();
    // The answer begins before the request has ended.
    let mut body = asking.await.unwrap().into_body();
    for text in ["first", "second", "third"] {
        if text != "first" {
            frames.send(Bytes::from(text)).await.unwrap();
        }
        let frame = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), text);
    }
    drop(frames);
    assert!(body.frame().await.is_none());
    until_idle(&running).await;
}

#[tokio::test]
async fn the_host_is_kept_replaced_or_fixed() {
    let upstream = Upstream::echo().await;
    let own = upstream.address.to_string();
    let fixed = HostHeader::Fixed(HeaderValue::from_static("fixed.example"));
    for (host, expected) in [
        (HostHeader::Preserve, "a.example"),
        (HostHeader::Upstream, own.as_str()),
        (fixed, "fixed.example"),
    ] {
        let mut settings = settings(&[&upstream.url()]);
        settings.routes[0].host = host;
        let running = gateway(settings).await;
        let answer = get(port(&running), "/").await;
        assert!(answer.body().contains(&format!("\nhost: {expected}\n")), "{}", answer.body());
        assert!(answer.body().contains("x-forwarded-host: a.example\n"), "{}", answer.body());
    }
}

/// A server that changes its protocol and then sends every byte back in capitals.
pub(crate) async fn shouting() -> Upstream {
    Upstream::accepting(|mut stream, _| async move {
        let Some(head) = crate::support::read_head(&mut stream).await else { return };
        assert!(
            head.contains("connection: upgrade") && head.contains("upgrade: websocket"),
            "{head}"
        );
        let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                    Upgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            buffer[..count].make_ascii_uppercase();
            if stream.write_all(&buffer[..count]).await.is_err() {
                return;
            }
        }
    })
    .await
}

pub(crate) const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Key: y\r\n\r\n";

#[tokio::test]
async fn a_websocket_is_tunnelled_until_an_end_closes() {
    let upstream = shouting().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let mut client = TcpStream::connect(port(&running)).await.unwrap();
    client.write_all(UPGRADE.as_bytes()).await.unwrap();
    let head = crate::support::read_head(&mut client).await.unwrap().to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(
        head.contains("sec-websocket-accept: x") && head.contains("upgrade: websocket"),
        "{head}"
    );
    for text in ["one\n\n", "two\r", "\u{0}three"] {
        client.write_all(text.as_bytes()).await.unwrap();
        let mut back = vec![0; text.len()];
        tokio::time::timeout(PATIENCE, client.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(String::from_utf8(back).unwrap(), text.to_uppercase());
    }
    assert_eq!(running.counts().under_way, 1);
    drop(client);
    until_idle(&running).await;
}

#[tokio::test]
async fn of_several_protocols_the_upstream_takes_one_and_another_http_is_never_offered() {
    let upstream = shouting().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    for offered in ["websocket, other/2", "websocket,other", "h2c, websocket"] {
        let mut client = TcpStream::connect(port(&running)).await.unwrap();
        let upgrade = UPGRADE.replace("Upgrade: websocket", &format!("Upgrade: {offered}"));
        client.write_all(upgrade.as_bytes()).await.unwrap();
        let head = crate::support::read_head(&mut client).await.unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{offered}: {head}");
        assert!(head.contains("\r\nupgrade: websocket\r\n"), "{offered}: {head}");
        client.write_all(b"hello").await.unwrap();
        let mut back = [0; 5];
        tokio::time::timeout(PATIENCE, client.read_exact(&mut back)).await.unwrap().unwrap();
        assert_eq!(&back, b"HELLO");
    }
    let echo = Upstream::echo().await;
    let running = gateway(settings(&[&echo.url()])).await;
    for (offered, told) in [
        ("foo, bar", "upgrade: foo, bar\nconnection: upgrade"),
        ("h2c, foo, TLS/1.3", "upgrade: foo\nconnection: upgrade"),
        ("h2c, HTTP/3", ""),
    ] {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: {offered}\r\n\r\n"
        );
        let answer = exchange(port(&running), request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{offered}: {answer}");
        let lines = answer.lines().filter(|line| line.to_ascii_lowercase().contains("upgrade"));
        let mut lines: Vec<&str> = lines.collect();
        lines.sort_unstable_by_key(|line| std::cmp::Reverse(*line));
        assert_eq!(lines.join("\n"), told, "{offered}: {answer}");
    }
    // It changes to what nobody asked it for.
    let other =
        Upstream::raw(b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: foo, h2c\r\n\r\n").await;
    let running = gateway(settings(&[&other.url()])).await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: foo, h2c\r\n\r\n";
    let answer = exchange(port(&running), request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    until_idle(&running).await;
}

#[tokio::test]
async fn a_tunnel_in_which_nothing_passes_is_closed() {
    let upstream = shouting().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.routes[0].bounds.idle_timeout = Duration::from_millis(100);
    let running = gateway(settings).await;
    let mut client = TcpStream::connect(port(&running)).await.unwrap();
    client.write_all(UPGRADE.as_bytes()).await.unwrap();
    read_all(&mut client).await;
    until_idle(&running).await;
}

#[tokio::test]
async fn a_drain_finishes_what_is_under_way_and_takes_nothing_new() {
    let upstream = Upstream::accepting(|mut stream, asked| async move {
        crate::support::read_head(&mut stream).await;
        asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        // It answers when the gateway no longer listens.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    })
    .await;
    // Nobody else listens there afterwards.
    let address = tidegate_testing::free_address();
    let running = gateway(GatewaySettings {
        listen: vec![Address::Tcp(address)],
        ..settings(&[&upstream.url()])
    })
    .await;
    let asking = tokio::spawn(exchange(address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    crate::support::until("asked", || upstream.asked() == 1).await;
    let drained = running.shutdown().await;
    assert_eq!(drained.cut, 0);
    let answer = asking.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("ok"), "{answer}");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_drain_drops_no_request_of_clients_that_keep_their_connection() {
    let upstream = Upstream::serving(|_| async { Response::new(full("ok")) }).await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let address = port(&running);
    let asking: Vec<_> = (0..10)
        .map(|_| {
            tokio::spawn(async move {
                let mut client = TcpStream::connect(address).await.unwrap();
                loop {
                    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
                    let head = crate::support::read_head(&mut client).await.expect("an answer");
                    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
                    client.read_exact(&mut [0; 2]).await.unwrap();
                    if head.contains("connection: close") {
                        return;
                    }
                    // Most of the time the client thinks, and nothing is under way.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        })
        .collect();
    crate::support::until("asked", || upstream.asked() > 50).await;
    assert_eq!(running.shutdown().await.cut, 0);
    for asking in asking {
        asking.await.unwrap();
    }
}
