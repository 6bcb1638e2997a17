//! Which of many patterns with `*` fits a value, the first of the file where several do.
//!
//! Patterns are found by what stands before their first `*`, and among those with the same beginning
//! by what stands behind their last one. So a search takes as many steps as these texts have
//! different lengths, however many patterns there are. What is tried one by one are patterns with the
//! same beginning and the same end, as `*a*` and `*b*`.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::glob::Glob;

/// Patterns and the levels that they lead to.
#[derive(Debug)]
pub(super) struct Patterns {
    by_prefix: Affixes<Affixes<Vec<Pattern>>>,
}

#[derive(Debug)]
struct Pattern {
    /// The place among the patterns of the file.
    order: usize,
    level: u32,
    glob: Glob,
}

impl Patterns {
    /// These patterns, in the order of the file, each with its level.
    pub(super) fn new(patterns: &[(&Glob, u32)]) -> Self {
        let mut by_prefix = Affixes::new(End::Front);
        for (order, &(glob, level)) in patterns.iter().enumerate() {
            let (_, suffix) = glob.as_str().rsplit_once('*').unwrap_or_default();
            let by_suffix: &mut Affixes<Vec<Pattern>> =
                by_prefix.entry(glob.literal_prefix().as_bytes(), || Affixes::new(End::Back));
            let alike = by_suffix.entry(suffix.as_bytes(), Vec::new);
            alike.push(Pattern { order, level, glob: glob.clone() });
        }
        Self { by_prefix }
    }

    /// The level of the first pattern that fits.
    pub(super) fn first_match(&self, value: &[u8]) -> Option<u32> {
        let mut first: Option<&Pattern> = None;
        for by_suffix in self.by_prefix.of(value) {
            for alike in by_suffix.of(value) {
                let is_earlier =
                    |pattern: &&Pattern| first.is_none_or(|first| pattern.order < first.order);
                let mut earlier = alike.iter().take_while(is_earlier);
                first = earlier.find(|pattern| pattern.glob.matches(value)).or(first);
            }
        }
        first.map(|pattern| pattern.level)
    }
}

/// One end of a text.
#[derive(Clone, Copy, Debug)]
enum End {
    Front,
    Back,
}

impl End {
    /// So many bytes of this end of `value`, if it is as long.
    fn of(self, value: &[u8], length: usize) -> Option<&[u8]> {
        match self {
            Self::Front => value.get(..length),
            Self::Back => value.get(value.len().checked_sub(length)?..),
        }
    }
}

/// Texts that others may begin or end with, and what belongs to each.
#[derive(Debug)]
struct Affixes<T> {
    end: End,
    /// The lengths of the texts, each once, in order.
    lengths: Vec<usize>,
    hasher: RandomState,
    all: HashTable<(Box<[u8]>, T)>,
}

impl<T> Affixes<T> {
    fn new(end: End) -> Self {
        let hasher = RandomState::default();
        Self { end, lengths: Vec::new(), hasher, all: HashTable::new() }
    }

    /// What belongs to `text`, which is added if it is not there yet.
    fn entry(&mut self, text: &[u8], item: impl FnOnce() -> T) -> &mut T {
        if let Err(place) = self.lengths.binary_search(&text.len()) {
            self.lengths.insert(place, text.len());
        }
        let hash = self.hasher.hash_one(text);
        let is_same = |(other, _): &(Box<[u8]>, T)| **other == *text;
        let rehash = |(text, _): &(Box<[u8]>, T)| self.hasher.hash_one(&**text);
        let entry = self.all.entry(hash, is_same, rehash);
        &mut entry.or_insert_with(|| (text.into(), item())).into_mut().1
    }

    /// What belongs to the texts that `value` begins or ends with.
    fn of<'a>(&'a self, value: &'a [u8]) -> impl Iterator<Item = &'a T> {
        self.lengths.iter().map_while(move |&length| self.end.of(value, length)).filter_map(
            |part| {
                let is_same = |(text, _): &&(Box<[u8]>, T)| **text == *part;
                let found = self.all.find(self.hasher.hash_one(part), |entry| is_same(&entry));
                found.map(|(_, item)| item)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first_match(patterns: &[&str], value: &str) -> Option<u32> {
        let globs: Vec<Glob> = patterns.iter().copied().map(Glob::new).collect();
        Patterns::new(&globs.iter().zip(0..).collect::<Vec<_>>()).first_match(value.as_bytes())
    }

    #[test]
    fn the_first_of_the_file_wins_and_not_the_longest() {
        assert_eq!(first_match(&["f*", "foo*"], "foobar"), Some(0));
        assert_eq!(first_match(&["foo*", "f*"], "foobar"), Some(0));
        assert_eq!(first_match(&["*bar", "foo*"], "foobar"), Some(0));
        assert_eq!(first_match(&["*x", "foo*baz", "*o*", "*"], "foobar"), Some(2));
        assert_eq!(first_match(&["*x", "foo*baz"], "foobar"), None);
    }

    #[test]
    fn the_two_ends_of_a_pattern_do_not_overlap_in_the_value() {
        assert_eq!(first_match(&["aba*aba"], "ababa"), None);
        assert_eq!(first_match(&["aba*aba"], "abaaba"), Some(0));
    }

    proptest! {
        #[test]
        fn finds_what_trying_one_by_one_finds(
            patterns in prop::collection::vec("[ab]{0,3}\\*[ab*]{0,4}", 0..12),
            value in "[ab]{0,6}",
        ) {
            let texts: Vec<&str> = patterns.iter().map(String::as_str).collect();
            let slow = (0..).zip(&texts).find(|(_, text)| Glob::new(text).matches(value.as_bytes()));
            prop_assert_eq!(first_match(&texts, &value), slow.map(|(place, _)| place));
        }
    }
}
