//! The lease protocol in a simulated fleet: never over on any interleaving, and nothing lost for good.
//!
//! Everything in a world follows from its seed. A world that breaks a claim prints it:
//! `TIDEGATE_SIM_SEED=N cargo test -p tidegate-redis --test all no_world_` runs that one alone, and
//! `TIDEGATE_SIM_SEEDS` says how many are run.

use crate::leasing::model::Fault;
use crate::simulation::history::{History, What};
use crate::simulation::oracle;
use crate::simulation::plan::{Mistake, Network, Plan};
use crate::simulation::world;
use tidegate_core::fixed_window::Windows;
use tidegate_core::{
    FixedWindow, Limit, Rate, SlidingLog, SlidingSlots, SlidingWindow, Span, SteppedBucket,
    TokenBucket,
};

const SEEDS: u64 = 300;

#[test]
fn no_world_admits_more_than_its_limit_allows() {
    if let Some(seed) = number("TIDEGATE_SIM_SEED") {
        let plan = Plan::draw(seed);
        println!("{plan:#?}");
        let history = world::run(&plan);
        println!("{:?}", (&history.calls, &history.strict, &history.by_node, history.refused));
        for fact in history.facts.iter().filter(|fact| !matches!(fact.what, What::Admitted(_))) {
            println!("{fact:?}");
        }
        assert_eq!(broken(&plan, &history), None);
        return;
    }
    let (mut admitted, mut refused, mut unanswered, mut calls, mut strict) = (0, 0, 0, 0, 0);
    let (mut undone, mut refunded, mut lost, mut resets, mut set_back) = (0, 0, 0, 0, 0);
    let seeds = number("TIDEGATE_SIM_SEEDS").unwrap_or(SEEDS);
    for seed in 0..seeds {
        let plan = Plan::draw(seed);
        let history = world::run(&plan);
        if let Some(what) = broken(&plan, &history) {
            panic!("{what}\nTIDEGATE_SIM_SEED={seed} shows it\n{plan:#?}");
        }
        admitted += history.admitted();
        undone += history.undone;
        refunded += history.refunded;
        for fact in &history.facts {
            lost += u64::from(matches!(fact.what, What::Lost(_)));
            resets += u64::from(matches!(fact.what, What::Reset));
            set_back += u64::from(matches!(fact.what, What::SetBack(_)));
        }
        refused += history.refused;
        unanswered += history.unanswered;
        calls += history.calls.iter().sum::<u64>();
        strict += history.strict.iter().sum::<u64>();
    }
    println!(
        "{seeds} worlds: {admitted} admitted, {refused} refused, {unanswered} unanswered; \
         {calls} requests for leases, {strict} strict; {undone} undone by nodes, {refunded} refunded by \
         the store; {lost} losses, {resets} resets, {set_back} clocks set back"
    );
}

/// The claim that a history breaks, if it does.
fn broken(plan: &Plan, history: &History) -> Option<String> {
    if let Some(what) = oracle::overrun(plan, history) {
        return Some(format!("over: {what}"));
    }
    if let Some(what) = &history.starved {
        return Some(format!("starved: {what}"));
    }
    if let Some(what) = &history.mistold {
        return Some(format!("a look lied: {what}"));
    }
    if history.occupied_at_end + history.at_hand_at_end > 0 {
        let (leased, held) = (history.occupied_at_end, history.at_hand_at_end);
        return Some(format!("{leased} are leased and {held} at hand although all is quiet"));
    }
    None
}

/// A world in which nothing goes wrong: a limit, so many requests per second on each node, a store nearby.
fn calm(limit: impl Into<Limit>, demand: &[u64], length: u64) -> Plan {
    let delays = Network { delay_min: 50, delay_max: 250, ..Network::default() };
    Plan {
        seed: 7,
        limit: limit.into(),
        reload: None,
        start: 1_790_553_600_000_000,
        length,
        nodes: demand.len(),
        demand: demand.to_vec(),
        cost_max: 1,
        network: delays,
        crashes: 0,
        pauses: 0,
        cuts: 0,
        bursts: false,
        failovers: 0,
        clock_steps: 0,
        resets: 0,
        refunds: 0,
        direct: 0,
        peeks: 0,
        drift: 0,
        fault: None,
        mistake: None,
    }
}

fn rate(count: u64, period: Span) -> Rate {
    Rate::new(count, period).unwrap()
}

#[test]
fn a_steady_hot_key_takes_fewer_than_200_calls_a_second_on_each_node() {
    let limit = rate(200_000, Span::SECOND);
    let limits: [Limit; 3] = [
        TokenBucket::new(limit, 200_000).unwrap().into(),
        FixedWindow::new(200_000, Windows::Clock(Span::SECOND)).unwrap().into(),
        SlidingWindow::new(limit).unwrap().into(),
    ];
    for limit in limits {
        let plan = calm(limit, &[100_000, 100_000], 2_000_000);
        let history = world::run(&plan);
        assert_eq!(broken(&plan, &history), None);
        let name = plan.limit.name();
        for node in 0..2 {
            let (calls, strict) = (history.calls[node] / 2, history.strict[node] / 2);
            let admitted = history.by_node[node] / 2;
            println!("{name}: {admitted} a second in {calls} calls and {strict} strict ones");
            assert!(calls + strict < 200, "{name}: {calls} and {strict} a second");
            assert!(admitted > 90_000, "{name}: {admitted} a second");
        }
    }
}

#[test]
fn at_least_nine_tenths_of_a_limit_are_admitted_where_more_is_asked_for() {
    let (second, limit) = (Span::SECOND, rate(1_000, Span::SECOND));
    let limits: [(Limit, u64); 9] = [
        (TokenBucket::new(limit, 1_000).unwrap().into(), 1_000),
        (TokenBucket::new(limit, 50).unwrap().into(), 1_000),
        (SteppedBucket::new(rate(100, Span::from_millis(100)), 200).unwrap().into(), 1_000),
        (FixedWindow::new(1_000, Windows::Clock(second)).unwrap().into(), 1_000),
        (FixedWindow::new(50, Windows::Clock(second)).unwrap().into(), 50),
        (SlidingWindow::new(limit).unwrap().into(), 1_000),
        (SlidingSlots::new(limit, 10, None).unwrap().into(), 1_000),
        (SlidingLog::new(limit).unwrap().into(), 1_000),
        (SlidingLog::new(rate(20, second)).unwrap().into(), 20),
    ];
    for (limit, per_second) in limits {
        let plan = calm(limit, &[1_000, 600, 300], 10_000_000);
        let history = world::run(&plan);
        assert_eq!(broken(&plan, &history), None);
        let admitted: u64 = history.by_node.iter().sum();
        let (calls, strict): (u64, u64) = (history.calls.iter().sum(), history.strict.iter().sum());
        println!(
            "{:?}: {admitted} of {}, by node {:?}, {calls} calls, {strict} strict, {} unanswered",
            plan.limit,
            10 * per_second,
            history.by_node,
            history.unanswered
        );
        assert!(admitted >= 9 * per_second, "{admitted}: {plan:?}");
        assert!(history.unanswered * 100 <= admitted, "{}: {plan:?}", history.unanswered);
    }
}

#[test]
fn what_is_not_used_comes_back_to_the_last_unit() {
    let hour = FixedWindow::new(100_000, Windows::Clock(Span::HOUR)).unwrap();
    for demand in [&[400, 90, 1_000][..], &[20_000, 5_000], &[30; 6]] {
        let mut plan = calm(hour.clone(), demand, 2_000_000);
        for bursts in [false, true] {
            plan.bursts = bursts;
            let history = world::run(&plan);
            assert_eq!(broken(&plan, &history), None);
            let admitted: u64 = history.by_node.iter().sum();
            assert_eq!(history.remaining_at_end, 100_000 - admitted, "{plan:?}");
        }
    }
}

#[test]
fn no_node_starves_while_others_hold_what_they_do_not_use() {
    let (second, limit) = (Span::SECOND, rate(500, Span::SECOND));
    let limits: [Limit; 4] = [
        TokenBucket::new(limit, 500).unwrap().into(),
        FixedWindow::new(500, Windows::Clock(second)).unwrap().into(),
        SlidingWindow::new(limit).unwrap().into(),
        SlidingLog::new(limit).unwrap().into(),
    ];
    for limit in limits {
        for demand in [&[2_000, 50, 50][..], &[2_000, 2_000, 20], &[600; 6]] {
            let plan = calm(limit.clone(), demand, 10_000_000);
            let history = world::run(&plan);
            assert_eq!(broken(&plan, &history), None);
            println!("{}: {:?} of {demand:?}", plan.limit.name(), history.by_node);
            // Scarce quota goes to who asks, and everybody has some of it.
            for (admitted, demand) in history.by_node.iter().zip(demand) {
                let share = (500 / plan.nodes as u64).min(*demand) * 10;
                assert!(*admitted * 10 >= share, "{admitted} of {share}: {:?}", history.by_node);
            }
        }
    }
}

#[test]
fn a_node_that_hoards_is_found_to_starve_the_others() {
    let hour = FixedWindow::new(2_000, Windows::Clock(Span::HOUR)).unwrap();
    let calm = calm(hour, &[100, 100], 6_000_000);
    assert_eq!(broken(&calm, &world::run(&calm)), None);
    let greedy = Plan { fault: Some(Fault::GrantsAll), mistake: Some(Mistake::Hoards), ..calm };
    let starved = world::run(&greedy).starved;
    assert!(starved.is_some(), "nobody is found to starve");
}

/// In this world all of a day's quota is spent, and refused until tomorrow, when the key is reset.
#[test]
fn nodes_that_were_refused_until_tomorrow_are_told_of_a_reset() {
    let plan = Plan::draw(3_750);
    assert_eq!(broken(&plan, &world::run(&plan)), None);
}

#[test]
fn a_clock_that_is_set_back_makes_no_lease_last_longer() {
    let found = (0..300).find(|seed| {
        let plan = Plan { clock_steps: 30, crashes: 30, ..Plan::draw(*seed) };
        let history = world::run(&Plan { fault: Some(Fault::TrustsTheClock), ..plan.clone() });
        assert_eq!(broken(&plan, &world::run(&plan)), None, "{plan:#?}");
        broken(&plan, &history).is_some()
    });
    assert!(found.is_some(), "leases that last as long as a clock was set back are not found");
}

/// Each mistake, made on purpose, breaks a claim in one of these worlds.
#[test]
fn mutations_are_found() {
    let mutations = [
        (Some(Fault::ForgetsOccupied), None),
        (Some(Fault::NeverDebits), None),
        (Some(Fault::ExpiresForFree), None),
        (Some(Fault::IgnoresSequence), None),
        (Some(Fault::ExpiresEarly), None),
        (None, Some(Mistake::IgnoresDeadline)),
        (None, Some(Mistake::AcceptsStale)),
        (None, Some(Mistake::SpendsTheReturned)),
        (None, Some(Mistake::SlowClock)),
        (Some(Fault::ResetsLeases), None),
        (Some(Fault::RefundsTwice), None),
        (None, Some(Mistake::UndoesStrictTakes)),
        (None, Some(Mistake::UndoesTheTold)),
        (None, Some(Mistake::RefundsTheUndone)),
    ];
    for (fault, mistake) in mutations {
        let found = (0..1_000).find(|seed| {
            let rough = Plan { fault, mistake, ..Plan::draw(*seed).rough() };
            let hasty = rough.clone().hasty();
            let wavering = [rough.clone().wavering(), hasty.clone().wavering()];
            let reset = Plan { resets: 60, ..hasty.clone() };
            let mut plans = [rough, hasty, reset].into_iter().chain(wavering);
            plans.any(|plan| oracle::overrun(&plan, &world::run(&plan)).is_some())
        });
        println!("{fault:?}, {mistake:?}: found in world {found:?}");
        assert!(found.is_some(), "{fault:?}, {mistake:?} is not found");
    }
    for fault in [Fault::DebitsTwice, Fault::KeepsTheRest] {
        let hour = FixedWindow::new(100_000, Windows::Clock(Span::HOUR)).unwrap();
        let calm = calm(hour, &[400, 90, 1_000], 2_000_000);
        let history = world::run(&Plan { fault: Some(fault), ..calm });
        let admitted: u64 = history.by_node.iter().sum();
        assert_ne!(history.remaining_at_end, 100_000 - admitted, "{fault:?} is not found");
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}
