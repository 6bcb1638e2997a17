//! The connection that all calls to one server share, and a new one after it was lost.
//!
//! Connecting goes on in a task of its own, so that a call whose deadline passes does not take the
//! attempt with it. Calls wait for it as long as they may. After an attempt that failed, calls fail at
//! once for [`RETRY_PAUSE`], and the first one after that starts another: no storm, and no task that
//! works for nobody.
//!
//! Every attempt begins from nothing: names are looked up, Sentinels asked, passwords and certificates
//! read again. So a failover, a rotated password and a new address need no restart.

mod connector;
mod error;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::watch;

pub(crate) use connector::{Connector, Target, ask, ask_sentinels, load_script, text};
pub use error::ConnectError;

/// How long calls fail at once after an attempt to connect that failed.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A connection, and the name that the server gave to the script. All clones are one connection.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) connection: MultiplexedConnection,
    pub(crate) script: Arc<str>,
    /// Counts up, so that whoever finds it broken does not close the next one.
    generation: u64,
}

#[derive(Clone)]
enum Status {
    /// Nobody has asked since the last one was lost.
    Idle,
    Connecting,
    Live(Live),
    /// The last attempt failed a moment ago.
    Failed,
}

/// The way to one server.
pub(crate) struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Connector,
    status: watch::Sender<Status>,
    /// How many connections there have been.
    connections: AtomicU64,
    /// Whether it has been said that there is no connection to be had.
    mourned: AtomicBool,
}

impl Link {
    /// A link that connects when the first call needs it.
    pub(crate) fn new(connector: Connector) -> Self {
        let shared = Shared {
            connector,
            status: watch::Sender::new(Status::Idle),
            connections: AtomicU64::new(0),
            mourned: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Connects for the first time, so that what is wrong is known at the start.
    pub(crate) async fn connect(&self) -> Result<(), ConnectError> {
        let live = self.shared.attempt().await?;
        self.shared.status.send_replace(Status::Live(live));
        Ok(())
    }

    /// The connection, as soon as there is one; `None` where there is none to be had now.
    pub(crate) async fn live(&self) -> Option<Live> {
        if let Status::Live(live) = &*self.shared.status.borrow() {
            return Some(live.clone());
        }
        self.start_connecting();
        let mut status = self.shared.status.subscribe();
        let settled = |status: &Status| matches!(status, Status::Live(_) | Status::Failed);
        match &*status.wait_for(settled).await.ok()? {
            Status::Live(live) => Some(live.clone()),
            Status::Idle | Status::Connecting | Status::Failed => None,
        }
    }

    /// Says that a connection is broken. Calls from now on get another.
    pub(crate) fn lost(&self, broken: &Live) {
        self.shared.lost(broken);
    }

    /// How many connections there have been, the first one included.
    pub(crate) fn connections(&self) -> u64 {
        // ORDERING: a number for people.
        self.shared.connections.load(Ordering::Relaxed)
    }

    fn start_connecting(&self) {
        let begun = self.shared.status.send_if_modified(|status| match status {
            Status::Idle => {
                *status = Status::Connecting;
                true
            }
            _ => false,
        });
        if begun {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move { shared.connect_once().await });
        }
    }
}

impl Shared {
    fn lost(&self, broken: &Live) {
        self.status.send_if_modified(|status| match status {
            Status::Live(live) if live.generation == broken.generation => {
                *status = Status::Idle;
                true
            }
            _ => false,
        });
    }

    async fn connect_once(&self) {
        match self.attempt().await {
            Ok(live) => {
                // ORDERING: one attempt at a time touches it, and each is a task of its own.
                if self.mourned.swap(false, Ordering::Relaxed) {
                    tracing::info!("the store is connected again");
                }
                self.status.send_replace(Status::Live(live));
            }
            Err(error) => {
                // ORDERING: as above.
                if !self.mourned.swap(true, Ordering::Relaxed) {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, cause, "there is no connection to the store");
                }
                self.status.send_replace(Status::Failed);
                tokio::time::sleep(RETRY_PAUSE).await;
                self.status.send_replace(Status::Idle);
            }
        }
    }

    async fn attempt(&self) -> Result<Live, ConnectError> {
        let (connection, script) = self.connector.connect().await?;
        // ORDERING: it only has to be another number than before.
        let generation = self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Live { connection, script, generation })
    }
}

/// Whether an error that the server sent says that another connection may do better: what was the
/// primary is none any more, or who we are is not accepted any more.
pub(crate) fn is_stale(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.kind() == ErrorKind::Server(ServerErrorKind::MasterDown)
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS"))
}
