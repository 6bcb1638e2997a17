//! How much there is in a set of rules.

use std::fmt;

use tidegate_rules::RuleSet;
use tidegate_rules::rule::{Descriptor, Quota, Rule};

use crate::output::counted;

/// How many domains, rules and limits. Limits of tiers, overrides and candidates count as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) domains: usize,
    pub(crate) rules: usize,
    pub(crate) limits: usize,
}

impl Tally {
    pub(crate) fn of(set: &RuleSet) -> Self {
        let mut tally = Self { domains: set.domains().len(), ..Self::default() };
        for domain in set.domains() {
            domain.rules.iter().for_each(|rule| tally.add(rule));
            tally.add_levels(&domain.descriptors);
        }
        tally
    }

    fn add(&mut self, rule: &Rule) {
        self.rules += 1;
        let tiers = rule.tiers.iter().flat_map(|tiers| &tiers.quotas).map(|(_, quota)| quota);
        let quotas = tiers.chain(rule.overrides.iter().map(|one| &one.quota)).chain([&rule.quota]);
        let limits = quotas.map(|quota| match quota {
            Quota::Unlimited => 0,
            // It is one that lets nothing through.
            Quota::Nothing => 1,
            Quota::Limits(limits) => limits.len(),
        });
        self.limits += limits.sum::<usize>() + rule.candidate.len();
    }

    fn add_levels(&mut self, levels: &[Descriptor]) {
        for level in levels {
            level.rule.iter().for_each(|rule| self.add(rule));
            self.add_levels(&level.children);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domains, rules, limits } = *self;
        let (domains, rules) = (counted(domains, "domain"), counted(rules, "rule"));
        write!(f, "{domains}, {rules}, {}", counted(limits, "limit"))
    }
}
