//! Strict mode on a real server, by the server's own clock: what is decided, what is kept, and for how
//! long.

use crate::support::{Kind, PATIENCE, Server, block_on, connect};
use redis::Commands;
use tidegate_core::calendar::{Calendar, CalendarUnit, Zone};
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, Decision, FixedWindow, Key, LeakyBucket, Limit, Operation, Rate, SlidingLog,
    SlidingSlots, SlidingWindow, Span, SteppedBucket, Timestamp, TokenBucket, Verdict,
};
use tidegate_redis::RedisStore;
use tidegate_store::{Answers, Charge, Request, Store};

const TAKE: Operation = Operation::Take { cost: 1 };

fn bucket(count: u64, period: Span, burst: u64) -> Limit {
    TokenBucket::new(Rate::new(count, period).unwrap(), burst).unwrap().into()
}

/// One limit of each algorithm, over this period.
fn each_algorithm(period: Span) -> Vec<Limit> {
    let rate = Rate::new(5, period).unwrap();
    let windows = |windows| FixedWindow::new(5, windows).unwrap().into();
    vec![
        TokenBucket::new(rate, 5).unwrap().into(),
        LeakyBucket::new(rate, 5).unwrap().into(),
        SteppedBucket::new(rate, 5).unwrap().into(),
        windows(Windows::Clock(period)),
        windows(Windows::FirstRequest(period)),
        SlidingWindow::new(rate).unwrap().into(),
        SlidingSlots::new(rate, 4, None).unwrap().into(),
        SlidingLog::new(rate).unwrap().into(),
        Concurrency::new(5, period).unwrap().into(),
    ]
}

fn key(number: usize) -> Key {
    Key::from_hash((number as u128 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}

fn decide(
    store: &RedisStore,
    now: Timestamp,
    charges: &[Charge<'_>],
) -> (Vec<Decision>, Timestamp) {
    let mut answers = Answers::new();
    block_on(store.decide(&[Request { now, charges }], &mut answers));
    let decisions = answers.iter().next().expect("an answer").expect("a healthy store").to_vec();
    (decisions, answers.decided_at(0).expect("the server's time"))
}

fn take(store: &RedisStore, now: Timestamp, limit: &Limit, key: Key) -> (Decision, Timestamp) {
    let (decisions, at) = decide(store, now, &[Charge { limit, key, operation: TAKE }]);
    (decisions[0], at)
}

fn server_time(client: &mut redis::Connection) -> Timestamp {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query(client).unwrap();
    Timestamp::from_secs(seconds).plus(Span::from_micros(micros))
}

#[test]
fn the_servers_clock_decides_and_those_of_nodes_do_not_matter() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    for (number, limit) in each_algorithm(Span::HOUR).iter().enumerate() {
        for (left, clock) in [0, u64::MAX, 5, 1_790_553_600_000_000, 77].into_iter().enumerate() {
            let before = server_time(&mut client);
            let now = Timestamp::from_micros(clock);
            let (decision, at) = take(&store, now, limit, key(number));
            assert!(decision.is_allowed(), "{}", limit.name());
            assert_eq!(decision.remaining, 4 - left as u64, "{}", limit.name());
            assert!(before <= at && at <= server_time(&mut client), "{}", limit.name());
        }
        let (sixth, _) = take(&store, Timestamp::MAX, limit, key(number));
        assert!(matches!(sixth.verdict, Verdict::Deny { .. }), "{}", limit.name());
    }
}

#[test]
fn a_refund_names_the_time_that_the_answer_gave() {
    let server = Server::start(Kind::Redis);
    let store = connect(server.config());
    for (number, limit) in each_algorithm(Span::HOUR).iter().enumerate() {
        let (taken, at) = take(&store, Timestamp::ZERO, limit, key(number));
        assert_eq!(taken.remaining, 4);
        let operation = Operation::Refund { cost: 1, taken_at: at };
        let charge = Charge { limit, key: key(number), operation };
        let (refunded, _) = decide(&store, Timestamp::ZERO, &[charge]);
        assert_eq!(refunded[0].remaining, 5, "{}", limit.name());
    }
    let keys: Vec<Vec<u8>> = server.client().keys("*").unwrap();
    assert!(keys.is_empty(), "a full limit is an absent one");
}

#[test]
fn the_calendar_is_that_of_the_servers_time_whatever_the_node_believes() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    let calendar = Calendar::new(CalendarUnit::Year, Zone::utc());
    let limit = FixedWindow::new(5, Windows::Calendar(calendar.clone())).unwrap().into();
    for (left, clock) in [0, 1_790_553_600, u64::MAX].into_iter().enumerate() {
        let (decision, at) = take(&store, Timestamp::from_secs(clock), &limit, key(0));
        assert_eq!(decision.remaining, 4 - left as u64);
        let end = calendar.window_containing(server_time(&mut client)).1;
        assert_eq!(at.plus(decision.reset_after), end);
    }
}

#[test]
fn states_expire_by_themselves_and_nothing_else_is_left() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    for (number, limit) in each_algorithm(Span::from_millis(100)).iter().enumerate() {
        let (decision, _) = take(&store, Timestamp::ZERO, limit, key(number));
        let names: Vec<Vec<u8>> = client.keys("*").unwrap();
        assert_eq!(names.len(), 1, "{}", limit.name());
        let lasts_ms: i64 = client.pttl(&names[0]).unwrap();
        let most_ms = decision.reset_after.as_millis_ceil().cast_signed() + 1_001;
        assert!(lasts_ms > 0 && lasts_ms <= most_ms, "{}: {lasts_ms} ms", limit.name());
        let _: () = redis::cmd("FLUSHALL").query(&mut client).unwrap();
    }
    for (number, limit) in each_algorithm(Span::from_millis(100)).iter().enumerate() {
        assert!(take(&store, Timestamp::ZERO, limit, key(number)).0.is_allowed());
    }
    block_on(async {
        let emptied = async {
            while redis::cmd("DBSIZE").query::<u64>(&mut client).unwrap() > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, emptied).await.expect("all of them expire");
    });
}

#[test]
fn a_refusal_writes_nothing() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    let (narrow, wide) = (bucket(1, Span::HOUR, 1), bucket(1, Span::HOUR, 5));
    assert!(take(&store, Timestamp::ZERO, &narrow, key(0)).0.is_allowed());
    let written = |client: &mut redis::Connection| {
        let info: String = redis::cmd("INFO").arg("persistence").query(client).unwrap();
        let line = info.lines().find(|line| line.starts_with("rdb_changes_since_last_save"));
        line.unwrap().to_owned()
    };
    let before = written(&mut client);
    let charge = |limit, number| Charge { limit, key: key(number), operation: TAKE };
    for _ in 0..3 {
        let (decisions, _) =
            decide(&store, Timestamp::ZERO, &[charge(&wide, 1), charge(&narrow, 0)]);
        assert!(decisions[0].is_allowed() && !decisions[1].is_allowed());
        assert_eq!(decisions[0].remaining, 5);
    }
    assert_eq!(written(&mut client), before);
}

#[test]
fn a_script_that_the_server_lost_is_loaded_again() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    let limit = bucket(1, Span::HOUR, 9);
    let charges = [Charge { limit: &limit, key: key(0), operation: TAKE }];
    for (flushes, batch) in [1, 4].into_iter().enumerate() {
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut client).unwrap();
        let batch = vec![Request { now: Timestamp::ZERO, charges: &charges }; batch];
        let mut answers = Answers::new();
        block_on(store.decide(&batch, &mut answers));
        assert!(answers.iter().all(|answer| answer.is_ok()));
        assert_eq!(store.stats().script_loads, flushes as u64 + 1);
    }
    assert_eq!(take(&store, Timestamp::ZERO, &limit, key(0)).0.remaining, 3, "each charged once");
}

#[test]
fn a_token_bucket_takes_at_most_15_percent_more_memory_than_the_smallest_key() {
    const KEYS: usize = 32_000;
    for kind in [Kind::Redis, Kind::Valkey] {
        let server = Server::start(kind);
        let (store, mut client) = (connect(server.config()), server.client());
        // A rate of many digits, whose states have fractions, and a cost that lasts for hours.
        let limit = bucket(1_000_003, Span::DAY, 1_000_003);
        let operation = Operation::Take { cost: 700_001 };
        // The script is there once for all keys.
        let first = [Charge { limit: &limit, key: key(KEYS), operation }];
        assert!(decide(&store, Timestamp::ZERO, &first).0[0].is_allowed());
        let empty = settled_memory(&mut client);
        let charges: Vec<_> = (0..KEYS)
            .map(|number| [Charge { limit: &limit, key: key(number), operation }])
            .collect();
        let now = Timestamp::ZERO;
        let batch: Vec<_> = charges.iter().map(|charges| Request { now, charges }).collect();
        let mut answers = Answers::new();
        block_on(store.decide(&batch, &mut answers));
        assert!(answers.iter().all(|answer| answer.is_ok()));
        drop(store);
        assert_eq!(redis::cmd("DBSIZE").query::<usize>(&mut client).unwrap(), KEYS + 1);
        let ours = settled_memory(&mut client) - empty;
        drop((client, server));

        let server = Server::start(kind);
        let mut client = server.client();
        let empty = settled_memory(&mut client);
        for numbers in (0..KEYS).collect::<Vec<_>>().chunks(512) {
            let mut pipeline = redis::pipe();
            for number in numbers {
                // A key of 128 bits, and a moment of so many microseconds in as few bytes.
                let name = key(*number).as_hash().to_be_bytes();
                let state = &1_790_553_600_000_000_u64.to_be_bytes()[1..];
                pipeline.cmd("SET").arg(&name).arg(state).arg("PX").arg(86_400_000).ignore();
            }
            pipeline.exec(&mut client).unwrap();
        }
        let smallest = settled_memory(&mut client) - empty;
        println!("{kind:?}: {} and {} bytes a key", ours / KEYS as u64, smallest / KEYS as u64);
        assert!(ours * 100 <= smallest * 115, "{kind:?}: {ours} of {smallest} bytes");
    }
}

/// What the server holds once it rests. A table that grows is moved bit by bit, and meanwhile both
/// sizes of it are there; buffers of connections are given back later too.
fn settled_memory(client: &mut redis::Connection) -> u64 {
    const LOOKS: u32 = 10;
    let (mut least, mut looks_without_less) = (u64::MAX, 0);
    while looks_without_less < LOOKS {
        let used = memory(client);
        looks_without_less = if used < least { 0 } else { looks_without_less + 1 };
        least = least.min(used);
        block_on(async { tokio::time::sleep(std::time::Duration::from_millis(50)).await });
    }
    least
}

fn memory(client: &mut redis::Connection) -> u64 {
    let info: String = redis::cmd("INFO").arg("memory").query(client).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.unwrap().trim().parse().unwrap()
}
