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
use node::{Node, Posting, Postings};

/// The rules that match: their numbers, in the order of the files, each once.
#[derive(Debug)]
pub(crate) enum Found {
    /// One, as it is for most requests.
    One(u32),
    /// Any number of them.
    All(Numbers),
}

/// Numbers of rules.
type Numbers = SmallVec<[u32; 16]>;

impl Found {
    /// All of them.
    pub(crate) fn all(&self) -> &[u32] {
        match self {
            Self::One(rule) => std::slice::from_ref(rule),
            Self::All(rules) => rules,
        }
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

    /// The attributes that have a number: no others are looked at.
    pub(crate) fn reads(&self) -> Reads {
        self.names.reads
    }

    /// Looks at a request, of which nothing is known yet, and finds the rules that match.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "what it finds would pass through memory")]
    pub(crate) fn find(&self, view: &mut View<'_>) -> Found {
        let mut finding = Finding { index: self, first: None, more: Postings::new() };
        view.look(&self.names, self.root.bits(), &mut finding);
        // Not moved out of it: what has room for many is large.
        let Finding { first, more, .. } = &finding;
        // Nearly always there is one rule that may match, whether by a value or because it has no conditions.
        if let Some(candidate) = self.root.only(*first)
            && more.is_empty()
            && !view.has_folded()
        {
            let holds = candidate.holds(view, &self.tests);
            return if holds { Found::One(candidate.rule) } else { Found::All(Numbers::new()) };
        }
        self.find_all(view, *first, more)
    }

    #[inline(never)]
    fn find_all(&self, view: &View<'_>, first: Option<&Posting>, more: &[&Posting]) -> Found {
        let mut found = Numbers::new();
        for posting in first.into_iter().chain(more.iter().copied()) {
            self.root.add(posting, view, &self.tests, &mut found);
        }
        self.root.find_others(view, &self.tests, &mut found);
        found.sort_unstable();
        found.dedup();
        match found[..] {
            [rule] => Found::One(rule),
            _ => Found::All(found),
        }
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
        view.add_special(id, value, self.0.names.wants_folded_path, self.0.wants_network);
    }

    fn other(&mut self, _: &View<'_>, _: AttributeId, _: &[u8]) {}
}

/// Finds what rules may be behind the attributes. That is tested later: it may ask for values that have not been looked
/// at.
struct Finding<'i> {
    index: &'i Index,
    /// Apart from the others, since there mostly are none, and it then need not be put into memory.
    first: Option<&'i Posting>,
    more: Postings<'i>,
}

impl<'i> Finding<'i> {
    #[inline]
    fn put(&mut self, posting: Option<&'i Posting>) {
        if self.first.is_none() {
            self.first = posting;
        } else {
            self.more.extend(posting);
        }
    }
}

impl Visitor for Finding<'_> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "there is one caller, and every request comes by")]
    fn special<'a>(&mut self, view: &mut View<'a>, id: AttributeId, value: &'a [u8]) {
        let Index { root, names, .. } = self.index;
        let wants = (names.wants_folded_path, self.index.wants_network);
        let posting = root.find_special(view, id, value, wants, &mut self.more);
        self.put(posting);
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "there is one caller, and every request comes by")]
    fn other(&mut self, view: &View<'_>, id: AttributeId, value: &[u8]) {
        let lookup = &self.index.root.lookup;
        self.put(lookup.exact(id, value));
        if lookup.has_trees(id) {
            let posting = self.index.root.find_in_trees(view, id, value, &mut self.more);
            self.put(posting);
        }
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
    /// What candidates with two checks or more are to be tested by: pieces of a list of their numbers.
    lists: Vec<u32>,
}
