//! A clock that is set back gives nothing away, whoever's place was reused meanwhile. What is admitted
//! is measured by the time for which the clock went *forward*: an ideal limit with a clock that stands
//! still while the table's is set back would have admitted it as well.
#![allow(clippy::unwrap_used, reason = "a test whose numbers are wrong is to fail")]

mod support;

use std::collections::HashMap;

use support::{START, bucket, later, log, one, peek, places, rate, sliding, take, takes, window};
use tidegate_core::{
    Decision, Key, LeakyBucket, LeaseId, Limit, Operation, SKEW_MAX, SlidingSlots, Span, State,
    SteppedBucket, Timestamp,
};
use tidegate_store::{Charge, Request, Table, TableConfig};

const SEEDS: u64 = 60;
const STEPS: usize = 400;
/// The longest that a thread is stopped.
const STOP_MAX: Span = Span::from_secs(30);
const CONFIG: TableConfig =
    TableConfig { entry_bytes: TableConfig::ENTRY_BYTES_MIN, wide_bytes: 1 << 20 };

/// Numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Whether keys compete for places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keys {
    Apart,
    /// All of them have the same first line of four places, so that a new one takes the place of one
    /// whose time has passed, and one stripe between them.
    Crowded,
}

impl Keys {
    fn key(self, number: usize) -> Key {
        let key = support::key(number as u64 + 1).as_hash();
        match self {
            Self::Apart => Key::from_hash(key),
            Self::Crowded => {
                let stripe_bits = 0xFF << 77;
                Key::from_hash((key & !stripe_bits) >> 64 << 64 | 0x1234_5678_9ABC_DEF0)
            }
        }
    }
}

/// How the clock moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    /// Set back by whole minutes, so that windows lie in it as they do in one that stands still.
    WholeMinutes,
    /// Set back by anything from a microsecond to hours.
    Any,
    /// As [`Clock::Any`], and calls come up to [`SKEW_MAX`] after they have read it.
    AnyAndLate,
    /// As [`Clock::AnyAndLate`], but set back by days, so that it never comes near where it was before.
    DaysAndLate,
    /// Never set back, but now and then a thread is stopped for longer than [`SKEW_MAX`] after it has
    /// read it. The keys that it works on may then spend what they hold once more, and no others.
    Stops,
}

/// What is asked for, and how densely.
struct Load {
    limits: Vec<Limit>,
    costs: &'static [u64],
    step_micros: u64,
}

impl Load {
    const COSTS: &'static [u64] = &[0, 1, 1, 1, 2, 3, 5, 10, 50, 4_096, 900_000, 1 << 39];

    /// Limits whose windows, if any, begin with a charge.
    fn of_any_alignment() -> Self {
        let limits = vec![
            bucket(10, Span::SECOND, 10),
            bucket(7, Span::from_secs(3), 5),
            bucket(1, Span::SECOND, 1),
            bucket(10, Span::SECOND, 1_000_000),
            bucket(1, Span::SECOND, 1 << 40),
            LeakyBucket::new(rate(1, Span::SECOND), 5).unwrap().into(),
            log(3, Span::from_secs(10)),
            log(40, Span::SECOND),
            places(5, Span::from_secs(2)),
        ];
        Self { limits, costs: Self::COSTS, step_micros: 300_000 }
    }

    /// Limits with windows of the clock, whose periods divide a minute.
    fn of_whole_minutes() -> Self {
        let mut load = Self::of_any_alignment();
        load.limits.extend([
            SteppedBucket::new(rate(20, Span::SECOND), 50).unwrap().into(),
            SteppedBucket::new(rate(2, Span::from_secs(30)), 5).unwrap().into(),
            window(10, Span::MINUTE),
            window(1 << 30, Span::SECOND),
            sliding(10, Span::MINUTE),
            sliding(5_000, Span::from_millis(100)),
            sliding(10_000_000, Span::from_millis(1_500)),
            SlidingSlots::new(rate(50, Span::MINUTE), 6, Some(10)).unwrap().into(),
        ]);
        load
    }

    /// Limits that are full after the time of a late call, so that states are forgotten all the time.
    fn soon_full() -> Self {
        let limits = vec![
            bucket(1, Span::SECOND, 1),
            bucket(2, Span::SECOND, 1),
            bucket(2, Span::SECOND, 2),
            log(1, Span::SECOND),
            log(2, Span::SECOND),
        ];
        Self { limits, costs: &[1], step_micros: 150_000 }
    }
}

/// A table whose clock is set back, and the ideal beside it.
struct Run {
    random: Random,
    clock: Clock,
    table: Table,
    limits: Vec<Limit>,
    costs: &'static [u64],
    step_micros: u64,
    keys: Vec<Key>,
    ideal: HashMap<Key, State>,
    /// The table's clock.
    now: Timestamp,
    /// The ideal's: it goes forward with the table's and is never set back.
    forward: Timestamp,
    /// When, by the ideal's, the table's was set back. No call since has read it before that.
    set_back_at: Timestamp,
    /// The leases of the table, each with that of the ideal.
    leases: Vec<(Key, LeaseId, LeaseId)>,
    dropped: u64,
}

impl Run {
    fn new(seed: u64, keys: Keys, clock: Clock, load: &Load) -> Self {
        // Two keys for each limit.
        let limits: Vec<_> = load.limits.iter().chain(&load.limits).cloned().collect();
        Self {
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            clock,
            table: support::table(CONFIG),
            keys: (0..limits.len()).map(|number| keys.key(number)).collect(),
            limits,
            costs: load.costs,
            step_micros: load.step_micros,
            ideal: HashMap::new(),
            now: START,
            forward: START,
            set_back_at: START,
            leases: Vec::new(),
            dropped: 0,
        }
    }

    fn step(&mut self) {
        match self.random.below(40) {
            0 => self.go_forward(10_000_000),
            1 => self.go_forward(4_000_000_000),
            2..=4 => self.set_back(),
            5 => self.restart(),
            6..=9 => {}
            _ => self.go_forward(self.step_micros),
        }
        if self.random.below(8) == 0 { self.release() } else { self.ask() }
    }

    fn go_forward(&mut self, micros_max: u64) {
        let span = Span::from_micros(self.random.below(micros_max));
        (self.now, self.forward) = (self.now.plus(span), self.forward.plus(span));
    }

    fn set_back(&mut self) {
        let most = self.random.one_of(&[1_500_000, 20_000_000, 4_000_000_000, 20_000_000_000]);
        let micros = self.random.below(most);
        let micros = match self.clock {
            Clock::Stops => 0,
            Clock::WholeMinutes => micros / 60_000_000 * 60_000_000,
            Clock::Any => micros,
            Clock::AnyAndLate => micros + SKEW_MAX.as_micros(),
            Clock::DaysAndLate => Span::DAY.as_micros(),
        };
        (self.now, self.set_back_at) = (self.now.minus(Span::from_micros(micros)), self.forward);
        if let Clock::AnyAndLate | Clock::DaysAndLate = self.clock {
            self.look_at_all();
        }
    }

    /// The first call that a key sees after the clock was set back is not late.
    fn look_at_all(&self) {
        for (limit, &key) in self.limits.iter().zip(&self.keys) {
            let _ = one(&self.table, limit, key, self.now, peek(1));
        }
    }

    /// Another table goes on from what this one has saved.
    fn restart(&mut self) {
        let mut bytes = Vec::new();
        self.table.write_snapshot(&mut bytes, &[7; 32], self.now).unwrap();
        self.dropped += self.table.stats(self.now).dropped;
        match self.clock {
            // No call outlives its process.
            Clock::AnyAndLate | Clock::DaysAndLate | Clock::Stops => {
                (self.now, self.forward) = (self.now.plus(STOP_MAX), self.forward.plus(STOP_MAX));
            }
            Clock::WholeMinutes | Clock::Any => self.set_back(),
        }
        self.table = Table::new(CONFIG, self.now).unwrap();
        self.table.read_snapshot(&bytes, &[7; 32], self.now).unwrap();
    }

    /// One to three limits at once.
    fn ask(&mut self) {
        let first = self.random.below(self.limits.len() as u64) as usize;
        let count = self.random.one_of(&[1, 1, 1, 2, 3]);
        let late = self.late();
        let now = self.now.minus(late);
        let chosen: Vec<_> = (first..first + count).map(|n| n % self.limits.len()).collect();
        let operations: Vec<_> = chosen.iter().map(|_| self.operation()).collect();
        let limits = self.limits.clone();
        let charge = |(&n, &operation): (&usize, _)| Charge {
            limit: &limits[n],
            key: self.keys[n],
            operation,
        };
        let charges: Vec<_> = chosen.iter().zip(&operations).map(charge).collect();
        let mut decisions = Vec::new();
        self.table.decide(&Request { now, charges: &charges }, &mut decisions).unwrap();
        let takes = |charge: &Charge<'_>| matches!(charge.operation, Operation::Take { .. });
        let refused = charges.iter().zip(&decisions).any(|(c, d)| takes(c) && !d.is_allowed());
        for (charge, decision) in charges.iter().zip(&decisions) {
            let operation = match charge.operation {
                Operation::Take { cost } if refused => peek(cost),
                other => other,
            };
            let charge = Charge { operation, ..*charge };
            self.follow(&charge, decision, if late > SKEW_MAX { Span::ZERO } else { late });
        }
        self.refund(late, &charges, refused);
        if late > SKEW_MAX {
            self.excuse(&charges);
        }
    }

    /// How long ago a call has read the clock.
    fn late(&mut self) -> Span {
        let most = match self.clock {
            Clock::WholeMinutes | Clock::Any => Span::ZERO,
            Clock::AnyAndLate | Clock::DaysAndLate => {
                self.random.one_of(&[Span::ZERO, Span::ZERO, SKEW_MAX])
            }
            Clock::Stops => {
                let often = [Span::ZERO, Span::ZERO, SKEW_MAX, SKEW_MAX, SKEW_MAX];
                let stops = [SKEW_MAX.plus(SKEW_MAX), Span::from_secs(6), STOP_MAX];
                if self.random.below(6) == 0 {
                    self.random.one_of(&stops)
                } else {
                    self.random.one_of(&often)
                }
            }
        };
        let late = Span::from_micros(self.random.below(most.as_micros() + 1));
        late.min(self.forward.since(self.set_back_at))
    }

    /// The keys of a call that was too late have all of their quota once more.
    fn excuse(&mut self, charges: &[Charge<'_>]) {
        for charge in charges {
            self.ideal.remove(&charge.key);
            self.leases.retain(|(key, ..)| *key != charge.key);
        }
    }

    fn operation(&mut self) -> Operation {
        let cost = self.random.one_of(self.costs);
        match self.random.below(12) {
            0 => peek(cost),
            1 => Operation::Debit { cost: cost.min(20) },
            _ => take(cost),
        }
    }

    /// Does to the ideal what was done in the table, which it must allow: when the call read the clock,
    /// or at some moment until it came.
    fn follow(&mut self, charge: &Charge<'_>, decision: &Decision, late: Span) {
        let (state, at) = (self.ideal.get(&charge.key).cloned(), self.forward.minus(late));
        let (mut expected, mut next) = charge.limit.decide(state.clone(), at, charge.operation);
        if let (true, Some(wait)) = (decision.is_allowed(), expected.retry_after())
            && wait <= late
        {
            (expected, next) = charge.limit.decide(state, at.plus(wait), charge.operation);
        }
        let spends_nothing = charge.operation.cost() == 0 || !decision.is_allowed();
        assert!(
            expected.is_allowed() || spends_nothing,
            "{:?} {:?} at {:?}: {decision:?}, and the ideal says {expected:?}",
            charge.limit,
            charge.operation,
            self.now,
        );
        // A state that is full now still says something to a call that comes late.
        self.ideal.extend(next.map(|state| (charge.key, state)));
        if let (Some(lease), Some(ideal)) = (decision.lease, expected.lease) {
            self.leases.push((charge.key, lease, ideal));
        }
    }

    /// Gives back, now and then, what has just been taken.
    fn refund(&mut self, late: Span, charges: &[Charge<'_>], refused: bool) {
        let [Charge { limit, key, operation: Operation::Take { cost } }] = *charges else { return };
        if refused || self.random.below(4) > 0 || matches!(limit, Limit::Concurrency(_)) {
            return;
        }
        let (now, forward) = (self.now.minus(late), self.forward.minus(late));
        let _ = one(&self.table, limit, key, now, Operation::Refund { cost, taken_at: now });
        let given_back = Operation::Refund { cost, taken_at: forward };
        let (_, next) = limit.decide(self.ideal.remove(&key), forward, given_back);
        self.ideal.extend(next.map(|state| (key, state)));
    }

    fn release(&mut self) {
        let Some((key, lease, ideal)) = self.leases.pop() else { return };
        let number = self.keys.iter().position(|&other| other == key).unwrap();
        let limit = self.limits[number].clone();
        let _ = one(&self.table, &limit, key, self.now, Operation::Release { lease });
        let released = Operation::Release { lease: ideal };
        let (_, next) = limit.decide(self.ideal.remove(&key), self.forward, released);
        self.ideal.extend(next.map(|state| (key, state)));
    }
}

fn is_never_over(clock: Clock, load: &Load, keys: Keys) {
    for seed in 1..=SEEDS {
        let mut run = Run::new(seed, keys, clock, load);
        for _ in 0..STEPS {
            run.step();
        }
        run.dropped += run.table.stats(run.now).dropped;
        assert_eq!(run.dropped, 0, "seed {seed}: a key that is dropped may spend more");
    }
}

#[test]
fn never_over_by_a_clock_that_is_set_back_while_keys_stand_apart() {
    is_never_over(Clock::WholeMinutes, &Load::of_whole_minutes(), Keys::Apart);
    is_never_over(Clock::Any, &Load::of_any_alignment(), Keys::Apart);
}

#[test]
fn never_over_by_a_clock_that_is_set_back_while_keys_take_each_others_places() {
    is_never_over(Clock::WholeMinutes, &Load::of_whole_minutes(), Keys::Crowded);
    is_never_over(Clock::Any, &Load::of_any_alignment(), Keys::Crowded);
}

#[test]
fn never_over_by_late_calls_after_the_clock_was_set_back() {
    for keys in [Keys::Apart, Keys::Crowded] {
        is_never_over(Clock::AnyAndLate, &Load::of_any_alignment(), keys);
        is_never_over(Clock::DaysAndLate, &Load::soon_full(), keys);
    }
}

#[test]
fn never_over_by_threads_that_were_stopped_but_for_the_keys_that_they_work_on() {
    for keys in [Keys::Apart, Keys::Crowded] {
        is_never_over(Clock::Stops, &Load::of_whole_minutes(), keys);
        is_never_over(Clock::Stops, &Load::soon_full(), keys);
    }
}

/// One per second: of what is admitted up to 1.95 s, the second is only due at 1 s and a third at 2 s.
/// The call at 0.95 s comes late, after `look` has made the table forget the key at 1.9 s.
fn admits_two_by_1_95_seconds(table: &Table, limit: &Limit, look: impl Fn()) {
    let key = Keys::Crowded.key(1);
    assert!(takes(table, limit, key, START, 1));
    look();
    let late = takes(table, limit, key, later(START, 950_000), 1);
    let then = takes(table, limit, key, later(START, 1_950_000), 1);
    assert!(!(late && then), "{}", limit.name());
}

/// The table gives the key's place away at 1.9 s.
fn give_away(table: &Table) {
    let slow = bucket(1, Span::HOUR, 1);
    for number in 3..7 {
        assert!(takes(table, &slow, Keys::Crowded.key(number), later(START, 1_900_000), 1));
    }
}

/// The table forgets the key when somebody looks at it at 1.9 s.
fn look_at_full(table: &Table, limit: &Limit) {
    let _ = one(table, limit, Keys::Crowded.key(1), later(START, 1_900_000), peek(1));
}

/// A call of another key of the same stripe and shard, which is full at `now` and gone.
fn forget_another(table: &Table, limit: &Limit, now: Timestamp) {
    let other = Keys::Crowded.key(2);
    assert!(takes(table, limit, other, now, 1));
    let _ = one(table, limit, other, now, Operation::Refund { cost: 1, taken_at: now });
}

/// By how much the clock was ahead before: by so little that it comes there again, and by more.
const AHEAD_MILLIS: [u64; 6] = [1_950, 2_000, 2_050, 2_900, 4_100, 3_600_000];

#[test]
fn a_late_clock_gains_nothing_from_an_entry_given_away_after_the_clock_was_set_back() {
    let limit = bucket(1, Span::SECOND, 1);
    for ahead in AHEAD_MILLIS {
        let table = support::table(CONFIG);
        forget_another(&table, &limit, later(START, ahead * 1_000));
        admits_two_by_1_95_seconds(&table, &limit, || give_away(&table));
    }
}

#[test]
fn a_late_clock_gains_nothing_from_a_wide_state_forgotten_after_the_clock_was_set_back() {
    let limit = log(1, Span::SECOND);
    for ahead in AHEAD_MILLIS {
        let table = support::table(CONFIG);
        forget_another(&table, &limit, later(START, ahead * 1_000));
        admits_two_by_1_95_seconds(&table, &limit, || look_at_full(&table, &limit));
    }
}

/// Between the two, a thread that was stopped for longer than any promise is made for works on another
/// key: one late call is no clock that was set back.
const STOPPED_MILLIS: [u64; 6] = [1_001, 2_000, 2_400, 4_000, 5_000, 60_000];

#[test]
fn a_thread_that_was_stopped_does_not_hide_that_an_entry_was_given_away() {
    let limit = bucket(1, Span::SECOND, 1);
    for stopped in STOPPED_MILLIS {
        let table = support::table(CONFIG);
        admits_two_by_1_95_seconds(&table, &limit, || {
            give_away(&table);
            let late = Span::from_millis(stopped);
            forget_another(&table, &limit, later(START, 1_900_000).minus(late));
        });
    }
}

#[test]
fn a_thread_that_was_stopped_does_not_hide_that_a_wide_state_was_forgotten() {
    let limit = log(1, Span::SECOND);
    for stopped in STOPPED_MILLIS {
        let table = support::table(CONFIG);
        admits_two_by_1_95_seconds(&table, &limit, || {
            look_at_full(&table, &limit);
            let late = Span::from_millis(stopped);
            forget_another(&table, &limit, later(START, 1_900_000).minus(late));
        });
    }
}

/// A key that is forgotten at 3 s, before the clock is set back, says when *late* calls of other keys
/// start. It does not say that it is 3 s again: a key that is full at 2.5 s stays until then.
#[test]
fn a_clock_set_back_ends_no_state_before_its_time() {
    let two_seconds = Span::from_secs(2);
    for limit in [bucket(1, two_seconds, 1), log(1, two_seconds), places(1, two_seconds)] {
        let table = support::table(CONFIG);
        let [key, forgotten, new] = [1, 2, 3].map(|number| Keys::Crowded.key(number));
        let at = |millis: u64| later(START, millis * 1_000);
        assert!(takes(&table, &limit, forgotten, at(3_000), 1));
        let refund = Operation::Refund { cost: 1, taken_at: at(3_000) };
        assert_eq!(one(&table, &limit, forgotten, at(3_000), refund).remaining, 1);
        assert!(takes(&table, &limit, key, at(500), 1));
        assert!(takes(&table, &limit, new, at(2_300), 1));
        assert!(!takes(&table, &limit, key, at(2_400), 1), "{}", limit.name());
        assert!(takes(&table, &limit, key, at(2_500), 1), "{}", limit.name());
    }
}

/// The time that a clock was ahead counts as passed: what came back meanwhile is not taken away when the
/// clock is set back. A limit therefore admits at most what it holds once more for each time.
#[test]
fn a_clock_that_was_ahead_gives_at_most_one_burst_each_time() {
    const BURST: u64 = 1_000_000;
    const TIMES: u64 = 3;
    let (limit, other) = (bucket(10, Span::SECOND, BURST), bucket(1, Span::HOUR, 1));
    let table = support::table(CONFIG);
    let key = Keys::Crowded.key(1);
    assert!(takes(&table, &limit, key, START, BURST));
    let mut more = 0;
    for time in 0..TIMES {
        assert!(!takes(&table, &limit, key, START, 1));
        for number in 0..4 {
            let new = Keys::Crowded.key(10 + (4 * time + number) as usize);
            let ahead = START.plus(Span::DAY).plus(Span::DAY);
            assert!(takes(&table, &other, new, ahead, 1));
        }
        while takes(&table, &limit, key, START, BURST / 4) {
            more += BURST / 4;
        }
    }
    assert_eq!(table.stats(START).dropped, 0);
    assert!((BURST..=TIMES * BURST).contains(&more), "{more} more");
}

/// To a state, a thread that was stopped for more than [`SKEW_MAX`] is a clock that was set back: it is pulled
/// to the time of that call, and the others find it so much older. Where there is no state any more, the
/// call starts a full one at its time, with the same outcome.
#[test]
fn a_thread_that_was_stopped_gives_at_most_one_burst_each_time() {
    const BURST: u64 = 10;
    let now = later(START, 60_000_000);
    for limit in [bucket(BURST, Span::SECOND, BURST), log(BURST, Span::SECOND)] {
        for stopped in [1_001, 1_500, 2_000, 2_001, 5_000, 59_000] {
            for is_live in [true, false] {
                let (table, key) = (support::table(CONFIG), Keys::Apart.key(1));
                assert!(!is_live || takes(&table, &limit, key, now, BURST));
                let late = takes(&table, &limit, key, now.minus(Span::from_millis(stopped)), BURST);
                let mut more = if late { BURST } else { 0 };
                while takes(&table, &limit, key, now, 1) {
                    more += 1;
                }
                let allowed = if is_live { BURST } else { 2 * BURST };
                assert!(more <= allowed, "{} {stopped} {is_live}: {more}", limit.name());
            }
        }
    }
}

/// A clock that was set back pulls a state that lies ahead to the first time that it sees. Where that
/// call is late, others find the state so much older.
#[test]
fn a_late_call_that_is_the_first_after_the_clock_was_set_back_gives_at_most_skew_max() {
    const PER_SECOND: u64 = 10;
    let (limit, key) = (bucket(PER_SECOND, Span::SECOND, PER_SECOND), Keys::Apart.key(1));
    for late in [1, 450_000, 1_000_000] {
        let table = support::table(CONFIG);
        assert!(takes(&table, &limit, key, START, PER_SECOND));
        let set_back = START.minus(Span::HOUR);
        assert!(!takes(&table, &limit, key, set_back.minus(Span::from_micros(late)), 1));
        let mut more = 0;
        while takes(&table, &limit, key, set_back, 1) {
            more += 1;
        }
        assert!(more * 1_000_000 <= late * PER_SECOND, "{more} more");
    }
}

/// Near where the clock was before it was set back, a key that starts anew may start there, as it has to if
/// that was no other clock but a call in time. To a late call, the state then lies too far ahead as well.
#[test]
fn a_late_call_near_where_the_clock_was_before_it_was_set_back_gives_at_most_skew_max() {
    const PER_SECOND: u64 = 10;
    for limit in [bucket(PER_SECOND, Span::SECOND, PER_SECOND), log(PER_SECOND, Span::SECOND)] {
        for late in (0..=1_000).step_by(50) {
            for ahead in (0..=1_000).step_by(50) {
                let (table, key) = (support::table(CONFIG), Keys::Crowded.key(1));
                forget_another(&table, &limit, later(START, ahead * 1_000));
                assert!(takes(&table, &limit, key, START, PER_SECOND));
                let late_at = START.minus(Span::from_millis(late));
                assert!(!takes(&table, &limit, key, late_at, 1));
                let mut more = 0;
                while takes(&table, &limit, key, START, 1) {
                    more += 1;
                }
                // All charges of a log leave it together.
                let refilled = if late < 1_000 { late * PER_SECOND / 1_000 } else { PER_SECOND };
                assert!(more <= refilled, "{} {late} {ahead}: {more}", limit.name());
            }
        }
    }
}

/// How long ago something was taken is not known after the clock was set back, and with it how much of it
/// has come back by itself.
#[test]
fn a_refund_of_what_was_taken_before_the_clock_was_set_back_gives_at_most_its_cost() {
    const COST: u64 = 5;
    let (limit, key) = (bucket(10, Span::SECOND, 10), Keys::Apart.key(1));
    let table = support::table(CONFIG);
    let then = later(START, 1_000_000);
    assert!(takes(&table, &limit, key, START, COST));
    assert!(takes(&table, &limit, key, then, 10));
    let set_back = then.minus(Span::HOUR);
    let refund = Operation::Refund { cost: COST, taken_at: START };
    assert!(one(&table, &limit, key, set_back, refund).remaining <= COST);
}
