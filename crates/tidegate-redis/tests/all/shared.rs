//! Several nodes that share limits on real servers, while all is well.

use std::sync::Arc;
use std::time::Duration;

use crate::support::nodes::{
    STRICT, ask, ask_one, bucket, does, in_group, key, node, now, open, places, remaining, take,
    wait_until, window,
};
use crate::support::{Cluster, Kind, PATIENCE, Server, block_on};
use tidegate_core::{Consistency, Key, Limit, Operation, Span, Terms};
use tidegate_redis::{OpenError, RedisConfig, Shared, SharedConfig};
use tidegate_store::{Charge, Source, StoreError};
use tidegate_testing::undisturbed;

/// Has `callers` tasks ask for the same, spread over the nodes, and gives how many got it.
async fn race(
    nodes: &[Arc<Shared>],
    callers: usize,
    charges: &[(Limit, Key, Terms)],
) -> Vec<Result<bool, StoreError>> {
    let calls: Vec<_> = (0..callers)
        .map(|caller| {
            let node = Arc::clone(&nodes[caller % nodes.len()]);
            let charges = charges.to_vec();
            tokio::spawn(async move {
                let terms: Vec<Terms> = charges.iter().map(|(_, _, terms)| *terms).collect();
                let charges: Vec<Charge<'_>> =
                    charges.iter().map(|(limit, key, _)| take(limit, *key)).collect();
                let settled = ask(&node, &charges, &terms).await?;
                Ok(settled.iter().all(|one| one.decision.is_allowed()))
            })
        })
        .collect();
    let mut answers = Vec::new();
    for call in calls {
        answers.push(call.await.unwrap());
    }
    answers
}

fn three_nodes(servers: &[&Server]) -> Vec<Arc<Shared>> {
    (0..3).map(|_| Arc::new(node(servers))).collect()
}

#[test]
fn three_nodes_and_two_hundred_callers_get_exactly_what_there_is() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = Server::start(kind);
        let nodes = three_nodes(&[&server]);
        for round in 0..10 {
            let charges = [(bucket(50), key(round), STRICT)];
            let answers = block_on(race(&nodes, 200, &charges));
            let admitted = answers.iter().filter(|answer| answer.unwrap()).count();
            assert_eq!(admitted, 50);
        }
    }
}

#[test]
fn nodes_share_limits_on_a_cluster_and_know_of_each_other() {
    let cluster = Cluster::start(Kind::Redis);
    let config = || {
        let config = RedisConfig::new(&cluster.url()).unwrap();
        SharedConfig::new([config.deadline(PATIENCE).connect_timeout(PATIENCE)])
    };
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(open(config()))).collect();
    block_on(async {
        for node in &nodes {
            wait_until("all are seen", async || node.stats().groups[0].nodes == 3).await;
        }
        for round in 0..5 {
            let answers = race(&nodes, 200, &[(bucket(50), key(round), STRICT)]).await;
            assert_eq!(answers.iter().filter(|answer| answer.unwrap()).count(), 50);
        }
        // What one gives back is told over whichever server has the slot of the pulse.
        let (limit, key) = (window(1), key(100));
        let taken = ask_one(&nodes[0], take(&limit, key), STRICT).await.unwrap();
        let denied = ask_one(&nodes[1], take(&limit, key), STRICT).await.unwrap();
        assert!(!denied.decision.is_allowed());
        let back = Operation::Refund { cost: 1, taken_at: taken.at };
        ask_one(&nodes[0], does(&limit, key, back), STRICT).await.unwrap();
        wait_until("the denial is lifted", async || {
            ask_one(&nodes[1], take(&limit, key), STRICT).await.unwrap().decision.is_allowed()
        })
        .await;
    });
}

#[test]
fn a_request_over_two_groups_is_charged_to_both_or_to_none() {
    let servers = [Server::start(Kind::Redis), Server::start(Kind::Valkey)];
    let nodes = three_nodes(&[&servers[0], &servers[1]]);
    for round in 0..5 {
        let (wide, narrow) = (window(50), window(30));
        let (one, other) = (in_group(STRICT, 0), in_group(STRICT, 1));
        let (first, second) = (key(2 * round), key(2 * round + 1));
        let charges = [(wide.clone(), first, one), (narrow.clone(), second, other)];
        block_on(async {
            let answers = race(&nodes, 200, &charges).await;
            let admitted = answers.iter().filter(|answer| answer.unwrap()).count() as u64;
            assert!(admitted <= 30, "over: {admitted}");
            assert_eq!(remaining(&nodes[0], &wide, first, one).await, 50 - admitted);
            assert_eq!(remaining(&nodes[0], &narrow, second, other).await, 30 - admitted);
            // Who came at the same moment may have been refused early. All of it is there afterwards.
            let both = [take(&wide, first), take(&narrow, second)];
            for _ in admitted..30 {
                wait_until("the rest is admitted", async || {
                    let settled = ask(&nodes[1], &both, &[one, other]).await.unwrap();
                    settled.iter().all(|one| one.decision.is_allowed())
                })
                .await;
            }
            assert_eq!(remaining(&nodes[2], &wide, first, one).await, 20);
            assert_eq!(remaining(&nodes[2], &narrow, second, other).await, 0);
        });
    }
    assert!(nodes.iter().all(|node| node.stats().give_backs_failed == 0));
}

#[test]
fn whoever_leaves_a_request_over_two_groups_leaves_nothing_taken() {
    let servers = [Server::start(Kind::Redis), Server::start(Kind::Redis)];
    let node = node(&[&servers[0], &servers[1]]);
    let (limit, terms) = (window(1_000), [in_group(STRICT, 0), in_group(STRICT, 1)]);
    block_on(async {
        let mut settled = 0;
        for call in 0..200_u32 {
            let charges = [take(&limit, key(0)), take(&limit, key(1))];
            let patience = Duration::from_micros(u64::from(call) * 10);
            let asked = ask(&node, &charges, &terms);
            if tokio::time::timeout(patience, asked).await.is_ok_and(|answer| answer.is_ok()) {
                settled += 1;
            }
        }
        for (index, terms) in terms.into_iter().enumerate() {
            wait_until("all is given back", async || {
                remaining(&node, &limit, key(index as u128), terms).await == 1_000 - settled
            })
            .await;
        }
    });
    assert_eq!(node.stats().give_backs_failed, 0);
}

#[test]
fn keys_are_spread_over_groups_and_terms_can_name_one() {
    let servers = [Server::start(Kind::Redis), Server::start(Kind::Redis)];
    let node = node(&[&servers[0], &servers[1]]);
    let sizes = || {
        [0, 1].map(|group: usize| {
            redis::cmd("DBSIZE").query::<u64>(&mut servers[group].client()).unwrap()
        })
    };
    let before = sizes();
    let limit = bucket(5);
    for number in 0..200 {
        block_on(ask_one(&node, take(&limit, key(number)), STRICT)).unwrap();
    }
    let after = sizes();
    let kept = [after[0] - before[0], after[1] - before[1]];
    assert_eq!(kept[0] + kept[1], 200);
    assert!(kept.iter().all(|kept| *kept > 60), "{kept:?}");
    for number in 200..300 {
        block_on(ask_one(&node, take(&limit, key(number)), in_group(STRICT, 1))).unwrap();
    }
    assert_eq!(sizes(), [after[0], after[1] + 100]);
}

#[test]
fn a_key_that_is_over_is_refused_without_a_call() {
    let server = Server::start(Kind::Redis);
    let node = node(&[&server]);
    let limit = bucket(1);
    block_on(async {
        assert!(ask_one(&node, take(&limit, key(0)), STRICT).await.unwrap().decision.is_allowed());
        let denied = ask_one(&node, take(&limit, key(0)), STRICT).await.unwrap();
        assert_eq!(denied.source, Source::Store);
        let calls = node.stats().groups[0].store.script_calls;
        for _ in 0..100 {
            let again = ask_one(&node, take(&limit, key(0)), STRICT).await.unwrap();
            assert_eq!(again.source, Source::CachedDeny);
            assert!(
                again.decision.retry_after().unwrap() <= denied.decision.retry_after().unwrap()
            );
        }
        assert_eq!(node.stats().groups[0].store.script_calls, calls);
        assert_eq!(node.stats().cached_denials, 100);
        assert_eq!(node.denials_kept(now()), 1);
        let look = does(&limit, key(0), Operation::Peek { cost: 1 });
        assert_eq!(ask_one(&node, look, STRICT).await.unwrap().source, Source::Store);
    });
}

#[test]
fn a_request_with_a_limit_that_is_over_charges_none_and_tells_of_all() {
    let servers = [Server::start(Kind::Redis), Server::start(Kind::Redis)];
    let node = node(&[&servers[0], &servers[1]]);
    let (narrow, wide) = (bucket(1), bucket(9));
    let terms = [in_group(STRICT, 0), in_group(STRICT, 1)];
    let charges = [take(&narrow, key(0)), take(&wide, key(1))];
    block_on(async {
        assert!(ask(&node, &charges, &terms).await.unwrap()[1].decision.is_allowed());
        let denied = ask(&node, &charges, &terms).await.unwrap();
        assert_eq!((denied[0].source, denied[1].decision.remaining), (Source::Store, 8));
        for _ in 0..50 {
            let again = ask(&node, &charges, &terms).await.unwrap();
            assert_eq!(again[0].source, Source::CachedDeny);
            assert!(again[1].decision.is_allowed());
            assert_eq!(again[1].decision.remaining, 8);
        }
        // What is charged whatever happens is charged beside a limit that is over, too.
        let debit = [charges[0], does(&wide, key(1), Operation::Debit { cost: 2 })];
        assert_eq!(ask(&node, &debit, &terms).await.unwrap()[1].decision.remaining, 6);
        assert_eq!(remaining(&node, &wide, key(1), terms[1]).await, 6);
    });
}

#[test]
fn what_one_node_gives_back_lifts_the_denials_of_the_others_within_a_second() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let nodes = three_nodes(&[&server]);
        let limit = bucket(1);
        let refused = async |node: &Shared, key: Key| {
            let answer = ask_one(node, take(&limit, key), STRICT).await.unwrap();
            (!answer.decision.is_allowed()).then_some(answer.source)
        };
        block_on(async {
            for (number, forgets) in [(0, false), (1, true)] {
                let key = key(number);
                let taken = ask_one(&nodes[0], take(&limit, key), STRICT).await.unwrap();
                assert_eq!(refused(&nodes[1], key).await, Some(Source::Store));
                assert_eq!(refused(&nodes[1], key).await, Some(Source::CachedDeny));
                assert_eq!(refused(&nodes[0], key).await, Some(Source::Store));
                if forgets {
                    nodes[0].forget(&[(key, STRICT)]).await.unwrap();
                } else {
                    let back = Operation::Refund { cost: 1, taken_at: taken.at };
                    ask_one(&nodes[0], does(&limit, key, back), STRICT).await.unwrap();
                }
                let look = does(&limit, key, Operation::Peek { cost: 1 });
                let looked = ask_one(&nodes[0], look, STRICT).await.unwrap();
                assert!(looked.decision.is_allowed(), "here at once");
                let took = wait_until("the denial is lifted", async || {
                    refused(&nodes[1], key).await.is_none()
                });
                assert!(took.await < Duration::from_secs(1));
            }
        });
    });
}

#[test]
fn nodes_know_of_each_other_and_those_that_close_are_gone() {
    let server = Server::start(Kind::Redis);
    let nodes = three_nodes(&[&server]);
    let seen = |node: &Shared| node.stats().groups[0].nodes;
    block_on(async {
        for node in &nodes {
            wait_until("all are seen", async || seen(node) == 3).await;
        }
        nodes[2].close().await;
        for node in &nodes[..2] {
            wait_until("one is gone", async || seen(node) == 2).await;
        }
        let mut client = server.client();
        let registered = |client: &mut redis::Connection| {
            redis::cmd("ZCARD").arg("t{nodes}n").query::<u64>(client).unwrap()
        };
        assert_eq!(registered(&mut client), 2);
        // One that dies says nothing, and is forgotten.
        drop(nodes);
        wait_until("all are forgotten", async || registered(&mut client) == 0).await;
    });
}

/// What the documents say that a user of the store has to be allowed.
fn documented_rights() -> Vec<String> {
    let page = include_str!("../../../../docs/shared.md");
    let (_, from) = page.split_once("the rights to run").unwrap();
    let (rights, _) = from.split_once("(`test:").unwrap();
    let commands = rights.split('`').skip(1).step_by(2);
    commands.map(|name| format!("+{}", name.to_lowercase().replace(' ', "|"))).collect()
}

#[test]
fn a_user_needs_no_more_rights_than_the_documents_say() {
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = Server::start_tcp(kind, &[]);
        let mut acl = redis::cmd("ACL");
        acl.arg("SETUSER").arg(&["limiter", "on", ">secret", "~t{*"][..]).arg(documented_rights());
        acl.exec(&mut server.client()).unwrap();
        let url = format!("redis://limiter:secret@127.0.0.1:{}", server.port());
        let nodes = [(); 2].map(|()| {
            let config = RedisConfig::new(&url).unwrap().connect_timeout(PATIENCE);
            open(SharedConfig::new([config]).deadline(PATIENCE))
        });
        let [one, other] = &nodes;
        block_on(async {
            for node in &nodes {
                let seen = async || node.stats().groups[0].nodes == 2;
                wait_until("they see each other", seen).await;
            }
            // Two limits of one family, together and one alone.
            let (limit, at_once) = (bucket(2), places(1, Span::HOUR));
            let keys = [key(1), Key::from_hash(key(1).as_hash() ^ 1 << 40)];
            let both = [take(&limit, keys[0]), take(&at_once, keys[1])];
            let lease = ask(one, &both, &[STRICT; 2]).await.unwrap()[1].decision.lease.unwrap();
            let release = does(&at_once, keys[1], Operation::Release { lease });
            ask_one(one, release, STRICT).await.unwrap();
            assert_eq!(remaining(one, &limit, keys[0], STRICT).await, 1);
            // What one forgets the other learns of, though it knew better.
            for is_allowed in [true, false] {
                let taken = ask_one(other, take(&limit, keys[0]), STRICT).await.unwrap();
                assert_eq!(taken.decision.is_allowed(), is_allowed);
            }
            one.forget(&[(keys[0], STRICT)]).await.unwrap();
            wait_until("the denial is lifted", async || {
                let taken = ask_one(other, take(&limit, keys[0]), STRICT).await.unwrap();
                taken.decision.is_allowed()
            })
            .await;
            // A key that is asked for often is leased.
            let (many, leased) =
                (bucket(1 << 20), Terms { consistency: Consistency::Leased, ..STRICT });
            wait_until("a lease pays", async || {
                let taken = ask_one(one, take(&many, key(2)), leased).await.unwrap();
                taken.source == Source::Lease
            })
            .await;
            for node in &nodes {
                assert!(node.stats().groups[0].is_well);
                node.close().await;
            }
        });
    }
}

#[test]
fn a_limit_that_each_node_keeps_for_itself_asks_nobody() {
    let server = Server::start(Kind::Redis);
    let nodes = [node(&[&server]), node(&[&server])];
    let terms = Terms { consistency: Consistency::Local, ..STRICT };
    let (limit, shared) = (bucket(2), bucket(3));
    block_on(async {
        for node in &nodes {
            for left in [1, 0] {
                let answer = ask_one(node, take(&limit, key(0)), terms).await.unwrap();
                assert_eq!((answer.source, answer.decision.remaining), (Source::Memory, left));
            }
            assert!(
                !ask_one(node, take(&limit, key(0)), terms).await.unwrap().decision.is_allowed()
            );
            assert_eq!(node.stats().groups[0].store.script_calls, 0);
        }
        // Beside one that is shared it is all or nothing.
        let both = [take(&limit, key(1)), take(&shared, key(2))];
        for admitted in [true, true, false] {
            let answers = ask(&nodes[0], &both, &[terms, STRICT]).await.unwrap();
            assert_eq!(answers.iter().all(|one| one.decision.is_allowed()), admitted);
        }
        assert_eq!(remaining(&nodes[0], &shared, key(2), STRICT).await, 1);
        // And where the shared one refuses, the own one gets back what it gave.
        ask_one(&nodes[1], take(&shared, key(2)), STRICT).await.unwrap();
        let answers = ask(&nodes[1], &both, &[terms, STRICT]).await.unwrap();
        assert!(answers[0].decision.is_allowed() && !answers[1].decision.is_allowed());
        assert_eq!(remaining(&nodes[1], &limit, key(1), terms).await, 2);
    });
}

#[test]
fn places_are_shared_by_nodes_given_back_and_freed_when_a_node_dies() {
    let servers = [Server::start(Kind::Redis), Server::start(Kind::Redis)];
    let nodes = three_nodes(&[&servers[0], &servers[1]]);
    let (held, narrow) = (places(2, Span::from_millis(700)), bucket(1));
    let terms = [in_group(STRICT, 0), in_group(STRICT, 1)];
    block_on(async {
        ask_one(&nodes[0], take(&narrow, key(9)), terms[1]).await.unwrap();
        // Refused elsewhere: the place is given back.
        for node in &nodes {
            let charges = [take(&held, key(0)), take(&narrow, key(9))];
            let answers = ask(node, &charges, &terms).await.unwrap();
            assert!(answers[0].decision.is_allowed() && answers[0].decision.lease.is_none());
            assert!(!answers[1].decision.is_allowed());
        }
        let first = ask_one(&nodes[0], take(&held, key(0)), terms[0]).await.unwrap();
        let second = ask_one(&nodes[1], take(&held, key(0)), terms[0]).await.unwrap();
        let third = ask_one(&nodes[2], take(&held, key(0)), terms[0]).await.unwrap();
        assert!(second.decision.is_allowed() && !third.decision.is_allowed());
        let operation = Operation::Release { lease: first.decision.lease.unwrap() };
        ask_one(&nodes[0], does(&held, key(0), operation), terms[0]).await.unwrap();
        let third = ask_one(&nodes[2], take(&held, key(0)), terms[0]).await.unwrap();
        assert!(third.decision.is_allowed(), "at once, by whoever asks next");
        // Those two die with their places.
        let [one, _, _] = <[_; 3]>::try_from(nodes).ok().unwrap();
        wait_until("the places are free", async || {
            let look = does(&held, key(0), Operation::Peek { cost: 2 });
            ask_one(&one, look, terms[0]).await.unwrap().decision.is_allowed()
        })
        .await;
    });
}

#[test]
fn a_time_of_this_node_becomes_one_of_the_store() {
    let server = Server::start(Kind::Redis);
    let node = node(&[&server]);
    let limit = bucket(5);
    let answer = block_on(ask_one(&node, take(&limit, key(0)), STRICT)).unwrap();
    let placed = node.place_time(key(0), STRICT, node.told_time(now()));
    let apart = placed.since(answer.at).as_micros().max(answer.at.since(placed).as_micros());
    assert!(apart < 60_000_000, "{apart} us");
    let local = Terms { consistency: Consistency::Local, ..STRICT };
    let asked = now();
    let placed = node.place_time(key(0), local, node.told_time(asked));
    assert!(placed <= asked && asked.since(placed) < Span::SECOND, "this node's own clock");
}

#[test]
fn what_is_wrong_at_the_start_names_the_group() {
    let server = Server::start(Kind::Redis);
    let gone = RedisConfig::new("redis+unix:///no/such/socket").unwrap();
    let config = SharedConfig::new([server.config(), gone.clone()]);
    let error = block_on(Shared::connect(config)).err().unwrap();
    assert!(matches!(error, OpenError::Group { group: 1, .. }), "{error:?}");
    assert!(error.to_string().starts_with("group 1: "), "{error}");
    let small = SharedConfig::new([server.config()]).memory(1);
    assert!(matches!(block_on(Shared::connect(small)).err(), Some(OpenError::Memory(_))));
    let node = open(SharedConfig::new([server.config(), gone]).store_required(false));
    assert_eq!(
        node.stats().groups.iter().map(|group| group.is_well).collect::<Vec<_>>(),
        [true, false]
    );
}
