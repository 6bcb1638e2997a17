//! **Leaky bucket**: a queue of `burst` places that is drained at the rate, first in, first out. A
//! request that finds a place is allowed with the `delay` until its turn; one that finds none is
//! refused.
//!
//! ```text
//! queue(t) = max(0, queue(t0) - (t - t0) * count / period)
//! allowed  iff  queue(t) + cost <= burst,  after a delay of queue(t) * period / count
//! ```
//!
//! The first in an empty queue goes at once. It is the token bucket's arithmetic, read as a queue:
//! a place in the queue is a token that has been taken, and the queue is empty when the bucket is
//! full. What comes out behind it is spaced by `period / count`.

use crate::token_bucket::Bucket;
use crate::{Decision, LimitError, Operation, Rate, Timestamp, TokenBucket, Verdict};

/// A leaky bucket's numbers, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeakyBucket {
    queue: TokenBucket,
}

impl LeakyBucket {
    /// A queue of `burst` places, drained at `rate`.
    pub const fn new(rate: Rate, burst: u64) -> Result<Self, LimitError> {
        match TokenBucket::new(rate, burst) {
            Ok(queue) => Ok(Self { queue }),
            Err(error) => Err(error),
        }
    }

    /// The rate at which the queue is drained.
    pub const fn rate(&self) -> Rate {
        self.queue.rate()
    }

    /// The token bucket whose tokens are the queue's free places.
    pub const fn queue(&self) -> &TokenBucket {
        &self.queue
    }

    /// How many places the queue has.
    pub const fn burst(&self) -> u64 {
        self.queue.burst()
    }

    /// Decides one operation. `None` is an empty queue, before and after.
    #[inline]
    pub fn decide(
        &self,
        bucket: Option<Bucket>,
        now: Timestamp,
        operation: Operation,
    ) -> (Decision, Option<Bucket>) {
        let (mut decision, next) = self.queue.decide(bucket, now, operation);
        if let (Verdict::Allow { delay }, Operation::Take { .. } | Operation::Peek { .. }) =
            (&mut decision.verdict, operation)
        {
            *delay = self.queue.wait_in_queue(bucket, now);
        }
        (decision, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Span;

    #[test]
    fn seven_at_once_five_get_their_turn_in_order_and_two_are_refused() {
        let limit = LeakyBucket::new(Rate::new(1, Span::SECOND).unwrap(), 5).unwrap();
        let take = Operation::Take { cost: 1 };
        let mut state = None;
        for turn in 0..5 {
            let (decision, next) = limit.decide(state, Timestamp::ZERO, take);
            assert_eq!(decision.verdict, Verdict::Allow { delay: Span::from_secs(turn) });
            state = next;
        }
        for _ in 0..2 {
            let (decision, next) = limit.decide(state, Timestamp::ZERO, take);
            assert_eq!(decision.verdict, Verdict::Deny { retry_after: Span::SECOND });
            state = next;
        }
        for second in 1..=3 {
            let now = Timestamp::from_secs(second);
            let (decision, next) = limit.decide(state, now, take);
            assert_eq!(decision.verdict, Verdict::Allow { delay: Span::from_secs(4) });
            assert!(!limit.decide(next, now, take).0.is_allowed(), "one place a second");
            state = next;
        }
    }
}
