//! Keys that hold what somebody else wrote: reset or refused, counted, and nothing else disturbed.

use crate::support::{Kind, Server, block_on, connect};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::Commands;
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, Decision, FixedWindow, Key, Limit, Operation, Rate, SlidingLog, SlidingSlots,
    SlidingWindow, Span, SteppedBucket, Timestamp, TokenBucket,
};
use tidegate_redis::{ForeignState, RedisStore, TimeSource};
use tidegate_store::{Answers, Charge, Request, Store, StoreError};

const NOW: Timestamp = Timestamp::from_secs(1_790_553_600);

/// A limit of each format of states, with the byte that its states begin with.
fn limits() -> Vec<(u8, Limit)> {
    let rate = Rate::new(5, Span::HOUR).unwrap();
    vec![
        (b'b', TokenBucket::new(rate, 5).unwrap().into()),
        (b's', SteppedBucket::new(rate, 5).unwrap().into()),
        (b'f', FixedWindow::new(5, Windows::Clock(Span::HOUR)).unwrap().into()),
        (b'w', SlidingWindow::new(rate).unwrap().into()),
        (b'n', SlidingSlots::new(rate, 6, None).unwrap().into()),
        (b'l', SlidingLog::new(rate).unwrap().into()),
        (b'c', Concurrency::new(5, Span::HOUR).unwrap().into()),
    ]
}

fn key(number: u128) -> Key {
    Key::from_hash(number << 80 | number)
}

/// The name of the family of a key whose tag is zero.
fn name(key: Key) -> Vec<u8> {
    [b"t{!!}", &(key.as_hash() as u32).to_be_bytes()[..]].concat()
}

/// The family of a key that has this state and no other member.
fn alone(key: Key, state: &[u8]) -> Vec<u8> {
    let member = (key.as_hash() >> 96 << 32 | key.as_hash() >> 32 & 0xFFFF_FFFF).to_be_bytes();
    let width = u8::try_from(state.len()).unwrap();
    [b"g", &member[8..], &[0, 6, 0x5b, width], state].concat()
}

fn ask(store: &RedisStore, charges: &[Charge<'_>]) -> Result<Vec<Decision>, StoreError> {
    let mut answers = Answers::new();
    block_on(store.decide(&[Request { now: NOW, charges }], &mut answers));
    answers.iter().next().expect("an answer").map(<[Decision]>::to_vec)
}

fn charge(limit: &Limit, key: Key, operation: Operation) -> Charge<'_> {
    Charge { limit, key, operation }
}

const TAKE: Operation = Operation::Take { cost: 1 };
const PEEK: Operation = Operation::Peek { cost: 0 };

#[test]
fn a_foreign_state_is_written_over_and_counted_and_others_are_not_disturbed() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (server.store(), server.client());
    for (number, (_, limit)) in limits().into_iter().enumerate() {
        let (foreign, ours) = (key(2 * number as u128 + 1), key(2 * number as u128 + 2));
        ask(&store, &[charge(&limit, ours, TAKE)]).unwrap();
        let _: () = client.set(name(foreign), "somebody's").unwrap();
        let found = store.stats().foreign_states;
        let charges = [charge(&limit, foreign, TAKE), charge(&limit, ours, TAKE)];
        let decisions = ask(&store, &charges).unwrap();
        assert_eq!((decisions[0].remaining, decisions[1].remaining), (4, 3), "{}", limit.name());
        assert_eq!(store.stats().foreign_states, found + 1);
        assert_eq!(ask(&store, &charges).unwrap()[0].remaining, 3, "now it is ours");
        assert_eq!(store.stats().foreign_states, found + 1);

        let _: () = client.del(name(foreign)).unwrap();
        let _: () = client.rpush(name(foreign), "a list").unwrap();
        assert_eq!(ask(&store, &[charge(&limit, foreign, PEEK)]).unwrap()[0].remaining, 5);
        assert!(!client.exists::<_, bool>(name(foreign)).unwrap(), "a full limit is an absent one");
    }
}

#[test]
fn a_foreign_state_is_left_and_the_request_charges_nothing_where_the_policy_says_so() {
    let server = Server::start(Kind::Redis);
    let config = server.config().time(TimeSource::Request).foreign_state(ForeignState::Refuse);
    let (store, mut client) = (connect(config), server.client());
    for (number, (_, limit)) in limits().into_iter().enumerate() {
        let (foreign, ours) = (key(2 * number as u128 + 1), key(2 * number as u128 + 2));
        let _: () = client.set(name(foreign), "somebody's").unwrap();
        let charges = [charge(&limit, ours, TAKE), charge(&limit, foreign, TAKE)];
        assert_eq!(ask(&store, &charges), Err(StoreError::ForeignState), "{}", limit.name());
        assert_eq!(client.get::<_, String>(name(foreign)).unwrap(), "somebody's");
        assert_eq!(ask(&store, &[charge(&limit, ours, PEEK)]).unwrap()[0].remaining, 5);
    }
    assert_eq!(store.stats().foreign_states, limits().len() as u64);
}

/// Nobody could be rid of it otherwise, where the policy leaves what is foreign.
#[test]
fn what_is_no_family_is_gone_when_one_of_its_members_is_forgotten() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (server.store(), server.client());
    let whole = [alone(key(1), b"one"), alone(key(2), b"two")[1..].to_vec()].concat();
    for foreign in [
        b"somebody's".to_vec(),
        b"g".to_vec(),
        b"garbage that begins like a family".to_vec(),
        whole[..whole.len() - 1].to_vec(),
        [&whole[..], b"more"].concat(),
    ] {
        let _: () = client.set(name(key(1)), &foreign).unwrap();
        block_on(store.forget(&[key(1)])).unwrap();
        assert!(!client.exists::<_, bool>(name(key(1))).unwrap(), "{foreign:?}");
    }
}

/// What stands under a name is all of a family, and one member of it can be foreign alone.
#[test]
fn a_foreign_member_of_a_family_is_written_over_and_the_others_stay() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (server.store(), server.client());
    for (number, (_, limit)) in limits().into_iter().enumerate() {
        let one = key(number as u128 + 1);
        let (foreign, ours) = (one, Key::from_hash(one.as_hash() ^ 1 << 40));
        ask(&store, &[charge(&limit, ours, TAKE)]).unwrap();
        let written: Vec<u8> = client.get(name(ours)).unwrap();
        let both = [&written[..], &alone(foreign, b"somebody's")[1..]].concat();
        let _: () = client.set(name(ours), both).unwrap();
        let found = store.stats().foreign_states;
        let charges = [charge(&limit, foreign, TAKE), charge(&limit, ours, TAKE)];
        let decisions = ask(&store, &charges).unwrap();
        assert_eq!((decisions[0].remaining, decisions[1].remaining), (4, 3), "{}", limit.name());
        assert_eq!(store.stats().foreign_states, found + 1);
    }
}

/// Bytes that look like a state to the first glance give some answer, and the script does not fail.
#[test]
fn no_bytes_in_a_key_make_the_script_fail() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (server.store(), server.client());
    let limits = limits();
    let lease = tidegate_core::LeaseId::from_u64(77).unwrap();
    let operation = prop_oneof![
        Just(TAKE),
        Just(PEEK),
        Just(Operation::Take { cost: 4 }),
        Just(Operation::Debit { cost: 3 }),
        Just(Operation::Refund { cost: 2, taken_at: NOW }),
        Just(Operation::Release { lease }),
        Just(Operation::Renew { lease }),
    ];
    let byte = prop_oneof![3 => Just(0_u8), 2 => any::<u8>(), 1 => prop::sample::select(vec![1, 2, 4, 6_u8])];
    let bytes = prop_oneof![
        1 => prop::collection::vec(byte.clone(), 0..120),
        1 => prop::collection::vec(byte, 11..=11),
    ];
    let bare = prop::bool::weighted(0.2);
    let case = (0..limits.len(), bytes, bare, prop::collection::vec(operation, 1..4));
    let config = Config { cases: 4_000, failure_persistence: None, ..Config::default() };
    let client = std::cell::RefCell::new(&mut client);
    let run = TestRunner::new(config).run(&case, |(which, bytes, bare, operations)| {
        let (tag, limit) = &limits[which];
        let family = if bare {
            [b"g", &bytes[..]].concat()
        } else {
            alone(key(1), &[&[*tag][..], &bytes].concat())
        };
        let _: () = client.borrow_mut().set(name(key(1)), family).unwrap();
        for operation in operations {
            let answer = ask(&store, &[charge(limit, key(1), operation)]);
            prop_assert!(answer.is_ok(), "{:?}", answer);
        }
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
}
