//! The world: events in the order of their times. What the store does is in `store`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use tidegate_core::{Decision, Operation, Span, Timestamp};
use tidegate_redis::lease::book::{Call, Outcome};
use tidegate_redis::lease::{Ask, Holder, Intent, TTL, Told};

use super::Random;
use super::history::{Fact, History, What};
use super::node::{KEY, Node};
use super::plan::{Mistake, Plan};
use crate::leasing::model::Leased;

/// How long a request waits for a lease, and how long a node waits for an answer.
pub const DEADLINE: u64 = 10_000;
const ANSWER_DEADLINE: u64 = 40_000;

const TICK: u64 = tidegate_redis::lease::book::TICK.as_micros();
const SAMPLE: u64 = 10_000;
const CHANCE: u64 = 50_000;

/// How long the world goes on after the last request.
pub const QUIET: u64 = 3_000_000;

/// For how long a node may be refused while others hold what they do not use.
const HUNGER_MAX: u64 = 1_000_000;

/// By when nodes have been told that quota came back. The pulse that tells them is not simulated: it takes the beat
/// of the one and that of the other.
const LIFTED_WITHIN: u64 = 500_000;

/// The part of a wait by which the slowest clock makes it longer.
const SLOWER: u64 = 50;

/// How long an answer may be on its way.
const ON_THE_WAY: u64 = 1_000_000;

/// Up to how much later a take was answered strictly than it was asked for, by any clock.
const STRICT_WITHIN: Span = Span::from_micros(2 * DEADLINE);

#[derive(Clone, Debug)]
pub enum Event {
    Arrive,
    Tick,
    Ask(Call),
    Told(Ask, Told),
    Lost(Ask),
    WaitOver,
    /// A strict take, and how it came to be one.
    Take(u64, Sent),
    Look(u64),
    GiveBack(Taken),
    Refund(Taken),
    Reset(Option<Holder>),
    ResetOver(Option<Holder>, bool),
    /// Quota came back by another node.
    Lifted,
    /// The leases that were lost with the fact of this number cannot be spent any more.
    SpentByNow(usize),
    Restart,
    Reload,
    Sample,
    Chance,
}

/// A strict take: when it was sent, and whether beside the lease.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub at: u64,
    pub beside: bool,
}

/// Something that was admitted and is to be given back.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    fact: usize,
    pub cost: u64,
    /// When, by the node's clock and by the store's.
    local: Timestamp,
    pub at: Timestamp,
    by: By,
}

/// Who decided a take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Book,
    Store,
    /// The store, for a limit that this node keeps strictly.
    StoreBeside,
}

/// Events that belong to no node.
pub const NOBODY: usize = usize::MAX;

pub struct World<'a> {
    pub plan: &'a Plan,
    pub random: Random,
    pub now: u64,
    pub store: Leased,
    /// How far the store's clock is ahead of the true time, the era, and when it was set forward.
    pub clock: i64,
    pub era: u32,
    pub forward: Vec<(u64, u64)>,
    pub nodes: Vec<Node>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, (usize, u32, Event)>,
    count: u64,
    /// What the store was at some times, to fall back to.
    pub snapshots: Vec<(u64, Leased)>,
    /// Nodes that have something that they do not use, and since when.
    unused: BTreeMap<u64, u64>,
    /// When the store last became another without anybody's doing.
    changed_at: u64,
    pub history: History,
}

/// Runs a world to its end.
pub fn run(plan: &Plan) -> History {
    let mut random = Random::new(plan.seed ^ 0x5EED);
    let nodes: Vec<Node> = (0..plan.nodes).map(|n| Node::new(n, plan, &mut random)).collect();
    let store = Leased { fault: plan.fault, ..Leased::default() };
    let mut world = World {
        plan,
        random,
        now: plan.start,
        store,
        clock: 0,
        era: 0,
        forward: Vec::new(),
        nodes,
        queue: BinaryHeap::new(),
        events: BTreeMap::new(),
        count: 0,
        snapshots: Vec::new(),
        unused: BTreeMap::new(),
        changed_at: 0,
        history: History { strict: vec![0; plan.nodes], ..History::default() },
    };
    world.begin();
    while world.step() {}
    world.finish()
}

impl World<'_> {
    fn begin(&mut self) {
        for number in 0..self.nodes.len() {
            self.start_node(number);
            if let Some((at, _)) = self.plan.reload {
                let at = at + self.random.between(0, 200_000);
                self.push(at, number, 0, Event::Reload);
            }
        }
        self.push(self.now, NOBODY, 0, Event::Sample);
        self.push(self.now + CHANCE, NOBODY, 0, Event::Chance);
    }

    fn start_node(&mut self, number: usize) {
        let life = self.nodes[number].life;
        let first = self.now + self.random.between(0, 50_000);
        self.push(first, number, life, Event::Arrive);
        let tick = self.now + self.random.between(1, TICK);
        self.push(tick, number, life, Event::Tick);
    }

    pub fn push(&mut self, at: u64, node: usize, life: u32, event: Event) {
        self.count += 1;
        self.queue.push(Reverse((at, self.count)));
        self.events.insert(self.count, (node, life, event));
    }

    pub fn end(&self) -> u64 {
        self.plan.start + self.plan.length
    }

    fn step(&mut self) -> bool {
        let Some(Reverse((at, count))) = self.queue.pop() else { return false };
        let (node, life, event) = self.events.remove(&count).expect("an event for each number");
        if at > self.end() + QUIET {
            return false;
        }
        self.now = at;
        match event {
            Event::Ask(call) => self.asked(node, life, &call),
            Event::Take(cost, sent) => self.taken(node, life, cost, sent),
            Event::Look(cost) => self.looked(node, cost),
            Event::Refund(taken) => self.refunded(node, &taken),
            Event::Reset(holder) => self.reset(node, life, holder),
            Event::SpentByNow(fact) => self.spent_by_now(fact),
            Event::Sample => self.sample(),
            Event::Chance => self.chance(),
            Event::Reload => {
                self.nodes[node].limit = self.plan.reload.clone().expect("others").1;
                self.note(What::Reloaded);
            }
            Event::Restart => {
                if !self.nodes[node].alive {
                    self.nodes[node].begin(self.plan, &mut self.random);
                    self.start_node(node);
                }
            }
            event => self.node_event(node, life, event),
        }
        true
    }

    fn node_event(&mut self, number: usize, life: u32, event: Event) {
        let node = &mut self.nodes[number];
        if node.life != life || !node.alive {
            return;
        }
        if node.paused_until > self.now {
            let until = node.paused_until;
            self.push(until, number, life, event);
            return;
        }
        let local = node.believed(self.now);
        match event {
            Event::Arrive => self.arrive(number),
            Event::Tick => {
                node.book.tick(local);
                self.push(self.now + TICK, number, life, Event::Tick);
                self.send(number);
            }
            Event::Told(ask, told) => {
                let ask = match node.latest {
                    Some(latest) if self.plan.mistake == Some(Mistake::AcceptsStale) => latest,
                    _ => ask,
                };
                if self.plan.mistake == Some(Mistake::IgnoresDeadline) {
                    node.frozen = Some(node.local(self.now));
                }
                node.book.answered(KEY, &ask, &told, local);
                self.send(number);
                self.wake(number);
            }
            Event::Lost(ask) => {
                node.book.lost(KEY, &ask, local);
                self.wake(number);
            }
            Event::GiveBack(taken) => self.give_back(number, &taken),
            Event::ResetOver(holder, done) => {
                if let Some(holder) = holder {
                    node.book.after_reset(KEY, holder, done);
                }
                node.book.lift(KEY);
                self.tell_of_quota();
                self.send(number);
            }
            Event::Lifted if node.cut_until > self.now => {
                let until = node.cut_until;
                self.push(until, number, life, event);
            }
            Event::Lifted => {
                node.book.lift(KEY);
                node.excused_until = 0;
            }
            Event::WaitOver => {
                let (before, now) = (node.waiters.len(), self.now);
                node.waiters.retain(|(_, until)| *until > now);
                self.history.unanswered += (before - node.waiters.len()) as u64;
            }
            _ => unreachable!("not a node's"),
        }
    }

    /// A request comes to a node, and the next one is on its way.
    fn arrive(&mut self, number: usize) {
        if self.now >= self.end() {
            return;
        }
        let per_second = self.plan.demand[number];
        let node = &mut self.nodes[number];
        if self.now >= node.phase_until {
            node.busy = !self.plan.bursts || self.random.chance(600);
            node.phase_until = self.now + self.random.between(50_000, 1_000_000);
        }
        let (busy, life) = (node.busy, node.life);
        let gap = if busy { 2_000_000 / per_second } else { 20_000 };
        let next = self.now + self.random.between(1, gap.max(1));
        self.push(next, number, life, Event::Arrive);
        if busy {
            let cost = self.random.between(1, self.plan.cost_max);
            if self.random.chance(self.plan.peeks) {
                self.dispatch(number, Event::Look(cost));
            }
            if self.random.chance(self.plan.direct) {
                let sent = Sent { at: self.now, beside: true };
                self.dispatch(number, Event::Take(cost, sent));
            } else {
                self.attempt(number, cost, self.now + DEADLINE);
            }
        }
    }

    /// Sends something to the store, once. It may get lost.
    pub fn dispatch(&mut self, number: usize, event: Event) {
        let life = self.nodes[number].life;
        if let Some(at) = self.delivery(number) {
            self.push(at, number, life, event);
        }
    }

    /// A request is decided, or waits.
    fn attempt(&mut self, number: usize, cost: u64, until: u64) {
        let node = &mut self.nodes[number];
        let spend = node.book.spend(KEY, &node.limit, cost, node.believed(self.now));
        match spend.outcome {
            Outcome::Decided(decision) => self.decided(number, cost, &decision, Some(By::Book)),
            Outcome::Wait(_) => {
                let life = node.life;
                node.waiters.push((cost, until));
                self.push(until, number, life, Event::WaitOver);
            }
            Outcome::Strict => {
                self.history.strict[number] += 1;
                let sent = Sent { at: self.now, beside: false };
                self.dispatch(number, Event::Take(cost, sent));
            }
        }
        if spend.due {
            self.send(number);
        }
    }

    /// A take was decided, by whom it may be given back to.
    pub fn decided(&mut self, number: usize, cost: u64, decision: &Decision, by: Option<By>) {
        let node = &mut self.nodes[number];
        if !decision.is_allowed() {
            self.history.refused += 1;
            node.hungry_since.get_or_insert(self.now);
            let wait = decision.retry_after().map_or(0, Span::as_micros);
            node.told_until = self.now.saturating_add(wait).saturating_add(wait / SLOWER);
            if self.now < self.changed_at + ON_THE_WAY {
                node.excused_until = node.excused_until.max(node.told_until);
            }
            return;
        }
        node.admitted += cost;
        node.hungry_since = None;
        let (local, life) = (node.believed(self.now), node.life);
        let fact = self.note(What::Admitted(cost));
        let Some(by) = by.filter(|_| self.random.chance(self.plan.refunds)) else { return };
        let most = if self.random.chance(200) { 2_000_000 } else { 50_000 };
        let after = self.random.between(1, most);
        let taken = Taken { fact, cost, local, at: self.store_now(), by };
        self.push(self.now + after, number, life, Event::GiveBack(taken));
    }

    /// What was taken is given back: by the book, if nobody else knows of it, or else by the store.
    fn give_back(&mut self, number: usize, taken: &Taken) {
        let node = &self.nodes[number];
        let now = node.believed(self.now);
        let mistake = self.plan.mistake;
        let taken_at = if mistake == Some(Mistake::UndoesTheTold) { now } else { taken.local };
        // Who gives back does not always know who took.
        let within = match taken.by {
            By::Book if taken.cost.is_multiple_of(2) => None,
            _ if mistake == Some(Mistake::UndoesStrictTakes) => None,
            _ => Some(STRICT_WITHIN),
        };
        let undone = taken.by != By::StoreBeside
            && node.book.give_back(KEY, taken.cost, taken_at, within, now).is_some();
        if undone {
            node.book.lift(KEY);
            self.history.undone += 1;
            self.note(What::GivenBack(taken.fact));
        }
        if !undone || mistake == Some(Mistake::RefundsTheUndone) {
            self.dispatch(number, Event::Refund(*taken));
        }
    }

    /// The store's clock was set, or it has lost something. Nobody is told of that, so whoever was told to wait
    /// does so to the end.
    pub fn changed_unnoticed(&mut self) {
        self.changed_at = self.now;
        for node in &mut self.nodes {
            node.excused_until = node.excused_until.max(node.told_until);
        }
    }

    /// Has every node know that quota came back, so that none goes by what it was refused before.
    pub fn tell_of_quota(&mut self) {
        for number in 0..self.nodes.len() {
            let life = self.nodes[number].life;
            self.push(self.now + LIFTED_WITHIN, number, life, Event::Lifted);
        }
    }

    pub fn note_refund(&mut self, taken: &Taken) {
        self.history.refunded += 1;
        self.note(What::GivenBack(taken.fact));
    }

    /// Writes down a fact.
    pub fn note(&mut self, what: What) -> usize {
        let (at, era) = (self.store_now().as_micros(), self.era);
        self.history.facts.push(Fact { at, era, what });
        self.history.facts.len() - 1
    }

    fn wake(&mut self, number: usize) {
        for (cost, until) in std::mem::take(&mut self.nodes[number].waiters) {
            if until > self.now {
                self.attempt(number, cost, until);
            } else {
                self.history.unanswered += 1;
            }
        }
    }

    /// Sends what the book has to send.
    fn send(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let life = node.life;
        for mut call in node.book.collect(node.believed(self.now)) {
            self.nodes[number].calls += 1;
            self.nodes[number].latest = Some(call.ask);
            if self.plan.mistake == Some(Mistake::Hoards) && call.ask.intent != Intent::Close {
                call.ask.want = 1 << 40;
            }
            if self.plan.mistake == Some(Mistake::SpendsTheReturned)
                && call.ask.intent == Intent::Renew
            {
                call.ask.want = call.ask.waiting;
            }
            self.push(self.now + ANSWER_DEADLINE, number, life, Event::Lost(call.ask));
            for _ in 0..self.copies() {
                if let Some(at) = self.delivery(number) {
                    self.push(at, number, life, Event::Ask(call.clone()));
                }
            }
        }
    }

    pub const fn copies(&mut self) -> u64 {
        if self.random.chance(self.plan.network.twice) { 2 } else { 1 }
    }

    /// When a message arrives, if it does.
    pub fn delivery(&mut self, number: usize) -> Option<u64> {
        let network = self.plan.network;
        if self.random.chance(network.lost) || self.nodes[number].cut_until > self.now {
            return None;
        }
        let most =
            if self.random.chance(network.slow) { network.slow_max } else { network.delay_max };
        Some(self.now + self.random.between(network.delay_min, most))
    }

    fn sample(&mut self) {
        if self.now < self.end() + QUIET {
            self.push(self.now + SAMPLE, NOBODY, 0, Event::Sample);
        }
        if self.plan.failovers > 0 {
            self.snapshots.push((self.now, self.store.clone()));
            if self.snapshots.len() > 30 {
                self.snapshots.remove(0);
            }
        }
        self.look_for_hunger();
    }

    /// Looks for a node that has been refused for too long while another one, the same all the time, had
    /// something that it did not use.
    fn look_for_hunger(&mut self) {
        let (mut unused, now) = (BTreeMap::new(), self.store_now());
        for entry in &self.store.entries {
            let id = entry.holder.node;
            let owner = self.nodes.iter().find(|node| node.alive && node.id == id);
            let rest = owner.map_or(u64::MAX, |node| node.book.at_hand(KEY));
            if entry.expires_at > now && entry.occupied().min(rest) > 0 {
                unused.insert(id, *self.unused.get(&id).unwrap_or(&self.now));
            }
        }
        self.unused = unused;
        for node in &mut self.nodes {
            let away_until = node.paused_until.max(node.cut_until);
            if !node.busy || away_until.max(node.excused_until) > self.now {
                node.hungry_since = None;
            }
            let others = self.unused.iter().filter(|(id, _)| **id != node.id);
            let (Some(hungry), Some(since)) = (node.hungry_since, others.map(|(_, at)| *at).min())
            else {
                continue;
            };
            let since = hungry.max(since);
            if self.now - since > HUNGER_MAX && self.history.starved.is_none() {
                let text = format!("node {} from {since} to {}", node.number, self.now);
                self.history.starved = Some(text);
            }
        }
    }

    fn chance(&mut self) {
        if self.now >= self.end() {
            return;
        }
        self.push(self.now + CHANCE, NOBODY, 0, Event::Chance);
        for number in 0..self.nodes.len() {
            if self.random.chance(self.plan.crashes) && self.nodes[number].alive {
                self.crash(number);
            }
            if self.random.chance(self.plan.pauses) {
                self.nodes[number].paused_until = self.now + self.random.between(1_000, 2_000_000);
            }
            if self.random.chance(self.plan.cuts) {
                self.nodes[number].cut_until = self.now + self.random.between(50_000, 1_500_000);
            }
        }
        if self.random.chance(self.plan.failovers) {
            self.fail_over();
        }
        if self.random.chance(self.plan.clock_steps) {
            self.set_clock();
        }
        if self.random.chance(self.plan.resets) {
            self.ask_for_reset();
        }
    }

    /// A node dies, one time in three after it has given back what it has.
    fn crash(&mut self, number: usize) {
        if self.random.chance(333) {
            self.nodes[number].book.close();
            self.send(number);
        }
        self.nodes[number].alive = false;
        self.nodes[number].waiters.clear();
        self.nodes[number].hungry_since = None;
        let at = self.now + self.random.between(1_000, 1_500_000);
        self.push(at, number, 0, Event::Restart);
    }

    fn finish(mut self) -> History {
        let (limit, look) = (self.nodes[0].limit.clone(), Operation::Peek { cost: 0 });
        self.now = self.end() + QUIET;
        let _ = self.store.decide(&limit, self.store_now(), look);
        // A store that nobody asks does not know that its clock was set back: leases last from now on.
        self.now += TTL.as_micros();
        let looked = self.store.decide(&limit, self.store_now(), look);
        self.history.remaining_at_end = looked.remaining;
        self.history.occupied_at_end = self.store.occupied();
        let held = self.nodes.iter().filter(|node| node.alive);
        self.history.at_hand_at_end = held.map(|node| node.book.at_hand(KEY)).sum();
        self.history.calls = self.nodes.iter().map(|node| node.calls).collect();
        self.history.by_node = self.nodes.iter().map(|node| node.admitted).collect();
        self.history
    }
}
