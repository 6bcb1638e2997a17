//! A request over HTTP/2 as a server of HTTP/1.1 gets it, byte for byte: the same request, and no other in it.

use http::Request;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::http2::{
    DATA, END_HEADERS, HEADERS, PREFACE, RST_STREAM, SETTINGS, asking, fields, frame,
};
use crate::support::{
    Upstream, ask_h2, full, gateway, port, settings, until, until_idle, with_rules,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_body_that_its_client_resets_without_an_error_is_not_passed_off_as_whole() {
    let (upstream, recorded) = Upstream::recording().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    for reason in [0_u32, 8] {
        for _ in 0..20 {
            let frames = [
                PREFACE.to_vec(),
                frame(SETTINGS, 0, 0, &[]),
                frame(HEADERS, END_HEADERS, 1, &fields(&asking("POST", "/"))),
                frame(DATA, 0, 1, b"half"),
            ];
            let mut client = TcpStream::connect(port(&running)).await.unwrap();
            client.write_all(&frames.concat()).await.unwrap();
            until("sent on", || running.counts().upstream_connections == 1).await;
            client.write_all(&frame(RST_STREAM, 0, 1, &reason.to_be_bytes())).await.unwrap();
            until("closed", || running.counts().upstream_connections == 0).await;
            drop(client);
            until_idle(&running).await;
            assert_eq!(*recorded.lock(), Vec::<String>::new(), "{reason}");
        }
    }
}

#[tokio::test]
async fn who_asks_for_a_head_over_http2_is_sent_no_body() {
    let upstream = Upstream::echo().await;
    let limit = |layer: &mut tidegate_server::config::Layer| {
        layer.limit = Some("1/day per ip".parse().unwrap());
    };
    for url in [upstream.url(), format!("h2c://{}", upstream.address)] {
        let running = gateway(with_rules(&[&url], limit)).await;
        for status in [200, 429, 400] {
            let mut request = Request::head("http://a.example/");
            if status == 400 {
                request = request.header("host", "b.example");
            }
            // The client takes a body for a fault.
            let answer = ask_h2(port(&running), request.body(full("")).unwrap()).await;
            assert_eq!((answer.status().as_u16(), answer.body().as_str()), (status, ""), "{url}");
            assert_ne!(answer.headers()["content-length"], "0", "{url} {status}");
        }
        until_idle(&running).await;
    }
}
