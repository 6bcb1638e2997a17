//! Places under concurrency limits that a call holds. They come back by themselves after a while, in case
//! that their holder has died; so whoever lives renews them for as long as the call goes on.
//!
//! Most calls are over long before. So beginning and ending one is no more than an entry in a list that its thread
//! has for all places that are renewed equally often, and one task goes through that list now and then.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slab::Slab;
use tokio::runtime::{Handle, Id};
use tokio::time::interval;

/// How many rounds through a list there are in a period. A place is renewed in the second that begins after it was
/// taken: a third of a period later at the soonest, which most calls do not last for, and a whole one at the latest.
const ROUNDS_PER_PERIOD: u32 = 3;
const ROUNDS_LATER: u64 = 2;
/// How many places are renewed together. A round takes its time for all of them, so that nobody is asked about
/// thousands at once.
const CHUNK: usize = 64;
/// What is between two chunks at least, however many there are.
const TICK_MIN: Duration = Duration::from_micros(1);
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

    /// The same where to renew takes no longer than a decision does. `renew` must begin and end no calls itself.
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
        let (index, is_first) = list.lock().enter(self.renew);
        if is_first {
            // Nobody may hold the list meanwhile: a runtime that ends drops what it is given at once.
            let rounds = Rounds { list: Arc::clone(&list), are_over: false, has_timer: false };
            drop(runtime.spawn(rounds.run()));
        }
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
            let chunks = self.list.lock().chunks();
            // Ticks that are due already come at once, and so does the first.
            let mut ticks = interval((step / chunks).max(TICK_MIN));
            self.has_timer = true;
            ticks.tick().await;
            for chunk in 0..chunks {
                ticks.tick().await;
                let renewals = self.list.lock().renew_due(chunk);
                for renewal in renewals {
                    drop(tokio::spawn(renewal));
                }
            }
            self.are_over = !self.list.lock().begin_round();
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
    /// Enters a place. Says where, and whether somebody has to begin going through the list.
    fn enter(&mut self, renew: Renew) -> (usize, bool) {
        let index = self.entries.insert(Entry { renew, entered_in: self.round });
        (index, !mem::replace(&mut self.has_rounds, true))
    }

    /// Begins a round, unless there is nothing in the list. Says whether it did.
    fn begin_round(&mut self) -> bool {
        self.round += 1;
        self.has_rounds = !self.entries.is_empty();
        if self.chunks() > 1 && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to_fit();
        }
        self.has_rounds
    }

    fn chunks(&self) -> u32 {
        let chunks = self.entries.capacity().div_ceil(CHUNK).max(1);
        u32::try_from(chunks).unwrap_or(u32::MAX)
    }

    /// Renews those places of a chunk for which it is time, and answers what is still to be done for them.
    fn renew_due(&mut self, chunk: u32) -> Vec<Renewal> {
        let begin = chunk as usize * CHUNK;
        let round = self.round;
        let renew = |index| {
            let entry = self.entries.get_mut(index)?;
            if entry.entered_in + ROUNDS_LATER > round {
                return None;
            }
            entry.entered_in = round;
            (entry.renew)()
        };
        (begin..begin + CHUNK).filter_map(renew).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::sleep;

    use super::*;

    const PERIOD: Duration = Duration::from_secs(20);
    /// Timers are that late at most, all of a period together.
    const TICKS: Duration = Duration::from_millis(5);

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
    async fn a_place_is_renewed_within_a_period_and_then_every_two_thirds_of_it() {
        for entered_after in [0, 1, 9, 10, 13, 19] {
            let (_, first) = counting();
            let first = first.start();
            sleep(Duration::from_secs(entered_after)).await;
            let (renewed, keeper) = counting();
            let keeping = keeper.start();
            sleep(PERIOD / 3).await;
            assert_eq!(renewed.load(Ordering::Relaxed), 0, "it is not that old");
            sleep(PERIOD * 2 / 3 + TICKS).await;
            for times in 1..6 {
                assert!(
                    renewed.load(Ordering::Relaxed) >= times,
                    "{times} after {entered_after} s"
                );
                sleep(PERIOD * 2 / 3 + TICKS).await;
            }
            assert!(renewed.load(Ordering::Relaxed) <= 7);
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
        sleep(PERIOD + TICKS).await;
        assert!(counts.iter().all(|renewed| renewed.load(Ordering::Relaxed) == 1));
        sleep(PERIOD * 4).await;
        let times: Vec<_> = counts.iter().map(|renewed| renewed.load(Ordering::Relaxed)).collect();
        assert!(times.iter().all(|times| (6..=8).contains(times)), "{times:?}");
        let list = lists().pop().expect("a list");
        let room = list.lock().entries.capacity();
        drop(keeping);
        let (_, keeper) = counting();
        let _keeping = keeper.start();
        sleep(PERIOD).await;
        assert!(list.lock().entries.capacity() < room, "what is not needed is given back");
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

    #[tokio::test(start_paused = true)]
    async fn thousands_of_places_are_not_renewed_all_at_once() {
        const PLACES: usize = 100 * CHUNK;
        let (renewed, _) = counting();
        let keeping: Vec<_> = (0..PLACES)
            .map(|_| {
                let renewed = Arc::clone(&renewed);
                let count = move || _ = renewed.fetch_add(1, Ordering::Relaxed);
                Keeper::at_once_every(PERIOD, count).start()
            })
            .collect();
        let (mut before, mut most) = (0, 0);
        for _ in 0..=100 {
            sleep(PERIOD / 100).await;
            let now = renewed.load(Ordering::Relaxed);
            (most, before) = (most.max(now - before), now);
        }
        assert_eq!(before, PLACES);
        assert!(most <= PLACES / 10, "{most} in a hundredth of the time");
        drop(keeping);
    }

    #[test]
    fn a_place_that_is_taken_while_the_runtime_ends_hangs_nobody() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        let handle = runtime.handle().clone();
        drop(runtime);
        let _inside = handle.enter();
        let (_, keeper) = counting();
        drop(keeper.start());
        let (_, keeper) = counting();
        drop(keeper.start());
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
