//! Several descriptors in one call, against a slow model and claim by claim.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::ruled::{Limiter, limiter, rules};
use proptest::prelude::*;
use tidegate::rules::{DescriptorCall, DescriptorsDecision, Hits, PerUnit, Reason, Unit};
use tidegate::{Attribute, CheckError};
use tidegate_rules::resolve::ResolveError;

const RULES: &str = "
domain: web
descriptors:
  - { key: plain, rate_limit: { name: plain, unit: minute, requests_per_unit: 3 } }
  - { key: plain, value: fast, rate_limit: { unit: minute, requests_per_unit: 9 } }
  - { key: quota, quota_mode: true, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: free, rate_limit: { unlimited: true, replaces: [ { name: plain } ] } }
  - { key: tried, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 2 } }
  - { key: never, rate_limit: { unit: minute, requests_per_unit: 0 } }
  - { key: other, rate_limit: { unit: hour, requests_per_unit: 4, replaces: [ { name: plain } ] } }
";

/// A descriptor of one entry: `key=value`.
fn entry(text: &str) -> [Attribute<'_>; 1] {
    [text.split_once('=').unwrap().into()]
}

fn check(limiter: &Limiter, texts: &[&str]) -> DescriptorsDecision {
    let hits: Vec<_> = texts.iter().map(|&text| (text, Hits::Take(1))).collect();
    check_hits(limiter, &hits)
}

fn check_hits(limiter: &Limiter, wanted: &[(&str, Hits)]) -> DescriptorsDecision {
    let entries: Vec<_> = wanted.iter().map(|(text, _)| entry(text)).collect();
    let calls: Vec<_> = (entries.iter().zip(wanted))
        .map(|(entry, &(_, hits))| DescriptorCall::new(entry).with_hits(hits))
        .collect();
    limiter.check_descriptors("web", &calls).unwrap()
}

fn over(decision: &DescriptorsDecision) -> Vec<bool> {
    decision.statuses().map(|status| status.is_over()).collect()
}

fn left(decision: &DescriptorsDecision) -> Vec<Option<u64>> {
    decision.statuses().map(|status| status.remaining()).collect()
}

#[test]
fn each_descriptor_has_its_status_in_order() {
    let (limiter, _) = limiter(RULES);
    let decision = check(&limiter, &["plain=a", "unknown=b", "plain=fast", "free=c"]);
    assert!(decision.is_allowed() && decision.is_domain_known());
    let free = decision.statuses().map(|status| status.is_unlimited()).collect::<Vec<_>>();
    assert_eq!(free, [false, false, false, true]);
    // `free` replaces what is called `plain`, and the limit of `plain=fast` has no name.
    assert_eq!(left(&decision), [None, None, Some(8), None]);
    let replaced = decision.statuses().map(|status| status.is_replaced()).collect::<Vec<_>>();
    assert_eq!(replaced, [true, false, false, false]);
}

#[test]
fn a_call_that_one_descriptor_refuses_takes_nothing_from_any() {
    let (limiter, _) = limiter(RULES);
    for _ in 0..3 {
        assert!(check(&limiter, &["plain=a"]).is_allowed());
    }
    let denied = check(&limiter, &["plain=fast", "plain=a", "tried=x", "quota=q"]);
    assert!(!denied.is_allowed());
    assert_eq!(over(&denied), [false, true, false, false]);
    assert_eq!(left(&denied), [Some(9), Some(0), Some(2), Some(2)]);
    let fine = check(&limiter, &["plain=fast", "tried=x", "quota=q"]);
    assert_eq!(left(&fine), [Some(8), Some(1), Some(1)]);
}

#[test]
fn a_denial_says_when_the_whole_call_passes() {
    let (limiter, clock) = limiter(RULES);
    for _ in 0..4 {
        let _ = check(&limiter, &["other=a"]);
    }
    for _ in 0..3 {
        let _ = check(&limiter, &["plain=a"]);
    }
    // The clock stands at 1,000,000 s: 20 s before the next minute, 800 s before the next hour.
    assert_eq!(check(&limiter, &["plain=a"]).retry_after(), Some(Duration::from_secs(20)));
    let wait = check(&limiter, &["plain=b", "other=a"]).retry_after().unwrap();
    assert_eq!(wait, Duration::from_secs(800));
    clock.advance(wait.checked_sub(Duration::from_micros(1)).unwrap());
    assert!(!check(&limiter, &["plain=b", "other=a"]).is_allowed());
    clock.advance(Duration::from_micros(1));
    assert!(check(&limiter, &["plain=b", "other=a"]).is_allowed());
    assert_eq!(check(&limiter, &["never=a", "other=a"]).retry_after(), None);
}

#[test]
fn two_descriptors_with_one_key_are_one_charge_of_both() {
    let (limiter, _) = limiter(RULES);
    assert_eq!(left(&check(&limiter, &["plain=a", "plain=a"])), [Some(1), Some(1)]);
    let denied = check(&limiter, &["plain=a", "plain=a"]);
    assert_eq!((denied.is_allowed(), over(&denied)), (false, vec![true, true]));
    assert!(check(&limiter, &["plain=a"]).is_allowed());
}

#[test]
fn hits_of_zero_look() {
    let (limiter, _) = limiter(RULES);
    let look = [("plain=a", Hits::Take(0))];
    assert_eq!(left(&check_hits(&limiter, &look)), [Some(3)]);
    let _ = check_hits(&limiter, &[("plain=a", Hits::Take(3))]);
    let looked = check_hits(&limiter, &look);
    assert_eq!((looked.is_allowed(), left(&looked)), (true, vec![Some(0)]));
    let nothing = check_hits(&limiter, &[("never=a", Hits::Take(0))]);
    assert!(nothing.is_allowed() && !nothing.statuses().next().unwrap().is_unlimited());
}

#[test]
fn hits_that_are_given_back_never_fill_above_full() {
    let (limiter, _) = limiter(RULES);
    let _ = check_hits(&limiter, &[("plain=a", Hits::Take(2)), ("tried=a", Hits::Take(2))]);
    let back = [("plain=a", Hits::GiveBack(1)), ("tried=a", Hits::GiveBack(9))];
    let decision = check_hits(&limiter, &back);
    assert!(decision.is_allowed());
    assert_eq!(left(&decision), [Some(2), Some(2)]);
    assert_eq!(left(&check_hits(&limiter, &[("plain=a", Hits::GiveBack(9))])), [Some(3)]);
    // What is given back is there for what the same call takes, and comes back even where it is denied.
    let _ = check_hits(&limiter, &[("plain=b", Hits::Take(3))]);
    let both = [("plain=b", Hits::Take(1)), ("plain=b", Hits::GiveBack(1))];
    assert!(check_hits(&limiter, &both).is_allowed());
    let denied = [("never=x", Hits::Take(1)), ("plain=b", Hits::GiveBack(1))];
    assert!(!check_hits(&limiter, &denied).is_allowed());
    assert!(check(&limiter, &["plain=b"]).is_allowed());
}

#[test]
fn a_quota_that_is_over_denies_only_where_all_of_them_are() {
    let (limiter, _) = limiter(RULES);
    for _ in 0..2 {
        assert!(check(&limiter, &["quota=a"]).is_allowed());
    }
    let one = check(&limiter, &["quota=a", "quota=b", "plain=a"]);
    assert!(one.is_allowed());
    assert_eq!(over(&one), [true, false, false]);
    assert_eq!(left(&one), [Some(0), Some(1), Some(2)], "those with room are charged");
    let _ = check(&limiter, &["quota=b"]);
    let all = check(&limiter, &["quota=a", "quota=b", "plain=a"]);
    assert!(!all.is_allowed());
    assert_eq!(over(&all), [true, true, false]);
    assert_eq!(left(&all)[2], Some(2), "a call that is denied takes nothing");
    assert_eq!(all.retry_after(), Some(Duration::from_secs(800)));
    let normal = check(&limiter, &["quota=c", "never=x"]);
    assert_eq!((normal.is_allowed(), left(&normal)[0]), (false, Some(2)));
}

#[test]
fn a_rule_in_shadow_never_denies_and_is_noted() {
    let (limiter, _) = limiter(RULES);
    for round in 0..4 {
        let decision = check(&limiter, &["tried=a", "plain=fast"]);
        assert!(decision.is_allowed());
        assert_eq!(decision.is_shadow_denied(), round >= 2);
        let status = decision.statuses().next().unwrap();
        assert_eq!((status.is_over(), status.is_shadow_denied()), (false, round >= 2));
        assert_eq!(status.per_unit(), Some(PerUnit { count: 2, unit: Unit::Minute }));
    }
}

#[test]
fn a_limit_that_the_call_brings_along_counts_apart_from_the_rules() {
    let (limiter, clock) = limiter(RULES);
    let entries = entry("plain=a");
    let with = |count, unit| {
        let call = DescriptorCall::new(&entries).with_limit(PerUnit { count, unit });
        limiter.check_descriptors("web", &[call]).unwrap()
    };
    assert!(with(1, Unit::Day).is_allowed());
    let denied = with(1, Unit::Day);
    assert!(!denied.is_allowed());
    let status = denied.statuses().next().unwrap();
    assert_eq!(status.per_unit(), Some(PerUnit { count: 1, unit: Unit::Day }));
    assert_eq!((status.limit_name(), status.rule().is_none()), (None, true));
    assert!(with(2, Unit::Day).is_allowed(), "another number meets what was spent");
    assert!(!with(2, Unit::Day).is_allowed());
    assert!(with(1, Unit::Month).is_allowed(), "another unit counts anew");
    assert_eq!(left(&check(&limiter, &["plain=a"])), [Some(2)], "the rule's own is untouched");
    let nothing = with(0, Unit::Day);
    let status = nothing.statuses().next().unwrap();
    assert_eq!((nothing.is_allowed(), status.reason()), (false, Some(Reason::Banned)));
    clock.advance(Duration::from_hours(24));
    assert!(with(1, Unit::Day).is_allowed());
}

#[test]
fn in_an_unknown_domain_everything_passes() {
    let (limiter, _) = limiter(RULES);
    let entries = entry("plain=a");
    let call = DescriptorCall::new(&entries);
    for call in [call, call.with_limit(PerUnit { count: 0, unit: Unit::Day })] {
        let decision = limiter.check_descriptors("elsewhere", &[call]).unwrap();
        assert!(decision.is_allowed() && !decision.is_domain_known());
        assert_eq!(left(&decision), [None]);
    }
}

#[test]
fn more_limits_than_one_step_decides_are_an_error_and_take_nothing() {
    let (limiter, _) = limiter(RULES);
    let values: Vec<String> = (0..17).map(|number| format!("plain={number}")).collect();
    let entries: Vec<_> = values.iter().map(|value| entry(value)).collect();
    let calls: Vec<_> = entries.iter().map(|entry| DescriptorCall::new(entry)).collect();
    let error = limiter.check_descriptors("web", &calls).unwrap_err();
    assert_eq!(error, CheckError::Resolve(ResolveError::TooManyLimits { max: 16 }));
    let sixteen = limiter.check_descriptors("web", &calls[1..]).unwrap();
    assert_eq!(left(&sixteen), [Some(2); 16]);
    assert_eq!(left(&check(&limiter, &["plain=0"])), [Some(2)]);
    // Those of one key are one.
    assert!(check(&limiter, &["plain=fast"; 9]).is_allowed());
}

const OWN: &str = "
domain: web
rules:
  - { name: user, per: [user], limit: { rate: 3/hour, algorithm: fixed-window } }
  - { name: all, match: { user: { present: true } }, limit: 5/minute }
  - { name: open, per: [user], match: { path: /stream }, limit: { at_once: 1, expires_after: 1m } }
  - { name: shaped, match: { path: /slow }, limit: { rate: 2/s, algorithm: leaky-bucket, burst: 3 } }
";

#[test]
fn own_rules_take_the_entries_of_each_descriptor_as_attributes() {
    let (limiter, _) = limiter(OWN);
    for _ in 0..3 {
        assert!(check(&limiter, &["user=ann"]).is_allowed());
    }
    let denied = check(&limiter, &["user=bob", "user=ann"]);
    assert_eq!((denied.is_allowed(), over(&denied)), (false, vec![false, true]));
    let status = denied.statuses().nth(1).unwrap();
    assert_eq!(status.limit_name(), Some("user"));
    assert_eq!(status.rule().unwrap().name, "user");
    assert_eq!(status.per_unit(), Some(PerUnit { count: 3, unit: Unit::Hour }));
    assert!(check(&limiter, &["user=bob", "user=cid"]).is_allowed());
    let all = check(&limiter, &["user=dan"]);
    assert_eq!(all.statuses().next().unwrap().limit_name(), Some("all"), "the worst of its limits");
}

#[test]
fn a_concurrency_limit_takes_no_place_and_is_listed() {
    let (limiter, _) = limiter(OWN);
    for _ in 0..3 {
        assert!(check(&limiter, &["path=/stream"]).is_allowed());
    }
    let entries = [("user", "ann").into(), ("path", "/stream").into()];
    let calls = [DescriptorCall::new(&entries)];
    for _ in 0..3 {
        assert!(limiter.check_descriptors("web", &calls).unwrap().is_allowed());
    }
    let rules = rules(OWN);
    let listed: Vec<_> = tidegate::rules::descriptors::with_concurrency(&rules)
        .map(|(domain, rule)| (domain, rule.name.as_str()))
        .collect();
    assert_eq!(listed, [("web", "open")]);
}

#[test]
fn the_longest_delay_holds_the_whole_call_back() {
    let (limiter, _) = limiter(OWN);
    assert_eq!(check(&limiter, &["path=/slow", "user=ann"]).delay(), Duration::ZERO);
    assert_eq!(check(&limiter, &["path=/slow"]).delay(), Duration::from_millis(500));
    assert_eq!(check(&limiter, &["path=/slow"]).delay(), Duration::from_secs(1));
    let denied = check(&limiter, &["path=/slow"]);
    assert_eq!((denied.is_allowed(), denied.delay()), (false, Duration::ZERO));
}

#[test]
fn what_a_call_took_is_given_back_once_and_nothing_that_it_did_not_take() {
    let (limiter, _) = limiter(RULES);
    let _ = check(&limiter, &["quota=a", "tried=a"]);
    let _ = check(&limiter, &["quota=a", "tried=a"]);
    // The quota is over and so is the rule in shadow: neither is charged, and the call passes.
    let entries = ["quota=a", "quota=b", "tried=a", "plain=a", "plain=a"].map(entry);
    let given = entry("plain=given");
    let mut calls = entries.each_ref().map(|entry| DescriptorCall::new(entry)).to_vec();
    calls.push(DescriptorCall::new(&given).with_limit(PerUnit { count: 5, unit: Unit::Hour }));
    let mut decision = limiter.check_descriptors("web", &calls).unwrap();
    assert!(decision.is_allowed());
    let taken = [Some(0), Some(1), Some(0), Some(1), Some(1), Some(4)];
    assert_eq!(left(&decision), taken);
    let back = [Some(0), Some(2), Some(0), Some(3), Some(3), Some(5)];
    for _ in 0..2 {
        limiter.refund_descriptors(&mut decision);
        assert_eq!(left(&decision), back);
    }
    let looks: Vec<_> = calls.iter().map(|call| call.with_hits(Hits::Take(0))).collect();
    assert_eq!(left(&limiter.check_descriptors("web", &looks).unwrap()), back);
}

#[test]
fn two_tiers_in_one_call_are_held_to_the_one_that_leaves_less() {
    let text = "
domain: web
rules:
  - name: user
    per: [user]
    limit: { rate: 2/hour, algorithm: fixed-window }
    tiers: { by: plan, limits: { pro: { rate: 9/hour, algorithm: fixed-window } } }
";
    let free = [("user", "ann").into()];
    let pro = [("user", "ann").into(), ("plan", "pro").into()];
    for entries in [[&pro[..], &free[..]], [&free, &pro]] {
        let (limiter, _) = limiter(text);
        let call = || limiter.check_descriptors("web", &entries.map(DescriptorCall::new)).unwrap();
        let first = call();
        assert_eq!((first.is_allowed(), left(&first)), (true, vec![Some(0), Some(0)]));
        assert!(!call().is_allowed(), "one of the two would not be let through alone");
        let alone = |entries| limiter.check_descriptors("web", &[DescriptorCall::new(entries)]);
        assert!(!alone(&free[..]).unwrap().is_allowed());
        assert!(alone(&pro[..]).unwrap().is_allowed());
    }
}

#[test]
fn no_interleaving_of_threads_takes_more_than_a_limit_or_part_of_a_call() {
    let (limiter, _) = limiter(
        "
domain: web
descriptors:
  - { key: a, rate_limit: { unit: day, requests_per_unit: 300 } }
  - { key: b, rate_limit: { unit: day, requests_per_unit: 200 } }
  - { key: c, quota_mode: true, rate_limit: { unit: day, requests_per_unit: 150 } }
",
    );
    let (ab, bc, ca) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    for (count, texts) in
                        [(&ab, ["a=1", "b=1"]), (&bc, ["c=1", "b=1"]), (&ca, ["c=1", "a=1"])]
                    {
                        let decision = check(&limiter, &texts);
                        count.fetch_add(decision.is_allowed().into(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let (ab, bc, ca) = (ab.into_inner(), bc.into_inner(), ca.into_inner());
    let looks = ["a=1", "b=1", "c=1"].map(|text| (text, Hits::Take(0)));
    let left = left(&check_hits(&limiter, &looks));
    assert_eq!(left, [Some(300 - ab - ca), Some(200 - ab - bc), Some(150 - bc - ca)]);
}

/// Counters as a person would keep them: by name, one window each.
#[derive(Default)]
struct Model {
    spent: HashMap<String, (u64, u64)>,
}

/// One descriptor of a random call.
#[derive(Clone, Debug)]
struct Wanted {
    key: &'static str,
    value: &'static str,
    hits: Hits,
    limit: Option<u32>,
}

/// What the rules say of one descriptor, written out by hand.
struct Said {
    counter: String,
    most: u64,
    period_s: u64,
    is_quota: bool,
    is_shadow: bool,
}

impl Wanted {
    fn said(&self) -> Option<Said> {
        let said = |most, period_s| Said {
            counter: format!("{}={}", self.key, self.value),
            most,
            period_s,
            is_quota: self.key == "quota",
            is_shadow: self.key == "tried",
        };
        if let Some(most) = self.limit {
            let counter = format!("given {}={}", self.key, self.value);
            let plain = said(most.into(), 60);
            return Some(Said { counter, is_quota: false, is_shadow: false, ..plain });
        }
        Some(match (self.key, self.value) {
            ("plain", "fast") => said(9, 60),
            ("plain", _) => said(3, 60),
            ("quota", _) => said(2, 3_600),
            ("tried", _) => said(2, 60),
            ("never", _) => said(0, 60),
            ("other", _) => said(4, 3_600),
            _ => return None,
        })
    }

    fn is_replaced(&self, call: &[Self]) -> bool {
        let replaces =
            |other: &Self| other.limit.is_none() && matches!(other.key, "free" | "other");
        let is_named = self.limit.is_none() && self.key == "plain" && self.value != "fast";
        is_named && call.iter().any(replaces)
    }
}

/// What the rules say of each descriptor of a call, without what others replace.
fn said_of(call: &[Wanted]) -> Vec<Option<Said>> {
    let mut said: Vec<Option<Said>> =
        call.iter().map(|one| one.said().filter(|_| !one.is_replaced(call))).collect();
    // Of two numbers for one key the smaller one holds.
    let mut smallest: HashMap<String, u64> = HashMap::new();
    for (said, one) in said.iter().zip(call) {
        if let (Some(said @ Said { most: 1.., .. }), Hits::Take(_)) = (said, one.hits) {
            let most = smallest.entry(said.counter.clone()).or_insert(said.most);
            *most = said.most.min(*most);
        }
    }
    for (said, one) in said.iter_mut().zip(call) {
        if let (Some(said @ Said { most: 1.., .. }), Hits::Take(_)) = (said, one.hits) {
            said.most = smallest[&said.counter];
        }
    }
    said
}

impl Model {
    fn spent(&mut self, said: &Said, now_s: u64) -> &mut u64 {
        let window = now_s / said.period_s;
        let (since, spent) = self.spent.entry(said.counter.clone()).or_default();
        if *since != window {
            (*since, *spent) = (window, 0);
        }
        spent
    }

    /// Whether the call passes, and for each descriptor whether it is over and what is left.
    fn check(&mut self, call: &[Wanted], now_s: u64) -> (bool, Vec<(bool, Option<u64>)>) {
        let said = said_of(call);
        let mut statuses = vec![(false, None); call.len()];
        let left =
            |said: &Said, spent: u64| (said.most > 0).then(|| said.most.saturating_sub(spent));
        let mut wanted: HashMap<&str, u64> = HashMap::new();
        for (at, (said, one)) in said.iter().zip(call).enumerate() {
            let Some(said) = said else { continue };
            match one.hits {
                _ if said.most == 0 => {}
                Hits::GiveBack(hits) => {
                    let spent = self.spent(said, now_s);
                    *spent = spent.saturating_sub(hits);
                    statuses[at].1 = left(said, *spent);
                }
                Hits::Take(hits) if !said.is_shadow => {
                    *wanted.entry(&said.counter).or_default() += hits;
                }
                Hits::Take(_) => {}
            }
        }
        let (mut is_denied, mut quotas, mut quotas_over) = (false, 0, 0);
        for (at, (said, one)) in said.iter().zip(call).enumerate() {
            let Some(said) = said else { continue };
            if let Hits::Take(hits) = one.hits
                && !said.is_shadow
            {
                // Where nothing is given to anyone, nothing is counted, and each asks for itself.
                statuses[at].0 = match said.most {
                    0 => hits > 0,
                    most => *self.spent(said, now_s) + wanted[&*said.counter] > most,
                };
            }
            is_denied |= statuses[at].0 && !said.is_quota;
            quotas += usize::from(said.is_quota);
            quotas_over += usize::from(statuses[at].0 && said.is_quota);
        }
        is_denied |= quotas > 0 && quotas == quotas_over;
        for (at, (said, one)) in said.iter().zip(call).enumerate() {
            let (Some(said @ Said { most: 1.., .. }), Hits::Take(hits)) = (said, one.hits) else {
                continue;
            };
            let spent = self.spent(said, now_s);
            let fits = if said.is_shadow { *spent + hits <= said.most } else { !statuses[at].0 };
            if !is_denied && fits {
                *spent += hits;
            }
            if said.is_shadow {
                statuses[at].1 = left(said, *spent);
            }
        }
        for (at, (said, one)) in said.iter().zip(call).enumerate() {
            let (Some(said), Hits::Take(_)) = (said, one.hits) else { continue };
            if !said.is_shadow {
                statuses[at].1 = left(said, *self.spent(said, now_s));
            }
        }
        (!is_denied, statuses)
    }
}

fn wanted() -> impl Strategy<Value = Wanted> {
    const KEYS: &[&str] =
        &["plain", "plain", "quota", "quota", "free", "tried", "never", "other", "unknown"];
    let hits = prop_oneof![
        6 => (0_u64..4).prop_map(Hits::Take),
        1 => (0_u64..4).prop_map(Hits::GiveBack),
    ];
    let limit = prop_oneof![6 => Just(None), 1 => (0_u32..3).prop_map(Some)];
    let value = prop::sample::select(&["a", "b", "fast"][..]);
    (prop::sample::select(KEYS), value, hits, limit).prop_map(|(key, value, hits, limit)| Wanted {
        key,
        value,
        hits,
        limit,
    })
}

proptest! {
    #[test]
    fn every_call_is_answered_as_the_slow_model_answers_it(
        calls in prop::collection::vec((prop::collection::vec(wanted(), 1..5), 0_u64..40), 1..40),
    ) {
        let (limiter, clock) = limiter(RULES);
        let mut model = Model::default();
        let mut now_s = 1_000_000;
        for (call, wait_s) in &calls {
            let entries: Vec<_> =
                call.iter().map(|one| [Attribute::from((one.key, one.value))]).collect();
            let descriptors: Vec<_> = entries.iter().zip(call).map(|(entry, one)| {
                let plain = DescriptorCall::new(entry).with_hits(one.hits);
                one.limit.map_or(plain, |count| {
                    plain.with_limit(PerUnit { count, unit: Unit::Minute })
                })
            }).collect();
            let decision = limiter.check_descriptors("web", &descriptors).unwrap();
            let (is_allowed, statuses) = model.check(call, now_s);
            let answered: Vec<_> =
                decision.statuses().map(|one| (one.is_over(), one.remaining())).collect();
            prop_assert_eq!(decision.is_allowed(), is_allowed, "{:?}", call);
            prop_assert_eq!(answered, statuses, "{:?}", call);
            clock.advance(Duration::from_secs(*wait_s));
            now_s += wait_s;
        }
    }
}
