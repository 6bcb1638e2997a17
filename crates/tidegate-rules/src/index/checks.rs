//! The conditions of all rules, each kept once however many rules have it.
//!
//! A condition that many rules share, such as one on the method, then stays in the cache, and a
//! long list that many rules share is made ready once.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::check::Check;
use super::names::Names;
use crate::rule::Rule;

/// The conditions of all rules.
#[derive(Debug, Default)]
pub(super) struct Checks {
    unique: Vec<Check>,
    /// Numbers of checks, to find one that is there already.
    known: HashTable<u32>,
    hasher: FixedState,
    /// The numbers of the checks of all rules, rule by rule, in the order in which they were written.
    numbers: Vec<u32>,
    /// For each rule, where its numbers end.
    ends: Vec<usize>,
}

impl Checks {
    pub(super) fn add(&mut self, rule: &Rule, names: &mut Names) {
        for condition in &rule.conditions {
            let id = names.intern(&condition.attribute, rule.ignore_case);
            let number = self.number(Check::new(id, condition));
            self.numbers.push(number);
        }
        self.ends.push(self.numbers.len());
    }

    fn number(&mut self, check: Check) -> u32 {
        let hash = self.hasher.hash_one(&check);
        let same = |&number: &u32| self.unique[number as usize] == check;
        let rehash = |&number: &u32| self.hasher.hash_one(&self.unique[number as usize]);
        match self.known.entry(hash, same, rehash) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                // More than four thousand million conditions do not fit into memory.
                let number = self.unique.len() as u32;
                free.insert(number);
                self.unique.push(check);
                number
            }
        }
    }

    /// How many rules there are.
    pub(super) fn rules(&self) -> u32 {
        self.ends.len() as u32
    }

    /// The numbers of a rule's checks.
    pub(super) fn of(&self, rule: u32) -> &[u32] {
        let rule = rule as usize;
        let start = if rule == 0 { 0 } else { self.ends[rule - 1] };
        &self.numbers[start..self.ends[rule]]
    }

    pub(super) fn check(&self, number: u32) -> &Check {
        &self.unique[number as usize]
    }

    pub(super) fn unique(&self) -> impl Iterator<Item = &Check> {
        self.unique.iter()
    }

    /// The checks by number, ready to be tested.
    pub(super) fn settle(mut self) -> Vec<Check> {
        self.unique.iter_mut().for_each(Check::settle);
        self.unique
    }
}
