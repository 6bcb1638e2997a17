//! Which group of servers keeps a key, by weighted rendezvous hashing. Any program can compute it:
//!
//! ```text
//! tag          bits 64 to 76 of the key
//! mix(x)       x += 0x9E3779B97F4A7C15; x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
//!              x = (x ^ x >> 27) * 0x94D049BB133111EB; x ^ x >> 31        (all modulo 2^64)
//! score(g, c)  mix(mix(tag) ^ (g << 16 | c))
//! group        the g of the highest score, over all groups g = 0, 1, … and their copies c = 0 … weight - 1;
//!              the lowest such g where several have it
//! ```
//!
//! The tag is what the limits of one subject have in common, so they are all in one group, and in one slot
//! of its cluster: one script decides them all. There are few tags, so the groups are worked out once.
//!
//! A group is known by its number. One that is added at the end takes its share of the keys from all the
//! others, and no key moves between those. Each key that moves starts with all of its quota.

use tidegate_core::Key;

use crate::key::{TAGS, tag_of};

/// The most groups, since terms name them in a byte.
pub(crate) const GROUPS_MAX: usize = 256;

/// The heaviest group, in shares.
pub(crate) const WEIGHT_MAX: u16 = 1_000;

/// The group of each tag.
pub(crate) struct Spread {
    groups: Box<[u8; TAGS]>,
}

impl Spread {
    /// Spreads the tags over groups of these weights, of which there are at most [`GROUPS_MAX`].
    pub(crate) fn new(weights: &[u16]) -> Self {
        debug_assert!(!weights.is_empty() && weights.len() <= GROUPS_MAX);
        let mut groups = Box::new([0; TAGS]);
        for (tag, group) in groups.iter_mut().enumerate() {
            *group = group_of(tag as u64, weights);
        }
        Self { groups }
    }

    /// The group that keeps a key.
    pub(crate) fn group(&self, key: Key) -> u8 {
        self.groups[tag_of(key)]
    }
}

fn group_of(tag: u64, weights: &[u16]) -> u8 {
    let seed = mix(tag);
    let mut best = (0, 0);
    for (group, weight) in (0_u8..=u8::MAX).zip(weights) {
        for copy in 0..u64::from(*weight) {
            let score = mix(seed ^ (u64::from(group) << 16 | copy));
            if score > best.0 {
                best = (score, group);
            }
        }
    }
    best.1
}

/// The finalizer of `SplitMix64`: every bit of the input changes half of the output.
const fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tag: u128) -> Key {
        Key::from_hash(0xABCD << 100 | tag << 64 | 0x1234_5678)
    }

    fn counts(weights: &[u16]) -> Vec<usize> {
        let spread = Spread::new(weights);
        let mut counts = vec![0; weights.len()];
        for tag in 0..TAGS {
            counts[usize::from(spread.group(key(tag as u128)))] += 1;
        }
        counts
    }

    /// The first outputs of `SplitMix64` from the seeds 0 and 1234567, as they are published.
    #[test]
    fn the_mix_is_that_of_splitmix64() {
        assert_eq!(mix(0), 0xE220_A839_7B1D_CDAF);
        assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
    }

    /// Pinned: a change moves the keys of everybody who has groups.
    #[test]
    fn the_groups_of_some_tags_are_as_documented() {
        let groups = |weights: &[u16]| -> Vec<u8> {
            let spread = Spread::new(weights);
            [0, 1, 2, 3, 4, 5, 6, 7, 100, 4_095, 8_190, 8_191]
                .map(|tag| spread.group(key(tag)))
                .to_vec()
        };
        assert_eq!(groups(&[1]), [0; 12]);
        assert_eq!(groups(&[1, 1]), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(groups(&[1, 1, 1]), [1, 2, 2, 2, 2, 0, 2, 0, 0, 0, 2, 0]);
        assert_eq!(groups(&[1, 1, 1, 1, 1, 1, 1, 1]), [1, 4, 5, 2, 6, 0, 5, 0, 0, 6, 6, 7]);
        assert_eq!(groups(&[3, 1]), [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn limits_of_one_subject_are_in_one_group() {
        let spread = Spread::new(&[1; 5]);
        for tag in 0..64 {
            let (low, high) = (Key::from_hash(tag << 64), Key::from_hash(!0 << 77 | tag << 64 | 9));
            assert_eq!(spread.group(low), spread.group(high));
        }
    }

    #[test]
    fn groups_have_even_shares() {
        for groups in 2..10 {
            let even = TAGS / groups;
            for count in counts(&vec![1; groups]) {
                assert!(count.abs_diff(even) * 8 < even, "{count} of {even}");
            }
        }
    }

    #[test]
    fn a_heavier_group_has_so_much_more() {
        let heavier = counts(&[1, 3]);
        assert!(heavier[1].abs_diff(TAGS * 3 / 4) < TAGS / 50, "{heavier:?}");
        assert_eq!(counts(&[0, 1]), [0, TAGS], "one that is emptied");
    }

    #[test]
    fn another_group_takes_its_share_and_moves_nothing_else() {
        for groups in 1..10 {
            let (before, after) =
                (Spread::new(&vec![1; groups]), Spread::new(&vec![1; groups + 1]));
            let mut moved = 0_usize;
            for tag in 0..TAGS {
                let key = key(tag as u128);
                if before.group(key) != after.group(key) {
                    assert_eq!(usize::from(after.group(key)), groups, "only to the new one");
                    moved += 1;
                }
            }
            let share = TAGS / (groups + 1);
            assert!(moved.abs_diff(share) * 8 < share, "{moved} instead of about {share}");
        }
    }
}
