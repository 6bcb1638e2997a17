//! How many requests an upstream can take at once, found out from how long it takes: while its latency is
//! what it is in the long term, a few more; when it grows, fewer, in proportion. It is the second gradient
//! algorithm of Netflix's concurrency-limits. Pure arithmetic: the times are handed in.
//!
//! What is compared are means over short windows of time, and the long term is minutes, however many requests come: an overload
//! that lasts would otherwise be taken for what is usual within a second.

use std::time::Duration;

/// The least that is ever let through at once.
const LIMIT_MIN: f64 = 8.0;
/// The first limit, until the latency is known.
const LIMIT_FIRST: f64 = 32.0;
/// How long the answers come in, and how many of them at least, whose mean is looked at.
const WINDOW: Duration = Duration::from_millis(100);
const WINDOW_ANSWERS_LEAST: u32 = 10;
/// How many windows the latency in the long term averages over: ten minutes of steady traffic. The first few, which all count
/// the same, are what is usual until more is known.
const LONG_WINDOWS: f64 = 6_000.0;
const FIRST_WINDOWS: f64 = 10.0;
/// How much longer than in the long term an answer may take before the limit sinks.
const TOLERANCE: f64 = 1.5;
/// How fast the limit follows.
const SMOOTHING: f64 = 0.2;

/// The limit, and what it is made from.
#[derive(Clone, Debug)]
pub(crate) struct Gradient {
    limit: f64,
    limit_max: f64,
    /// The latency over many windows, in seconds; 0 before the first.
    long_s: f64,
    windows: f64,
    window: Window,
}

/// What has come since the limit was last looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    /// When the first answer came.
    since: Duration,
    answers: u32,
    /// The sum of the latencies, in seconds.
    latencies_s: f64,
    under_way_most: usize,
}

/// An answer of an upstream that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// When, since any one moment.
    pub(crate) at: Duration,
    /// How long it took to begin.
    pub(crate) after: Duration,
    /// How many requests were under way with it.
    pub(crate) under_way: usize,
}

impl Gradient {
    /// A limit that never exceeds `limit_max`.
    pub(crate) fn new(limit_max: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "no upstream has 2^52 requests under way")]
        let limit_max = (limit_max as f64).max(LIMIT_MIN);
        let limit = LIMIT_FIRST.min(limit_max);
        Self { limit, limit_max, long_s: 0.0, windows: 0.0, window: Window::default() }
    }

    /// Takes note of one answer, and tells the limit.
    pub(crate) fn sample(&mut self, sample: Sample) -> usize {
        let window = &mut self.window;
        if window.answers == 0 {
            window.since = sample.at;
        }
        window.answers = window.answers.saturating_add(1);
        window.latencies_s += sample.after.as_secs_f64().max(1e-6);
        window.under_way_most = window.under_way_most.max(sample.under_way);
        let is_long = sample.at.saturating_sub(window.since) >= WINDOW;
        if is_long && window.answers >= WINDOW_ANSWERS_LEAST {
            let window = std::mem::take(&mut self.window);
            self.look_at(window);
        }
        self.limit()
    }

    #[expect(clippy::cast_precision_loss, reason = "no upstream has 2^52 requests under way")]
    fn look_at(&mut self, window: Window) {
        let short_s = window.latencies_s / f64::from(window.answers);
        self.windows = (self.windows + 1.0).min(LONG_WINDOWS);
        let is_first = self.windows <= FIRST_WINDOWS;
        let share = if is_first { 1.0 / self.windows } else { 2.0 / (LONG_WINDOWS + 1.0) };
        self.long_s += (short_s - self.long_s) * share;
        // What was slow when we came, and is fast now, is usual no longer.
        if self.long_s / short_s > 2.0 {
            self.long_s *= 0.95;
        }
        // Where the limit is not what holds requests back, latency says nothing about it.
        if (window.under_way_most as f64) >= self.limit / 2.0 {
            let gradient = (TOLERANCE * self.long_s / short_s).clamp(0.5, 1.0);
            let next = self.limit * gradient + self.limit.sqrt();
            let next = self.limit * (1.0 - SMOOTHING) + next * SMOOTHING;
            self.limit = next.clamp(LIMIT_MIN, self.limit_max);
        }
    }

    /// The limit.
    #[expect(clippy::cast_sign_loss, reason = "it is never below its minimum")]
    pub(crate) fn limit(&self) -> usize {
        self.limit as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_millis(10);
    const SLOW: Duration = Duration::from_millis(200);

    /// An upstream, and the clients that ask it.
    struct World {
        gradient: Gradient,
        now: Duration,
    }

    impl World {
        fn new(limit_max: usize) -> Self {
            Self { gradient: Gradient::new(limit_max), now: Duration::ZERO }
        }

        /// So many clients ask for some time, each again once it is answered, as many of them at once as the limit lets
        /// through. How long an answer takes is told by how many are under way.
        fn ask(&mut self, secs: u64, clients: usize, takes: impl Fn(usize) -> Duration) {
            let end = self.now + Duration::from_secs(secs);
            while self.now < end {
                let under_way = clients.min(self.gradient.limit()).max(1);
                let after = takes(under_way);
                self.now += after;
                for _ in 0..under_way {
                    self.gradient.sample(Sample { at: self.now, after, under_way });
                }
            }
        }
    }

    /// An upstream with ten places, each of which takes 20 ms.
    fn ten_places(under_way: usize) -> Duration {
        Duration::from_millis(2 * under_way.max(10) as u64)
    }

    #[test]
    fn the_limit_grows_while_the_latency_stays() {
        let mut world = World::new(200);
        world.ask(120, 1_000, |_| FAST);
        assert_eq!(world.gradient.limit(), 200);
    }

    #[test]
    fn the_limit_sinks_when_the_latency_grows_and_recovers_with_it() {
        let mut world = World::new(200);
        world.ask(120, 1_000, |_| FAST);
        world.ask(5, 1_000, |_| SLOW);
        let sunk = world.gradient.limit();
        assert!(sunk < 30, "{sunk}");
        world.ask(60, 1_000, |_| FAST);
        assert!(world.gradient.limit() > 150, "{}", world.gradient.limit());
    }

    #[test]
    fn an_overload_that_lasts_is_not_taken_for_what_is_usual() {
        let mut world = World::new(1_000);
        world.ask(60, 5, ten_places);
        for minute in 0..5 {
            world.ask(60, 500, ten_places);
            let limit = world.gradient.limit();
            assert!((10..50).contains(&limit), "{limit} after {minute} minutes");
        }
    }

    #[test]
    fn answers_that_are_slow_now_and_then_leave_the_limit_alone() {
        let mut world = World::new(200);
        world.ask(120, 1_000, |_| FAST);
        for _ in 0..1_000 {
            for number in 0..100 {
                let after = if number == 0 { SLOW } else { FAST };
                world.now += Duration::from_millis(1);
                world.gradient.sample(Sample { at: world.now, after, under_way: 200 });
            }
        }
        assert!(world.gradient.limit() > 150, "{}", world.gradient.limit());
    }

    #[test]
    fn an_idle_upstream_tells_nothing() {
        let mut world = World::new(1_000);
        world.ask(60, 1, |_| SLOW);
        assert_eq!(world.gradient.limit(), Gradient::new(1_000).limit());
    }
}
