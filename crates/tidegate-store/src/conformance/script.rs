//! Random requests, the same for the same seed.

use tidegate_core::{Decision, Key, LeaseId, Limit, Operation, Span, Timestamp};

use crate::{Charge, StoreError};

/// A run of requests over a few keys, in time that goes forward: where the clock is set back, a key may
/// have been forgotten by one store and not by another, and their answers differ by that.
pub(super) struct Script {
    seed: u64,
    random: u64,
    now: Timestamp,
    leases: Vec<LeaseId>,
}

/// A key that is as good as random, for a number.
pub(super) fn key(number: u64) -> Key {
    let high = mix(number.wrapping_mul(2));
    let low = mix(number.wrapping_mul(2).wrapping_add(1));
    Key::from_hash(u128::from(high) << 64 | u128::from(low))
}

impl Script {
    const KEYS: u64 = 3;

    pub(super) fn new(seed: u64, start: Timestamp) -> Self {
        Self { seed, random: mix(seed), now: start, leases: Vec::new() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// The charges of the next request, one to three of them, and a step in time.
    pub(super) fn charges<'a>(&mut self, limits: &'a [Limit]) -> Vec<Charge<'a>> {
        self.step();
        let first = self.below(limits.len() as u64) as usize;
        let count = 1 + self.below(3) as usize;
        let chosen: Vec<_> = (0..count).map(|offset| (first + offset) % limits.len()).collect();
        let charge = |index: usize| {
            // A key belongs to one limit, as a key that contains the algorithm does.
            let number = (self.seed << 16) + (index as u64 * Self::KEYS) + self.below(Self::KEYS);
            Charge { limit: &limits[index], key: key(number), operation: self.operation() }
        };
        chosen.into_iter().map(charge).collect()
    }

    /// Remembers the leases that were given, to release and to renew some of them later.
    pub(super) fn learn(
        &mut self,
        charges: &[Charge<'_>],
        answer: Option<Result<&[Decision], StoreError>>,
    ) {
        let decisions = answer.and_then(Result::ok).unwrap_or_default();
        debug_assert_eq!(decisions.len(), charges.len());
        self.leases.extend(decisions.iter().filter_map(|decision| decision.lease));
    }

    /// By how much the clock is set back before the next request: hardly ever at all.
    pub(super) fn minutes_back(&mut self) -> Span {
        let minutes = if self.below(20) == 0 { self.below(3) * self.below(90) } else { 0 };
        Span::from_secs(60 * minutes)
    }

    /// An operation that spends.
    pub(super) fn take_or_debit(&mut self) -> Operation {
        let cost = 1 + self.below(3);
        if self.below(20) == 0 { Operation::Debit { cost } } else { Operation::Take { cost } }
    }

    fn step(&mut self) {
        let span = match self.below(10) {
            0..=2 => 0,
            3..=5 => self.below(1_000),
            6..=8 => self.below(1_000_000),
            _ => self.below(90_000_000),
        };
        self.now = self.now.plus(Span::from_micros(span));
    }

    fn operation(&mut self) -> Operation {
        let cost = match self.below(8) {
            0 => 0,
            1..=5 => 1 + self.below(3),
            6 => self.below(9),
            _ => u64::MAX >> self.below(64),
        };
        match self.below(12) {
            0 => Operation::Peek { cost },
            1 => Operation::Debit { cost: cost.min(20) },
            2 => {
                let ago = Span::from_micros(self.below(3) * self.below(2_000_000));
                Operation::Refund { cost, taken_at: self.now.minus(ago) }
            }
            3 => match self.leases.pop() {
                Some(lease) => Operation::Release { lease },
                None => Operation::Take { cost },
            },
            4 => match self.leases.pop() {
                Some(lease) => Operation::Renew { lease },
                None => Operation::Take { cost },
            },
            _ => Operation::Take { cost },
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random = mix(self.random);
        self.random % limit.max(1)
    }
}

/// Spreads a number over 64 bits (the finaliser of `SplitMix64`).
fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}
