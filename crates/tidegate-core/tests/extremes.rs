//! Numbers that nobody uses and states that nobody wrote: no panic, no overflow, and no nonsense.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

mod model;

use proptest::prelude::*;
use tidegate_core::calendar::{Calendar, CalendarUnit, Transition, Zone};
use tidegate_core::fixed_window::{Window, Windows};
use tidegate_core::sliding_window::Counters;
use tidegate_core::stepped_bucket::Steps;
use tidegate_core::token_bucket::Bucket;
use tidegate_core::{
    FixedWindow, LeakyBucket, LeaseId, Limit, Operation, Rate, SlidingWindow, Span, State,
    SteppedBucket, Timestamp, TokenBucket, Verdict,
};

/// Any number, with those near the edges of something more often than by chance.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => any::<u64>(),
        2 => 0..3_u64,
        3 => (0..64_u32, -2..3_i64).prop_map(|(bit, off)| (1_u64 << bit).wrapping_add_signed(off)),
        1 => (0..3_u64).prop_map(|off| u64::MAX - off),
    ]
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    number().prop_map(Timestamp::from_micros)
}

fn span() -> impl Strategy<Value = Span> {
    number().prop_map(Span::from_micros)
}

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![
        4 => (number(), span()).prop_filter_map("not a rate", |(c, p)| Rate::new(c, p).ok()),
        1 => Just(Rate::new(1, Span::from_secs(365 * 86_400)).unwrap()),
        1 => Just(Rate::new(10_000_000, Span::SECOND).unwrap()),
        1 => Just(Rate::new(Rate::COUNT_MAX, Rate::PERIOD_MAX).unwrap()),
    ]
}

fn zone() -> impl Strategy<Value = Zone> {
    let offset = -Zone::OFFSET_MAX..=Zone::OFFSET_MAX;
    let at = prop_oneof![any::<i64>(), -200_000..200_000_i64, Just(i64::MIN), Just(i64::MAX)];
    let transitions = prop::collection::btree_map(at, offset.clone(), 0..12);
    (offset, transitions).prop_map(|(first, transitions)| {
        let transitions: Vec<Transition> = transitions.into_iter().collect();
        Zone::from_transitions("Test/Wild", first, transitions).unwrap()
    })
}

fn calendar() -> impl Strategy<Value = Calendar> {
    let unit = prop_oneof![
        Just(CalendarUnit::Day),
        Just(CalendarUnit::Week),
        Just(CalendarUnit::Month),
        Just(CalendarUnit::Year),
    ];
    (unit, zone()).prop_map(|(unit, zone)| Calendar::new(unit, zone))
}

fn limit() -> impl Strategy<Value = Limit> {
    let burst = || prop_oneof![number(), Just(1_u64 << 40)];
    let windows = prop_oneof![
        span().prop_map(Windows::Clock),
        span().prop_map(Windows::FirstRequest),
        calendar().prop_map(Windows::Calendar),
    ];
    prop_oneof![
        (rate(), burst())
            .prop_filter_map("", |(r, b)| TokenBucket::new(r, b).ok().map(Limit::from)),
        (rate(), burst())
            .prop_filter_map("", |(r, b)| LeakyBucket::new(r, b).ok().map(Limit::from)),
        (rate(), burst())
            .prop_filter_map("", |(r, b)| SteppedBucket::new(r, b).ok().map(Limit::from)),
        (number(), windows)
            .prop_filter_map("", |(c, w)| FixedWindow::new(c, w).ok().map(Limit::from)),
        rate().prop_filter_map("", |r| SlidingWindow::new(r).ok().map(Limit::from)),
    ]
}

/// A state as a damaged file may hold it, of the kind that the limit reads.
fn state(limit: &Limit) -> BoxedStrategy<Option<State>> {
    let state = match limit {
        Limit::TokenBucket(_) | Limit::LeakyBucket(_) => (number(), any::<u32>(), any::<bool>())
            .prop_map(|(full_at_micros, full_at_fraction, in_debt)| {
                State::Bucket(Bucket { full_at_micros, full_at_fraction, in_debt })
            })
            .boxed(),
        Limit::SteppedBucket(_) => (timestamp(), number(), any::<bool>())
            .prop_map(|(full_at, part, in_debt)| State::Steps(Steps { full_at, part, in_debt }))
            .boxed(),
        Limit::FixedWindow(_) => (timestamp(), number())
            .prop_map(|(ends_at, count)| State::Window(Window { ends_at, count }))
            .boxed(),
        Limit::SlidingWindow(_) => (timestamp(), number(), number())
            .prop_map(|(ends_at, previous, current)| {
                State::Counters(Counters { ends_at, previous, current })
            })
            .boxed(),
        Limit::SlidingSlots(_) | Limit::SlidingLog(_) | Limit::Concurrency(_) => {
            unreachable!("these have their own tests")
        }
    };
    prop::option::weighted(0.9, state).boxed()
}

fn operation() -> impl Strategy<Value = Operation> {
    let cost = || prop_oneof![number(), Just(1_u64 << 63)];
    prop_oneof![
        4 => cost().prop_map(|cost| Operation::Take { cost }),
        1 => cost().prop_map(|cost| Operation::Peek { cost }),
        2 => cost().prop_map(|cost| Operation::Debit { cost }),
        2 => (cost(), timestamp())
            .prop_map(|(cost, taken_at)| Operation::Refund { cost, taken_at }),
        1 => Just(Operation::Release { lease: LeaseId::from_u64(1).unwrap() }),
        1 => Just(Operation::Renew { lease: LeaseId::from_u64(1).unwrap() }),
    ]
}

proptest! {
    #![proptest_config(model::cases(10_000))]

    #[test]
    fn any_limit_answers_any_operation_on_any_state_at_any_time(
        (limit, state) in limit().prop_flat_map(|limit| {
            let state = state(&limit);
            (Just(limit), state)
        }),
        calls in prop::collection::vec((timestamp(), operation()), 1..8),
    ) {
        let mut state = state;
        for (now, operation) in calls {
            let (decision, next) = limit.decide(state, now, operation);
            prop_assert!(decision.remaining <= decision.limit);
            let fits = operation.cost() <= decision.limit;
            let asks = matches!(operation, Operation::Take { .. } | Operation::Peek { .. });
            prop_assert_eq!(decision.verdict == Verdict::NeverFits, asks && !fits);
            prop_assert!(asks || decision.is_allowed());
            state = next;
        }
    }

    /// Within the times that a clock will ever show, a denial's wait is right for any state.
    #[test]
    fn a_wait_that_ends_before_the_end_of_time_is_long_enough(
        (limit, state) in limit().prop_flat_map(|limit| {
            let state = state(&limit);
            (Just(limit), state)
        }),
        now in 0..1_u64 << 52,
        cost in number(),
    ) {
        let now = Timestamp::from_micros(now);
        let (decision, next) = limit.decide(state, now, Operation::Take { cost });
        if let Some(retry_after) = decision.retry_after()
            && retry_after < Span::from_micros(1 << 60)
        {
            let (retry, _) = limit.decide(next, now.plus(retry_after), Operation::Take { cost });
            prop_assert!(retry.is_allowed());
        }
    }

    #[test]
    fn any_calendar_has_a_window_around_any_time(calendar in calendar(), now in timestamp()) {
        let (start, end) = calendar.window_containing(now);
        prop_assert!(start <= now);
        prop_assert!(now < end || end == Timestamp::MAX);
        if end < Timestamp::MAX {
            prop_assert_eq!(calendar.window_containing(end).0, end);
        }
        prop_assert_eq!(calendar.window_containing(start).0, start);
    }
}

#[test]
fn one_per_year_and_ten_million_per_second_keep_their_numbers() {
    let yearly = Rate::new(1, Span::from_secs(365 * 86_400)).unwrap();
    let limit = TokenBucket::new(yearly, 1).unwrap();
    let take = Operation::Take { cost: 1 };
    let (_, state) = limit.decide(None, model::START, take);
    let (denied, _) = limit.decide(state, model::START, take);
    assert_eq!(denied.retry_after(), Some(yearly.period()));

    let fast = Rate::new(10_000_000, Span::SECOND).unwrap();
    let limit = TokenBucket::new(fast, 1 << 40).unwrap();
    let all = Operation::Take { cost: 1 << 40 };
    let (_, state) = limit.decide(None, model::START, all);
    let (tenth, _) =
        limit.decide(state, model::START.plus(Span::TICK), Operation::Peek { cost: 11 });
    assert_eq!((tenth.remaining, tenth.retry_after()), (10, Some(Span::TICK)));
}
