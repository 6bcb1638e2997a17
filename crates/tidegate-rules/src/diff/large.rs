//! Whether limits changed so much that it may be a slip of the finger.

use tidegate_core::Limit;

use crate::rule::{Quota, Rule, RuleLimit};

/// From how many times as much on a change is large.
const LARGE_TIMES: u128 = 10;

/// Whether what may be taken changed tenfold, up or down, for anybody. Tiers and overrides that only
/// one of the rules has are compared with what those requests have in the other.
pub(super) fn is_large(old: &Rule, new: &Rule) -> bool {
    is_large_quota(&old.quota, &new.quota)
        || is_large_in(old, new, &tiers(old), &tiers(new))
        || is_large_in(old, new, &overrides(old), &overrides(new))
}

/// Quotas by what they are for, sorted.
type Quotas<'r, K> = Vec<(K, &'r Quota)>;

fn is_large_in<K: Ord>(
    old: &Rule,
    new: &Rule,
    before: &Quotas<'_, K>,
    after: &Quotas<'_, K>,
) -> bool {
    let find =
        |quotas: &Quotas<'_, K>, key: &K| quotas.binary_search_by(|(other, _)| other.cmp(key)).ok();
    let changed = after.iter().any(|(key, quota)| {
        is_large_quota(find(before, key).map_or(&old.quota, |place| before[place].1), quota)
    });
    let gone = before.iter().filter(|(key, _)| find(after, key).is_none());
    changed || gone.into_iter().any(|(_, quota)| is_large_quota(quota, &new.quota))
}

fn tiers(rule: &Rule) -> Quotas<'_, &str> {
    let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.quotas);
    let mut tiers: Quotas<'_, &str> = tiers.map(|(name, quota)| (name.as_str(), quota)).collect();
    tiers.sort_by_key(|&(name, _)| name);
    tiers
}

fn overrides(rule: &Rule) -> Quotas<'_, &[String]> {
    let overrides = rule.overrides.iter().map(|other| (other.values.as_slice(), &other.quota));
    let mut overrides: Quotas<'_, &[String]> = overrides.collect();
    overrides.sort_by_key(|&(values, _)| values);
    overrides
}

fn is_large_quota(old: &Quota, new: &Quota) -> bool {
    match (old, new) {
        (Quota::Unlimited, Quota::Unlimited) | (Quota::Nothing, Quota::Nothing) => false,
        (Quota::Limits(old), Quota::Limits(new)) => {
            let capacities = old.iter().filter_map(|old| {
                let new = new.iter().find(|new| is_alike(&old.limit, &new.limit))?;
                Some((capacity(&old.limit), capacity(&new.limit)))
            });
            let slowest = slowest(old).zip(slowest(new));
            slowest.is_some_and(|(old, new)| is_tenfold(old, new))
                || capacities.into_iter().any(|(old, new)| is_tenfold((old, 1), (new, 1)))
        }
        // From or to no limit at all, or from or to nothing at all.
        (Quota::Unlimited | Quota::Nothing | Quota::Limits(_), _) => true,
    }
}

fn is_alike(one: &Limit, other: &Limit) -> bool {
    (one.name(), one.period()) == (other.name(), other.period())
}

/// The rate that holds in the long run: the smallest of all.
fn slowest(limits: &[RuleLimit]) -> Option<(u64, u64)> {
    let rates = limits.iter().filter_map(|limit| rate(&limit.limit));
    rates.min_by(|&(a, a_us), &(b, b_us)| times(a, b_us).cmp(&times(b, a_us)))
}

/// Whether one of two rates, each a count and a period, is ten times the other.
fn is_tenfold((old, old_us): (u64, u64), (new, new_us): (u64, u64)) -> bool {
    let (old, new) = (times(old, new_us), times(new, old_us));
    old >= new.saturating_mul(LARGE_TIMES) || new >= old.saturating_mul(LARGE_TIMES)
}

fn times(count: u64, period_us: u64) -> u128 {
    u128::from(count) * u128::from(period_us)
}

/// Count and period in microseconds; a limit of so many at once has none.
fn rate(limit: &Limit) -> Option<(u64, u64)> {
    let count = match limit {
        Limit::TokenBucket(limit) => limit.rate().count(),
        Limit::SteppedBucket(limit) => limit.rate().count(),
        Limit::LeakyBucket(limit) => limit.rate().count(),
        Limit::FixedWindow(limit) => limit.count(),
        Limit::SlidingWindow(limit) => limit.rate().count(),
        Limit::SlidingSlots(limit) => limit.rate().count(),
        Limit::SlidingLog(limit) => limit.rate().count(),
        Limit::Concurrency(_) => return None,
    };
    Some((count, limit.period().as_micros()))
}

/// The most that can be taken at once.
fn capacity(limit: &Limit) -> u64 {
    match limit {
        Limit::TokenBucket(limit) => limit.burst(),
        Limit::SteppedBucket(limit) => limit.burst(),
        Limit::LeakyBucket(limit) => limit.burst(),
        Limit::FixedWindow(limit) => limit.count(),
        Limit::SlidingWindow(limit) => limit.rate().count(),
        Limit::SlidingSlots(limit) => limit.per_slot().unwrap_or(limit.rate().count()),
        Limit::SlidingLog(limit) => limit.rate().count(),
        Limit::Concurrency(limit) => limit.limit(),
    }
}
