//! The figures of a run, and those that Tidegate has to reach. Ratios compare within one run, by
//! the best rounds; the medians are beside them. Where servers are started anew, by the mean of all starts.

use crate::contenders::{Contender, arithmetic, governor, limitador, throttlecrab, tidegate};
use crate::footprint::Footprint;
use crate::harness::Timing;
use crate::workloads::{Order, Shape, Threads};

/// One line of the JSON file.
#[expect(clippy::struct_field_names, reason = "the names of the JSON file")]
pub(crate) struct Figure {
    pub(crate) figure: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) peer: Option<&'static str>,
    pub(crate) target: Option<Target>,
}

/// What a figure must be.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Target {
    pub(crate) fn number(self) -> f64 {
        match self {
            Self::AtLeast(number) | Self::AtMost(number) | Self::Below(number) => number,
        }
    }

    pub(crate) fn met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(number) => value >= number,
            Self::AtMost(number) => value <= number,
            Self::Below(number) => value < number,
        }
    }
}

const OURS: &str = <tidegate::Text as Contender>::NAME;
const OURS_BYTES: &str = <tidegate::Bytes as Contender>::NAME;
const OURS_BATCHED: &str = <tidegate::Batches<16> as Contender>::NAME;
const GOVERNOR: &str = <governor::Governor<String> as Contender>::NAME;
const GOVERNOR_BYTES: &str = <governor::Governor<[u8; 16]> as Contender>::NAME;
const THROTTLECRAB: &str = <throttlecrab::Throttlecrab as Contender>::NAME;
const LIMITADOR: &str = <limitador::Limitador as Contender>::NAME;
const ARITHMETIC: &str = <arithmetic::Arithmetic as Contender>::NAME;

/// Who is compared with whom.
const PAIRS: &[(&str, &str)] = &[
    (OURS, GOVERNOR),
    (OURS, THROTTLECRAB),
    (OURS, LIMITADOR),
    (OURS_BYTES, GOVERNOR_BYTES),
    (OURS_BATCHED, GOVERNOR),
    (OURS_BATCHED, GOVERNOR_BYTES),
    (OURS_BATCHED, THROTTLECRAB),
    (OURS_BATCHED, LIMITADOR),
];

/// How many times as fast `ours` has to be as `peer`, where that is asked.
fn ratio_target(workload: Shape, ours: &str, peer: &str) -> Option<Target> {
    let times = match (workload.order, workload.threads, ours, peer) {
        (_, _, OURS, THROTTLECRAB | LIMITADOR) => 4.0,
        (Order::Hot, Threads::One, OURS, GOVERNOR) => 2.0,
        (Order::Uniform { millions: 1 }, Threads::One, OURS, GOVERNOR) => 3.0,
        (Order::Uniform { millions: 1 }, Threads::One, OURS_BYTES, GOVERNOR_BYTES) => 1.5,
        (Order::Uniform { millions: 1 }, Threads::One, OURS_BATCHED, GOVERNOR) => 6.0,
        _ => return None,
    };
    Some(Target::AtLeast(times))
}

/// The most bytes that a key may take under one of our algorithms, at a million keys (logs: fewer).
fn bytes_target(footprint: &Footprint) -> Option<Target> {
    use tidegate::Algorithm as A;
    let bytes = match A::named(footprint.subject)? {
        A::TokenBucket | A::FixedWindow | A::SlidingWindow if footprint.keys == 1_000_000 => 24.0,
        A::SlidingSlots if footprint.keys == 1_000_000 => 300.0,
        A::SlidingLog => 2500.0,
        _ => return None,
    };
    Some(Target::AtMost(bytes))
}

/// Every figure of the run: times, ratios, scaling, memory.
pub(crate) fn figures(timings: &[Timing], footprints: &[Footprint]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for timing in timings {
        let peer = (!timing.contender.starts_with("tidegate")).then_some(timing.contender);
        let name = format!("{}: {}", timing.workload.name(), timing.contender);
        for (which, value) in [("best", timing.best_ns()), ("median", timing.median_ns())] {
            let figure = format!("{name}, {which}");
            figures.push(Figure { figure, value, unit: "ns per decision", peer, target: None });
        }
    }
    let mut workloads: Vec<Shape> = timings.iter().map(|timing| timing.workload).collect();
    workloads.dedup();
    for &workload in &workloads {
        ratios(workload, timings, &mut figures);
    }
    for &workload in &workloads {
        scaling(workload, timings, &mut figures);
    }
    for footprint in footprints {
        memory(footprint, &mut figures);
    }
    figures
}

fn ratios(workload: Shape, timings: &[Timing], figures: &mut Vec<Figure>) {
    for &(ours, peer) in PAIRS {
        let (Some(our), Some(their)) =
            (find(timings, workload, ours), find(timings, workload, peer))
        else {
            continue;
        };
        let mut push = |which, value, target| {
            let figure = format!("{}: {ours}{which}", workload.name());
            let (unit, peer) = ("times as fast", Some(peer));
            figures.push(Figure { figure, value, unit, peer, target });
        };
        let target = ratio_target(workload, ours, peer);
        push("", their.best_ns() / our.best_ns(), target);
        push(" (by medians)", their.median_ns() / our.median_ns(), None);
    }
}

/// Two threads on distinct keys against one thread on all of them.
fn scaling(workload: Shape, timings: &[Timing], figures: &mut Vec<Figure>) {
    let alone = Shape { threads: Threads::One, ..workload };
    let contenders = [
        ARITHMETIC,
        OURS,
        OURS_BYTES,
        OURS_BATCHED,
        GOVERNOR,
        GOVERNOR_BYTES,
        THROTTLECRAB,
        LIMITADOR,
    ];
    if workload.threads != Threads::TwoDistinct {
        return;
    }
    for contender in contenders {
        if let (Some(one), Some(two)) =
            (find(timings, alone, contender), find(timings, workload, contender))
        {
            let ours = contender == OURS;
            figures.push(Figure {
                figure: format!("{} against 1 thread: {contender}", workload.name()),
                value: one.best_ns() / two.best_ns(),
                unit: "times the throughput",
                peer: (!contender.starts_with("tidegate")).then_some(contender),
                target: ours.then_some(Target::AtLeast(1.8)),
            });
        }
    }
}

fn memory(footprint: &Footprint, figures: &mut Vec<Figure>) {
    let ours = tidegate::Algorithm::named(footprint.subject).is_some();
    let peer = (!ours).then_some(footprint.subject);
    let name = format!("{}, {} keys", footprint.subject, footprint.keys);
    let target = bytes_target(footprint);
    figures.push(Figure {
        figure: format!("memory: {name}"),
        value: footprint.bytes_per_key,
        unit: "bytes per key",
        peer,
        target,
    });
    if ours {
        figures.push(Figure {
            figure: format!("live keys dropped: {name}"),
            value: footprint.dropped,
            unit: "of all keys",
            peer,
            target: target.map(|_| Target::Below(1e-4)),
        });
    }
}

fn find<'a>(timings: &'a [Timing], workload: Shape, contender: &str) -> Option<&'a Timing> {
    timings.iter().find(|timing| timing.workload == workload && timing.contender == contender)
}

/// The times of `contender` over ours, best round against best round, for the tables.
pub(crate) fn times_as_fast(timings: &[Timing], timing: &Timing) -> Option<f64> {
    let ours = find(timings, timing.workload, OURS)?;
    Some(timing.best_ns() / ours.best_ns())
}
