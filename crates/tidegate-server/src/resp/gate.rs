//! `TG.*`: decisions by the rules of a domain, as every other protocol has them.
//!
//! In version 3 of the protocol an answer is a map with the names of the JSON form. In version 2 it is
//! an array of the same values in the same order, where truth is 0 or 1.

use smallvec::SmallVec;
use tidegate::rules::{Held, LimitDecision};
use tidegate::{Attribute, Call, CheckError, RuleDecision, Timestamp};

use super::commands::{Verb, wrong_number};
use super::parse::Command;
use super::reply::{Reply, Version};
use crate::answer::Answer;
use crate::engine::{Does, Engine, Protocol};
use crate::lease;

/// So many attributes need no memory from the heap.
const ATTRIBUTES_INLINE: usize = 8;

type Attributes<'c> = SmallVec<[Attribute<'c>; ATTRIBUTES_INLINE]>;

/// Answers a command of this file.
pub(super) async fn answer(
    engine: &Engine,
    verb: Verb,
    command: &Command<'_>,
    reply: &mut Reply<'_>,
) {
    let answered = match verb {
        Verb::Check => check(engine, Does::Take, command).await,
        Verb::Peek => check(engine, Does::Peek, command).await,
        Verb::Debit => check(engine, Does::Debit, command).await,
        Verb::Refund => refund(engine, command).await,
        Verb::Release => release(engine, command).await,
        Verb::Renew => renew(engine, command).await,
        _ => {
            return match reset(engine, command).await {
                Ok(()) => reply.simple("OK"),
                Err(refused) => refused.write(reply),
            };
        }
    };
    match answered {
        Ok(answer) => show(&answer, reply),
        Err(refused) => refused.write(reply),
    }
}

/// `TG.CHECK`, `TG.PEEK` or `TG.DEBIT`: `domain cost [name value ...]`.
async fn check(engine: &Engine, does: Does, command: &Command<'_>) -> Result<Answer, Refused> {
    let asked = Asked::of(command, 3)?;
    let cost = number(command.part(2), "cost")?;
    Ok(engine.check(&asked.call(cost), does, Protocol::Resp).await?)
}

/// `TG.REFUND domain cost taken_at_us [name value ...]`.
async fn refund(engine: &Engine, command: &Command<'_>) -> Result<Answer, Refused> {
    let asked = Asked::of(command, 4)?;
    let cost = number(command.part(2), "cost")?;
    let taken_at = Timestamp::from_micros(number(command.part(3), "taken_at_us")?);
    let decision = engine.refund(&asked.call(cost), taken_at).await?;
    Ok(Answer::decided(decision, false))
}

/// `TG.RELEASE domain lease_id [name value ...]`.
async fn release(engine: &Engine, command: &Command<'_>) -> Result<Answer, Refused> {
    let asked = Asked::of(command, 3)?;
    let decision = engine.release(&asked.call(1), &held(command.part(2))?).await?;
    Ok(Answer::decided(decision, false))
}

/// `TG.RENEW domain lease_id [name value ...]`.
async fn renew(engine: &Engine, command: &Command<'_>) -> Result<Answer, Refused> {
    let asked = Asked::of(command, 3)?;
    let decision = engine.renew(&asked.call(1), &held(command.part(2))?).await?;
    Ok(Answer::decided(decision, false))
}

fn held(part: Option<&[u8]>) -> Result<Vec<Held>, Refused> {
    text(part, "lease_id").ok().and_then(lease::read).ok_or(Refused::NotALease)
}

/// `TG.RESET domain [name value ...]`.
async fn reset(engine: &Engine, command: &Command<'_>) -> Result<(), Refused> {
    Ok(engine.reset(&Asked::of(command, 2)?.call(1)).await?)
}

impl Refused {
    /// Writes the error in the place of an answer.
    fn write(self, reply: &mut Reply<'_>) {
        match self {
            Self::Pairs { command } => wrong_number(command, reply),
            Self::NotText { field } => {
                reply.error(format_args!("ERR {field} is not valid UTF-8"));
            }
            Self::NotANumber { field } => {
                reply.error(format_args!("ERR {field} is not an integer or out of range"));
            }
            Self::NotALease => {
                reply.error(format_args!("ERR lease_id is not one that a check gave"));
            }
            Self::Undecided(error) => undecided(&error, reply),
        }
    }
}

/// Not a denial: nobody knows whether it may pass.
pub(super) fn undecided(error: &CheckError, reply: &mut Reply<'_>) {
    reply.error(format_args!("TGERR could not decide: {error}"));
}

/// Whose rules, and what describes the call.
struct Asked<'c> {
    domain: &'c str,
    attributes: Attributes<'c>,
}

impl<'c> Asked<'c> {
    /// Of a command whose attributes begin at part `first`.
    fn of(command: &Command<'c>, first: usize) -> Result<Self, Refused> {
        let domain = text(command.part(1), "domain")?;
        let mut parts = command.parts_from(first);
        if !parts.len().is_multiple_of(2) {
            let command = command.part(0).map_or("", lower_name);
            return Err(Refused::Pairs { command });
        }
        let mut attributes = Attributes::with_capacity(parts.len() / 2);
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            let name = text(Some(name), "attribute name")?;
            attributes.push(Attribute { name, value });
        }
        Ok(Self { domain, attributes })
    }

    fn call(&self, cost: u64) -> Call<'_> {
        Call::new(self.domain, &self.attributes).with_cost(cost)
    }
}

/// Why there is no answer. Nothing was taken.
enum Refused {
    /// A name without a value.
    Pairs {
        command: &'static str,
    },
    NotText {
        field: &'static str,
    },
    NotANumber {
        field: &'static str,
    },
    NotALease,
    Undecided(CheckError),
}

impl From<CheckError> for Refused {
    fn from(error: CheckError) -> Self {
        Self::Undecided(error)
    }
}

fn text<'c>(bytes: Option<&'c [u8]>, field: &'static str) -> Result<&'c str, Refused> {
    std::str::from_utf8(bytes.unwrap_or_default()).map_err(|_| Refused::NotText { field })
}

fn number(bytes: Option<&[u8]>, field: &'static str) -> Result<u64, Refused> {
    text(bytes, field).ok().and_then(|text| text.parse().ok()).ok_or(Refused::NotANumber { field })
}

/// The name of a command of this file, as errors have it.
fn lower_name(name: &[u8]) -> &'static str {
    const NAMES: [&str; 7] =
        ["tg.check", "tg.peek", "tg.debit", "tg.refund", "tg.release", "tg.renew", "tg.reset"];
    NAMES.into_iter().find(|known| super::commands::is(name, known)).unwrap_or("tg")
}

/// Writes an answer. `taken_at_us` is what a refund names, so it is there only where something was
/// taken.
fn show(answer: &Answer, reply: &mut Reply<'_>) {
    let mut fields = Fields::begin(reply, 16);
    fields.next("allowed").truth(answer.is_allowed());
    fields.next("rule").bulk_or_null(answer.rule().map(str::as_bytes));
    fields.next("limit").integer_or_null(answer.limit());
    fields.next("remaining").integer_or_null(answer.remaining());
    fields.next("reset_after_ms").integer_or_null(answer.reset_after().map(millis));
    fields.next("retry_after_ms").integer_or_null(answer.retry_after().map(millis));
    fields.next("delay_ms").integer(millis(answer.delay()));
    fields.next("reason").bulk_or_null(answer.reason().map(str::as_bytes));
    fields.next("soft").truth(answer.is_soft());
    fields.next("shadow_denied").truth(answer.is_shadow_denied());
    fields.next("source").bulk(answer.source().as_str().as_bytes());
    fields.next("degraded").truth(answer.is_degraded());
    let lease = answer.decision().and_then(|decision| lease::written(decision.held()));
    fields.next("lease_id").bulk_or_null(lease.as_deref().map(str::as_bytes));
    fields.next("taken_at_us").integer_or_null(answer.taken_at().map(Timestamp::as_micros));
    let limits = fields.next("limits");
    limits.array(answer.limits().count());
    answer.limits().for_each(|limit| show_limit(&limit, limits));
    let lasts = answer.decision().and_then(RuleDecision::expires_after);
    fields.next("lease_expires_after_ms").integer_or_null(lasts.map(millis));
}

fn show_limit(limit: &LimitDecision<'_>, reply: &mut Reply<'_>) {
    let mut fields = Fields::begin(reply, 11);
    fields.next("rule").bulk(limit.rule().name.as_bytes());
    fields.next("name").bulk(limit.shown_name().as_bytes());
    fields.next("text").bulk(limit.text().as_bytes());
    fields.next("enforced").truth(limit.is_enforced());
    fields.next("reserve").truth(limit.is_reserve());
    fields.next("allowed").truth(limit.is_allowed());
    fields.next("cost").integer(limit.cost());
    fields.next("limit").integer(limit.limit());
    fields.next("remaining").integer(limit.remaining());
    fields.next("reset_after_ms").integer(millis(limit.reset_after()));
    fields.next("retry_after_ms").integer_or_null(limit.retry_after().map(millis));
}

/// Values with names, where the version has room for names.
struct Fields<'r, 'o> {
    reply: &'r mut Reply<'o>,
}

impl<'r, 'o> Fields<'r, 'o> {
    fn begin(reply: &'r mut Reply<'o>, len: usize) -> Self {
        match reply.version() {
            Version::Two => reply.array(len),
            Version::Three => reply.map(len),
        }
        Self { reply }
    }

    fn next(&mut self, name: &str) -> &mut Reply<'o> {
        if self.reply.version() == Version::Three {
            self.reply.bulk(name.as_bytes());
        }
        self.reply
    }
}

/// Whole milliseconds, rounded up.
fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
