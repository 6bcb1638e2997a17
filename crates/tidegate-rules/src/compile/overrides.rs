//! Limits for single keys, found by the values that the key is made of.

use std::hash::{BuildHasher, Hasher};

use hashbrown::HashTable;
use tidegate_core::Timestamp;

use super::limits::Range;
use crate::rule::{Quota, Rule};

/// The overrides of one rule.
#[derive(Debug)]
pub(crate) struct Overrides {
    entries: HashTable<Entry>,
    hasher: foldhash::fast::RandomState,
}

#[derive(Debug)]
struct Entry {
    values: Box<[Box<[u8]>]>,
    quota: Range,
    expires: Option<Timestamp>,
}

impl Overrides {
    pub(super) fn new(rule: &Rule, mut range: impl FnMut(&Quota) -> Range) -> Self {
        let hasher = foldhash::fast::RandomState::default();
        let mut entries = HashTable::with_capacity(rule.overrides.len());
        let hash_of = |entry: &Entry| hash(&hasher, entry.values.iter().map(|value| &**value));
        for other in &rule.overrides {
            let values = other.values.iter().map(|value| value.as_bytes().into()).collect();
            let entry = Entry { values, quota: range(&other.quota), expires: other.expires };
            entries.insert_unique(hash_of(&entry), entry, hash_of);
        }
        Self { entries, hasher }
    }

    /// What a key of these values may take at `now`.
    pub(crate) fn find(&self, values: &[&[u8]], now: Timestamp) -> Option<Range> {
        let hash = hash(&self.hasher, values.iter().copied());
        let same =
            |entry: &Entry| entry.values.iter().map(|value| &**value).eq(values.iter().copied());
        let entry = self.entries.find(hash, same)?;
        entry.expires.is_none_or(|expires| now < expires).then_some(entry.quota)
    }
}

fn hash<'v>(hasher: &impl BuildHasher, values: impl Iterator<Item = &'v [u8]>) -> u64 {
    let mut hasher = hasher.build_hasher();
    for value in values {
        hasher.write_usize(value.len());
        hasher.write(value);
    }
    hasher.finish()
}
