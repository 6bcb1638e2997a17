//! A level of the index: rules behind their anchors, and below an anchor that many rules share,
//! another level for them.

use smallvec::SmallVec;

use super::lookup::Lookup;
use super::names::AttributeId;
use super::view::View;
use super::{Found, Tests};

/// Rules, found by their anchors.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) lookup: Lookup<Posting>,
    /// What postings are pieces of.
    pub(super) candidates: Vec<Candidate>,
    /// Rules that have no anchor, and may match any request.
    pub(super) unanchored: Vec<Candidate>,
    /// Levels below.
    pub(super) below: Vec<Node>,
}

/// What is behind an anchor.
#[derive(Clone, Copy, Debug)]
pub(super) enum Posting {
    /// A single rule, which is the common case, and lies where it is found.
    One(Candidate),
    /// A piece of the candidates.
    Several { start: u32, len: u32 },
    /// The level below of this number.
    Below(u32),
}

/// What has been found, and is to be tested.
pub(super) type Postings<'n> = SmallVec<[&'n Posting; 4]>;

/// A rule that may match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) rule: u32,
    /// The conditions that are still to be tested: a piece of the lists.
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Node {
    /// The bits of all attributes that rules are found by.
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        self.lookup.bits()
    }

    /// Adds the rules that one value finds at the first level, or keeps what is to be tested.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "there is one caller, and every request comes by")]
    pub(super) fn find_other<'n>(
        &'n self,
        view: &View<'_>,
        id: AttributeId,
        bytes: &[u8],
        found: &mut Found,
        open: &mut Postings<'n>,
    ) {
        if let Some(posting) = self.lookup.exact(id, bytes) {
            add_first(posting, found, open);
        }
        if self.lookup.has_trees(id) {
            self.find_in_trees(view, id, bytes, found, open);
        }
    }

    /// The same where it is mostly in trees.
    #[inline]
    pub(super) fn find_special<'n>(
        &'n self,
        view: &View<'_>,
        id: AttributeId,
        bytes: &[u8],
        found: &mut Found,
        open: &mut Postings<'n>,
    ) {
        self.lookup.each(view, id, bytes, |posting| add_first(posting, found, open));
    }

    /// Adds the rules that match; one may be added several times, in any order.
    fn find(&self, view: &View<'_>, tests: &Tests, found: &mut Found) {
        view.each(self.lookup.bits(), |id, bytes| {
            self.lookup.each(view, id, bytes, |posting| self.add(posting, view, tests, found));
        });
        self.find_others(view, tests, found);
    }

    /// Adds those that no value as it stands finds.
    #[inline]
    pub(super) fn find_others(&self, view: &View<'_>, tests: &Tests, found: &mut Found) {
        if view.has_folded() {
            self.find_folded(view, tests, found);
        }
        for candidate in &self.unanchored {
            candidate.test(view, tests, found);
        }
    }

    /// The same in trees alone. Apart, so that what it needs at hand is fetched for such values, and not for every
    /// request.
    #[inline(never)]
    fn find_in_trees<'n>(
        &'n self,
        view: &View<'_>,
        id: AttributeId,
        bytes: &[u8],
        found: &mut Found,
        open: &mut Postings<'n>,
    ) {
        self.lookup.each_in_trees(view, id, bytes, |posting| add_first(posting, found, open));
    }

    /// Adds those that are found by the path in lower case. Few rules ask for it.
    #[cold]
    fn find_folded(&self, view: &View<'_>, tests: &Tests, found: &mut Found) {
        let id = AttributeId::FOLDED_PATH;
        if let Some(path) = view.value(id) {
            self.lookup.each(view, id, path, |posting| self.add(posting, view, tests, found));
        }
    }

    /// Adds the rules behind one anchor. Nearly always there is one such anchor at most, and one rule
    /// behind it.
    #[inline]
    pub(super) fn add(&self, posting: &Posting, view: &View<'_>, tests: &Tests, found: &mut Found) {
        match posting {
            Posting::One(candidate) if candidate.len == 0 => found.push(candidate.rule),
            Posting::One(candidate) => candidate.test(view, tests, found),
            _ => self.add_several(posting, view, tests, found),
        }
    }

    #[inline(never)]
    fn add_several(&self, posting: &Posting, view: &View<'_>, tests: &Tests, found: &mut Found) {
        match *posting {
            Posting::One(candidate) => candidate.test(view, tests, found),
            Posting::Several { start, len } => {
                let candidates = &self.candidates[start as usize..(start + len) as usize];
                for candidate in candidates {
                    candidate.test(view, tests, found);
                }
            }
            Posting::Below(number) => self.below[number as usize].find(view, tests, found),
        }
    }
}

/// Adds a rule that matches, or keeps what is still to be tested.
#[inline]
fn add_first<'n>(posting: &'n Posting, found: &mut Found, open: &mut Postings<'n>) {
    match posting {
        Posting::One(candidate) if candidate.len == 0 => found.push(candidate.rule),
        _ => open.push(posting),
    }
}

impl Candidate {
    /// Adds the rule if all that is to be tested holds. There is one condition at most as a rule.
    #[inline]
    fn test(&self, view: &View<'_>, tests: &Tests, found: &mut Found) {
        if self.len == 1 {
            let number = tests.lists[self.start as usize];
            if tests.checks[number as usize].holds(view) {
                found.push(self.rule);
            }
        } else {
            self.test_all(view, tests, found);
        }
    }

    #[inline(never)]
    fn test_all(&self, view: &View<'_>, tests: &Tests, found: &mut Found) {
        let numbers = &tests.lists[self.start as usize..(self.start + self.len) as usize];
        if numbers.iter().all(|&number| tests.checks[number as usize].holds(view)) {
            found.push(self.rule);
        }
    }
}
