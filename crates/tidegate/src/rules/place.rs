//! A place to decide that is chosen while the program runs: this process's memory, or a store that
//! nodes share.

use std::fmt;
use std::sync::Arc;

use tidegate_core::{Key, Limit, Terms, Timestamp};
use tidegate_redis::{Deadline, Shared};
use tidegate_store::{Charge, Request, Settled, StoreError, Table, TableError};

use super::backing::{Answered, Few, sealed};

/// Where a limiter decides. Its methods are `async`; in memory they are done at the first poll, without
/// waiting and without more memory than those that are not.
pub enum Place {
    /// In this process's memory.
    Memory(Table),
    /// In a store that nodes share, each limit on its own [`Terms`].
    Shared(Arc<Shared>),
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory(_) => "Memory(..)",
            Self::Shared(_) => "Shared(..)",
        })
    }
}

impl sealed::Backing for Place {
    type Deadline = Deadline;

    #[inline]
    fn memory(&self) -> Option<&Table> {
        match self {
            Self::Memory(table) => Some(table),
            Self::Shared(_) => None,
        }
    }

    async fn decide(
        &self,
        deadline: &Deadline,
        request: &Request<'_>,
        terms: &[Terms],
        answered: &mut Answered,
    ) -> Result<(), StoreError> {
        match self {
            Self::Memory(table) => {
                answered.decisions.reserve_exact(request.charges.len());
                table.decide(request, &mut answered.decisions)
            }
            Self::Shared(shared) => {
                answered.settled.reserve_exact(request.charges.len());
                shared.decide_by(deadline, request, terms, &mut answered.settled).await
            }
        }
    }

    async fn decide_each(
        &self,
        deadline: &Deadline,
        now: Timestamp,
        charges: &[Charge<'_>],
        terms: &[Terms],
        each: &mut (dyn FnMut(usize, Settled) + Send),
    ) -> Result<(), StoreError> {
        match self {
            Self::Memory(table) => {
                sealed::Backing::decide_each(table, &(), now, charges, terms, each).await
            }
            Self::Shared(shared) => {
                let mut settled = Vec::with_capacity(charges.len());
                let mut first = 0;
                while first < charges.len() {
                    let end = first + decided_together(&charges[first..]);
                    let request = Request { now, charges: &charges[first..end] };
                    settled.clear();
                    let terms = &terms[first..end];
                    shared.decide_by(deadline, &request, terms, &mut settled).await?;
                    for (index, &one) in (first..).zip(&settled) {
                        each(index, one);
                    }
                    first = end;
                }
                Ok(())
            }
        }
    }

    async fn carry_out(
        &self,
        deadline: &Deadline,
        now: Timestamp,
        charges: &[Charge<'_>],
        terms: &[Terms],
        each: &mut (dyn FnMut(usize, Settled) + Send),
    ) {
        match self {
            Self::Memory(table) => {
                sealed::Backing::carry_out(table, &(), now, charges, terms, each).await;
            }
            Self::Shared(shared) => shared.carry_out(deadline, now, charges, terms, each).await,
        }
    }

    fn carry_out_later(&self, now: Timestamp, charges: &[Charge<'_>], terms: &[Terms]) {
        match self {
            Self::Memory(table) => sealed::Backing::carry_out_later(table, now, charges, terms),
            Self::Shared(shared) => shared.carry_out_later(now, charges, terms),
        }
    }

    async fn forget(&self, keys: &[(Key, Terms)]) -> Result<(), StoreError> {
        match self {
            Self::Memory(table) => sealed::Backing::forget(table, keys).await,
            Self::Shared(shared) => shared.forget(keys).await,
        }
    }

    fn give_back_share(&self, now: Timestamp, charge: &Charge<'_>, terms: Terms) {
        match self {
            Self::Memory(_) => {}
            Self::Shared(shared) => shared.give_back_share(now, charge, terms),
        }
    }

    fn told_time(&self, at: Timestamp) -> Timestamp {
        match self {
            Self::Memory(_) => at,
            Self::Shared(shared) => shared.told_time(at),
        }
    }

    fn own_time(&self, told: Timestamp) -> Timestamp {
        match self {
            Self::Memory(_) => told,
            Self::Shared(shared) => shared.own_time(told),
        }
    }

    fn place_time(&self, key: Key, terms: Terms, told: Timestamp) -> Timestamp {
        match self {
            Self::Memory(_) => told,
            Self::Shared(shared) => shared.place_time(key, terms, told),
        }
    }

    fn check(&self, limit: &Limit) -> Result<(), TableError> {
        match self {
            Self::Memory(table) => table.config().check(limit),
            Self::Shared(shared) => shared.check(limit),
        }
    }
}

/// How many of these can be one request: each key once.
fn decided_together(charges: &[Charge<'_>]) -> usize {
    let mut keys = Few::new();
    let fits = |charge: &&Charge<'_>| {
        let is_new = keys.len() < Request::CHARGES_MAX && !keys.contains(&charge.key);
        keys.push(charge.key);
        is_new
    };
    charges.iter().take_while(fits).count()
}
