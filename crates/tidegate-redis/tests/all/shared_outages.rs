//! Nodes that share limits on real servers which are killed, paused, emptied or full of what somebody
//! else wrote: every decision comes in time, under its own policy, and all is as before when they are back.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::nodes::{
    STRICT, ask, ask_one, bucket, does, in_group, key, node, on_failure, open, remaining, signal,
    take, wait_until, window,
};
use crate::support::proxy::Proxy;
use crate::support::{Kind, Server, block_on};
use redis::Commands;
use tidegate_core::OnStoreFailure::{Allow, Deny, Local};
use tidegate_core::{Key, OnStoreFailure, Operation};
use tidegate_redis::{ForeignState, Settled, Shared, SharedConfig};
use tidegate_store::{Source, StoreError};
use tidegate_testing::undisturbed;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

const DEADLINE: Duration = Duration::from_millis(50);

/// How much longer a decision may take on a machine that is busy with something else.
const MARGIN: Duration = Duration::from_secs(2);

/// How soon all is well after a server is back.
const HEALED_WITHIN: Duration = Duration::from_secs(3);

fn three_nodes(server: &Server) -> Vec<Arc<Shared>> {
    let config = || {
        let config = server.config().connect_timeout(Duration::from_secs(1));
        SharedConfig::new([config]).deadline(DEADLINE)
    };
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(open(config()))).collect();
    block_on(wait_until("all are seen", async || {
        nodes.iter().all(|node| node.stats().groups[0].nodes == 3)
    }));
    nodes
}

/// How long an answer took, and what it was.
type Answered = (Duration, Result<Settled, StoreError>);

/// Callers under one policy, who ask until they are told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    callers: Vec<AbortOnDropHandle<Vec<Answered>>>,
}

impl Load {
    /// Several callers on each node, each with a key of its own.
    fn start(nodes: &[Arc<Shared>], policy: OnStoreFailure) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let call = |caller: usize| {
            let (node, stop) = (Arc::clone(&nodes[caller % nodes.len()]), Arc::clone(&stop));
            async move {
                let (limit, mut answers) = (bucket(1 << 30), Vec::new());
                let key = key(1_000 * (policy as u128 + 1) + caller as u128);
                while !stop.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    let answer = ask_one(&node, take(&limit, key), on_failure(policy)).await;
                    answers.push((start.elapsed(), answer));
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                answers
            }
        };
        let runtime = support::runtime();
        let callers =
            (0..6).map(|caller| AbortOnDropHandle::new(runtime.spawn(call(caller)))).collect();
        Self { stop, callers }
    }

    /// Ends it, and gives all answers. Each has come in time.
    async fn end(self) -> Vec<Result<Settled, StoreError>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for caller in self.callers {
            for (took, answer) in caller.await.unwrap() {
                assert!(took < DEADLINE + MARGIN, "it took {took:?}: {answer:?}");
                all.push(answer);
            }
        }
        all
    }
}

/// Runs load under every policy while a server goes away and comes back.
fn under_load<T>(nodes: &[Arc<Shared>], outage: impl FnOnce() -> T) {
    let loads = [Local, Allow, Deny].map(|policy| (policy, Load::start(nodes, policy)));
    // A server that came back stays until the load has ended.
    let _back = outage();
    block_on(async {
        for (policy, load) in loads {
            let answers = load.end().await;
            let failed = answers.iter().filter(|answer| answer.is_err()).count();
            let degraded = |answer: &&Result<Settled, _>| {
                answer.is_ok_and(|settled| settled.source == Source::Fallback)
            };
            let degraded = answers.iter().filter(degraded).count();
            match policy {
                Local | Allow => assert_eq!(failed, 0, "{policy:?}"),
                Deny => assert!(failed > 0, "a store that is away is an error"),
            }
            assert_eq!(degraded > 0, policy != Deny, "{policy:?}: {degraded}");
            let well = answers.iter().filter(|answer| {
                answer.is_ok_and(|settled| {
                    settled.source == Source::Store && settled.decision.is_allowed()
                })
            });
            assert!(well.count() > 0, "{policy:?}: before and after it is the store that decides");
        }
    });
}

/// Waits until every node has noticed.
async fn all_are(nodes: &[Arc<Shared>], well: bool) {
    wait_until("the nodes notice", async || {
        nodes.iter().all(|node| node.stats().groups[0].is_well == well)
    })
    .await;
}

/// Waits until every node decides by the store again.
async fn healed(nodes: &[Arc<Shared>]) -> Duration {
    let limit = bucket(1 << 30);
    wait_until("the store decides again", async || {
        for node in nodes {
            let answer = ask_one(node, take(&limit, key(7)), on_failure(Local)).await;
            if answer.unwrap().source != Source::Store {
                return false;
            }
        }
        true
    })
    .await
}

/// What a key is admitted by one node while the store is away.
async fn share_of(node: &Shared, burst: u64, key: Key) -> u64 {
    let (limit, mut admitted) = (window(burst), 0);
    loop {
        let answer = ask_one(node, take(&limit, key), on_failure(Local)).await.unwrap();
        assert_eq!(answer.source, Source::Fallback);
        if !answer.decision.is_allowed() {
            return admitted;
        }
        admitted += 1;
    }
}

/// Waits until the store has decided for the load.
fn load_runs(nodes: &[Arc<Shared>]) {
    let calls = || nodes.iter().map(|node| node.stats().groups[0].store.script_calls).sum::<u64>();
    let before = calls();
    block_on(wait_until("the load runs", async || calls() > before + 100));
}

#[test]
fn a_store_that_is_killed_under_load_fails_no_decision() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let socket = server.socket().to_owned();
        let nodes = three_nodes(&server);
        under_load(&nodes, || {
            load_runs(&nodes);
            drop(server);
            block_on(async {
                all_are(&nodes, false).await;
                // Each node has its share of a limit, and of one that is too small, one.
                for node in &nodes {
                    assert_eq!(share_of(node, 10, key(1)).await, 3);
                    assert_eq!(share_of(node, 2, key(2)).await, 1);
                }
            });
            let again = Server::start_at(Kind::Redis, &socket, &[]);
            let took = block_on(healed(&nodes));
            assert!(took < HEALED_WITHIN, "healed after {took:?}");
            load_runs(&nodes);
            again
        });
        for node in &nodes {
            let group = node.stats().groups[0];
            assert!(group.fallbacks > 0 && group.store.breaker_openings > 0);
            assert_eq!(group.nodes, 3, "a store that comes back empty does not make nodes fewer");
        }
    });
}

#[test]
fn a_store_that_is_paused_under_load_fails_no_decision() {
    undisturbed(|| {
        let server = Server::start(Kind::Valkey);
        let nodes = three_nodes(&server);
        under_load(&nodes, || {
            load_runs(&nodes);
            signal(&server, "-STOP");
            block_on(async {
                all_are(&nodes, false).await;
                assert_eq!(share_of(&nodes[0], 10, key(1)).await, 3);
            });
            signal(&server, "-CONT");
            let took = block_on(healed(&nodes));
            assert!(took < HEALED_WITHIN, "healed after {took:?}");
            load_runs(&nodes);
        });
    });
}

#[test]
fn a_store_that_is_far_too_slow_under_load_fails_no_decision() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let proxy = Proxy::start(&server);
        let config = || SharedConfig::new([proxy.config()]).deadline(DEADLINE);
        let nodes: Vec<_> = (0..3).map(|_| Arc::new(open(config()))).collect();
        under_load(&nodes, || {
            load_runs(&nodes);
            proxy.delay(DEADLINE * 10);
            block_on(async {
                wait_until("the store is left alone", async || {
                    nodes.iter().all(|node| node.stats().groups[0].store.breaker_openings > 0)
                })
                .await;
            });
            proxy.delay(Duration::ZERO);
            let took = block_on(healed(&nodes));
            assert!(took < HEALED_WITHIN, "healed after {took:?}");
            load_runs(&nodes);
        });
    });
}

#[test]
fn never_over_while_a_group_is_paused_again_and_again() {
    const LIMIT: u64 = 400;
    let servers = [Server::start(Kind::Redis), Server::start(Kind::Redis)];
    let config = || {
        let configs = servers.iter().map(Server::config);
        SharedConfig::new(configs).deadline(Duration::from_millis(20))
    };
    let nodes: Vec<_> = (0..2).map(|_| Arc::new(open(config()))).collect();
    let terms = [in_group(STRICT, 0), in_group(STRICT, 1)];
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..12)
        .map(|caller: usize| {
            let (node, stop) = (Arc::clone(&nodes[caller % 2]), Arc::clone(&stop));
            support::runtime().spawn(async move {
                let (limit, mut admitted) = (window(LIMIT), 0);
                let charges = [take(&limit, key(0)), take(&limit, key(1))];
                while !stop.load(Ordering::Relaxed) {
                    let settled = ask(&node, &charges, &terms).await.unwrap_or_default();
                    let all = settled.iter().all(|one| one.decision.is_allowed());
                    admitted += u64::from(!settled.is_empty() && all);
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
                admitted
            })
        })
        .collect();
    block_on(async {
        for round in 0..6 {
            let server = &servers[round % 2];
            signal(server, "-STOP");
            tokio::time::sleep(Duration::from_millis(60)).await;
            signal(server, "-CONT");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stop.store(true, Ordering::Relaxed);
        let mut admitted = 0;
        for caller in callers {
            admitted += caller.await.unwrap();
        }
        assert!(admitted > 0 && admitted <= LIMIT, "{admitted} of {LIMIT}");
        // What the stores have counted is all that was admitted, and what could not be given back.
        let limit = window(LIMIT);
        for (number, terms) in terms.into_iter().enumerate() {
            let mut left = u64::MAX;
            wait_until("the group is well", async || {
                let look = does(&limit, key(number as u128), Operation::Peek { cost: 0 });
                let answer = ask_one(&nodes[0], look, terms).await;
                left = answer.map_or(u64::MAX, |settled| settled.decision.remaining);
                answer.is_ok()
            })
            .await;
            assert!(LIMIT - left >= admitted, "{admitted} admitted, {left} left");
        }
    });
}

#[test]
fn a_denial_is_told_from_a_store_that_cannot_answer() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let nodes = three_nodes(&server);
        let limit = window(3);
        block_on(async {
            for _ in 0..3 {
                ask_one(&nodes[0], take(&limit, key(0)), on_failure(Deny)).await.unwrap();
            }
            let denied = ask_one(&nodes[0], take(&limit, key(0)), on_failure(Deny)).await.unwrap();
            assert!(!denied.decision.is_allowed());
        });
        drop(server);
        block_on(async {
            all_are(&nodes, false).await;
            let error =
                ask_one(&nodes[1], take(&limit, key(1)), on_failure(Deny)).await.unwrap_err();
            assert!(matches!(error, StoreError::Unreachable | StoreError::NoAnswer), "{error:?}");
            // A limit that denies makes the request an error, whatever the others would do.
            let both = [take(&limit, key(2)), take(&limit, key(3))];
            let terms = [on_failure(Local), on_failure(Deny)];
            ask(&nodes[1], &both, &terms).await.unwrap_err();
            let left = ask_one(&nodes[1], take(&limit, key(2)), on_failure(Local)).await.unwrap();
            assert!(left.decision.is_allowed(), "nothing was taken of the share");
            // A denial that the store gave still holds.
            let held = ask_one(&nodes[0], take(&limit, key(0)), on_failure(Deny)).await.unwrap();
            assert_eq!(held.source, Source::CachedDeny);
        });
    });
}

#[test]
fn a_group_that_dies_takes_no_other_with_it() {
    let (first, second) = (Server::start(Kind::Redis), Server::start(Kind::Redis));
    let node = open(SharedConfig::new([first.config(), second.config()]));
    let (limit, wide) = (window(4), window(100));
    let there = [in_group(on_failure(Local), 0), in_group(STRICT, 1)];
    drop(first);
    block_on(async {
        wait_until("it is noticed", async || !node.stats().groups[0].is_well).await;
        for left in (90..100).rev() {
            let answer = ask_one(&node, take(&wide, key(1)), there[1]).await.unwrap();
            assert_eq!((answer.source, answer.decision.remaining), (Source::Store, left));
        }
        // Over both it is all or nothing, whoever decides.
        let both = [take(&limit, key(0)), take(&wide, key(1))];
        for number in 0..6 {
            let answers = ask(&node, &both, &there).await.unwrap();
            let sources = [answers[0].source, answers[1].source];
            assert_eq!(sources, [Source::Fallback, Source::Store]);
            assert_eq!(answers[0].decision.is_allowed(), number < 4);
        }
        assert_eq!(remaining(&node, &wide, key(1), there[1]).await, 86);
        // And where it is the store that refuses, the share gets back what it gave.
        let (narrow, share) = (window(1), window(2));
        let both = [take(&share, key(2)), take(&narrow, key(3))];
        for admitted in [true, false, false] {
            let answers = ask(&node, &both, &there).await.unwrap();
            assert_eq!(answers.iter().all(|one| one.decision.is_allowed()), admitted);
            assert!(answers[0].decision.is_allowed());
        }
        let taken = ask_one(&node, take(&share, key(2)), there[0]).await.unwrap();
        assert_eq!((taken.decision.is_allowed(), taken.decision.remaining), (true, 0));
        // An error of one is an error of all, and nothing stays taken.
        let terms = [in_group(STRICT, 0), in_group(STRICT, 1)];
        ask(&node, &[take(&limit, key(4)), take(&wide, key(1))], &terms).await.unwrap_err();
        wait_until("it is given back", async || {
            remaining(&node, &wide, key(1), there[1]).await == 86
        })
        .await;
    });
    assert_eq!(node.stats().groups[1].fallbacks, 0);
    assert!(node.stats().groups[1].is_well);
}

#[test]
fn a_state_that_somebody_else_wrote_disturbs_nothing_else() {
    let server = Server::start(Kind::Redis);
    let mut client = server.client();
    let (limit, foreign, ours) = (window(5), Key::from_hash(1), Key::from_hash(2));
    // The tag of a key stands in braces; theirs is zero.
    let name = |key: Key| [b"t{!!}", &(key.as_hash() as u32).to_be_bytes()[..]].concat();
    let both = [take(&limit, foreign), take(&limit, ours)];
    let settle = |policy, on| {
        let config = server.config().foreign_state(policy);
        let node = open(SharedConfig::new([config]));
        let answers = block_on(ask(&node, &both, &[on_failure(on), STRICT]));
        (answers, node)
    };
    let _: () = client.rpush(name(foreign), "somebody's").unwrap();

    let (answers, node) = settle(ForeignState::Refuse, Local);
    let answers = answers.unwrap();
    assert_eq!((answers[0].source, answers[0].decision.remaining), (Source::Fallback, 4));
    assert_eq!((answers[1].source, answers[1].decision.remaining), (Source::Store, 4));
    assert!(node.stats().groups[0].is_well && node.stats().groups[0].store.foreign_states > 0);

    let (answers, node) = settle(ForeignState::Refuse, Deny);
    assert_eq!(answers, Err(StoreError::ForeignState));
    block_on(wait_until("what was taken beside it is given back", async || {
        remaining(&node, &limit, ours, STRICT).await == 4
    }));
    assert_eq!(client.key_type::<_, String>(name(foreign)).unwrap(), "list", "it is left");

    let (answers, _) = settle(ForeignState::Reset, Deny);
    let left: Vec<_> = answers.unwrap().iter().map(|one| one.decision.remaining).collect();
    assert_eq!(left, [4, 3], "it starts anew");
}

#[test]
fn a_store_that_lost_everything_lifts_denials() {
    let server = Server::start(Kind::Redis);
    let (node, limit) = (node(&[&server]), window(1));
    let refused = async || {
        let answer = ask_one(&node, take(&limit, key(0)), STRICT).await.unwrap();
        (!answer.decision.is_allowed()).then_some(answer.source)
    };
    block_on(async {
        assert_eq!(refused().await, None);
        assert_eq!(refused().await, Some(Source::Store));
        assert_eq!(refused().await, Some(Source::CachedDeny));
        redis::cmd("FLUSHALL").exec(&mut server.client()).unwrap();
        wait_until("it is asked again", async || refused().await.is_none()).await;
    });
}

#[test]
fn a_node_begins_without_a_store_where_it_may_and_uses_it_when_it_is_there() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let (config, socket) = (server.config(), server.socket().to_owned());
        drop(server);
        let config = SharedConfig::new([config.connect_timeout(Duration::from_secs(1))]);
        let node = open(config.deadline(DEADLINE).store_required(false));
        assert!(!node.stats().groups[0].is_well);
        assert_eq!(block_on(share_of(&node, 5, key(0))), 5, "it knows of no other node");
        let _server = Server::start_at(Kind::Redis, &socket, &[]);
        let took = block_on(healed(&[Arc::new(node)]));
        assert!(took < HEALED_WITHIN, "healed after {took:?}");
    });
}

#[test]
fn what_is_given_back_goes_to_the_one_who_gave_it() {
    let server = Server::start(Kind::Redis);
    let node = open(SharedConfig::new([server.config()]).deadline(DEADLINE));
    let limit = window(3);
    drop(server);
    block_on(async {
        wait_until("it is noticed", async || !node.stats().groups[0].is_well).await;
        let local = on_failure(Local);
        let taken = ask_one(&node, take(&limit, key(0)), local).await.unwrap();
        assert_eq!((taken.source, taken.decision.remaining), (Source::Fallback, 2));
        let back = Operation::Refund { cost: 1, taken_at: taken.at };
        let answer = ask_one(&node, does(&limit, key(0), back), local).await.unwrap();
        assert_eq!((answer.source, answer.decision.remaining), (Source::Fallback, 3));
    });
}
