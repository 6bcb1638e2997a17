//! What goes to the script and what comes back: numbers of fixed width, big-endian, without
//! anything between them. `charge` writes the arguments and `answer` reads the reply.
//!
//! ```text
//! frame     flags 1 | margin in ms 4 | now 7 | repeats 2 | charges 1
//!           flags: 1 now is given, 2 leave foreign state, 4 plain takes from one family
//! charge    length 1 | kind 1 | operation 1 | which of the names 1 | member 8 | numbers of the kind
//! reply     0 | now 7 | keys that were reset, by bit 2 | answers      see `answer`
//!           1 | now 7                                     the calendar's windows are not around now
//!           2 | now 7 | charge 1                          its state is foreign, and was left
//!           3 | now 7 | the family as it was written      plain takes, all of which went through
//! ```
//!
//! The frame and all charges behind it are one argument. A call decides so many equal requests as its frame
//! repeats, each after the other and all at one instant. The reply has the answers of one round after those
//! of the other; the last round stands for all that follow it.

mod answer;
mod charge;
mod lease;

use tidegate_core::{Limit, Operation, Timestamp};
use tidegate_store::{Charge, Request};

pub(crate) use answer::{Reply, read_reply};
pub(crate) use charge::{Places, write_charges};
pub(crate) use lease::{read_told, write_ask};

use crate::config::{ForeignState, TimeSource};

/// The latest time that the script works with, in the year 2112: doubles hold it, a period more, and
/// a second of skew.
pub(crate) const TIME_MAX: Timestamp = Timestamp::from_micros(1 << 52);

/// How long a state stays after it is full. Calls can be late by so much, as after a failover to a
/// server whose clock is behind.
const MARGIN_MS: u64 = 1_000;

/// The same where the server does not know the time.
const BLIND_MARGIN_MS: u64 = 86_400_000;

const NOW_GIVEN: u64 = 1;
const LEAVE_FOREIGN: u64 = 2;
const PLAIN_TAKES: u64 = 4;

/// The most requests that one call decides: the server does nothing else meanwhile.
pub(crate) const REPEATS_MAX: u16 = 256;

/// Where the frame has the number that [`write_repeats`] changes.
const REPEATS_AT: usize = 12;

/// The frame of a request of so many charges, appended to `out`. It is decided once.
pub(crate) fn write_frame(
    time: TimeSource,
    policy: ForeignState,
    now: Timestamp,
    charges: usize,
    out: &mut Vec<u8>,
) {
    let (given, margin_ms, now) = match time {
        TimeSource::Server => (0, MARGIN_MS, Timestamp::ZERO),
        TimeSource::Request => (NOW_GIVEN, BLIND_MARGIN_MS, now.min(TIME_MAX)),
    };
    let leave = match policy {
        ForeignState::Reset => 0,
        ForeignState::Refuse => LEAVE_FOREIGN,
    };
    write(out, 1, given | leave);
    write(out, 4, margin_ms);
    write(out, 7, now.as_micros());
    write(out, 2, 1);
    write(out, 1, charges as u64);
}

/// Has the request behind this frame decided so many times.
pub(crate) fn write_repeats(repeats: u16, frame: &mut [u8]) {
    debug_assert!((1..=REPEATS_MAX).contains(&repeats));
    frame[REPEATS_AT..REPEATS_AT + 2].copy_from_slice(&repeats.to_be_bytes());
}

/// What the script is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Says what is left.
    Look,
    Take(u64),
    Peek(u64),
    Debit(u64),
    Refund(u64, Timestamp),
    Release(u64),
    Renew(u64),
}

impl Task {
    /// The task of a charge. A cost that never fits is known here, so the script only looks, and where
    /// it is a take the other takes of its request only peek.
    fn of(charge: &Charge<'_>, hopeless: bool) -> Self {
        match charge.operation {
            Operation::Take { cost } | Operation::Peek { cost }
                if cost > capacity(charge.limit) =>
            {
                Self::Look
            }
            Operation::Take { cost } if hopeless => Self::Peek(cost),
            Operation::Take { cost } => Self::Take(cost),
            Operation::Peek { cost } => Self::Peek(cost),
            Operation::Debit { cost } => Self::Debit(cost),
            Operation::Refund { cost, taken_at } => Self::Refund(cost, taken_at),
            Operation::Release { lease } => Self::Release(lease.as_u64()),
            Operation::Renew { lease } => Self::Renew(lease.as_u64()),
        }
    }

    const fn code(self) -> u64 {
        match self {
            Self::Look => 0,
            Self::Take(_) => 1,
            Self::Peek(_) => 2,
            Self::Debit(_) => 3,
            Self::Refund(..) => 4,
            Self::Release(_) => 5,
            Self::Renew(_) => 6,
        }
    }

    const fn cost(self) -> u64 {
        match self {
            Self::Look | Self::Release(_) | Self::Renew(_) => 0,
            Self::Take(cost) | Self::Peek(cost) | Self::Debit(cost) | Self::Refund(cost, _) => cost,
        }
    }

    /// When what is refunded was taken. Later than the script's time is as good as at that time.
    fn taken_at(self) -> u64 {
        match self {
            Self::Refund(_, taken_at) => taken_at.as_micros().min((1 << 53) - 1),
            _ => 0,
        }
    }
}

/// Whether one of the request's takes can never go through, and with it none of them.
pub(crate) fn is_hopeless(request: &Request<'_>) -> bool {
    request.charges.iter().any(|charge| match charge.operation {
        Operation::Take { cost } => cost > capacity(charge.limit),
        _ => false,
    })
}

/// The most that a limit can have left.
pub(crate) fn capacity(limit: &Limit) -> u64 {
    match limit {
        Limit::TokenBucket(limit) => limit.burst(),
        Limit::SteppedBucket(limit) => limit.burst(),
        Limit::LeakyBucket(limit) => limit.burst(),
        Limit::FixedWindow(limit) => limit.count(),
        Limit::SlidingWindow(limit) => limit.rate().count(),
        Limit::SlidingSlots(limit) => {
            limit.per_slot().map_or(limit.rate().count(), |most| most.min(limit.rate().count()))
        }
        Limit::SlidingLog(limit) => limit.rate().count(),
        Limit::Concurrency(limit) => limit.limit(),
    }
}

/// Appends the lowest `bytes` bytes of a number.
fn write(out: &mut Vec<u8>, bytes: usize, number: u64) {
    debug_assert!(bytes == 8 || number >> (8 * bytes) == 0, "{number} has more than {bytes} bytes");
    out.extend(&number.to_be_bytes()[8 - bytes..]);
}
