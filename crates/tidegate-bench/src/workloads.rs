//! What is asked of every contender: which keys, in which order, from how many threads. Keys are
//! made beforehand, in the order in which they are used, so that a timed loop neither formats a key
//! nor looks one up.

use crate::contenders::Quota;
use crate::random::{Random, Zipf, mix};

/// Keys of one size class, filled once, and the workloads that run over them.
pub(crate) struct Stage {
    /// How many keys the limiters hold.
    pub(crate) keys: u32,
    /// The limit of each key: one that allows nearly every call, and whose keys stay active.
    pub(crate) quota: Quota,
    pub(crate) workloads: Vec<Shape>,
    /// How often each contender is timed.
    pub(crate) rounds: usize,
    /// How many decisions one timing takes, over all threads.
    pub(crate) decisions: usize,
}

/// A workload before its keys are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) order: Order,
    pub(crate) threads: Threads,
}

/// How often which key comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Hot,
    Uniform { millions: u32 },
    Zipf { millions: u32 },
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    One,
    /// Two threads, each on its own half of the keys.
    TwoDistinct,
    /// Two threads on the same keys.
    TwoShared,
}

/// The skew of the Zipf workload.
const ZIPF_EXPONENT: f64 = 1.1;

impl Shape {
    pub(crate) const fn new(order: Order, threads: Threads) -> Self {
        Self { order, threads }
    }

    /// The name in tables and in the JSON file.
    pub(crate) fn name(self) -> String {
        let order = match self.order {
            Order::Hot => "one hot key".to_owned(),
            Order::Uniform { millions } => format!("{millions} M keys uniform"),
            Order::Zipf { millions } => format!("{millions} M keys Zipf({ZIPF_EXPONENT})"),
        };
        let threads = match (self.threads, self.order) {
            (Threads::One, _) => "1 thread",
            (Threads::TwoDistinct, Order::Hot) => "2 threads, a key each",
            (Threads::TwoDistinct, _) => "2 threads, distinct keys",
            (Threads::TwoShared, Order::Hot) => "2 threads, same key",
            (Threads::TwoShared, _) => "2 threads, same keys",
        };
        format!("{order}, {threads}")
    }

    /// Makes the keys: one lane per thread.
    pub(crate) fn prepare(self, keys: u32, decisions: usize) -> Vec<Lane> {
        let (lanes, distinct) = match self.threads {
            Threads::One => (1, false),
            Threads::TwoDistinct => (2, true),
            Threads::TwoShared => (2, false),
        };
        let share = if distinct { keys / lanes } else { keys };
        (0..lanes)
            .map(|lane| {
                let first = if distinct { lane * share } else { 0 };
                let mut random = Random::new(u64::from(lane) + 1);
                let ids = self.order.sequence(share, decisions / lanes as usize, &mut random);
                Lane::new(ids.into_iter().map(|id| first + id).collect())
            })
            .collect()
    }
}

impl Order {
    /// `length` key numbers below `keys`.
    fn sequence(self, keys: u32, length: usize, random: &mut Random) -> Vec<u32> {
        match self {
            Self::Hot => vec![0; length],
            Self::Uniform { .. } => (0..length).map(|_| random.below(keys)).collect(),
            Self::Zipf { .. } => {
                let zipf = Zipf::new(keys, ZIPF_EXPONENT);
                (0..length).map(|_| scatter(zipf.sample(random) - 1, keys)).collect()
            }
        }
    }
}

/// Spreads ranks over the key space, so that popular keys are not neighbours in the order in which
/// limiters were filled. The multiplier is a prime above every key count, so this is a permutation.
fn scatter(rank: u32, keys: u32) -> u32 {
    const PRIME: u64 = 2_654_435_761;
    (u64::from(rank) * PRIME % u64::from(keys)) as u32
}

/// The keys that one thread asks about, in order, in each form that is cheap to hold.
pub(crate) struct Lane {
    pub(crate) ids: Vec<u32>,
    pub(crate) strings: Vec<String>,
    pub(crate) bytes: Vec<[u8; 16]>,
}

impl Lane {
    fn new(ids: Vec<u32>) -> Self {
        let strings = ids.iter().map(|&id| key_string(id)).collect();
        let bytes = ids.iter().map(|&id| key_bytes(id)).collect();
        Self { ids, strings, bytes }
    }
}

/// The key of that number as text, as an application would spell a user.
pub(crate) fn key_string(id: u32) -> String {
    format!("user:{id:08}")
}

/// The key of that number as the sixteen bytes of an identifier.
pub(crate) fn key_bytes(id: u32) -> [u8; 16] {
    let number = u64::from(id);
    let wide = (u128::from(mix(number)) << 64) | u128::from(mix(number ^ u64::MAX));
    wide.to_le_bytes()
}

/// A token a minute, so that a key stays active from one round to the next; a burst that even the
/// busiest key of the run does not use up.
const BUSY: Quota = Quota { token_secs: 60, burst: 10_000_000 };

/// One thread on one hot key, in more and shorter rounds: one of them meets nobody else.
pub(crate) fn hot_key_in_short_rounds() -> Stage {
    let workloads = vec![Shape::new(Order::Hot, Threads::One)];
    Stage { keys: 1, quota: BUSY, workloads, rounds: 30, decisions: 200_000 }
}

/// The workloads of a full run, or of a quick one: fewer rounds, and no ten million keys.
pub(crate) fn stages(quick: bool) -> Vec<Stage> {
    use Threads::{One, TwoDistinct, TwoShared};
    let calm = Quota { token_secs: 3600, burst: 10_000 };
    let (rounds, decisions) = if quick { (3, 400_000) } else { (7, 1_000_000) };
    let hot = |threads| Stage {
        keys: 2,
        quota: BUSY,
        workloads: vec![Shape::new(Order::Hot, threads)],
        rounds,
        decisions,
    };
    let uniform = Order::Uniform { millions: 1 };
    let zipf = Order::Zipf { millions: 1 };
    let million = Stage {
        keys: 1_000_000,
        quota: BUSY,
        workloads: vec![
            Shape::new(uniform, One),
            Shape::new(uniform, TwoDistinct),
            Shape::new(zipf, One),
            Shape::new(zipf, TwoDistinct),
        ],
        rounds,
        decisions: decisions * 2,
    };
    let mut stages = vec![hot(One), hot(TwoShared), hot(TwoDistinct), million];
    if !quick {
        let uniform = Order::Uniform { millions: 10 };
        stages.push(Stage {
            keys: 10_000_000,
            quota: calm,
            workloads: vec![Shape::new(uniform, One), Shape::new(uniform, TwoDistinct)],
            rounds: 5,
            decisions: 4_000_000,
        });
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_ranks_are_a_permutation() {
        for keys in [500_000, 1_000_000] {
            let mut seen = vec![false; keys as usize];
            (0..keys).for_each(|rank| seen[scatter(rank, keys) as usize] = true);
            assert!(seen.into_iter().all(|seen| seen));
        }
    }

    #[test]
    fn threads_on_distinct_keys_share_none() {
        let lanes =
            Shape::new(Order::Uniform { millions: 1 }, Threads::TwoDistinct).prepare(100, 2000);
        assert!(lanes[0].ids.iter().all(|&id| id < 50));
        assert!(lanes[1].ids.iter().all(|&id| (50..100).contains(&id)));
    }
}
