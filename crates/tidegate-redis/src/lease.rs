//! Leases: quota that a node reserves in the store and spends by itself. What travels between the two,
//! for how long, and which limits it suits. The node's side is [`book`]; the store's is part of the script.
//!
//! # The protocol
//!
//! The store keeps an *entry* for each lease, inside the key's own string: how much was granted since the
//! lease began, how much of that was reported as spent, and when it expires. What is granted and not
//! reported is *occupied*, and the sum over all entries is `O`.
//!
//! - A strict take of `c` passes where the algorithm would let `c + O` pass, and then `c` is charged.
//! - A node [`Ask`]s: it reports all that it has spent since the lease began, and says how much it wants to
//!   have at hand. The store charges what it did not know of, *now*, grants more or takes back what the node
//!   has too much, and extends the entry by [`TTL`].
//! - An entry that expires is charged in full, at its expiry, before anything else happens to the key. One that
//!   would last longer than [`TTL`] is cut to that: the store's clock was set back.
//! - A reset drops what was charged and keeps the entries, for their holders go on spending.
//! - A node spends until [`SPENDABLE`] after the moment at which it sent the last request that was answered,
//!   by its own clock. That is before the entry can expire, for the store extended it after that moment. No
//!   clock is ever compared with another.
//!
//! Counts are totals, and requests are numbered. The store passes over a request whose number it has seen
//! or passed, and a node passes over every answer but that to its latest request. So loss, repetition
//! and reordering change nothing but how much is at hand. A node that asks for less than it has stops
//! spending the difference when it *sends* that request; thus the store has granted at least as much
//! as the node believes, at any time.
//!
//! # Why it is never over
//!
//! Let `used(t)` be what the algorithm counts in the store at `t`. In every algorithm that can be leased a charge
//! weighs 1 when it is made and never more later, and charges add up. So `used + O <= N` holds for
//! ever once it holds: grants and takes check it; a report moves units from `O` to `used` where
//! they weigh the same; expiry does too; time only lowers `used`. It remains to show that what was really
//! spent weighs no more in the store than it would if it had been charged at its own time:
//!
//! - **Until it is charged** a unit weighs 1 as part of `O`, which is the most that it can weigh.
//! - **Sliding log**: charged at `r` it weighs 1 until `r + W`, and spent at `s <= r` it would until `s + W`.
//! - **Slots**: the same, with the slot of `r`, which is that of `s` or a later one. The limit per slot is a
//!   fixed window beside it.
//! - **Fixed windows** of the clock and the calendar: what is spent in a window is charged in it or still
//!   occupied at its end, so `spent <= used + O <= N` at its end. What is occupied then weighs in the
//!   next window, too, although it was spent in this one. An entry that expired in a window that is over
//!   is charged there: nothing of it can have been spent later.
//! - **Sliding window**: charged in the window of `s` it weighs the same; charged in the next, it weighs 1
//!   where it would have begun to weigh less.
//! - **Buckets**: let `V` be the level of a bucket that is charged at `s`, and `L` the store's, which is charged
//!   at `r`; `U` is what is spent and not reported. Then `V >= L - U`, always: spending lowers both sides by
//!   one, a report changes neither, and refill raises `V` as much as `L` unless `V` is full, and then
//!   `V = burst >= L`. With `U <= O` and `L >= O`, `V >= 0` follows: no unit was spent that a bucket without
//!   leases would not have had.
//!
//! A window **from the first request** is not leased: a charge that comes late opens its window late, and what
//! is then in which window is not what the limit says. A **leaky bucket** gives each request its own place in
//! a queue, and a **concurrency** limit its own lease, so those are not leased either.
//!
//! A **refund** of what a lease paid for is undone by the node while the store has not been told of it, and then it was
//! never spent. Else the store gives it back by the time `s` at which it was spent, as it does for a charge that was made
//! then; the charge of `r >= s` stays for at least as long as one that was made at `s` would have.
//!
//! A debit, a limit that is lowered and a store that lost its last writes can bring `used + O` above `N`. Then
//! nothing more is granted, and what can still be spent beyond is at most what was leased at that moment. The
//! same holds where the store's clock is set forward by more than the difference of [`TTL`] and [`SPENDABLE`]:
//! leases expire there which their holders still spend.

pub mod book;
pub(crate) mod drive;
mod stats;

use tidegate_core::{Decision, Span};

pub use book::{Book, Spend};
pub use stats::LeaseStats;

/// How long a lease lasts in the store after a request that extends it. While a node that died still
/// holds one, others are refused, so it is well below a second.
pub const TTL: Span = Span::from_millis(600);

/// How long a node spends after the moment at which it sent the last answered request. The rest is
/// for clocks that run at different speeds, by up to a tenth, and for the way from a clock to a decision.
pub const SPENDABLE: Span = Span::from_millis(540);

/// The most leases that one key can have. More nodes than these decide strictly.
pub const HOLDERS_MAX: usize = 128;

/// The most that one request reports, and the most that a lease counts: beyond it a node ends the lease
/// and begins another, so that all counts are exact in the doubles of the script.
pub const TOTAL_MAX: u64 = 1 << 44;

/// The longest wait that a refusal tells which is due to leases only. When others spend what they have
/// or give it back is not known, and it does not take long.
pub const OCCUPIED_WAIT_MAX: Span = Span::from_millis(20);

/// Whose lease it is. No two leases have had the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// The node, drawn at random when it starts.
    pub node: u64,
    /// Which of the node's leases.
    pub epoch: u32,
}

/// What a node asks of the store for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whose lease it is.
    pub holder: Holder,
    /// The number of the request, counted from 1 in each lease.
    pub sequence: u32,
    /// What is to become of the lease.
    pub intent: Intent,
    /// All that has been spent since the lease began.
    pub spent: u64,
    /// How much must be at hand to be of use; otherwise nothing is granted, and the answer says when to
    /// come back.
    pub need: u64,
    /// How much requests are waiting for, all together. Of quota that is scarce no more is granted.
    pub waiting: u64,
    /// How much the node would like to have at hand. What it has beyond goes back.
    pub want: u64,
}

/// What is to become of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Begin it where there is none, else as [`Intent::Renew`].
    Open,
    /// Extend it where there is one.
    Renew,
    /// Report, give the rest back, and end it.
    Close,
}

/// What the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// Whether there was such a lease, or it could begin. Where not, what was not reported has been
    /// charged when it expired.
    pub known: bool,
    /// All that has been granted since the lease began. Where that is what has been spent, the
    /// lease has ended.
    pub granted: u64,
    /// Whether the need is met, and when it could be; and what is left beside all leases.
    pub decision: Decision,
}
