//! Denials by the store that still hold: whoever asks for at least as much is refused here, without asking
//! again, until the wait that the store named is over.
//!
//! That is right because a wait is exact: charges by others only make it longer. What makes it shorter is a
//! refund or a reset. One by this node lifts the denial at once; those of other nodes are told by the pulse.
//! A denial that was asked for before something was lifted, and answered after it, is not kept. Denials
//! of concurrency limits are not kept at all, since places come back at any time.
//!
//! A request under several limits is refused as a whole where one of them is known to refuse. The answers of
//! its other limits are those of the request that was denied, for as long as they are no older than
//! [`OTHERS_LAST`]; after that they are asked for, by looks that spend nothing, and kept again.
//!
//! The wait that is told is that of the cost which was refused: for a larger one it is the soonest moment at
//! which asking again can be of use. What is left is told as it was when the store was asked.
//!
//! The size is fixed: a key has one place, and two keys that share it push each other out, which costs a
//! call of the store and nothing else. Where nothing is kept for a key, asking is one load.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tidegate_core::{Decision, Key, Limit, Operation, SKEW_MAX, Span, Timestamp, Verdict};
use tidegate_store::{Charge, Request, Settled, Source};

use crate::protocol::capacity;

/// How many denials are kept.
const PLACES: usize = 1 << 14;

/// How long the answers of the other limits of a denied request are told again.
const OTHERS_LAST: Span = Span::from_secs(1);

/// The denials of one node.
pub(crate) struct Denials {
    places: Box<[Place]>,
    /// Whether any are kept.
    enabled: bool,
}

#[derive(Default)]
struct Place {
    /// Until when a denial holds here, in microseconds; 0 where there is none.
    until: AtomicU64,
    /// How often something was lifted here.
    lifted: AtomicU64,
    denial: Mutex<Option<Box<Denial>>>,
}

/// A limit that refused.
struct Denial {
    key: Key,
    /// The numbers that refused. Others, as after a reload or under another tier, may not.
    limit: Limit,
    cost: u64,
    decision: Decision,
    /// When it was asked for, by the clock of requests, and until when it is kept.
    at: Timestamp,
    until: Timestamp,
    /// What the other limits of its request said, and when.
    others: Vec<Other>,
    others_at: Timestamp,
}

struct Other {
    key: Key,
    operation: Operation,
    settled: Settled,
}

/// What was lifted when a request was sent. A denial is kept only if nothing was lifted since.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark(u64);

/// The marks of a request's charges.
pub(crate) type Marks = [Mark; Request::CHARGES_MAX];

impl Denials {
    pub(crate) fn new(enabled: bool) -> Self {
        Self { places: (0..PLACES).map(|_| Place::default()).collect(), enabled }
    }

    /// The answer to a take that is known to be refused.
    #[inline]
    pub(crate) fn look(&self, now: Timestamp, charge: &Charge<'_>) -> Option<Settled> {
        let place = self.place(charge.key);
        // ORDERING: a hint. Whoever misses a denial asks the store.
        if place.until.load(Ordering::Relaxed) <= now.as_micros() {
            return None;
        }
        look_closer(&mut place.denial(), now, charge)
    }

    /// What the other limits of a request that `denied` refuses said a moment ago, for those that are not
    /// answered yet; `false` where that is not known of each of them.
    pub(crate) fn look_at_others(
        &self,
        denied: Key,
        request: &Request<'_>,
        answers: &mut [Option<Settled>],
    ) -> bool {
        let place = self.place(denied).denial();
        let Some(denial) = place.as_deref().filter(|denial| denial.key == denied) else {
            return false;
        };
        if request.now.since(denial.others_at) > OTHERS_LAST {
            return false;
        }
        for (charge, answer) in request.charges.iter().zip(answers) {
            let known =
                |other: &&Other| other.key == charge.key && other.operation == charge.operation;
            if answer.is_none() {
                *answer = denial.others.iter().find(known).map(|other| other.settled);
            }
            if answer.is_none() {
                return false;
            }
        }
        true
    }

    /// What has been lifted so far of what the keys of a request share their places with. To be asked for
    /// before the store is.
    pub(crate) fn marks(&self, request: &Request<'_>) -> Marks {
        let mut marks = Marks::default();
        for (mark, charge) in marks.iter_mut().zip(request.charges) {
            // ORDERING: Acquire, with the Release of `lift`: what is sent after this is decided after
            // what was lifted by then.
            *mark = Mark(self.place(charge.key).lifted.load(Ordering::Acquire));
        }
        marks
    }

    /// Keeps the denials that a request was answered with by the store. `marks` are those of its charges,
    /// from before it was sent.
    pub(crate) fn note(&self, request: &Request<'_>, marks: &Marks, settled: &[Settled]) {
        if !self.enabled {
            return;
        }
        for (index, (charge, answer)) in request.charges.iter().zip(settled).enumerate() {
            let Some(lasts) = lasts(charge, answer) else { continue };
            let others = if request.charges.len() > 1 {
                others(request, index, settled)
            } else {
                Vec::new()
            };
            self.keep(
                Denial {
                    key: charge.key,
                    limit: charge.limit.clone(),
                    cost: charge.operation.cost(),
                    decision: answer.decision,
                    at: request.now,
                    until: request.now.plus(lasts),
                    others,
                    others_at: request.now,
                },
                marks[index],
            );
        }
    }

    /// Keeps what the other limits of a request say that `denied` refuses.
    pub(crate) fn note_others(&self, denied: Key, request: &Request<'_>, settled: &[Settled]) {
        let mut place = self.place(denied).denial();
        let denial = place.as_deref_mut().filter(|denial| denial.key == denied);
        let index = request.charges.iter().position(|charge| charge.key == denied);
        if let (Some(denial), Some(index)) = (denial, index) {
            denial.others = others(request, index, settled);
            denial.others_at = request.now;
        }
    }

    fn keep(&self, denial: Denial, mark: Mark) {
        let place = self.place(denial.key);
        let mut kept = place.denial();
        // ORDERING: under the lock that whoever lifts takes after counting.
        if place.lifted.load(Ordering::Relaxed) != mark.0 {
            return;
        }
        place.until.store(denial.until.as_micros(), Ordering::Relaxed);
        *kept = Some(Box::new(denial));
    }

    /// Forgets the denials that the answers of a store speak against: what was in the way was given back.
    pub(crate) fn refute(&self, request: &Request<'_>, settled: &[Settled]) {
        for (charge, answer) in request.charges.iter().zip(settled) {
            let place = self.place(charge.key);
            let (Operation::Take { cost } | Operation::Peek { cost }) = charge.operation else {
                continue;
            };
            // ORDERING: a hint, as in `look`.
            let is_empty = place.until.load(Ordering::Relaxed) <= request.now.as_micros();
            if is_empty || !answer.decision.is_allowed() {
                continue;
            }
            let mut kept = place.denial();
            let is_it = |denial: &Denial| {
                denial.key == charge.key && denial.limit == *charge.limit && denial.cost <= cost
            };
            if kept.as_deref().is_some_and(is_it) {
                *kept = None;
                // ORDERING: a hint, under the lock.
                place.until.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Forgets what is kept for a key, whose quota may have come back.
    pub(crate) fn lift(&self, key: Key) {
        self.place(key).lift(Some(key));
    }

    /// Forgets everything.
    pub(crate) fn lift_all(&self) {
        for place in &self.places {
            place.lift(None);
        }
    }

    /// How many denials hold at a time. It looks at all places.
    pub(crate) fn count(&self, now: Timestamp) -> usize {
        // ORDERING: a number for people.
        let holds = |place: &&Place| place.until.load(Ordering::Relaxed) > now.as_micros();
        self.places.iter().filter(holds).count()
    }

    #[inline]
    fn place(&self, key: Key) -> &Place {
        // The limits of one rule agree in the lowest bits.
        let mixed = key.as_hash() ^ key.as_hash() >> 48;
        &self.places[mixed as usize & (PLACES - 1)]
    }
}

impl Place {
    fn lift(&self, key: Option<Key>) {
        // ORDERING: Release, so that it comes after what was lifted; see `marks`. Counted before the lock
        // is taken, so that whoever keeps a denial either sees the count or is seen here.
        self.lifted.fetch_add(1, Ordering::Release);
        let mut kept = self.denial();
        if kept.as_deref().is_some_and(|denial| key.is_none_or(|key| denial.key == key)) {
            *kept = None;
            // ORDERING: a hint, under the lock.
            self.until.store(0, Ordering::Relaxed);
        }
    }

    fn denial(&self) -> MutexGuard<'_, Option<Box<Denial>>> {
        self.denial.lock()
    }
}

fn look_closer(
    kept: &mut Option<Box<Denial>>,
    now: Timestamp,
    charge: &Charge<'_>,
) -> Option<Settled> {
    let denial = kept.as_deref().filter(|denial| denial.key == charge.key)?;
    // A clock that was set back would make it hold for longer than was said.
    let set_back = denial.at.since(now) > SKEW_MAX;
    let holds = now < denial.until && !set_back && *charge.limit == denial.limit;
    let asks_enough = match charge.operation {
        // What never fits is told so, and not when to come back.
        Operation::Take { cost } => cost >= denial.cost && cost <= capacity(charge.limit),
        _ => false,
    };
    if !holds || !asks_enough {
        return None;
    }
    let decision = later(denial.decision, now.since(denial.at))?;
    Some(Settled { decision, at: now, source: Source::CachedDeny })
}

/// A denial as it reads some time later; `None` when it is over.
fn later(decision: Decision, passed: Span) -> Option<Decision> {
    let left = |span: Span| Span::from_micros(span.as_micros().saturating_sub(passed.as_micros()));
    let retry_after = left(decision.retry_after()?);
    if retry_after.is_zero() {
        return None;
    }
    let reset_after = left(decision.reset_after).max(retry_after);
    Some(Decision { verdict: Verdict::Deny { retry_after }, reset_after, ..decision })
}

/// For how long the denial of a charge is kept; `None` for what is none, or is not kept.
fn lasts(charge: &Charge<'_>, answer: &Settled) -> Option<Span> {
    let wait = answer.decision.retry_after()?;
    let is_take = matches!(charge.operation, Operation::Take { .. });
    if !is_take || matches!(charge.limit, Limit::Concurrency(_)) {
        return None;
    }
    match answer.source {
        Source::Store => Some(wait),
        Source::Memory | Source::Lease | Source::Fallback | Source::CachedDeny => None,
    }
}

/// What the other takes of a request said. Other operations are never answered from here.
fn others(request: &Request<'_>, denied: usize, settled: &[Settled]) -> Vec<Other> {
    let all = request.charges.iter().zip(settled).enumerate();
    let others = all.filter(|(index, (charge, _))| {
        *index != denied && matches!(charge.operation, Operation::Take { .. })
    });
    others
        .map(|(_, (charge, settled))| Other {
            key: charge.key,
            operation: charge.operation,
            settled: *settled,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{Concurrency, LeakyBucket, Rate, TokenBucket};

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn bucket(burst: u64) -> Limit {
        TokenBucket::new(Rate::new(1, Span::SECOND).unwrap(), burst).unwrap().into()
    }

    fn key(number: u128) -> Key {
        Key::from_hash(number << 80 | number)
    }

    fn take(limit: &Limit, number: u128, cost: u64) -> Charge<'_> {
        Charge { limit, key: key(number), operation: Operation::Take { cost } }
    }

    fn denied(retry_after: Span) -> Settled {
        let verdict = Verdict::Deny { retry_after };
        let reset_after = Span::from_secs(30);
        let decision = Decision { verdict, limit: 9, remaining: 2, reset_after, lease: None };
        Settled { decision, at: NOW, source: Source::Store }
    }

    fn allowed() -> Settled {
        let verdict = Verdict::Allow { delay: Span::ZERO };
        Settled {
            decision: Decision { verdict, ..denied(Span::ZERO).decision },
            ..denied(Span::ZERO)
        }
    }

    /// Keeps what a request was answered with.
    fn note(denials: &Denials, now: Timestamp, charges: &[Charge<'_>], settled: &[Settled]) {
        let request = Request { now, charges };
        denials.note(&request, &denials.marks(&request), settled);
    }

    fn at(millis: u64) -> Timestamp {
        NOW.plus(Span::from_millis(millis))
    }

    #[test]
    fn a_denial_holds_until_its_wait_is_over_and_counts_down() {
        let (denials, limit) = (Denials::new(true), bucket(9));
        let charge = take(&limit, 1, 3);
        assert_eq!(denials.look(NOW, &charge), None);
        note(&denials, NOW, &[charge], &[denied(Span::from_secs(2))]);
        let settled = denials.look(at(500), &charge).unwrap();
        assert_eq!(settled.decision.retry_after(), Some(Span::from_millis(1_500)));
        assert_eq!(settled.decision.reset_after, Span::from_millis(29_500));
        assert_eq!((settled.decision.limit, settled.decision.remaining), (9, 2));
        assert_eq!(settled.source, Source::CachedDeny);
        let last = NOW.plus(Span::from_secs(2)).minus(Span::TICK);
        assert_eq!(denials.look(last, &charge).unwrap().decision.retry_after(), Some(Span::TICK));
        assert_eq!(denials.look(at(2_000), &charge), None);
        assert_eq!((denials.count(last), denials.count(at(2_000))), (1, 0));
    }

    #[test]
    fn only_takes_of_at_least_as_much_are_refused() {
        let (denials, limit) = (Denials::new(true), bucket(9));
        note(&denials, NOW, &[take(&limit, 1, 3)], &[denied(Span::from_secs(2))]);
        assert!(denials.look(NOW, &take(&limit, 1, 4)).is_some());
        assert!(denials.look(NOW, &take(&limit, 1, 2)).is_none());
        assert!(denials.look(NOW, &take(&limit, 1, 10)).is_none(), "it never fits");
        assert!(denials.look(NOW, &take(&limit, 2, 3)).is_none(), "another key");
        assert!(denials.look(NOW, &take(&bucket(10), 1, 3)).is_none(), "other numbers");
        for operation in [
            Operation::Peek { cost: 3 },
            Operation::Debit { cost: 3 },
            Operation::Refund { cost: 3, taken_at: NOW },
        ] {
            assert!(denials.look(NOW, &Charge { operation, ..take(&limit, 1, 3) }).is_none());
        }
    }

    #[test]
    fn keys_that_share_a_place_push_each_other_out_and_are_not_taken_for_each_other() {
        let (denials, limit) = (Denials::new(true), bucket(9));
        let (one, other) =
            (take(&limit, 1, 1), Charge { key: key(1 + PLACES as u128), ..take(&limit, 1, 1) });
        note(&denials, NOW, &[one], &[denied(Span::from_secs(2))]);
        assert!(denials.look(NOW, &other).is_none());
        note(&denials, NOW, &[other], &[denied(Span::from_secs(2))]);
        assert!(denials.look(NOW, &one).is_none() && denials.look(NOW, &other).is_some());
    }

    #[test]
    fn what_is_lifted_is_asked_for_again() {
        let (denials, limit) = (Denials::new(true), bucket(9));
        for lift in [|denials: &Denials| denials.lift(key(1)), Denials::lift_all] {
            note(&denials, NOW, &[take(&limit, 1, 1)], &[denied(Span::from_secs(2))]);
            denials.lift(key(2));
            assert!(denials.look(NOW, &take(&limit, 1, 1)).is_some(), "another was lifted");
            lift(&denials);
            assert!(denials.look(NOW, &take(&limit, 1, 1)).is_none());
        }
    }

    #[test]
    fn an_answer_of_the_store_that_speaks_against_a_denial_lifts_it() {
        let (denials, limit) = (Denials::new(true), bucket(9));
        note(&denials, NOW, &[take(&limit, 1, 3)], &[denied(Span::from_secs(2))]);
        let refute = |charge: Charge<'_>, answer| {
            denials.refute(&Request { now: NOW, charges: &[charge] }, &[answer]);
            denials.look(NOW, &take(&limit, 1, 3)).is_none()
        };
        assert!(!refute(take(&limit, 1, 2), allowed()), "it was about less");
        assert!(!refute(take(&limit, 2, 3), allowed()), "another key");
        assert!(!refute(take(&limit, 1, 3), denied(Span::SECOND)));
        let look = Charge { operation: Operation::Peek { cost: 3 }, ..take(&limit, 1, 3) };
        assert!(refute(look, allowed()));
    }

    #[test]
    fn a_denial_that_was_sent_for_before_a_lift_is_not_kept() {
        let (denials, limit) = (Denials::new(true), bucket(9));
        let charges = [take(&limit, 1, 1)];
        let request = Request { now: NOW, charges: &charges };
        let marks = denials.marks(&request);
        denials.lift(key(1));
        denials.note(&request, &marks, &[denied(Span::from_secs(2))]);
        assert!(denials.look(NOW, &charges[0]).is_none());
    }

    #[test]
    fn a_clock_that_is_set_back_locks_nobody_out() {
        let (denials, limit) = (Denials::new(true), bucket(9));
        note(&denials, NOW, &[take(&limit, 1, 1)], &[denied(Span::from_secs(2))]);
        assert!(denials.look(NOW.minus(Span::from_millis(900)), &take(&limit, 1, 1)).is_some());
        assert!(denials.look(NOW.minus(Span::from_millis(1_100)), &take(&limit, 1, 1)).is_none());
    }

    #[test]
    fn what_does_not_hold_by_itself_is_not_kept() {
        let (denials, limit) = (Denials::new(true), bucket(9));
        let places = Limit::from(Concurrency::new(3, Span::HOUR).unwrap());
        note(&denials, NOW, &[take(&places, 1, 1)], &[denied(Span::HOUR)]);
        assert!(denials.look(NOW, &take(&places, 1, 1)).is_none(), "places come back at any time");
        for source in [Source::Fallback, Source::Lease, Source::Memory, Source::CachedDeny] {
            let settled = Settled { source, ..denied(Span::HOUR) };
            note(&denials, NOW, &[take(&limit, 1, 1)], &[settled]);
            assert!(denials.look(NOW, &take(&limit, 1, 1)).is_none(), "{source:?}");
        }
        let never = Decision { verdict: Verdict::NeverFits, ..denied(Span::HOUR).decision };
        note(
            &denials,
            NOW,
            &[take(&limit, 2, 10)],
            &[Settled { decision: never, ..denied(Span::HOUR) }],
        );
        assert!(denials.look(NOW, &take(&limit, 2, 10)).is_none());
    }

    #[test]
    fn the_other_limits_of_a_denied_request_are_told_for_a_second() {
        let (denials, limit) = (Denials::new(true), bucket(9));
        let queue = Limit::from(LeakyBucket::new(Rate::new(1, Span::SECOND).unwrap(), 5).unwrap());
        let charges = [take(&limit, 1, 1), take(&queue, 2, 1)];
        note(&denials, NOW, &charges, &[denied(Span::MINUTE), allowed()]);
        let look = |now, charges: &[Charge<'_>]| {
            let mut answers = vec![denials.look(now, &charges[0])];
            answers.resize(charges.len(), None);
            let known = denials.look_at_others(key(1), &Request { now, charges }, &mut answers);
            (known, answers.last().copied().flatten())
        };
        assert_eq!(look(at(1_000), &charges), (true, Some(allowed())));
        assert!(!look(at(1_001), &charges).0, "too old");
        denials.note_others(
            key(1),
            &Request { now: at(1_500), charges: &charges },
            &[denied(Span::MINUTE), allowed()],
        );
        assert!(look(at(2_000), &charges).0, "asked again");
        assert!(!look(at(2_000), &[charges[0], take(&queue, 3, 1)]).0, "another key");
        assert!(!look(at(2_000), &[charges[0], take(&queue, 2, 2)]).0, "another cost");
        let operation = Operation::Debit { cost: 1 };
        let debit = [charges[0], Charge { operation, ..charges[1] }];
        note(&denials, NOW, &debit, &[denied(Span::MINUTE), allowed()]);
        assert!(!look(NOW, &debit).0, "a debit goes through");
    }
}
