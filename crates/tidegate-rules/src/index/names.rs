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

    /// Whether its values are brought into a normal form.
    pub(crate) fn is_rewritten(self) -> bool {
        self.is_path() || self == Self::HOST
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
    /// Those of the short names once more, where each has a place of its own.
    short: Option<Box<ShortNames>>,
    next: AttributeId,
    pub(super) wants_folded_path: bool,
    /// What all of them are.
    pub(super) reads: Reads,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            ids: Table::default(),
            short: None,
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
        if let Some(short) = &self.short
            && let Some(packed) = packed(name.as_bytes())
        {
            return short.find(packed, name.len());
        }
        self.find_any(name)
    }

    #[inline(never)]
    fn find_any(&self, name: &str) -> Option<AttributeId> {
        self.ids.find(0, name.as_bytes()).copied()
    }

    /// Makes short names quick to find, once no more are added.
    pub(super) fn settle(&mut self) {
        self.short = ShortNames::new(&self.ids).map(Box::new);
    }

    fn add(&mut self, name: &str) -> AttributeId {
        self.short = None;
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

/// All short names, each in a place that no other has, so that there is one to look at.
#[derive(Debug)]
struct ShortNames {
    /// What leads each name to its place.
    factor: u64,
    places: [ShortName; ShortNames::PLACES],
}

#[derive(Clone, Copy, Debug)]
struct ShortName {
    packed: u64,
    /// Zero in a place without a name.
    len: u32,
    id: AttributeId,
}

impl ShortNames {
    const PLACES_BITS: u32 = 6;
    const PLACES: usize = 1 << Self::PLACES_BITS;
    /// How many factors are tried. One of a few fits ten names, and one of some hundreds thirty.
    const TRIES: u64 = 1_000;

    /// Those of a table. `None` where no factor gives each a place of its own, as there are too many.
    fn new(ids: &Table<AttributeId>) -> Option<Self> {
        let names: Vec<_> = ids
            .short_texts()
            .filter_map(|(text, id)| {
                let len = text.len() as u32;
                packed(&text).map(|packed| ShortName { packed, len, id })
            })
            .collect();
        if names.len() > Self::PLACES / 2 {
            return None;
        }
        let factors =
            (0..Self::TRIES).map(|try_| 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(2 * try_ + 1));
        factors.into_iter().find_map(|factor| Self::with(factor, &names))
    }

    fn with(factor: u64, names: &[ShortName]) -> Option<Self> {
        let free = ShortName { packed: 0, len: 0, id: AttributeId::NONE };
        let mut short = Self { factor, places: [free; Self::PLACES] };
        for name in names {
            let place = short.place(name.packed);
            if short.places[place].len != 0 {
                return None;
            }
            short.places[place] = *name;
        }
        Some(short)
    }

    #[inline]
    fn place(&self, packed: u64) -> usize {
        (packed.wrapping_mul(self.factor) >> (u64::BITS - Self::PLACES_BITS)) as usize
    }

    #[inline]
    fn find(&self, packed: u64, len: usize) -> Option<AttributeId> {
        let name = &self.places[self.place(packed)];
        (name.packed == packed && name.len as usize == len).then_some(name.id)
    }
}

/// The bytes of a name of two to eight as one number. Together with its length it is the name.
#[inline]
fn packed(name: &[u8]) -> Option<u64> {
    let len = name.len();
    if let 4..=8 = len {
        let first = u32::from_le_bytes(*name.first_chunk()?);
        let last = u32::from_le_bytes(*name.last_chunk()?);
        // Bytes in the middle are in both, and the same in both.
        return Some(u64::from(first) | u64::from(last) << (8 * (len - 4)));
    }
    if let 2..4 = len {
        let first = u16::from_le_bytes(*name.first_chunk()?);
        let last = u16::from_le_bytes(*name.last_chunk()?);
        return Some(u64::from(first) | u64::from(last) << (8 * (len - 2)));
    }
    None
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
            for settled in [false, true] {
                if settled {
                    known.settle();
                }
                for (name, id) in &model {
                    prop_assert_eq!(known.find(name), Some(*id));
                }
                prop_assert_eq!(known.find("c"), None);
            }
        }

        #[test]
        fn a_short_name_is_found_as_any_is(
            names in prop::collection::vec("[ab\0]{0,9}", 0..30),
            others in prop::collection::vec("[ab\0]{0,9}", 0..30),
        ) {
            let mut known = Names::default();
            for name in &names {
                known.intern(name, false);
            }
            known.settle();
            for name in names.iter().chain(&others) {
                prop_assert_eq!(known.find(name), known.find_any(name));
            }
        }
    }

    #[test]
    fn the_names_that_most_rules_use_have_places_of_their_own() {
        let mut known = Names::default();
        let names = "path host ip user method tenant agent country api_key plan region claim role";
        for name in names.split(' ') {
            known.intern(name, false);
        }
        known.settle();
        assert!(known.short.is_some());
        known.intern("one_more", false);
        assert!(known.find("one_more").is_some());
    }
}
