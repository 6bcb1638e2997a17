//! The middleware on a client: limits of a daemon in front of a service elsewhere.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod fake;

use std::convert::Infallible;

use bytes::Bytes;
use fake::{Act, Fake, until};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tidegate_proto::tidegate::v1::{CheckResponse, LimitStatus};
use tidegate_tower::RateLimitLayer;
use tonic::Code;
use tower::{Layer as _, ServiceExt as _, service_fn};

fn limit(allowed: bool, left: u64) -> LimitStatus {
    LimitStatus {
        name: "login".to_owned(),
        allowed,
        enforced: true,
        limit: 10,
        remaining: left,
        reset_after_ms: 5_001,
        retry_after_ms: (!allowed).then_some(1_500),
        window_ms: Some(60_000),
        ..LimitStatus::default()
    }
}

fn places() -> LimitStatus {
    LimitStatus {
        name: "places".to_owned(),
        allowed: true,
        enforced: true,
        limit: 2,
        remaining: 1,
        at_once: true,
        ..LimitStatus::default()
    }
}

#[tokio::test]
async fn a_remote_daemon_decides_for_the_layer() {
    let allowed = CheckResponse {
        allowed: true,
        limit: Some(10),
        remaining: Some(4),
        reset_after_ms: Some(5_001),
        limits: vec![limit(true, 4), places()],
        lease_id: Some("abc".to_owned()),
        taken_at_us: Some(17),
        counts_responses: true,
        ..CheckResponse::default()
    };
    let denied = CheckResponse {
        allowed: false,
        limit: Some(10),
        remaining: Some(0),
        reset_after_ms: Some(5_001),
        retry_after_ms: Some(1_500),
        reason: Some("over-limit".to_owned()),
        limits: vec![limit(false, 0)],
        ..CheckResponse::default()
    };
    let fake = Fake::new(move |message| match message {
        0 => Act::Say(Box::new(allowed.clone())),
        1 => Act::Say(Box::new(denied.clone())),
        _ => Act::Fail(Code::Unavailable),
    });
    let client = fake.client().await.retries_max(0).build().unwrap();
    let teapot = service_fn(async |_: Request<()>| {
        let mut response = Response::new(Full::new(Bytes::from("short and stout")));
        *response.status_mut() = StatusCode::IM_A_TEAPOT;
        Ok::<_, Infallible>(response)
    });
    let service = RateLimitLayer::new(client).domain("api").layer(teapot);

    let response = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), 418);
    let policy = r#""login";q=10;w=60, "places";q=2;qu="concurrent-requests""#;
    assert_eq!(response.headers()["ratelimit-policy"], policy);
    assert_eq!(response.headers()["ratelimit"], r#""login";r=4;t=6, "places";r=1;t=0"#);
    assert_eq!(response.headers()["x-ratelimit-remaining"], "4");
    until("the response is counted", || fake.heard().responses.len() == 1).await;
    assert_eq!(fake.heard().responses[0].status, 418);
    assert!(fake.heard().releases.is_empty());
    response.into_body().collect().await.unwrap();
    until("the place is given back", || fake.heard().releases.len() == 1).await;
    assert_eq!(fake.heard().releases[0].lease_id, "abc");

    let response = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["retry-after"], "2");
    let response = service.clone().oneshot(Request::new(())).await.unwrap();
    assert_eq!(response.status(), 503);
}
