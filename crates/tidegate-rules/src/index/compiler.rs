//! Makes the levels of the index: chooses an anchor for each rule.
//!
//! The work is linear in the text of the rules, apart from sorting.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;

use super::anchor::{Anchor, Whole};
use super::check::Check;
use super::checks::Checks;
use super::lookup::Lookup;
use super::node::{Candidate, Node, Posting};

/// Makes nodes from conditions.
pub(super) struct Compiler<'r> {
    checks: &'r Checks,
    /// What candidates are to be tested by, each list once.
    lists: Vec<u32>,
    known_lists: HashMap<Vec<u32>, u32, FixedState>,
}

/// A rule that is to be placed.
#[derive(Clone, Copy)]
struct Open {
    rule: u32,
    /// The conditions that are still to be tested, one bit each, from the lowest. The highest bit
    /// stands for all that have none of their own.
    pending: u32,
}

impl Open {
    /// How many conditions have a bit of their own.
    const OWN: usize = 31;

    fn new(rule: u32, conditions: usize) -> Self {
        let pending = if conditions > Self::OWN { u32::MAX } else { (1 << conditions) - 1 };
        Self { rule, pending }
    }

    fn is_pending(self, condition: usize) -> bool {
        self.pending & (1 << condition.min(Self::OWN)) != 0
    }
}

impl<'r> Compiler<'r> {
    /// How many levels there are at most.
    const DEPTH_MAX: usize = 4;
    /// How many rules of one anchor are tested one by one.
    const FEW: usize = 8;
    /// How long a list may be that is anchored at below the first level: with more, lists in
    /// several conditions of a rule would multiply.
    const ALTERNATIVES_MAX: usize = 4;

    pub(super) fn new(checks: &'r Checks) -> Self {
        Self { checks, lists: Vec::new(), known_lists: HashMap::default() }
    }

    /// The first level, which has all rules.
    pub(super) fn root(&mut self) -> Node {
        let rules: Vec<_> = (0..self.checks.rules())
            .map(|rule| Open::new(rule, self.checks.of(rule).len()))
            .collect();
        self.node(&rules, 0)
    }

    /// The lists that candidates have pieces of.
    pub(super) fn into_lists(self) -> Vec<u32> {
        self.lists
    }

    fn node(&mut self, rules: &[Open], depth: usize) -> Node {
        let mut ways = Ways::default();
        for &open in rules {
            self.survey(open, depth, &mut ways);
        }
        let (mut placed, unanchored) = ways.choose(rules);
        placed.sort_unstable_by_key(|place| (place.anchor, place.open.rule));
        placed.dedup_by(|later, earlier| earlier.absorb(*later));
        let unanchored = unanchored.into_iter().map(|open| self.candidate(open)).collect();
        let (mut candidates, mut below) = (Vec::new(), Vec::new());
        let mut postings = Vec::new();
        for group in placed.chunk_by(|a, b| a.anchor == b.anchor) {
            let posting = if let [place] = group {
                Posting::One(self.candidate(place.open))
            } else if let Some(node) = self.below(group, depth) {
                below.push(node);
                Posting::Below(below.len() as u32 - 1)
            } else {
                let start = candidates.len() as u32;
                candidates.extend(group.iter().map(|place| self.candidate(place.open)));
                Posting::Several { start, len: group.len() as u32 }
            };
            postings.push((ways.anchors[group[0].anchor as usize], posting));
        }
        Node { lookup: Lookup::new(&postings), candidates, unanchored, below }
    }

    /// A level of their own for rules that share an anchor, where they are many and it helps.
    fn below(&mut self, group: &[Place], depth: usize) -> Option<Node> {
        if group.len() <= Self::FEW || depth + 1 == Self::DEPTH_MAX {
            return None;
        }
        let rules: Vec<_> = group.iter().map(|place| place.open).collect();
        let node = self.node(&rules, depth + 1);
        (node.unanchored.len() <= group.len() / 2).then_some(node)
    }

    fn candidate(&mut self, open: Open) -> Candidate {
        let numbers: SmallVec<[u32; 8]> = (0..)
            .zip(self.checks.of(open.rule))
            .filter(|&(condition, _)| open.is_pending(condition))
            .map(|(_, &number)| number)
            .collect();
        if let [number] = numbers[..] {
            return Candidate { rule: open.rule, start: number, len: 1 };
        }
        let len = numbers.len() as u32;
        let start = *self.known_lists.entry_ref(&numbers[..]).or_insert_with(|| {
            let start = self.lists.len() as u32;
            self.lists.extend_from_slice(&numbers);
            start
        });
        Candidate { rule: open.rule, start, len }
    }

    /// Notes all ways to find a rule: each condition that is neither tested yet nor negated.
    fn survey(&self, open: Open, depth: usize, ways: &mut Ways<'r>) {
        let own = self.checks.of(open.rule).iter().take(Open::OWN);
        for (condition, &number) in own.enumerate() {
            let check = self.checks.check(number);
            let short = depth == 0 || check.shapes().len() <= Self::ALTERNATIVES_MAX;
            if open.is_pending(condition) && short && !check.negated {
                ways.add(open.rule, condition, check);
            }
        }
    }
}

/// All ways to find the rules of a level.
#[derive(Default)]
struct Ways<'r> {
    numbers: HashMap<Anchor<'r>, u32, FixedState>,
    /// By number.
    anchors: Vec<Anchor<'r>>,
    /// How many rules have each anchor.
    counts: Vec<u32>,
    /// The anchors of all ways, one way after the other.
    steps: Vec<Step>,
    all: Vec<Way>,
}

/// A condition to find a rule by: any of its alternatives.
struct Way {
    rule: u32,
    condition: usize,
    steps: std::ops::Range<usize>,
}

/// One alternative of a condition.
#[derive(Clone, Copy)]
struct Step {
    anchor: u32,
    whole: bool,
}

/// A rule behind an anchor.
#[derive(Clone, Copy)]
struct Place {
    anchor: u32,
    open: Open,
}

impl Place {
    /// Takes in the same rule behind the same anchor, which it has through two alternatives: what
    /// either of them has tested is tested.
    fn absorb(&mut self, other: Self) -> bool {
        let same = self.anchor == other.anchor && self.open.rule == other.open.rule;
        if same {
            self.open.pending &= other.open.pending;
        }
        same
    }
}

impl<'r> Ways<'r> {
    fn add(&mut self, rule: u32, condition: usize, check: &'r Check) {
        let first = self.steps.len();
        for shape in check.shapes() {
            let (anchor, Whole(whole)) = Anchor::new(check.id, shape);
            let number = *self.numbers.entry(anchor).or_insert_with(|| {
                self.anchors.push(anchor);
                self.counts.push(0);
                self.counts.len() as u32 - 1
            });
            self.counts[number as usize] += 1;
            self.steps.push(Step { anchor: number, whole });
        }
        self.all.push(Way { rule, condition, steps: first..self.steps.len() });
    }

    /// The best way for each rule, and the rules that have none.
    fn choose(&self, rules: &[Open]) -> (Vec<Place>, Vec<Open>) {
        let (mut placed, mut unanchored) = (Vec::new(), Vec::new());
        let mut of_rules = self.all.chunk_by(|a, b| a.rule == b.rule).peekable();
        for &open in rules {
            let Some(ways) = of_rules.next_if(|ways| ways[0].rule == open.rule) else {
                unanchored.push(open);
                continue;
            };
            let best = ways.iter().min_by_key(|way| (self.cost(way), way.steps.len()));
            for (way, step) in best
                .iter()
                .flat_map(|way| self.steps[way.steps.clone()].iter().map(move |step| (way, step)))
            {
                let tested = if step.whole { 1 << way.condition } else { 0 };
                let pending = open.pending & !tested;
                let open = Open { pending, ..open };
                placed.push(Place { anchor: step.anchor, open });
            }
        }
        (placed, unanchored)
    }

    /// How dear the dearest alternative is.
    fn cost(&self, way: &Way) -> u32 {
        let steps = self.steps[way.steps.clone()].iter();
        let cost = |step: &Step| {
            let anchor = step.anchor as usize;
            self.anchors[anchor].cost(self.counts[anchor])
        };
        steps.map(cost).max().unwrap_or(0)
    }
}
