//! Callers of a shared store, each of which asks again as soon as it is answered. They run in a process
//! of their own, on one core: the program calls itself with a subcommand that help does not show.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the real clock")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidegate_core::{Decision, Key, Limit, Operation, Rate, Span, Timestamp, TokenBucket};
use tidegate_redis::{RedisConfig, RedisStore};
use tidegate_store::{Answers, Charge, Request, Store};

use super::{in_own_process, number};
use crate::random::Random;

/// What the program says to itself.
pub(crate) const SUBCOMMAND: &str = "callers-of";

/// What callers do.
#[derive(Clone, Copy)]
pub(super) struct Calling {
    pub(super) port: u16,
    /// How many limits a request is under.
    pub(super) limits: usize,
    /// Among how many keys each limit's is drawn.
    pub(super) keys: u32,
    pub(super) callers: u32,
    pub(super) seconds: f64,
}

/// What came of it.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    pub(super) per_second: f64,
    pub(super) script_calls_per_decision: f64,
}

impl Calling {
    /// Has it done by another process, on this core alone.
    pub(super) fn in_own_process(self, core: usize) -> Result<Sample, Box<dyn Error>> {
        let words = [
            SUBCOMMAND.to_owned(),
            self.port.to_string(),
            self.limits.to_string(),
            self.keys.to_string(),
            self.callers.to_string(),
            self.seconds.to_string(),
        ];
        let answer = in_own_process(core, &words)?;
        let number = |name: &str| number(&answer, name);
        Ok(Sample {
            per_second: number("decisions")? / number("seconds")?,
            script_calls_per_decision: number("script_calls")? / number("decisions")?,
        })
    }
}

/// The other side of [`Calling::in_own_process`].
pub(crate) fn call_here(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let [port, limits, keys, callers, seconds] = words else {
        return Err("port, limits, keys, callers, seconds".into());
    };
    let calling = Calling {
        port: port.parse()?,
        limits: limits.parse()?,
        keys: keys.parse()?,
        callers: callers.parse()?,
        seconds: seconds.parse()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(call(calling))?;
    println!("{answer}");
    Ok(())
}

/// A limit that is far away and slow to come back, so that every key stays active.
pub(super) fn limit() -> Result<Limit, Box<dyn Error>> {
    limit_per_day(10_000)
}

/// A limit of so many a day.
fn limit_per_day(count: u64) -> Result<Limit, Box<dyn Error>> {
    Ok(TokenBucket::new(Rate::new(count, Span::DAY)?, count)?.into())
}

/// The store on this port. Its deadline leaves room for a machine that is busy.
pub(super) async fn store(port: u16) -> Result<RedisStore, Box<dyn Error>> {
    let config = RedisConfig::new(&format!("redis://127.0.0.1:{port}"))?;
    Ok(RedisStore::connect(config.deadline(Duration::from_secs(5))).await?)
}

async fn call(calling: Calling) -> Result<Value, Box<dyn Error>> {
    let store = Arc::new(store(calling.port).await?);
    // All that is asked in a run of a single key.
    let limit = Arc::new(if calling.keys == 1 { limit_per_day(100_000_000)? } else { limit()? });
    let begun = Instant::now();
    let end = begun + Duration::from_secs_f64(calling.seconds);
    let mut callers = Vec::new();
    for number in 0..calling.callers {
        let (store, limit) = (Arc::clone(&store), Arc::clone(&limit));
        callers.push(tokio::spawn(async move {
            let mut random = Random::new(number.into());
            let mut decisions = 0_u64;
            let mut answers = Answers::new();
            while Instant::now() < end {
                ask(&store, &limit, calling, &mut random, &mut answers).await?;
                decisions += 1;
            }
            Ok::<u64, String>(decisions)
        }));
    }
    let mut decisions = 0;
    for caller in callers {
        decisions += caller.await??;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let script_calls = store.stats().script_calls;
    Ok(json!({ "decisions": decisions, "seconds": seconds, "script_calls": script_calls }))
}

async fn ask(
    store: &RedisStore,
    limit: &Limit,
    calling: Calling,
    random: &mut Random,
    answers: &mut Answers,
) -> Result<(), String> {
    // Who is under one limit is not under three: each rule has subjects of its own.
    let first = calling.limits as u128 * u128::from(calling.keys);
    let subject = first + u128::from(random.below(calling.keys));
    let charge = |number: usize| {
        // Keys of one subject share the bits by which a cluster spreads them.
        let hash = subject.wrapping_mul(0x9e37_79b9_7f4a_7c15_0000_0000_0000_0001);
        let key = Key::from_hash(hash ^ (number as u128) << 32);
        Charge { limit, key, operation: Operation::Take { cost: 1 } }
    };
    let charges = [charge(0), charge(1), charge(2)];
    let charges = &charges[..calling.limits];
    store.decide(&[Request { now: Timestamp::ZERO, charges }], answers).await;
    match answers.iter().next() {
        Some(Ok(decisions)) if decisions.iter().all(Decision::is_allowed) => Ok(()),
        Some(Ok(_)) => Err("the limit is not far enough away".to_owned()),
        Some(Err(error)) => Err(format!("the store did not decide: {error}")),
        None => Err("no answer".to_owned()),
    }
}
