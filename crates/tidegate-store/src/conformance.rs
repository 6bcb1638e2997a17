//! One suite for every store: one named check per promise, run against the seam alone.
//!
//! [`conformance_tests!`](crate::conformance_tests) turns it into one test per check. A store with a
//! clock of its own must take the `now` of a request while it is being tested, since the checks move
//! time as they need it.
//!
//! ```
//! # fn main() {}
//! # #[cfg(test)]
//! mod table {
//!     use tidegate_store::{Table, TableConfig, conformance};
//!
//!     fn table() -> Table {
//!         let config = TableConfig { entry_bytes: 1 << 20, wide_bytes: 1 << 20 };
//!         Table::new(config, conformance::START).expect("a small table")
//!     }
//!
//!     tidegate_store::conformance_tests!(table(), conformance::block_on);
//! }
//! ```
#![expect(clippy::missing_panics_doc, reason = "a check panics where a promise is broken")]

mod model;
mod script;

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, Decision, FixedWindow, Key, LeakyBucket, Limit, Operation, Rate, SlidingLog,
    SlidingSlots, SlidingWindow, Span, SteppedBucket, Timestamp, TokenBucket, Verdict,
};

pub use model::Model;
use script::Script;

use crate::{Answers, Charge, Request, Store, StoreError};

/// When every check begins: a Monday midnight, so that windows are easy to reason about.
pub const START: Timestamp = Timestamp::from_secs(1_790_553_600);

/// Runs a future that never waits for anything outside of it, as those of a store in memory.
///
/// # Panics
///
/// If it does wait.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("this store waits for something: run it on a runtime"),
    }
}

/// Makes one test of each check. The first argument gives a fresh store, the second runs a future.
#[macro_export]
macro_rules! conformance_tests {
    ($store:expr, $block_on:expr) => {
        $crate::conformance_tests!(@each $store, $block_on;
            never_over,
            callers_at_once_share_one_budget,
            never_needlessly_refused,
            all_or_nothing,
            a_request_in_parts_is_never_charged,
            waits_are_exact,
            remaining_rises_only_by_refill_or_refund,
            the_same_answers_as_the_arithmetic,
            a_batch_is_answered_as_one_after_the_other,
            a_cost_above_the_limit_never_fits,
            looking_spends_nothing,
            a_refund_never_raises_above_full,
            a_debit_is_charged_whatever_is_left,
            a_changed_number_meets_the_state_that_is_there,
            a_clock_set_back_gives_nothing_away_and_locks_nobody_out,
            never_over_while_the_clock_is_set_back_again_and_again,
            leases_are_given_back_by_release_and_by_expiry,
            a_renewed_lease_lasts_from_then_on,
            a_forgotten_key_has_all_of_its_quota,
            keys_do_not_touch_each_other,
            a_request_that_cannot_be_decided_is_an_error_and_charges_nothing,
        );
    };
    (@each $store:expr, $block_on:expr; $($check:ident),+ $(,)?) => {
        $(
            #[test]
            fn $check() {
                let store = $store;
                ($block_on)($crate::conformance::$check(&store));
            }
        )+
    };
}

/// Promise 1: at one instant no more is admitted than the limit holds, in whatever portions.
pub async fn never_over(store: &impl Store) {
    let mut keys = Keys::new(1);
    for limit in samples() {
        for cost in [1, 2, 3] {
            let (key, mut spent) = (keys.next(), 0);
            for _ in 0..30 {
                if take(store, &limit, key, START, cost).await.is_allowed() {
                    spent += cost;
                }
            }
            let most = capacity(&limit);
            assert!(spent <= most, "{}: {spent} of {most}", limit.name());
            assert!(spent + cost > most, "{}: only {spent} of {most}", limit.name());
        }
    }
}

/// Promise 1: callers whose requests are under way at the same time get together what the limit holds.
/// A store that reads and then writes fails this as soon as its calls can overtake each other.
pub async fn callers_at_once_share_one_budget(store: &impl Store) {
    let mut keys = Keys::new(17);
    for limit in samples() {
        let key = keys.next();
        let caller = || async {
            let mut admitted = 0;
            for _ in 0..4 {
                admitted += u64::from(take(store, &limit, key, START, 1).await.is_allowed());
            }
            admitted
        };
        let admitted = all_at_once((0..8).map(|_| caller())).await;
        assert_eq!(admitted.iter().sum::<u64>(), capacity(&limit), "{}", limit.name());
    }
}

/// Promise 2: while there is quota, a request is allowed.
pub async fn never_needlessly_refused(store: &impl Store) {
    let mut keys = Keys::new(2);
    for limit in samples() {
        let key = keys.next();
        for left in (0..capacity(&limit)).rev() {
            let decision = take(store, &limit, key, START, 1).await;
            assert!(decision.is_allowed(), "{}: refused with {left} left", limit.name());
            assert_eq!(decision.remaining, left, "{}", limit.name());
        }
        let one_more = take(store, &limit, key, START, 1).await;
        assert!(!one_more.is_allowed(), "{}", limit.name());
    }
}

/// Promise 3: where one limit refuses, none is charged, whichever of them it is.
pub async fn all_or_nothing(store: &impl Store) {
    let mut keys = Keys::new(3);
    for first in samples() {
        for second in samples() {
            let (one, other) = (keys.next(), keys.next());
            for _ in 0..capacity(&second) {
                assert!(take(store, &second, other, START, 1).await.is_allowed());
            }
            let pair = [charge(&first, one, 1), charge(&second, other, 1)];
            let (name, against) = (first.name(), second.name());
            let decisions = decide(store, START, &pair).await;
            assert!(decisions[0].is_allowed() && !decisions[1].is_allowed(), "{name}, {against}");
            assert_eq!(decisions[0].remaining, capacity(&first), "{name}, {against}");
            let reversed = decide(store, START, &[pair[1], pair[0]]).await;
            assert!(!reversed[0].is_allowed() && reversed[1].is_allowed(), "{name}, {against}");
            let untouched = peek(store, &first, one, START).await;
            assert_eq!(untouched.remaining, capacity(&first), "{name} was charged, {against}");
        }
    }
}

/// Promise 3: a request under several limits is charged to all of them when all have room.
pub async fn a_request_in_parts_is_never_charged(store: &impl Store) {
    let (mut keys, limits) = (Keys::new(4), samples());
    let charged: Vec<_> = limits.iter().map(|limit| charge(limit, keys.next(), 1)).collect();
    let least = limits.iter().map(capacity).min().unwrap_or(0);
    for spent in 1..=least {
        for (decision, limit) in decide(store, START, &charged).await.iter().zip(&limits) {
            assert!(decision.is_allowed(), "{}", limit.name());
            assert_eq!(decision.remaining, capacity(limit) - spent, "{}", limit.name());
        }
    }
    let refused = decide(store, START, &charged).await;
    assert!(refused.iter().any(|decision| !decision.is_allowed()));
    for (charge, limit) in charged.iter().zip(&limits) {
        let left = peek(store, limit, charge.key, START).await.remaining;
        assert_eq!(left, capacity(limit) - least, "{} was charged alone", limit.name());
    }
}

/// Promise 4: alone, a retry after the wait succeeds, and one tick earlier it does not.
pub async fn waits_are_exact(store: &impl Store) {
    let mut keys = Keys::new(5);
    // A concurrency limit gives its best estimate.
    for limit in samples().into_iter().filter(|limit| !matches!(limit, Limit::Concurrency(_))) {
        for (cost, pause) in [(1, 0), (2, 333_333), (3, 1_000_001)] {
            let (key, mut now) = (keys.next(), START);
            for _ in 0..12 {
                let decision = take(store, &limit, key, now, cost).await;
                let Verdict::Deny { retry_after } = decision.verdict else {
                    now = now.plus(Span::from_micros(pause));
                    continue;
                };
                let due = now.plus(retry_after);
                let early = take(store, &limit, key, due.minus(Span::TICK), cost).await;
                assert!(!early.is_allowed(), "{}: a tick early at {due:?}", limit.name());
                let in_time = take(store, &limit, key, due, cost).await;
                assert!(in_time.is_allowed(), "{}: in time at {due:?}", limit.name());
                now = due;
            }
        }
    }
}

/// Promise 4: at one instant every take lowers what remains by its cost.
pub async fn remaining_rises_only_by_refill_or_refund(store: &impl Store) {
    let mut keys = Keys::new(6);
    for limit in samples() {
        let (key, mut left) = (keys.next(), capacity(&limit));
        for cost in [2, 1, 0, 3, 1, 4, 2, 1] {
            let decision = take(store, &limit, key, START, cost).await;
            left -= if decision.is_allowed() { cost } else { 0 };
            assert_eq!(decision.remaining, left, "{} at cost {cost}", limit.name());
        }
    }
}

/// Promise 7: a long random run of all operations gives the answers of the arithmetic itself.
pub async fn the_same_answers_as_the_arithmetic(store: &impl Store) {
    let (model, limits) = (Model::default(), samples());
    for seed in 1..=20 {
        let mut script = Script::new(seed, START);
        for step in 0..200 {
            let charges = script.charges(&limits);
            let request = Request { now: script.now(), charges: &charges };
            let (ours, expected) =
                (answers(store, &[request]).await, answers(&model, &[request]).await);
            let (ours, expected) = (ours.iter().next(), expected.iter().next());
            assert_eq!(
                ours, expected,
                "seed {seed}, step {step}: {charges:?} at {:?}",
                request.now
            );
            script.learn(&charges, expected);
        }
    }
}

/// Promise 7: a batch gives the same answers as its requests one by one.
pub async fn a_batch_is_answered_as_one_after_the_other(store: &impl Store) {
    let (model, limits) = (Model::default(), samples());
    let mut script = Script::new(99, START);
    let requests: Vec<_> = (0..100).map(|_| (script.charges(&limits), script.now())).collect();
    let batch: Vec<_> =
        requests.iter().map(|(charges, now)| Request { now: *now, charges }).collect();
    let together = answers(store, &batch).await;
    assert_eq!(together.len(), batch.len());
    for (answer, request) in together.iter().zip(&batch) {
        let alone = answers(&model, &[*request]).await;
        assert_eq!(Some(answer), alone.iter().next(), "{request:?}");
    }
}

/// A cost that the limit can never hold is told apart from one that has to wait.
pub async fn a_cost_above_the_limit_never_fits(store: &impl Store) {
    let mut keys = Keys::new(7);
    for limit in samples() {
        let key = keys.next();
        for cost in [capacity(&limit) + 1, 1 << 40, 1 << 63, u64::MAX] {
            let decision = take(store, &limit, key, START, cost).await;
            assert_eq!(decision.verdict, Verdict::NeverFits, "{} at {cost}", limit.name());
        }
        let untouched = peek(store, &limit, key, START).await.remaining;
        assert_eq!(untouched, capacity(&limit), "{}", limit.name());
    }
}

/// A peek, and a take of nothing, leave everything as it was.
pub async fn looking_spends_nothing(store: &impl Store) {
    let mut keys = Keys::new(8);
    for limit in samples() {
        let key = keys.next();
        for left in [capacity(&limit), capacity(&limit) - 2] {
            for _ in 0..3 {
                let looked = peek(store, &limit, key, START).await;
                assert_eq!(looked.remaining, left, "{}", limit.name());
                let nothing = take(store, &limit, key, START, 0).await;
                assert_eq!((nothing.is_allowed(), nothing.remaining), (true, left));
            }
            assert!(take(store, &limit, key, START, 2).await.is_allowed(), "{}", limit.name());
        }
    }
}

/// A refund gives back what was taken, and never more than is missing.
pub async fn a_refund_never_raises_above_full(store: &impl Store) {
    let mut keys = Keys::new(9);
    for limit in samples() {
        let (key, full) = (keys.next(), capacity(&limit));
        assert!(take(store, &limit, key, START, 3).await.is_allowed(), "{}", limit.name());
        let refund = |cost| Operation::Refund { cost, taken_at: START };
        let partly = one(store, START, &limit, key, refund(1)).await;
        assert_eq!(partly.remaining, full - 2, "{}", limit.name());
        let more_than_taken = one(store, START, &limit, key, refund(u64::MAX)).await;
        assert_eq!(more_than_taken.remaining, full, "{}", limit.name());
        assert_eq!(more_than_taken.reset_after, Span::ZERO, "{}", limit.name());
    }
}

/// A debit is charged even where that goes beyond the limit, and others wait until it is paid.
pub async fn a_debit_is_charged_whatever_is_left(store: &impl Store) {
    let mut keys = Keys::new(10);
    for limit in samples() {
        let (key, full) = (keys.next(), capacity(&limit));
        let debit = Operation::Debit { cost: full + 2 };
        let debited = one(store, START, &limit, key, debit).await;
        assert!(debited.is_allowed() && debited.remaining == 0, "{}", limit.name());
        let decision = take(store, &limit, key, START, 1).await;
        let Verdict::Deny { retry_after } = decision.verdict else {
            panic!("{}: {decision:?}", limit.name());
        };
        let due = START.plus(retry_after);
        assert!(take(store, &limit, key, due, 1).await.is_allowed(), "{}", limit.name());
    }
}

/// Promise 9: the state is not the limit's. A lowered or raised number applies to what has been
/// spent already, and nobody gets a fresh budget.
pub async fn a_changed_number_meets_the_state_that_is_there(store: &impl Store) {
    let mut keys = Keys::new(11);
    for (old, new) in samples().into_iter().zip(larger_samples()) {
        let key = keys.next();
        while take(store, &old, key, START, 1).await.is_allowed() {}
        let mut more = 0;
        while take(store, &new, key, START, 1).await.is_allowed() {
            more += 1;
        }
        let raised = capacity(&new) - capacity(&old);
        assert!(more <= raised, "{}: {more} more, raised by {raised}", old.name());
        let lowered = take(store, &old, key, START, 1).await;
        assert!(!lowered.is_allowed(), "{}: lowered again", old.name());
    }
}

/// A clock that is set back by an hour gives nothing away, and nobody waits an hour for it.
pub async fn a_clock_set_back_gives_nothing_away_and_locks_nobody_out(store: &impl Store) {
    let mut keys = Keys::new(12);
    for limit in samples() {
        let key = keys.next();
        while take(store, &limit, key, START, 1).await.is_allowed() {}
        let mut now = START.minus(Span::HOUR);
        assert!(!take(store, &limit, key, now, 1).await.is_allowed(), "{}", limit.name());
        let patience = now.plus(longest_wait(&limit)).plus(tidegate_core::SKEW_MAX);
        loop {
            assert!(now <= patience, "{}: locked out", limit.name());
            match take(store, &limit, key, now, 1).await.verdict {
                Verdict::Allow { .. } => break,
                Verdict::Deny { retry_after } => now = now.plus(retry_after.max(Span::TICK)),
                Verdict::NeverFits => panic!("{}: a cost of 1 fits", limit.name()),
            }
        }
    }
}

/// However often the clock is set back, and whatever a store has forgotten meanwhile, no more is admitted
/// than by a limit whose clock stands still for as long. The clock is set back by whole minutes, so that
/// windows lie alike in both; one that begins with a request may not, and is left out.
pub async fn never_over_while_the_clock_is_set_back_again_and_again(store: &impl Store) {
    let from_first_request = |limit: &Limit| match limit {
        Limit::FixedWindow(limit) => matches!(limit.windows(), Windows::FirstRequest(_)),
        _ => false,
    };
    let limits: Vec<_> = samples().into_iter().filter(|limit| !from_first_request(limit)).collect();
    let mut script = Script::new(18, START);
    let (mut set_back, mut states) = (Span::ZERO, HashMap::new());
    for _ in 0..4_000 {
        set_back = set_back.plus(script.minutes_back());
        let charges = script.charges(&limits);
        let charge = Charge { operation: script.take_or_debit(), ..charges[0] };
        let now = script.now().minus(set_back);
        let decision = decide(store, now, &[charge]).await[0];
        if decision.is_allowed() {
            let state = states.remove(&charge.key);
            let (ideal, next) = charge.limit.decide(state, script.now(), charge.operation);
            assert!(ideal.is_allowed(), "{} at {now:?}: {decision:?}", charge.limit.name());
            states.extend(next.map(|state| (charge.key, state)));
        }
    }
}

/// A place under a concurrency limit comes back when its lease is released, or when it expires.
pub async fn leases_are_given_back_by_release_and_by_expiry(store: &impl Store) {
    let mut keys = Keys::new(13);
    let limit = Limit::from(concurrency(2));
    let key = keys.next();
    let first = take(store, &limit, key, START, 1).await.lease.expect("a lease");
    let second = take(store, &limit, key, START, 1).await.lease.expect("a lease");
    assert_ne!(first, second);
    assert!(!take(store, &limit, key, START, 1).await.is_allowed());
    for _ in 0..2 {
        // The second time it has been given back already.
        let release = Operation::Release { lease: first };
        assert_eq!(one(store, START, &limit, key, release).await.remaining, 1);
    }
    assert!(take(store, &limit, key, START, 1).await.is_allowed());
    let later = START.plus(Span::MINUTE);
    assert_eq!(peek(store, &limit, key, later).await.remaining, 2, "both have expired");
}

/// A place that is renewed in time expires later, under the number that it had, and one that is over stays over.
pub async fn a_renewed_lease_lasts_from_then_on(store: &impl Store) {
    let mut keys = Keys::new(19);
    let limit = Limit::from(concurrency(2));
    let key = keys.next();
    let first = take(store, &limit, key, START, 1).await.lease.expect("a lease");
    let second = take(store, &limit, key, START, 1).await.lease.expect("a lease");
    let [renew, release] = [Operation::Renew { lease: first }, Operation::Release { lease: first }];
    let soon = START.plus(Span::from_secs(40));
    let renewed = one(store, soon, &limit, key, renew).await;
    assert_eq!((renewed.lease, renewed.remaining), (Some(first), 0));
    assert_eq!(renewed.reset_after, Span::MINUTE);

    let later = START.plus(Span::from_secs(70));
    assert_eq!(peek(store, &limit, key, later).await.remaining, 1, "only the other has expired");
    let gone = one(store, later, &limit, key, Operation::Renew { lease: second }).await;
    assert_eq!((gone.lease, gone.remaining), (None, 1));
    let third = take(store, &limit, key, later, 1).await.lease.expect("a lease");
    assert!(third != first && third != second);
    assert_eq!(one(store, later, &limit, key, release).await.remaining, 1);
    assert_eq!(one(store, later, &limit, key, renew).await.lease, None, "it was given back");
}

/// A key that is forgotten starts anew.
pub async fn a_forgotten_key_has_all_of_its_quota(store: &impl Store) {
    let mut keys = Keys::new(14);
    for limit in samples() {
        let key = keys.next();
        while take(store, &limit, key, START, 1).await.is_allowed() {}
        store.forget(&[key]).await.expect("a healthy store");
        let left = peek(store, &limit, key, START).await.remaining;
        assert_eq!(left, capacity(&limit), "{}", limit.name());
    }
}

/// What one key spends, no other key misses.
pub async fn keys_do_not_touch_each_other(store: &impl Store) {
    let mut keys = Keys::new(15);
    for limit in samples() {
        let (busy, idle) = (keys.next(), keys.next());
        while take(store, &limit, busy, START, 1).await.is_allowed() {}
        let left = peek(store, &limit, idle, START).await.remaining;
        assert_eq!(left, capacity(&limit), "{}", limit.name());
    }
}

/// Promise 2: what cannot be decided is an error, not a denial, and nothing is charged for it.
pub async fn a_request_that_cannot_be_decided_is_an_error_and_charges_nothing(store: &impl Store) {
    let mut keys = Keys::new(16);
    let limit = samples().swap_remove(0);
    let key = keys.next();
    let twice = [charge(&limit, key, 1), charge(&limit, key, 1)];
    let many: Vec<_> = (0..=Request::CHARGES_MAX).map(|_| charge(&limit, keys.next(), 1)).collect();
    let good = [charge(&limit, key, 1)];
    let batch = [&twice[..], &many, &good].map(|charges| Request { now: START, charges });
    let answers = answers(store, &batch).await;
    let mut answers = answers.iter();
    assert_eq!(answers.next(), Some(Err(StoreError::RepeatedKey)));
    assert_eq!(answers.next(), Some(Err(StoreError::TooManyCharges)));
    let decisions = answers.next().and_then(Result::ok).expect("the third is in order");
    assert_eq!(decisions[0].remaining, capacity(&limit) - 1, "only the third was charged");
    for charge in &many {
        let left = peek(store, &limit, charge.key, START).await.remaining;
        assert_eq!(left, capacity(&limit));
    }
}

/// Keys as good as random, different for each check.
struct Keys(u64);

impl Keys {
    fn new(check: u64) -> Self {
        Self(check << 32)
    }

    fn next(&mut self) -> Key {
        self.0 += 1;
        script::key(self.0)
    }
}

/// One limit of each algorithm, each of a capacity of at least 4.
fn samples() -> Vec<Limit> {
    limits(5)
}

/// The same algorithms and periods with larger numbers.
fn larger_samples() -> Vec<Limit> {
    limits(7)
}

fn limits(count: u64) -> Vec<Limit> {
    let per = |count, period| Rate::new(count, period).expect("a rate in range");
    let second = per(3, Span::SECOND);
    let minute = per(count, Span::MINUTE);
    let windows = |windows| FixedWindow::new(count, windows).expect("a window").into();
    vec![
        TokenBucket::new(second, count).expect("a bucket").into(),
        SteppedBucket::new(second, count).expect("a bucket").into(),
        LeakyBucket::new(second, count).expect("a bucket").into(),
        windows(Windows::Clock(Span::MINUTE)),
        windows(Windows::FirstRequest(Span::MINUTE)),
        SlidingWindow::new(minute).expect("a window").into(),
        SlidingSlots::new(minute, 6, None).expect("slots").into(),
        SlidingLog::new(minute).expect("a log").into(),
        concurrency(count).into(),
    ]
}

fn concurrency(count: u64) -> Concurrency {
    Concurrency::new(count, Span::MINUTE).expect("a concurrency limit")
}

/// What a key that has spent nothing can spend at once.
fn capacity(limit: &Limit) -> u64 {
    limit.decide(None, START, Operation::Peek { cost: 0 }).0.limit
}

/// How long an empty limit of the samples takes to let one through, at the most.
fn longest_wait(limit: &Limit) -> Span {
    let window = if limit.period().is_zero() { Span::MINUTE } else { limit.period() };
    window.plus(window)
}

/// What all of the futures give, each going on whenever it can.
async fn all_at_once<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Some(Box::pin(future)), None)).collect();
    poll_fn(|context| {
        for (future, output) in &mut running {
            if let Some(polled) = future
                && let Poll::Ready(ready) = polled.as_mut().poll(context)
            {
                (*future, *output) = (None, Some(ready));
            }
        }
        if running.iter().all(|(future, _)| future.is_none()) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}

fn charge(limit: &Limit, key: Key, cost: u64) -> Charge<'_> {
    Charge { limit, key, operation: Operation::Take { cost } }
}

async fn take(store: &impl Store, limit: &Limit, key: Key, now: Timestamp, cost: u64) -> Decision {
    one(store, now, limit, key, Operation::Take { cost }).await
}

async fn peek(store: &impl Store, limit: &Limit, key: Key, now: Timestamp) -> Decision {
    one(store, now, limit, key, Operation::Peek { cost: 0 }).await
}

async fn one(
    store: &impl Store,
    now: Timestamp,
    limit: &Limit,
    key: Key,
    operation: Operation,
) -> Decision {
    decide(store, now, &[Charge { limit, key, operation }]).await[0]
}

async fn decide(store: &impl Store, now: Timestamp, charges: &[Charge<'_>]) -> Vec<Decision> {
    let answers = answers(store, &[Request { now, charges }]).await;
    answers.iter().next().expect("one answer").expect("a healthy store").to_vec()
}

async fn answers(store: &impl Store, batch: &[Request<'_>]) -> Answers {
    let mut answers = Answers::new();
    store.decide(batch, &mut answers).await;
    assert_eq!(answers.len(), batch.len(), "one answer per request");
    answers
}
