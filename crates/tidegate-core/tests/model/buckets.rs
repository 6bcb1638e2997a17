//! Models of the three buckets.

use num_bigint::BigInt;
use tidegate_core::{Decision, Operation, Rate, Span, Timestamp, Verdict};

use super::{ALLOW, Exact, Model, exact, ticks_up};

/// A token bucket as a fluid: so much is missing, and it comes back evenly.
pub struct Fluid {
    burst: Exact,
    /// Tokens per microsecond.
    rate: Exact,
    missing: Exact,
    last: Timestamp,
    /// Whether what is missing stands in a queue, which makes it a leaky bucket.
    queue: bool,
}

impl Fluid {
    pub fn token_bucket(rate: Rate, burst: u64) -> Self {
        Self {
            burst: exact(burst),
            rate: exact(rate.count()) / exact(rate.period().as_micros()),
            missing: exact(0),
            last: Timestamp::ZERO,
            queue: false,
        }
    }

    pub fn leaky_bucket(rate: Rate, burst: u64) -> Self {
        Self { queue: true, ..Self::token_bucket(rate, burst) }
    }

    /// Lets the time pass. For a call that comes late it runs backward, so that the moment at which
    /// the bucket is full stays the same.
    pub fn pass_to(&mut self, now: Timestamp) {
        let passed = exact(now.as_micros()) - exact(self.last.as_micros());
        self.last = now;
        if self.missing > exact(0) {
            self.missing = (&self.missing - passed * &self.rate).max(exact(0));
        }
    }

    pub fn spend(&mut self, cost: u64) {
        self.missing += exact(cost);
    }

    pub fn missing(&self) -> &Exact {
        &self.missing
    }

    fn room(&self, cost: u64) -> Verdict {
        let excess = &self.missing + exact(cost) - &self.burst;
        if exact(cost) > self.burst {
            Verdict::NeverFits
        } else if excess > exact(0) {
            Verdict::Deny { retry_after: ticks_up(&(excess / &self.rate)) }
        } else if self.queue {
            Verdict::Allow { delay: ticks_up(&(&self.missing / &self.rate)) }
        } else {
            ALLOW
        }
    }
}

impl Model for Fluid {
    fn decide(&mut self, now: Timestamp, operation: Operation) -> Decision {
        self.pass_to(now);
        let verdict = match operation {
            Operation::Take { cost } => {
                let verdict = self.room(cost);
                if matches!(verdict, Verdict::Allow { .. }) {
                    self.spend(cost);
                }
                verdict
            }
            Operation::Peek { cost } => self.room(cost),
            Operation::Debit { cost } => {
                self.spend(cost);
                ALLOW
            }
            Operation::Refund { cost, taken_at } => {
                let refilled = exact(now.since(taken_at).as_micros()) * &self.rate;
                let back = (exact(cost) - refilled).max(exact(0));
                self.missing = (&self.missing - back).max(exact(0));
                ALLOW
            }
            Operation::Release { .. } | Operation::Renew { .. } => ALLOW,
        };
        let left = (&self.burst - &self.missing).max(exact(0)).floor().to_integer();
        Decision {
            verdict,
            limit: u64::try_from(self.burst.to_integer()).unwrap(),
            remaining: u64::try_from(left).unwrap(),
            reset_after: ticks_up(&(&self.missing / &self.rate)),
            lease: None,
        }
    }
}

/// A stepped bucket, topped up by a worker that comes round at each multiple of the period.
pub struct Worker {
    rate: Rate,
    burst: u64,
    missing: BigInt,
    last: Timestamp,
}

impl Worker {
    pub fn new(rate: Rate, burst: u64) -> Self {
        Self { rate, burst, missing: BigInt::ZERO, last: Timestamp::ZERO }
    }

    /// Lets the worker come round as often as it has since the last call. For a call that comes late
    /// its last rounds are undone.
    fn pass_to(&mut self, now: Timestamp) {
        let rounds = |time: Timestamp| BigInt::from(time.as_micros() / self.period());
        let passed = rounds(now) - rounds(self.last);
        self.last = now;
        if self.missing > BigInt::ZERO {
            self.missing = (&self.missing - passed * self.rate.count()).max(BigInt::ZERO);
        }
    }

    /// How long until, round by round, no more than `most` is missing.
    fn wait(&self, most: &BigInt) -> Span {
        let mut missing = self.missing.clone();
        let mut now = self.last;
        while missing > *most {
            let next_round = (now.as_micros() / self.period() + 1) * self.period();
            now = Timestamp::from_micros(next_round);
            missing -= self.rate.count();
        }
        now.since(self.last)
    }

    fn room(&self, cost: u64) -> Verdict {
        let Some(most) = self.burst.checked_sub(cost) else { return Verdict::NeverFits };
        match self.wait(&BigInt::from(most)) {
            Span::ZERO => ALLOW,
            retry_after => Verdict::Deny { retry_after },
        }
    }

    fn period(&self) -> u64 {
        self.rate.period().as_micros()
    }
}

impl Model for Worker {
    fn decide(&mut self, now: Timestamp, operation: Operation) -> Decision {
        self.pass_to(now);
        let verdict = match operation {
            Operation::Take { cost } => {
                let verdict = self.room(cost);
                if verdict == ALLOW {
                    self.missing += cost;
                }
                verdict
            }
            Operation::Peek { cost } => self.room(cost),
            Operation::Debit { cost } => {
                self.missing += cost;
                ALLOW
            }
            Operation::Refund { cost, taken_at } => {
                let mut back = BigInt::from(cost);
                let mut rounds = taken_at.as_micros() / self.period();
                while rounds < now.as_micros() / self.period() && back > BigInt::ZERO {
                    back -= self.rate.count();
                    rounds += 1;
                }
                let missing = &self.missing - back.max(BigInt::ZERO);
                self.missing = missing.max(BigInt::ZERO);
                ALLOW
            }
            Operation::Release { .. } | Operation::Renew { .. } => ALLOW,
        };
        let left = (BigInt::from(self.burst) - &self.missing).max(BigInt::ZERO);
        Decision {
            verdict,
            limit: self.burst,
            remaining: u64::try_from(left).unwrap(),
            reset_after: self.wait(&BigInt::ZERO),
            lease: None,
        }
    }
}
