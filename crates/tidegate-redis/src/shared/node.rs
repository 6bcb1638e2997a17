//! What decides on this node: which place keeps a limit, what is known without asking, and whom to ask.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_core::{Consistency, Key, Operation, Terms, Timestamp};
use tidegate_store::{Charge, Request, Settled, Source, StoreError, Table, TableConfig};
use tokio::time::Instant;

use super::denials::Denials;
use super::group::Group;
use super::groups::Spread;
use super::policy;
use super::pulse::{Lifted, NodeId};
use crate::split::{GiveBacks, Split};

/// All that a node decides with.
pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) groups: Box<[Group]>,
    pub(super) spread: Spread,
    pub(super) memory: TableConfig,
    /// Made when it is first needed, since it has to know about when that is. `None` where it could not be.
    pub(super) table: OnceLock<Option<Table>>,
    pub(super) denials: Denials,
    pub(super) give_backs: Arc<GiveBacks>,
    /// How many requests were refused by a denial that still held.
    pub(super) cached_denials: AtomicU64,
}

/// Who keeps a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// This node's memory.
    Here,
    /// A group of servers.
    Group(u8),
    /// A group, asked for one charge of a request by itself: that of this number.
    Alone(u8, u8),
    /// What this node has leased of a group, for the charge of this number.
    Leased(u8, u8),
}

/// What is known of a request without asking: the answers of takes that are refused.
struct Denied {
    /// The key of one of them.
    key: Key,
    answers: Vec<Option<Settled>>,
}

impl Node {
    /// Decides what can be decided without asking anybody; `None` for all else.
    #[inline]
    pub(super) fn decide_at_hand(
        &self,
        request: &Request<'_>,
        terms: &[Terms],
        settled: &mut Vec<Settled>,
    ) -> Option<Result<(), StoreError>> {
        let ([charge], [terms]) = (request.charges, terms) else {
            return self.decide_several_at_hand(request, terms, settled);
        };
        if terms.consistency == Consistency::Local {
            return Some(self.decide_here(request, settled));
        }
        if let Some(spent) = self.spend_one(request.now, charge, *terms) {
            settled.push(spent);
            return Some(Ok(()));
        }
        let denied = self.denials.look(request.now, charge)?;
        self.count_cached_denial();
        settled.push(denied);
        Some(Ok(()))
    }

    fn decide_several_at_hand(
        &self,
        request: &Request<'_>,
        terms: &[Terms],
        settled: &mut Vec<Settled>,
    ) -> Option<Result<(), StoreError>> {
        if let Err(error) = request.check() {
            return Some(Err(error));
        }
        if terms.iter().all(|terms| terms.consistency == Consistency::Local) {
            return Some(self.decide_here(request, settled));
        }
        // First, for it is most of what there is under leases, and needs no memory.
        let start = settled.len();
        if self.spend_several(request, terms, |one| settled.push(one)) {
            return Some(Ok(()));
        }
        settled.truncate(start);
        let mut denied = self.denied(request, terms)?;
        if !self.denials.look_at_others(denied.key, request, &mut denied.answers) {
            return None;
        }
        self.count_cached_denial();
        settled.extend(denied.answers.into_iter().flatten());
        Some(Ok(()))
    }

    /// Decides by asking whoever has to be asked, after [`Node::decide_at_hand`] could not, and not for longer
    /// than until the `end`.
    pub(super) async fn decide_by_asking(
        self: &Arc<Self>,
        request: &Request<'_>,
        terms: &[Terms],
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        if request.charges.len() > 1
            && let Some(denied) = self.denied(request, terms)
        {
            return self.decide_others(denied, request, terms, end, settled).await;
        }
        self.route(request, terms, end, settled).await
    }

    /// The takes of a request that are known to be refused; `None` where there are none.
    fn denied(&self, request: &Request<'_>, terms: &[Terms]) -> Option<Denied> {
        let look = |(charge, terms): (&Charge<'_>, &Terms)| match terms.consistency {
            Consistency::Local => None,
            Consistency::Strict | Consistency::Leased => self.denials.look(request.now, charge),
        };
        let answers: Vec<_> = request.charges.iter().zip(terms).map(look).collect();
        let first = answers.iter().position(Option::is_some)?;
        Some(Denied { key: request.charges[first].key, answers })
    }

    /// Asks for the answers of a refused request that are not known. Its takes spend nothing.
    async fn decide_others(
        self: &Arc<Self>,
        mut denied: Denied,
        request: &Request<'_>,
        terms: &[Terms],
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        let asked = || (0..request.charges.len()).filter(|&index| denied.answers[index].is_none());
        let charges: Vec<_> = asked().map(|index| looking(request.charges[index])).collect();
        let their_terms: Vec<_> = asked().map(|index| terms[index]).collect();
        let mut answers = Vec::with_capacity(charges.len());
        if !charges.is_empty() {
            let looks = Request { now: request.now, charges: &charges };
            self.route(&looks, &their_terms, end, &mut answers).await?;
        }
        let mut answers = answers.into_iter();
        for answer in denied.answers.iter_mut().filter(|answer| answer.is_none()) {
            *answer = answers.next();
        }
        let start = settled.len();
        settled.extend(denied.answers.into_iter().flatten());
        self.denials.note_others(denied.key, request, &settled[start..]);
        self.count_cached_denial();
        Ok(())
    }

    /// Has all places that keep a limit of the request decide it.
    async fn route(
        self: &Arc<Self>,
        request: &Request<'_>,
        terms: &[Terms],
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        let mut places = [Place::Here; Request::CHARGES_MAX];
        for (index, (charge, terms)) in request.charges.iter().zip(terms).enumerate() {
            if let Some(place) = places.get_mut(index) {
                *place = self.place_of(index, charge, *terms, request.now);
            }
        }
        let Some(places) = places.get(..request.charges.len()) else {
            return Err(StoreError::TooManyCharges);
        };
        let Some(first) = places.first() else { return Ok(()) };
        if places.iter().all(|place| place == first) {
            return self.decide_in(*first, request, terms, end, settled).await;
        }
        let split = Split::new(self, request, |index| (places[index], terms[index]));
        split.settle(end, settled).await
    }

    /// Who keeps a key under these terms.
    pub(super) fn place(&self, key: Key, terms: Terms) -> Place {
        match terms.consistency {
            Consistency::Local => Place::Here,
            Consistency::Strict | Consistency::Leased => Place::Group(self.group_of(key, terms)),
        }
    }

    /// The group of a key. One that the terms name and that does not exist is as good as none.
    #[inline]
    pub(super) fn group_of(&self, key: Key, terms: Terms) -> u8 {
        if self.groups.len() == 1 {
            return 0;
        }
        let named = terms.group.filter(|group| usize::from(*group) < self.groups.len());
        named.unwrap_or_else(|| self.spread.group(key))
    }

    /// Decides what one place keeps, all or nothing, by the `end`.
    pub(super) async fn decide_in(
        self: &Arc<Self>,
        place: Place,
        request: &Request<'_>,
        terms: &[Terms],
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        let (number, group) = match place {
            Place::Here => return self.decide_here(request, settled),
            Place::Group(number) | Place::Alone(number, _) | Place::Leased(number, _) => {
                (number, &self.groups[usize::from(number)])
            }
        };
        // One group may have less time than others that the same decision needs. What always goes through is
        // not waited for as decisions are.
        let is_decision = request.charges.iter().any(|charge| {
            matches!(charge.operation, Operation::Take { .. } | Operation::Peek { .. })
        });
        let end = if is_decision { end.min(Instant::now() + group.deadline) } else { end };
        if matches!(place, Place::Leased(..))
            && self.take_leased(group, request, end, settled).await
        {
            return Ok(());
        }
        let start = settled.len();
        let asked = match self.look_beside(place, group, request, end, settled).await {
            Some(looked) => looked,
            None => self.ask(group, request, end, settled).await,
        };
        let error = match asked {
            Ok(()) => return Ok(()),
            Err(StoreError::ForeignState) if request.charges.len() > 1 => {
                return self.one_by_one(number, request, terms, end, settled).await;
            }
            Err(error) => error,
        };
        settled.truncate(start);
        let table = self.table(request.now)?;
        let left = Self::keep_give_backs(group, error, table, request, terms);
        let charges = left.as_deref().unwrap_or(request.charges);
        let request = Request { now: request.now, charges };
        policy::settle(error, table, group.nodes(), &request, terms, settled)?;
        group.count_fallback();
        Ok(())
    }

    /// Asks for each charge by itself, so that one whose state is somebody else's does not keep the
    /// others from being decided.
    async fn one_by_one(
        self: &Arc<Self>,
        group: u8,
        request: &Request<'_>,
        terms: &[Terms],
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        let alone = |index: usize| (Place::Alone(group, index as u8), terms[index]);
        Split::new(self, request, alone).settle(end, settled).await
    }

    /// Has a group decide, and keeps or lifts denials by what it says.
    pub(super) async fn ask(
        &self,
        group: &Group,
        request: &Request<'_>,
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        let marks = self.denials.marks(request);
        let lifting = Lifting { node: self, group, request };
        let start = settled.len();
        let decided = group.store.settle(request, end, settled).await;
        drop(lifting);
        decided?;
        for one in &settled[start..] {
            group.learn_time(request.now, one.at);
        }
        self.denials.refute(request, &settled[start..]);
        if settled[start..].iter().any(|one| !one.decision.is_allowed()) {
            self.denials.note(request, &marks, &settled[start..]);
        }
        Ok(())
    }

    /// Decides in this node's memory.
    pub(super) fn decide_here(
        &self,
        request: &Request<'_>,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        let table = self.table(request.now)?;
        let settle = |decision| Settled { decision, at: request.now, source: Source::Memory };
        if let [charge] = request.charges {
            settled.push(settle(table.decide_one(request.now, charge)));
            return Ok(());
        }
        let mut decisions = Vec::with_capacity(request.charges.len());
        table.decide(request, &mut decisions)?;
        settled.extend(decisions.into_iter().map(settle));
        Ok(())
    }

    /// This node's memory.
    pub(super) fn table(&self, now: Timestamp) -> Result<&Table, StoreError> {
        let table = self.table.get_or_init(|| Table::new(self.memory, now).ok());
        // One was made at the start, to see that it can be.
        table.as_ref().ok_or(StoreError::Refused)
    }

    /// Forgets what is known of a key's denial, and has the other nodes forget it.
    pub(super) fn lift(&self, group: &Group, key: Key) {
        self.denials.lift(key);
        group.leases.book().lift(key);
        group.pulse.lifted(key);
    }

    /// Sends a pulse to a group.
    pub(super) async fn beat(&self, number: usize) {
        let group = &self.groups[number];
        let heard = group.beat(self.id).await;
        group.note_health(number, heard.is_ok());
        match heard.map(|heard| heard.lifted) {
            Ok(Lifted::Keys(keys)) => keys.into_iter().for_each(|key| {
                self.denials.lift(key);
                group.leases.book().lift(key);
            }),
            Ok(Lifted::All) => {
                self.denials.lift_all();
                group.leases.book().lift_all();
            }
            Err(_) => return,
        }
        self.send_kept(group).await;
    }

    /// How long all places together may take to decide.
    pub(super) fn deadline(&self) -> Duration {
        self.groups.iter().map(|group| group.deadline).max().unwrap_or_default()
    }

    pub(super) fn count_cached_denial(&self) {
        // ORDERING: a number for people.
        self.cached_denials.fetch_add(1, Ordering::Relaxed);
    }
}

/// Lifts the denials of what a request gives back or resets, once it has been answered or given up. Not
/// before: until then others may be told the old answer.
struct Lifting<'a> {
    node: &'a Node,
    group: &'a Group,
    request: &'a Request<'a>,
}

impl Drop for Lifting<'_> {
    fn drop(&mut self) {
        for charge in self.request.charges {
            match charge.operation {
                Operation::Take { .. }
                | Operation::Peek { .. }
                | Operation::Release { .. }
                | Operation::Renew { .. } => {}
                Operation::Debit { .. } => self.node.denials.lift(charge.key),
                Operation::Refund { .. } => self.node.lift(self.group, charge.key),
            }
        }
    }
}

/// A charge that spends nothing where it would take.
const fn looking(charge: Charge<'_>) -> Charge<'_> {
    match charge.operation {
        Operation::Take { cost } => Charge { operation: Operation::Peek { cost }, ..charge },
        _ => charge,
    }
}
