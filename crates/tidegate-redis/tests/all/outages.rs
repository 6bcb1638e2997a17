//! Outages under load: whatever the server does, every call comes back within its deadline, what waits
//! stays bounded, and all is well again soon after the server is.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Kind, PATIENCE, Proxy, Server, block_on, connect, runtime, until};
use tidegate_core::{Decision, Key, Limit, Operation, Rate, Span, Timestamp, TokenBucket};
use tidegate_redis::{BreakerState, RedisConfig, RedisStore, Stats};
use tidegate_store::{Answers, Charge, Request, Store, StoreError};
use tidegate_testing::undisturbed;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

const CALLERS: u64 = 32;

/// Longer than the default, since the machine that tests run on can be busy.
const DEADLINE: Duration = Duration::from_millis(100);

/// How late a call can be seen to end on such a machine. Whatever waits for the server waits longer.
const MARGIN: Duration = Duration::from_secs(1);

/// How soon all is well again after the server is.
const HEALED_WITHIN: Duration = Duration::from_secs(3);

/// The most calls that wait or are on their way, in one store.
const IN_FLIGHT_MAX: u64 = 16_384;

fn bucket() -> Limit {
    TokenBucket::new(Rate::new(1, Span::HOUR).unwrap(), 1 << 30).unwrap().into()
}

async fn take(store: &RedisStore, limit: &Limit, key: u64) -> Result<Decision, StoreError> {
    let key = Key::from_hash(u128::from(key) + 1);
    let charges = [Charge { limit, key, operation: Operation::Take { cost: 1 } }];
    let mut answers = Answers::new();
    store.decide(&[Request { now: Timestamp::ZERO, charges: &charges }], &mut answers).await;
    answers.iter().next().expect("an answer").map(|decisions| decisions[0])
}

/// Callers that ask without end, half of them for one key.
struct Load {
    store: Arc<RedisStore>,
    tally: Arc<Tally>,
    callers: Vec<AbortOnDropHandle<()>>,
    deadline: Duration,
}

#[derive(Default)]
struct Tally {
    done: AtomicBool,
    decided: AtomicU64,
    errors: Mutex<Vec<StoreError>>,
    slowest_ms: AtomicU64,
    most_in_flight: AtomicU64,
}

impl Load {
    fn start(config: RedisConfig) -> Self {
        Self::start_with(config, DEADLINE)
    }

    fn start_with(config: RedisConfig, deadline: Duration) -> Self {
        let config = config.deadline(deadline).connect_timeout(Duration::from_secs(1));
        let store = Arc::new(connect(config));
        let tally = Arc::<Tally>::default();
        let callers = (0..CALLERS).map(|number| {
            let (store, tally) = (Arc::clone(&store), Arc::clone(&tally));
            AbortOnDropHandle::new(
                runtime().spawn(async move { tally.ask(&store, number / 2).await }),
            )
        });
        let load = Self { callers: callers.collect(), store, tally, deadline };
        load.decides(100);
        load
    }

    fn stats(&self) -> Stats {
        self.store.stats()
    }

    /// Waits for so many more decisions.
    fn decides(&self, more: u64) {
        let wanted = self.tally.decided.load(Ordering::SeqCst) + more;
        until("calls are decided", || {
            (self.tally.decided.load(Ordering::SeqCst) >= wanted).then_some(())
        });
    }

    /// Waits until the server is left alone, and many calls have failed at once.
    fn is_cut_off(&self) {
        until("the breaker opens", || (self.stats().breaker_openings > 0).then_some(()));
        until("calls fail at once", || (self.stats().short_circuits > 200).then_some(()));
    }

    /// The server is back: all is well soon, and has been all the time within the bounds.
    fn heals(self) -> Vec<StoreError> {
        let back = Instant::now();
        until("it is closed", || (self.stats().breaker == BreakerState::Closed).then_some(()));
        self.decides(50);
        let healed = back.elapsed();
        assert!(healed <= HEALED_WITHIN, "healed after {healed:?}");
        self.stop()
    }

    /// Ends the callers. Gives the errors that they got.
    fn stop(self) -> Vec<StoreError> {
        self.tally.done.store(true, Ordering::SeqCst);
        for caller in self.callers {
            block_on(async { tokio::time::timeout(PATIENCE, caller).await })
                .expect("every call ends")
                .expect("no panic");
        }
        let slowest = Duration::from_millis(self.tally.slowest_ms.load(Ordering::SeqCst));
        assert!(slowest <= self.deadline + MARGIN, "a call took {slowest:?}");
        let most = self.tally.most_in_flight.load(Ordering::SeqCst);
        assert!(most <= 4 * CALLERS, "{most} calls in flight for {CALLERS} callers");
        until("nothing is left", || (self.store.stats().in_flight == 0).then_some(()));
        let errors = self.tally.errors.lock().unwrap().clone();
        let decided = self.tally.decided.load(Ordering::SeqCst);
        println!("{decided} decided, {} errors, slowest {slowest:?}", errors.len());
        errors
    }
}

impl Tally {
    async fn ask(&self, store: &RedisStore, key: u64) {
        let limit = bucket();
        while !self.done.load(Ordering::SeqCst) {
            let begun = Instant::now();
            let answer = take(store, &limit, if key < CALLERS / 4 { 0 } else { key }).await;
            self.slowest_ms.fetch_max(begun.elapsed().as_millis() as u64, Ordering::SeqCst);
            self.most_in_flight.fetch_max(store.stats().in_flight, Ordering::SeqCst);
            match answer {
                Ok(decision) => {
                    assert!(decision.is_allowed(), "an error is not a denial");
                    self.decided.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => self.errors.lock().unwrap().push(error),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[test]
fn a_server_that_is_killed_and_comes_back_is_used_again() {
    undisturbed(|| {
        let mut server = Server::start(Kind::Redis);
        let socket = server.socket().to_owned();
        let load = Load::start(server.config());
        server.kill();
        load.is_cut_off();
        let _again = Server::start_at(Kind::Redis, &socket, &[]);
        let errors = load.heals();
        assert!(errors.contains(&StoreError::Unreachable));
    });
}

#[test]
fn a_server_that_is_paused_loses_its_connection_and_is_used_again_when_it_goes_on() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let load = Load::start(server.config());
        server.signal("-STOP");
        load.is_cut_off();
        // What was on its way is given up, although the server has not closed the connection.
        until("nothing waits", || (load.stats().in_flight <= 1).then_some(()));
        server.signal("-CONT");
        let errors = load.heals();
        assert!(errors.contains(&StoreError::NoAnswer));
    });
}

#[test]
fn answers_that_come_late_after_a_pause_disturb_nobody() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let load = Load::start(server.config());
        for _ in 0..3 {
            let timeouts = load.stats().timeouts;
            server.signal("-STOP");
            until("calls time out", || (load.stats().timeouts > timeouts + 20).then_some(()));
            server.signal("-CONT");
            load.decides(50);
        }
        load.heals();
    });
}

#[test]
fn a_slow_server_is_left_alone_until_it_is_fast_again() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let proxy = Proxy::start(&server);
        let load = Load::start(proxy.config());
        proxy.delay(3 * DEADLINE);
        load.is_cut_off();
        proxy.delay(Duration::ZERO);
        let errors = load.heals();
        assert!(errors.contains(&StoreError::NoAnswer));
    });
}

#[test]
fn connections_that_break_in_the_middle_of_a_call_are_replaced() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let proxy = Proxy::start(&server);
        let load = Load::start(proxy.config());
        for _ in 0..10 {
            proxy.cut(1);
            until("it is cut", || (proxy.cuts_left() == 0).then_some(()));
            load.decides(20);
        }
        assert!(load.stats().connections > 5, "{}", load.stats().connections);
        let errors = load.heals();
        assert!(errors.contains(&StoreError::NoAnswer), "it may have been charged");
    });
}

#[test]
fn a_server_without_memory_is_left_alone_until_it_has_some() {
    undisturbed(|| {
        let server = Server::start_with(Kind::Valkey, &["--maxmemory-policy", "noeviction"]);
        let mut client = server.client();
        let mut set = |bytes: &str| {
            redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(bytes).exec(&mut client).unwrap();
        };
        let load = Load::start(server.config());
        set("1");
        load.is_cut_off();
        set("0");
        let errors = load.heals();
        assert!(errors.contains(&StoreError::Refused));
    });
}

#[test]
fn a_server_that_becomes_a_replica_is_left_alone_until_it_is_a_primary() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let mut client = server.client();
        let load = Load::start(server.config());
        redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).exec(&mut client).unwrap();
        load.is_cut_off();
        redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut client).unwrap();
        let errors = load.heals();
        assert!(errors.contains(&StoreError::Refused));
    });
}

#[test]
fn a_server_that_loads_its_data_is_left_alone_until_it_has_them() {
    undisturbed(|| {
        let options = [
            ["--enable-debug-command", "yes"],
            ["--loading-process-events-interval-bytes", "1024"],
        ]
        .concat();
        let server = Server::start_with(Kind::Redis, &options);
        let mut client = server.client();
        for number in 0..200 {
            redis::cmd("SET").arg(number).arg("x".repeat(2_000)).exec(&mut client).unwrap();
        }
        // So many microseconds for every key: four seconds.
        redis::cmd("CONFIG").arg("SET").arg("rdbcompression").arg("no").exec(&mut client).unwrap();
        redis::cmd("CONFIG")
            .arg("SET")
            .arg("key-load-delay")
            .arg(20_000)
            .exec(&mut client)
            .unwrap();
        let load = Load::start(server.config());
        let reloading = std::thread::spawn(move || {
            redis::cmd("DEBUG").arg("RELOAD").exec(&mut client).unwrap();
        });
        load.is_cut_off();
        assert!(!reloading.is_finished(), "it still loads");
        reloading.join().unwrap();
        let errors = load.heals();
        assert!(errors.contains(&StoreError::Refused), "it says that it loads");
    });
}

#[test]
fn a_script_cache_that_is_flushed_again_and_again_costs_no_decision() {
    undisturbed(|| {
        let server = Server::start(Kind::Redis);
        let mut client = server.client();
        let load = Load::start_with(server.config(), PATIENCE);
        for _ in 0..20 {
            let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut client).unwrap();
            load.decides(20);
        }
        assert!(load.stats().script_loads >= 20);
        assert_eq!(load.stop(), []);
    });
}

#[test]
fn calls_beyond_the_bound_fail_at_once_while_the_server_is_paused() {
    undisturbed(|| {
        const CALLS: u64 = IN_FLIGHT_MAX + 3_000;
        let server = Server::start(Kind::Redis);
        let store = Arc::new(connect(server.config().deadline(Duration::from_secs(3))));
        assert!(block_on(take(&store, &bucket(), 0)).is_ok());
        server.signal("-STOP");
        let calls = (0..CALLS).map(|number| {
            let store = Arc::clone(&store);
            runtime().spawn(async move { take(&store, &bucket(), number).await })
        });
        let calls: Vec<_> = calls.collect();
        until("all have asked", || {
            let stats = store.stats();
            assert!(stats.in_flight <= IN_FLIGHT_MAX);
            (stats.busy + stats.in_flight == CALLS).then_some(())
        });
        assert_eq!(store.stats().busy, CALLS - IN_FLIGHT_MAX);
        let mut answers = Vec::new();
        for call in calls {
            answers.push(block_on(async { tokio::time::timeout(PATIENCE, call).await }).unwrap());
        }
        let busy = answers.iter().filter(|answer| matches!(answer, Ok(Err(StoreError::Busy))));
        assert_eq!(busy.count() as u64, CALLS - IN_FLIGHT_MAX);
        assert!(!StoreError::Busy.may_have_changed_state());
        until("the connection is given up", || (store.stats().in_flight == 0).then_some(()));
        server.signal("-CONT");
        let _ = until("it heals", || block_on(take(&store, &bucket(), 0)).ok());
    });
}
