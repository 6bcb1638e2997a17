//! Where the time of a decision on one hot key goes: each of its parts alone in the same loop, and
//! the whole. The parts need not add up to the whole, since a processor is at several of them at
//! once. It compares nothing with peers, and it has no targets.

use std::error::Error;
use std::hint::black_box;

use tidegate::{Clock, Keyed, Limiter, ManualClock, SystemClock};
use tidegate_core::{Key, Limit, Operation, Timestamp};
use tidegate_rules::identity::KeyHasher;
use tidegate_store::{Table, TableConfig};

use crate::contenders::tidegate::{MEMORY_BYTES_MIN, bucket, limiter};
use crate::contenders::{Contender, Quota};
use crate::harness::{self, Recruit, Timing};
use crate::targets::Figure;
use crate::workloads::{self, key_string};

/// The times of the parts and of the whole, in turns.
pub(crate) fn run() -> Result<Vec<Timing>, Box<dyn Error>> {
    let parts = [
        Recruit::of::<Nothing>(),
        Recruit::of::<ReadClock>(),
        Recruit::of::<Hash>(),
        Recruit::of::<Take>(),
        Recruit::of::<ClockAndTake>(),
        Recruit::of::<HashAndTake>(),
        Recruit::of::<Whole>(),
    ];
    harness::run(&workloads::hot_key_in_short_rounds(), &parts)
}

/// The same times for the JSON file.
pub(crate) fn figures(timings: &[Timing]) -> impl Iterator<Item = Figure> {
    timings.iter().flat_map(|timing| {
        [("best", timing.best_ns()), ("median", timing.median_ns())].map(|(which, value)| Figure {
            figure: format!("parts of a hot decision: {}, {which}", timing.contender),
            value,
            unit: "ns",
            peer: None,
            target: None,
        })
    })
}

/// A part of a decision, which is built from a quota and does one step for each key.
macro_rules! part {
    ($part:ident, $name:literal, $build:expr, $step:expr) => {
        impl Contender for $part {
            type Key = String;
            const NAME: &'static str = $name;

            fn new(quota: Quota, _keys: u32) -> Result<Self, Box<dyn Error>> {
                let build: fn(Quota) -> Result<Self, Box<dyn Error>> = $build;
                build(quota)
            }

            #[inline]
            fn check(&self, key: &String) -> bool {
                $step(self, key)
            }
        }
    };
}

struct Nothing;
part!(Nothing, "the loop alone", |_| Ok(Self), |_: &Self, key: &String| {
    black_box(key.as_ptr());
    true
});

struct ReadClock;
part!(ReadClock, "the clock", |_| Ok(Self), |_: &Self, _: &String| {
    black_box(SystemClock.now());
    true
});

struct Hash(KeyHasher);
part!(Hash, "the hash of the key", |_| Ok(Self(hasher())), |part: &Self, key: &String| {
    black_box(key.subject(&part.0));
    true
});

struct Take(Entry);
part!(
    Take,
    "the take in the table",
    |quota| Entry::new(quota).map(Self),
    |part: &Self, _: &String| { part.0.take(black_box(part.0.made_at)) }
);

struct ClockAndTake(Entry);
part!(
    ClockAndTake,
    "clock and take, no hash",
    |quota| Entry::new(quota).map(Self),
    |part: &Self, _: &String| part.0.take(SystemClock.now())
);

struct HashAndTake(Limiter<ManualClock>);
part!(
    HashAndTake,
    "Limiter::check, its clock standing still",
    |quota| {
        let builder = Limiter::builder().limit(bucket(quota)?).memory_bytes(MEMORY_BYTES_MIN);
        Ok(Self(builder.clock(ManualClock::new()).build()?))
    },
    |part: &Self, key: &String| part.0.check(key).is_allowed()
);

struct Whole(Limiter);
part!(Whole, "Limiter::check", |quota| limiter(quota, 1).map(Self), |part: &Self, key: &String| {
    part.0.check(key).is_allowed()
});

/// A table, and the key in it whose hash is known.
struct Entry {
    table: Table,
    limit: Limit,
    key: Key,
    made_at: Timestamp,
}

impl Entry {
    fn new(quota: Quota) -> Result<Self, Box<dyn Error>> {
        let (limit, made_at) = (bucket(quota)?, SystemClock.now());
        let table = Table::new(TableConfig::for_limits(MEMORY_BYTES_MIN, [&limit]), made_at)?;
        let key = key_string(0).subject(&hasher()).key(hasher().salt([]));
        Ok(Self { table, limit, key, made_at })
    }

    /// As the limiter calls the table.
    #[inline]
    fn take(&self, now: Timestamp) -> bool {
        let fetched = self.table.prefetch(black_box(self.key));
        let take = Operation::Take { cost: 1 };
        self.table.decide_fetched(now, &self.limit, fetched, take, |decision| decision.is_allowed())
    }
}

fn hasher() -> KeyHasher {
    KeyHasher::new(b"any secret of 16")
}
