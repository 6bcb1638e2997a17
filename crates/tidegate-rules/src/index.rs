//! The rules of a domain, compiled: which of them match a request, without looking at the others.
//!
//! Each rule is found through one of its conditions, its *anchor*: the one that the fewest rules
//! share. A request's values are looked up among the anchors, and only the rules found there are
//! looked at. Where many rules have one anchor in common they have an index of their own below it.
//! So the cost is that of the rules that match, and of a few lookups.
//!
//! It knows conditions only. What a rule then does is none of its business.

mod anchor;
mod check;
mod checks;
mod compiler;
mod condition;
mod ladder;
mod lookup;
mod names;
mod node;
mod shape;
mod table;
mod trie;
mod value;
mod view;
mod words;

#[cfg(test)]
mod tests;

use smallvec::SmallVec;

pub(crate) use names::AttributeId;
pub(crate) use view::View;
use view::Visitor;
pub(crate) use words::is_same;

pub(crate) use crate::attribute::ATTRIBUTES_MAX;
use crate::attribute::{Attribute, Reads};
use crate::rule::{Condition, Rule};
use check::Check;
use checks::Checks;
use compiler::Compiler;
use names::Names;
use node::{Node, Postings};

/// The rules that match: their numbers, in the order of the files, each once. It is one for most requests, which is
/// therefore kept apart.
#[derive(Debug, Default)]
pub(crate) struct Found {
    first: Option<u32>,
    /// All of them where there are more.
    all: SmallVec<[u32; 16]>,
}

impl Found {
    /// None so far.
    #[inline]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[inline]
    fn push(&mut self, rule: u32) {
        match self.first {
            None => self.first = Some(rule),
            Some(first) => self.push_another(first, rule),
        }
    }

    #[cold]
    #[inline(never)]
    fn push_another(&mut self, first: u32, rule: u32) {
        if self.all.is_empty() {
            self.all.push(first);
        }
        self.all.push(rule);
    }

    /// Brings them into their order, once all have been found.
    #[inline]
    fn settle(&mut self) {
        if !self.all.is_empty() {
            self.all.sort_unstable();
            self.all.dedup();
        }
    }

    /// The rule, where it is the only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<u32> {
        if self.all.len() > 1 { None } else { self.first }
    }

    /// All rules.
    pub(crate) fn all(&self) -> &[u32] {
        if self.all.is_empty() { self.first.as_slice() } else { &self.all }
    }
}

/// The conditions of a domain's rules, compiled.
#[derive(Debug)]
pub(crate) struct Index {
    names: Names,
    tests: Tests,
    root: Node,
    /// Whether some rule asks for the network of the attribute `ip`.
    wants_network: bool,
}

impl Index {
    /// Starts with the names of attributes that someone other than the conditions asks for.
    pub(crate) fn builder() -> Builder {
        Builder { names: Names::default() }
    }

    /// What a request looks like to the rules. It allocates nothing, unless a path or a host is not in
    /// its normal form.
    pub(crate) fn view<'a>(&self, attributes: &'a [Attribute<'a>]) -> View<'a> {
        let mut view = View::new(attributes);
        view.look(&self.names, 0, &mut Looking(self));
        view
    }

    #[inline]
    fn add_special<'a>(&self, view: &mut View<'a>, id: AttributeId, value: &'a [u8]) {
        view.add_special(id, value, self.names.wants_folded_path, self.wants_network);
    }

    /// The attributes that have a number: no others are looked at.
    pub(crate) fn reads(&self) -> Reads {
        self.names.reads
    }

    /// Looks at a request, of which nothing is known yet, and puts the rules that match into `found`, which is new.
    #[inline]
    pub(crate) fn find(&self, view: &mut View<'_>, found: &mut Found) {
        let mut finding = Finding { index: self, found, open: Postings::new() };
        view.look(&self.names, self.root.bits(), &mut finding);
        let Finding { open, .. } = finding;
        self.root.find_others(view, &self.tests, found);
        for posting in open {
            self.root.add(posting, view, &self.tests, found);
        }
        found.settle();
    }

    /// The first condition of a rule that does not hold, to explain why it does not match.
    ///
    /// The rule must be one of those that the index was made from.
    pub(crate) fn why_not<'r>(&self, rule: &'r Rule, view: &View<'_>) -> Option<&'r Condition> {
        rule.conditions.iter().find(|condition| {
            let id = self.names.find(&condition.attribute);
            let value = id.and_then(|id| view.value(id));
            !condition.holds_in(rule, value)
        })
    }
}

/// Brings attributes into their normal form, and no more.
struct Looking<'i>(&'i Index);

impl Visitor for Looking<'_> {
    fn special<'a>(&mut self, view: &mut View<'a>, id: AttributeId, value: &'a [u8]) {
        self.0.add_special(view, id, value);
    }

    fn other(&mut self, _: &View<'_>, _: AttributeId, _: &[u8]) {}
}

/// Finds rules by the attributes. What has to be tested first is kept: it may ask for values that have not been looked
/// at.
struct Finding<'i, 'f> {
    index: &'i Index,
    found: &'f mut Found,
    open: Postings<'i>,
}

impl Visitor for Finding<'_, '_> {
    /// Apart, so that there is little code around other values.
    #[inline(never)]
    fn special<'a>(&mut self, view: &mut View<'a>, id: AttributeId, value: &'a [u8]) {
        let Self { index, found, open } = self;
        index.add_special(view, id, value);
        index.root.find_special(view, id, view.special(id, value), found, open);
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "there is one caller, and every request comes by")]
    fn other(&mut self, view: &View<'_>, id: AttributeId, value: &[u8]) {
        let Self { index, found, open } = self;
        index.root.find_other(view, id, value, found, open);
    }
}

/// Gives attributes their numbers, before the rules are compiled.
#[derive(Debug)]
pub(crate) struct Builder {
    names: Names,
}

impl Builder {
    /// The number of an attribute, new or known. With `ignore_case` a path is the one in lower
    /// case; other attributes are the same either way.
    pub(crate) fn intern(&mut self, name: &str, ignore_case: bool) -> AttributeId {
        self.names.intern(name, ignore_case)
    }

    /// Compiles the conditions of the rules.
    pub(crate) fn build(mut self, rules: &[Rule]) -> Index {
        let mut checks = Checks::default();
        for rule in rules {
            checks.add(rule, &mut self.names);
        }
        let wants_network = checks.unique().any(Check::wants_network);
        let mut compiler = Compiler::new(&checks);
        let root = compiler.root();
        let lists = compiler.into_lists();
        let tests = Tests { checks: checks.settle(), lists };
        self.names.settle();
        Index { names: self.names, tests, root, wants_network }
    }
}

/// The conditions that are tested once a rule is found.
#[derive(Debug)]
struct Tests {
    /// All that differ.
    checks: Vec<Check>,
    /// What candidates are to be tested by: pieces of a list of numbers of checks.
    lists: Vec<u32>,
}
