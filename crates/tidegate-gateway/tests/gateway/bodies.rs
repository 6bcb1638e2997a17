//! Requests and answers that do not go one after the other: early answers, bodies that stop half way, heads
//! without bodies, answers before the answer, and ends that leave.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_gateway::Running;
use tidegate_gateway::route::AuthSettings;
use tidegate_identity::{Extract, Source};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{
    Folder, PATIENCE, Upstream, ask_h2, exchange, full, gateway, get, port, read_all, read_head,
    settings, until, until_idle, with_rules,
};

/// Waits until neither clients nor upstreams are connected, and nothing is under way.
async fn until_nothing_is_left(running: &Running) {
    until_idle(running).await;
    until("closed", || running.counts().upstream_connections == 0).await;
}

/// Sends the head of a request and then its body for as long as somebody takes it. What comes back can be
/// read meanwhile.
async fn uploading(to: SocketAddr) -> (tokio::net::tcp::OwnedReadHalf, AbortOnDropHandle<()>) {
    let (reading, mut writing) = TcpStream::connect(to).await.unwrap().into_split();
    let sending = tokio::spawn(async move {
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000000\r\n\r\n";
        let mut sent = writing.write_all(head).await;
        while sent.is_ok() {
            sent = writing.write_all(&[b'x'; 10_000]).await;
        }
    });
    (reading, AbortOnDropHandle::new(sending))
}

async fn read_until(reading: &mut tokio::net::tcp::OwnedReadHalf, end: &str) -> String {
    let mut answer = Vec::new();
    let taking = async {
        while !answer.ends_with(end.as_bytes()) && reading.read_buf(&mut answer).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    let _ = tokio::time::timeout(PATIENCE, taking).await.expect("an answer in time");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_request_reaches_a_client_that_is_still_sending() {
    let refusing = Upstream::accepting(|mut stream, _| async move {
        read_head(&mut stream).await;
        let body = "too much, says the service".repeat(100);
        let head = format!(
            "HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        // It closes over what it did not read, as many servers do.
    })
    .await;
    let running = gateway(settings(&[&refusing.url()])).await;
    for _ in 0..20 {
        let (mut reading, _sending) = uploading(port(&running)).await;
        let answer = read_until(&mut reading, "says the service").await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer:?}");
        assert_eq!(answer.matches("too much").count(), 100, "{answer:?}");
    }
    until_nothing_is_left(&running).await;
}

#[tokio::test]
async fn an_upstream_that_has_answered_and_reads_no_more_holds_nobody() {
    let deaf = Upstream::accepting(|mut stream, _| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let running = gateway(settings(&[&deaf.url()])).await;
    let (mut reading, _sending) = uploading(port(&running)).await;
    let answer = read_until(&mut reading, "ok").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:?}");
    until_nothing_is_left(&running).await;
}

#[tokio::test]
async fn a_client_that_stops_in_its_body_is_408_and_one_that_leaves_leaves_nothing() {
    let upstream = Upstream::echo().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.routes[0].bounds.idle_timeout = Duration::from_millis(100);
    let running = gateway(settings).await;
    let half = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf";
    let answer = exchange(port(&running), half).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
    let mut leaving = TcpStream::connect(port(&running)).await.unwrap();
    leaving.write_all(half).await.unwrap();
    until("under way", || running.counts().under_way == 1).await;
    drop(leaving);
    until_nothing_is_left(&running).await;
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_ends_in_time_where_a_time_is_set() {
    let upstream = Upstream::echo().await;
    let mut settings = settings(&[&upstream.url()]);
    settings.routes[0].bounds.body_timeout = Some(Duration::from_millis(300));
    let running = gateway(settings).await;
    let stream = TcpStream::connect(port(&running)).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let trickling = tokio::spawn(async move {
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        writing.write_all(head).await.unwrap();
        let mut every = tokio::time::interval(Duration::from_millis(10));
        // It goes on for as long as it is let.
        while writing.write_all(b"1\r\nx\r\n").await.is_ok() {
            every.tick().await;
        }
    });
    let answer = read_until(&mut reading, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer:?}");
    until_nothing_is_left(&running).await;
    trickling.abort();
    // One that comes in time is taken.
    let posted =
        b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody";
    let answer = exchange(port(&running), posted).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("4 bytes: body"), "{answer:?}");
}

#[tokio::test]
async fn a_client_that_leaves_in_mid_upload_is_told_to_the_upstream() {
    let (tell, told) = tokio::sync::watch::channel(false);
    let reading = Upstream::accepting(move |mut stream, asked| {
        let tell = tell.clone();
        async move {
            read_head(&mut stream).await;
            asked.fetch_add(1, Ordering::SeqCst);
            let mut body = Vec::new();
            let _ = stream.read_to_end(&mut body).await;
            tell.send_replace(true);
        }
    })
    .await;
    let running = gateway(settings(&[&reading.url()])).await;
    let uploading = uploading(port(&running)).await;
    until("asked", || reading.asked() == 1).await;
    drop(uploading);
    until("told", || *told.borrow()).await;
    until_nothing_is_left(&running).await;
}

#[tokio::test]
async fn an_upstream_that_stops_in_its_body_is_cut_off() {
    let stopping = Upstream::accepting(|mut stream, _| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf").await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let mut settings = settings(&[&stopping.url()]);
    settings.routes[0].bounds.idle_timeout = Duration::from_millis(100);
    let running = gateway(settings).await;
    let answer = exchange(port(&running), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("half"), "{answer:?}");
    until_nothing_is_left(&running).await;
}

#[tokio::test]
async fn heads_that_have_no_body_are_not_waited_for_one() {
    // It says of each a length that only other methods and statuses have.
    let upstream = Upstream::accepting(|mut stream, asked| async move {
        while let Some(head) = read_head(&mut stream).await {
            asked.fetch_add(1, Ordering::SeqCst);
            let answer: &[u8] = match head.split(' ').nth(1).unwrap() {
                "/204" => b"HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: \"x\"\r\n\r\n",
                _ if head.starts_with("HEAD") => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
                _ => b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            };
            stream.write_all(answer).await.unwrap();
        }
    })
    .await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let requests = ["HEAD /", "GET /204", "GET /304", "HEAD /304", "GET /last"]
        .map(|line| format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n"))
        .concat();
    let requests =
        requests.replace("/last HTTP/1.1\r\n", "/last HTTP/1.1\r\nConnection: close\r\n");
    let answer = exchange(port(&running), requests.as_bytes()).await;
    let statuses: Vec<&str> =
        answer.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "204", "304", "304", "200"], "{answer}");
    assert_eq!(answer.matches("hello").count(), 1, "{answer}");
    assert_eq!(upstream.asked(), 5);
    until_idle(&running).await;
}

#[tokio::test]
async fn a_body_where_none_may_be_is_nobodys_answer() {
    // What follows on the 204 would be the answer to the next request, were the connection used again.
    let lying = Upstream::accepting(|mut stream, asked| async move {
        while let Some(head) = read_head(&mut stream).await {
            asked.fetch_add(1, Ordering::SeqCst);
            let answer: &[u8] = if head.contains("/lie") {
                b"HTTP/1.1 204 No Content\r\nContent-Length: 40\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlies"
            } else {
                b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntruth"
            };
            stream.write_all(answer).await.unwrap();
        }
    })
    .await;
    let running = gateway(settings(&[&lying.url()])).await;
    for _ in 0..20 {
        assert_eq!(get(port(&running), "/lie").await.status(), 204);
        assert_eq!(get(port(&running), "/").await.body(), "truth");
    }
}

#[tokio::test]
async fn answers_before_the_answer_are_passed_over() {
    let hinting = Upstream::raw(
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n\
          HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let running = gateway(settings(&[&hinting.url()])).await;
    let answer = get(port(&running), "/").await;
    assert_eq!((answer.status().as_u16(), answer.body().as_str()), (200, "ok"));
}

const EXPECTING: &str = "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn a_client_that_waits_to_go_on_is_told_so_by_the_gateway() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let mut client = TcpStream::connect(port(&running)).await.unwrap();
    client.write_all(EXPECTING.as_bytes()).await.unwrap();
    let told = tokio::time::timeout(PATIENCE, read_head(&mut client)).await.unwrap().unwrap();
    assert_eq!(told, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"hello").await.unwrap();
    let answer = read_all(&mut client).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("5 bytes: hello"),
        "{answer}"
    );
    assert!(!answer.contains("expect:"), "{answer}");
}

#[tokio::test]
async fn who_is_refused_is_not_told_to_go_on() {
    let upstream = Upstream::echo().await;
    let rules = |layer: &mut tidegate_server::config::Layer| {
        layer.limit = Some("1/hour per ip".parse().unwrap());
    };
    let mut settings = with_rules(&[&upstream.url()], rules);
    settings.routes[0].bounds.body_bytes_max = 4;
    let running = gateway(settings).await;
    for status in ["413", "429"] {
        let answer = exchange(port(&running), EXPECTING.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    assert_eq!(upstream.asked(), 0);
}

#[tokio::test]
async fn extensions_of_chunks_end_here_and_trailers_do_not() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let request = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\
                   Connection: close\r\n\r\n3;a=b\r\nabc\r\n2\r\nde\r\n0\r\nx-sum: 7\r\n\r\n";
    let answer = exchange(port(&running), request.as_bytes()).await;
    assert!(answer.ends_with("5 bytes: abcde"), "{answer}");
    assert!(answer.contains(r#"trailers: {"x-sum": "7"}"#), "{answer}");
}

/// Over HTTP/1, where names in `Trailer` are handed on, and over HTTP/2, where fields about a connection are a fault.
#[tokio::test]
async fn trailers_say_nothing_that_a_head_has_to_say() {
    let upstream = Upstream::echo().await;
    let fields = "X-Forwarded-For: 192.0.2.66\r\nX_Real_IP: 192.0.2.66\r\nForwarded: for=192.0.2.66\r\n\
                  Host: b\r\nContent-Length: 9\r\nConnection: close, x-hop\r\nX-Hop: 1\r\nKeep-Alive: 1\r\n\
                  Transfer-Encoding: gzip\r\nUpgrade: x\r\nTE: gzip\r\nProxy-Connection: x\r\n";
    let names: Vec<&str> = fields.lines().map(|line| line.split(':').next().unwrap()).collect();
    for url in [upstream.url(), upstream.url().replace("http:", "h2c:")] {
        let mut settings = settings(&[&url]);
        settings.routes[0].bounds.response_timeout = PATIENCE / 2;
        let running = gateway(settings).await;
        for (sum, shown) in [("X-Sum: 7\r\n", r#"trailers: {"x-sum": "7"}"#), ("", "bytes: abc")] {
            let request = format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum, {}\r\n\
                 Connection: close\r\n\r\n3\r\nabc\r\n0\r\n{fields}{sum}\r\n",
                names.join(", ")
            );
            let answer = exchange(port(&running), request.as_bytes()).await;
            assert!(
                answer.starts_with("HTTP/1.1 200 ") && answer.contains(shown),
                "{url}: {answer}"
            );
            assert!(!answer.contains("192.0.2.66"), "{url}: {answer}");
        }
        until_idle(&running).await;
    }
}

#[tokio::test]
async fn trailers_say_nothing_of_whose_a_request_is() {
    let upstream = Upstream::echo().await;
    let folder = Folder::new("trailers");
    let mut settings = settings(&[&upstream.url()]);
    settings.daemon.identity.api_key = vec![Source::header("x-caller").unwrap()];
    settings.daemon.identity.extract = vec![Extract::new(Source::header("x_tenant").unwrap())];
    let (header, keys) = (http::HeaderName::from_static("x-api-key"), folder.write("keys", ""));
    let auth = AuthSettings { is_required: false, header, keys: Some(keys) };
    settings.routes[0].auth = Some(auth);
    let running = gateway(settings).await;
    let names = ["x-caller", "X_Caller", "x-tenant", "x_tenant", "x-api-key", "X-API_Key"];
    let trailers = names.map(|name| format!("{name}: other\r\n")).concat();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum, {}\r\nConnection: close\r\n\r\n\
         3\r\nabc\r\n0\r\n{trailers}X-Sum: 7\r\n\r\n",
        names.join(", ")
    );
    let answer = exchange(port(&running), request.as_bytes()).await;
    assert!(answer.contains(r#"trailers: {"x-sum": "7"}"#), "{answer}");
}

#[tokio::test]
async fn trailers_of_an_answer_that_are_about_its_connection_end_here() {
    let upstream = Upstream::raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum, connection, content-length\r\n\r\n\
          3\r\nabc\r\n0\r\nX-Sum: 7\r\nConnection: close\r\nContent-Length: 9\r\nKeep-Alive: 1\r\n\r\n",
    )
    .await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let request = http::Request::get("http://a.example/").body(full("")).unwrap();
    let answer = ask_h2(port(&running), request).await;
    assert_eq!(answer.body(), "abc\n{\"x-sum\": \"7\"}");
}

#[tokio::test]
async fn targets_of_every_form_are_forwarded_as_a_server_expects_them() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    for (line, host, seen) in [
        ("GET http://a.example/x?y HTTP/1.1", "a.example", "GET /x?y HTTP/1.1\n"),
        ("GET http://A.example HTTP/1.1", "a.example", "GET / HTTP/1.1\n"),
        ("OPTIONS * HTTP/1.1", "a.example", "OPTIONS * HTTP/1.1\n"),
        ("GET /x HTTP/1.1", "[::1]:8000", "GET /x HTTP/1.1\n"),
        ("GET /a/%2e%2e/b HTTP/1.1", "a", "GET /a/%2e%2e/b HTTP/1.1\n"),
    ] {
        let request = format!("{line}\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = exchange(port(&running), request.as_bytes()).await;
        assert!(answer.contains(seen), "{line} became {answer}");
    }
}

#[tokio::test]
async fn an_upgrade_that_the_upstream_refuses_is_an_answer() {
    let refusing = Upstream::raw(
        b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
    )
    .await;
    let running = gateway(settings(&[&refusing.url()])).await;
    // What the client sends after it asked for a tunnel is looked at by nobody.
    let request = format!("{}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n", crate::forward::UPGRADE);
    let answer = exchange(port(&running), request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.ends_with("no"), "{answer}");
    assert_eq!(refusing.asked(), 1);
    until_nothing_is_left(&running).await;
}
