//! Texts that values begin with, or networks that addresses lie in: all of those that a value has.
//!
//! Each is a beginning of a certain length, in bytes or bits. A value is cut to one of the lengths in
//! use and looked up in a table; found, a longer one is tried, and otherwise a shorter one, as in a
//! binary search. For the search to be led to a long beginning, its shorter cuts are in the table
//! too. What is found last is the longest; it knows the next shorter one that it begins with. A
//! lookup so takes as many steps as the number of lengths has bits, and one per beginning found,
//! however many there are.

use std::cmp::Ordering;

use super::shape::Text;
use super::table::Table;

/// A beginning, before it is put in: how long it is, and the values that begin so, from `start` up to
/// and without `end`. Without an end all greater values do.
#[derive(Debug)]
pub(super) struct Beginning<P> {
    pub(super) start: Text,
    pub(super) end: Option<Text>,
    pub(super) len: u32,
    pub(super) payload: P,
}

/// A set of beginnings.
#[derive(Debug)]
pub(super) struct Ladder<P> {
    /// The lengths in use, in order.
    lens: Vec<u32>,
    /// All cuts by length and text, and the longest beginning that is in each.
    table: Table<Option<u32>>,
    ranges: Vec<Range<P>>,
}

#[derive(Debug)]
struct Range<P> {
    payload: P,
    len: u32,
    /// The next shorter one around it.
    outer: Option<u32>,
}

impl<P: Copy> Ladder<P> {
    /// Beginnings that are all different.
    ///
    /// The function gives the text that the table has for a beginning, given by its start, when it is
    /// cut to a length.
    pub(super) fn new(mut all: Vec<Beginning<P>>, cut: impl Fn(&Text, u32) -> Text) -> Self {
        all.sort_unstable_by(|a, b| a.start.cmp(&b.start).then(a.len.cmp(&b.len)));
        let mut lens: Vec<u32> = all.iter().map(|beginning| beginning.len).collect();
        lens.sort_unstable();
        lens.dedup();
        let mut ladder = Self { lens, table: Table::default(), ranges: Vec::new() };
        // Those around the one at hand, the shortest first.
        let mut around: Vec<(u32, Option<&Text>)> = Vec::new();
        for (number, beginning) in (0..).zip(&all) {
            let ended = |end: &Text| end.cmp(&beginning.start) != Ordering::Greater;
            while around.last().is_some_and(|(_, end)| end.is_some_and(ended)) {
                around.pop();
            }
            let outer = around.last().map(|&(outer, _)| outer);
            let (payload, len) = (beginning.payload, beginning.len);
            ladder.ranges.push(Range { payload, len, outer });
            around.push((number, beginning.end.as_ref()));
            ladder.add_rungs(number, &beginning.start, &cut);
        }
        ladder
    }

    /// Puts in a beginning, and its cuts wherever the search for it comes by. A cut that is there
    /// already has the same longest beginning, unless that is this one.
    fn add_rungs(&mut self, number: u32, start: &Text, cut: &impl Fn(&Text, u32) -> Text) {
        let target = self.ranges[number as usize].len;
        let (mut low, mut high) = (0, self.lens.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let len = self.lens[middle];
            match len.cmp(&target) {
                Ordering::Greater => high = middle,
                Ordering::Less => {
                    let fits = |range: &u32| self.ranges[*range as usize].len <= len;
                    let longest = self.outwards(number).find(fits);
                    self.table.insert(len, &cut(start, len), longest);
                    low = middle + 1;
                }
                Ordering::Equal => return self.table.insert(len, &cut(start, len), Some(number)),
            }
        }
    }

    /// A range and those around it, by number.
    fn outwards(&self, from: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(from), |&number| self.ranges[number as usize].outer)
    }

    /// Calls with each beginning of a value, the longest first. The function cuts the value to a
    /// length, where it is that long, to the text that the table has.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "how values are cut is known where it is called")]
    pub(super) fn each<'s, T: AsRef<[u8]>>(
        &'s self,
        cut: impl Fn(u32) -> Option<T>,
        mut visit: impl FnMut(&'s P),
    ) {
        let (mut low, mut high) = (0, self.lens.len());
        let mut longest = None;
        while low < high {
            let middle = usize::midpoint(low, high);
            let len = self.lens[middle];
            let rung = cut(len).and_then(|text| self.table.find(len, text.as_ref()));
            if let Some(&known) = rung {
                longest = known;
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        while let Some(number) = longest {
            let range = &self.ranges[number as usize];
            visit(&range.payload);
            longest = range.outer;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::lookup::{beginning_of_network, beginning_of_text, network_cut};
    use super::*;

    proptest! {
        #[test]
        fn finds_all_prefixes_of_a_text(
            prefixes in prop::collection::btree_set("[ab\u{ff}]{0,6}", 0..20),
            value in "[ab\u{ff}]{0,8}",
        ) {
            let all = prefixes.iter().map(|text| beginning_of_text(text.as_bytes(), text));
            let ladder = Ladder::new(all.collect(), |text, len| text[..len as usize].into());
            let mut found: Vec<&String> = Vec::new();
            ladder.each(|len| value.as_bytes().get(..len as usize), |text| found.push(*text));
            found.reverse();
            let expected: Vec<_> =
                prefixes.iter().filter(|prefix| value.starts_with(*prefix)).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn finds_all_networks_of_an_address(
            networks in prop::collection::btree_set((0_u8..=32, any::<[bool; 4]>()), 0..20),
            pick in any::<[bool; 4]>(),
        ) {
            // Addresses that differ in one bit of each byte only, so that networks hold each other.
            let address = |bits: [bool; 4]| bits.map(|bit| if bit { 0xFF } else { 0x7F });
            let networks: std::collections::BTreeSet<(u8, Text)> = networks
                .into_iter()
                .map(|(len, bits)| (len, network_cut(&address(bits), u32::from(len))))
                .collect();
            let all = networks
                .iter()
                .map(|(len, start)| beginning_of_network(start.clone(), u32::from(*len), *len));
            let ladder = Ladder::new(all.collect(), |start, len| network_cut(start, len));
            let value = address(pick);
            let mut found = Vec::new();
            ladder.each(|len| Some(network_cut(&value, len)), |len| found.push(*len));
            found.reverse();
            let holds = |(len, start): &&(u8, Text)| network_cut(&value, u32::from(*len)) == *start;
            let expected: Vec<_> = networks.iter().filter(holds).map(|&(len, _)| len).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
