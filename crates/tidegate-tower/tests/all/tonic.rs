//! The layer in front of tonic services, with tonic's own client on real connections.

use crate::support;
#[path = "../../examples/tonic_service.rs"]
#[allow(dead_code, reason = "its `main` is for people")]
mod tonic_service;

use std::time::Duration;

use tidegate_tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt as _;

fn any_service() -> HealthCheckRequest {
    HealthCheckRequest { service: String::new() }
}

async fn connect(address: std::net::SocketAddr) -> HealthClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

async fn example() -> HealthClient<Channel> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(tonic_service::serve(listener));
    connect(address).await
}

#[tokio::test]
async fn a_call_over_the_limit_gets_resource_exhausted_with_details() {
    let mut client = example().await;
    let first = client.check(any_service()).await.unwrap();
    assert_eq!(first.metadata().get("x-ratelimit-remaining").unwrap(), "1");
    client.check(any_service()).await.unwrap();
    let denied: Status = client.check(any_service()).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    let details = denied.get_error_details();
    let wait = details.retry_info().unwrap().retry_delay.unwrap();
    assert!(wait > Duration::from_secs(1) && wait <= Duration::from_secs(30), "{wait:?}");
    let [violation] = &details.quota_failure().unwrap().violations[..] else { panic!() };
    assert_eq!(violation.subject, "policy:checks");
    assert_eq!(violation.description, "over-limit");
    assert_eq!(violation.api_service, "tidegate");
    assert_eq!(violation.quota_metric, "checks");
    assert_eq!(violation.quota_value, 2);
    let pushback = denied.metadata().get("grpc-retry-pushback-ms").unwrap().to_str().unwrap();
    let pushback: u128 = pushback.parse().unwrap();
    assert_eq!(pushback, wait.as_micros().div_ceil(1000));
    assert_eq!(denied.message(), format!("over-limit: try again after {pushback} ms"));
}

#[tokio::test]
async fn a_stream_holds_its_place_until_it_ends() {
    let mut client = example().await;
    let mut watching = client.watch(any_service()).await.unwrap().into_inner();
    watching.message().await.unwrap().unwrap();
    let denied = client.watch(any_service()).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    drop(watching);
    let waiting = async {
        while client.watch(any_service()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(support::PATIENCE, waiting).await.unwrap();
}

#[tokio::test]
async fn errors_of_grpc_count_as_the_status_that_they_stand_for() {
    const RULES: &str = "
domain: default
rules: [ { name: unknown, per: [ip], limit: 2/day, count: on-response, statuses: [404] } ]";
    let (limiter, _) = support::limiter(RULES);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_health, service) = tonic_health::server::health_reporter();
    let layer = RateLimitLayer::new(limiter);
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let serving = Server::builder().layer(layer).add_service(service);
    tokio::spawn(serving.serve_with_incoming(incoming));
    let mut client = connect(address).await;
    let unknown = HealthCheckRequest { service: "nobody.knows.v1.It".to_owned() };
    for _ in 0..5 {
        client.check(any_service()).await.unwrap();
    }
    for _ in 0..2 {
        assert_eq!(client.check(unknown.clone()).await.unwrap_err().code(), Code::NotFound);
    }
    assert_eq!(client.check(unknown).await.unwrap_err().code(), Code::ResourceExhausted);
    let denied = client.check(any_service()).await.unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
}
