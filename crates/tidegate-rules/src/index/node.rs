//! A level of the index: rules behind their anchors, and below an anchor that many rules share,
//! another level for them.

use smallvec::SmallVec;

use super::lookup::Lookup;
use super::names::AttributeId;
use super::view::View;
use super::{Numbers, Tests};

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

/// What several anchors have behind them.
pub(super) type Postings<'n> = SmallVec<[&'n Posting; 16]>;

/// A rule that may match.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) rule: u32,
    /// The conditions that are still to be tested: a piece of the lists, or the number of the only one.
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Node {
    /// The bits of all attributes that rules are found by.
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        self.lookup.bits()
    }

    /// Brings a value into its normal form and looks it up: what is behind the first anchor that it finds, with the
    /// others in `more`.
    #[inline]
    pub(super) fn find_special<'n, 'a>(
        &'n self,
        view: &mut View<'a>,
        id: AttributeId,
        value: &'a [u8],
        (wants_folded, wants_network): (bool, bool),
        more: &mut Postings<'n>,
    ) -> Option<&'n Posting> {
        match id {
            AttributeId::PATH => self.find_path(view, value, wants_folded, more),
            AttributeId::IP => self.find_address(view, value, wants_network, more),
            _ => self.find_host(view, id, value, more),
        }
    }

    #[inline(never)]
    fn find_path<'n, 'a>(
        &'n self,
        view: &mut View<'a>,
        value: &'a [u8],
        wants_folded: bool,
        more: &mut Postings<'n>,
    ) -> Option<&'n Posting> {
        let id = AttributeId::PATH;
        let is_as_it_came = view.add_special(id, value, wants_folded, false);
        let value = if is_as_it_came { value } else { view.special(id, value) };
        let mut first = None;
        self.lookup.each_of_path(view, value, |posting| put_after(&mut first, posting, more));
        first
    }

    #[inline(never)]
    fn find_address<'n, 'a>(
        &'n self,
        view: &mut View<'a>,
        value: &'a [u8],
        wants_network: bool,
        more: &mut Postings<'n>,
    ) -> Option<&'n Posting> {
        view.add_special(AttributeId::IP, value, false, wants_network);
        let mut first = None;
        self.lookup.each_of_address(view, value, |posting| put_after(&mut first, posting, more));
        first
    }

    #[inline(never)]
    fn find_host<'n, 'a>(
        &'n self,
        view: &mut View<'a>,
        id: AttributeId,
        value: &'a [u8],
        more: &mut Postings<'n>,
    ) -> Option<&'n Posting> {
        view.add_special(id, value, false, false);
        let value = view.special(id, value);
        let mut first = None;
        self.lookup.each(view, id, value, |posting| put_after(&mut first, posting, more));
        first
    }

    /// What is behind the first anchor that a value finds in trees, with the others in `more`. Apart, so that
    /// what it needs at hand is fetched for such values, and not for every request.
    #[inline(never)]
    pub(super) fn find_in_trees<'n>(
        &'n self,
        view: &View<'_>,
        id: AttributeId,
        bytes: &[u8],
        more: &mut Postings<'n>,
    ) -> Option<&'n Posting> {
        let mut first = None;
        let put = |posting| put_after(&mut first, posting, more);
        self.lookup.each_in_trees(view, id, bytes, put);
        first
    }

    /// The rule behind the only anchor that was found, or the only one without an anchor; `None` where there may
    /// be others.
    #[inline]
    pub(super) fn only<'n>(&'n self, found: Option<&'n Posting>) -> Option<&'n Candidate> {
        match (found, &self.unanchored[..]) {
            (Some(Posting::One(candidate)), []) | (None, [candidate]) => Some(candidate),
            _ => None,
        }
    }

    /// Adds the rules that match; one may be added several times, in any order.
    fn find(&self, view: &View<'_>, tests: &Tests, found: &mut Numbers) {
        view.each(self.lookup.bits(), |id, bytes| {
            self.lookup.each(view, id, bytes, |posting| self.add(posting, view, tests, found));
        });
        self.find_others(view, tests, found);
    }

    /// Adds those that no value as it stands finds.
    pub(super) fn find_others(&self, view: &View<'_>, tests: &Tests, found: &mut Numbers) {
        if view.has_folded() {
            self.find_folded(view, tests, found);
        }
        for candidate in &self.unanchored {
            candidate.test(view, tests, found);
        }
    }

    /// Adds those that are found by the path in lower case. Few rules ask for it.
    #[cold]
    fn find_folded(&self, view: &View<'_>, tests: &Tests, found: &mut Numbers) {
        let id = AttributeId::FOLDED_PATH;
        if let Some(path) = view.value(id) {
            self.lookup.each(view, id, path, |posting| self.add(posting, view, tests, found));
        }
    }

    /// Adds the rules behind one anchor.
    pub(super) fn add(
        &self,
        posting: &Posting,
        view: &View<'_>,
        tests: &Tests,
        found: &mut Numbers,
    ) {
        match posting {
            Posting::One(candidate) => candidate.test(view, tests, found),
            &Posting::Several { start, len } => {
                let candidates = &self.candidates[start as usize..(start + len) as usize];
                for candidate in candidates {
                    candidate.test(view, tests, found);
                }
            }
            Posting::Below(number) => self.below[*number as usize].find(view, tests, found),
        }
    }
}

/// Keeps the first apart from the others.
#[inline]
fn put_after<'n>(first: &mut Option<&'n Posting>, posting: &'n Posting, more: &mut Postings<'n>) {
    match first {
        None => *first = Some(posting),
        Some(_) => more.push(posting),
    }
}

impl Candidate {
    /// Whether all that is to be tested holds.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "mostly nothing is left to be tested")]
    pub(super) fn holds(&self, view: &View<'_>, tests: &Tests) -> bool {
        match self.len {
            0 => true,
            1 => self.one_holds(view, tests),
            _ => self.all_hold(view, tests),
        }
    }

    /// Apart, so that there is little code where nothing is left.
    #[inline(never)]
    fn one_holds(&self, view: &View<'_>, tests: &Tests) -> bool {
        tests.checks[self.start as usize].holds(view)
    }

    #[inline(never)]
    fn all_hold(&self, view: &View<'_>, tests: &Tests) -> bool {
        let numbers = &tests.lists[self.start as usize..(self.start + self.len) as usize];
        numbers.iter().all(|&number| tests.checks[number as usize].holds(view))
    }

    /// Adds the rule if all that is to be tested holds.
    fn test(&self, view: &View<'_>, tests: &Tests, found: &mut Numbers) {
        if self.holds(view, tests) {
            found.push(self.rule);
        }
    }
}
