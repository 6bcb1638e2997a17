//! What holds for every algorithm, whatever happened before.

use proptest::prelude::*;
use tidegate_core::{Decision, Limit, Operation, Span, State, Timestamp, Verdict};

use super::{Call, Driver};

/// A denial's wait is exact: alone, a retry at that tick succeeds, and one tick earlier it does not.
pub fn waits_are_exact(
    mut driver: Driver,
    calls: &[Call],
    late: Span,
    cost: u64,
) -> Result<(), TestCaseError> {
    for &call in calls {
        let _ = driver.call(call);
    }
    let now = driver.latest.minus(late);
    if let Verdict::Deny { retry_after } = driver.decide(now, Operation::Take { cost }).verdict {
        prop_assert!(!retry_after.is_zero(), "a denial without a wait");
        let then = now.plus(retry_after);
        prop_assert!(driver.look(then, cost).is_allowed(), "the wait is too short");
        prop_assert!(!driver.look(then.minus(Span::TICK), cost).is_allowed(), "it is too long");
    }
    Ok(())
}

/// A refund right after its take leaves what was left before, and no refund leaves more than all.
pub fn refunds_give_back_what_was_taken(
    mut driver: Driver,
    calls: &[Call],
    cost: u64,
    excess: u64,
) -> Result<(), TestCaseError> {
    for &call in calls {
        let (_, _, decision) = driver.call(call);
        prop_assert!(decision.remaining <= decision.limit);
    }
    let now = driver.latest;
    let before = driver.look(now, 0).remaining;
    if driver.decide(now, Operation::Take { cost }).is_allowed() {
        let refund = Operation::Refund { cost, taken_at: now };
        prop_assert_eq!(driver.decide(now, refund).remaining, before);
    }
    let refund = Operation::Refund { cost: excess, taken_at: now };
    let decision = driver.decide(now, refund);
    prop_assert!(decision.remaining <= decision.limit);
    prop_assert!(decision.remaining >= before);
    Ok(())
}

/// A clock that is set back leaves no more than there was, and nobody waits longer than `longest`,
/// even where every denial on the way is kept.
pub fn setting_the_clock_back_gives_nothing_and_locks_nobody_out(
    mut driver: Driver,
    calls: &[Call],
    back: Span,
    cost: u64,
    longest: Span,
) -> Result<(), TestCaseError> {
    for &call in calls {
        let _ = driver.call(call);
    }
    let before = driver.look(driver.latest, 0);
    let now = driver.latest.minus(back);
    let first = driver.decide(now, Operation::Take { cost });
    let spent = if first.is_allowed() { cost } else { 0 };
    prop_assert!(first.remaining + spent <= before.remaining, "the set-back gave quota away");
    let Verdict::Deny { retry_after } = first.verdict else { return Ok(()) };
    prop_assert!(retry_after <= longest, "{retry_after:?} is longer than {longest:?}");
    for part in 1..=7 {
        let wait = Span::from_micros(retry_after.as_micros() / 8 * part);
        let decision = driver.decide(now.plus(wait), Operation::Take { cost });
        prop_assert!(!decision.is_allowed(), "allowed before its time");
    }
    let last = driver.decide(now.plus(retry_after), Operation::Take { cost });
    prop_assert!(last.is_allowed(), "waited as told, and was refused");
    Ok(())
}

/// Spends everything there is at `now`, unit by unit.
pub fn exhaust(limit: &Limit, now: Timestamp) -> Option<State> {
    let mut state = None;
    loop {
        let (decision, next) = limit.decide(state, now, Operation::Take { cost: 1 });
        state = next;
        if !decision.is_allowed() {
            return state;
        }
    }
}

/// After `old` was used up, what `new` still admits at the same time.
pub fn left_after_a_change(old: &Limit, new: &Limit, now: Timestamp) -> u64 {
    let state = exhaust(old, now);
    let (Decision { remaining, .. }, _) = new.decide(state, now, Operation::Peek { cost: 0 });
    remaining
}
