//! Who is asked what: several servers in turn, round by round, so that whatever else the machine does
//! hits all of them alike; and the figures that follow.

use std::error::Error;

use super::Effort;
use super::load::{Asks, Driver, Pressure, Sample};
use super::server::processor_seconds;
use crate::targets::{Figure, Target};

/// One workload and the servers that are compared on it, ours first.
pub(crate) struct Scenario {
    name: String,
    connections: u32,
    pipeline: u32,
    /// Of an open loop.
    rate: Option<f64>,
    is_sharing: bool,
    entrants: Vec<Entrant>,
    /// Which of them begins each round.
    first: usize,
}

/// One server in a scenario.
pub(crate) struct Entrant {
    pub(crate) name: &'static str,
    pub(crate) process: u32,
    pub(crate) asks: Asks,
    /// What ours has to be, against this one.
    pub(crate) target: Option<Target>,
}

impl Scenario {
    /// As fast as answers come.
    pub(crate) fn closed(
        name: &str,
        connections: u32,
        pipeline: u32,
        entrants: Vec<Entrant>,
    ) -> Self {
        let (name, rate, is_sharing) = (name.to_owned(), None, false);
        Self { name, connections, pipeline, rate, is_sharing, entrants, first: 0 }
    }

    /// At fixed times.
    pub(crate) fn open(name: String, rate: f64, entrants: Vec<Entrant>) -> Self {
        let (connections, pipeline) = (16, 1);
        let (rate, is_sharing) = (Some(rate), false);
        Self { name, connections, pipeline, rate, is_sharing, entrants, first: 0 }
    }

    /// Has the load sleep where it waits: something that the servers need runs on its core.
    pub(crate) fn sharing_the_core_of_load(mut self) -> Self {
        self.is_sharing = true;
        self
    }

    /// Has another one begin, so that over several starts nobody is asked always after the same time.
    pub(crate) fn turned_by(mut self, turn: usize) -> Self {
        self.first = turn % self.entrants.len();
        self
    }

    /// The first round warms up and is not kept.
    pub(crate) fn run(self, driver: &Driver, effort: Effort) -> Result<Tried, Box<dyn Error>> {
        /// What is expected of a server that was not measured yet.
        const RATE_FIRST: f64 = 100_000.0;
        let pressure = Pressure {
            connections: self.connections,
            pipeline: self.pipeline,
            rate: self.rate,
            seconds: effort.seconds,
            is_sharing: self.is_sharing,
        };
        let mut results: Vec<Samples> = self.entrants.iter().map(Samples::new).collect();
        let mut expected = vec![RATE_FIRST; self.entrants.len()];
        for round in 0..=effort.rounds {
            eprintln!("  {}: round {round} of {}", self.name, effort.rounds);
            let all = 0..self.entrants.len();
            for turn in all.clone().cycle().skip(self.first).take(all.len()) {
                let entrant = &self.entrants[turn];
                let (samples, expected) = (&mut results[turn], &mut expected[turn]);
                let before = processor_seconds(entrant.process);
                let sample = driver.sample(&entrant.asks, pressure, *expected)?;
                let busy = processor_seconds(entrant.process)
                    .zip(before)
                    .map(|(now, before)| now - before);
                *expected = sample.per_second;
                if round > 0 {
                    samples.rounds.push(sample);
                    samples.busy_seconds += busy.unwrap_or(0.0);
                    // What the load takes to begin is no time in which the server could be busy.
                    samples.seconds += sample.answers / sample.per_second;
                    samples.requests += sample.answers;
                }
            }
        }
        for samples in &mut results {
            samples.starts.push(samples.requests / samples.seconds);
        }
        Ok(Tried { name: self.name, results })
    }
}

/// A scenario with its measurements, ours first.
pub(crate) struct Tried {
    name: String,
    results: Vec<Samples>,
}

struct Samples {
    name: &'static str,
    target: Option<Target>,
    /// Whether its requests are denied: it does less for each.
    denies: bool,
    rounds: Vec<Sample>,
    /// Processor time of the server, all the time, and how many requests were answered in it.
    busy_seconds: f64,
    seconds: f64,
    requests: f64,
    /// Requests per second of each time that it was started, by all rounds of that time.
    starts: Vec<f64>,
}

/// Who it is, unless it is ours.
fn peer(samples: &Samples) -> Option<&'static str> {
    (!samples.name.starts_with("tidegate")).then_some(samples.name)
}

impl Samples {
    fn new(entrant: &Entrant) -> Self {
        let (name, target) = (entrant.name, entrant.target);
        let [busy_seconds, seconds, requests] = [0.0; 3];
        let denies = matches!(entrant.asks, Asks::ToBeDenied(_));
        let (rounds, starts) = (Vec::new(), Vec::new());
        Self { name, target, denies, rounds, busy_seconds, seconds, requests, starts }
    }

    /// Ascending.
    fn sorted(&self, value: impl Fn(&Sample) -> f64) -> Vec<f64> {
        let mut values: Vec<f64> = self.rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    /// The most and the median: noise only ever takes away.
    fn rates(&self) -> [f64; 2] {
        let rates = self.sorted(|sample| sample.per_second);
        [rates.last().copied().unwrap_or(f64::NAN), median(&rates)]
    }

    /// The least and the median: noise only ever adds.
    fn tails_us(&self) -> [f64; 2] {
        let tails = self.sorted(|sample| sample.p999_us);
        [tails.first().copied().unwrap_or(f64::NAN), median(&tails)]
    }
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The mean of some values, and how far off it is likely to be; nobody knows that of a single one.
fn mean_and_standard_error(values: &[f64]) -> (f64, f64) {
    #[expect(clippy::cast_precision_loss, reason = "some dozens")]
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0) / count).sqrt())
}

const OURS: usize = 0;

impl Tried {
    /// The same scenario measured again, with servers that were started anew: where a program comes to lie in memory makes
    /// it faster or slower by some hundredths for as long as it runs. [`ratio_of_starts`](Self::ratio_of_starts) compares.
    pub(crate) fn and(mut self, other: Self) -> Self {
        for (samples, more) in self.results.iter_mut().zip(other.results) {
            samples.rounds.extend(more.rounds);
            samples.busy_seconds += more.busy_seconds;
            samples.seconds += more.seconds;
            samples.requests += more.requests;
            samples.starts.extend(more.starts);
        }
        self
    }

    /// Requests per second, and ours over each other's; and what a request took of the processor,
    /// which the load cannot distort.
    pub(crate) fn throughput(&self) -> Vec<Figure> {
        let mut figures =
            self.compared("requests per second", "times the requests", Samples::rates);
        figures.extend(self.processor_times());
        figures
    }

    /// The same without comparisons.
    pub(crate) fn rates(&self) -> Vec<Figure> {
        let mut figures = self.listed("requests per second", Samples::rates);
        figures.extend(self.processor_times());
        figures
    }

    fn processor_times(&self) -> impl Iterator<Item = Figure> {
        self.results.iter().map(|samples| Figure {
            figure: format!("{}: {}, processor time", self.name, samples.name),
            value: samples.busy_seconds / samples.requests * 1e6,
            unit: "us per request",
            peer: peer(samples),
            target: None,
        })
    }

    /// The 99.9th percentile, and ours over each other's.
    pub(crate) fn latency(&self) -> Vec<Figure> {
        self.compared("us, 99.9th percentile", "times the 99.9th percentile", Samples::tails_us)
    }

    /// The median of all requests in the best round and in the median one, without comparisons.
    pub(crate) fn typical_latency(&self) -> Vec<Figure> {
        let of = |samples: &Samples| {
            let medians = samples.sorted(|sample| sample.p50_us);
            [("best", medians.first().copied().unwrap_or(f64::NAN)), ("median", median(&medians))]
        };
        let figures = self.results.iter().flat_map(|samples| {
            of(samples).map(|(which, value)| Figure {
                figure: format!("{}: {}, {which}", self.name, samples.name),
                value,
                unit: "us, half of the requests",
                peer: peer(samples),
                target: None,
            })
        });
        figures.collect()
    }

    /// The best and the median of each.
    fn listed(
        &self,
        unit: &'static str,
        best_and_median: impl Fn(&Samples) -> [f64; 2],
    ) -> Vec<Figure> {
        let mut figures = Vec::new();
        for samples in &self.results {
            for (which, value) in ["best", "median"].into_iter().zip(best_and_median(samples)) {
                let figure = format!("{}: {}, {which}", self.name, samples.name);
                figures.push(Figure { figure, value, unit, peer: peer(samples), target: None });
            }
        }
        figures
    }

    fn compared(
        &self,
        unit: &'static str,
        ratio_unit: &'static str,
        best_and_median: impl Fn(&Samples) -> [f64; 2],
    ) -> Vec<Figure> {
        let mut figures = self.listed(unit, &best_and_median);
        let ours = best_and_median(&self.results[OURS]);
        let denies = self.results[OURS].denies;
        let is_like = |samples: &&Samples| peer(samples).is_some() && samples.denies == denies;
        for samples in self.results.iter().filter(is_like) {
            let theirs = best_and_median(samples);
            let targets = [samples.target, None];
            for (((which, ours), theirs), target) in
                ["", " (by medians)"].into_iter().zip(ours).zip(theirs).zip(targets)
            {
                let figure = format!("{}: tidegate to {}{which}", self.name, samples.name);
                let (value, peer) = (ours / theirs, peer(samples));
                figures.push(Figure { figure, value, unit: ratio_unit, peer, target });
            }
        }
        figures
    }

    fn pair(&self, (one, other): (&str, &str)) -> Option<(&Samples, &Samples)> {
        let of = |name: &str| self.results.iter().find(|samples| samples.name == name);
        of(one).zip(of(other))
    }

    /// One server's requests over another's: by the best rounds, which is held to the target, and by medians.
    pub(crate) fn ratio(
        &self,
        name: &str,
        pair: (&str, &str),
        target: Option<Target>,
    ) -> Vec<Figure> {
        let Some((one, other)) = self.pair(pair) else { return Vec::new() };
        let targets = [("", target), (" (by medians)", None)];
        let rates = one.rates().into_iter().zip(other.rates());
        let figures = rates.zip(targets).map(|((one_rate, other_rate), (which, target))| Figure {
            figure: format!("{}: {name}{which}", self.name),
            value: one_rate / other_rate,
            unit: "times the requests",
            peer: peer(other).or(peer(one)),
            target,
        });
        figures.collect()
    }

    /// One server's requests over another's in each start, and the geometric mean of all starts, which is held to the
    /// target: the best round of many is a matter of luck where the two differ by less than one start from the next. Beside
    /// it how far from what it would be of endless starts it may well be: two standard errors.
    pub(crate) fn ratio_of_starts(
        &self,
        name: &str,
        pair: (&str, &str),
        target: Option<Target>,
    ) -> Vec<Figure> {
        let Some((one, other)) = self.pair(pair) else { return Vec::new() };
        let logarithms =
            one.starts.iter().zip(&other.starts).map(|(one, other)| (one / other).ln());
        let (mean, error) = mean_and_standard_error(&logarithms.collect::<Vec<_>>());
        let figure = |which, value, target| Figure {
            figure: format!("{}: {name}{which}", self.name),
            value,
            unit: "times the requests",
            peer: peer(other).or(peer(one)),
            target,
        };
        let spread = mean.exp() * (2.0 * error).exp_m1();
        vec![figure("", mean.exp(), target), figure(" (two standard errors)", spread, None)]
    }

    pub(crate) fn best_rate_of(&self, name: &str) -> f64 {
        let samples = self.results.iter().find(|samples| samples.name == name);
        samples.map_or(f64::NAN, |samples| samples.rates()[0])
    }

    /// A server that was not busy was measured by its load, and not by what it can take.
    pub(crate) fn idle_servers(&self) -> Vec<String> {
        const BUSY_LEAST: f64 = 0.9;
        let idle = self.results.iter().filter_map(|samples| {
            let busy = samples.busy_seconds / samples.seconds;
            (busy < BUSY_LEAST).then(|| {
                format!(
                    "{}: {} was busy {:.0} % of the time, so the load or something else held it back",
                    self.name,
                    samples.name,
                    busy * 100.0
                )
            })
        });
        idle.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(ours: &[f64], theirs: &[f64]) -> Tried {
        let samples = |name, target, rates: &[f64]| Samples {
            denies: false,
            name,
            target,
            rounds: rates
                .iter()
                .map(|&value| Sample {
                    per_second: value,
                    p50_us: value,
                    p999_us: value,
                    answers: value,
                })
                .collect(),
            busy_seconds: if target.is_some() { 0.5 } else { 1.0 },
            seconds: 1.0,
            requests: 1.0,
            starts: rates.to_vec(),
        };
        let results = vec![
            samples("tidegate", None, ours),
            samples("peer", Some(Target::AtLeast(0.9)), theirs),
        ];
        Tried { name: "scenario".to_owned(), results }
    }

    fn value(figures: &[Figure], name: &str) -> (f64, bool) {
        let figure = figures.iter().find(|figure| figure.figure == name);
        figure.map_or((f64::NAN, false), |figure| (figure.value, figure.target.is_some()))
    }

    #[test]
    fn more_requests_are_better_and_the_best_rounds_are_held_to_the_target() {
        let figures = tried(&[1.0, 8.0, 6.0], &[10.0, 5.0, 4.0]).throughput();
        assert_eq!(value(&figures, "scenario: tidegate, best"), (8.0, false));
        assert_eq!(value(&figures, "scenario: tidegate to peer"), (0.8, true));
        assert_eq!(value(&figures, "scenario: tidegate to peer (by medians)"), (6.0 / 5.0, false));
    }

    #[test]
    fn two_servers_are_compared_by_best_rounds_and_by_medians() {
        let tried = tried(&[1.0, 8.0, 6.0], &[10.0, 5.0, 4.0]);
        let pair = ("peer", "tidegate");
        let figures = tried.ratio("theirs to ours", pair, Some(Target::AtLeast(3.0)));
        assert_eq!(value(&figures, "scenario: theirs to ours"), (1.25, true));
        assert_eq!(value(&figures, "scenario: theirs to ours (by medians)"), (5.0 / 6.0, false));
        assert!(figures.iter().all(|figure| figure.peer == Some("peer")));
    }

    #[test]
    fn starts_are_compared_one_by_one() {
        let again = tried(&[3.0, 5.0], &[1.0, 10.0]);
        let tried = tried(&[1.0, 4.0], &[2.0, 2.0]).and(again);
        let pair = ("tidegate", "peer");
        let figures = tried.ratio_of_starts("both", pair, Some(Target::AtLeast(1.0)));
        // Of 1/2, 2, 3 and 1/2.
        let (mean, is_held_to_target) = value(&figures, "scenario: both");
        assert!((mean - 1.5_f64.powf(0.25)).abs() < 1e-12 && is_held_to_target, "{mean}");
        let (spread, _) = value(&figures, "scenario: both (two standard errors)");
        let error = (mean + spread).ln() - mean.ln();
        assert!((error - 0.932_24).abs() < 1e-4, "{error}");
        assert!(figures.iter().all(|figure| figure.peer == Some("peer")));
    }

    #[test]
    fn shorter_tails_are_better() {
        let figures = tried(&[9.0, 8.0, 6.0], &[10.0, 5.0, 4.0]).latency();
        assert_eq!(value(&figures, "scenario: tidegate to peer"), (1.5, true));
    }

    #[test]
    fn a_server_that_was_idle_is_told() {
        let notes = tried(&[1.0], &[1.0]).idle_servers();
        assert_eq!(notes.len(), 1);
        assert!(notes[0].contains("peer was busy 50 %"), "{}", notes[0]);
    }
}
