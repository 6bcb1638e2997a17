//! Which keys are busiest and which are throttled most, in bounded memory.
//!
//! Decisions are noted in full while there are few of them, and one in [`SAMPLED`] of those beyond
//! [`NOTED_FULLY`] a second; a thread writes to its own copy, and where that is locked it notes
//! nothing and goes on. What is kept is of the last one to two [windows](WINDOW), so it says what is
//! going on and not what once was.
//!
//! It is a structure of our own because what a general sketch lacks is what matters here: the rule and
//! the name of a key are made only when the key is new, and old windows go away as a whole.

mod heavy;

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate::core::Key;
use tidegate::rules::{DescriptorCall, DescriptorsDecision};
use tidegate::{Attribute, Call, RuleDecision, Span, Timestamp};

use self::heavy::Heavy;
use crate::answer::Answer;
use crate::engine::DescriptorsAnswer;
use crate::metrics::GIVEN;
use crate::shard::{self, Shard};

/// How many keys are remembered, per copy, window and list.
pub const KEYS_MAX: usize = 512;
/// How many decisions a second are noted one by one, per copy.
pub const NOTED_FULLY: u64 = 1_024;
/// Of those beyond, one in so many is noted, for all of them.
pub const SAMPLED: u64 = 16;
/// The length of a window.
pub const WINDOW: Span = Span::MINUTE;
/// The longest name of a key that is kept.
pub const NAME_BYTES_MAX: usize = 128;
/// How many names of rules a copy keeps at hand.
const RULES_MAX: usize = 4_096;

/// The busiest and most throttled keys.
#[derive(Debug)]
pub struct Top {
    shards: Box<[Noted]>,
    has_names: AtomicBool,
}

/// What keys are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// How often they were denied.
    #[default]
    Denied,
    /// How often they asked.
    Requests,
}

/// The keys at the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranking {
    /// Since when.
    pub since: Timestamp,
    /// How many more each may have had at most, besides what sampling leaves uncertain.
    pub error: u64,
    /// The keys, most first.
    pub keys: Vec<Ranked>,
}

/// One key at the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranked {
    /// The key, hashed.
    pub key: Key,
    /// The domain.
    pub domain: String,
    /// The rule.
    pub rule: String,
    /// What is counted, where names are kept: `user=42`.
    pub name: Option<String>,
    /// How many there were, at least.
    pub count: u64,
}

/// The copy of one thread. It has its cache lines to itself.
#[derive(Debug)]
#[repr(align(128))]
struct Noted {
    /// The second, and how many decisions it has seen: 44 bits and 20.
    seen: AtomicU64,
    windows: Mutex<Windows>,
}

#[derive(Debug, Default)]
struct Windows {
    /// The number of the window that is going on.
    number: u64,
    current: Lists,
    before: Lists,
    rules: HashMap<(u64, usize), Arc<RuleName>>,
}

#[derive(Debug, Default)]
struct Lists {
    requests: Heavy<Who>,
    denied: Heavy<Who>,
}

/// What is known about a key besides its hash.
#[derive(Clone, Debug)]
struct Who {
    rule: Arc<RuleName>,
    name: Option<Box<str>>,
}

#[derive(Debug)]
struct RuleName {
    domain: Box<str>,
    rule: Box<str>,
}

impl Top {
    pub(crate) fn new() -> Self {
        let shard = |_| Noted { seen: AtomicU64::new(0), windows: Mutex::new(Windows::default()) };
        Self { shards: (0..shard::count()).map(shard).collect(), has_names: AtomicBool::new(false) }
    }

    /// Keeps and shows what keys are made of, or no longer. Off unless the operator turns it on.
    pub fn keep_names(&self, on: bool) {
        // ORDERING: a decision that misses the change by a moment does no harm.
        self.has_names.store(on, Ordering::Relaxed);
    }

    /// Whether it does.
    pub fn has_names(&self) -> bool {
        self.has_names.load(Ordering::Relaxed)
    }

    /// Counts one decision.
    #[inline]
    pub(crate) fn decided<D: Borrow<RuleDecision>>(&self, call: &Call<'_>, answer: &Answer<D>) {
        let (own, shard) = self.shard();
        if let Some(weight) = shard.weight(own, answer.at())
            && let Some(decision) = answer.decision()
        {
            let is_denied = answer.is_turned_away() || !decision.is_allowed();
            self.note(shard, call, (decision, is_denied), weight);
        }
    }

    /// Counts what was decided about each of several descriptors.
    #[inline]
    pub(crate) fn decided_descriptors(
        &self,
        domain: &str,
        calls: &[DescriptorCall<'_>],
        answer: &DescriptorsAnswer,
    ) {
        let Some(decision) = answer.decision() else { return };
        let (own, shard) = self.shard();
        if let Some(weight) = shard.weight(own, answer.at()) {
            self.note_descriptors(shard, (domain, calls), (answer, decision), weight);
        }
    }

    #[cold]
    fn note_descriptors(
        &self,
        shard: &Noted,
        (domain, calls): (&str, &[DescriptorCall<'_>]),
        (answer, decision): (&DescriptorsAnswer, &DescriptorsDecision),
        weight: u64,
    ) {
        let Some(mut windows) = shard.windows.try_lock() else { return };
        let current = &mut windows.at(decision.at()).current;
        let is_denied = !decision.is_allowed() || answer.is_turned_away();
        let taking = decision.statuses().zip(calls).filter(|(_, call)| call.hits.takes());
        for (status, call) in taking.filter(|(one, _)| !is_denied || answer.is_over(one)) {
            let Some(key) = status.key() else { continue };
            let mut who = || Who {
                rule: Arc::new(RuleName {
                    domain: domain.into(),
                    rule: status.rule().map_or(GIVEN, |rule| &rule.name).into(),
                }),
                name: self.has_names().then(|| {
                    let names: Vec<_> = call.entries.iter().map(|entry| entry.name).collect();
                    named(call.entries, &names)
                }),
            };
            if is_denied {
                current.denied.add(key.as_hash(), weight, &mut who);
            }
            current.requests.add(key.as_hash(), weight, &mut who);
        }
    }

    /// Counts one decision under a limit that the call brought along: what the limit says, in shadow
    /// too. `name` is what its key was made of.
    #[inline]
    pub fn decided_given(&self, key: Key, name: &[u8], is_allowed: bool, at: Timestamp) {
        let (own, shard) = self.shard();
        if let Some(weight) = shard.weight(own, at) {
            self.note_given(shard, key, name, is_allowed, (at, weight));
        }
    }

    #[inline]
    fn shard(&self) -> (Shard, &Noted) {
        let shard = Shard::of_this_thread();
        (shard, &self.shards[shard.index])
    }

    #[cold]
    fn note(
        &self,
        shard: &Noted,
        call: &Call<'_>,
        (decision, is_denied): (&RuleDecision, bool),
        weight: u64,
    ) {
        let (Some(key), Some(rule)) = (decision.key(), decision.rule_id()) else { return };
        let Some(mut windows) = shard.windows.try_lock() else { return };
        let Windows { current, rules, .. } = windows.at(decision.at());
        let mut who = || Who {
            rule: Arc::clone(rule_name(rules, call.domain, decision, rule.number())),
            name: self
                .has_names()
                .then(|| named(call.attributes, &decision.rules().rule(rule).per)),
        };
        if is_denied {
            current.denied.add(key.as_hash(), weight, &mut who);
        }
        current.requests.add(key.as_hash(), weight, &mut who);
    }

    #[cold]
    fn note_given(
        &self,
        shard: &Noted,
        key: Key,
        name: &[u8],
        is_allowed: bool,
        (at, weight): (Timestamp, u64),
    ) {
        let Some(mut windows) = shard.windows.try_lock() else { return };
        let mut who = || Who {
            rule: Arc::new(RuleName { domain: GIVEN.into(), rule: GIVEN.into() }),
            name: self.has_names().then(|| shortened(String::from_utf8_lossy(name).into_owned())),
        };
        let current = &mut windows.at(at).current;
        if !is_allowed {
            current.denied.add(key.as_hash(), weight, &mut who);
        }
        current.requests.add(key.as_hash(), weight, &mut who);
    }

    /// The `count` keys that come first.
    pub fn ranking(&self, by: By, count: usize, now: Timestamp) -> Ranking {
        let mut keys = HashMap::<u128, (u64, Who)>::new();
        let mut error = 0;
        for shard in &self.shards {
            let mut windows = shard.windows.lock();
            let Windows { current, before, .. } = windows.at(now);
            for list in [current, before].map(|lists| match by {
                By::Denied => &lists.denied,
                By::Requests => &lists.requests,
            }) {
                error += list.error();
                for (key, count, who) in list.iter() {
                    let known = keys.entry(key).or_insert_with(|| (0, who.clone()));
                    known.0 += count;
                    known.1.name = known.1.name.take().or_else(|| who.name.clone());
                }
            }
        }
        let mut ranked: Vec<_> = keys.into_iter().collect();
        ranked.sort_unstable_by_key(|(key, (count, _))| (std::cmp::Reverse(*count), *key));
        ranked.truncate(count);
        let has_names = self.has_names();
        let keys = ranked.into_iter().map(|(key, (count, who))| Ranked {
            key: Key::from_hash(key),
            domain: who.rule.domain.to_string(),
            rule: who.rule.rule.to_string(),
            name: who.name.filter(|_| has_names).map(String::from),
            count,
        });
        let since = (window_of(now).saturating_sub(1)).saturating_mul(WINDOW.as_micros());
        Ranking { since: Timestamp::from_micros(since), error, keys: keys.collect() }
    }
}

impl Noted {
    /// For how many decisions this one is noted; `None` where it is not.
    #[inline]
    fn weight(&self, own: Shard, at: Timestamp) -> Option<u64> {
        const COUNT_BITS: u32 = 20;
        const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
        // Multiples of the golden ratio are spread evenly along any arithmetic sequence, so calls that
        // come in a regular pattern are still sampled fairly.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        // About a second. Where a copy counts more than 20 bits hold in one, it begins again.
        let second = at.as_micros() >> COUNT_BITS;
        // ORDERING: the counter stands for itself, and it need not be exact.
        let seen = own.add(&self.seen, 1);
        let mut count = seen & COUNT_MASK;
        if seen >> COUNT_BITS != second {
            self.seen.store(second << COUNT_BITS | 1, Ordering::Relaxed);
            count = 0;
        }
        if count < NOTED_FULLY {
            return Some(1);
        }
        let is_sampled = count.wrapping_mul(GOLDEN) < u64::MAX / SAMPLED;
        is_sampled.then_some(SAMPLED)
    }
}

impl Windows {
    /// The windows as they are at this time: what is too old is gone.
    fn at(&mut self, now: Timestamp) -> &mut Self {
        let number = window_of(now);
        if number > self.number {
            let last = std::mem::take(&mut self.current);
            self.before = if number == self.number + 1 { last } else { Lists::default() };
            self.number = number;
            self.rules.clear();
        }
        self
    }
}

fn window_of(at: Timestamp) -> u64 {
    at.as_micros() / WINDOW.as_micros()
}

fn rule_name<'r>(
    rules: &'r mut HashMap<(u64, usize), Arc<RuleName>>,
    domain: &str,
    decision: &RuleDecision,
    number: usize,
) -> &'r Arc<RuleName> {
    if rules.len() >= RULES_MAX {
        rules.clear();
    }
    rules.entry((decision.rules().version(), number)).or_insert_with(|| {
        let rule = decision.rule().map_or("", |rule| &rule.name);
        Arc::new(RuleName { domain: domain.into(), rule: rule.into() })
    })
}

/// The attributes that the rule counts by, as `user=42 path=/login`.
fn named(attributes: &[Attribute<'_>], per: &[impl AsRef<str>]) -> Box<str> {
    let mut text = String::new();
    for name in per.iter().map(AsRef::as_ref) {
        let found = attributes.iter().find(|one| one.name == name);
        if let Some(attribute) = found {
            let between = if text.is_empty() { "" } else { " " };
            let value = String::from_utf8_lossy(attribute.value);
            text.extend([between, name, "=", &value]);
        }
        if text.len() > NAME_BYTES_MAX {
            break;
        }
    }
    shortened(text)
}

fn shortened(mut text: String) -> Box<str> {
    text.truncate(text.floor_char_boundary(NAME_BYTES_MAX));
    text.into()
}
