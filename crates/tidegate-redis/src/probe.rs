//! What a person wants to know of a store before trusting it with limits: who answers, in which mode,
//! whether scripts run, what its clock says, and what it does when its memory is full.
//!
//! It changes nothing in the store, except that the script is kept there. What follows from what it
//! finds is said by [`Probe::warnings`].

mod info;
mod warning;

use std::time::Duration;

use redis::Value;
use redis::aio::MultiplexedConnection;
use tidegate_core::Timestamp;
use tokio::time::Instant;

pub use warning::Warning;

use crate::ConnectError;
use crate::cluster::read_map;
use crate::config::{Address, Deployment, RedisConfig};
use crate::link::{Connector, ask, ask_sentinels, load_script};
use info::Info;

/// How many times a server is asked for nothing, to see how long that takes.
const PINGS: usize = 11;

/// How long all questions to one server may take.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// What was found out about a deployment.
#[derive(Debug)]
#[non_exhaustive]
pub struct Probe {
    /// How it is run.
    pub mode: Mode,
    /// The primaries, by address, with what was found out or why that was nothing.
    pub servers: Vec<(String, Result<ProbedServer, ConnectError>)>,
    /// How long a decision may take, by the settings.
    pub deadline: Duration,
}

/// How servers are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// One server.
    Standalone,
    /// One server that Sentinels name.
    Sentinel {
        /// How many Sentinels the settings name.
        sentinels: usize,
        /// How many of them answer, and know the service.
        answering: usize,
    },
    /// Several servers, each with some of the slots.
    Cluster {
        /// How many of the 16,384 slots have a server.
        slots: usize,
    },
}

/// What was found out about one server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProbedServer {
    /// Whose program it is.
    pub kind: ServerKind,
    /// Its version, as it says.
    pub version: String,
    /// Whether it writes or follows another.
    pub role: Role,
    /// How many replicas follow it.
    pub replicas: u32,
    /// Whether it keeps and runs scripts.
    pub runs_scripts: bool,
    /// How far its clock is ahead of the caller's, in microseconds; `None` where it did not tell.
    pub clock_ahead_micros: Option<i64>,
    /// How long it takes to ask for nothing.
    pub latency: Latency,
    /// How much memory it may use; `None` where there is no ceiling.
    pub memory_max_bytes: Option<u64>,
    /// How much it uses.
    pub memory_used_bytes: u64,
    /// What it does at that ceiling, in its own word; empty where it did not tell.
    pub eviction_policy: String,
    /// Whether it writes every change to a file.
    pub appends: bool,
    /// Whether it writes all of its state to a file now and then; `None` where it did not tell.
    pub saves: Option<bool>,
}

/// Whose program a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServerKind {
    /// Redis, or one that says it is.
    Redis,
    /// Valkey.
    Valkey,
    /// Another one that speaks the protocol.
    Other,
}

/// Whether a server writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// It does.
    Primary,
    /// It follows another.
    Replica,
    /// It did not tell.
    Unknown,
}

/// How long it takes to ask for nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// The shortest time.
    pub least: Duration,
    /// As many took less as took more.
    pub median: Duration,
    /// The longest time.
    pub most: Duration,
}

impl ProbedServer {
    /// Whether it forgets states that still count when its memory is full. All of Tidegate's expire, so
    /// every policy but `noeviction` can choose them.
    pub fn may_evict(&self) -> bool {
        self.memory_max_bytes.is_some()
            && !matches!(self.eviction_policy.as_str(), "noeviction" | "")
    }
}

/// Finds out about a deployment. `clock` gives the caller's time, which the servers' is compared with.
///
/// An error says why nothing at all could be found out.
pub async fn probe(
    config: &RedisConfig,
    clock: impl Fn() -> Timestamp,
) -> Result<Probe, ConnectError> {
    let (mode, addresses) = find_servers(config).await?;
    let mut servers = Vec::with_capacity(addresses.len());
    for address in addresses {
        let within = tokio::time::timeout(ANSWERED_WITHIN, probe_server(config, &address, &clock));
        let found = within.await.unwrap_or(Err(ConnectError::Silent));
        servers.push((address.to_string(), found));
    }
    // Of a single server there is nothing else to tell.
    if !matches!(mode, Mode::Cluster { .. })
        && let Some((_, found)) = servers.pop_if(|(_, found)| found.is_err())
    {
        found?;
    }
    Ok(Probe { mode, servers, deadline: config.deadline })
}

/// How it is run, and who the primaries are.
async fn find_servers(config: &RedisConfig) -> Result<(Mode, Vec<Address>), ConnectError> {
    match &config.deployment {
        Deployment::Single(address) => Ok((Mode::Standalone, vec![address.clone()])),
        Deployment::Sentinel { sentinels, .. } => {
            let (mut named, mut answering, mut wrong) = (None, 0, ConnectError::Service);
            for answer in ask_sentinels(config).await {
                match answer {
                    Ok(address) => {
                        answering += 1;
                        named = Some(address);
                    }
                    Err(error) => wrong = error,
                }
            }
            let primary = named.ok_or(wrong)?;
            Ok((Mode::Sentinel { sentinels: sentinels.len(), answering }, vec![primary]))
        }
        Deployment::Cluster { seeds } => {
            let mut wrong = ConnectError::Silent;
            for seed in seeds {
                match read_map(config, seed).await {
                    Ok(map) => {
                        let (slots, primaries) = (map.slots(), map.primaries());
                        return Ok((Mode::Cluster { slots }, primaries));
                    }
                    Err(error) => wrong = error,
                }
            }
            Err(wrong)
        }
    }
}

async fn probe_server(
    config: &RedisConfig,
    address: &Address,
    clock: &impl Fn() -> Timestamp,
) -> Result<ProbedServer, ConnectError> {
    let mut connection = Connector::greet(config, address).await?;
    let info = Info::ask(&mut connection).await.map_err(ConnectError::of)?;
    match (info.mode(), &config.deployment) {
        ("sentinel", _) => return Err(ConnectError::IsSentinel),
        ("cluster", Deployment::Single(_) | Deployment::Sentinel { .. }) => {
            return Err(ConnectError::IsCluster);
        }
        _ => {}
    }
    let (kind, version) = info.program();
    let clock_ahead_micros = clock_ahead(&mut connection, clock).await;
    let runs_scripts = clock_ahead_micros.is_some() && load_script(&mut connection).await.is_ok();
    Ok(ProbedServer {
        kind,
        version,
        role: info.role(),
        replicas: info.number("connected_slaves") as u32,
        runs_scripts,
        clock_ahead_micros,
        latency: measure(&mut connection).await?,
        memory_max_bytes: Some(info.number("maxmemory")).filter(|bytes| *bytes > 0),
        memory_used_bytes: info.number("used_memory"),
        eviction_policy: info.text("maxmemory_policy").to_owned(),
        appends: info.number("aof_enabled") == 1,
        saves: saves(&mut connection).await,
    })
}

/// How far the server's clock is ahead, as scripts see it.
async fn clock_ahead(
    connection: &mut MultiplexedConnection,
    clock: &impl Fn() -> Timestamp,
) -> Option<i64> {
    let mut eval = redis::cmd("EVAL");
    eval.arg("local t = redis.call('TIME') return t[1] * 1000000 + t[2]").arg(0);
    let before = clock().as_micros();
    let answer = ask(connection, &eval).await.ok()?;
    let after = clock().as_micros();
    // It was asked between the two.
    let asked = before + after.saturating_sub(before) / 2;
    match answer {
        Value::Int(micros) => Some(micros - asked.cast_signed()),
        _ => None,
    }
}

async fn measure(connection: &mut MultiplexedConnection) -> Result<Latency, ConnectError> {
    let mut took = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let began = Instant::now();
        ask(connection, &redis::cmd("PING")).await.map_err(ConnectError::of)?;
        took.push(began.elapsed());
    }
    took.sort();
    Ok(Latency { least: took[0], median: took[PINGS / 2], most: took[PINGS - 1] })
}

/// Whether the settings have times at which all is written. Who rents a server may not ask.
async fn saves(connection: &mut MultiplexedConnection) -> Option<bool> {
    let mut question = redis::cmd("CONFIG");
    let answer = ask(connection, question.arg("GET").arg("save")).await.ok()?;
    let Value::Array(pair) = answer else { return None };
    crate::link::text(pair.get(1)?).map(|times| !times.is_empty())
}
