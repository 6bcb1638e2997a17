//! What is done whether somebody waits for it or not: giving back, and charging what was refused. It has more
//! time than a decision, and goes on by itself where whoever asked has gone or has no time left.
//!
//! What a group cannot take back now is *kept*, and sent when it answers again. A refund whose answer is missing
//! may have gone through and is not sent again, because quota that is given back twice would be over. A
//! release can be: its place comes back once.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tidegate_core::{Key, Limit, OnStoreFailure, Operation, Span, Terms, Timestamp};
use tidegate_store::{Charge, Request, Settled, StoreError, Table};
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::group::Group;
use super::node::Node;
use crate::cluster::all;
use crate::deadline::Deadline;
use crate::split::{GIVE_BACK_WITHIN, detach};

/// The most that is kept for one group. What is beyond is lost, which is counted.
const KEPT_MAX: usize = 4_096;

/// How much of it is sent at a time.
const SENT_AT_ONCE: usize = 256;

impl Shared {
    /// Carries out operations that always go through, such as refunds, releases and debits, and hands each answer
    /// to `each` with its number. What is not done when the deadline has passed, or when the future is dropped, goes
    /// on by itself; and so there is no error: terms that deny are those that allow here.
    pub async fn carry_out(
        &self,
        deadline: &Deadline,
        now: Timestamp,
        charges: &[Charge<'_>],
        terms: &[Terms],
        each: &mut (dyn FnMut(usize, Settled) + Send),
    ) {
        if charges.is_empty() {
            return;
        }
        let end = deadline.end(self.node.deadline());
        let mut going = Going::new(&self.node, now, charges, terms);
        let answers = going.wait(end).await.into_iter().flatten().enumerate();
        answers.for_each(|(index, answer)| answer.into_iter().for_each(|one| each(index, one)));
    }

    /// The same where nobody waits at all.
    pub fn carry_out_later(&self, now: Timestamp, charges: &[Charge<'_>], terms: &[Terms]) {
        if !charges.is_empty() {
            drop(Going::new(&self.node, now, charges, terms));
        }
    }
}

type Answers = Vec<Option<Settled>>;

/// Operations that are being carried out. Dropped before they are, they go on by themselves.
struct Going {
    node: Arc<Node>,
    rest: Option<Pin<Box<dyn Future<Output = Answers> + Send>>>,
    count: usize,
}

impl Going {
    fn new(node: &Arc<Node>, now: Timestamp, charges: &[Charge<'_>], terms: &[Terms]) -> Self {
        let charges: Vec<Back> = charges.iter().map(|charge| Back::of(charge, now)).collect();
        let mut terms = terms.to_vec();
        for terms in &mut terms {
            if terms.on_failure == OnStoreFailure::Deny {
                terms.on_failure = OnStoreFailure::Allow;
            }
        }
        let count = charges.len();
        let rest = carried_out(Arc::clone(node), now, charges, terms);
        Self { node: Arc::clone(node), rest: Some(Box::pin(rest)), count }
    }

    /// The answers, where all are there by the `end`.
    async fn wait(&mut self, end: Instant) -> Option<Answers> {
        let answers = timeout_at(end, self.rest.as_mut()?).await.ok()?;
        self.rest = None;
        Some(answers)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            detach(&self.node, self.count, async move {
                let _ = rest.await;
            });
        }
    }
}

async fn carried_out(
    node: Arc<Node>,
    now: Timestamp,
    backs: Vec<Back>,
    terms: Vec<Terms>,
) -> Answers {
    let end = Instant::now() + GIVE_BACK_WITHIN;
    let charges: Vec<Charge<'_>> = backs.iter().map(Back::charge).collect();
    let mut answers = Vec::with_capacity(charges.len());
    let mut settled = Vec::new();
    while answers.len() < charges.len() {
        let first = answers.len();
        let last = first + decided_together(&charges[first..]);
        let (request, terms) =
            (Request { now, charges: &charges[first..last] }, &terms[first..last]);
        settled.clear();
        let decided = match node.decide_at_hand(&request, terms, &mut settled) {
            Some(decided) => decided,
            None => node.decide_by_asking(&request, terms, end, &mut settled).await,
        };
        match decided {
            Ok(()) => answers.extend(settled.iter().copied().map(Some)),
            Err(_) => answers.resize(last, None),
        }
    }
    answers
}

/// How many of these can be one request: each key once.
fn decided_together(charges: &[Charge<'_>]) -> usize {
    let is_new = |&index: &usize| {
        let key = charges[index].key;
        !charges[..index].iter().any(|earlier| earlier.key == key)
    };
    (0..charges.len().min(Request::CHARGES_MAX)).take_while(is_new).count()
}

/// Something to be given back.
#[derive(Debug)]
struct Back {
    limit: Limit,
    key: Key,
    operation: Operation,
    /// When it was asked for, by the node's clock, and when that was.
    now: Timestamp,
    asked: Instant,
}

impl Back {
    fn of(charge: &Charge<'_>, now: Timestamp) -> Self {
        let Charge { limit, key, operation } = *charge;
        Self { limit: limit.clone(), key, operation, now, asked: Instant::now() }
    }

    fn charge(&self) -> Charge<'_> {
        Charge { limit: &self.limit, key: self.key, operation: self.operation }
    }

    /// The node's time now.
    fn time(&self) -> Timestamp {
        let passed = u64::try_from(self.asked.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.now.plus(Span::from_micros(passed))
    }

    /// Whether it may be sent again after this.
    fn may_go_again(&self, error: StoreError) -> bool {
        match error {
            StoreError::Unreachable | StoreError::Busy | StoreError::Refused => true,
            StoreError::NoAnswer => matches!(self.operation, Operation::Release { .. }),
            _ => false,
        }
    }
}

/// What one group is to be given back when it answers again.
#[derive(Debug, Default)]
pub(super) struct Kept {
    backs: Mutex<VecDeque<Back>>,
    lost: AtomicU64,
}

impl Kept {
    /// How much is kept.
    pub(super) fn count(&self) -> usize {
        self.backs.lock().len()
    }

    /// How much could not be given back, or not for certain.
    pub(super) fn lost(&self) -> u64 {
        // ORDERING: a number for people.
        self.lost.load(Ordering::Relaxed)
    }

    fn keep(&self, back: Back, error: StoreError) {
        let mut backs = self.backs.lock();
        if back.may_go_again(error) && backs.len() < KEPT_MAX {
            return backs.push_back(back);
        }
        // ORDERING: a number for people.
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    fn take_some(&self) -> Vec<Back> {
        let mut backs = self.backs.lock();
        let some = backs.len().min(SENT_AT_ONCE);
        backs.drain(..some).collect()
    }
}

impl Node {
    /// Keeps what a group could not take back, and gives what is left for the policy of each limit; `None` where
    /// that is all of it. Each goes one way: what is given back to this node's own share, because that is where
    /// something was taken, is not kept as well. Places are looked for in both, since nobody has two of one number.
    pub(super) fn keep_give_backs<'r>(
        group: &Group,
        error: StoreError,
        table: &Table,
        request: &Request<'r>,
        terms: &[Terms],
    ) -> Option<Vec<Charge<'r>>> {
        let gives_back = |charge: &Charge<'_>| {
            matches!(charge.operation, Operation::Refund { .. } | Operation::Release { .. })
        };
        if !request.charges.iter().any(gives_back)
            || terms.iter().any(|terms| terms.on_failure == OnStoreFailure::Deny)
        {
            return None;
        }
        let one = |(charge, terms): (&Charge<'r>, &Terms)| {
            let is_of_share = match charge.operation {
                Operation::Release { .. } => false,
                Operation::Refund { .. } => {
                    let is_counted = terms.on_failure == OnStoreFailure::Local;
                    is_counted && has_given(table, group.nodes(), request.now, charge)
                }
                Operation::Take { .. }
                | Operation::Peek { .. }
                | Operation::Debit { .. }
                | Operation::Renew { .. } => true,
            };
            if is_of_share {
                return *charge;
            }
            group.kept.keep(Back::of(charge, request.now), error);
            match charge.operation {
                Operation::Release { .. } => *charge,
                _ => Charge { operation: Operation::Peek { cost: 0 }, ..*charge },
            }
        };
        Some(request.charges.iter().zip(terms).map(one).collect())
    }

    /// Sends what is kept for a group that answers again.
    pub(super) async fn send_kept(&self, group: &Group) {
        loop {
            let backs = group.kept.take_some();
            if backs.is_empty() {
                return;
            }
            let end = Instant::now() + GIVE_BACK_WITHIN;
            let sending = backs.iter().map(|back| async move {
                let charges = [back.charge()];
                let request = Request { now: back.time(), charges: &charges };
                self.ask(group, &request, end, &mut Vec::with_capacity(1)).await
            });
            let mut failed = false;
            let sent = all(sending).await;
            for (back, sent) in backs.into_iter().zip(sent) {
                if let Err(error) = sent {
                    failed = true;
                    group.kept.keep(back, error);
                }
            }
            if failed {
                return;
            }
        }
    }
}

/// Whether something is missing in this node's share of a limit.
fn has_given(table: &Table, nodes: u32, now: Timestamp, charge: &Charge<'_>) -> bool {
    let share = charge.limit.divided(nodes);
    let look = Charge { limit: &share, key: charge.key, operation: Operation::Peek { cost: 0 } };
    table.decide_one(now, &look).reset_after > Span::ZERO
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{LeaseId, Rate, TokenBucket};

    fn back(operation: Operation) -> Back {
        let limit = TokenBucket::new(Rate::new(1, Span::HOUR).unwrap(), 5).unwrap().into();
        Back::of(&Charge { limit: &limit, key: Key::from_hash(7), operation }, Timestamp::ZERO)
    }

    fn refund() -> Back {
        back(Operation::Refund { cost: 1, taken_at: Timestamp::ZERO })
    }

    #[test]
    fn what_may_have_gone_through_is_not_sent_again_except_for_places() {
        let kept = Kept::default();
        kept.keep(refund(), StoreError::Unreachable);
        kept.keep(refund(), StoreError::NoAnswer);
        assert_eq!((kept.count(), kept.lost()), (1, 1));
        let lease = LeaseId::from_u64(1).unwrap();
        kept.keep(back(Operation::Release { lease }), StoreError::NoAnswer);
        assert_eq!((kept.count(), kept.lost()), (2, 1));
    }

    #[test]
    fn what_is_kept_has_a_bound_and_what_is_beyond_is_counted() {
        let kept = Kept::default();
        (0..KEPT_MAX + 3).for_each(|_| kept.keep(refund(), StoreError::Busy));
        assert_eq!((kept.count(), kept.lost()), (KEPT_MAX, 3));
        assert_eq!(kept.take_some().len(), SENT_AT_ONCE);
        assert_eq!(kept.count(), KEPT_MAX - SENT_AT_ONCE);
    }
}
