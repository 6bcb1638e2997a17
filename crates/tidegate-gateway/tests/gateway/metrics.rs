//! What the gateway tells of the servers behind it.

use std::time::Duration;

use crate::support::{Upstream, gateway, get, port, settings, until_idle};

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
