//! What a limit answers. A denial is a value that knows the wait, not an error.

use core::fmt;
use core::num::NonZeroU64;

use crate::Span;

/// Whether an operation goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It does, after `delay`. Only a leaky bucket delays.
    Allow {
        /// How long the caller holds the request back before it goes on.
        delay: Span,
    },
    /// It does not, and nothing was spent.
    Deny {
        /// After how long the same operation succeeds, if nobody else asks.
        retry_after: Span,
    },
    /// It never will: the cost is more than the limit can ever hold. Nothing was spent.
    NeverFits,
}

/// The answer to one operation on one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a decision that nobody reads limits nothing"]
pub struct Decision {
    /// Whether it goes through.
    pub verdict: Verdict,
    /// The most that the limit can have left: its burst, or its number per window.
    pub limit: u64,
    /// How much is left after this operation, rounded down.
    pub remaining: u64,
    /// How long until everything has come back, if nobody asks in between.
    pub reset_after: Span,
    /// The lease that a concurrency limit gave.
    pub lease: Option<LeaseId>,
}

impl Decision {
    /// Whether the operation goes through, perhaps after a delay.
    pub const fn is_allowed(&self) -> bool {
        matches!(self.verdict, Verdict::Allow { .. })
    }

    /// How long until the same operation succeeds; `None` when it was allowed or never fits.
    pub const fn retry_after(&self) -> Option<Span> {
        match self.verdict {
            Verdict::Deny { retry_after } => Some(retry_after),
            Verdict::Allow { .. } | Verdict::NeverFits => None,
        }
    }

    /// How long an allowed request is to be held back; zero for one that was not allowed.
    pub const fn delay(&self) -> Span {
        match self.verdict {
            Verdict::Allow { delay } => delay,
            Verdict::Deny { .. } | Verdict::NeverFits => Span::ZERO,
        }
    }
}

/// The name of one place in a concurrency limit, to give it back by. It is unique within its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(NonZeroU64);

impl LeaseId {
    /// The lease of that number; `None` for 0, which no lease has.
    pub const fn from_u64(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The lease's number, for the wire.
    pub const fn as_u64(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
