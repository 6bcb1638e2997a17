//! What the book does, one step at a time.

use tidegate_core::{Rate, TokenBucket, Verdict};

use super::*;
use crate::lease::{Intent, SPENDABLE, TTL};

const KEY: Key = Key::from_hash(7);

fn limit(burst: u64) -> Limit {
    TokenBucket::new(Rate::new(burst, Span::SECOND).unwrap(), burst).unwrap().into()
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_secs(1_000).plus(Span::from_millis(ms))
}

/// What a store says that grants so much in all and has the rest of 100 left.
fn told(granted: u64) -> Told {
    let verdict = Verdict::Allow { delay: Span::ZERO };
    let (reset_after, lease) = (Span::SECOND, None);
    let decision = Decision { verdict, limit: 100, remaining: 100 - granted, reset_after, lease };
    Told { known: true, granted, decision }
}

fn refused(wait: Span) -> Told {
    let verdict = Verdict::Deny { retry_after: wait };
    let decision = Decision { verdict, ..told(0).decision };
    Told { known: true, granted: 0, decision }
}

/// A book whose key is hot, and its first request.
fn hot(ms: u64) -> (Book, Call) {
    let book = Book::new(1);
    loop {
        match book.spend(KEY, &limit(100), 1, at(ms)).outcome {
            Outcome::Strict => {}
            Outcome::Wait(_) => break,
            Outcome::Decided(decision) => panic!("{decision:?}"),
        }
    }
    let call = book.collect(at(ms)).pop().expect("a request");
    (book, call)
}

/// The same with so much granted.
fn leased(granted: u64) -> Book {
    let (book, call) = hot(0);
    assert!(!book.answered(KEY, &call.ask, &told(granted), at(1)));
    book
}

fn allowed(book: &Book, ms: u64) -> bool {
    let outcome = book.spend(KEY, &limit(100), 1, at(ms)).outcome;
    matches!(outcome, Outcome::Decided(decision) if decision.is_allowed())
}

#[test]
fn a_cold_key_is_strict_and_a_hot_one_asks_for_what_waits() {
    let (book, call) = hot(0);
    assert_eq!((call.ask.intent, call.ask.need, call.ask.waiting), (Intent::Open, 1, 1));
    assert!(call.ask.want > 1);
    let again = book.spend(KEY, &limit(100), 1, at(0));
    assert_eq!((again.outcome, again.due), (Outcome::Wait(0), false), "one is on its way");
    let slow = Book::new(1);
    for ms in (0..10_000).step_by(50) {
        assert_eq!(slow.spend(KEY, &limit(100), 1, at(ms)).outcome, Outcome::Strict);
    }
}

#[test]
fn what_is_granted_is_spent_and_no_more_and_not_after_its_time() {
    let book = leased(3);
    assert_eq!([1, 2, 3, 4].map(|ms| allowed(&book, ms)), [true, true, true, false]);
    let book = leased(3);
    let end = SPENDABLE.as_millis_ceil();
    assert!(allowed(&book, end - 1));
    assert!(!allowed(&book, end), "counted from when it was sent, not from when it was answered");
}

#[test]
fn what_has_expired_is_not_spent_by_a_request_with_a_time_from_before() {
    let book = leased(10);
    for _ in 0..6 {
        assert!(allowed(&book, 3));
    }
    assert_eq!(book.collect(at(3)).len(), 1, "a request without an answer so far");
    let _ = book.tick(at(SPENDABLE.as_millis_ceil()));
    assert!(!allowed(&book, 4));
}

#[test]
fn a_refusal_holds_for_its_cost_until_its_time_and_can_be_lifted() {
    let (book, call) = hot(0);
    let _ = book.answered(KEY, &call.ask, &refused(Span::from_millis(50)), at(1));
    let deny = Verdict::Deny { retry_after: Span::from_millis(41) };
    let outcome = book.spend(KEY, &limit(100), 1, at(10)).outcome;
    assert!(matches!(outcome, Outcome::Decided(decision) if decision.verdict == deny));
    book.lift(KEY);
    assert_eq!(book.spend(KEY, &limit(100), 1, at(10)).outcome, Outcome::Strict);
}

#[test]
fn a_late_answer_to_another_lease_or_request_changes_nothing() {
    let (book, first) = hot(0);
    book.lost(KEY, &first.ask, at(40));
    let _ = book.answered(KEY, &first.ask, &told(9), at(45));
    assert_eq!(book.at_hand(KEY), 0);
    assert_eq!(book.tick(at(800)), 0, "it has expired");
    for ms in 900..920 {
        let _ = book.spend(KEY, &limit(100), 1, at(ms));
    }
    let second = book.collect(at(920)).pop().expect("a request");
    assert_eq!(second.ask.sequence, first.ask.sequence);
    assert_ne!(second.ask.holder, first.ask.holder);
    let _ = book.answered(KEY, &first.ask, &told(9), at(921));
    assert_eq!(book.at_hand(KEY), 0);
    let _ = book.answered(KEY, &second.ask, &told(4), at(922));
    assert_eq!(book.at_hand(KEY), 4);
}

#[test]
fn more_is_asked_for_when_half_is_gone() {
    let book = leased(10);
    let due: Vec<bool> = (0..6).map(|_| book.spend(KEY, &limit(100), 1, at(5)).due).collect();
    assert_eq!(due, [false, false, false, false, false, true]);
    let call = book.collect(at(5)).pop().expect("a request");
    assert_eq!((call.ask.intent, call.ask.spent, call.ask.need), (Intent::Renew, 6, 0));
}

#[test]
fn an_idle_lease_is_given_back_and_one_that_is_used_is_extended() {
    let book = leased(10);
    assert_eq!(book.tick(at(50)), 1);
    assert!(book.collect(at(50)).is_empty());
    let _ = book.tick(at(150));
    let call = book.collect(at(150)).pop().expect("a request");
    assert_eq!((call.ask.intent, call.ask.spent, call.ask.want), (Intent::Close, 0, 0));
    assert!(!allowed(&book, 151), "what has been given back is not spent");
    let _ = book.answered(KEY, &call.ask, &told(0), at(152));
    assert_eq!(book.tick(at(152)), 0);

    let book = leased(40);
    let half = TTL.as_millis_ceil() / 2;
    for ms in (0..half).step_by(20) {
        assert!(allowed(&book, ms));
    }
    let _ = book.tick(at(half + 10));
    let call = book.collect(at(half + 10)).pop().expect("a request");
    assert_eq!((call.ask.intent, call.ask.spent), (Intent::Renew, 15));
}

#[test]
fn a_take_is_undone_unless_the_store_may_know_of_it() {
    let book = leased(10);
    assert!(allowed(&book, 2));
    assert!(book.give_back(KEY, 1, at(2), None, at(2)).is_some());
    assert_eq!(book.at_hand(KEY), 10);
    let (_, mark) = book.spend_at_hand(KEY, &limit(100), 1, at(2)).expect("it is at hand");
    assert!(book.undo(KEY, 1, mark, at(2)).is_some());
    assert_eq!(book.at_hand(KEY), 10);
    for _ in 0..6 {
        assert!(allowed(&book, 3));
    }
    assert_eq!(book.collect(at(3)).len(), 1, "it tells of all six");
    assert_eq!(book.give_back(KEY, 1, at(3), None, at(3)), None);
    // What is spent from now on is not told, but it is not that take.
    assert!(allowed(&book, 4));
    assert_eq!(book.give_back(KEY, 1, at(3), None, at(5)), None);
    assert_eq!(book.undo(KEY, 1, mark, at(5)), None);
    assert!(book.give_back(KEY, 1, at(4), None, at(5)).is_some());
}

#[test]
fn a_take_that_the_store_may_have_decided_is_not_undone_in_place_of_one_that_a_lease_paid() {
    let book = leased(10);
    let within = Some(Span::from_millis(10));
    // The seven before the lease were left to the store, the last of them at 0.
    for ms in [2, 20] {
        assert!(allowed(&book, ms));
    }
    for _ in 0..7 {
        assert_eq!(book.give_back(KEY, 1, at(2), within, at(20)), None);
    }
    assert!(
        book.give_back(KEY, 1, at(2), within, at(20)).is_some(),
        "the store has none of it left"
    );
    assert!(
        book.give_back(KEY, 1, at(20), within, at(20)).is_some(),
        "too late to be one of those"
    );
    book.leave_to_store(KEY, 1, at(21));
    assert!(allowed(&book, 22));
    assert!(book.give_back(KEY, 1, at(22), None, at(22)).is_some(), "it is known who paid");
    assert!(allowed(&book, 22));
    assert_eq!(book.give_back(KEY, 1, at(22), within, at(22)), None);
}

#[test]
fn a_reset_gives_the_lease_back_and_forgets_what_was_spent_before_it() {
    for (done, spent) in [(true, 0), (false, 3)] {
        let book = leased(10);
        assert_eq!([2, 3, 4].map(|ms| allowed(&book, ms)), [true; 3]);
        let holder = book.before_reset(KEY).expect("a lease");
        assert!(!allowed(&book, 5), "it would be spent beside what the reset gives");
        book.after_reset(KEY, holder, done);
        let call = book.collect(at(6)).pop().expect("a request");
        assert_eq!((call.ask.intent, call.ask.spent), (Intent::Close, spent));
    }
}

#[test]
fn other_numbers_end_the_lease_at_once() {
    let book = leased(10);
    let spend = book.spend(KEY, &limit(50), 1, at(2));
    assert_eq!((spend.outcome, spend.due), (Outcome::Strict, true));
    assert_eq!(book.collect(at(2)).pop().expect("a request").ask.intent, Intent::Close);
    assert!(!allowed(&book, 3));
}

#[test]
fn close_gives_everything_back_also_what_is_on_its_way() {
    let book = leased(10);
    for _ in 0..6 {
        assert!(allowed(&book, 3));
    }
    let renewal = book.collect(at(3)).pop().expect("a request");
    assert_eq!(book.close(), 1);
    assert!(book.collect(at(4)).is_empty(), "one at a time");
    assert!(book.answered(KEY, &renewal.ask, &told(30), at(5)));
    let close = book.collect(at(5)).pop().expect("a request");
    assert_eq!((close.ask.intent, close.ask.spent), (Intent::Close, 6));
    let _ = book.answered(KEY, &close.ask, &told(30), at(6));
    assert_eq!(book.close(), 0);
}

#[test]
fn stats_count_what_was_granted_spent_renewed_and_refused() {
    let book = leased(10);
    for _ in 0..6 {
        assert!(allowed(&book, 3));
    }
    let stats = book.stats();
    assert_eq!((stats.held, stats.at_hand, stats.granted, stats.spent), (1, 4, 10, 0));
    let renewal = book.collect(at(3)).pop().expect("a request");
    assert_eq!(book.stats().spent, 6, "the store is told of it");
    let _ = book.answered(KEY, &renewal.ask, &told(30), at(4));
    let stats = book.stats();
    assert_eq!((stats.requests, stats.renewals, stats.opened), (2, 1, 1));
    assert_eq!((stats.granted, stats.at_hand), (30, 24));
    let (book, call) = hot(0);
    let _ = book.answered(KEY, &call.ask, &refused(Span::from_millis(50)), at(1));
    let stats = book.stats();
    assert_eq!((stats.held, stats.granted, stats.refused, stats.opened), (0, 0, 1, 0));
}

/// How often a store is asked in a second in which so many keys are spent a thousand times each.
fn calls_in_a_second(keys: u64) -> usize {
    let (book, limit) = (Book::new(1), limit(1_000_000));
    let mut calls = 0;
    for ms in 0..2_000 {
        for number in 0..keys {
            let _ = book.spend(Key::from_hash(number.into()), &limit, 1, at(ms));
        }
        if ms % TICK.as_millis_ceil() == 0 {
            let _ = book.tick(at(ms));
        }
        for call in book.collect(at(ms)) {
            // The first second is for finding out how fast they are.
            calls += usize::from(ms >= 1_000);
            let granted = Told { granted: call.ask.spent + call.ask.want, ..told(0) };
            let _ = book.answered(call.key, &call.ask, &granted, at(ms));
        }
    }
    calls
}

#[test]
fn with_many_hot_keys_each_asks_less_often() {
    assert!((50..=120).contains(&calls_in_a_second(1)), "{}", calls_in_a_second(1));
    assert!(calls_in_a_second(100) < 15 * 100, "{}", calls_in_a_second(100));
}

#[test]
fn the_book_is_bounded_and_makes_room_by_what_is_cold() {
    let book = Book::new(1);
    let keys = |range: std::ops::Range<u128>| {
        range.map(|number| Key::from_hash(number.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C)))
    };
    for key in keys(0..100_000) {
        let _ = book.spend(key, &limit(100), 1, at(0));
    }
    let held: usize = book.shards.iter().map(|shard| shard.lock().slots.len()).sum();
    assert!(held <= KEYS_MAX, "{held}");
    for _ in 0..20 {
        for key in keys(100_000..100_010) {
            let _ = book.spend(key, &limit(100), 1, at(500));
        }
    }
    assert_eq!(book.collect(at(500)).len(), 10, "new keys become hot all the same");
}
