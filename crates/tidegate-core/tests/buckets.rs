//! The three buckets against their models, and what they promise.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

mod model;

use model::buckets::{Fluid, Worker};
use model::{Ask, Call, Driver, Gap, claims, exact};
use proptest::prelude::*;
use tidegate_core::token_bucket::Bucket;
use tidegate_core::{
    LeakyBucket, Limit, LimitError, Operation, Rate, SKEW_MAX, Span, SteppedBucket, Timestamp,
    TokenBucket, Verdict,
};

/// A rate and a burst of which all three buckets can be made.
fn numbers() -> impl Strategy<Value = (Rate, u64)> {
    let count = prop_oneof![1..20_u64, 1..1_000_u64, 1..=1_u64 << 24];
    (count, model::period(), 1..200_u64).prop_filter_map("too fine", |(count, period, burst)| {
        let rate = Rate::new(count, period).unwrap();
        TokenBucket::new(rate, burst).is_ok().then_some((rate, burst))
    })
}

fn numbers_and_calls() -> impl Strategy<Value = (Rate, u64, Vec<Call>)> {
    numbers().prop_flat_map(|(rate, burst)| (Just(rate), Just(burst), model::calls(burst)))
}

fn numbers_and_takes() -> impl Strategy<Value = (Rate, u64, Vec<Call>)> {
    numbers().prop_flat_map(|(rate, burst)| (Just(rate), Just(burst), model::takes(burst)))
}

/// How long so many tokens take to come back.
fn time_of(tokens: u64, rate: Rate) -> Span {
    let micros = (u128::from(tokens) * u128::from(rate.period().as_micros()))
        .div_ceil(u128::from(rate.count()));
    Span::from_micros(u64::try_from(micros).unwrap())
}

fn token(rate: Rate, burst: u64) -> Driver {
    Driver::new(TokenBucket::new(rate, burst).unwrap(), time_of(burst, rate))
}

fn leaky(rate: Rate, burst: u64) -> Driver {
    Driver::new(LeakyBucket::new(rate, burst).unwrap(), time_of(burst, rate))
}

fn stepped(rate: Rate, burst: u64) -> Driver {
    Driver::new(SteppedBucket::new(rate, burst).unwrap(), rate.period())
}

proptest! {
    #![proptest_config(model::cases(2_000))]

    #[test]
    fn a_token_bucket_answers_as_its_model((rate, burst, calls) in numbers_and_calls()) {
        model::agrees(token(rate, burst), Fluid::token_bucket(rate, burst), &calls)?;
    }

    /// Whatever the state and the time, also those that no call leads to.
    #[test]
    fn the_plain_case_of_a_token_bucket_is_decided_as_any_other(
        (rate, burst) in numbers(),
        full_at_micros in prop_oneof![0..1_u64 << 40, 0..=1_u64 << 62],
        full_at_fraction in prop_oneof![4 => Just(0), 1 => 0..1_u32 << 24],
        in_debt in prop::bool::weighted(0.1),
        used in prop_oneof![-5..2_000_000_i64, any::<i64>()],
    ) {
        let limit = TokenBucket::new(rate, burst).unwrap();
        let bucket = Bucket { full_at_micros, full_at_fraction, in_debt };
        let now = Timestamp::from_micros(full_at_micros.saturating_add_signed(used.saturating_neg()));
        if let Some((decision, next)) = limit.take_plain(bucket, now) {
            let any = limit.decide(Some(bucket), now, Operation::Take { cost: 1 });
            prop_assert_eq!((decision, Some(next)), any);
        }
    }

    #[test]
    fn a_leaky_bucket_answers_as_its_model((rate, burst, calls) in numbers_and_calls()) {
        model::agrees(leaky(rate, burst), Fluid::leaky_bucket(rate, burst), &calls)?;
    }

    #[test]
    fn a_stepped_bucket_answers_as_its_model((rate, burst, calls) in numbers_and_calls()) {
        model::agrees(stepped(rate, burst), Worker::new(rate, burst), &calls)?;
    }

    #[test]
    fn the_wait_is_exact(
        (rate, burst, calls) in numbers_and_calls(),
        late in 0..=SKEW_MAX.as_micros(),
        cost in 0..200_u64,
    ) {
        let late = Span::from_micros(late);
        for driver in [token(rate, burst), leaky(rate, burst), stepped(rate, burst)] {
            claims::waits_are_exact(driver, &calls, late, cost)?;
        }
    }

    #[test]
    fn a_refund_gives_back_what_was_taken_and_never_more_than_all(
        (rate, burst, calls) in numbers_and_calls(),
        cost in 0..200_u64,
        excess in any::<u64>(),
    ) {
        for driver in [token(rate, burst), leaky(rate, burst), stepped(rate, burst)] {
            claims::refunds_give_back_what_was_taken(driver, &calls, cost, excess)?;
        }
    }

    #[test]
    fn a_clock_set_back_by_an_hour_gives_nothing_away_and_locks_nobody_out(
        (rate, burst, calls) in numbers_and_takes(),
        cost in 1..200_u64,
        back in SKEW_MAX.as_micros()..2 * Span::HOUR.as_micros(),
    ) {
        let cost = cost.min(burst);
        let back = Span::from_micros(back);
        let check = claims::setting_the_clock_back_gives_nothing_and_locks_nobody_out;
        let longest = time_of(cost, rate).plus(SKEW_MAX).plus(Span::TICK);
        check(token(rate, burst), &calls, back, cost, longest)?;
        check(leaky(rate, burst), &calls, back, cost, longest)?;
        let period = rate.period().as_micros();
        let steps = cost.div_ceil(rate.count()) + SKEW_MAX.as_micros().div_ceil(period);
        let longest = Span::from_micros(steps.saturating_mul(period));
        check(stepped(rate, burst), &calls, back, cost, longest)?;
    }

    /// For every stretch of admitted takes: the time from its earliest to its latest pays for what is
    /// more than the burst. Late calls are in it, with the times that they came with.
    #[test]
    fn never_over_in_any_time((rate, burst, calls) in numbers_and_takes()) {
        for driver in [token(rate, burst), leaky(rate, burst)] {
            never_over(driver, &calls, |spent, from, to| {
                let passed = i128::from(to.since(from).as_micros());
                let period = i128::from(rate.period().as_micros());
                (spent - i128::from(burst)) * period <= passed * i128::from(rate.count())
            })?;
        }
        never_over(stepped(rate, burst), &calls, |spent, from, to| {
            let step = |time: Timestamp| i128::from(time.as_micros() / rate.period().as_micros());
            spent <= i128::from(burst) + (step(to) - step(from)) * i128::from(rate.count())
        })?;
    }

    /// The clock is set back again and again, and what is admitted is measured by the time that
    /// really passed.
    #[test]
    fn never_over_in_real_time_while_the_clock_is_set_back(
        (rate, burst) in numbers(),
        calls in prop::collection::vec((0..1_500_u64, 0..8_u32, 1..20_u64), 1..60),
    ) {
        let mut driver = token(rate, burst);
        let (mut real, mut clock) = (0_u64, model::START);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for (thousandths, set_back, cost) in calls {
            let gap = time_of(burst, rate).as_micros() / 1_000 * thousandths / 10;
            real += gap;
            clock = clock.plus(Span::from_micros(gap));
            if set_back == 0 {
                clock = clock.minus(Span::HOUR);
            }
            if driver.decide(clock, Operation::Take { cost }).is_allowed() {
                admitted.push((real, cost));
            }
        }
        for first in 0..admitted.len() {
            let mut spent = 0_u64;
            for &(at, cost) in &admitted[first..] {
                spent += cost;
                let refill = u128::from(at - admitted[first].0) * u128::from(rate.count())
                    / u128::from(rate.period().as_micros());
                prop_assert!(u128::from(spent) <= u128::from(burst) + refill);
            }
        }
    }

    /// The whole history is played again without the charge that is given back: the bucket then
    /// holds at least what the refund leaves.
    #[test]
    fn a_late_refund_never_leaves_more_than_if_nothing_had_been_taken(
        (rate, burst) in numbers(),
        calls in prop::collection::vec((model::forward(), 0..50_u64), 1..20),
        taken in any::<prop::sample::Index>(),
    ) {
        let mut driver = token(rate, burst);
        let mut charges = Vec::new();
        for (gap, cost) in calls {
            let (now, _, decision) = driver.call((gap, Ask::Take(cost)));
            if decision.is_allowed() {
                charges.push((now, cost));
            }
        }
        prop_assume!(!charges.is_empty());
        let (taken_at, cost) = charges.remove(taken.index(charges.len()));
        let now = driver.latest;
        let left = driver.decide(now, Operation::Refund { cost, taken_at }).remaining;
        let mut without = Fluid::token_bucket(rate, burst);
        for (at, cost) in charges {
            without.pass_to(at);
            without.spend(cost);
        }
        without.pass_to(now);
        prop_assert!(exact(left) <= exact(burst) - without.missing());
    }

    #[test]
    fn a_raised_burst_adds_no_more_than_it_was_raised_by(
        (rate, old) in numbers(),
        new in 1..300_u64,
    ) {
        let token = |burst| Limit::from(TokenBucket::new(rate, burst).unwrap());
        let stepped = |burst| Limit::from(SteppedBucket::new(rate, burst).unwrap());
        let added = new.saturating_sub(old);
        let now = model::START;
        prop_assert!(claims::left_after_a_change(&token(old), &token(new), now) <= added);
        prop_assert!(claims::left_after_a_change(&stepped(old), &stepped(new), now) <= added);
    }

    /// `10/minute` has a burst of 10. After `10/minute` is used up, `1000/minute` leaves nothing
    /// either, and `1/minute` does not.
    #[test]
    fn a_changed_count_with_a_burst_of_the_same_number_leaves_nothing(
        old in 1..300_u64,
        new in 1..300_u64,
        period in model::period(),
    ) {
        let bucket = |count| {
            TokenBucket::new(Rate::new(count, period).unwrap(), count).map(Limit::from)
        };
        if let (Ok(old), Ok(new)) = (bucket(old), bucket(new)) {
            prop_assert_eq!(claims::left_after_a_change(&old, &new, model::START), 0);
        }
        let stepped = |count| {
            Limit::from(SteppedBucket::new(Rate::new(count, period).unwrap(), count).unwrap())
        };
        let left = claims::left_after_a_change(&stepped(old), &stepped(new), model::START);
        prop_assert!(left <= new.saturating_sub(old));
    }

    /// Somebody takes as much as possible as soon as possible, for up to a billion tokens.
    #[test]
    fn the_long_run_rate_is_within_one_part_in_a_million(
        count in prop_oneof![1..100_u64, 1..10_000_000_u64, 1..=1_u64 << 44],
        period in prop_oneof![model::period(), (1..400_u64).prop_map(|d| Span::from_secs(d * 86_400))],
        cost in 1..1_000_000_u64,
    ) {
        let rate = Rate::new(count, period).unwrap();
        // So that a thousand bursts come back long before the end of time.
        let most = (u128::from(count) << 50) / u128::from(period.as_micros());
        let cost = cost.min(u64::try_from(most).unwrap_or(u64::MAX)).max(1);
        // So that the bucket does not overflow between the moment at which the cost is there and
        // the tick at which it can be taken.
        let burst = cost + count.div_ceil(period.as_micros());
        let limit = match TokenBucket::new(rate, burst) {
            Ok(limit) => limit,
            Err(LimitError::RateTooFine) => {
                let (count, micros) = (u128::from(count), u128::from(period.as_micros()));
                prop_assert!(count > 10 * micros, "10 million per second and less are kept");
                return Ok(());
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        let start = Timestamp::from_secs(1);
        let (mut now, mut state) = (start, None);
        let target = u128::from(burst) + 1_000 * u128::from(cost);
        let mut admitted = 0_u128;
        while admitted < target {
            let (decision, next) = limit.decide(state, now, Operation::Take { cost });
            state = next;
            match decision.verdict {
                Verdict::Allow { .. } => admitted += u128::from(cost),
                Verdict::Deny { retry_after } => now = now.plus(retry_after),
                Verdict::NeverFits => unreachable!("the cost is at most the burst"),
            }
        }
        // What was there at the start took no time.
        let passed = u128::from(now.since(start).as_micros()) * u128::from(count);
        let due = (admitted - u128::from(burst)) * u128::from(period.as_micros());
        prop_assert!(passed >= due, "faster than configured");
        let tick = u128::from(count);
        prop_assert!(passed - due <= due / 1_000_000 + tick, "slower than configured");
    }
}

/// Checks `within(spent, from, to)` for every stretch of admitted takes.
fn never_over(
    mut driver: Driver,
    calls: &[Call],
    within: impl Fn(i128, Timestamp, Timestamp) -> bool,
) -> Result<(), TestCaseError> {
    let mut admitted = Vec::new();
    for &call in calls {
        let (now, operation, decision) = driver.call(call);
        if decision.is_allowed() {
            admitted.push((now, operation.cost()));
        }
    }
    for first in 0..admitted.len() {
        let (mut from, mut to) = (admitted[first].0, admitted[first].0);
        let mut spent = 0;
        for &(at, cost) in &admitted[first..] {
            (from, to) = (from.min(at), to.max(at));
            spent += i128::from(cost);
            prop_assert!(within(spent, from, to), "{spent} from {from:?} to {to:?}");
        }
    }
    Ok(())
}

#[test]
fn the_largest_debit_empties_even_the_deepest_bucket() {
    let rate = Rate::new(1, Span::SECOND).unwrap();
    let limit = TokenBucket::new(rate, 4_611_000_000_000).unwrap();
    let now = Timestamp::from_secs(1_700_000_000);
    let (decision, state) = limit.decide(None, now, Operation::Debit { cost: u64::MAX });
    assert_eq!(decision.remaining, 0);
    assert!(!limit.decide(state, now, Operation::Take { cost: 1 }).0.is_allowed());
}

#[test]
fn a_stepped_bucket_admits_exactly_its_count_per_period_in_the_long_run() {
    let rate = Rate::new(7, Span::from_millis(300)).unwrap();
    let mut driver = stepped(rate, 10);
    while driver.call((Gap::Ticks(0), Ask::Take(1))).2.is_allowed() {}
    let mut admitted = 0;
    while driver.latest < model::START.plus(Span::from_secs(3_000)) {
        let (_, _, decision) = driver.call((Gap::Ticks(0), Ask::Take(1)));
        admitted += u64::from(decision.is_allowed());
        driver.latest = driver.latest.plus(decision.retry_after().unwrap_or(Span::ZERO));
    }
    assert_eq!(admitted, 7 * 10_000);
}

#[test]
fn takes_of_one_at_a_pace_of_whole_ticks_are_plain_until_the_bucket_is_full_again() {
    let limit = TokenBucket::new(Rate::new(10, Span::SECOND).unwrap(), 3).unwrap();
    let take = Operation::Take { cost: 1 };
    let (first, state) = limit.decide(None, Timestamp::from_secs(1), take);
    assert!(first.is_allowed());
    let mut bucket = state.unwrap();
    for allowed in [true, true, false, false] {
        let (decision, next) = limit.take_plain(bucket, Timestamp::from_secs(1)).unwrap();
        assert_eq!(decision.is_allowed(), allowed);
        assert_eq!(next == bucket, !allowed, "a denial changes nothing");
        bucket = next;
    }
    assert_eq!(limit.take_plain(bucket, Timestamp::from_secs(2)), None, "full");
}
