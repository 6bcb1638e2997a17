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
        view.look(&self.names, self.wants_network, 0, |_, _, _| {});
        view
    }

    /// The attributes that have a number: no others are looked at.
    pub(crate) fn reads(&self) -> Reads {
        self.names.reads
    }

    /// Looks at a request, of which nothing is known yet, and puts the rules that match into `found`, which is new.
    #[inline]
    pub(crate) fn find(&self, view: &mut View<'_>, found: &mut Found) {
        let mut open = Postings::new();
        let bits = self.root.bits();
        view.look(&self.names, self.wants_network, bits, |view, id, bytes| {
            self.root.find_first(view, id, bytes, found, &mut open);
        });
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
