//! Reading the map again: by one task at a time, with pauses that grow while nothing changes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::routes::Server;
use super::slots::SlotMap;
use super::{Cluster, all, seeds};
use crate::config::{Address, RedisConfig};
use crate::link::{ConnectError, Connector, ask};
use crate::stats::BreakerState;

/// How long it is at least from one reading of the map to the next.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// It doubles up to this while the map stays as it is.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// When to read again, and whom to ask first.
pub(super) struct Pace {
    pause: Duration,
    /// Counts up, so that each time another one is asked first: one alone can be behind.
    turn: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { pause: PAUSE_MIN, turn: 0 }
    }
}

impl Cluster {
    /// Reads the map for the first time and connects to the primaries, so that what is wrong is known at
    /// the start. It is enough that one can be reached: others may be in the middle of a failover.
    pub(crate) async fn connect(&self) -> Result<(), ConnectError> {
        self.refresh().await?;
        let servers: Vec<_> = self.0.routes.read().servers().cloned().collect();
        let connected = all(servers.iter().map(|server| server.lane.connect())).await;
        let mut wrong = None;
        for result in connected {
            match result {
                Ok(()) => return Ok(()),
                Err(error) => wrong = Some(error),
            }
        }
        // Without servers there is nothing to reach.
        Err(wrong.unwrap_or_else(no_slots))
    }

    /// Has the map read, unless that goes on or was done a moment ago.
    pub(super) fn refresh_soon(&self) {
        // ORDERING: only one gets the turn; what it reads is under locks.
        if self.0.refreshing.swap(true, Ordering::Relaxed) {
            return;
        }
        let cluster = self.clone();
        tokio::spawn(async move {
            let changed = cluster.refresh().await.unwrap_or(false);
            cluster.0.refreshed.notify_waiters();
            let pause = {
                let mut pace = cluster.0.pace.lock();
                let pause = pace.pause;
                pace.pause = if changed { PAUSE_MIN } else { (2 * pause).min(PAUSE_MAX) };
                pause
            };
            tokio::time::sleep(pause).await;
            // ORDERING: as above.
            cluster.0.refreshing.store(false, Ordering::Relaxed);
        });
    }

    /// Asks one server after the other until one has a map. Gives whether other servers have slots now.
    async fn refresh(&self) -> Result<bool, ConnectError> {
        let mut wrong = no_slots();
        for address in self.candidates() {
            match read_map(&self.0.config, &address).await {
                Ok(map) => {
                    let changed = self.0.routes.write().update(map);
                    if changed {
                        let servers = self.0.routes.read().servers().count();
                        tracing::info!(servers, "other servers of the cluster have slots now");
                    }
                    return Ok(changed);
                }
                Err(error) => wrong = error,
            }
        }
        Err(wrong)
    }

    /// Whom to ask: primaries that answer, replicas, other primaries, and those of the settings.
    fn candidates(&self) -> Vec<Address> {
        let turn = {
            let mut pace = self.0.pace.lock();
            pace.turn = pace.turn.wrapping_add(1);
            pace.turn
        };
        let routes = self.0.routes.read();
        let answers = |server: &Server| server.lane.stats().breaker == BreakerState::Closed;
        let (mut well, ill): (Vec<_>, Vec<_>) =
            routes.servers().partition(|server| answers(server));
        if !well.is_empty() {
            let first = turn % well.len();
            well.rotate_left(first);
        }
        let well = well.into_iter().map(|server| &server.address);
        let ill = ill.into_iter().map(|server| &server.address);
        let mut all: Vec<Address> = Vec::new();
        for address in well.chain(&routes.replicas).chain(ill).chain(seeds(&self.0.config)) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }
}

/// Asks one server for the map.
pub(crate) async fn read_map(
    config: &RedisConfig,
    address: &Address,
) -> Result<SlotMap, ConnectError> {
    let reading = async {
        let mut connection = Connector::greet(config, address).await?;
        let mut question = redis::cmd("CLUSTER");
        let answer = ask(&mut connection, question.arg("SLOTS")).await;
        let answer = answer.map_err(|error| match error.kind() {
            ErrorKind::Server(ServerErrorKind::ResponseError) => ConnectError::IsNoCluster,
            _ => ConnectError::of(error),
        })?;
        let map = SlotMap::read(&answer, address).filter(|map| !map.ranges.is_empty());
        map.ok_or_else(no_slots)
    };
    tokio::time::timeout(config.connect_timeout, reading).await.unwrap_or(Err(ConnectError::Silent))
}

fn no_slots() -> ConnectError {
    let kind = ErrorKind::Server(ServerErrorKind::ClusterDown);
    ConnectError::NotReady(RedisError::from((kind, "no server of the cluster has slots")))
}
