//! The fixed and the sliding window against their models, and what they promise.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

mod model;

use model::windows::{FixedModel, SlidingModel};
use model::{Ask, Call, Driver, Gap, claims};
use proptest::prelude::*;
use tidegate_core::calendar::{Calendar, CalendarUnit, Zone};
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    FixedWindow, Limit, Operation, Rate, SKEW_MAX, SlidingWindow, Span, State, Timestamp,
};

type Numbers = (u64, Span);

fn numbers_and_calls() -> impl Strategy<Value = (Numbers, Vec<Call>)> {
    (1..200_u64, model::period())
        .prop_flat_map(|(count, length)| (Just((count, length)), model::calls(count)))
}

fn numbers_and_takes() -> impl Strategy<Value = (Numbers, Vec<Call>)> {
    (1..200_u64, model::period())
        .prop_flat_map(|(count, length)| (Just((count, length)), model::takes(count)))
}

fn clock((count, length): Numbers) -> Driver {
    Driver::new(FixedWindow::new(count, Windows::Clock(length)).unwrap(), length)
}

fn first_request((count, length): Numbers) -> Driver {
    Driver::new(FixedWindow::new(count, Windows::FirstRequest(length)).unwrap(), length)
}

fn sliding((count, length): Numbers) -> Driver {
    let rate = Rate::new(count, length).unwrap();
    Driver::new(SlidingWindow::new(rate).unwrap(), length)
}

proptest! {
    #![proptest_config(model::cases(1_000))]

    #[test]
    fn a_fixed_window_of_the_clock_answers_as_its_model((numbers, calls) in numbers_and_calls()) {
        let windows = Windows::Clock(numbers.1);
        model::agrees(clock(numbers), FixedModel::new(numbers.0, windows), &calls)?;
    }

    #[test]
    fn a_window_from_the_first_request_answers_as_its_model(
        (numbers, calls) in numbers_and_calls(),
    ) {
        let windows = Windows::FirstRequest(numbers.1);
        model::agrees(first_request(numbers), FixedModel::new(numbers.0, windows), &calls)?;
    }

    #[test]
    fn a_sliding_window_answers_as_its_model((numbers, calls) in numbers_and_calls()) {
        let rate = Rate::new(numbers.0, numbers.1).unwrap();
        model::agrees(sliding(numbers), SlidingModel::new(rate), &calls)?;
    }

    #[test]
    fn the_day_of_utc_is_a_window_of_24_hours(
        (count, calls) in (1..200_u64).prop_flat_map(|count| (Just(count), model::calls(count))),
    ) {
        let day = Windows::Calendar(Calendar::new(CalendarUnit::Day, Zone::utc()));
        let driver = Driver::new(FixedWindow::new(count, day).unwrap(), Span::DAY);
        model::agrees(driver, FixedModel::new(count, Windows::Clock(Span::DAY)), &calls)?;
    }

    #[test]
    fn the_wait_is_exact(
        (numbers, calls) in numbers_and_calls(),
        late in 0..=SKEW_MAX.as_micros(),
        cost in 0..200_u64,
    ) {
        let late = Span::from_micros(late);
        for driver in [clock(numbers), first_request(numbers), sliding(numbers)] {
            claims::waits_are_exact(driver, &calls, late, cost)?;
        }
    }

    #[test]
    fn a_refund_gives_back_what_was_taken_and_never_more_than_all(
        (numbers, calls) in numbers_and_calls(),
        cost in 0..200_u64,
        excess in any::<u64>(),
    ) {
        for driver in [clock(numbers), first_request(numbers), sliding(numbers)] {
            claims::refunds_give_back_what_was_taken(driver, &calls, cost, excess)?;
        }
    }

    /// A set-back by no more than one window is taken for lateness, and then costs that window.
    #[test]
    fn a_clock_set_back_gives_nothing_away_and_locks_nobody_out(
        (numbers, calls) in numbers_and_takes(),
        cost in 1..200_u64,
        back in SKEW_MAX.as_micros()..2 * Span::HOUR.as_micros(),
    ) {
        let (count, length) = numbers;
        let (cost, back) = (cost.min(count), Span::from_micros(back));
        let ahead = if back > SKEW_MAX.plus(length).plus(length) {
            Span::ZERO
        } else {
            length.max(SKEW_MAX)
        };
        let check = claims::setting_the_clock_back_gives_nothing_and_locks_nobody_out;
        let longest = length.plus(ahead);
        check(clock(numbers), &calls, back, cost, longest)?;
        check(first_request(numbers), &calls, back, cost, longest)?;
        check(sliding(numbers), &calls, back, cost, longest.plus(length))?;
    }

    /// However often the clock is set back, only its running over an edge opens a new window.
    #[test]
    fn setting_the_clock_back_never_opens_a_window(
        (count, length) in (1..20_u64, model::period()),
        calls in prop::collection::vec((0..1_500_u64, 0..8_u32, 1..20_u64), 1..80),
    ) {
        for mut driver in [clock((count, length)), sliding((count, length))] {
            let mut admitted = 0;
            let mut now = model::START;
            for &(thousandths, set_back, cost) in &calls {
                let window = now.as_micros() / length.as_micros();
                now = if set_back == 0 {
                    now.minus(Span::HOUR)
                } else {
                    now.plus(Span::from_micros(length.as_micros() * thousandths / 4_000))
                };
                if now.as_micros() / length.as_micros() > window {
                    admitted = 0;
                }
                if driver.decide(now, Operation::Take { cost }).is_allowed() {
                    admitted += cost;
                }
                prop_assert!(admitted <= count);
            }
        }
    }

    /// Late calls count in the window that the others have reached.
    #[test]
    fn never_over_in_any_window_of_the_clock((numbers, calls) in numbers_and_takes()) {
        let (count, length) = numbers;
        let mut driver = clock(numbers);
        let (mut window, mut spent) = (0, 0);
        for call in calls {
            let (_, operation, decision) = driver.call(call);
            let reached = driver.latest.as_micros() / length.as_micros();
            if reached != window {
                (window, spent) = (reached, 0);
            }
            spent += if decision.is_allowed() { operation.cost() } else { 0 };
            prop_assert!(spent <= count);
        }
    }

    #[test]
    fn never_over_in_any_window_from_a_first_request((numbers, calls) in numbers_and_takes()) {
        let (count, length) = numbers;
        let mut driver = first_request(numbers);
        let (mut ends_at, mut spent) = (Timestamp::ZERO, 0);
        for call in calls {
            let (_, operation, decision) = driver.call(call);
            if driver.latest >= ends_at {
                (ends_at, spent) = (driver.latest.plus(length), 0);
            }
            spent += if decision.is_allowed() { operation.cost() } else { 0 };
            prop_assert!(spent <= count);
            let open = matches!(&driver.state, Some(State::Window(open)) if open.ends_at == ends_at);
            prop_assert!(open, "the window ends when it was said to");
        }
    }

    /// The bound that the documentation proves: `N + N * d / W` in any time `d`.
    #[test]
    fn a_sliding_window_is_never_over_its_bound_in_any_time((numbers, calls) in numbers_and_takes()) {
        let (count, length) = numbers;
        let mut driver = sliding(numbers);
        let mut admitted: Vec<(u64, u64)> = Vec::new();
        for call in calls {
            let (_, operation, decision) = driver.call(call);
            if decision.is_allowed() {
                admitted.push((driver.latest.as_micros(), operation.cost()));
            }
        }
        let (count, length) = (u128::from(count), u128::from(length.as_micros()));
        for first in 0..admitted.len() {
            let mut spent = 0;
            for &(to, cost) in &admitted[first..] {
                spent += u128::from(cost);
                let passed = u128::from(to - admitted[first].0);
                prop_assert!(spent * length <= count * (length + passed));
            }
        }
    }

    #[test]
    fn a_raised_count_adds_no_more_than_it_was_raised_by(
        old in 1..300_u64,
        new in 1..300_u64,
        length in model::period(),
    ) {
        for make in [clock, first_request, sliding] {
            let (old_limit, new_limit) = (make((old, length)).limit, make((new, length)).limit);
            let left = claims::left_after_a_change(&old_limit, &new_limit, model::START);
            prop_assert_eq!(left, new.saturating_sub(old));
        }
    }
}

/// How much somebody gets who takes one as soon as there is one, in so many windows.
fn greedy(mut driver: Driver, length: Span, windows: u64) -> u64 {
    let end = model::START.plus(Span::from_micros(windows * length.as_micros()));
    let mut admitted = 0;
    while driver.latest < end {
        let (_, _, decision) = driver.call((Gap::Ticks(0), Ask::Take(1)));
        admitted += u64::from(decision.is_allowed());
        driver.latest = driver.latest.plus(decision.retry_after().unwrap_or(Span::ZERO));
    }
    admitted
}

#[test]
fn a_fixed_window_admits_exactly_its_count_per_window_in_the_long_run() {
    let numbers = (7, Span::from_millis(250));
    assert_eq!(greedy(clock(numbers), numbers.1, 10_000), 70_000);
    assert_eq!(greedy(first_request(numbers), numbers.1, 10_000), 70_000);
}

/// Of what was spent in the previous window, a little weighs until the very end of this one, which
/// leaves no room for the last of the count.
#[test]
fn a_sliding_window_admits_one_less_than_its_count_per_window_in_the_long_run() {
    for count in [2, 10, 100] {
        let numbers = (count, Span::SECOND);
        let first = 1;
        assert_eq!(greedy(sliding(numbers), numbers.1, 1_000), 1_000 * (count - 1) + first);
    }
    let one = (1, Span::SECOND);
    assert_eq!(greedy(sliding(one), one.1, 1_000), 500, "one in every second window");
}

#[test]
fn a_sliding_window_can_admit_nearly_twice_its_count_in_one_window_length() {
    let length = Span::SECOND;
    let limit = Limit::from(SlidingWindow::new(Rate::new(10, length).unwrap()).unwrap());
    let burst_at = model::START.minus(Span::TICK);
    let mut state = claims::exhaust(&limit, burst_at);
    let (mut now, mut admitted) = (burst_at, 10);
    while now.since(burst_at) < length {
        let (decision, next) = limit.decide(state, now, Operation::Take { cost: 1 });
        admitted += u64::from(decision.is_allowed());
        now = now.plus(decision.retry_after().unwrap_or(Span::ZERO));
        state = next;
    }
    assert_eq!(admitted, 2 * 10 - 1);
}
