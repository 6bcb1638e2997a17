//! Texts of rules, each with a number beside it, and what is behind them.
//!
//! Every attribute of every request is looked up here, and nearly all texts are short: those are
//! compared as two words, and lie in the table itself.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::words::Words;

/// A map from a number and a text.
#[derive(Debug)]
pub(super) struct Table<V> {
    /// A power of two of places, at least half of them free. A text is at the place that its hash
    /// says or at one of the next.
    short: Box<[Option<Short<V>>]>,
    short_count: usize,
    long: HashTable<Long<V>>,
    hasher: FixedState,
}

#[derive(Clone, Copy, Debug)]
struct Short<V> {
    words: Words,
    value: V,
}

#[derive(Debug)]
struct Long<V> {
    text: Box<[u8]>,
    number: u32,
    value: V,
}

impl<V: Copy> Default for Table<V> {
    fn default() -> Self {
        Self {
            short: free_places(2),
            short_count: 0,
            long: HashTable::new(),
            hasher: FixedState::default(),
        }
    }
}

impl<V: Copy> Table<V> {
    /// What is behind a number and a text.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "shorter than what a call would keep in memory")]
    pub(super) fn find(&self, number: u32, text: &[u8]) -> Option<&V> {
        let Some(words) = Words::new(number, text) else { return self.find_long(number, text) };
        let mask = self.short.len() - 1;
        let mut at = place(words);
        // A free place ends the search, and there always is one.
        while let Some(known) = &self.short[at & mask] {
            if known.words == words {
                return Some(&known.value);
            }
            at += 1;
        }
        None
    }

    #[inline(never)]
    fn find_long(&self, number: u32, text: &[u8]) -> Option<&V> {
        let hash = hash_long(&self.hasher, number, text);
        self.long.find(hash, |known| known.is(number, text)).map(|known| &known.value)
    }

    /// All texts that are short, in no order.
    pub(super) fn short_texts(&self) -> impl Iterator<Item = (Vec<u8>, V)> {
        self.short.iter().flatten().map(|short| (short.words.text(), short.value))
    }

    /// Puts it in, or in the place of what was there.
    pub(super) fn insert(&mut self, number: u32, text: &[u8], value: V) {
        if let Some(words) = Words::new(number, text) {
            if (self.short_count + 1) * 2 > self.short.len() {
                self.grow();
            }
            self.insert_short(Short { words, value });
            return;
        }
        let hash = hash_long(&self.hasher, number, text);
        let rehash = |known: &Long<V>| hash_long(&self.hasher, known.number, &known.text);
        match self.long.entry(hash, |known| known.is(number, text), rehash) {
            Entry::Occupied(mut known) => known.get_mut().value = value,
            Entry::Vacant(free) => {
                free.insert(Long { text: text.into(), number, value });
            }
        }
    }

    fn insert_short(&mut self, short: Short<V>) {
        let mask = self.short.len() - 1;
        let mut at = place(short.words);
        while let Some(known) = &mut self.short[at & mask] {
            if known.words == short.words {
                known.value = short.value;
                return;
            }
            at += 1;
        }
        self.short[at & mask] = Some(short);
        self.short_count += 1;
    }

    fn grow(&mut self) {
        let more = free_places(self.short.len() * 2);
        let known = std::mem::replace(&mut self.short, more);
        self.short_count = 0;
        known.into_iter().flatten().for_each(|short| self.insert_short(short));
    }
}

impl<V> Long<V> {
    fn is(&self, number: u32, text: &[u8]) -> bool {
        self.number == number && *self.text == *text
    }
}

fn free_places<V: Copy>(len: usize) -> Box<[Option<Short<V>>]> {
    vec![None; len].into()
}

/// Where the search begins; the table takes as many of the lowest bits as it has places for.
#[inline]
fn place(words: Words) -> usize {
    // One bit less, so that a search does not go beyond the highest number.
    (words.hash() >> 1) as usize
}

fn hash_long(hasher: &FixedState, number: u32, text: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(text);
    // The number goes in last and the product mixes it upwards, where the table looks too.
    (hasher.finish() ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn finds_what_a_map_would_find(
            entries in prop::collection::vec((0..3_u32, "[ab]{0,4}|[ab]{7,18}|[ab]{3}x{20}[ab]{2}x{9}"), 0..200),
            others in prop::collection::vec((0..4_u32, "[ab]{0,5}|[ab]{15,18}"), 0..20),
        ) {
            let mut table = Table::default();
            let mut model = HashMap::new();
            for (value, (number, text)) in entries.iter().enumerate() {
                table.insert(*number, text.as_bytes(), value);
                model.insert((*number, text), value);
            }
            for (number, text) in entries.iter().chain(&others) {
                let expected = model.get(&(*number, text)).copied();
                prop_assert_eq!(table.find(*number, text.as_bytes()).copied(), expected);
            }
        }

        #[test]
        fn words_are_equal_only_for_equal_texts(a in "[ab\0]{0,17}", b in "[ab\0]{0,17}") {
            let (a, b) = (a.as_bytes(), b.as_bytes());
            prop_assert_eq!(Words::new(7, a).is_some(), a.len() <= 16);
            if let (Some(first), Some(second)) = (Words::new(7, a), Words::new(7, b)) {
                prop_assert_eq!(first == second, a == b);
                prop_assert!(Words::new(8, a) != Some(first));
            }
        }
    }
}
