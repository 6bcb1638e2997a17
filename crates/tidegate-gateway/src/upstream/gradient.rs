//! How many requests an upstream can take at once, found out from how long it takes: while its latency is
//! what it is without load, a few more; when it grows, fewer, in proportion. It is the second gradient
//! algorithm of Netflix's concurrency-limits. Pure arithmetic: the times are handed in.

use std::time::Duration;

/// The least that is ever let through at once.
const LIMIT_MIN: f64 = 8.0;
/// The first limit, until the latency is known.
const LIMIT_FIRST: f64 = 32.0;
/// How many samples the long-term latency averages over.
const WINDOW: f64 = 600.0;
/// How much longer than in the long term an answer may take before the limit sinks.
const TOLERANCE: f64 = 1.5;
/// How fast the limit follows.
const SMOOTHING: f64 = 0.2;

/// The limit, and what it is made from.
#[derive(Clone, Debug)]
pub(crate) struct Gradient {
    limit: f64,
    limit_max: f64,
    /// The latency over many requests, in seconds; 0 before the first.
    long_s: f64,
    samples: f64,
}

impl Gradient {
    /// A limit that never exceeds `limit_max`.
    pub(crate) fn new(limit_max: usize) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "no upstream has 2^52 requests under way")]
        let limit_max = (limit_max as f64).max(LIMIT_MIN);
        Self { limit: LIMIT_FIRST.min(limit_max), limit_max, long_s: 0.0, samples: 0.0 }
    }

    /// Takes note of one answer, begun while so many requests were under way, and tells the limit.
    #[expect(clippy::cast_precision_loss, reason = "no upstream has 2^52 requests under way")]
    pub(crate) fn sample(&mut self, after: Duration, under_way: usize) -> usize {
        let short_s = after.as_secs_f64().max(1e-6);
        // The first samples count for more, or the average would start at nothing.
        self.samples = (self.samples + 1.0).min(WINDOW);
        self.long_s += (short_s - self.long_s) / self.samples;
        // After an overload has ended, the average comes back fast.
        if self.long_s / short_s > 2.0 {
            self.long_s *= 0.95;
        }
        // Where the limit is not what holds requests back, latency says nothing about it.
        if (under_way as f64) >= self.limit / 2.0 {
            let gradient = (TOLERANCE * self.long_s / short_s).clamp(0.5, 1.0);
            let next = self.limit * gradient + self.limit.sqrt();
            let next = self.limit * (1.0 - SMOOTHING) + next * SMOOTHING;
            self.limit = next.clamp(LIMIT_MIN, self.limit_max);
        }
        self.limit()
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

    #[test]
    fn the_limit_grows_while_the_latency_stays() {
        let mut gradient = Gradient::new(1_000);
        for _ in 0..2_000 {
            let limit = gradient.limit();
            gradient.sample(FAST, limit);
        }
        assert_eq!(gradient.limit(), 1_000);
    }

    #[test]
    fn the_limit_sinks_when_the_latency_grows_and_recovers_with_it() {
        let mut gradient = Gradient::new(1_000);
        for _ in 0..2_000 {
            gradient.sample(FAST, 1_000);
        }
        for _ in 0..40 {
            gradient.sample(SLOW, 1_000);
        }
        let sunk = gradient.limit();
        assert!(sunk < 100, "{sunk}");
        for _ in 0..2_000 {
            gradient.sample(FAST, 1_000);
        }
        assert!(gradient.limit() > 500, "{}", gradient.limit());
    }

    #[test]
    fn an_idle_upstream_tells_nothing() {
        let mut gradient = Gradient::new(1_000);
        for _ in 0..1_000 {
            gradient.sample(SLOW, 1);
        }
        assert_eq!(gradient.limit(), Gradient::new(1_000).limit());
    }
}
