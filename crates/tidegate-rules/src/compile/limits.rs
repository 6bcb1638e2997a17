//! Limits as they are decided: scaled, with what sets their keys apart, and with what they follow
//! on after a reload.

use hashbrown::HashMap;
use tidegate_core::{Limit, Span, Timestamp};

use super::RuleId;
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
    /// What the rule gives without being soft; `None` where nothing is to be marked.
    soft_above: Option<u64>,
    salt: Salt,
    /// The salt less the fill time, by which a limit is known again after a reload.
    identity: Salt,
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
}

/// A limit that was in force before a reload, and whose states mean something else now: what is
/// left of them has to be carried over, key by key, as they come up.
#[derive(Clone, Debug)]
pub struct Before {
    /// How its states are read.
    pub limit: Limit,
    /// What set its keys apart.
    pub salt: Salt,
    /// From when on nothing can be left of them.
    pub until: Timestamp,
}

impl CompiledLimit {
    /// The most limits before this one that are remembered. Each adds a look to a decision, and more
    /// of them take as many reloads within one fill time.
    pub const BEFORES_MAX: usize = 4;
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

    /// Whether a state of which so much has been taken is beyond what the rule gives without being
    /// soft.
    pub fn is_soft(&self, taken: u64, relaxed: bool) -> bool {
        let soft = !(relaxed && self.relaxed.is_some());
        soft && self.soft_above.is_some_and(|above| taken > above)
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
    /// The rule's limits, without those of reserves.
    count: u32,
}

impl Range {
    /// No limits, so nothing is counted.
    pub(super) const NONE: Self = Self { first: 0, count: 0 };
    /// Nothing at all may be taken.
    const NOTHING: Self = Self { first: u32::MAX, count: 0 };

    /// Whether nothing at all may be taken.
    #[inline]
    pub(crate) fn is_nothing(self) -> bool {
        self.first == Self::NOTHING.first
    }

    pub(crate) fn limits(self) -> impl Iterator<Item = u32> {
        self.first..self.first + self.count
    }

    /// The limits that hold later classes to what those up to this number leave them.
    pub(crate) fn reserve(self, class: usize) -> impl Iterator<Item = u32> {
        let first = self.first + self.count * (1 + u32::try_from(class).unwrap_or(0));
        first..first + self.count
    }
}

/// Makes the limits of rules, one after the other.
pub(super) struct Limits<'h> {
    pub(super) all: Vec<CompiledLimit>,
    hasher: &'h KeyHasher,
}

impl<'h> Limits<'h> {
    pub(super) fn new(hasher: &'h KeyHasher) -> Self {
        Self { all: Vec::new(), hasher }
    }

    /// The limits of a quota, and behind them those of each reserve.
    pub(super) fn quota(&mut self, at: (&str, RuleId, &Rule), quota: &Quota) -> Range {
        let limits = match quota {
            Quota::Limits(limits) => limits,
            Quota::Unlimited => return Range::NONE,
            Quota::Nothing => return Range::NOTHING,
        };
        let range = self.add(at, limits, Role::Limit, Percent(100));
        let reserves = at.2.priority.iter().flat_map(|priority| &priority.reserve);
        let mut left = 100_u32;
        for (class, (_, kept)) in (0..).zip(reserves) {
            left = left.saturating_sub(kept.0);
            self.add(at, limits, Role::Reserve(class), Percent(left));
        }
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
            let salt = with_fill_time(self.hasher, identity, &written.limit);
            let known = Known { rule: id, role, identity, salt };
            self.all.push(scaled(rule, written, share, &known));
        }
        Range { first, count: u32::try_from(limits.len()).unwrap_or(u32::MAX) }
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
            Role::Reserve(class) => {
                let reserve = rule.priority.as_ref().map_or(&[][..], |kept| &kept.reserve);
                ("reserve", reserve.get(usize::from(class)).map_or("", |(name, _)| name))
            }
        };
        let period = period_us.to_le_bytes();
        let ordinal = ordinal.to_le_bytes();
        let fixed = [
            ("domain", domain.as_bytes()),
            ("rule", rule.name.as_bytes()),
            ("role", role.as_bytes()),
            ("class", class.as_bytes()),
            ("algorithm", algorithm.as_bytes()),
            ("period", &period[..]),
            ("before", &ordinal[..]),
        ];
        let per = rule.per.iter().map(|name| ("per", name.as_bytes()));
        self.hasher.salt(fixed.into_iter().chain(per))
    }

    /// Connects the limits with those that they follow on after a reload.
    pub(super) fn follow(&mut self, old: &[CompiledLimit], now: Timestamp) {
        let in_use: HashMap<Salt, (), foldhash::fast::RandomState> =
            self.all.iter().map(|limit| (limit.salt, ())).collect();
        let mut orphans: HashMap<Salt, Vec<Before>, foldhash::fast::RandomState> =
            HashMap::default();
        for limit in old {
            let own = limit.normal.fill_time().map(|fill| Before {
                limit: limit.normal.clone(),
                salt: limit.salt,
                until: now.plus(Span::from_micros(
                    fill.as_micros().saturating_mul(CompiledLimit::BEFORE_FILLS),
                )),
            });
            for before in own.into_iter().chain(limit.befores.iter().cloned()) {
                if before.until > now && !in_use.contains_key(&before.salt) {
                    let list = orphans.entry(limit.identity).or_default();
                    if list.iter().all(|other| other.salt != before.salt) {
                        list.push(before);
                    }
                }
            }
        }
        for limit in &mut self.all {
            if let Some(befores) = orphans.get(&limit.identity) {
                limit.befores.clone_from(befores);
                limit.befores.sort_by_key(|before| std::cmp::Reverse(before.until));
                limit.befores.truncate(CompiledLimit::BEFORES_MAX);
            }
        }
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
    let soft = rule.soft.map_or(100, |soft| soft.0.saturating_add(100));
    // Where soft reaches further than elastic it wins, and pressure makes no difference.
    let relaxed = rule.elastic.filter(|elastic| elastic.up_to.0 > soft);
    CompiledLimit {
        rule: id,
        role,
        is_enforced: role != Role::Candidate && rule.mode == Mode::Enforce,
        written: Box::new(written.clone()),
        normal: stretch(soft),
        relaxed: relaxed.map(|elastic| Box::new(stretch(elastic.up_to.0))),
        soft_above: rule.soft.map(|_| most(&stretch(100))),
        salt,
        identity,
        befores: Vec::new(),
    }
}

/// The most that a limit can have left.
fn most(limit: &Limit) -> u64 {
    match limit {
        Limit::TokenBucket(limit) => limit.burst(),
        Limit::SteppedBucket(limit) => limit.burst(),
        Limit::LeakyBucket(limit) => limit.burst(),
        Limit::FixedWindow(limit) => limit.count(),
        Limit::SlidingWindow(limit) => limit.rate().count(),
        Limit::SlidingSlots(limit) => limit.rate().count(),
        Limit::SlidingLog(limit) => limit.rate().count(),
        Limit::Concurrency(limit) => limit.limit(),
    }
}

/// What two limits of one rule are told apart by, besides their order.
fn kind(limit: &Limit) -> (&'static str, u64) {
    (limit.name(), limit.period().as_micros())
}

/// A bucket keeps the time until it is full, which is a number of tokens only together with its
/// fill time. So the fill time goes into the key, unless it is the period, and a bucket whose fill
/// time changes has the old states [carried over](Before).
fn with_fill_time(hasher: &KeyHasher, identity: Salt, limit: &Limit) -> Salt {
    match limit.fill_time() {
        Some(fill) if fill != limit.period() => {
            let identity = identity.as_u128().to_le_bytes();
            let fill = fill.as_micros().to_le_bytes();
            hasher.salt([("identity", &identity[..]), ("fill", &fill[..])])
        }
        _ => identity,
    }
}
