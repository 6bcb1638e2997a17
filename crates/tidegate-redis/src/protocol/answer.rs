//! The script's reply, as decisions.
//!
//! ```text
//! bucket    verdict 1 | wait 6+3 | remaining 7 | until full 6+3      in ticks, or steps
//! other     verdict 1 | wait 7 | remaining 7 | until full 7 [| lease 7+2, of a concurrency limit]
//! ```
//!
//! The verdict is 0 where the operation goes through, and the wait is then the delay; it is 1 where
//! it does not.

use tidegate_core::{Decision, LeaseId, Limit, Operation, Span, SteppedBucket, Timestamp, Verdict};
use tidegate_store::Charge;

use super::capacity;
use super::charge::HALF_BITS;

/// What the script says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It has decided, at this time. The keys of these bits held a foreign state.
    Decided { now: Timestamp, foreign_keys: u16 },
    /// It has not: the windows of the calendar must be those around this time.
    AskAround { now: Timestamp },
    /// It has not: one of the keys holds a foreign state.
    Foreign,
}

/// Reads a reply and appends its decisions; `None` for bytes that are no reply to these charges.
pub(crate) fn read_reply(
    bytes: &[u8],
    charges: &[Charge<'_>],
    decisions: &mut Vec<Decision>,
) -> Option<Reply> {
    let mut reader = Reader(bytes);
    let status = reader.number(1)?;
    let now = Timestamp::from_micros(reader.number(7)?);
    let reply = match status {
        0 => {
            let foreign_keys = reader.number(2)? as u16;
            for charge in charges {
                decisions.push(reader.decision(charge, now)?);
            }
            Reply::Decided { now, foreign_keys }
        }
        1 => Reply::AskAround { now },
        2 => {
            reader.number(1)?;
            Reply::Foreign
        }
        _ => return None,
    };
    reader.0.is_empty().then_some(reply)
}

/// What has not been read yet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// A number of ticks in two halves. The low one can be a tick too large, by rounding.
    fn ticks(&mut self) -> Option<u64> {
        Some((self.number(6)? << HALF_BITS) + self.number(3)?)
    }

    fn span(&mut self) -> Option<Span> {
        self.number(7).map(Span::from_micros)
    }

    fn decision(&mut self, charge: &Charge<'_>, now: Timestamp) -> Option<Decision> {
        let goes_through = self.number(1)? == 0;
        let (wait, remaining, reset_after) = match charge.limit {
            Limit::TokenBucket(_) | Limit::LeakyBucket(_) => {
                let wait = Span::from_micros(self.ticks()?);
                (wait, self.number(7)?, Span::from_micros(self.ticks()?))
            }
            Limit::SteppedBucket(limit) => {
                let wait = until_step(limit, now, self.ticks()?);
                (wait, self.number(7)?, until_step(limit, now, self.ticks()?))
            }
            Limit::FixedWindow(_)
            | Limit::SlidingWindow(_)
            | Limit::SlidingSlots(_)
            | Limit::SlidingLog(_)
            | Limit::Concurrency(_) => (self.span()?, self.number(7)?, self.span()?),
        };
        let lease = match charge.limit {
            Limit::Concurrency(_) => LeaseId::from_u64((self.number(7)? << 10) + self.number(2)?),
            _ => None,
        };
        let limit = capacity(charge.limit);
        let verdict = match charge.operation {
            Operation::Take { cost } | Operation::Peek { cost } if cost > limit => {
                Verdict::NeverFits
            }
            _ if goes_through => Verdict::Allow { delay: wait },
            _ => Verdict::Deny { retry_after: wait },
        };
        Some(Decision { verdict, limit, remaining, reset_after, lease })
    }
}

/// How long it is from `now` until so many steps have come; none takes no time.
fn until_step(limit: &SteppedBucket, now: Timestamp, steps: u64) -> Span {
    if steps == 0 {
        return Span::ZERO;
    }
    let period = limit.rate().period().as_micros();
    let at = (u128::from(now.as_micros() / period) + u128::from(steps)) * u128::from(period);
    let micros = at.saturating_sub(u128::from(now.as_micros()));
    Span::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use tidegate_core::{Key, Rate, TokenBucket};

    use super::*;

    fn read(bytes: &[u8]) -> Option<(Reply, Vec<Decision>)> {
        let rate = Rate::new(1, Span::SECOND).unwrap();
        let limit = Limit::from(TokenBucket::new(rate, 5).unwrap());
        let operation = Operation::Take { cost: 1 };
        let charge = Charge { limit: &limit, key: Key::from_hash(1), operation };
        let mut decisions = Vec::new();
        read_reply(bytes, &[charge], &mut decisions).map(|reply| (reply, decisions))
    }

    #[test]
    fn a_denial_reads_as_one() {
        let mut bytes = vec![0, 0, 0, 0, 0, 0, 0, 7, 0, 1];
        bytes.extend([1, 0, 0, 0, 0, 0, 0, 0x0f, 0x42, 0x40]);
        bytes.extend([0; 7]);
        bytes.extend([0, 0, 0, 0, 0, 4, 0x0c, 0x4b, 0x40]);
        let (reply, decisions) = read(&bytes).expect("a reply");
        let now = Timestamp::from_micros(7);
        assert_eq!(reply, Reply::Decided { now, foreign_keys: 1 });
        assert_eq!(decisions[0].verdict, Verdict::Deny { retry_after: Span::SECOND });
        assert_eq!((decisions[0].limit, decisions[0].remaining), (5, 0));
        assert_eq!(decisions[0].reset_after, Span::from_secs(5));
    }

    #[test]
    fn bytes_that_are_no_reply_are_told_apart_from_one() {
        for bytes in [&[][..], &[0; 8], &[3; 8], &[0; 35], &[0; 37], &[1; 9], &[2; 8]] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
        assert!(read(&[0; 36]).is_some());
    }
}
