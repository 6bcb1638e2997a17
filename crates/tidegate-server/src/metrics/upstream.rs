//! What is counted about the servers behind a gateway. Their names come from its settings; servers of the same
//! name, in several routes, are one. A daemon without a gateway has none, and the families are empty.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::cells::Cells;
use super::families as f;
use super::latency::{Latency, Times};
use super::render;
use super::series::OTHER;
use super::text::{Family, Text};

/// The most names that are told apart. The servers beyond share one.
pub const UPSTREAM_SERIES_MAX: usize = 500;

/// What became of a request at a server, where it was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamFailure {
    /// There was no connection.
    Connect,
    /// What came was no response.
    Broken,
    /// Nothing came in time.
    Timeout,
}

const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
const FAILURES: [&str; 3] = ["connect", "broken", "timeout"];
const FAILED: usize = STATUSES.len();
const RETRIED: usize = FAILED + FAILURES.len();
const EJECTED: usize = RETRIED + 1;
const COUNTERS: usize = EJECTED + 1;

/// What is counted about one server.
#[derive(Debug)]
pub struct UpstreamCounts {
    cells: Cells<COUNTERS>,
    latency: Latency,
}

/// What is so at a server now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UpstreamGauges {
    /// Requests under way.
    pub in_flight: usize,
    /// How many may be.
    pub in_flight_max: usize,
    /// Connections that are open, idle ones too.
    pub connections: usize,
}

impl Default for UpstreamCounts {
    fn default() -> Self {
        Self { cells: Cells::new(), latency: Latency::new() }
    }
}

impl UpstreamCounts {
    /// It began to answer a request, so long after it was sent.
    #[inline]
    pub fn answered(&self, status: u16, after: Duration) {
        let class = usize::from(status / 100).clamp(1, STATUSES.len());
        self.cells.add(class - 1, 1);
        self.latency.add(after);
    }

    /// It did not answer a request.
    pub fn failed(&self, failure: UpstreamFailure) {
        self.cells.add(FAILED + failure as usize, 1);
    }

    /// It is sent a request that was sent before, to it or to another one.
    pub fn retried(&self) {
        self.cells.add(RETRIED, 1);
    }

    /// It is left out from now on.
    pub fn ejected(&self) {
        self.cells.add(EJECTED, 1);
    }
}

/// A server, and how to find out what is so there.
pub(super) struct Watched {
    pub(super) name: Box<str>,
    pub(super) counts: Arc<UpstreamCounts>,
    pub(super) gauges: Box<dyn Fn() -> UpstreamGauges + Send + Sync>,
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.name).finish()
    }
}

/// All that is known of the servers of one name.
struct Summed {
    counts: [u64; COUNTERS],
    times: Times,
    gauges: UpstreamGauges,
}

fn summed(watched: &[Watched]) -> BTreeMap<&str, Summed> {
    let mut all = BTreeMap::<&str, Summed>::new();
    for Watched { name, counts, gauges } in watched {
        let is_new = !all.contains_key(&**name);
        let name = if is_new && all.len() >= UPSTREAM_SERIES_MAX { OTHER } else { name };
        let (more, times, now) = (counts.cells.sums(), counts.latency.times(), gauges());
        match all.get_mut(name) {
            None => {
                all.insert(name, Summed { counts: more, times, gauges: now });
            }
            Some(summed) => {
                summed.counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
                summed.times.add(&times);
                summed.gauges.in_flight += now.in_flight;
                summed.gauges.in_flight_max += now.in_flight_max;
                summed.gauges.connections += now.connections;
            }
        }
    }
    all
}

/// All families about servers behind a gateway.
pub(super) fn upstreams(text: &mut Text, watched: &[Watched]) {
    let all = summed(watched);
    let mut labelled = |family: &Family, label, words: &[&str], first: usize| {
        text.family(family);
        for (name, summed) in &all {
            for (index, word) in words.iter().enumerate() {
                let labels = [("upstream", *name), (label, *word)];
                text.sample(family, &labels, summed.counts[first + index]);
            }
        }
    };
    labelled(&f::UPSTREAM_RESPONSES, "status", &STATUSES, 0);
    labelled(&f::UPSTREAM_FAILURES, "reason", &FAILURES, FAILED);
    let mut each = |family: &Family, value: &dyn Fn(&Summed) -> u64| {
        text.family(family);
        for (name, summed) in &all {
            text.sample(family, &[("upstream", name)], value(summed));
        }
    };
    each(&f::UPSTREAM_RETRIES, &|summed| summed.counts[RETRIED]);
    each(&f::UPSTREAM_EJECTIONS, &|summed| summed.counts[EJECTED]);
    each(&f::UPSTREAM_IN_FLIGHT, &|summed| summed.gauges.in_flight as u64);
    each(&f::UPSTREAM_IN_FLIGHT_MAX, &|summed| summed.gauges.in_flight_max as u64);
    each(&f::UPSTREAM_CONNECTIONS, &|summed| summed.gauges.connections as u64);
    text.family(&f::UPSTREAM_LATENCY);
    for (name, summed) in &all {
        render::times(text, &f::UPSTREAM_LATENCY, &[("upstream", name)], &summed.times);
    }
}
