//! The limiter: limits, a table, a clock.

use std::path::Path;

use smallvec::SmallVec;
use tidegate_core::{self as core, Key, LeaseId, Limit, Operation, Timestamp};
use tidegate_rules::identity::{KeyHasher, Salt, Subject};
use tidegate_store::snapshot::{Label, SnapshotError};
use tidegate_store::{Charge, Fetched, Request, Stats, Table};

use crate::{BuildError, Clock, Decision, Keyed, LimiterBuilder, SystemClock};

/// As many limits as most limiters have are not put on the heap.
pub(crate) type Few<T> = SmallVec<[T; 4]>;

/// Decides for each call whether it may pass, counting each key separately.
///
/// All methods take `&self` and may be called from any number of threads; share it with an
/// [`Arc`](std::sync::Arc) or a `static`. A call reads the clock once. Under one bucket or window it
/// takes no lock; several limits at once, logs, slots and concurrency limits take one for an instant.
#[derive(Debug)]
pub struct Limiter<C = SystemClock> {
    pub(crate) limits: Box<[Salted]>,
    pub(crate) table: Table,
    pub(crate) hasher: KeyHasher,
    pub(crate) label: Label,
    pub(crate) clock: C,
}

const TAKE_ONE: Operation = Operation::Take { cost: 1 };

/// A limit, and what sets its keys apart from those of other limits.
#[derive(Clone, Debug)]
pub(crate) struct Salted {
    pub(crate) limit: Limit,
    pub(crate) salt: Salt,
}

impl Limiter {
    /// A limiter with one limit and all defaults.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("10/s burst 20")?;
    /// assert_eq!(limiter.check("ann").remaining(), 19);
    ///
    /// let error = tidegate::Limiter::new("10/fortnight").unwrap_err();
    /// assert!(error.to_string().contains("fortnight"));
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn new(limit: &str) -> Result<Self, BuildError> {
        Self::builder().limit(limit).build()
    }

    /// A limiter to be put together.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
    }
}

impl<C: Clock> Limiter<C> {
    /// Takes 1 from the quota of `who`, if it is there under every limit.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("1/hour")?;
    /// assert!(limiter.check("ann").is_allowed());
    /// assert!(!limiter.check("ann").is_allowed());
    /// assert!(limiter.check("bob").is_allowed());
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "whoever reads a part of the decision pays for that part"
    )]
    pub fn check(&self, who: impl Keyed) -> Decision {
        self.decide(&who, TAKE_ONE)
    }

    /// Takes `cost` from the quota of `who`: all of it under every limit, or nothing.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("10/hour")?;
    /// assert_eq!(limiter.check_cost("ann", 4).remaining(), 6);
    /// assert!(!limiter.check_cost("ann", 7).is_allowed());
    /// assert!(limiter.check_cost("ann", 11).never_fits());
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    #[inline]
    pub fn check_cost(&self, who: impl Keyed, cost: u64) -> Decision {
        self.decide(&who, Operation::Take { cost })
    }

    /// Answers as [`check`](Self::check) would, and takes nothing.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("10/hour")?;
    /// assert_eq!(limiter.peek("ann").remaining(), 10);
    /// assert_eq!(limiter.peek("ann").remaining(), 10);
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn peek(&self, who: impl Keyed) -> Decision {
        self.peek_cost(who, 1)
    }

    /// Answers as [`check_cost`](Self::check_cost) would, and takes nothing.
    pub fn peek_cost(&self, who: impl Keyed, cost: u64) -> Decision {
        self.decide(&who, Operation::Peek { cost })
    }

    /// Takes `cost` whether it is there or not: for usage that is only known afterwards. Buckets go
    /// into debt and pay it first; windows count it until it has left them.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("10/s")?;
    /// let debt = limiter.debit("ann", 30);
    /// assert_eq!(debt.remaining(), 0);
    /// assert!(limiter.check("ann").retry_after() > Some(std::time::Duration::from_secs(1)));
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn debit(&self, who: impl Keyed, cost: u64) -> Decision {
        self.decide(&who, Operation::Debit { cost })
    }

    /// Gives back `cost` that was taken at `taken_at`, which the decision tells. What has come back
    /// by itself since is not given a second time, so a late refund never admits too much.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("10/hour fixed-window")?;
    /// let decision = limiter.check_cost("ann", 3);
    /// assert_eq!(limiter.refund("ann", 3, decision.at()).remaining(), 10);
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn refund(&self, who: impl Keyed, cost: u64, taken_at: Timestamp) -> Decision {
        self.decide(&who, Operation::Refund { cost, taken_at })
    }

    /// Gives back a lease that a [`check`](Self::check) under a concurrency limit was answered with.
    /// [`acquire`](Self::acquire) does so by itself, which is easier to get right.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("1 at once")?;
    /// let lease = limiter.check("ann").lease().expect("a place");
    /// assert!(!limiter.check("ann").is_allowed());
    /// limiter.release("ann", lease);
    /// assert!(limiter.check("ann").is_allowed());
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn release(&self, who: impl Keyed, lease: LeaseId) {
        let _ = self.decide(&who, Operation::Release { lease });
    }

    /// Counts a lease that a [`check`](Self::check) under a concurrency limit was answered with as taken
    /// now, for work that lasts longer than the limit's `for`. Says whether it was still held.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("1 at once")?;
    /// let lease = limiter.check("ann").lease().expect("a place");
    /// assert!(limiter.renew("ann", lease));
    /// limiter.release("ann", lease);
    /// assert!(!limiter.renew("ann", lease));
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn renew(&self, who: impl Keyed, lease: LeaseId) -> bool {
        self.decide(&who, Operation::Renew { lease }).lease().is_some()
    }

    /// Forgets `who`: all of the quota is there again.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("1/hour")?;
    /// assert!(limiter.check("ann").is_allowed());
    /// limiter.reset("ann");
    /// assert!(limiter.check("ann").is_allowed());
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn reset(&self, who: impl Keyed) {
        let subject = who.subject(&self.hasher);
        for salted in &self.limits {
            self.table.forget(subject.key(salted.salt));
        }
    }

    /// Checks many at one instant, each as if they had come one after the other, and hands each
    /// decision to `each`, in order.
    ///
    /// It is several times as fast per decision as calling [`check`](Self::check) where there are
    /// more keys than the processor caches, because it waits for many of them at once.
    ///
    /// ```
    /// let limiter = tidegate::Limiter::new("1/hour")?;
    /// let mut allowed = Vec::new();
    /// limiter.check_many(["ann", "bob", "ann"], |decision| allowed.push(decision.is_allowed()));
    /// assert_eq!(allowed, [true, true, false]);
    /// # Ok::<(), tidegate::BuildError>(())
    /// ```
    pub fn check_many<K: Keyed>(
        &self,
        who: impl IntoIterator<Item = K>,
        mut each: impl FnMut(Decision),
    ) {
        let now = self.clock.now_unordered();
        let mut who = who.into_iter();
        let mut group = [Subject::NOBODY; Table::PREFETCH];
        loop {
            let mut count = 0;
            for (place, who) in group.iter_mut().zip(&mut who) {
                *place = who.subject(&self.hasher);
                for salted in &self.limits {
                    self.table.prefetch(place.key(salted.salt));
                }
                count += 1;
            }
            for &subject in &group[..count] {
                each(match &*self.limits {
                    [Salted { limit, salt }] => {
                        let fetched = self.table.prefetch(subject.key(*salt));
                        self.decide_one(limit, fetched, now, TAKE_ONE)
                    }
                    _ => self.decide_several(subject, now, TAKE_ONE),
                });
            }
            if count < group.len() {
                return;
            }
        }
    }

    /// The limits, in the order they were given.
    pub fn limits(&self) -> impl Iterator<Item = &Limit> {
        self.limits.iter().map(|salted| &salted.limit)
    }

    /// How many keys are held, how many had to go, and how many bytes that takes. It reads the whole
    /// table, so it is for metrics, not for every request.
    pub fn stats(&self) -> Stats {
        self.table.stats(self.clock.now())
    }

    /// Writes the state of all keys to a file, which is replaced in one step.
    /// [`LimiterBuilder::build_from`] reads it back.
    ///
    /// The file is readable by its owner only. Unless a [secret](LimiterBuilder::secret) was given,
    /// it holds the one that keys are hashed with.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), SnapshotError> {
        self.table.save(path.as_ref(), &self.label, self.clock.now())
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "a call of the library is one function, its key's")]
    fn decide(&self, who: &impl Keyed, operation: Operation) -> Decision {
        let subject = who.subject(&self.hasher);
        if let [Salted { limit, salt }] = &*self.limits {
            // The line is on its way while the clock is read.
            let fetched = self.table.prefetch(subject.key(*salt));
            return self.decide_one(limit, fetched, self.clock.now_unordered(), operation);
        }
        self.decide_several_now(subject, operation)
    }

    #[inline(never)]
    fn decide_several_now(&self, subject: Subject, operation: Operation) -> Decision {
        self.decide_several(subject, self.clock.now_unordered(), operation)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "as above")]
    fn decide_one(
        &self,
        limit: &Limit,
        fetched: Fetched,
        now: Timestamp,
        operation: Operation,
    ) -> Decision {
        let finish = |decision| Decision::of_one(decision, now);
        self.table.decide_fetched(now, limit, fetched, operation, finish)
    }

    fn decide_several(&self, subject: Subject, now: Timestamp, operation: Operation) -> Decision {
        let mut decisions = Few::new();
        self.decide_all(subject, now, |_| operation, &mut decisions);
        Decision::of_all(&decisions, now)
    }

    /// Appends the decision of every limit, where each may have an operation of its own.
    #[inline]
    pub(crate) fn decide_all(
        &self,
        subject: Subject,
        now: Timestamp,
        operation: impl Fn(usize) -> Operation,
        decisions: &mut Few<core::Decision>,
    ) {
        let charges: Few<_> = self
            .limits
            .iter()
            .enumerate()
            .map(|(index, Salted { limit, salt })| Charge {
                limit,
                key: subject.key(*salt),
                operation: operation(index),
            })
            .collect();
        let request = Request { now, charges: &charges };
        let decided = self.table.decide_each(&request, |decision| decisions.push(decision));
        debug_assert!(decided.is_ok(), "the builder has checked the number of limits");
    }

    pub(crate) fn key(&self, subject: Subject, index: usize) -> Key {
        subject.key(self.limits[index].salt)
    }
}
