//! On what terms limits are kept where nodes share them: what a rule says, or else what the limiter
//! says for all rules.

use std::fmt;
use std::ops::RangeInclusive;

use tidegate_core::Limit;
use tidegate_core::terms::{Consistency, OnStoreFailure, Terms};
use tidegate_rules::compile::{CompiledLimit, CompiledRules};
use tidegate_rules::resolve::Planned;
use tidegate_rules::{Attribute, Reads};

/// What holds where a rule says nothing.
#[derive(Clone, Debug)]
pub(super) struct Sharing {
    pub(super) consistency: Consistency,
    pub(super) on_failure: OnStoreFailure,
    pub(super) groups: Option<GroupRanges>,
}

/// Which group of servers keeps the limits of whom, by ranges of a numeric attribute: users 1 to 5000
/// in one group, say, and users 5001 to 10000 in the next. Where a range has no number for a request, the
/// hash of its key says the group.
///
/// It holds for rules that count by this attribute. Others count requests of many users together, and
/// those have to meet in one place, whichever users they are of.
///
/// ```
/// use tidegate::rules::GroupRanges;
///
/// let groups = GroupRanges::new("user", [(1..=5000, 0), (5001..=10_000, 1)])?;
/// assert_eq!(groups.group_of(&[("user", "5000").into()]), Some(0));
/// assert_eq!(groups.group_of(&[("user", "10001").into()]), None);
/// # Ok::<(), tidegate::rules::GroupRangesError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRanges {
    attribute: String,
    /// By their first numbers.
    ranges: Vec<(RangeInclusive<u64>, u8)>,
}

/// A limit that was to be leased and cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrictInstead {
    /// Whose limit it is.
    pub rule: String,
    /// The limit as it was written.
    pub limit: String,
}

impl Default for Sharing {
    fn default() -> Self {
        let (consistency, on_failure) = (Consistency::Strict, OnStoreFailure::Local);
        Self { consistency, on_failure, groups: None }
    }
}

impl Sharing {
    /// The terms of a limit for a request of this group.
    #[inline]
    pub(super) fn terms(&self, limit: &CompiledLimit, group: Option<u8>) -> Terms {
        let consistency = match limit.consistency().unwrap_or(self.consistency) {
            Consistency::Leased if !limit.is_leasable() => Consistency::Strict,
            said => said,
        };
        let on_failure = limit.on_store_failure().unwrap_or(self.on_failure);
        Terms { consistency, on_failure, group }
    }

    /// Whether nodes may lease some of these limits.
    #[inline]
    pub(super) fn may_lease(&self, rules: &CompiledRules) -> bool {
        self.consistency == Consistency::Leased || rules.names_leased()
    }

    /// The terms of one charge of a request whose attributes say this group.
    #[inline]
    pub(super) fn terms_of(
        &self,
        rules: &CompiledRules,
        planned: &Planned,
        group: Option<u8>,
    ) -> Terms {
        let limit = rules.limit(planned.limit);
        let counts_by = |groups: &GroupRanges| rules.counts_by(limit.rule(), &groups.attribute);
        let group = group.filter(|_| self.groups.as_ref().is_some_and(counts_by));
        self.terms(limit, group)
    }

    /// The terms of a limit that a request brings along, and that no rule says anything about.
    pub(super) fn terms_of_given(&self, limit: &Limit, group: Option<u8>) -> Terms {
        let consistency = match self.consistency {
            Consistency::Leased if !limit.is_leasable() => Consistency::Strict,
            said => said,
        };
        Terms { consistency, on_failure: self.on_failure, group }
    }

    /// The group that the attributes of a request say.
    #[inline]
    pub(super) fn group_of(&self, attributes: &[Attribute<'_>]) -> Option<u8> {
        self.groups.as_ref()?.group_of(attributes)
    }

    /// The attribute that says the group, where there are groups.
    #[inline]
    pub(super) fn reads(&self) -> Reads {
        self.groups.as_ref().map_or(Reads::NOTHING, |groups| Reads::named(&groups.attribute))
    }

    /// The highest group that a range says.
    #[cfg(feature = "redis")]
    pub(super) fn group_max(&self) -> Option<u8> {
        self.groups.as_ref()?.group_max()
    }

    /// The limits that are to be leased and cannot be.
    pub(super) fn strict_instead_of_leased(&self, rules: &CompiledRules) -> Vec<StrictInstead> {
        let is_strict_instead = |limit: &&CompiledLimit| {
            let said = limit.consistency().unwrap_or(self.consistency);
            said == Consistency::Leased && !limit.is_leasable()
        };
        let mut found: Vec<StrictInstead> = Vec::new();
        for limit in rules.limits().iter().filter(is_strict_instead) {
            let rule = rules.rule(limit.rule()).name.clone();
            let this = StrictInstead { rule, limit: limit.written().text.clone() };
            // A limit stands there once for each of its parts, such as the shares of classes.
            if found.last() != Some(&this) {
                found.push(this);
            }
        }
        found
    }
}

impl GroupRanges {
    /// The groups of an attribute, by ranges that do not overlap. Groups are counted from 0, in the
    /// order in which the servers are named.
    pub fn new(
        attribute: impl Into<String>,
        ranges: impl IntoIterator<Item = (RangeInclusive<u64>, u8)>,
    ) -> Result<Self, GroupRangesError> {
        let mut ranges: Vec<_> = ranges.into_iter().collect();
        if ranges.iter().any(|(range, _)| range.is_empty()) {
            return Err(GroupRangesError::Empty);
        }
        ranges.sort_unstable_by_key(|(range, _)| *range.start());
        if ranges.windows(2).any(|pair| pair[0].0.end() >= pair[1].0.start()) {
            return Err(GroupRangesError::Overlapping);
        }
        Ok(Self { attribute: attribute.into(), ranges })
    }

    /// The group that these attributes say, where there is one.
    pub fn group_of(&self, attributes: &[Attribute<'_>]) -> Option<u8> {
        let named = |one: &&Attribute<'_>| one.name == self.attribute;
        let number = whole_number(attributes.iter().find(named)?.value)?;
        let after = self.ranges.partition_point(|(range, _)| *range.start() <= number);
        let (range, group) = self.ranges.get(after.checked_sub(1)?)?;
        range.contains(&number).then_some(*group)
    }

    /// The highest group that a range says.
    pub fn group_max(&self) -> Option<u8> {
        self.ranges.iter().map(|(_, group)| *group).max()
    }
}

/// Digits and nothing else, so that one number is not written in two ways that rules tell apart.
fn whole_number(value: &[u8]) -> Option<u64> {
    let is_number = value.iter().all(u8::is_ascii_digit);
    is_number.then(|| std::str::from_utf8(value).ok()?.parse().ok()).flatten()
}

/// Why ranges cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupRangesError {
    /// A range ends before it begins.
    Empty,
    /// Two ranges have a number in common.
    Overlapping,
}

impl fmt::Display for GroupRangesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "a range of a group ends before it begins",
            Self::Overlapping => "the ranges of two groups have a number in common",
        })
    }
}

impl std::error::Error for GroupRangesError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(ranges: &GroupRanges, user: &str) -> Option<u8> {
        ranges.group_of(&[("path", "7").into(), ("user", user).into()])
    }

    #[test]
    fn a_number_is_in_the_group_of_its_range() {
        let ranges = [(5001..=10_000, 1), (1..=5000, 0), (20_000..=u64::MAX, 2)];
        let ranges = GroupRanges::new("user", ranges).unwrap();
        assert_eq!(ranges.group_max(), Some(2));
        for (user, expected) in [
            ("1", Some(0)),
            ("5000", Some(0)),
            ("5001", Some(1)),
            ("10000", Some(1)),
            ("20000", Some(2)),
            ("18446744073709551615", Some(2)),
            ("0", None),
            ("10001", None),
            ("18446744073709551616", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("ann", None),
            ("", None),
        ] {
            assert_eq!(group(&ranges, user), expected, "{user}");
        }
        assert_eq!(ranges.group_of(&[("path", "7").into()]), None);
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused() {
        let new = |ranges: [RangeInclusive<u64>; 2]| {
            GroupRanges::new("user", ranges.into_iter().zip(0..)).map(|_| ())
        };
        assert_eq!(new([1..=5, 5..=9]), Err(GroupRangesError::Overlapping));
        assert_eq!(new([3..=4, 1..=9]), Err(GroupRangesError::Overlapping));
        #[expect(clippy::reversed_empty_ranges, reason = "it is what is refused")]
        let backwards = [9..=1, 10..=11];
        assert_eq!(new(backwards), Err(GroupRangesError::Empty));
        assert_eq!(new([1..=5, 6..=9]), Ok(()));
    }
}
