//! The protocol of Redis, in both of its versions: `CL.THROTTLE` as redis-cell has it, `TG.*` by rules,
//! and what client libraries send when they connect. `docs/resp.md` is its reference.
//!
//! It is not a store of anything: commands that read or write keys are unknown here.
//!
//! | file | what it holds |
//! | --- | --- |
//! | [`parse`] | bytes to commands |
//! | [`conversation`] | commands to answers, all of one read together |
//! | `connection` | a conversation on a socket |
//! | `throttle`, `gate`, `session` | the commands |
//! | `commands` | the table of them |
//! | `waiting` | commands that a store is asked about |
//! | `reply` | answers to bytes |

mod commands;
mod connection;
pub mod conversation;
mod gate;
pub mod parse;
mod reply;
mod session;
mod throttle;
mod waiting;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use tokio_util::sync::CancellationToken;

use self::connection::Connection;
use self::conversation::Conversation;
use self::parse::Bounds;
use crate::engine::Engine;
use crate::listen::{Peer, Stream};

/// How much is answered before it is written: nothing more is until the client has taken it.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// What can be set about connections.
#[derive(Clone)]
#[non_exhaustive]
pub struct RespSettings {
    /// A hash, so that the password itself is not in memory for longer than it takes to read it.
    password_hash: Option<[u8; SHA256_OUTPUT_LEN]>,
    /// What a command may be at most.
    pub bounds: Bounds,
    /// How long a connection may be silent between commands; `None`, as in Redis, is for ever. It is
    /// closed after one to two times this.
    pub idle_timeout: Option<Duration>,
    /// How long a client may take to finish a command, or to read what it asked for. It is closed after
    /// one to two times this.
    pub stall_timeout: Duration,
}

impl RespSettings {
    /// The defaults: no password, no end to silence, 30 seconds for the rest of a command.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with a password, which clients have to say first. An empty one is one that nobody
    /// has set.
    #[must_use]
    pub fn with_password(mut self, password: &[u8]) -> Self {
        self.password_hash = (!password.is_empty()).then(|| hash(password));
        self
    }

    fn has_password(&self) -> bool {
        self.password_hash.is_some()
    }

    /// Whether this is the password; anything is where none is set. It takes as long whatever is wrong
    /// with it.
    fn accepts(&self, password: &[u8]) -> bool {
        let Some(expected) = &self.password_hash else { return true };
        verify_slices_are_equal(expected, &hash(password)).is_ok()
    }
}

fn hash(password: &[u8]) -> [u8; SHA256_OUTPUT_LEN] {
    let mut bytes = [0; SHA256_OUTPUT_LEN];
    bytes.copy_from_slice(digest(&SHA256, password).as_ref());
    bytes
}

impl Default for RespSettings {
    fn default() -> Self {
        Self {
            password_hash: None,
            bounds: Bounds::default(),
            idle_timeout: None,
            stall_timeout: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for RespSettings {
    /// Says whether there is a password, and nothing about it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { password_hash, bounds, idle_timeout, stall_timeout } = self;
        f.debug_struct("RespSettings")
            .field("has_password", &password_hash.is_some())
            .field("bounds", bounds)
            .field("idle_timeout", idle_timeout)
            .field("stall_timeout", stall_timeout)
            .finish()
    }
}

/// Serves one connection until it ends, or until `drain` is cancelled and what is under way is answered.
pub async fn serve(engine: Arc<Engine>, stream: Stream, peer: Peer, drain: CancellationToken) {
    static DEFAULTS: LazyLock<Arc<RespSettings>> = LazyLock::new(Arc::default);
    serve_with(engine, Arc::clone(&DEFAULTS), stream, peer, drain).await;
}

/// The same with settings.
pub async fn serve_with(
    engine: Arc<Engine>,
    settings: Arc<RespSettings>,
    stream: Stream,
    peer: Peer,
    drain: CancellationToken,
) {
    let conversation = Conversation::new(engine, Arc::clone(&settings), peer);
    let mut connection = Connection::new(stream, conversation, settings);
    {
        let mut drained = pin!(drain.cancelled());
        let mut is_draining = false;
        poll_fn(|context| {
            // Reading comes first, so that what has arrived is still answered.
            if connection.poll(context).is_ready() {
                return Poll::Ready(());
            }
            is_draining = is_draining || drained.as_mut().poll(context).is_ready();
            if is_draining && connection.drain() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
    connection.close().await;
}
