//! Limits whose states are one string, as those of one rule and one subject are: asked together, in part,
//! alone, and forgotten.

use crate::support::{Kind, Server, block_on, connect};
use redis::Commands;
use tidegate_core::{
    Concurrency, Decision, Key, Limit, Operation, Rate, SlidingLog, Span, Timestamp, TokenBucket,
};
use tidegate_redis::RedisStore;
use tidegate_store::{Answers, Charge, Request, Store};

const TAKE: Operation = Operation::Take { cost: 1 };

fn bucket(count: u64, period: Span) -> Limit {
    TokenBucket::new(Rate::new(count, period).unwrap(), count).unwrap().into()
}

/// A member of one family.
fn key(number: u128) -> Key {
    Key::from_hash(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835 ^ number << 40)
}

fn ask(store: &RedisStore, charges: &[(&Limit, u128, Operation)]) -> Vec<Decision> {
    let charges: Vec<_> = charges
        .iter()
        .map(|&(limit, number, operation)| Charge { limit, key: key(number), operation })
        .collect();
    let mut answers = Answers::new();
    let request = Request { now: Timestamp::ZERO, charges: &charges };
    block_on(store.decide(&[request], &mut answers));
    answers.iter().next().expect("an answer").expect("a healthy store").to_vec()
}

fn left(store: &RedisStore, limit: &Limit, number: u128) -> u64 {
    ask(store, &[(limit, number, Operation::Peek { cost: 0 })])[0].remaining
}

fn only_name(client: &mut redis::Connection) -> Vec<u8> {
    let names: Vec<Vec<u8>> = client.keys("*").unwrap();
    assert_eq!(names.len(), 1);
    names[0].clone()
}

#[test]
fn a_family_is_one_string_that_expires_with_the_last_of_its_members() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    let (second, hour, day) =
        (bucket(10, Span::SECOND), bucket(10, Span::HOUR), bucket(10, Span::DAY));
    let log = SlidingLog::new(Rate::new(10, Span::MINUTE).unwrap()).unwrap().into();
    for others in [&[][..], &[(&log, 4, TAKE)]] {
        let charges = [&[(&second, 1, TAKE), (&day, 2, TAKE), (&hour, 3, TAKE)][..], others];
        let decisions = ask(&store, &charges.concat());
        assert!(decisions.iter().all(Decision::is_allowed));
        let name = only_name(&mut client);
        let lasts_ms: i64 = client.pttl(name).unwrap();
        let full_ms = decisions[1].reset_after.as_millis_ceil().cast_signed();
        assert!(lasts_ms > full_ms - 1_000 * 60 && lasts_ms <= full_ms + 1_001, "{lasts_ms} ms");
    }
}

#[test]
fn what_was_spent_together_is_spent_for_each_and_what_one_spent_for_all() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    let (one, two, three) = (bucket(10, Span::HOUR), bucket(20, Span::DAY), bucket(30, Span::DAY));
    let all = [(&one, 1, TAKE), (&two, 2, TAKE), (&three, 3, TAKE)];
    let remaining = |charges: &[(&Limit, u128, Operation)]| -> Vec<u64> {
        ask(&store, charges).iter().map(|decision| decision.remaining).collect()
    };
    assert_eq!(remaining(&all), [9, 19, 29]);
    // A limit is taken away, is alone, comes back in another order, and is given back to.
    assert_eq!(remaining(&all[1..]), [18, 28]);
    assert_eq!(remaining(&all[2..]), [27]);
    assert_eq!(remaining(&[all[2], all[0], all[1]]), [26, 8, 17]);
    assert_eq!(remaining(&all), [7, 16, 25]);
    let refund = Operation::Refund { cost: 2, taken_at: Timestamp::from_secs(9_000_000_000) };
    assert_eq!(remaining(&[(&two, 2, refund)]), [18]);
    assert_eq!(remaining(&all), [6, 17, 24]);
    only_name(&mut client);
}

#[test]
fn a_refusal_of_one_member_charges_none_and_changes_nothing() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    let (narrow, wide) = (bucket(1, Span::HOUR), bucket(9, Span::HOUR));
    let both = [(&wide, 1, TAKE), (&narrow, 2, TAKE)];
    assert!(ask(&store, &both).iter().all(Decision::is_allowed));
    let name = only_name(&mut client);
    let written: Vec<u8> = client.get(&name).unwrap();
    for _ in 0..3 {
        let decisions = ask(&store, &both);
        assert!(decisions[0].is_allowed() && !decisions[1].is_allowed());
        assert_eq!((decisions[0].remaining, decisions[1].remaining), (8, 0));
    }
    assert_eq!(client.get::<_, Vec<u8>>(&name).unwrap(), written);
}

#[test]
fn who_forgets_a_member_keeps_the_others() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    let (one, two) = (bucket(10, Span::HOUR), bucket(20, Span::DAY));
    ask(&store, &[(&one, 1, TAKE), (&two, 2, TAKE)]);
    let name = only_name(&mut client);
    let lasts_ms: i64 = client.pttl(&name).unwrap();
    block_on(store.forget(&[key(1)])).unwrap();
    assert_eq!((left(&store, &one, 1), left(&store, &two, 2)), (10, 19));
    let still_ms: i64 = client.pttl(&name).unwrap();
    assert!((1..=lasts_ms).contains(&still_ms));
    block_on(store.forget(&[key(2)])).unwrap();
    assert_eq!(left(&store, &two, 2), 20);
    assert!(!client.exists::<_, bool>(&name).unwrap(), "nothing is left");
}

#[test]
fn a_member_that_nobody_asks_for_goes_when_it_is_over_and_stays_until_then() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    let (one, two) = (bucket(10, Span::HOUR), bucket(20, Span::DAY));
    ask(&store, &[(&two, 2, TAKE)]);
    let name = only_name(&mut client);
    ask(&store, &[(&one, 1, TAKE)]);
    let both: Vec<u8> = client.get(&name).unwrap();
    assert_eq!(both.len(), 1 + 2 * 23);
    assert_eq!(left(&store, &two, 2), 19, "it stays");
    // Three bytes behind the number of the member say when it is over: long ago.
    let ends = both.len() - 23 + 8;
    let over = [&both[..ends], &[0; 3], &both[ends + 3..]].concat();
    let _: () = client.set(&name, over).unwrap();
    ask(&store, &[(&one, 1, TAKE)]);
    assert_eq!(client.get::<_, Vec<u8>>(&name).unwrap().len(), 1 + 23);
    assert!(client.pttl::<_, i64>(&name).unwrap() > 0);
}

#[test]
fn who_asks_for_one_member_makes_the_others_last_no_longer() {
    let server = Server::start(Kind::Redis);
    let (store, mut client) = (connect(server.config()), server.client());
    let minute = bucket(10, Span::MINUTE);
    let places = Concurrency::new(5, Span::HOUR).unwrap().into();
    let taken = ask(&store, &[(&minute, 1, TAKE), (&places, 2, TAKE)]);
    let name = only_name(&mut client);
    let lease = taken[1].lease.expect("a place");
    ask(&store, &[(&places, 2, Operation::Release { lease })]);
    let after_ms: i64 = client.pttl(&name).unwrap();
    assert!((1..=7_001).contains(&after_ms), "six seconds until it is full, and one: {after_ms}");
    assert_eq!(left(&store, &minute, 1), 9);

    // And one that is asked for alone makes them all last as long as it does.
    let day = bucket(10, Span::DAY);
    block_on(store.forget(&[key(1), key(2)])).unwrap();
    ask(&store, &[(&minute, 3, TAKE)]);
    let decision = ask(&store, &[(&day, 4, TAKE)])[0];
    let full_ms = decision.reset_after.as_millis_ceil().cast_signed();
    let name = only_name(&mut client);
    let lasts_ms: i64 = client.pttl(name).unwrap();
    assert!((full_ms..full_ms + 2_000).contains(&lasts_ms), "{lasts_ms} for {full_ms}");
}
