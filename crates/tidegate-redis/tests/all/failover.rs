//! Servers that take over from each other under load: decisions go on by themselves, and nothing is
//! charged twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{
    Certificates, Cluster, Kind, PATIENCE, Sentinels, Server, block_on, runtime, until,
};
use tidegate_core::{Decision, Key, Limit, Operation, Rate, Span, Timestamp, TokenBucket};
use tidegate_redis::{RedisConfig, RedisStore};
use tidegate_store::{Answers, Charge, Request, Store, StoreError};
use tidegate_testing::undisturbed;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

const KINDS: [Kind; 2] = [Kind::Redis, Kind::Valkey];

/// More than any test here takes; so little comes back in an hour that it does not show.
const BURST: u64 = 1 << 20;

/// Servers are back so much after one of them took over, whatever the machine is busy with.
const BACK_WITHIN: Duration = Duration::from_secs(5);

fn limit() -> Limit {
    TokenBucket::new(Rate::new(1, Span::HOUR).unwrap(), BURST).unwrap().into()
}

/// A store with more patience than nodes have, for a machine that is busy with something else.
fn store(url: &str) -> RedisStore {
    let config = RedisConfig::new(url).unwrap().deadline(PATIENCE).connect_timeout(PATIENCE);
    block_on(RedisStore::connect(config)).unwrap()
}

/// A store that does not wait for long, as nodes have it.
fn hasty_store(url: &str) -> RedisStore {
    let config = RedisConfig::new(url).unwrap().deadline(Duration::from_millis(100));
    let store = block_on(RedisStore::connect(config)).unwrap();
    let _ = until("it answers in time", || take(&store, key(0, 1)).ok());
    store
}

/// A key in the slot of this tag.
fn key(tag: u128, number: u128) -> Key {
    Key::from_hash(number << 80 | tag << 64 | number)
}

async fn ask(
    store: &RedisStore,
    keys: &[Key],
    operation: Operation,
) -> Result<Vec<Decision>, StoreError> {
    let limit = limit();
    let charges: Vec<_> =
        keys.iter().map(|&key| Charge { limit: &limit, key, operation }).collect();
    let mut answers = Answers::new();
    store.decide(&[Request { now: Timestamp::ZERO, charges: &charges }], &mut answers).await;
    answers.iter().next().expect("an answer").map(<[Decision]>::to_vec)
}

fn take(store: &RedisStore, key: Key) -> Result<Vec<Decision>, StoreError> {
    block_on(ask(store, &[key], Operation::Take { cost: 1 }))
}

fn spent(store: &RedisStore, key: Key) -> u64 {
    BURST - block_on(ask(store, &[key], Operation::Peek { cost: 0 })).unwrap()[0].remaining
}

fn is_primary(server: &Server) -> Option<()> {
    let role: Vec<redis::Value> = redis::cmd("ROLE").query(&mut server.try_client()?).ok()?;
    (role.first() == Some(&redis::Value::BulkString(b"master".to_vec()))).then_some(())
}

/// Goes on asking until another server is the primary and decides. Says how long that was.
fn measure(what: &str, kind: Kind, heir: &Server, store: &RedisStore, key: Key) {
    let now = || block_on(async { Instant::now() });
    let (began, mut promoted) = (now(), None);
    until("another server takes over and is used", || {
        if promoted.is_none() && is_primary(heir).is_some() {
            promoted = Some(now());
        }
        let decided = take(store, key).is_ok();
        (promoted.is_some() && decided).then_some(())
    });
    let back = now();
    let (whole, after) = (back - began, back - promoted.unwrap());
    println!("{what}, {kind:?}: back after {whole:.1?}, {after:.1?} after the promotion");
    assert!(after < BACK_WITHIN, "{after:?} after the promotion");
}

#[test]
fn decisions_go_on_after_sentinels_made_another_server_the_primary() {
    undisturbed(|| {
        for kind in KINDS {
            let mut sentinels = Sentinels::start_with(kind, Some("secret"));
            let store = hasty_store(&sentinels.url().replace("://", "://:secret@"));
            sentinels.kill_primary();
            let failed = take(&store, key(0, 1)).unwrap_err();
            assert!(matches!(failed, StoreError::NoAnswer | StoreError::Unreachable), "{failed:?}");
            measure("Sentinel, primary killed", kind, &sentinels.servers[1], &store, key(0, 1));
        }
    });
}

#[test]
fn decisions_go_on_after_a_primary_fell_silent_and_sentinels_replaced_it() {
    undisturbed(|| {
        for kind in KINDS {
            let sentinels = Sentinels::start(kind);
            let store = hasty_store(&sentinels.url());
            sentinels.servers[0].signal("-STOP");
            measure("Sentinel, primary paused", kind, &sentinels.servers[1], &store, key(0, 1));
            // Woken up, it is a replica soon. Nothing goes to it, neither before nor after.
            sentinels.servers[0].signal("-CONT");
            let patient = self::store(&sentinels.url());
            let before = spent(&patient, key(0, 1));
            for _ in 0..20 {
                assert!(take(&patient, key(0, 1)).is_ok());
            }
            assert_eq!(spent(&patient, key(0, 1)), before + 20);
        }
    });
}

#[test]
fn decisions_go_on_after_a_replica_in_a_cluster_took_over() {
    undisturbed(|| {
        for kind in KINDS {
            let mut cluster = Cluster::with_replicas(kind);
            let store = hasty_store(&cluster.url());
            for server in 0..3 {
                let _ = until("it answers in time", || take(&store, key_on(server)).ok());
            }
            cluster.servers[0].kill();
            // A cluster serves no slot while one has no server, unless it is told to. So it is enough that the
            // others come back with the rest.
            measure("Cluster, primary killed", kind, &cluster.servers[3], &store, key_on(0));
            for server in 1..3 {
                let _ = until("the others answer", || take(&store, key_on(server)).ok());
            }
        }
    });
}

#[test]
fn decisions_go_on_after_a_primary_in_a_cluster_fell_silent() {
    undisturbed(|| {
        for kind in KINDS {
            let cluster = Cluster::with_replicas(kind);
            let store = hasty_store(&cluster.url());
            let _ = until("it answers in time", || take(&store, key_on(1)).ok());
            cluster.servers[1].signal("-STOP");
            measure("Cluster, primary paused", kind, &cluster.servers[4], &store, key_on(1));
            cluster.servers[1].signal("-CONT");
        }
    });
}

#[test]
fn servers_of_a_cluster_can_go_by_their_names_or_by_none() {
    undisturbed(|| {
        for kind in KINDS {
            for endpoint in ["hostname", "unknown-endpoint"] {
                let options = ["--cluster-announce-hostname", "localhost"];
                let preferred = ["--cluster-preferred-endpoint-type", endpoint];
                let cluster = Cluster::start_with(kind, false, &[options, preferred].concat());
                let store = store(&cluster.url());
                for tag in 0..30 {
                    assert!(take(&store, key(tag, 1)).is_ok());
                }
                let moving = (0..1 << 13).find(|&tag| slot(tag) < 5_000).unwrap();
                cluster.begin_move(slot(moving), 0, 1);
                assert!(take(&store, key(moving, 2)).is_ok(), "{endpoint}: asked at the other");
                cluster.move_keys(slot(moving), 0, 1);
                cluster.end_move(slot(moving), 1);
                assert!(take(&store, key(moving, 2)).is_ok(), "{endpoint}: moved to the other");
                assert_eq!((spent(&store, key(moving, 2)), store.stats().redirects > 1), (2, true));
            }
        }
    });
}

/// A key that is kept by this one of three primaries. Slots are spread over them in order.
fn key_on(server: usize) -> Key {
    let there = |tag: &u128| usize::from(slot(*tag)) * 3 / 16_384 == server;
    key((0..1 << 13).find(there).unwrap(), 1)
}

/// The slot of a tag, by the servers' own arithmetic.
fn slot(tag: u128) -> u16 {
    static SERVER: std::sync::OnceLock<std::sync::Mutex<Vec<u16>>> = std::sync::OnceLock::new();
    let known = SERVER.get_or_init(Default::default);
    let mut known = known.lock().unwrap();
    if known.is_empty() {
        let server = Server::start_tcp(Kind::Redis, &["--cluster-enabled", "yes"]);
        let digits: Vec<char> = ('!'..='~').filter(|&digit| !"\"{}".contains(digit)).collect();
        let mut pipe = redis::pipe();
        for tag in 0..1 << 13 {
            let (high, low) = (digits[tag / digits.len()], digits[tag % digits.len()]);
            pipe.cmd("CLUSTER").arg("KEYSLOT").arg(format!("t{{{high}{low}}}x"));
        }
        *known = pipe.query(&mut server.client()).unwrap();
    }
    known[tag as usize]
}

/// Takes again and again under these keys until the end. Gives how often, and what failed.
async fn keep_taking(
    store: &RedisStore,
    end: &AtomicBool,
    mut keys: impl FnMut(u128) -> Vec<Key>,
) -> (Vec<Vec<Key>>, Vec<StoreError>) {
    let (mut taken, mut failed) = (Vec::new(), Vec::new());
    for round in 0.. {
        if end.load(Ordering::Relaxed) {
            break;
        }
        let keys = keys(round);
        match ask(store, &keys, Operation::Take { cost: 1 }).await {
            Ok(decisions) if decisions.iter().all(Decision::is_allowed) => taken.push(keys),
            Ok(decisions) => panic!("there is enough: {decisions:?}"),
            Err(error) => failed.push(error),
        }
    }
    (taken, failed)
}

#[test]
fn a_slot_that_moves_under_load_loses_nothing_and_charges_nothing_twice() {
    for kind in KINDS {
        let cluster = Cluster::start(kind);
        let store = Arc::new(store(&cluster.url()));
        let tag = (0..1 << 13).find(|&tag| slot(tag) < 5_000).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..12)
            .map(|caller: u128| {
                let (store, end) = (Arc::clone(&store), Arc::clone(&end));
                let keys = move |round: u128| match caller % 6 {
                    0 => vec![key(tag, 1)],
                    1 => vec![key(tag, 1), key(tag, 2)],
                    2 => vec![key(tag, 3), key(tag, 4), key(tag, 5)],
                    3 => vec![key(tag, 1), key(tag + 1, 6)],
                    // Keys that nobody has seen before, on neither side.
                    4 => [7, 8].map(|limit| key(tag, round << 20 | caller << 8 | limit)).to_vec(),
                    _ => {
                        let number = round << 20 | caller << 8 | 9;
                        vec![key(tag, number), key(tag + 1, number), key(tag, number + 1)]
                    }
                };
                AbortOnDropHandle::new(
                    runtime().spawn(async move { keep_taking(&store, &end, keys).await }),
                )
            })
            .collect();
        let more = |calls: u64| {
            let before = store.stats().calls;
            until("calls go on", || (store.stats().calls > before + calls).then_some(()));
        };
        for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 1)] {
            more(100);
            cluster.begin_move(slot(tag), from, to);
            for _ in 0..20 {
                cluster.move_some_keys(slot(tag), from, to, 1);
                more(20);
            }
            cluster.move_keys(slot(tag), from, to);
            more(100);
            cluster.move_keys(slot(tag), from, to);
            cluster.end_move(slot(tag), to);
        }
        more(100);
        end.store(true, Ordering::Relaxed);
        let mut counts = HashMap::<Key, u64>::new();
        for caller in callers {
            let ended = block_on(async { tokio::time::timeout(PATIENCE, caller).await });
            let (taken, failed) = ended.unwrap().unwrap();
            assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed.first());
            taken.into_iter().flatten().for_each(|key| *counts.entry(key).or_default() += 1);
        }
        assert!(store.stats().redirects > 8, "{:?}", store.stats());
        assert_eq!(store.stats().give_backs_failed, 0);
        assert!(counts.len() > 6);
        for (key, taken) in counts {
            assert_eq!(spent(&store, key), taken);
        }
    }
}

/// Valkey moves slots whole, by itself: there is a moment in which the old server waits, and then the new
/// one has them.
#[test]
fn slots_that_valkey_moves_by_itself_lose_nothing() {
    let cluster = Cluster::start(Kind::Valkey);
    let store = Arc::new(store(&cluster.url()));
    // All keys of the first server, which are there already.
    let tags: Vec<u128> = (0..1 << 13).filter(|&tag| slot(tag) < 5_461).take(200).collect();
    let end = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..8)
        .map(|caller: u128| {
            let (store, end, tags) = (Arc::clone(&store), Arc::clone(&end), tags.clone());
            let keys = move |round: u128| {
                let tag = tags[(round * 7 + caller) as usize % tags.len()];
                vec![key(tag, 1), key(tag, 2)]
            };
            AbortOnDropHandle::new(
                runtime().spawn(async move { keep_taking(&store, &end, keys).await }),
            )
        })
        .collect();
    let mut source = cluster.servers[0].client();
    let mut target = cluster.servers[1].client();
    let mut migrate = redis::cmd("CLUSTER");
    migrate.arg("MIGRATESLOTS").arg("SLOTSRANGE").arg(0).arg(5_460).arg("NODE").arg(cluster.id(1));
    migrate.exec(&mut source).unwrap();
    until("all slots have moved", || {
        let nodes: String = redis::cmd("CLUSTER").arg("NODES").query(&mut target).unwrap();
        let own = nodes.lines().find(|line| line.contains("myself")).unwrap();
        own.contains(" 0-").then_some(())
    });
    let before = store.stats().calls;
    until("calls go on", || (store.stats().calls > before + 500).then_some(()));
    end.store(true, Ordering::Relaxed);
    let mut counts = HashMap::<Key, u64>::new();
    for caller in callers {
        let ended = block_on(async { tokio::time::timeout(PATIENCE, caller).await });
        let (taken, failed) = ended.unwrap().unwrap();
        assert!(failed.is_empty(), "{} failed: {:?}", failed.len(), failed.first());
        taken.into_iter().flatten().for_each(|key| *counts.entry(key).or_default() += 1);
    }
    assert!(store.stats().redirects > 0);
    assert!(counts.len() > 100);
    for (key, taken) in counts {
        assert_eq!(spent(&store, key), taken);
    }
}

#[test]
fn a_cluster_that_lost_its_scripts_is_given_them_again() {
    for kind in KINDS {
        let cluster = Cluster::start(kind);
        let store = store(&cluster.url());
        for round in 1..=3 {
            for server in &cluster.servers {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.client()).unwrap();
            }
            for tag in 0..50 {
                assert!(take(&store, key(tag, 1)).is_ok());
                assert_eq!(spent(&store, key(tag, 1)), round);
            }
        }
        assert!(store.stats().script_loads >= 6);
    }
}

#[test]
fn a_cluster_speaks_tls_and_wants_a_password() {
    let certificates = Certificates::new();
    let cluster = Cluster::start_tls(&certificates, &["--requirepass", "secret"]);
    let plain = cluster.url().replace("redis-cluster://", "rediss-cluster://:secret@");
    let store = store(&format!("{plain}?ca={}", certificates.ca().display()));
    for tag in 1..50 {
        assert!(take(&store, key(tag, 1)).is_ok());
    }
    // A slot that has moved: the way there is with TLS as well.
    cluster.begin_move(slot(0), usize::from(slot(0)) * 3 / 16_384, 1);
    cluster.end_move(slot(0), 1);
    assert!(take(&store, key(0, 2)).is_ok());
}
