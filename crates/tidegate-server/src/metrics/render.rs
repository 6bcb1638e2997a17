//! The counters, and what limiter and controls say of themselves, as text.

use std::fmt::Write as _;

use aws_lc_rs::digest::{Context, SHA256};
use tidegate::Timestamp;
use tidegate_rules::Place;
use tidegate_rules::compile::CompiledRules;
use tidegate_rules::rule::{Descriptor, Domain};

use super::families as f;
use super::latency::{BOUNDS_NS, Latency, Times};
use super::series::{NONE, SOURCES, UNKNOWN, Verdict};
use super::text::{Family, Text};
use super::{BROKEN, CLOSED, Entrance, Metrics, OPENED, RULINGS};
use crate::answer::Source;
use crate::engine::{Engine, Protocol};

/// Everything, in the order of the families.
pub(super) fn render(metrics: &Metrics, engine: &Engine) -> String {
    let mut text = Text::default();
    text.family(&f::BUILD_INFO);
    text.sample(&f::BUILD_INFO, &[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.single(&f::START_TIME, seconds(metrics.started_at));
    decisions(&mut text, metrics, engine);
    calls(&mut text, metrics);
    latency(&mut text, metrics);
    table(&mut text, metrics, engine);
    super::store::store(&mut text, metrics, engine);
    rules(&mut text, metrics, engine);
    controls(&mut text, engine);
    super::upstream::upstreams(&mut text, &metrics.upstreams.lock());
    super::certificate::certificates(&mut text, metrics.certificates.lock().as_ref());
    connections(&mut text, metrics);
    text.into_string()
}

fn decisions(text: &mut Text, metrics: &Metrics, engine: &Engine) {
    let all = metrics.series.all(&engine.limiter().rules());
    let usual = if engine.is_shared() { Source::Store } else { Source::Memory };
    text.family(&f::DECISIONS);
    for ((domain, rule), cells) in &all {
        for source in SOURCES {
            for verdict in Verdict::ALL {
                let count = cells.decisions(verdict, source);
                // A rule is decided in one place as a rule. What others never did takes no series.
                if source != usual && count == 0 {
                    continue;
                }
                let labels = [
                    ("domain", &**domain),
                    ("rule", &**rule),
                    ("verdict", verdict.as_str()),
                    ("source", source.as_str()),
                ];
                text.sample(&f::DECISIONS, &labels, count);
            }
        }
    }
    text.family(&f::SHADOW_DENIALS);
    for ((domain, rule), cells) in all.iter().filter(|((_, rule), _)| **rule != *NONE) {
        let labels = [("domain", &**domain), ("rule", &**rule)];
        text.sample(&f::SHADOW_DENIALS, &labels, cells.shadow_denials());
    }
    text.family(&f::SKIPPED);
    let domains = all.iter().filter(|((domain, rule), _)| **rule == *NONE && **domain != *UNKNOWN);
    for ((domain, _), cells) in domains {
        text.sample(&f::SKIPPED, &[("domain", domain)], cells.skipped());
    }
    let unknown = Verdict::ALL.iter().flat_map(|&verdict| {
        SOURCES.iter().map(move |&source| metrics.series.unknown.decisions(verdict, source))
    });
    text.single(&f::UNKNOWN_DOMAIN, unknown.sum::<u64>());
}

fn calls(text: &mut Text, metrics: &Metrics) {
    text.family(&f::ANSWERS);
    for protocol in Protocol::ALL {
        for (index, verdict) in ["allowed", "denied"].into_iter().enumerate() {
            let count = metrics.answers.sum(2 * protocol as usize + index);
            let labels = [("protocol", protocol.as_str()), ("verdict", verdict)];
            text.sample(&f::ANSWERS, &labels, count);
        }
    }
    text.family(&f::UNDECIDED);
    for protocol in Protocol::ALL {
        let count = metrics.undecided.sum(protocol as usize);
        text.sample(&f::UNDECIDED, &[("protocol", protocol.as_str())], count);
    }
    text.family(&f::RULINGS);
    for (index, ruling) in RULINGS.into_iter().enumerate() {
        text.sample(&f::RULINGS, &[("ruling", ruling)], metrics.rulings.sum(index));
    }
}

fn latency(text: &mut Text, metrics: &Metrics) {
    text.family(&f::LATENCY);
    for protocol in Protocol::ALL {
        let labels = [("protocol", protocol.as_str())];
        histogram(text, &f::LATENCY, &labels, &metrics.latency[protocol as usize]);
    }
}

pub(super) fn histogram(
    text: &mut Text,
    family: &Family,
    labels: &[(&'static str, &str)],
    latency: &Latency,
) {
    times(text, family, labels, &latency.times());
}

pub(super) fn times(
    text: &mut Text,
    family: &Family,
    labels: &[(&'static str, &str)],
    times: &Times,
) {
    let bounds = BOUNDS_NS.map(|ns| decimal_seconds(ns).to_string());
    let sum = decimal_seconds(times.sum_ns);
    text.histogram(family, labels, &bounds, &times.cumulative, sum);
}

fn table(text: &mut Text, metrics: &Metrics, engine: &Engine) {
    let memory = || engine.shared()?.memory_stats(engine.limiter().now());
    let stats = metrics.stats(engine).or_else(memory).unwrap_or_default();
    text.single(&f::KEYS, stats.keys);
    text.single(&f::KEYS_DROPPED, stats.dropped);
    text.single(&f::TABLE_BYTES, stats.bytes);
}

fn rules(text: &mut Text, metrics: &Metrics, engine: &Engine) {
    // ORDERING: counters stand for themselves.
    let count =
        |counter: &std::sync::atomic::AtomicU64| counter.load(std::sync::atomic::Ordering::Relaxed);
    let rules = engine.limiter().rules();
    text.single(&f::RULES, rules.rule_count());
    text.single(&f::RULES_VERSION, rules.version());
    text.single(&f::RULES_FINGERPRINT, metrics.fingerprint_of(&rules));
    text.single(&f::RULES_LOADED, seconds(metrics.rules_since(&rules)));
    text.single(&f::RELOADS, count(&metrics.reloads));
    text.single(&f::RELOAD_ERRORS, count(&metrics.reload_errors));
}

fn controls(text: &mut Text, engine: &Engine) {
    let held = engine.controls().counts(engine.limiter().now());
    text.single(&f::BANS, held.bans);
    text.single(&f::ALLOW_LIST, held.allowed);
    text.single(&f::BYPASS, u8::from(engine.controls().is_bypassed()));
    text.single(&f::SHADOW, u8::from(engine.controls().is_in_shadow()));
}

fn connections(text: &mut Text, metrics: &Metrics) {
    let sums = metrics.connections.sums();
    let mut each = |family, count: &dyn Fn(usize) -> u64| {
        text.family(family);
        for entrance in Entrance::ALL {
            let labels = [("listener", entrance.as_str())];
            text.sample(family, &labels, count(entrance as usize));
        }
    };
    // Between two reads one more may have closed than had been seen to open.
    each(&f::CONNECTIONS_OPEN, &|at| sums[OPENED + at].saturating_sub(sums[CLOSED + at]));
    each(&f::CONNECTIONS, &|at| sums[OPENED + at]);
    each(&f::PROTOCOL_ERRORS, &|at| sums[BROKEN + at]);
}

/// 48 bits of a hash of what the rules say, wherever they were read: a number that a float holds
/// exactly. It says nothing about what is in them.
pub fn fingerprint(rules: &CompiledRules) -> u64 {
    let mut hash = Hash(Context::new(&SHA256));
    for domain in rules.set().domains() {
        // A hash takes whatever is written to it.
        let _ = write!(hash, "{:?}", placeless(domain));
    }
    let digest = hash.0.finish();
    let bytes = digest.as_ref().iter().take(6);
    bytes.fold(0, |number, &byte| number << 8 | u64::from(byte))
}

struct Hash(Context);

impl std::fmt::Write for Hash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

/// The domain as if all of it stood in the same place.
fn placeless(domain: &Domain) -> Domain {
    let mut domain = domain.clone();
    for rule in &mut domain.rules {
        rule.place = Place::default();
    }
    let mut waiting: Vec<&mut Descriptor> = domain.descriptors.iter_mut().collect();
    while let Some(descriptor) = waiting.pop() {
        descriptor.place = Place::default();
        if let Some(rule) = &mut descriptor.rule {
            rule.place = Place::default();
        }
        waiting.extend(&mut descriptor.children);
    }
    domain
}

fn seconds(at: Timestamp) -> f64 {
    decimal_seconds(at.as_micros().saturating_mul(1_000))
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has no other numbers")]
fn decimal_seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
