//! `tidegate.v1.Limiter` over real connections.

use std::time::Duration;

use crate::support::Daemon;
use bytes::Bytes;
use tidegate_server::grpc;
use tidegate_server::proto::tidegate::v1::limiter_client::LimiterClient;
use tidegate_server::proto::tidegate::v1::{
    Attribute, CheckManyRequest, CheckRequest, CheckResponse, RefundRequest, ReleaseRequest,
    RenewRequest, check_result,
};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const RULES: &str = "
domain: api
rules:
  - { name: login, match: { path: /login }, per: [user], limit: 2/minute }
  - { name: held, match: { path: /held }, per: [user], limit: { at_once: 1, expires_after: 1m } }
  - { name: slow, match: { path: /slow }, limit: { rate: 2/s, algorithm: leaky-bucket, burst: 2 } }
  - { name: tried, match: { path: /tried }, mode: shadow, limit: 1/minute }
";

type Client = LimiterClient<Channel>;

async fn client(daemon: &Daemon) -> Client {
    let address = daemon.listen(grpc::serve).await;
    LimiterClient::connect(format!("http://{address}")).await.unwrap()
}

fn attribute(name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), value: value.to_owned(), raw_value: Bytes::new() }
}

fn call(path: &str) -> CheckRequest {
    CheckRequest {
        domain: "api".to_owned(),
        attributes: vec![attribute("path", path), attribute("user", "ann@example.com")],
        ..CheckRequest::default()
    }
}

async fn check(client: &mut Client, request: CheckRequest) -> CheckResponse {
    client.check(request).await.unwrap().into_inner()
}

async fn fails(client: &mut Client, request: CheckRequest) -> Status {
    client.check(request).await.unwrap_err()
}

#[tokio::test]
async fn an_answer_says_what_the_json_says() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let allowed = check(&mut client, call("/login")).await;
    assert!(allowed.allowed && !allowed.soft && !allowed.shadow_denied && !allowed.degraded);
    assert_eq!(allowed.rule.as_deref(), Some("login"));
    assert_eq!((allowed.limit, allowed.remaining), (Some(2), Some(1)));
    assert_eq!((allowed.reset_after_ms, allowed.retry_after_ms), (Some(30_000), None));
    assert_eq!((allowed.reason, allowed.lease_id, allowed.delay_ms), (None, None, 0));
    assert_eq!(
        (allowed.source.as_str(), allowed.taken_at_us),
        ("memory", Some(1_700_000_000_000_000))
    );
    let [limit] = &allowed.limits[..] else { panic!("one limit applies") };
    assert_eq!((limit.rule.as_str(), limit.remaining, limit.enforced), ("login", 1, true));

    check(&mut client, call("/login")).await;
    daemon.clock.advance(Duration::from_micros(1));
    let denied = check(&mut client, call("/login")).await;
    assert!(!denied.allowed);
    assert_eq!(denied.reason.as_deref(), Some("over-limit"));
    assert_eq!(denied.retry_after_ms, Some(30_000), "a part of a millisecond is rounded up");

    let unknown = check(&mut client, CheckRequest { domain: "x".to_owned(), ..call("/a") }).await;
    assert!(unknown.allowed && unknown.rule.is_none() && unknown.limits.is_empty());
}

#[tokio::test]
async fn a_denial_is_an_error_with_details_where_the_caller_asks() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let asks = CheckRequest { fail_as_error: true, ..call("/login") };
    assert!(check(&mut client, asks.clone()).await.allowed);
    assert!(check(&mut client, asks.clone()).await.allowed);
    let status = fails(&mut client, asks.clone()).await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(status.message(), "over-limit: try again after 30000 ms");
    assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "30000");
    let details = status.get_error_details();
    let wait = details.retry_info().unwrap().retry_delay;
    assert_eq!(wait, Some(Duration::from_secs(30)));
    let [violation] = &details.quota_failure().unwrap().violations[..] else { panic!("one limit") };
    assert_eq!(violation.subject, "rule:login");
    assert_eq!((violation.quota_id.as_str(), violation.quota_value), ("login", 2));
    assert!(!format!("{status:?}").contains("example.com"), "no identifier is in an error");

    let never = fails(&mut client, CheckRequest { cost: Some(3), ..asks }).await;
    assert_eq!(never.code(), Code::ResourceExhausted);
    assert_eq!(never.metadata().get("grpc-retry-pushback-ms").unwrap(), "-1");
    assert!(never.get_error_details().retry_info().is_none());
}

#[tokio::test]
async fn a_look_takes_nothing_and_a_debit_takes_anyway() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    for _ in 0..3 {
        let looked = client.peek(call("/login")).await.unwrap().into_inner();
        assert_eq!((looked.allowed, looked.remaining), (true, Some(2)));
    }
    check(&mut client, CheckRequest { peek: true, ..call("/login") }).await;
    let debit = CheckRequest { debit: true, cost: Some(5), ..call("/login") };
    assert_eq!(check(&mut client, debit.clone()).await.remaining, Some(0));
    assert!(!check(&mut client, call("/login")).await.allowed);
    let both = fails(&mut client, CheckRequest { peek: true, ..debit.clone() }).await;
    assert_eq!(both.code(), Code::InvalidArgument);
    assert_eq!(client.peek(debit).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn what_was_taken_can_be_given_back() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let taken = check(&mut client, CheckRequest { cost: Some(2), ..call("/login") }).await;
    daemon.clock.advance(Duration::from_secs(15));
    let refund = RefundRequest {
        domain: "api".to_owned(),
        attributes: call("/login").attributes,
        cost: Some(2),
        taken_at_us: taken.taken_at_us,
    };
    let back = client.refund(refund.clone()).await.unwrap().into_inner();
    assert_eq!((back.rule.as_deref(), back.remaining), (Some("login"), Some(2)));
    assert_eq!((back.source.as_str(), back.degraded), ("memory", false));
    let again = client.refund(refund).await.unwrap().into_inner();
    assert_eq!(again.remaining, Some(2), "never above full");
}

#[tokio::test]
async fn a_place_is_held_until_it_is_released() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let held = check(&mut client, call("/held")).await;
    let lease_id = held.lease_id.unwrap();
    assert!(!check(&mut client, call("/held")).await.allowed);
    let attributes = call("/held").attributes;
    let release = ReleaseRequest { domain: "api".to_owned(), attributes, lease_id };
    let released = client.release(release.clone()).await.unwrap().into_inner();
    assert_eq!(released.remaining, Some(1));
    assert_eq!((released.source.as_str(), released.degraded), ("memory", false));
    assert!(check(&mut client, call("/held")).await.allowed);
    let zero =
        client.release(ReleaseRequest { lease_id: "0".to_owned(), ..release }).await.unwrap_err();
    assert_eq!(zero.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_place_is_renewed_until_it_is_released() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let held = check(&mut client, call("/held")).await;
    let lasts_ms = held.lease_expires_after_ms.unwrap();
    let request = RenewRequest {
        domain: "api".to_owned(),
        attributes: call("/held").attributes,
        lease_id: held.lease_id.unwrap(),
    };
    for _ in 0..5 {
        daemon.clock.advance(Duration::from_millis(lasts_ms - 1));
        let renewed = client.renew(request.clone()).await.unwrap().into_inner();
        assert_eq!(renewed.lease_id.as_deref(), Some(request.lease_id.as_str()));
        assert_eq!((renewed.lease_expires_after_ms, renewed.remaining), (Some(lasts_ms), Some(0)));
        assert_eq!((renewed.source.as_str(), renewed.degraded), ("memory", false));
    }
    assert!(!check(&mut client, call("/held")).await.allowed);
    daemon.clock.advance(Duration::from_millis(lasts_ms));
    let late = client.renew(request.clone()).await.unwrap().into_inner();
    assert_eq!((late.lease_id, late.lease_expires_after_ms, late.remaining), (None, None, Some(1)));
    let zero = RenewRequest { lease_id: "0".to_owned(), ..request };
    assert_eq!(client.renew(zero).await.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_delay_and_a_rule_in_shadow_are_told() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    check(&mut client, call("/slow")).await;
    assert_eq!(check(&mut client, call("/slow")).await.delay_ms, 500);
    check(&mut client, call("/tried")).await;
    let tried = check(&mut client, call("/tried")).await;
    assert!(tried.allowed && tried.shadow_denied && !tried.limits[0].enforced);
}

#[tokio::test]
async fn many_calls_are_answered_in_order_each_on_its_own() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let bad = CheckRequest { domain: String::new(), ..call("/login") };
    let peek = CheckRequest { peek: true, ..call("/login") };
    let checks = vec![call("/login"), bad, call("/login"), peek, call("/other")];
    let request = CheckManyRequest { checks };
    let results = client.check_many(request).await.unwrap().into_inner().results;
    let shown: Vec<_> = results
        .into_iter()
        .map(|result| match result.of.unwrap() {
            check_result::Of::Response(response) => Ok((response.allowed, response.remaining)),
            check_result::Of::Failure(failure) => Err(failure.code),
        })
        .collect();
    let expected =
        [Ok((true, Some(1))), Err(3), Ok((true, Some(0))), Ok((false, Some(0))), Ok((true, None))];
    assert_eq!(shown, expected);

    let many = CheckManyRequest { checks: vec![CheckRequest::default(); grpc::CHECKS_MAX + 1] };
    assert_eq!(client.check_many(many).await.unwrap_err().code(), Code::InvalidArgument);
    let error = CheckRequest { fail_as_error: true, ..call("/login") };
    let error = client.check_many(CheckManyRequest { checks: vec![error] }).await.unwrap_err();
    assert_eq!(error.get_error_details().bad_request().unwrap().field_violations.len(), 1);
}

#[tokio::test]
async fn values_may_be_bytes_and_mistakes_name_their_field() {
    let daemon = Daemon::new(RULES);
    let mut client = client(&daemon).await;
    let raw = |bytes: &'static [u8]| {
        let mut request = call("/login");
        request.attributes[1] = attribute("user", "");
        request.attributes[1].raw_value = Bytes::from_static(bytes);
        request
    };
    assert_eq!(check(&mut client, raw(b"\xff\x00")).await.remaining, Some(1));
    assert_eq!(check(&mut client, raw(b"\xff\x01")).await.remaining, Some(1));
    let text = raw(b"ann@example.com");
    check(&mut client, text).await;
    assert_eq!(check(&mut client, call("/login")).await.remaining, Some(0), "the same bytes");

    let mut both = raw(b"x");
    both.attributes[1].value = "y".to_owned();
    let mut nameless = call("/login");
    nameless.attributes[0].name = String::new();
    let homeless = CheckRequest { domain: String::new(), ..call("/login") };
    let many = CheckRequest { attributes: vec![attribute("a", "b"); 33], ..call("/login") };
    for (request, field) in [(both, "attributes"), (nameless, "attributes"), (homeless, "domain")] {
        let status = fails(&mut client, request).await;
        assert_eq!(status.code(), Code::InvalidArgument);
        let details = status.get_error_details();
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, field);
    }
    assert_eq!(fails(&mut client, many).await.code(), Code::InvalidArgument);
}
