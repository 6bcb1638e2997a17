//! What `docs/migrating.md` says about `tower_governor`, seen beside it; and every limit that the page names.
//! Other limiters need servers of their own and are beside the tests of proxies.
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use hyper::Request;
use tidegate::{Limiter, RuleLimiter};
use tidegate_testing::seen_within;
use tidegate_tower::RateLimitLayer;
use tower::ServiceExt as _;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

const PAGE: &str = include_str!("../../../docs/migrating.md");

fn app() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// The status and the wait of so many requests, the last from somebody else.
async fn answers(app: Router, requests: usize) -> Vec<(u16, Option<String>)> {
    let mut answers = Vec::new();
    for number in 0..=requests {
        let ip = if number < requests { [192, 0, 2, 1] } else { [192, 0, 2, 2] };
        let mut request = Request::new(Body::empty());
        let peer = SocketAddr::new(IpAddr::from(ip), 4711);
        request.extensions_mut().insert(ConnectInfo(peer));
        let response = app.clone().oneshot(request).await.unwrap();
        let wait =
            response.headers().get("retry-after").map(|wait| wait.to_str().unwrap().to_owned());
        answers.push((response.status().as_u16(), wait));
    }
    answers
}

#[test]
fn a_rule_lets_through_what_tower_governor_lets_through() {
    let (_, block) = PAGE.split_once("<!-- tested: governor.yaml -->\n```yaml\n").unwrap();
    let (rules, _) = block.split_once("```").unwrap();
    let ours = || app().layer(RateLimitLayer::new(RuleLimiter::new(rules).unwrap()));
    let theirs = || {
        let config = GovernorConfigBuilder::default().per_second(2).burst_size(5).finish();
        app().layer(GovernorLayer::new(Arc::new(config.unwrap())))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let see = |app: &Router| runtime.block_on(answers(app.clone(), 7));
    // Of the two seconds after which the next one passes, less than one has gone by.
    let time = Duration::from_millis(900);
    let (ours, theirs) = (seen_within(time, ours, see), seen_within(time, theirs, see));
    let statuses = |answers: &[(u16, Option<String>)]| -> Vec<u16> {
        answers.iter().map(|(status, _)| *status).collect()
    };
    assert_eq!(statuses(&ours), [200, 200, 200, 200, 200, 429, 429, 200]);
    assert_eq!(statuses(&ours), statuses(&theirs));
    // A little under two seconds, rounded up here and down there.
    assert_eq!((ours[5].1.as_deref(), theirs[5].1.as_deref()), (Some("2"), Some("1")));
}

#[test]
fn every_limit_of_the_page_is_one() {
    let mut limits = 0;
    for row in PAGE.lines().filter(|line| line.starts_with("| ")) {
        let ours = row.split(" | ").nth(1).unwrap();
        let codes = ours.split('`').skip(1).step_by(2);
        for text in codes.filter(|code| code.starts_with(|first: char| first.is_ascii_digit())) {
            assert!(Limiter::new(text).is_ok(), "{text}");
            limits += 1;
        }
    }
    assert!(limits >= 9, "{limits} limits were found");
}
