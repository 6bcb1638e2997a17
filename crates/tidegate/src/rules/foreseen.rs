//! Calls whose limit is found before they are made, because all of them are described alike: those of one
//! connection, of one session. What is left for each of them is the clock and the table.

use tidegate_rules::resolve::{Only, Plan};

use super::backing::Backing;
use super::decision::RuleDecision;
use super::limiter::{Call, Does, RuleLimiter};
use crate::Clock;

/// What follows from a call that may be made again and again: one charge, and whose it is. It is true as long as the
/// rules are in force by which it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// Those rules, among all of this process.
    rules: u64,
    only: Only,
}

impl<C: Clock, S: Backing> RuleLimiter<C, S> {
    /// What follows from a call with these attributes, by the rules of a decision that this limiter
    /// [began](Self::begin). `None` where that is not one charge under one ordinary limit, or memory does not decide it:
    /// then each call has to be looked at for itself.
    ///
    /// ```
    /// use tidegate::{Call, RuleLimiter};
    ///
    /// let limiter = RuleLimiter::new("{ domain: api, rules: [ { name: all, per: [ip], limit: 2/minute } ] }")?;
    /// let attributes = [("ip", "192.0.2.7").into()];
    /// let mut decision = limiter.begin();
    /// let foreseen = limiter.foresee(&decision, &Call::new("api", &attributes)).expect("one limit applies");
    /// let mut allowed = || limiter.check_foreseen(&mut decision, &foreseen, 1) && decision.is_allowed();
    /// assert!(allowed() && allowed() && !allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn foresee(&self, begun: &RuleDecision, call: &Call<'_>) -> Option<Foreseen> {
        self.store.memory()?;
        let rules = begun.rules.mark()?;
        let ask = self.ask(&begun.rules, call, self.clock.now());
        let mut plan = Plan::default();
        let only = begun.rules.resolve_only(&ask, || &mut plan).ok()??;
        Some(Foreseen { rules, only })
    }

    /// As `check_begun`, for a call of this cost whose other parts were [foreseen](Self::foresee). Says whether it is
    /// decided: it is not where other rules are in force by now, and then nothing has happened.
    #[inline]
    pub fn check_foreseen(
        &self,
        decision: &mut RuleDecision,
        foreseen: &Foreseen,
        cost: u64,
    ) -> bool {
        if decision.rules.mark() != Some(foreseen.rules) {
            return false;
        }
        let Some(table) = self.store.memory() else { return false };
        decision.clear(self.clock.now_unordered());
        let RuleDecision { rules, at, one, outcome, taken, .. } = decision;
        let single = (&**rules, &foreseen.only, foreseen.only.planned(cost));
        let (decided, follows, took) = self.decide_only(table, single, *at, Does::Take);
        (*one, *outcome, *taken) = (Some(decided), follows, took);
        if !outcome.is_allowed() {
            self.charge_refused_in(decision);
        }
        true
    }
}
