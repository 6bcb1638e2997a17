//! The names of attributes, and their numbers.
//!
//! Only names that a rule mentions have a number; what else a request says is not looked at.

use super::table::Table;
use crate::attribute::Reads;

/// The number of an attribute in one index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct AttributeId(u32);

impl AttributeId {
    /// The path, in normal form.
    pub(super) const PATH: Self = Self(0);
    /// The host, in normal form.
    pub(super) const HOST: Self = Self(1);
    /// The address of the client.
    pub(super) const IP: Self = Self(2);
    /// The path, in normal form and in lower case. It has no name of its own.
    pub(super) const FOLDED_PATH: Self = Self(3);
    /// No attribute.
    pub(super) const NONE: Self = Self(u32::MAX);
    /// The first that has no meaning of its own.
    const FIRST: Self = Self(4);

    /// One of 64 bits, which attributes may share.
    #[inline]
    pub(super) fn bit(self) -> u64 {
        1 << (self.0 % 64)
    }

    #[inline]
    pub(super) fn number(self) -> u32 {
        self.0
    }

    /// Whether its values are not looked at as they come.
    #[inline]
    pub(super) fn is_special(self) -> bool {
        self.0 < Self::FIRST.0
    }

    /// Whether its values are paths in normal form.
    pub(super) fn is_path(self) -> bool {
        matches!(self, Self::PATH | Self::FOLDED_PATH)
    }
}

/// All names, and which number each has.
#[derive(Debug)]
pub(super) struct Names {
    ids: Table<AttributeId>,
    next: AttributeId,
    pub(super) wants_folded_path: bool,
    /// What all of them are.
    pub(super) reads: Reads,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            ids: Table::default(),
            next: AttributeId::FIRST,
            wants_folded_path: false,
            reads: Reads::NOTHING,
        }
    }
}

impl Names {
    pub(super) fn intern(&mut self, name: &str, ignore_case: bool) -> AttributeId {
        let id = self.find(name).unwrap_or_else(|| self.add(name));
        if id == AttributeId::PATH && ignore_case {
            self.wants_folded_path = true;
            return AttributeId::FOLDED_PATH;
        }
        id
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "each attribute of each request is looked up")]
    pub(super) fn find(&self, name: &str) -> Option<AttributeId> {
        self.ids.find(0, name.as_bytes())
    }

    fn add(&mut self, name: &str) -> AttributeId {
        let id = match name {
            "path" => AttributeId::PATH,
            "host" => AttributeId::HOST,
            "ip" => AttributeId::IP,
            _ => {
                let id = self.next;
                self.next.0 += 1;
                id
            }
        };
        self.reads = self.reads.and(Reads::named(name));
        self.ids.insert(0, name.as_bytes(), id);
        id
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_name_has_one_number(names in prop::collection::vec("[ab]{0,4}|[ab]{7,18}|[ab]{3}x{20}[ab]{2}x{9}", 0..200)) {
            let mut known = Names::default();
            let mut model = HashMap::new();
            for name in &names {
                let id = known.intern(name, false);
                prop_assert_eq!(*model.entry(name).or_insert(id), id);
            }
            let mut ids: Vec<_> = model.values().collect();
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), model.len());
            for (name, id) in model {
                prop_assert_eq!(known.find(name), Some(id));
            }
            prop_assert_eq!(known.find("c"), None);
        }
    }
}
