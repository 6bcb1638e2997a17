//! One key in the book: how often it is asked for, and its lease.

mod returns;

use tidegate_core::{Decision, Key, Limit, Span, Timestamp, Verdict};

use crate::lease::{Ask, Holder, Intent, LeaseStats, SPENDABLE, TOTAL_MAX, TTL, Told};
use crate::protocol::capacity;

use super::{Call, Mark};

/// A key becomes hot when it is asked for so often...
const HOT_COUNT: u64 = 8;

/// ...within so long.
const HOT_WITHIN: Span = Span::from_millis(100);

/// A node wants to have at hand what it spends in this time, and asks for more when half of that is
/// gone: a hundred times a second.
const AHEAD: Span = Span::from_millis(20);

/// (With many leases, [`AHEAD`] is stretched.) A key that is not that fast has at hand what it spends in so many times [`AHEAD`], up to
/// [`AHEAD_SLOW_MAX`]. Otherwise it would ask for every unit by itself.
const AHEAD_SLOW: u64 = 10;

const AHEAD_SLOW_MAX: u64 = 16;

/// After so long without a take the lease is given back.
const IDLE: Span = Span::from_millis(100);

/// After a request without an answer the key is decided strictly for so long, as the policy for a
/// store that does not answer has it.
const TROUBLED: Span = Span::from_millis(50);

/// What was left to the store longer ago than this is decided, whatever deadline it had.
const STRICT_LATELY: Span = Span::MINUTE;

/// For how long no other lease is opened where the store has no room for one.
const FULL: Span = Span::SECOND;

pub(super) struct Slot {
    pub(super) key: Key,
    limit: Limit,
    /// The latest time at which somebody asked.
    last_at: Timestamp,
    /// What was spent since when; while the key is cold, how often it was asked for.
    counted: u64,
    counted_from: Timestamp,
    /// What is spent in [`AHEAD`], as far as it is known.
    pace: u64,
    /// Takes of so much and more are refused until then.
    refused_cost: u64,
    refused_until: Timestamp,
    /// No lease is asked for until then.
    strict_until: Timestamp,
    /// The latest time at which a take was left to the store, and how much that was lately, less what was
    /// given back there.
    strict_at: Timestamp,
    strict_left: u64,
    lease: Option<Lease>,
    /// How many requests have been answered or given up.
    answers: u32,
    /// Whether it stands in the list of what is to be sent.
    due: bool,
    /// Whether it stands in the list of those with a lease, or should.
    held: Held,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    No,
    New,
    Yes,
}

struct Lease {
    holder: Holder,
    /// Of the latest request.
    sequence: u32,
    /// All that was spent since the lease began, what the store may have been told of it, and how much
    /// may be spent at most.
    spent: u64,
    told: u64,
    cap: u64,
    /// All that was granted by the last answer.
    granted: u64,
    /// When less than this is at hand, it is time to ask for more.
    low: u64,
    spendable_until: Timestamp,
    /// What waits for the next answer, and the least of it.
    waiting: u64,
    need: u64,
    flight: Option<Flight>,
    /// When the latest request was sent, and when the latest that was answered.
    sent_at: Timestamp,
    answered_sent_at: Timestamp,
    opened: bool,
    closing: bool,
    /// What is left beside all leases, and when everything has come back, by the last answer.
    left: u64,
    full_at: Timestamp,
}

/// A request without an answer so far.
#[derive(Clone, Copy)]
struct Flight {
    sent_at: Timestamp,
    need: u64,
    intent: Intent,
}

/// What becomes of a take for which there is nothing at hand.
pub(super) enum Step {
    Wait,
    /// `None` is for the store.
    Told {
        decision: Option<Decision>,
        due: bool,
    },
}

const STRICT: Step = Step::Told { decision: None, due: false };

impl Slot {
    pub(super) fn new(key: Key, limit: &Limit, cost: u64, now: Timestamp) -> Self {
        Self {
            key,
            limit: limit.clone(),
            last_at: now,
            counted: 1,
            counted_from: now,
            pace: 0,
            refused_cost: 0,
            refused_until: Timestamp::ZERO,
            strict_until: Timestamp::ZERO,
            strict_at: now,
            strict_left: cost,
            lease: None,
            answers: 0,
            due: false,
            held: Held::No,
        }
    }

    /// Spends from what is at hand; also says whether that has become little.
    #[inline]
    pub(super) fn spend(
        &mut self,
        limit: &Limit,
        cost: u64,
        now: Timestamp,
    ) -> Option<(Decision, bool)> {
        let lease = self.lease.as_mut()?;
        let at_hand = lease.cap - lease.spent;
        if cost > at_hand || now >= lease.spendable_until || *limit != self.limit {
            return None;
        }
        let at_hand = at_hand - cost;
        lease.spent += cost;
        self.counted += cost;
        self.last_at = self.last_at.max(now);
        Some((lease.allowed(limit, now), at_hand < lease.low))
    }

    /// Takes note of a take for which there is nothing at hand.
    #[cold]
    pub(super) fn miss(
        &mut self,
        limit: &Limit,
        cost: u64,
        now: Timestamp,
        holder: impl FnOnce() -> Holder,
    ) -> Step {
        self.last_at = self.last_at.max(now);
        if *limit != self.limit {
            // Changed numbers apply at once: what is at hand was granted under others.
            self.limit = limit.clone();
            self.lift();
            return Step::Told { decision: None, due: self.close() };
        }
        if cost >= self.refused_cost && now < self.refused_until {
            return Step::Told { decision: Some(self.refusal(now)), due: false };
        }
        if cost > capacity(limit) || now < self.strict_until {
            return STRICT;
        }
        if self.lease.is_none() && !self.open(now, holder) {
            return STRICT;
        }
        let Some(lease) = &mut self.lease else { return STRICT };
        if lease.closing {
            return STRICT;
        }
        lease.waiting = lease.waiting.saturating_add(cost);
        lease.need = if lease.need == 0 { cost } else { lease.need.min(cost) };
        Step::Wait
    }

    /// Whether a take is left to the store without waiting for a lease.
    pub(super) fn is_for_store(
        &mut self,
        limit: &Limit,
        cost: u64,
        now: Timestamp,
        holder: impl FnOnce() -> Holder,
    ) -> bool {
        let is_refused = cost >= self.refused_cost && now < self.refused_until;
        if is_refused || *limit != self.limit {
            return false;
        }
        self.last_at = self.last_at.max(now);
        let is_closing = self.lease.as_ref().is_some_and(|lease| lease.closing);
        let is_for_store = cost > capacity(limit)
            || now < self.strict_until
            || is_closing
            || self.lease.is_none() && !self.open(now, holder);
        if is_for_store {
            self.leave_to_store(cost, now);
        }
        is_for_store
    }

    /// Begins a lease, if the key is hot.
    fn open(&mut self, now: Timestamp, holder: impl FnOnce() -> Holder) -> bool {
        if now.since(self.counted_from) > HOT_WITHIN {
            (self.counted, self.counted_from) = (0, now);
        }
        self.counted += 1;
        if self.counted < HOT_COUNT {
            return false;
        }
        self.lease = Some(Lease::new(holder()));
        self.pace = 0;
        if self.held == Held::No {
            self.held = Held::New;
        }
        true
    }

    fn refusal(&self, now: Timestamp) -> Decision {
        let at_hand = self.at_hand();
        let full_at = self.lease.as_ref().map_or(self.refused_until, |lease| lease.full_at);
        Decision {
            verdict: Verdict::Deny { retry_after: self.refused_until.since(now) },
            limit: capacity(&self.limit),
            remaining: at_hand,
            reset_after: full_at.max(self.refused_until).since(now),
            lease: None,
        }
    }

    /// Which lease it is, and how often the store was told of it.
    #[inline]
    pub(super) fn mark(&self) -> Mark {
        let mark = |lease: &Lease| Mark { epoch: lease.holder.epoch, sequence: lease.sequence };
        self.lease.as_ref().map_or(Mark::default(), mark)
    }

    pub(super) const fn answers(&self) -> u32 {
        self.answers
    }

    /// Stops spending before the key is reset. Gives the lease that is to be given back after that.
    pub(super) fn before_reset(&mut self, tally: &mut LeaseStats) -> Option<Holder> {
        self.lift();
        if self.lease.as_ref().is_some_and(|lease| lease.sequence == 0) {
            // The store does not know of it.
            self.end(tally);
        }
        self.close();
        self.lease.as_ref().map(|lease| lease.holder)
    }

    /// Gives the lease back once the key was reset; what was spent before that is forgotten with the
    /// rest. Where it could not be reset, it is reported as ever. Gives whether there is something to send.
    pub(super) fn after_reset(&mut self, holder: Holder, done: bool) -> bool {
        self.lift();
        let Some(lease) = self.lease.as_mut().filter(|lease| lease.holder == holder) else {
            return false;
        };
        if done {
            // Nothing was spent since it was stopped.
            (lease.spent, lease.cap) = (lease.told, lease.told);
        }
        lease.flight.is_none()
    }

    pub(super) fn lift(&mut self) {
        self.refused_until = Timestamp::ZERO;
    }

    /// The request to send, if there is one. The node wants what it spends in so many times [`AHEAD`].
    pub(super) fn call(
        &mut self,
        now: Timestamp,
        stretch: u64,
        tally: &mut LeaseStats,
    ) -> Option<Call> {
        self.due = false;
        let pace = self.measure(now);
        let lease = self.lease.as_mut()?;
        if lease.flight.is_some() {
            return None;
        }
        if lease.sequence >= u32::MAX / 2 || lease.spent >= TOTAL_MAX / 2 {
            lease.closing = true;
        }
        tally.spent += lease.spent - lease.told;
        let ask = lease.ask(pace, stretch, capacity(&self.limit));
        tally.requests += 1;
        tally.renewals += u64::from(ask.intent == Intent::Renew);
        lease.sent_at = self.last_at;
        lease.flight = Some(Flight { sent_at: self.last_at, need: ask.need, intent: ask.intent });
        Some(Call { key: self.key, limit: self.limit.clone(), ask })
    }

    /// What is spent in [`AHEAD`].
    fn measure(&mut self, now: Timestamp) -> u64 {
        let (span, ahead) = (now.since(self.counted_from).as_micros(), AHEAD.as_micros());
        if span >= ahead {
            let pace = u128::from(self.counted) * u128::from(ahead) / u128::from(span);
            self.pace = u64::try_from(pace).unwrap_or(u64::MAX);
            (self.counted, self.counted_from) = (0, now);
        } else {
            self.pace = self.pace.max(self.counted);
        }
        self.pace
    }

    /// Takes note of an answer. Gives whether there is something to send.
    pub(super) fn answered(
        &mut self,
        ask: &Ask,
        told: &Told,
        now: Timestamp,
        tally: &mut LeaseStats,
    ) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        let current = lease.is_latest(ask);
        let Some(flight) = lease.flight.take_if(|_| current) else { return false };
        self.answers = self.answers.wrapping_add(1);
        (lease.waiting, lease.need) = (0, 0);
        if !told.known && !lease.opened {
            self.strict_until = now.plus(FULL);
        }
        if let (Verdict::Deny { retry_after }, 1..) = (told.decision.verdict, flight.need) {
            (self.refused_cost, self.refused_until) = (flight.need, now.plus(retry_after));
            tally.refused += 1;
        }
        tally.granted += told.granted.saturating_sub(lease.granted);
        lease.granted = told.granted;
        // The store ends a lease of which nothing is left, and one that is closed.
        if !told.known || flight.intent == Intent::Close || told.granted <= lease.told {
            tally.expired += u64::from(!told.known && lease.opened);
            self.end(tally);
            return false;
        }
        tally.opened += u64::from(!lease.opened);
        lease.opened = true;
        lease.answered_sent_at = flight.sent_at;
        if lease.closing {
            return true;
        }
        lease.cap = told.granted.max(lease.spent);
        lease.low = (lease.cap - lease.spent) / 2;
        lease.spendable_until = flight.sent_at.plus(SPENDABLE);
        lease.left = told.decision.remaining;
        lease.full_at = now.plus(told.decision.reset_after);
        false
    }

    pub(super) fn lost(&mut self, ask: &Ask, now: Timestamp, tally: &mut LeaseStats) {
        if self.lease.as_ref().is_some_and(|lease| lease.is_latest(ask)) {
            self.give_up(now, tally);
        }
    }

    /// Waits for the answer no longer.
    fn give_up(&mut self, now: Timestamp, tally: &mut LeaseStats) {
        let Some(lease) = &mut self.lease else { return };
        if lease.flight.take().is_some() {
            self.answers = self.answers.wrapping_add(1);
            (lease.waiting, lease.need) = (0, 0);
            self.strict_until = now.plus(TROUBLED);
            tally.unanswered += 1;
        }
    }

    /// Looks after the lease. Gives whether there is something to send.
    pub(super) fn tick(&mut self, now: Timestamp, tally: &mut LeaseStats) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        if now >= lease.spendable_until {
            // Also for those who come with a time from before.
            lease.cap = lease.spent;
        }
        if let Some(flight) = lease.flight {
            if now.since(flight.sent_at) > TTL {
                self.give_up(now, tally);
            }
            return false;
        }
        let idle = now.since(self.last_at) >= IDLE;
        if idle && now.since(lease.sent_at.max(self.last_at)) > TTL {
            // It has expired, and the store has charged all of it.
            tally.expired += u64::from(lease.opened);
            self.end(tally);
            return false;
        }
        if idle && lease.sequence > 0 {
            self.close();
        }
        let Some(lease) = &self.lease else { return false };
        let old = now.since(lease.answered_sent_at).as_micros() >= TTL.as_micros() / 2;
        now >= self.strict_until && (lease.closing || lease.opened && old)
    }

    /// Stops spending. Gives whether there is something to send.
    pub(super) fn close(&mut self) -> bool {
        let Some(lease) = &mut self.lease else { return false };
        lease.closing = true;
        lease.cap = lease.spent;
        lease.flight.is_none()
    }

    fn end(&mut self, tally: &mut LeaseStats) {
        if let Some(lease) = self.lease.take() {
            tally.spent += lease.spent - lease.told;
            // Those who wait for it need not.
            self.answers = self.answers.wrapping_add(u32::from(lease.flight.is_some()));
        }
        (self.counted, self.counted_from) = (0, self.last_at);
    }

    pub(super) fn spendable(&self, limit: &Limit, now: Timestamp) -> u64 {
        let lease = self.lease.as_ref().filter(|lease| now < lease.spendable_until);
        lease.filter(|_| *limit == self.limit).map_or(0, |lease| lease.cap - lease.spent)
    }

    pub(super) const fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    pub(super) fn at_hand(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.cap - lease.spent)
    }

    /// Puts it in the list of what is to be sent. Gives whether it was not there.
    pub(super) fn mark_due(&mut self) -> bool {
        let in_flight = self.lease.as_ref().is_some_and(|lease| lease.flight.is_some());
        !in_flight && !std::mem::replace(&mut self.due, true)
    }

    /// Whether it has a lease and is in no list of those yet.
    pub(super) fn is_new(&mut self) -> bool {
        let new = self.held == Held::New;
        if new {
            self.held = Held::Yes;
        }
        new
    }

    pub(super) fn stays_held(&mut self) -> bool {
        if self.lease.is_none() {
            self.held = Held::No;
        }
        self.lease.is_some()
    }

    /// Whether nothing is lost with it.
    pub(super) fn may_go(&self, unused_since: Timestamp) -> bool {
        self.held == Held::No && self.lease.is_none() && self.last_at < unused_since
    }
}

impl Lease {
    fn new(holder: Holder) -> Self {
        Self {
            holder,
            sequence: 0,
            spent: 0,
            told: 0,
            cap: 0,
            granted: 0,
            low: 0,
            spendable_until: Timestamp::ZERO,
            waiting: 0,
            need: 0,
            flight: None,
            sent_at: Timestamp::ZERO,
            answered_sent_at: Timestamp::ZERO,
            opened: false,
            closing: false,
            left: 0,
            full_at: Timestamp::ZERO,
        }
    }

    /// What a take is answered that has been spent.
    #[inline]
    fn allowed(&self, limit: &Limit, now: Timestamp) -> Decision {
        Decision {
            verdict: Verdict::Allow { delay: Span::ZERO },
            limit: capacity(limit),
            remaining: self.left + (self.cap - self.spent),
            reset_after: self.full_at.since(now),
            lease: None,
        }
    }

    /// Whether it is the request in flight, or was the last one that was. Another lease of the same
    /// key has had requests of the same numbers.
    fn is_latest(&self, ask: &Ask) -> bool {
        self.holder == ask.holder && self.sequence == ask.sequence
    }

    /// The next request, for a key of which so much is spent in [`AHEAD`].
    fn ask(&mut self, pace: u64, stretch: u64, capacity: u64) -> Ask {
        let slow = pace.saturating_mul(AHEAD_SLOW).min(AHEAD_SLOW_MAX);
        let ahead = pace.saturating_mul(stretch).max(slow).max(1);
        let at_hand = self.cap - self.spent;
        let mut want = self.waiting.saturating_add(ahead).min(capacity);
        if at_hand > want.saturating_mul(2) {
            // From now on the rest is not ours any more: the store may take it back at any time.
            self.cap = self.spent + want;
        } else {
            want = want.max(at_hand);
        }
        if self.closing {
            (self.cap, want) = (self.spent, 0);
        }
        self.sequence += 1;
        self.told = self.spent;
        Ask {
            holder: self.holder,
            sequence: self.sequence,
            intent: match (self.closing, self.opened) {
                (true, _) => Intent::Close,
                (false, true) => Intent::Renew,
                (false, false) => Intent::Open,
            },
            spent: self.spent,
            need: if self.closing { 0 } else { self.need },
            waiting: self.waiting.min(TOTAL_MAX),
            want: want.min(TOTAL_MAX),
        }
    }
}
