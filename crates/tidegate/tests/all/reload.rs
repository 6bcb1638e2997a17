//! Other rules while the limiter runs: what was spent stays spent, and no call waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tidegate::{Attribute, Call, ManualClock, RuleLimiter, RuleSet};
use tidegate_rules::{ParseOptions, Source};

type Limiter = RuleLimiter<ManualClock>;

fn rules(limit: &str) -> RuleSet {
    named("r", limit)
}

fn named(name: &str, limit: &str) -> RuleSet {
    let text =
        format!("{{ domain: api, rules: [ {{ name: {name}, per: [user], limit: {limit:?} }} ] }}");
    let parsed = RuleSet::parse(&[Source::new("test.yaml", text)], &ParseOptions::default());
    parsed.unwrap_or_else(|report| panic!("{report}")).rules
}

fn limiter(limit: &str) -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    clock.advance(Duration::from_secs(1_000_000));
    (RuleLimiter::builder(rules(limit)).clock(clock.clone()).build().unwrap(), clock)
}

const ANN: [Attribute<'static>; 1] = [Attribute { name: "user", value: b"ann" }];

fn take(limiter: &Limiter, cost: u64) -> bool {
    limiter.check(&Call::new("api", &ANN).with_cost(cost)).unwrap().is_allowed()
}

fn left(limiter: &Limiter) -> u64 {
    limiter.peek(&Call::new("api", &ANN).with_cost(0)).unwrap().remaining().unwrap()
}

#[test]
fn a_changed_maximum_meets_what_was_spent_already() {
    for (before, after, remaining) in [
        ("10/minute", "20/minute", 14),
        ("20/minute", "10/minute", 4),
        ("10/minute fixed-window", "20/minute fixed-window", 14),
        ("20/minute fixed-window", "10/minute fixed-window", 4),
        ("10/minute sliding-log", "20/minute sliding-log", 14),
        ("10/minute burst 20", "20/minute burst 20", 14),
        ("20/minute burst 10", "20/minute burst 30", 24),
        ("100/minute burst 10", "1/minute burst 10", 4),
        ("10/minute leaky-bucket burst 20", "60/minute leaky-bucket burst 20", 14),
    ] {
        let (limiter, _) = limiter(before);
        assert!(take(&limiter, 6), "{before}");
        limiter.reload(rules(after)).unwrap();
        assert_eq!(left(&limiter), remaining, "{before} -> {after}");
    }
}

#[test]
fn a_spent_bucket_stays_spent_whatever_becomes_of_its_rate() {
    let (limiter, clock) = limiter("100/minute burst 100");
    assert!(take(&limiter, 100));
    limiter.reload(rules("10/minute burst 100")).unwrap();
    assert!(!take(&limiter, 1));
    clock.advance(Duration::from_secs(6));
    assert!(take(&limiter, 1) && !take(&limiter, 1));
}

#[test]
fn a_debt_is_carried_over_too() {
    let (limiter, clock) = limiter("60/minute burst 10");
    let _ = limiter.debit(&Call::new("api", &ANN).with_cost(70)).unwrap();
    limiter.reload(rules("120/minute burst 10")).unwrap();
    // From when the key comes up, the debt of 60 is paid at the new rate.
    assert!(!take(&limiter, 1));
    clock.advance(Duration::from_micros(30_499_999));
    assert!(!take(&limiter, 1));
    clock.advance(Duration::from_micros(1));
    assert!(take(&limiter, 1));
}

#[test]
fn going_there_and_back_gives_nothing_away() {
    let (limiter, _) = limiter("100/minute burst 50");
    let mut admitted = 0;
    for limit in ["10/minute burst 50", "100/minute burst 50", "7/minute burst 50"].repeat(5) {
        for _ in 0..9 {
            admitted += u64::from(take(&limiter, 1));
        }
        limiter.reload(rules(limit)).unwrap();
    }
    assert_eq!(admitted, 50);
    assert!(!take(&limiter, 1));
}

#[test]
fn a_key_that_did_not_come_up_between_two_reloads_is_carried_over_all_the_same() {
    let (limiter, _) = limiter("100/minute burst 50");
    assert!(take(&limiter, 50));
    limiter.reload(rules("10/minute burst 50")).unwrap();
    limiter.reload(rules("20/minute burst 50")).unwrap();
    limiter.reload(rules("30/minute burst 50")).unwrap();
    assert!(!take(&limiter, 1));
}

#[test]
fn another_name_algorithm_or_period_counts_anew() {
    for after in [named("other", "2/minute"), rules("2/hour"), rules("2/minute sliding-log")] {
        let (limiter, _) = limiter("2/minute");
        assert!(take(&limiter, 2) && !take(&limiter, 1));
        limiter.reload(after).unwrap();
        assert_eq!(left(&limiter), 2);
    }
}

#[test]
fn rules_that_need_more_memory_than_there_is_are_refused_and_the_old_ones_stay() {
    let clock = ManualClock::new();
    let limiter = RuleLimiter::builder(rules("2/minute")).memory_bytes(2 << 20).clock(clock);
    let limiter = limiter.build().unwrap();
    let error = limiter.reload(rules("1000000/hour sliding-log")).unwrap_err().to_string();
    assert!(error.contains("`r`") && error.contains("1000000/hour sliding-log"), "{error}");
    assert_eq!(left(&limiter), 2);
}

#[test]
fn no_call_is_lost_or_gained_while_rules_are_exchanged_under_load() {
    const BURST: u64 = 40_000;
    let (limiter, _) = limiter(&format!("1/day burst {BURST}"));
    let (admitted, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    admitted.fetch_add(u64::from(take(&limiter, 1)), Ordering::Relaxed);
                }
            });
        }
        // The burst stays and the rate changes, which is the case that has to be carried over.
        for round in 1..=200 {
            let limit = format!("{}/day burst {BURST}", 1 + round % 7);
            limiter.reload(rules(&limit)).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    while take(&limiter, 1) {
        admitted.fetch_add(1, Ordering::Relaxed);
    }
    // A call that began before an exchange may be charged to the rules before it, and is carried
    // over when the key comes up next: at most one for each thread and each exchange.
    let admitted = admitted.load(Ordering::Relaxed);
    assert!(admitted >= BURST, "{admitted}");
    assert!(admitted <= BURST + 2 * 200, "{admitted}");
}

#[test]
fn every_call_that_was_admitted_while_rules_were_exchanged_is_charged_in_the_end() {
    const BURST: u64 = 1 << 40;
    for round in 0..20 {
        let (limiter, _) = limiter(&format!("1/s burst {BURST}"));
        let (admitted, done) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        admitted.fetch_add(u64::from(take(&limiter, 1)), Ordering::Relaxed);
                    }
                });
            }
            for count in 2..10 {
                limiter.reload(rules(&format!("{count}/s burst {BURST}"))).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(left(&limiter), BURST - admitted.load(Ordering::Relaxed), "round {round}");
    }
}

#[test]
fn what_was_reserved_before_a_reload_is_given_back_after_it() {
    let (limiter, _) = limiter("10/hour burst 10");
    let call = Call::new("api", &ANN).with_cost(5);
    let decision = limiter.check(&call).unwrap();
    limiter.reload(rules("10/hour burst 6")).unwrap();
    assert_eq!(left(&limiter), 1);
    limiter.refund(decision);
    assert_eq!(left(&limiter), 6);
}

#[test]
fn lowered_numbers_lock_nobody_out() {
    let (limiter, clock) = limiter("10000/hour burst 5000");
    assert!(take(&limiter, 5000));
    limiter.reload(rules("10/hour burst 10")).unwrap();
    assert!(!take(&limiter, 1));
    clock.advance(Duration::from_mins(6));
    assert!(take(&limiter, 1));
}

#[test]
fn a_smaller_burst_for_a_while_gives_nothing_back() {
    let (limiter, _) = limiter("10/hour burst 50");
    assert!(take(&limiter, 50));
    limiter.reload(rules("10/hour burst 8")).unwrap();
    assert!(!take(&limiter, 1));
    limiter.reload(rules("10/hour burst 50")).unwrap();
    assert!(!take(&limiter, 1));
}

proptest! {
    /// Whatever the buckets before and after, what is left is what the new burst leaves of what was
    /// spent, give or take nothing.
    #[test]
    fn a_reload_keeps_what_was_spent_of_any_bucket(
        (count, burst, spent) in (1_u64..500, 1_u64..500).prop_flat_map(|(count, burst)| {
            (Just(count), Just(burst), 0..=burst)
        }),
        (next_count, next_burst) in (1_u64..500, 1_u64..500),
    ) {
        let (limiter, _) = limiter(&format!("{count}/hour burst {burst}"));
        prop_assert!(take(&limiter, spent));
        limiter.reload(rules(&format!("{next_count}/hour burst {next_burst}"))).unwrap();
        prop_assert_eq!(left(&limiter), next_burst.saturating_sub(spent));
    }
}
