//! What the gateway tells of the servers behind it, and of clients that it refuses.

use std::time::Duration;

use crate::support::{Upstream, exchange, gateway, get, port, settings, until, until_idle};

#[tokio::test]
async fn what_servers_behind_do_is_counted_by_their_names() {
    let (well, breaking) = (Upstream::echo().await, Upstream::raw(b"").await);
    let mut settings = settings(&[&well.url(), &breaking.url()]);
    settings.routes[0].bounds.response_timeout = Duration::from_secs(30);
    let running = gateway(settings).await;
    for path in ["/", "/", "/status/404", "/status/503"] {
        // Every second one is sent to the server that breaks, and then to the other one.
        let _ = get(port(&running), path).await;
    }
    until_idle(&running).await;
    let engine = running.daemon().engine();
    let text = engine.metrics().render(engine);
    let value = |name: &str, upstream: &Upstream, label: &str| {
        let series = format!("tidegate_upstream_{name}{{upstream=\"{}\"{label}}} ", upstream.url());
        let line = text.lines().find_map(|line| line.strip_prefix(&series));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).parse::<u64>().unwrap()
    };
    assert_eq!(value("responses_total", &well, ",status=\"2xx\""), 2);
    assert_eq!(value("responses_total", &well, ",status=\"4xx\""), 1);
    assert_eq!(value("responses_total", &well, ",status=\"5xx\""), 1);
    assert_eq!(value("response_duration_seconds_count", &well, ""), 4);
    assert_eq!(value("responses_total", &breaking, ",status=\"2xx\""), 0);
    let broken = value("failures_total", &breaking, ",reason=\"broken\"");
    assert_eq!((broken, value("retries_total", &well, "")), (breaking.asked() as u64, broken));
    assert!(broken > 0);
    assert_eq!(value("failures_total", &well, ",reason=\"broken\""), 0);
    for upstream in [&well, &breaking] {
        assert_eq!(value("in_flight", upstream, ""), 0);
        assert_eq!(value("ejections_total", upstream, ""), 0);
    }
    let most = value("in_flight_max", &well, "") + value("in_flight_max", &breaking, "");
    assert_eq!(most, running.counts().under_way_max as u64);
    let open = value("connections_open", &well, "") + value("connections_open", &breaking, "");
    assert_eq!(open, running.counts().upstream_connections as u64);
}

#[tokio::test]
async fn connections_on_which_something_is_no_http_are_counted() {
    let upstream = Upstream::echo().await;
    let running = gateway(settings(&[&upstream.url()])).await;
    let engine = running.daemon().engine();
    let counted = || {
        let text = engine.metrics().render(engine);
        let series = "tidegate_protocol_errors_total{listener=\"gateway\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("no {series} in {text}")).parse::<u32>().unwrap()
    };
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "y".repeat(100_000));
    let refused = [
        ("BAD\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n", "400"),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "400",
        ),
        (&long, "431"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nthese are no settings", ""),
    ];
    for (number, (request, status)) in (1..).zip(refused) {
        let answer = exchange(port(&running), request.as_bytes()).await;
        assert!(answer.get(9..).unwrap_or_default().starts_with(status), "{request:?}: {answer:?}");
        until("counted", || counted() == number).await;
    }
    assert_eq!(get(port(&running), "/").await.status(), 200);
    until_idle(&running).await;
    assert_eq!(counted(), 5, "a client that leaves has said nothing wrong");
}
