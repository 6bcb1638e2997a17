//! A charge as the script's argument: the numbers of its limit and what is asked of it, worked out as
//! far as they can be without the state.
//!
//! ```text
//! bucket    tokens 4 | ticks 7 | depth 6+6 | cut 6+6 | cost 6+6 | period 7 | taken 7 | last step 6+3
//! window    count 6 | most 6 | cost 6 | length 7 | taken 7 [| five edges of the calendar, 7 each]
//! sliding   count 6 | cost 6 | length 7 | taken 7
//! slots     count 6 | cost 6 | per slot 6 | length of a slot 7 | slots 2 | taken 7
//! log       count 3 | cost 6 | period 7 | taken 7
//! leases    limit 3 | cost 7 | expiry 7 | taken 7 | lease 7+2
//! ```
//!
//! A number of units (`6+6`) is cut at the base, 2^20 ticks of units. Costs that are larger than
//! what a state can hold are cut to what has the same effect.

use tidegate_core::calendar::Calendar;
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, FixedWindow, LeakyBucket, Limit, Rate, SKEW_MAX, SlidingLog, SlidingSlots,
    SlidingWindow, Span, SteppedBucket, Timestamp, TokenBucket,
};
use tidegate_store::Charge;

use super::{Task, write};

/// The ticks, as a power of two, that the high half of a number of units counts.
pub(super) const HALF_BITS: u32 = 20;

/// A cost that no state can hold, and that doubles and six bytes can.
const COST_MAX: u64 = (1 << 48) - 1;

/// What stands for the limit per slot of a limit that has none: a slot counts at most 2^45.
const PER_SLOT_NONE: u64 = (1 << 48) - 1;

/// More places than a concurrency limit holds.
const PLACES_MAX: u64 = 1 << 53;

/// The argument for one charge, appended to `out`. Windows of the calendar are those around `now`,
/// which is an estimate where the server's clock decides.
pub(crate) fn write_charge(charge: &Charge<'_>, hopeless: bool, now: Timestamp, out: &mut Vec<u8>) {
    let task = Task::of(charge, hopeless);
    write_limit(charge.limit, task.code(), task, now, out);
}

/// The numbers of a limit, and of a task, behind the code of an operation.
pub(super) fn write_limit(limit: &Limit, code: u64, task: Task, now: Timestamp, out: &mut Vec<u8>) {
    let begin = |kind: u64, out: &mut Vec<u8>| {
        write(out, 1, kind);
        write(out, 1, code);
    };
    match limit {
        Limit::TokenBucket(limit) => {
            begin(1, out);
            token_bucket(limit, task, out);
        }
        Limit::LeakyBucket(limit) => {
            begin(2, out);
            leaky_bucket(limit, task, out);
        }
        Limit::SteppedBucket(limit) => {
            begin(3, out);
            stepped_bucket(limit, task, out);
        }
        Limit::FixedWindow(limit) => {
            begin(
                match limit.windows() {
                    Windows::Clock(_) => 4,
                    Windows::FirstRequest(_) => 5,
                    Windows::Calendar(_) => 6,
                },
                out,
            );
            fixed_window(limit, task, now, out);
        }
        Limit::SlidingWindow(limit) => {
            begin(7, out);
            sliding_window(limit, task, out);
        }
        Limit::SlidingSlots(limit) => {
            begin(8, out);
            sliding_slots(limit, task, out);
        }
        Limit::SlidingLog(limit) => {
            begin(9, out);
            sliding_log(limit, task, out);
        }
        Limit::Concurrency(limit) => {
            begin(10, out);
            concurrency(limit, task, out);
        }
    }
}

/// The numbers that all buckets have in common, in units: a tick is `tokens` units and a token `ticks`.
struct BucketNumbers {
    tokens: u64,
    ticks: u64,
    depth: u128,
    /// More than this is missing only because of a clock that was set back or a limit that was lowered.
    cut: u128,
    cost: u128,
    /// The length of a tick in microseconds.
    period: u64,
    /// The last tick at which a bucket can be full.
    last: u64,
}

impl BucketNumbers {
    fn write(&self, task: Task, out: &mut Vec<u8>) {
        write(out, 4, self.tokens);
        write(out, 7, self.ticks);
        let base = u128::from(self.tokens) << HALF_BITS;
        for units in [self.depth, self.cut, self.cost] {
            write(out, 6, (units / base) as u64);
            write(out, 6, (units % base) as u64);
        }
        write(out, 7, self.period);
        write(out, 7, task.taken_at());
        write(out, 6, self.last >> HALF_BITS);
        write(out, 3, self.last & ((1 << HALF_BITS) - 1));
    }
}

fn token_bucket(limit: &TokenBucket, task: Task, out: &mut Vec<u8>) {
    let (ticks, tokens) = limit.pace();
    let depth = u128::from(limit.burst()) * u128::from(ticks);
    // A debt lasts no longer than all of time, and of a refund no more is left to give back than a
    // debt after as long again.
    let most = 2 * u128::from(Span::MAX.as_micros()) * u128::from(tokens);
    BucketNumbers {
        tokens: tokens.into(),
        ticks,
        depth,
        cut: depth + u128::from(SKEW_MAX.as_micros()) * u128::from(tokens),
        cost: (u128::from(task.cost()) * u128::from(ticks)).min(most),
        period: 1,
        last: 0,
    }
    .write(task, out);
}

fn leaky_bucket(limit: &LeakyBucket, task: Task, out: &mut Vec<u8>) {
    token_bucket(limit.queue(), task, out);
}

fn stepped_bucket(limit: &SteppedBucket, task: Task, out: &mut Vec<u8>) {
    let (count, period) = (limit.rate().count(), limit.rate().period().as_micros());
    let skew_steps = SKEW_MAX.as_micros().div_ceil(period);
    BucketNumbers {
        tokens: count,
        ticks: 1,
        depth: limit.burst().into(),
        cut: u128::from(limit.burst()) + u128::from(skew_steps) * u128::from(count),
        cost: task.cost().into(),
        period,
        last: Timestamp::MAX.as_micros() / period,
    }
    .write(task, out);
}

fn fixed_window(limit: &FixedWindow, task: Task, now: Timestamp, out: &mut Vec<u8>) {
    write(out, 6, limit.count());
    write(out, 6, limit.windows().count_max());
    write(out, 6, task.cost().min(COST_MAX));
    write(out, 7, limit.windows().period().as_micros());
    write(out, 7, task.taken_at());
    if let Windows::Calendar(calendar) = limit.windows() {
        for edge in edges(calendar, now) {
            write(out, 7, edge.as_micros().min((1 << 53) - 1));
        }
    }
}

/// The edges of the window before the one around `now`, of that one, and of the two after it. The
/// script can decide in any of the first three, by what time it has.
fn edges(calendar: &Calendar, now: Timestamp) -> [Timestamp; 5] {
    let (start, end) = calendar.window_containing(now);
    let before = calendar.window_containing(start.minus(Span::TICK)).0;
    let next = calendar.window_containing(end).1;
    let after = calendar.window_containing(next).1;
    [before, start, end, next, after]
}

fn sliding_window(limit: &SlidingWindow, task: Task, out: &mut Vec<u8>) {
    write(out, 6, limit.rate().count());
    write(out, 6, task.cost().min(COST_MAX));
    write(out, 7, limit.rate().period().as_micros());
    write(out, 7, task.taken_at());
}

fn sliding_slots(limit: &SlidingSlots, task: Task, out: &mut Vec<u8>) {
    write(out, 6, limit.rate().count());
    write(out, 6, task.cost().min(COST_MAX));
    write(out, 6, limit.per_slot().unwrap_or(PER_SLOT_NONE));
    write(out, 7, limit.rate().period().as_micros() / u64::from(limit.slots()));
    write(out, 2, limit.slots().into());
    write(out, 7, task.taken_at());
}

fn sliding_log(limit: &SlidingLog, task: Task, out: &mut Vec<u8>) {
    write(out, 3, limit.rate().count());
    write(out, 6, task.cost().min(COST_MAX));
    write(out, 7, limit.rate().period().as_micros());
    write(out, 7, task.taken_at());
}

fn concurrency(limit: &Concurrency, task: Task, out: &mut Vec<u8>) {
    // A number whose high half doubles cannot hold has been given to nobody; 0 is nobody's either.
    let lease = match task {
        Task::Release(lease) if lease >> 10 < 1 << 53 => lease,
        _ => 0,
    };
    write(out, 3, limit.limit());
    write(out, 7, task.cost().min(PLACES_MAX));
    write(out, 7, limit.expires_after().as_micros());
    write(out, 7, task.taken_at());
    write(out, 7, lease >> 10);
    write(out, 2, lease & 1023);
}

const _: () = assert!(Rate::COUNT_MAX < 1 << 45 && SlidingLog::COUNT_MAX < 1 << 24);
const _: () = assert!(Rate::PERIOD_MAX.as_micros() < 1 << 49, "the script's divisors");
