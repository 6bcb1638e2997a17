//! A rule set made ready for matching: attributes by number, rules behind an index, limits scaled
//! and with the salts of their keys.

use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use smallvec::SmallVec;
use tidegate_core::{Consistency, Timestamp};

use crate::attribute::Reads;
use crate::descriptor::{DescriptorTree, with_rules};
use crate::identity::KeyHasher;
use crate::index::{AttributeId, Builder, Index, is_same};
use crate::rule::{Cost, Descriptor, DescriptorTraits, Domain, Pressure, Quota, Rule, RuleSet};

mod limits;
mod overrides;

pub use limits::{Before, CompiledLimit, Role};
use limits::{Heirs, Kept, Limits};
pub(crate) use limits::{PlainLimits, Range};
use overrides::Overrides;

/// One of the rules of a compiled set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(u32);

/// One of the domains of a compiled set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainId(u32);

/// One of the limits of a compiled set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(u32);

/// What one limit of one compiled set has, and no other of this process, before or after, so that what was worked out of a
/// limit can be found again by it. The address of the rules would not do: others may stand there later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LimitMark(u64);

impl LimitMark {
    /// The mark as a number.
    #[inline]
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// Rules that requests can be matched against, at a cost that grows with the rules that match and
/// not with those that there are.
#[derive(Debug)]
pub struct CompiledRules {
    set: RuleSet,
    rules: Vec<CompiledRule>,
    limits: Vec<CompiledLimit>,
    heirs: Heirs,
    /// In the order of the set.
    domains: Vec<CompiledDomain>,
    by_name: HashMap<Box<str>, usize, foldhash::fast::RandomState>,
    pub(crate) hasher: KeyHasher,
    kept: Kept,
    is_elastic: bool,
    names_leased: bool,
    reads: Reads,
    version: u64,
    since: Option<Timestamp>,
    /// The mark of the first limit.
    first_mark: u64,
}

/// One domain: its rules by what requests look like.
#[derive(Debug)]
pub(crate) struct CompiledDomain {
    name: Box<str>,
    pub(crate) id: DomainId,
    pub(crate) straight: Option<Straight>,
    /// The first of its rules among all rules; those that look at attributes in any order come
    /// first, then those of descriptors.
    pub(crate) first: u32,
    pub(crate) index: Index,
    pub(crate) descriptors: Option<DescriptorTree>,
    /// The first of the rules of descriptors.
    pub(crate) first_descriptor: u32,
    /// The first rule of the next domain.
    pub(crate) end: u32,
}

/// One rule, with everything that it names by number. What a decision seldom looks at is behind a
/// pointer, so that a rule fits a few cache lines.
#[derive(Debug)]
pub(crate) struct CompiledRule {
    /// What follows for a request with the attribute that it counts by, where it says nothing beyond
    /// limits for each value of one attribute, as most rules do.
    pub(crate) ordinary: Option<Ordinary>,
    pub(crate) rule: Box<Rule>,
    pub(crate) per: SmallVec<[AttributeId; 4]>,
    /// Which list of `per` attributes it is: rules with the same number have the same list.
    pub(crate) per_list: u32,
    pub(crate) quota: Range,
    pub(crate) tiers: Option<Box<CompiledTiers>>,
    pub(crate) overrides: Option<Box<Overrides>>,
    pub(crate) candidate: Range,
    pub(crate) cost: CompiledCost,
    /// Below which pressure its limits are stretched; never, where it is not elastic.
    pub(crate) relaxed_below: Pressure,
    pub(crate) priority: Option<Box<CompiledPriority>>,
    /// Whether it is the rule of a descriptor of Envoy's.
    is_of_descriptor: bool,
    /// Whether requests with different values of an attribute that it counts by share a counter.
    shares_values: bool,
    /// What is special about its descriptor; `None` where nothing is, which is most of them.
    traits: Option<Box<DescriptorTraits>>,
}

/// One limit, counted by one attribute: no tiers, overrides, classes or candidates, nothing soft or
/// elastic, and the cost that the request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ordinary {
    pub(crate) by: AttributeId,
    pub(crate) limits: PlainLimits,
}

/// The only rule of a domain, where it is [ordinary](Ordinary) and every request meets it: what follows from one that
/// has the attribute that it counts by is known before the others are looked at.
#[derive(Debug)]
pub(crate) struct Straight {
    /// An attribute whose values are counted as they come.
    pub(crate) by: Box<str>,
    pub(crate) rule: RuleId,
    pub(crate) limits: PlainLimits,
}

#[derive(Debug)]
pub(crate) struct CompiledTiers {
    pub(crate) by: AttributeId,
    pub(crate) quotas: HashMap<Box<[u8]>, Range, foldhash::fast::RandomState>,
}

#[derive(Debug)]
pub(crate) struct CompiledPriority {
    pub(crate) by: AttributeId,
    pub(crate) classes: Box<[Box<[u8]>]>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum CompiledCost {
    Number(u64),
    Attribute { of: AttributeId, default: u64 },
}

/// The first of so many numbers that were never handed out before. They begin with 1.
fn next_marks(count: usize) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    // ORDERING: Relaxed, because nothing but the numbers themselves is told.
    NEXT.fetch_add(count as u64, Ordering::Relaxed)
}

impl CompiledRules {
    /// The rules, with keys hashed by `hasher`.
    pub fn new(set: RuleSet, hasher: &KeyHasher) -> Self {
        Self::compiled(set, hasher, Kept::ByOne, None)
    }

    /// The rules, for limits that many nodes share. Nodes are told of changed rules one after the other, and
    /// none can carry anything over without giving it back to those that have not been told yet. So
    /// nothing is: buckets that differ in their pace alone have one key, and a state stands for
    /// the same share of each of them.
    pub fn shared(set: RuleSet, hasher: &KeyHasher) -> Self {
        Self::compiled(set, hasher, Kept::ByMany, None)
    }

    /// The rules, as they follow on others at `now`: what was spent under a limit whose states mean
    /// something else from now on is [carried over](Before), unless many nodes [share](Self::shared) it.
    pub fn following(set: RuleSet, hasher: &KeyHasher, old: &Self, now: Timestamp) -> Self {
        Self::compiled(set, hasher, old.kept, Some((old, now)))
    }

    fn compiled(
        set: RuleSet,
        hasher: &KeyHasher,
        kept: Kept,
        old: Option<(&Self, Timestamp)>,
    ) -> Self {
        let mut compiler = Compiler { rules: Vec::new(), limits: Limits::new(hasher, kept) };
        let domains: Vec<_> =
            (0..).zip(set.domains()).map(|(at, one)| compiler.domain(DomainId(at), one)).collect();
        let by_name = domains.iter().enumerate().map(|(at, one)| (one.name.clone(), at)).collect();
        let Compiler { rules, mut limits } = compiler;
        let (version, since) = old.map_or((1, None), |(old, now)| (old.version + 1, Some(now)));
        let (old, now) =
            old.map_or((&[][..], Timestamp::ZERO), |(old, now)| (&old.limits[..], now));
        limits.connect(old, now);
        let is_elastic = rules.iter().any(|one| one.rule.elastic.is_some());
        let limits = limits.all;
        let is_leased = |limit: &CompiledLimit| limit.consistency() == Some(Consistency::Leased);
        let names_leased = limits.iter().any(is_leased);
        let heirs = Heirs::new(&limits);
        let reads = domains.iter().fold(Reads::NOTHING, |all, one| all.and(one.reads()));
        let (hasher, first_mark) = (*hasher, next_marks(limits.len()));
        Self {
            set,
            rules,
            limits,
            heirs,
            domains,
            by_name,
            hasher,
            kept,
            is_elastic,
            names_leased,
            reads,
            version,
            since,
            first_mark,
        }
    }

    /// The number of a domain; `None` where nobody wrote rules for it.
    pub fn domain_id(&self, name: &str) -> Option<DomainId> {
        self.domain(name).map(|domain| domain.id)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "every request comes by, and names are short")]
    pub(crate) fn domain(&self, name: &str) -> Option<&CompiledDomain> {
        // Mostly there is one.
        let first = self.domains.first()?;
        if is_same(first.name.as_bytes(), name.as_bytes()) {
            return Some(first);
        }
        self.other_domain(name)
    }

    /// Apart, so that there is little code around what is common.
    #[inline(never)]
    fn other_domain(&self, name: &str) -> Option<&CompiledDomain> {
        /// So many names are compared faster than one is hashed.
        const FEW: usize = 4;
        if self.domains.len() <= FEW {
            let is_it = |one: &&CompiledDomain| is_same(one.name.as_bytes(), name.as_bytes());
            return self.domains[1..].iter().find(is_it);
        }
        Some(&self.domains[*self.by_name.get(name)?])
    }

    /// Whether some rule asks for the pressure.
    #[inline]
    pub fn is_elastic(&self) -> bool {
        self.is_elastic
    }

    /// Whether some rule says that nodes lease its limits.
    #[inline]
    pub fn names_leased(&self) -> bool {
        self.names_leased
    }

    /// The attributes that some rule of some domain looks at. Requests that differ in others alone are decided alike,
    /// where none has more than [`ATTRIBUTES_MAX`](crate::attribute::ATTRIBUTES_MAX).
    #[inline]
    pub fn reads(&self) -> Reads {
        self.reads
    }

    /// How many sets of rules there have been with this one: 1 for the first, and one more for each
    /// that [follows](Self::following).
    #[inline]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Since when they are in force; `None` for the first, which nothing came before.
    pub fn since(&self) -> Option<Timestamp> {
        self.since
    }

    /// How many rules there are, over all domains.
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }

    /// The domain of each rule, in the order of [`RuleId::number`].
    pub fn rule_domains(&self) -> impl Iterator<Item = (&str, &Rule)> {
        let of = |domain: &'_ CompiledDomain| domain.first as usize..domain.end as usize;
        self.domains.iter().flat_map(move |domain| {
            self.rules[of(domain)].iter().map(|one| (&*domain.name, &*one.rule))
        })
    }

    /// The rules as they were read.
    pub fn set(&self) -> &RuleSet {
        &self.set
    }

    /// One rule.
    #[inline]
    pub fn rule(&self, id: RuleId) -> &Rule {
        &self.rules[id.0 as usize].rule
    }

    /// Whether requests that a rule counts together all have the same value of this attribute.
    pub fn counts_by(&self, id: RuleId, attribute: &str) -> bool {
        let rule = &self.rules[id.0 as usize];
        !rule.shares_values && rule.rule.per.iter().any(|name| name == attribute)
    }

    /// What is special about the descriptor of a rule; `None` for a rule that belongs to none.
    #[inline]
    pub fn traits(&self, id: RuleId) -> Option<&DescriptorTraits> {
        static PLAIN: DescriptorTraits = DescriptorTraits::PLAIN;
        let rule = &self.rules[id.0 as usize];
        rule.is_of_descriptor.then(|| rule.traits.as_deref().unwrap_or(&PLAIN))
    }

    /// One limit.
    #[inline]
    pub fn limit(&self, id: LimitId) -> &CompiledLimit {
        &self.limits[id.0 as usize]
    }

    /// What tells a limit apart from all others.
    #[inline]
    pub fn limit_mark(&self, id: LimitId) -> LimitMark {
        debug_assert!((id.0 as usize) < self.limits.len(), "a limit of other rules");
        LimitMark(self.first_mark + u64::from(id.0))
    }

    /// The limit that took the place of one of other rules: itself, where it is unchanged.
    pub fn heir(&self, limit: &CompiledLimit) -> Option<LimitId> {
        self.heirs.of(limit).map(LimitId)
    }

    /// All limits.
    pub fn limits(&self) -> &[CompiledLimit] {
        &self.limits
    }

    /// Leaves nothing prepared, so that every rule goes the general way.
    #[cfg(test)]
    pub(crate) fn forget_ordinary(&mut self) {
        self.rules.iter_mut().for_each(|rule| rule.ordinary = None);
        self.domains.iter_mut().for_each(|domain| domain.straight = None);
    }

    #[inline]
    pub(crate) fn compiled_rule(&self, id: RuleId) -> &CompiledRule {
        &self.rules[id.0 as usize]
    }
}

impl CompiledDomain {
    /// Descriptors are told apart by all that they have, and rules by what they name.
    fn reads(&self) -> Reads {
        if self.descriptors.is_some() { Reads::ALL } else { self.index.reads() }
    }
}

impl DomainId {
    /// Its place among all domains, in the order of the set.
    #[inline]
    pub fn number(self) -> usize {
        self.0 as usize
    }
}

impl RuleId {
    /// Its place among all rules: those of the first domain first, and in a domain those that look
    /// at attributes in any order before those of descriptors.
    #[inline]
    pub fn number(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn new(number: u32) -> Self {
        Self(number)
    }
}

impl LimitId {
    pub(crate) fn new(number: u32) -> Self {
        Self(number)
    }
}

/// Whether some level of these lets all values of a pattern share a counter. One that does is taken to
/// do so for all rules of its domain, which costs little and is never wrong.
fn shares_values(levels: &[Descriptor]) -> bool {
    levels.iter().any(|level| level.traits.share_threshold || shares_values(&level.children))
}

/// The lists of `per` attributes of a domain, by number.
type PerLists = HashMap<SmallVec<[AttributeId; 4]>, u32, foldhash::fast::RandomState>;

/// Rules and limits of all domains, as they come.
struct Compiler<'h> {
    rules: Vec<CompiledRule>,
    limits: Limits<'h>,
}

impl Compiler<'_> {
    fn domain(&mut self, id: DomainId, domain: &Domain) -> CompiledDomain {
        let first = self.next();
        let mut builder = Index::builder();
        let mut lists = HashMap::default();
        for rule in &domain.rules {
            self.rule(&domain.name, rule, &mut builder, &mut lists);
        }
        let first_descriptor = self.next();
        let descriptors = (!domain.descriptors.is_empty()).then(|| {
            let shares_values = shares_values(&domain.descriptors);
            for descriptor in with_rules(&domain.descriptors) {
                let Some(rule) = &descriptor.rule else { continue };
                self.rule(&domain.name, rule, &mut builder, &mut lists);
                if let Some(compiled) = self.rules.last_mut() {
                    compiled.shares_values = shares_values;
                    let is_special = descriptor.traits != DescriptorTraits::PLAIN;
                    compiled.is_of_descriptor = true;
                    compiled.traits = is_special.then(|| Box::new(descriptor.traits.clone()));
                }
            }
            DescriptorTree::new(&domain.descriptors)
        });
        let (index, end) = (builder.build(&domain.rules), self.next());
        let name = domain.name.as_str().into();
        let straight = self.straight(domain, first);
        CompiledDomain { name, id, straight, first, index, descriptors, first_descriptor, end }
    }

    fn straight(&self, domain: &Domain, first: u32) -> Option<Straight> {
        let ([rule], []) = (&domain.rules[..], &domain.descriptors[..]) else { return None };
        let Ordinary { by, limits } = self.rules[first as usize].ordinary?;
        if !rule.conditions.is_empty() || by.is_rewritten() {
            return None;
        }
        Some(Straight { by: rule.per.first()?.as_str().into(), rule: RuleId(first), limits })
    }

    fn next(&self) -> u32 {
        u32::try_from(self.rules.len()).unwrap_or(u32::MAX)
    }

    fn rule(&mut self, domain: &str, rule: &Rule, names: &mut Builder, lists: &mut PerLists) {
        let at = (domain, RuleId(self.next()), rule);
        let mut intern = |name: &str| names.intern(name, rule.ignore_case);
        let list = u32::try_from(lists.len()).unwrap_or(u32::MAX);
        let per: SmallVec<[_; 4]> = rule.per.iter().map(|name| intern(name)).collect();
        let mut compiled = CompiledRule {
            ordinary: None,
            per_list: *lists.entry(per.clone()).or_insert(list),
            per,
            quota: self.limits.quota(at, &rule.quota),
            tiers: rule.tiers.as_ref().map(|tiers| {
                let quotas = tiers.quotas.iter();
                let quotas = quotas
                    .map(|(tier, quota)| (tier.as_bytes().into(), self.limits.quota(at, quota)));
                Box::new(CompiledTiers { by: intern(&tiers.by), quotas: quotas.collect() })
            }),
            overrides: (!rule.overrides.is_empty())
                .then(|| Overrides::new(rule, |quota: &Quota| self.limits.of_override(at, quota)))
                .map(Box::new),
            candidate: self.limits.candidate(at),
            cost: match &rule.cost {
                Cost::Number(number) => CompiledCost::Number(*number),
                Cost::Attribute { name, default } => {
                    CompiledCost::Attribute { of: intern(name), default: *default }
                }
            },
            relaxed_below: rule
                .elastic
                .map_or(Pressure::NONE, |elastic| elastic.while_pressure_below),
            priority: rule.priority.as_ref().map(|priority| {
                let classes = priority.reserve.iter().map(|(class, _)| class.as_bytes().into());
                let (by, classes) = (intern(&priority.by), classes.collect());
                Box::new(CompiledPriority { by, classes })
            }),
            is_of_descriptor: false,
            shares_values: false,
            traits: None,
            rule: Box::new(rule.clone()),
        };
        compiled.ordinary = compiled.as_ordinary();
        self.rules.push(compiled);
    }
}

impl CompiledRule {
    /// The little that there is to it, where it says nothing out of the ordinary.
    fn as_ordinary(&self) -> Option<Ordinary> {
        let Self { per, quota, tiers, overrides, candidate, cost, priority, .. } = self;
        let ([by], Some(limits)) = (&per[..], quota.plainly()) else { return None };
        let is_ordinary = tiers.is_none()
            && overrides.is_none()
            && priority.is_none()
            && candidate.limits().next().is_none()
            && matches!(cost, CompiledCost::Number(1))
            && self.rule.elastic.is_none();
        is_ordinary.then_some(Ordinary { by: *by, limits })
    }
}
