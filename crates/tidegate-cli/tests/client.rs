//! The client against real daemons: what is decided, given back and counted over the wire; daemons that are
//! killed, come back, and hang.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that unwraps fails with the place")]

mod daemon;

use std::sync::Arc;
use std::time::Duration;

use daemon::{Daemon, Folder, Signal, serve};
use tidegate::{Call, RuleLimiter};
use tidegate_client::{Answer, Client, ClientBuilder, ClientError, WhileAway};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long anything may take before a test fails.
const PATIENCE: Duration = Duration::from_mins(1);

const RULES: &str = "
domain: api
rules:
  - { name: fifty, match: { path: /fifty }, per: [user], limit: 50/day }
  - { name: logins, match: { path: /login }, per: [user], limit: 1/day, count: on-response, statuses: [401] }
  - { name: places, match: { path: /place }, per: [user], limit: 1 at once }
  - { name: queue, match: { path: /queue }, limit: 1/minute leaky-bucket burst 2 }
";

fn daemon(folder: &Folder, flags: &[&str]) -> Daemon {
    let rules = folder.write("rules.yaml", RULES);
    serve(&[&["--rules", &rules], flags].concat())
}

fn client(address: &str) -> ClientBuilder {
    Client::builder(format!("http://{address}")).deadline(PATIENCE)
}

async fn check(client: &Client, path: &str) -> Result<Answer, ClientError> {
    let attributes = [("path", path), ("user", "ann")].map(Into::into);
    client.check(&Call::new("api", &attributes)).await
}

/// Waits until the daemon is asked.
async fn until_asked(client: &Client) {
    let asking = async {
        while check(client, "/fifty").await.unwrap().is_fallback() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, asking).await.expect("the daemon is there, and somebody asks it");
}

#[tokio::test]
async fn two_hundred_callers_on_a_limit_of_fifty_are_fifty() {
    let folder = Folder::new("client-fifty");
    let daemon = daemon(&folder, &[]);
    let client = client(&daemon.address("grpc")).build().unwrap();
    let mut callers = JoinSet::new();
    for _ in 0..200 {
        let client = client.clone();
        callers.spawn(async move { check(&client, "/fifty").await.unwrap().is_allowed() });
    }
    let allowed = callers.join_all().await;
    assert_eq!(allowed.into_iter().filter(|allowed| *allowed).count(), 50);
    let denied = check(&client, "/fifty").await.unwrap();
    assert_eq!(
        (denied.rule(), denied.limit(), denied.remaining()),
        (Some("fifty"), Some(50), Some(0))
    );
    assert!(denied.retry_after().unwrap() > Duration::from_mins(1));
    daemon.stop();
}

#[tokio::test]
async fn what_was_taken_is_given_back_over_the_wire() {
    let folder = Folder::new("client-back");
    let daemon = daemon(&folder, &[]);
    let client = client(&daemon.address("grpc")).build().unwrap();
    // Places.
    let held = check(&client, "/place").await.unwrap();
    assert!(held.is_allowed() && held.holds_places());
    assert!(!check(&client, "/place").await.unwrap().is_allowed());
    client.release(held).await.unwrap();
    let held = check(&client, "/place").await.unwrap();
    assert!(held.is_allowed());
    client.refund(held).await.unwrap();
    assert!(check(&client, "/place").await.unwrap().is_allowed());
    // Responses that do not count, and one that does.
    for (status, next_is_allowed) in [(200, true), (500, true), (401, false)] {
        let mut answer = check(&client, "/login").await.unwrap();
        assert!(answer.is_allowed() && answer.counts_responses());
        client.count_response(&mut answer, status).await.unwrap();
        let attributes = [("path", "/login"), ("user", "ann")].map(Into::into);
        let next = client.peek(&Call::new("api", &attributes)).await.unwrap();
        assert_eq!(next.is_allowed(), next_is_allowed, "{status}");
    }
    // A turn in a queue.
    assert!(check(&client, "/queue").await.unwrap().delay().is_zero());
    let waiting = check(&client, "/queue").await.unwrap();
    assert!(waiting.delay() > Duration::from_secs(30));
    assert!(!check(&client, "/queue").await.unwrap().is_allowed());
    client.refund(waiting).await.unwrap();
    assert!(check(&client, "/queue").await.unwrap().is_allowed());
    daemon.stop();
}

#[tokio::test]
async fn a_daemon_that_is_killed_and_comes_back_is_asked_again() {
    let folder = Folder::new("client-killed");
    let address = tidegate_testing::free_address().to_string();
    let first = daemon(&folder, &["--grpc", &address]);
    let rules = "{ domain: api, rules: [ { name: share, limit: 3/day } ] }";
    let local = WhileAway::Local(Arc::new(RuleLimiter::new(rules).unwrap()));
    let client = client(&address).while_away(local).build().unwrap();
    let answer = check(&client, "/fifty").await.unwrap();
    assert!(answer.is_allowed() && !answer.is_fallback());
    first.kill();
    // The node's own share, exactly, and no error to anybody.
    let mut allowed = 0;
    for _ in 0..20 {
        let answer = check(&client, "/fifty").await.unwrap();
        assert!(answer.is_fallback() && answer.is_degraded());
        allowed += usize::from(answer.is_allowed());
    }
    assert_eq!(allowed, 3);
    let second = daemon(&folder, &["--grpc", &address]);
    until_asked(&client).await;
    assert_eq!(check(&client, "/fifty").await.unwrap().rule(), Some("fifty"));
    second.stop();
}

#[tokio::test]
async fn a_daemon_that_hangs_holds_nobody_up() {
    let folder = Folder::new("client-hangs");
    let daemon = daemon(&folder, &[]);
    let builder = client(&daemon.address("grpc")).while_away(WhileAway::Allow);
    let client = builder.deadline(Duration::from_millis(200)).build().unwrap();
    until_asked(&client).await;
    daemon.signal(Signal::STOP);
    daemon.wait_until_stopped();
    // At one deadline for each call it would take 200 seconds.
    let calling = async {
        for _ in 0..1_000 {
            assert!(check(&client, "/fifty").await.unwrap().is_fallback());
        }
    };
    timeout(PATIENCE, calling).await.expect("nobody waits for it");
    daemon.signal(Signal::CONT);
    until_asked(&client).await;
    daemon.stop();
}
