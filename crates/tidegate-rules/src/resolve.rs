//! A request to the charges that follow: which rules match, which limits of theirs apply, whose
//! counters they are, and how much is taken. Nothing is decided here.

use smallvec::SmallVec;
use tidegate_core::{Key, Timestamp};

use crate::attribute::Attribute;
use crate::compile::{
    CompiledCost, CompiledDomain, CompiledRule, CompiledRules, DomainId, LimitId, Ordinary,
    PlainLimits, Range, RuleId, Straight,
};
use crate::explain::QuotaOf;
use crate::identity::Subject;
use crate::index::{ATTRIBUTES_MAX, Found, View, is_same};
use crate::rule::{Missing, Mode, Pressure};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Whose rules.
    pub domain: &'a str,
    /// What describes the request. For Envoy's descriptors their order matters.
    pub attributes: &'a [Attribute<'a>],
    /// How much it takes, times what a rule says.
    pub cost: u64,
    /// When, for overrides that expire.
    pub now: Timestamp,
    /// How busy the protected service is, for elastic limits.
    pub pressure: Pressure,
}

/// The charges that follow. It is meant to be used again, and takes no memory from the heap for a
/// few charges.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What is to be decided, in the order of the rules.
    pub charges: SmallVec<[Planned; 2]>,
    /// The rules that match, those without a charge too.
    pub matched: SmallVec<[RuleId; 4]>,
    /// How many rules match but do not apply, because an attribute that they count by is missing.
    pub skipped: u32,
    /// A rule that denies whatever has been taken, and why.
    pub denied_by: Option<(RuleId, Refusal)>,
    /// A rule in shadow that would do the same.
    pub shadow_denied_by: Option<RuleId>,
    /// Which domain it is, where there is such a domain.
    pub domain: Option<DomainId>,
}

/// Why a rule denies whatever has been taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// An attribute that it counts by is missing.
    MissingAttribute,
    /// It gives nothing to anyone.
    Banned,
}

/// One charge to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Which limit.
    pub limit: LimitId,
    /// Whether it is stretched, because there is little pressure.
    pub relaxed: bool,
    /// Whose counter.
    pub key: Key,
    /// How much.
    pub cost: u64,
}

/// The only charge of a request: it takes what the request costs under a limit that is not stretched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Only {
    /// Which domain it is.
    pub domain: DomainId,
    /// The only rule that matches.
    pub rule: RuleId,
    /// Its only limit.
    pub limit: LimitId,
    /// Whose counter.
    pub key: Key,
}

impl Only {
    /// The charge.
    #[inline]
    pub fn planned(&self, cost: u64) -> Planned {
        Planned { limit: self.limit, relaxed: false, key: self.key, cost }
    }
}

impl Plan {
    /// A rule denies, unless it is in shadow. The first that does is told.
    fn refuse(&mut self, (id, rule): (RuleId, &CompiledRule), refusal: Refusal) {
        match rule.rule.mode {
            Mode::Enforce => {
                self.denied_by.get_or_insert((id, refusal));
            }
            Mode::Shadow => {
                self.shadow_denied_by.get_or_insert(id);
            }
        }
    }

    /// Forgets everything and keeps the room.
    pub fn clear(&mut self) {
        self.charges.clear();
        self.matched.clear();
        self.skipped = 0;
        self.denied_by = None;
        self.shadow_denied_by = None;
        self.domain = None;
    }
}

impl CompiledRules {
    /// Adds to `plan` what follows from a request. Nothing is allocated where a few charges follow.
    pub fn resolve(&self, ask: &Ask<'_>, plan: &mut Plan) -> Result<(), ResolveError> {
        let room = &mut *plan;
        if let Some(only) = self.resolve_only(ask, move || room)? {
            plan.domain = Some(only.domain);
            plan.matched.push(only.rule);
            plan.charges.push(only.planned(ask.cost));
        }
        Ok(())
    }

    /// What follows from a request where that is one charge of one ordinary rule, as it is for most. Everything else is
    /// added to the plan that is asked for, and nothing of what is handed back is: no lists are made, filled and looked at
    /// for one charge.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "who is handed a key through memory waits for it")]
    pub fn resolve_only<'p>(
        &self,
        ask: &Ask<'_>,
        plan: impl FnOnce() -> &'p mut Plan,
    ) -> Result<Option<Only>, ResolveError> {
        let domain = self.domain(ask.domain);
        if let Some(domain) = domain
            && let Some(straight) = &domain.straight
            && ask.attributes.len() <= ATTRIBUTES_MAX
            && let Some(value) = straight.counted(ask)
        {
            return Ok(self.plain(ask, domain, (straight.rule, straight.limits), value, plan));
        }
        self.resolve_among(ask, domain, plan)
    }

    /// The same where rules have to be looked for.
    #[inline(never)]
    fn resolve_among<'p>(
        &self,
        ask: &Ask<'_>,
        domain: Option<&CompiledDomain>,
        plan: impl FnOnce() -> &'p mut Plan,
    ) -> Result<Option<Only>, ResolveError> {
        let Some(domain) = domain else {
            plan();
            return Ok(None);
        };
        if ask.attributes.len() > ATTRIBUTES_MAX {
            plan().domain = Some(domain.id);
            return Err(ResolveError::TooManyAttributes { max: ATTRIBUTES_MAX });
        }
        let mut view = View::new(ask.attributes);
        let found = domain.index.find(&mut view);
        if let Found::One(number) = found
            && domain.descriptors.is_none()
            && let id = RuleId::new(domain.first + number)
            && let Some(Ordinary { by, limits }) = self.compiled_rule(id).ordinary
            && let Some(value) = view.value(by)
        {
            return Ok(self.plain(ask, domain, (id, limits), value, plan));
        }
        self.apply_all(ask, domain, (&view, found.all()), plan())?;
        Ok(None)
    }

    /// What follows from the only rule that matches, where it is as ordinary as most are and the request has the
    /// attribute that it counts by. It is what [`apply_all`](Self::apply_all) would add.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "every request comes by one of two callers")]
    fn plain<'p>(
        &self,
        ask: &Ask<'_>,
        domain: &CompiledDomain,
        (rule, limits): (RuleId, PlainLimits),
        counted: &[u8],
        plan: impl FnOnce() -> &'p mut Plan,
    ) -> Option<Only> {
        let subject = self.hasher.bytes(counted);
        let key = subject.key(self.limit(limits.first).salt());
        let only = Only { domain: domain.id, rule, limit: limits.first, key };
        if limits.more == 0 {
            return Some(only);
        }
        self.push_several(ask, only, limits, subject, plan());
        None
    }

    /// Adds the charges of a rule that has several limits.
    #[inline(never)]
    fn push_several(
        &self,
        ask: &Ask<'_>,
        first: Only,
        limits: PlainLimits,
        subject: Subject,
        plan: &mut Plan,
    ) {
        plan.domain = Some(first.domain);
        plan.matched.push(first.rule);
        // No more than can be decided together: a rule with more is refused when it is read.
        debug_assert!((limits.more as usize) < Self::LIMITS_MAX);
        plan.charges.push(first.planned(ask.cost));
        let planned = |limit| {
            let key = subject.key(self.limit(limit).salt());
            Planned { limit, relaxed: false, key, cost: ask.cost }
        };
        plan.charges.extend(limits.others().map(planned));
    }

    /// Adds what follows from all rules that match, whatever they say.
    #[inline(never)]
    fn apply_all(
        &self,
        ask: &Ask<'_>,
        domain: &CompiledDomain,
        (view, found): (&View<'_>, &[u32]),
        plan: &mut Plan,
    ) -> Result<(), ResolveError> {
        plan.domain = Some(domain.id);
        let mut subjects = Subjects::default();
        for &number in found {
            let id = RuleId::new(domain.first + number);
            let rule = self.compiled_rule(id);
            self.apply(ask, (id, rule), view, &mut subjects, plan);
        }
        if domain.descriptors.is_some() {
            self.apply_descriptors(ask, domain, view, plan);
        }
        if plan.charges.len() > Self::LIMITS_MAX {
            return self.check_count(plan);
        }
        Ok(())
    }

    /// The most limits in force that one request can be under, which is what a store decides in one
    /// step. Those in shadow are decided apart.
    pub const LIMITS_MAX: usize = 16;
    /// The most charges of a request, those in shadow too.
    pub const CHARGES_MAX: usize = 64;

    #[cold]
    fn check_count(&self, plan: &Plan) -> Result<(), ResolveError> {
        let in_force = plan.charges.iter().filter(|one| self.limit(one.limit).is_enforced());
        if in_force.count() > Self::LIMITS_MAX {
            return Err(ResolveError::TooManyLimits { max: Self::LIMITS_MAX });
        }
        if plan.charges.len() > Self::CHARGES_MAX {
            return Err(ResolveError::TooManyLimits { max: Self::CHARGES_MAX });
        }
        Ok(())
    }

    fn is_stretched(&self, quota: Range) -> bool {
        quota.limits().any(|limit| self.limit(LimitId::new(limit)).can_relax())
    }

    /// Adds the charges of one rule that matches.
    #[inline]
    fn apply(
        &self,
        ask: &Ask<'_>,
        (id, rule): (RuleId, &CompiledRule),
        view: &View<'_>,
        subjects: &mut Subjects,
        plan: &mut Plan,
    ) {
        let is_missing = rule.per.iter().any(|&name| view.value(name).is_none());
        if is_missing {
            match rule.rule.missing {
                Missing::Skip => {
                    plan.skipped += 1;
                    return;
                }
                Missing::Deny => {
                    plan.matched.push(id);
                    plan.refuse((id, rule), Refusal::MissingAttribute);
                    return;
                }
                Missing::Shared => {}
            }
        }
        plan.matched.push(id);
        let subject = subjects.of(self, rule, view);
        self.charge(ask, (id, rule), view, subject, plan);
    }

    /// The limit of Envoy's descriptors: the attributes are one descriptor, in their order.
    fn apply_descriptors(
        &self,
        ask: &Ask<'_>,
        domain: &CompiledDomain,
        view: &View<'_>,
        plan: &mut Plan,
    ) {
        let found = domain.descriptors.as_ref().and_then(|tree| tree.find(ask.attributes));
        let Some(found) = found else { return };
        let id = RuleId::new(domain.first_descriptor + found.rule);
        plan.matched.push(id);
        let subject = self.hasher.attributes(found.counted_by(ask.attributes));
        self.charge(ask, (id, self.compiled_rule(id)), view, subject, plan);
    }

    #[inline]
    fn charge(
        &self,
        ask: &Ask<'_>,
        (id, rule): (RuleId, &CompiledRule),
        view: &View<'_>,
        subject: Subject,
        plan: &mut Plan,
    ) {
        let quota = rule.overridden(view, ask.now).unwrap_or_else(|| rule.tier(view));
        let relaxed = ask.pressure < rule.relaxed_below;
        let cost = ask.cost.saturating_mul(rule.cost.of(view));
        if quota.is_nothing() && cost > 0 {
            plan.refuse((id, rule), Refusal::Banned);
        }
        let mut push = |limit: u32| {
            let limit = LimitId::new(limit);
            let key = subject.key(self.limit(limit).salt());
            plan.charges.push(Planned { limit, relaxed, key, cost });
        };
        quota.limits().for_each(&mut push);
        // While pressure stretches the limits further than softness does, nothing is marked.
        quota.plain().filter(|_| !(relaxed && self.is_stretched(quota))).for_each(&mut push);
        if let Some(priority) = &rule.priority {
            let own = view.value(priority.by);
            let before = priority.classes.iter().take_while(|&name| own != Some(&**name));
            for (class, _) in before.enumerate() {
                quota.reserve(class).for_each(&mut push);
            }
        }
        rule.candidate.limits().for_each(&mut push);
    }
}

impl Straight {
    /// The value that the rule counts by, where the request has it.
    #[inline(never)]
    fn counted<'a>(&self, ask: &Ask<'a>) -> Option<&'a [u8]> {
        let is_it = |one: &&Attribute<'_>| is_same(one.name.as_bytes(), self.by.as_bytes());
        ask.attributes.iter().find(is_it).map(|one| one.value)
    }
}

impl CompiledRule {
    /// What the override of this request's key gives, where there is one.
    #[inline]
    fn overridden(&self, view: &View<'_>, now: Timestamp) -> Option<Range> {
        let overrides = self.overrides.as_ref()?;
        let values: Option<SmallVec<[&[u8]; 4]>> =
            self.per.iter().map(|&name| view.value(name)).collect();
        overrides.find(&values?, now)
    }

    /// Where the limits for this request come from.
    pub(crate) fn quota_of(&self, view: &View<'_>, now: Timestamp) -> QuotaOf {
        if self.overridden(view, now).is_some() {
            return QuotaOf::Override;
        }
        let tier = self.tiers.as_ref().and_then(|tiers| {
            let value = view.value(tiers.by)?;
            tiers.quotas.contains_key(value).then_some(value)
        });
        match tier {
            Some(tier) => QuotaOf::Tier(String::from_utf8_lossy(tier).into_owned()),
            None => QuotaOf::Rule,
        }
    }

    /// What the tier of this request gives, or the rule's own quota.
    #[inline]
    fn tier(&self, view: &View<'_>) -> Range {
        let tiers = self.tiers.as_ref();
        let tier = tiers.and_then(|tiers| tiers.quotas.get(view.value(tiers.by)?));
        tier.copied().unwrap_or(self.quota)
    }
}

impl CompiledCost {
    #[inline]
    fn of(self, view: &View<'_>) -> u64 {
        match self {
            Self::Number(number) => number,
            Self::Attribute { of, default } => {
                view.value(of).and_then(whole_number).unwrap_or(default)
            }
        }
    }
}

/// A number too large to be written in 64 bits is the largest that can, and not none.
fn whole_number(value: &[u8]) -> Option<u64> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    is_number.then(|| {
        let text = std::str::from_utf8(value).unwrap_or_default();
        text.parse().unwrap_or(u64::MAX)
    })
}

/// The subject of the last rule, since many rules count by the same attributes.
#[derive(Default)]
struct Subjects {
    last: Option<(u32, Subject)>,
}

impl Subjects {
    /// Who is counted: the values of the rule's `per` attributes. Their names are in the salts of the
    /// rule's limits already.
    #[inline]
    fn of(&mut self, rules: &CompiledRules, rule: &CompiledRule, view: &View<'_>) -> Subject {
        if let Some((list, subject)) = self.last
            && list == rule.per_list
        {
            return subject;
        }
        let subject = rules.hasher.values(rule.per.iter().map(|&name| view.value(name)));
        self.last = Some((rule.per_list, subject));
        subject
    }
}

/// Why a request could not be resolved. Nothing was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveError {
    /// The request has more attributes than anyone looks at.
    TooManyAttributes {
        /// The most.
        max: usize,
    },
    /// The rules that match have more limits than can be decided together.
    TooManyLimits {
        /// The most.
        max: usize,
    },
}

impl std::fmt::Display for ResolveError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooManyAttributes { max } => {
                write!(f, "the request has more than {max} attributes; send those that rules name")
            }
            Self::TooManyLimits { max } => {
                write!(
                    f,
                    "the rules that match have more than {max} limits; let fewer of them match"
                )
            }
        }
    }
}

impl std::error::Error for ResolveError {}

#[cfg(test)]
mod tests;
