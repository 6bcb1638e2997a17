//! Places that are held for longer than they last.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod fake;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use fake::{Act, Fake, PATIENCE, until};
use http::{Request, Response};
use tidegate::{Call, RuleLimiter};
use tidegate_client::{Client, ClientError, WhileAway};
use tidegate_proto::tidegate::v1::CheckResponse;
use tidegate_tower::RateLimitLayer;
use tokio::sync::Notify;
use tonic::Code;
use tower::{Layer as _, ServiceExt as _, service_fn};

fn held(lease_expires_after_ms: Option<u64>) -> CheckResponse {
    CheckResponse {
        allowed: true,
        lease_id: Some("abc".to_owned()),
        lease_expires_after_ms,
        ..CheckResponse::default()
    }
}

fn saying(response: CheckResponse) -> impl Fn(usize) -> Act + Send + Sync + 'static {
    move |_| Act::Say(Box::new(response.clone()))
}

#[tokio::test]
async fn the_layer_renews_at_the_daemon_while_the_call_goes_on() {
    let fake = Fake::new(saying(held(Some(30))));
    let client = fake.client().await.build().unwrap();
    let respond = Arc::new(Notify::new());
    let responding = Arc::clone(&respond);
    let service = service_fn(move |_: Request<()>| {
        let responding = Arc::clone(&responding);
        async move {
            responding.notified().await;
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let service = RateLimitLayer::new(client).domain("api").layer(service);
    let call = tokio::spawn(service.oneshot(Request::new(())));
    until("the place is renewed again and again", || fake.heard().renewals.len() > 3).await;
    let renewal = &fake.heard().renewals[0];
    assert_eq!((renewal.domain.as_str(), renewal.lease_id.as_str()), ("api", "abc"));
    respond.notify_one();
    drop(call.await.unwrap().unwrap());
    until("the place is given back", || fake.heard().releases.len() == 1).await;
    // One may have been under way; after that nobody renews.
    let renewed = fake.heard().renewals.len();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(fake.heard().renewals.len() <= renewed + 1);
}

#[tokio::test]
async fn who_holds_a_place_himself_is_told_how_often_to_renew_it() {
    let fake = Fake::hearing(saying(held(Some(30_000))), |told| match told {
        0 => Act::Fail(Code::Unavailable),
        _ => Act::Allow,
    });
    let client = fake.client().await.build().unwrap();
    let answer = client.check(&Call::new("api", &[("user", "42").into()])).await.unwrap();
    assert_eq!(answer.renew_every(), Some(Duration::from_millis(7_500)));
    assert_eq!(client.renew(&answer).await, Ok(true), "what is not heard is told again");
    assert_eq!(fake.heard().renewals[0].attributes[0].value, "42");
    let same = client.check(&Call::new("api", &[])).await.unwrap();
    client.release(answer).await.unwrap();
    assert_eq!(client.renew(&same).await, Ok(false), "it was given back");
}

#[tokio::test]
async fn an_older_daemon_does_not_say_how_long_places_last() {
    let fake = Fake::new(saying(held(None)));
    let client = fake.client().await.build().unwrap();
    let answer = client.check(&Call::new("api", &[])).await.unwrap();
    assert_eq!(answer.renew_every(), None);
    assert!(answer.holds_places());
}

#[tokio::test]
async fn a_place_of_the_fallback_is_renewed_there() {
    const RULES: &str = "{ domain: api, rules: [ { name: one, limit: 1 at once for 30s } ] }";
    // Nobody listens there.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    drop(taken);
    let limiter = Arc::new(RuleLimiter::new(RULES).unwrap());
    let client = Client::builder(format!("http://{address}"))
        .deadline(PATIENCE)
        .retries_max(0)
        .while_away(WhileAway::Local(limiter))
        .build()
        .unwrap();
    let answer = client.check(&Call::new("api", &[])).await.unwrap();
    assert!(answer.is_fallback() && answer.is_allowed());
    assert_eq!(answer.renew_every(), Some(Duration::from_millis(7_500)));
    assert_eq!(client.renew(&answer).await, Ok(true));
}

#[tokio::test]
async fn what_somebody_in_between_refuses_may_have_been_heard() {
    let allowed = CheckResponse { lease_id: None, taken_at_us: Some(17), ..held(None) };
    let fake = Fake::hearing(saying(allowed), |_| Act::Fail(Code::ResourceExhausted));
    let client = fake.client().await.build().unwrap();
    let answer = client.check(&Call::new("api", &[])).await.unwrap();
    assert_eq!(client.refund(answer).await, Err(ClientError::NoAnswer));
    assert_eq!(
        fake.heard().told,
        1,
        "given back twice, it would let more pass than the limit says"
    );
}
