//! What the store does in a world: it answers, falls back to what it was, has its clock set, and forgets.

use tidegate_core::{Operation, Timestamp};
use tidegate_redis::lease::book::Call;
use tidegate_redis::lease::{Holder, SPENDABLE, TTL};

use super::history::{Loss, What};
use super::node::KEY;
use super::world::{By, DEADLINE, Event, NOBODY, Sent, Taken, World};
use crate::leasing::model::Leased;

/// For how long a lease can be spent after anything that the store did, by a clock that is as slow as they get.
const SPENT_WITHIN: u64 = SPENDABLE.as_micros() * 1_000 / 980 + 1;

/// How far the clock can be set forward while a lease lasts without ending it early.
const FORWARD_MAX: u64 = TTL.as_micros() - SPENT_WITHIN;

impl World<'_> {
    pub fn store_now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.saturating_add_signed(self.clock))
    }

    pub fn asked(&mut self, number: usize, life: u32, call: &Call) {
        let told = self.store.ask(&call.limit, self.store_now(), &call.ask);
        for _ in 0..self.copies() {
            if let Some(at) = self.delivery(number) {
                self.push(at, number, life, Event::Told(call.ask, told));
            }
        }
    }

    /// A strict take comes to the store, and counts as admitted there, whoever hears of it.
    pub fn taken(&mut self, number: usize, life: u32, cost: u64, sent: Sent) {
        let limit = self.nodes[number].limit.clone();
        let decision = self.store.decide(&limit, self.store_now(), Operation::Take { cost });
        let lives = self.nodes[number].life == life && self.nodes[number].alive;
        if decision.is_allowed() || lives {
            let by = if sent.beside { By::StoreBeside } else { By::Store };
            // Nobody knows of what comes too late, so nobody gives it back.
            let heard = lives && self.now - sent.at <= DEADLINE;
            self.decided(number, cost, &decision, heard.then_some(by));
        }
    }

    /// A look tells what a take would be told at the same moment, and changes nothing.
    pub fn looked(&mut self, number: usize, cost: u64) {
        let (limit, now) = (self.nodes[number].limit.clone(), self.store_now());
        let look = Operation::Peek { cost };
        let looked = self.store.decide(&limit, now, look);
        let (before, mut other) = (self.store.clone(), self.store.clone());
        let again = self.store.decide(&limit, now, look);
        let same = before.inner == self.store.inner && before.entries == self.store.entries;
        let taken = other.decide(&limit, now, Operation::Take { cost });
        let capacity = looked.limit.max(self.store.occupied());
        let sums = looked.remaining <= capacity - self.store.occupied();
        if again != looked || !same || taken.is_allowed() != looked.is_allowed() || !sums {
            self.history.mistold = Some(format!("{looked:?}, {again:?}, {taken:?} at {now:?}"));
        }
    }

    pub fn refunded(&mut self, number: usize, taken: &Taken) {
        let limit = self.nodes[number].limit.clone();
        let refund = Operation::Refund { cost: taken.cost, taken_at: taken.at };
        let _ = self.store.decide(&limit, self.store_now(), refund);
        self.note_refund(taken);
        self.tell_of_quota();
    }

    /// A node has the key forgotten, and stops spending of it before that.
    pub fn ask_for_reset(&mut self) {
        let number = self.random.between(0, self.nodes.len() as u64 - 1) as usize;
        let node = &self.nodes[number];
        if !node.alive || node.paused_until.max(node.cut_until) > self.now {
            return;
        }
        let (holder, life) = (node.book.before_reset(KEY), node.life);
        self.dispatch(number, Event::Reset(holder));
        // Whether it was done is not known if no answer comes.
        self.push(self.now + 2 * DEADLINE, number, life, Event::ResetOver(holder, false));
    }

    pub fn reset(&mut self, number: usize, life: u32, holder: Option<Holder>) {
        let now = self.store_now();
        self.store.reset(now);
        self.begin_era(What::Reset);
        if let Some(at) = self.delivery(number) {
            self.push(at, number, life, Event::ResetOver(holder, true));
        }
    }

    fn begin_era(&mut self, what: What) {
        self.era += 1;
        self.note(what);
    }

    /// The store becomes what it was a moment ago, or empty.
    pub fn fail_over(&mut self) {
        self.changed_unnoticed();
        let lag = self.random.between(0, 200_000);
        let empty = self.random.chance(100);
        let kept = self.snapshots.iter().rev().find(|(at, _)| *at + lag <= self.now);
        let before = match kept {
            Some((_, store)) if !empty => store.clone(),
            _ => Leased { fault: self.plan.fault, ..Leased::default() },
        };
        let charges = self.store.charged - before.charged;
        self.lose(charges);
        self.store = before;
        self.snapshots.clear();
    }

    /// What the store has charged since some time is lost, and so are the leases that are out.
    fn lose(&mut self, charges: u64) {
        let leases = self.store.occupied();
        let loss = Loss { charges, leases, leases_until: (u32::MAX, u64::MAX) };
        let fact = self.note(What::Lost(loss));
        self.push(self.now + SPENT_WITHIN, NOBODY, 0, Event::SpentByNow(fact));
    }

    pub fn spent_by_now(&mut self, fact: usize) {
        let until = (self.era, self.store_now().as_micros());
        if let What::Lost(loss) = &mut self.history.facts[fact].what {
            loss.leases_until = until;
        }
    }

    /// The store's clock is set forward or back, by a little or by more than leases last.
    pub fn set_clock(&mut self) {
        self.changed_unnoticed();
        let kind = self.random.between(0, 3);
        let most = [20_000, 5_000_000, 900_000, 10_000_000][kind as usize];
        let step = self.random.between(1, most);
        if kind >= 2 {
            let from = self.store_now().as_micros();
            self.clock -= step.cast_signed();
            self.begin_era(What::SetBack(from));
            return;
        }
        self.forward.push((self.now, step));
        let lately = self.forward.iter().filter(|(at, _)| at + TTL.as_micros() > self.now);
        let forward: u64 = lately.map(|(_, step)| step).sum();
        if forward >= FORWARD_MAX {
            // Leases expire before their holders know.
            self.lose(0);
        }
        self.clock += step.cast_signed();
    }
}
