//! How much one upstream has to do, and how much it may: a number that is set, or one that follows the
//! latency of its answers. What is beyond waits nowhere; it is refused, the least important first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::gradient::{Gradient, Sample};

/// The share of the room that requests of low priority leave to the others, in percent.
const LOW_PRIORITY_PERCENT: usize = 80;
/// How long they get no place at all once there was none for one of usual priority. Whoever is answered asks again at once, so
/// that those that have a place would otherwise keep it.
const YIELD: Duration = Duration::from_millis(250);

/// Whether a request is one of the first that are refused when there is too much to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Priority {
    #[default]
    Usual,
    Low,
}

/// The requests under way at one upstream.
#[derive(Debug)]
pub(crate) struct Load {
    under_way: AtomicUsize,
    at_most: AtomicUsize,
    gradient: Option<Mutex<Gradient>>,
    /// From when on its times are counted.
    since: Instant,
    /// Until when requests of low priority get no place, in microseconds.
    yields_until_us: AtomicU64,
}

/// A request under way. It has ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Busy {
    load: Arc<Load>,
    since: Instant,
    before: usize,
}

impl Load {
    /// At most so many at once; with `is_adaptive`, as many of them as keep the latency low.
    pub(crate) fn new(at_most: usize, is_adaptive: bool) -> Arc<Self> {
        let gradient = is_adaptive.then(|| Gradient::new(at_most));
        let first = gradient.as_ref().map_or(at_most, Gradient::limit);
        Arc::new(Self {
            under_way: AtomicUsize::new(0),
            at_most: AtomicUsize::new(first),
            gradient: gradient.map(Mutex::new),
            since: Instant::now(),
            yields_until_us: AtomicU64::new(0),
        })
    }

    /// A place for one more; `None` where there is none left for this priority.
    pub(crate) fn begin(self: &Arc<Self>, priority: Priority) -> Option<Busy> {
        let at_most = self.at_most();
        let room = match priority {
            Priority::Usual => at_most,
            Priority::Low if self.yields() => 0,
            Priority::Low => at_most * LOW_PRIORITY_PERCENT / 100,
        };
        // ORDERING: the number stands for itself, here and below.
        let one_more = |under_way| (under_way < room).then_some(under_way + 1);
        let begun = self.under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        let Ok(before) = begun else {
            if priority == Priority::Usual {
                let until = self.since.elapsed() + YIELD;
                self.yields_until_us.store(until.as_micros() as u64, Ordering::Relaxed);
            }
            return None;
        };
        Some(Busy { load: Arc::clone(self), since: Instant::now(), before })
    }

    /// Whether one of usual priority got no place a moment ago.
    fn yields(&self) -> bool {
        let until = self.yields_until_us.load(Ordering::Relaxed);
        until > 0 && (self.since.elapsed().as_micros() as u64) < until
    }

    /// How many are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// How many may be.
    pub(crate) fn at_most(&self) -> usize {
        self.at_most.load(Ordering::Relaxed)
    }

    /// Whether the number follows the latency.
    pub(crate) fn is_adaptive(&self) -> bool {
        self.gradient.is_some()
    }

    fn answered(&self, after: Duration, under_way: usize) {
        if let Some(gradient) = &self.gradient {
            let sample = Sample { at: self.since.elapsed(), after, under_way };
            let limit = gradient.lock().sample(sample);
            self.at_most.store(limit, Ordering::Relaxed);
        }
    }
}

impl Busy {
    /// The upstream has begun to answer, after the time that is returned. How long the rest takes is up to the
    /// client.
    pub(crate) fn answered(&self) -> Duration {
        let after = self.since.elapsed();
        self.load.answered(after, self.before + 1);
        after
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.load.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use std::sync::atomic::AtomicBool;

    use super::*;

    #[tokio::test]
    async fn what_is_less_important_is_refused_first() {
        let load = Load::new(10, false);
        let low: Vec<Busy> = std::iter::from_fn(|| load.begin(Priority::Low)).collect();
        assert_eq!(low.len(), 8);
        let usual: Vec<Busy> = std::iter::from_fn(|| load.begin(Priority::Usual)).collect();
        assert_eq!((usual.len(), load.under_way()), (2, 10));
        drop((low, usual));
        assert_eq!(load.under_way(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn while_usual_ones_are_refused_what_is_less_important_gets_no_place() {
        let load = Load::new(10, false);
        let usual: Vec<Busy> = std::iter::from_fn(|| load.begin(Priority::Usual)).collect();
        assert_eq!(usual.len(), 10);
        drop(usual);
        assert!(load.begin(Priority::Low).is_none());
        advance(YIELD / 2).await;
        assert!(load.begin(Priority::Low).is_none() && load.begin(Priority::Usual).is_some());
        advance(YIELD / 2).await;
        assert!(load.begin(Priority::Low).is_some());
    }

    #[test]
    fn those_that_get_no_place_take_none_from_others() {
        let load = Load::new(1, false);
        let busy = load.begin(Priority::Usual).unwrap();
        assert!(load.begin(Priority::Usual).is_none());
        drop(busy);
        assert!(load.begin(Priority::Low).is_none(), "it gives way from here on");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        assert!(load.begin(Priority::Low).is_none());
                    }
                });
            }
            // Nobody else has the only place.
            let refused = (0..100_000).filter(|_| load.begin(Priority::Usual).is_none()).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(refused, 0);
        });
    }
}
