//! Leases on real servers that are killed, paused, emptied, and replaced by others: never over beyond what
//! a store may lose, and spent from leases again without a restart.
//!
//! What may be lost is what promise 1 names: charges that the store had acknowledged and lost, and the leases
//! that were out. So everybody pauses before something is lost, what is out is counted, and exactly that
//! may come on top.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::support::nodes::{ask_one, key, open, take, wait_until};
use crate::support::{Cluster, Kind, Sentinels, Server, block_on, runtime, until};
use tidegate_core::fixed_window::Windows;
use tidegate_core::{Consistency, FixedWindow, Key, Limit, OnStoreFailure, Rate, Span, Terms};
use tidegate_redis::{RedisConfig, Shared, SharedConfig};
use tidegate_store::Source;
use tidegate_testing::{always, undisturbed};
use tokio_util::task::AbortOnDropHandle;

const LEASED: Terms =
    Terms { consistency: Consistency::Leased, on_failure: OnStoreFailure::Deny, group: None };

/// Of each key, in a window that is longer than any test.
const LIMIT: u64 = 6_000;

const CALLERS: usize = 4;

/// Nodes with callers who take one by one of their keys, whenever the gate is open.
struct Fleet {
    nodes: Vec<Arc<Shared>>,
    gate: Arc<Gate>,
    callers: Vec<AbortOnDropHandle<()>>,
    keys: Vec<Key>,
}

#[derive(Default)]
struct Gate {
    open: AtomicBool,
    over: AtomicBool,
    /// Takes that are being decided.
    inside: AtomicU64,
    /// What passed, and what of it was paid from leases.
    admitted: AtomicU64,
    leased: AtomicU64,
    /// Takes that were refused for the rest of the window.
    refused: AtomicU64,
    failed: AtomicU64,
}

fn limit() -> Limit {
    FixedWindow::new(LIMIT, Windows::Clock(Rate::PERIOD_MAX)).unwrap().into()
}

impl Fleet {
    /// Two nodes on one deployment, with callers on each.
    fn start(config: &RedisConfig, keys: &[Key]) -> Self {
        let config = || {
            let patient = config.clone().connect_timeout(Duration::from_secs(1));
            SharedConfig::new([patient]).deadline(Duration::from_millis(50))
        };
        let nodes: Vec<_> = (0..2).map(|_| Arc::new(open(config()))).collect();
        let gate = Arc::new(Gate { open: AtomicBool::new(true), ..Gate::default() });
        let mut callers = Vec::new();
        for node in &nodes {
            for caller in 0..CALLERS {
                let key = keys[caller % keys.len()];
                let calling = call(Arc::clone(node), Arc::clone(&gate), key);
                callers.push(AbortOnDropHandle::new(runtime().spawn(calling)));
            }
        }
        Self { nodes, gate, callers, keys: keys.to_vec() }
    }

    fn admitted(&self) -> u64 {
        self.gate.admitted.load(Ordering::SeqCst)
    }

    /// Waits until leases have paid for so much more.
    fn wait_for_leased(&self, more: u64) -> Duration {
        let leased = || self.gate.leased.load(Ordering::SeqCst);
        let before = leased();
        block_on(wait_until("leases pay", async || leased() >= before + more))
    }

    /// Lets nobody in, waits until nobody is inside and all that was asked for is answered, and gives what is leased and
    /// not used.
    fn pause(&self) -> u64 {
        self.gate.open.store(false, Ordering::SeqCst);
        block_on(wait_until("nobody is inside", async || {
            self.gate.inside.load(Ordering::SeqCst) == 0
        }));
        block_on(wait_until("nothing is on its way", async || {
            let before = self.requests();
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.requests() == before && before.1 == 0
        }));
        self.nodes.iter().map(|node| node.stats().groups[0].leases.at_hand).sum()
    }

    /// How many requests for leases there were, and how many calls are on their way.
    fn requests(&self) -> (u64, u64) {
        let groups = self.nodes.iter().map(|node| node.stats().groups.swap_remove(0));
        groups.fold((0, 0), |(asked, in_flight), group| {
            (asked + group.leases.requests, in_flight + group.store.in_flight)
        })
    }

    fn resume(&self) {
        self.gate.open.store(true, Ordering::SeqCst);
    }

    /// Goes on until all keys are over on every node, and gives all that was admitted.
    fn exhaust(self) -> u64 {
        let callers = self.callers.len() as u64;
        let refused = || self.gate.refused.load(Ordering::SeqCst);
        let before = refused();
        block_on(wait_until("all is spent", async || refused() >= before + 20 * callers));
        self.gate.over.store(true, Ordering::SeqCst);
        block_on(async {
            for caller in self.callers {
                caller.await.unwrap();
            }
            for node in &self.nodes {
                node.close().await;
            }
        });
        self.gate.admitted.load(Ordering::SeqCst)
    }

    fn limit(&self) -> u64 {
        LIMIT * self.keys.len() as u64
    }
}

async fn call(node: Arc<Shared>, gate: Arc<Gate>, key: Key) {
    let limit = limit();
    while !gate.over.load(Ordering::SeqCst) {
        gate.inside.fetch_add(1, Ordering::SeqCst);
        if gate.open.load(Ordering::SeqCst) {
            match ask_one(&node, take(&limit, key), LEASED).await {
                Ok(settled) if settled.decision.is_allowed() => {
                    gate.admitted.fetch_add(1, Ordering::SeqCst);
                    let leased = settled.source == Source::Lease;
                    gate.leased.fetch_add(u64::from(leased), Ordering::SeqCst);
                }
                Ok(settled) => {
                    let wait = settled.decision.retry_after();
                    let for_good = wait.is_some_and(|wait| wait > Span::from_secs(2));
                    gate.refused.fetch_add(u64::from(for_good), Ordering::SeqCst);
                }
                Err(_) => {
                    gate.failed.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        gate.inside.fetch_sub(1, Ordering::SeqCst);
        // A few thousand a second, so that there is something left when it is needed.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Has servers lose everything that they know, or what they have not told others, while all pause.
fn lose(fleet: &Fleet, lost: impl FnOnce()) -> (u64, u64) {
    fleet.wait_for_leased(500);
    let out = fleet.pause();
    lost();
    let before = fleet.admitted();
    fleet.resume();
    (before, out)
}

/// Leases pay again, within a time that is only so long because machines are busy.
fn heals(fleet: &Fleet) {
    let took = fleet.wait_for_leased(200);
    println!("leases pay again after {took:?}");
}

#[test]
fn leases_go_on_after_a_script_flush_to_the_last_unit() {
    // A lease that expires, as it does on a machine that stood still, is charged in full; then nothing is known of the last.
    let (admitted, failed) =
        (0..5).find_map(|_| spent_with_flushes()).expect("leases do not expire");
    // What has no answer may have been charged.
    assert!(admitted + failed >= LIMIT, "{admitted}, {failed}");
}

/// What passed and what had no answer until all was spent, unless a lease expired meanwhile.
fn spent_with_flushes() -> Option<(u64, u64)> {
    let server = Server::start(Kind::Redis);
    let fleet = Fleet::start(&server.config(), &[key(1)]);
    for _ in 0..5 {
        fleet.wait_for_leased(300);
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.client()).unwrap();
    }
    heals(&fleet);
    let (gate, nodes) = (Arc::clone(&fleet.gate), fleet.nodes.clone());
    let admitted = fleet.exhaust();
    assert!(admitted <= LIMIT, "{admitted}");
    let failed = gate.failed.load(Ordering::SeqCst);
    let expired: u64 = nodes.iter().map(|node| node.stats().groups[0].leases.expired).sum();
    println!("{admitted} of {LIMIT}, {failed} without an answer, {expired} leases expired");
    (expired == 0).then_some((admitted, failed))
}

#[test]
fn a_store_that_is_emptied_gives_no_more_than_it_lost_and_the_leases_that_were_out() {
    undisturbed(|| {
        let server = Server::start(Kind::Valkey);
        let fleet = Fleet::start(&server.config(), &[key(1)]);
        let (before, out) = lose(&fleet, || {
            let _: () = redis::cmd("FLUSHALL").query(&mut server.client()).unwrap();
        });
        heals(&fleet);
        let limit = fleet.limit();
        let after = fleet.exhaust() - before;
        println!("{after} of {limit} after it, {out} were out");
        always(after <= limit + out, format!("{after} of {limit}, {out} were out"));
        assert!(after >= limit * 9 / 10, "{after}");
    });
}

#[test]
fn a_store_that_is_killed_and_comes_back_empty_gives_no_more_than_it_lost_and_what_was_out() {
    undisturbed(|| {
        let mut server = Server::start(Kind::Redis);
        let socket = server.socket().to_owned();
        let fleet = Fleet::start(&server.config(), &[key(1)]);
        let (before, out) = lose(&fleet, || server.kill());
        // What was out is spent or not while the store is away.
        block_on(wait_until("the nodes notice", async || {
            fleet.nodes.iter().all(|node| !node.stats().groups[0].is_well)
        }));
        always(fleet.admitted() - before <= out, "a store that is away grants nothing");
        drop(server);
        let _again = Server::start_at(Kind::Redis, &socket, &[]);
        heals(&fleet);
        let limit = fleet.limit();
        let after = fleet.exhaust() - before;
        println!("{after} of {limit} after it, {out} were out");
        always(after <= limit + out, format!("{after} of {limit}, {out} were out"));
    });
}

#[test]
fn a_store_that_is_paused_again_and_again_is_never_over() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let fleet = Fleet::start(&server.config(), &[key(1)]);
        for _ in 0..4 {
            fleet.wait_for_leased(300);
            server.signal("-STOP");
            // Long enough for every lease to expire, of which nobody can tell the store.
            let at_hand = || -> u64 {
                fleet.nodes.iter().map(|node| node.stats().groups[0].leases.at_hand).sum()
            };
            // A take that a lease paid for last may be counted after that.
            let mut spent = u64::MAX;
            block_on(wait_until("nothing is left at hand", async || {
                let before = std::mem::replace(&mut spent, fleet.admitted());
                tokio::time::sleep(Duration::from_millis(60)).await;
                at_hand() == 0 && before == spent && fleet.admitted() == spent
            }));
            block_on(wait_until("the nodes notice", async || {
                fleet.nodes.iter().all(|node| !node.stats().groups[0].is_well)
            }));
            always(fleet.admitted() == spent, "nothing is spent after its time");
            server.signal("-CONT");
            heals(&fleet);
        }
        let limit = fleet.limit();
        let admitted = fleet.exhaust();
        println!("{admitted} of {limit}");
        always(admitted <= limit, format!("{admitted} of {limit}"));
        assert!(admitted >= limit * 8 / 10, "what expires is charged, and no more: {admitted}");
    });
}

/// Waits until a replica has all that its primary has by now.
fn replicated(primary: &Server, replica: &Server) {
    let offset = |server: &Server| -> u64 {
        let info = redis::cmd("INFO").arg("replication").query(&mut server.client());
        let info: String = info.unwrap();
        let line = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:"));
        line.unwrap().trim().parse().unwrap()
    };
    let all = offset(primary);
    until("the replica has everything", || (offset(replica) >= all).then_some(()));
}

#[test]
fn a_failover_by_sentinels_gives_no_more_than_the_leases_that_were_out() {
    undisturbed(|| {
        for kind in [Kind::Redis, Kind::Valkey] {
            let mut sentinels = Sentinels::start(kind);
            let config = RedisConfig::new(&sentinels.url()).unwrap();
            let fleet = Fleet::start(&config, &[key(1)]);
            fleet.wait_for_leased(500);
            let out = fleet.pause();
            replicated(&sentinels.servers[0], &sentinels.servers[1]);
            sentinels.kill_primary();
            fleet.resume();
            heals(&fleet);
            let limit = fleet.limit();
            let admitted = fleet.exhaust();
            println!("{kind:?}: {admitted} of {limit}, {out} were out");
            always(admitted <= limit + out, format!("{admitted} of {limit}, {out} were out"));
        }
    });
}

/// A key whose slot the primary of this number has in a cluster of three, by the servers' own arithmetic.
fn key_on(cluster: &Cluster, server: u64) -> Key {
    let mut client = cluster.servers[0].client();
    let mut primary = |key: &Key| {
        let digit =
            |shift: u32| char::from_digit((key.as_hash() >> shift) as u32 & 31, 32).unwrap();
        let tag: String = [74, 69, 64].map(digit).iter().collect();
        // Of thirteen bits, the first digit has three.
        let tag = format!("{}{}", tag.chars().next().unwrap().to_digit(32).unwrap() & 7, &tag[1..]);
        redis::cmd("CLUSTER").arg("KEYSLOT").arg(tag).query::<u64>(&mut client).unwrap() * 3
            / 16_384
    };
    (0..1_000).map(key).find(|key| primary(key) == server).unwrap()
}

#[test]
fn leases_on_a_cluster_are_exact_and_go_on_after_a_replica_took_over() {
    undisturbed(|| {
        let mut cluster = Cluster::with_replicas(Kind::Redis);
        let config = RedisConfig::new(&cluster.url()).unwrap();
        let keys = [0, 1, 2].map(|server| key_on(&cluster, server));
        let fleet = Fleet::start(&config, &keys);
        fleet.wait_for_leased(1_000);
        let out = fleet.pause();
        replicated(&cluster.servers[0], &cluster.servers[3]);
        cluster.servers[0].kill();
        fleet.resume();
        heals(&fleet);
        let limit = fleet.limit();
        let admitted = fleet.exhaust();
        println!("{admitted} of {limit}, {out} were out");
        always(admitted <= limit + out, format!("{admitted} of {limit}, {out} were out"));
    });
}
