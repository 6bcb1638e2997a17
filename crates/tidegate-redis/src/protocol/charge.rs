//! A charge as the script's argument: the numbers of its limit and what is asked of it, worked out as
//! far as they can be without the state.
//!
//! ```text
//! bucket    tokens 4 | ticks 7 | depth 6+6 | cut 6+6 | cost 6+6 | period 7 | taken 7 | last step 6+3
//! plain     tokens 4 | ticks 7 | depth 7 | cost 7
//! window    count 6 | most 6 | cost 6 | length 7 | taken 7 [| five edges of the calendar, 7 each]
//! sliding   count 6 | cost 6 | length 7 | taken 7
//! slots     count 6 | cost 6 | per slot 6 | length of a slot 7 | slots 2 | taken 7
//! log       count 3 | cost 6 | period 7 | taken 7
//! leases    limit 3 | cost 7 | expiry 7 | taken 7 | lease 7+2
//! ```
//!
//! A number of units (`6+6`) is cut at the base, 2^20 ticks of units. A take from a token bucket whose
//! numbers of units are all below 2^52 is a *plain* one, and has them whole. Costs that are larger than
//! what a state can hold are cut to what has the same effect.

use tidegate_core::calendar::Calendar;
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    Concurrency, FixedWindow, Key, Limit, Rate, SKEW_MAX, SlidingLog, SlidingSlots, SlidingWindow,
    Span, SteppedBucket, Timestamp, TokenBucket,
};
use tidegate_store::{Charge, Request};

use super::{PLAIN_TAKES, Task, is_hopeless, write};
use crate::key::{family, member};

/// The ticks, as a power of two, that the high half of a number of units counts.
pub(super) const HALF_BITS: u32 = 20;

/// A cost that no state can hold, and that doubles and six bytes can.
const COST_MAX: u64 = (1 << 48) - 1;

/// What stands for the limit per slot of a limit that has none: a slot counts at most 2^45.
const PER_SLOT_NONE: u64 = (1 << 48) - 1;

/// More places than a concurrency limit holds.
const PLACES_MAX: u64 = 1 << 53;

/// More units than a plain take has to do with: two of these have an exact sum in a double.
const PLAIN_UNITS_MAX: u128 = 1 << 52;

/// All charges of a request, appended to `out` behind the frame that begins at `frame`. Windows of the
/// calendar are those around `now`, which is an estimate where the server's clock decides.
pub(crate) fn write_charges(
    request: &Request<'_>,
    now: Timestamp,
    frame: usize,
    out: &mut Vec<u8>,
) {
    let hopeless = request.charges.len() > 1 && is_hopeless(request);
    let (mut places, mut all_quick) = (Places::default(), !request.charges.is_empty());
    for charge in request.charges {
        let place = places.of(charge.key);
        let is_quick = write_charge(charge, hopeless, place, now, out);
        all_quick &= is_quick && place == FIRST_PLACE;
    }
    if all_quick {
        out[frame] |= PLAIN_TAKES as u8;
    }
}

/// Where the names of a call begin to be counted, as the script does.
const FIRST_PLACE: u8 = 1;

/// The names of a call, each once, in the order in which the charges need them.
#[derive(Default)]
pub(crate) struct Places {
    families: [u64; Request::CHARGES_MAX],
    count: usize,
}

impl Places {
    /// The place of a key's name, which is a new one where the family has not been seen before.
    pub(crate) fn of(&mut self, key: Key) -> u8 {
        let family = family(key);
        let seen = self.families[..self.count].iter().position(|seen| *seen == family);
        let index = seen.unwrap_or_else(|| {
            self.families[self.count] = family;
            self.count += 1;
            self.count - 1
        });
        FIRST_PLACE + index as u8
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }
}

/// One charge behind its length. Says whether it is one that the script decides the quick way.
fn write_charge(
    charge: &Charge<'_>,
    hopeless: bool,
    place: u8,
    now: Timestamp,
    out: &mut Vec<u8>,
) -> bool {
    let task = Task::of(charge, hopeless);
    let head = Head { kind: kind_of(charge.limit), code: task.code(), place, key: charge.key };
    if let (Limit::TokenBucket(limit), Task::Take(_) | Task::Peek(_)) = (charge.limit, task)
        && let numbers = BucketNumbers::of(limit, task)
        && numbers.cut < PLAIN_UNITS_MAX
    {
        behind_length(out, |out| {
            Head { kind: 11, ..head }.write(out);
            numbers.write_plain(out);
        });
        // A take of nothing leaves a full bucket, and that is an absent one.
        return matches!(task, Task::Take(1..));
    }
    write_limit(charge.limit, head, task, now, out, |_| {});
    false
}

/// What stands before the numbers of a charge.
#[derive(Clone, Copy)]
struct Head {
    kind: u64,
    code: u64,
    place: u8,
    key: Key,
}

impl Head {
    fn write(self, out: &mut Vec<u8>) {
        write(out, 1, self.kind);
        write(out, 1, self.code);
        out.push(self.place);
        out.extend(member(self.key));
    }
}

/// Appends what `write` does, behind its length, which the length itself is part of.
fn behind_length(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.push(0);
    write(out);
    let length = out.len() - start;
    debug_assert!(length <= u8::MAX.into(), "a charge of {length} bytes");
    out[start] = length as u8;
}

/// The only charge of a call, appended to `out` behind its length: the numbers of a limit, without a cost,
/// behind the code of an operation and before what `more` appends.
pub(super) fn write_only(
    limit: &Limit,
    key: Key,
    code: u64,
    now: Timestamp,
    out: &mut Vec<u8>,
    more: impl FnOnce(&mut Vec<u8>),
) {
    let head = Head { kind: kind_of(limit), code, place: FIRST_PLACE, key };
    write_limit(limit, head, Task::Look, now, out, more);
}

fn write_limit(
    limit: &Limit,
    head: Head,
    task: Task,
    now: Timestamp,
    out: &mut Vec<u8>,
    more: impl FnOnce(&mut Vec<u8>),
) {
    behind_length(out, |out| {
        head.write(out);
        match limit {
            Limit::TokenBucket(limit) => BucketNumbers::of(limit, task).write(task, out),
            Limit::LeakyBucket(limit) => BucketNumbers::of(limit.queue(), task).write(task, out),
            Limit::SteppedBucket(limit) => stepped_bucket(limit, task, out),
            Limit::FixedWindow(limit) => fixed_window(limit, task, now, out),
            Limit::SlidingWindow(limit) => sliding_window(limit, task, out),
            Limit::SlidingSlots(limit) => sliding_slots(limit, task, out),
            Limit::SlidingLog(limit) => sliding_log(limit, task, out),
            Limit::Concurrency(limit) => concurrency(limit, task, out),
        }
        more(out);
    });
}

/// The number that the script has for an algorithm.
fn kind_of(limit: &Limit) -> u64 {
    match limit {
        Limit::TokenBucket(_) => 1,
        Limit::LeakyBucket(_) => 2,
        Limit::SteppedBucket(_) => 3,
        Limit::FixedWindow(limit) => match limit.windows() {
            Windows::Clock(_) => 4,
            Windows::FirstRequest(_) => 5,
            Windows::Calendar(_) => 6,
        },
        Limit::SlidingWindow(_) => 7,
        Limit::SlidingSlots(_) => 8,
        Limit::SlidingLog(_) => 9,
        Limit::Concurrency(_) => 10,
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
    fn of(limit: &TokenBucket, task: Task) -> Self {
        let (ticks, tokens) = limit.pace();
        let depth = u128::from(limit.burst()) * u128::from(ticks);
        // A debt lasts no longer than all of time, and of a refund no more is left to give back than a
        // debt after as long again.
        let most = 2 * u128::from(Span::MAX.as_micros()) * u128::from(tokens);
        Self {
            tokens: tokens.into(),
            ticks,
            depth,
            cut: depth + u128::from(SKEW_MAX.as_micros()) * u128::from(tokens),
            cost: (u128::from(task.cost()) * u128::from(ticks)).min(most),
            period: 1,
            last: 0,
        }
    }

    fn write_plain(&self, out: &mut Vec<u8>) {
        write(out, 4, self.tokens);
        write(out, 7, self.ticks);
        for units in [self.depth, self.cost] {
            write(out, 7, units as u64);
        }
    }

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
        Task::Release(lease) | Task::Renew(lease) if lease >> 10 < 1 << 53 => lease,
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

#[cfg(test)]
mod tests {
    use tidegate_core::Operation;

    use super::*;

    fn written(burst: u64, operation: Operation) -> Vec<u8> {
        let rate = Rate::new(1_003, Span::DAY).unwrap();
        let limit = Limit::from(TokenBucket::new(rate, burst).unwrap());
        let mut out = Vec::new();
        let charge = Charge { limit: &limit, key: Key::from_hash(1), operation };
        write_charge(&charge, false, FIRST_PLACE, Timestamp::ZERO, &mut out);
        assert_eq!(usize::from(out[0]), out.len(), "its length comes first");
        out
    }

    #[test]
    fn only_takes_of_numbers_that_doubles_hold_go_the_short_way() {
        let (take, peek) = (Operation::Take { cost: 1 }, Operation::Peek { cost: 1 });
        // A token is 86,400,000,000 units here.
        let most = (1_u64 << 52) / 86_400_000_000;
        for (burst, operation, kind) in [
            (1_000, take, 11),
            (1_000, peek, 11),
            (1_000, Operation::Debit { cost: 1 }, 1),
            (most, take, 11),
            (most + 1, take, 1),
        ] {
            assert_eq!(written(burst, operation)[1], kind, "{burst}: {operation:?}");
        }
    }
}
