//! Places under concurrency limits that are held for longer than their limits wait for who never comes
//! back: they are renewed for as long as the work goes on.

use std::time::Duration;

use tidegate_core::{Limit, Operation};
use tidegate_store::Source;

use super::backing::{Backing, DecidedBy, Few, at_once};
use super::decide::Back;
use super::decision::RuleDecision;
use super::in_force::Kept;
use super::limiter::RuleLimiter;
#[cfg(feature = "redis")]
use super::place::Place;
use crate::Clock;

/// Into how many parts the time is cut after which a place would expire: it is renewed three times before that, and two of
/// these may be lost.
const PARTS_OF_EXPIRY: u32 = 4;
/// No place is renewed more often, however soon it expires.
const SHORTEST: Duration = Duration::from_millis(1);

/// The places that a call holds under concurrency limits, apart from its decision, for who keeps them
/// while the work goes on. Whoever ends the call need not say so here: what is given back stays so, and
/// to renew it changes nothing.
#[derive(Debug)]
pub struct Holding {
    rules: Kept,
    renewals: Few<Back>,
    every: Duration,
}

impl Holding {
    /// How often they are to be [renewed](RuleLimiter::renew) at least: three times before the first of
    /// them would expire.
    pub const fn renew_every(&self) -> Duration {
        self.every
    }
}

/// How often places are to be renewed that last for so long.
pub fn renew_every(expires_after: Duration) -> Duration {
    (expires_after / PARTS_OF_EXPIRY).max(SHORTEST)
}

impl RuleDecision {
    /// The places that the call holds, for who renews them. `None` where it holds none.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use tidegate::{Call, RuleLimiter};
    ///
    /// let rules = "{ domain: d, rules: [ { name: exports, limit: 1 at once for 60s } ] }";
    /// let limiter = RuleLimiter::new(rules)?;
    /// let decision = limiter.check(&Call::new("d", &[]))?;
    /// let holding = decision.holding().expect("a place");
    /// assert_eq!(holding.renew_every(), Duration::from_secs(15));
    /// assert!(limiter.renew(&holding));
    /// limiter.complete(decision, 200);
    /// assert!(!limiter.renew(&holding));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn holding(&self) -> Option<Holding> {
        let every = renew_every(self.expires_after()?);
        let is_taken = |index: usize| self.taken & (1 << index) != 0;
        let renewals = self.answers().enumerate().filter_map(|(index, (planned, answer))| {
            let operation = Operation::Renew { lease: answer.lease.filter(|_| is_taken(index))? };
            let DecidedBy { source, .. } = self.by(index);
            Some(Back { planned: *planned, operation, group: self.group(), source })
        });
        let renewals: Few<Back> = renewals.collect();
        let rules = self.rules.clone();
        (!renewals.is_empty()).then_some(Holding { rules, renewals, every })
    }

    /// How long the places that the call was given last, from when they were taken or renewed, if nobody
    /// gives them back: the shortest of them. `None` where it was given none.
    pub fn expires_after(&self) -> Option<Duration> {
        let given = self.answers().filter(|(_, answer)| answer.lease.is_some());
        let lasting = given.filter_map(|(planned, _)| {
            match self.rules.limit(planned.limit).limit(planned.relaxed) {
                Limit::Concurrency(limit) => Some(limit.expires_after().into()),
                _ => None,
            }
        });
        lasting.min()
    }
}

impl<C: Clock> RuleLimiter<C> {
    /// Counts the places that a call holds as taken now. Says whether it still held them all: those that
    /// have expired, or were given back, stay free.
    pub fn renew(&self, holding: &Holding) -> bool {
        at_once(self.renew_in(&(), holding))
    }
}

#[cfg(feature = "redis")]
impl<C: Clock> RuleLimiter<C, Place> {
    /// Counts the places that a call holds as taken now. Says whether it still held them all, as far as
    /// the store could say: those that have expired, or were given back, stay free.
    pub async fn renew(&self, holding: &Holding) -> bool {
        self.renew_in(&tidegate_redis::Deadline::default(), holding).await
    }
}

impl<C: Clock, S: Backing> RuleLimiter<C, S> {
    async fn renew_in(&self, deadline: &S::Deadline, holding: &Holding) -> bool {
        let Holding { rules, renewals, .. } = holding;
        let mut is_held = true;
        if let Some(table) = self.store.memory() {
            for Back { planned, operation, .. } in renewals {
                is_held &= self.give_back_in(table, rules, planned, *operation).lease.is_some();
            }
            return is_held;
        }
        let mut each = |_, settled: tidegate_store::Settled| {
            is_held &= settled.source != Source::Store || settled.decision.lease.is_some();
        };
        self.give_back_to(deadline, rules, renewals, &mut each).await;
        is_held
    }
}
