//! Takes under limits that are leased: from what is at hand where there is enough, with the store's help
//! where there is not, and strictly where no lease is worth it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Consistency, Key, Operation, Span, Terms, Timestamp};
use tidegate_store::{Charge, Request, Settled, Source, StoreError};
use tokio::time::Instant;

use super::group::Group;
use super::node::{Node, Place};
use crate::deadline::half_way_to;
use crate::lease::Told;
use crate::lease::book::{Call, Mark};
use crate::lease::drive::{Leases, Lender};
use crate::protocol::capacity;

/// How much a charge takes under a lease; `None` for one that is decided otherwise.
#[inline]
pub(super) fn leased_cost(charge: &Charge<'_>, terms: Terms) -> Option<u64> {
    match (terms.consistency, charge.operation) {
        (Consistency::Leased, Operation::Take { cost }) if charge.limit.is_leasable() => Some(cost),
        _ => None,
    }
}

impl Node {
    /// The one charge of a request, if it is leased and enough is at hand.
    #[inline]
    pub(super) fn spend_one(
        &self,
        now: Timestamp,
        charge: &Charge<'_>,
        terms: Terms,
    ) -> Option<Settled> {
        let cost = leased_cost(charge, terms)?;
        let group = &self.groups[usize::from(self.group_of(charge.key, terms))];
        let decision = group.leases.spend_at_hand(charge.key, charge.limit, cost, now)?;
        Some(Settled { decision, at: group.time_of(now), source: Source::Lease })
    }

    /// All charges of a request, if all are leased and enough is at hand for each; otherwise none, and what
    /// `each` was handed is void.
    pub(super) fn spend_several(
        &self,
        request: &Request<'_>,
        terms: &[Terms],
        mut each: impl FnMut(Settled),
    ) -> bool {
        let now = request.now;
        let mut each_charge = request.charges.iter().zip(terms);
        if !each_charge.all(|(charge, terms)| leased_cost(charge, *terms).is_some()) {
            return false;
        }
        let book = |index: usize| {
            let group = self.group_of(request.charges[index].key, terms[index]);
            let group = &self.groups[usize::from(group)];
            (group, group.leases.book())
        };
        let mut marks = [Mark::default(); Request::CHARGES_MAX];
        for (index, charge) in request.charges.iter().enumerate() {
            let (group, of_group) = book(index);
            let spent = leased_cost(charge, terms[index])
                .and_then(|cost| of_group.spend_at_hand(charge.key, charge.limit, cost, now));
            if let Some((decision, mark)) = spent {
                marks[index] = mark;
                let at = group.time_of(now);
                each(Settled { decision, at, source: Source::Lease });
                continue;
            }
            for (index, charge) in request.charges[..index].iter().enumerate() {
                // Nobody can have been told of it in between but by chance; then it is spent.
                let cost = charge.operation.cost();
                let _ = book(index).1.undo(charge.key, cost, marks[index], now);
            }
            return false;
        }
        true
    }

    /// Decides one leased charge, with the help of its group; `false` where it is to be decided strictly. It
    /// waits for a lease until half of the time is over, and leaves the rest for deciding strictly.
    pub(super) async fn take_leased(
        &self,
        group: &Group,
        request: &Request<'_>,
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> bool {
        let [Charge { limit, key, operation }] = *request.charges else { return false };
        let one = match operation {
            Operation::Take { cost } => {
                let until = half_way_to(end);
                let taken = group.leases.take(key, limit, cost, request.now, until).await;
                taken.map(|taken| {
                    let source = match (taken.decision.is_allowed(), taken.asked) {
                        (true, _) => Source::Lease,
                        (false, true) => Source::Store,
                        (false, false) => {
                            self.count_cached_denial();
                            Source::CachedDeny
                        }
                    };
                    Settled { decision: taken.decision, at: group.time_of(taken.at), source }
                })
            }
            Operation::Refund { cost, taken_at } => {
                self.undo_leased(group, key, cost, taken_at, false, request.now)
            }
            Operation::Peek { .. }
            | Operation::Debit { .. }
            | Operation::Release { .. }
            | Operation::Renew { .. } => None,
        };
        settled.extend(one);
        one.is_some()
    }

    /// Gives back what was taken from a lease at a time of the group, if the group does not know of it yet:
    /// there, a refund that comes before its charge could be lost. Whether a lease paid may not be
    /// `certain`.
    pub(super) fn undo_leased(
        &self,
        group: &Group,
        key: Key,
        cost: u64,
        taken_at: Timestamp,
        certain: bool,
        now: Timestamp,
    ) -> Option<Settled> {
        let book = group.leases.book();
        let within = (!certain).then(|| strict_within(group));
        let decision = book.give_back(key, cost, group.earliest_of(taken_at), within, now)?;
        // It is at hand here. The others have no more than before.
        self.denials.lift(key);
        book.lift(key);
        Some(Settled { decision, at: group.time_of(now), source: Source::Lease })
    }

    /// A look at a limit of which this node has something at hand: it has that beside what the store has
    /// left. `None` for all else.
    pub(super) async fn look_beside(
        &self,
        place: Place,
        group: &Group,
        request: &Request<'_>,
        end: Instant,
        settled: &mut Vec<Settled>,
    ) -> Option<Result<(), StoreError>> {
        let ([charge], Place::Leased(..)) = (request.charges, place) else { return None };
        let Operation::Peek { cost } = charge.operation else { return None };
        let own = group.leases.book().spendable(charge.key, charge.limit, request.now);
        if own == 0 || cost > capacity(charge.limit) {
            return None;
        }
        let look = Operation::Peek { cost: cost.saturating_sub(own) };
        let beside = [Charge { operation: look, ..*charge }];
        let start = settled.len();
        // Its denial is none of the whole cost, and not kept.
        let request = Request { charges: &beside, ..*request };
        let looked = group.store.settle(&request, end, settled).await;
        // What was given back in between is the store's.
        let own = own.min(group.leases.book().spendable(charge.key, charge.limit, request.now));
        for one in &mut settled[start..] {
            one.decision.remaining = (one.decision.remaining + own).min(one.decision.limit);
        }
        Some(looked)
    }

    /// Where a charge is decided: each take that a lease may pay for by itself, and so what gives one back
    /// or looks at what is at hand. All others are for the store, in one call.
    pub(super) fn place_of(
        &self,
        index: usize,
        charge: &Charge<'_>,
        terms: Terms,
        now: Timestamp,
    ) -> Place {
        if terms.consistency != Consistency::Leased || !charge.limit.is_leasable() {
            return self.place(charge.key, terms);
        }
        let (key, number) = (charge.key, self.group_of(charge.key, terms));
        let group = &self.groups[usize::from(number)];
        let book = group.leases.book();
        let by_lease = match charge.operation {
            Operation::Take { cost } => !book.is_for_store(key, charge.limit, cost, now),
            Operation::Refund { cost, taken_at } => {
                let taken_at = group.earliest_of(taken_at);
                !book.is_return_for_store(key, cost, taken_at, strict_within(group))
            }
            Operation::Peek { .. } => book.spendable(key, charge.limit, now) > 0,
            Operation::Debit { .. } | Operation::Release { .. } | Operation::Renew { .. } => false,
        };
        if by_lease { Place::Leased(number, index as u8) } else { Place::Group(number) }
    }
}

/// For how long a take may have been on its way to the store: twice the deadline, for clocks that run at different
/// speeds.
fn strict_within(group: &Group) -> Span {
    let deadline_us = u64::try_from(group.deadline.as_micros()).unwrap_or(u64::MAX);
    Span::from_micros(deadline_us.saturating_mul(2))
}

/// One group as the lender of a node's leases.
#[derive(Clone)]
pub(super) struct GroupLender {
    pub(super) node: Arc<Node>,
    pub(super) group: usize,
}

impl Lender for GroupLender {
    fn leases(&self) -> &Leases {
        &self.node.groups[self.group].leases
    }

    async fn lend(
        &self,
        calls: &[Call],
        now: Timestamp,
        within: Duration,
    ) -> Vec<Result<Told, StoreError>> {
        self.node.groups[self.group].store.lease(calls, now, within).await
    }
}
