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
    /// then each call has to be looked at for itself. What the call costs makes no difference.
    ///
    /// ```
    /// use tidegate::{Call, RuleLimiter};
    ///
    /// let limiter = RuleLimiter::new("{ domain: api, rules: [ { name: all, per: [ip], limit: 2/minute } ] }")?;
    /// let attributes = [("ip", "192.0.2.7").into()];
    /// let call = Call::new("api", &attributes);
    /// let foreseen = limiter.foresee(&limiter.begin(), &call).expect("one limit applies");
    /// for is_allowed in [true, true, false] {
    ///     // By the rules in force now.
    ///     let mut decision = limiter.begin();
    ///     if !limiter.check_foreseen(&mut decision, &foreseen, 1) {
    ///         limiter.check_begun(&mut decision, &call)?;
    ///     }
    ///     assert_eq!(decision.is_allowed(), is_allowed);
    /// }
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
    /// decided, and not whether it may pass: that is for the decision to say. It is not decided where the decision was begun by
    /// other rules than those that it was foreseen by, and then nothing has happened. Whoever goes on with a decision that was
    /// begun before a reload goes on by the rules before it.
    #[inline]
    #[must_use = "whether it is decided; where it is not, the decision is of no call or of one before"]
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
