//! What happens in a world, drawn from its seed.

use tidegate_core::calendar::{Calendar, CalendarUnit, Zone};
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    FixedWindow, Limit, Rate, SlidingLog, SlidingSlots, SlidingWindow, Span, SteppedBucket,
    TokenBucket,
};

use super::Random;
use crate::leasing::model::Fault;

/// A world before it begins. Times are in microseconds of the store's clock, which is the true one.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub limit: Limit,
    /// Other numbers, which the nodes hear of one after the other from some time on.
    pub reload: Option<(u64, Limit)>,
    pub start: u64,
    pub length: u64,
    pub nodes: usize,
    /// Requests per second of each node while it has any.
    pub demand: Vec<u64>,
    /// Every cost is 1 if it is 1.
    pub cost_max: u64,
    pub network: Network,
    /// How often in a thousand chances, of which there is one in 50 ms for each node.
    pub crashes: u64,
    pub pauses: u64,
    /// How often a node is cut off from the store for a while.
    pub cuts: u64,
    pub bursts: bool,
    /// How often in a thousand chances, of which there is one in 50 ms: the store falls back to what it was
    /// a moment ago, or to nothing; its clock is set; a node resets the key.
    pub failovers: u64,
    pub clock_steps: u64,
    pub resets: u64,
    /// How many in a thousand takes are given back, are made beside the lease, or only look.
    pub refunds: u64,
    pub direct: u64,
    pub peeks: u64,
    /// How much faster or slower than the true time clocks run at most, in parts per thousand.
    pub drift: u64,
    /// The mistakes that the store and the nodes make, if any.
    pub fault: Option<Fault>,
    pub mistake: Option<Mistake>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Network {
    pub delay_min: u64,
    pub delay_max: u64,
    /// In a thousand: messages that take up to [`Network::slow_max`], that get lost, that come twice.
    pub slow: u64,
    pub slow_max: u64,
    pub lost: u64,
    pub twice: u64,
}

/// A mistake of nodes, made on purpose to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Spends as if no time passed since the last answer.
    IgnoresDeadline,
    /// Takes late answers for the latest one.
    AcceptsStale,
    /// Spends what it has offered to give back.
    SpendsTheReturned,
    /// All clocks run at a tenth of their speed.
    SlowClock,
    /// Undoes what was taken strictly as if a lease had paid for it.
    UndoesStrictTakes,
    /// Undoes what the store has been told of, at the cost of what it has not.
    UndoesTheTold,
    /// Gives back to the store what it has undone itself.
    RefundsTheUndone,
    /// Wants all that there is.
    Hoards,
}

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let start = 1_790_553_600_000_000 - random.between(0, 4_000_000);
        let limit = limit(&mut random, 1_000);
        let nodes = random.between(1, 6) as usize;
        let per_second = per_second(&limit);
        let demand = (0..nodes)
            .map(|_| (per_second * random.between(100, 3_000) / 1_000).clamp(5, 4_000))
            .collect();
        let calm = random.chance(250);
        let mut rare = |most: u64| {
            if calm || random.chance(500) { 0 } else { random.between(1, most) }
        };
        let (crashes, pauses, cuts, failovers) = (rare(20), rare(20), rare(20), rare(15));
        let (lost, twice, slow, reloads) = (rare(100), rare(100), rare(100), rare(1));
        let (clock_steps, resets, refunds) = (rare(20), rare(10), rare(200));
        let (direct, peeks) = (rare(100), rare(50));
        let network = Network {
            delay_min: random.between(20, 500),
            delay_max: random.between(500, 5_000),
            slow,
            slow_max: random.between(5_000, 900_000),
            lost,
            twice,
        };
        let length = random.between(2_000_000, 5_000_000);
        // A bucket that is fuller than its new numbers allow is cut to them, so while some nodes have old
        // numbers and some new ones there is no definition to hold it to, strictly kept or leased.
        let bucket = matches!(limit, Limit::TokenBucket(_) | Limit::SteppedBucket(_));
        let reload = (reloads > 0 && !bucket).then(|| {
            let at = start + random.between(500_000, length);
            (at, scaled(&limit, random.between(200, 3_000)))
        });
        Self {
            seed,
            reload,
            start,
            length,
            nodes,
            demand,
            cost_max: if random.chance(600) { 1 } else { random.between(2, 12) },
            network,
            crashes,
            pauses,
            cuts,
            bursts: random.chance(400),
            failovers,
            clock_steps,
            resets,
            refunds,
            direct,
            peeks,
            drift: random.between(0, 20),
            limit,
            fault: None,
            mistake: None,
        }
    }

    /// The same with much that goes wrong, but nothing that excuses going over.
    pub fn rough(self) -> Self {
        let network =
            Network { slow: 150, slow_max: 900_000, lost: 50, twice: 150, ..self.network };
        let calm = Self { crashes: 0, failovers: 0, reload: None, ..self.without_excuses() };
        Self { network, pauses: 60, cuts: 20, bursts: true, cost_max: 1, ..calm }
    }

    /// The same without what begins an era.
    fn without_excuses(self) -> Self {
        Self { clock_steps: 0, resets: 0, ..self }
    }

    /// The same with much that is given back, and much that is taken beside the lease.
    pub fn wavering(self) -> Self {
        Self { refunds: 300, direct: 100, pauses: 0, cuts: 0, ..self }
    }

    /// The same with short windows, of which several pass while a lease lasts; one node that holds what
    /// it has for long, and others that take all that is left.
    pub fn hasty(self) -> Self {
        let mut random = Random::new(!self.seed);
        let count = random.between(10, 200);
        let rate = Rate::new(count, Span::from_millis(100)).unwrap();
        let limit = match random.between(0, 3) {
            0 => FixedWindow::new(count, Windows::Clock(rate.period())).unwrap().into(),
            1 => SlidingWindow::new(rate).unwrap().into(),
            2 => SlidingSlots::new(rate, 5, None).unwrap().into(),
            _ => SlidingLog::new(rate).unwrap().into(),
        };
        let demand = vec![random.between(100, 400), 2_000, 2_000];
        Self { limit, demand, nodes: 3, ..self }
    }
}

/// A limit of any algorithm that can be leased, with its count scaled by so many thousandths.
pub fn limit(random: &mut Random, scale: u64) -> Limit {
    let most = [10, 100, 2_000][random.between(0, 2) as usize];
    let count = random.between(1, most);
    let count = (count * scale / 1_000).max(1);
    let period = [100, 1_000, 2_000, 3_600_000][random.between(0, 3) as usize];
    let rate = Rate::new(count, Span::from_millis(period)).unwrap();
    match random.between(0, 6) {
        0 => {
            let fast = Rate::new(count, Span::SECOND).unwrap();
            TokenBucket::new(fast, random.between(1, 2 * count)).unwrap().into()
        }
        1 => SteppedBucket::new(rate, random.between(1, 2 * count)).unwrap().into(),
        2 => FixedWindow::new(count, Windows::Clock(rate.period())).unwrap().into(),
        3 => SlidingWindow::new(rate).unwrap().into(),
        4 => {
            let slots = [2, 5, 10, 50][random.between(0, 3) as usize];
            let per_slot = random.chance(500).then(|| random.between(1, count));
            SlidingSlots::new(rate, slots, per_slot).unwrap().into()
        }
        5 => SlidingLog::new(rate).unwrap().into(),
        _ => {
            let day = Calendar::new(CalendarUnit::Day, Zone::utc());
            FixedWindow::new(count, Windows::Calendar(day)).unwrap().into()
        }
    }
}

/// The same limit with its numbers scaled by so many thousandths.
fn scaled(limit: &Limit, thousandths: u64) -> Limit {
    limit.scaled(thousandths.div_ceil(10) as u32)
}

/// What the limit admits in a second, at least 1, where no pause is long.
fn per_second(limit: &Limit) -> u64 {
    let capacity = limit
        .decide(None, tidegate_core::Timestamp::ZERO, tidegate_core::Operation::Peek { cost: 0 })
        .0
        .limit;
    let period = limit.period().as_micros().clamp(1, 2_000_000);
    (capacity * 1_000_000 / period).clamp(1, 3_000)
}
