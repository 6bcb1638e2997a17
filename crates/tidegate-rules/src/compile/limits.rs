//! Limits as they are decided: scaled, with what sets their keys apart, and with what they follow
//! on after a reload.

use hashbrown::HashMap;
use tidegate_core::terms::{Consistency, OnStoreFailure};
use tidegate_core::{Limit, Span, Timestamp};

use super::{LimitId, RuleId};
use crate::identity::{KeyHasher, Salt};
use crate::rule::{Mode, Percent, Quota, Rule, RuleLimit};

/// One limit of a rule, ready to be decided.
#[derive(Clone, Debug)]
pub struct CompiledLimit {
    rule: RuleId,
    role: Role,
    /// Whether it can deny.
    is_enforced: bool,
    /// As it was written.
    written: Box<RuleLimit>,
    normal: Limit,
    relaxed: Option<Box<Limit>>,
    salt: Salt,
    /// The salt less the numbers, by which a limit is known again after a reload.
    identity: Salt,
    /// Whether it is that of an override, which no other key has.
    is_of_override: bool,
    consistency: Option<Consistency>,
    on_store_failure: Option<OnStoreFailure>,
    befores: Vec<Before>,
}

/// What a limit is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It is one of the rule's limits.
    Limit,
    /// It holds the classes after the one of this number to what that one and those before it leave
    /// them.
    Reserve(u16),
    /// It is tried out and never denies.
    Candidate,
    /// It is what a soft rule would give if it were not soft: what it denies is marked.
    Plain,
}

/// Another limit whose states stand for the same quota and mean something else: one that was in force
/// before a reload, or one of another tier. What is left of them has to be carried over, key by key,
/// as they come up.
#[derive(Clone, Debug)]
pub struct Before {
    /// How its states are read.
    pub limit: Limit,
    /// What set its keys apart.
    pub salt: Salt,
    /// From when on nothing can be left of them; `None` where it goes on being used.
    pub until: Option<Timestamp>,
}

impl CompiledLimit {
    /// The most other limits that are looked at. Each adds a look to a decision, and more of them take
    /// as many reloads within one fill time, or as many tiers that fill in different times.
    pub const BEFORES_MAX: usize = 16;
    /// How many fill times a limit before this one is remembered for. An ordinary state is full
    /// after one; one in debt takes longer.
    const BEFORE_FILLS: u64 = 8;

    /// The limit, as it is while there is little pressure or otherwise.
    #[inline]
    pub fn limit(&self, relaxed: bool) -> &Limit {
        match &self.relaxed {
            Some(limit) if relaxed => limit,
            _ => &self.normal,
        }
    }

    /// Whether little pressure makes a difference.
    #[inline]
    pub(crate) fn can_relax(&self) -> bool {
        self.relaxed.is_some()
    }

    /// As it was written.
    pub fn written(&self) -> &RuleLimit {
        &self.written
    }

    /// Whose it is.
    pub fn rule(&self) -> RuleId {
        self.rule
    }

    /// What it is there for.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Whether it can deny: a candidate cannot, and no limit of a rule in shadow.
    #[inline]
    pub fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// What sets its keys apart.
    #[inline]
    pub fn salt(&self) -> Salt {
        self.salt
    }

    /// How exactly nodes share it, where its rule says so.
    #[inline]
    pub fn consistency(&self) -> Option<Consistency> {
        self.consistency
    }

    /// What happens while the shared store cannot answer, where its rule says so.
    #[inline]
    pub fn on_store_failure(&self) -> Option<OnStoreFailure> {
        self.on_store_failure
    }

    /// Whether nodes can reserve some of it, and spend that by themselves.
    #[inline]
    pub fn is_leasable(&self) -> bool {
        self.normal.is_leasable()
    }

    /// What it follows on.
    #[inline]
    pub fn befores(&self) -> &[Before] {
        &self.befores
    }
}

/// Where the limits of a quota stand among all limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    first: u32,
    /// The rule's limits, without those beside them.
    count: u32,
    /// Whether those of a soft rule that is not soft follow.
    has_plain: bool,
}

/// The limits of a quota that has nothing beside them but reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlainLimits {
    pub(crate) first: LimitId,
    /// How many come after it.
    pub(crate) more: u32,
}

impl PlainLimits {
    /// Those after the first.
    #[inline]
    pub(crate) fn others(self) -> impl Iterator<Item = LimitId> {
        (1..=self.more).map(move |number| LimitId(self.first.0 + number))
    }
}

impl Range {
    /// No limits, so nothing is counted.
    pub(super) const NONE: Self = Self { first: 0, count: 0, has_plain: false };
    /// Nothing at all may be taken.
    const NOTHING: Self = Self { first: u32::MAX, count: 0, has_plain: false };

    /// Whether nothing at all may be taken.
    #[inline]
    pub(crate) fn is_nothing(self) -> bool {
        self.first == Self::NOTHING.first
    }

    /// The limits, where there are some and nothing beside them but reserves.
    pub(super) fn plainly(self) -> Option<PlainLimits> {
        let more = self.count.checked_sub(1)?;
        (!self.has_plain).then_some(PlainLimits { first: LimitId(self.first), more })
    }

    pub(crate) fn limits(self) -> impl Iterator<Item = u32> {
        self.first..self.first + self.count
    }

    /// What the limits of a soft rule would be if it were not.
    pub(crate) fn plain(self) -> impl Iterator<Item = u32> {
        let first = self.first + self.count;
        first..first + if self.has_plain { self.count } else { 0 }
    }

    /// The limits that hold later classes to what those up to this number leave them.
    pub(crate) fn reserve(self, class: usize) -> impl Iterator<Item = u32> {
        let before = 1 + usize::from(self.has_plain) + class;
        let first = self.first + self.count * u32::try_from(before).unwrap_or(0);
        first..first + self.count
    }
}

/// Makes the limits of rules, one after the other.
pub(super) struct Limits<'h> {
    pub(super) all: Vec<CompiledLimit>,
    hasher: &'h KeyHasher,
    kept: Kept,
}

/// Who keeps the states of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// One process for itself: it can carry over what was spent under other numbers.
    ByOne,
    /// Many nodes together.
    ByMany,
}

impl<'h> Limits<'h> {
    pub(super) fn new(hasher: &'h KeyHasher, kept: Kept) -> Self {
        Self { all: Vec::new(), hasher, kept }
    }

    /// The limits of a quota, and behind them those of each reserve.
    pub(super) fn quota(&mut self, at: (&str, RuleId, &Rule), quota: &Quota) -> Range {
        let limits = match quota {
            Quota::Limits(limits) => limits,
            Quota::Unlimited => return Range::NONE,
            Quota::Nothing => return Range::NOTHING,
        };
        let mut range = self.add(at, limits, Role::Limit, Percent(100));
        if at.2.soft.is_some() {
            self.add(at, limits, Role::Plain, Percent(100));
            range.has_plain = true;
        }
        let reserves = at.2.priority.iter().flat_map(|priority| &priority.reserve);
        let mut left = 100_u32;
        for (class, (_, kept)) in (0..).zip(reserves) {
            left = left.saturating_sub(kept.0);
            self.add(at, limits, Role::Reserve(class), Percent(left));
        }
        range
    }

    /// The limits of an override.
    pub(super) fn of_override(&mut self, at: (&str, RuleId, &Rule), quota: &Quota) -> Range {
        let first = self.all.len();
        let range = self.quota(at, quota);
        self.all[first..].iter_mut().for_each(|limit| limit.is_of_override = true);
        range
    }

    pub(super) fn candidate(&mut self, at: (&str, RuleId, &Rule)) -> Range {
        self.add(at, &at.2.candidate, Role::Candidate, Percent(100))
    }

    fn add(
        &mut self,
        (domain, id, rule): (&str, RuleId, &Rule),
        limits: &[RuleLimit],
        role: Role,
        share: Percent,
    ) -> Range {
        let first = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        for (index, written) in limits.iter().enumerate() {
            let alike = |other: &&RuleLimit| kind(&other.limit) == kind(&written.limit);
            let ordinal = limits[..index].iter().filter(alike).count() as u64;
            let identity = self.identity((domain, rule), role, &written.limit, ordinal);
            let salt = match self.kept {
                Kept::ByOne => with_numbers(self.hasher, identity, &written.limit),
                Kept::ByMany => with_fill_time(self.hasher, identity, &written.limit),
            };
            let known = Known { rule: id, role, identity, salt };
            self.all.push(scaled(rule, written, share, &known));
        }
        let count = u32::try_from(limits.len()).unwrap_or(u32::MAX);
        Range { first, count, has_plain: false }
    }

    /// What a limit is known by: everything but its numbers.
    fn identity(
        &self,
        (domain, rule): (&str, &Rule),
        role: Role,
        limit: &Limit,
        ordinal: u64,
    ) -> Salt {
        let (algorithm, period_us) = kind(limit);
        let (role, class) = match role {
            Role::Limit => ("limit", ""),
            Role::Candidate => ("candidate", ""),
            Role::Plain => ("plain", ""),
            Role::Reserve(class) => {
                let reserve = rule.priority.as_ref().map_or(&[][..], |kept| &kept.reserve);
                ("reserve", reserve.get(usize::from(class)).map_or("", |(name, _)| name))
            }
        };
        let period = period_us.to_le_bytes();
        let ordinal = ordinal.to_le_bytes();
        let family = [("domain", domain.as_bytes()), ("rule", rule.name.as_bytes())];
        let fixed = [
            family[0],
            family[1],
            ("role", role.as_bytes()),
            ("class", class.as_bytes()),
            ("algorithm", algorithm.as_bytes()),
            ("period", &period[..]),
            ("before", &ordinal[..]),
        ];
        let per = rule.per.iter().map(|name| ("per", name.as_bytes()));
        // A store that nodes share keeps the limits of one rule together.
        self.hasher.salt_within(self.hasher.salt(family), fixed.into_iter().chain(per))
    }

    /// Connects the limits with those whose states stand for the same quota: of other tiers, of
    /// overrides where there are few, and after a reload of what was in force until `now`.
    pub(super) fn connect(&mut self, old: &[CompiledLimit], now: Timestamp) {
        if self.kept == Kept::ByMany {
            return;
        }
        let mut others = Others::default();
        let of = |limit: &CompiledLimit, until| Before {
            limit: limit.normal.clone(),
            salt: limit.salt,
            until,
        };
        // The rule's own and those of tiers come first, since they matter to more keys.
        for of_override in [false, true] {
            let these = self.all.iter().filter(|limit| limit.is_of_override == of_override);
            for limit in these.filter(|limit| limit.normal.bucket().is_some()) {
                others.add(limit.identity, of(limit, None));
            }
        }
        for limit in old {
            if let Some(fill) = limit.normal.fill_time() {
                let micros = fill.as_micros().saturating_mul(CompiledLimit::BEFORE_FILLS);
                let until = now.plus(Span::from_micros(micros));
                others.add(limit.identity, of(limit, Some(until)));
            }
            for before in &limit.befores {
                if before.until.is_some_and(|until| until > now) {
                    others.add(limit.identity, before.clone());
                }
            }
        }
        for limit in &mut self.all {
            let befores = others.0.get(&limit.identity).into_iter().flatten();
            limit.befores.extend(befores.filter(|before| before.salt != limit.salt).cloned());
        }
    }
}

/// Limits by what they are known by.
#[derive(Default)]
struct Others(HashMap<Salt, Vec<Before>, foldhash::fast::RandomState>);

impl Others {
    fn add(&mut self, identity: Salt, before: Before) {
        let list = self.0.entry(identity).or_default();
        let is_known = list.iter().any(|other| other.salt == before.salt);
        if !is_known && list.len() <= CompiledLimit::BEFORES_MAX {
            list.push(before);
        }
    }
}

/// Limits by what tells whether one took the place of another.
#[derive(Debug)]
pub(super) struct Heirs(HashMap<Salt, u32, foldhash::fast::RandomState>);

impl Heirs {
    pub(super) fn new(limits: &[CompiledLimit]) -> Self {
        let mut heirs = HashMap::default();
        for (number, limit) in (0..).zip(limits) {
            for known_by in [limit.salt, limit.identity] {
                heirs.entry(known_by).or_insert(number);
            }
        }
        Self(heirs)
    }

    /// The same limit, or else the first that counts the same with other numbers.
    pub(super) fn of(&self, limit: &CompiledLimit) -> Option<u32> {
        self.0.get(&limit.salt).or_else(|| self.0.get(&limit.identity)).copied()
    }
}

/// What a limit is known by.
struct Known {
    rule: RuleId,
    role: Role,
    identity: Salt,
    salt: Salt,
}

/// The limit as it is decided: its share, softened, and stretched where there is room.
fn scaled(rule: &Rule, written: &RuleLimit, share: Percent, known: &Known) -> CompiledLimit {
    let Known { rule: id, role, identity, salt } = *known;
    let stretch = |percent: u32| {
        let percent = u64::from(percent) * u64::from(share.0) / 100;
        written.limit.scaled(u32::try_from(percent).unwrap_or(u32::MAX))
    };
    let soft = match (role, rule.soft) {
        (Role::Plain, _) | (_, None) => 100,
        (_, Some(soft)) => soft.0.saturating_add(100),
    };
    // Where soft reaches further than elastic it wins, and pressure makes no difference.
    let relaxed = rule.elastic.filter(|elastic| elastic.up_to.0 > soft);
    CompiledLimit {
        rule: id,
        role,
        is_enforced: !matches!(role, Role::Candidate | Role::Plain) && rule.mode == Mode::Enforce,
        written: Box::new(written.clone()),
        normal: stretch(soft),
        relaxed: relaxed.map(|elastic| Box::new(stretch(elastic.up_to.0))),
        salt,
        identity,
        is_of_override: false,
        consistency: rule.consistency,
        on_store_failure: rule.on_store_failure,
        befores: Vec::new(),
    }
}

/// What two limits of one rule are told apart by, besides their order.
fn kind(limit: &Limit) -> (&'static str, u64) {
    (limit.name(), limit.period().as_micros())
}

/// A bucket keeps the time until it is full, which is a number of tokens only together with its
/// numbers. So they go into the key, and what was spent under others is [carried over](Before).
fn with_numbers(hasher: &KeyHasher, identity: Salt, limit: &Limit) -> Salt {
    let Some((rate, burst)) = limit.bucket() else { return identity };
    numbered(hasher, identity, rate.count(), burst)
}

/// The time until a bucket is full is the same share of every bucket that fills in the same time, so
/// these have one key, whatever their numbers. A bucket that fills in a shorter time cuts what it finds
/// to that, also while it refuses: nodes with different ones would refill each other's. A stepped bucket
/// keeps tokens of its last step, and cuts those of a larger one. So these keep apart.
fn with_fill_time(hasher: &KeyHasher, identity: Salt, limit: &Limit) -> Salt {
    let Some((rate, burst)) = limit.bucket() else { return identity };
    let divisor = match limit {
        Limit::SteppedBucket(_) => 1,
        _ => gcd(rate.count(), burst),
    };
    numbered(hasher, identity, rate.count() / divisor, burst / divisor)
}

fn numbered(hasher: &KeyHasher, identity: Salt, count: u64, burst: u64) -> Salt {
    let bytes = identity.as_u128().to_le_bytes();
    let (count, burst) = (count.to_le_bytes(), burst.to_le_bytes());
    let parts = [("identity", &bytes[..]), ("count", &count[..]), ("burst", &burst[..])];
    hasher.salt_within(identity, parts)
}

/// The greatest common divisor, and 1 for two zeros.
fn gcd(one: u64, other: u64) -> u64 {
    let (mut one, mut other) = (one, other);
    while other > 0 {
        (one, other) = (other, one % other);
    }
    one.max(1)
}
