//! Many callers at once on a limit that is smaller than they are many, on three nodes: how many are
//! admitted, in every round on a key that nobody has had.

use std::error::Error;
use std::sync::Arc;

use serde_json::{Value, json};
use tidegate::{Clock as _, SystemClock};
use tidegate_core::{
    Consistency, Key, Limit, OnStoreFailure, Operation, Rate, Span, Terms, TokenBucket,
};
use tidegate_redis::{RedisConfig, Shared, SharedConfig};
use tidegate_store::{Charge, Request, Source};

use super::{Effort, asked, in_own_process, number, redis};
use crate::targets::{Figure, Target};
use crate::wire::server::Cores;

/// What the program says to itself.
pub(crate) const SUBCOMMAND: &str = "rounds-of";

const NODES: usize = 3;
const CALLERS: usize = 200;
const LIMIT: u32 = 50;
const ROUNDS: u32 = 1_000;
const ROUNDS_QUICK: u32 = 100;

/// The fewest that leases may admit.
const LEASED_LEAST: u32 = 45;

/// Everything.
pub(super) fn figures(cores: &Cores, effort: Effort) -> Result<Vec<Figure>, Box<dyn Error>> {
    let rounds = if effort.quick { ROUNDS_QUICK } else { ROUNDS };
    let server = redis(cores.server)?;
    let words = [SUBCOMMAND.to_owned(), server.port.to_string(), rounds.to_string()];
    eprintln!("  {rounds} rounds");
    let answer = in_own_process(cores.load, &words)?;
    let mut figures = Vec::new();
    for (mode, least) in [("strict", LIMIT), ("leased", LEASED_LEAST)] {
        let name = |which: &str| {
            format!(
                "{mode}, {which} admitted of {LIMIT} in {rounds} rounds, {CALLERS} callers on {NODES} nodes"
            )
        };
        let fewest = number(&answer[mode], "fewest")?;
        let most = number(&answer[mode], "most")?;
        figures.push(asked(name("fewest"), fewest, "admitted", Target::AtLeast(least.into())));
        figures.push(asked(name("most"), most, "admitted", Target::AtMost(LIMIT.into())));
    }
    Ok(figures)
}

/// The other side of it.
pub(crate) fn run_here(words: &[&str]) -> Result<(), Box<dyn Error>> {
    let [port, rounds] = words else { return Err("port, rounds".into()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(run(port.parse()?, rounds.parse()?))?;
    println!("{answer}");
    Ok(())
}

async fn run(port: u16, rounds: u32) -> Result<Value, Box<dyn Error>> {
    // It leaves room for a machine that is busy: what a store that is late admits is another figure.
    let deadline = std::time::Duration::from_secs(1);
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let config = RedisConfig::new(&format!("redis://127.0.0.1:{port}"))?;
        let config = SharedConfig::new([config]).deadline(deadline);
        nodes.push(Arc::new(Shared::connect(config).await?));
    }
    let limit: Limit = TokenBucket::new(Rate::new(LIMIT.into(), Span::DAY)?, LIMIT.into())?.into();
    let limit = Arc::new(limit);
    let [mut strict, mut leased] = [(u64::MAX, 0); 2];
    for round in 0..rounds {
        let modes = [(Consistency::Strict, &mut strict), (Consistency::Leased, &mut leased)];
        for (number, (consistency, seen)) in modes.into_iter().enumerate() {
            let key = (u128::from(round) * 2 + number as u128 + 1)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            let admitted = admitted(&nodes, &limit, Key::from_hash(key), consistency).await?;
            *seen = (seen.0.min(admitted), seen.1.max(admitted));
        }
    }
    for node in &nodes {
        node.close().await;
    }
    let told = |(fewest, most): (u64, u64)| json!({ "fewest": fewest, "most": most });
    Ok(json!({ "strict": told(strict), "leased": told(leased) }))
}

/// All callers at once, each on one of the nodes.
async fn admitted(
    nodes: &[Arc<Shared>],
    limit: &Arc<Limit>,
    key: Key,
    consistency: Consistency,
) -> Result<u64, Box<dyn Error>> {
    let terms = Terms { consistency, on_failure: OnStoreFailure::Deny, group: None };
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (node, limit) = (Arc::clone(&nodes[caller % nodes.len()]), Arc::clone(limit));
            tokio::spawn(async move {
                let operation = Operation::Take { cost: 1 };
                let charges = [Charge { limit: &limit, key, operation }];
                let mut settled = Vec::new();
                let request = Request { now: SystemClock.now(), charges: &charges };
                node.decide(&request, &[terms], &mut settled).await.map(|()| settled)
            })
        })
        .collect();
    let mut admitted = 0;
    for caller in callers {
        let settled = caller.await??;
        if settled.iter().any(|one| one.source == Source::Fallback) {
            return Err("a decision without the store".into());
        }
        admitted += u64::from(settled.iter().all(|one| one.decision.is_allowed()));
    }
    Ok(admitted)
}
