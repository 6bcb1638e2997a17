//! Models of the fixed and the sliding window: every charge is kept, and each answer is computed from
//! all of them.

use num_bigint::BigInt;
use tidegate_core::fixed_window::Windows;
use tidegate_core::{Decision, Operation, Rate, Span, Timestamp, Verdict};

use super::{ALLOW, Exact, Model, exact};

/// A charge, or a refund as a negative one, and the end of the window it counts in.
type Charge = (u64, BigInt);

fn sum(charges: &[Charge], ends_at: u64) -> BigInt {
    let total: BigInt = charges.iter().filter(|c| c.0 == ends_at).map(|c| c.1.clone()).sum();
    // A refund gives back no more than is there.
    total.max(BigInt::ZERO)
}

/// A fixed window of the clock or of the first request.
pub struct FixedModel {
    count: u64,
    windows: Windows,
    charges: Vec<Charge>,
}

impl FixedModel {
    pub fn new(count: u64, windows: Windows) -> Self {
        Self { count, windows, charges: Vec::new() }
    }

    fn length(&self) -> u64 {
        match &self.windows {
            Windows::Clock(length) | Windows::FirstRequest(length) => length.as_micros(),
            Windows::Calendar(_) => unreachable!("calendars have their own tests"),
        }
    }

    /// The end of the window that is spent from: the one last charged, until it is over.
    fn window(&mut self, now: Timestamp) -> u64 {
        let now = now.as_micros();
        if let Some(&(ends_at, _)) = self.charges.last() {
            if ends_at > now && sum(&self.charges, ends_at) > BigInt::ZERO {
                return ends_at;
            }
            self.charges.clear();
        }
        match self.windows {
            Windows::Clock(_) => (now / self.length() + 1) * self.length(),
            Windows::FirstRequest(_) | Windows::Calendar(_) => now + self.length(),
        }
    }

    fn room(&self, used: &BigInt, wait: Span, cost: u64) -> Verdict {
        if cost > self.count {
            Verdict::NeverFits
        } else if used + cost > BigInt::from(self.count) {
            Verdict::Deny { retry_after: wait }
        } else {
            ALLOW
        }
    }
}

impl Model for FixedModel {
    fn decide(&mut self, now: Timestamp, operation: Operation) -> Decision {
        let ends_at = self.window(now);
        let used = sum(&self.charges, ends_at);
        let wait = Span::from_micros(ends_at - now.as_micros());
        let mut charge = BigInt::ZERO;
        let verdict = match operation {
            Operation::Take { cost } => {
                let verdict = self.room(&used, wait, cost);
                if verdict == ALLOW {
                    charge = cost.into();
                }
                verdict
            }
            Operation::Peek { cost } => self.room(&used, wait, cost),
            Operation::Debit { cost } => {
                charge = cost.into();
                ALLOW
            }
            Operation::Refund { cost, taken_at } => {
                let begins_at = ends_at - self.length();
                // A late call counts as one at the start of the window that it is answered from.
                let taken_at = taken_at.as_micros().min(now.as_micros().max(begins_at));
                if taken_at >= begins_at {
                    charge = -BigInt::from(cost).min(used.clone());
                }
                ALLOW
            }
            Operation::Release { .. } | Operation::Renew { .. } => ALLOW,
        };
        self.charges.push((ends_at, charge));
        let used = sum(&self.charges, ends_at);
        let left = (BigInt::from(self.count) - &used).max(BigInt::ZERO);
        Decision {
            verdict,
            limit: self.count,
            remaining: u64::try_from(left).unwrap(),
            reset_after: if used > BigInt::ZERO { wait } else { Span::ZERO },
            lease: None,
        }
    }
}

/// A sliding window of two counters.
pub struct SlidingModel {
    rate: Rate,
    charges: Vec<Charge>,
    /// The end of the latest window that was looked at while anything counted.
    latest: u64,
}

impl SlidingModel {
    pub fn new(rate: Rate) -> Self {
        Self { rate, charges: Vec::new(), latest: 0 }
    }

    fn length(&self) -> u64 {
        self.rate.period().as_micros()
    }

    /// The end of the window that contains a time, or of the latest one where that is later and
    /// anything still counts.
    fn window(&self, time: u64) -> u64 {
        let ends_at = (time / self.length() + 1) * self.length();
        if self.counts() { ends_at.max(self.latest) } else { ends_at }
    }

    /// Whether anything counts in the latest window or the one before.
    fn counts(&self) -> bool {
        let before = self.latest.saturating_sub(self.length());
        sum(&self.charges, self.latest) + sum(&self.charges, before) > BigInt::ZERO
    }

    /// What is used at a time, from all charges.
    fn used(&self, time: u64) -> Exact {
        let ends_at = self.window(time);
        let begins_at = ends_at - self.length();
        let elapsed = exact(time.saturating_sub(begins_at));
        let weight = exact(1) - elapsed / exact(self.length());
        Exact::from(sum(&self.charges, begins_at)) * weight
            + Exact::from(sum(&self.charges, ends_at))
    }

    /// The first tick from `now` on at which no more than `most` is used. What is used only falls,
    /// so it is found by halving.
    fn first_below(&self, now: u64, most: &Exact) -> u64 {
        let (mut above, mut below) = (now, self.window(now) + self.length());
        if self.used(now) <= *most {
            return now;
        }
        while below - above > 1 {
            let middle = above.midpoint(below);
            if self.used(middle) <= *most {
                below = middle;
            } else {
                above = middle;
            }
        }
        below
    }

    fn room(&self, now: u64, cost: u64) -> Verdict {
        let Some(most) = self.rate.count().checked_sub(cost) else { return Verdict::NeverFits };
        match self.first_below(now, &exact(most)) - now {
            0 => ALLOW,
            wait => Verdict::Deny { retry_after: Span::from_micros(wait) },
        }
    }

    /// The end of the window that a refund goes to, and how much of it is there.
    fn refund(&self, now: u64, cost: u64, taken_at: u64) -> Charge {
        let begins_at = self.window(now) - self.length();
        let taken_at = taken_at.min(now.max(begins_at));
        let ends_at = (taken_at / self.length() + 1) * self.length();
        (ends_at, -BigInt::from(cost).min(sum(&self.charges, ends_at)))
    }
}

impl Model for SlidingModel {
    fn decide(&mut self, now: Timestamp, operation: Operation) -> Decision {
        let now = now.as_micros();
        self.latest = self.window(now);
        let ends_at = self.latest;
        let mut charge = (ends_at, BigInt::ZERO);
        let verdict = match operation {
            Operation::Take { cost } => {
                let verdict = self.room(now, cost);
                if verdict == ALLOW {
                    charge.1 = cost.into();
                }
                verdict
            }
            Operation::Peek { cost } => self.room(now, cost),
            Operation::Debit { cost } => {
                charge.1 = cost.into();
                ALLOW
            }
            Operation::Refund { cost, taken_at } => {
                charge = self.refund(now, cost, taken_at.as_micros());
                ALLOW
            }
            Operation::Release { .. } | Operation::Renew { .. } => ALLOW,
        };
        self.charges.push(charge);
        if !self.counts() {
            self.charges.clear();
        }
        let full_at = self.first_below(now, &exact(0));
        let left = (exact(self.rate.count()) - self.used(now)).max(exact(0)).floor().to_integer();
        Decision {
            verdict,
            limit: self.rate.count(),
            remaining: u64::try_from(left).unwrap(),
            reset_after: Span::from_micros(full_at - now),
            lease: None,
        }
    }
}
