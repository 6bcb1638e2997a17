//! A real server for tests: each test starts its own on a socket of its own, and stops it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate::redis::{RedisConfig, Shared, SharedConfig, TimeSource};
use tokio::runtime::Runtime;

/// Long enough for a machine that is busy with something else.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running server. It ends with this value.
pub(crate) struct Server {
    child: Child,
    socket: PathBuf,
    /// Held open, so that the server can go on logging.
    _log: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("tidegate-rules-{}-{number}.sock", std::process::id());
        Self::start_at(&std::env::temp_dir().join(name))
    }

    /// Starts a server on this socket, as one that was stopped and comes back does.
    pub(crate) fn start_at(socket: &Path) -> Self {
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "notice"]);
        command.arg("--unixsocket").arg(socket).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut log = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("eady to accept connections") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended before it was ready");
        }
        Self { child, socket: socket.to_owned(), _log: log }
    }

    /// Pauses it, or has it go on.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn config(&self) -> RedisConfig {
        let url = format!("redis+unix://{}", self.socket.display());
        RedisConfig::new(&url).unwrap().deadline(PATIENCE).connect_timeout(PATIENCE)
    }

    /// Limits that nodes share, by the time of the requests, and always by asking.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        let group = self.config().time(TimeSource::Request);
        connect(SharedConfig::new([group]).keep_denials(false))
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

pub(crate) fn connect(config: SharedConfig) -> Arc<Shared> {
    Arc::new(block_on(Shared::connect(config)).expect("the server is there"))
}

/// Runs a future on the runtime that all connections of the test share.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().unwrap()).block_on(future)
}
