//! Whether what was really admitted is what a limit allows, by each algorithm's own definition. It is slow
//! and knows nothing of leases, nor of the code that decides.
//!
//! What was given back counts as never taken, from then on.
//!
//! What a failover excuses is what promise 1 says, and no more: charges that the store had acknowledged
//! and lost count where they were made, so in windows that had begun by then; leases that were out can be
//! spent for [`SPENDABLE`](tidegate_redis::lease::SPENDABLE) more. A bucket that is full again has
//! nothing left of either.

use tidegate_core::fixed_window::Windows;
use tidegate_core::{Limit, Timestamp};

use super::history::{Fact, History, Loss, What};
use super::plan::Plan;

/// What is wrong with a history, if anything is.
pub fn overrun(plan: &Plan, history: &History) -> Option<String> {
    let oracle = Oracle { plan, facts: &history.facts };
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
    facts: &'a [Fact],
}

/// What counts in the current era, as far as facts have been read.
struct Era {
    number: u32,
    /// Which facts, when, and how much: nothing once it has been given back.
    taken: Vec<(usize, u64, u64)>,
    losses: Vec<(u32, u64, Loss)>,
    /// What was given back of earlier eras.
    credit: u64,
    reloads: Vec<(u32, u64)>,
}

/// What a fact means to a check.
enum Read {
    /// This was admitted last.
    Admitted,
    /// So much of that time was given back.
    GivenBack(u64, u64),
    Begins,
    Nothing,
}

impl Era {
    fn new() -> Self {
        let (taken, losses, reloads) = (Vec::new(), Vec::new(), Vec::new());
        Self { number: 0, taken, losses, credit: 0, reloads }
    }

    fn read(&mut self, number: usize, fact: &Fact) -> Read {
        match fact.what {
            What::Admitted(cost) => {
                self.taken.push((number, fact.at, cost));
                Read::Admitted
            }
            What::GivenBack(number) => {
                let place = self.taken.binary_search_by_key(&number, |(number, ..)| *number);
                let Ok(place) = place else {
                    // Who gives back what was forgotten gets it all the same.
                    self.credit += 1;
                    return Read::Nothing;
                };
                let (_, at, cost) = self.taken[place];
                self.taken[place].2 = 0;
                Read::GivenBack(at, cost)
            }
            What::Lost(loss) => {
                self.losses.push((fact.era, fact.at, loss));
                Read::Nothing
            }
            What::Reloaded => {
                self.reloads.push((fact.era, fact.at));
                Read::Nothing
            }
            What::Reset | What::SetBack(_) => {
                (self.number, self.credit) = (fact.era, 0);
                self.taken.clear();
                Read::Begins
            }
        }
    }

    /// What may be admitted beyond the limit in a window from `start` on.
    fn slack(&self, plan: &Plan, start: u64) -> u64 {
        let lost = self.losses.iter().map(|(era, at, loss)| {
            let (last_era, until) = loss.leases_until;
            let spent_by_then = last_era < self.number || last_era == self.number && until < start;
            let charges = if *era == self.number && *at >= start { loss.charges } else { 0 };
            charges + if spent_by_then { 0 } else { loss.leases }
        });
        lost.sum::<u64>() + self.credit * plan.cost_max
    }

    /// The limit's number in a window from `start` on: the larger one while nodes have different ones.
    fn number(&self, plan: &Plan, start: u64, number: impl Fn(&Limit) -> u64) -> u64 {
        let (old, Some((_, new))) = (number(&plan.limit), &plan.reload) else {
            return number(&plan.limit);
        };
        let all = self.reloads.len() >= plan.nodes;
        let before = |(era, at): &(u32, u64)| *era < self.number || *at < start;
        match (self.reloads.is_empty(), all && self.reloads.iter().all(before)) {
            (true, _) => old,
            (_, true) => number(new),
            _ => old.max(number(new)),
        }
    }
}

impl Oracle<'_> {
    /// All of a fixed window's, for all windows.
    fn windows(&self, window: impl Fn(u64) -> (u64, u64)) -> Option<String> {
        let (mut era, mut current, mut sum) = (Era::new(), (0, 0), 0);
        for (number, fact) in self.facts.iter().enumerate() {
            match era.read(number, fact) {
                Read::Admitted => {
                    let (_, at, cost) = *era.taken.last()?;
                    if !(current.0..current.1).contains(&at) {
                        (current, sum) = (window(at), 0);
                    }
                    sum += cost;
                    let start = current.0;
                    let most = era.number(self.plan, start, count) + era.slack(self.plan, start);
                    if sum > most {
                        return Some(format!("{sum} of {most} in the window of {at}"));
                    }
                }
                Read::GivenBack(at, cost) if (current.0..current.1).contains(&at) => sum -= cost,
                Read::Begins => (current, sum) = ((0, 0), 0),
                Read::GivenBack(..) | Read::Nothing => {}
            }
        }
        None
    }

    /// Any window that begins with something admitted.
    fn log(&self, period: u64) -> Option<String> {
        let (mut era, mut first, mut sum) = (Era::new(), 0, 0);
        for (number, fact) in self.facts.iter().enumerate() {
            match era.read(number, fact) {
                Read::Admitted => {
                    let (_, at, cost) = *era.taken.last()?;
                    sum += cost;
                    while era.taken[first].1 + period <= at {
                        sum -= era.taken[first].2;
                        first += 1;
                    }
                    let start = era.taken[first].1;
                    let most = era.number(self.plan, start, count) + era.slack(self.plan, start);
                    if sum > most {
                        return Some(format!("{sum} of {most} from {start} to {at}"));
                    }
                }
                Read::GivenBack(at, cost) => {
                    // Those of one time are all inside or all outside.
                    let inside = era.taken.get(first).is_some_and(|(_, start, _)| at >= *start);
                    sum -= if inside { cost } else { 0 };
                }
                Read::Begins => (first, sum) = (0, 0),
                Read::Nothing => {}
            }
        }
        None
    }

    /// The newest slots at any time at which something is admitted, and the slot of that time.
    fn slots(&self, period: u64, slots: u64) -> Option<String> {
        let length = period / slots;
        let mut era = Era::new();
        for (number, fact) in self.facts.iter().enumerate() {
            if !matches!(era.read(number, fact), Read::Admitted) {
                continue;
            }
            let at = fact.at;
            let newest = at / length;
            let sum_since = |slot: u64| -> u64 {
                let since = era.taken.iter().rev().take_while(|(_, at, _)| at / length >= slot);
                since.map(|(.., cost)| cost).sum()
            };
            let oldest = newest.saturating_sub(slots - 1);
            for (slot, number) in [(oldest, count as fn(&Limit) -> u64), (newest, per_slot)] {
                let start = slot * length;
                let slack = era.slack(self.plan, start);
                let most = era.number(self.plan, start, number).saturating_add(slack);
                let sum = sum_since(slot);
                if sum > most {
                    return Some(format!("{sum} of {most} in the slots from {start} to {at}"));
                }
            }
        }
        None
    }

    /// `previous * (W - elapsed) + current * W <= N * W`, whenever something is admitted.
    fn sliding(&self, length: u64) -> Option<String> {
        let (mut era, mut start, mut previous, mut current) = (Era::new(), 0, 0_u64, 0_u64);
        for (number, fact) in self.facts.iter().enumerate() {
            match era.read(number, fact) {
                Read::Admitted => {
                    let (_, at, cost) = *era.taken.last()?;
                    let begin = at - at % length;
                    if begin != start {
                        previous = if begin == start + length { current } else { 0 };
                        (start, current) = (begin, 0);
                    }
                    current += cost;
                    let used = u128::from(previous) * u128::from(length - at % length)
                        + u128::from(current) * u128::from(length);
                    let from = start.saturating_sub(length);
                    let most = era.number(self.plan, from, count) + era.slack(self.plan, from);
                    if used > u128::from(most) * u128::from(length) {
                        return Some(format!("{previous} and {current} of {most} at {at}"));
                    }
                }
                Read::GivenBack(at, cost) if at >= start => current -= cost,
                Read::GivenBack(at, cost) if at + length >= start => previous -= cost,
                Read::Begins => (start, previous, current) = (0, 0, 0),
                Read::GivenBack(..) | Read::Nothing => {}
            }
        }
        None
    }

    /// The level of a bucket that is charged whenever something is admitted: never below none.
    fn bucket(&self) -> Option<String> {
        let pace = Pace::of(&self.plan.limit);
        let mut given_back = vec![false; self.facts.len()];
        let out = (0, (0, 0));
        let mut level = Level { missing: 0, excused: 0, out, at: self.plan.start };
        // The last fact at which it was full, and how it was then: what was before does not matter any more.
        let mut full = (0, level);
        for (number, fact) in self.facts.iter().enumerate() {
            if let What::GivenBack(taken) = fact.what {
                given_back[taken] = true;
                if taken >= full.0 {
                    level = full.1;
                    let replayed = given_back.iter().enumerate().take(number).skip(full.0);
                    for (number, is_given_back) in replayed {
                        let credit = self.credit(number);
                        if number > full.0 {
                            level.refill(&pace, &self.facts[number]);
                        }
                        level.apply(&pace, &self.facts[number], *is_given_back, credit);
                    }
                }
            }
            level.refill(&pace, fact);
            if level.missing == 0 {
                full = (number, level);
            }
            level.apply(&pace, fact, given_back[number], self.credit(number));
            if level.missing > pace.depth + level.excused {
                let over = (level.missing - pace.depth - level.excused).div_ceil(pace.unit);
                return Some(format!("{over} more than the bucket had at {}", fact.at));
            }
        }
        None
    }

    /// What a fact gives back of an earlier era: how much of it had come back by itself is not known any more.
    fn credit(&self, number: usize) -> u64 {
        let What::GivenBack(taken) = self.facts[number].what else { return 0 };
        match self.facts[taken] {
            Fact { era, what: What::Admitted(cost), .. } if era < self.facts[number].era => cost,
            _ => 0,
        }
    }
}

/// A bucket in units.
#[derive(Clone, Copy)]
struct Level {
    /// What is missing from a full one.
    missing: u128,
    /// How much more than all of it may be.
    excused: u128,
    /// What of that are leases that can still be spent, and until which era and time.
    out: (u128, (u32, u64)),
    at: u64,
}

struct Pace {
    unit: u128,
    depth: u128,
    refill: Box<dyn Fn(u64, u64) -> u128>,
}

impl Pace {
    fn of(limit: &Limit) -> Self {
        match limit {
            Limit::TokenBucket(limit) => {
                let (ticks, tokens) = limit.pace();
                let (unit, tokens) = (u128::from(ticks), u128::from(tokens));
                let refill = move |from: u64, to: u64| u128::from(to - from) * tokens;
                Self { unit, depth: u128::from(limit.burst()) * unit, refill: Box::new(refill) }
            }
            Limit::SteppedBucket(limit) => {
                let (count, period) = (limit.rate().count(), limit.rate().period().as_micros());
                let refill = move |from: u64, to: u64| {
                    u128::from(to / period - from / period) * u128::from(count)
                };
                Self { unit: 1, depth: limit.burst().into(), refill: Box::new(refill) }
            }
            _ => unreachable!("no bucket"),
        }
    }
}

impl Level {
    fn refill(&mut self, pace: &Pace, fact: &Fact) {
        match fact.what {
            What::Reset => self.missing = 0,
            What::SetBack(from) => self.come_back(pace, from),
            _ => self.come_back(pace, fact.at),
        }
        self.at = fact.at;
        if (fact.era, fact.at) > self.out.1 {
            self.out.0 = 0;
        }
        if self.missing == 0 {
            self.excused = self.out.0;
        }
    }

    fn come_back(&mut self, pace: &Pace, to: u64) {
        self.missing = self.missing.saturating_sub((pace.refill)(self.at, to));
    }

    fn apply(&mut self, pace: &Pace, fact: &Fact, given_back: bool, credit: u64) {
        self.excused += u128::from(credit) * pace.unit;
        match fact.what {
            What::Admitted(cost) if !given_back => self.missing += u128::from(cost) * pace.unit,
            What::Lost(loss) => {
                let leases = u128::from(loss.leases) * pace.unit;
                self.excused += u128::from(loss.charges) * pace.unit + leases;
                self.out = (self.out.0 + leases, self.out.1.max(loss.leases_until));
            }
            _ => {}
        }
    }
}

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
