//! What a rule can say, checked: the one form that all spellings become.
//!
//! It holds no text to be parsed again and no number to be checked again. Only `RuleSet::parse`
//! makes rule sets, so one that exists is free of errors.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use tidegate_core::{Limit, Timestamp};

use crate::glob::Glob;
use crate::path::PathTemplate;
use crate::source::Place;

pub use tidegate_core::terms::{Consistency, OnStoreFailure};

/// All rules that are in force together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet {
    pub(crate) domains: Vec<Domain>,
}

impl RuleSet {
    /// The domains, in the order in which they were first named.
    pub fn domains(&self) -> &[Domain] {
        &self.domains
    }

    /// The domain of this name.
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        self.domains.iter().find(|domain| domain.name == name)
    }
}

/// A namespace of rules, usually one service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Domain {
    /// What requests call it.
    pub name: String,
    /// Rules that look at a request's attributes in any order, in the order of the files.
    pub rules: Vec<Rule>,
    /// Rules that look at a request's attributes as one descriptor of Envoy's, level by level.
    pub descriptors: Vec<Descriptor>,
}

/// Which requests are counted, separately per what, under which limits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rule {
    /// What it is called in its domain, where no other rule has this name.
    pub name: String,
    /// Where it was read.
    pub place: Place,
    /// What must hold for a request to be counted; all of them.
    pub conditions: Vec<Condition>,
    /// Whether paths are compared, and counted by, without regard to the case of ASCII letters.
    pub ignore_case: bool,
    /// The attributes whose values are counted separately, each once; none means that all requests
    /// that match share one counter. The rule of a [`Descriptor`] has the keys of all its levels in
    /// order instead, and there the same key may come twice.
    pub per: Vec<String>,
    /// What a request may take that is of no tier and has no override.
    pub quota: Quota,
    /// Other limits by the value of an attribute.
    pub tiers: Option<Tiers>,
    /// Other limits for single keys.
    pub overrides: Vec<Override>,
    /// What happens where an attribute of `per` is absent.
    pub missing: Missing,
    /// How much a request takes, times the cost that the request itself names.
    pub cost: Cost,
    /// How much more than the limits say is let through and marked.
    pub soft: Option<Percent>,
    /// How much more than the limits say is let through while there is little pressure.
    pub elastic: Option<Elastic>,
    /// Shares of the quota that are kept for classes of requests.
    pub priority: Option<Priority>,
    /// When a request counts.
    pub count: Count,
    /// Whether requests that this rule refuses are charged all the same.
    pub charge_refused: bool,
    /// Whether it denies.
    pub mode: Mode,
    /// Limits that are tried out beside the ones in force: decided and counted, and never denying.
    pub candidate: Vec<RuleLimit>,
    /// What happens while the shared store cannot answer.
    pub on_store_failure: Option<OnStoreFailure>,
    /// How exactly nodes share it; the daemon's setting unless said.
    pub consistency: Option<Consistency>,
    /// The name that clients see; the rule's own unless said.
    pub shown_as: Option<String>,
    /// For whoever reads the rules.
    pub description: Option<String>,
}

impl Rule {
    /// A rule that matches every request and has no limit yet.
    pub fn new(name: impl Into<String>, place: Place) -> Self {
        Self {
            name: name.into(),
            place,
            conditions: Vec::new(),
            ignore_case: false,
            per: Vec::new(),
            quota: Quota::Unlimited,
            tiers: None,
            overrides: Vec::new(),
            missing: Missing::default(),
            cost: Cost::default(),
            soft: None,
            elastic: None,
            priority: None,
            count: Count::default(),
            charge_refused: false,
            mode: Mode::default(),
            candidate: Vec::new(),
            on_store_failure: None,
            consistency: None,
            shown_as: None,
            description: None,
        }
    }

    /// The name that clients see.
    pub fn shown_name(&self) -> &str {
        self.shown_as.as_deref().unwrap_or(&self.name)
    }
}

/// One thing that must hold for a request to match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Whose value is looked at.
    pub attribute: String,
    /// What the value may be; one of these.
    pub any_of: Vec<Test>,
    /// Whether it is the other way round. A request without the attribute then matches.
    pub negated: bool,
}

/// What a value may be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Test {
    /// This text.
    Exact(String),
    /// Text that begins so.
    Prefix(String),
    /// Text of this shape.
    Glob(Glob),
    /// An address in this range.
    Cidr(IpNet),
    /// A path of this shape.
    Path(PathTemplate),
    /// Anything, so long as the attribute is there.
    Present,
}

/// What may be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quota {
    /// As much as anyone likes; nothing is counted.
    Unlimited,
    /// Nothing: every request that takes something is denied, and nothing is counted. It is what an
    /// Envoy file says with 0 requests per unit; no limit has a count of 0.
    Nothing,
    /// What every one of these limits has room for; at least one.
    Limits(Vec<RuleLimit>),
}

/// One limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleLimit {
    /// The algorithm and its numbers.
    pub limit: Limit,
    /// The limit in one spelling, to show.
    pub text: String,
    /// The name that clients see, where it has its own.
    pub shown_as: Option<String>,
}

/// Other limits by the value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// The attribute.
    pub by: String,
    /// What each value may take; other values have the rule's own quota.
    pub quotas: Vec<(String, Quota)>,
}

/// Another limit for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The values of the rule's `per` attributes, in that order.
    pub values: Vec<String>,
    /// What that key may take. It wins over the tiers.
    pub quota: Quota,
    /// From when on it is as if it were not there.
    pub expires: Option<Timestamp>,
}

/// What happens where an attribute that is counted by is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Missing {
    /// The rule does not apply, which is counted.
    #[default]
    Skip,
    /// All such requests share one counter.
    Shared,
    /// The request is denied.
    Deny,
}

/// How much a request takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// So much.
    Number(u64),
    /// What the attribute says, or `default` where it is absent or is no whole number.
    Attribute {
        /// The attribute.
        name: String,
        /// What is taken otherwise.
        default: u64,
    },
}

impl Default for Cost {
    fn default() -> Self {
        Self::Number(1)
    }
}

/// Whole percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(pub u32);

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

/// How busy the protected service is, from 0 (idle) to 1 (as busy as it can be), in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pressure(u32);

impl Pressure {
    /// As busy as it can be, and what is assumed while nothing is known.
    pub const FULL: Self = Self(1_000_000);
    /// Idle.
    pub const NONE: Self = Self(0);

    /// So many millionths; `None` above one.
    pub const fn from_millionths(millionths: u32) -> Option<Self> {
        if millionths <= Self::FULL.0 { Some(Self(millionths)) } else { None }
    }

    /// In millionths.
    pub const fn millionths(self) -> u32 {
        self.0
    }
}

/// More than the limits say, while there is little pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elastic {
    /// How much of the limits at most, 100 or more.
    pub up_to: Percent,
    /// Below which pressure.
    pub while_pressure_below: Pressure,
}

/// Shares of the quota that are kept for classes of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Priority {
    /// The attribute that names the class.
    pub by: String,
    /// What each class keeps for itself and those before it, the most important first; together less
    /// than 100 %. Classes that are not listed come last and keep nothing.
    pub reserve: Vec<(String, Percent)>,
}

/// When a request counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Count {
    /// When it comes.
    #[default]
    OnRequest,
    /// When its response has one of these statuses. It is reserved when it comes, and given back
    /// after any other status.
    OnResponse(Vec<Statuses>),
}

/// A range of HTTP statuses, both ends included: `401`, `5xx`, `500-503`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses {
    /// The lowest.
    pub from: u16,
    /// The highest.
    pub to: u16,
}

impl Statuses {
    /// Whether this status is one of them.
    pub fn hold(self, status: u16) -> bool {
        (self.from..=self.to).contains(&status)
    }
}

impl FromStr for Statuses {
    type Err = StatusesError;

    fn from_str(text: &str) -> Result<Self, StatusesError> {
        const ALL: std::ops::RangeInclusive<u16> = 100..=599;
        let status = |text: &str| {
            let is_number = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
            let status = text.parse().ok().filter(|_| is_number);
            status.filter(|status| ALL.contains(status)).ok_or(StatusesError)
        };
        if let Some(class) = text.strip_suffix("xx") {
            let from = status(&format!("{class}00"))?;
            return Ok(Self { from, to: from + 99 });
        }
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let (from, to) = (status(from)?, status(to)?);
        if from <= to { Ok(Self { from, to }) } else { Err(StatusesError) }
    }
}

/// The text is no status and no range of them. It says what to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusesError;

impl fmt::Display for StatusesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "write a status from 100 to 599 such as `401`, a class such as `5xx`, or a range such as \
             `500-503`",
        )
    }
}

impl std::error::Error for StatusesError {}

impl Count {
    /// Whether a response of this status counts.
    pub fn counts(&self, status: u16) -> bool {
        match self {
            Self::OnRequest => true,
            Self::OnResponse(statuses) => statuses.iter().any(|range| range.hold(status)),
        }
    }
}

/// Whether a rule denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// It does.
    #[default]
    Enforce,
    /// It decides and counts, and never denies.
    Shadow,
}

/// A level of Envoy's nested descriptors.
///
/// A request's attributes are one descriptor: entry by entry, an exact value is looked for first,
/// then a pattern, then a level that takes any value; and the limit applies only to a request
/// that ends at its level.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Descriptor {
    /// Where it was read.
    pub place: Place,
    /// The name of the entry.
    pub key: String,
    /// The value of the entry.
    pub value: DescriptorValue,
    /// The limit of requests that end here. Its `per` is the keys of all levels, and it has no
    /// conditions.
    pub rule: Option<Rule>,
    /// What is special about it.
    pub traits: DescriptorTraits,
    /// The levels below.
    pub children: Vec<Descriptor>,
}

/// Which values a level of a descriptor takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DescriptorValue {
    /// Any; each is counted separately.
    Any,
    /// This one.
    Exact(String),
    /// Those of this shape; each is counted separately unless the level shares.
    Glob(Glob),
}

/// What Envoy's format can say of a descriptor besides its limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "the format has as many switches")]
pub struct DescriptorTraits {
    /// The name of its limit, by which others replace it. Clients see it where it can be in a header.
    pub limit_name: Option<String>,
    /// Names of limits that do not apply to a request to which this one does.
    pub replaces: Vec<String>,
    /// Whether metrics have the values of a request's descriptor. Kept and shown; Tidegate's metrics
    /// never have values of requests in them.
    pub detailed_metric: bool,
    /// Whether metrics have the value of this level.
    pub value_to_metric: bool,
    /// Whether all values of a pattern share one counter.
    pub share_threshold: bool,
    /// Whether being over is told as metadata instead of denying.
    pub quota_mode: bool,
    /// What the file's author wants clients to be told while the limit has room: names and JSON
    /// values, in the order of the file.
    pub metadata: Vec<(String, String)>,
}

impl DescriptorTraits {
    /// Of a descriptor that only has a limit.
    pub(crate) const PLAIN: Self = Self {
        limit_name: None,
        replaces: Vec::new(),
        detailed_metric: false,
        value_to_metric: false,
        share_threshold: false,
        quota_mode: false,
        metadata: Vec::new(),
    };
}
