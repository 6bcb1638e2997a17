//! A server that is gone, paused, read-only or full: an error that says whether anything was charged,
//! within the deadline, and answers again as soon as the server is well.

use std::time::Duration;

use crate::support::{Kind, PATIENCE, Server, block_on, connect};
use tidegate_core::{Decision, Key, Limit, Operation, Rate, Span, Timestamp, TokenBucket};
use tidegate_redis::RedisStore;
use tidegate_store::{Answers, Charge, Request, Store, StoreError};

fn limit() -> Limit {
    TokenBucket::new(Rate::new(1, Span::HOUR).unwrap(), 1 << 20).unwrap().into()
}

async fn take(store: &RedisStore) -> Result<Decision, StoreError> {
    let (limit, key) = (limit(), Key::from_hash(1 << 100));
    let charges = [Charge { limit: &limit, key, operation: Operation::Take { cost: 1 } }];
    let mut answers = Answers::new();
    store.decide(&[Request { now: Timestamp::ZERO, charges: &charges }], &mut answers).await;
    answers.iter().next().expect("an answer").map(|decisions| decisions[0])
}

/// Asks until there is a decision.
fn heals(store: &RedisStore) {
    let healed = async {
        while take(store).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    block_on(async { tokio::time::timeout(PATIENCE, healed).await }).expect("it heals");
}

#[test]
fn a_server_that_is_gone_is_an_error_and_one_that_comes_back_empty_is_used_at_once() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = Server::start(kind);
        let socket = server.socket().to_owned();
        let store = connect(server.config());
        let full = block_on(take(&store)).unwrap().remaining;
        drop(server);
        let errors: Vec<_> = (0..5).map(|_| block_on(take(&store)).unwrap_err()).collect();
        assert!(errors.contains(&StoreError::Unreachable), "{errors:?}");
        assert!(!StoreError::Unreachable.may_have_changed_state());
        let _again = Server::start_at(kind, &socket, &[]);
        heals(&store);
        assert_eq!(block_on(take(&store)).unwrap().remaining, full - 1, "it came back empty");
        assert_eq!(store.stats().connections, 2);
    }
}

#[test]
fn a_paused_server_costs_no_more_than_the_deadline() {
    let server = Server::start(Kind::Redis);
    let store = connect(server.config().deadline(Duration::from_secs(1)));
    heals(&store);
    server.signal("-STOP");
    let answer = block_on(async { tokio::time::timeout(PATIENCE, take(&store)).await });
    assert_eq!(answer.expect("the deadline holds"), Err(StoreError::NoAnswer));
    assert!(StoreError::NoAnswer.may_have_changed_state());
    server.signal("-CONT");
    heals(&store);
}

#[test]
fn a_server_that_may_not_write_refuses_and_charges_nothing() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    let before = block_on(take(&store)).unwrap().remaining;
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).exec(&mut client).unwrap();
    assert_eq!(block_on(take(&store)), Err(StoreError::Refused));
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut client).unwrap();
    heals(&store);
    assert_eq!(block_on(take(&store)).unwrap().remaining, before - 2);
}

#[test]
fn a_server_without_memory_refuses_and_serves_again_when_it_has_some() {
    let server = Server::start_with(Kind::Redis, &["--maxmemory-policy", "noeviction"]);
    let (store, mut client) = (connect(server.config()), server.client());
    let mut set = |bytes: &str| {
        redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).exec(&mut client).unwrap();
    };
    set("1");
    assert_eq!(block_on(take(&store)), Err(StoreError::Refused));
    set("0");
    heals(&store);
}
