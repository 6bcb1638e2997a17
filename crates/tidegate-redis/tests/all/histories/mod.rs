//! Random histories: limits of every algorithm with numbers from ordinary to absurd, and calls on them
//! at times that mostly go forward.

#![allow(unreachable_pub, reason = "a module of a test")]

use proptest::prelude::*;
use tidegate_core::calendar::{Calendar, CalendarUnit, Zone};
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, FixedWindow, LeakyBucket, Limit, Rate, SlidingLog, SlidingSlots, SlidingWindow,
    Span, SteppedBucket, Timestamp, TokenBucket,
};

/// The latest time that a script works with.
pub const TIME_MAX: u64 = 1 << 52;

/// Who is counted, under a limit whose numbers may be changed to others and back.
#[derive(Clone, Debug)]
pub struct Subject {
    pub limit: Limit,
    pub changed: Limit,
}

/// One request.
#[derive(Clone, Debug)]
pub struct Call {
    pub step: Step,
    /// What is asked of which subject; the first of several that name one subject counts.
    pub asks: Vec<(prop::sample::Index, Ask)>,
    /// Whether the changed limits are in force.
    pub changed: bool,
    /// How many requests like this come together.
    pub repeats: usize,
}

/// When a call comes, seen from the call before it.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Ticks(u64),
    /// So many thousandths of the first subject's own time.
    Thousandths(u64),
    BackTicks(u64),
    BackThousandths(u64),
}

/// What a call asks of a subject.
#[derive(Clone, Debug)]
pub enum Ask {
    Take(Cost),
    Peek(Cost),
    Debit(Cost),
    /// So much, of something taken so many calls ago or, where that is none, at any time.
    Refund(Cost, usize, u64),
    /// A lease that was given, or a number that may be none.
    Release(prop::sample::Index, u64),
    /// The same.
    Renew(prop::sample::Index, u64),
}

#[derive(Clone, Copy, Debug)]
pub enum Cost {
    Exactly(u64),
    /// So many thousandths of what the limit can have left.
    Thousandths(u64),
}

#[derive(Clone, Debug)]
pub struct History {
    pub start: Timestamp,
    pub subjects: Vec<Subject>,
    pub calls: Vec<Call>,
}

/// Histories of one to three subjects under limits of these.
pub fn history(subject: impl Strategy<Value = Subject>) -> impl Strategy<Value = History> {
    let start = prop_oneof![
        2 => Just(1_790_553_600_000_000),
        2 => 1_000_000_000_000_000..2_000_000_000_000_000_u64,
        1 => 0..3_000_000_u64,
        1 => number().prop_map(|micros| micros % TIME_MAX),
        1 => Just(TIME_MAX - 10_000_000),
    ];
    let subjects = prop_oneof![
        3 => prop::collection::vec(subject, 1..=3)
    ];
    (start, subjects, prop::collection::vec(call(), 1..70)).prop_map(|(start, subjects, calls)| {
        History { start: Timestamp::from_micros(start), subjects, calls }
    })
}

fn call() -> impl Strategy<Value = Call> {
    let asks = prop::collection::vec((any::<prop::sample::Index>(), ask()), 1..=3);
    let repeats = prop_oneof![12 => Just(1), 3 => 2..6_usize, 1 => 6..40_usize];
    (step(), asks, prop::bool::weighted(0.1), repeats)
        .prop_map(|(step, asks, changed, repeats)| Call { step, asks, changed, repeats })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Ticks(0)),
        2 => (0..5_u64).prop_map(Step::Ticks),
        6 => (0..1_000_u64).prop_map(Step::Thousandths),
        2 => (0..4_000_u64).prop_map(Step::Thousandths),
        1 => number().prop_map(|ticks| Step::Ticks(ticks % TIME_MAX)),
        1 => (0..2_000_000_u64).prop_map(Step::BackTicks),
        1 => (999_998..1_000_003_u64).prop_map(Step::BackTicks),
        1 => (0..4_000_u64).prop_map(Step::BackThousandths),
        1 => number().prop_map(|ticks| Step::BackTicks(ticks % TIME_MAX)),
    ]
}

fn ask() -> impl Strategy<Value = Ask> {
    let at = || prop_oneof![Just(1_790_553_600_000_000), number()];
    prop_oneof![
        8 => cost().prop_map(Ask::Take),
        1 => cost().prop_map(Ask::Peek),
        2 => cost().prop_map(Ask::Debit),
        2 => (cost(), 0..12_usize, at()).prop_map(|(cost, ago, at)| Ask::Refund(cost, ago, at)),
        1 => (any::<prop::sample::Index>(), number())
            .prop_map(|(index, number)| Ask::Release(index, number)),
        1 => (any::<prop::sample::Index>(), number())
            .prop_map(|(index, number)| Ask::Renew(index, number)),
    ]
}

fn cost() -> impl Strategy<Value = Cost> {
    prop_oneof![
        6 => (0..4_u64).prop_map(Cost::Exactly),
        2 => (0..30_u64).prop_map(Cost::Exactly),
        3 => (0..1_002_u64).prop_map(Cost::Thousandths),
        1 => number().prop_map(Cost::Exactly),
    ]
}

/// Any number, with those near the powers of two more often than by chance.
pub fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => any::<u64>(),
        2 => 0..3_u64,
        3 => (0..64_u32, -2..3_i64).prop_map(|(bit, off)| (1_u64 << bit).wrapping_add_signed(off)),
        1 => (0..3_u64).prop_map(|off| u64::MAX - off),
    ]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..12_u64,
        2 => 1..2_000_u64,
        1 => prop::sample::select(vec![1_000_003, 86_399, 600_000_007, 16_777_259]),
        2 => number(),
    ]
}

fn period() -> impl Strategy<Value = Span> {
    let known = [1_000, 1_000_000, 3_000_000, 60_000_000, 3_600_000_000, 86_400_000_000];
    prop_oneof![
        4 => prop::sample::select(known.to_vec()),
        1 => 1..10_000_u64,
        1 => 1..100_000_000_000_u64,
        1 => number().prop_map(|micros| micros % (Rate::PERIOD_MAX.as_micros() + 1)),
    ]
    .prop_map(Span::from_micros)
}

/// Two limits of one algorithm and one period.
fn pair<L: Into<Limit>>(
    numbers: impl Strategy<Value = (u64, u64, u64, u64, Span)>,
    make: impl Fn(u64, u64, Span) -> Option<L>,
) -> impl Strategy<Value = Subject> {
    numbers.prop_filter_map("numbers of no limit", move |(count, burst, other, more, period)| {
        let limit = make(count, burst, period)?.into();
        let changed = make(other, more, period).map_or_else(|| limit.clone(), Into::into);
        Some(Subject { limit, changed })
    })
}

fn numbers() -> impl Strategy<Value = (u64, u64, u64, u64, Span)> {
    (count(), count(), count(), count(), period())
}

fn rate(count: u64, period: Span) -> Option<Rate> {
    Rate::new(count, period).ok()
}

pub fn token_bucket() -> impl Strategy<Value = Subject> {
    pair(numbers(), |count, burst, period| TokenBucket::new(rate(count, period)?, burst).ok())
}

pub fn leaky_bucket() -> impl Strategy<Value = Subject> {
    pair(numbers(), |count, burst, period| LeakyBucket::new(rate(count, period)?, burst).ok())
}

pub fn stepped_bucket() -> impl Strategy<Value = Subject> {
    pair(numbers(), |count, burst, period| SteppedBucket::new(rate(count, period)?, burst).ok())
}

pub fn fixed_window() -> impl Strategy<Value = Subject> {
    let clock =
        pair(numbers(), |count, _, length| FixedWindow::new(count, Windows::Clock(length)).ok());
    let first = pair(numbers(), |count, _, length| {
        FixedWindow::new(count, Windows::FirstRequest(length)).ok()
    });
    prop_oneof![clock, first, calendar_window()]
}

fn calendar_window() -> impl Strategy<Value = Subject> {
    let units =
        [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year].to_vec();
    let offset = -50_000..50_000_i32;
    let changes =
        prop::collection::btree_map(1_780_000_000..1_800_000_000_i64, offset.clone(), 0..40);
    (count(), count(), prop::sample::select(units), offset, changes).prop_filter_map(
        "a count of no limit",
        |(count, other, unit, offset, changes)| {
            let zone = Zone::from_transitions("Test/Wild", offset, changes).ok()?;
            let windows = Windows::Calendar(Calendar::new(unit, zone));
            let limit = Limit::from(FixedWindow::new(count, windows.clone()).ok()?);
            let changed = FixedWindow::new(other, windows).map_or(limit.clone(), Limit::from);
            Some(Subject { limit, changed })
        },
    )
}

pub fn sliding_window() -> impl Strategy<Value = Subject> {
    pair(numbers(), |count, _, period| SlidingWindow::new(rate(count, period)?).ok())
}

pub fn sliding_slots() -> impl Strategy<Value = Subject> {
    let slots = || prop_oneof![4 => 2..13_u32, 1 => prop::sample::select(vec![60, 100, 1024_u32])];
    let per_slot = || prop::option::of(count());
    (count(), count(), period(), slots(), slots(), per_slot()).prop_filter_map(
        "numbers of no slots",
        |(count, other, period, slots, more, per_slot)| {
            // A period that both numbers of slots divide.
            let both = u64::from(slots) * u64::from(more);
            let period = Span::from_micros(period.as_micros().next_multiple_of(both));
            let limit = SlidingSlots::new(rate(count, period)?, slots, per_slot).ok()?;
            let limit = Limit::from(limit);
            let changed = rate(other, period)
                .and_then(|rate| SlidingSlots::new(rate, more, None).ok())
                .map_or(limit.clone(), Limit::from);
            Some(Subject { limit, changed })
        },
    )
}

pub fn sliding_log() -> impl Strategy<Value = Subject> {
    pair(numbers(), |count, _, period| SlidingLog::new(rate(count, period)?).ok())
}

pub fn concurrency() -> impl Strategy<Value = Subject> {
    pair(numbers(), |limit, _, expiry| Concurrency::new(limit, expiry).ok())
}

pub fn any_limit() -> impl Strategy<Value = Subject> {
    // In boxes, because all of them side by side are more than the stack of a test can hold some times over.
    prop_oneof![
        token_bucket().boxed(),
        leaky_bucket().boxed(),
        stepped_bucket().boxed(),
        fixed_window().boxed(),
        sliding_window().boxed(),
        sliding_slots().boxed(),
        sliding_log().boxed(),
        concurrency().boxed(),
    ]
}
