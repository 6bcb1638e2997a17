//! Whether what was really admitted is what a limit allows, by each algorithm's own definition. It is slow
//! and knows nothing of leases, nor of the code that decides.

use tidegate_core::fixed_window::Windows;
use tidegate_core::{Limit, Timestamp};

use super::plan::Plan;
use super::world::History;

/// What is wrong with a history, if anything is.
pub fn overrun(plan: &Plan, history: &History) -> Option<String> {
    let oracle = Oracle::new(plan, history);
    match &plan.limit {
        Limit::TokenBucket(_) | Limit::SteppedBucket(_) => oracle.bucket(),
        Limit::FixedWindow(limit) => match limit.windows() {
            Windows::Clock(length) => {
                let length = length.as_micros();
                oracle.windows(|at| (at - at % length, at - at % length + length))
            }
            Windows::Calendar(calendar) => oracle.windows(|at| {
                let (start, end) = calendar.window_containing(Timestamp::from_micros(at));
                (start.as_micros(), end.as_micros())
            }),
            Windows::FirstRequest(_) => unreachable!("not leased"),
        },
        Limit::SlidingWindow(limit) => oracle.sliding(limit.rate().period().as_micros()),
        Limit::SlidingSlots(limit) => {
            oracle.slots(limit.rate().period().as_micros(), u64::from(limit.slots()))
        }
        Limit::SlidingLog(limit) => oracle.log(limit.rate().period().as_micros()),
        Limit::LeakyBucket(_) | Limit::Concurrency(_) => unreachable!("not leased"),
    }
}

struct Oracle<'a> {
    plan: &'a Plan,
    history: &'a History,
    admitted: Vec<(u64, u64)>,
}

impl<'a> Oracle<'a> {
    fn new(plan: &'a Plan, history: &'a History) -> Self {
        let mut admitted = history.admitted.clone();
        admitted.sort_unstable();
        Self { plan, history, admitted }
    }

    /// The larger of the numbers that were in force at some time from `from` to `to`.
    fn numbers(&self, from: u64, to: u64, number: impl Fn(&Limit) -> u64) -> u64 {
        let (old, Some((_, new))) = (number(&self.plan.limit), &self.plan.reload) else {
            return number(&self.plan.limit);
        };
        let (first, last) = self.history.reloaded.expect("times of the reload");
        match (to < first, from > last) {
            (true, _) => old,
            (_, true) => number(new),
            _ => old.max(number(new)),
        }
    }

    /// What may be admitted beyond the limit between `from` and `to`, for what the store lost by then.
    fn slack(&self, from: u64, to: u64) -> u64 {
        let lost = self.history.failovers.iter().filter(|(at, _)| from <= *at && *at <= to);
        lost.map(|(_, lost)| lost).sum()
    }

    /// All of a fixed window's, for all windows.
    fn windows(&self, window: impl Fn(u64) -> (u64, u64)) -> Option<String> {
        let mut rest = &self.admitted[..];
        while let [(at, _), ..] = rest {
            let (start, end) = window(*at);
            let inside = rest.partition_point(|(at, _)| *at < end);
            let sum: u64 = rest[..inside].iter().map(|(_, cost)| cost).sum();
            let most = self.numbers(start, end, count) + self.slack(start - LATE, end);
            if sum > most {
                return Some(format!("{sum} of {most} in the window from {start} to {end}"));
            }
            rest = &rest[inside..];
        }
        None
    }

    /// Any window that begins with something admitted.
    fn log(&self, period: u64) -> Option<String> {
        let (mut first, mut sum) = (0, 0);
        for (at, cost) in &self.admitted {
            sum += cost;
            while self.admitted[first].0 + period <= *at {
                sum -= self.admitted[first].1;
                first += 1;
            }
            let start = self.admitted[first].0;
            let most = self.numbers(start, *at, count) + self.slack(start - LATE, *at);
            if sum > most {
                return Some(format!("{sum} of {most} from {start} to {at}"));
            }
        }
        None
    }

    /// The newest slots at any time at which something is admitted, and the slot of that time.
    fn slots(&self, period: u64, slots: u64) -> Option<String> {
        let length = period / slots;
        for (index, (at, _)) in self.admitted.iter().enumerate() {
            let newest = at / length;
            let sum_since = |slot: u64| -> u64 {
                let before = self.admitted[..=index].iter().rev();
                let since = before.take_while(|(at, _)| at / length >= slot);
                since.map(|(_, cost)| cost).sum()
            };
            let oldest = newest.saturating_sub(slots - 1);
            let slack = self.slack(oldest * length - LATE, *at);
            let most = self.numbers(oldest * length, *at, count) + slack;
            let sum = sum_since(oldest);
            if sum > most {
                return Some(format!("{sum} of {most} in the slots up to {at}"));
            }
            let most = self.numbers(newest * length, *at, per_slot).saturating_add(slack);
            let sum = sum_since(newest);
            if sum > most {
                return Some(format!("{sum} of {most} in the slot of {at}"));
            }
        }
        None
    }

    /// `previous * (W - elapsed) + current * W <= N * W`, whenever something is admitted.
    fn sliding(&self, length: u64) -> Option<String> {
        let (mut start, mut previous, mut current) = (0, 0_u64, 0_u64);
        for (at, cost) in &self.admitted {
            let begin = at - at % length;
            if begin != start {
                previous = if begin == start + length { current } else { 0 };
                (start, current) = (begin, 0);
            }
            current += cost;
            let used = u128::from(previous) * u128::from(length - at % length)
                + u128::from(current) * u128::from(length);
            let from = start.saturating_sub(length);
            let most = self.numbers(from, *at, count) + self.slack(from - LATE, *at);
            if used > u128::from(most) * u128::from(length) {
                return Some(format!("{previous} and {current} of {most} at {at}"));
            }
        }
        None
    }

    /// The level of a bucket that is charged whenever something is admitted, in units: never below none.
    fn bucket(&self) -> Option<String> {
        let (unit, depth, refill): (u128, u128, Refill) = match &self.plan.limit {
            Limit::TokenBucket(limit) => {
                let (ticks, tokens) = limit.pace();
                let refill = move |from: u64, to: u64| u128::from(to - from) * u128::from(tokens);
                let unit = u128::from(ticks);
                (unit, u128::from(limit.burst()) * unit, Box::new(refill))
            }
            Limit::SteppedBucket(limit) => {
                let (count, period) = (limit.rate().count(), limit.rate().period().as_micros());
                let refill = move |from: u64, to: u64| {
                    u128::from(to / period - from / period) * u128::from(count)
                };
                (1, limit.burst().into(), Box::new(refill))
            }
            _ => unreachable!("no bucket"),
        };
        // What is missing from a full bucket.
        let (mut missing, mut last) = (0_u128, self.plan.start);
        for (at, cost) in &self.admitted {
            missing = missing.saturating_sub(refill(last, *at)) + u128::from(*cost) * unit;
            last = *at;
            let slack = u128::from(self.slack(0, *at)) * unit;
            if missing > depth + slack {
                let over = (missing - depth - slack).div_ceil(unit);
                return Some(format!("{over} more than the bucket had at {at}"));
            }
        }
        None
    }
}

/// How many units come back from one time to another.
type Refill = Box<dyn Fn(u64, u64) -> u128>;

/// A failover still shows in a window that begins so long after it: leases that were lost last until then.
const LATE: u64 = 1_000_000;

fn count(limit: &Limit) -> u64 {
    match limit {
        Limit::TokenBucket(limit) => limit.burst(),
        Limit::SteppedBucket(limit) => limit.burst(),
        Limit::FixedWindow(limit) => limit.count(),
        Limit::SlidingWindow(limit) => limit.rate().count(),
        Limit::SlidingSlots(limit) => limit.rate().count(),
        Limit::SlidingLog(limit) => limit.rate().count(),
        Limit::LeakyBucket(_) | Limit::Concurrency(_) => unreachable!("not leased"),
    }
}

fn per_slot(limit: &Limit) -> u64 {
    match limit {
        Limit::SlidingSlots(limit) => limit.per_slot().unwrap_or(u64::MAX),
        _ => u64::MAX,
    }
}
