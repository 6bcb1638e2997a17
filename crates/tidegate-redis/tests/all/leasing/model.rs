//! The store's side of leases as a function of what the core says: one key's state, the entries around it,
//! and what each operation does to both. The script does the same in another language.

use tidegate_core::fixed_window::Windows;
use tidegate_core::{Decision, Limit, Operation, Span, State, Timestamp, Verdict};
use tidegate_redis::lease::{
    Ask, HOLDERS_MAX, Holder, Intent, OCCUPIED_WAIT_MAX, TOTAL_MAX, TTL, Told,
};

/// One key in the store.
#[derive(Clone, Debug, Default)]
pub struct Leased {
    pub inner: Option<State>,
    /// In the order in which they began.
    pub entries: Vec<Entry>,
    /// All that has ever been charged.
    pub charged: u64,
    /// The mistake that it makes, if any.
    pub fault: Option<Fault>,
}

/// One lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub holder: Holder,
    pub sequence: u32,
    pub granted: u64,
    pub reported: u64,
    pub expires_at: Timestamp,
}

impl Entry {
    pub const fn occupied(&self) -> u64 {
        self.granted - self.reported
    }
}

/// A mistake to make on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// What is leased does not count.
    ForgetsOccupied,
    /// What is reported is charged twice.
    DebitsTwice,
    /// What is reported is not charged.
    NeverDebits,
    /// A lease that expires is not charged.
    ExpiresForFree,
    /// Requests are served in any order.
    IgnoresSequence,
    /// Leases last a tenth as long as the nodes believe.
    ExpiresEarly,
    /// What is unused is charged with the rest when a lease is closed.
    KeepsTheRest,
    /// A reset forgets the leases, too.
    ResetsLeases,
    /// What is given back comes back twice.
    RefundsTwice,
    /// Leases last as long as the clock said before it was set back.
    TrustsTheClock,
    /// Everybody gets all that there is, if that is what they want.
    GrantsAll,
}

impl Leased {
    fn makes(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// What is leased and not reported.
    pub fn occupied(&self) -> u64 {
        if self.makes(Fault::ForgetsOccupied) {
            return 0;
        }
        self.entries.iter().map(Entry::occupied).sum()
    }

    /// One strict operation.
    pub fn decide(&mut self, limit: &Limit, now: Timestamp, operation: Operation) -> Decision {
        self.expire(limit, now);
        let occupied = self.occupied();
        let operation = match operation {
            Operation::Refund { cost, taken_at } if self.makes(Fault::RefundsTwice) => {
                Operation::Refund { cost: 2 * cost, taken_at }
            }
            other => other,
        };
        let (mut decision, next) = limit.decide(self.inner.clone(), now, operation);
        let lacks = match operation {
            Operation::Take { .. } => decision.is_allowed() && decision.remaining < occupied,
            Operation::Peek { cost } => {
                decision.is_allowed() && decision.remaining < cost.saturating_add(occupied)
            }
            _ => false,
        };
        if lacks {
            decision = self.refusal(limit, now, operation.cost());
        } else {
            if let (Operation::Take { cost }, true) = (operation, decision.is_allowed()) {
                self.charged += cost;
            }
            self.inner = next;
        }
        decision.remaining = decision.remaining.saturating_sub(occupied);
        decision
    }

    /// Forgets what was charged, and keeps the leases that have not expired.
    pub fn reset(&mut self, now: Timestamp) {
        self.inner = None;
        self.entries.retain(|entry| entry.expires_at > now);
        if self.makes(Fault::ResetsLeases) {
            self.entries.clear();
        }
    }

    /// One request for a lease.
    pub fn ask(&mut self, limit: &Limit, now: Timestamp, ask: &Ask) -> Told {
        self.expire(limit, now);
        let found = self.entries.iter().position(|entry| entry.holder == ask.holder);
        let place = match (found, ask.intent) {
            (Some(place), _) => place,
            (None, Intent::Open) if self.entries.len() < HOLDERS_MAX => {
                let (sequence, granted, reported) = (0, 0, 0);
                let holder = ask.holder;
                self.entries.push(Entry { holder, sequence, granted, reported, expires_at: now });
                self.entries.len() - 1
            }
            (None, _) => return self.told(limit, now, false, 0, 0),
        };
        if ask.sequence <= self.entries[place].sequence && !self.makes(Fault::IgnoresSequence) {
            return self.told(limit, now, true, self.entries[place].granted, 0);
        }
        self.report(limit, now, place, ask);
        let entry = self.entries[place];
        if ask.intent == Intent::Close {
            self.entries.remove(place);
            return self.told(limit, now, true, entry.granted, 0);
        }
        let lacking = ask.need.saturating_sub(entry.occupied());
        let refused = self.grant(limit, now, place, ask, lacking);
        let granted = self.entries[place].granted;
        let ttl =
            if self.makes(Fault::ExpiresEarly) { TTL.as_micros() / 10 } else { TTL.as_micros() };
        self.entries[place].expires_at = now.plus(Span::from_micros(ttl));
        // A lease of nothing is none.
        if self.entries[place].occupied() == 0 {
            self.entries.remove(place);
        }
        self.told(limit, now, true, granted, if refused { lacking } else { 0 })
    }

    /// Charges what the store did not know of, and takes back what the node has too much.
    fn report(&mut self, limit: &Limit, now: Timestamp, place: usize, ask: &Ask) {
        let entry = &mut self.entries[place];
        entry.sequence = ask.sequence;
        let spent = ask.spent.saturating_sub(entry.reported).min(TOTAL_MAX);
        entry.reported = entry.reported.max(ask.spent);
        entry.granted = entry.granted.max(entry.reported);
        if entry.occupied() > ask.want && ask.intent != Intent::Close {
            entry.granted = entry.reported + ask.want;
        }
        let rest = if ask.intent == Intent::Close { entry.occupied() } else { 0 };
        if !self.makes(Fault::NeverDebits) {
            self.debit(limit, now, spent);
        }
        if self.makes(Fault::DebitsTwice) {
            self.debit(limit, now, spent);
        }
        if self.makes(Fault::KeepsTheRest) {
            self.debit(limit, now, rest);
        }
    }

    /// Grants what the node asks for, as far as that is fair. Gives whether its need is not met.
    fn grant(
        &mut self,
        limit: &Limit,
        now: Timestamp,
        place: usize,
        ask: &Ask,
        lacking: u64,
    ) -> bool {
        let peek = Operation::Peek { cost: lacking };
        let (looked, _) = limit.decide(self.inner.clone(), now, peek);
        let free = looked.remaining.saturating_sub(self.occupied());
        if !looked.is_allowed() || free < lacking {
            return true;
        }
        let share = free / (2 * self.entries.len() as u64);
        let greedy = self.makes(Fault::GrantsAll);
        let entry = &mut self.entries[place];
        let at_hand = entry.occupied();
        let target = if ask.want <= at_hand + share || greedy {
            ask.want.min(at_hand + free)
        } else {
            ask.need.max(ask.waiting.min(at_hand + share))
        };
        entry.granted += target.saturating_sub(at_hand);
        false
    }

    /// The answer to a request that lacks so much.
    fn told(&self, limit: &Limit, now: Timestamp, known: bool, granted: u64, lacking: u64) -> Told {
        let occupied = self.occupied();
        let peek = Operation::Peek { cost: lacking };
        let (mut decision, _) = limit.decide(self.inner.clone(), now, peek);
        if lacking == 0 {
            decision.verdict = Verdict::Allow { delay: Span::ZERO };
        } else if decision.is_allowed() {
            decision = self.refusal(limit, now, lacking);
        }
        decision.remaining = decision.remaining.saturating_sub(occupied);
        Told { known, granted, decision }
    }

    /// The refusal of a cost that would fit if nothing were leased: until a lease expires, or the cost
    /// fits beside all leases, but not for long.
    fn refusal(&self, limit: &Limit, now: Timestamp, cost: u64) -> Decision {
        let (looked, _) = limit.decide(self.inner.clone(), now, Operation::Peek { cost: 0 });
        let beside = Operation::Peek { cost: cost.saturating_add(self.occupied()) };
        let fits_in = limit.decide(self.inner.clone(), now, beside).0.retry_after();
        let expires = self.entries.iter().map(|entry| entry.expires_at.since(now));
        let waits = expires.chain(fits_in).chain([OCCUPIED_WAIT_MAX]);
        let retry_after = waits.min().unwrap_or(OCCUPIED_WAIT_MAX).max(Span::TICK);
        Decision { verdict: Verdict::Deny { retry_after }, ..looked }
    }

    /// Charges the leases that have expired, each at its expiry.
    fn expire(&mut self, limit: &Limit, now: Timestamp) {
        // No lease is longer than that: the clock was set back, and it lasts from now on.
        if !self.makes(Fault::TrustsTheClock) {
            for entry in &mut self.entries {
                entry.expires_at = entry.expires_at.min(now.plus(TTL));
            }
        }
        loop {
            let expired = self.entries.iter().enumerate();
            let expired = expired.filter(|(_, entry)| entry.expires_at <= now);
            let Some((place, _)) = expired.min_by_key(|(_, entry)| entry.expires_at) else {
                return;
            };
            let entry = self.entries.remove(place);
            if !self.makes(Fault::ExpiresForFree) && !is_long_over(limit, entry.expires_at, now) {
                self.debit(limit, entry.expires_at, entry.occupied());
            }
        }
    }

    fn debit(&mut self, limit: &Limit, at: Timestamp, cost: u64) {
        if cost > 0 {
            self.charged += cost;
            self.inner = limit.decide(self.inner.take(), at, Operation::Debit { cost }).1;
        }
    }
}

/// Whether a window of the calendar was over before the last one began: a script is told of no window
/// before that, and what was charged there says nothing any more.
fn is_long_over(limit: &Limit, at: Timestamp, now: Timestamp) -> bool {
    let Limit::FixedWindow(limit) = limit else { return false };
    let Windows::Calendar(calendar) = limit.windows() else { return false };
    let start = calendar.window_containing(now).0;
    at < calendar.window_containing(start.minus(Span::TICK)).0
}
