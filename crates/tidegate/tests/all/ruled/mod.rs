//! A limiter by rules with a clock of its own, and short ways to call it.

use std::time::Duration;

use tidegate::{Attribute, Call, ManualClock, RuleDecision, RuleLimiter, RuleSet};
use tidegate_rules::{ParseOptions, Source};

pub(crate) type Limiter = RuleLimiter<ManualClock>;

pub(crate) fn rules(text: &str) -> RuleSet {
    let parsed = RuleSet::parse(&[Source::new("test.yaml", text)], &ParseOptions::default());
    parsed.unwrap_or_else(|report| panic!("{report}")).rules
}

pub(crate) fn limiter(text: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000_000));
    let built = RuleLimiter::builder(rules(text)).clock(clock.clone()).build();
    (built.unwrap(), clock)
}

pub(crate) fn attributes<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Attribute<'a>> {
    pairs.iter().map(|&pair| pair.into()).collect()
}

pub(crate) fn check(limiter: &Limiter, pairs: &[(&str, &str)]) -> RuleDecision {
    limiter.check(&Call::new("api", &attributes(pairs))).unwrap()
}

/// How many of `tries` calls pass.
pub(crate) fn passes(limiter: &Limiter, pairs: &[(&str, &str)], tries: usize) -> usize {
    (0..tries).filter(|_| check(limiter, pairs).is_allowed()).count()
}

/// How much of the binding limit is left, without taking any.
pub(crate) fn left(limiter: &Limiter, pairs: &[(&str, &str)]) -> u64 {
    limiter.peek(&Call::new("api", &attributes(pairs)).with_cost(0)).unwrap().remaining().unwrap()
}
