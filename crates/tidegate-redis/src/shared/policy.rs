//! What follows where the store could not decide: the one place that knows.
//!
//! Each limit has its own policy. Under `deny` the request has no answer, which is an error and no denial.
//! Under `allow` it passes. Under `local` the node goes on with its share: the limit divided by the
//! number of nodes that there were when the store was last well, at least 1, in memory. All nodes
//! together then admit no more than the limit, or one each where it is smaller than their number; and what
//! the store had admitted before in the same period comes on top. Answers say that they are degraded.

use tidegate_core::{Decision, Limit, OnStoreFailure, Span, Terms, Verdict};
use tidegate_store::{Charge, Request, Settled, Source, StoreError, Table};

use crate::protocol::capacity;

/// When to come back with a cost that the share of this node can never hold: the store may be well again.
const NEXT_TRY: Span = Span::SECOND;

/// Decides what the store could not, all or nothing, and appends what each limit says.
pub(crate) fn settle(
    error: StoreError,
    table: &Table,
    nodes: u32,
    request: &Request<'_>,
    terms: &[Terms],
    settled: &mut Vec<Settled>,
) -> Result<(), StoreError> {
    match error {
        // Nobody could decide these.
        StoreError::TooManyCharges | StoreError::RepeatedKey => return Err(error),
        _ => {}
    }
    if terms.iter().any(|terms| terms.on_failure == OnStoreFailure::Deny) {
        return Err(error);
    }
    let is_local = |terms: &Terms| terms.on_failure == OnStoreFailure::Local;
    let own = || request.charges.iter().zip(terms).filter(|(_, terms)| is_local(terms));
    let shares: Vec<Limit> = own().map(|(charge, _)| charge.limit.divided(nodes)).collect();
    let charges: Vec<Charge<'_>> =
        own().zip(&shares).map(|((charge, _), limit)| Charge { limit, ..*charge }).collect();
    let mut decisions = Vec::with_capacity(charges.len());
    table.decide(&Request { now: request.now, charges: &charges }, &mut decisions)?;
    let mut decisions = decisions.into_iter();
    for (charge, terms) in request.charges.iter().zip(terms) {
        let decision = match is_local(terms).then(|| decisions.next()).flatten() {
            Some(decision) => not_for_ever(decision, charge),
            None => pass(charge.limit),
        };
        settled.push(Settled { decision, at: request.now, source: Source::Fallback });
    }
    Ok(())
}

/// What passes uncounted.
fn pass(limit: &Limit) -> Decision {
    let capacity = capacity(limit);
    Decision {
        verdict: Verdict::Allow { delay: Span::ZERO },
        limit: capacity,
        remaining: capacity,
        reset_after: Span::ZERO,
        lease: None,
    }
}

/// A cost that is too much for the share alone is refused for now, and not for ever.
fn not_for_ever(decision: Decision, charge: &Charge<'_>) -> Decision {
    match decision.verdict {
        Verdict::NeverFits if charge.operation.cost() <= capacity(charge.limit) => {
            Decision { verdict: Verdict::Deny { retry_after: NEXT_TRY }, ..decision }
        }
        _ => decision,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::{Consistency, Key, Operation, Rate, Timestamp, TokenBucket};
    use tidegate_store::TableConfig;

    const NOW: Timestamp = Timestamp::from_secs(1_790_553_600);

    fn table() -> Table {
        let config = TableConfig { entry_bytes: 1 << 20, wide_bytes: 1 << 20 };
        Table::new(config, NOW).unwrap()
    }

    fn terms(on_failure: OnStoreFailure) -> Terms {
        Terms { consistency: Consistency::Strict, on_failure, group: None }
    }

    fn take(limit: &Limit, number: u128, cost: u64) -> Charge<'_> {
        let operation = Operation::Take { cost };
        Charge { limit, key: Key::from_hash(number << 80 | number), operation }
    }

    fn ask(
        table: &Table,
        nodes: u32,
        charges: &[Charge<'_>],
        policies: &[OnStoreFailure],
    ) -> Result<Vec<Settled>, StoreError> {
        let terms: Vec<_> = policies.iter().map(|policy| terms(*policy)).collect();
        let (request, mut settled) = (Request { now: NOW, charges }, Vec::new());
        settle(StoreError::Unreachable, table, nodes, &request, &terms, &mut settled)?;
        assert!(settled.iter().all(|one| one.source == Source::Fallback && one.at == NOW));
        Ok(settled)
    }

    fn limit(burst: u64) -> Limit {
        TokenBucket::new(Rate::new(burst, Span::HOUR).unwrap(), burst).unwrap().into()
    }

    use OnStoreFailure::{Allow, Deny, Local};

    #[test]
    fn a_node_has_its_share_and_at_least_one() {
        for (burst, nodes, share) in [(10, 1, 10), (10, 3, 3), (10, 10, 1), (2, 5, 1)] {
            let (table, limit) = (table(), limit(burst));
            for left in (0..share).rev() {
                let settled = ask(&table, nodes, &[take(&limit, 1, 1)], &[Local]).unwrap();
                assert!(settled[0].decision.is_allowed());
                assert_eq!(
                    (settled[0].decision.limit, settled[0].decision.remaining),
                    (share, left)
                );
            }
            let settled = ask(&table, nodes, &[take(&limit, 1, 1)], &[Local]).unwrap();
            assert!(!settled[0].decision.is_allowed());
        }
    }

    #[test]
    fn deny_is_an_error_and_no_denial_and_takes_nothing() {
        let (table, limit) = (table(), limit(1));
        let charges = [take(&limit, 1, 1), take(&limit, 2, 1), take(&limit, 3, 1)];
        assert_eq!(ask(&table, 1, &charges, &[Local, Allow, Deny]), Err(StoreError::Unreachable));
        let settled = ask(&table, 1, &charges, &[Local, Allow, Local]).unwrap();
        assert!(settled.iter().all(|one| one.decision.is_allowed()));
    }

    #[test]
    fn allow_passes_uncounted_whatever_the_cost_so_far() {
        let (table, limit) = (table(), limit(2));
        for _ in 0..5 {
            let settled = ask(&table, 1, &[take(&limit, 1, 2)], &[Allow]).unwrap();
            assert!(settled[0].decision.is_allowed());
            assert_eq!(settled[0].decision.remaining, 2);
        }
    }

    #[test]
    fn shares_are_all_or_nothing() {
        let (table, wide, narrow) = (table(), limit(10), limit(1));
        let charges = [take(&wide, 1, 1), take(&narrow, 2, 1)];
        assert!(ask(&table, 2, &charges, &[Local, Local]).unwrap()[1].decision.is_allowed());
        let settled = ask(&table, 2, &charges, &[Local, Local]).unwrap();
        assert_eq!(settled[0].decision.remaining, 4, "as it was");
        assert!(settled[0].decision.is_allowed() && !settled[1].decision.is_allowed());
    }

    #[test]
    fn a_cost_beyond_the_share_is_refused_for_now_and_one_beyond_the_limit_for_ever() {
        let (table, limit) = (table(), limit(10));
        let settled = ask(&table, 3, &[take(&limit, 1, 4)], &[Local]).unwrap();
        assert_eq!(settled[0].decision.retry_after(), Some(NEXT_TRY));
        let settled = ask(&table, 3, &[take(&limit, 1, 11)], &[Local]).unwrap();
        assert_eq!(settled[0].decision.verdict, Verdict::NeverFits);
    }

    #[test]
    fn what_nobody_could_decide_stays_an_error() {
        let (table, limit) = (table(), limit(10));
        let charges = [take(&limit, 1, 1), take(&limit, 1, 1)];
        let (request, mut settled) = (Request { now: NOW, charges: &charges }, Vec::new());
        let error = StoreError::RepeatedKey;
        let answer = settle(error, &table, 1, &request, &[terms(Allow); 2], &mut settled);
        assert_eq!(answer, Err(error));
    }
}
