//! Places under a concurrency limit, given back when the work is done.

use std::sync::Arc;

use tidegate_core::{self as core, LeaseId, Limit, Operation};
use tidegate_rules::identity::Subject;
use tidegate_store::Charge;

use crate::limiter::Few;
use crate::{Clock, Decision, Keyed, Limiter, SystemClock};

/// A place under the limiter's concurrency limits. Dropping it gives the place back; if it never is,
/// because the thread died or the permit was leaked, the place comes back when the lease expires. Who
/// works for longer than that [renews](Self::renew) it.
#[derive(Debug)]
#[must_use = "the place is given back as soon as the permit is dropped"]
pub struct Permit<'a, C: Clock = SystemClock> {
    limiter: &'a Limiter<C>,
    leases: Leases,
    decision: Decision,
}

/// A [`Permit`] that shares the limiter, for work that outlives the call.
#[derive(Debug)]
#[must_use = "the place is given back as soon as the permit is dropped"]
pub struct OwnedPermit<C: Clock = SystemClock> {
    limiter: Arc<Limiter<C>>,
    leases: Leases,
    decision: Decision,
}

#[derive(Debug)]
struct Leases {
    subject: Subject,
    /// By the number of the limit.
    held: Vec<(usize, LeaseId)>,
}

impl<C: Clock> Limiter<C> {
    /// Takes a place for `who` under every concurrency limit, and 1 under every other limit, and
    /// holds the place until the permit is dropped.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("2 at once")?;
    /// let first = limiter.acquire("ann").expect("a place");
    /// let second = limiter.acquire("ann").expect("another");
    /// assert!(limiter.acquire("ann").is_err());
    /// drop(first);
    /// assert!(limiter.acquire("ann").is_ok());
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn acquire(&self, who: impl Keyed) -> Result<Permit<'_, C>, Decision> {
        let (leases, decision) = self.take_leases(&who)?;
        Ok(Permit { limiter: self, leases, decision })
    }

    /// As [`acquire`](Self::acquire), with a permit that can be moved to another thread or task.
    pub fn acquire_owned(self: &Arc<Self>, who: impl Keyed) -> Result<OwnedPermit<C>, Decision> {
        let (leases, decision) = self.take_leases(&who)?;
        Ok(OwnedPermit { limiter: Arc::clone(self), leases, decision })
    }

    fn take_leases(&self, who: &impl Keyed) -> Result<(Leases, Decision), Decision> {
        let (subject, now) = (who.subject(&self.hasher), self.clock.now());
        let mut decisions = Few::new();
        self.decide_all(subject, now, |_| Operation::Take { cost: 1 }, &mut decisions);
        let decision = Decision::of_all(&decisions, now);
        if !decision.is_allowed() {
            return Err(decision);
        }
        let leases = decisions.iter().enumerate();
        let held = leases.filter_map(|(index, decision)| Some((index, decision.lease?))).collect();
        Ok((Leases { subject, held }, decision))
    }

    fn release_all(&self, leases: &Leases) {
        self.tell_each(leases, |lease| Operation::Release { lease }, |_| {});
    }

    fn renew_all(&self, leases: &Leases) -> bool {
        let mut is_held = true;
        let each = |decision: core::Decision| is_held &= decision.lease.is_some();
        self.tell_each(leases, |lease| Operation::Renew { lease }, each);
        is_held
    }

    fn tell_each(
        &self,
        leases: &Leases,
        what: impl Fn(LeaseId) -> Operation,
        mut each: impl FnMut(core::Decision),
    ) {
        let now = self.clock.now();
        for &(index, lease) in &leases.held {
            let limit: &Limit = &self.limits[index].limit;
            let (key, operation) = (self.key(leases.subject, index), what(lease));
            each(self.table.decide_one(now, &Charge { limit, key, operation }));
        }
    }
}

impl<C: Clock> Permit<'_, C> {
    /// The decision that the place was given with.
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Counts the place as taken now, for work that may last longer than the limit's `for`, after which
    /// a place comes back by itself. Says whether it was still held; if not, somebody else may have it.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let clock = tidegate::ManualClock::new();
    /// let limiter = tidegate::Limiter::builder().limit("1 at once for 10s").clock(clock.clone());
    /// let limiter = limiter.build()?;
    /// let permit = limiter.acquire("ann").expect("a place");
    /// clock.advance(Duration::from_secs(8));
    /// assert!(permit.renew());
    /// clock.advance(Duration::from_secs(8));
    /// assert!(limiter.acquire("ann").is_err());
    /// clock.advance(Duration::from_secs(2));
    /// assert!(!permit.renew());
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn renew(&self) -> bool {
        self.limiter.renew_all(&self.leases)
    }
}

impl<C: Clock> OwnedPermit<C> {
    /// The decision that the place was given with.
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Counts the place as taken now, as [`Permit::renew`] does.
    pub fn renew(&self) -> bool {
        self.limiter.renew_all(&self.leases)
    }
}

impl<C: Clock> Drop for Permit<'_, C> {
    fn drop(&mut self) {
        self.limiter.release_all(&self.leases);
    }
}

impl<C: Clock> Drop for OwnedPermit<C> {
    fn drop(&mut self) {
        self.limiter.release_all(&self.leases);
    }
}
