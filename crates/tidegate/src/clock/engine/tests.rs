//! The whole clock on simulated counters: what it promises under drift, steps and pauses.

use std::sync::atomic::AtomicI64;

use proptest::prelude::*;

use super::super::anchor::{FRESH_NS, STRIKES_MAX, Trust};
use super::*;

const SECOND_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3_600 * SECOND_NS;
/// What the simulated clock may differ from the wall, in microseconds: half a microsecond of drift
/// and reading, and both are rounded down.
const CLOSE_US: u64 = 3;

/// A simulated machine. Each look at a counter takes a while, as it does on a real one.
struct Machine {
    true_ns: AtomicU64,
    tsc_khz: AtomicU64,
    tsc_jump: AtomicI64,
    wall_jump_ns: AtomicI64,
    /// How much too early the counter may be read, as a processor does that reorders.
    early_ns_max: u64,
    /// How long a look takes now and then, when the thread loses its processor.
    stall_ns: u64,
}

const READ_NS: u64 = 23;
const BOOT_NS: u64 = HOUR_NS * 10;

impl Machine {
    fn new(drift_ppm: i64) -> Self {
        Self {
            true_ns: AtomicU64::new(BOOT_NS),
            tsc_khz: AtomicU64::new(2_600_000_u64.strict_add_signed(drift_ppm * 26 / 10)),
            tsc_jump: AtomicI64::new(1 << 40),
            wall_jump_ns: AtomicI64::new(1_800_000_000_000_000_000),
            early_ns_max: 0,
            stall_ns: 0,
        }
    }

    fn pass(&self, ns: u64) -> u64 {
        self.true_ns.fetch_add(ns, Ordering::SeqCst) + ns
    }

    /// A look at a counter: the moment it shows.
    fn look(&self) -> u64 {
        let now = self.pass(READ_NS);
        if jitter(now).is_multiple_of(32) { self.pass(self.stall_ns) } else { now }
    }

    fn step_wall(&self, ns: i64) {
        self.wall_jump_ns.fetch_add(ns, Ordering::SeqCst);
    }

    fn jump_tsc(&self, ticks: i64) {
        self.tsc_jump.fetch_add(ticks, Ordering::SeqCst);
    }

    fn wall_us(&self) -> u64 {
        let wall = self
            .true_ns
            .load(Ordering::SeqCst)
            .strict_add_signed(self.wall_jump_ns.load(Ordering::SeqCst));
        wall / 1_000
    }
}

impl Counters for Machine {
    fn has_tsc(&self) -> bool {
        true
    }

    fn tsc(&self) -> u64 {
        let now = self.look();
        let then = u128::from(now - jitter(now) % (self.early_ns_max + 1));
        let ticks = then * u128::from(self.tsc_khz.load(Ordering::SeqCst)) / 1_000_000;
        (ticks as u64).wrapping_add_signed(self.tsc_jump.load(Ordering::SeqCst))
    }

    fn mono_ns(&self) -> u64 {
        self.look()
    }

    fn wall_ns(&self) -> u64 {
        self.look().strict_add_signed(self.wall_jump_ns.load(Ordering::SeqCst))
    }
}

/// A number that looks random, and is the same in each run.
const fn jitter(now_ns: u64) -> u64 {
    let mixed = (now_ns ^ (now_ns >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 32
}

impl Engine<Machine> {
    fn trust(&self) -> Trust {
        self.latch.anchor().0.unwrap().trust
    }

    /// Lets time pass, and checks that it did not run back, and that whoever asks without an order is told no less
    /// than those who were told in order, and little more than the mark. The time told after it.
    fn after(&self, ns: u64) -> u64 {
        let told = self.now_micros_unordered();
        let earlier = self.mark.0.load(Ordering::SeqCst);
        self.counters.pass(ns);
        let now = self.now_micros();
        assert!(earlier <= now, "time ran back from {earlier} to {now}");
        assert!(told < now + Mark::STEP_US, "time ran back from {told} to {now}, which is far");
        let unordered = self.now_micros_unordered();
        assert!(now <= unordered, "time without an order ran back from {now} to {unordered}");
        let mark = self.mark.0.load(Ordering::SeqCst);
        assert!(unordered < mark + Mark::STEP_US, "{unordered} is far from {mark}");
        now
    }

    /// How far the time told is from what the wall clock showed while it was asked for.
    fn error_us(&self) -> u64 {
        let before = self.counters.wall_us();
        let now = self.now_micros();
        let after = self.counters.wall_us();
        before.saturating_sub(now).max(now.saturating_sub(after))
    }
}

/// A clock that has been running for a while.
fn warm(machine: Machine) -> Engine<Machine> {
    let engine = Engine::new(machine);
    for _ in 0..500 {
        engine.after(FRESH_NS / 100);
    }
    assert!(matches!(engine.trust(), Trust::Trusted { .. }), "{:?}", engine.trust());
    engine
}

fn gaps_ns() -> impl Strategy<Value = Vec<u64>> {
    let gap = prop_oneof![
        4 => 0..10_000_u64,
        4 => 0..20_000_000_u64,
        2 => 0..5 * FRESH_NS,
        1 => 0..HOUR_NS,
    ];
    proptest::collection::vec(gap, 1..300)
}

proptest! {
    #[test]
    fn stays_with_the_wall_clock_whatever_the_drift(
        drift_ppm in -200..=200_i64,
        gaps_ns in gaps_ns(),
    ) {
        let engine = warm(Machine::new(drift_ppm));
        for gap_ns in gaps_ns {
            engine.after(gap_ns);
            let error_us = engine.error_us();
            prop_assert!(error_us <= CLOSE_US, "{error_us} us after {gap_ns} ns");
        }
        prop_assert!(matches!(engine.trust(), Trust::Trusted { strikes: 0, .. }), "a false alarm");
    }

    #[test]
    fn losing_the_processor_while_reading_makes_no_error(
        stall_ns in 1_000..20_000_000_u64,
        gaps_ns in gaps_ns(),
    ) {
        let engine = Engine::new(Machine { stall_ns, ..Machine::new(-90) });
        for gap_ns in gaps_ns {
            engine.after(gap_ns);
            let error_us = engine.error_us();
            prop_assert!(error_us <= 2 * CLOSE_US, "{error_us} us after {gap_ns} ns");
        }
        prop_assert_ne!(engine.trust(), Trust::Refused);
    }

    #[test]
    fn follows_a_drift_that_changes(changes in proptest::collection::vec(-100..=100_i64, 1..20)) {
        let engine = warm(Machine::new(0));
        for change_ppm in changes {
            // The counter goes on from where it is, at another pace.
            let machine = &engine.counters;
            let before = machine.tsc();
            let khz = machine.tsc_khz.load(Ordering::SeqCst);
            let khz = khz.strict_add_signed(change_ppm * 26 / 10);
            machine.tsc_khz.store(khz, Ordering::SeqCst);
            machine.jump_tsc(before.wrapping_sub(machine.tsc()).cast_signed());
            for _ in 0..50 {
                engine.after(FRESH_NS / 10);
                prop_assert!(engine.error_us() <= 30);
            }
            for _ in 0..2_000 {
                engine.after(FRESH_NS / 100);
            }
            prop_assert!(engine.error_us() <= CLOSE_US);
        }
    }

    #[test]
    fn never_runs_back_whatever_happens(
        gaps_ns in gaps_ns(),
        wall_s in proptest::collection::vec(-3_600..=3_600_i64, 8),
        tsc_ms in proptest::collection::vec(-3_600_000..=3_600_000_i64, 8),
        early_ns_max in 0..3_000_u64,
    ) {
        let engine = warm(Machine { early_ns_max, ..Machine::new(50) });
        for (n, gap_ns) in gaps_ns.into_iter().enumerate() {
            match n % 32 {
                13 => engine.counters.step_wall(wall_s[n / 32 % 8] * SECOND_NS.cast_signed()),
                29 => engine.counters.jump_tsc(tsc_ms[n / 32 % 8] * 2_600_000),
                _ => {}
            }
            engine.after(gap_ns);
        }
    }

    #[test]
    fn follows_a_wall_clock_set_forward(gap_ns in 0..HOUR_NS, by_ns in 2_000_000..HOUR_NS) {
        let engine = warm(Machine::new(-120));
        engine.after(gap_ns);
        engine.counters.step_wall(by_ns.cast_signed());
        engine.after(FRESH_NS);
        prop_assert!(engine.error_us() <= CLOSE_US);
    }

    #[test]
    fn loses_a_thousandth_while_the_wall_clock_is_behind(
        gaps_ns in gaps_ns(),
        by_ns in (SECOND_NS..100 * HOUR_NS).prop_map(u64::cast_signed),
    ) {
        let engine = warm(Machine::new(80));
        engine.counters.step_wall(-by_ns);
        let mut start_us = engine.after(FRESH_NS);
        let mut start_ns = engine.counters.true_ns.load(Ordering::SeqCst);
        for gap_ns in gaps_ns {
            let now_us = engine.after(gap_ns);
            let now_ns = engine.counters.true_ns.load(Ordering::SeqCst);
            let true_us = (now_ns - start_ns) / 1_000;
            let told_us = now_us - start_us;
            let behind = true_us.saturating_sub(told_us);
            prop_assert!(behind <= true_us / 1_000 + CLOSE_US, "lost {behind} of {true_us} us");
            prop_assert!(told_us <= true_us + CLOSE_US, "told {told_us} of {true_us} us");
            (start_us, start_ns) = (now_us, now_ns);
        }
    }
}

#[test]
fn stays_within_microseconds_over_a_day() {
    let engine = warm(Machine::new(200));
    for _ in 0..24 * 3_600 * 5 {
        engine.after(SECOND_NS / 5 - 7_777);
        assert!(engine.error_us() <= CLOSE_US);
    }
}

#[test]
fn agrees_again_after_a_wall_clock_set_back_by_a_second() {
    let engine = warm(Machine::new(-200));
    engine.counters.step_wall(-1_000_000_000);
    let mut seconds = 0;
    while engine.error_us() > CLOSE_US {
        assert!(seconds < 1_010, "not caught up after {seconds} s");
        for _ in 0..20 {
            engine.after(SECOND_NS / 20);
        }
        seconds += 1;
    }
    assert!(seconds >= 990, "caught up in {seconds} s, which is too fast");
}

#[test]
fn a_wall_clock_that_swings_by_eleven_seconds_gains_nothing() {
    let engine = warm(Machine::new(30));
    let start = engine.now_micros();
    for n in 0..1_000 {
        engine.counters.step_wall(if n % 2 == 0 { 11 } else { -11 } * SECOND_NS.cast_signed());
        for _ in 0..10 {
            engine.after(FRESH_NS / 2);
        }
    }
    let told = engine.now_micros() - start;
    assert!((490_000_000..=511_100_000).contains(&told), "{told} us in 500 s");
}

#[test]
fn a_stopped_process_wakes_to_the_right_time() {
    let engine = warm(Machine::new(-35));
    for pause_s in [1, 60, 3_600, 86_400 * 30] {
        engine.after(pause_s * SECOND_NS);
        assert!(engine.error_us() <= CLOSE_US);
        assert!(matches!(engine.trust(), Trust::Trusted { strikes: 0, .. }));
    }
}

#[test]
fn a_suspended_machine_wakes_to_the_right_time() {
    // The monotonic clock stood still, the counter began anew, and the wall clock went on.
    let engine = warm(Machine::new(10));
    engine.counters.step_wall(HOUR_NS.cast_signed());
    engine.counters.jump_tsc(-(1 << 40));
    engine.after(FRESH_NS);
    assert!(engine.error_us() <= CLOSE_US);
}

#[test]
fn a_counter_that_jumps_costs_at_most_a_fifth_of_a_second() {
    for jump_ms in [-3_600_000, -300, -90, -3, 3, 90, 150, 300, 3_600_000_i64] {
        let engine = warm(Machine::new(0));
        for n in 0..100 {
            if n == 10 {
                engine.counters.jump_tsc(jump_ms * 2_600_000);
            }
            engine.after(FRESH_NS / 10);
            assert!(engine.error_us() <= 2 * FRESH_NS / 1_000, "jump {jump_ms} ms");
        }
        for _ in 0..20_000 {
            engine.after(FRESH_NS / 10);
        }
        assert!(engine.error_us() <= CLOSE_US, "jump {jump_ms} ms");
    }
}

#[test]
fn a_counter_that_keeps_jumping_is_refused_for_good() {
    let engine = warm(Machine::new(0));
    for _ in 0..STRIKES_MAX {
        engine.counters.jump_tsc(1 << 45);
        for _ in 0..50 {
            engine.after(FRESH_NS / 10);
        }
    }
    for _ in 0..100 {
        engine.after(FRESH_NS);
        assert_eq!(engine.trust(), Trust::Refused);
        assert!(engine.error_us() <= CLOSE_US);
    }
}

#[test]
fn a_lock_that_a_fork_left_behind_is_taken_over() {
    let engine = warm(Machine::new(0));
    let (_, before) = engine.latch.anchor();
    engine.lock.0.store(u64::from(u32::MAX), Ordering::SeqCst);
    engine.after(FRESH_NS);
    assert_ne!(engine.latch.anchor().1, before);
    assert_eq!(engine.lock.0.load(Ordering::SeqCst), FREE);
}

#[test]
fn time_goes_on_while_another_thread_holds_the_lock_for_an_hour() {
    let engine = warm(Machine::new(77));
    let held = engine.lock.try_with(|| {
        for _ in 0..3_600 * 4 {
            engine.after(SECOND_NS / 4);
            assert!(engine.error_us() <= CLOSE_US);
        }
        engine.counters.step_wall(HOUR_NS.cast_signed());
        assert!(engine.error_us() <= CLOSE_US);
    });
    assert!(held.is_some());
}

#[test]
fn a_reading_that_happens_after_another_is_never_less() {
    const THREADS: u64 = 4;
    const READINGS: u64 = 200_000;
    let engine = Engine::new(Machine { early_ns_max: 2_000, ..Machine::new(-150) });
    let latest = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, latest) = (&engine, &latest);
            scope.spawn(move || {
                for n in 0..READINGS {
                    let earlier = latest.load(Ordering::Acquire);
                    let now = engine.now_micros();
                    assert!(earlier <= now, "time ran back from {earlier} to {now}");
                    latest.store(now, Ordering::Release);
                    if (n + thread) % 64 == 0 {
                        engine.counters.pass(n * 17 % 1_000_000);
                    }
                }
            });
        }
    });
    assert!(engine.error_us() <= 2 * CLOSE_US);
}
