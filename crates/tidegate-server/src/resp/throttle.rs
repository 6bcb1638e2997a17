//! `CL.THROTTLE`, as redis-cell answers it: a token bucket whose numbers come with the command.
//!
//! Commands that stand together in one read are collected, and decided together: all of their places
//! in the table are fetched before the first is decided.

use std::fmt;
use std::sync::Arc;

use tidegate::core::{Decision, Key, LimitError, Operation, Rate, TokenBucket, Verdict};
use tidegate::{Attribute, Charge, CheckError, Limit, Settled, Span, Timestamp};
use tidegate_rules::identity::Salt;

use super::gate::undecided;
use super::parse::Command;
use super::reply::{Reply, Shown};
use crate::answer::Source;
use crate::controls::Ruling;
use crate::engine::{Engine, Protocol, at_once};
use crate::metrics::{GIVEN, RuleCounts};

/// What sets these keys apart from those of rules.
pub(super) const KIND: &str = "cl.throttle";
/// The attribute that bans and the allow-list know the key by.
const ATTRIBUTE: &str = "key";
/// The most commands that are decided together.
const RUN_MAX: usize = 256;
/// How many different limits are kept ready. Clients use a few, over and over.
const LIMITS_MAX: usize = 16;
/// The most bytes of an argument that an error repeats.
const SHOWN_BYTES_MAX: usize = 128;
/// What stands for no time: the call passed, or waiting does not help.
const NEVER: i64 = -1;

/// Commands that wait to be decided, and the limits that they name. It belongs to a thread, not to a
/// connection: connections of one service name the same limits.
#[derive(Debug, Default)]
pub(super) struct Run {
    waiting: Vec<Waiting>,
    limits: Limits,
}

/// One command, understood.
#[derive(Debug)]
struct Waiting {
    key: Key,
    /// What the key was made of, where the operator wants to see it.
    name: Option<Box<[u8]>>,
    quantity: u64,
    /// Where its limit is in [`Limits`].
    limit: usize,
    in_shadow: bool,
}

/// The numbers of a limit, as the command has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    burst_max: u64,
    count: u64,
    period_secs: u64,
}

/// What a run is decided with.
#[derive(Clone, Copy)]
pub(super) struct Asked<'e> {
    pub(super) engine: &'e Arc<Engine>,
    pub(super) salt: Salt,
    pub(super) now: Timestamp,
}

impl Asked<'_> {
    /// What the controls say about a key.
    #[inline]
    fn rule_on(self, key: &[u8]) -> Option<Ruling> {
        let controls = self.engine.controls();
        if controls.is_idle() {
            return None;
        }
        controls.rule_on(GIVEN, &[Attribute { name: ATTRIBUTE, value: key }], self.now)
    }
}

impl Run {
    /// Adds a command to the run, or answers it at once where it is no good or where the operator's
    /// controls decide it. Answers are in the order of the commands.
    pub(super) fn push(&mut self, command: &Command<'_>, asked: Asked<'_>, reply: &mut Reply<'_>) {
        let (key, numbers, quantity) = match understand(command) {
            Ok(understood) => understood,
            Err(error) => return self.refuse(&error, asked, reply),
        };
        let limit = match self.limits.find(numbers) {
            Some(limit) => limit,
            None => match numbers.limit() {
                Ok(limit) => {
                    if self.limits.is_full() {
                        // A place that is given to another limit may be in use by the run.
                        self.finish(asked, reply);
                    }
                    self.limits.add(numbers, limit)
                }
                Err(error) => return self.refuse(&error, asked, reply),
            },
        };
        let in_shadow = match asked.rule_on(key) {
            None => false,
            Some(Ruling::Shadow) => true,
            Some(ruling @ (Ruling::Bypassed | Ruling::AllowListed | Ruling::Banned { .. })) => {
                self.finish(asked, reply);
                if quantity > 0 {
                    asked.engine.metrics().ruled_given(Protocol::Resp, ruling);
                }
                return ruled(ruling, numbers, asked.now, reply);
            }
        };
        let name = asked.engine.top().has_names().then(|| key.into());
        let key = asked.engine.limiter().hasher().bytes(key).key(asked.salt);
        self.waiting.push(Waiting { key, name, quantity, limit, in_shadow });
        if self.waiting.len() == RUN_MAX {
            self.finish(asked, reply);
        }
    }

    /// Decides and answers what waits.
    pub(super) fn finish(&mut self, asked: Asked<'_>, reply: &mut Reply<'_>) {
        let Self { waiting, limits } = self;
        if waiting.is_empty() {
            return;
        }
        let charges = waiting.iter().map(|one| Charge {
            limit: &limits.ready[one.limit].1,
            key: one.key,
            operation: Operation::Take { cost: one.quantity },
        });
        let mut counts = RuleCounts::default();
        let mut answered = waiting.iter();
        let deciding = asked.engine.limiter().decide_given_many_at(asked.now, charges, |settled| {
            let Some(one) = answered.next() else { return };
            let decision = match settled {
                Ok(settled) => settled.decision,
                Err(error) => return undecided(&CheckError::Store(error), reply),
            };
            let is_allowed = decision.is_allowed();
            // Who only looks is neither let through nor turned away.
            if one.quantity > 0 {
                let name = one.name.as_deref().unwrap_or_default();
                asked.engine.top().decided_given(one.key, name, is_allowed, asked.now);
                *counts.of(is_allowed, one.in_shadow) += 1;
            }
            reply.five(numbers_of(&decision, is_allowed || one.in_shadow));
        });
        // What memory decides is there at once.
        let _ = at_once(deciding);
        asked.engine.metrics().decided_given(Protocol::Resp, Source::Memory, &counts);
        waiting.clear();
    }

    fn refuse(&mut self, error: &UsageError<'_>, asked: Asked<'_>, reply: &mut Reply<'_>) {
        self.finish(asked, reply);
        reply.error(format_args!("Cell error: {error}"));
    }
}

/// Answers one command whose limit a store keeps.
pub(super) async fn answer(command: &Command<'_>, asked: Asked<'_>, reply: &mut Reply<'_>) {
    let understood = understand(command).and_then(|(key, numbers, quantity)| {
        numbers.limit().map(|limit| (key, numbers, quantity, limit))
    });
    let (name, numbers, quantity, limit) = match understood {
        Ok(understood) => understood,
        Err(error) => return reply.error(format_args!("Cell error: {error}")),
    };
    let engine = asked.engine;
    let in_shadow = match asked.rule_on(name) {
        None => false,
        Some(Ruling::Shadow) => true,
        Some(ruling @ (Ruling::Bypassed | Ruling::AllowListed | Ruling::Banned { .. })) => {
            if quantity > 0 {
                engine.metrics().ruled_given(Protocol::Resp, ruling);
            }
            return ruled(ruling, numbers, asked.now, reply);
        }
    };
    let key = engine.limiter().hasher().bytes(name).key(asked.salt);
    let charge = Charge { limit: &limit, key, operation: Operation::Take { cost: quantity } };
    let Settled { decision, source, .. } = match engine.decide_given(&charge).await {
        Ok(decided) => decided,
        // Nobody is turned away in shadow, whatever is to happen while there is no store.
        Err(_) if in_shadow => {
            if quantity > 0 {
                let counts = RuleCounts { allowed: 1, ..RuleCounts::default() };
                engine.metrics().decided_given(Protocol::Resp, Source::Fallback, &counts);
            }
            return ruled(Ruling::Shadow, numbers, asked.now, reply);
        }
        Err(error) => {
            engine.metrics().undecided(Protocol::Resp);
            return undecided(&error, reply);
        }
    };
    let is_allowed = decision.is_allowed();
    if quantity > 0 {
        engine.top().decided_given(key, name, is_allowed, asked.now);
        let mut counts = RuleCounts::default();
        *counts.of(is_allowed, in_shadow) += 1;
        engine.metrics().decided_given(Protocol::Resp, source, &counts);
    }
    reply.five(numbers_of(&decision, is_allowed || in_shadow));
}

/// What redis-cell replies: whether it is limited, the limit, what is left, after how many seconds the
/// same command passes, and after how many everything is back. Seconds are rounded up, so that nobody
/// comes back too early.
fn numbers_of(decision: &Decision, passes: bool) -> [i64; 5] {
    let retry_after = match decision.verdict {
        Verdict::Deny { retry_after } if !passes => seconds(retry_after),
        Verdict::Allow { .. } | Verdict::Deny { .. } | Verdict::NeverFits => NEVER,
    };
    let reset_after = seconds(decision.reset_after);
    let [limit, remaining] = [decision.limit, decision.remaining].map(u64::cast_signed);
    [i64::from(!passes), limit, remaining, retry_after, reset_after]
}

/// The reply where the controls decide: full where it passes, and empty for somebody banned.
fn ruled(ruling: Ruling, numbers: Numbers, now: Timestamp, reply: &mut Reply<'_>) {
    let limit = numbers.burst().cast_signed();
    if let Ruling::Banned { until } = ruling {
        let wait = until.map(|until| seconds(until.since(now)));
        reply.five([1, limit, 0, wait.unwrap_or(NEVER), wait.unwrap_or(NEVER)]);
    } else {
        reply.five([0, limit, limit, NEVER, 0]);
    }
}

/// Whole seconds, rounded up.
fn seconds(span: Span) -> i64 {
    span.as_secs_ceil().cast_signed()
}

/// The key, the limit's numbers and the quantity of a command.
fn understand<'c>(command: &Command<'c>) -> Result<(&'c [u8], Numbers, u64), UsageError<'c>> {
    let mut parts = command.parts_from(1);
    let (Some(key), Some(burst_max), Some(count), Some(period), quantity, None) =
        (parts.next(), parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(UsageError::Arity);
    };
    let numbers = Numbers {
        burst_max: number(burst_max)?,
        count: number(count)?,
        period_secs: number(period)?,
    };
    Ok((key, numbers, quantity.map_or(Ok(1), number)?))
}

/// A number as redis-cell reads it, but for the sign: it calculates with negative ones, to no use.
fn number(text: &[u8]) -> Result<u64, UsageError<'_>> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
    let number = number.ok_or(UsageError::NotANumber { text })?;
    u64::try_from(number).map_err(|_| UsageError::Negative { text })
}

impl Numbers {
    /// The most that can be taken at once: one more than what redis-cell calls the burst.
    fn burst(self) -> u64 {
        self.burst_max.saturating_add(1)
    }

    fn limit(self) -> Result<Limit, UsageError<'static>> {
        if self.count == 0 || self.period_secs == 0 {
            return Err(UsageError::ZeroRate);
        }
        let period = Span::from_secs(self.period_secs);
        let bucket = Rate::new(self.count, period)
            .and_then(|rate| TokenBucket::new(rate, self.burst()))
            .map_err(UsageError::Limit)?;
        Ok(Limit::TokenBucket(bucket))
    }
}

/// The limits that were named last, ready to decide with: making one takes longer than deciding.
#[derive(Debug, Default)]
struct Limits {
    ready: Vec<(Numbers, Limit)>,
    /// The one that was asked for last, which is most often asked for next.
    last: usize,
    /// The one whose place is taken next, where all are.
    oldest: usize,
}

impl Limits {
    #[inline]
    fn find(&mut self, numbers: Numbers) -> Option<usize> {
        if self.ready.get(self.last).is_some_and(|(of, _)| *of == numbers) {
            return Some(self.last);
        }
        self.last = self.ready.iter().position(|(of, _)| *of == numbers)?;
        Some(self.last)
    }

    fn is_full(&self) -> bool {
        self.ready.len() == LIMITS_MAX
    }

    /// Adds one, in the place of the oldest where all places are taken, and says where it is.
    fn add(&mut self, numbers: Numbers, limit: Limit) -> usize {
        if self.is_full() {
            self.last = self.oldest;
            self.oldest = (self.oldest + 1) % LIMITS_MAX;
            self.ready[self.last] = (numbers, limit);
        } else {
            self.last = self.ready.len();
            self.ready.push((numbers, limit));
        }
        self.last
    }
}

/// Why a command was not understood. Nothing was taken.
#[derive(Clone, Copy, Debug)]
enum UsageError<'c> {
    Arity,
    NotANumber { text: &'c [u8] },
    Negative { text: &'c [u8] },
    ZeroRate,
    Limit(LimitError),
}

/// In the words of redis-cell, where it has words for it.
impl fmt::Display for UsageError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |bytes| Shown { bytes, bytes_max: SHOWN_BYTES_MAX };
        match self {
            Self::Arity => f.write_str(
                "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]",
            ),
            Self::NotANumber { text } => write!(f, "Couldn't parse as integer: {}", shown(text)),
            Self::Negative { text } => {
                write!(f, "Negative numbers are not supported: {}", shown(text))
            }
            Self::ZeroRate => f.write_str("Zero rates are not supported"),
            Self::Limit(error) => error.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: u64) -> Numbers {
        Numbers { burst_max: 1, count, period_secs: 60 }
    }

    #[test]
    fn a_limit_is_made_once_and_the_oldest_makes_room() {
        let mut limits = Limits::default();
        for count in 1..=LIMITS_MAX as u64 {
            assert_eq!(limits.find(numbers(count)), None);
            limits.add(numbers(count), numbers(count).limit().expect("a limit"));
        }
        assert!((1..=LIMITS_MAX as u64).all(|count| limits.find(numbers(count)).is_some()));
        limits.add(numbers(99), numbers(99).limit().expect("a limit"));
        assert_eq!(limits.find(numbers(99)), Some(0));
        assert_eq!(limits.find(numbers(1)), None);
        assert!(limits.find(numbers(2)).is_some());
    }

    #[test]
    fn numbers_are_read_as_redis_cell_reads_them() {
        assert_eq!(number(b"+5").ok(), Some(5));
        assert_eq!(number(b"007").ok(), Some(7));
        for bad in [&b""[..], b" 5", b"5 ", b"1.0", b"9223372036854775808", b"\xff"] {
            assert!(matches!(number(bad), Err(UsageError::NotANumber { .. })), "{bad:?}");
        }
        assert!(matches!(number(b"-1"), Err(UsageError::Negative { .. })));
    }
}
