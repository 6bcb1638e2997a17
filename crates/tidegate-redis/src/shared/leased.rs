//! Takes under limits that are leased: from what is at hand where there is enough, with the store's help
//! where there is not, and strictly where no lease is worth it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{Consistency, Key, Operation, Terms, Timestamp};
use tidegate_store::{Charge, Request, Settled, Source, StoreError};
use tokio::time::Instant;

use super::group::Group;
use super::node::{Node, Place};
use crate::lease::Told;
use crate::lease::book::{Call, Mark};
use crate::lease::drive::{Leases, Lender};

/// Of what a decision may take, the part that is spent on waiting for a lease. The rest is for deciding
/// strictly where none comes.
const WAITING_PART: u32 = 2;

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

    /// All charges of a request, if all are leased and enough is at hand for each; otherwise none.
    pub(super) fn spend_several(
        &self,
        request: &Request<'_>,
        terms: &[Terms],
        settled: &mut Vec<Settled>,
    ) -> bool {
        let (start, now) = (settled.len(), request.now);
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
                settled.push(Settled { decision, at, source: Source::Lease });
                continue;
            }
            settled.truncate(start);
            for (index, charge) in request.charges[..index].iter().enumerate() {
                // Nobody can have been told of it in between but by chance; then it is spent.
                let cost = charge.operation.cost();
                let _ = book(index).1.undo(charge.key, cost, marks[index], now);
            }
            return false;
        }
        true
    }

    /// Decides one leased charge, with the help of its group; `false` where it is to be decided strictly.
    pub(super) async fn take_leased(
        &self,
        group: &Group,
        request: &Request<'_>,
        settled: &mut Vec<Settled>,
    ) -> bool {
        let [Charge { limit, key, operation }] = *request.charges else { return false };
        let one = match operation {
            Operation::Take { cost } => {
                let until = Instant::now() + group.deadline / WAITING_PART;
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
                self.undo_leased(group, key, cost, taken_at, request.now)
            }
            Operation::Peek { .. } | Operation::Debit { .. } | Operation::Release { .. } => None,
        };
        settled.extend(one);
        one.is_some()
    }

    /// Gives back what was taken from a lease at a time of the group, if the group does not know of it yet:
    /// there, a refund that comes before its charge could be lost.
    pub(super) fn undo_leased(
        &self,
        group: &Group,
        key: Key,
        cost: u64,
        taken_at: Timestamp,
        now: Timestamp,
    ) -> Option<Settled> {
        let book = group.leases.book();
        let decision = book.give_back(key, cost, group.earliest_of(taken_at), now)?;
        // It is at hand here. The others have no more than before.
        self.denials.lift(key);
        book.lift(key);
        Some(Settled { decision, at: group.time_of(now), source: Source::Lease })
    }

    /// Where a charge is decided: each leased one by itself, and so what gives one back.
    pub(super) fn place_of(&self, index: usize, charge: &Charge<'_>, terms: Terms) -> Place {
        let is_refund = matches!(charge.operation, Operation::Refund { .. })
            && terms.consistency == Consistency::Leased
            && charge.limit.is_leasable();
        if is_refund || leased_cost(charge, terms).is_some() {
            Place::Leased(self.group_of(charge.key, terms), index as u8)
        } else {
            self.place(charge.key, terms)
        }
    }
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
