//! What is counted about decisions, and the text that Prometheus reads.
//!
//! Counting takes no lock and hashes nothing: counters are found by the number of the rule, and each
//! of a few threads has its own copy of them. Labels come from the
//! configuration only, and there is a bound to how many there are. What a caller sends never becomes
//! a label.

mod cells;
mod certificate;
mod families;
mod latency;
mod render;
mod series;
mod store;
mod text;
mod upstream;

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate::rules::DescriptorCall;
use tidegate::{RuleDecision, Span, Stats, Timestamp};
use tidegate_rules::compile::CompiledRules;

use self::cells::Cells;
use self::latency::Latency;
use self::series::{SOURCES, Series, Verdict};
use crate::answer::{Answer, Source};
use crate::controls::Ruling;
use crate::engine::{DescriptorsAnswer, Engine, Protocol};

pub use self::families::names;
pub use self::render::fingerprint;
pub use self::series::{GIVEN, NONE, OTHER, RULE_SERIES_MAX, SeriesName, UNKNOWN};
pub use self::upstream::{UPSTREAM_SERIES_MAX, UpstreamCounts, UpstreamFailure, UpstreamGauges};

/// What the text is, for whoever sends it.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long what the table says about itself is good for: it has to be read as a whole for that.
const STATS_FRESH: Span = Span::SECOND;

const PROTOCOLS: usize = Protocol::ALL.len();
const ENTRANCES: usize = Entrance::ALL.len();

/// All counters.
#[derive(Debug)]
pub struct Metrics {
    series: Series,
    /// For each protocol how many calls were allowed, and how many denied.
    answers: Cells<{ 2 * PROTOCOLS }>,
    rulings: Cells<{ RULINGS.len() }>,
    undecided: Cells<PROTOCOLS>,
    latency: [Latency; PROTOCOLS],
    /// Of decisions that a store makes or should have made.
    store_latency: Latency,
    connections: Cells<{ 3 * ENTRANCES }>,
    upstreams: Mutex<Vec<upstream::Watched>>,
    certificates: Mutex<Option<certificate::Expiries>>,
    reloads: AtomicU64,
    reload_errors: AtomicU64,
    started_at: Timestamp,
    stats: Mutex<Option<(Timestamp, Stats)>>,
    /// The version of rules that the fingerprint was taken of, and the fingerprint.
    fingerprint: Mutex<(u64, u64)>,
}

/// Where connections come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Entrance {
    /// The address of the HTTP endpoints.
    Http,
    /// The address of the gRPC services.
    Grpc,
    /// The address for clients of Redis.
    Resp,
    /// The operator's address.
    Admin,
    /// The address of a gateway.
    Gateway,
}

impl Entrance {
    const ALL: [Self; 5] = [Self::Http, Self::Grpc, Self::Resp, Self::Admin, Self::Gateway];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Resp => "resp",
            Self::Admin => "admin",
            Self::Gateway => "gateway",
        }
    }
}

/// A connection that is open. It is counted as closed when this is dropped.
#[derive(Debug)]
pub struct Connected<'m> {
    metrics: &'m Metrics,
    entrance: Entrance,
}

const OPENED: usize = 0;
const CLOSED: usize = ENTRANCES;
const BROKEN: usize = 2 * ENTRANCES;

/// What the controls can say, by the words of the label.
const RULINGS: [&str; 4] = ["bypassed", "allow_listed", "banned", "shadow"];

/// How often each of the verdicts was given under one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleCounts {
    /// Let through.
    pub allowed: u64,
    /// Let through beyond the limit, by a soft rule.
    pub soft: u64,
    /// Let through, though something in shadow would have denied it.
    pub shadow_denied: u64,
    /// Denied.
    pub denied: u64,
    /// How often this very rule would have denied, had it not been in shadow.
    pub shadow_denials: u64,
}

impl RuleCounts {
    /// Where a decision under a limit that the call brought along is counted.
    #[inline]
    pub(crate) fn of(&mut self, is_allowed: bool, in_shadow: bool) -> &mut u64 {
        match (is_allowed, in_shadow) {
            (true, _) => &mut self.allowed,
            (false, true) => &mut self.shadow_denied,
            (false, false) => &mut self.denied,
        }
    }
}

impl Metrics {
    pub(crate) fn new(started_at: Timestamp) -> Self {
        Self {
            series: Series::new(),
            answers: Cells::new(),
            rulings: Cells::new(),
            undecided: Cells::new(),
            latency: std::array::from_fn(|_| Latency::new()),
            store_latency: Latency::new(),
            connections: Cells::new(),
            upstreams: Mutex::default(),
            certificates: Mutex::default(),
            reloads: AtomicU64::new(0),
            reload_errors: AtomicU64::new(0),
            started_at,
            stats: Mutex::new(None),
            fingerprint: Mutex::new((0, 0)),
        }
    }

    /// Counts one decision.
    #[inline]
    pub(crate) fn decided<D: Borrow<RuleDecision>>(&self, over: Protocol, answer: &Answer<D>) {
        let is_allowed = answer.is_allowed();
        self.answers.add(2 * over as usize + usize::from(!is_allowed), 1);
        let Some(decision) = answer.decision() else {
            return self.ruled(answer.ruling());
        };
        let is_lifted = is_allowed && !decision.is_allowed();
        let verdict = match () {
            () if !is_allowed => Verdict::Denied,
            () if is_lifted || decision.is_shadow_denied() => Verdict::ShadowDenied,
            () if decision.is_soft() => Verdict::Soft,
            () => Verdict::Allowed,
        };
        self.series.decided(decision, verdict, answer.source(), is_lifted);
        if is_lifted {
            self.rulings.add(3, 1);
        }
    }

    fn ruled(&self, ruling: Option<Ruling>) {
        let ruling = match ruling {
            Some(Ruling::Bypassed) => 0,
            Some(Ruling::AllowListed) => 1,
            Some(Ruling::Banned { .. }) => 2,
            // The rules decided, so there is a decision, and it was counted by that.
            Some(Ruling::Shadow) | None => return,
        };
        self.rulings.add(ruling, 1);
    }

    /// Counts one decision over several descriptors: one answer, and a decision of each rule that had
    /// a part in it.
    #[inline]
    pub(crate) fn decided_descriptors(
        &self,
        over: Protocol,
        calls: &[DescriptorCall<'_>],
        answer: &DescriptorsAnswer,
    ) {
        let is_allowed = answer.is_allowed();
        self.answers.add(2 * over as usize + usize::from(!is_allowed), 1);
        let Some(decision) = answer.decision() else {
            return self.ruled(answer.ruling());
        };
        self.series.decided_descriptors(decision, calls, answer);
        if is_allowed && !decision.is_allowed() {
            self.rulings.add(3, 1);
        }
    }

    /// Counts decisions under limits that the calls brought along: how many were allowed, denied, and
    /// let through only because everything is in shadow.
    #[inline]
    pub fn decided_given(&self, over: Protocol, source: Source, counts: &RuleCounts) {
        let RuleCounts { allowed, shadow_denied, denied, .. } = *counts;
        let passed = allowed + shadow_denied;
        self.answers.add_each([(2 * over as usize, passed), (2 * over as usize + 1, denied)]);
        for (verdict, count) in [(Verdict::Allowed, allowed), (Verdict::Denied, denied)] {
            if count > 0 {
                self.series.given.decided(verdict, source, count);
            }
        }
        if shadow_denied > 0 {
            self.series.given.lifted(source, shadow_denied);
            self.rulings.add(3, shadow_denied);
        }
    }

    /// Counts a call under a limit that it brought along, which the controls decided alone.
    pub(crate) fn ruled_given(&self, over: Protocol, ruling: Ruling) {
        let is_denied = matches!(ruling, Ruling::Banned { .. });
        self.answers.add(2 * over as usize + usize::from(is_denied), 1);
        self.ruled(Some(ruling));
    }

    /// Counts a call that could not be decided.
    #[cold]
    pub(crate) fn undecided(&self, over: Protocol) {
        self.undecided.add(over as usize, 1);
    }

    /// Notes how long a request took, from the moment it was read to the moment its answer was made.
    #[inline]
    pub fn took(&self, over: Protocol, time: Duration) {
        self.latency[over as usize].add(time);
    }

    /// Notes how long a decision took that a store made, or should have made.
    pub(crate) fn store_took(&self, time: Duration) {
        self.store_latency.add(time);
    }

    /// Notes that rules were read again: whether they are in force now, or had mistakes and changed
    /// nothing.
    pub fn reloaded(&self, ok: bool) {
        let counter = if ok { &self.reloads } else { &self.reload_errors };
        // ORDERING: a counter stands for itself.
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection for as long as what is returned lives.
    pub fn connected(&self, entrance: Entrance) -> Connected<'_> {
        self.connections.add(OPENED + entrance as usize, 1);
        Connected { metrics: self, entrance }
    }

    /// Counts a connection on which something was said that is not the protocol.
    pub fn protocol_error(&self, entrance: Entrance) {
        self.connections.add(BROKEN + entrance as usize, 1);
    }

    /// Tells from now on what is counted about a server behind a gateway, and what `gauges` says is so there.
    pub fn watch(
        &self,
        name: &str,
        counts: Arc<UpstreamCounts>,
        gauges: impl Fn() -> UpstreamGauges + Send + Sync + 'static,
    ) {
        let watched = upstream::Watched { name: name.into(), counts, gauges: Box::new(gauges) };
        self.upstreams.lock().push(watched);
    }

    /// Tells from now on when certificates expire: `expiries_s` says so of each, by its name in the settings, in seconds
    /// since 1970.
    pub fn watch_certificates(
        &self,
        expiries_s: impl Fn() -> Vec<(String, i64)> + Send + Sync + 'static,
    ) {
        *self.certificates.lock() = Some(certificate::Expiries(Box::new(expiries_s)));
    }

    /// Everything that is counted, as text of [`CONTENT_TYPE`]. It may have to read the whole table,
    /// once a second at most, so it is not for a thread that others wait for: see
    /// [`scrape`](Self::scrape).
    pub fn render(&self, engine: &Engine) -> String {
        render::render(self, engine)
    }

    /// The same on a thread that may block.
    pub async fn scrape(engine: &Arc<Engine>) -> String {
        let engine = Arc::clone(engine);
        let rendered = tokio::task::spawn_blocking(move || engine.metrics().render(&engine));
        // It ends early only where the daemon does.
        rendered.await.unwrap_or_default()
    }

    /// The verdicts of every rule in force, by domain and rule.
    pub fn rule_counts(&self, rules: &CompiledRules) -> Vec<(SeriesName, RuleCounts)> {
        let counts = self.series.all(rules).into_iter().map(|(name, cells)| {
            let of = |verdict| {
                SOURCES.iter().map(|&source| cells.decisions(verdict, source)).sum::<u64>()
            };
            let counts = RuleCounts {
                allowed: of(Verdict::Allowed),
                soft: of(Verdict::Soft),
                shadow_denied: of(Verdict::ShadowDenied),
                denied: of(Verdict::Denied),
                shadow_denials: cells.shadow_denials(),
            };
            (name, counts)
        });
        counts.collect()
    }

    /// When the rules came into force.
    pub fn rules_since(&self, rules: &CompiledRules) -> Timestamp {
        rules.since().unwrap_or(self.started_at)
    }

    /// What the table says about itself. One thread at a time reads it, and whoever comes meanwhile
    /// waits for what that one finds.
    fn stats(&self, engine: &Engine) -> Option<Stats> {
        let mut last = self.stats.lock();
        let now = engine.limiter().now();
        match *last {
            Some((at, stats)) if now >= at && now.since(at) < STATS_FRESH => Some(stats),
            _ => engine.limiter().stats().map(|stats| last.insert((now, stats)).1),
        }
    }

    fn fingerprint_of(&self, rules: &CompiledRules) -> u64 {
        let mut last = self.fingerprint.lock();
        if last.0 != rules.version() {
            *last = (rules.version(), fingerprint(rules));
        }
        last.1
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.metrics.connections.add(CLOSED + self.entrance as usize, 1);
    }
}
