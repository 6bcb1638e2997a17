//! The limiters that are measured, each behind the same small seam. Calls are monomorphised: the
//! only dynamic call is one per timed block.
//!
//! What makes it fair: everyone gets the same limit and the same keys in the same order, made
//! beforehand in the type that its own interface takes; everyone reads its own clock, as its users
//! do; of every answer only "allowed or not" is read; everyone is told how many keys to expect
//! where it can be told.

pub(crate) mod arithmetic;
pub(crate) mod governor;
pub(crate) mod limitador;
pub(crate) mod throttlecrab;
pub(crate) mod tidegate;

use std::error::Error;
use std::ops::Range;

use crate::harness::Recruit;
use crate::workloads::{Lane, key_bytes, key_string};

/// A limit in the terms that every contender can express.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    /// How long one token takes to come back, in seconds.
    pub(crate) token_secs: u32,
    /// How many may be taken at once.
    pub(crate) burst: u32,
}

/// A limiter under test.
pub(crate) trait Contender: Sized + Sync {
    /// What its interface takes as a key.
    type Key: Key;
    /// The name in tables.
    const NAME: &'static str;
    /// Contenders that take microseconds per call get only one in so many of the calls, another
    /// part of the sequence in each round.
    const CALLS_DIVISOR: usize = 1;

    /// A limiter for that many keys.
    fn new(quota: Quota, keys: u32) -> Result<Self, Box<dyn Error>>;

    /// Takes one of the key's quota; whether it was allowed.
    fn check(&self, key: &Self::Key) -> bool;

    /// Takes one for each key in turn; how many were allowed.
    fn run(&self, keys: &[Self::Key]) -> usize {
        keys.iter().filter(|key| self.check(key)).count()
    }

    /// As [`Contender::run`], for a thread that has the limiter to itself and needs no lock.
    fn run_alone(&mut self, keys: &[Self::Key]) -> usize {
        self.run(keys)
    }
}

/// A type of key, with where its prepared values are.
pub(crate) trait Key: Sized + Sync {
    /// The key of that number.
    fn of(id: u32) -> Self;

    /// Hands over part of a lane's keys.
    fn with<R>(lane: &Lane, part: Range<usize>, use_keys: impl FnOnce(&[Self]) -> R) -> R;
}

impl Key for String {
    fn of(id: u32) -> Self {
        key_string(id)
    }

    fn with<R>(lane: &Lane, part: Range<usize>, use_keys: impl FnOnce(&[Self]) -> R) -> R {
        use_keys(&lane.strings[part])
    }
}

impl Key for [u8; 16] {
    fn of(id: u32) -> Self {
        key_bytes(id)
    }

    fn with<R>(lane: &Lane, part: Range<usize>, use_keys: impl FnOnce(&[Self]) -> R) -> R {
        use_keys(&lane.bytes[part])
    }
}

/// Checks that a contender counts at all: of eight calls on one key under a limit of five, the
/// first five pass and no other, and another key has its own five.
pub(crate) fn self_check<C: Contender>() -> Result<(), Box<dyn Error>> {
    let mut limiter = C::new(Quota { token_secs: 36_000, burst: 5 }, 1000)?;
    for id in [1, 2] {
        let shared: Vec<bool> = (0..4).map(|_| limiter.check(&C::Key::of(id))).collect();
        // The second half goes through the block call, which is the one that is timed.
        let block: Vec<C::Key> = (0..4).map(|_| C::Key::of(id)).collect();
        let allowed = limiter.run_alone(&block);
        if shared != [true; 4] || allowed != 1 {
            return Err(format!(
                "{}: a limit of 5 must allow exactly the first 5 of 8 calls on a key; it allowed \
                 {shared:?} and then {allowed} of 4, so its timings would mean nothing",
                C::NAME
            )
            .into());
        }
    }
    Ok(())
}

/// Every contender, the slowest to fill first, so that the keys of the others are fresh.
pub(crate) fn recruits() -> Vec<Recruit> {
    vec![
        Recruit::of::<limitador::Limitador>(),
        Recruit::of::<throttlecrab::Throttlecrab>(),
        Recruit::of::<governor::Governor<String>>(),
        Recruit::of::<governor::Governor<[u8; 16]>>(),
        Recruit::of::<tidegate::Text>(),
        Recruit::of::<tidegate::Bytes>(),
        Recruit::of::<tidegate::Batches<16>>(),
        Recruit::of::<tidegate::Batches<64>>(),
        // It counts nothing, so there is nothing to check.
        Recruit { self_check: || Ok(()), ..Recruit::of::<arithmetic::Arithmetic>() },
    ]
}
