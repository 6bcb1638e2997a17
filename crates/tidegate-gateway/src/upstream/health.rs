//! Whether an upstream is fit to be asked: by what came of the requests to it, and by probes. One that fails
//! again and again is left out for a while, longer each time.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How many failures in a row put an upstream out.
const FAILURES_MAX: u32 = 5;
/// For how long, the first time and at most.
const OUT_FIRST: Duration = Duration::from_secs(5);
const OUT_MAX: Duration = Duration::from_mins(5);
/// How often it is told that it fails while it is not left out for that.
const TOLD_EVERY: Duration = Duration::from_secs(30);
/// How many probes in a row decide.
const PROBES: u32 = 2;

/// What is known of one upstream.
#[derive(Debug)]
pub(crate) struct Health {
    began: Instant,
    failures: AtomicU32,
    /// How often it was put out since it last was well.
    outs: AtomicU32,
    /// Until when it is out, in milliseconds from the beginning.
    out_until_ms: AtomicU64,
    /// Until when another failure is not told, in the same.
    told_until_ms: AtomicU64,
    fails_probes: AtomicBool,
    /// How many probes in a row said the opposite of that.
    contrary: AtomicU32,
}

/// Something that is worth a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It fails, and that was not told for a while.
    Fails,
    /// It is left out from now on: for so long, or until probes say that it is well.
    Out(Option<Duration>),
    /// It answers again after it was left out.
    Back,
}

impl Health {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            began: now,
            failures: AtomicU32::new(0),
            outs: AtomicU32::new(0),
            out_until_ms: AtomicU64::new(0),
            told_until_ms: AtomicU64::new(0),
            fails_probes: AtomicBool::new(false),
            contrary: AtomicU32::new(0),
        }
    }

    // ORDERING: every number here stands for itself. Two that change at once may put an upstream out one
    // request early or late, which nobody can tell from chance.

    pub(crate) fn is_fit(&self, now: Instant) -> bool {
        !self.fails_probes.load(Ordering::Relaxed)
            && self.ms(now) >= self.out_until_ms.load(Ordering::Relaxed)
    }

    /// A request was answered. One that is left out may still answer what it was asked before, and is well again when
    /// it is asked once more.
    pub(crate) fn answered(&self, now: impl FnOnce() -> Instant) -> Option<Change> {
        let was_out = self.outs.load(Ordering::Relaxed) > 0;
        if self.failures.load(Ordering::Relaxed) == 0 && !was_out {
            return None;
        }
        self.failures.store(0, Ordering::Relaxed);
        let is_back = was_out && self.is_fit(now()) && self.outs.swap(0, Ordering::Relaxed) > 0;
        is_back.then_some(Change::Back)
    }

    /// A request failed: no connection, no answer, or none in time.
    pub(crate) fn failed(&self, now: Instant) -> Option<Change> {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < FAILURES_MAX || !self.is_fit(now) {
            return self.is_to_be_told(now).then_some(Change::Fails);
        }
        // One more failure after it comes back puts it out again.
        self.failures.store(FAILURES_MAX - 1, Ordering::Relaxed);
        let outs = self.outs.fetch_add(1, Ordering::Relaxed).min(16);
        let out = OUT_FIRST.saturating_mul(1 << outs).min(OUT_MAX);
        self.out_until_ms.store(self.ms(now + out), Ordering::Relaxed);
        self.told_until_ms.store(self.ms(now + TOLD_EVERY), Ordering::Relaxed);
        Some(Change::Out(Some(out)))
    }

    /// Whether nothing was told of its failures for a while; from now on something was.
    fn is_to_be_told(&self, now: Instant) -> bool {
        let until = self.told_until_ms.load(Ordering::Relaxed);
        let next = self.ms(now + TOLD_EVERY);
        // Of several that fail at once one is told.
        self.ms(now) >= until
            && self
                .told_until_ms
                .compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// What a probe found.
    pub(crate) fn probed(&self, is_well: bool) -> Option<Change> {
        let fails = self.fails_probes.load(Ordering::Relaxed);
        if fails != is_well {
            self.contrary.store(0, Ordering::Relaxed);
            return None;
        }
        if self.contrary.fetch_add(1, Ordering::Relaxed) + 1 < PROBES {
            return None;
        }
        self.contrary.store(0, Ordering::Relaxed);
        self.fails_probes.store(!is_well, Ordering::Relaxed);
        if is_well {
            self.out_until_ms.store(0, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
            self.outs.store(0, Ordering::Relaxed);
        }
        Some(if is_well { Change::Back } else { Change::Out(None) })
    }

    fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_put_it_out_for_longer_each_time() {
        let start = Instant::now();
        let health = Health::new(start);
        assert_eq!(health.failed(start), Some(Change::Fails));
        for _ in 2..FAILURES_MAX {
            assert_eq!(health.failed(start), None);
        }
        assert!(health.is_fit(start));
        assert_eq!(health.failed(start), Some(Change::Out(Some(OUT_FIRST))));
        assert!(!health.is_fit(start + OUT_FIRST - Duration::from_millis(1)));
        let back = start + OUT_FIRST;
        assert!(health.is_fit(back));
        assert_eq!(health.failed(back), Some(Change::Out(Some(OUT_FIRST * 2))));
        assert!(!health.is_fit(back + OUT_FIRST));
        assert!(health.is_fit(back + OUT_FIRST * 2));
        assert_eq!(health.answered(|| back), None, "it was asked before");
        let back = back + OUT_FIRST * 2;
        assert_eq!(health.answered(|| back), Some(Change::Back));
        assert_eq!(health.answered(|| back), None);
    }

    #[test]
    fn a_server_that_fails_now_and_then_is_told_of_now_and_then() {
        let start = Instant::now();
        let health = Health::new(start);
        let mut told = 0;
        for second in 0..600 {
            for _ in 0..3 {
                let change = health.failed(start + Duration::from_secs(second));
                told += usize::from(change == Some(Change::Fails));
                assert!(matches!(change, None | Some(Change::Fails)), "{change:?}");
            }
            assert_eq!(health.answered(|| start), None);
        }
        assert_eq!(told, 20);
    }

    #[test]
    fn an_answer_forgives_what_was_before() {
        let start = Instant::now();
        let health = Health::new(start);
        for _ in 0..20 {
            assert!(!matches!(health.failed(start), Some(Change::Out(_))));
            assert_eq!(health.answered(|| start), None);
        }
        assert!(health.is_fit(start));
    }

    #[test]
    fn probes_decide_two_in_a_row() {
        let now = Instant::now();
        let health = Health::new(now);
        assert_eq!(health.probed(false), None);
        assert_eq!(health.probed(true), None);
        assert_eq!(health.probed(false), None);
        assert_eq!(health.probed(false), Some(Change::Out(None)));
        assert!(!health.is_fit(now));
        (0..FAILURES_MAX).for_each(|_| _ = health.failed(now));
        assert_eq!((health.probed(true), health.probed(true)), (None, Some(Change::Back)));
        assert!(health.is_fit(now));
        let _ = health.failed(now);
        assert_eq!(health.answered(|| now), None, "that it is back was told");
    }
}
