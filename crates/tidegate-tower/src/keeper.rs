//! Places under concurrency limits that a call holds. They come back by themselves after a while, in case
//! that their holder has died; so whoever lives renews them for as long as the call goes on.
//!
//! Most calls are over long before. So beginning and ending one is no more than an entry in a list that its thread
//! has for all places that are renewed equally often, and one task goes through that list now and then.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;
use tokio::runtime::{Handle, Id};

/// How many rounds through a list there are in a period. A place is renewed in the second that comes: after half a
/// period at the soonest, which most calls do not last for, and after a whole one at the latest.
const ROUNDS_PER_PERIOD: u32 = 2;
/// How many places a round renews before it lets go of the list for a moment.
const CHUNK: usize = 64;
/// The lists of a thread: one for each time that its rules have. Those that are in use stay beyond that.
const LISTS_MAX: usize = 16;

type Renewal = Pin<Box<dyn Future<Output = ()> + Send>>;
type Renew = Box<dyn FnMut() -> Option<Renewal> + Send>;

/// Renews the places of one call, again and again.
pub struct Keeper {
    period: Duration,
    renew: Renew,
}

impl Keeper {
    /// Renews at least so often, by something that takes a while. What a renewal is told does not matter: who was
    /// away may be back the next time, and a place that is gone stays so.
    pub fn every<F>(period: Duration, mut renew: impl FnMut() -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { period, renew: Box::new(move || Some(Box::pin(renew()))) }
    }

    /// The same where to renew takes no longer than a decision does.
    pub fn at_once_every(period: Duration, mut renew: impl FnMut() + Send + 'static) -> Self {
        let renew = move || {
            renew();
            None
        };
        Self { period, renew: Box::new(renew) }
    }

    /// Lets it renew until the call is over. Outside of a runtime nobody can, and places last as long as
    /// their limit says.
    pub fn start(self) -> Option<Keeping> {
        let runtime = Handle::try_current().ok()?;
        let list = List::of(&runtime, self.period);
        let mut places = list.lock();
        let entered_in = places.round;
        let index = places.entries.insert(Entry { renew: self.renew, entered_in });
        if !places.has_rounds {
            places.has_rounds = true;
            let rounds = Rounds { list: Arc::clone(&list), are_over: false, has_timer: false };
            drop(runtime.spawn(rounds.run()));
        }
        drop(places);
        Some(Keeping { list, index })
    }
}

impl fmt::Debug for Keeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("period", &self.period).finish_non_exhaustive()
    }
}

/// A keeper at work. It ends when this is dropped.
#[must_use = "the keeper ends as soon as this is dropped"]
pub struct Keeping {
    list: Arc<List>,
    index: usize,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        let entry = self.list.lock().entries.try_remove(self.index);
        // What it held may be somebody's last, so it goes when nobody waits for the list.
        drop(entry);
    }
}

impl fmt::Debug for Keeping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keeping")
    }
}

/// The places that one thread has entered, of calls on one runtime, and that are renewed equally often.
struct List {
    runtime: Id,
    period: Duration,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    entries: Slab<Entry>,
    round: u64,
    /// Whether somebody goes through it now and then.
    has_rounds: bool,
}

struct Entry {
    renew: Renew,
    /// The round before it was entered or renewed.
    entered_in: u64,
}

thread_local! {
    static LISTS: RefCell<Vec<Arc<List>>> = const { RefCell::new(Vec::new()) };
}

impl List {
    fn of(runtime: &Handle, period: Duration) -> Arc<Self> {
        let runtime = runtime.id();
        LISTS.with_borrow_mut(|lists| {
            if let Some(list) = lists.iter().find(|it| it.runtime == runtime && it.period == period)
            {
                return Arc::clone(list);
            }
            if lists.len() >= LISTS_MAX {
                lists.retain(|list| !list.lock().entries.is_empty());
            }
            let list = Arc::new(Self { runtime, period, places: Mutex::default() });
            lists.push(Arc::clone(&list));
            list
        })
    }

    /// Renews a chunk of the places from there on, and answers what is still to be done for it. `None` where there is none.
    fn renew_due(&self, begin: usize) -> Option<Vec<Renewal>> {
        let mut places = self.lock();
        if begin >= places.entries.capacity() {
            return None;
        }
        Some((begin..begin + CHUNK).filter_map(|index| places.renew_due(index)).collect())
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who goes through a list as long as there is something in it.
struct Rounds {
    list: Arc<List>,
    are_over: bool,
    /// Whether the runtime has timers, without which it panics at the first.
    has_timer: bool,
}

impl Rounds {
    async fn run(mut self) {
        let step = self.list.period / ROUNDS_PER_PERIOD;
        while !self.are_over {
            let pause = tokio::time::sleep(step);
            self.has_timer = true;
            pause.await;
            self.begin();
            self.renew_due().await;
        }
    }

    /// Begins a round, unless there is nothing in the list.
    fn begin(&mut self) {
        let mut places = self.list.lock();
        places.round += 1;
        places.has_rounds = !places.entries.is_empty();
        self.are_over = !places.has_rounds;
    }

    async fn renew_due(&self) {
        let mut begin = 0;
        while let Some(renewals) = self.list.renew_due(begin) {
            // Each by itself: a store is asked for all of them together, and for none after another one.
            for renewal in renewals {
                drop(tokio::spawn(renewal));
            }
            begin += CHUNK;
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Rounds {
    /// Where the runtime ends in between, or a renewal panics, somebody else goes on once there is another place.
    /// Without timers that would be in vain for each.
    fn drop(&mut self) {
        if !self.are_over && (self.has_timer || !std::thread::panicking()) {
            self.list.lock().has_rounds = false;
        }
    }
}

impl Places {
    /// Renews a place where it is time for that, and answers what is still to be done for it.
    fn renew_due(&mut self, index: usize) -> Option<Renewal> {
        let entry = self.entries.get_mut(index)?;
        if entry.entered_in + u64::from(ROUNDS_PER_PERIOD) > self.round {
            return None;
        }
        entry.entered_in = self.round;
        (entry.renew)()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::sleep;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(20);

    fn counting() -> (Arc<AtomicUsize>, Keeper) {
        let renewed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&renewed);
        let count = move || _ = counted.fetch_add(1, Ordering::Relaxed);
        (renewed, Keeper::at_once_every(PERIOD, count))
    }

    fn lists() -> Vec<Arc<List>> {
        LISTS.with_borrow(Clone::clone)
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_renewed_once_in_a_period_from_whenever_it_was_taken() {
        for entered_after in [0, 1, 9, 10, 13, 19] {
            let (_, first) = counting();
            let first = first.start();
            sleep(Duration::from_secs(entered_after)).await;
            let (renewed, keeper) = counting();
            let keeping = keeper.start();
            sleep(PERIOD / 2).await;
            assert_eq!(renewed.load(Ordering::Relaxed), 0, "it is not that old");
            for periods in 1..4 {
                sleep(PERIOD).await;
                let renewed = renewed.load(Ordering::Relaxed);
                assert!(renewed == periods || renewed == periods + 1, "{renewed} in {periods}");
            }
            drop((first, keeping));
            let until_then = renewed.load(Ordering::Relaxed);
            sleep(PERIOD * 3).await;
            assert_eq!(renewed.load(Ordering::Relaxed), until_then);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_places_are_renewed_however_many_there_are() {
        const PLACES: usize = 3 * CHUNK + 1;
        let (counts, keeping): (Vec<_>, Vec<_>) = (0..PLACES)
            .map(|_| {
                let (renewed, keeper) = counting();
                (renewed, keeper.start())
            })
            .unzip();
        sleep(PERIOD + PERIOD / 4).await;
        assert!(counts.iter().all(|renewed| renewed.load(Ordering::Relaxed) == 1));
        drop(keeping);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_goes_through_a_list_that_is_empty() {
        let (_, keeper) = counting();
        let keeping = keeper.start();
        let list = lists().pop().expect("a list");
        assert!(list.lock().has_rounds);
        drop(keeping);
        sleep(PERIOD).await;
        assert!(!list.lock().has_rounds);
        let (renewed, keeper) = counting();
        let _keeping = keeper.start();
        sleep(PERIOD * 2).await;
        assert!(renewed.load(Ordering::Relaxed) > 0, "and somebody does when it is not any more");
    }

    #[test]
    fn a_thread_has_no_more_lists_than_it_uses() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build();
        for secs in 1..=3 * LISTS_MAX as u64 {
            let runtime = runtime().expect("a runtime");
            let _inside = runtime.enter();
            let keeping = Keeper::at_once_every(Duration::from_secs(secs), || {}).start();
            assert!(keeping.is_some());
        }
        assert!(lists().len() <= LISTS_MAX);
    }

    #[test]
    fn a_runtime_without_timers_panics_once_and_not_for_every_place() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (_, keeper) = counting();
        runtime.block_on(async {
            let _keeping = keeper.start();
            tokio::task::yield_now().await;
            assert!(lists().pop().expect("a list").lock().has_rounds, "nobody tries again");
        });
    }

    #[test]
    fn a_place_outlasts_the_runtime_that_it_was_taken_on() {
        let (_, keeper) = counting();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        let keeping = runtime.block_on(async { keeper.start() });
        drop(runtime);
        let list = lists().pop().expect("a list");
        assert!(!list.lock().has_rounds);
        drop(keeping);
        assert!(list.lock().entries.is_empty());
        let (_, keeper) = counting();
        assert!(keeper.start().is_none(), "nobody is there who could");
    }
}
