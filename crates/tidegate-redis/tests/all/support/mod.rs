//! Real servers for tests: each test starts its own and stops it, also where it panics.
//!
//! | file | what it starts |
//! | --- | --- |
//! | `deployment` | any of these, behind one URL |
//! | `server` | one server: on a socket, on a free port, with a password, with TLS |
//! | `proxy` | a way to a server that can be slow, and can be cut |
//! | `cluster` | primaries, and replicas where a test needs them |
//! | `sentinel` | a primary, a replica, and three Sentinels |
//! | `nodes` | no server: nodes that share limits, and what they are asked |
//! | `tls` | certificates, and TLS in front of a server that has none |
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "every test file uses its own part of this"
)]
#![allow(clippy::missing_panics_doc, reason = "a test that cannot start its servers is to fail")]

pub mod cluster;
pub mod deployment;
pub mod nodes;
pub mod proxy;
pub mod sentinel;
pub mod server;
pub mod tls;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use cluster::Cluster;
pub use deployment::{Deployment, Mode};
pub use proxy::Proxy;
pub use sentinel::Sentinels;
pub use server::{Kind, Server};
use tidegate_core::Key;
use tidegate_redis::{RedisConfig, RedisStore};
use tidegate_store::{Answers, Request, Store, StoreError};
pub use tls::{Certificates, TlsFront};
use tokio::runtime::Runtime;

/// Long enough for a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait before looking again.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A store and its servers, as the suite takes them.
pub struct Served {
    store: RedisStore,
    _deployment: Arc<Deployment>,
}

impl Served {
    pub fn start(kind: Kind) -> Self {
        Self::on(kind, Mode::Single)
    }

    pub fn on(kind: Kind, mode: Mode) -> Self {
        let deployment = Deployment::shared(kind, mode);
        Self { store: connect(deployment.config()), _deployment: deployment }
    }

    pub fn store(&self) -> &RedisStore {
        &self.store
    }
}

impl Store for Served {
    async fn decide(&self, batch: &[Request<'_>], answers: &mut Answers) {
        self.store.decide(batch, answers).await;
    }

    async fn forget(&self, keys: &[Key]) -> Result<(), StoreError> {
        self.store.forget(keys).await
    }
}

/// A store on a server that is there.
pub fn connect(config: RedisConfig) -> RedisStore {
    block_on(RedisStore::connect(config)).expect("the server is there")
}

/// Runs a future on the runtime that all stores of the test share.
pub fn block_on<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime"))
}

/// Looks again and again until there is something to see.
#[expect(clippy::disallowed_methods, reason = "a real process is waited for, up to a deadline")]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    // Servers that elect another have nobody who hurries.
    let patience = 3 * PATIENCE;
    for _ in 0..patience.as_millis() / LOOK_EVERY.as_millis() {
        if let Some(seen) = look() {
            return seen;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    panic!("{what}: not within {patience:?}");
}
