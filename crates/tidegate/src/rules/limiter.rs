//! The limiter by rules: rules that can be exchanged, a place where their limits are decided, a clock.
//! How a call is decided is in `decide`; the calls themselves are in `calls` and `awaited`.

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard;
use tidegate_core::{self as core, LeaseId, Operation, Span, Timestamp, Verdict};
use tidegate_rules::compile::{CompiledLimit, CompiledRules};
use tidegate_rules::explain::Explanation;
use tidegate_rules::identity::{KeyHasher, SECRET_BYTES};
use tidegate_rules::resolve::{Ask, Planned, ResolveError};
use tidegate_rules::rule::{Pressure, RuleSet};
use tidegate_rules::{Attribute, ParseOptions, Reads, Source};
use tidegate_store::snapshot::Label;
use tidegate_store::{Charge, StoreError, Table};

use super::backing::Backing;
use super::builder::{RuleLimiterBuilder, RulesError, check_limits};
use super::carry::Carrier;
use super::decision::RuleDecision;
use super::in_force::InForce;
use super::sharing::{Sharing, StrictInstead};
use crate::{Clock, PressureSignal, SystemClock};

/// Decides for each call whether it may pass, by [rules](RuleSet).
///
/// All methods take `&self` and may be called from any number of threads. A call reads the clock
/// once, and takes no memory from the heap where one or two buckets or windows apply. Rules are
/// [exchanged](Self::reload) in one step, which no call waits for.
///
/// ```
/// use tidegate::{Call, RuleLimiter};
///
/// let limiter = RuleLimiter::new("
/// domain: api
/// rules:
///   - name: login
///     match: { method: POST, path: /login }
///     per: [ip]
///     limit: 2/minute
/// ")?;
/// let attributes = [("method", "POST"), ("path", "/login"), ("ip", "192.0.2.7")].map(Into::into);
/// let call = Call::new("api", &attributes);
/// assert!(limiter.check(&call)?.is_allowed());
/// assert!(limiter.check(&call)?.is_allowed());
/// let denied = limiter.check(&call)?;
/// assert!(!denied.is_allowed());
/// assert_eq!(denied.rule().map(|rule| rule.name.as_str()), Some("login"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RuleLimiter<C = SystemClock, S = Table> {
    pub(super) current: InForce,
    pub(super) store: S,
    pub(super) sharing: Sharing,
    pub(super) hasher: KeyHasher,
    pub(super) label: Label,
    pub(super) clock: C,
    pub(super) pressure: PressureSignal,
    pub(super) carrier: Carrier,
}

/// A request to be decided.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Call<'a> {
    /// Whose rules.
    pub domain: &'a str,
    /// What describes it.
    pub attributes: &'a [Attribute<'a>],
    /// How much it takes, times what a rule says.
    pub cost: u64,
}

impl<'a> Call<'a> {
    /// A call that takes 1.
    pub fn new(domain: &'a str, attributes: &'a [Attribute<'a>]) -> Self {
        Self { domain, attributes, cost: 1 }
    }

    /// The same call with another cost.
    #[must_use]
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }
}

impl RuleLimiter {
    /// A limiter with the rules of one text and all defaults. Warnings are left out; see
    /// [`RuleSet::parse`] for them.
    pub fn new(rules: &str) -> Result<Self, RulesError> {
        let checked = RuleSet::parse(&[Source::new("rules", rules)], &ParseOptions::default())?;
        Self::builder(checked.rules).build()
    }

    /// A limiter to be put together.
    pub fn builder(rules: RuleSet) -> RuleLimiterBuilder {
        RuleLimiterBuilder::new(rules)
    }
}

impl<C: Clock, S: Backing> RuleLimiter<C, S> {
    /// Puts other rules in force, in one step. What has been spent under limits that stay is still
    /// spent, also where their numbers change; where nodes share them, buckets that fill in another time
    /// than before count anew. On an error the old rules stay.
    ///
    /// The rules before stay in memory until the next reload, and for as long as a thread that has decided by them
    /// decides by no others, so that no call has to free them.
    pub fn reload(&self, rules: RuleSet) -> Result<(), RulesError> {
        let exchange = self.current.exchange();
        let new = CompiledRules::following(rules, &self.hasher, exchange.old(), self.clock.now());
        check_limits(&new, |limit| self.store.check(limit))?;
        exchange.put(new);
        Ok(())
    }

    /// The rules in force.
    pub fn rules(&self) -> Guard<Arc<CompiledRules>> {
        self.current.load()
    }

    /// A decision that is still to be made, by the rules in force now: for who makes attributes himself, and makes those
    /// alone that it [reads](Self::reads). No rule that is put in force meanwhile misses another one, because
    /// `check_begun` asks the same rules.
    ///
    /// It says nothing, and allows nothing, until this limiter has checked a call with it and found no error. It is for
    /// one call: places that it holds would be forgotten by another.
    #[inline]
    pub fn begin(&self) -> RuleDecision {
        RuleDecision::pending(self.current.keep(), Timestamp::ZERO)
    }

    /// The attributes that a decision depends on which this limiter [began](Self::begin). All of them where a store
    /// is to be asked in any case: by the time that it answers, other rules may be in force.
    #[inline]
    pub fn reads(&self, begun: &RuleDecision) -> Reads {
        if self.store.memory().is_none() && !self.sharing.may_lease(&begun.rules) {
            return Reads::ALL;
        }
        begun.rules.reads().and(self.sharing.reads())
    }

    /// How busy the protected service is, for elastic rules.
    pub fn pressure(&self) -> &PressureSignal {
        &self.pressure
    }

    /// Which rules match a call and why the others do not, and what follows, without spending
    /// anything.
    pub fn explain(&self, call: &Call<'_>) -> Explanation {
        let rules = self.current.load();
        rules.explain(&self.ask(&rules, call, self.clock.now()))
    }

    /// A secret that follows from the one that keys are hashed with, another for each purpose. Who hashes
    /// values with it before they become attributes finds the same keys again wherever this limiter's state
    /// is read back.
    pub fn derived_secret(&self, purpose: &str) -> [u8; SECRET_BYTES] {
        self.hasher.derived_secret(purpose)
    }

    /// The time as this limiter sees it.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The limits in force that are to be leased and cannot be, so that they are kept strictly. There
    /// are none where memory decides.
    pub fn strict_instead_of_leased(&self) -> Vec<StrictInstead> {
        match self.store.memory() {
            Some(_) => Vec::new(),
            None => self.sharing.strict_instead_of_leased(&self.current.load()),
        }
    }

    #[inline]
    pub(super) fn ask<'a>(
        &self,
        rules: &CompiledRules,
        call: &Call<'a>,
        now: Timestamp,
    ) -> Ask<'a> {
        let Call { domain, attributes, cost } = *call;
        let pressure = if rules.is_elastic() { self.pressure.at(now) } else { Pressure::FULL };
        Ask { domain, attributes, cost, now, pressure }
    }
}

/// Checks one call after the other. See [`RuleLimiter::checker`].
#[derive(Debug)]
pub struct Checker<'l, C = SystemClock, S = Table> {
    pub(super) limiter: &'l RuleLimiter<C, S>,
    pub(super) decision: RuleDecision,
}

impl<'l, C: Clock, S: Backing> Checker<'l, C, S> {
    pub(super) fn new(limiter: &'l RuleLimiter<C, S>) -> Self {
        Self {
            limiter,
            decision: RuleDecision::pending(limiter.current.keep(), limiter.clock.now_unordered()),
        }
    }

    /// Makes room for the next decision.
    #[inline]
    pub(super) fn start(&mut self) {
        if !self.limiter.current.is(&self.decision.rules) {
            self.decision.rules = self.limiter.current.keep();
        }
        self.decision.clear(self.limiter.clock.now_unordered());
    }
}

/// What stands in for a decision that is still to be made.
pub(super) const PENDING: core::Decision = core::Decision {
    verdict: Verdict::Allow { delay: Span::ZERO },
    limit: 0,
    remaining: 0,
    reset_after: Span::ZERO,
    lease: None,
};

/// What a call does to the limits that apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Take,
    Peek,
    Debit,
    Refund { taken_at: Timestamp },
    Release { lease: LeaseId },
}

impl Does {
    pub(super) fn operation(self, cost: u64) -> Operation {
        match self {
            Self::Take => Operation::Take { cost },
            Self::Peek => Operation::Peek { cost },
            Self::Debit => Operation::Debit { cost },
            Self::Refund { taken_at } => Operation::Refund { cost, taken_at },
            Self::Release { lease } => Operation::Release { lease },
        }
    }

    /// Whether something was taken, where all limits that were decided together allow or not.
    pub(super) fn takes(self, all_allow: bool) -> bool {
        match self {
            Self::Take => all_allow,
            Self::Debit => true,
            Self::Peek | Self::Refund { .. } | Self::Release { .. } => false,
        }
    }

    /// What it does to a call that may be denied already: a take only looks where the call is denied already.
    pub(super) fn unless(self, is_denied: bool) -> Self {
        if is_denied && self == Self::Take { Self::Peek } else { self }
    }
}

#[inline]
pub(super) fn charge<'r>(rules: &'r CompiledRules, planned: &Planned, does: Does) -> Charge<'r> {
    charge_under(rules.limit(planned.limit), planned, does)
}

/// The same under the limit of the charge.
#[inline]
pub(super) fn charge_under<'r>(
    limit: &'r CompiledLimit,
    planned: &Planned,
    does: Does,
) -> Charge<'r> {
    // What is given back may have been taken while the limit was stretched: it is then the smaller part
    // of it, and the other way round it is better too little than too much.
    let relaxed = planned.relaxed || matches!(does, Does::Refund { .. });
    let limit = limit.limit(relaxed);
    Charge { limit, key: planned.key, operation: does.operation(planned.cost) }
}

/// Why a call could not be decided. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckError {
    /// The request itself is the trouble.
    Resolve(ResolveError),
    /// The store could not decide.
    Store(StoreError),
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CheckError {}
