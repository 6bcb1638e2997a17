//! Finds the limit of a request among Envoy's nested descriptors: a list of attributes, in order,
//! against a tree that is compiled once.
//!
//! It decides as envoyproxy/ratelimit does. Each entry takes one step down: to the level with
//! exactly its value, else to the first level in the file whose pattern fits, else to the level of
//! its key that takes any value. A step is never taken back, and only a request that ends at a
//! level has that level's limit.
//!
//! It differs in one thing, on purpose: there, key and value are looked up as one text joined by
//! `_`, so that a value can pass for part of another key. Here they are compared apart.
//!
//! What a step costs does not depend on the number of levels beside the one it takes, except for
//! what [`patterns`] says about patterns.

mod name;
mod patterns;

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::{HashMap, HashTable};

use crate::attribute::Attribute;
use crate::glob::Glob;
use crate::rule::{Descriptor, DescriptorValue};

pub(crate) use name::push_level;
use patterns::Patterns;

/// All levels of a domain, ready to be searched.
#[derive(Debug)]
pub(crate) struct DescriptorTree {
    hasher: RandomState,
    nodes: Vec<Node>,
    branches: HashTable<Branch>,
    exact: HashTable<Exact>,
}

/// A rule, and what its requests are counted by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found<'t> {
    /// Which one, in the order of [`with_rules`].
    pub(crate) rule: u32,
    shared: &'t [Option<Box<str>>],
}

/// A level.
#[derive(Debug)]
struct Node {
    rule: Option<u32>,
    /// For this level and those above, the pattern whose values share one counter; empty where
    /// none do.
    shared: Box<[Option<Box<str>>]>,
}

/// The levels of one key below one level.
#[derive(Debug)]
struct Branch {
    parent: u32,
    key: Box<str>,
    id: u32,
    any: Option<u32>,
    patterns: Option<Box<Patterns>>,
}

/// A level with a value of its own.
#[derive(Debug)]
struct Exact {
    branch: u32,
    value: Box<[u8]>,
    node: u32,
}

/// The place of the level above all others, which no entry leads to.
const ROOT: u32 = 0;

/// The levels that have a rule, each before those below it, in the order of the file.
pub(crate) fn with_rules(descriptors: &[Descriptor]) -> Vec<&Descriptor> {
    let mut found = Vec::new();
    let mut waiting: Vec<&Descriptor> = descriptors.iter().rev().collect();
    while let Some(descriptor) = waiting.pop() {
        waiting.extend(descriptor.children.iter().rev());
        if descriptor.rule.is_some() {
            found.push(descriptor);
        }
    }
    found
}

impl DescriptorTree {
    /// Compiles the levels of a domain.
    pub(crate) fn new(descriptors: &[Descriptor]) -> Self {
        let tree = Self {
            hasher: RandomState::default(),
            nodes: vec![Node { rule: None, shared: Box::default() }],
            branches: HashTable::new(),
            exact: HashTable::new(),
        };
        let mut compiler = Compiler { tree, branch_count: 0, rule_count: 0, path: Vec::new() };
        compiler.levels(ROOT, descriptors);
        compiler.tree
    }

    /// The rule of a request with these attributes, in this order.
    pub(crate) fn find<'t>(&'t self, entries: &[Attribute<'_>]) -> Option<Found<'t>> {
        let end = entries.iter().try_fold(ROOT, |level, entry| self.step(level, entry))?;
        let node = &self.nodes[end as usize];
        Some(Found { rule: node.rule?, shared: &node.shared })
    }

    /// The level that `entry` leads to from `level`.
    #[inline]
    fn step(&self, level: u32, entry: &Attribute<'_>) -> Option<u32> {
        let hash = self.hasher.hash_one((level, entry.name));
        let branch = self
            .branches
            .find(hash, |branch| branch.parent == level && *branch.key == *entry.name)?;
        let hash = self.hasher.hash_one((branch.id, entry.value));
        let is_same = |exact: &Exact| exact.branch == branch.id && *exact.value == *entry.value;
        if let Some(exact) = self.exact.find(hash, is_same) {
            return Some(exact.node);
        }
        let patterns = branch.patterns.as_ref();
        patterns.and_then(|patterns| patterns.first_match(entry.value)).or(branch.any)
    }
}

/// What makes a tree.
struct Compiler {
    tree: DescriptorTree,
    branch_count: u32,
    rule_count: u32,
    /// For each level from the top down to the current one, the pattern that it shares.
    path: Vec<Option<Box<str>>>,
}

impl Compiler {
    /// Adds the levels below `parent`, each before those below it.
    fn levels(&mut self, parent: u32, levels: &[Descriptor]) {
        let mut places: HashMap<&str, usize, RandomState> = HashMap::default();
        let mut branches: Vec<(Branch, Vec<(&Glob, u32)>)> = Vec::new();
        for level in levels {
            let place = *places.entry(&level.key).or_insert_with(|| {
                let (key, id) = (level.key.as_str().into(), self.branch_count);
                self.branch_count += 1;
                let branch = Branch { parent, key, id, any: None, patterns: None };
                branches.push((branch, Vec::new()));
                branches.len() - 1
            });
            let (branch, patterns) = &mut branches[place];
            self.path.push(match &level.value {
                DescriptorValue::Glob(glob) if level.traits.share_threshold => {
                    Some(glob.as_str().into())
                }
                _ => None,
            });
            let node = self.node(level);
            match &level.value {
                DescriptorValue::Any => branch.any = Some(node),
                DescriptorValue::Exact(value) => self.exact(branch.id, value, node),
                DescriptorValue::Glob(glob) => {
                    patterns.push((glob, node));
                    // A request may have the text of the pattern itself as its value. Its level is
                    // then found before those of patterns that stand before it.
                    self.exact(branch.id, glob.as_str(), node);
                }
            }
            self.levels(node, &level.children);
            self.path.pop();
        }
        let DescriptorTree { hasher, branches: all, .. } = &mut self.tree;
        let hash = |branch: &Branch| hasher.hash_one((branch.parent, &*branch.key));
        for (mut branch, patterns) in branches {
            if !patterns.is_empty() {
                branch.patterns = Some(Box::new(Patterns::new(&patterns)));
            }
            all.insert_unique(hash(&branch), branch, hash);
        }
    }

    fn node(&mut self, level: &Descriptor) -> u32 {
        let rule = level.rule.is_some().then_some(self.rule_count);
        self.rule_count += u32::from(rule.is_some());
        let shares = rule.is_some() && self.path.iter().any(Option::is_some);
        let shared = if shares { self.path.clone().into() } else { Box::default() };
        self.tree.nodes.push(Node { rule, shared });
        // A file of 4 GiB would have fewer levels than a place can count.
        u32::try_from(self.tree.nodes.len() - 1).unwrap_or(u32::MAX)
    }

    fn exact(&mut self, branch: u32, value: &str, node: u32) {
        let DescriptorTree { hasher, exact: all, .. } = &mut self.tree;
        let hash = |exact: &Exact| hasher.hash_one((exact.branch, &*exact.value));
        let exact = Exact { branch, value: value.as_bytes().into(), node };
        all.insert_unique(hash(&exact), exact, hash);
    }
}

impl Found<'_> {
    /// The keys and values that a request with these `entries`, for which this was found, is
    /// counted by: its own, or the pattern in place of a value where a level shares.
    pub(crate) fn counted_by<'a>(
        &'a self,
        entries: &'a [Attribute<'a>],
    ) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        entries.iter().enumerate().map(|(level, entry)| {
            let shared = self.shared.get(level).and_then(Option::as_deref);
            (entry.name, shared.map_or(entry.value, str::as_bytes))
        })
    }
}

#[cfg(test)]
mod tests;
