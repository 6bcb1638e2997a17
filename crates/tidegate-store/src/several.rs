//! The general path: several limits at once, all or nothing, and states that are spilled.
//!
//! Entries are locked first, in the order of their keys, then shards of the wide structure, in the
//! order of their numbers; whoever holds one waits only for a later one, so nobody waits in a circle.
//! Everything is decided while all of it is held, and written only when it is known to fit.

use tidegate_core::{Decision, Key, Operation, State, Timestamp};

use crate::entry::{Entry, Fingerprint, Payload, pack, unpack};
use crate::places::unlock;
use crate::seam::{Charge, Request, StoreError};
use crate::sync::Backoff;
use crate::table::{Table, fits_entry};
use crate::wide::{Guards, ShardSet};
use crate::word::Word;

/// Decides a request of any number of charges and hands each decision on.
pub(crate) fn decide(
    table: &Table,
    request: &Request<'_>,
    each: &mut dyn FnMut(Decision),
) -> Result<(), StoreError> {
    // Room for a few is set up much faster than room for all that there can be.
    match request.charges.len() {
        0..=2 => decide_up_to::<2>(table, request, each),
        3..=4 => decide_up_to::<4>(table, request, each),
        5..=Request::CHARGES_MAX => decide_up_to::<{ Request::CHARGES_MAX }>(table, request, each),
        _ => Err(StoreError::TooManyCharges),
    }
}

fn decide_up_to<const MAX: usize>(
    table: &Table,
    request: &Request<'_>,
    each: &mut dyn FnMut(Decision),
) -> Result<(), StoreError> {
    let order = order_of::<MAX>(table, request.charges)?;
    let mut held = [const { None }; MAX];
    let mut shards = ShardSet::default();
    for &index in &order[..request.charges.len()] {
        let charge = &request.charges[index];
        if !fits_entry(charge.limit) {
            shards = shards.and(table.wide.shard_of(charge.key));
            continue;
        }
        let entry = lock(table, charge.key, request.now);
        if entry.old.is_spilled() {
            shards = shards.and(table.wide.shard_of(charge.key));
        }
        held[index] = Some(entry);
    }
    let mut deciding = Deciding { table, request, held: &held };
    let decisions = loop {
        match deciding.run(&mut table.wide.lock(shards)) {
            Ok(decisions) => break decisions,
            // A state has outgrown its entry. The entries stay locked, so nothing has changed when
            // its shard has been locked as well.
            Err(Spills(more)) => shards = shards.and(more),
        }
    };
    // Nothing is held any more, so whoever gets them may do what they like.
    decisions.into_iter().flatten().for_each(each);
    Ok(())
}

/// Decides one charge whose state is spilled, or is about to be.
#[cold]
pub(crate) fn decide_one(table: &Table, now: Timestamp, charge: &Charge<'_>) -> Decision {
    let mut decisions = Vec::with_capacity(1);
    let request = Request { now, charges: std::slice::from_ref(charge) };
    let decided = decide(table, &request, &mut |decision| decisions.push(decision));
    debug_assert!(decided.is_ok(), "one charge is neither too many nor repeated");
    decisions[0]
}

/// Removes all that is known of a key.
pub(crate) fn forget(table: &Table, key: Key) {
    let probe = table.places.probe(key);
    let mut backoff = Backoff::default();
    loop {
        // Under the stripe no entry comes into being or moves, so one that is not found is not
        // there. The stripe is let go before waiting: who holds the entry may be waiting for it.
        let hold = table.places.hold(probe);
        let Some((word, entry)) = table.places.find(probe) else {
            // Nobody waits for a stripe with a shard in hand, so this one is soon to be had.
            table.wide.lock_one(key).remove(key);
            return;
        };
        if entry.is_locked() {
            drop(hold);
            backoff.wait();
        } else if entry.is_spilled() {
            // Its two parts go together, or a charge that comes in between would be lost as well.
            if word.compare_exchange(entry.0, entry.locked().0).is_ok() {
                table.wide.lock_one(key).remove(key);
                unlock(word, entry.locked(), Entry::FREE);
                return;
            }
        } else if word.compare_exchange(entry.0, Entry::FREE.0).is_ok() {
            return;
        }
    }
}

/// An entry that this thread has locked.
struct Held<'t> {
    word: &'t Word,
    /// What it held, unlocked; [`Entry::FREE`] where the key had no entry.
    old: Entry,
    locked: Entry,
    /// The instant of the decision for this key.
    now: Timestamp,
}

/// Shards that are needed as well.
struct Spills(ShardSet);

struct Deciding<'a, 't, const MAX: usize> {
    table: &'t Table,
    request: &'a Request<'a>,
    held: &'a [Option<Held<'t>>; MAX],
}

/// What becomes of an entry.
struct Outcome {
    decision: Decision,
    next: Option<State>,
    /// The next state in 76 bits; `None` where it is spilled.
    entry: Option<Entry>,
    /// The instant of the decision.
    now: Timestamp,
}

impl<const MAX: usize> Deciding<'_, '_, MAX> {
    /// The decisions, in the order of the charges.
    fn run(&mut self, guards: &mut Guards<'_>) -> Result<[Option<Decision>; MAX], Spills> {
        let refused = self.request.charges.len() > 1 && !self.all_takes_fit(guards);
        let mut outcomes = [const { None }; MAX];
        let mut missing = ShardSet::default();
        for (index, charge) in self.request.charges.iter().enumerate() {
            let Some(held) = &self.held[index] else { continue };
            let outcome = self.outcome(held, charge, refused, guards);
            if outcome.entry.is_none() {
                missing = missing.and(self.table.wide.shard_of(charge.key));
            }
            outcomes[index] = Some(outcome);
        }
        if !guards.holds(missing) {
            return Err(Spills(missing));
        }
        let mut decisions = [None; MAX];
        for (index, charge) in self.request.charges.iter().enumerate() {
            let decision = match (&self.held[index], outcomes[index].take()) {
                (Some(held), Some(outcome)) => self.write(held, charge.key, outcome, guards),
                _ => self.update_wide(charge, settled(charge.operation, refused), guards),
            };
            decisions[index] = Some(decision);
        }
        Ok(decisions)
    }

    /// Whether every take would go through by itself. Each key comes once, so together they do.
    fn all_takes_fit(&self, guards: &mut Guards<'_>) -> bool {
        self.request.charges.iter().enumerate().all(|(index, charge)| {
            let Operation::Take { cost } = charge.operation else { return true };
            let peek = Operation::Peek { cost };
            let decision = match &self.held[index] {
                Some(held) => {
                    let (state, now) = self.state(held, charge, guards);
                    charge.limit.decide(state, now, peek).0
                }
                None => self.update_wide(charge, peek, guards),
            };
            decision.is_allowed()
        })
    }

    fn outcome(
        &self,
        held: &Held<'_>,
        charge: &Charge<'_>,
        refused: bool,
        guards: &mut Guards<'_>,
    ) -> Outcome {
        let (state, now) = self.state(held, charge, guards);
        let operation = settled(charge.operation, refused);
        let (decision, next) = charge.limit.decide(state, now, operation);
        let entry = match &next {
            None => Some(self.table.places.emptied(held.old, self.table.since_origin(now))),
            // A snapshot that has written the entry as spilled has yet to come to its record.
            Some(_) if held.old.is_spilled() && self.table.places.is_being_read() => None,
            Some(state) => pack(charge.limit, state, self.table.origin)
                .map(|payload| Entry::new(Fingerprint::of(charge.key), payload)),
        };
        Outcome { decision, next, entry, now }
    }

    /// The state of a charge's key, and the instant at which to decide on it.
    fn state(
        &self,
        held: &Held<'_>,
        charge: &Charge<'_>,
        guards: &mut Guards<'_>,
    ) -> (Option<State>, Timestamp) {
        if held.old == Entry::FREE {
            (None, held.now)
        } else if held.old.is_spilled() {
            let shard = guards.shard(charge.key);
            match shard.state(charge.key) {
                Some(state) => (Some(state.clone()), held.now),
                None => (None, shard.starts_at(held.now)),
            }
        } else {
            (unpack(charge.limit, held.old.payload(), self.table.origin), held.now)
        }
    }

    fn write(
        &self,
        held: &Held<'_>,
        key: Key,
        outcome: Outcome,
        guards: &mut Guards<'_>,
    ) -> Decision {
        let new = match (outcome.entry, outcome.next) {
            (None, Some(state)) => {
                let full_at = outcome.now.plus(outcome.decision.reset_after);
                guards.shard(key).put(key, full_at, state, self.request.now);
                let payload = Payload::spilled(self.table.since_origin(full_at));
                Entry::new(Fingerprint::of(key), payload)
            }
            (entry, _) => {
                if held.old.is_spilled() {
                    guards.shard(key).remove(key);
                }
                entry.unwrap_or(Entry::FREE)
            }
        };
        unlock(held.word, held.locked, new);
        outcome.decision
    }

    fn update_wide(
        &self,
        charge: &Charge<'_>,
        operation: Operation,
        guards: &mut Guards<'_>,
    ) -> Decision {
        let now = self.request.now;
        let shard = guards.shard(charge.key);
        shard.update(charge.key, now, |state, now| charge.limit.decide(state, now, operation))
    }
}

/// What is done to a limit of a request that another limit refuses: its take only looks.
fn settled(operation: Operation, refused: bool) -> Operation {
    match operation {
        Operation::Take { cost } if refused => Operation::Peek { cost },
        other => other,
    }
}

/// Locks a key's entry, or makes one that is locked.
fn lock(table: &Table, key: Key, now: Timestamp) -> Held<'_> {
    let probe = table.places.probe(key);
    let mut backoff = Backoff::default();
    loop {
        if let Some((word, old)) = table.places.find(probe) {
            let locked = old.locked();
            if !old.is_locked() && word.compare_exchange(old.0, locked.0).is_ok() {
                return Held { word, old, locked, now };
            }
            backoff.wait();
            continue;
        }
        let hold = table.places.hold(probe);
        if table.places.find(probe).is_none() {
            let locked = Entry::placeholder(probe.fingerprint);
            let placed = table.places.place(&hold, probe, table.since_origin(now), locked);
            if let Some(word) = placed {
                let now = hold.starts_at(now, table.origin);
                return Held { word, old: Entry::FREE, locked, now };
            }
            drop(hold);
            backoff.wait();
        }
    }
}

/// The charges in the order of their keys. Two keys that share an entry, as one pair in 2^64 does,
/// count as one: a thread must not wait for an entry that it has locked itself.
fn order_of<const MAX: usize>(
    table: &Table,
    charges: &[Charge<'_>],
) -> Result<[usize; MAX], StoreError> {
    let mut order: [usize; MAX] = std::array::from_fn(|index| index);
    let order_used = &mut order[..charges.len()];
    order_used.sort_unstable_by_key(|&index| charges[index].key);
    let shared =
        |pair: &[usize]| table.places.share_entry(charges[pair[0]].key, charges[pair[1]].key);
    if order_used.windows(2).any(shared) {
        return Err(StoreError::RepeatedKey);
    }
    Ok(order)
}
