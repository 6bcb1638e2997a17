//! The connection that all calls share, and a new one after it was lost.
//!
//! Connecting goes on in a task of its own, so that a call whose deadline passes does not take the
//! attempt with it. Calls wait for it as long as they may. After an attempt that failed, calls fail at
//! once for [`RETRY_PAUSE`], and the first one after that starts another: no storm, and no task that
//! works for nobody.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, Value};
use tokio::sync::watch;

use crate::config::RedisConfig;
use crate::script;

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

pub(crate) struct Link {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    timeout: Duration,
    status: watch::Sender<Status>,
    /// How many connections there have been.
    connections: AtomicU64,
}

impl Link {
    /// Connects for the first time, so that what is wrong is known at the start.
    pub(crate) async fn connect(config: &RedisConfig) -> Result<Self, ConnectError> {
        let client = Client::open(config.address.clone()).map_err(ConnectError::Address)?;
        let timeout = config.connect_timeout;
        let status = watch::Sender::new(Status::Idle);
        let shared = Shared { client, timeout, status, connections: AtomicU64::new(0) };
        let live = shared.attempt().await?;
        shared.status.send_replace(Status::Live(live));
        Ok(Self { shared: Arc::new(shared) })
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
        self.shared.status.send_if_modified(|status| match status {
            Status::Live(live) if live.generation == broken.generation => {
                *status = Status::Idle;
                true
            }
            _ => false,
        });
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
    async fn connect_once(&self) {
        if let Ok(live) = self.attempt().await {
            self.status.send_replace(Status::Live(live));
        } else {
            self.status.send_replace(Status::Failed);
            tokio::time::sleep(RETRY_PAUSE).await;
            self.status.send_replace(Status::Idle);
        }
    }

    /// Connects, and has the server keep the script.
    async fn attempt(&self) -> Result<Live, ConnectError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(None);
        let connecting = self.client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.map_err(ConnectError::of)?;
        let introduce = async {
            // A server that needs a password closes the connection on a long command without one, so
            // a short one comes first.
            connection.send_packed_command(&redis::cmd("PING")).await?.extract_error()?;
            load_script(&mut connection).await
        };
        let introduced = tokio::time::timeout(self.timeout, introduce).await;
        let script = introduced.map_err(|_| ConnectError::Silent)?.map_err(ConnectError::of)?;
        // ORDERING: it only has to be another number than before.
        let generation = self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(Live { connection, script, generation })
    }
}

/// Has the server keep the script, and gives the name that it has there.
pub(crate) async fn load_script(
    connection: &mut MultiplexedConnection,
) -> Result<Arc<str>, RedisError> {
    let mut load = Cmd::new();
    load.arg("SCRIPT").arg("LOAD").arg(script::SOURCE);
    match connection.send_packed_command(&load).await?.extract_error()? {
        Value::BulkString(name) => Ok(String::from_utf8_lossy(&name).into()),
        Value::SimpleString(name) => Ok(name.into()),
        _ => Err((ErrorKind::UnexpectedReturnType, "SCRIPT LOAD gave no name").into()),
    }
}

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is none, or not one of a server that can be reached.
    Address(RedisError),
    /// The prefix of keys is too long, or holds braces or characters that are not printed.
    Prefix,
    /// Nobody answers at that address.
    Unreachable(RedisError),
    /// Somebody accepts connections there and does not answer in time.
    Silent,
    /// The server does not accept the user name or the password, or needs one.
    Credentials(RedisError),
    /// The server answers, and does not keep scripts or do what else is needed.
    Unsuitable(RedisError),
}

impl ConnectError {
    fn of(error: RedisError) -> Self {
        let code = error.code();
        if error.kind() == ErrorKind::AuthenticationFailed
            || matches!(code, Some("NOAUTH" | "WRONGPASS" | "NOPERM"))
        {
            Self::Credentials(error)
        } else if error.is_timeout() {
            Self::Silent
        } else if error.is_io_error() {
            Self::Unreachable(error)
        } else {
            Self::Unsuitable(error)
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Address(_) => "the store's URL is not valid",
            Self::Prefix => "the prefix of the store's keys is too long or holds braces",
            Self::Unreachable(_) => "the store cannot be reached",
            Self::Silent => "the store accepts connections and does not answer",
            Self::Credentials(_) => "the store does not accept the user name or password",
            Self::Unsuitable(_) => "the store answers, and cannot run the script",
        })
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Address(error)
            | Self::Unreachable(error)
            | Self::Credentials(error)
            | Self::Unsuitable(error) => Some(error),
            Self::Prefix | Self::Silent => None,
        }
    }
}
