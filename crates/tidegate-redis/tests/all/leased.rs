//! Leases on real servers: nodes that share a limit, never over and nearly nothing left.
//!
//! `TIDEGATE_ROUNDS` sets how many rounds the tests of many callers run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::support::{Kind, PATIENCE, Server, block_on};
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Consistency, FixedWindow, Key, Limit, OnStoreFailure, Operation, Rate, SlidingLog, Span, Terms,
    Timestamp, TokenBucket,
};
use tidegate_redis::lease::book::Call;
use tidegate_redis::lease::{Ask, HOLDERS_MAX, Holder, Intent};
use tidegate_redis::{RedisStore, Shared, TimeSource};
use tidegate_store::{Answers, Charge, Request, Settled, Source, Store};
use tidegate_testing::{always, undisturbed};
use tokio::time::Instant;

const ROUNDS: usize = 12;

/// Windows of which none ends while a test runs, whatever the time of the day.
const LONG: Windows = Windows::Clock(Rate::PERIOD_MAX);

/// Each with its own part of the callers.
const NODES: usize = 3;
const CALLERS: usize = 200;

#[test]
fn of_200_callers_on_three_nodes_50_pass_strictly_and_45_to_50_with_leases() {
    let server = Server::start(Kind::Redis);
    let rounds = std::env::var("TIDEGATE_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let hour = Span::HOUR;
    let limits: [Limit; 3] = [
        FixedWindow::new(50, LONG).unwrap().into(),
        TokenBucket::new(Rate::new(50, hour).unwrap(), 50).unwrap().into(),
        SlidingLog::new(Rate::new(50, hour).unwrap()).unwrap().into(),
    ];
    block_on(async {
        let nodes = nodes(&server, NODES).await;
        let mut fewest = u64::MAX;
        let (mut round, mut hindered) = (0, 0);
        while round < rounds {
            let limit = Arc::new(limits[round % limits.len()].clone());
            let strict = admitted(&nodes, &limit, Consistency::Strict).await;
            assert_eq!(strict, 50, "round {round}: {limit:?}");
            let before = unfinished(&nodes);
            let leased = admitted(&nodes, &limit, Consistency::Leased).await;
            assert!(leased <= 50, "round {round}: {leased} of {limit:?}");
            // What a busy server does not answer in time is nobody's for a while.
            if leased < 45 && unfinished(&nodes) > before && hindered < rounds {
                hindered += 1;
                continue;
            }
            assert!(leased >= 45, "round {round}: {leased} of {limit:?}");
            fewest = fewest.min(leased);
            round += 1;
        }
        println!("{rounds} rounds; at least {fewest} with leases");
        for node in &nodes {
            node.close().await;
        }
    });
}

/// Requests for leases without an answer in time, and leases that expired.
fn unfinished(nodes: &[Arc<Shared>]) -> u64 {
    let of = |node: &Arc<Shared>| {
        let leases = node.stats().groups[0].leases;
        leases.unanswered + leases.expired
    };
    nodes.iter().map(of).sum()
}

/// All callers at once, each on one of the nodes, on a key that nobody has had.
async fn admitted(nodes: &[Arc<Shared>], limit: &Arc<Limit>, consistency: Consistency) -> u64 {
    let key = fresh_key();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (node, limit) = (Arc::clone(&nodes[caller % nodes.len()]), Arc::clone(limit));
            tokio::spawn(async move { take(&node, &limit, key, consistency).await })
        })
        .collect();
    let mut admitted = 0;
    for caller in callers {
        let settled = caller.await.unwrap();
        assert_ne!(settled.source, Source::Fallback);
        admitted += u64::from(settled.decision.is_allowed());
    }
    admitted
}

#[test]
fn a_hot_key_is_spent_from_leases_with_fewer_than_200_calls_a_second() {
    let server = Server::start(Kind::Valkey);
    let limit =
        Limit::from(TokenBucket::new(Rate::new(200_000, Span::SECOND).unwrap(), 200_000).unwrap());
    block_on(async {
        let nodes = nodes(&server, 2).await;
        let key = fresh_key();
        let calls = |node: &Shared| node.stats().groups[0].store.script_calls;
        for node in &nodes {
            for _ in 0..50 {
                take(node, &limit, key, Consistency::Leased).await;
            }
        }
        let mut seen = Vec::new();
        loop {
            let unfinished_before = unfinished(&nodes);
            let before: Vec<u64> = nodes.iter().map(|node| calls(node)).collect();
            let (began, mut leased) = (Instant::now(), 0);
            while began.elapsed().as_millis() < 1_000 {
                for node in &nodes {
                    for _ in 0..100 {
                        let settled = take(node, &limit, key, Consistency::Leased).await;
                        leased += u64::from(settled.source == Source::Lease);
                    }
                }
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            let millis = began.elapsed().as_millis() as u64;
            assert!(leased > 1_000, "{leased}");
            let per_second =
                |(node, before): (&Arc<Shared>, u64)| (calls(node) - before) * 1_000 / millis;
            let most = nodes.iter().zip(before).map(per_second).max().unwrap();
            seen.push(most);
            if most < 200 {
                break;
            }
            // Where a busy server did not answer in time, each call is asked for by itself for a while.
            assert!(unfinished(&nodes) > unfinished_before && seen.len() < 5, "{seen:?}");
        }
        println!("calls a second: {seen:?}");
        for node in &nodes {
            node.close().await;
        }
    });
}

#[test]
fn what_a_node_has_not_used_comes_back_when_it_closes() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let limit = Limit::from(FixedWindow::new(100_000, LONG).unwrap());
        block_on(async {
            let nodes = nodes(&server, 2).await;
            let key = fresh_key();
            let mut taken = 0;
            for _ in 0..500 {
                for node in &nodes {
                    let settled = take(node, &limit, key, Consistency::Leased).await;
                    assert!(settled.decision.is_allowed());
                    taken += u64::from(settled.decision.is_allowed());
                }
            }
            nodes[0].close().await;
            nodes[1].close().await;
            let other = self::nodes(&server, 1).await;
            let looked =
                ask(&other[0], &limit, key, Operation::Peek { cost: 1 }, Consistency::Strict);
            let (left, most) = (looked.await.decision.remaining, 100_000 - taken);
            always(left <= most, format!("{left} of {most}"));
            assert_eq!(left, most);
        });
    });
}

#[test]
fn what_a_node_held_when_it_died_is_charged_and_nothing_is_over() {
    let server = Server::start(Kind::Redis);
    let limit = Limit::from(FixedWindow::new(1_000, LONG).unwrap());
    block_on(async {
        let key = fresh_key();
        let mut taken = 0;
        let dead = nodes(&server, 1).await;
        for _ in 0..300 {
            let settled = take(&dead[0], &limit, key, Consistency::Leased).await;
            taken += u64::from(settled.decision.is_allowed());
        }
        drop(dead);
        let heir = nodes(&server, 1).await;
        let began = Instant::now();
        loop {
            let settled = take(&heir[0], &limit, key, Consistency::Leased).await;
            taken += u64::from(settled.decision.is_allowed());
            let over_for_the_day =
                settled.decision.retry_after().is_some_and(|wait| wait > Span::from_secs(2));
            if over_for_the_day {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{settled:?}");
            if !settled.decision.is_allowed() {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
        println!("{taken} of 1000");
        assert!(taken <= 1_000, "{taken}");
        assert!(taken >= 500, "{taken}");
    });
}

#[test]
fn refunds_of_leased_takes_come_back_whether_the_store_knows_of_them_or_not() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let limit = Limit::from(TokenBucket::new(Rate::new(1, Span::DAY).unwrap(), 1_000).unwrap());
        block_on(async {
            let nodes = nodes(&server, 2).await;
            let (node, another, key) = (&nodes[0], &nodes[1], fresh_key());
            let (mut kept, mut at_once) = (0, 0);
            // The store has something to give back at any time: a refund may come before its charge does.
            for _ in 0..200 {
                let taken = take(another, &limit, key, Consistency::Strict).await;
                kept += u64::from(taken.decision.is_allowed());
            }
            for number in 0..400 {
                let taken = take(node, &limit, key, Consistency::Leased).await;
                assert!(taken.decision.is_allowed());
                if number % 2 == 0 {
                    kept += 1;
                    continue;
                }
                tokio::time::sleep(std::time::Duration::from_micros(100)).await;
                let back = Operation::Refund { cost: 1, taken_at: taken.at };
                let settled = ask(node, &limit, key, back, Consistency::Leased).await;
                at_once += u64::from(settled.source == Source::Lease);
            }
            node.close().await;
            let other = self::nodes(&server, 1).await;
            let looked =
                ask(&other[0], &limit, key, Operation::Peek { cost: 1 }, Consistency::Strict);
            // Each that was kept takes a day to come back. What is told of a refund's time is as good as what the
            // node knows of the store's clock, so a little less than a whole one may have come back.
            let full_in = looked.await.decision.reset_after.as_micros();
            let expected = kept * Span::DAY.as_micros();
            println!("full in {full_in} of {expected} microseconds");
            assert!(
                full_in.abs_diff(expected) < Span::HOUR.as_micros(),
                "{full_in} for {expected}"
            );
            println!("{at_once} of 200 without the store");
            assert!(at_once > 0);
        });
    });
}

#[test]
fn a_refusal_by_the_store_is_the_stores_and_cached_when_it_is_told_again() {
    let server = Server::start(Kind::Redis);
    let limit = Limit::from(FixedWindow::new(20, LONG).unwrap());
    block_on(async {
        let nodes = nodes(&server, 1).await;
        let key = fresh_key();
        let mut refusals = Vec::new();
        while refusals.len() < 2 {
            let settled = take(&nodes[0], &limit, key, Consistency::Leased).await;
            let wait = settled.decision.retry_after();
            if wait.is_some_and(|wait| wait > Span::MINUTE) {
                refusals.push(settled.source);
            }
        }
        assert_eq!(refusals, [Source::Store, Source::CachedDeny]);
    });
}

#[test]
fn a_reset_keeps_what_others_hold() {
    let server = Server::start(Kind::Redis);
    let limit = Limit::from(FixedWindow::new(100, LONG).unwrap());
    block_on(async {
        // The time is that of the requests, so that nothing expires unseen.
        let config = server.config().time(TimeSource::Request);
        let store = RedisStore::connect(config.clone()).await.unwrap();
        let node = Shared::connect(config).await.unwrap();
        let key = fresh_key();
        let holder = Holder { node: 9, epoch: 1 };
        let (intent, need) = (Intent::Open, 50);
        let ask = Ask { holder, sequence: 1, intent, spent: 0, need, waiting: 50, want: 50 };
        let call = Call { key, limit: limit.clone(), ask };
        let told = store.lease(&[call], now(), PATIENCE).await.pop().unwrap().unwrap();
        assert_eq!(told.granted, 50);
        let strict =
            |cost| self::ask(&node, &limit, key, Operation::Take { cost }, Consistency::Strict);
        assert!(strict(40).await.decision.is_allowed());
        node.forget(&[(key, terms(Consistency::Leased))]).await.unwrap();
        assert!(!strict(100).await.decision.is_allowed(), "50 of them are another's");
        let passed = strict(50).await.decision;
        assert!(passed.is_allowed(), "{passed:?}");
    });
}

#[test]
fn a_reset_gives_all_back_that_this_node_holds() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let limit = Limit::from(FixedWindow::new(1_000, LONG).unwrap());
        block_on(async {
            let nodes = nodes(&server, 2).await;
            let key = fresh_key();
            for _ in 0..300 {
                assert!(
                    take(&nodes[0], &limit, key, Consistency::Leased).await.decision.is_allowed()
                );
            }
            nodes[0].forget(&[(key, terms(Consistency::Leased))]).await.unwrap();
            let began = Instant::now();
            loop {
                let look = Operation::Peek { cost: 1 };
                let looked = ask(&nodes[1], &limit, key, look, Consistency::Strict).await;
                if looked.decision.remaining == 1_000 {
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "{looked:?}");
            }
        });
    });
}

#[test]
fn limits_that_are_not_hot_are_decided_by_one_script_all_or_nothing() {
    let server = Server::start(Kind::Redis);
    let limit = |count| Limit::from(FixedWindow::new(count, LONG).unwrap());
    let (wide, narrow) = (limit(100), limit(1));
    block_on(async {
        let nodes = nodes(&server, 1).await;
        let keys = [fresh_key(), fresh_key(), fresh_key()];
        let take = Operation::Take { cost: 1 };
        let charges = [(&wide, keys[0]), (&wide, keys[1]), (&narrow, keys[2])];
        let charges = charges.map(|(limit, key)| Charge { limit, key, operation: take });
        let leased = [terms(Consistency::Leased); 3];
        let calls = || nodes[0].stats().groups[0].store.script_calls;
        for (round, passes) in [(0, true), (1, false)] {
            let (before, mut settled) = (calls(), Vec::new());
            let request = Request { now: now(), charges: &charges };
            nodes[0].decide(&request, &leased, &mut settled).await.unwrap();
            assert_eq!(calls() - before, 1, "round {round}");
            assert_eq!(settled.iter().all(|one| one.decision.is_allowed()), passes);
        }
        for key in &keys[..2] {
            let look = Operation::Peek { cost: 1 };
            let looked = ask(&nodes[0], &wide, *key, look, Consistency::Leased).await;
            assert_eq!(looked.decision.remaining, 99, "the refused request took nothing");
        }
    });
}

#[test]
fn a_look_counts_what_this_node_has_at_hand() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let limit = Limit::from(FixedWindow::new(1_000, LONG).unwrap());
        block_on(async {
            let nodes = nodes(&server, 2).await;
            let (key, mut taken, mut seen) = (fresh_key(), 0, 0);
            while taken < 900 {
                let settled = take(&nodes[0], &limit, key, Consistency::Leased).await;
                assert!(settled.decision.is_allowed());
                taken += 1;
                let at_hand = || nodes[0].stats().groups[0].leases.at_hand;
                let (before, left) = (at_hand(), 1_000 - taken);
                // As much as there is would be allowed, and not one more.
                let all = Operation::Peek { cost: left };
                let fits = ask(&nodes[0], &limit, key, all, Consistency::Leased).await.decision;
                let more = Operation::Peek { cost: left + 1 };
                let over = ask(&nodes[0], &limit, key, more, Consistency::Leased).await.decision;
                if at_hand() != before {
                    // Something was given back or granted in between.
                    continue;
                }
                assert!(!over.is_allowed() && over.remaining <= left, "{left}: {over:?}");
                if fits.remaining == left {
                    assert!(fits.is_allowed(), "{before} are at hand: {fits:?}");
                    let other =
                        ask(&nodes[1], &limit, key, all, Consistency::Leased).await.decision;
                    // What a node holds is not another's. With a request on its way it can be anybody's.
                    seen += u64::from(before > 0 && other.remaining < left);
                }
            }
            assert!(seen > 100, "{seen} looks at something at hand");
        });
    });
}

/// Many equal takes of a key with as many leases as it can have are one call of the script.
#[test]
fn no_call_of_the_script_keeps_the_server_for_long_however_many_leases_there_are() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let limit = Limit::from(FixedWindow::new(1 << 20, LONG).unwrap());
        let longest = block_on(async {
            let store = RedisStore::connect(server.config().deadline(PATIENCE)).await.unwrap();
            let mut shortest = u64::MAX;
            for _ in 0..8 {
                let key = fresh_key();
                let call = |epoch| {
                    let (holder, intent) = (Holder { node: 9, epoch }, Intent::Open);
                    let need = 5;
                    let ask =
                        Ask { holder, sequence: 1, intent, spent: 0, need, waiting: 5, want: 5 };
                    Call { key, limit: limit.clone(), ask }
                };
                let calls: Vec<Call> = (0..HOLDERS_MAX as u32).map(call).collect();
                let told = store.lease(&calls, now(), PATIENCE).await;
                assert!(told.iter().all(|told| told.as_ref().is_ok_and(|told| told.granted == 5)));
                let mut client = server.client();
                let config = |name: &str, value: u64| {
                    redis::cmd("CONFIG").arg("SET").arg(name).arg(value).to_owned()
                };
                let _: () = config("slowlog-log-slower-than", 0).query(&mut client).unwrap();
                let _: () = redis::cmd("SLOWLOG").arg("RESET").query(&mut client).unwrap();
                let operation = Operation::Take { cost: 1 };
                let charges = [Charge { limit: &limit, key, operation }];
                let batch = vec![Request { now: now(), charges: &charges }; 600];
                let mut answers = Answers::new();
                store.decide(&batch, &mut answers).await;
                assert!(answers.iter().all(|answer| answer.is_ok_and(|one| one[0].is_allowed())));
                let log: Vec<Vec<redis::Value>> =
                    redis::cmd("SLOWLOG").arg("GET").arg(-1).query(&mut client).unwrap();
                let took = log.iter().filter_map(|entry| match entry[2] {
                    redis::Value::Int(micros) => u64::try_from(micros).ok(),
                    _ => None,
                });
                shortest = shortest.min(took.max().unwrap());
            }
            shortest
        });
        println!("the longest call took {longest} us");
        assert!(longest < 5_000, "{longest} us");
    });
}

async fn nodes(server: &Server, count: usize) -> Vec<Arc<Shared>> {
    let mut nodes = Vec::new();
    for _ in 0..count {
        nodes.push(Arc::new(Shared::connect(server.config()).await.unwrap()));
    }
    nodes
}

async fn take(node: &Shared, limit: &Limit, key: Key, consistency: Consistency) -> Settled {
    ask(node, limit, key, Operation::Take { cost: 1 }, consistency).await
}

async fn ask(
    node: &Shared,
    limit: &Limit,
    key: Key,
    operation: Operation,
    consistency: Consistency,
) -> Settled {
    let terms = terms(consistency);
    let charges = [Charge { limit, key, operation }];
    let mut settled = Vec::new();
    node.decide(&Request { now: now(), charges: &charges }, &[terms], &mut settled).await.unwrap();
    settled[0]
}

fn terms(consistency: Consistency) -> Terms {
    Terms { consistency, on_failure: OnStoreFailure::Deny, group: None }
}

/// A clock of this process, which runs as time does.
fn now() -> Timestamp {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(Instant::now);
    Timestamp::from_micros(1_790_553_600_000_000 + start.elapsed().as_micros() as u64)
}

fn fresh_key() -> Key {
    static KEYS: AtomicU64 = AtomicU64::new(1);
    let number = KEYS.fetch_add(1, Ordering::Relaxed);
    Key::from_hash(u128::from(number).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}
