//! The parts of a request on their way: sent, answered, given back.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tidegate_core::{Decision, Operation};
use tidegate_store::StoreError;
use tokio::time::Instant;

use super::{GIVE_BACK_WITHIN, OwnedCharge, Part, Places, detach, only_look};
use crate::Settled;

type Sent<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One part of a request.
pub(super) enum Flight<P: Places> {
    Waiting(P::Place, Part<P::Tag>),
    /// With the number of its takes.
    Flying(Sent<Landed<P>>, usize),
    Landed(Landed<P>),
}

/// A part that has been answered.
pub(super) struct Landed<P: Places> {
    place: P::Place,
    part: Part<P::Tag>,
    outcome: Result<Vec<Settled>, StoreError>,
}

impl<P: Places> Flight<P> {
    pub(super) fn launch_if(
        &mut self,
        places: &P,
        end: Instant,
        chosen: impl Fn(P::Place) -> bool,
    ) {
        let Self::Waiting(place, part) = self else { return };
        if !chosen(*place) {
            return;
        }
        let (place, now) = (*place, part.now);
        let part = Part { now, charges: std::mem::take(&mut part.charges) };
        let takes = part.charges.iter().filter(|charge| charge.is_take()).count();
        *self = Self::Flying(Box::pin(launch(places.clone(), place, part, end)), takes);
    }

    /// Has the takes of a part that was not sent yet look instead.
    pub(super) fn only_look(&mut self) {
        if let Self::Waiting(_, part) = self {
            for charge in &mut part.charges {
                charge.operation = only_look(charge.operation);
            }
        }
    }

    /// Whether it is known that the request does not go through.
    pub(super) fn is_refused(&self) -> bool {
        match self {
            Self::Landed(landed) => landed.is_refused(),
            Self::Waiting(..) | Self::Flying(..) => false,
        }
    }

    /// Whether all that was asked for would go through.
    pub(super) fn is_allowed(&self) -> bool {
        match self {
            Self::Landed(Landed { outcome: Ok(settled), .. }) => {
                settled.iter().all(|one| one.decision.is_allowed())
            }
            Self::Landed(_) | Self::Waiting(..) | Self::Flying(..) => false,
        }
    }

    /// Where it goes; `None` while it is on its way.
    pub(super) fn place(&self) -> Option<P::Place> {
        match self {
            Self::Waiting(place, _) | Self::Landed(Landed { place, .. }) => Some(*place),
            Self::Flying(..) => None,
        }
    }

    pub(super) fn may_have_taken(&self) -> bool {
        self.at_stake() > 0
    }

    /// How many takes have gone through, or may yet.
    pub(super) fn at_stake(&self) -> usize {
        match self {
            Self::Waiting(..) => 0,
            Self::Flying(_, takes) => *takes,
            Self::Landed(landed) => landed.taken().count(),
        }
    }

    pub(super) fn into_landed(self) -> Option<Landed<P>> {
        match self {
            Self::Landed(landed) => Some(landed),
            Self::Waiting(..) | Self::Flying(..) => None,
        }
    }
}

/// Has a place decide a part by the `end`.
pub(super) async fn launch<P: Places>(
    places: P,
    place: P::Place,
    part: Part<P::Tag>,
    end: Instant,
) -> Landed<P> {
    let mut settled = Vec::with_capacity(part.charges.len());
    let decided = places.decide(place, &part, end, &mut settled).await;
    debug_assert!(decided.is_err() || settled.len() == part.charges.len());
    Landed { place, part, outcome: decided.map(|()| settled) }
}

/// Waits until all that fly have landed. They are polled here, and not in tasks of their own: there are
/// few, and a task costs more than a poll.
pub(super) async fn land<P: Places>(flights: &mut [Flight<P>]) {
    poll_fn(|context| {
        let mut all = Poll::Ready(());
        for flight in flights.iter_mut() {
            if let Flight::Flying(sent, _) = flight {
                match sent.as_mut().poll(context) {
                    Poll::Ready(landed) => *flight = Flight::Landed(landed),
                    Poll::Pending => all = Poll::Pending,
                }
            }
        }
        all
    })
    .await;
}

impl<P: Places> Landed<P> {
    /// The takes once more; `None` where there are none. All else has gone through.
    pub(super) fn taking_again(mut self) -> Option<Flight<P>> {
        self.part.charges.retain(OwnedCharge::is_take);
        (!self.part.charges.is_empty()).then(|| Flight::Waiting(self.place, self.part))
    }

    /// A look at what was refused here; `None` where nothing was.
    pub(super) fn looking_again(&self) -> Option<Flight<P>> {
        if !self.is_refused() {
            return None;
        }
        let takes = self.part.charges.iter().filter(|charge| charge.is_take());
        let looks = takes.map(|charge| OwnedCharge {
            limit: charge.limit.clone(),
            operation: only_look(charge.operation),
            ..*charge
        });
        Some(Flight::Waiting(self.place, Part { now: self.part.now, charges: looks.collect() }))
    }

    pub(super) fn is_refused(&self) -> bool {
        match &self.outcome {
            Ok(settled) => self
                .with(settled)
                .any(|(charge, one)| charge.is_take() && !one.decision.is_allowed()),
            Err(_) => true,
        }
    }

    /// The takes that went through and spent something. A place is all or nothing: where one of its
    /// takes is refused, none went through.
    fn taken(&self) -> impl Iterator<Item = (&OwnedCharge<P::Tag>, &Settled)> {
        let settled = match &self.outcome {
            Ok(settled) if !self.is_refused() => &settled[..],
            Ok(_) | Err(_) => &[],
        };
        self.with(settled).filter(|(charge, _)| charge.is_take() && charge.operation.cost() > 0)
    }

    fn with<'a>(
        &'a self,
        settled: &'a [Settled],
    ) -> impl Iterator<Item = (&'a OwnedCharge<P::Tag>, &'a Settled)> {
        self.part.charges.iter().zip(settled)
    }

    /// Puts the answers in their places. Where the whole request is refused, those to what was taken say
    /// what they would have said otherwise, as far as that can be told.
    pub(super) fn answer(&self, refused: bool, answers: &mut [Option<Settled>]) {
        let Ok(settled) = &self.outcome else { return };
        for (charge, settled) in self.with(settled) {
            answers[charge.index] = Some(*settled);
        }
        if refused {
            for (charge, settled) in self.taken() {
                let decision = not_taken(settled.decision, charge.operation.cost());
                answers[charge.index] = Some(Settled { decision, ..*settled });
            }
        }
    }

    /// Why this place could not decide.
    pub(super) fn error(&self) -> Option<StoreError> {
        self.outcome.as_ref().err().copied()
    }

    /// Whether something was changed here that is not given back.
    pub(super) fn has_changed_for_good(&self) -> bool {
        match &self.outcome {
            Ok(_) => self.part.charges.iter().any(OwnedCharge::is_for_good),
            Err(error) => error.may_have_changed_state(),
        }
    }

    /// What gives back all that was taken here; `None` where that is nothing.
    fn giving_back(&self) -> Option<Part<P::Tag>> {
        let charges: Vec<_> = self
            .taken()
            .map(|(charge, settled)| OwnedCharge {
                limit: charge.limit.clone(),
                key: charge.key,
                operation: match settled.decision.lease {
                    Some(lease) => Operation::Release { lease },
                    None => {
                        Operation::Refund { cost: charge.operation.cost(), taken_at: settled.at }
                    }
                },
                tag: charge.tag,
                taken_by: Some(settled.source),
                index: charge.index,
            })
            .collect();
        (!charges.is_empty()).then_some(Part { now: self.part.now, charges })
    }
}

impl<T> OwnedCharge<T> {
    const fn is_take(&self) -> bool {
        matches!(self.operation, Operation::Take { .. })
    }

    /// Whether it changes a state and always goes through.
    const fn is_for_good(&self) -> bool {
        match self.operation {
            Operation::Take { .. } | Operation::Peek { .. } => false,
            Operation::Debit { .. }
            | Operation::Refund { .. }
            | Operation::Release { .. }
            | Operation::Renew { .. } => true,
        }
    }
}

/// The answer to a take as it is when it is only looked at, as far as that can be told.
fn not_taken(taken: Decision, cost: u64) -> Decision {
    let remaining = taken.remaining.saturating_add(cost).min(taken.limit);
    Decision { remaining, lease: None, ..taken }
}

/// What is being given back. Dropped before it is all back, it goes on by itself.
pub(super) struct Returns<P: Places> {
    places: P,
    flights: Vec<(Sent<Landed<P>>, usize)>,
}

impl<P: Places> Returns<P> {
    /// All is to be given back that was taken.
    pub(super) fn of(places: &P, landed: &[Landed<P>]) -> Self {
        let end = Instant::now() + GIVE_BACK_WITHIN;
        let sent = |taken: &Landed<P>| {
            let part = taken.giving_back()?;
            let count = part.charges.len();
            let sent: Sent<_> = Box::pin(launch(places.clone(), taken.place, part, end));
            Some((sent, count))
        };
        Self { places: places.clone(), flights: landed.iter().filter_map(sent).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    /// Waits until all is back, but not beyond the `deadline`: what is not back by then comes back by
    /// itself. The answers to what is back are made exact. Gives whether all is back.
    pub(super) async fn wait(mut self, deadline: Instant, answers: &mut [Option<Settled>]) -> bool {
        if self.flights.is_empty() {
            return true;
        }
        let mut all = true;
        let arrived = arrive(&self.places, &mut self.flights, |landed| match &landed.outcome {
            Ok(settled) => {
                for (charge, settled) in landed.with(settled) {
                    if let Some(answer) = &mut answers[charge.index] {
                        answer.decision.remaining = settled.decision.remaining;
                        answer.decision.reset_after = settled.decision.reset_after;
                    }
                }
            }
            Err(_) => all = false,
        });
        let in_time = tokio::time::timeout_at(deadline, arrived).await.is_ok();
        in_time && all
    }

    /// Waits until all is back. Dropped before that, it gives up.
    pub(super) async fn finish(mut self) {
        let (places, mut flights) = (self.places.clone(), std::mem::take(&mut self.flights));
        arrive(&places, &mut flights, |_| ()).await;
    }
}

/// Waits until all is back, and counts what will not be.
async fn arrive<P: Places>(
    places: &P,
    flights: &mut Vec<(Sent<Landed<P>>, usize)>,
    mut seen: impl FnMut(&Landed<P>),
) {
    poll_fn(|context| {
        flights.retain_mut(|(sent, count)| match sent.as_mut().poll(context) {
            Poll::Ready(landed) => {
                if landed.outcome.is_err() {
                    places.give_backs().count_failed(*count);
                }
                seen(&landed);
                false
            }
            Poll::Pending => true,
        });
        if flights.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl<P: Places> Drop for Returns<P> {
    fn drop(&mut self) {
        let flights = std::mem::take(&mut self.flights);
        if flights.is_empty() {
            return;
        }
        let at_stake = flights.iter().map(|(_, count)| count).sum();
        let rest = Self { places: self.places.clone(), flights };
        detach(&self.places, at_stake, rest.finish());
    }
}
