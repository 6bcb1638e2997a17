//! **Concurrency**: at most `limit` places held at once. A take is answered with a lease that holds
//! its cost in places until it is released, or until it expires, so that a holder that crashed
//! leaks nothing. A holder that lives renews it: it then counts as taken at that time.
//!
//! ```text
//! held(t) = sum of the costs of the leases taken at a and not released,
//!           for all a with  a <= t < a + expires_after
//! allowed iff  held(t) + cost <= limit
//! ```
//!
//! The wait that a denial gives is when enough leases will have expired; a release may come sooner.
//! A cost of 0 holds nothing and so gets no lease.

mod leases;

pub use leases::Leases;

use crate::{Decision, LeaseId, LimitError, Operation, Rate, SKEW_MAX, Span, Timestamp, Verdict};

/// A concurrency limit's numbers, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Concurrency {
    limit: u64,
    expires_after: Span,
}

impl Concurrency {
    /// The most places: each lease takes memory.
    pub const LIMIT_MAX: u64 = 1 << 20;

    /// At most `limit` places at once, each for at most `expires_after`.
    pub fn new(limit: u64, expires_after: Span) -> Result<Self, LimitError> {
        if limit == 0 {
            return Err(LimitError::CountZero);
        }
        if limit > Self::LIMIT_MAX {
            return Err(LimitError::CountTooLarge { max: Self::LIMIT_MAX });
        }
        if expires_after.is_zero() {
            return Err(LimitError::ExpiryZero);
        }
        if expires_after > Rate::PERIOD_MAX {
            return Err(LimitError::ExpiryTooLong { max: Rate::PERIOD_MAX });
        }
        Ok(Self { limit, expires_after })
    }

    /// How many places there are.
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// How long a lease lasts that is not released.
    pub const fn expires_after(&self) -> Span {
        self.expires_after
    }

    /// Decides one operation. `None` is no leases, before and after.
    pub fn decide(
        &self,
        leases: Option<Leases>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<Leases>) {
        let mut leases = leases.unwrap_or_else(Leases::new);
        let at = self.make_current(&mut leases, now);
        let mut lease = None;
        let verdict = match operation {
            Operation::Take { cost } => {
                let verdict = self.room(&leases, now, cost);
                if verdict == ALLOW && cost > 0 {
                    lease = leases.add(at, cost);
                }
                verdict
            }
            Operation::Peek { cost } => self.room(&leases, now, cost),
            Operation::Debit { cost } => {
                lease = self.debit(&mut leases, at, cost);
                ALLOW
            }
            Operation::Refund { cost, taken_at } => {
                leases.refund(taken_at.min(at), cost);
                ALLOW
            }
            Operation::Release { lease } => {
                leases.release(lease);
                ALLOW
            }
            Operation::Renew { lease: renewed } => {
                lease = leases.renew(renewed, at).then_some(renewed);
                ALLOW
            }
        };
        let decision = self.answer(verdict, &leases, now, lease);
        (decision, (leases.held() > 0).then_some(leases))
    }

    /// Drops what has expired, and gives the time at which to take: `now`, or the newest lease's
    /// where the call comes a little late. Leases further ahead than that come from a clock that has
    /// been set back since. They last from `now` on, so that no place is given away and none is
    /// held for longer than a new one would be.
    fn make_current(&self, leases: &mut Leases, now: Timestamp) -> Timestamp {
        if leases.newest_at().since(now) > SKEW_MAX {
            leases.pull_back_to(now);
        }
        let at = now.max(leases.newest_at());
        if let Some(end) = at.as_micros().checked_sub(self.expires_after.as_micros()) {
            leases.drop_until(Timestamp::from_micros(end));
        }
        at
    }

    /// Whether `cost` places are free, and if not, when they will be at the latest.
    fn room(&self, leases: &Leases, now: Timestamp, cost: u64) -> Verdict {
        if cost > self.limit {
            return Verdict::NeverFits;
        }
        let mut excess = (leases.held() + cost).saturating_sub(self.limit);
        if excess == 0 {
            return ALLOW;
        }
        let leaving = leases.entries().find(|(_, cost)| {
            excess = excess.saturating_sub(*cost);
            excess == 0
        });
        // There is always one, since all that is held together is at least the excess.
        let taken_at = leaving.map_or(leases.newest_at(), |(taken_at, _)| taken_at);
        Verdict::Deny { retry_after: self.expires_in(taken_at, now) }
    }

    /// Takes keep the leases at `limit` by themselves, but debits come without end. Beyond that
    /// number a debit is held without a lease, until it expires: two debits cannot share one, since
    /// releasing it would free the places of both.
    fn debit(&self, leases: &mut Leases, at: Timestamp, cost: u64) -> Option<LeaseId> {
        if cost == 0 {
            return None;
        }
        if leases.lease_count() < self.limit {
            return leases.add(at, cost);
        }
        leases.add_unnamed(at, cost);
        None
    }

    /// How long until what was taken at `taken_at` has expired. The sum is not cut to the last
    /// point in time, so that even there a denial has a wait.
    fn expires_in(&self, taken_at: Timestamp, now: Timestamp) -> Span {
        let expires_at = taken_at.as_micros() + self.expires_after.as_micros();
        Span::from_micros(expires_at.saturating_sub(now.as_micros()))
    }

    fn answer(
        &self,
        verdict: Verdict,
        leases: &Leases,
        now: Timestamp,
        lease: Option<LeaseId>,
    ) -> Decision {
        let held = leases.held();
        let reset_after =
            if held == 0 { Span::ZERO } else { self.expires_in(leases.newest_at(), now) };
        let remaining = self.limit.saturating_sub(held);
        Decision { verdict, limit: self.limit, remaining, reset_after, lease }
    }
}

const ALLOW: Verdict = Verdict::Allow { delay: Span::ZERO };

#[cfg(test)]
mod tests {
    use super::*;

    const TAKE: Operation = Operation::Take { cost: 1 };

    fn two_for_a_minute() -> Concurrency {
        Concurrency::new(2, Span::MINUTE).unwrap()
    }

    #[test]
    fn an_acquired_place_is_free_again_once_it_is_released() {
        let limit = two_for_a_minute();
        let (first, leases) = limit.decide(None, Timestamp::ZERO, TAKE);
        let (second, leases) = limit.decide(leases, Timestamp::from_secs(1), TAKE);
        assert_ne!(first.lease, second.lease);
        let (denied, leases) = limit.decide(leases, Timestamp::from_secs(2), TAKE);
        assert_eq!((denied.retry_after(), denied.lease), (Some(Span::from_secs(58)), None));
        let release = Operation::Release { lease: first.lease.unwrap() };
        let (released, leases) = limit.decide(leases, Timestamp::from_secs(2), release);
        assert_eq!(released.remaining, 1);
        let (again, leases) = limit.decide(leases, Timestamp::from_secs(2), release);
        assert_eq!(again.remaining, 1, "a lease is given back once");
        assert!(limit.decide(leases, Timestamp::from_secs(2), TAKE).0.is_allowed());
    }

    #[test]
    fn a_place_that_nobody_releases_is_free_again_once_it_expires() {
        let limit = two_for_a_minute();
        let (taken, leases) = limit.decide(None, Timestamp::ZERO, Operation::Take { cost: 2 });
        let last_tick = Timestamp::from_micros(59_999_999);
        let (denied, leases) = limit.decide(leases, last_tick, TAKE);
        assert_eq!(denied.retry_after(), Some(Span::TICK));
        let (allowed, leases) = limit.decide(leases, Timestamp::from_secs(60), TAKE);
        assert!(allowed.is_allowed());
        let release = Operation::Release { lease: taken.lease.unwrap() };
        let (late, _) = limit.decide(leases, Timestamp::from_secs(60), release);
        assert_eq!(late.remaining, 1, "an expired lease gives nothing back");
    }

    #[test]
    fn a_place_that_is_renewed_lasts_from_then_on_and_keeps_its_number() {
        let limit = two_for_a_minute();
        let (first, leases) = limit.decide(None, Timestamp::ZERO, TAKE);
        let (second, leases) = limit.decide(leases, Timestamp::from_secs(10), TAKE);
        let renew = Operation::Renew { lease: first.lease.unwrap() };
        let (renewed, leases) = limit.decide(leases, Timestamp::from_secs(40), renew);
        assert_eq!((renewed.lease, renewed.remaining), (first.lease, 0));
        assert_eq!(renewed.reset_after, Span::MINUTE);
        let (denied, leases) = limit.decide(leases, Timestamp::from_secs(60), TAKE);
        assert_eq!(denied.retry_after(), Some(Span::from_secs(10)), "the second is the next to go");
        let (_, leases) = limit.decide(leases, Timestamp::from_secs(70), TAKE);
        let gone = Operation::Renew { lease: second.lease.unwrap() };
        let (late, leases) = limit.decide(leases, Timestamp::from_secs(70), gone);
        assert_eq!((late.lease, late.remaining), (None, 0), "what has expired is not held again");
        let release = Operation::Release { lease: first.lease.unwrap() };
        let (released, leases) = limit.decide(leases, Timestamp::from_secs(70), release);
        assert_eq!(released.remaining, 1);
        let (late, _) = limit.decide(leases, Timestamp::from_secs(70), renew);
        assert_eq!((late.lease, late.remaining), (None, 1), "nor is what was given back");
    }

    #[test]
    fn a_state_that_was_dropped_does_not_give_the_same_lease_again() {
        let limit = two_for_a_minute();
        let (old, leases) = limit.decide(None, Timestamp::from_secs(1), TAKE);
        let release = Operation::Release { lease: old.lease.unwrap() };
        let (_, leases) = limit.decide(leases, Timestamp::from_secs(1), release);
        assert_eq!(leases, None);
        let (new, leases) = limit.decide(leases, Timestamp::from_micros(1_000_001), TAKE);
        assert!(new.lease > old.lease);
        assert_eq!(limit.decide(leases, Timestamp::from_secs(2), release).0.remaining, 1);
    }

    #[test]
    fn only_a_take_or_debit_of_something_gets_a_lease() {
        let limit = two_for_a_minute();
        for nothing in [
            Operation::Take { cost: 0 },
            Operation::Debit { cost: 0 },
            Operation::Peek { cost: 1 },
            Operation::Take { cost: 3 },
        ] {
            let (decision, leases) = limit.decide(None, Timestamp::ZERO, nothing);
            assert_eq!((decision.lease, decision.remaining, leases), (None, 2, None));
        }
        let (never, _) = limit.decide(None, Timestamp::ZERO, Operation::Take { cost: 3 });
        assert_eq!(never.verdict, Verdict::NeverFits);
    }

    #[test]
    fn a_debit_holds_places_beyond_the_limit_and_releases_only_its_own() {
        let limit = two_for_a_minute();
        let (taken, leases) = limit.decide(None, Timestamp::ZERO, Operation::Take { cost: 2 });
        let (debit, leases) = limit.decide(leases, Timestamp::ZERO, Operation::Debit { cost: 5 });
        assert!(debit.is_allowed());
        let release = |decision: Decision| Operation::Release { lease: decision.lease.unwrap() };
        let (released, leases) = limit.decide(leases, Timestamp::ZERO, release(debit));
        assert_eq!(released.remaining, 0);
        let (released, leases) = limit.decide(leases, Timestamp::ZERO, release(taken));
        assert_eq!((released.remaining, leases), (2, None));
    }

    #[test]
    fn numbers_out_of_range_are_refused_with_what_is_accepted() {
        assert_eq!(Concurrency::new(0, Span::MINUTE), Err(LimitError::CountZero));
        let too_large = LimitError::CountTooLarge { max: 1 << 20 };
        assert_eq!(Concurrency::new((1 << 20) + 1, Span::MINUTE), Err(too_large));
        assert_eq!(Concurrency::new(1, Span::ZERO), Err(LimitError::ExpiryZero));
        assert!(matches!(Concurrency::new(1, Span::MAX), Err(LimitError::ExpiryTooLong { .. })));
    }
}
