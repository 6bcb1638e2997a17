//! The script's reply, as decisions.
//!
//! ```text
//! bucket    verdict 1 | wait 6+3 | remaining 7 | until full 6+3      in ticks, or steps
//! other     verdict 1 | wait 7 | remaining 7 | until full 7 [| lease 7+2, of a concurrency limit]
//! ```
//!
//! The verdict is 0 where the operation goes through, and the wait is then the delay; it is 1 where
//! it does not; and it is 2 where it does not only because of leases, and then the wait is in
//! microseconds always.

use tidegate_core::{Decision, LeaseId, Limit, Operation, Span, SteppedBucket, Timestamp, Verdict};
use tidegate_store::Charge;

use super::charge::HALF_BITS;
use super::{REPEATS_MAX, capacity};
use crate::key::MEMBER_BYTES;

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

/// How a reply begins that has the states and no answers.
const TAKEN: u8 = 3;

/// Reads a reply and appends the decisions of one round, counted from 0; `None` for bytes that are no
/// reply to these charges. The last round that it has stands for all that follow it.
pub(crate) fn read_reply(
    bytes: &[u8],
    charges: &[Charge<'_>],
    round: u16,
    decisions: &mut Vec<Decision>,
) -> Option<Reply> {
    let mut reader = Reader(bytes);
    if bytes.first() == Some(&TAKEN) {
        return reader.taken(charges, decisions);
    }
    let reply = reader.head()?;
    if let Reply::Decided { now, .. } = reply {
        reader.skip_to(round, charges.iter().map(|charge| answer_bytes(charge.limit)).sum())?;
        for charge in charges {
            decisions.push(reader.decision(charge, now)?);
        }
    }
    reader.is_empty().then_some(reply)
}

/// How long it says until when a member says something.
const ENDS_BYTES: usize = 3;

/// How long the state of a bucket is, and how it begins.
const PLAIN_STATE: u64 = 11 << 8 | b'b' as u64;

/// What has not been read yet.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    /// What the script says before the answers.
    pub(super) fn head(&mut self) -> Option<Reply> {
        let status = self.number(1)?;
        let now = Timestamp::from_micros(self.number(7)?);
        match status {
            0 => Some(Reply::Decided { now, foreign_keys: self.number(2)? as u16 }),
            1 => Some(Reply::AskAround { now }),
            2 => {
                self.number(1)?;
                Some(Reply::Foreign)
            }
            _ => None,
        }
    }

    /// The states that plain takes left, all of which went through, as decisions.
    fn taken(&mut self, charges: &[Charge<'_>], decisions: &mut Vec<Decision>) -> Option<Reply> {
        self.number(1)?;
        let now = Timestamp::from_micros(self.number(7)?);
        (self.number(1)? == u64::from(b'g')).then_some(())?;
        for charge in charges {
            let Limit::TokenBucket(limit) = charge.limit else { return None };
            self.0 = self.0.get(MEMBER_BYTES + ENDS_BYTES..)?;
            (self.number(2)? == PLAIN_STATE).then_some(())?;
            let (full_at, part) = (self.number(7)?, self.number(3)?);
            let ahead = full_at.checked_sub(now.as_micros())?;
            let (ticks, tokens) = limit.pace();
            let used = u128::from(ahead) * u128::from(tokens) + u128::from(part);
            let depth = u128::from(limit.burst()) * u128::from(ticks);
            let left = depth.checked_sub(used)? / u128::from(ticks);
            decisions.push(Decision {
                verdict: Verdict::Allow { delay: Span::ZERO },
                limit: limit.burst(),
                remaining: u64::try_from(left).ok()?,
                reset_after: Span::from_micros(ahead + u64::from(part > 0)),
                lease: None,
            });
        }
        self.is_empty().then_some(Reply::Decided { now, foreign_keys: 0 })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn number(&mut self, bytes: usize) -> Option<u64> {
        let (head, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(head.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Leaves only the answers of one round, of so many bytes.
    fn skip_to(&mut self, round: u16, bytes: usize) -> Option<()> {
        // A request without limits has answers without bytes.
        let Some(rounds) = self.0.len().checked_div(bytes) else { return Some(()) };
        if !(1..=REPEATS_MAX.into()).contains(&rounds) || rounds * bytes != self.0.len() {
            return None;
        }
        let start = usize::from(round).min(rounds - 1) * bytes;
        self.0 = self.0.get(start..start + bytes)?;
        Some(())
    }

    /// A number of ticks in two halves. The low one can be a tick too large, by rounding.
    fn ticks(&mut self) -> Option<u64> {
        Some((self.number(6)? << HALF_BITS) + self.number(3)?)
    }

    fn span(&mut self) -> Option<Span> {
        self.number(7).map(Span::from_micros)
    }

    pub(super) fn decision(&mut self, charge: &Charge<'_>, now: Timestamp) -> Option<Decision> {
        let verdict = self.number(1)?;
        let goes_through = verdict == 0;
        let (wait, remaining, reset_after) = match charge.limit {
            Limit::TokenBucket(_) | Limit::LeakyBucket(_) => {
                let wait = Span::from_micros(self.ticks()?);
                (wait, self.number(7)?, Span::from_micros(self.ticks()?))
            }
            Limit::SteppedBucket(limit) => {
                let wait = match (verdict, self.ticks()?) {
                    (2, micros) => Span::from_micros(micros),
                    (_, steps) => until_step(limit, now, steps),
                };
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

/// How long the answer of a limit is.
const fn answer_bytes(limit: &Limit) -> usize {
    match limit {
        Limit::TokenBucket(_) | Limit::LeakyBucket(_) | Limit::SteppedBucket(_) => 26,
        Limit::FixedWindow(_)
        | Limit::SlidingWindow(_)
        | Limit::SlidingSlots(_)
        | Limit::SlidingLog(_) => 22,
        Limit::Concurrency(_) => 31,
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
        read_round(bytes, 0)
    }

    fn read_round(bytes: &[u8], round: u16) -> Option<(Reply, Vec<Decision>)> {
        let rate = Rate::new(1, Span::SECOND).unwrap();
        let limit = Limit::from(TokenBucket::new(rate, 5).unwrap());
        let operation = Operation::Take { cost: 1 };
        let charge = Charge { limit: &limit, key: Key::from_hash(1), operation };
        let mut decisions = Vec::new();
        read_reply(bytes, &[charge], round, &mut decisions).map(|reply| (reply, decisions))
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
    fn the_last_round_of_a_reply_stands_for_those_after_it() {
        let mut bytes = vec![0; 10];
        for left in [2, 1] {
            bytes.extend([0; 16]);
            bytes.push(left);
            bytes.extend([0; 9]);
        }
        let left = |round| read_round(&bytes, round).expect("a reply").1[0].remaining;
        assert_eq!([0, 1, 2, 255].map(left), [2, 1, 1, 1]);
        bytes.push(0);
        assert_eq!(read_round(&bytes, 0), None);
    }

    #[test]
    fn bytes_that_are_no_reply_are_told_apart_from_one() {
        for bytes in [&[][..], &[0; 8], &[3; 8], &[0; 10], &[0; 35], &[0; 37], &[1; 9], &[2; 8]] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
        assert!(read(&[0; 36]).is_some());
    }
}
