//! The store: one deployment of Redis or Valkey, behind the seam of all stores.
//!
//! It knows which lane a request goes to, and the deadline of a call whose caller has none. What happens
//! on a connection is the lane's business, and policy that of whoever asks.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;
use tidegate_core::{Key, Timestamp};
use tidegate_store::{Answers, Request, Source, Store, StoreError};
use tokio::time::Instant;

use crate::cluster::{Cluster, slot_of_name};
use crate::config::{Deployment, RedisConfig};
use crate::lane::{Call, Lane, Outcomes, Reply};
use crate::lease::{Told, book};
use crate::link::{Connector, Link, Target};
use crate::stats::Stats;
use crate::{ConnectError, Settled};

/// State in one deployment of Redis or Valkey, shared by all who use it.
pub struct RedisStore {
    config: Arc<RedisConfig>,
    servers: Servers,
}

/// Who decides.
enum Servers {
    /// One server, be it always the same or the one that Sentinels name.
    One(Lane),
    Cluster(Cluster),
}

impl RedisStore {
    /// Connects to the servers, and says what is wrong where that fails.
    pub async fn connect(config: RedisConfig) -> Result<Self, ConnectError> {
        let store = Self::open(config);
        match &store.servers {
            Servers::One(lane) => lane.connect().await?,
            Servers::Cluster(cluster) => cluster.connect().await?,
        }
        Ok(store)
    }

    /// A store that connects when it is first asked, and as soon as it can: calls before that are
    /// errors. It is for those who can do without for a while.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn open(config: RedisConfig) -> Self {
        let config = Arc::new(config);
        let one = |target: Target| {
            let link = Link::new(Connector::new(Arc::clone(&config), target));
            Servers::One(Lane::new(Arc::clone(&config), link))
        };
        let servers = match &config.deployment {
            Deployment::Single(address) => one(Target::Server(address.clone())),
            Deployment::Sentinel { sentinels, service } => {
                one(Target::Primary { sentinels: sentinels.clone(), service: service.clone() })
            }
            Deployment::Cluster { .. } => Servers::Cluster(Cluster::new(Arc::clone(&config))),
        };
        Self { config, servers }
    }

    /// What it has met so far.
    pub fn stats(&self) -> Stats {
        match &self.servers {
            Servers::One(lane) => lane.stats(),
            Servers::Cluster(cluster) => cluster.stats(),
        }
    }

    /// Decides one request and appends what each limit says, with the instant at which it was decided:
    /// the servers of a cluster have clocks of their own.
    pub(crate) async fn settle(
        &self,
        request: &Request<'_>,
        deadline: Instant,
        settled: &mut Vec<Settled>,
    ) -> Result<(), StoreError> {
        match &self.servers {
            Servers::One(lane) => {
                let outcomes = lane.decide(std::slice::from_ref(request), false, deadline).await;
                let (at, decisions) = outcomes.outcome(0).map_err(StoreError::from)?;
                settled.extend(decisions.iter().map(|&decision| Settled {
                    decision,
                    at,
                    source: Source::Store,
                }));
                Ok(())
            }
            Servers::Cluster(cluster) => cluster.settle(request, deadline, settled).await,
        }
    }

    /// Sends requests for leases, those to one server in one pipeline, and gives the answer to each, in
    /// order. `now` is a time of the node's own clock.
    pub async fn lease(
        &self,
        leases: &[book::Call],
        now: Timestamp,
        within: Duration,
    ) -> Vec<Result<Told, StoreError>> {
        let deadline = Instant::now() + within;
        match &self.servers {
            Servers::One(lane) => {
                let answers = lane.lease(leases, now, false, deadline).await;
                answers.into_iter().map(|answer| answer.map_err(|one| (&one).into())).collect()
            }
            Servers::Cluster(cluster) => cluster.lease(leases, now, deadline).await,
        }
    }

    /// Runs a script of somebody else's on keys that share a slot, and gives its reply.
    pub(crate) async fn eval(
        &self,
        script: &str,
        keys: &[Vec<u8>],
        arguments: &[Vec<u8>],
        within: Duration,
    ) -> Result<Arc<Value>, StoreError> {
        let slot = keys.first().map_or(0, |name| slot_of_name(name));
        let call = Call::eval(script, keys, arguments);
        let reply = self.call(slot, call, Instant::now() + within).await?;
        Ok(reply.value)
    }

    /// Makes a call of any kind on keys that are all in this slot. It is sent once, and again only where
    /// a server says that it did not run it.
    pub(crate) async fn call(
        &self,
        slot: u16,
        call: Call,
        deadline: Instant,
    ) -> Result<Reply, StoreError> {
        match &self.servers {
            Servers::One(lane) => {
                let made = lane.call(call, false, deadline).await;
                made.map_err(|failure| (&failure).into())
            }
            Servers::Cluster(cluster) => cluster.call(slot, &call, deadline).await,
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.deadline
    }
}

impl Store for RedisStore {
    async fn decide(&self, batch: &[Request<'_>], answers: &mut Answers) {
        match &self.servers {
            Servers::One(lane) => {
                let outcomes = lane.decide(batch, false, self.deadline()).await;
                answer(batch.len(), &outcomes, answers);
            }
            Servers::Cluster(cluster) => {
                let verdicts = cluster.decide(batch, self.deadline()).await;
                answers.clear();
                for verdict in verdicts {
                    match verdict {
                        Ok((at, decided)) => answers.push_at(at, |decisions| {
                            decisions.extend(decided);
                            Ok(())
                        }),
                        Err(error) => answers.push_with(|_| Err(error)),
                    }
                }
            }
        }
    }

    async fn forget(&self, keys: &[Key]) -> Result<(), StoreError> {
        if keys.is_empty() {
            return Ok(());
        }
        match &self.servers {
            Servers::One(lane) => {
                let forgotten = lane.forget(keys, false, self.deadline()).await;
                forgotten.map_err(|failure| (&failure).into())
            }
            Servers::Cluster(cluster) => cluster.forget(keys, self.deadline()).await,
        }
    }
}

fn answer(requests: usize, outcomes: &Outcomes, answers: &mut Answers) {
    answers.clear();
    for index in 0..requests {
        match outcomes.outcome(index) {
            Ok((at, decided)) => answers.push_at(at, |decisions| {
                decisions.extend_from_slice(decided);
                Ok(())
            }),
            Err(failure) => answers.push_with(|_| Err(failure.into())),
        }
    }
}
