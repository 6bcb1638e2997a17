//! One request whose limits are kept in several places, each of which decides its own part all or
//! nothing: slots of a cluster, groups of servers, this node's memory.
//!
//! All parts are taken at the same time. Where a place refuses or cannot decide, what the others took is
//! given back, by naming the instant at which it was taken. So a request is never over, and what was taken
//! for a moment may refuse somebody else early for that moment.
//!
//! Where quota is scarce, many that come at one moment could refuse each other like this, each with a part
//! of what all need, until nobody has anything. So when all is back, the place that refused is looked at
//! once more. If it would not refuse any more, the request is tried again, once, and from one place to
//! the next, in the same order for everybody.
//!
//! Whoever asked may be gone before all places have answered. What is in flight then goes on in a task of
//! its own until it is known what was taken, and gives it back. A give-back that fails is counted, not
//! repeated: it may have gone through, and quota that is given back twice would be over.
//!
//! What is not here: which limit is kept where, and what follows from a place that cannot decide.

mod flight;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tidegate_core::{Key, Limit, Operation, Timestamp};
use tidegate_store::{Charge, Request, Source, StoreError};
use tokio::time::{Instant, timeout_at};

use crate::Settled;
use crate::protocol::is_hopeless;
use flight::{Flight, Landed, Returns, land};

/// The most give-backs that go on at once after those who asked are gone.
const DETACHED_MAX: usize = 4_096;

/// How long such a one may take.
const DETACHED_WITHIN: Duration = Duration::from_secs(5);

/// How long a place has to take something back. It is more than a decision has: nobody waits for it beyond the
/// decision's own end, and what is not given back is missing.
pub(crate) const GIVE_BACK_WITHIN: Duration = Duration::from_secs(1);

/// Where the parts of requests are decided. It is a handle: all clones are the same places.
pub(crate) trait Places: Clone + Send + Sync + 'static {
    /// The name of one of them.
    type Place: Copy + Ord + Send + Sync + 'static;
    /// What else a place has to know of a charge.
    type Tag: Copy + Send + Sync + 'static;

    /// Decides a part of a request where it belongs, all or nothing, by the `end`, and appends what each
    /// limit says. An error that says so may have changed state; a place that took
    /// something gives an answer.
    fn decide(
        &self,
        place: Self::Place,
        part: &Part<Self::Tag>,
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Whether a place answers at once, without asking anybody. Those are asked first: where one of them
    /// refuses, the others only look.
    fn is_at_hand(&self, place: Self::Place) -> bool;

    /// What became of give-backs.
    fn give_backs(&self) -> &Arc<GiveBacks>;
}

/// The charges of a request that one place decides.
pub(crate) struct Part<T> {
    pub(crate) now: Timestamp,
    pub(crate) charges: Vec<OwnedCharge<T>>,
}

/// A charge that outlives the request it came with.
pub(crate) struct OwnedCharge<T> {
    pub(crate) limit: Limit,
    pub(crate) key: Key,
    pub(crate) operation: Operation,
    pub(crate) tag: T,
    /// Who took what this gives back; `None` for a charge that somebody asked for.
    pub(crate) taken_by: Option<Source>,
    /// The number of the charge in its request.
    index: usize,
}

impl<T> Part<T> {
    /// The charges as the seam has them.
    pub(crate) fn charges(&self) -> Vec<Charge<'_>> {
        self.charges.iter().map(OwnedCharge::as_charge).collect()
    }
}

impl<T> OwnedCharge<T> {
    /// The charge as the seam has it.
    pub(crate) fn as_charge(&self) -> Charge<'_> {
        Charge { limit: &self.limit, key: self.key, operation: self.operation }
    }
}

/// What became of give-backs.
#[derive(Debug, Default)]
pub(crate) struct GiveBacks {
    failed: AtomicU64,
    detached: AtomicUsize,
}

impl GiveBacks {
    /// How many charges could not be given back, or not for certain. They are refused to everybody
    /// until the limit itself brings them back.
    pub(crate) fn failed(&self) -> u64 {
        // ORDERING: a number for people.
        self.failed.load(Ordering::Relaxed)
    }

    fn count_failed(&self, charges: usize) {
        // ORDERING: a number for people.
        self.failed.fetch_add(charges as u64, Ordering::Relaxed);
    }
}

/// A request on its way to several places. Dropped before it has settled, it gives back what was taken.
pub(crate) struct Split<P: Places> {
    places: P,
    flights: Vec<Flight<P>>,
    charges: usize,
    /// Whether something went through that is not given back.
    changed: bool,
}

impl<P: Places> Split<P> {
    /// Cuts a request into parts. `assign` says where the charge of a number is kept. Nothing happens
    /// before [`Split::settle`].
    pub(crate) fn new(
        places: &P,
        request: &Request<'_>,
        assign: impl Fn(usize) -> (P::Place, P::Tag),
    ) -> Self {
        // A take that can never go through is no reason to take anything elsewhere.
        let hopeless = is_hopeless(request);
        let mut flights: Vec<Flight<P>> = Vec::new();
        for (index, charge) in request.charges.iter().enumerate() {
            let (place, tag) = assign(index);
            let operation = if hopeless { only_look(charge.operation) } else { charge.operation };
            let (limit, key, taken_by) = (charge.limit.clone(), charge.key, None);
            let charge = OwnedCharge { limit, key, operation, tag, taken_by, index };
            let begun = flights.iter_mut().find_map(|flight| match flight {
                Flight::Waiting(at, part) if *at == place => Some(part),
                _ => None,
            });
            match begun {
                Some(part) => part.charges.push(charge),
                None => flights
                    .push(Flight::Waiting(place, Part { now: request.now, charges: vec![charge] })),
            }
        }
        let charges = request.charges.len();
        Self { places: places.clone(), flights, charges, changed: false }
    }

    /// Decides by the `deadline`, whatever it takes, and appends what each limit says to `settled`, in the
    /// order of the request. Until then it waits for what has to be given back, so that the next request
    /// finds it there; after that it is given back all the same.
    ///
    /// An error says that some place could not decide. What was taken elsewhere is given back then; other
    /// operations than takes went through wherever they could, in which case the error is one that may
    /// have changed state.
    pub(crate) async fn settle(
        mut self,
        deadline: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        let mut answers = vec![None; self.charges];
        self.launch(deadline, P::is_at_hand);
        land(&mut self.flights).await;
        if self.flights.iter().any(Flight::is_refused) {
            self.flights.iter_mut().for_each(Flight::only_look);
        }
        self.launch(deadline, |_, _| true);
        land(&mut self.flights).await;
        let landed = self.landed();
        if self.conclude(&landed, true, deadline, &mut answers).await? {
            self.flights = landed.into_iter().filter_map(Landed::taking_again).collect();
            self.fly_in_order(deadline).await;
            let landed = self.landed();
            self.conclude(&landed, false, deadline, &mut answers).await?;
        }
        // Each charge is in one part, and each part has landed.
        settled.extend(answers.into_iter().flatten());
        Ok(())
    }

    /// Sends the parts off one after the other, in the order of their places. After a refusal the
    /// rest only looks.
    async fn fly_in_order(&mut self, deadline: Instant) {
        self.flights.sort_by_key(Flight::place);
        for index in 0..self.flights.len() {
            let place = self.flights[index].place();
            self.launch(deadline, |_, at| Some(at) == place);
            land(&mut self.flights).await;
            if self.flights[index].is_refused() {
                self.flights.iter_mut().for_each(Flight::only_look);
                self.launch(deadline, |_, _| true);
                return land(&mut self.flights).await;
            }
        }
    }

    /// The parts, all of which have been answered.
    fn landed(&mut self) -> Vec<Landed<P>> {
        self.flights.drain(..).filter_map(Flight::into_landed).collect()
    }

    /// Puts the answers in their places, and gives back what was taken where the request is refused.
    /// Gives whether it could go through now, where somebody is to `look_again`.
    async fn conclude(
        &mut self,
        landed: &[Landed<P>],
        look_again: bool,
        deadline: Instant,
        answers: &mut [Option<Settled>],
    ) -> Result<bool, StoreError> {
        let refused = landed.iter().any(Landed::is_refused);
        for part in landed {
            part.answer(refused, answers);
        }
        if !refused {
            return Ok(false);
        }
        self.changed |= landed.iter().any(Landed::has_changed_for_good);
        let returns = Returns::of(&self.places, landed);
        if let Some(error) = landed.iter().find_map(Landed::error) {
            let returned = returns.wait(deadline, answers).await;
            return Err(if self.changed || !returned { StoreError::NoAnswer } else { error });
        }
        let is_torn = !returns.is_empty();
        let returned = returns.wait(deadline, answers).await;
        if !look_again || !is_torn || !returned {
            return Ok(false);
        }
        // Not before: by now those who came at the same moment have given back as well.
        let mut looks: Vec<_> = landed.iter().filter_map(Landed::looking_again).collect();
        for look in &mut looks {
            look.launch_if(&self.places, deadline, |_| true);
        }
        let looked = timeout_at(deadline, land(&mut looks)).await.is_ok();
        Ok(looked && looks.iter().all(Flight::is_allowed))
    }

    /// Sends the waiting parts of some places off.
    fn launch(&mut self, deadline: Instant, chosen: impl Fn(&P, P::Place) -> bool) {
        for flight in &mut self.flights {
            flight.launch_if(&self.places, deadline, |place| chosen(&self.places, place));
        }
    }
}

impl<P: Places> Drop for Split<P> {
    fn drop(&mut self) {
        let mut flights = std::mem::take(&mut self.flights);
        flights.retain(Flight::may_have_taken);
        if flights.is_empty() {
            return;
        }
        let at_stake = flights.iter().map(Flight::at_stake).sum();
        let places = self.places.clone();
        detach(&self.places, at_stake, async move {
            land(&mut flights).await;
            let landed: Vec<Landed<P>> =
                flights.into_iter().filter_map(Flight::into_landed).collect();
            Returns::of(&places, &landed).finish().await;
        });
    }
}

/// Runs what is left of a request after whoever asked is gone, as far as there is room.
pub(crate) fn detach<P: Places>(
    places: &P,
    at_stake: usize,
    rest: impl Future<Output = ()> + Send + 'static,
) {
    let give_backs = Arc::clone(places.give_backs());
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return give_backs.count_failed(at_stake);
    };
    // ORDERING: it only counts tasks; nothing is read under its protection.
    if give_backs.detached.fetch_add(1, Ordering::Relaxed) >= DETACHED_MAX {
        give_backs.detached.fetch_sub(1, Ordering::Relaxed);
        return give_backs.count_failed(at_stake);
    }
    runtime.spawn(async move {
        if tokio::time::timeout(DETACHED_WITHIN, rest).await.is_err() {
            give_backs.count_failed(at_stake);
        }
        // ORDERING: as above.
        give_backs.detached.fetch_sub(1, Ordering::Relaxed);
    });
}

/// A take that is known to go nowhere looks instead. All else stays.
const fn only_look(operation: Operation) -> Operation {
    match operation {
        Operation::Take { cost } => Operation::Peek { cost },
        other => other,
    }
}
