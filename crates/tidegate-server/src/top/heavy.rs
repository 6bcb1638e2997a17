//! The most frequent of many, in room for a few: a summary of frequent items in the way of Misra and
//! Gries. While there is room it is exact. When there is none, every count is lowered by their
//! median, and those at 0 go; so each count is too low by at most what was taken off in all, and that
//! is at most twice the total weight over the room.

use std::collections::HashMap;

use super::KEYS_MAX;

/// Counts of the keys that came most often, with something that is known about each.
#[derive(Debug)]
pub(super) struct Heavy<W> {
    held: HashMap<u128, (u64, W)>,
    error: u64,
}

impl<W> Default for Heavy<W> {
    fn default() -> Self {
        Self { held: HashMap::new(), error: 0 }
    }
}

impl<W> Heavy<W> {
    /// Adds to the count of a key; `who` is asked only if the key is new.
    pub(super) fn add(&mut self, key: u128, weight: u64, who: impl FnOnce() -> W) {
        if let Some((count, _)) = self.held.get_mut(&key) {
            *count += weight;
            return;
        }
        if self.held.len() >= KEYS_MAX {
            self.lower();
        }
        self.held.insert(key, (weight, who()));
    }

    /// How much any count may be too low.
    pub(super) fn error(&self) -> u64 {
        self.error
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u128, u64, &W)> {
        self.held.iter().map(|(&key, (count, who))| (key, *count, who))
    }

    /// Makes room: at least half of the keys go.
    fn lower(&mut self) {
        let mut counts: Vec<u64> = self.held.values().map(|(count, _)| *count).collect();
        let middle = counts.len() / 2;
        let median = *counts.select_nth_unstable(middle).1;
        self.held.retain(|_, (count, _)| {
            *count = count.saturating_sub(median);
            *count > 0
        });
        self.error += median;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut heavy = Heavy::default();
        for key in 0..KEYS_MAX as u128 {
            (0..=key % 7).for_each(|_| heavy.add(key, 1, || key));
        }
        assert_eq!(heavy.error(), 0);
        assert!(
            heavy.iter().all(|(key, count, who)| u128::from(count) == key % 7 + 1 && *who == key)
        );
    }

    /// A few keys with a share of the calls each, among many that come once.
    #[test]
    fn whoever_has_more_than_the_error_is_found_and_no_count_is_too_high_or_too_low() {
        let mut heavy = Heavy::default();
        let (mut total, mut exact) = (0, HashMap::<u128, u64>::new());
        for round in 0..200_000_u128 {
            let key = match round % 10 {
                0..3 => 1,
                3 => 2,
                4 if round % 20 == 4 => 3,
                _ => 1_000 + round,
            };
            heavy.add(key, 1, || ());
            *exact.entry(key).or_default() += 1;
            total += 1;
        }
        assert!(heavy.held.len() <= KEYS_MAX);
        assert!(heavy.error() <= 2 * total / KEYS_MAX as u64, "{}", heavy.error());
        for (key, count, ()) in heavy.iter() {
            assert!(count <= exact[&key] && count + heavy.error() >= exact[&key], "{key}");
        }
        for key in [1, 2, 3] {
            assert!(heavy.held.contains_key(&key), "{key}");
        }
    }
}
