//! One node: a real book, a clock of its own, and requests that wait.

use tidegate_core::{Key, Limit, Timestamp};
use tidegate_redis::lease::{Ask, Book};

use super::Random;
use super::plan::{Mistake, Plan};

/// The one key of the world.
pub const KEY: Key = Key::from_hash(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);

pub struct Node {
    pub number: usize,
    pub book: Book,
    /// The book's number.
    pub id: u64,
    pub limit: Limit,
    /// Counts up when it crashes or restarts. What belongs to an earlier life is void.
    pub life: u32,
    pub alive: bool,
    pub paused_until: u64,
    pub cut_until: u64,
    /// Requests that wait for a lease: how much, and until when.
    pub waiters: Vec<(u64, u64)>,
    /// Whether it has any requests at the moment, and until when that is so.
    pub busy: bool,
    pub phase_until: u64,
    /// Its latest request to the store, and how many there were.
    pub latest: Option<Ask>,
    pub calls: u64,
    pub admitted: u64,
    /// Since when it has been refused without anything admitted in between.
    pub hungry_since: Option<u64>,
    /// Until when it was last told to wait, and until when that holds though the store has changed since.
    pub told_until: u64,
    pub excused_until: u64,
    /// The time that it believes in if it makes the mistake of not looking at its clock.
    pub frozen: Option<Timestamp>,
    offset: u64,
    /// In thousandths of the true pace.
    pace: u64,
    origin: u64,
}

impl Node {
    pub fn new(number: usize, plan: &Plan, random: &mut Random) -> Self {
        let mut node = Self {
            number,
            book: Book::new(0),
            id: 0,
            limit: plan.limit.clone(),
            life: 0,
            alive: true,
            paused_until: 0,
            cut_until: 0,
            waiters: Vec::new(),
            busy: true,
            phase_until: 0,
            latest: None,
            calls: 0,
            admitted: 0,
            hungry_since: None,
            told_until: 0,
            excused_until: 0,
            frozen: None,
            offset: 0,
            pace: 1_000,
            origin: plan.start,
        };
        node.begin(plan, random);
        node
    }

    /// Begins a life, with another book and another clock.
    pub fn begin(&mut self, plan: &Plan, random: &mut Random) {
        self.life += 1;
        self.alive = true;
        self.id = random.next();
        self.book = Book::new(self.id);
        self.waiters.clear();
        self.hungry_since = None;
        (self.told_until, self.excused_until) = (0, 0);
        self.frozen = None;
        self.offset = random.between(1, 1 << 40);
        self.pace = 1_000 - plan.drift + random.between(0, 2 * plan.drift);
        if plan.mistake == Some(Mistake::SlowClock) {
            self.pace = 100;
        }
    }

    pub fn local(&self, now: u64) -> Timestamp {
        Timestamp::from_micros(self.offset + (now - self.origin) * self.pace / 1_000)
    }

    /// The time that it spends by.
    pub fn believed(&self, now: u64) -> Timestamp {
        self.frozen.unwrap_or_else(|| self.local(now))
    }
}
