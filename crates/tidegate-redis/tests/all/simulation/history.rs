//! What has come of a world: facts in the order in which they happened, and sums.
//!
//! Facts have the time of the store's clock, by which limits are kept. Where that clock is set back, or the
//! key is reset, an *era* begins: what was before does not count with what comes, except in a bucket, which
//! has no windows to begin anew.

/// What has come of a world.
#[derive(Debug, Default)]
pub struct History {
    pub facts: Vec<Fact>,
    pub refused: u64,
    pub unanswered: u64,
    /// Requests to the store for leases, and strict ones, by node.
    pub calls: Vec<u64>,
    pub strict: Vec<u64>,
    pub by_node: Vec<u64>,
    /// What was given back, here and in the store.
    pub undone: u64,
    pub refunded: u64,
    /// A node that was refused for too long, if there is one.
    pub starved: Option<String>,
    /// A look that told something else than a take, if there is one.
    pub mistold: Option<String>,
    /// What is leased and what is at hand when all is quiet, and what the store has left.
    pub occupied_at_end: u64,
    pub at_hand_at_end: u64,
    pub remaining_at_end: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Fact {
    /// When, and in which era.
    pub at: u64,
    pub era: u32,
    pub what: What,
}

#[derive(Clone, Copy, Debug)]
pub enum What {
    /// So much was admitted.
    Admitted(u64),
    /// What the fact of this number admitted was given back.
    GivenBack(usize),
    /// Another node has other numbers.
    Reloaded,
    /// The store lost charges that it had acknowledged, or leases that can still be spent.
    Lost(Loss),
    /// The key was reset.
    Reset,
    /// The clock was set back, when it showed this.
    SetBack(u64),
}

#[derive(Clone, Copy, Debug)]
pub struct Loss {
    pub charges: u64,
    pub leases: u64,
    /// The era and the time at which none of these leases can be spent any more.
    pub leases_until: (u32, u64),
}

impl History {
    pub fn admitted(&self) -> u64 {
        self.facts.iter().filter(|fact| matches!(fact.what, What::Admitted(_))).count() as u64
    }
}
